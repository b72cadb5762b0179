package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// point is a place in a workflow: before effect number n of a step, or, with -1, after its
// effects and before that is stored, or, with -2, when a copy has a table more.
type point struct {
	step workflow.StepName
	back bool // of a move that is reversed
	n    int
	op   workflow.Op // for people
}

// stage is a stored step of a scenario.
type stage struct {
	step workflow.StepName
	back bool
}

// points are those of a stage: each effect, and the end. Those of a move depend on whether it
// can be reversed.
func (s stage) points(kind workflow.Kind, keepMS int64) (list []point) {
	st := workflow.New(workflow.Spec{ID: "x", Kind: kind, From: "s0", To: "s1", Options: workflow.Options{KeepMS: keepMS}.WithDefaults()}, 1)
	st.Step, st.Back, st.Children = s.step, s.back, []workflow.Spec{{ID: "x-1"}}
	for n, e := range workflow.Effects(st) {
		list = append(list, point{s.step, s.back, n, e.Op})
	}
	if s.step == workflow.Copying {
		list = append(list, point{s.step, s.back, -2, "after a table"})
	}
	if len(list) > 0 && s.step != workflow.Opened { // its last effect goes on until somebody ends it
		list = append(list, point{s.step, s.back, -1, "store"})
	}
	return list
}

// trial is a scenario that is under way.
type trial struct {
	*lane
	r      *rand.Rand
	id     string
	source int // numbers of the servers that rows go from and to
	target int
	waits  workflow.StepName // the step of the point
	// blocker is a transaction that keeps a cutover from succeeding.
	blocker *pgx.Conn
	// prepared counts the workflows to which nothing happens.
	prepared int
}

// scenario is one kind of workflow.
type scenario struct {
	name   string
	kind   workflow.Kind // of what the stages are of, if they are not those of a move
	keepMS int64
	stages []stage
	// begin brings the cluster to where the scenario begins, then asks for the point (by arm)
	// and for the workflow.
	begin func(t *trial, arm func())
	// then asks for what comes after the point, once all is as it was.
	then func(t *trial)
	end  workflow.StepName
}

func steps(back bool, names ...workflow.StepName) (list []stage) {
	for _, n := range names {
		list = append(list, stage{n, back})
	}
	return list
}

const (
	hour = 60 * 60 * 1000
	// shortHold bounds a cutover that is to be late, milliseconds.
	shortHold = 300
)

