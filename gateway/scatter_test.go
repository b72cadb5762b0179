package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
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
	// However values are printed, their order is that of the values.
	for _, set := range []string{"extra_float_digits = 0", "extra_float_digits = -15", "datestyle = 'German, DMY'", "datestyle = 'Postgres, MDY'", "datestyle = 'SQL, DMY'", "bytea_output = 'escape'", "intervalstyle = 'iso_8601'"} {
		b.both("SET "+set, "")
		for _, c := range sortedTypes {
			b.same("SELECT id, " + c.name + " FROM s ORDER BY " + c.name + " DESC, id")
		}
		name, _, _ := strings.Cut(set, " ")
		b.both("RESET "+name, "")
	}
	if b.refused > 0 {
		t.Errorf("%d statements were refused", b.refused)
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

// onShard runs a statement on a shard, past the router and its guards.
func onShard(t *testing.T, url, sql string) {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, pgtest.PastGuards(url))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, c, "SET session_replication_role = replica")
	exec(t, c, sql)
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAggregatesOverShards(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewSource(2))
	cl := start(t, config{})
	b := newBeside(t, cl.connect(t))
	b.both("CREATE TABLE m (k bigint, id bigint, g text, i2 smallint, i4 integer, i8 bigint, f8 double precision, nu numeric, nn numeric(10,2), iv interval, bo boolean, da date, PRIMARY KEY (k, id))", " WITH (cleave.shard_key = 'k')")
	b.both("CREATE TABLE l (id bigint PRIMARY KEY, label text, kind text)", " WITH (cleave.reference)")
	pick := func(list string) string {
		all := strings.Fields(list)
		v := all[r.Intn(len(all))]
		if v == "NULL" {
			return v
		}
		return "'" + v + "'"
	}
	for n := range 80 {
		b.both(fmt.Sprintf("INSERT INTO m VALUES (%d, %d, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", n/4, n, pick("a b c d NULL"), pick("1 2 3 -7 NULL"),
			pick("1 2 2147483647 -2147483648 NULL"), pick("1 2 9223372036854775807 NULL"), pick("0.5 2 -4 1024 NULL"), pick("1 2.50 -3.333 1e20 NULL"),
			pick("1 2.5 -3.33 NULL"), pick("1day 2hours 1month NULL"), pick("t f NULL"), pick("2020-01-01 2021-05-05 NULL")), "")
	}
	for n := range 5 {
		sql := fmt.Sprintf("INSERT INTO l VALUES (%d, 'label %d', '%c')", n, n, 'x'+n%2)
		exec(t, b.plain, sql)
		for _, url := range cl.shards {
			onShard(t, url, sql)
		}
	}
	aggregates := []string{"count(*)", "count(nu)", "sum(i2)", "sum(i4)", "sum(i8)", "sum(f8)", "sum(nu)", "sum(nn)", "sum(iv)", "avg(i2)", "avg(i4)", "avg(i8)", "avg(f8)", "avg(nu)", "avg(nn)", "avg(iv)",
		"min(i2)", "max(nu)", "min(g)", "max(da)", "max(iv)", "bool_and(bo)", "bool_or(bo)", "every(i2 > -10)", "bit_and(i4)", "bit_or(i8)", "bit_xor(i2)",
		"count(DISTINCT g)", "count(DISTINCT i2) FILTER (WHERE i4 > 0)", "sum(DISTINCT i2)", "avg(DISTINCT i2)", "string_agg(DISTINCT g, ',')", "sum(i4) FILTER (WHERE bo)", "count(*) FILTER (WHERE NOT bo)",
		"stddev(i2)", "variance(nn)", "stddev_pop(i4)", "corr(i2, i4) IS NULL", "string_agg(g, '-' ORDER BY id)", "array_agg(i2 ORDER BY id DESC)", "json_agg(g ORDER BY id)", "jsonb_agg(i2 ORDER BY id) FILTER (WHERE bo)",
		"percentile_cont(0.5) WITHIN GROUP (ORDER BY i2)", "mode() WITHIN GROUP (ORDER BY g)", "percentile_disc(0.25) WITHIN GROUP (ORDER BY nu)",
		"sum(i2) + 1", "sum(i4) / count(*)", "sum(i2 * nn)", "sum(CASE WHEN bo THEN 1 ELSE 0 END)", "sum(coalesce(nn, 0))", "avg(i2 + i4 % 7)", "max(i2) - min(i2)", "sum(abs(i2))", "sum(-i2)", "sum(length(g))",
		"json_object_agg(id, g ORDER BY id)", "count(*) > 3", "round(avg(nn), 3)", "sum(nu) / nullif(sum(i2), 0)"}
	for _, x := range aggregates {
		b.same("SELECT " + x + " FROM m")
		b.same("SELECT " + x + " FROM m WHERE false")
		b.same("SELECT " + x + " FROM m WHERE k = 99999 OR k = 88888")
		b.same("SELECT g, " + x + " FROM m GROUP BY g ORDER BY g NULLS FIRST")
		b.same("SELECT g, bo, " + x + " AS x FROM m WHERE i2 IS NOT NULL GROUP BY ROLLUP (g, bo) ORDER BY grouping(g, bo), 1, 2")
		b.same("SELECT k, " + x + " FROM m GROUP BY k ORDER BY k")
	}
	for _, sql := range []string{
		"SELECT label, count(*), sum(nn) FROM m JOIN l ON l.id = m.i2 GROUP BY label ORDER BY 2 DESC, 1",
		"SELECT l.label, l.kind, count(*) FROM m JOIN l ON l.id = m.i2 GROUP BY l.id ORDER BY 1",
		"SELECT a.g, count(*), sum(b.i2) FROM m a JOIN m b ON a.k = b.k AND a.id < b.id GROUP BY a.g HAVING count(*) > 2 ORDER BY a.g",
		"SELECT i2 % 2 AS odd, sum(i4) FROM m GROUP BY odd ORDER BY odd",
		"SELECT g, sum(i2) AS i2 FROM m GROUP BY g ORDER BY i2, g",
		"SELECT g AS i2, count(*) FROM m GROUP BY g, m.i2 ORDER BY 1, 2, m.i2",
		"SELECT upper(g), count(*) FROM m GROUP BY upper(g) HAVING max(i2) > 0 ORDER BY upper(g)",
		"SELECT g, rank() OVER (ORDER BY sum(i2) DESC NULLS LAST, g), sum(sum(i2)) OVER () FROM m GROUP BY g ORDER BY g",
		"SELECT DISTINCT count(*) FROM m GROUP BY g ORDER BY 1",
		"SELECT DISTINCT ON (count(*)) count(*), g FROM m GROUP BY g ORDER BY count(*), g",
		"SELECT g, count(*) FROM m GROUP BY g ORDER BY count(*) DESC, g LIMIT 2 OFFSET 1",
		"SELECT count(*) FROM (SELECT DISTINCT k FROM m) s",
		"SELECT count(*), max(c) FROM (SELECT k, count(*) AS c FROM m GROUP BY k) s",
		"SELECT count(*) FROM m WHERE EXISTS (SELECT 1 FROM m n WHERE n.k = m.k AND n.id > m.id)",
		"SELECT g, bo, count(*) FROM m GROUP BY GROUPING SETS ((g), (bo), ()) ORDER BY 1, 2, 3",
		"SELECT g, bo, count(*), grouping(bo) FROM m GROUP BY CUBE (g, bo) ORDER BY 1, 2, 3, 4",
		"SELECT 1 FROM m HAVING count(*) > 100",
		"SELECT sum(1/i2) FROM m WHERE i2 IS NOT NULL",
		"SELECT sum(1/(i2-1)) FROM m",
		"SELECT count(*) FROM m WHERE now() > '2020-01-01'",
		"SELECT g, (SELECT max(label) FROM l), count(*) FROM m GROUP BY g ORDER BY 1",
		"SELECT sum(i8 * i8) FROM m",
		"SELECT pg_typeof(sum(i2)), pg_typeof(avg(i4)), pg_typeof(count(*)) FROM m",
		"SELECT (SELECT label FROM l WHERE l.id = o.i2) AS country, count(*) FROM m o GROUP BY 1 ORDER BY 2, 1",
		"SELECT (SELECT max(n.i4) FROM m n WHERE n.k = o.k) AS x, count(*) FROM m o GROUP BY x ORDER BY 2, 1",
		"SELECT sum(i2)::text || 'x', 'y' FROM m",
	} {
		b.same(sql)
	}
	b.same("SELECT g, count(*) FROM m WHERE i2 > $1 GROUP BY g HAVING sum(i4) > $2 ORDER BY g LIMIT $3", "-5", "-100", "2")
	if b.refused > 8 {
		t.Errorf("%d statements were refused", b.refused)
	}
}

