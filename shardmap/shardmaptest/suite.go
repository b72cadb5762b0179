// Package shardmaptest is the conformance suite of [shardmap.Directory]: what
// every implementation has to pass, whatever it stores the map in.
package shardmaptest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// patience bounds every wait of the suite. It is long because a machine can be
// busy; nothing waits for it unless the directory is wrong.
const patience = 30 * time.Second

// Store opens handles on one store that was empty at first. Handles are closed
// by the suite.
type Store func() shardmap.Directory

// Run runs the suite on a directory that offers one handle per store. open is
// called once for each test and returns an empty directory.
func Run(t *testing.T, open func(t *testing.T) shardmap.Directory) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			leaks(t)
			d := open(t)
			defer closing(t, d)
			c.test(t, d)
		})
	}
	t.Run("Close", func(t *testing.T) {
		leaks(t)
		testClose(t, open(t))
	})
}

// RunShared runs the suite, and what concerns several handles on one store:
// those of several processes behave like them. store is called once for each test.
func RunShared(t *testing.T, store func(t *testing.T) Store) {
	t.Helper()
	Run(t, func(t *testing.T) shardmap.Directory { return store(t)() })
	for _, c := range sharedCases {
		t.Run(c.name, func(t *testing.T) {
			leaks(t)
			c.test(t, store(t))
		})
	}
}

// leaks fails the test if a goroutine outlives it. What ran before is not its
// concern.
func leaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

func closing(t *testing.T, d shardmap.Directory) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

var cases = []struct {
	name string
	test func(*testing.T, shardmap.Directory)
}{
	{"Empty", testEmpty},
	{"Create", testCreate},
	{"CompareAndSet", testCompareAndSet},
	{"ConcurrentUpdaters", testConcurrent},
	{"InvalidIsNotStored", testInvalid},
	{"ChangeIsChecked", testChange},
	{"Stamps", testStamps},
	{"Transits", testTransits},
	{"Isolation", testIsolation},
	{"Watch", testWatch},
	{"WatchBeforeFirst", testWatchBeforeFirst},
	{"WatchSlowReader", testWatchSlow},
	{"WatchManyAndEnd", testWatchMany},
	{"History", testHistory},
	{"Find", testFind},
	{"At", testAt},
	{"BigMap", testBig},
	{"Contexts", testContexts},
	{"Records", testRecords},
	{"RecordLists", testRecordLists},
	{"RecordRace", testRecordRace},
	{"Join", testJoin},
	{"Ask", testAsk},
	{"LeaseKept", testLeaseKept},
	{"Election", testElection},
}

// State returns a valid first state with the shards shard-0 and shard-1 and a
// hash keyspace "tenant" of four ranges.
func State(t testing.TB) shardmap.State {
	t.Helper()
	s := shardmap.State{
		Format:       shardmap.Format,
		Cluster:      "3f8a1c52-5f6e-4c1e-9b43-0a4b8d1c7e11",
		DefaultShard: "shard-0",
		Shards: []shardmap.Shard{
			{Name: "shard-0", Engine: "sqlite", URL: "file:/data/shard-0.db", Weight: 1},
			{Name: "shard-1", Engine: "postgres", URL: "postgres://u:secret@h/db", Weight: 1, Labels: map[string]string{"region": "eu"}},
		},
	}
	k, err := shardmap.NewHashKeyspace("tenant", []keyspace.Type{keyspace.Int8}, s.Shards, 4)
	if err != nil {
		t.Fatalf("NewHashKeyspace: %v", err)
	}
	s.PutKeyspace(k)
	return s
}

func change(expect uint64, why string) shardmap.Change {
	return shardmap.Change{Expect: expect, By: "suite", Why: why, Op: "test"}
}

// create stores the first version.
func create(t *testing.T, d shardmap.Directory) *shardmap.Snapshot {
	t.Helper()
	snap, err := d.Update(t.Context(), change(0, "first"), State(t))
	if err != nil {
		t.Fatalf("the first Update: %v", err)
	}
	return snap
}