var scenarios = []scenario{
	{
		name: "move", keepMS: -1, end: workflow.Done,
		stages: steps(false, workflow.Planned, workflow.Preparing, workflow.Copying, workflow.CatchingUp, workflow.Verifying, workflow.Closing, workflow.Opening, workflow.Cleaning),
		begin:  func(t *trial, arm func()) { arm(); t.move(t.anyRange(), workflow.Options{KeepMS: -1}) },
	},
	{
		name: "keep", keepMS: hour, end: workflow.Done,
		stages: steps(false, workflow.CatchingUp, workflow.Closing, workflow.Opening, workflow.Opened),
		begin:  func(t *trial, arm func()) { arm(); t.move(t.anyRange(), workflow.Options{KeepMS: hour}) },
		then:   func(t *trial) { t.await(t.id, workflow.Opened); t.ask(workflow.Complete) },
	},
	{
		name: "rollback", keepMS: hour, end: workflow.RolledBack,
		stages: steps(true, workflow.CatchingUp, workflow.Verifying, workflow.Closing, workflow.Opening, workflow.Cleaning),
		begin: func(t *trial, arm func()) {
			t.move(t.anyRange(), workflow.Options{KeepMS: hour})
			t.await(t.id, workflow.Opened)
			t.source, t.target = t.target, t.source
			arm()
			t.ask(workflow.Reverse)
		},
	},
	{
		name: "late", keepMS: -1, end: workflow.Done, stages: steps(false, workflow.Reopening, workflow.Waiting),
		begin: func(t *trial, arm func()) { t.late(workflow.Options{KeepMS: -1}, false, arm) },
	},
	{
		name: "late-rollback", keepMS: hour, end: workflow.RolledBack, stages: steps(true, workflow.Reopening, workflow.Waiting),
		begin: func(t *trial, arm func()) { t.late(workflow.Options{KeepMS: hour}, true, arm) },
	},
	{
		name: "cancel", keepMS: hour, end: workflow.Cancelled, stages: steps(false, workflow.Cancelling),
		begin: func(t *trial, arm func()) {
			at := []workflow.StepName{workflow.Preparing, workflow.Copying, workflow.CatchingUp, workflow.Verifying, workflow.Closing}[t.r.IntN(5)]
			list := stage{at, false}.points(workflow.Move, hour)
			t.arm(list[t.r.IntN(len(list)-1)])
			t.move(t.anyRange(), workflow.Options{KeepMS: hour})
			t.reached(t.id)
			t.ask(workflow.Cancel)
			arm()
		},
	},
	{
		name: "pin", keepMS: -1, end: workflow.Done,
		stages: steps(false, workflow.Planned, workflow.Preparing, workflow.Copying, workflow.CatchingUp, workflow.Verifying, workflow.Closing, workflow.Opening, workflow.Cleaning),
		begin:  func(t *trial, arm func()) { key := t.unpinned(); arm(); t.pin(key) },
	},
	{
		name: "unpin", keepMS: -1, end: workflow.Done,
		stages: steps(false, workflow.Planned, workflow.Preparing, workflow.Copying, workflow.CatchingUp, workflow.Verifying, workflow.Closing, workflow.Opening, workflow.Cleaning),
		begin: func(t *trial, arm func()) {
			key := t.unpinned()
			t.pin(key)
			t.await(t.id, workflow.Done)
			t.source, t.target = t.target, t.source
			arm()
			t.unpin(key)
		},
	},
	{
		name: "pin-here", kind: workflow.Pin, end: workflow.Done, stages: steps(false, workflow.Editing),
		begin: func(t *trial, arm func()) {
			key := shardmap.Part{Key: []string{t.unpinned()}}
			owner, err := t.snapshot().OwnerOf("bank", key)
			if err != nil {
				t.t.Fatal(err)
			}
			t.source, t.target = number(owner), 1-number(owner)
			arm()
			t.store(workflow.Spec{Kind: workflow.Pin, Part: key, To: owner})
		},
	},
	{
		name: "split", kind: workflow.Split, end: workflow.Done, stages: steps(false, workflow.Editing),
		begin: func(t *trial, arm func()) { arm(); t.split(t.anyRange()) },
	},
	{
		name: "merge", kind: workflow.Merge, keepMS: -1, end: workflow.Done,
		stages: steps(false, workflow.Planning, workflow.Working, workflow.Copying, workflow.Closing, workflow.Opening, workflow.Cleaning, workflow.Editing),
		begin: func(t *trial, arm func()) {
			at, lower, upper := t.bound(true)
			t.source, t.target = number(upper), number(lower)
			arm()
			t.asked("merge", func(ctx context.Context) (*admin.WorkflowResult, error) {
				return t.ops.Merge(ctx, admin.MergeRequest{Meta: meta, ID: t.id, Keyspace: "bank", At: at})
			})
		},
	},
	{
		name: "drain", kind: workflow.Drain, keepMS: -1, end: workflow.Done,
		stages: steps(false, workflow.Planning, workflow.Working, workflow.Copying, workflow.Closing, workflow.Opening, workflow.Cleaning),
		begin: func(t *trial, arm func()) {
			from := t.anyRange()
			t.source, t.target = number(from.Shard), 1-number(from.Shard)
			t.drain(arm, from.Shard)
		},
	},
	{
		name: "spread", kind: workflow.Spread, keepMS: -1, end: workflow.Done,
		stages: steps(false, workflow.Planning, workflow.Working, workflow.Copying, workflow.Closing, workflow.Opening, workflow.Cleaning),
		begin: func(t *trial, arm func()) {
			t.crowd()
			arm()
			t.asked("spread", func(ctx context.Context) (*admin.WorkflowResult, error) {
				return t.ops.Spread(ctx, admin.SpreadRequest{Meta: meta, ID: t.id, Keyspace: "bank", MoveOptions: admin.MoveOptions{Keep: "0"}})
			})
		},
	},
	{
		name: "rebalance", kind: workflow.Rebalance, keepMS: -1, end: workflow.Done,
		stages: steps(false, workflow.Planning, workflow.Proposed, workflow.Choosing, workflow.Working, workflow.Copying, workflow.Closing, workflow.Opening, workflow.Cleaning),
		begin: func(t *trial, arm func()) {
			t.crowd()
			for t.waits == workflow.Choosing && len(t.ranges()) > 1 { // one that is large enough to be cut
				t.join()
			}
			large := int64(90_000) // of what a range is cut
			if t.engine == "postgres" {
				large = 0
				for _, s := range t.snapshot().Shards() {
					t.eventually("the rows are measured", func() error {
						text, err := t.onShard(&s, `SELECT (SELECT coalesce(sum(pg_column_size(account.*)), 0) FROM account) + (SELECT coalesce(sum(pg_column_size(entry.*)), 0) FROM entry) +
							(SELECT coalesce(sum(pg_column_size(bulk.*)), 0) FROM bulk)`)
						if err == nil {
							var n int64
							if n, err = strconv.ParseInt(text, 10, 64); n > large {
								large = n * 2 / 3
							}
						}
						return err
					})
				}
			}
			arm()
			tolerance := 0.05
			t.asked("plan", func(ctx context.Context) (*admin.WorkflowResult, error) {
				return t.ops.Plan(ctx, admin.PlanRequest{Meta: meta, ID: t.id, Keyspace: "bank", Measure: "rows", Tolerance: &tolerance, SplitBytes: large})
			})
			if p := t.waits; p != workflow.Planning && p != workflow.Proposed {
				t.await(t.id, workflow.Proposed)
				t.ask(workflow.Approve)
			}
		},
		then: func(t *trial) {
			if p := t.waits; p == workflow.Planning || p == workflow.Proposed {
				t.await(t.id, workflow.Proposed)
				t.ask(workflow.Approve)
			}
		},
	},
}

