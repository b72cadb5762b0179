package gateway_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"

	"github.com/cleavedb/cleave/internal/pgtest"
)

func TestLibPQ(t *testing.T) {
	cl, _, keys := orders(t, config{})
	db := cl.open(t)
	for _, ks := range keys {
		k := ks[0]
		if _, err := db.Exec("INSERT INTO orders VALUES ($1, $2, $3)", k, 1, "pq"); err != nil {
			t.Fatal(err)
		}
		var note string
		if err := db.QueryRow("SELECT note FROM orders WHERE tenant_id = $1", k).Scan(&note); err != nil || note != "pq" {
			t.Errorf("%q, %v", note, err)
		}
		st, err := db.Prepare("SELECT count(*) FROM orders WHERE tenant_id = $1")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			var n int
			if err := st.QueryRow(k).Scan(&n); err != nil || n != 1 {
				t.Errorf("%d, %v", n, err)
			}
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec("DELETE FROM orders WHERE tenant_id = $1", keys[0][0])
	var pe *pq.Error
	if !errors.As(err, &pe) || pe.Code != "25006" {
		t.Errorf("write in a read-only transaction: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	if _, err := db.Exec("SELECT ctid FROM orders"); !errors.As(err, &pe) || pe.Code != "0A000" || pe.Hint == "" {
		t.Errorf("refused: %v", err)
	}
	if _, err := db.Exec("DISCARD ALL"); err != nil {
		t.Error(err)
	}
}

func TestPgxBatch(t *testing.T) {
	_, conn, keys := orders(t, config{})
	ctx := context.Background()
	b := &pgx.Batch{}
	for i := range 5 {
		b.Queue("INSERT INTO orders VALUES ($1, $2, 'b')", keys[0][0], i)
	}
	b.Queue("SELECT count(*) FROM orders WHERE tenant_id = $1", keys[0][0])
	res := conn.SendBatch(ctx, b)
	for range 5 {
		if tag, err := res.Exec(); err != nil || tag.RowsAffected() != 1 {
			t.Errorf("%v, %v", tag, err)
		}
	}
	var n int
	if err := res.QueryRow().Scan(&n); err != nil || n != 5 {
		t.Errorf("%d, %v", n, err)
	}
	if err := res.Close(); err != nil {
		t.Error(err)
	}
	// Reads on all shards, then a write.
	b = &pgx.Batch{}
	for _, ks := range keys {
		b.Queue("SELECT count(*) FROM orders WHERE tenant_id = $1", ks[0])
	}
	b.Queue("INSERT INTO orders VALUES ($1, 9, 'b')", keys[2][0])
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		t.Error(err)
	}
	// Writes on two shards: one transaction.
	b = &pgx.Batch{}
	b.Queue("INSERT INTO orders VALUES ($1, 20, 'b')", keys[0][0])
	b.Queue("INSERT INTO orders VALUES ($1, 20, 'b')", keys[1][0])
	if got := codeOf(conn.SendBatch(ctx, b).Close()); got != "" {
		t.Errorf("SQLSTATE %q", got)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE id = 20"); n != 2 {
		t.Errorf("%d rows", n)
	}
	// pgx's pipeline of many statements, more than fits one buffer.
	p := conn.PgConn().StartPipeline(ctx)
	big := strings.Repeat("x", 2000)
	for i := range 1000 {
		p.SendQueryParams("INSERT INTO orders VALUES ($1, $2, $3)", [][]byte{fmt.Append(nil, keys[1][1]), fmt.Append(nil, i), []byte(big)}, nil, nil, nil)
	}
	if err := p.Sync(); err != nil {
		t.Fatal(err)
	}
	done := 0
	for {
		r, err := p.GetResults()
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := r.(*pgconn.ResultReader); ok {
			if _, err := r.Close(); err != nil {
				t.Fatal(err)
			}
			done++
		}
		if _, ok := r.(*pgconn.PipelineSync); ok {
			break
		}
	}
	if err := p.Close(); err != nil || done != 1000 {
		t.Errorf("%d results, %v", done, err)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", keys[1][1]); n != 1000 {
		t.Errorf("%d rows", n)
	}
}

func TestPSQL(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	run1(t, conn, fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 'from psql')", keys[1][0]))
	psql := func(stdin string, args ...string) string {
		cmd := osexec.Command(pgtest.PSQL(t), append([]string{"-X", "-A", "-t", cl.url("")}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("psql %q: %v", args, err)
		}
		return string(out)
	}
	for _, c := range []struct{ in, want string }{
		{fmt.Sprintf("SELECT note FROM orders WHERE tenant_id = %d;", keys[1][0]), "from psql"},
		{"\\d orders", "tenant_id|bigint"},
		{"\\dt", "public|orders|table"},
		{"\\d+ orders", "extended"},
		{"\\x\nSELECT 1 AS one;", "one|1"},
		{"\\copy orders FROM /dev/null\nSELECT 'still here';", "still here"},
		{"\\copy orders FROM /dev/null", "COPY 0"},
		{"BEGIN;\nSELECT 1;\nCOMMIT;", "COMMIT"},
		{"\\set ON_ERROR_ROLLBACK on\nBEGIN;\nCREATE TABLE via_psql (a int);\nSELECT 1/0;\nINSERT INTO via_psql VALUES (42);\nCOMMIT;\nSELECT * FROM via_psql;", "42"},
		{"\\set FETCH_COUNT 2\nSELECT * FROM (VALUES (7), (8), (9)) v;", "9"},
	} {
		if out := psql(c.in); !strings.Contains(out, c.want) {
			t.Errorf("%s\n gave %s\n want %s", c.in, out, c.want)
		}
	}
	if out := psql("", "-l"); !strings.Contains(out, "cleave") && !strings.Contains(out, "|") {
		t.Errorf("psql -l: %s", out)
	}
}

func run1(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestVirtualSchema(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	if n := one[int](t, conn, "SELECT count(*) FROM cleave.shards WHERE health = 'up'"); n != 3 {
		t.Errorf("%d shards", n)
	}
	if k := one[string](t, conn, "SELECT shard_key FROM cleave.tables WHERE name = $1", "orders"); k != "tenant_id" {
		t.Errorf("shard key %q", k)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM cleave.ranges"); n != 12 {
		t.Errorf("%d ranges", n)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM cleave.sessions WHERE state = 'active'"); n != 1 {
		t.Errorf("%d active sessions", n)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM cleave.history WHERE statement IS NOT NULL"); n < 1 {
		t.Errorf("%d entries with a statement", n)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM cleave.history WHERE statement LIKE '%-- cleave%'"); n != 0 {
		t.Errorf("%d entries show the ledger's own lines", n)
	}
	for i, ks := range keys {
		if s := one[string](t, conn, fmt.Sprintf("SELECT cleave.shard_of('hash_bigint', %d)", ks[0])); s != fmt.Sprint("shard-", i) {
			t.Errorf("key %d is on %s", ks[0], s)
		}
		if s := one[string](t, conn, "SELECT cleave.shard_of('hash_bigint', $1)", fmt.Sprint(ks[0])); s != fmt.Sprint("shard-", i) {
			t.Errorf("key %d is on %s", ks[0], s)
		}
	}
	free := int64(100_000)
	run1(t, conn, fmt.Sprintf("SELECT cleave.pin('hash_bigint', %d, 'shard-2')", free))
	if s := one[string](t, conn, fmt.Sprintf("SELECT cleave.shard_of('hash_bigint', %d)", free)); s != "shard-2" {
		t.Errorf("the pinned key is on %s", s)
	}
	run1(t, conn, fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 'pinned')", free))
	if n := cl.direct(t, 2, fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", free)); n != "1" {
		t.Error("the pinned key's row is not on its shard")
	}
	run1(t, conn, "CREATE TABLE later (id bigint PRIMARY KEY)")
	run1(t, conn, "SELECT cleave.distribute('later', 'id')")
	if s := one[string](t, conn, "SELECT kind FROM cleave.tables WHERE name = 'later'"); s != "sharded" {
		t.Errorf("kind %s", s)
	}
	for _, s := range []step{
		{"SELECT cleave.pin('hash_bigint')", "22023 I"}, {"SELECT cleave.pin('hash_bigint', NULL, 'shard-1')", "22023 I"}, {"SELECT cleave.pin('a', 1, 'b', 4)", "22023 I"},
		{"SELECT cleave.pin(nope => 1)", "22023 I"}, {"BEGIN", "BEGIN T"}, {"SELECT cleave.pin('hash_bigint', 5, 'shard-1')", "25001 E"}, {"ROLLBACK", "ROLLBACK I"},
		{"BEGIN", "BEGIN T"}, {"SELECT count(*) FROM cleave.shards", "SELECT 1: 3 T"}, {fmt.Sprintf("INSERT INTO orders VALUES (%d, 7, 'x')", keys[0][0]), "INSERT 0 1 T"}, {"SELECT count(*) FROM cleave.shards", "SELECT 1: 3 T"}, {"COMMIT", "COMMIT I"},
	} {
		run(t, conn, []step{s})
	}
	run1(t, conn, "SELECT cleave.create_keyspace('r', 'range', 'text', bounds => ARRAY['g', 'p'])")
	if n := one[int](t, conn, "SELECT count(*) FROM cleave.ranges WHERE keyspace = 'r'"); n != 3 {
		t.Errorf("%d ranges", n)
	}
}

func TestExplainRoute(t *testing.T) {
	_, conn, keys := orders(t, config{})
	lines := func(sql string, args ...any) string {
		rows, err := conn.Query(context.Background(), sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return strings.Join(all, "\n")
	}
	out := lines(fmt.Sprintf("EXPLAIN (ROUTE) SELECT * FROM orders WHERE tenant_id = %d", keys[1][0]))
	if !strings.Contains(out, "shard: shard-1") {
		t.Error(out)
	}
	if out := lines("EXPLAIN (ROUTE) SELECT ctid FROM orders"); !strings.Contains(out, "refused") {
		t.Error(out)
	}
	// As EXPLAIN does, it tells of what is not there.
	for _, sql := range []string{"SELECT * FROM nothing", "UPDATE nothing SET a = 1", "DELETE FROM nothing"} {
		wantCode(t, conn, "42P01", "EXPLAIN (ROUTE) "+sql)
		exec(t, conn, "BEGIN")
		wantCode(t, conn, "42P01", "EXPLAIN (ROUTE) "+sql)
		wantCode(t, conn, "25P02", "SELECT 1")
		exec(t, conn, "ROLLBACK")
	}
	exec(t, conn, "CREATE TABLE lone (id bigint)")
	exec(t, conn, "CREATE TEMP TABLE passing (id bigint)")
	for _, sql := range []string{"SELECT * FROM lone", "INSERT INTO lone SELECT id FROM passing"} {
		if out := lines("EXPLAIN (ROUTE) " + sql); !strings.Contains(out, "plan: default shard") {
			t.Errorf("%s: %s", sql, out)
		}
	}
	exec(t, conn, "DROP TABLE passing")
	out = lines(fmt.Sprintf("EXPLAIN (ROUTE, ANALYZE) INSERT INTO orders VALUES (%d, 1, 'x'), (%d, 2, 'x')", keys[1][0], keys[1][0]))
	if !strings.Contains(out, "Ran on: shard-1") || !strings.Contains(out, "INSERT 0 2") {
		t.Error(out)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", keys[1][0]); n != 2 {
		t.Errorf("%d rows", n)
	}
}
