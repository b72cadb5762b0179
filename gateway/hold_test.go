package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
)

// mover moves the keys 100 to 199 of table things between shards, as a coordinator
// would, step by step.
type mover struct {
	*cluster
	lease *shardmap.Lease
	part  shardmap.Part
	from  string
	to    string
}

// movable starts a cluster with a table in a range keyspace: keys below 100 on
// shard-0, below 200 on shard-1, below 300 on shard-1 too, the others on shard-2.
func movable(t testing.TB) (*mover, *pgx.Conn) {
	t.Helper()
	m := &mover{lease: shardmap.NewLease(nil), part: shardmap.Part{Low: []string{"100"}, High: []string{"200"}}, from: "shard-1", to: "shard-2"}
	m.lease.Extend(time.Now(), time.Hour)
	m.cluster = start(t, config{lease: m.lease})
	conn := m.connect(t)
	exec(t, conn, "SELECT cleave.create_keyspace('k', 'range', 'bigint', bounds => ARRAY['100', '300'], shards => ARRAY['shard-0', 'shard-1', 'shard-2'])")
	m.change(t, func(s *shardmap.State) error { return s.Split("k", []string{"200"}) })
	exec(t, conn, "CREATE TABLE things (id bigint PRIMARY KEY, n int NOT NULL, note text) WITH (cleave.shard_key = 'id', cleave.keyspace = 'k')")
	for _, id := range []int{5, 6, 7, 8, 110, 120, 130, 210, 310} {
		exec(t, conn, "INSERT INTO things VALUES ($1, 0)", id)
	}
	return m, conn
}

// change edits the map for the move.
func (m *mover) change(t testing.TB, edit func(*shardmap.State) error) uint64 {
	t.Helper()
	for {
		snap, err := m.dir.Load(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		next := snap.State().Clone()
		if err := edit(&next); err != nil {
			t.Fatal(err)
		}
		snap, err = m.dir.Update(context.Background(), shardmap.Change{Expect: snap.Version(), By: "test", Op: "move", Transit: "m1"}, next)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return snap.Version()
	}
}

// put puts the transit with a hold into the map.
func (m *mover) put(t testing.TB, hold shardmap.Hold) uint64 {
	t.Helper()
	return m.change(t, func(s *shardmap.State) error {
		s.PutTransit("k", shardmap.Transit{ID: "m1", Part: m.part, From: m.from, To: m.to, Hold: hold})
		return nil
	})
}

func (m *mover) drop(t testing.TB) uint64 {
	t.Helper()
	return m.change(t, func(s *shardmap.State) error { s.DropTransit("k", "m1"); return nil })
}

// acked waits until the router has acknowledged a version.
func (m *mover) acked(t testing.TB, version uint64) {
	t.Helper()
	if !m.acknowledges(version, 10*time.Second) {
		t.Fatalf("version %d is not acknowledged, %d is", version, m.lease.Acknowledged())
	}
}

func (m *mover) acknowledges(version uint64, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if m.lease.Acknowledged() >= version {
			return true
		}
	}
	return false
}