var meta = admin.Meta{By: "test"}

// number is that of a shard's server.
func number(shard string) int {
	if shard == "s1" {
		return 1
	}
	return 0
}

// asked asks for a workflow until it is known to be stored: the id makes that harmless.
func (t *trial) asked(what string, ask func(context.Context) (*admin.WorkflowResult, error)) {
	t.t.Helper()
	t.eventually(what+" is asked for", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := ask(ctx)
		return err
	})
}

// ask asks something of the workflow.
func (t *trial) ask(w workflow.Wish) {
	t.t.Helper()
	do := map[workflow.Wish]func(context.Context, admin.WorkflowRequest) (*admin.WorkflowInfo, error){
		workflow.Complete: t.ops.Complete, workflow.Reverse: t.ops.Reverse, workflow.Cancel: t.ops.Cancel, workflow.Approve: t.ops.Approve,
	}[w]
	t.eventually(string(w)+" is asked for", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := do(ctx, admin.WorkflowRequest{Meta: meta, ID: t.id})
		return err
	})
}

func (t *trial) ranges() []shardmap.Range {
	t.t.Helper()
	ix, ok := t.snapshot().Keyspace("bank")
	if !ok {
		t.t.Fatal("the keyspace is gone")
	}
	return ix.Def().Ranges
}

// anyRange is a range of the keyspace, a small one rather seldom.
func (t *trial) anyRange() shardmap.Range {
	t.t.Helper()
	list := t.ranges()
	return list[t.r.IntN(len(list))]
}

// move asks for a range to go to the other shard.
func (t *trial) move(rng shardmap.Range, o workflow.Options) {
	t.t.Helper()
	t.source, t.target = number(rng.Shard), 1-number(rng.Shard)
	o.MaxLatencyMS = -1 // what leaves others room takes time
	t.store(workflow.Spec{Kind: workflow.Move, Part: shardmap.Part{Low: rng.Low, High: rng.High}, From: rng.Shard, To: fmt.Sprintf("s%d", t.target), Options: o.WithDefaults()})
}

