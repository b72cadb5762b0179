package gateway_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// TestKeysReadByAShard: a literal that stands for a shard key, and that depends on TimeZone or DateStyle, is read by PostgreSQL: the
// row goes where it belongs, a read goes to no shard that it does not need, and a prepared statement keeps what it read.
func TestKeysReadByAShard(t *testing.T) {
	t.Parallel()
	cl := start(t, config{})
	c := cl.connect(t)
	exec := func(sql string) { t.Helper(); exec(t, c, sql) }
	one := func(sql, want string) {
		t.Helper()
		var got string
		if err := c.QueryRow(context.Background(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", sql, got, err, want)
		}
	}
	shards := func(sql string) string {
		t.Helper()
		rows, err := c.Query(context.Background(), "EXPLAIN (ROUTE) "+sql, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n")
	}
	exec("SELECT cleave.create_keyspace('by_at', 'range', 'timestamptz', bounds => ARRAY['2025-01-01 00:00:00+00', '2026-01-01 00:00:00+00'])")
	exec("CREATE TABLE ev (at timestamptz, n int, PRIMARY KEY (at, n)) WITH (cleave.shard_key = 'at', cleave.keyspace = 'by_at')")
	exec("SET TimeZone = 'Asia/Tokyo'")
	// In Tokyo that is still 2024 in UTC: the first range.
	exec("INSERT INTO ev VALUES ('2025-01-01 08:00', 1), ('2025-01-01 10:00', 2), ('2026-03-01', 3)")
	exec("INSERT INTO ev VALUES ('2025-01-01 08:30', 4)")
	one("SELECT string_agg(n::text, ',' ORDER BY n) FROM ev WHERE at < '2025-01-01 00:00:00+00'", "1,4")
	one("SELECT string_agg(n::text, ',' ORDER BY n) FROM ev WHERE at >= '2025-01-01' AND at < '2025-01-02'", "1,2,4")
	one("SELECT n::text FROM ev WHERE at = '2025-01-01 10:00'", "2")
	for sql, want := range map[string]int{
		"SELECT * FROM ev WHERE at >= '2025-06-01' AND at < '2025-07-01'":           1,
		"SELECT count(*) FROM ev WHERE at BETWEEN '2025-06-01' AND '2026-07-01'":    2,
		"DELETE FROM ev WHERE at < '1 Feb 2025'":                                    2,
		"SELECT * FROM ev WHERE at >= '2025-06-01 00:00:00+00' AND at < '1.7.2025'": 1,
	} {
		said := shards(sql)
		n := 0
		for _, shard := range []string{"shard-0", "shard-1", "shard-2"} {
			if strings.Contains(said, shard) {
				n++
			}
		}
		if n != want {
			t.Errorf("%s goes to %d shards, want %d:\n%s", sql, n, want, said)
		}
	}
	exec("SET DateStyle = 'German, DMY'")
	one("SELECT n::text FROM ev WHERE at = '01.03.2026'", "3")
	exec("UPDATE ev SET n = 30 WHERE at = '1 Mar 2026' AND n = 3")
	one("SELECT n::text FROM ev WHERE at = '01.03.2026 00:00'", "30")
	exec("PREPARE p AS SELECT n::text FROM ev WHERE at = '01.01.2025 10:00'")
	exec("SET TimeZone = 'UTC'; SET DateStyle = 'ISO, MDY'")
	one("EXECUTE p", "2")
	one("SELECT count(*)::text FROM ev WHERE at = '2025-01-01 10:00'", "0")
	for sql, want := range map[string]string{
		"INSERT INTO ev VALUES ('2025-05-05', 1), ('foo', 2)": `invalid input syntax for type timestamp with time zone: "foo" (SQLSTATE 22007)`,
		"INSERT INTO ev VALUES ('13/13/2025', 1)":             `date/time field value out of range: "13/13/2025" (SQLSTATE 22008)`,
		"SELECT nosuch FROM ev WHERE at = 'foo'":              `column "nosuch" does not exist (SQLSTATE 42703)`,
	} {
		if _, err := c.Exec(context.Background(), sql); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", sql, err, want)
		}
	}
}

// TestKeyParametersReadByAShard: what TestKeysReadByAShard says of literals holds for parameters in text form, as PDO, DBD::Pg and
// libpq send them, and for the arguments of EXECUTE.
func TestKeyParametersReadByAShard(t *testing.T) {
	t.Parallel()
	cl := start(t, config{})
	c := cl.connect(t)
	exec := func(sql string) { t.Helper(); exec(t, c, sql) }
	// run gives the first column of what a statement answers, or its error.
	run := func(sql string, oids []uint32, values ...string) string {
		t.Helper()
		var args [][]byte
		for _, v := range values {
			args = append(args, []byte(v))
		}
		res := c.PgConn().ExecParams(context.Background(), sql, args, oids, nil, nil).Read()
		if res.Err != nil {
			var e *pgconn.PgError
			if !errors.As(res.Err, &e) {
				t.Fatal(res.Err)
			}
			if e.Position != 0 {
				t.Errorf("%s: the error of a parameter has the place %d", sql, e.Position)
			}
			return e.Code + " " + e.Message
		}
		var out []string
		for _, r := range res.Rows {
			out = append(out, string(r[0]))
		}
		return strings.Join(out, ",")
	}
	check := func(want, sql string, values ...string) {
		t.Helper()
		for _, oids := range [][]uint32{nil, slices.Repeat([]uint32{pgtype.TimestamptzOID}, len(values))} {
			if got := run(sql, oids, values...); got != want {
				t.Errorf("%s %q: %q, want %q", sql, values, got, want)
			}
		}
	}
	exec("SELECT cleave.create_keyspace('by_at', 'range', 'timestamptz', bounds => ARRAY['2025-01-01 00:00:00+00', '2026-01-01 00:00:00+00'])")
	exec("CREATE TABLE ev (at timestamptz, n int, PRIMARY KEY (at, n)) WITH (cleave.shard_key = 'at', cleave.keyspace = 'by_at')")
	exec("SET TimeZone = 'Asia/Tokyo'")
	for n, at := range []string{"2025-01-01 08:00", "2025-01-01 10:00", "1 Mar 2026"} {
		run("INSERT INTO ev VALUES ($1, $2)", nil, at, strconv.Itoa(n+1))
	}
	run("INSERT INTO ev VALUES ($1, 4), ($2, 5), ($1, 6)", nil, "2025-01-01 08:30", "2026-03-02")
	one := func(want, sql string) {
		t.Helper()
		var got string
		if err := c.QueryRow(context.Background(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", sql, got, err, want)
		}
	}
	one("1,4,6", "SELECT string_agg(n::text, ',' ORDER BY n) FROM ev WHERE at < '2025-01-01 00:00:00+00'")
	check("1,2,4,6", "SELECT string_agg(n::text, ',' ORDER BY n) FROM ev WHERE at >= $1 AND at < $2", "2025-01-01", "2025-01-02")
	check("2", "SELECT n FROM ev WHERE at = $1", "2025-01-01 10:00")
	check("2,5", "SELECT n FROM ev WHERE at IN ($1, $2) ORDER BY n", "2025-01-01 10:00", "2 March 2026")
	check("2", "SELECT n FROM ev WHERE at = $1::timestamptz", "20250101 1000")
	exec("SET DateStyle = 'German, DMY'")
	check("3", "SELECT n FROM ev WHERE at = $1", "01.03.2026")
	check("30", "UPDATE ev SET n = 30 WHERE at = $1 AND n IN (3, 30) RETURNING n", "01.03.2026")
	exec("PREPARE p AS SELECT n::text FROM ev WHERE at = $1")
	one("30", "EXECUTE p('01.03.2026')")
	exec("SET TimeZone = 'UTC'; SET DateStyle = 'ISO, MDY'")
	check("", "SELECT n FROM ev WHERE at = $1", "2025-01-01 10:00")
	check(`22007 invalid input syntax for type timestamp with time zone: "foo"`, "SELECT n FROM ev WHERE at = $1", "foo")
	check(`22008 date/time field value out of range: "13/13/2025"`, "INSERT INTO ev VALUES ($1, 1)", "13/13/2025")
	// A text that is cast may be a text elsewhere: it is not written anew.
	if got := run("SELECT n FROM ev WHERE at = $1::timestamptz", []uint32{pgtype.TextOID}, "2025-01-01 01:00"); !strings.HasPrefix(got, "0A000 ") && got != "2" {
		t.Errorf("a text that is cast: %q", got)
	}
	// A shard that has failed a transaction is asked nothing.
	exec("BEGIN")
	run("SELECT 1/$1", nil, "0")
	check("25P02 current transaction is aborted, commands ignored until end of transaction block", "SELECT n FROM ev WHERE at = $1", "2025-01-01 10:00")
	exec("ROLLBACK")
}