// relabel stores a further version, told apart by a label.
func relabel(ctx context.Context, d shardmap.Directory, from *shardmap.Snapshot, label string) (*shardmap.Snapshot, error) {
	next := from.State().Clone()
	next.Shards[0].Labels = map[string]string{"n": label}
	return d.Update(ctx, change(from.Version(), "label "+label), next)
}

func mustRelabel(t *testing.T, d shardmap.Directory, from *shardmap.Snapshot, label string) *shardmap.Snapshot {
	t.Helper()
	snap, err := relabel(t.Context(), d, from, label)
	if err != nil {
		t.Fatalf("Update from version %d: %v", from.Version(), err)
	}
	return snap
}

func mustLoad(t *testing.T, d shardmap.Directory) *shardmap.Snapshot {
	t.Helper()
	snap, err := d.Load(t.Context())
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return snap
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

func testEmpty(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	_, err := d.Load(ctx)
	wantErr(t, "Load of an empty directory", err, shardmap.ErrNotFound)
	_, err = d.At(ctx, 1)
	wantErr(t, "At of an empty directory", err, shardmap.ErrNotFound)
	_, err = d.Find(ctx, "x")
	wantErr(t, "Find in an empty directory", err, shardmap.ErrNotFound)
	if list, err := d.History(ctx, 0, 10); err != nil || len(list) != 0 {
		t.Fatalf("History of an empty directory: %v, %v", list, err)
	}
	_, err = d.Update(ctx, change(1, "from a version that never was"), State(t))
	wantErr(t, "Update of an empty directory from version 1", err, shardmap.ErrConflict)
}

func testCreate(t *testing.T, d shardmap.Directory) {
	snap := create(t, d)
	if snap.Version() != 1 || snap.SchemaVersion() != 1 {
		t.Fatalf("the first version is %d, schema %d; want 1, 1", snap.Version(), snap.SchemaVersion())
	}
	if got := mustLoad(t, d); !reflect.DeepEqual(got.State(), snap.State()) {
		t.Fatalf("Load gives\n%+v\nUpdate gave\n%+v", got.State(), snap.State())
	}
	_, err := d.Update(t.Context(), change(0, "again"), State(t))
	wantErr(t, "a second creation", err, shardmap.ErrConflict)
	if v := mustLoad(t, d).Version(); v != 1 {
		t.Fatalf("after a refused creation the version is %d", v)
	}
}

func testCompareAndSet(t *testing.T, d shardmap.Directory) {
	v1 := create(t, d)
	v2 := mustRelabel(t, d, v1, "two")
	if v2.Version() != 2 || v2.State().Shards[0].Labels["n"] != "two" {
		t.Fatalf("the second version is %+v", v2.State())
	}
	_, err := relabel(t.Context(), d, v1, "late")
	wantErr(t, "an Update from an old version", err, shardmap.ErrConflict)
	if code := sqlstate.CodeOf(err); code != sqlstate.SerializationFailure {
		t.Fatalf("a conflict has SQLSTATE %s, want 40001", code)
	}
	next := v2.State().Clone()
	_, err = d.Update(t.Context(), change(7, "early"), next)
	wantErr(t, "an Update from a version to come", err, shardmap.ErrConflict)
	if got := mustLoad(t, d); got.Version() != 2 || got.State().Shards[0].Labels["n"] != "two" {
		t.Fatalf("after conflicts: %+v", got.State())
	}
	if list, err := d.History(t.Context(), 0, 10); err != nil || len(list) != 2 {
		t.Fatalf("conflicts left %d lines of history, want 2 (%v)", len(list), err)
	}
}

// race has workers that each make count changes, whatever it takes, through
// the handle that pick returns. It checks that each version has one winner.
func race(t *testing.T, workers, count int, pick func(worker int) shardmap.Directory) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	winner := map[uint64]string{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			d := pick(w)
			for n := 0; n < count; {
				from, err := d.Load(ctx)
				if err != nil {
					t.Errorf("Load: %v", err)
					return
				}
				label := fmt.Sprintf("%d/%d", w, n)
				made, err := relabel(ctx, d, from, label)
				if errors.Is(err, shardmap.ErrConflict) {
					continue
				}
				if err != nil {
					t.Errorf("Update: %v", err)
					return
				}
				if made.Version() != from.Version()+1 {
					t.Errorf("a change from version %d made version %d", from.Version(), made.Version())
				}
				mu.Lock()
				if other, taken := winner[made.Version()]; taken {
					t.Errorf("version %d was given to %s and to %s", made.Version(), other, label)
				}
				winner[made.Version()] = label
				mu.Unlock()
				n++
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	d := pick(0)
	last := mustLoad(t, d).Version()
	if want := uint64(1 + workers*count); last != want {
		t.Fatalf("after %d changes the version is %d", want, last)
	}
	list, err := d.History(ctx, 1, workers*count+1)
	if err != nil {
		t.Fatalf("History: %v", err)
	}
	for i, e := range list {
		if e.Version != uint64(i+2) || e.Why != "label "+winner[e.Version] {
			t.Fatalf("line %d of the history is %+v; version %d was made by %q", i, e, i+2, winner[uint64(i+2)])
		}
	}
	if len(list) != workers*count {
		t.Fatalf("the history has %d lines after the first, want %d", len(list), workers*count)
	}
}

func testConcurrent(t *testing.T, d shardmap.Directory) {
	create(t, d)
	race(t, 6, 10, func(int) shardmap.Directory { return d })
}

func testInvalid(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	bad := State(t)
	bad.Keyspaces[0].Ranges[1].Shard = "nowhere"
	_, err := d.Update(ctx, change(0, "invalid"), bad)
	wantErr(t, "an invalid first state", err, shardmap.ErrInvalid)
	_, err = d.Load(ctx)
	wantErr(t, "Load after a refused creation", err, shardmap.ErrNotFound)

	v1 := create(t, d)
	for name, spoil := range map[string]func(*shardmap.State){
		"a gap":            func(s *shardmap.State) { s.Keyspaces[0].Ranges = s.Keyspaces[0].Ranges[1:] },
		"no default shard": func(s *shardmap.State) { s.DefaultShard = "" },
		"another format":   func(s *shardmap.State) { s.Format = shardmap.Format + 1 },
		"a shard twice":    func(s *shardmap.State) { s.Shards = append(s.Shards, s.Shards[0]) },
		"a weight of zero": func(s *shardmap.State) { s.Shards[0].Weight = 0 },
		"a lost keyspace": func(s *shardmap.State) {
			s.PutTable(shardmap.Table{Schema: "public", Name: "t", Kind: shardmap.Sharded})
		},
		"another cluster":    func(s *shardmap.State) { s.Cluster = "other" },
		"an owner that left": func(s *shardmap.State) { s.DropShard("shard-1") },
	} {
		next := v1.State().Clone()
		spoil(&next)
		if snap, err := d.Update(ctx, change(1, name), next); err == nil {
			t.Fatalf("%s was stored as version %d", name, snap.Version())
		}
	}
	if got := mustLoad(t, d); !reflect.DeepEqual(got.State(), v1.State()) {
		t.Fatalf("after refused changes the map is\n%+v", got.State())
	}
	if list, err := d.History(ctx, 0, 10); err != nil || len(list) != 1 {
		t.Fatalf("refused changes left %d lines of history, want 1 (%v)", len(list), err)
	}
	// And the next good change is version 2.
	if v := mustRelabel(t, d, v1, "good").Version(); v != 2 {
		t.Fatalf("the next version is %d, want 2", v)
	}
}

func testChange(t *testing.T, d shardmap.Directory) {
	for name, c := range map[string]shardmap.Change{
		"nobody":           {Op: "test"},
		"nothing":          {By: "suite"},
		"a long why":       {By: "suite", Op: "test", Why: string(make([]byte, 1<<20))},
		"bytes for text":   {By: "suite", Op: "test", Why: "\xff"},
		"a zero byte":      {By: "suite", Op: "test", Statement: "a\x00b"},
		"a nameless table": {By: "suite", Op: "test", Tables: []string{""}},
	} {
		if _, err := d.Update(t.Context(), c, State(t)); err == nil {
			t.Fatalf("a change with %s was stored", name)
		}
	}
	create(t, d)
}

func testStamps(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	first := State(t)
	// What the caller says about versions and epochs does not count.
	first.Version, first.SchemaVersion = 40, 30
	first.Keyspaces[0].Ranges[0].Epoch = 9
	v1, err := d.Update(ctx, change(0, "first"), first)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	for i, r := range v1.State().Keyspaces[0].Ranges {
		if r.Epoch != 1 {
			t.Fatalf("range %d of the first version has epoch %d", i, r.Epoch)
		}
	}
	next := v1.State().Clone()
	next.Keyspaces[0].Ranges[1].Shard = "shard-1"
	if err := next.PutPin("tenant", []string{"007"}, "shard-0"); err != nil {
		t.Fatalf("PutPin: %v", err)
	}
	v2, err := d.Update(ctx, change(1, "move and pin"), next)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	k := v2.State().Keyspaces[0]
	for i, want := range []uint64{1, 2, 1, 1} {
		if k.Ranges[i].Epoch != want {
			t.Fatalf("after range 1 moved in version 2, range %d has epoch %d, want %d", i, k.Ranges[i].Epoch, want)
		}
	}
	if len(k.Pins) != 1 || k.Pins[0].Epoch != 2 || k.Pins[0].Key[0] != "7" {
		t.Fatalf("the pins are %+v", k.Pins)
	}
	if v2.SchemaVersion() != 1 {
		t.Fatalf("a move made schema version %d", v2.SchemaVersion())
	}
	next = v2.State().Clone()
	next.PutTable(shardmap.Table{Schema: "public", Name: "orders", Kind: shardmap.Sharded, Keyspace: "tenant", ShardKey: []string{"id"},
		Columns: []shardmap.Column{{Name: "id", Type: "bigint", OID: 20, NotNull: true}}})
	v3, err := d.Update(ctx, change(2, "table"), next)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	if v3.SchemaVersion() != 3 {
		t.Fatalf("a new table made schema version %d, want 3", v3.SchemaVersion())
	}
	v4 := mustRelabel(t, d, v3, "x")
	if v4.SchemaVersion() != 3 || v4.State().Keyspaces[0].Ranges[1].Epoch != 2 || v4.State().Keyspaces[0].Pins[0].Epoch != 2 {
		t.Fatalf("a label changed the schema version or an epoch: %+v", v4.State())
	}
	// A schema change that no table of the map shows: a type, say.
	typed := change(v4.Version(), "a type")
	typed.Statement = "CREATE TYPE mood AS ENUM ()"
	v5, err := d.Update(ctx, typed, v4.State().Clone())
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	if v5.SchemaVersion() != 5 {
		t.Fatalf("a statement that changes no table made schema version %d, want 5", v5.SchemaVersion())
	}
	v4 = v5
	if got := mustLoad(t, d); !reflect.DeepEqual(got.State(), v4.State()) {
		t.Fatalf("Load gives\n%+v\nUpdate gave\n%+v", got.State(), v4.State())
	}
}

// testTransits: a transit is stored and found again, and what it protects is.
func testTransits(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	v1 := create(t, d)
	r := v1.State().Keyspaces[0].Ranges[0]
	to := "shard-1"
	if r.Shard == to {
		to = "shard-0"
	}
	moving := shardmap.Transit{ID: "m1", Part: shardmap.Part{Low: r.Low, High: r.High}, From: r.Shard, To: to, Hold: shardmap.HoldNew}
	next := v1.State().Clone()
	next.PutTransit("tenant", moving)
	v2, err := d.Update(ctx, change(v1.Version(), "begin to move"), next)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	got := mustLoad(t, d)
	if !reflect.DeepEqual(got.State(), v2.State()) || !got.Holding() {
		t.Fatalf("Load gives\n%+v\nUpdate gave\n%+v", got.State(), v2.State())
	}
	if _, tr := got.Transit("m1"); tr == nil || tr.Epoch != v2.Version() || got.SchemaVersion() != v1.SchemaVersion() {
		t.Fatalf("the transit is %+v, the schema version %d", tr, got.SchemaVersion())
	}
	moved := v2.State().Clone()
	if err := moved.SetOwner("tenant", moving.Part, to); err != nil {
		t.Fatalf("SetOwner: %v", err)
	}
	c := change(v2.Version(), "move")
	if _, err := d.Update(ctx, c, moved); err == nil {
		t.Fatal("a part in transit got another owner by a change that was not made for it")
	}
	c.Transit = "m1"
	v3, err := d.Update(ctx, c, moved)
	if err != nil {
		t.Fatalf("Update for the transit: %v", err)
	}
	if keys, ok := v3.Strangers("tenant", r.Shard); !ok || keys.Epoch != v2.Version() {
		t.Fatalf("the former owner's strangers are %+v", keys)
	}
}

func testIsolation(t *testing.T, d shardmap.Directory) {
	s := State(t)
	v1, err := d.Update(t.Context(), change(0, "first"), s)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	// The caller's state is neither changed nor kept.
	if s.Version != 0 || s.Keyspaces[0].Ranges[0].Epoch != 0 {
		t.Fatalf("Update changed its argument: %+v", s)
	}
	s.Keyspaces[0].Ranges[0].Shard = "shard-9"
	s.Shards[1].Labels["region"] = "us"
	for _, got := range []*shardmap.Snapshot{v1, mustLoad(t, d)} {
		if got.State().Keyspaces[0].Ranges[0].Shard != "shard-0" || got.State().Shards[1].Labels["region"] != "eu" {
			t.Fatalf("a later change of the argument reached the map: %+v", got.State())
		}
	}
}

func testHistory(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	begin := time.Now().Add(-time.Minute)
	snap := create(t, d)
	st := snap.State().Clone()
	ledger := shardmap.Change{Expect: 1, By: "alice", Why: "orders, \"quoted\"\nand \u2028 more", Op: "ddl",
		Statement: "CREATE TABLE public.orders (id bigint)", Tables: []string{"public.orders", "public.Ä"}, AllShards: true, ID: "change-1"}
	snap, err := d.Update(ctx, ledger, st)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	for n := range 8 {
		snap = mustRelabel(t, d, snap, strconv.Itoa(n))
	}
	all, err := d.History(ctx, 0, 1000)
	if err != nil {
		t.Fatalf("History: %v", err)
	}
	if len(all) != 10 {
		t.Fatalf("the history has %d lines, want 10", len(all))
	}
	for i, e := range all {
		if e.Version != uint64(i+1) {
			t.Fatalf("line %d of the history is of version %d: not oldest first", i, e.Version)
		}
		if e.At.Before(begin) || e.At.After(time.Now().Add(time.Minute)) || e.At.Location() != time.UTC {
			t.Fatalf("version %d was made at %v", e.Version, e.At)
		}
	}
	if want := ledger.Entry(2, all[1].At); !reflect.DeepEqual(all[1], want) {
		t.Fatalf("the history says\n%+v\nwant\n%+v", all[1], want)
	}
	for _, c := range []struct {
		after uint64
		limit int
		want  []uint64
	}{
		{0, 3, []uint64{1, 2, 3}},
		{3, 3, []uint64{4, 5, 6}},
		{8, 100, []uint64{9, 10}},
		{10, 5, nil},
		{1 << 63, 5, nil},
		{0, 0, nil},
		{0, -1, nil},
		{9, int(^uint(0) >> 1), []uint64{10}},
	} {
		list, err := d.History(ctx, c.after, c.limit)
		if err != nil {
			t.Fatalf("History(%d, %d): %v", c.after, c.limit, err)
		}
		var got []uint64
		for _, e := range list {
			got = append(got, e.Version)
		}
		if !slices.Equal(got, c.want) {
			t.Fatalf("History(%d, %d) gives versions %v, want %v", c.after, c.limit, got, c.want)
		}
	}
}

func testFind(t *testing.T, d shardmap.Directory) {
	ctx := t.Context()
	snap := create(t, d)
	with := func(id string) (*shardmap.Snapshot, error) {
		c := change(snap.Version(), "with ID")
		c.ID = id
		return d.Update(ctx, c, snap.State().Clone())
	}
	made, err := with("once")
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	snap = made
	e, err := d.Find(ctx, "once")
	if err != nil || e.Version != made.Version() || e.ID != "once" || e.By != "suite" {
		t.Fatalf("Find gives %+v, %v", e, err)
	}
	_, err = with("once")
	wantErr(t, "a change made twice", err, shardmap.ErrDuplicateID)
	if v := mustLoad(t, d).Version(); v != made.Version() {
		t.Fatalf("a refused change made version %d", v)
	}
	// Changes without an ID are many, and none is found.
	snap = mustRelabel(t, d, snap, "a")
	snap = mustRelabel(t, d, snap, "b")
	for _, id := range []string{"", "never", "once ", "ONCE"} {
		_, err = d.Find(ctx, id)
		wantErr(t, fmt.Sprintf("Find of %q", id), err, shardmap.ErrNotFound)
	}
	// A refused change leaves its ID free.
	c := change(1, "conflict")
	c.ID = "later"
	_, err = d.Update(ctx, c, snap.State().Clone())
	wantErr(t, "a change from an old version", err, shardmap.ErrConflict)
	_, err = d.Find(ctx, "later")
	wantErr(t, "Find of a refused change", err, shardmap.ErrNotFound)
	if _, err = with("later"); err != nil {
		t.Fatalf("Update: %v", err)
	}
}

func testAt(t *testing.T, d shardmap.Directory) {
	snap := create(t, d)
	made := []*shardmap.Snapshot{snap}
	for n := range 12 {
		snap = mustRelabel(t, d, snap, strconv.Itoa(n))
		made = append(made, snap)
	}
	for _, want := range made {
		got, err := d.At(t.Context(), want.Version())
		if err != nil {
			t.Fatalf("At(%d): %v", want.Version(), err)
		}
		if !reflect.DeepEqual(got.State(), want.State()) {
			t.Fatalf("At(%d) gives\n%+v\nstored was\n%+v", want.Version(), got.State(), want.State())
		}
	}
	for _, v := range []uint64{0, 14, 1 << 62, 1<<64 - 1} {
		_, err := d.At(t.Context(), v)
		wantErr(t, fmt.Sprintf("At(%d)", v), err, shardmap.ErrNotFound)
	}
}

func testBig(t *testing.T, d shardmap.Directory) {
	s := State(t)
	k, err := shardmap.NewHashKeyspace("big", []keyspace.Type{keyspace.Text}, s.Shards, 10_000)
	if err != nil {
		t.Fatalf("NewHashKeyspace: %v", err)
	}
	s.PutKeyspace(k)
	v1, err := d.Update(t.Context(), change(0, "big"), s)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	next := v1.State().Clone()
	next.Keyspaces[1].Ranges[5_000].Shard = "shard-0"
	v2, err := d.Update(t.Context(), change(1, "move one range"), next)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	got := mustLoad(t, d)
	if !reflect.DeepEqual(got.State(), v2.State()) {
		t.Fatal("Load gives another map than Update")
	}
	for i, r := range got.State().Keyspaces[1].Ranges {
		want := uint64(1)
		if i == 5_000 {
			want = 2
		}
		if r.Epoch != want {
			t.Fatalf("range %d has epoch %d, want %d", i, r.Epoch, want)
		}
	}
	old, err := d.At(t.Context(), 1)
	if err != nil || !reflect.DeepEqual(old.State(), v1.State()) {
		t.Fatalf("At(1) gives another map than the first Update (%v)", err)
	}
}

func testContexts(t *testing.T, d shardmap.Directory) {
	snap := create(t, d)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for want, ctx := range map[error]context.Context{context.Canceled: ended, context.DeadlineExceeded: late} {
		calls := map[string]func() error{
			"Load":         func() error { _, err := d.Load(ctx); return err },
			"At":           func() error { _, err := d.At(ctx, 1); return err },
			"Update":       func() error { _, err := relabel(ctx, d, snap, "x"); return err },
			"History":      func() error { _, err := d.History(ctx, 0, 1); return err },
			"Find":         func() error { _, err := d.Find(ctx, "x"); return err },
			"Watch":        func() error { _, err := d.Watch(ctx); return err },
			"Record":       func() error { _, err := d.Record(ctx, "k"); return err },
			"PutRecord":    func() error { _, err := d.PutRecord(ctx, "k", nil, 0); return err },
			"DeleteRecord": func() error { return d.DeleteRecord(ctx, "k", 1) },
			"Records":      func() error { _, err := d.Records(ctx, "", "", 1); return err },
			"Join":         func() error { _, _, err := d.Join(ctx, member("x")); return err },
			"Members":      func() error { _, err := d.Members(ctx); return err },
			"Campaign":     func() error { _, err := d.Campaign(ctx, "x", "y"); return err },
		}
		for name, call := range calls {
			wantErr(t, name+" with an ended context", call(), want)
		}
	}
	if v := mustLoad(t, d).Version(); v != 1 {
		t.Fatalf("an Update with an ended context made version %d", v)
	}
	// Contexts that end at any moment: each change is stored if and only if
	// Update says so.
	for n := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n*20)*time.Microsecond)
		made, err := relabel(ctx, d, snap, strconv.Itoa(n))
		cancel()
		now := mustLoad(t, d)
		switch {
		case err == nil && now.Version() == made.Version():
			snap = made
		case err != nil && now.Version() == snap.Version():
			wantErr(t, "an Update whose context ended", err, context.DeadlineExceeded)
		default:
			t.Fatalf("Update says %v, but the version went from %d to %d", err, snap.Version(), now.Version())
		}
	}
}

