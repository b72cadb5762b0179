package shardmap_test

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
)

// loaded is a map of a hash, a range and a list keyspace.
func loaded(t *testing.T) *shardmap.Snapshot {
	t.Helper()
	shards := []shardmap.Shard{{Name: "a", Engine: "sqlite", Weight: 1}, {Name: "b", Engine: "sqlite", Weight: 1}}
	h, err := shardmap.NewHashKeyspace("h", []keyspace.Type{keyspace.Int8}, shards, 4)
	if err != nil {
		t.Fatal(err)
	}
	r, err := shardmap.NewRangeKeyspace("r", []keyspace.Type{keyspace.Text}, [][]string{{"m"}}, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := shardmap.NewListKeyspace("l", []keyspace.Type{keyspace.Text}, [][]string{{"eu"}, {"us"}}, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	st := shardmap.State{Format: shardmap.Format, Cluster: "7", DefaultShard: "a", Shards: shards, Keyspaces: []shardmap.Keyspace{h, r, l}}
	if err := st.PutPin("h", []string{"5"}, "b"); err != nil {
		t.Fatal(err)
	}
	return snapshotOf(t, st)
}

func snapshotOf(t *testing.T, st shardmap.State) *shardmap.Snapshot {
	t.Helper()
	s, err := shardmap.NewSnapshot(st)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUnits(t *testing.T) {
	s := loaded(t)
	if s.Units() != 4+1+2+2 {
		t.Fatalf("%d units", s.Units())
	}
	for _, k := range s.State().Keyspaces {
		ix, _ := s.Keyspace(k.Name)
		names := k.PlacementUnits()
		if len(names) != ix.UnitCount() {
			t.Fatalf("%s: %d and %d", k.Name, len(names), ix.UnitCount())
		}
		for i, u := range names {
			p, shard, kind := ix.Unit(i)
			if shard != u.Owner || kind != u.Labels["kind"] {
				t.Errorf("%s: unit %d is %s on %s", u.Name, i, kind, shard)
			}
			key, err := keyspace.ParseKey(k.Types, p.Key)
			if p.Key == nil {
				continue
			}
			if a, e := ix.Locate(key); err != nil || e != nil || a.Unit != ix.FirstUnit()+i {
				t.Errorf("%s is unit %d, not %d (%v, %v)", u.Name, a.Unit, ix.FirstUnit()+i, err, e)
			}
		}
	}
}

func TestCarry(t *testing.T) {
	s := loaded(t)
	next := s.State().Clone()
	for _, err := range []error{next.Split("h", []string{"-6917529027641081856"}), next.Split("h", []string{strconv.Itoa(math.MaxInt64 / 4)}),
		next.Split("r", []string{"c"}), next.Merge("h", []string{"-4611686018427387904"}), next.PutPin("l", []string{"us"}, "a")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := next.DropPin("h", []string{"5"}); err != nil {
		t.Fatal(err)
	}
	n := snapshotOf(t, next)
	got := n.Carry(s, []float64{8, 4, 2, 1, 100, 16, 32, 64, 128})
	key, _ := keyspace.ParseKey([]keyspace.Type{keyspace.Int8}, []string{"5"})
	ix, _ := n.Keyspace("h")
	a, _ := ix.Locate(key)
	want := []float64{4, 8, 1, 1, 1, 8, 8, 32, 64, 128, 0}
	want[a.Unit] += 100
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 1e-6 {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	// Back again nothing is lost but what the pin had.
	sum := func(f []float64) (all float64) {
		for _, v := range f {
			all += v
		}
		return all
	}
	if back := s.Carry(n, got); math.Abs(sum(back)-sum(got)) > 1e-6 {
		t.Errorf("%v back from %v", back, got)
	}
}

func TestReadHeat(t *testing.T) {
	ctx := context.Background()
	dir := memory.New()
	defer dir.Close()
	s, err := dir.Update(ctx, shardmap.Change{By: "test", Op: "bootstrap"}, *loaded(t).State())
	if err != nil {
		t.Fatal(err)
	}
	put := func(member string, r shardmap.HeatReport) {
		t.Helper()
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dir.PutRecord(ctx, shardmap.HeatPrefix+member, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	report := func(snap *shardmap.Snapshot, f []float64, keys ...shardmap.HotKey) shardmap.HeatReport {
		return shardmap.NewHeatReport(snap, f, make([]float64, len(f)), keys)
	}
	for _, m := range []string{"one", "two"} {
		_, leave, err := dir.Join(ctx, shardmap.Member{ID: m, Role: "router"})
		if err != nil {
			t.Fatal(err)
		}
		defer leave(ctx)
	}
	hot := shardmap.HotKey{Keyspace: "h", Key: []string{"7"}, Statements: 5}
	put("one", report(s, []float64{8, 0, 2, 1, 100, 0, 0, 0, 0}, hot))
	put("gone", report(s, []float64{1000, 0, 0, 0, 0, 0, 0, 0, 0}))
	next := s.State().Clone()
	if err := next.Split("h", []string{"-6917529027641081856"}); err != nil {
		t.Fatal(err)
	}
	n, err := dir.Update(ctx, shardmap.Change{By: "test", Op: "split", Expect: s.Version()}, next)
	if err != nil {
		t.Fatal(err)
	}
	put("two", report(n, []float64{1, 2, 0, 0, 0, 0, 0, 0, 0, 64}, hot))
	h, err := shardmap.ReadHeat(ctx, dir, n)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{5, 6, 0, 2, 1, 100, 0, 0, 0, 64}
	for i := range want {
		if math.Abs(h.Statements[i]-want[i]) > 1e-3 {
			t.Fatalf("%v, want %v", h.Statements, want)
		}
	}
	if h.Members != 2 || len(h.Left) != 1 || h.Left[0].Key != shardmap.HeatPrefix+"gone" || len(h.Keys) != 1 || h.Keys[0].Statements != 10 {
		t.Errorf("%+v", h)
	}
}

// TestHeatReportIsBounded: what a member tells fits a record, and adds up.
func TestHeatReportIsBounded(t *testing.T) {
	k, err := shardmap.NewHashKeyspace("big", []keyspace.Type{keyspace.Int8}, []shardmap.Shard{{Name: "a", Engine: "sqlite", Weight: 1}}, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	s := snapshotOf(t, shardmap.State{Format: shardmap.Format, Cluster: "7", DefaultShard: "a", Shards: []shardmap.Shard{{Name: "a", Engine: "sqlite", Weight: 1}}, Keyspaces: []shardmap.Keyspace{k}})
	f := make([]float64, s.Units())
	for i := range f {
		f[i] = 12345.678 / float64(1+i%1000)
	}
	keys := slices.Repeat([]shardmap.HotKey{{Keyspace: "big", Key: []string{strings.Repeat("k", 256)}, Statements: 1.0 / 3}}, 100)
	r := shardmap.NewHeatReport(s, f, f, keys)
	b, err := r.Encode()
	if err != nil || len(b) > shardmap.MaxRecordValueBytes || len(r.Units) != shardmap.HeatUnitsMax || len(r.Rest) != 1 || len(r.Keys) != shardmap.HeatKeysMax {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	back, err := shardmap.DecodeHeatReport(b)
	if err != nil || back.Differs(&r) {
		t.Errorf("%v", err)
	}
	back.Statements[0] *= 1.01
	if back.Differs(&r) {
		t.Error("one per cent of one range is written anew")
	}
	none := shardmap.HeatReport{}
	if !back.Differs(&none) || !none.Differs(&back) {
		t.Error("load and none are the same")
	}
}

func FuzzDecodeHeatReport(f *testing.F) {
	f.Add([]byte(`{"format":1,"version":3,"units":[0,2],"statements":[1.5,2],"busy":[0,0],"rest":{"k":1},"keys":[{"keyspace":"k","key":["1"],"statements":2}]}`))
	f.Add([]byte(`{"format":1,"units":[2,1],"statements":[1,1],"busy":[1,1]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := shardmap.DecodeHeatReport(b)
		if err != nil {
			return
		}
		if _, err := r.Encode(); err != nil {
			t.Fatal(err)
		}
	})
}