// store stores a workflow as admin does it: one of a kind that only plans begin, or whose cutovers
// may be shorter than people can ask for.
func (t *trial) store(spec workflow.Spec) {
	t.t.Helper()
	spec.ID, spec.Keyspace, spec.By = t.id, "bank", "test"
	s := workflow.New(spec, time.Now().UnixMilli())
	b, err := s.Encode()
	if err != nil {
		t.t.Fatal(err)
	}
	t.eventually("the workflow is stored", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := t.dir.Record(ctx, workflow.RecordPrefix+t.id); err == nil {
			return nil
		}
		if _, err := t.dir.PutRecord(ctx, workflow.RecordPrefix+t.id, b, 0); err != nil {
			return err
		}
		return coordinator.Kick(ctx, t.dir)
	})
}

// late brings a move, or its rollback, to a cutover that a transaction keeps from succeeding.
func (t *trial) late(o workflow.Options, back bool, arm func()) {
	t.t.Helper()
	o.HoldMS = shortHold
	rng := t.anyRange()
	closing := point{step: workflow.Closing, back: back}
	if back {
		t.move(rng, o)
		t.await(t.id, workflow.Opened)
		t.source, t.target = t.target, t.source
		t.arm(closing)
		t.ask(workflow.Reverse)
	} else {
		t.arm(closing)
		t.move(rng, o)
	}
	t.reached(t.id)
	key := t.keyIn(shardmap.Part{Low: rng.Low, High: rng.High})
	t.eventually("a transaction is open in the part", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), callMax)
		defer cancel()
		conn, err := dial(ctx, t.routers[t.r.IntN(len(t.routers))].url)
		if err != nil {
			return err
		}
		t.blocker = conn
		if _, err = conn.Exec(ctx, `BEGIN`); err == nil {
			_, err = conn.Exec(ctx, `SELECT count(*) FROM bulk WHERE tenant = $1`, key)
		}
		if err != nil {
			t.unblock()
		}
		return err
	})
	arm()
}

// unblock ends the transaction of late.
func (t *trial) unblock() {
	if t.blocker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = t.blocker.Close(ctx)
		t.blocker = nil
	}
}

// keyIn is a tenant whose rows are in a part.
func (t *trial) keyIn(part shardmap.Part) int {
	t.t.Helper()
	own := t.snapshot().Keys("bank", part)
	first := t.r.IntN(tenants)
	for i := range tenants {
		n := (first + i) % tenants
		key, err := keyspace.ParseKey([]keyspace.Type{keyspace.Int8}, []string{strconv.Itoa(n)})
		if err == nil && own.Owns(key) {
			return n
		}
	}
	t.t.Fatalf("no tenant is in %s", part.Text())
	return 0
}

// unpinned is a tenant without a pin.
func (t *trial) unpinned() string {
	t.t.Helper()
	snap := t.snapshot()
	ix, _ := snap.Keyspace("bank")
	for {
		key := strconv.Itoa(t.r.IntN(tenants))
		if !slices.ContainsFunc(ix.Def().Pins, func(p shardmap.Pin) bool { return slices.Equal(p.Key, []string{key}) }) {
			return key
		}
	}
}

// pin puts a key on the other shard, with its rows.
func (t *trial) pin(key string) {
	t.t.Helper()
	owner, err := t.snapshot().OwnerOf("bank", shardmap.Part{Key: []string{key}})
	if err != nil {
		t.t.Fatal(err)
	}
	t.source, t.target = number(owner), 1-number(owner)
	t.eventually("a key is pinned", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := t.ops.Pin(ctx, admin.PinRequest{Meta: meta, Keyspace: "bank", Key: []string{key}, Shard: fmt.Sprintf("s%d", t.target)})
		return err
	})
	t.newest()
}