func testClose(t *testing.T, d shardmap.Directory) {
	snap := create(t, d)
	ch, err := d.Watch(t.Context())
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// Calls under way when it closes end, with a result or ErrClosed.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				if _, err := d.Load(ctx); err != nil {
					if !errors.Is(err, shardmap.ErrClosed) {
						t.Errorf("Load while closing: %v", err)
					}
					return
				}
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	if err := d.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	wg.Wait()
	awaitEnd(t, ch)
	if err := d.Close(); err != nil {
		t.Fatalf("a second Close: %v", err)
	}
	for name, call := range map[string]func() error{
		"Load":         func() error { _, err := d.Load(ctx); return err },
		"At":           func() error { _, err := d.At(ctx, 1); return err },
		"Update":       func() error { _, err := relabel(ctx, d, snap, "x"); return err },
		"History":      func() error { _, err := d.History(ctx, 0, 1); return err },
		"Find":         func() error { _, err := d.Find(ctx, "x"); return err },
		"Watch":        func() error { _, err := d.Watch(ctx); return err },
		"Record":       func() error { _, err := d.Record(ctx, "k"); return err },
		"PutRecord":    func() error { _, err := d.PutRecord(ctx, "k", nil, 0); return err },
		"DeleteRecord": func() error { return d.DeleteRecord(ctx, "k", 1) },
		"Records":      func() error { _, err := d.Records(ctx, "", "", 1); return err },
		"Join":         func() error { _, _, err := d.Join(ctx, member("x")); return err },
		"Members":      func() error { _, err := d.Members(ctx); return err },
		"Campaign":     func() error { _, err := d.Campaign(ctx, "x", "y"); return err },
	} {
		wantErr(t, name+" after Close", call(), shardmap.ErrClosed)
	}
}
