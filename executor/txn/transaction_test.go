package txn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/engine/txnrecord"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMain(m *testing.M) {
	if plan := os.Getenv(dyingEnv); plan != "" {
		die(plan)
	}
	pgtest.Main(m)
}

const testCluster = "0d6cbf63-7f0b-4f38-9d2e-1f6f5d1a2b3c"

// bank is a cluster with accounts: number i is on shard i of them.
type bank struct {
	t    testing.TB
	urls []string
	ex   *executor.Executor
	dir  shardmap.Directory
}

func newBank(t testing.TB, servers ...*localpg.Server) *bank {
	t.Helper()
	return newBankIn(t, memory.New(), servers...)
}

// newBankIn makes the bank the cluster of an empty directory.
func newBankIn(t testing.TB, dir shardmap.Directory, servers ...*localpg.Server) *bank {
	t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, pgtest.DatabaseOn(t, s))
	}
	return newBankOn(t, dir, urls)
}

// banks runs a test on three PostgreSQL databases and on three SQLite files.
func banks(t *testing.T, test func(t *testing.T, b *bank)) {
	t.Run("postgres", func(t *testing.T) { test(t, newBank(t, same(pgtest.Server(t), 3)...)) })
	t.Run("sqlite", func(t *testing.T) {
		dir, urls := t.TempDir(), []string{}
		for i := range 3 {
			urls = append(urls, "file:"+filepath.Join(dir, shardName(i)+".db"))
		}
		test(t, newBankOn(t, memory.New(), urls))
	})
}

func driverOf(url string) engine.Driver {
	if strings.HasPrefix(url, "file:") {
		return sqlite.Driver{}
	}
	return postgres.Driver{}
}

func (b *bank) records(i int) txnrecord.Records { return txnrecord.Of(driverOf(b.urls[i]).Name()) }

