package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// This file has a test of each promise of docs/consistency.md that others do not
// test, and of each anomaly that it says may happen.

// accounts is a cluster with one account of 100 on each shard.
type accounts struct {
	*cluster
	t    *testing.T
	conn *pgx.Conn
	keys []int64 // by shard
}

const sumOf = "SELECT sum(balance)::bigint FROM account"

func newAccounts(t *testing.T, c config) *accounts {
	t.Helper()
	cl, conn, keys := orders(t, c)
	a := &accounts{cluster: cl, t: t, conn: conn}
	exec(t, conn, "CREATE TABLE account (tenant_id bigint PRIMARY KEY, balance bigint, on_call bool DEFAULT true) WITH (cleave.shard_key = 'tenant_id')")
	exec(t, conn, "CREATE TABLE seen (tenant_id bigint PRIMARY KEY, total bigint) WITH (cleave.shard_key = 'tenant_id')")
	for _, ks := range keys {
		a.keys = append(a.keys, ks[0])
		exec(t, conn, "INSERT INTO account VALUES ($1, 100)", ks[0])
	}
	return a
}

// transfer takes 10 from the account of one shard and gives it to another's.
func (a *accounts) transfer(conn *pgx.Conn, from, to int) {
	a.t.Helper()
	exec(a.t, conn, "BEGIN")
	exec(a.t, conn, "UPDATE account SET balance = balance - 10 WHERE tenant_id = $1", a.keys[from])
	exec(a.t, conn, "UPDATE account SET balance = balance + 10 WHERE tenant_id = $1", a.keys[to])
	exec(a.t, conn, "COMMIT")
}

func (a *accounts) balance(conn *pgx.Conn, shard int) int64 {
	a.t.Helper()
	return one[int64](a.t, conn, "SELECT balance FROM account WHERE tenant_id = $1", a.keys[shard])
}

func (a *accounts) sums(conn *pgx.Conn, want int64, what string) {
	a.t.Helper()
	if got := one[int64](a.t, conn, sumOf); got != want {
		a.t.Errorf("%s: the sum is %d, want %d", what, got, want)
	}
}

// half is a transfer from shard 0 to shard 1 whose router died after the decision:
// it is committed on shard 0, and prepared on shard 1.
func (a *accounts) half() (gid string) {
	a.t.Helper()
	return a.halfAs(strings.Repeat("ab", 16))
}

// halfAs is half, of a transaction with an id.
func (a *accounts) halfAs(id string) (gid string) {
	a.t.Helper()
	cluster := strings.ReplaceAll(a.ex.Snapshot().State().Cluster, "-", "")[:8]
	gid = "cleave_" + cluster + "_" + id + "_1_shard-0"
	begin := "BEGIN; UPDATE account SET balance = balance %s 10 WHERE tenant_id = %d; INSERT INTO cleave_internal.transaction (id, shards, decided) VALUES ('" + id + "', '{shard-0,shard-1}', %s); "
	a.direct(a.t, 1, fmt.Sprintf(begin, "+", a.keys[1], "NULL")+"PREPARE TRANSACTION '"+gid+"'")
	a.direct(a.t, 0, fmt.Sprintf(begin, "-", a.keys[0], "true")+"COMMIT")
	return gid
}

// TestTornRead: 'shard' may see a transaction on one shard and not on the other; the default does not, also where a statement writes what it has read.
func TestTornRead(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	a.transfer(a.conn, 0, 1)
	a.transfer(a.conn, 1, 0)
	a.half()
	exec(t, a.conn, "SET cleave.read_consistency = 'shard'")
	a.sums(a.conn, 190, "'shard'")
	exec(t, a.conn, "RESET cleave.read_consistency")
	if got := one[string](t, a.conn, "SHOW cleave.read_consistency"); got != "atomic" {
		t.Errorf("the default is %s", got)
	}
	exec(t, a.conn, fmt.Sprintf("INSERT INTO seen SELECT %d, sum(balance) FROM account", a.keys[0]))
	if got := one[int64](t, a.conn, "SELECT total FROM seen WHERE tenant_id = $1", a.keys[0]); got != 200 {
		t.Errorf("a statement that writes read %d", got)
	}
	a.sums(a.conn, 200, "the default")
	if n := a.direct(t, 1, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"); n != "0" {
		t.Errorf("the reader has left %s prepared", n)
	}
}

