package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// copyTable has a column of each kind that COPY writes in a way of its own.
const copyTable = `CREATE TABLE rows (tenant %s, id bigint, note text, num numeric, at timestamptz, raw bytea, arr text[], ok boolean, PRIMARY KEY (tenant, id))`

// plainConn is a connection to one plain PostgreSQL database.
func plainConn(t testing.TB) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func copyTo(t testing.TB, c *pgx.Conn, sql string) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := c.PgConn().CopyTo(context.Background(), &b, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return b.String()
}

func copyFrom(c *pgx.Conn, data, sql string) (pgconn.CommandTag, error) {
	return c.PgConn().CopyFrom(context.Background(), &choppy{r: strings.NewReader(data)}, sql)
}

// choppy reads in pieces of odd sizes.
type choppy struct {
	r *strings.Reader
	n int
}

func (c *choppy) Read(p []byte) (int, error) {
	c.n = (c.n*7 + 13) % 4093
	return c.r.Read(p[:min(len(p), 1+c.n)])
}

// nasty are texts that the forms of COPY have to escape.
var nasty = []string{"", `\N`, `\.`, "\\", "a\tb", "a\nb", "a\r\nb", "\r", `"`, `""`, `a"b,c`, ",", "NULL", "null", `\\N`, "ä€😀", " ", "\x01\b\f\v", `\x41`, `\101`, "'", ";", "|", "x\\", `{"a": [1, 2]}`, "--"}

func pick(r *rand.Rand) string {
	if r.IntN(6) == 0 {
		return strings.Repeat(nasty[r.IntN(len(nasty))], r.IntN(400))
	}
	return nasty[r.IntN(len(nasty))] + nasty[r.IntN(len(nasty))]
}