// carry moves the rows and opens the target: the hold is acknowledged. What is
// served afterwards has the part on the other shard, and no transit.
func (m *mover) carry(t testing.TB) uint64 {
	t.Helper()
	ctx := context.Background()
	snap, err := m.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := snap.State().Clone()
	next.DropTransit("k", "m1") // guards never let a held part through
	if err := next.SetOwner("k", m.part, m.to); err != nil {
		t.Fatal(err)
	}
	after, err := shardmap.NewSnapshot(next)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	within := func(shard string, work func(engine.Conn) error) {
		t.Helper()
		def, _ := snap.Shard(shard)
		sh, err := postgres.Driver{}.Open(engine.Config{Cluster: snap.State().Cluster, Name: shard, URL: def.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer sh.Close()
		c, err := sh.(engine.Carrier).ConnectCarrier(ctx, map[string]string{"application_name": "cleave"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := engine.Exec(c, "BEGIN"); err != nil {
			t.Fatal(err)
		}
		if err := c.(engine.Triggered).PastTriggers(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Exec(c, "LOCK TABLE things IN EXCLUSIVE MODE"); err != nil {
			t.Fatal(err)
		}
		if err := work(c); err != nil {
			t.Fatal(err)
		}
		if err := schema.SetGuards(ctx, c, after, shard, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Exec(c, "COMMIT"); err != nil {
			t.Fatal(err)
		}
	}
	within(m.from, func(c engine.Conn) error {
		res, err := engine.Exec(c, "DELETE FROM things WHERE id >= 100 AND id < 200 RETURNING id, n, coalesce(note, '')")
		if err != nil {
			return err
		}
		for _, r := range res.Rows {
			rows = append(rows, []string{r[0].String, r[1].String, r[2].String})
		}
		return nil
	})
	within(m.to, func(c engine.Conn) error {
		for _, r := range rows {
			if _, err := engine.Exec(c, fmt.Sprintf("INSERT INTO things VALUES (%s, %s, %s)", r[0], r[1], executor.QuoteLiteral(r[2]))); err != nil {
				return err
			}
		}
		return nil
	})
	v := m.change(t, func(s *shardmap.State) error {
		s.DropTransit("k", "m1")
		return s.SetOwner("k", m.part, m.to)
	})
	m.from, m.to = m.to, m.from
	return v
}

// held waits until so many statements wait.
func (m *mover) held(t testing.TB, n int) {
	t.Helper()
	waitfor.True(t, fmt.Sprintf("%d statements wait", n), func() bool { return m.holds(n) })
}

// heldOrEnded is held for statements of which one may have ended instead.
func (m *mover) heldOrEnded(t testing.TB, n int, ends chan error) {
	t.Helper()
	waitfor.True(t, fmt.Sprintf("%d statements wait, or one has ended", n), func() bool { return m.holds(n) || len(ends) > 0 })
}

// holds reports whether so many statements wait.
func (m *mover) holds(n int) bool {
	answer := httptest.NewRecorder()
	m.metrics.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text := answer.Body.String()
	return strings.Contains(text, fmt.Sprintf("cleave_held_statements{keyspace=\"k\"} %d\n", n)) || n == 0 && !strings.Contains(text, "cleave_held_statements{")
}

// later runs f and gives its error when it ends.
func later(f func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func ends(t testing.TB, what string, done chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(waitfor.Max):
		t.Fatalf("%s goes on waiting", what)
		return nil
	}
}

// TestHeldStatementsWait: statements that need a held part wait for the next map, in
// each way that a statement can come, and then run where the part is; others go on.
func TestHeldStatementsWait(t *testing.T) {
	m, conn := movable(t)
	ctx := context.Background()
	type way struct {
		name string
		run  func(c *pgx.Conn) error
	}
	execAs := func(sql string, mode pgx.QueryExecMode, args ...any) func(c *pgx.Conn) error {
		return func(c *pgx.Conn) error {
			_, err := c.Exec(ctx, sql, append([]any{mode}, args...)...)
			return err
		}
	}
	ways := []way{
		{"simple", execAs("UPDATE things SET n = n + 1 WHERE id = 110", pgx.QueryExecModeSimpleProtocol)},
		{"prepared", execAs("UPDATE things SET n = n + 1 WHERE id = $1", pgx.QueryExecModeCacheStatement, 110)},
		{"unnamed", execAs("UPDATE things SET n = n + 1 WHERE id = $1", pgx.QueryExecModeExec, 110)},
		{"a message of several", execAs("UPDATE things SET n = n + 1 WHERE id = 6; UPDATE things SET n = n + 1 WHERE id = 110", pgx.QueryExecModeSimpleProtocol)},
		{"EXECUTE", func(c *pgx.Conn) error {
			if err := execAs("PREPARE p AS UPDATE things SET n = n + 1 WHERE id = $1", pgx.QueryExecModeSimpleProtocol)(c); err != nil {
				return err
			}
			return execAs("EXECUTE p (110)", pgx.QueryExecModeSimpleProtocol)(c)
		}},
		{"several shards", execAs("UPDATE things SET n = n + 1 WHERE id IN (5, 110)", pgx.QueryExecModeSimpleProtocol)},
		{"an interval", execAs("UPDATE things SET n = n + 1 WHERE id > 105 AND id < 115", pgx.QueryExecModeExec)},
		{"a transaction", func(c *pgx.Conn) error {
			return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "UPDATE things SET n = n + 1 WHERE id = 7"); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "UPDATE things SET n = n + 1 WHERE id = 110")
				return err
			})
		}},
		{"a batch", func(c *pgx.Conn) error {
			b := &pgx.Batch{}
			b.Queue("UPDATE things SET n = n WHERE id = 8")
			b.Queue("UPDATE things SET n = n + 1 WHERE id = 110")
			b.Queue("UPDATE things SET n = n WHERE id = 8")
			return c.SendBatch(ctx, b).Close()
		}},
		{"an aggregate", func(c *pgx.Conn) error {
			var n int
			if err := c.QueryRow(ctx, "SELECT count(*) FROM things").Scan(&n); err != nil || n < 6 {
				return fmt.Errorf("%d rows: %w", n, err)
			}
			return nil
		}},
		{"COPY", func(c *pgx.Conn) error {
			_, err := c.CopyFrom(ctx, pgx.Identifier{"things"}, []string{"id", "n"}, pgx.CopyFromRows([][]any{{140, 7}, {240, 7}}))
			return err
		}},
		{"INSERT ... SELECT", execAs("INSERT INTO things SELECT id + 1, 9 FROM things WHERE id = 140", pgx.QueryExecModeSimpleProtocol)},
		{"a cursor", func(c *pgx.Conn) error {
			return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "DECLARE c CURSOR FOR SELECT * FROM things WHERE id = 110"); err != nil {
					return err
				}
				tag, err := tx.Exec(ctx, "FETCH ALL FROM c")
				if err == nil && tag.RowsAffected() != 1 {
					err = fmt.Errorf("the cursor has %v", tag)
				}
				return err
			})
		}},
	}
	for _, how := range []string{"released", "moved"} {
		for _, w := range ways {
			if how == "moved" && w.name == "COPY" {
				exec(t, conn, "DELETE FROM things WHERE id IN (140, 141, 240)")
			}
		}
		v := m.put(t, shardmap.HoldNew)
		m.acked(t, v)
		var running []chan error
		for _, w := range ways {
			if w.name == "INSERT ... SELECT" {
				continue // after the COPY
			}
			c := m.connect(t)
			running = append(running, later(func() error { return w.run(c) }))
		}
		for i, done := range running {
			select {
			case err := <-done:
				t.Fatalf("%s does not wait: %v", ways[i].name, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
		m.held(t, len(running))
		for _, sql := range []string{
			"UPDATE things SET n = n + 1 WHERE id = 5", "UPDATE things SET n = n + 1 WHERE id = 210", "SELECT * FROM things WHERE id > 200",
			"SELECT * FROM things WHERE id IN (5, 210, 310)", "SELECT 1", "SELECT count(*) FROM things WHERE id = 210 OR id = 5",
		} {
			exec(t, conn, sql)
		}
		m.held(t, len(running))
		if how == "released" {
			m.drop(t)
		} else {
			m.carry(t)
		}
		for i, done := range running {
			if err := ends(t, ways[i].name, done); err != nil {
				t.Errorf("%s, %s: %v", how, ways[i].name, err)
			}
		}
		for _, w := range ways {
			if w.name == "INSERT ... SELECT" {
				if err := w.run(conn); err != nil {
					t.Errorf("%s, %s: %v", how, w.name, err)
				}
			}
		}
		m.held(t, 0)
	}
	if n := one[int](t, conn, "SELECT n FROM things WHERE id = 110"); n != 18 {
		t.Errorf("9 ways have counted to %d in two rounds", n)
	}
	if n := m.direct(t, 2, "SELECT n FROM things WHERE id = 110"); n != "18" {
		t.Errorf("the new owner has %s", n)
	}
	if n := m.direct(t, 1, "SELECT count(*) FROM things WHERE id BETWEEN 100 AND 199"); n != "0" {
		t.Errorf("the former owner has %s rows", n)
	}
}

// TestHoldTimeout: a statement that waits for too long is told so, and what it can
// do; cancel, statement_timeout and a client that leaves end the wait as well.
func TestHoldTimeout(t *testing.T) {
	m, conn := movable(t)
	ctx := context.Background()
	v := m.put(t, shardmap.HoldNew)
	m.acked(t, v)
	const held = "SELECT * FROM things WHERE id = 110"
	if got := one[string](t, conn, "SHOW cleave.hold_timeout"); got != "10s" {
		t.Errorf("cleave.hold_timeout is %s", got)
	}
	for _, d := range []string{"150ms", "0"} {
		exec(t, conn, "SET cleave.hold_timeout = '"+d+"'")
		began := time.Now()
		_, err := conn.Exec(ctx, held)
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "40001" {
			t.Fatalf("held for %s: %v", d, err)
		}
		if took := time.Since(began); d != "0" && took < 150*time.Millisecond || took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		for _, part := range []string{"[100,200)", `"k"`, "shard-1", "shard-2", "m1"} {
			if !strings.Contains(e.Message, part) {
				t.Errorf("the message does not say %s: %s", part, e.Message)
			}
		}
		if !strings.Contains(e.Hint, "cleave moves m1") || !strings.Contains(e.Hint, "nothing was done") {
			t.Errorf("the hint is %q", e.Hint)
		}
	}
	wantCode(t, conn, "22023", "SET cleave.hold_timeout = 'soon'")
	exec(t, conn, "RESET cleave.hold_timeout")
	exec(t, conn, "SET statement_timeout = '200ms'")
	wantCode(t, conn, "57014", held)
	exec(t, conn, "RESET statement_timeout")
	exec(t, conn, "BEGIN")
	exec(t, conn, "SET LOCAL cleave.hold_timeout = '50ms'")
	wantCode(t, conn, "40001", held)
	wantCode(t, conn, "25P02", "SELECT 1")
	exec(t, conn, "ROLLBACK")

	done := later(func() error { _, err := conn.Exec(ctx, held); return err })
	m.held(t, 1)
	if err := conn.PgConn().CancelRequest(ctx); err != nil {
		t.Fatal(err)
	}
	if err := ends(t, "a cancelled statement", done); codeOf(err) != "57014" {
		t.Errorf("cancelled: %v", err)
	}
	exec(t, conn, "SELECT * FROM things WHERE id = 5")

	left := m.raw(t)
	left.send(&pgproto3.Query{String: held})
	m.held(t, 1)
	_ = left.nc.Close()
	m.held(t, 0)

	if got := one[string](t, conn, "SELECT part || from_shard || to_shard || owner || hold FROM cleave.transits WHERE id = 'm1'"); got != "[100,200)shard-1shard-2shard-1new" {
		t.Errorf("cleave.transits has %s", got)
	}
	if got := one[string](t, conn, "SELECT string_agg(low || ' ' || transit, ',') FROM cleave.ranges WHERE keyspace = 'k' AND transit IS NOT NULL"); got != "100 m1" {
		t.Errorf("cleave.ranges has transits at %s", got)
	}
	rows, err := conn.Query(ctx, "EXPLAIN (ROUTE) "+held)
	if err != nil {
		t.Fatal(err)
	}
	text, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !strings.Contains(strings.Join(text, "\n"), "held: keys of [100,200) are being moved from shard shard-1 to shard shard-2 (m1)") {
		t.Errorf("EXPLAIN (ROUTE) says %q, %v", text, err)
	}
	m.drop(t)
	exec(t, conn, held)
}

// TestHoldKeepsOrder: what a client has sent after a statement that waits is run
// after it, whether the lane or the session's goroutine runs it.
func TestHoldKeepsOrder(t *testing.T) {
	m, _ := movable(t)
	c := m.raw(t)
	set := func(n int) *pgproto3.Query {
		return &pgproto3.Query{String: fmt.Sprintf("UPDATE things SET n = %d WHERE id = 110 AND n = %d RETURNING n", n, n-1)}
	}
	n := 0
	for range 4 {
		v := m.put(t, shardmap.HoldNew)
		m.acked(t, v)
		for range 5 {
			n++
			c.send(set(n))
		}
		m.held(t, 1)
		if n%2 == 0 {
			m.drop(t)
		} else {
			m.carry(t)
		}
		for i := n - 4; i <= n; i++ {
			c.want("T n", fmt.Sprintf("D %d", i), "C UPDATE 1", "Z I")
		}
	}
}

// TestHoldTransactions: a transaction that used the owner before passes and holds the
// acknowledgement up; one that came later waits, and does not.
func TestHoldTransactions(t *testing.T) {
	m, _ := movable(t)
	early, late := m.connect(t), m.connect(t)
	exec(t, early, "BEGIN")
	exec(t, early, "UPDATE things SET n = n + 1 WHERE id = 210") // on the owner, another range
	weak := m.connect(t)
	exec(t, weak, "BEGIN")
	exec(t, weak, "SELECT 1")
	v := m.put(t, shardmap.HoldNew)
	if m.acknowledges(v, 150*time.Millisecond) {
		t.Error("the hold is acknowledged while a transaction is open on the owner")
	}
	if got := m.lease.Acknowledged(); got != v-1 {
		t.Errorf("version %d is acknowledged", got)
	}
	exec(t, late, "BEGIN")
	exec(t, late, "SELECT * FROM things WHERE id = 220")
	exec(t, late, "UPDATE things SET n = n + 1 WHERE id = 5") // not where locks would keep the guards from being changed
	exec(t, early, "UPDATE things SET n = n + 1 WHERE id = 110")
	exec(t, early, "SELECT * FROM things WHERE id = 120 FOR UPDATE")
	exec(t, early, "COMMIT")
	m.acked(t, v) // late is open on the owner
	waits := later(func() error {
		_, err := late.Exec(context.Background(), "UPDATE things SET n = n + 1 WHERE id = 110")
		return err
	})
	m.held(t, 1)
	// A new transaction of the same session waits too.
	again := later(func() error {
		return pgx.BeginFunc(context.Background(), early, func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), "UPDATE things SET n = n + 1 WHERE id = 110")
			return err
		})
	})
	m.held(t, 2)
	v = m.carry(t)
	if err := ends(t, "the statement of the later transaction", waits); err != nil {
		t.Error(err)
	}
	exec(t, late, "COMMIT")
	if err := ends(t, "a transaction", again); err != nil {
		t.Error(err)
	}
	m.acked(t, v)
	if n := m.direct(t, 2, "SELECT n FROM things WHERE id = 110"); n != "3" {
		t.Errorf("the row counted to %s", n)
	}
}

