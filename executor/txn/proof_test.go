package txn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

// rowsOf takes the first column of rows (executor.Sink).
type rowsOf struct {
	values []string
	looked bool // when the first row came, the looks had been answered
	ready  func() bool
}

func (r *rowsOf) Frames(b []byte) error {
	for len(b) > 0 {
		n := 1 + int(b[1])<<24 + int(b[2])<<16 + int(b[3])<<8 + int(b[4])
		if b[0] == 'D' {
			r.looked = r.ready()
			r.values = append(r.values, string(b[11:n]))
		}
		b = b[n:]
	}
	return nil
}

func (r *rowsOf) Parameter(string, string) {}

// proves runs one attempt of a read on some shards, with a pause between them, and returns what each answered.
func (b *bank) proves(tx *Transactions, fresh bool, sql string, pause time.Duration, shards ...int) (values []string, fits bool, err error) {
	ctx := context.Background()
	a := Attempt{Shards: func() (names []string, err error) {
		for _, i := range shards {
			names = append(names, shardName(i))
		}
		return names, nil
	}}
	if fresh {
		a.Try = 3
	}
	pr, err := tx.newProof(ctx, a, time.Now().Add(ownMax))
	if err != nil {
		return nil, false, err
	}
	var parts []*Participant
	defer func() {
		for _, p := range parts {
			p.Conn.Release()
		}
	}()
	for _, i := range shards {
		c, err := b.ex.Acquire(ctx, shardName(i), nil)
		if err != nil {
			return nil, false, err
		}
		parts = append(parts, &Participant{Shard: shardName(i), Conn: c})
	}
	return b.provesIn(pr, parts, sql, pause)
}

// provesIn runs an attempt of a read in conversations.
func (b *bank) provesIn(pr *Proof, parts []*Participant, sql string, pause time.Duration) (values []string, fits bool, err error) {
	var sinks []*rowsOf
	for _, p := range parts {
		p.Pipe.Conn, p.Pipe.Inner = p.Conn, true
		if !pr.Knows(p) {
			return nil, false, nil
		}
		prep := b.ex.Prepare(sql, nil, 0, nil)
		p.Pipe.Prepare(prep, nil, false)
		ready := pr.Around(p, OneBind, func() { p.Pipe.Bind("", prep.Name(), []byte{0, 0, 0, 0, 0, 0}, false) })
		p.Pipe.Execute("", 0, nil)
		if err := p.Pipe.Dispatch(executor.Sync); err != nil {
			return nil, false, err
		}
		sinks = append(sinks, &rowsOf{ready: ready})
		time.Sleep(pause)
	}
	for i, p := range parts {
		for done := false; !done; {
			var o executor.Outcome
			if o, done, err = p.Pipe.Step(sinks[i]); err != nil {
				return nil, false, err
			}
			if o.Err != nil {
				return nil, false, o.Err
			}
		}
		if len(sinks[i].values) != 1 || !sinks[i].looked {
			b.t.Errorf("%s: %d rows, before the look: %v", p.Shard, len(sinks[i].values), !sinks[i].looked)
			return nil, false, nil
		}
		values = append(values, sinks[i].values[0])
	}
	return values, pr.Fits(), nil
}

func total(values []string) (sum int) {
	for _, v := range values {
		n, _ := strconv.Atoi(v)
		sum += n
	}
	return sum
}

// TestProofDuringCommit reads at each step of a commit, also while it stands still between two shards: what fits is whole, what is not
// whole does not fit, and a new cut ends what is decided.
func TestProofDuringCommit(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 3)...)
	tx, reader := b.transactions(), b.transactions()
	const sum = "SELECT sum(balance) FROM account"
	if _, fits, err := b.proves(reader, false, sum, 0, 0, 1, 2); err != nil || !fits {
		t.Fatal("at rest", fits, err)
	}
	torn, decided := 0, false
	tx.step = func(step, shard string) error {
		decided = decided || step == "decided" || step == "commit"
		for try := range 3 {
			got, fits, err := b.proves(reader, false, sum, 0, 0, 1, 2)
			switch {
			case err != nil:
				t.Error(err)
			case fits && total(got) != 300:
				t.Errorf("at %s %s: %v fit each other", step, shard, got)
			case !fits && !decided && try > 0:
				t.Errorf("at %s %s: %v do not fit each other", step, shard, got)
			case total(got) != 300:
				torn++
			}
		}
		return nil
	}
	if ok, err := b.commit(tx, b.begin()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if torn == 0 {
		t.Error("no attempt saw a part of the transaction: the test shows nothing")
	}
	// With the base that it has: the first look tells that something is new, the second one what.
	for try := 0; ; try++ {
		got, fits, err := b.proves(reader, false, sum, 0, 0, 1, 2)
		if err != nil || total(got) != 300 || try > 1 {
			t.Fatal(got, fits, err, try)
		}
		if fits {
			break
		}
	}
	// In doubt, and its router is dead: a new cut ends it.
	tx = b.transactions()
	tx.step = func(step, _ string) error {
		if step == "commit" {
			return errCrash
		}
		return nil
	}
	if _, err := b.commit(tx, b.begin()); err == nil {
		t.Fatal("not stopped")
	}
	for try := range 4 {
		got, fits, err := b.proves(reader, try == 3, sum, 0, 0, 1, 2)
		if err != nil || fits != (try == 3) || fits != (total(got) == 300) {
			t.Fatal(try, got, fits, err)
		}
	}
}