// fillNasty puts random rows into the plain table.
func fillNasty(t *testing.T, c *pgx.Conn, r *rand.Rand, tenant func() any, rows int) {
	t.Helper()
	var b pgx.Batch
	null := func(v any) any {
		if r.IntN(5) == 0 {
			return nil
		}
		return v
	}
	for i := range rows {
		b.Queue("INSERT INTO rows VALUES ($1, $2, $3, $4::text::numeric, $5, $6, $7, $8)", tenant(), i, null(pick(r)), null(fmt.Sprintf("%d.%03d", r.IntN(1e6), r.IntN(1000))),
			null(time.Unix(r.Int64N(4e9), 1000*r.Int64N(1e6))), null([]byte(pick(r))), null([]string{pick(r), pick(r)}), null(r.IntN(2) == 0))
	}
	if err := c.SendBatch(context.Background(), &b).Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCopyRoundTrip: what a plain server copies out goes in through the router and
// comes out the same, in every form; nasty values everywhere, in the key too.
func TestCopyRoundTrip(t *testing.T) {
	cl := start(t, config{shards: 3})
	for _, kind := range []struct {
		typ string
		key func(r *rand.Rand) any
	}{
		{"bigint", func(r *rand.Rand) any { return r.Int64N(100) - 50 }},
		{"text", func(r *rand.Rand) any { return pick(r) }},
		{"varchar(2000)", func(r *rand.Rand) any { return pick(r)[:0] + nasty[r.IntN(len(nasty))] }},
		{"date", func(r *rand.Rand) any { return time.Date(2000+r.IntN(50), 1, 1+r.IntN(300), 0, 0, 0, 0, time.UTC) }},
		{"timestamptz", func(r *rand.Rand) any { return time.Unix(r.Int64N(4e9), 0) }},
		{"uuid", func(r *rand.Rand) any { return fmt.Sprintf("%032x", r.Uint64()) }},
		{"bytea", func(r *rand.Rand) any { return []byte(pick(r)) }},
	} {
		t.Run(kind.typ, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, 9))
			plain, conn := plainConn(t), cl.connect(t)
			create := fmt.Sprintf(copyTable, kind.typ)
			exec(t, plain, create)
			exec(t, conn, "DROP TABLE IF EXISTS rows")
			exec(t, conn, create+" WITH (cleave.shard_key = 'tenant')")
			fillNasty(t, plain, r, func() any { return kind.key(r) }, 400)
			ordered := func(c *pgx.Conn) string {
				return copyTo(t, c, "COPY (SELECT * FROM rows ORDER BY id) TO STDOUT")
			}
			want := ordered(plain)
			for _, form := range []string{"", "(FORMAT csv)", "(FORMAT binary)", "(FORMAT csv, HEADER)", "(FORMAT csv, HEADER match, DELIMITER ';', QUOTE '''', ESCAPE '\\')",
				"(FORMAT csv, NULL 'null', FORCE_QUOTE *)", "(DELIMITER '|', NULL '%%')", "(FORMAT csv, DELIMITER E'\\t', ESCAPE '\\')", "(HEADER)"} {
				out := copyTo(t, plain, "COPY rows TO STDOUT WITH "+strings.Replace(orText(form), "match", "true", 1))
				in := orText(form)
				if strings.Contains(in, "FORCE_QUOTE") {
					in = "(FORMAT csv, NULL 'null')"
				}
				tag, err := copyFrom(conn, out, "COPY rows FROM STDIN WITH "+in)
				if err != nil || tag.String() != "COPY 400" {
					t.Fatalf("%s: %v %+v", form, tag, err)
				}
				if got := ordered(conn); got != want {
					t.Fatalf("%s: the tables differ:\n%s\n%s", form, firstDifference(got, want), form)
				}
				// Out of the router, into a plain table again.
				again := copyTo(t, conn, "COPY rows TO STDOUT WITH "+strings.Replace(orText(form), "match", "true", 1))
				query := copyTo(t, conn, "COPY (SELECT * FROM rows ORDER BY id) TO STDOUT WITH "+strings.Replace(orText(form), "match", "true", 1))
				if plainQuery := copyTo(t, plain, "COPY (SELECT * FROM rows ORDER BY id) TO STDOUT WITH "+strings.Replace(orText(form), "match", "true", 1)); query != plainQuery {
					t.Fatalf("%s: COPY of a query differs: %s", form, firstDifference(query, plainQuery))
				}
				exec(t, plain, "TRUNCATE rows")
				if tag, err := copyFrom(plain, again, "COPY rows FROM STDIN WITH "+in); err != nil || tag.String() != "COPY 400" {
					t.Fatalf("%s: %v %v", form, tag, err)
				}
				if got := ordered(plain); got != want {
					t.Fatalf("%s: the tables differ: %s", form, firstDifference(got, want))
				}
				exec(t, conn, "DELETE FROM rows")
			}
		})
	}
}

func orText(form string) string {
	if form == "" {
		return "(FORMAT text)"
	}
	return form
}

func firstDifference(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return fmt.Sprintf("at %d: %q and %q", i, a[max(0, i-80):min(len(a), i+80)], b[max(0, i-80):min(len(b), i+80)])
}

var shardContext = regexp.MustCompile(`\n?shard shard-\d$`)

