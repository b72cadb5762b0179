package coordinator

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = waitfor.Max

// state is a map with shards a, b and c and a hash keyspace k of four ranges, which a and b have.
func state(t *testing.T) shardmap.State {
	t.Helper()
	st := shardmap.State{Format: shardmap.Format, Cluster: "9f0f1a3e-1111-4222-8333-444455556666", DefaultShard: "a"}
	for _, name := range []string{"a", "b", "c"} {
		st.PutShard(shardmap.Shard{Name: name, Engine: "sqlite", URL: "file:/nowhere/" + name, Weight: 1})
	}
	k, err := shardmap.NewHashKeyspace("k", []keyspace.Type{keyspace.Int8}, st.Shards[:2], 4)
	if err != nil {
		t.Fatal(err)
	}
	st.PutKeyspace(k)
	return st
}

func cluster(t *testing.T) shardmap.Directory {
	t.Helper()
	dir := memory.New()
	t.Cleanup(func() { _ = dir.Close() })
	if _, err := dir.Update(t.Context(), shardmap.Change{By: "test", Op: "bootstrap"}, state(t)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func put(t *testing.T, dir shardmap.Directory, spec workflow.Spec) {
	t.Helper()
	spec.By, spec.Options = "test", spec.WithDefaults()
	s := workflow.New(spec, time.Now().UnixMilli())
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.PutRecord(t.Context(), workflow.RecordPrefix+spec.ID, b, 0); err != nil {
		t.Fatal(err)
	}
	if err := Kick(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, dir shardmap.Directory, id string, ok func(s *workflow.State) bool) workflow.State {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		r, err := dir.Record(t.Context(), workflow.RecordPrefix+id)
		if err != nil {
			t.Fatal(err)
		}
		s, err := workflow.Decode(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if ok(&s) {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", s)
		}
	}
}

// run starts a coordinator of shards that are all down.
func run(t *testing.T, dir shardmap.Directory, step func(string, workflow.Op, bool) error) {
	t.Helper()
	c := New(Options{Directory: dir, Candidate: "test", Shard: func(name string) (engine.Shard, error) {
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "shard %s is down", name)
	}, step: step})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
}

func ended(s *workflow.State) bool { return s.Step.Ended() }

func TestSplitAndMergeAreChangesOfTheMap(t *testing.T) {
	dir := cluster(t)
	run(t, dir, nil)
	put(t, dir, workflow.Spec{ID: "s", Kind: workflow.Split, Keyspace: "k", At: []string{"17"}})
	if s := await(t, dir, "s", ended); s.Step != workflow.Done {
		t.Fatalf("%+v", s)
	}
	snap, err := dir.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(snap.State().Keyspaces[0].Ranges); n != 5 {
		t.Fatalf("%d ranges", n)
	}
	put(t, dir, workflow.Spec{ID: "m", Kind: workflow.Merge, Keyspace: "k", At: []string{"17"}})
	if s := await(t, dir, "m", ended); s.Step != workflow.Done {
		t.Fatalf("%+v", s)
	}
	if snap, err = dir.Load(t.Context()); err != nil || len(snap.State().Keyspaces[0].Ranges) != 4 {
		t.Fatalf("%v, %v", snap.State().Keyspaces[0].Ranges, err)
	}
}

// TestAMoveWaitsForItsShards: what cannot be done now is tried again, is seen to be, and can be cancelled.
func TestAMoveWaitsForItsShards(t *testing.T) {
	dir := cluster(t)
	run(t, dir, nil)
	put(t, dir, workflow.Spec{ID: "m", Kind: workflow.Move, Keyspace: "k", Part: shardmap.Part{Low: []string{"0"}}, From: "b", To: "c"})
	s := await(t, dir, "m", func(s *workflow.State) bool { return s.Tries > 1 })
	if s.Step != workflow.Planned || s.Error == "" {
		t.Fatalf("%+v", s)
	}
	if _, err := Ask(t.Context(), dir, "m", workflow.Cancel, "me", nil); err != nil {
		t.Fatal(err)
	}
	if err := Kick(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if s := await(t, dir, "m", ended); s.Step != workflow.Cancelled {
		t.Fatalf("%+v", s)
	}
	if _, err := Ask(t.Context(), dir, "none", workflow.Cancel, "me", nil); sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
		t.Error(err)
	}
	put(t, dir, workflow.Spec{ID: "wrong", Kind: workflow.Move, Keyspace: "k", Part: shardmap.Part{Low: []string{"0"}}, From: "a", To: "c"})
	if s := await(t, dir, "wrong", ended); s.Step != workflow.Failed || s.Error == "" {
		t.Fatalf("%+v", s)
	}
}

// TestADeposedLeaderChangesNothing: the second coordinator leads; what the first was about to
// store is refused.
func TestADeposedLeaderChangesNothing(t *testing.T) {
	dir := cluster(t)
	first, err := dir.Campaign(t.Context(), Election, "first")
	if err != nil {
		t.Fatal(err)
	}
	old := newTerm(New(Options{Directory: dir}), first.Token())
	spec := workflow.Spec{ID: "m", Kind: workflow.Move, Keyspace: "k", Part: shardmap.Part{Low: []string{"0"}}, From: "b", To: "c"}
	put(t, dir, spec)
	j := newJob(old, workflow.State{Spec: spec}, 0)
	s, err := j.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, dir, func(string, workflow.Op, bool) error { return errors.New("it does nothing") })
	if _, err := j.store(t.Context(), s, workflow.Event{Kind: workflow.EventDone, Seq: s.Seq}); !errors.Is(err, shardmap.ErrDeposed) {
		t.Errorf("stored: %v", err)
	}
	if err := j.putTransit(t.Context(), &s); !errors.Is(err, shardmap.ErrDeposed) {
		t.Errorf("the map was changed: %v", err)
	}
}

// TestAnOpenedMoveGivesItsPlace: the next one does not wait for the leader's look at all.
func TestAnOpenedMoveGivesItsPlace(t *testing.T) {
	dir := cluster(t)
	leader := &term{c: New(Options{Directory: dir}), records: dir, kick: make(chan struct{}, 1)}
	s := workflow.New(workflow.Spec{ID: "m", Kind: workflow.Move, Keyspace: "k", Part: shardmap.Part{Low: []string{"0"}}, From: "b", To: "c",
		Options: workflow.Options{KeepMS: 1000}.WithDefaults()}, time.Now().UnixMilli())
	s.Step = workflow.Opening
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	rev, err := dir.PutRecord(t.Context(), workflow.RecordPrefix+"m", b, 0)
	if err != nil {
		t.Fatal(err)
	}
	j := newJob(leader, s, rev)
	if s, err = j.store(t.Context(), s, workflow.Event{Kind: workflow.EventDone, Seq: s.Seq}); err != nil || s.Step != workflow.Opened {
		t.Fatalf("%+v, %v", s, err)
	}
	if len(leader.kick) != 1 {
		t.Error("nobody looks for a move that can begin")
	}
}

func TestPlans(t *testing.T) {
	snap, err := shardmap.NewSnapshot(state(t))
	if err != nil {
		t.Fatal(err)
	}
	drain, err := Plan(snap, &workflow.Spec{Kind: workflow.Drain, From: "a"})
	if err != nil || len(drain) != 2 || drain[0].From != "a" || drain[0].To == "a" || drain[1].To == "a" {
		t.Errorf("%v %v", drain, err)
	}
	if drain, err = Plan(snap, &workflow.Spec{Kind: workflow.Drain, From: "a", To: "c"}); err != nil || len(drain) != 2 || drain[0].To != "c" {
		t.Errorf("%v %v", drain, err)
	}
	spread, err := Plan(snap, &workflow.Spec{Kind: workflow.Spread})
	if err != nil || len(spread) != 1 || spread[0].To != "c" {
		t.Errorf("%v %v", spread, err)
	}
	low := snap.State().Keyspaces[0].Ranges[2].Low
	merge, err := Plan(snap, &workflow.Spec{Kind: workflow.Merge, Keyspace: "k", At: low})
	if err != nil || len(merge) != 1 || merge[0].From != "b" || merge[0].To != "a" || merge[0].KeepMS != -1 {
		t.Errorf("%v %v", merge, err)
	}
	for _, part := range []shardmap.Part{{}, {Low: []string{"0"}, High: []string{"1000"}}, {Low: low}} {
		half := SplitPoint{Snapshot: snap, Keyspace: "k", Part: part, By: SplitByPositions}
		if at, err := half.Bound(t.Context()); err == nil {
			t.Errorf("%s is no range, and is cut at %v", part.Text(), at)
		}
	}
	r := snap.State().Keyspaces[0].Ranges[2]
	half := SplitPoint{Snapshot: snap, Keyspace: "k", Part: shardmap.Part{Low: r.Low, High: r.High}}
	if at, err := half.Bound(t.Context()); err != nil {
		t.Errorf("%v %v", at, err)
	}
	if at, err := Middle(snap, "k", shardmap.Part{Low: []string{"0"}, High: []string{"1000"}}); err != nil || at[0] != "500" {
		t.Errorf("%v %v", at, err)
	}
}