// manyRows puts each rows for some keys of each shard, right on the shards.
func manyRows(t *testing.T, cl *cluster, keys [][]int64, each int) (total int) {
	t.Helper()
	for i, url := range cl.shards {
		for _, k := range keys[i][:5] {
			onShard(t, url, fmt.Sprintf("INSERT INTO orders SELECT %d, g, md5(g::text) || repeat('x', 200) FROM generate_series(1, %d) g", k, each))
			total += each
		}
	}
	return total
}

func TestMergeHoldsLittleMemory(t *testing.T) {
	testrun.Long(t, "as many rows as memory could not hold unseen; TestScatterSortsEveryType merges some")
	// Not parallel: it looks at the process's memory.
	cl, conn, keys := orders(t, config{})
	want := manyRows(t, cl, keys, 30_000)
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	reader := conn.PgConn().Exec(context.Background(), "SELECT tenant_id, id, note FROM orders ORDER BY id DESC, tenant_id")
	rows, last, lastKey := 0, int64(math.MaxInt64), int64(math.MinInt64)
	for reader.NextResult() {
		for reader.ResultReader().NextRow() {
			v := reader.ResultReader().Values()
			key, err1 := strconv.ParseInt(string(v[0]), 10, 64)
			id, err2 := strconv.ParseInt(string(v[1]), 10, 64)
			if err1 != nil || err2 != nil || id > last || id == last && key <= lastKey {
				t.Fatalf("row %d: %d, %d after %d, %d", rows, id, key, last, lastKey)
			}
			last, lastKey = id, key
			if rows++; rows%5000 == 0 {
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc)
			}
		}
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if rows != want {
		t.Errorf("%d rows, want %d", rows, want)
	}
	// The rows are some 80 MB.
	if peak > before.HeapAlloc+64<<20 {
		t.Errorf("the heap grew by %d MiB", (peak-before.HeapAlloc)>>20)
	}
	t.Logf("%d rows, heap grew by at most %d KiB", rows, (int64(peak)-int64(before.HeapAlloc))>>10)
}