// TestCopyErrors: the error of a wrong row has PostgreSQL's code, message and line of
// the client's data, and nothing of the COPY stays.
func TestCopyErrors(t *testing.T) {
	cl := start(t, config{shards: 3})
	plain, conn := plainConn(t), cl.connect(t)
	create := `CREATE TABLE rows (tenant bigint, id int CHECK (id < 1000), note varchar(5), PRIMARY KEY (tenant, id))`
	exec(t, plain, create)
	exec(t, conn, create+" WITH (cleave.shard_key = 'tenant')")
	var good strings.Builder
	for i := range 300 {
		fmt.Fprintf(&good, "%d\t%d\tx\n", i, i)
	}
	csv := strings.ReplaceAll(good.String(), "\t", ",")
	for _, c := range []struct{ name, options, data string }{
		{"fine", "", good.String()},
		{"no rows", "", ""},
		{"end mark", "", good.String() + "\\.\nwhat follows is ignored"},
		{"end mark of csv", "csv", csv + "\\.\n1000,1,x\n"},
		{"end mark behind data", "", good.String() + "1000\t1\tx\\.\n5\t5\t5\n"},
		{"no end of line", "", good.String() + "1000\t1\tx"},
		{"CRLF", "", strings.ReplaceAll(good.String(), "\n", "\r\n")},
		{"CR", "", strings.ReplaceAll(good.String(), "\n", "\r")},
		{"CRLF in csv", "csv header", "tenant,id,note\r\n" + strings.ReplaceAll(csv, "\n", "\r\n")},
		{"mixed", "", good.String() + "1\t1\tx\r\n"},
		{"mixed other way", "", strings.ReplaceAll(good.String(), "\n", "\r\n") + "1\t1\tx\n"},
		{"mixed csv", "csv", csv + "1,1,x\r\n"},
		{"carriage return in a value", "", good.String() + "1\t1\tx\ry\n2\t2\tx\n"},
		{"duplicate", "", good.String() + "7\t7\tx\n"},
		{"check", "", good.String() + "8\t1000\tx\n"},
		{"too long", "", good.String() + "8\t999\txxxxxxx\n"},
		{"not a number", "", good.String() + "8\tx\tx\n"},
		{"key is not a number", "", good.String() + "x\t1\tx\n"},
		{"key out of range", "", good.String() + "99999999999999999999\t1\tx\n"},
		{"empty key", "", good.String() + "\t1\tx\n"},
		{"too few values", "", good.String() + "8\t1\n"},
		{"one value", "", good.String() + "8\n"},
		{"too many values", "", good.String() + "8\t1\tx\ty\n"},
		{"empty line", "", good.String() + "\n"},
		{"header", "header", "a\tb\tc\n" + good.String()},
		{"header matches", "header match", "tenant\tid\tnote\n" + good.String()},
		{"header does not match", "header match", "tenant\tID\tnote\n" + good.String()},
		{"header of two columns", "header match", "tenant\tid\n" + good.String()},
		{"quoted lines", "csv", "1,1,\"a\nb\"\n2,2,\"a\nb\nc\"\n3,3,x\n4,4,toolong\n"},
		{"quoted lines first", "csv", "1,1,\"a\nb\"\n2,2,\"a\nb\nc\"\n3,x,x\n"},
		{"quoted lines of CRLF", "csv", "1,1,\"a\r\nb\"\r\n2,2,\"a\r\nb\"\r\n3,x,x\r\n"},
		{"open quote", "csv", csv + "1000,\"1,x\n"},
		{"not UTF-8", "", good.String() + "8\t1\t\xff\n"},
		{"key in escapes", "", "\\x31\\x32\t1\tx\n\\061\t2\ty\n"},
		{"space around a key", "csv", " 5 ,1,x\n"},
		{"corrupt end mark", "", good.String() + "\\.x\n"},
		{"wrong option", "delimiter 'ab'", good.String()},
		{"unknown option", "nonsense", good.String()},
		{"end mark of two styles", "", good.String() + "\\.\r\n"},
		{"backslash at the end", "", "1\t1\tx\\\n2\t2\ty\n"},
	} {
		sql := "COPY rows FROM STDIN"
		if c.options != "" {
			sql += " WITH (" + strings.Replace(c.options, "csv", "FORMAT csv", 1) + ")"
			sql = strings.Replace(sql, "csv header", "csv, header", 1)
		}
		run := func(conn *pgx.Conn) string {
			tag, err := copyFrom(conn, c.data, sql)
			said := tag.String()
			if e, ok := err.(*pgconn.PgError); ok {
				said = e.Code + ": " + e.Message + " [" + shardContext.ReplaceAllString(e.Where, "") + "] (" + e.Detail + ")"
			} else if err != nil {
				said = err.Error()
			}
			rows := copyTo(t, conn, "COPY (SELECT * FROM rows ORDER BY 1, 2, 3) TO STDOUT")
			exec(t, conn, "DELETE FROM rows")
			return said + fmt.Sprintf(" %d bytes", len(rows)) + firstDifference(rows, "")
		}
		want, got := run(plain), run(conn)
		if c.name == "duplicate" {
			// PostgreSQL says the row where the table has a trigger, as shards have.
			got = strings.Replace(got, ": \"7\t7\tx\"", "", 1)
		}
		if got != want {
			t.Errorf("%s:\n got %.400s\nwant %.400s", c.name, got, want)
		}
	}
	// A client that gives up, and one that leaves.
	if _, err := conn.PgConn().CopyFrom(context.Background(), &failing{data: good.String()}, "COPY rows FROM STDIN"); codeOf(err) != "57014" {
		t.Errorf("CopyFail: %v", err)
	}
	left := cl.connect(t)
	_ = left.PgConn().Conn().SetDeadline(time.Now().Add(waitfor.Max))
	frames := append([]byte("Q\x00\x00\x00\x19COPY rows FROM STDIN\x00d\x00\x00\x00\x0a1\t1\tx\n"), 'd', 0, 0, 0, 4)
	if _, err := left.PgConn().Conn().Write(frames); err != nil {
		t.Fatal(err)
	}
	_ = left.PgConn().Conn().Close()
	waitfor.True(t, "no shard has a COPY or a transaction left", func() bool {
		n := "0"
		for i := range cl.shards {
			if cl.direct(t, i, "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' OR query LIKE 'COPY rows%' AND state = 'active'") != "0" {
				n = "1"
			}
		}
		return n == "0"
	})
	if n := one[int](t, conn, "SELECT count(*) FROM rows"); n != 0 {
		t.Errorf("%d rows stayed", n)
	}
}

