package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
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
