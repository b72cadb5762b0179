package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// sortedTypes are columns of the types that rows are merged by, with values that
// are hard to sort.
var sortedTypes = []struct{ name, typ, values string }{
	{"i2", "smallint", "-32768 -1 0 1 32767"},
	{"i4", "integer", "-2147483648 -1 0 7 2147483647"},
	{"i8", "bigint", "-9223372036854775808 -1 0 7 9223372036854775807"},
	{"f4", "real", "-Infinity -1.5 -0 0 1e-30 NaN Infinity"},
	{"f8", "double precision", "-Infinity -1.5 -0 0 1e300 NaN Infinity"},
	{"nu", "numeric", "-Infinity -12345678901234567890.5 -1 -0.0001 0 0.00 0.00012 1 1.0 1.5 9999 10000 10000.1 123456789012345678901234567890 NaN Infinity"},
	{"bo", "boolean", "t f"},
	{"da", "date", "-infinity 0044-03-15_BC 1999-12-31 2000-01-01 12345-06-07 infinity"},
	{"ti", "time", "00:00:00 10:00:00 10:00:00.5 10:00:00.25 24:00:00"},
	{"tz", "timetz", "10:00:00+00 12:00:00+02 10:00:00.5+01 11:00:00+01"},
	{"ts", "timestamp", "-infinity 0044-03-15T01:00:00_BC 1999-12-31T23:59:59.999999 2000-01-01T00:00:00 infinity"},
	{"tt", "timestamptz", "-infinity 1999-12-31T23:59:59.5+05:30 2000-01-01T00:00:00Z 2024-10-27T01:30:00+02 2024-10-27T01:30:00+01 infinity"},
	{"iv", "interval", "-1day 1month 30days 29days 720hours 1year -1month 0 1us"},
	{"uu", "uuid", "00000000-0000-0000-0000-000000000000 a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 ffffffff-ffff-ffff-ffff-ffffffffffff A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12"},
	{"by", "bytea", `\x \x00 \x0000 \x00ff \xff \x61`},
	{"oi", "oid", "0 1 4294967295"},
	{"te", "text", "a b A B ab a-b a_b ä z é Z 10 9"},
	{"tc", `text COLLATE "C"`, "a b A B ab a-b a_b ä z é Z 10 9"},
	{"vc", `varchar(10) COLLATE "C"`, "a b A B ab ä"},
	{"bc", `char(5) COLLATE "C"`, "a b A B ab ä"},
	{"ci", `text COLLATE "en-x-icu"`, "a b A B ab a-b a_b ä z é Z 10 9"},
	{"mo", "money", "-1 0 92.5"},
	{"jb", "jsonb", `{} [] 1 "a" null`},
	{"ar", "integer[]", "{} {1} {1,2} {2}"},
}

// beside is a router and one plain database with the same rows.
type beside struct {
	t      *testing.T
	router *pgx.Conn
	plain  *pgx.Conn

	refused int // never a failure, but counted
}

func newBeside(t *testing.T, router *pgx.Conn) *beside {
	t.Helper()
	plain, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plain.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &beside{t: t, router: router, plain: plain}
}

// both runs a statement on both; option is what the router's CREATE TABLE adds.
func (b *beside) both(sql, option string) {
	b.t.Helper()
	exec(b.t, b.router, sql+option)
	exec(b.t, b.plain, sql)
}

// rowsOf is a statement's rows and tag, or its error code.
func rowsOf(t *testing.T, c *pgx.Conn, sql string, binary bool, args ...string) string {
	t.Helper()
	var res *pgconn.Result
	ctx := context.Background()
	if args == nil && !binary {
		all, err := c.PgConn().Exec(ctx, sql).ReadAll()
		if err == nil && len(all) == 1 {
			res = all[0]
		} else {
			res = &pgconn.Result{Err: err}
		}
	} else {
		values := make([][]byte, len(args))
		for i, a := range args {
			if a != "NULL" {
				values[i] = []byte(a)
			}
		}
		format := []int16{0}
		if binary {
			format = []int16{1}
		}
		res = c.PgConn().ExecParams(ctx, sql, values, nil, nil, format).Read()
	}
	if res.Err != nil {
		var pe *pgconn.PgError
		if !errors.As(res.Err, &pe) {
			t.Fatalf("%s: %v", sql, res.Err)
		}
		return "error " + pe.Code + " " + pe.Message
	}
	var out strings.Builder
	for _, f := range res.FieldDescriptions {
		fmt.Fprintf(&out, "%s:%d|", f.Name, f.DataTypeOID)
	}
	for _, row := range res.Rows {
		out.WriteByte('\n')
		for _, v := range row {
			if v == nil {
				out.WriteString("NULL|")
			} else {
				fmt.Fprintf(&out, "%q|", v)
			}
		}
	}
	return out.String() + "\n" + res.CommandTag.String()
}

