package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// script runs simple-protocol messages and compares each with what it should
// give: "tag", "tag: value", or an SQLSTATE.
type step struct{ sql, want string }

func run(t *testing.T, conn *pgx.Conn, steps []step) {
	t.Helper()
	for i, s := range steps {
		got := answer(conn, s.sql)
		if got != s.want {
			t.Errorf("step %d: %s\n gave %q, want %q", i, s.sql, got, s.want)
		}
	}
}

// answer runs one message and returns its tags, first values and status.
func answer(conn *pgx.Conn, sql string) string {
	res, err := conn.PgConn().Exec(context.Background(), sql).ReadAll()
	var parts []string
	for _, r := range res {
		if r.Err != nil {
			continue
		}
		p := r.CommandTag.String()
		if len(r.Rows) > 0 && len(r.Rows[0]) > 0 {
			p += ": " + string(r.Rows[0][0])
		}
		parts = append(parts, p)
	}
	if err != nil {
		parts = append(parts, codeOf(err))
	}
	return strings.Join(parts, ", ") + " " + string(conn.PgConn().TxStatus())
}

func TestTransactions(t *testing.T) {
	_, conn, keys := orders(t, config{})
	a, b := keys[0][0], keys[1][0]
	insert := func(k int64, id int) string { return fmt.Sprintf("INSERT INTO orders VALUES (%d, %d, 'n')", k, id) }
	count := func(k int64) string { return fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", k) }
	run(t, conn, []step{
		{"BEGIN", "BEGIN T"}, {insert(a, 1), "INSERT 0 1 T"}, {"ROLLBACK", "ROLLBACK I"}, {count(a), "SELECT 1: 0 I"},
		{"BEGIN", "BEGIN T"}, {insert(a, 1), "INSERT 0 1 T"}, {"COMMIT", "COMMIT I"}, {count(a), "SELECT 1: 1 I"},
		// Another shard takes part.
		{"START TRANSACTION", "START TRANSACTION T"}, {insert(a, 2), "INSERT 0 1 T"}, {insert(b, 2), "INSERT 0 1 T"}, {count(a), "SELECT 1: 2 T"}, {"ROLLBACK", "ROLLBACK I"}, {count(a), "SELECT 1: 1 I"},
		{"BEGIN", "BEGIN T"}, {insert(a, 2), "INSERT 0 1 T"}, {insert(b, 2), "INSERT 0 1 T"}, {"SELECT 1/0", "22012 E"}, {count(a), "25P02 E"}, {"COMMIT", "ROLLBACK I"}, {count(a), "SELECT 1: 1 I"},
		// A shard's own error does.
		{"BEGIN", "BEGIN T"}, {insert(a, 1), "23505 E"}, {"SELECT 1", "25P02 E"}, {"BEGIN", "25P02 E"}, {"END", "ROLLBACK I"},
		// A syntax error does, before anything was bound.
		{"BEGIN", "BEGIN T"}, {"SELEC", "42601 E"}, {"SELECT 1", "25P02 E"}, {"ROLLBACK", "ROLLBACK I"},
		{"COMMIT", "COMMIT I"}, {"ROLLBACK", "ROLLBACK I"}, {"COMMIT AND CHAIN", "25P01 I"},
		{"BEGIN", "BEGIN T"}, {"BEGIN", "BEGIN T"}, {"COMMIT", "COMMIT I"},
		// Nothing of the user's was touched: it may still go anywhere.
		{"BEGIN", "BEGIN T"}, {"SELECT 1", "SELECT 1: 1 T"}, {"SHOW work_mem", "SHOW: 4MB T"}, {insert(b, 9), "INSERT 0 1 T"}, {"COMMIT AND CHAIN", "COMMIT T"}, {insert(a, 9), "INSERT 0 1 T"}, {"COMMIT", "COMMIT I"},
		{"BEGIN", "BEGIN T"}, {count(b), "SELECT 1: 1 T"}, {count(a), "SELECT 1: 2 T"}, {"ABORT", "ROLLBACK I"},
		{"BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY", "BEGIN T"}, {"SHOW transaction_isolation", "SHOW: serializable T"}, {"ROLLBACK", "ROLLBACK I"},
		{"BEGIN READ ONLY", "BEGIN T"}, {insert(a, 10), "25006 E"}, {"ROLLBACK", "ROLLBACK I"},
		{"BEGIN", "BEGIN T"}, {"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET T"}, {"SELECT current_setting('transaction_isolation')", "SELECT 1: repeatable read T"}, {"COMMIT", "COMMIT I"},
	})
}

func TestSavepoints(t *testing.T) {
	_, conn, keys := orders(t, config{})
	a := keys[2][0]
	insert := func(id int) string { return fmt.Sprintf("INSERT INTO orders VALUES (%d, %d, 'n')", a, id) }
	count := fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", a)
	run(t, conn, []step{
		{"SAVEPOINT s", "25P01 I"},
		// Before it is bound.
		{"BEGIN", "BEGIN T"}, {"SAVEPOINT a", "SAVEPOINT T"}, {insert(1), "INSERT 0 1 T"}, {"SAVEPOINT b", "SAVEPOINT T"}, {insert(2), "INSERT 0 1 T"},
		{"ROLLBACK TO b", "ROLLBACK T"}, {count, "SELECT 1: 1 T"}, {"RELEASE b", "RELEASE T"}, {"ROLLBACK TO b", "3B001 E"}, {"ROLLBACK TO a", "ROLLBACK T"}, {count, "SELECT 1: 0 T"},
		{insert(3), "INSERT 0 1 T"}, {"COMMIT", "COMMIT I"}, {count, "SELECT 1: 1 I"},
		// An error of the router's in a bound one.
		{"BEGIN", "BEGIN T"}, {insert(4), "INSERT 0 1 T"}, {"SAVEPOINT x", "SAVEPOINT T"}, {"LOCK TABLE orders", "0A000 E"}, {"SAVEPOINT y", "25P02 E"}, {"ROLLBACK TO x", "ROLLBACK T"}, {"COMMIT", "COMMIT I"}, {count, "SELECT 1: 2 I"},
		// A failed one that is not bound.
		{"BEGIN", "BEGIN T"}, {"SAVEPOINT x", "SAVEPOINT T"}, {"SELEC", "42601 E"}, {"ROLLBACK TO x", "ROLLBACK T"}, {insert(5), "INSERT 0 1 T"}, {"COMMIT", "COMMIT I"}, {count, "SELECT 1: 3 I"},
	})
}

func TestSeveralStatementsInAMessage(t *testing.T) {
	_, conn, keys := orders(t, config{})
	a, b := keys[0][0], keys[1][0]
	insert := func(k int64, id int) string { return fmt.Sprintf("INSERT INTO orders VALUES (%d, %d, 'a;b')", k, id) }
	count := func(k int64) string { return fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", k) }
	run(t, conn, []step{
		{insert(a, 1) + ";" + insert(a, 2) + "; " + count(a), "INSERT 0 1, INSERT 0 1, SELECT 1: 2 I"},
		{insert(a, 3) + ";" + insert(a, 3), "INSERT 0 1, 23505 I"}, {count(a), "SELECT 1: 2 I"},
		{insert(a, 3) + ";" + insert(b, 3) + ";SELECT 1/0", "INSERT 0 1, INSERT 0 1, 22012 I"}, {count(a), "SELECT 1: 2 I"}, {count(b), "SELECT 1: 0 I"},
		{insert(a, 3) + ";SELEC", "42601 I"}, {count(a), "SELECT 1: 2 I"},
		{"BEGIN;" + insert(a, 3) + ";COMMIT", "BEGIN, INSERT 0 1, COMMIT I"}, {count(a), "SELECT 1: 3 I"},
		{"BEGIN;" + insert(a, 4), "BEGIN, INSERT 0 1 T"}, {insert(a, 5) + ";ROLLBACK", "INSERT 0 1, ROLLBACK I"}, {count(a), "SELECT 1: 3 I"},
		{insert(a, 6) + ";COMMIT;" + insert(b, 6), "INSERT 0 1, COMMIT, INSERT 0 1 I"}, {count(a), "SELECT 1: 4 I"}, {count(b), "SELECT 1: 1 I"},
		{insert(a, 7) + ";ROLLBACK;" + insert(b, 7), "INSERT 0 1, ROLLBACK, INSERT 0 1 I"}, {count(a), "SELECT 1: 4 I"}, {count(b), "SELECT 1: 2 I"},
		{insert(a, 8) + ";BEGIN;" + insert(a, 9), "INSERT 0 1, BEGIN, INSERT 0 1 T"}, {"ROLLBACK", "ROLLBACK I"}, {count(a), "SELECT 1: 4 I"},
		{"CREATE TABLE w1 (a int); INSERT INTO w1 VALUES (1); SELECT * FROM w1", "CREATE TABLE, INSERT 0 1, SELECT 1: 1 I"},
		{"CREATE TABLE w2 (a int); SELECT 1/0", "CREATE TABLE, 22012 I"}, {"SELECT * FROM w2", "42P01 I"},
		{"SELECT 1; ; SELECT 2;", "SELECT 1: 1, SELECT 1: 2 I"},
		{" ; ", " I"}, {"", " I"}, {"-- nothing", " I"},
		{"SET work_mem = '5MB'; SHOW work_mem", "SET, SHOW: 5MB I"}, {"SHOW work_mem", "SHOW: 5MB I"},
		{"SET work_mem = '6MB'; SELECT 1/0", "SET, 22012 I"}, {"SHOW work_mem", "SHOW: 5MB I"},
	})
	// The position is that in the whole message.
	_, err := conn.PgConn().Exec(context.Background(), "BEGIN; SELECT é FROM orders WHERE tenant_id = 1").ReadAll()
	if e, ok := err.(*pgconn.PgError); !ok || e.Code != "42703" || e.Position != 15 {
		t.Errorf("error %v at %d", err, e.Position)
	}
	run(t, conn, []step{{"ROLLBACK", "ROLLBACK I"}})
}

func TestSchemaChangesInTransactions(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	a := keys[1][0]
	run(t, conn, []step{
		{"BEGIN", "BEGIN T"}, {"CREATE TABLE items (tenant_id bigint PRIMARY KEY, n int) WITH (cleave.shard_key = 'tenant_id')", "CREATE TABLE T"},
		{fmt.Sprintf("INSERT INTO items VALUES (%d, 1)", a), "INSERT 0 1 T"}, {fmt.Sprintf("SELECT n FROM items WHERE tenant_id = %d", a), "SELECT 1: 1 T"}, {"ROLLBACK", "ROLLBACK I"},
		{fmt.Sprintf("SELECT n FROM items WHERE tenant_id = %d", a), "42P01 I"},
		{"BEGIN", "BEGIN T"}, {"SAVEPOINT s", "SAVEPOINT T"}, {"CREATE TABLE items (tenant_id bigint PRIMARY KEY, n int) WITH (cleave.shard_key = 'tenant_id')", "CREATE TABLE T"},
		{"RELEASE s", "RELEASE T"}, {fmt.Sprintf("INSERT INTO items VALUES (%d, 1)", a), "INSERT 0 1 T"}, {"COMMIT", "COMMIT I"},
		{fmt.Sprintf("SELECT n FROM items WHERE tenant_id = %d", a), "SELECT 1: 1 I"},
		// As migration tools do: a look, a change, a note.
		{"CREATE TABLE migrations (v int)", "CREATE TABLE I"},
		{"BEGIN", "BEGIN T"}, {"SELECT count(*) FROM migrations", "SELECT 1: 0 T"}, {"ALTER TABLE orders ADD COLUMN extra int", "ALTER TABLE T"}, {"INSERT INTO migrations VALUES (1)", "INSERT 0 1 T"}, {"COMMIT", "COMMIT I"},
		{fmt.Sprintf("INSERT INTO orders (tenant_id, id, extra) VALUES (%d, 77, 5)", a), "INSERT 0 1 I"},
		{"SELECT count(*) FROM migrations", "SELECT 1: 1 I"},
		{"BEGIN", "BEGIN T"}, {"CREATE TABLE gone (a int)", "CREATE TABLE T"}, {"CREATE TABLE gone (a int)", "42P07 E"}, {"SELECT 1", "25P02 E"}, {"COMMIT", "ROLLBACK I"}, {"SELECT * FROM gone", "42P01 I"},
		{"SET search_path TO nowhere", "SET I"}, {"RESET search_path", "RESET I"},
	})
	if n := cl.direct(t, 2, "SELECT count(*) FROM pg_attribute WHERE attname = 'extra'"); n != "1" {
		t.Errorf("the column is missing on shard 2: %s", n)
	}
	// Another session sees it at once.
	other := cl.connect(t)
	if n := one[int](t, other, "SELECT n FROM items WHERE tenant_id = $1", a); n != 1 {
		t.Errorf("n = %d", n)
	}
}

// TestSettingsBehindASavepoint: what ROLLBACK TO takes back on each of a schema change's conversations is known, whenever it
// became a participant.
func TestSettingsBehindASavepoint(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	for _, ks := range keys {
		exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'é')", ks[0])
	}
	run(t, conn, []step{
		{"BEGIN", "BEGIN T"}, {"ALTER TABLE orders ADD COLUMN extra int", "ALTER TABLE T"}, {"SAVEPOINT s", "SAVEPOINT T"}, {"SET bytea_output = 'escape'", "SET T"},
		{fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", keys[1][0]), "SELECT 1: 1 T"}, {"SELECT count(*) FROM orders", "SELECT 1: 3 T"},
		{"ROLLBACK TO s", "ROLLBACK T"}, {"SET bytea_output = 'escape'", "SET T"}, {`SELECT DISTINCT convert_to(note, 'UTF8')::text FROM orders`, `SELECT 1: \303\251 T`},
		{"ROLLBACK", "ROLLBACK I"},
	})
}

// TestSchemaChangeLostBeforeCommit: COMMIT behind messages that no Sync has followed, whose shard is lost meanwhile, is an
// error, and nothing is committed.
func TestSchemaChangeLostBeforeCommit(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	c := cl.raw(t)
	c.send(&pgproto3.Query{String: "BEGIN; ALTER TABLE orders ADD COLUMN lost int"})
	c.want("C BEGIN", "C ALTER TABLE", "Z T")
	c.send(parse("", fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 'n')", keys[0][0])), bind("", ""), do("", 0), flushMsg)
	c.want("1", "2", "C INSERT 0 1")
	cl.direct(t, 0, "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
	c.send(parse("", "COMMIT"), bind("", ""), do("", 0), syncMsg)
	var got []string
	for w := ""; !strings.HasPrefix(w, "Z"); {
		w = c.next()
		got = append(got, w)
	}
	if slices.Contains(got, "C COMMIT") || got[len(got)-1] != "Z I" {
		t.Errorf("%q", got)
	}
	wantCode(t, conn, "42703", "SELECT lost FROM orders")
}