// TestWritersWaitForInDoubt: what an in-doubt transaction has changed stays locked
// until it has ended.
func TestWritersWaitForInDoubt(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	a.transfer(a.conn, 0, 1)
	gid := a.half()
	done := make(chan string, 1)
	go func() { done <- code(a.conn, "UPDATE account SET balance = balance + 1") }()
	a.runs(t, 1, "balance + 1")
	waitfor.True(t, "the writer waits", func() bool {
		return a.direct(t, 1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == "1"
	})
	a.direct(t, 1, "COMMIT PREPARED '"+gid+"'")
	if got := <-done; got != "" {
		t.Errorf("SQLSTATE %q", got)
	}
	a.sums(a.conn, 202, "afterwards")
}

// TestSnapshotsOfEachLevel: at READ COMMITTED each statement sees what was committed
// before it; at REPEATABLE READ each shard has the snapshot of its first use, which
// may be far apart, and with 'atomic' that of the first statement.
func TestSnapshotsOfEachLevel(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	other := a.connect(t)
	for _, test := range []struct {
		begin, consistency string
		again, second      int64 // shard 0 read again, shard 1 read after the transfer
	}{
		{"BEGIN", "shard", -10, +10},
		{"BEGIN ISOLATION LEVEL REPEATABLE READ", "shard", 0, +10},
		{"BEGIN ISOLATION LEVEL REPEATABLE READ", "atomic", 0, 0},
		{"BEGIN ISOLATION LEVEL REPEATABLE READ", "DEFAULT", 0, +10}, // its first statement is one of one shard
	} {
		exec(t, a.conn, "SET cleave.read_consistency = "+test.consistency)
		exec(t, a.conn, test.begin)
		first := a.balance(a.conn, 0)
		before := 200 - first
		a.transfer(other, 0, 1)
		if got := a.balance(a.conn, 1) - before; got != test.second {
			t.Errorf("%s, %s: the shard read second has changed by %d, want %d", test.begin, test.consistency, got, test.second)
		}
		if got := a.balance(a.conn, 0) - first; got != test.again {
			t.Errorf("%s, %s: the shard read twice has changed by %d, want %d", test.begin, test.consistency, got, test.again)
		}
		exec(t, a.conn, "COMMIT")
	}
	// By default a block whose first statement is over several shards has its snapshots from that.
	exec(t, a.conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	a.sums(a.conn, 200, "the first statement")
	first := a.balance(a.conn, 1)
	a.transfer(other, 0, 1)
	if got := a.balance(a.conn, 1); got != first {
		t.Errorf("a later statement sees %d, the first one saw %d", got, first)
	}
	exec(t, a.conn, "INSERT INTO seen SELECT tenant_id, balance FROM account")
	if got := one[int64](t, a.conn, "SELECT total FROM seen WHERE tenant_id = $1", a.keys[1]); got != first {
		t.Errorf("a statement that writes has read %d, the first one saw %d", got, first)
	}
	exec(t, a.conn, "COMMIT")
	// Own writes are seen, and those of nobody else's open transaction.
	exec(t, a.conn, "SET cleave.read_consistency = 'shard'")
	exec(t, a.conn, "BEGIN")
	exec(t, a.conn, "UPDATE account SET balance = balance + 1")
	a.sums(a.conn, 202, "inside")
	a.sums(other, 200, "from outside")
	exec(t, a.conn, "COMMIT")
	a.sums(a.conn, 202, "after COMMIT")
	a.sums(other, 202, "from outside after COMMIT")
}

// TestNoLostUpdate: two that add to the same rows of both shards.
func TestNoLostUpdate(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	other := a.connect(t)
	for begin, want := range map[string]string{"BEGIN": "", "BEGIN ISOLATION LEVEL REPEATABLE READ": "40001"} {
		total := one[int64](t, a.conn, sumOf)
		exec(t, a.conn, begin)
		exec(t, other, begin)
		a.sums(a.conn, total, begin)
		a.sums(other, total, begin)
		exec(t, a.conn, "UPDATE account SET balance = balance + 1")
		done := make(chan string, 1)
		go func() { done <- code(other, "UPDATE account SET balance = balance + 1 /* second */") }()
		waitfor.True(t, "the second waits", func() bool {
			return a.direct(t, 0, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") != "0"
		})
		exec(t, a.conn, "COMMIT")
		if got := <-done; got != want {
			t.Errorf("%s: SQLSTATE %q, want %q", begin, got, want)
		}
		exec(t, other, "COMMIT")
		added := int64(4)
		if want != "" {
			added = 2
		}
		a.sums(a.conn, total+added, begin)
	}
}

// TestWriteSkew: the doctors of the guide, without and with locks.
func TestWriteSkew(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	other := a.connect(t)
	conns := []*pgx.Conn{a.conn, other}
	const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"
	onCall := func() int64 { return one[int64](t, a.conn, "SELECT count(*) FROM account WHERE on_call") }
	for _, conn := range conns {
		exec(t, conn, "SET cleave.read_consistency = 'atomic'")
		exec(t, conn, begin)
		if n := one[int64](t, conn, "SELECT count(*) FROM account WHERE on_call"); n != 2 {
			t.Fatalf("%d are on call", n)
		}
	}
	for i, conn := range conns {
		exec(t, conn, "UPDATE account SET on_call = false WHERE tenant_id = $1", a.keys[i])
		exec(t, conn, "COMMIT")
	}
	if n := onCall(); n != 0 {
		t.Errorf("%d are on call: there was no write skew", n)
	}

	exec(t, a.conn, "UPDATE account SET on_call = true")
	for _, conn := range conns {
		exec(t, conn, "RESET cleave.read_consistency")
		exec(t, conn, begin)
	}
	locked := func(conn *pgx.Conn) error {
		rows, err := conn.Query(context.Background(), "SELECT tenant_id FROM account WHERE on_call ORDER BY tenant_id FOR UPDATE")
		if err == nil {
			_, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	}
	if err := locked(a.conn); err != nil {
		t.Fatal(err)
	}
	exec(t, a.conn, "UPDATE account SET on_call = false WHERE tenant_id = $1", a.keys[0])
	done := make(chan error, 1)
	go func() { done <- locked(other) }()
	waitfor.True(t, "the second waits", func() bool {
		return a.direct(t, 0, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") != "0"
	})
	exec(t, a.conn, "COMMIT")
	if err := <-done; codeOf(err) != "40001" {
		t.Errorf("with locks: %v", err)
	}
	exec(t, other, "ROLLBACK")
	if n := onCall(); n != 1 {
		t.Errorf("%d are on call", n)
	}
}

// TestOrderBetweenTransactions: 'atomic' may see T2 on one shard, and not T1 on
// another one that was committed before T2 began.
func TestOrderBetweenTransactions(t *testing.T) {
	t.Parallel()
	slow := newGate(t, pgtest.Database(t))
	direct := slow.behind
	a := newAccounts(t, config{shards: 2, urls: []string{pgtest.Database(t), slow.url}})
	a.transfer(a.conn, 0, 1) // it makes the tables of records
	a.transfer(a.conn, 1, 0)
	reader := a.connect(t)
	exec(t, reader, "SET cleave.read_consistency = 'atomic'")
	a.sums(reader, 200, "before")
	const rich = "SELECT sum(CASE WHEN balance > 1000 THEN tenant_id ELSE 0 END)::bigint FROM account"
	one[int64](t, reader, rich) // it is described and prepared: from now on its message alone has a look
	since := a.direct(t, 0, "SELECT clock_timestamp()")
	slow.hold("cleave_look")
	got := make(chan int64, 1)
	go func() {
		var n int64
		if err := reader.QueryRow(context.Background(), rich).Scan(&n); err != nil {
			n = -1
		}
		got <- n
	}()
	select {
	case <-slow.held:
	case n := <-got:
		t.Fatalf("the reader saw %d, and sent no look", n)
	}
	waitfor.True(t, "shard 0 has answered", func() bool {
		return a.direct(t, 0, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' AND query LIKE '%1000%' AND query NOT LIKE '%pg_stat%' AND query_start > '"+since+"'") == "1"
	})
	a.direct(t, 0, fmt.Sprintf("UPDATE account SET balance = 2000 WHERE tenant_id = %d", a.keys[0])) // T1
	pgtest.Ask(t, direct, fmt.Sprintf("UPDATE account SET balance = 2000 WHERE tenant_id = %d", a.keys[1]))
	slow.open()
	if n := <-got; n != a.keys[1] {
		t.Errorf("the reader saw %d, want T2's %d alone", n, a.keys[1])
	}
}

// gate is a way to a server on which what the router sends can be held.
type gate struct {
	url, behind string
	held        chan struct{}
	sent        atomic.Int64 // how often the router has sent something
	mu          sync.Mutex
	text        []byte
	opened      chan struct{}
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{behind: to, held: make(chan struct{}), opened: make(chan struct{})}
	server := u.Host
	u.Host = l.Addr().String()
	g.url = u.String()
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", server)
			if err != nil {
				_ = c.Close()
				continue
			}
			all.Go(func() { g.relay(s, c, true) })
			all.Go(func() { g.relay(c, s, false) })
		}
	})
	return g
}

func (g *gate) relay(to, from net.Conn, guarded bool) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if guarded && n > 0 {
			g.sent.Add(1)
		}
		if guarded && g.holds(b[:n]) {
			close(g.held)
			<-g.opened
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (g *gate) holds(b []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.text == nil || !bytes.Contains(b, g.text) {
		return false
	}
	g.text = nil
	return true
}

// hold lets nothing with the text in it through, until open.
func (g *gate) hold(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text = []byte(text)
}

func (g *gate) open() { close(g.opened) }

// TestCommitThatFails: what cannot be prepared, or waits for a lock that it does not
// get, ends with PostgreSQL's own error, and nothing is done. NOTIFY goes well.
func TestCommitThatFails(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	// A lock that is waited for during COMMIT is not watched; lock_timeout ends it.
	for i := range a.shards {
		a.direct(t, i, `CREATE TABLE latch (id int PRIMARY KEY); INSERT INTO latch VALUES (1);
			CREATE FUNCTION latched() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM 1 FROM latch FOR UPDATE; RETURN NULL; END';
			CREATE CONSTRAINT TRIGGER latched AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION latched();
			CREATE FUNCTION notifies() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NOTIFY changed; RETURN NULL; END';
			CREATE TRIGGER notifies AFTER UPDATE OF on_call ON account FOR EACH ROW EXECUTE FUNCTION notifies()`)
	}
	holder := direct(t, a.cluster.shards[1])
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT 1 FROM latch FOR UPDATE")
	exec(t, a.conn, "SET lock_timeout = '100ms'")
	exec(t, a.conn, "BEGIN")
	exec(t, a.conn, "UPDATE account SET balance = balance + 1")
	wantCode(t, a.conn, "55P03", "COMMIT")
	exec(t, holder, "ROLLBACK")
	a.sums(a.conn, 200, "after a lock that was not given during COMMIT")

	for i, want := range []string{"", "0A000"} {
		exec(t, a.conn, "BEGIN")
		exec(t, a.conn, "UPDATE account SET balance = balance + 1 WHERE tenant_id = $1", a.keys[1])
		exec(t, a.conn, "UPDATE account SET balance = balance + 1 WHERE tenant_id = $1", a.keys[0])
		exec(t, a.conn, "NOTIFY news")
		if i == 1 {
			for _, k := range a.keys { // a NOTIFY on each shard, by a trigger
				exec(t, a.conn, "UPDATE account SET on_call = NOT on_call WHERE tenant_id = $1", k)
			}
		}
		wantCode(t, a.conn, want, "COMMIT")
		a.sums(a.conn, 202, "after NOTIFY")
	}
}

// TestFirstReadIsWhole: by default the first read of a session over several shards sees a transaction that is half committed wholly
// or not at all, however it is sent, alone and as the first statement of a block of each level.
func TestFirstReadIsWhole(t *testing.T) {
	t.Parallel()
	a := newAccounts(t, config{shards: 2})
	a.transfer(a.conn, 0, 1)
	const join = "SELECT sum(a.balance)::bigint FROM account a JOIN account b ON a.tenant_id + 0 = b.tenant_id + 0"
	reads := map[string]func(conn *pgx.Conn) string{
		"prepared first": func(conn *pgx.Conn) string {
			if _, err := conn.Prepare(t.Context(), "first", sumOf); err != nil {
				t.Error(err)
			}
			return fmt.Sprint(one[int64](t, conn, "first"))
		},
		"a simple query": func(conn *pgx.Conn) string {
			return fmt.Sprint(one[int64](t, conn, sumOf, pgx.QueryExecModeSimpleProtocol))
		},
		"a join": func(conn *pgx.Conn) string { return fmt.Sprint(one[int64](t, conn, join)) },
		"keys that are parameters": func(conn *pgx.Conn) string {
			return fmt.Sprint(one[int64](t, conn, sumOf+" WHERE tenant_id = ANY ($1)", a.keys))
		},
		"COPY of a query": func(conn *pgx.Conn) string { return strings.TrimSpace(copied(t, conn, "COPY ("+join+") TO STDOUT")) },
		"COPY of a table": func(conn *pgx.Conn) string {
			sum := 0
			for _, row := range strings.Fields(copied(t, conn, "COPY account (balance) TO STDOUT")) {
				n, err := strconv.Atoi(row)
				if err != nil {
					t.Error(err)
				}
				sum += n
			}
			return fmt.Sprint(sum)
		},
		"a cursor": func(conn *pgx.Conn) string {
			if conn.PgConn().TxStatus() == 'I' {
				return "200" // there are none outside of blocks
			}
			exec(t, conn, "DECLARE c CURSOR FOR "+join)
			return fmt.Sprint(one[int64](t, conn, "FETCH c"))
		},
		"a write that reads": func(conn *pgx.Conn) string {
			exec(t, conn, "DELETE FROM seen")
			exec(t, conn, "INSERT INTO seen SELECT $1::bigint, sum(balance) FROM account", a.keys[0])
			return fmt.Sprint(one[int64](t, conn, "SELECT total FROM seen"))
		},
	}
	n := 0
	for how, read := range reads {
		for _, begin := range []string{"SELECT 1", "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"} {
			if how == "a write that reads" && strings.Contains(begin, "REPEATABLE") {
				continue // its first statement does not read several shards
			}
			conn := a.connect(t)
			n++
			a.halfAs(fmt.Sprintf("%032x", n))
			exec(t, conn, begin)
			if got := read(conn); got != "200" {
				t.Errorf("%s after %s: %s", how, begin, got)
			}
			exec(t, conn, "COMMIT")
			a.sums(conn, 200, how)
		}
	}
}
