package shardmap_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func change(expect uint64) shardmap.Change {
	return shardmap.Change{Expect: expect, By: "test", Op: "test"}
}

func first(t testing.TB, s shardmap.State) *shardmap.Snapshot {
	t.Helper()
	snap, err := shardmap.Advance(nil, change(0), s)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// step makes the next version by an edit.
func step(t testing.TB, prev *shardmap.Snapshot, edit func(*shardmap.State)) *shardmap.Snapshot {
	t.Helper()
	s := prev.State().Clone()
	edit(&s)
	snap, err := shardmap.Advance(prev, change(prev.Version()), s)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// epochs lists all epochs of a keyspace: ranges, values, pins.
func epochs(s *shardmap.Snapshot, ks int) string {
	var out []uint64
	k := s.State().Keyspaces[ks]
	for _, r := range k.Ranges {
		out = append(out, r.Epoch)
	}
	for _, v := range k.Values {
		out = append(out, v.Epoch)
	}
	for _, p := range k.Pins {
		out = append(out, p.Epoch)
	}
	return strings.Trim(fmt.Sprint(out), "[]")
}

func TestEpochs(t *testing.T) {
	s := fullState(t)
	s.Version, s.SchemaVersion = 0, 0
	snap := first(t, s)
	expect := func(what string, want ...string) {
		t.Helper()
		for ks, w := range want {
			if got := epochs(snap, ks); got != w {
				t.Fatalf("version %d, %s: keyspace %d has epochs %s, want %s", snap.Version(), what, ks, got, w)
			}
		}
	}
	expect("the first", "1 1 1 1 1 1 1", "1 1 1 1 1", "1 1 1")

	snap = step(t, snap, func(s *shardmap.State) { s.Keyspaces[0].Ranges[3].Shard = "shard-0" })
	expect("a range moves", "1 1 1 2 1 1 1", "1 1 1 1 1", "1 1 1")

	snap = step(t, snap, func(s *shardmap.State) {
		r := s.Keyspaces[1].Ranges
		split := slices.Concat(r[:1], []shardmap.Range{
			{Low: []string{"d"}, High: []string{"f"}, Shard: r[1].Shard},
			{Low: []string{"f"}, High: r[1].High, Shard: r[1].Shard},
		}, r[2:])
		s.Keyspaces[1].Ranges = split
	})
	expect("a range is split", "1 1 1 2 1 1 1", "1 3 3 1 1 1", "1 1 1")

	snap = step(t, snap, func(s *shardmap.State) {
		r := s.Keyspaces[1].Ranges
		r[0].High = r[1].High
		s.Keyspaces[1].Ranges = slices.Delete(r, 1, 2)
	})
	expect("two are merged", "1 1 1 2 1 1 1", "4 3 1 1 1", "1 1 1")

	snap = step(t, snap, func(s *shardmap.State) {
		s.Keyspaces[2].Values[0].Shard = "shard-1"
		s.Keyspaces[2].Values = append([]shardmap.ListValue{{Key: []string{"ar"}, Shard: "shard-0"}}, s.Keyspaces[2].Values...)
	})
	expect("a value moves, another comes", "1 1 1 2 1 1 1", "4 3 1 1 1", "5 5 1 1")

	snap = step(t, snap, func(s *shardmap.State) {
		if err := s.PutPin("tenant", []string{"042"}, "shard-1"); err != nil {
			t.Fatal(err)
		}
		if err := s.PutPin("tenant", []string{"43"}, "shard-1"); err != nil {
			t.Fatal(err)
		}
	})
	expect("a pin moves, another comes", "1 1 1 2 1 1 6 6", "4 3 1 1 1", "5 5 1 1")

	snap = step(t, snap, func(s *shardmap.State) {
		if ok, err := s.DropPin("tenant", []string{"+42"}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if ok, err := s.DropPin("tenant", []string{"44"}); ok || err != nil {
			t.Fatal(ok, err)
		}
	})
	expect("a pin goes, whose key comes to its range's shard", "1 1 1 2 1 7 6", "4 3 1 1 1", "5 5 1 1")
	if snap.SchemaVersion() != 1 {
		t.Fatalf("moves made schema version %d", snap.SchemaVersion())
	}

	// What the caller writes into epochs is not believed; the order of
	// keyspaces, tables, shards and pins says nothing.
	snap = step(t, snap, func(s *shardmap.State) {
		for i := range s.Keyspaces[0].Ranges {
			s.Keyspaces[0].Ranges[i].Epoch = 77
		}
		slices.Reverse(s.Shards)
		slices.Reverse(s.Tables)
		s.Version, s.SchemaVersion = 500, 600
	})
	expect("epochs are forged", "1 1 1 2 1 7 6", "4 3 1 1 1", "5 5 1 1")
	if snap.Version() != 8 || snap.SchemaVersion() != 1 {
		t.Fatalf("forged versions gave %d, %d", snap.Version(), snap.SchemaVersion())
	}

	// A keyspace that is made anew under its old name keeps nothing.
	snap = step(t, snap, func(s *shardmap.State) { s.Keyspaces[2].Types[0] = keyspace.Varchar })
	expect("a keyspace is redefined", "1 1 1 2 1 7 6", "4 3 1 1 1", "9 9 9 9")
	if snap.SchemaVersion() != 9 {
		t.Fatalf("a redefined keyspace made schema version %d", snap.SchemaVersion())
	}
}

func TestSchemaVersion(t *testing.T) {
	s := fullState(t)
	for name, c := range map[string]struct {
		edit func(*shardmap.State)
		want uint64
	}{
		"nothing":            {func(*shardmap.State) {}, 1},
		"a label":            {func(s *shardmap.State) { s.Shards[0].Labels = map[string]string{"a": "b"} }, 1},
		"a shard":            {func(s *shardmap.State) { s.PutShard(someShards("shard-9")[0]) }, 1},
		"a range":            {func(s *shardmap.State) { s.Keyspaces[0].Ranges[0].Shard = "shard-2" }, 1},
		"a value":            {func(s *shardmap.State) { s.Keyspaces[2].Values = s.Keyspaces[2].Values[:1] }, 1},
		"the order":          {func(s *shardmap.State) { slices.Reverse(s.Tables); slices.Reverse(s.Keyspaces) }, 1},
		"a table":            {func(s *shardmap.State) { s.PutTable(shardmap.Table{Schema: "a", Name: "b", Kind: shardmap.Whole}) }, 2},
		"a table less":       {func(s *shardmap.State) { s.DropTable("other", "orders") }, 2},
		"a column":           {func(s *shardmap.State) { s.Tables[0].Columns[1].Name = "remark" }, 2},
		"not null":           {func(s *shardmap.State) { s.Tables[0].Columns[1].NotNull = true }, 2},
		"a kind":             {func(s *shardmap.State) { s.Tables[2].Kind = shardmap.Reference }, 2},
		"a keyspace less":    {func(s *shardmap.State) { s.DropKeyspace("region") }, 2},
		"a keyspace renamed": {func(s *shardmap.State) { s.Keyspaces[2].Name = "zone" }, 2},
		"a seed":             {func(s *shardmap.State) { s.DropTable("public", "orders"); s.Keyspaces[0].Seed = 4 }, 2},
	} {
		if got := step(t, first(t, s), c.edit).SchemaVersion(); got != c.want {
			t.Errorf("%s gives schema version %d, want %d", name, got, c.want)
		}
	}
}

func TestAdvanceRefuses(t *testing.T) {
	prev := first(t, fullState(t))
	for name, c := range map[string]struct {
		edit func(*shardmap.State)
		says string
	}{
		"another cluster": {func(s *shardmap.State) { s.Cluster = "other" }, "cannot become"},
		"another seed":    {func(s *shardmap.State) { s.Keyspaces[0].Seed = 5 }, "used by table public.orders"},
		"invalid":         {func(s *shardmap.State) { s.DefaultShard = "" }, "default shard"},
	} {
		s := prev.State().Clone()
		c.edit(&s)
		if _, err := shardmap.Advance(prev, change(1), s); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, expect := range []uint64{0, 2} {
		_, err := shardmap.Advance(prev, change(expect), prev.State().Clone())
		var e *sqlstate.Error
		if !errors.Is(err, shardmap.ErrConflict) || !errors.As(err, &e) || e.Retry != sqlstate.RetryTransaction {
			t.Errorf("expecting %d: %v", expect, err)
		}
	}
	if !reflect.DeepEqual(prev.State(), first(t, fullState(t)).State()) {
		t.Error("refused changes changed the snapshot")
	}
}

// TestEpochsModel makes random maps follow each other, and checks each epoch
// against its definition.
func TestEpochsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		snap := first(t, baseState(genKeyspace("k").Draw(rt, "first")))
		type assignment struct{ shard, low, high string }
		read := func(s *shardmap.Snapshot) map[assignment]uint64 {
			def := &s.State().Keyspaces[0]
			m := map[assignment]uint64{}
			kind := fmt.Sprint(def.Strategy, def.Seed, def.Types)
			for _, r := range def.Ranges {
				m[assignment{r.Shard, fmt.Sprintf("%s range %t %q", kind, r.Low == nil, r.Low), fmt.Sprintf("%t %q", r.High == nil, r.High)}] = r.Epoch
			}
			for _, v := range def.Values {
				m[assignment{v.Shard, fmt.Sprintf("%s value %q", kind, v.Key), ""}] = v.Epoch
			}
			for _, p := range def.Pins {
				m[assignment{p.Shard, fmt.Sprintf("%s pin %q", kind, p.Key), ""}] = p.Epoch
			}
			return m
		}
		for range 3 {
			before, prev := read(snap), snap
			snap = step(t, snap, func(s *shardmap.State) {
				if k := &s.Keyspaces[0]; len(k.Pins) > 0 && rapid.Bool().Draw(rt, "a pin goes") {
					n := rapid.IntRange(0, len(k.Pins)-1).Draw(rt, "which")
					k.Pins = slices.Delete(k.Pins, n, n+1)
					return
				}
				if rapid.Bool().Draw(rt, "another map") {
					s.Keyspaces[0] = genKeyspace("k").Draw(rt, "next")
					return
				}
				for i := range s.Keyspaces[0].Ranges {
					if rapid.IntRange(0, 3).Draw(rt, "move") == 0 {
						s.Keyspaces[0].Ranges[i].Shard = rapid.SampledFrom(shardNames).Draw(rt, "to")
					}
				}
			})
			arrived := arrivals(rt, prev, snap)
			for a, epoch := range read(snap) {
				want := snap.Version()
				if arrived[epoch] && epoch == want {
					continue // a pinned key came to it, perhaps
				}
				if old, ok := before[a]; ok {
					want = old
				}
				if epoch != want {
					rt.Fatalf("%+v has epoch %d in version %d, want %d", a, epoch, snap.Version(), want)
				}
			}
		}
	})
}

// arrivals checks that each key that has another owner than before is in an assignment with the epoch of the new map, by which
// statements know that rows may have come to a shard since their transaction began. It returns the epochs of these.
func arrivals(rt *rapid.T, prev, next *shardmap.Snapshot) map[uint64]bool {
	was, _ := prev.Keyspace("k")
	is, _ := next.Keyspace("k")
	out := map[uint64]bool{}
	if !slices.Equal(was.Def().Types, is.Def().Types) {
		return out
	}
	keys := rapid.SliceOfN(genKey(is.Def().Types), 3, 3).Draw(rt, "keys")
	for _, list := range [][]shardmap.Pin{was.Def().Pins, is.Def().Pins} {
		for i := range list {
			k, err := keyspace.ParseKey(is.Def().Types, list[i].Key)
			if err != nil {
				rt.Fatal(err)
			}
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		a, none := was.Locate(k)
		b, err := is.Locate(k)
		if err != nil || none == nil && a.Shard == b.Shard {
			continue
		}
		if b.Epoch != next.Version() {
			rt.Fatalf("key %v came from %q to %q in version %d with epoch %d", k, a.Shard, b.Shard, next.Version(), b.Epoch)
		}
		out[b.Epoch] = true
	}
	return out
}

// TestEditsDoNotReachSnapshots edits plain copies of a snapshot's state, which
// share its lists.
func TestEditsDoNotReachSnapshots(t *testing.T) {
	snap := first(t, fullState(t))
	want := snap.State().Clone()
	s := *snap.State()
	s.PutShard(shardmap.Shard{Name: "shard-0", Engine: "x"})
	s.DropShard("shard-1")
	s.PutTable(shardmap.Table{Schema: "public", Name: "orders"})
	s.DropTable("public", "country")
	for _, ks := range []string{"tenant", "region"} {
		key := map[string]string{"tenant": "42", "region": "asia"}[ks]
		if err := s.PutPin(ks, []string{key}, "shard-2"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DropPin(ks, []string{key}); err != nil {
			t.Fatal(err)
		}
	}
	s.PutKeyspace(shardmap.Keyspace{Name: "place"})
	s.DropKeyspace("tenant")
	if !reflect.DeepEqual(*snap.State(), want) {
		t.Fatalf("the snapshot was edited:\n%+v\nwant\n%+v", *snap.State(), want)
	}
	if len(s.Shards) != 2 || len(s.Tables) != 2 || len(s.Keyspaces) != 2 {
		t.Fatalf("the edits did not reach the copy: %+v", s)
	}
	if s.DropShard("shard-1") || s.DropTable("public", "country") || s.DropKeyspace("tenant") {
		t.Fatal("what is gone was dropped again")
	}
	if err := s.PutPin("tenant", []string{"1"}, "shard-0"); sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
		t.Fatalf("PutPin in a keyspace that is gone: %v", err)
	}
	if err := s.PutPin("region", []string{"a", "b"}, "shard-0"); err == nil {
		t.Fatal("PutPin of two values for one column is accepted")
	}
}

func TestClone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := fullState(t)
		s.PutKeyspace(genKeyspace("k").Draw(rt, "keyspace"))
		c := s.Clone()
		if !reflect.DeepEqual(s, c) {
			rt.Fatalf("the clone differs:\n%+v\n%+v", s, c)
		}
		if shared := sharedMemory(reflect.ValueOf(s), reflect.ValueOf(c)); shared != "" {
			rt.Fatalf("the clone shares %s", shared)
		}
	})
}

// sharedMemory returns the path of a list or map that two equal values share.
func sharedMemory(a, b reflect.Value) string {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if p := sharedMemory(a.Field(i), b.Field(i)); p != "" {
				return a.Type().Field(i).Name + "." + p
			}
		}
	case reflect.Slice:
		if a.Cap() > 0 && a.Len() > 0 && a.Pointer() == b.Pointer() {
			return "a list"
		}
		for i := range a.Len() {
			if p := sharedMemory(a.Index(i), b.Index(i)); p != "" {
				return p
			}
		}
	case reflect.Map:
		if a.Len() > 0 && a.Pointer() == b.Pointer() {
			return "a map"
		}
	}
	return ""
}