// TestProofOfATransactionThatHasWritten: its snapshot's text says that it is committed, so that it is no base for others.
func TestProofOfATransactionThatHasWritten(t *testing.T) {
	banks(t, testProofOfATransactionThatHasWritten)
}

func testProofOfATransactionThatHasWritten(t *testing.T, b *bank) {
	tx, reader := b.transactions(), b.transactions()
	const sum = "SELECT sum(balance) FROM account"
	if _, fits, err := b.proves(reader, false, sum, 0, 0, 1); err != nil || !fits {
		t.Fatal("at rest", fits, err)
	}
	sqlite := driverOf(b.urls[0]).Name() == "sqlite"
	if sqlite { // it has one writer at a time: something newer comes before
		b.newer(tx)
	}
	var block []*Participant
	for i := range 2 {
		c, err := b.ex.Acquire(t.Context(), shardName(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		block = append(block, &Participant{Shard: shardName(i), Conn: c, Wrote: true})
		b.ask(c, "BEGIN")
	}
	const takes = "UPDATE account SET balance = balance - 5 WHERE id = 0"
	b.ask(block[0].Conn, takes)
	if !sqlite {
		b.query(0, "CREATE TABLE later AS SELECT 1") // a later number of a transaction has ended
		b.newer(tx)
	}
	fits := false
	for try := 0; !fits; try++ {
		pr, err := reader.newProof(t.Context(), Attempt{Shards: func() ([]string, error) { return []string{shardName(0), shardName(1)}, nil }}, time.Now().Add(ownMax))
		if err != nil {
			t.Fatal(err)
		}
		if _, fits, err = b.provesIn(pr, block, sum, 0); err != nil || try > 2 {
			t.Fatal(fits, err, try)
		}
	}
	b.ask(block[1].Conn, "UPDATE account SET balance = balance + 5 WHERE id = 1")
	torn := 0
	tx.step = func(step, shard string) error {
		for range 2 {
			got, fits, err := b.proves(reader, false, sum, 0, 0, 1)
			switch {
			case err != nil:
				t.Error(err)
			case fits && total(got) != 200:
				t.Errorf("at %s %s: %v fit each other", step, shard, got)
			case total(got) != 200:
				torn++
			}
		}
		return nil
	}
	if ok, err := b.commit(tx, block); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if torn == 0 {
		t.Error("no attempt saw a part of the transaction: the test shows nothing")
	}
}

// newer commits something on the first two shards.
func (b *bank) newer(tx *Transactions) {
	b.t.Helper()
	var parts []*Participant
	for i := range 2 {
		c, err := b.ex.Acquire(b.t.Context(), shardName(i), nil)
		if err != nil {
			b.t.Fatal(err)
		}
		parts = append(parts, &Participant{Shard: shardName(i), Conn: c, Wrote: true})
		b.ask(c, "BEGIN; INSERT INTO account VALUES (1000, 0)")
	}
	if ok, err := b.commit(tx, parts); !ok || err != nil {
		b.t.Fatal(ok, err)
	}
}

// TestProofOfAnotherServer: a base whose server was started anew, or that is of another server, proves nothing.
func TestProofOfAnotherServer(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 3)...)
	reader := b.transactions()
	const one = "SELECT 1"
	if _, fits, err := b.proves(reader, false, one, 0, 0, 1); err != nil || !fits {
		t.Fatal(fits, err)
	}
	at := reader.base.now.points[shardName(1)]
	at.server += "1"
	reader.base.now.points[shardName(1)] = at
	if _, fits, err := b.proves(reader, false, one, 0, 0, 1); err != nil || fits {
		t.Fatal("fits", err)
	}
	if _, fits, err := b.proves(reader, true, one, 0, 0, 1); err != nil || !fits {
		t.Fatal("does not fit after a new cut", err)
	}
	delete(reader.base.now.points, shardName(1)) // it could not be reached
	if _, fits, err := b.proves(reader, false, one, 0, 0, 1); err != nil || fits {
		t.Fatal("fits", err)
	}
}

