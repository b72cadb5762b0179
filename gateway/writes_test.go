package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestManyRows inserts many rows in one statement, of one shard key and of many.
func TestManyRows(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	const rows = 20_000
	for name, key := range map[string]func(i int) int64{
		"one key":   func(int) int64 { return keys[0][0] },
		"many keys": func(i int) int64 { return int64(i % 5000) },
	} {
		exec(t, conn, "DELETE FROM orders")
		var b strings.Builder
		b.WriteString("INSERT INTO orders VALUES ")
		for i := range rows {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "(%d, %d, 'n')", key(i), i)
		}
		if tag := exec(t, conn, b.String(), pgx.QueryExecModeSimpleProtocol); tag.String() != fmt.Sprintf("INSERT 0 %d", rows) {
			t.Errorf("%s: %s", name, tag)
		}
		if n := one[int64](t, conn, "SELECT count(DISTINCT id) FROM orders"); n != rows {
			t.Errorf("%s: %d rows", name, n)
		}
	}
	// As many parameters as the protocol has.
	exec(t, conn, "DELETE FROM orders")
	var b strings.Builder
	var args []any
	b.WriteString("INSERT INTO orders VALUES ")
	const wide = 21_800
	for i := range wide {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "($%d, $%d, $%d)", 3*i+1, 3*i+2, 3*i+3)
		args = append(args, int64(i%777), int64(i), "p")
	}
	if tag := exec(t, conn, b.String(), args...); tag.RowsAffected() != wide {
		t.Errorf("with parameters: %s", tag)
	}
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE note = 'p'"); n != wide {
		t.Errorf("%d rows with parameters", n)
	}
}

// TestFailedWritesLeaveNothing: what fails on one shard is undone on all.
func TestFailedWritesLeaveNothing(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	want := fill(t, conn, keys, 3)
	a, b, c := keys[0][0], keys[1][0], keys[2][0]
	wantCode(t, conn, "23505", fmt.Sprintf("INSERT INTO orders VALUES (%d, 77, ''), (%d, 1, ''), (%d, 77, '')", a, b, c))
	wantCode(t, conn, "22012", fmt.Sprintf("UPDATE orders SET note = (1 / (tenant_id - %d))::text", c))
	wantCode(t, conn, "23505", fmt.Sprintf("UPDATE orders SET tenant_id = %d WHERE tenant_id = %d", a, b))
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE id < 2 AND note LIKE '%/%'"); n != int64(want) {
		t.Errorf("%d rows are as they were, want %d", n, want)
	}
	// In a transaction, with a savepoint around it.
	exec(t, conn, "BEGIN")
	exec(t, conn, fmt.Sprintf("INSERT INTO orders VALUES (%d, 50, 'kept'), (%d, 50, 'kept')", a, b))
	exec(t, conn, "SAVEPOINT s")
	wantCode(t, conn, "23505", fmt.Sprintf("INSERT INTO orders VALUES (%d, 51, ''), (%d, 50, '')", a, b))
	exec(t, conn, "ROLLBACK TO s")
	exec(t, conn, fmt.Sprintf("UPDATE orders SET tenant_id = %d WHERE tenant_id = %d AND id = 50", c, a))
	exec(t, conn, "COMMIT")
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE note = 'kept' AND tenant_id IN ($1, $2)", b, c); n != 2 {
		t.Errorf("%d rows of the transaction", n)
	}
	exec(t, conn, "BEGIN")
	exec(t, conn, "DELETE FROM orders")
	exec(t, conn, "ROLLBACK")
	if n := one[int64](t, conn, "SELECT count(*) FROM orders"); n != int64(want)+2 {
		t.Errorf("%d rows after a rollback", n)
	}
	for i := range cl.shards {
		if n := cl.direct(t, i, "SELECT count(*)::text FROM pg_prepared_xacts WHERE database = current_database()"); n != "0" {
			t.Errorf("shard %d: %s prepared transactions", i, n)
		}
	}
}