// same demands equal answers in text and in binary. Without ORDER BY the rows have
// to be given in one order by the statement itself.
func (b *beside) same(sql string, args ...string) {
	b.t.Helper()
	for _, binary := range []bool{false, true} {
		got, want := rowsOf(b.t, b.router, sql, binary, args...), rowsOf(b.t, b.plain, sql, binary, args...)
		if strings.HasPrefix(got, "error 0A000") {
			b.refused++
			b.t.Logf("refused: %s: %s", sql, got)
			continue
		}
		if strings.HasPrefix(want, "error ") && strings.HasPrefix(got, want[:len("error 00000")]) {
			continue
		}
		if got != want {
			b.t.Errorf("%s %v (binary %v)\nrouter: %s\nplain:  %s", sql, args, binary, got, want)
		}
	}
}

func TestScatterSortsEveryType(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewSource(1))
	cl := start(t, config{})
	b := newBeside(t, cl.connect(t))
	var cols []string
	for _, c := range sortedTypes {
		cols = append(cols, c.name+" "+c.typ)
	}
	b.both("CREATE TABLE s (k bigint, id bigint, "+strings.Join(cols, ", ")+", PRIMARY KEY (k, id))", " WITH (cleave.shard_key = 'k')")
	var values []string
	for n := range 60 {
		row := []string{fmt.Sprint(n / 3), fmt.Sprint(n)}
		for _, c := range sortedTypes {
			all := strings.Fields(c.values)
			v := "NULL"
			if i := r.Intn(len(all) + 1); i < len(all) {
				v = "'" + strings.Replace(all[i], "_BC", " BC", 1) + "'"
			}
			row = append(row, v)
		}
		values = append(values, "("+strings.Join(row, ", ")+")")
	}
	for _, v := range values {
		b.both("INSERT INTO s VALUES "+v, "")
	}
	for _, set := range []string{"SET timezone = 'Europe/Berlin'"} {
		b.both(set, "")
	}
	for _, c := range sortedTypes {
		for _, order := range []string{"", " DESC", " NULLS FIRST", " DESC NULLS LAST"} {
			b.same("SELECT id, " + c.name + " FROM s ORDER BY " + c.name + order + ", id")
		}
		b.same("SELECT id FROM s ORDER BY " + c.name + " DESC, id LIMIT 7 OFFSET 3")
		if c.name != "iv" && c.name != "tz" && c.name != "nu" && c.name != "f4" && c.name != "f8" {
			// Of equal values that look different PostgreSQL may give either.
			b.same("SELECT DISTINCT " + c.name + " FROM s ORDER BY 1")
		}
		b.same("SELECT DISTINCT ON (" + c.name + ") id FROM s ORDER BY " + c.name + ", id DESC")
	}
	b.same("SELECT id FROM s ORDER BY id LIMIT $1 OFFSET $2", "5", "50")
	b.same("SELECT id FROM s ORDER BY id LIMIT $1 OFFSET $2", "NULL", "50")
	b.same("SELECT id FROM s ORDER BY id LIMIT $1 OFFSET $2", "9223372036854775807", "9223372036854775807")
	b.same("SELECT id FROM s ORDER BY id LIMIT $1", "-1")
	b.same("SELECT id FROM s ORDER BY id OFFSET $1", "-1")
	b.same("SELECT id FROM s ORDER BY id LIMIT 0")
	b.same("SELECT id FROM s WHERE now() - now() = interval '0' ORDER BY id")
	b.same("SELECT id, 1/(id-30) FROM s ORDER BY id")
	b.same("SELECT *, id AS a FROM s ORDER BY a DESC, i2 + 1, lower(te) LIMIT 5")
	b.same("SELECT k, count(*), sum(i4), max(te) FROM s GROUP BY k ORDER BY count(*), k")
	b.same("SELECT id FROM s UNION ALL SELECT k FROM s ORDER BY 1")
	b.same("SELECT k, id FROM s EXCEPT SELECT k, id + 1 FROM s ORDER BY 2")
	b.same("SELECT id, rank() OVER (PARTITION BY k ORDER BY id DESC) FROM s ORDER BY 1")
	b.same("SELECT k, id FROM s WHERE k IN (1, 2, 3, 4, 5, 6, 7) ORDER BY id DESC")
}