// failing is a client that finds something wrong with its data.
type failing struct{ data string }

func (f *failing) Read(p []byte) (int, error) {
	if f.data == "" {
		return 0, fmt.Errorf("the client changed its mind")
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

// TestCopyTransactions: COPY inside transactions, with savepoints, by pgx's
// CopyFrom (binary, extended protocol), of reference tables and with made values.
func TestCopyTransactions(t *testing.T) {
	cl, conn, _ := orders(t, config{shards: 3})
	ctx := context.Background()
	count := func() int { return one[int](t, conn, "SELECT count(*) FROM orders") }
	rows := func(from, n int) pgx.CopyFromSource {
		return pgx.CopyFromSlice(n, func(i int) ([]any, error) { return []any{int64(from + i), int64(1), "x"}, nil })
	}
	cols := []string{"tenant_id", "id", "note"}
	n, err := conn.CopyFrom(ctx, pgx.Identifier{"orders"}, cols, rows(0, 5000))
	if err != nil || n != 5000 || count() != 5000 {
		t.Fatal(n, err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "INSERT INTO orders VALUES (100000, 1, 'first')")
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, cols, rows(5000, 100)); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "SAVEPOINT s")
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, cols, rows(5090, 100)); codeOf(err) != "23505" {
		t.Fatal(err)
	}
	wantCode(t, conn, "25P02", "SELECT 1")
	exec(t, conn, "ROLLBACK TO s")
	if n := count(); n != 5101 {
		t.Errorf("%d rows after ROLLBACK TO", n)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 5000 {
		t.Errorf("%d rows after ROLLBACK", n)
	}
	// All to one shard: nothing of two phases.
	if tag, err := copyFrom(conn, "7\t2\ty\n", "COPY orders (tenant_id, id, note) FROM STDIN"); err != nil || tag.String() != "COPY 1" {
		t.Error(tag, err)
	}
	if tag, err := copyFrom(conn, "1,1,1\n2,9,2\n", "COPY orders (note, tenant_id, id) FROM STDIN WITH (FORMAT csv) WHERE note <> '1'"); err != nil || tag.String() != "COPY 1" {
		t.Error(tag, err)
	}

	exec(t, conn, "CREATE TABLE kinds (id int PRIMARY KEY, name text, made timestamptz DEFAULT now(), fine int DEFAULT 7) WITH (cleave.reference)")
	if tag, err := copyFrom(conn, "3\tc\n", "COPY kinds (id, name) FROM STDIN"); err != nil || tag.String() != "COPY 1" {
		t.Error(tag, err)
	}
	for i := range cl.shards {
		if at, want := cl.direct(t, i, "SELECT made::text FROM kinds"), cl.direct(t, 0, "SELECT made::text FROM kinds"); at != want {
			t.Errorf("shard %d has the default %s, shard 0 %s", i, at, want)
		}
	}
	exec(t, conn, "DELETE FROM kinds")
	if tag, err := copyFrom(conn, "1\ta\t\\N\n2\tb\t2020-01-01\n", "COPY kinds (id, name, made) FROM STDIN"); err != nil || tag.String() != "COPY 2" {
		t.Error(tag, err)
	}
	for i := range cl.shards {
		if n := cl.direct(t, i, "SELECT count(*) FROM kinds WHERE fine = 7"); n != "2" {
			t.Errorf("shard %d has %s rows of the reference table", i, n)
		}
	}
	if got := copyTo(t, conn, "COPY kinds (id, name) TO STDOUT WITH (FORMAT csv, HEADER)"); got != "id,name\n1,a\n2,b\n" {
		t.Errorf("%q", got)
	}

	exec(t, conn, "CREATE TABLE made (id bigint PRIMARY KEY DEFAULT cleave.next_id(), note text) WITH (cleave.shard_key = 'id')")
	for _, c := range []struct{ sql, data string }{
		{"COPY made (note) FROM STDIN", strings.Repeat("a\n", 100)},
		{"COPY made (note) FROM STDIN WITH (FORMAT csv, HEADER match)", "note\n" + strings.Repeat("\"a\nb\"\n", 100)},
	} {
		if tag, err := copyFrom(conn, c.data, c.sql); err != nil || tag.String() != "COPY 100" {
			t.Errorf("%s: %v %v", c.sql, tag, err)
		}
	}
	if n, err := conn.CopyFrom(ctx, pgx.Identifier{"made"}, []string{"note"}, pgx.CopyFromSlice(100, func(i int) ([]any, error) { return []any{"b"}, nil })); err != nil || n != 100 {
		t.Error(n, err)
	}
	if n := one[int](t, conn, "SELECT count(DISTINCT id) FROM made"); n != 300 {
		t.Errorf("%d ids", n)
	}
	wantCode(t, conn, "0A000", "COPY orders (id, note) FROM STDIN")
	wantCode(t, conn, "42501", "COPY orders FROM '/etc/passwd'")
	wantCode(t, conn, "42501", "COPY orders TO PROGRAM 'cat'")

	// Values that only PostgreSQL can read, in the settings of the session.
	exec(t, conn, "CREATE TABLE days (at timestamptz, id int) WITH (cleave.shard_key = 'at')")
	exec(t, conn, "SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'SQL, DMY'")
	if tag, err := copyFrom(conn, "31/12/2020 10:00\t1\n2020-12-31 10:00:00\t2\nepoch\t3\n", "COPY days FROM STDIN"); err != nil || tag.String() != "COPY 3" {
		t.Error(tag, err)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM days WHERE at = '2020-12-31 01:00:00+00'"); n != 2 {
		t.Errorf("%d rows at that time", n)
	}
	if _, err := copyFrom(conn, "31/12/2020 10:00\t1\nnever ever\t2\n", "COPY days FROM STDIN"); codeOf(err) != "22007" {
		t.Error(err)
	}
}