// TestCursorStyleChanges: rows that a cursor over several shards has read ahead are not given in settings that hold no more.
func TestCursorStyleChanges(t *testing.T) {
	t.Parallel()
	b := newBeside(t, start(t, config{}).connect(t))
	b.both("CREATE TABLE d (id bigint PRIMARY KEY, day date)", " WITH (cleave.shard_key = 'id')")
	for id := range 12 {
		b.both(fmt.Sprintf("INSERT INTO d VALUES (%d, '2020-02-0%d')", id, 1+id%9), "")
	}
	for _, set := range []string{"SET LOCAL datestyle = 'German, DMY'", "SET LOCAL timezone = 'Asia/Tokyo'"} {
		b.both("BEGIN", "")
		b.both("DECLARE n CURSOR FOR SELECT id FROM d ORDER BY id", "")
		b.both("DECLARE c CURSOR FOR SELECT id, day FROM d ORDER BY id", "")
		for _, fetch := range []string{"FETCH 2 FROM n", "FETCH 2 FROM c"} {
			if got, want := rowsOf(t, b.router, fetch, false), rowsOf(t, b.plain, fetch, false); got != want {
				t.Errorf("%s: %s, want %s", fetch, got, want)
			}
		}
		b.both(set, "")
		// A number is printed the same, whatever the settings are.
		if got, want := rowsOf(t, b.router, "FETCH 2 FROM n", false), rowsOf(t, b.plain, "FETCH 2 FROM n", false); got != want {
			t.Errorf("after %s: %s, want %s", set, got, want)
		}
		if got := rowsOf(t, b.router, "FETCH 2 FROM c", false); !strings.HasPrefix(got, "error 0A000 a setting that says how values are written has changed") {
			t.Errorf("after %s: %s", set, got)
		}
		b.both("ROLLBACK", "")
	}
}