// TestHoldAll: transactions that are in the way are ended, idle ones and running
// ones, with an error that says why.
func TestHoldAll(t *testing.T) {
	m, look := movable(t)
	ctx := context.Background()
	begin := func(c *pgx.Conn) {
		t.Helper()
		exec(t, c, "BEGIN")
		exec(t, c, "UPDATE things SET n = n + 1 WHERE id = 210")
	}
	idle, commits, several, rolls, runs := m.connect(t), m.connect(t), m.connect(t), m.connect(t), m.connect(t)
	begin(idle)
	exec(t, commits, "BEGIN")
	exec(t, commits, "UPDATE things SET n = n + 1 WHERE id = 120")
	exec(t, several, "BEGIN")
	exec(t, several, "UPDATE things SET n = n + 1 WHERE id IN (5, 130)")
	exec(t, rolls, "BEGIN")
	exec(t, rolls, "SELECT * FROM things WHERE id = 110")
	chained := m.connect(t)
	exec(t, chained, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	exec(t, chained, "SAVEPOINT s")
	exec(t, chained, "SELECT * FROM things WHERE id IN (5, 130)")
	silent := m.connect(t)
	exec(t, silent, "BEGIN READ ONLY")
	exec(t, silent, "SELECT * FROM things WHERE id = 110")
	exec(t, runs, "BEGIN")
	exec(t, runs, "SELECT * FROM things WHERE id = 110")
	running := later(func() error {
		_, err := runs.Exec(ctx, "SELECT pg_sleep(30) FROM things WHERE id = 110", pgx.QueryExecModeSimpleProtocol)
		return err
	})
	m.busy(t, 1, "%pg_sleep%", 1)
	v := m.put(t, shardmap.HoldNew)
	if m.acknowledges(v, 50*time.Millisecond) {
		t.Error("the hold is acknowledged")
	}
	// One that began on the owner after the hold waits, with locks that keep the
	// source from being fenced.
	late := m.connect(t)
	exec(t, late, "BEGIN")
	exec(t, late, "UPDATE things SET n = n + 1 WHERE id = 220")
	waits := later(func() error {
		_, err := late.Exec(ctx, "UPDATE things SET n = n + 1 WHERE id = 130")
		return err
	})
	m.held(t, 1)
	v = m.put(t, shardmap.HoldAll)
	m.acked(t, v)
	if err := ends(t, "a statement that waits with locks", waits); codeOf(err) != "40001" {
		t.Errorf("a statement that waits with locks: %v", err)
	}
	exec(t, late, "ROLLBACK")
	if err := ends(t, "a running statement", running); codeOf(err) != "40001" || !strings.Contains(err.Error(), "is moving away") {
		t.Errorf("the running statement: %v", err)
	}
	if n := m.direct(t, 1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"); n != "0" {
		t.Errorf("%s transactions are open on the owner", n)
	}
	for what, c := range map[string]*pgx.Conn{"idle": idle, "several": several} {
		wantCode(t, c, "40001", "SELECT * FROM things WHERE id = 5")
		wantCode(t, c, "25P02", "SELECT * FROM things WHERE id = 5")
		if tag := exec(t, c, "ROLLBACK"); tag.String() != "ROLLBACK" {
			t.Errorf("%s: %s", what, tag)
		}
	}
	wantCode(t, commits, "40001", "COMMIT")
	exec(t, silent, "ROLLBACK AND CHAIN")
	if got := one[string](t, silent, "SHOW transaction_read_only"); got != "on" {
		t.Errorf("ROLLBACK AND CHAIN of a transaction on one shard: transaction_read_only is %s", got)
	}
	exec(t, silent, "ROLLBACK")
	exec(t, chained, "ROLLBACK AND CHAIN")
	if got := one[string](t, chained, "SHOW transaction_read_only"); got != "on" {
		t.Errorf("ROLLBACK AND CHAIN behind a move: transaction_read_only is %s", got)
	}
	if got := one[string](t, chained, "SHOW transaction_isolation"); got != "repeatable read" {
		t.Errorf("ROLLBACK AND CHAIN behind a move: transaction_isolation is %s", got)
	}
	exec(t, chained, "ROLLBACK")
	exec(t, rolls, "ROLLBACK")
	exec(t, runs, "ROLLBACK")
	m.drop(t)
	for _, c := range []*pgx.Conn{idle, commits, several, rolls, runs} {
		exec(t, c, "BEGIN")
		exec(t, c, "UPDATE things SET note = 'again' WHERE id = 110")
		exec(t, c, "COMMIT")
	}
	if n := one[int](t, look, "SELECT sum(n) FROM things"); n != 0 {
		t.Errorf("%d writes of transactions that were rolled back are there", n)
	}
}

// TestHoldSnapshots: a transaction with one snapshot that began before a part moved
// is refused what it would not see; one with a snapshot for each statement goes on.
func TestHoldSnapshots(t *testing.T) {
	m, _ := movable(t)
	type tx struct {
		*pgx.Conn
		want map[string]string
	}
	begin := func(how, first string) *pgx.Conn {
		c := m.connect(t)
		exec(t, c, how)
		exec(t, c, first)
		return c
	}
	const moved, all, other = "SELECT n FROM things WHERE id = 110", "SELECT count(*) FROM things", "SELECT n FROM things WHERE id = 310"
	const strict, target = "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT n FROM things WHERE id = 320"
	txs := []tx{
		{begin(strict, target), map[string]string{other: "", moved: "40001"}},
		{begin(strict, target), map[string]string{other: "", all: "40001"}},
		{begin("BEGIN ISOLATION LEVEL SERIALIZABLE", target), map[string]string{other: "", moved: "40001"}},
		{begin("BEGIN", target), map[string]string{moved: "", other: "", all: ""}},
		{begin(strict, "SELECT 1"), map[string]string{other: ""}},
	}
	unbound := m.connect(t)
	exec(t, unbound, strict)
	m.acked(t, m.put(t, shardmap.HoldNew))
	m.acked(t, m.carry(t))
	for i, x := range txs {
		for _, sql := range []string{other, all, moved} {
			if want, ok := x.want[sql]; ok {
				wantCode(t, x.Conn, want, sql)
			}
		}
		if t.Failed() {
			t.Fatalf("transaction %d", i)
		}
		exec(t, x.Conn, "ROLLBACK")
	}
	exec(t, unbound, moved)
	exec(t, unbound, "COMMIT")

	// Those that waited for the move have a snapshot from before it as well.
	const back = "SELECT n FROM things WHERE id = 5" // of shard-0, which the part has not been on
	m.to = "shard-0"
	early := []*pgx.Conn{begin(strict, back), begin(strict, back)}
	m.acked(t, m.put(t, shardmap.HoldNew))
	late := []*pgx.Conn{begin(strict, back), begin(strict, back), begin("BEGIN", back)}
	var waits []chan error
	for i, c := range append(early, late...) {
		waits = append(waits, later(func() error {
			_, err := c.Exec(context.Background(), []string{moved, all}[i%2])
			return err
		}))
	}
	m.held(t, len(waits))
	m.acked(t, m.carry(t))
	for i, done := range waits {
		want := "40001"
		if i == len(waits)-1 {
			want = "" // each statement has a snapshot of its own
		}
		if err := ends(t, "a transaction that waited", done); codeOf(err) != want {
			t.Errorf("transaction %d, which waited: %v, not %q", i, err, want)
		}
	}
}

// TestHoldHistories: 8 clients work on keys of the part while it moves back and
// forth: nothing fails, no update is lost, no insert is lost or there twice.
func TestHoldHistories(t *testing.T) {
	testrun.Long(t, "clients go on for seconds while a part moves back and forth; TestHeldStatementsWait has one move")
	m, conn := movable(t)
	ctx := context.Background()
	var stop atomic.Bool
	var counted, inserted atomic.Int64
	var wg sync.WaitGroup
	fail := make(chan error, 16)
	for w := range 8 {
		c := m.connect(t)
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				var err error
				switch (w + i) % 6 {
				case 0: // read, then write what was read
					err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
						var n int
						if err := tx.QueryRow(ctx, "SELECT n FROM things WHERE id = 120 FOR UPDATE").Scan(&n); err != nil {
							return err
						}
						_, err := tx.Exec(ctx, "UPDATE things SET n = $1 WHERE id = 120", n+1)
						return err
					})
				case 1:
					_, err = c.Exec(ctx, "UPDATE things SET n = n + 1 WHERE id = 120", pgx.QueryExecModeSimpleProtocol)
				case 2:
					_, err = c.Exec(ctx, "UPDATE things SET n = n + 1 WHERE id = $1", 120)
				case 3: // with another range of the same shard
					err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
						if _, err := tx.Exec(ctx, "UPDATE things SET note = 'x' WHERE id = 5"); err != nil {
							return err
						}
						_, err := tx.Exec(ctx, "UPDATE things SET n = n + 1 WHERE id = 120")
						return err
					})
				case 4:
					_, err = c.Exec(ctx, "INSERT INTO things VALUES ($1, $2)", 130+(w+1)*1000000+i, 1)
					_, err2 := c.Exec(ctx, "INSERT INTO things VALUES ($1, 0) ON CONFLICT (id) DO UPDATE SET n = things.n + 1", 121)
					if err == nil {
						err = err2
					}
					inserted.Add(1)
				case 5:
					var n int
					if err = c.QueryRow(ctx, "SELECT count(*) FROM things WHERE id IN (110, 120, 130, 5)").Scan(&n); err == nil && n != 4 {
						err = fmt.Errorf("a read over two shards found %d rows", n)
					}
				}
				if err != nil {
					fail <- fmt.Errorf("client %d, statement %d: %w", w, i, err)
					return
				}
				if k := (w + i) % 6; k < 4 {
					counted.Add(1)
				}
			}
		})
	}
	moves := 12
	for range moves {
		m.acked(t, m.put(t, shardmap.HoldNew))
		time.Sleep(10 * time.Millisecond)
		m.carry(t)
		time.Sleep(60 * time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
	close(fail)
	for err := range fail {
		t.Error(err)
	}
	if n := one[int64](t, conn, "SELECT n FROM things WHERE id = 120"); n != counted.Load() {
		t.Errorf("%d updates were acknowledged, the row has %d", counted.Load(), n)
	}
	if n := one[int64](t, conn, "SELECT n FROM things WHERE id = 121"); n != inserted.Load()-1 {
		t.Errorf("%d upserts were acknowledged, the row has %d", inserted.Load(), n)
	}
	if n := one[int64](t, conn, "SELECT count(*) FROM things WHERE id > 1000000"); n != inserted.Load() {
		t.Errorf("%d inserts were acknowledged, %d rows are there", inserted.Load(), n)
	}
	if counted.Load() < int64(moves) {
		t.Errorf("only %d updates", counted.Load())
	}
}

// TestTransactionOutlivesLease: a transaction that is open while its router loses the
// lease and joins anew goes no further: nobody has waited for it meanwhile.
func TestTransactionOutlivesLease(t *testing.T) {
	ctx := context.Background()
	seat := &lossy{}
	life, end := context.WithCancel(ctx)
	defer end()
	lease, leave, err := shardmap.Keep(ctx, life, time.Second, seat)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = leave(ctx) })
	cl := start(t, config{lease: lease})
	conn := cl.connect(t)
	exec(t, conn, ordersTable)
	for _, first := range []string{"SELECT * FROM orders WHERE tenant_id = 1", "SELECT count(*) FROM orders"} {
		exec(t, conn, "BEGIN")
		exec(t, conn, first)
		term := lease.Term()
		seat.lost.Store(true)
		for end := time.Now().Add(waitfor.Max); lease.Term() == term || !lease.Live(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the router has no lease again")
			}
		}
		wantCode(t, conn, "40001", "SELECT * FROM orders WHERE tenant_id = 1")
		wantCode(t, conn, "25P02", "SELECT * FROM orders WHERE tenant_id = 1")
		exec(t, conn, "ROLLBACK")
		exec(t, conn, "SELECT * FROM orders WHERE tenant_id = 1")
	}
}

// lossy is a directory's seat that is lost when a test says so.
type lossy struct{ lost atomic.Bool }

func (s *lossy) Take(context.Context, uint16, uint64) (uint16, uint64, error) { return 1, 0, nil }
func (s *lossy) Leave(context.Context) error                                  { return nil }

func (s *lossy) Renew(context.Context, uint64) error {
	if s.lost.CompareAndSwap(true, false) {
		return shardmap.ErrLeaseLost
	}
	return nil
}