// TestGeneratedKeysOverShards: values that the router makes decide on the shard of each row.
func TestGeneratedKeysOverShards(t *testing.T) {
	t.Parallel()
	_, conn, _ := orders(t, config{})
	for _, sql := range []string{
		"CREATE TABLE made (id bigint PRIMARY KEY DEFAULT cleave.next_id(), name text) WITH (cleave.shard_key = 'id')",
		"CREATE TABLE counted (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text) WITH (cleave.shard_key = 'id')",
		"CREATE TABLE random (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text) WITH (cleave.shard_key = 'id')",
		"CREATE TABLE beside (tenant bigint, nr bigserial, name text, PRIMARY KEY (tenant, nr)) WITH (cleave.shard_key = 'tenant')",
	} {
		exec(t, conn, sql)
	}
	for _, table := range []string{"made", "counted", "random"} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
			exec(t, conn, "DELETE FROM "+table, mode)
			rows, err := conn.Query(context.Background(), "INSERT INTO "+table+" (name) VALUES ('a'), ('b'), ('c'), ('d'), ('e'), ('f'), ('g'), ('h') RETURNING id::text, name", mode)
			if err != nil {
				t.Fatal(err)
			}
			var names strings.Builder
			ids := map[string]bool{}
			for rows.Next() {
				var id, name string
				if err := rows.Scan(&id, &name); err != nil {
					t.Fatal(err)
				}
				ids[id] = true
				names.WriteString(name)
			}
			if err := rows.Err(); err != nil {
				t.Fatalf("%s, %v: %v", table, mode, err)
			}
			if names.String() != "abcdefgh" || len(ids) != 8 {
				t.Errorf("%s, %v: rows %s, %d ids", table, mode, names.String(), len(ids))
			}
			for id := range ids {
				if n := one[int64](t, conn, "SELECT count(*) FROM "+table+" WHERE id = $1", id); n != 1 {
					t.Errorf("%s, %v: %d rows of %s", table, mode, n, id)
				}
			}
		}
		exec(t, conn, "INSERT INTO "+table+" (name) SELECT name || 'x' FROM "+table)
		if n := one[int64](t, conn, "SELECT count(DISTINCT id) FROM "+table); n != 16 {
			t.Errorf("%s has %d ids after INSERT ... SELECT", table, n)
		}
	}
	exec(t, conn, "INSERT INTO beside (tenant, name) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
	exec(t, conn, "INSERT INTO beside (tenant, name) SELECT tenant + 10, name FROM beside")
	if n := one[int64](t, conn, "SELECT count(DISTINCT nr) FROM beside"); n != 6 {
		t.Errorf("%d numbers", n)
	}
	wantCode(t, conn, "428C9", "INSERT INTO counted (id, name) VALUES (1, 'x'), (2, 'y')")
	exec(t, conn, "INSERT INTO counted (id, name) OVERRIDING SYSTEM VALUE VALUES (1000001, 'x'), (1000002, 'y'), (1000003, 'z')")
}

