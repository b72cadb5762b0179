package shardmap

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// transitState has a keyspace of each strategy on three shards: hash "h" with
// bounds at the quarters, range "r" cut at 10, 20 and 30, list "l".
func transitState(t testing.TB) State {
	t.Helper()
	s := State{Format: Format, Cluster: "c", DefaultShard: "a"}
	for _, name := range []string{"a", "b", "c"} {
		s.Shards = append(s.Shards, Shard{Name: name, Engine: "sqlite", Weight: 1})
	}
	h, err := NewHashKeyspace("h", []keyspace.Type{keyspace.Int8}, s.Shards, 4)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRangeKeyspace("r", []keyspace.Type{keyspace.Int8}, [][]string{{"10"}, {"20"}, {"30"}}, []string{"a", "b", "a", "c"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewListKeyspace("l", []keyspace.Type{keyspace.Text}, [][]string{{"de"}, {"fr"}, {"us"}}, []string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	s.Keyspaces = []Keyspace{h, r, l}
	return s
}

func int8Key(n int64) keyspace.Key { return keyspace.Key{keyspace.Int(keyspace.Int8, n)} }

func TestKeysOfPart(t *testing.T) {
	s := transitState(t)
	if err := s.PutPin("r", []string{"15"}, "c"); err != nil {
		t.Fatal(err)
	}
	snap, err := NewSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	in := func(p Part, n int64) bool {
		own := snap.Keys("r", p)
		return own.Owns(int8Key(n))
	}
	for _, c := range []struct {
		part Part
		key  int64
		want bool
	}{
		{Part{Low: []string{"10"}, High: []string{"20"}}, 10, true},
		{Part{Low: []string{"10"}, High: []string{"20"}}, 19, true},
		{Part{Low: []string{"10"}, High: []string{"20"}}, 20, false},
		{Part{Low: []string{"10"}, High: []string{"20"}}, 15, false}, // pinned
		{Part{High: []string{"10"}}, -5, true},
		{Part{Low: []string{"030"}}, 30, true},
		{Part{}, 99, true},
		{Part{Key: []string{"15"}}, 15, true},
		{Part{Key: []string{"16"}}, 16, true},
		{Part{Key: []string{"16"}}, 15, false},
		{Part{Key: []string{"x"}}, 15, false},
		{Part{Low: []string{"20"}, High: []string{"10"}}, 15, false},
	} {
		if got := in(c.part, c.key); got != c.want {
			t.Errorf("key %d in part %+v: %v", c.key, c.part, got)
		}
	}
	if own := snap.Keys("nowhere", Part{}); own.Owns(int8Key(1)) {
		t.Error("an unknown keyspace has keys")
	}
	whole := snap.Keys("h", Part{Low: []string{"0"}})
	if !whole.OwnsHash(0) || whole.OwnsHash(-1) || !whole.OwnsHash(1<<62) {
		t.Errorf("the upper half is %+v", whole.Intervals)
	}
	fr := snap.Keys("l", Part{Key: []string{"fr"}})
	if !fr.Owns(keyspace.Key{keyspace.Str(keyspace.Text, "fr")}) || fr.Owns(keyspace.Key{keyspace.Str(keyspace.Text, "de")}) {
		t.Error("the part of a listed value is not that value")
	}
}

// TestStrangersAreTheUnownedSide compares Strangers with its definition, key by
// key, for random transits.
func TestStrangersAreTheUnownedSide(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := transitState(t)
		for range rnd.IntN(4) {
			if err := s.PutPin("r", []string{strconv.Itoa(rnd.IntN(45) - 5)}, string(rune('a'+rnd.IntN(3)))); err != nil {
				t.Fatal(err)
			}
		}
		snap, err := NewSnapshot(s)
		if err != nil {
			t.Fatal(err)
		}
		ix, _ := snap.Keyspace("r")
		var parts []Transit
		add := func(p Part, owner string) {
			from, to := owner, string(rune('a'+rnd.IntN(3)))
			if from == to {
				return
			}
			if rnd.IntN(2) == 0 {
				from, to = to, from
			}
			parts = append(parts, Transit{ID: fmt.Sprint(len(parts)), Part: p, From: from, To: to})
		}
		covered := map[int]bool{}
		for i, r := range ix.Def().Ranges {
			if rnd.IntN(2) == 0 {
				covered[i] = true
				add(Part{Low: r.Low, High: r.High}, r.Shard)
			}
		}
		for _, p := range ix.Def().Pins {
			if rnd.IntN(2) == 0 {
				add(Part{Key: p.Key}, p.Shard)
			}
		}
		if n := int64(rnd.IntN(45) - 5); !covered[ix.LocateRange(int8Key(n))] {
			if a, _ := ix.Locate(int8Key(n)); !a.Pinned {
				add(Part{Key: []string{fmt.Sprint(n)}}, a.Shard)
			}
		}
		for _, tr := range parts {
			s.PutTransit("r", tr)
		}
		if snap, err = NewSnapshot(s); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		ix, _ = snap.Keyspace("r")
		for _, shard := range []string{"a", "b", "c"} {
			keys, ok := snap.Strangers("r", shard)
			any := false
			for n := int64(-8); n < 45; n++ {
				at, err := ix.Locate(int8Key(n))
				if err != nil {
					t.Fatal(err)
				}
				want := false
				for _, tr := range parts {
					in := snap.Keys("r", tr.Part)
					want = want || in.Owns(int8Key(n)) && at.Shard != shard && slices.Contains([]string{tr.From, tr.To}, shard)
				}
				if got := keys.Owns(int8Key(n)); got != want {
					t.Fatalf("seed %d: key %d is a stranger of %s: %v, want %v (transits %+v)", seed, n, shard, got, want, parts)
				}
				any = any || want
			}
			if any && !ok {
				t.Fatalf("seed %d: shard %s has strangers, but is not said to", seed, shard)
			}
			if len(parts) == 0 && ok {
				t.Fatalf("seed %d: strangers without a transit", seed)
			}
		}
	}
}

func mustSnapshot(t testing.TB, s State) *Snapshot {
	t.Helper()
	snap, err := NewSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func TestTransitsAreChecked(t *testing.T) {
	tenth := Part{Low: []string{"10"}, High: []string{"20"}}
	good := Transit{ID: "m-1", Part: tenth, From: "b", To: "c"}
	with := func(edit func(*Transit)) []Transit {
		tr := good
		edit(&tr)
		return []Transit{tr}
	}
	for name, c := range map[string]struct {
		ks   string
		all  []Transit
		code sqlstate.Code
	}{
		"good":               {"r", []Transit{good}, ""},
		"owned by To":        {"r", with(func(t *Transit) { t.From, t.To = "c", "b" }), ""},
		"several ranges":     {"h", []Transit{{ID: "x", Part: Part{Low: []string{"00"}}, From: "b", To: "c"}}, "42P17"}, // b and c own it
		"all of a shard":     {"r", []Transit{{ID: "x", Part: Part{Low: []string{"30"}}, From: "c", To: "a"}}, ""},
		"a key":              {"r", []Transit{{ID: "x", Part: Part{Key: []string{"007"}}, From: "a", To: "b"}}, ""},
		"a listed value":     {"l", []Transit{{ID: "x", Part: Part{Key: []string{"fr"}}, From: "b", To: "a"}}, ""},
		"not listed":         {"l", []Transit{{ID: "x", Part: Part{Key: []string{"gb"}}, From: "b", To: "a"}}, "42P17"},
		"bounds of a list":   {"l", []Transit{{ID: "x", From: "b", To: "a"}}, "42P17"},
		"no owner":           {"r", with(func(t *Transit) { t.From = "a" }), "42P17"},
		"to itself":          {"r", with(func(t *Transit) { t.To = "b" }), "42P17"},
		"no such shard":      {"r", with(func(t *Transit) { t.To = "z" }), "42704"},
		"no id":              {"r", with(func(t *Transit) { t.ID = "" }), "22023"},
		"an odd id":          {"r", with(func(t *Transit) { t.ID = "a b" }), "22023"},
		"an odd hold":        {"r", with(func(t *Transit) { t.Hold = "some" }), "42P17"},
		"half a range":       {"r", with(func(t *Transit) { t.High = []string{"15"} }), "42P17"},
		"two owners":         {"r", with(func(t *Transit) { t.Low = nil }), "42P17"},
		"empty":              {"r", with(func(t *Transit) { t.High = []string{"10"} }), "42P17"},
		"key and bounds":     {"r", with(func(t *Transit) { t.Key = []string{"12"} }), "42P17"},
		"an empty key":       {"r", []Transit{{ID: "x", Part: Part{Key: []string{}}, From: "a", To: "b"}}, "42P17"},
		"not a key":          {"r", []Transit{{ID: "x", Part: Part{Key: []string{"k"}}, From: "a", To: "b"}}, "22P02"},
		"the same id":        {"r", []Transit{good, {ID: "m-1", Part: Part{Low: []string{"30"}}, From: "c", To: "a"}}, "42710"},
		"overlap":            {"r", []Transit{good, {ID: "m-2", Part: tenth, From: "b", To: "a"}}, "55000"},
		"key in a range":     {"r", []Transit{good, {ID: "m-2", Part: Part{Key: []string{"12"}}, From: "b", To: "a"}}, "55000"},
		"key beside a range": {"r", []Transit{good, {ID: "m-2", Part: Part{Key: []string{"20"}}, From: "a", To: "b"}}, ""},
		"the same key":       {"r", []Transit{{ID: "x", Part: Part{Key: []string{"7"}}, From: "a", To: "b"}, {ID: "y", Part: Part{Key: []string{"07"}}, From: "a", To: "c"}}, "55000"},
		"an epoch too high":  {"r", with(func(t *Transit) { t.Epoch = 9 }), "42P17"},
		"pinned in a range":  {"pinned", []Transit{good, {ID: "m-2", Part: Part{Key: []string{"12"}}, From: "a", To: "b"}}, ""},
		"a range of a pin":   {"pinned", []Transit{{ID: "m-2", Part: Part{Key: []string{"12"}}, From: "b", To: "c"}}, "42P17"}, // a owns it
	} {
		s := transitState(t)
		ks := c.ks
		if ks == "pinned" {
			ks = "r"
			if err := s.PutPin("r", []string{"12"}, "a"); err != nil {
				t.Fatal(err)
			}
		}
		for i := range s.Keyspaces {
			if s.Keyspaces[i].Name == ks {
				s.Keyspaces[i].Transits = c.all
			}
		}
		snap, err := NewSnapshot(s)
		if got := sqlstate.CodeOf(err); err == nil && c.code != "" || err != nil && got != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if err == nil && name == "a key" {
			if k := snap.State().Keyspaces[1].Transits[0].Key[0]; k != "7" {
				t.Errorf("the key is kept as %q", k)
			}
		}
	}
}

func TestHeld(t *testing.T) {
	s := transitState(t)
	if err := s.PutPin("r", []string{"12"}, "a"); err != nil {
		t.Fatal(err)
	}
	ask := func(n int64) string {
		ix, _ := mustSnapshot(t, s).Keyspace("r")
		if tr := ix.Held(int8Key(n)); tr != nil {
			return tr.ID
		}
		return ""
	}
	s.PutTransit("r", Transit{ID: "range", Part: Part{Low: []string{"10"}, High: []string{"20"}}, From: "b", To: "c"})
	if snap := mustSnapshot(t, s); snap.Holding() || ask(15) != "" {
		t.Error("a transit without a hold holds")
	}
	s.PutTransit("r", Transit{ID: "range", Part: Part{Low: []string{"10"}, High: []string{"20"}}, From: "b", To: "c", Hold: HoldNew})
	s.PutTransit("r", Transit{ID: "key", Part: Part{Key: []string{"25"}}, From: "a", To: "c", Hold: HoldAll})
	snap := mustSnapshot(t, s)
	ix, _ := snap.Keyspace("r")
	if !snap.Holding() || len(ix.Holds()) != 2 {
		t.Errorf("%d holds", len(ix.Holds()))
	}
	for n, want := range map[int64]string{9: "", 10: "range", 12: "", 19: "range", 20: "", 25: "key", 26: "", 31: ""} {
		if got := ask(n); got != want {
			t.Errorf("key %d is held by %q, want %q", n, got, want)
		}
	}
	for i, want := range []string{"", "range", "key", ""} {
		got := ""
		if tr := ix.HeldRange(i); tr != nil {
			got = tr.ID
		}
		if got != want {
			t.Errorf("range %d is held by %q, want %q", i, got, want)
		}
	}
	if owner, other := ix.Sides(ix.Holds()[0]); owner != "b" || other != "c" {
		t.Errorf("%s owns it, %s does not", owner, other)
	}
}

func TestOwnerOf(t *testing.T) {
	snap := mustSnapshot(t, transitState(t))
	for _, c := range []struct {
		ks   string
		part Part
		want string
	}{
		{"r", Part{Low: []string{"10"}, High: []string{"20"}}, "b"},
		{"r", Part{Low: []string{"11"}, High: []string{"12"}}, "b"},
		{"r", Part{Low: []string{"11"}, High: []string{"21"}}, "55000"},
		{"r", Part{Low: []string{"30"}}, "c"},
		{"r", Part{High: []string{"010"}}, "a"},
		{"r", Part{}, "55000"},
		{"r", Part{Key: []string{"15"}}, "b"},
		{"r", Part{Key: []string{"x"}}, "22P02"},
		{"l", Part{Key: []string{"fr"}}, "b"},
		{"l", Part{Key: []string{"gb"}}, "23514"},
		{"l", Part{}, "42P17"},
		{"x", Part{}, "42704"},
	} {
		got, err := snap.OwnerOf(c.ks, c.part)
		if err != nil {
			got = string(sqlstate.CodeOf(err))
		}
		if got != c.want {
			t.Errorf("%s %s: %s (%v), want %s", c.ks, c.part.Text(), got, err, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { snap.Strangers("r", "a") }); n > 0 {
		t.Errorf("Strangers of a keyspace without transits makes %v allocations", n)
	}
}

// advance makes the next version.
func advance(t *testing.T, prev *Snapshot, transit string, edit func(*State)) (*Snapshot, error) {
	t.Helper()
	s := transitState(t)
	expect := uint64(0)
	if prev != nil {
		s, expect = prev.State().Clone(), prev.Version()
	}
	edit(&s)
	return Advance(prev, Change{Expect: expect, By: "test", Op: "move", Transit: transit}, s)
}

// TestMoveInTheMap walks through the versions of a move, and looks at epochs,
// schema version, differences, and what others may not do meanwhile.
func TestMoveInTheMap(t *testing.T) {
	part := Part{Low: []string{"10"}, High: []string{"20"}}
	steps := []struct {
		name   string
		edit   func(*State)
		epoch  uint64 // of the transit
		owner  uint64 // epoch of the range
		schema uint64
		diff   string
	}{
		{"put", func(s *State) { s.PutTransit("r", Transit{ID: "m", Part: part, From: "b", To: "c"}) }, 2, 1, 1,
			"transit of [10,20) of keyspace r added: m from b to c (epoch 2)"},
		{"hold", func(s *State) { s.PutTransit("r", Transit{ID: "m", Part: part, From: "b", To: "c", Hold: HoldNew}) }, 3, 1, 1,
			"transit of [10,20) of keyspace r changed: m from b to c -> m from b to c, held (new) (epoch 3)"},
		{"open", func(s *State) {
			s.PutTransit("r", Transit{ID: "m", Part: part, From: "b", To: "c"})
			if err := s.SetOwner("r", part, "c"); err != nil {
				t.Fatal(err)
			}
		}, 4, 4, 1, "range [10,20) of keyspace r changed: b -> c (epoch 4)\ntransit of [10,20) of keyspace r changed: m from b to c, held (new) -> m from b to c (epoch 4)"},
		{"drop", func(s *State) { s.DropTransit("r", "m") }, 0, 4, 1, "transit of [10,20) of keyspace r removed: was m from b to c"},
	}
	snap, err := advance(t, nil, "", func(*State) {})
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range steps {
		if i > 0 {
			if _, err := advance(t, snap, "", step.edit); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
				t.Fatalf("%s by somebody else: %v", step.name, err)
			}
			for what, edit := range map[string]func(*State) error{
				"pin":      func(s *State) error { return s.PutPin("r", []string{"11"}, "a") },
				"split":    func(s *State) error { return s.Split("r", []string{"15"}) },
				"owner":    func(s *State) error { return s.SetOwner("r", part, map[bool]string{true: "c", false: "b"}[i < 3]) },
				"keyspace": func(s *State) error { s.DropKeyspace("r"); return nil },
				"shard":    func(s *State) error { s.DropShard("c"); return nil },
			} {
				_, err := advance(t, snap, "", func(s *State) {
					if err := edit(s); err != nil {
						t.Fatal(err)
					}
				})
				if err == nil {
					t.Fatalf("before %s: a change of %s is let through", step.name, what)
				}
			}
			if _, err := advance(t, snap, "", func(s *State) {
				if err := s.PutPin("r", []string{"25"}, "b"); err != nil {
					t.Fatal(err)
				}
			}); err != nil {
				t.Fatalf("before %s: a pin elsewhere: %v", step.name, err)
			}
		}
		next, err := advance(t, snap, "m", step.edit)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		packed, err := Pack(next)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Unpack(packed); err != nil || !reflect.DeepEqual(back.State(), next.State()) {
			t.Fatalf("%s: %v, stored and read again it differs", step.name, err)
		}
		_, tr := next.Transit("m")
		ix, _ := next.Keyspace("r")
		if (tr == nil) != (step.epoch == 0) || tr != nil && tr.Epoch != step.epoch {
			t.Errorf("%s: transit %+v, want epoch %d", step.name, tr, step.epoch)
		}
		if e := ix.Def().Ranges[1].Epoch; e != step.owner {
			t.Errorf("%s: the range has epoch %d, want %d", step.name, e, step.owner)
		}
		if next.SchemaVersion() != step.schema {
			t.Errorf("%s: schema version %d, want %d", step.name, next.SchemaVersion(), step.schema)
		}
		var lines []string
		for _, d := range Diff(snap, next) {
			lines = append(lines, d.String())
		}
		if got := strings.Join(lines, "\n"); got != step.diff {
			t.Errorf("%s: differs by\n%s\nwant\n%s", step.name, got, step.diff)
		}
		snap = next
	}
}

// TestSplitMergeSetOwner: random edits keep what the model of single keys says.
func TestSplitMergeSetOwner(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		s := transitState(t)
		owner := map[int64]string{}
		look := func() {
			t.Helper()
			ix, _ := mustSnapshot(t, s).Keyspace("r")
			for n := int64(-5); n < 45; n++ {
				a, err := ix.Locate(int8Key(n))
				if err != nil {
					t.Fatal(err)
				}
				if was, ok := owner[n]; ok && was != a.Shard {
					t.Fatalf("seed %d: key %d went from %s to %s", seed, n, was, a.Shard)
				}
				owner[n] = a.Shard
			}
		}
		look()
		for range 20 {
			bound := rnd.IntN(40)
			ranges := len(s.Keyspaces[1].Ranges)
			switch rnd.IntN(3) {
			case 0:
				if err := s.Split("r", []string{fmt.Sprintf("%02d", bound)}); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if !slices.ContainsFunc(s.Keyspaces[1].Ranges, func(r Range) bool { return slices.Equal(r.Low, []string{strconv.Itoa(bound)}) }) {
					t.Fatalf("seed %d: no bound at %d after Split", seed, bound)
				}
			case 1:
				err := s.Merge("r", []string{strconv.Itoa(bound)})
				if err != nil && sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if err != nil && len(s.Keyspaces[1].Ranges) != ranges ||
					err == nil && slices.ContainsFunc(s.Keyspaces[1].Ranges, func(r Range) bool { return slices.Equal(r.Low, []string{strconv.Itoa(bound)}) }) {
					t.Fatalf("seed %d: Merge at %d: %v, %+v", seed, bound, err, s.Keyspaces[1].Ranges)
				}
			default:
				shard := string(rune('a' + rnd.IntN(3)))
				p := Part{Low: []string{strconv.Itoa(bound)}, High: []string{strconv.Itoa(bound + 1 + rnd.IntN(10))}}
				if rnd.IntN(3) == 0 {
					p = Part{Key: []string{strconv.Itoa(bound)}}
				}
				keys := mustSnapshot(t, s).Keys("r", p)
				for n := range owner {
					if keys.Owns(int8Key(n)) {
						owner[n] = shard
					}
				}
				if err := s.SetOwner("r", p, shard); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			look()
		}
	}
	s := transitState(t)
	if err := s.SetOwner("l", Part{Key: []string{"fr"}}, "c"); err != nil || s.Keyspaces[2].Values[1].Shard != "c" || len(s.Keyspaces[2].Pins) > 0 {
		t.Errorf("%v: %+v", err, s.Keyspaces[2])
	}
	if err := s.Split("l", []string{"x"}); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Errorf("a list is split: %v", err)
	}
	if err := s.Split("h", []string{"5"}); err != nil {
		t.Error(err)
	}
	mustSnapshot(t, s)
}

// TestConcernedBySchema: a table that statements would look for elsewhere concerns those that name it, or something that
// their map does not know, and nobody else.
func TestConcernedBySchema(t *testing.T) {
	sharded := Table{Schema: "public", Name: "t", Kind: Sharded, Keyspace: "r", ShardKey: []string{"k"}, Columns: []Column{{Name: "k", Type: "bigint", NotNull: true}}}
	whole, reference, more, renamed := sharded, sharded, sharded, sharded
	whole.Kind, whole.Keyspace, whole.ShardKey = Whole, "", nil
	reference.Kind, reference.Keyspace, reference.ShardKey = Reference, "", nil
	more.Columns = append(slices.Clone(sharded.Columns), Column{Name: "v", Type: "text"})
	renamed.ShardKey, renamed.Columns = []string{"id"}, []Column{{Name: "id", Type: "bigint", NotNull: true}}
	for _, c := range []struct {
		name    string
		was, is *Table
		want    bool
	}{
		{"a sharded table is new", nil, &sharded, true},
		{"a reference table is new", nil, &reference, true},
		{"an unsharded table is new: it is where strangers are looked for", nil, &whole, false},
		{"a sharded table goes: it is not found", &sharded, nil, false},
		{"it has another column", &sharded, &more, false},
		{"its key has another name", &sharded, &renamed, true},
		{"an unsharded table becomes sharded", &whole, &sharded, true},
		{"a sharded table becomes whole", &sharded, &whole, true},
		{"nothing", &sharded, &sharded, false},
	} {
		before, err := advance(t, nil, "", func(s *State) {
			if c.was != nil {
				s.PutTable(*c.was)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		after, err := advance(t, before, "", func(s *State) {
			s.DropTable("public", "t")
			if c.is != nil {
				s.PutTable(*c.is)
			}
			s.PutTable(Table{Schema: "public", Name: "other", Kind: Whole})
		})
		if err != nil {
			t.Fatal(err)
		}
		is := Concerned(before, after)
		if is.All || len(is.Shards) > 0 || is.Strangers() != c.want || is.Moves("t") != c.want || is.Moves("other") {
			t.Errorf("%s: %+v", c.name, is)
		}
	}
}

func TestConcerned(t *testing.T) {
	part := Part{Low: []string{"10"}, High: []string{"20"}}
	for _, c := range []struct {
		name string
		edit func(*State) error
		want string
	}{
		{"nothing", func(*State) error { return nil }, "[] false"},
		{"a transit", func(s *State) error {
			s.PutTransit("r", Transit{ID: "m", Part: part, From: "b", To: "c"})
			return nil
		}, "[b c] false"},
		{"an owner", func(s *State) error { return s.SetOwner("r", part, "a") }, "[a b] false"},
		{"a split", func(s *State) error { return s.Split("r", []string{"15"}) }, "[] false"},
		{"a pin", func(s *State) error { return s.PutPin("r", []string{"15"}, "c") }, "[b c] false"},
		{"a value", func(s *State) error { return s.SetOwner("l", Part{Key: []string{"fr"}}, "c") }, "[b c] false"},
		{"a shard", func(s *State) error { s.PutShard(Shard{Name: "d", Engine: "sqlite", Weight: 1}); return nil }, "[] true"},
		{"a table", func(s *State) error {
			s.PutTable(Table{Schema: "public", Name: "t", Kind: Whole})
			return nil
		}, "[] false"},
	} {
		before, err := advance(t, nil, "", func(*State) {})
		if err != nil {
			t.Fatal(err)
		}
		after, err := advance(t, before, "m", func(s *State) {
			if err := c.edit(s); err != nil {
				t.Fatal(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range [][2]*Snapshot{{before, after}, {after, before}} {
			is := Concerned(way[0], way[1])
			slices.Sort(is.Shards)
			if got := fmt.Sprint(is.Shards, is.All || is.Strangers()); got != c.want {
				t.Errorf("%s concerns %s, want %s", c.name, got, c.want)
			}
		}
	}
}
