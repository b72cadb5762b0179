package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// both is a row of the first tenant of two shards each.
const both = "SELECT count(*) FROM orders WHERE id = $1 AND tenant_id = ANY (ARRAY[%d, %d])"

func TestCommitOnSeveralShards(t *testing.T) {
	t.Parallel()
	c, conn, keys := orders(t, config{})
	a, b := keys[0][0], keys[1][0]
	count := func(id int) int64 { return one[int64](t, conn, fmt.Sprintf(both, a, b), id) }
	for id, end := range []string{"COMMIT", "ROLLBACK"} {
		exec(t, conn, "BEGIN")
		exec(t, conn, "INSERT INTO orders VALUES ($1, $2, 'x')", a, id)
		exec(t, conn, "SAVEPOINT s")
		exec(t, conn, "INSERT INTO orders VALUES ($1, $2, 'x')", b, id)
		exec(t, conn, "ROLLBACK TO s")
		exec(t, conn, "INSERT INTO orders VALUES ($1, $2, 'y')", b, id)
		if n := count(id); n != 2 {
			t.Errorf("%d rows inside", n)
		}
		exec(t, conn, end)
		if n, want := count(id), int64(2-2*id); n != want {
			t.Errorf("%d rows after %s, want %d", n, end, want)
		}
	}
	// Outside of a block: the messages up to Sync are one transaction.
	batch := &pgx.Batch{}
	batch.Queue("UPDATE orders SET note = 'z' WHERE id = 0")
	batch.Queue("INSERT INTO orders VALUES ($1, 10, 'x')", a)
	if err := conn.SendBatch(context.Background(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	if n := one[int64](t, conn, "SELECT count(*) FROM orders WHERE note = 'z'"); n != 2 {
		t.Errorf("%d rows changed", n)
	}
	for i := range c.shards {
		if n := c.direct(t, i, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"); n != "0" {
			t.Errorf("%s are prepared on shard %d", n, i)
		}
	}
}

// TestReadOnlyOnSeveralShards: nothing is written into a READ ONLY transaction to
// commit it.
func TestReadOnlyOnSeveralShards(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	exec(t, conn, "BEGIN READ ONLY")
	for _, ks := range keys {
		one[int64](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", ks[0])
	}
	if n := one[int64](t, conn, "SELECT count(*) FROM orders"); n != 0 {
		t.Errorf("%d rows", n)
	}
	wantCode(t, conn, "25006", "INSERT INTO orders VALUES ($1, 1, 'x')", keys[1][0])
	exec(t, conn, "ROLLBACK")
	exec(t, conn, "BEGIN READ ONLY")
	for _, ks := range keys {
		one[int64](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", ks[0])
	}
	if tag := exec(t, conn, "COMMIT"); tag.String() != "COMMIT" {
		t.Error(tag)
	}
}

// TestReadOnlyAfterWrites: what was written before READ ONLY, or while it was not in
// force, is committed as any other write.
func TestReadOnlyAfterWrites(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	a, b := keys[0][0], keys[1][0]
	insert := func(k int64, id int) string { return fmt.Sprintf("INSERT INTO orders VALUES (%d, %d, 'n')", k, id) }
	rows := "SELECT count(*) FROM orders WHERE id = %d"
	run(t, conn, []step{
		{"BEGIN", "BEGIN T"}, {insert(a, 1), "INSERT 0 1 T"}, {insert(b, 1), "INSERT 0 1 T"}, {"SET TRANSACTION READ ONLY", "0A000 E"}, {"COMMIT", "ROLLBACK I"},
		{"BEGIN", "BEGIN T"}, {insert(a, 1), "INSERT 0 1 T"}, {"SET TRANSACTION READ ONLY", "SET T"}, {fmt.Sprintf(rows, 1), "SELECT 1: 1 T"}, {insert(b, 1), "25006 E"}, {"COMMIT", "ROLLBACK I"},
		{"BEGIN", "BEGIN T"}, {insert(a, 1), "INSERT 0 1 T"}, {"SET TRANSACTION READ ONLY", "SET T"}, {fmt.Sprintf(rows, 1), "SELECT 1: 1 T"}, {"COMMIT", "COMMIT I"}, {fmt.Sprintf(rows, 1), "SELECT 1: 1 I"},
		// A lock on the default shard is no write.
		{"BEGIN", "BEGIN T"}, {insert(a, 5), "INSERT 0 1 T"}, {"SET TRANSACTION READ ONLY", "SET T"}, {"SELECT pg_try_advisory_xact_lock(1)", "SELECT 1: t T"}, {"COMMIT", "COMMIT I"}, {fmt.Sprintf(rows, 5), "SELECT 1: 1 I"},
		{"BEGIN", "BEGIN T"}, {insert(b, 5), "INSERT 0 1 T"}, {"SET TRANSACTION READ ONLY", "SET T"}, {"SELECT pg_try_advisory_xact_lock(1)", "SELECT 1: t T"}, {"COMMIT", "COMMIT I"}, {fmt.Sprintf(rows, 5), "SELECT 1: 2 I"},
		{"BEGIN", "BEGIN T"}, {"SAVEPOINT s", "SAVEPOINT T"}, {"SET TRANSACTION READ ONLY", "SET T"}, {"ROLLBACK TO s", "ROLLBACK T"}, {insert(a, 2), "INSERT 0 1 T"}, {insert(b, 2), "INSERT 0 1 T"}, {"COMMIT", "COMMIT I"}, {fmt.Sprintf(rows, 2), "SELECT 1: 2 I"},
		{"BEGIN /* not READ ONLY */", "BEGIN T"}, {insert(a, 3), "INSERT 0 1 T"}, {insert(b, 3), "INSERT 0 1 T"}, {"COMMIT", "COMMIT I"}, {fmt.Sprintf(rows, 3), "SELECT 1: 2 I"},
		{"BEGIN READ ONLY, READ WRITE", "BEGIN T"}, {insert(a, 4), "INSERT 0 1 T"}, {insert(b, 4), "INSERT 0 1 T"}, {"COMMIT", "COMMIT I"}, {fmt.Sprintf(rows, 4), "SELECT 1: 2 I"},
	})
}

// TestReadOnlyAfterADeferredWrite: COMMIT of a transaction that wrote on one shard, was made READ ONLY and then read on
// several, is that shard's.
func TestReadOnlyAfterADeferredWrite(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	exec(t, conn, "ALTER TABLE orders ADD CONSTRAINT once UNIQUE (tenant_id, note) DEFERRABLE INITIALLY DEFERRED")
	run(t, conn, []step{
		{"BEGIN", "BEGIN T"}, {fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 'x'), (%[1]d, 2, 'x')", keys[0][0]), "INSERT 0 2 T"}, {"SET TRANSACTION READ ONLY", "SET T"},
		{"SELECT count(*) FROM orders", "SELECT 1: 2 T"}, {"COMMIT", "23505 I"}, {"SELECT count(*) FROM orders", "SELECT 1: 0 I"},
		// Temporary tables are written while it is READ ONLY.
		{"CREATE TEMPORARY TABLE here (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)", "CREATE TABLE I"}, {"BEGIN READ ONLY", "BEGIN T"}, {"INSERT INTO here VALUES (1), (1)", "INSERT 0 2 T"},
		{"SELECT count(*) FROM orders", "SELECT 1: 0 T"}, {"COMMIT", "23505 I"}, {"SELECT count(*) FROM here", "SELECT 1: 0 I"},
	})
}

func TestTransactionMode(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	a, b := keys[0][0], keys[1][0]
	exec(t, conn, "SET cleave.transaction_mode = 'single'")
	exec(t, conn, "BEGIN")
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x')", a)
	_, err := conn.Exec(context.Background(), "INSERT INTO orders VALUES ($1, 1, 'x')", b)
	if codeOf(err) != "0A000" || !strings.Contains(err.Error(), "shard-0") || !strings.Contains(err.Error(), "shard-1") {
		t.Error(err)
	}
	exec(t, conn, "ROLLBACK")
	wantCode(t, conn, "0A000", "UPDATE orders SET note = 'z'")
	if n := one[int64](t, conn, "SELECT count(*) FROM orders"); n != 0 { // a read outside of a block is free
		t.Errorf("%d rows", n)
	}
	exec(t, conn, "SET cleave.transaction_mode = 'multi'")
	exec(t, conn, "BEGIN ISOLATION LEVEL SERIALIZABLE")
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x')", a)
	wantCode(t, conn, "0A000", "INSERT INTO orders VALUES ($1, 1, 'x')", b)
	exec(t, conn, "ROLLBACK")
}

// mirrored has a row on each shard in orders, and the same in another table.
func mirrored(t *testing.T) (c *cluster, conn *pgx.Conn, keys [][]int64) {
	t.Helper()
	c, conn, keys = orders(t, config{})
	exec(t, conn, "CREATE TABLE mirror (tenant_id bigint PRIMARY KEY, id bigint) WITH (cleave.shard_key = 'tenant_id')")
	for _, ks := range keys {
		exec(t, conn, "INSERT INTO orders VALUES ($1, 1000, 'x')", ks[0])
		exec(t, conn, "INSERT INTO mirror VALUES ($1, 1000)", ks[0])
	}
	return c, conn, keys
}

// TestAtomicReads: sums over several shards are whole in the atomic mode while
// others transfer between them, in single statements and in blocks.
func TestAtomicReads(t *testing.T) {
	t.Parallel()
	c, conn, keys := mirrored(t)
	want := int64(1000 * len(keys))
	const rounds = 12
	// Two relations on each shard, which have to have one snapshot.
	const twice = "SELECT (sum(a.id) + sum((a.id - b.id) * (a.id - b.id)) * 1000000)::bigint FROM orders a JOIN mirror b ON a.tenant_id + 0 = b.tenant_id"
	stop, done := make(chan struct{}), make(chan error, 1)
	writer := c.connect(t)
	go func() {
		done <- func() error {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return nil
				default:
				}
				tx, err := writer.Begin(context.Background())
				if err != nil {
					return err
				}
				for k, by := range []int{-1, 1} {
					for _, table := range []string{"orders", "mirror"} {
						if _, err := tx.Exec(context.Background(), "UPDATE "+table+" SET id = id + $1 WHERE tenant_id = $2", by, keys[(i+k)%len(keys)][0]); err != nil {
							return err
						}
					}
				}
				if err := tx.Commit(context.Background()); err != nil {
					return err
				}
			}
		}()
	}()
	exec(t, conn, "SET cleave.read_consistency = 'atomic'")
	wantCode(t, conn, "22023", "SET cleave.read_consistency = 'some'")
	read := func(sql string, args ...any) {
		t.Helper()
		if got := one[int64](t, conn, sql, args...); got != want {
			t.Errorf("%s: %d, want %d", sql, got, want)
		}
	}
	for range rounds {
		read("SELECT sum(id)::bigint FROM orders")
		read("SELECT sum(id)::bigint FROM orders WHERE id > $1", -1000000)
		exec(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
		var parts int64
		for _, ks := range keys {
			parts += one[int64](t, conn, "SELECT sum(id)::bigint FROM orders WHERE tenant_id = $1", ks[0])
		}
		if parts != want {
			t.Errorf("%d one shard after the other, want %d", parts, want)
		}
		read("SELECT sum(id)::bigint FROM orders")
		exec(t, conn, "COMMIT")
		exec(t, conn, "BEGIN")
		read("SELECT sum(id)::bigint FROM orders")
		read("SELECT sum(id)::bigint FROM orders WHERE id > $1", -1000000)
		read(twice)
		if got := copiedIDs(t, conn, "COPY orders (id, note) TO STDOUT (FORMAT csv)"); got != want {
			t.Errorf("COPY: %d, want %d", got, want)
		}
		exec(t, conn, "COMMIT")
		read(twice)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAtomicReadsOfAMessage: a later read of the same message is proved with the snapshots that it has. Where one of them is older than
// a transaction that another shard's sees, and cannot be taken anew, it is refused.
func TestAtomicReadsOfAMessage(t *testing.T) {
	t.Parallel()
	c, conn, keys := mirrored(t)
	const sum, joined = "SELECT sum(id)::bigint FROM orders", "SELECT sum(a.id)::bigint FROM orders a JOIN mirror b ON a.tenant_id + 0 = b.tenant_id"
	want := fmt.Sprint(1000 * len(keys))
	holder, writer, watcher := c.connect(t), c.connect(t), c.connect(t)
	exec(t, conn, "SET cleave.read_consistency = 'atomic'")
	exec(t, watcher, "SET cleave.read_consistency = 'atomic'")
	for i, m := range [][]string{{joined, joined}, {sum, joined}, {joined, sum}, {sum, sum}} {
		exec(t, holder, "SELECT pg_advisory_lock(7)")
		type result struct {
			said []*pgconn.Result
			err  error
		}
		done := make(chan result, 1)
		go func() {
			said, err := conn.PgConn().Exec(context.Background(), m[0]+"; SELECT pg_advisory_xact_lock(7); "+m[1]).ReadAll()
			done <- result{said, err}
		}()
		waitfor.True(t, "the message waits", func() bool {
			return one[int64](t, watcher, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted") == 1
		})
		for k := range keys { // between the first two shards, and between the last two
			exec(t, writer, "BEGIN")
			exec(t, writer, "UPDATE orders SET id = id - 1 WHERE tenant_id = $1", keys[k][0])
			exec(t, writer, "UPDATE orders SET id = id + 1 WHERE tenant_id = $1", keys[(k+1)%len(keys)][0])
			exec(t, writer, "COMMIT")
		}
		exec(t, writer, "BEGIN")
		exec(t, writer, "UPDATE orders SET id = id - 7 WHERE tenant_id = $1", keys[0][0])
		exec(t, writer, "UPDATE orders SET id = id + 7 WHERE tenant_id = $1", keys[1][0])
		exec(t, writer, "COMMIT")
		if got := one[int64](t, watcher, sum); fmt.Sprint(got) != want { // the base moves
			t.Errorf("meanwhile: %d", got)
		}
		exec(t, holder, "SELECT pg_advisory_unlock(7)")
		got := <-done
		if len(got.said) == 0 || string(got.said[0].Rows[0][0]) != want {
			t.Fatal(i, got.err)
		}
		switch {
		case got.err != nil:
			if codeOf(got.err) != "0A000" {
				t.Error(i, got.err)
			}
		case string(got.said[2].Rows[0][0]) != want:
			t.Errorf("%v: the second read is torn: %s", m, got.said[2].Rows[0][0])
		}
		t.Log(m, got.err)
	}
}

// copiedIDs is the sum of the numbers with which the lines of a COPY begin.
func copiedIDs(t *testing.T, conn *pgx.Conn, sql string) (sum int64) {
	t.Helper()
	for line := range strings.Lines(copied(t, conn, sql)) {
		first, _, _ := strings.Cut(line, ",")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func copied(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := conn.PgConn().CopyTo(t.Context(), &b, sql); err != nil {
		t.Fatal(sql, err)
	}
	return b.String()
}

// TestAtomicCopy: in a READ COMMITTED block an atomic COPY of a table is one of a query, and gives the same bytes.
func TestAtomicCopy(t *testing.T) {
	t.Parallel()
	_, conn, keys := orders(t, config{})
	exec(t, conn, "CREATE TABLE things (tenant_id bigint, twice bigint GENERATED ALWAYS AS (tenant_id * 2) STORED, \"a \"\"b\" text, at timestamptz, b bytea, PRIMARY KEY (tenant_id)) WITH (cleave.shard_key = 'tenant_id')")
	for i, ks := range keys {
		exec(t, conn, "INSERT INTO things VALUES ($1, DEFAULT, $2, '2026-11-28 12:00+00', '\\x00ff')", ks[0], []any{nil, "a,\"b\"\t\\N\n", ""}[i])
	}
	for _, sql := range []string{
		"COPY things TO STDOUT", "COPY things TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE *)", "COPY things (\"a \"\"b\", tenant_id) TO STDOUT (FORMAT csv, NULL 'none', DELIMITER ';')",
		"COPY things TO STDOUT (FORMAT binary)", "COPY (SELECT * FROM things) TO STDOUT (HEADER)", "COPY (SELECT * FROM things ORDER BY tenant_id) TO STDOUT (FORMAT csv, FORCE_QUOTE (at))",
		"COPY things TO STDOUT (FORMAT csv, FORCE_QUOTE (at))",
	} {
		exec(t, conn, "SET cleave.read_consistency = 'shard'")
		want := copied(t, conn, sql)
		exec(t, conn, "SET cleave.read_consistency = 'atomic'")
		if got := copied(t, conn, sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
		exec(t, conn, "BEGIN")
		if got := copied(t, conn, sql); got != want {
			t.Errorf("%s in a block: %q, want %q", sql, got, want)
		}
		exec(t, conn, "ROLLBACK")
	}
	// What PostgreSQL refuses is refused.
	for sql, want := range map[string]string{
		"COPY things (twice) TO STDOUT": "42P10", "COPY things TO STDOUT (FORMAT csv, FORCE_QUOTE (other))": "42703", "COPY things (at) TO STDOUT (FORMAT csv, FORCE_QUOTE (b))": "42P10",
	} {
		for _, begin := range []string{"SELECT 1", "BEGIN"} {
			exec(t, conn, begin)
			_, err := conn.PgConn().CopyTo(t.Context(), io.Discard, sql)
			if code := codeOf(err); code != want {
				t.Errorf("%s; %s: %v, want %s", begin, sql, err, want)
			}
			exec(t, conn, "ROLLBACK")
		}
	}
}

// TestAtomicReadLeavesNoPortal: a join that did not fit at first leaves no portal open in its block, which would keep TRUNCATE out.
func TestAtomicReadLeavesNoPortal(t *testing.T) {
	t.Parallel()
	c, conn, keys := mirrored(t)
	exec(t, conn, "SET cleave.read_consistency = 'atomic'")
	one[int64](t, conn, "SELECT count(*) FROM orders")
	for range 3 {
		// A transaction that one shard has and the other never will: the attempts do not fit until there is a new base.
		c.direct(t, 0, "INSERT INTO cleave_internal.transaction (id, shards) VALUES (gen_random_uuid(), '{shard-0,shard-1}')")
		exec(t, conn, "BEGIN")
		if got := one[int64](t, conn, "SELECT sum(a.id)::bigint FROM orders a JOIN mirror b ON a.tenant_id + 0 = b.tenant_id"); got != int64(1000*len(keys)) {
			t.Error(got)
		}
		exec(t, conn, "TRUNCATE mirror")
		exec(t, conn, "ROLLBACK")
	}
}

// TestAtomicReadsAgain: what did not fit at first is bound, looked at and executed, and gives the same answer, in every form of a read.
func TestAtomicReadsAgain(t *testing.T) {
	t.Parallel()
	c, conn, keys := orders(t, config{})
	exec(t, conn, "CREATE TABLE mirror (tenant_id bigint PRIMARY KEY, at timestamptz DEFAULT '2026-11-28 12:00+00') WITH (cleave.shard_key = 'tenant_id')")
	for i, ks := range keys {
		for j, k := range ks {
			exec(t, conn, "INSERT INTO orders VALUES ($1, $2, $3)", k, i, fmt.Sprint("n", j))
			exec(t, conn, "INSERT INTO mirror VALUES ($1)", k)
		}
	}
	reads := []string{
		"SELECT count(*) FROM orders", "SELECT note, count(*) FROM orders GROUP BY note ORDER BY note", "SELECT * FROM orders ORDER BY note, tenant_id LIMIT 3 OFFSET 1", "SELECT tenant_id FROM orders WHERE id >= 0 ORDER BY tenant_id DESC",
		"SELECT a.note, b.at FROM orders a JOIN mirror b ON a.tenant_id + 0 = b.tenant_id ORDER BY 1, a.tenant_id", "SELECT sum(1 / (id - 1)) FROM orders", "SELECT count(*) FROM orders WHERE tenant_id IN (SELECT tenant_id FROM mirror WHERE at > '2026-01-01')",
		"COPY (SELECT note FROM orders ORDER BY note, tenant_id) TO STDOUT", "COPY (SELECT a.note FROM orders a JOIN mirror b ON a.tenant_id + 0 = b.tenant_id ORDER BY a.note) TO STDOUT",
	}
	say := func(sql string) string {
		said, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
		out := codeOf(err)
		for _, r := range said {
			out += fmt.Sprintf("|%s", r.Rows)
		}
		if strings.HasPrefix(sql, "COPY") && err == nil {
			out = copied(t, conn, sql)
		}
		return out
	}
	cursor := func() string {
		out := say("DECLARE k CURSOR FOR SELECT note FROM orders ORDER BY note, tenant_id")
		return out + say("FETCH 2 FROM k") + say("FETCH ALL FROM k") + say("CLOSE k")
	}
	for _, style := range []string{"RESET datestyle", "SET datestyle = 'German'"} {
		for _, block := range []bool{false, true} {
			for _, sql := range append(reads, "cursor") {
				var said [2]string
				for i, level := range []string{"shard", "atomic"} {
					exec(t, conn, style)
					exec(t, conn, "SET cleave.read_consistency = '"+level+"'")
					if block || sql == "cursor" {
						exec(t, conn, "BEGIN")
					}
					if level == "atomic" {
						one[int64](t, conn, "SELECT count(*) FROM orders")
						c.direct(t, 0, "INSERT INTO cleave_internal.transaction (id, shards) VALUES (gen_random_uuid(), '{shard-0,shard-1}')")
					}
					if sql == "cursor" {
						said[i] = cursor()
					} else {
						said[i] = say(sql)
					}
					exec(t, conn, "ROLLBACK")
				}
				if said[0] != said[1] {
					t.Errorf("%s, block %v: %s: %q, atomic %q", style, block, sql, said[0], said[1])
				}
			}
		}
	}
}

// TestDeadlockOverSeveralShards: two transactions, on routers of their own, wait for
// each other on two shards, of which no shard sees more than its half.
func TestDeadlockOverSeveralShards(t *testing.T) {
	t.Parallel()
	// The sessions' setting is in force, not the routers'.
	never := limits.Defaults{DeadlockTimeout: time.Hour}
	c, conn, keys := orders(t, config{several: never})
	other := start(t, config{dir: c.dir, urls: c.shards, several: never})
	if got := one[string](t, conn, "SHOW cleave.deadlock_timeout"); got != "3600000ms" {
		t.Errorf("SHOW cleave.deadlock_timeout: %q", got)
	}
	wantCode(t, conn, "22023", "SET cleave.deadlock_timeout = 0")
	a, b := keys[0][0], keys[1][0]
	for _, k := range []int64{a, b} {
		exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x')", k)
	}
	const update = "UPDATE orders SET note = $2 WHERE tenant_id = $1"
	first, second := c.connect(t), other.connect(t)
	for _, x := range []struct {
		conn *pgx.Conn
		key  int64
		name string
	}{{first, a, "first"}, {second, b, "second"}} {
		exec(t, x.conn, "SET cleave.deadlock_timeout = '100ms'")
		exec(t, x.conn, "BEGIN")
		exec(t, x.conn, update, x.key, x.name)
	}
	ends := make(chan error, 2)
	go func() {
		_, err := first.Exec(context.Background(), update, b, "first")
		if err == nil {
			_, err = first.Exec(context.Background(), "COMMIT")
		}
		ends <- err
	}()
	_, err := second.Exec(context.Background(), update, a, "second")
	if err == nil {
		exec(t, second, "COMMIT")
	} else {
		exec(t, second, "ROLLBACK")
	}
	errs := []error{err, <-ends}
	if errs[0] == nil {
		errs[0], errs[1] = errs[1], errs[0]
	}
	if codeOf(errs[0]) != "40P01" || errs[1] != nil {
		t.Fatal(errs)
	}
	for _, m := range []struct{ name, label, value string }{{"cleave_deadlocks_total", "", ""}, {"cleave_transactions_total", "result", "committed"}} {
		labels := []string{m.label, m.value}
		if m.label == "" {
			labels = nil
		}
		if n := c.samples(t, m.name, labels...) + other.samples(t, m.name, labels...); n != 1 {
			t.Errorf("%s: %v", m.name, n)
		}
	}
	if n := one[int64](t, conn, "SELECT count(DISTINCT note) FROM orders"); n != 1 {
		t.Errorf("%d notes: one of the transactions is there by half", n)
	}
	records, err := c.dir.Records(context.Background(), "waits/", "", 10)
	for end := time.Now().Add(waitfor.Max); err == nil && len(records) > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		records, err = c.dir.Records(context.Background(), "waits/", "", 10)
	}
	if err != nil || len(records) > 0 {
		t.Errorf("%d records are left, %v", len(records), err)
	}
}