// TestKeysMoveConcurrently moves rows between shards while they are changed: none
// is lost, none is there twice, and no change is lost.
func TestKeysMoveConcurrently(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	exec(t, conn, "CREATE TABLE stones (place bigint, id bigint, n bigint, PRIMARY KEY (place, id)) WITH (cleave.shard_key = 'place')")
	const stones, rounds = 6, 25
	for id := range stones {
		exec(t, conn, "INSERT INTO stones VALUES ($1, $2, 0)", keys[id%3][0], id)
	}
	var mu sync.Mutex
	done := int64(0)
	var wait sync.WaitGroup
	for w := range 4 {
		c := cl.connect(t)
		rnd := rand.New(rand.NewPCG(uint64(w), 1))
		wait.Go(func() {
			for range rounds {
				id, to := rnd.IntN(stones), keys[rnd.IntN(3)][rnd.IntN(3)]
				sql, args := "UPDATE stones SET place = $1, n = n + 1 WHERE id = $2", []any{to, id}
				if rnd.IntN(3) == 0 {
					sql, args = "UPDATE stones SET n = n + 1 WHERE id = $1", []any{id}
				}
				tag, err := c.Exec(context.Background(), sql, args...)
				if err != nil {
					var pe *pgconn.PgError
					if !errors.As(err, &pe) || pe.Code != "40001" && pe.Code != "40P01" {
						t.Errorf("%s: %v", sql, err)
						return
					}
					continue
				}
				mu.Lock()
				done += tag.RowsAffected()
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if n := one[int64](t, conn, "SELECT count(*) FROM stones"); n != stones {
		t.Errorf("%d stones", n)
	}
	if n := one[int64](t, conn, "SELECT count(DISTINCT id) FROM stones"); n != stones {
		t.Errorf("%d different stones", n)
	}
	if n := one[int64](t, conn, "SELECT sum(n)::bigint FROM stones"); n != done {
		t.Errorf("%d changes are there, %d were made", n, done)
	}
	for id := range stones {
		place := one[int64](t, conn, "SELECT place FROM stones WHERE id = $1", id)
		if n := one[int64](t, conn, "SELECT count(*) FROM stones WHERE place = $1 AND id = $2", place, id); n != 1 {
			t.Errorf("stone %d is not where its key leads", id)
		}
	}
}

// TestReferenceTables changes a table that every shard has, from several sessions.
func TestReferenceTables(t *testing.T) {
	t.Parallel()
	cl, conn, _ := orders(t, config{})
	exec(t, conn, "CREATE TABLE rates (id int PRIMARY KEY, name text, n bigint DEFAULT 0, at timestamptz DEFAULT now()) WITH (cleave.reference = true)")
	exec(t, conn, "CREATE TABLE prices (tenant_id bigint PRIMARY KEY, rate int REFERENCES rates) WITH (cleave.shard_key = 'tenant_id')")
	exec(t, conn, "INSERT INTO rates (id, name) SELECT g, 'r' || g FROM generate_series(1, 20) g")
	exec(t, conn, "INSERT INTO rates (id, name) VALUES (1, 'again'), (30, 'new') ON CONFLICT (id) DO UPDATE SET name = excluded.name, n = rates.n + 1")
	exec(t, conn, "INSERT INTO prices SELECT g, 1 + g % 20 FROM generate_series(1, 60) g")
	wantCode(t, conn, "23503", "INSERT INTO prices VALUES (100, 1), (101, 2), (102, 99), (103, 3)")
	wantCode(t, conn, "23503", "DELETE FROM rates WHERE id = 7")
	var wait sync.WaitGroup
	const each = 10
	for range 3 {
		c := cl.connect(t)
		wait.Go(func() {
			for i := range each {
				if _, err := c.Exec(context.Background(), "UPDATE rates SET n = n + 1 WHERE id IN (1, $1)", 2+i%3); err != nil {
					t.Errorf("%v", err)
				}
			}
		})
	}
	wait.Wait()
	if n := one[int64](t, conn, "SELECT n FROM rates WHERE id = 1"); n != 3*each+1 {
		t.Errorf("n is %d", n)
	}
	exec(t, conn, "BEGIN")
	exec(t, conn, "UPDATE rates SET name = 'gone'")
	exec(t, conn, "DELETE FROM rates WHERE id = 30")
	exec(t, conn, "ROLLBACK")
	want := ""
	for i := range cl.shards {
		got := cl.direct(t, i, "SELECT string_agg(r::text, ';' ORDER BY id) FROM rates r")
		if want == "" {
			want = got
		}
		if got != want || strings.Count(got, ";") != 20 {
			t.Errorf("shard %d has other rows:\n%s\nwant\n%s", i, got, want)
		}
	}
	if n := one[int64](t, conn, "SELECT count(*) FROM prices JOIN rates ON rates.id = prices.rate"); n != 60 {
		t.Errorf("%d rows of the join", n)
	}
	copiesLocked(t, cl, conn)
	exec(t, conn, "DROP TABLE prices")
	// Copies in another order, of which LIMIT takes other rows.
	cl.direct(t, 1, "CREATE INDEX down ON rates (id DESC); CLUSTER rates USING down; DROP INDEX down")
	wantCode(t, conn, "0A000", "DELETE FROM rates WHERE id = (SELECT o.id FROM rates o WHERE o.id % 2 = rates.id % 2 LIMIT 1)")
	exec(t, conn, "DELETE FROM rates WHERE id = (SELECT o.id FROM rates o WHERE o.id % 2 = rates.id % 2 ORDER BY o.id LIMIT 1)")
	for i := range cl.shards {
		if got := cl.direct(t, i, "SELECT string_agg(id::text, ' ' ORDER BY id) FROM rates WHERE id < 5"); got != "3 4" {
			t.Errorf("shard %d has other rows: %s", i, got)
		}
	}
	exec(t, conn, "TRUNCATE rates")
	if n := one[int64](t, conn, "SELECT count(*) FROM rates"); n != 0 {
		t.Errorf("%d rows after TRUNCATE", n)
	}
}

// copiesLocked: who locks rows of a reference table meets whom he would on one server, whatever shard each is on.
func copiesLocked(t *testing.T, cl *cluster, conn *pgx.Conn) {
	other := cl.connect(t)
	exec(t, other, "SET lock_timeout = '20ms'")
	held := func(lock string, then func()) {
		t.Helper()
		exec(t, conn, "BEGIN")
		exec(t, conn, lock)
		then()
		exec(t, conn, "ROLLBACK")
	}
	held("SELECT r.name FROM rates r WHERE id = 1 ORDER BY n LIMIT 1 FOR UPDATE", func() {
		for i := range cl.shards {
			if got := cl.direct(t, i, "SELECT string_agg(id::text, ' ' ORDER BY id) FROM (SELECT id FROM rates WHERE id < 4 FOR KEY SHARE SKIP LOCKED) r"); got != "2 3" {
				t.Errorf("shard %d: rows %s are not locked", i, got)
			}
		}
		for tenant := range 20 {
			wantCode(t, other, "55P03", "INSERT INTO prices VALUES ($1, 1)", 1000+tenant)
		}
		wantCode(t, other, "55P03", "SELECT * FROM prices p JOIN rates r ON r.id = p.rate WHERE p.tenant_id IN (20, 40, 60) FOR SHARE NOWAIT")
		exec(t, other, "SELECT * FROM prices p JOIN rates r ON r.id = p.rate WHERE p.tenant_id IN (20, 40, 60) FOR UPDATE OF p NOWAIT")
		wantCode(t, other, "55P03", "SELECT * FROM rates FOR NO KEY UPDATE NOWAIT")
		wantCode(t, other, "0A000", "SELECT id FROM rates WHERE id < 3 FOR UPDATE SKIP LOCKED")
	})
	held("SELECT * FROM rates WHERE id = 1 FOR NO KEY UPDATE", func() {
		exec(t, other, "BEGIN")
		exec(t, other, "INSERT INTO prices SELECT g, 1 FROM generate_series(1000, 1020) g")
		exec(t, other, "ROLLBACK")
		wantCode(t, other, "55P03", "SELECT * FROM prices p JOIN rates r ON r.id = p.rate WHERE p.tenant_id = 20 FOR SHARE NOWAIT")
	})
	for _, tenant := range []int{20, 40, 60} { // of several shards
		held(fmt.Sprintf("SELECT * FROM prices p JOIN rates r ON r.id = p.rate WHERE p.tenant_id = %d FOR SHARE", tenant), func() {
			wantCode(t, other, "55P03", "UPDATE rates SET n = 0 WHERE id = 1")
			wantCode(t, other, "55P03", "SELECT * FROM rates WHERE id = 1 FOR NO KEY UPDATE")
			exec(t, other, "SELECT * FROM rates WHERE id = 1 FOR SHARE NOWAIT")
			exec(t, other, "SELECT * FROM rates WHERE id = 2 FOR UPDATE NOWAIT")
		})
		exec(t, conn, "INSERT INTO rates (id) VALUES (31)")
		held(fmt.Sprintf("UPDATE prices SET rate = 31 WHERE tenant_id = %d", tenant), func() { // the lock of the foreign key
			wantCode(t, other, "55P03", "DELETE FROM rates WHERE id = 31")
			wantCode(t, other, "55P03", "SELECT * FROM rates WHERE id = 31 FOR UPDATE NOWAIT")
			exec(t, other, "SELECT * FROM rates WHERE id = 31 FOR NO KEY UPDATE NOWAIT")
		})
		exec(t, conn, "BEGIN")
		exec(t, conn, "DELETE FROM rates WHERE id = 31")
		wantCode(t, other, "55P03", "UPDATE prices SET rate = 31 WHERE tenant_id = $1", tenant)
		exec(t, conn, "COMMIT")
		wantCode(t, other, "23503", "UPDATE prices SET rate = 31 WHERE tenant_id = $1", tenant)
	}
	for sql, want := range map[string]string{
		"SELECT count(*) FROM prices FOR UPDATE":                                                                              "FOR UPDATE is not allowed with aggregate functions",
		"SELECT * FROM prices p JOIN rates r ON r.id = p.rate GROUP BY r.id FOR UPDATE":                                       "FOR UPDATE is not allowed with GROUP BY clause",
		"SELECT p.rate FROM prices p JOIN prices q ON q.rate = p.rate FOR UPDATE OF nosuch":                                   "relation \"nosuch\" in FOR UPDATE clause not found in FROM clause",
		"SELECT * FROM prices p JOIN rates r ON r.id = p.rate FOR UPDATE":                                                     "rows of the reference table rates are locked FOR UPDATE on every shard",
		"MERGE INTO prices p USING (VALUES (NULL::bigint)) v(k) ON p.tenant_id = v.k WHEN NOT MATCHED THEN INSERT VALUES (k)": "null value in column \"tenant_id\" of relation \"prices\" violates not-null constraint",
	} {
		_, err := conn.Exec(context.Background(), sql)
		if pe, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.HasPrefix(pe.Message, want) || strings.Contains(pe.Where, "guard") {
			t.Errorf("%s: %#v", sql, err)
		}
	}
	exec(t, conn, "CREATE TABLE keyless (id int) WITH (cleave.reference)")
	exec(t, conn, "INSERT INTO keyless VALUES (1)")
	wantCode(t, conn, "0A000", "SELECT * FROM keyless FOR UPDATE")
	exec(t, conn, "DROP TABLE keyless")
}

// TestLargeInsertSelect: rows of a SELECT that are too many to be held go to the shards by COPY.
func TestLargeInsertSelect(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	const large = "INSERT INTO orders SELECT g % 500, g, repeat('x', 200) FROM generate_series(1, 50000) g"
	const small = "INSERT INTO orders SELECT g % 500, g, repeat('x', 200) FROM generate_series(1, 500) g"
	const says = "CREATE FUNCTION says() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'by %', left(current_query(), 4); END $$"
	exec(t, conn, says)
	exec(t, conn, "CREATE TRIGGER says BEFORE INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION says()")
	for sql, by := range map[string]string{large: "by COPY", small: "by INSE"} {
		if _, err := conn.Exec(context.Background(), sql); err == nil || !strings.Contains(err.Error(), by) {
			t.Errorf("want %q: %v", by, err)
		}
	}
	exec(t, conn, "DROP TRIGGER says ON orders")
	tx, err := conn.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, tx.Conn(), fmt.Sprintf("INSERT INTO orders VALUES (%d, -1, 'mine')", keys[0][0]))
	if tag := exec(t, tx.Conn(), large); tag.String() != "INSERT 0 50000" {
		t.Error(tag)
	}
	// The rows that it makes are not among those that it reads.
	if tag := exec(t, tx.Conn(), "INSERT INTO orders SELECT tenant_id, id + 100000, note FROM orders"); tag.String() != "INSERT 0 50001" {
		t.Error(tag)
	}
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := one[int64](t, conn, "SELECT count(DISTINCT id) FROM orders"); n != 100_002 {
		t.Errorf("%d rows", n)
	}
	// One that fails leaves nothing, and says what the INSERT would.
	_, err = conn.Exec(context.Background(), "INSERT INTO orders SELECT g % 500, g + 99000, repeat('x', 200) FROM generate_series(1, 50000) g")
	if pe, ok := errors.AsType[*pgconn.PgError](err); !ok || pe.Code != "23505" || strings.Contains(pe.Where, "COPY") {
		t.Errorf("%#v", err)
	}
	if n := one[int64](t, conn, "SELECT count(*) FROM orders"); n != 100_002 {
		t.Errorf("%d rows", n)
	}
}

// TestWritesTiedByForeignKeys: WITH queries over several shards are run one by one, and refused where a
// foreign key would be checked too early.
func TestWritesTiedByForeignKeys(t *testing.T) {
	t.Parallel()
	_, conn, _ := orders(t, config{})
	exec(t, conn, "CREATE TABLE parent (k bigint, id int, n int, PRIMARY KEY (k, id)) WITH (cleave.shard_key = 'k')")
	exec(t, conn, "CREATE TABLE child (k bigint, id int, p int, PRIMARY KEY (k, id), FOREIGN KEY (k, p) REFERENCES parent (k, id)) WITH (cleave.shard_key = 'k')")
	rows := "SELECT g, 1 FROM generate_series(1, 20) g"
	exec(t, conn, "WITH p AS (INSERT INTO parent (k, id) "+rows+" RETURNING k, id) INSERT INTO child SELECT k, 7, id FROM p")
	exec(t, conn, "WITH p AS (UPDATE parent SET n = 2 RETURNING k, id) INSERT INTO child SELECT k, 8, id FROM p")
	if n := one[int64](t, conn, "SELECT count(*) FROM child"); n != 40 {
		t.Errorf("%d rows, want 40", n)
	}
	wantCode(t, conn, "0A000", "WITH p AS (DELETE FROM parent RETURNING k) DELETE FROM child USING p WHERE child.k = p.k")
	wantCode(t, conn, "0A000", "WITH p AS (UPDATE parent SET id = 2 RETURNING k) UPDATE child SET p = 2 FROM p WHERE child.k = p.k")
	if n := one[int64](t, conn, "WITH c AS (DELETE FROM child RETURNING k), p AS (DELETE FROM parent RETURNING k) SELECT count(*) FROM p"); n != 20 {
		t.Errorf("%d parents deleted, want 20", n)
	}
	if n := one[int64](t, conn, "SELECT (SELECT count(*) FROM child) + (SELECT count(*) FROM parent)"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}
