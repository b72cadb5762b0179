package gateway_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestHeldCursors: WITH HOLD cursors are the session's: they are read in every state of it, in any format, and end with it.
func TestHeldCursors(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	cl, conn, keys := orders(t, config{})
	ctx := context.Background()
	const rows = 2000
	for _, ks := range keys {
		exec(t, conn, `INSERT INTO orders SELECT $1, g, repeat('x', 500) || g FROM generate_series(1, $2) g`, ks[0], rows)
	}
	total := rows * len(keys)
	ids := func(sql string, mode pgx.QueryExecMode) (got []int64) {
		t.Helper()
		rs, err := conn.Query(ctx, sql, mode)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		for rs.Next() {
			var id int64
			var note string
			if err := rs.Scan(&id, &note); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			if !strings.HasSuffix(note, fmt.Sprintf("x%d", id)) || len(note) < 501 {
				t.Fatalf("%s: row %d has %d bytes", sql, id, len(note))
			}
			got = append(got, id)
		}
		if err := rs.Err(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return got
	}
	exec(t, conn, `DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT id, note FROM orders ORDER BY id, tenant_id`)
	exec(t, conn, `DELETE FROM orders`)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeCacheStatement} {
		exec(t, conn, `MOVE ABSOLUTE 0 IN h`)
		got := ids(`FETCH ALL FROM h`, mode)
		back := ids(`FETCH BACKWARD ALL FROM h`, mode)
		slices.Reverse(back)
		if len(got) != total || !slices.IsSorted(got) || !slices.Equal(got, back) {
			t.Fatalf("mode %v: %d rows of %d, %d backward", mode, len(got), total, len(back))
		}
		if got := ids(fmt.Sprintf(`FETCH ABSOLUTE %d FROM h`, total/2), mode); !slices.Equal(got, []int64{rows / 2}) {
			t.Fatalf("mode %v: the row in the middle is %v", mode, got)
		}
	}
	// Inside of a transaction of one shard, of several, and after its end; a failed one answers nothing.
	exec(t, conn, `MOVE ABSOLUTE 0 IN h`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'one')`, keys[0][0])
	ids(`FETCH 1 FROM h`, pgx.QueryExecModeCacheStatement)
	exec(t, conn, `INSERT INTO orders VALUES ($1, 1, 'two')`, keys[1][0])
	wantCode(t, conn, "42P03", `DECLARE h CURSOR FOR SELECT 1`)
	wantCode(t, conn, "25P02", `FETCH 1 FROM h`)
	exec(t, conn, `ROLLBACK`)
	if got := ids(`FETCH 2 FROM h`, pgx.QueryExecModeSimpleProtocol); !slices.Equal(got, []int64{1, 1}) {
		t.Errorf("after a ROLLBACK: %v", got)
	}
	// A setting by which numbers and texts are written no other way; see TestCursorStyleChanges.
	exec(t, conn, `SET DateStyle = 'German'`)
	exec(t, conn, `FETCH 1 FROM h`)
	exec(t, conn, `RESET DateStyle`)
	exec(t, conn, `FETCH 1 FROM h`)
	// Of a table that the default shard alone has, in the extended protocol.
	exec(t, conn, `CREATE TABLE alone (id bigint)`)
	for range 10 {
		rows, err := conn.Query(ctx, `DECLARE d CURSOR WITH HOLD FOR SELECT id FROM alone`, pgx.QueryExecModeDescribeExec)
		if err != nil {
			t.Fatal(err)
		}
		if rows.Close(); rows.Err() != nil {
			t.Fatal(rows.Err())
		}
		if _, err := conn.Exec(ctx, `FETCH ALL FROM d`); err != nil {
			t.Fatal(err)
		}
		exec(t, conn, `CLOSE d`)
	}
	// Other sessions have their own.
	other := cl.connect(t)
	wantCode(t, other, "34000", `FETCH 1 FROM h`)
	// The time of a statement bounds a COMMIT that has rows to read, which then has done nothing.
	exec(t, other, `INSERT INTO orders SELECT $1, g, 'n' FROM generate_series(1, 1000) g`, keys[0][0])
	exec(t, other, `SET statement_timeout = '2s'`)
	const slow = `DECLARE m CURSOR WITH HOLD FOR SELECT id, pg_sleep(CASE WHEN id > 500 THEN 0.2 ELSE 0 END) FROM orders`
	began := time.Now()
	wantCode(t, other, "57014", slow)
	exec(t, other, `BEGIN`)
	exec(t, other, `UPDATE orders SET note = 'written' WHERE id = 1`)
	exec(t, other, slow)
	wantCode(t, other, "57014", `COMMIT`)
	wantCode(t, other, "34000", `FETCH 1 FROM m`)
	if n := one[int64](t, other, `SELECT count(*) FROM orders WHERE note = 'written'`); n != 0 || time.Since(began) > time.Minute { // the rows take longer
		t.Errorf("%d rows were written, after %v", n, time.Since(began))
	}
	exec(t, other, `RESET statement_timeout`)
	// Not beside what is not a router's to keep.
	exec(t, conn, `CREATE TEMP TABLE mine (id bigint)`)
	wantCode(t, conn, "0A000", `DECLARE m CURSOR WITH HOLD FOR SELECT * FROM mine`)
	// Another session makes a sharded table of the name.
	exec(t, other, `CREATE TABLE mine (tenant_id bigint) WITH (cleave.shard_key = 'tenant_id')`)
	wantCode(t, conn, "0A000", `SELECT * FROM mine`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `CREATE TABLE made (id bigint)`)
	wantCode(t, conn, "0A000", `DECLARE m CURSOR WITH HOLD FOR SELECT 1`)
	exec(t, conn, `ROLLBACK`)
	// A bound.
	exec(t, other, `SET cleave.gather_rows_max = 10`)
	wantCode(t, other, "53400", `DECLARE m CURSOR WITH HOLD FOR SELECT g FROM generate_series(1, 11) g`)
	exec(t, other, `DECLARE m CURSOR WITH HOLD FOR SELECT g FROM generate_series(1, 10) g`)
	exec(t, conn, `DISCARD ALL`)
	wantCode(t, conn, "34000", `FETCH 1 FROM h`)
	exec(t, other, `CLOSE m`)
	wantCode(t, other, "34000", `FETCH 1 FROM m`)
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("%d files are left, first %s", len(left), left[0].Name())
	}
}

// TestScrollCursorIsBounded: a cursor that was not declared SCROLL keeps few rows, and says so.
func TestScrollCursorIsBounded(t *testing.T) {
	_, conn, keys := orders(t, config{})
	for _, ks := range keys {
		exec(t, conn, `INSERT INTO orders SELECT $1, g, repeat('x', 500) FROM generate_series(1, 1000) g`, ks[0])
	}
	exec(t, conn, `BEGIN`)
	exec(t, conn, `DECLARE c CURSOR FOR SELECT note || id FROM orders ORDER BY id, tenant_id`)
	exec(t, conn, `FETCH 10 FROM c`)
	if got := one[string](t, conn, `FETCH ABSOLUTE 4 FROM c`); !strings.HasSuffix(got, "x2") {
		t.Errorf("the fourth row is %s", got)
	}
	exec(t, conn, `MOVE 1000 IN c`)
	exec(t, conn, `SAVEPOINT s`)
	wantCode(t, conn, "0A000", `FETCH PRIOR FROM c`)
	exec(t, conn, `ROLLBACK TO s`)
	exec(t, conn, `FETCH 1 FROM c`)
	exec(t, conn, `DECLARE n CURSOR FOR SELECT count(*) FROM orders`)
	exec(t, conn, `FETCH 1 FROM n`)
	wantCode(t, conn, "0A000", `FETCH PRIOR FROM n`)
	exec(t, conn, `ROLLBACK`)
}

// TestCursorSnapshot: the rows of a cursor are those of DECLARE, its parameters DECLARE's alone, and messages of several statements read it.
func TestCursorSnapshot(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	other := cl.connect(t)
	ctx := context.Background()
	for _, ks := range keys {
		exec(t, conn, `INSERT INTO orders SELECT $1, g, 'n' FROM generate_series(1, 10) g`, ks[0])
	}
	n := len(keys)
	for _, hold := range []string{"", "WITH HOLD"} {
		exec(t, conn, `BEGIN`)
		exec(t, conn, `DECLARE c SCROLL CURSOR `+hold+` FOR SELECT id FROM orders WHERE id > $1 ORDER BY id`, 8)
		exec(t, other, `DELETE FROM orders WHERE id = 9`)
		exec(t, other, `INSERT INTO orders SELECT tenant_id, 11, 'new' FROM orders WHERE id = 10`)
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe} {
			rows, err := conn.Query(ctx, `FETCH ALL FROM c`, mode)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil || len(ids) != 2*n || ids[0] != 9 || ids[len(ids)-1] != 10 {
				t.Errorf("%s, mode %v: %v, %v", hold, mode, ids, err)
			}
			exec(t, conn, `MOVE ABSOLUTE 0 IN c`)
		}
		if hold == "" {
			exec(t, conn, `SAVEPOINT s`)
			wantCode(t, conn, "55006", `TRUNCATE orders`)
		}
		if exec(t, conn, `COMMIT`); hold != "" {
			break
		}
		exec(t, other, `DELETE FROM orders WHERE id = 11`)
		exec(t, other, `INSERT INTO orders SELECT tenant_id, 9, 'n' FROM orders WHERE id = 10`)
	}
	for _, sql := range []string{"FETCH 2 FROM c; FETCH 1 FROM c", "SELECT 1; FETCH 3 FROM c", "MOVE ABSOLUTE 0 IN c; FETCH 1 FROM c; CLOSE c"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	wantCode(t, conn, "34000", `FETCH 1 FROM c`)
}

// TestCursorsUnderStyles: whatever a session's settings print, the rows of a cursor over several shards have the same values in text
// and binary, or are refused.
func TestCursorsUnderStyles(t *testing.T) {
	b := newBeside(t, start(t, config{}).connect(t))
	b.both("CREATE TABLE d (id bigint PRIMARY KEY, f float8, fs float4[], day date, z timestamptz, ws text[])", " WITH (cleave.shard_key = 'id')")
	b.both("INSERT INTO d SELECT i, i / 7.0::float8, ARRAY[i / 3.0, NULL], date '2024-03-01' + i, timestamptz '2024-03-01 12:00+00' + i * interval '10 days', ARRAY['a', NULL] FROM generate_series(1, 12) i", "")
	given := 0
	for _, set := range []string{"extra_float_digits = 0", "extra_float_digits = -15", "datestyle = 'German, MDY'", "datestyle = 'SQL, YMD'", "array_nulls = off"} {
		for _, columns := range []string{"f", "f, ws", "day, z", "fs, ws", "ws"} {
			for _, binary := range []bool{false, true} {
				// Another session each: what was asked for last is what is expected.
				b := newBesideOf(t, b)
				b.both("SET "+set, "")
				b.both("BEGIN", "")
				b.both("DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT id, "+columns+" FROM d ORDER BY id", "")
				for _, as := range []bool{binary, !binary, binary} {
					got := rowsOf(t, b.router, "FETCH 3 FROM c", as)
					if strings.HasPrefix(got, "error 0A000") {
						break
					}
					given++
					if want := rowsOf(t, b.plain, "FETCH 3 FROM c", as); got != want {
						t.Errorf("%s, %s, binary %t:\n%s\nwant\n%s", set, columns, as, got, want)
					}
				}
				_ = b.router.Close(context.Background())
				_ = b.plain.Close(context.Background())
			}
		}
	}
	if given < 130 {
		t.Errorf("only %d FETCHes were not refused", given)
	}
}

// newBesideOf has another session on each side, for the test to close.
func newBesideOf(t *testing.T, b *beside) *beside {
	t.Helper()
	var conns [2]*pgx.Conn
	for i, c := range []*pgx.Conn{b.router, b.plain} {
		var err error
		if conns[i], err = pgx.ConnectConfig(context.Background(), c.Config()); err != nil {
			t.Fatal(err)
		}
	}
	return &beside{t: t, router: conns[0], plain: conns[1]}
}

// TestBindOfAHeldName: a portal cannot have the name of a cursor that the router holds.
func TestBindOfAHeldName(t *testing.T) {
	t.Parallel()
	cl, _, _ := orders(t, config{})
	c := cl.raw(t)
	c.send(&pgproto3.Query{String: "DECLARE p CURSOR WITH HOLD FOR SELECT 1 FROM orders"})
	c.want("C DECLARE CURSOR", "Z I")
	c.send(&pgproto3.Parse{Query: "SELECT 2"}, &pgproto3.Bind{DestinationPortal: "p"}, &pgproto3.Sync{})
	c.want("1", "E 42P03", "Z I")
	c.send(&pgproto3.Query{String: "CLOSE p"}, &pgproto3.Parse{Query: "SELECT 2"}, &pgproto3.Bind{DestinationPortal: "p"}, &pgproto3.Sync{})
	c.want("C CLOSE CURSOR", "Z I", "1", "2", "Z I")
}

// TestDiscardAllFails: a DISCARD ALL that fails has discarded nothing.
func TestDiscardAllFails(t *testing.T) {
	t.Parallel()
	cl := start(t, config{shards: 1, executor: executor.Limits{PoolMax: 1, PoolWait: 100 * time.Millisecond}})
	conn := cl.connect(t)
	exec(t, conn, "SET work_mem = '5MB'")
	exec(t, conn, "PREPARE p AS SELECT 7")
	var release func(broken bool)
	waitfor.True(t, "the shard's only connection is free", func() (ok bool) {
		_, taken, err := cl.ex.Connect(context.Background(), "shard-0")
		release = taken
		return err == nil
	})
	wantCode(t, conn, "53300", "DISCARD ALL")
	release(false)
	if got := one[int](t, conn, "EXECUTE p"); got != 7 {
		t.Errorf("the prepared statement gives %d", got)
	}
	if got := one[string](t, conn, "SHOW work_mem"); got != "5MB" {
		t.Errorf("work_mem is %s", got)
	}
	exec(t, conn, "DISCARD ALL")
	wantCode(t, conn, "26000", "EXECUTE p")
}