// TestProofs has readers of different sets of shards, through two routers, beside transfers between pairs of shards. What fits is whole, and
// the base that the readers move stays a cut.
func TestProofs(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 3)...)
	const each, writers = 80, 3
	for i := range b.urls {
		b.query(i, "INSERT INTO account SELECT g, 100 FROM generate_series(10, 39) AS s(g)")
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	processes := []*Transactions{b.transactions(), b.transactions()}
	var work, reads sync.WaitGroup
	for w := range writers { // writer w moves between the shards w and w+1, in accounts of its own
		tx, pair := processes[w%2], []int{min(w, (w+1)%3), max(w, (w+1)%3)}
		work.Go(func() {
			for i := range each {
				if err := b.transfers(ctx, tx, pair, 10*(w+1)+i%10); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var whole, torn, misfits, first atomic.Int64
	for r := range 6 {
		reads.Go(func() {
			tx, w := processes[r%2], r%3
			shards, who := []int{w, (w + 1) % 3}, fmt.Sprintf("WHERE id BETWEEN %d AND %d", 10*(w+1), 10*(w+1)+9)
			want := 2000
			if r < 2 {
				shards, who, want = []int{0, 1, 2}, "WHERE id >= 10", 9000
			}
			for try := 0; ctx.Err() == nil; try++ {
				got, fits, err := b.proves(tx, try%4 == 3, "SELECT sum(balance) FROM account "+who, time.Duration(rand.IntN(3))*time.Millisecond, shards...)
				switch {
				case err != nil:
					t.Error(err)
				case fits && total(got) != want:
					t.Errorf("%s on %v: %v fit each other, want %d together", who, shards, got, want)
				case fits:
					whole.Add(1)
					if try == 0 {
						first.Add(1)
					}
					try = -1
				case total(got) != want:
					torn.Add(1)
				default:
					misfits.Add(1)
				}
			}
		})
	}
	work.Wait()
	stop()
	reads.Wait()
	t.Logf("%d reads fit, %d of them at first; %d attempts were torn, %d whole ones did not fit", whole.Load(), first.Load(), torn.Load(), misfits.Load())
	if whole.Load() == 0 || torn.Load() == 0 {
		t.Error("the test shows nothing")
	}
	for _, tx := range processes {
		if n := len(tx.base.now.points); n != 3 || strings.Count(fmt.Sprint(tx.base.now.points), ":") < 3 {
			t.Errorf("a base of %d shards", n)
		}
	}
}

// TestProofOfSomeBinds: statements that are to have one snapshot have none if something is committed between their Binds, on one
// shard or on several.
func TestProofOfSomeBinds(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 3)...)
	reader := b.transactions()
	b.query(0, "CREATE FUNCTION meets() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_lock(1); PERFORM pg_advisory_unlock(1); RETURN true; END$$")
	for _, between := range []string{"", "UPDATE account SET balance = balance"} {
		pr, err := reader.newProof(t.Context(), Attempt{}, time.Now().Add(ownMax))
		if err != nil {
			t.Fatal(err)
		}
		gate, err := b.ex.Acquire(t.Context(), shardName(0), nil)
		if err != nil {
			t.Fatal(err)
		}
		b.ask(gate, "SELECT pg_advisory_lock(1)")
		c, err := b.ex.Acquire(t.Context(), shardName(0), nil)
		if err != nil {
			t.Fatal(err)
		}
		p := &Participant{Shard: shardName(0), Conn: c}
		p.Pipe.Conn, p.Pipe.Inner = c, true
		one, waits := b.ex.Prepare("SELECT sum(balance) FROM account", nil, 0, nil), b.ex.Prepare("SELECT meets()", nil, 0, nil)
		answered := pr.Around(p, SomeBinds, func() {
			for i, prep := range []*executor.Prepared{one, waits, one} {
				p.Pipe.Prepare(prep, nil, false)
				p.Pipe.Bind("p"+strconv.Itoa(i), prep.Name(), []byte{0, 0, 0, 0, 0, 0}, false)
				if prep == waits {
					p.Pipe.ExecuteAside("p1", func([]byte) error { return nil })
				}
			}
		})
		if err := p.Pipe.Dispatch(executor.Sync); err != nil {
			t.Fatal(err)
		}
		waitfor.True(t, "the message waits between its Binds", func() bool {
			return len(b.query(0, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Rows) == 1
		})
		if between != "" {
			b.query(0, between)
		}
		b.ask(gate, "SELECT pg_advisory_unlock(1)")
		for done := false; !done; {
			if _, done, err = p.Pipe.Step(&rowsOf{}); err != nil {
				t.Fatal(err)
			}
		}
		if fits := pr.Fits(); !answered() || fits != (between == "") {
			t.Errorf("%q between: fits %v", between, fits)
		}
		c.Release()
		gate.Release()
	}
}

// TestProofAfterACrash: a backend that is killed makes its server recover without a restart. What was not on disk then is lost, and
// numbers of transactions may be given anew: the base proves nothing any more.
func TestProofAfterACrash(t *testing.T) {
	b := newBank(t, same(pgtest.NewServer(t, nil), 2)...)
	reader := b.transactions()
	const one = "SELECT 1"
	if _, fits, err := b.proves(reader, false, one, 0, 0, 1); err != nil || !fits {
		t.Fatal(fits, err)
	}
	c, err := b.ex.Acquire(t.Context(), shardName(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(b.ask(c, "SELECT pg_backend_pid()").Rows[0][0].String)
	if err != nil {
		t.Fatal(err)
	}
	before := reader.base.now.points[shardName(0)].server
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.Release()
	waitfor.True(t, "the server has recovered", func() bool {
		conn, err := b.ex.Acquire(t.Context(), shardName(0), nil)
		if err != nil {
			return false
		}
		defer conn.Release()
		res, err := conn.Exec(reader.records(shardName(0)).Point())
		return err == nil && res.Rows[0][1].String != before
	})
	fits := true
	waitfor.True(t, "connections that were lost are noticed", func() bool {
		_, fits, err = b.proves(reader, false, one, 0, 0, 1)
		return err == nil
	})
	if fits {
		t.Error("fits")
	}
	if _, fits, err := b.proves(reader, true, one, 0, 0, 1); err != nil || !fits {
		t.Fatal("does not fit after a new cut", err)
	}
}

// TestReaches: a snapshot that is older than the base's is none that the base can be compared with.
func TestReaches(t *testing.T) {
	for _, c := range []struct {
		snapshot, earlier string
		want              bool
	}{
		{"10:20:12,15", "10:20:12,15", true}, {"15:20:15", "10:20:12,15", true}, {"10:25:12,15,22", "10:20:12,15", true}, {"30:30:", "10:20:12", true},
		{"10:20:12,15", "15:20:15", false}, {"10:19:12", "10:20:12", false}, {"10:25:11,12", "10:20:12", false}, {"", "10:20:", false}, {"7", "6", true}, {"6", "7", false}, {"7", "10:20:", false}, {"1:x:", "1:1:", false},
	} {
		if got := reaches(c.snapshot, c.earlier); got != c.want {
			t.Errorf("%s after %s: %v", c.snapshot, c.earlier, got)
		}
	}
}

// TestTurnOfAnOwnCut: a read waits for its turn to make a cut of its own no longer than it may take to make one.
func TestTurnOfAnOwnCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		tx := &Transactions{base: base{own: make(chan struct{}), failed: began}} // no cut of all shards, and nobody's turn ends
		_, err := tx.newProof(t.Context(), Attempt{Shards: func() ([]string, error) { return []string{"a", "b"}, nil }}, began.Add(ownMax))
		if sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || time.Since(began) != ownMax {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestBoundsOfTheRouter: a bound that the router sets on what it asks beside a statement ends with 57P03, as if the shard had not
// been reached: the client has asked for no cancel, and waits for no lock.
func TestBoundsOfTheRouter(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 2)...)
	c, err := b.ex.Acquire(t.Context(), shardName(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if _, err := c.Exec("BEGIN; LOCK TABLE cleave_internal.transaction"); err != nil {
		t.Fatal(err)
	}
	reader := b.transactions()
	if _, _, err := b.proves(reader, false, "SELECT 1", 0, 0, 1); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Error(err)
	}
}

// TestBaseOutlivesItsReader: a base is made to its end though nobody has the time to wait for it.
func TestBaseOutlivesItsReader(t *testing.T) {
	b := newBank(t, same(pgtest.Server(t), 2)...)
	reader := b.transactions()
	if _, fits, err := b.proves(reader, false, "SELECT 1", 0, 0, 1); err != nil || !fits { // the tables are there
		t.Fatal(fits, err)
	}
	reader.base.now = cut{}
	c, err := b.ex.Acquire(t.Context(), shardName(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	b.ask(c, "BEGIN; LOCK TABLE cleave_internal.transaction")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := reader.newProof(ctx, Attempt{}, time.Now().Add(ownMax))
		ended <- err
	}()
	waitfor.True(t, "the base waits for the lock", func() bool {
		return b.query(1, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'cleave_internal.transaction'::regclass").Rows[0][0].String != "0"
	})
	stop()
	if err := <-ended; err == nil {
		t.Error("the reader has not ended")
	}
	b.ask(c, "ROLLBACK")
	waitfor.True(t, "the base is made", func() bool {
		reader.base.mu.Lock()
		defer reader.base.mu.Unlock()
		return len(reader.base.now.points) == 2
	})
}