// unpin puts a key back where its range is.
func (t *trial) unpin(key string) {
	t.t.Helper()
	t.eventually("a pin is removed", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := t.ops.Unpin(ctx, admin.UnpinRequest{Meta: meta, Keyspace: "bank", Key: []string{key}})
		return err
	})
	t.newest()
}

// newest takes the id of the workflow that was begun last.
func (t *trial) newest() {
	t.t.Helper()
	t.eventually("the workflows can be listed", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		list, err := t.ops.Moves(ctx, "")
		if err == nil {
			t.id = list[0].ID
		}
		return err
	})
}

// split cuts a range into halves.
func (t *trial) split(rng shardmap.Range) {
	t.t.Helper()
	t.source, t.target = number(rng.Shard), 1-number(rng.Shard)
	t.asked("split", func(ctx context.Context) (*admin.WorkflowResult, error) {
		low, high := "", ""
		if rng.Low != nil {
			low = rng.Low[0]
		}
		if rng.High != nil {
			high = rng.High[0]
		}
		return t.ops.Split(ctx, admin.SplitRequest{Meta: meta, ID: t.id, Keyspace: "bank", Range: low + ".." + high})
	})
}

func (t *trial) drain(arm func(), shard string) {
	t.t.Helper()
	arm()
	t.asked("drain", func(ctx context.Context) (*admin.WorkflowResult, error) {
		return t.ops.Drain(ctx, admin.DrainRequest{Meta: meta, ID: t.id, Shard: shard, MoveOptions: admin.MoveOptions{Keep: "0"}})
	})
}

// bound is one between ranges of different shards, or of one shard. It is made if there is none.
func (t *trial) bound(different bool) (at []string, lower, upper string) {
	t.t.Helper()
	for {
		list := t.ranges()
		for i := 1; i < len(list); i++ {
			if (list[i-1].Shard != list[i].Shard) == different {
				return list[i].Low, list[i-1].Shard, list[i].Shard
			}
		}
		if len(list) == 1 {
			t.before(func() { t.split(list[0]) })
		} else {
			t.before(func() { t.move(list[0], workflow.Options{KeepMS: -1}) })
		}
	}
}

// before carries a workflow out to which nothing happens.
func (t *trial) before(begin func()) {
	t.t.Helper()
	id := t.id
	t.prepared++
	t.id = fmt.Sprintf("%s-before-%d", id, t.prepared)
	begin()
	t.await(t.id, workflow.Done)
	t.id = id
}

// crowd brings everything onto one shard, in at least two ranges.
func (t *trial) crowd() {
	t.t.Helper()
	list := t.ranges()
	if len(list) == 1 {
		t.before(func() { t.split(list[0]) })
	}
	from := t.r.IntN(2)
	if slices.ContainsFunc(t.ranges(), func(r shardmap.Range) bool { return number(r.Shard) == from }) {
		t.before(func() { t.drain(func() {}, fmt.Sprintf("s%d", from)) })
	}
	t.source, t.target = 1-from, from
}

// join makes two ranges of one shard one.
func (t *trial) join() {
	t.t.Helper()
	at, _, _ := t.bound(false)
	t.before(func() {
		t.asked("merge", func(ctx context.Context) (*admin.WorkflowResult, error) {
			return t.ops.Merge(ctx, admin.MergeRequest{Meta: meta, ID: t.id, Keyspace: "bank", At: at})
		})
	})
}

// tidy keeps ranges and pins few.
func (t *trial) tidy() {
	t.t.Helper()
	for len(t.ranges()) > 4 {
		t.join()
	}
	ix, _ := t.snapshot().Keyspace("bank")
	for _, p := range ix.Def().Pins {
		t.eventually("a pin is removed", func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err := t.ops.Unpin(ctx, admin.UnpinRequest{Meta: meta, Keyspace: "bank", Key: p.Key})
			if err != nil {
				return err
			}
			list, err := t.ops.Moves(ctx, "")
			if err == nil && len(list) > 0 && !list[0].Ended {
				t.await(list[0].ID, workflow.Done)
			}
			return err
		})
	}
}
