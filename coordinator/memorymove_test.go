package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// little is a cluster of shards in memory, whose keyspace k has table t with rows 0 to rows-1.
type little struct {
	t      *testing.T
	dir    shardmap.Directory
	shards map[string]*memoryShard
	// stale is how long routers go by an older map, at most.
	stale time.Duration
	// partBytes and streams are those of Options.
	partBytes int64
	streams   int

	mu    sync.Mutex
	acked map[int64]int
}

// leading is a coordinator at work.
type leading struct {
	stop context.CancelFunc
	done chan struct{}
}

const littleRows = 60

func newLittle(t *testing.T) *little {
	t.Helper()
	l := &little{t: t, dir: memory.New(), shards: map[string]*memoryShard{}, acked: map[int64]int{}, partBytes: 1}
	t.Cleanup(func() { _ = l.dir.Close() })
	st := state(t)
	st.PutTable(shardmap.Table{Schema: "public", Name: "t", Kind: shardmap.Sharded, Keyspace: "k", ShardKey: []string{"k"},
		Columns: []shardmap.Column{{Name: "k", Type: "bigint", OID: 20, NotNull: true}, {Name: "v", Type: "text", OID: 25}}})
	snap, err := l.dir.Update(t.Context(), shardmap.Change{By: "test", Op: "bootstrap"}, st)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		s := newMemoryShard(name)
		s.guard = &schema.GuardsOf(snap, "k", name)[0]
		l.shards[name] = s
	}
	for k := range int64(littleRows) {
		if err := l.add(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// lead starts a coordinator, after the one before has ended. step is Options.step.
func (l *little) lead(step func(string, workflow.Op, bool) error) *leading {
	l.t.Helper()
	c := New(Options{Directory: l.dir, Candidate: "test", PartBytes: l.partBytes, Streams: l.streams, step: step, Shard: func(name string) (engine.Shard, error) { return l.shards[name], nil }})
	ctx, stop := context.WithCancel(context.Background())
	now := &leading{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(now.done)
		c.Run(ctx)
	}()
	l.t.Cleanup(now.end)
	return now
}

func (l *leading) end() {
	l.stop()
	<-l.done
}

// add is what a router does: it writes to the owner that its map names, which may be an older one for a moment; it waits while the
// part is held, and looks at the map again when the shard's guard refuses. What was acknowledged is counted.
func (l *little) add(ctx context.Context, k int64) error {
	for {
		snap, err := l.dir.Load(ctx)
		if err != nil {
			return err
		}
		ix, _ := snap.Keyspace("k")
		if ix.Held(key(k)) == nil {
			owner, err := ix.Locate(key(k))
			if err != nil {
				return err
			}
			if l.stale > 0 {
				pause(ctx, rand.N(l.stale))
			}
			if err = l.shards[owner.Shard].add(k); err == nil {
				l.mu.Lock()
				l.acked[k]++
				l.mu.Unlock()
			}
			if sqlstate.CodeOf(err) != sqlstate.NotOwner {
				return err
			}
		}
		pause(ctx, 100*time.Microsecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// part is the first range of a, which goes to c.
func (l *little) part() shardmap.Part {
	snap, err := l.dir.Load(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	ix, _ := snap.Keyspace("k")
	r := ix.Def().Ranges[0]
	return shardmap.Part{Low: r.Low, High: r.High}
}

func (l *little) move(id string, o workflow.Options) {
	l.t.Helper()
	o.MaxLatencyMS, o.MaxLagMS = -1, -1 // nobody else is at work here whom it could disturb
	put(l.t, l.dir, workflow.Spec{ID: id, Kind: workflow.Move, Keyspace: "k", Part: l.part(), From: "a", To: "c", Options: o})
}

// TestPartThatWentMeanwhile: another move has brought the part to the target since it was checked. The move is refused, and ends.
func TestPartThatWentMeanwhile(t *testing.T) {
	l := newLittle(t)
	l.lead(func(_ string, op workflow.Op, after bool) error {
		if op != workflow.PutTransit || after {
			return nil
		}
		snap, err := l.dir.Load(t.Context())
		if err != nil {
			return err
		}
		next := snap.State().Clone()
		if err := newOwner(&next, &workflow.Spec{Keyspace: "k"}, l.part(), "c", false); err != nil {
			return err
		}
		_, err = l.dir.Update(t.Context(), shardmap.Change{Expect: snap.Version(), By: "test", Op: "move"}, next)
		return err
	})
	l.move("m", workflow.Options{})
	s := await(t, l.dir, "m", func(s *workflow.State) bool { return s.Step.Ended() })
	if s.Step != workflow.Failed || !strings.Contains(fmt.Sprint(s.History), "shard c owns") {
		t.Errorf("%s: %+v", s.Step, s.History)
	}
}

func (l *little) ask(id string, wish workflow.Wish) {
	l.t.Helper()
	_, err := Ask(l.t.Context(), l.dir, id, wish, "me", nil)
	if err = errors.Join(err, Kick(l.t.Context(), l.dir)); err != nil {
		l.t.Fatal(err)
	}
}

func (l *little) is(id string, step workflow.StepName) workflow.State {
	l.t.Helper()
	return await(l.t, l.dir, id, func(s *workflow.State) bool {
		if s.Step.Ended() && s.Step != step {
			l.t.Fatalf("%s is %s: %s %+v", id, s.Step, s.Error, s.History)
		}
		return s.Step == step
	})
}

// settled checks that owner has the part and nobody else has rows of it, that guards and map say the same, and that each row counts what
// was acknowledged.
func (l *little) settled(owner string) {
	l.t.Helper()
	snap, err := l.dir.Load(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	if is, err := snap.OwnerOf("k", l.part()); err != nil || is != owner {
		l.t.Errorf("%s owns the part, %v", is, err)
	}
	ix, _ := snap.Keyspace("k")
	if len(ix.Def().Transits) > 0 {
		l.t.Errorf("transits are left: %v", ix.Def().Transits)
	}
	want, got := map[int64]string{}, map[int64]string{}
	for k, n := range l.acked {
		want[k] = fmt.Sprint(n)
	}
	for name, s := range l.shards {
		for k, v := range s.all() {
			at, err := ix.Locate(key(k))
			if err != nil || at.Shard != name {
				l.t.Errorf("row %d is on %s, its owner is %s, %v", k, name, at.Shard, err)
			}
			got[k] = v
		}
		want := schema.GuardsOf(snap, "k", name)[0]
		if s.guard.Owned.Encode() != want.Owned.Encode() {
			l.t.Errorf("the guard of %s is %s, the map says %s", name, s.guard.Owned.Describe(), want.Owned.Describe())
		}
		if ids, _ := (&memoryMover{s, 0}).Captures(l.t.Context()); len(ids) > 0 {
			l.t.Errorf("%s keeps %v", name, ids)
		}
	}
	if !maps.Equal(got, want) {
		l.t.Errorf("the rows are %v, not %v", got, want)
	}
}

// work has clients write until end is called.
func (l *little) work() (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	l.stale = 30 * time.Millisecond
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				// What was begun is finished: else nobody would know whether it was done. Some rows are new.
				if err := l.add(context.WithoutCancel(ctx), rand.Int64N(littleRows+30)); err != nil {
					l.t.Errorf("a write: %v", err)
					return
				}
			}
		})
	}
	end = func() {
		stop()
		clients.Wait()
	}
	l.t.Cleanup(end)
	return end
}

// equal checks that two shards have the same rows of the part: one takes no writes of it any more, the other none yet.
func (l *little) equal(one, other string) {
	a, b := l.shards[one].all(), l.shards[other].all()
	gone := func(k int64, _ string) bool { return !l.ofPart(k) }
	maps.DeleteFunc(a, gone)
	maps.DeleteFunc(b, gone)
	if len(a) == 0 || !maps.Equal(a, b) {
		l.t.Errorf("%s has %v, %s has %v", one, a, other, b)
	}
}

// TestMoveInMemory: a part goes to another shard while clients write, comes back by a reversal with what was written there, goes again
// and stays.
func TestMoveInMemory(t *testing.T) {
	l := newLittle(t)
	var slow atomic.Bool // in a cutover locks are waited for and changes take a while, so that the last ones come late
	for _, s := range l.shards {
		s.fail = func(method string) error {
			if (method == "Commit" || method == "Fence") && slow.Load() {
				pause(t.Context(), 5*time.Millisecond)
			}
			return nil
		}
	}
	end := l.work()
	l.lead(func(_ string, op workflow.Op, store bool) error {
		switch op {
		case workflow.Hold:
			slow.Store(true)
		case workflow.SettleGuards:
			slow.Store(false)
		}
		if op == workflow.OpenTarget && !store {
			l.equal("a", "c")
		}
		if op == workflow.Swap && !store { // who goes by the older map writes now
			pause(t.Context(), 20*time.Millisecond)
		}
		return nil
	})
	l.move("there", workflow.Options{})
	s := l.is("there", workflow.Opened)
	if s.HeldMS > patience.Milliseconds()/2 || s.Attempt != 0 {
		t.Errorf("held for %d ms, after %d attempts", s.HeldMS, s.Attempt)
	}
	l.ask("there", workflow.Reverse)
	l.is("there", workflow.RolledBack)
	l.move("stays", workflow.Options{KeepMS: -1})
	l.is("stays", workflow.Done)
	end()
	l.settled("c")
}

// TestMoveIsCancelled: nothing is left of it, and its rows are where they were.
func TestMoveIsCancelled(t *testing.T) {
	l := newLittle(t)
	l.shards["a"].fail = func(method string) error {
		if method == "View" { // it gets as far as to compare
			return &engine.LostError{Shard: "a", Sent: true, Err: errors.New("no answer")}
		}
		return nil
	}
	l.lead(nil)
	l.move("m", workflow.Options{})
	await(t, l.dir, "m", func(s *workflow.State) bool { return s.Step == workflow.Verifying && s.Tries > 0 })
	l.ask("m", workflow.Cancel)
	l.is("m", workflow.Cancelled)
	l.settled("a")
}

// TestACoordinatorStopsAnywhere: it stops before each effect and each store of a move in turn, there and while it is reversed; the next one
// goes on, and in the end everything is as if none had stopped.
func TestACoordinatorStopsAnywhere(t *testing.T) {
	t.Run("there", func(t *testing.T) {
		stopsAnywhere(t, false, workflow.PutTransit, workflow.Copy, workflow.Verify, workflow.Hold, workflow.Fence, workflow.DrainSource, workflow.OpenTarget,
			workflow.Swap, workflow.SettleGuards, workflow.Purge, workflow.DropTransit)
	})
	t.Run("back", func(t *testing.T) {
		stopsAnywhere(t, true, workflow.Follow, workflow.Verify, workflow.Hold, workflow.Fence, workflow.DrainSource, workflow.OpenTarget, workflow.Swap,
			workflow.SettleGuards, workflow.Purge, workflow.DropTransit)
	})
}

func stopsAnywhere(t *testing.T, back bool, among ...workflow.Op) {
	const atOnce = 8 // they wait more than they compute
	stopped := map[string]bool{}
	for n := 1; !stopped[""]; n += atOnce {
		var mu sync.Mutex
		t.Run(fmt.Sprintf("%d to %d", n, n+atOnce-1), func(t *testing.T) {
			for i := range atOnce {
				t.Run(fmt.Sprint(n+i), func(t *testing.T) {
					t.Parallel()
					left := n + i
					what := stopAt(t, back, func(workflow.Op) bool { left--; return left == 0 })
					mu.Lock()
					defer mu.Unlock()
					stopped[what] = true
				})
			}
		})
		if t.Failed() {
			return
		}
	}
	for _, op := range among {
		// A cutover that was tried twice has shifted the moments, perhaps.
		if !stopped[string(op)] && stopAt(t, back, func(is workflow.Op) bool { return is == op }) == "" {
			t.Errorf("%q is no effect of it", op)
		}
	}
}

// stopAt stops the coordinator at the first moment of a move, or of its reversal, for which now is true, and returns before what; "" if
// there is none.
func stopAt(t *testing.T, back bool, now func(op workflow.Op) bool) (what string) {
	l := newLittle(t)
	o := workflow.Options{KeepMS: -1}
	if back {
		o.KeepMS = 0
	}
	var mu sync.Mutex
	begun, over := !back, make(chan struct{})
	first := l.lead(func(_ string, op workflow.Op, _ bool) error {
		mu.Lock()
		defer mu.Unlock()
		if !begun {
			return nil
		}
		if what == "" {
			if !now(op) {
				return nil
			}
			what = string(op)
			close(over)
		}
		return errors.New("stopped") // and so is what it would do after it
	})
	end := l.work()
	l.move("m", o)
	if back {
		l.is("m", workflow.Opened)
		mu.Lock()
		begun = true
		mu.Unlock()
		l.ask("m", workflow.Reverse)
	}
	last, owner := workflow.Done, "c"
	if back {
		last, owner = workflow.RolledBack, "a"
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for l.t.Context().Err() == nil {
			r, err := l.dir.Record(l.t.Context(), workflow.RecordPrefix+"m")
			if err == nil {
				if s, err := workflow.Decode(r.Value); err == nil && s.Step.Ended() {
					return
				}
			}
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	<-ended
	first.end()
	mu.Lock()
	at := what
	mu.Unlock()
	if at != "" {
		l.lead(nil)
	}
	l.is("m", last)
	end()
	l.settled(owner)
	if t.Failed() {
		t.Fatalf("stopped before %q", at)
	}
	return at
}

// TestCutoverIsTakenBack: the tables' locks are not to be had, so that statements are let go on in time, on the old owner; when they
// are to be had the move goes on.
func TestCutoverIsTakenBack(t *testing.T) {
	l := newLittle(t)
	var locked atomic.Bool
	locked.Store(true)
	var held atomic.Bool
	l.shards["a"].fail = func(method string) error {
		if method == "Fence" && held.Load() && locked.Load() {
			return sqlstate.New(sqlstate.LockNotAvailable, "the table is locked")
		}
		return nil
	}
	l.lead(func(_ string, op workflow.Op, _ bool) error {
		if op == workflow.Hold {
			held.Store(true)
		}
		return nil
	})
	end := l.work()
	l.move("m", workflow.Options{KeepMS: -1})
	s := await(t, l.dir, "m", func(s *workflow.State) bool { return s.Attempt > 0 })
	if text := fmt.Sprint(s.History); !strings.Contains(text, "did not end in time") {
		t.Errorf("%s", text)
	}
	waitfor.True(t, "a write to the part goes on", func() bool {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		return l.add(ctx, keyOfPart(t, l)) == nil
	})
	locked.Store(false)
	l.is("m", workflow.Done)
	end()
	l.settled("c")
}

// keyOfPart is the first key of the part that moves.
func keyOfPart(t *testing.T, l *little) int64 {
	t.Helper()
	snap, err := l.dir.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := snap.Keys("k", l.part())
	for k := int64(0); ; k++ {
		if own.Owns(key(k)) {
			return k
		}
	}
}

// slow is a directory whose one member acknowledges each map a while after it was made.
type slow struct {
	shardmap.Directory
	by time.Duration

	mu    sync.Mutex
	first map[uint64]time.Time // when a version was first seen
}

func (d *slow) Members(ctx context.Context) ([]shardmap.MemberState, error) {
	snap, err := d.Load(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.first[snap.Version()]; !ok {
		d.first[snap.Version()] = time.Now()
	}
	m := shardmap.MemberState{Left: 5 * time.Second}
	m.Role = "router"
	for version, at := range d.first {
		if time.Since(at) >= d.by {
			m.Acknowledged = max(m.Acknowledged, version)
		}
	}
	return []shardmap.MemberState{m}, nil
}

// TestMembersAnswerLate: a member that takes longer than askedSoon each time does not keep a move from ending.
func TestMembersAnswerLate(t *testing.T) {
	l := newLittle(t)
	l.dir = &slow{Directory: l.dir, by: askedSoon * 3 / 2, first: map[uint64]time.Time{}}
	var asked atomic.Int64
	l.lead(func(_ string, op workflow.Op, store bool) error {
		if op == workflow.AskMembers && !store {
			asked.Add(1)
		}
		return nil
	})
	l.move("m", workflow.Options{KeepMS: -1})
	l.is("m", workflow.Done)
	l.settled("c")
	if asked.Load() != 1 {
		t.Errorf("they were asked in %d cutovers", asked.Load())
	}
}

// TestCopiesThatDiffer: a row that nobody wrote is on the target. The move fails with the table's name, before statements are held, and
// takes what it has brought away again.
func TestCopiesThatDiffer(t *testing.T) {
	l := newLittle(t)
	l.lead(func(_ string, op workflow.Op, store bool) error {
		if op == workflow.Verify && !store {
			c := l.shards["c"]
			c.mu.Lock()
			defer c.mu.Unlock()
			v := "nobody's"
			for k := range int64(1 << 20) { // a key of the part without a row
				if _, there := c.rows[k]; !there && k > littleRows && l.ofPart(k) {
					c.put(k, &v)
					break
				}
			}
		}
		if op == workflow.Hold {
			t.Error("statements are held")
		}
		return nil
	})
	l.move("m", workflow.Options{})
	s := await(t, l.dir, "m", ended)
	if s.Step != workflow.Failed || !strings.Contains(s.Cause+s.Error+fmt.Sprint(s.History), "public.t has") {
		t.Errorf("%+v", s)
	}
	l.settled("a")
}

func (l *little) ofPart(k int64) bool {
	snap, err := l.dir.Load(context.Background())
	if err != nil {
		return false
	}
	own := snap.Keys("k", l.part())
	return own.Owns(key(k))
}

// TestLostAnswers: a method of a mover loses its answer once on each shard, before it has done anything. The move gets to its end.
func TestLostAnswers(t *testing.T) {
	for _, method := range []string{"Seize", "Describe", "CheckMove", "Capture", "Changes", "Here", "Load", "SetLoaded", "Apply", "Commit", "Applied", "SetApplied",
		"Fence", "View", "Sums", "Purge", "Release", "Sizes"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel() // they wait before they try again
			l := newLittle(t)
			var lost atomic.Int64
			for name, s := range l.shards {
				var once atomic.Bool
				s.fail = func(asked string) error {
					if asked != method || once.Swap(true) {
						return nil
					}
					lost.Add(1)
					return &engine.LostError{Shard: name, Sent: true, Err: errors.New("no answer")}
				}
			}
			end := l.work()
			l.lead(nil)
			l.move("m", workflow.Options{KeepMS: -1})
			l.is("m", workflow.Done)
			end()
			l.settled("c")
			if lost.Load() == 0 {
				t.Error("it was not called")
			}
		})
	}
}