func newBankOn(t testing.TB, dir shardmap.Directory, urls []string) *bank {
	t.Helper()
	for i, url := range urls {
		sh, err := driverOf(url).Open(engine.Config{Cluster: testCluster, Name: shardName(i), URL: url})
		if err != nil {
			t.Fatal(err)
		}
		if err := sh.Install(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := sh.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := found(dir, urls); err != nil {
		t.Fatal(err)
	}
	ex, err := openBank(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{t: t, urls: urls, ex: ex, dir: dir}
	t.Cleanup(func() {
		if err := errors.Join(ex.Close(), dir.Close()); err != nil {
			t.Error(err)
		}
	})
	for i := range urls {
		b.query(i, fmt.Sprintf("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL); INSERT INTO account VALUES (%d, 100)", i))
	}
	return b
}

func same(s *localpg.Server, n int) []*localpg.Server {
	all := make([]*localpg.Server, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func shardName(i int) string { return fmt.Sprint("shard-", i) }

// found writes the first map.
func found(dir shardmap.Directory, urls []string) error {
	state := shardmap.State{Format: shardmap.Format, Cluster: testCluster, DefaultShard: shardName(0)}
	for i, url := range urls {
		state.Shards = append(state.Shards, shardmap.Shard{Name: shardName(i), Engine: driverOf(url).Name(), URL: url, Weight: 1})
	}
	_, err := dir.Update(context.Background(), shardmap.Change{By: "test", Why: "test", Op: "test"}, state)
	return err
}

func openBank(dir shardmap.Directory) (*executor.Executor, error) {
	ex := executor.New(executor.Options{Directory: dir, Drivers: map[string]engine.Driver{"postgres": postgres.Driver{}, "sqlite": sqlite.Driver{}}, Planner: planner.New(planner.Limits{})})
	return ex, ex.Start(context.Background())
}

// query runs a statement on a shard outside of everything.
func (b *bank) query(i int, sql string) *engine.Result {
	b.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
	defer stop()
	conn, release, err := (&Transactions{ex: b.ex}).connect(ctx, shardName(i))
	if err != nil {
		b.t.Fatal(err)
	}
	defer release(false)
	res, err := engine.ExecContext(ctx, conn, sql)
	if err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return res
}

// age makes the records of a shard older, which the shards' role may not.
func (b *bank) age(i int, by string) {
	b.t.Helper()
	sql := "UPDATE " + txnrecord.Table + " SET at = at - '" + by + "'::interval"
	if driverOf(b.urls[i]).Name() != "postgres" {
		b.query(i, sql)
		return
	}
	pgtest.Ask(b.t, pgtest.Super(b.urls[i]), sql)
}

// begin opens a transaction on every shard and takes or gives money there: with
// three shards -2, +1 and +1.
func begin(ex *executor.Executor, shards int, read ...int) (parts []*Participant, err error) {
	defer func() {
		if err != nil {
			for _, p := range parts {
				p.Conn.Break()
				p.Conn.Release()
			}
		}
	}()
	for i := range shards {
		c, err := ex.Acquire(context.Background(), shardName(i), nil)
		if err != nil {
			return parts, err
		}
		amount := 1
		if i == 0 {
			amount = 1 - shards
		}
		sql := fmt.Sprintf("BEGIN; UPDATE account SET balance = balance + %d WHERE id = %d", amount, i)
		wrote := true
		for _, r := range read {
			if r == i {
				sql, wrote = "BEGIN; SELECT balance FROM account", false
			}
		}
		parts = append(parts, &Participant{Shard: shardName(i), Conn: c, Wrote: wrote})
		if _, err := c.Exec(sql); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

func (b *bank) begin(read ...int) []*Participant {
	b.t.Helper()
	parts, err := begin(b.ex, len(b.urls), read...)
	if err != nil {
		b.t.Fatal(err)
	}
	return parts
}

// commit is Commit and release.
func (b *bank) commit(tx *Transactions, parts []*Participant) (bool, error) {
	b.t.Helper()
	if err := tx.CanWrite(context.Background(), parts); err != nil {
		b.t.Fatal(err)
	}
	committed, _, err := tx.Commit(context.Background(), parts)
	for _, p := range parts {
		if err == nil && tx.step == nil && (p.Conn.Broken() || p.Conn.Status() != 'I') {
			b.t.Errorf("the conversation with %s is not as it should be", p.Shard)
		}
		p.Conn.Release()
	}
	return committed, err
}

// balances are those of all accounts.
func (b *bank) balances() string {
	b.t.Helper()
	var all []string
	for i := range b.urls {
		all = append(all, b.query(i, "SELECT balance FROM account").Rows[0][0].String)
	}
	return strings.Join(all, " ")
}

// settled waits until nothing is prepared, while t recovers.
func (b *bank) settled(t *Transactions) {
	b.t.Helper()
	limit := time.Now().Add(waitfor.Max)
	for {
		ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
		found, unreached, err := t.recovery().Settle(ctx)
		stop()
		n := 0
		if err == nil && len(unreached) == 0 {
			for i := range b.urls {
				n += len(b.query(i, b.records(i).Prepared()).Rows)
			}
			if n == 0 {
				return
			}
		}
		if time.Now().After(limit) {
			b.t.Fatalf("not settled: %+v, %v, %v, %d prepared", found, unreached, err, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (b *bank) transactions() *Transactions {
	return NewTransactions(TransactionsOptions{Executor: b.ex})
}

func TestCommit(t *testing.T) { banks(t, testCommit) }

func testCommit(t *testing.T, b *bank) {
	tx := b.transactions()
	for _, test := range []struct {
		read    []int
		want    string
		records int
	}{
		{nil, "98 101 101", 3},
		{[]int{1, 2}, "96 101 101", 3}, // one writer: nothing extra
		{[]int{1}, "94 101 102", 5},
		{[]int{0, 1, 2}, "94 101 102", 5},
	} {
		if ok, err := b.commit(tx, b.begin(test.read...)); err != nil || !ok {
			t.Fatal(ok, err)
		}
		if got := b.balances(); got != test.want {
			t.Fatalf("balances %s, want %s", got, test.want)
		}
		records := 0
		for i := range b.urls {
			records += len(b.query(i, "SELECT id FROM "+txnrecord.Table).Rows)
		}
		if records != test.records {
			t.Fatalf("%d records, want %d", records, test.records)
		}
	}
	b.settled(tx)
	// Nothing is prepared, so records go as soon as they are old enough.
	for i := range b.urls {
		b.age(i, "2 minutes")
	}
	var state *cleaning
	for range 2 {
		var err error
		if state, err = tx.recovery().clean(context.Background(), state, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range b.urls {
		want := 0
		if b.records(i).Create() == "" {
			want = 1 // the last one of a SQLite file stays: the numbers go on from it
		}
		if n := len(b.query(i, "SELECT id FROM "+txnrecord.Table).Rows); n != want {
			t.Fatalf("%d records are left on shard %d", n, i)
		}
	}
}

// TestShardLeavesInDoubt: while something may be prepared on a shard that is not in
// the map any more, the decision on it stays.
func TestShardLeavesInDoubt(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 3)...)
	tx := b.transactions()
	tx.onStep("commit shard-1", func() error { return errors.New("stop") })
	if _, err := b.commit(tx, b.begin()); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	ctx := context.Background()
	change := func(edit func(*shardmap.State)) {
		snap, err := b.dir.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next := snap.State().Clone()
		edit(&next)
		if _, err := b.dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Why: "test", Op: "test"}, next); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ex.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var gone shardmap.Shard
	change(func(s *shardmap.State) { gone, s.Shards = s.Shards[2], s.Shards[:2] })
	other := b.transactions()
	if _, _, err := other.recovery().Settle(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range b.urls[:2] {
		b.age(i, "2 minutes")
	}
	var state *cleaning
	for range 3 {
		var err error
		if state, err = other.recovery().clean(ctx, state, 0); err != nil {
			t.Fatal(err)
		}
	}
	change(func(s *shardmap.State) { s.Shards = append(s.Shards, gone) })
	b.settled(other)
	if got := b.balances(); got != "98 101 101" {
		t.Fatalf("balances %s", got)
	}
}

// TestRecordsOfGoneShards: records that name a shard which has left the map stay for a day, and go then.
func TestRecordsOfGoneShards(t *testing.T) {
	banks(t, func(t *testing.T, b *bank) {
		ctx := context.Background()
		tx := b.transactions()
		for range 2 { // the last record of a file stays
			if _, err := b.commit(tx, b.begin()); err != nil {
				t.Fatal(err)
			}
		}
		snap, err := b.dir.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next := snap.State().Clone()
		next.Shards = next.Shards[:2]
		if _, err := b.dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Why: "test", Op: "test"}, next); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ex.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		b.urls = b.urls[:2]
		for _, try := range []struct {
			age  string
			gone int
		}{{"2 min", 0}, {"23 hours", 0}, {"1 hour", 1}} {
			var state *cleaning
			for i := range b.urls {
				b.age(i, try.age)
			}
			for range 2 {
				if state, err = tx.recovery().clean(ctx, state, 0); err != nil {
					t.Fatal(err)
				}
			}
			for i := range b.urls {
				want := 2
				if try.gone > 0 {
					if want = 0; b.records(i).Create() == "" {
						want = 1
					}
				}
				if n := len(b.query(i, "SELECT id FROM "+txnrecord.Table).Rows); n != want {
					t.Errorf("after %s more shard %d has %d records, not %d", try.age, i, n, want)
				}
			}
		}
	})
}

// TestShardLeaves: who is committing when a shard leaves the map ends its part there. What is left there is ended from outside, as it
// was decided.
func TestShardLeaves(t *testing.T) {
	banks(t, func(t *testing.T, b *bank) {
		ctx := context.Background()
		full, err := b.dir.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		gone := full.State().Shards[2]
		change := func(shards []shardmap.Shard) {
			snap, err := b.dir.Load(ctx)
			if err == nil {
				next := snap.State().Clone()
				next.Shards = shards
				_, err = b.dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Why: "test", Op: "test"}, next)
			}
			if err == nil {
				_, err = b.ex.Refresh(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		}
		sh, err := driverOf(gone.URL).Open(engine.Config{Cluster: testCluster, Name: gone.Name, URL: gone.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer sh.Close()
		tx := b.transactions()
		// outside ends what is prepared on the shard that has gone, and says how.
		outside := func() (states []string) {
			r := *b.transactions().recovery()
			inside := r.Connect
			r.Connect = func(ctx context.Context, name string) (engine.Conn, func(bool), error) {
				if name != gone.Name {
					return inside(ctx, name)
				}
				conn, err := sh.Connect(ctx, nil)
				if err != nil {
					return nil, nil, err
				}
				return conn, func(bool) { _ = conn.Close() }, nil
			}
			snap, err := b.dir.Load(ctx)
			if err != nil {
				t.Fatal(err)
			}
			found, err := r.SettleOutside(ctx, snap, gone)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range found {
				if states = append(states, d.State); d.Err != nil {
					t.Error(d.Err)
				}
			}
			return states
		}
		for _, try := range []struct {
			step string
			err  error
			want string
		}{{"commit shard-1", nil, ""}, {"commit shard-1", errCrash, "committed"}, {"decide shard-0", errCrash, "rolled back"}} {
			tx.onStep(try.step, func() error {
				change(full.State().Shards[:2])
				return try.err
			})
			if _, err := b.commit(tx, b.begin()); !errors.Is(err, try.err) {
				t.Fatal(err)
			}
			if got := strings.Join(outside(), ", "); got != try.want {
				t.Errorf("at %s, %v: %q was prepared on the shard that has gone, not %q", try.step, try.err, got, try.want)
			}
			change(full.State().Shards)
			b.settled(tx)
		}
		if got := b.balances(); got != "96 102 102" {
			t.Errorf("balances %s", got)
		}
	})
}

// TestPrepareFails: an error of one part undoes all others, and is the client's.
func TestPrepareFails(t *testing.T) { banks(t, testPrepareFails) }

func testPrepareFails(t *testing.T, b *bank) {
	tx := b.transactions()
	if driverOf(b.urls[0]).Name() == "postgres" { // SQLite shards check nothing late
		for i := range b.urls {
			b.query(i, "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
		}
		for i := range b.urls {
			parts := b.begin()
			if _, err := parts[i].Conn.Exec("INSERT INTO child VALUES (1)"); err != nil {
				t.Fatal(err)
			}
			ok, err := b.commit(tx, parts)
			if ok || sqlstate.CodeOf(err) != sqlstate.ForeignKeyViolation || sqlstate.As(err).Shard != shardName(i) {
				t.Fatalf("shard %d: %v, %v", i, ok, err)
			}
			if got := b.balances(); got != "100 100 100" {
				t.Fatalf("balances %s", got)
			}
		}
	}
	// A part that had failed before.
	parts := b.begin()
	if _, err := parts[1].Conn.Exec("SELECT 1/0"); err == nil {
		t.Fatal("no error")
	}
	if ok, err := b.commit(tx, parts); ok || sqlstate.CodeOf(err) != sqlstate.InFailedTransaction {
		t.Fatal(ok, err)
	}
	for i := range b.urls {
		if n := len(b.query(i, b.records(i).Prepared()).Rows); n != 0 {
			t.Fatalf("%d are prepared on shard %d", n, i)
		}
	}
}

// TestRefused: shards that cannot prepare are found before they write.
func TestRefused(t *testing.T) {
	b := newBank(t, pgtest.Server(t), pgtest.NewServer(t, map[string]string{"max_prepared_transactions": "0"}))
	parts := b.begin()
	defer func() {
		for _, p := range parts {
			p.Conn.Break()
			p.Conn.Release()
		}
	}()
	err := b.transactions().CanWrite(context.Background(), parts)
	if e := sqlstate.As(err); e.Code != sqlstate.FeatureNotSupported || !strings.Contains(e.Hint, "max_prepared_transactions") || e.Shard != "shard-1" {
		t.Fatal(err)
	}
}

// TestStopAtEveryStep stops the protocol at each step as a crash does, and
// recovers as another router does.
func TestStopAtEveryStep(t *testing.T) { banks(t, testStopAtEveryStep) }

func testStopAtEveryStep(t *testing.T, b *bank) {
	want := "100 100 100"
	for n := 1; ; n++ {
		tx, at := b.transactions(), ""
		count := 0
		tx.step = func(step, shard string) error {
			if count++; count == n {
				at = strings.TrimSpace(step + " " + shard)
				return errors.New("stop")
			}
			return nil
		}
		_, err := b.commit(tx, b.begin())
		if at == "" && err != nil || at != "" && !errors.Is(err, errCrash) {
			t.Fatalf("at %q: %v", at, err)
		}
		b.settled(b.transactions())
		if at == "" || decidedAt(at) {
			want = b.after(want)
		}
		if got := b.balances(); got != want {
			t.Fatalf("stopped at %q: balances %s, want %s", at, got, want)
		}
		if at == "" {
			if n != len(steps)+1 {
				t.Fatalf("there are %d steps, and %d are known", n-1, len(steps))
			}
			break
		}
		if at != steps[n-1] {
			t.Fatalf("step %d is %q, not %q", n, at, steps[n-1])
		}
	}
}

// TestFaultAtEveryStep panics at each step. The router that goes on settles what is left itself: it does not take
// the transaction for one that is at work.
func TestFaultAtEveryStep(t *testing.T) { banks(t, testFaultAtEveryStep) }

func testFaultAtEveryStep(t *testing.T, b *bank) {
	tx := b.transactions()
	for _, at := range steps {
		want := b.balances()
		if decidedAt(at) {
			want = b.after(want)
		}
		tx.onStep(at, func() error { panic("a fault of the router") })
		parts := b.begin()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no fault at %q", at)
				}
				for _, p := range parts { // as a session does that ends so
					p.Conn.Break()
					p.Conn.Release()
				}
			}()
			_, _, _ = tx.Commit(t.Context(), parts) // it does not return
		}()
		tx.step = nil
		select {
		case <-tx.wake:
		default:
			t.Errorf("after a fault at %q recovery is not woken", at)
		}
		if len(tx.active) > 0 {
			t.Fatalf("after a fault at %q the transaction is taken for one at work", at)
		}
		b.settled(tx)
		if got := b.balances(); got != want {
			t.Fatalf("after a fault at %q: balances %s, want %s", at, got, want)
		}
	}
}

// after are the balances after one more transfer.
func (b *bank) after(balances string) string {
	var a, c, d int
	if _, err := fmt.Sscan(balances, &a, &c, &d); err != nil {
		b.t.Fatal(err)
	}
	return fmt.Sprint(a-2, c+1, d+1)
}

// TestSlowOwner: a transaction that another router has decided against, because
// its own was silent for too long, cannot be committed any more.
func TestSlowOwner(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 3)...)
	tx := b.transactions()
	tx.step = func(step, _ string) error {
		if step == "decide" {
			b.settled(b.transactions())
		}
		return nil
	}
	if ok, err := b.commit(tx, b.begin()); ok || sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
		t.Fatal(ok, err)
	}
	if got := b.balances(); got != "100 100 100" {
		t.Fatalf("balances %s", got)
	}
}

// TestLostWhileFinishing: where the conversation breaks before COMMIT PREPARED, another one commits the part, and the client's next
// statement sees it.
func TestLostWhileFinishing(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 3)...)
	for _, at := range []string{"commit shard-1", "commit shard-2", "decided shard-0"} {
		tx, before := b.transactions(), b.balances()
		parts := b.begin()
		tx.onStep(at, func() error {
			for _, p := range parts[1:] {
				if at == "decided shard-0" || strings.HasSuffix(at, p.Shard) {
					p.Conn.Conn.(interface{ Sever() }).Sever()
				}
			}
			return nil
		})
		if ok, err := b.commit(tx, parts); !ok || err != nil {
			t.Fatal(at, ok, err)
		}
		if got, want := b.balances(), b.after(before); got != want {
			t.Fatalf("at %s: balances %s, want %s", at, got, want)
		}
	}
}

// TestLeftByAnotherRole: where the broken conversation had another role, no conversation of the router's own may commit the part: the client is
// answered without the wait, and recovery, which finds the role, commits it.
func TestLeftByAnotherRole(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 3)...)
	pgtest.Ask(t, pgtest.Super(b.urls[0]), "CREATE ROLE teller; GRANT teller TO cleave")
	for _, url := range b.urls {
		pgtest.Ask(t, pgtest.Super(url), "GRANT SELECT, UPDATE ON account TO teller")
	}
	commit := func() (took time.Duration) {
		before, parts := b.balances(), b.begin()
		if _, err := parts[2].Conn.Exec("SET ROLE teller"); err != nil {
			t.Fatal(err)
		}
		var decided time.Time
		tx := b.transactions()
		tx.step = func(step, _ string) error {
			switch step {
			case "decided":
				decided = time.Now()
				parts[2].Conn.Conn.(engine.Severer).Sever()
			case "finished":
				took = time.Since(decided)
			}
			return nil
		}
		if ok, err := b.commit(tx, parts); !ok || err != nil {
			t.Fatal(ok, err)
		}
		left := b.query(2, b.records(2).Prepared()).Rows
		if len(left) != 1 || left[0][2].String != "teller" {
			t.Fatalf("prepared on the shard: %v", left)
		}
		b.settled(b.transactions())
		if got, want := b.balances(), b.after(before); got != want {
			t.Fatalf("balances %s, want %s", got, want)
		}
		return took
	}
	// One look may take as long on a machine without time to spare.
	took := commit()
	for range 4 {
		if took >= finishMax {
			took = min(took, commit())
		}
	}
	if took >= finishMax {
		t.Errorf("COMMIT waited %v for a part that it cannot commit", took)
	}
}

// TestLiveOwner: nobody touches what its owner is at work on.
func TestLiveOwner(t *testing.T) { banks(t, testLiveOwner) }

func testLiveOwner(t *testing.T, b *bank) {
	_, leave, err := b.dir.Join(context.Background(), shardmap.Member{ID: "me", Role: "router", Address: "here:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := leave(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	tx, other := NewTransactions(TransactionsOptions{Executor: b.ex, Member: "me"}), b.transactions()
	looked := 0
	tx.step = func(step, _ string) error {
		if step != "decide" {
			return nil
		}
		for _, x := range []*Transactions{tx, other} {
			found, _, err := x.recovery().Settle(context.Background())
			if err != nil || len(found) != 1 || found[0].State != "active" || len(found[0].Shards) != 2 || found[0].Decider != "shard-0" {
				t.Errorf("%+v, %v", found, err)
			}
			looked++
		}
		return nil
	}
	if ok, err := b.commit(tx, b.begin()); !ok || err != nil || looked != 2 {
		t.Fatal(ok, err, looked)
	}
	if got := b.balances(); got != "98 101 101" {
		t.Fatalf("balances %s", got)
	}
}

func TestGID(t *testing.T) {
	tx := NewTransactions(TransactionsOptions{Member: "x"})
	g := gid{cluster: testCluster, id: tx.newID(), n: 17, coordinating: "eu_west-1"}
	got, ok := parseGID(g.String(), testCluster)
	if !ok || got != g {
		t.Fatalf("%s: %+v", g, got)
	}
	for _, s := range []string{"", "cleave_ddl_0d6cbf63_shard-1", "cleave_0d6cbf63_12_1_a", strings.Replace(g.String(), "0d6", "0d7", 1), "other"} {
		if _, ok := parseGID(s, testCluster); ok {
			t.Errorf("%q was taken for ours", s)
		}
	}
	if n := len(gid{cluster: testCluster, id: g.id, n: 4096, coordinating: strings.Repeat("x", 63)}.String()); n > 199 {
		t.Errorf("%d bytes", n)
	}
}
