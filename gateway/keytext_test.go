package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleavedb/cleave/internal/pgtest"
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

// keyAsk is a statement with parameters in text form, of some types (0 is open).
type keyAsk struct {
	sql    string
	oids   []uint32
	values []string
}

// answer gives the rows, or the error.
func (k keyAsk) answer(t *testing.T, c *pgconn.PgConn) string {
	t.Helper()
	var args [][]byte
	for _, v := range k.values {
		args = append(args, []byte(v))
	}
	res := c.ExecParams(t.Context(), k.sql, args, k.oids, nil, nil).Read()
	var e *pgconn.PgError
	switch {
	case errors.As(res.Err, &e):
		return e.Code + " " + e.Message
	case res.Err != nil:
		t.Fatal(res.Err)
	}
	var out []string
	for _, r := range res.Rows {
		out = append(out, string(bytes.Join(r, []byte("|"))))
	}
	return res.CommandTag.String() + " " + strings.Join(out, ",")
}

// TestKeyFormsBesidePostgres writes and reads rows by keys in forms that depend on TimeZone and DateStyle, as elements of array parameters, as
// parameters of type text that are cast, and in the lists of INSERT ... SELECT. One PostgreSQL gives the same.
func TestKeyFormsBesidePostgres(t *testing.T) {
	t.Parallel()
	cl := start(t, config{})
	single, err := pgconn.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close(t.Context())
	routed := cl.connect(t).PgConn()
	do := func(c *pgconn.PgConn, sql string) {
		t.Helper()
		if _, err := c.Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	types := map[string][2]uint32{"date": {pgtype.DateOID, pgtype.DateArrayOID}, "timestamp": {pgtype.TimestampOID, pgtype.TimestampArrayOID}, "timestamptz": {pgtype.TimestamptzOID, pgtype.TimestamptzArrayOID}}
	for typ, oids := range types {
		zone := ""
		if typ == "timestamptz" {
			zone = " 00:00:00+00"
		}
		do(routed, fmt.Sprintf("SELECT cleave.create_keyspace('by_%[1]s', 'range', '%[1]s', bounds => ARRAY['2025-10-04%[2]s', '2026-01-01%[2]s'])", typ, zone))
		do(routed, fmt.Sprintf("CREATE TABLE ev_%[1]s (at %[1]s, n int, note text, PRIMARY KEY (at, n)) WITH (cleave.shard_key = 'at', cleave.keyspace = 'by_%[1]s')", typ))
		do(single, fmt.Sprintf("CREATE TABLE ev_%[1]s (at %[1]s, n int, note text, PRIMARY KEY (at, n))", typ))
		for _, style := range []string{"SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'ISO, MDY'", "SET TimeZone = 'America/New_York'; SET DateStyle = 'German, DMY'"} {
			do(routed, style)
			do(single, style)
			text := []uint32{pgtype.TextOID}
			for _, k := range []keyAsk{
				{"INSERT INTO ev VALUES ('3 Oct 2025', 1), ('4/10/2025', 2), ('2026-03-01', 3)", nil, nil},
				{"INSERT INTO ev VALUES ($1, 4), ($2, 5), ('5 Oct 2025', 6), ($1::$type, 7)", nil, []string{"3 October 2025", "20260302"}},
				{"INSERT INTO ev VALUES ($1::$type, 8, $2), ($3::$type, 9, 'b')", []uint32{25, 25, 1043}, []string{"Oct 6 2025", "a", "1 Jan 2026"}},
				{"INSERT INTO ev VALUES ($1, 10)", text, []string{"7 Oct 2025"}},
				{"INSERT INTO ev SELECT '3 Oct 2025', 11", nil, nil},
				{"INSERT INTO ev (n, at) SELECT 12, '4 Oct 2025' WHERE true", nil, nil},
				{"INSERT INTO ev SELECT '5 Oct 2025', g FROM generate_series(13, 15) g", nil, nil},
				{"INSERT INTO ev SELECT '6 Oct 2025'::$type, 16 UNION ALL SELECT '7 Mar 2026', 17", nil, nil},
				{"INSERT INTO ev SELECT $1, 18", nil, []string{"8 Oct 2025"}},
				{"INSERT INTO ev SELECT $1::$type, 19", text, []string{"9 Mar 2026"}},
				{"INSERT INTO ev SELECT $1, g FROM generate_series(20, 21) g", []uint32{oids[0]}, []string{"10 Oct 2025"}},
				{"INSERT INTO ev SELECT 'never', 30", nil, nil},
				{"INSERT INTO ev SELECT '7 Oct 2025' || '', 30", nil, nil},
				{"INSERT INTO ev SELECT a, 22 + n FROM (VALUES ('3 Oct 2025'::$type, 1), ('4 Mar 2026', 2)) AS v (a, n)", nil, nil},
				{"INSERT INTO ev SELECT DISTINCT '3 Oct 2025', 30", nil, nil},
				{"INSERT INTO ev SELECT a, 30 + ordinality FROM unnest($1::$type[]) WITH ORDINALITY AS u (a)", nil, []string{"{3 Oct 2025,\"4 Mar 2026\"}"}},
				{"SELECT n, at FROM ev ORDER BY n", nil, nil},
				{"SELECT n FROM ev WHERE at = ANY($1) ORDER BY n", nil, []string{"{3 Oct 2025,2025-10-04}"}},
				{"SELECT n FROM ev WHERE at = ANY($1) ORDER BY n", oids[1:], []string{`{"3 Oct 2025", NULL ,  1 Mar 2026 }`}},
				{"SELECT n FROM ev WHERE at = ANY($1::$type[]) ORDER BY n", nil, []string{`{{"Oct 3, 2025",20251004},{"\4 October 2025","2026-03-01"}}`}},
				{"SELECT n FROM ev WHERE at = ANY($1::$type[]) ORDER BY n", text, []string{"{3 Oct 2025,2025-10-04}"}},
				{"SELECT n, array_ndims($1) FROM ev WHERE at = ANY($1) ORDER BY n", oids[1:], []string{"{{3 Oct 2025},{2025-10-04}}"}},
				{"SELECT n FROM ev WHERE at = ANY($1)", text, []string{"{3 Oct 2025}"}},
				{"SELECT n FROM ev WHERE at = ANY($1)", nil, []string{"{3 Oct 2025,foo}"}},
				{"SELECT n FROM ev WHERE at = ANY($1)", nil, []string{"{3 Oct 2025"}},
				{"SELECT n FROM ev WHERE at = ANY($1)", nil, []string{"{13/13/2025}"}},
				{"SELECT n FROM ev WHERE at = $1::$type ORDER BY n", text, []string{"3 Oct 2025"}},
				{"SELECT n FROM ev WHERE at >= $1::$type AND at < $2::$type ORDER BY n", []uint32{25, 1043}, []string{"3 Oct 2025", "5.10.2025"}},
				{"SELECT n FROM ev WHERE at = $1", text, []string{"3 Oct 2025"}},
				{"SELECT n FROM ev WHERE at = $1::$type", text, []string{"foo"}},
				{"SELECT n, $1 FROM ev WHERE at = $1::$type ORDER BY n", text, []string{"2025-10-03 00:00:00+09"}},
				{"UPDATE ev SET note = 'x' WHERE at = ANY($1) AND n > 2 RETURNING n", nil, []string{"{4 Mar 2026}"}},
				{"DELETE FROM ev WHERE at = ANY($1::$type[]) RETURNING n", text, []string{"{7 Mar 2026}"}},
				{"DELETE FROM ev", nil, nil},
			} {
				k.sql = strings.NewReplacer(" ev", " ev_"+typ, "$type", typ).Replace(k.sql)
				got, want := k.answer(t, routed), k.answer(t, single)
				if got != want {
					t.Errorf("%s %q, %s: router\n  %s\nPostgreSQL\n  %s", k.sql, k.values, style, got, want)
				}
			}
			for _, k := range []struct {
				keyAsk
				shards int
			}{
				{keyAsk{"SELECT n FROM ev WHERE at = ANY($1)", nil, []string{"{30 Sep 2025,1 Sep 2025}"}}, 1},
				{keyAsk{"SELECT n FROM ev WHERE at = ANY($1)", oids[1:], []string{"{30 Sep 2025,NULL,20250901}"}}, 1},
				{keyAsk{"UPDATE ev SET note = 'x' WHERE at = ANY($1::$type[])", text, []string{"{1 Nov 2025,2 Nov 2025}"}}, 1},
				{keyAsk{"SELECT n FROM ev WHERE at = $1::$type", text, []string{"1 Nov 2025"}}, 1},
				{keyAsk{"SELECT n FROM ev WHERE at >= $1::$type AND at < $2::$type", []uint32{25, 25}, []string{"1 Nov 2025", "1 Dec 2025"}}, 1},
				{keyAsk{"DELETE FROM ev WHERE at > $1", nil, []string{"1 Nov 2025"}}, 2},
			} {
				k.sql = "EXPLAIN (ROUTE) " + strings.NewReplacer(" ev", " ev_"+typ, "$type", typ).Replace(k.sql)
				said, n := k.answer(t, routed), 0
				for _, shard := range []string{"shard-0", "shard-1", "shard-2"} {
					if strings.Contains(said, shard) {
						n++
					}
				}
				if n != k.shards {
					t.Errorf("%s %q goes to %d shards, not to %d: %s", k.sql, k.values, n, k.shards, said)
				}
			}
		}
	}
}
