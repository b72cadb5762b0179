package shardmap_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
)

var shardNames = []string{"shard-0", "shard-1", "shard-2"}

func someShards(names ...string) []shardmap.Shard {
	var list []shardmap.Shard
	for _, n := range names {
		list = append(list, shardmap.Shard{Name: n, Engine: "sqlite", URL: "file:/data/" + n + ".db", Weight: 1})
	}
	return list
}

func baseState(keyspaces ...shardmap.Keyspace) shardmap.State {
	return shardmap.State{
		Format:        shardmap.Format,
		Cluster:       "c0ffee00-0000-4000-8000-000000000001",
		Version:       9,
		SchemaVersion: 9,
		DefaultShard:  "shard-0",
		Shards:        someShards(shardNames...),
		Keyspaces:     keyspaces,
	}
}

var allTypes = []keyspace.Type{
	keyspace.Int2, keyspace.Int4, keyspace.Int8, keyspace.Text, keyspace.Varchar, keyspace.UUID,
	keyspace.Date, keyspace.Timestamp, keyspace.Timestamptz, keyspace.Bytea, keyspace.Bool,
}

// genValue draws from few values, so that keys meet bounds, pins and lists; and
// from long texts with a common beginning, which look-ups abbreviate.
func genValue(t keyspace.Type) *rapid.Generator[keyspace.Value] {
	texts := []string{"", "a", "ab", "abcdefgh", "abcdefghi", "abcdefghij", "abcdefghj", "b", "é", "zz zz", "z\"(,\\", "<&>\u2028", "\x01", "~"}
	switch t {
	case keyspace.Int2:
		return rapid.Map(rapid.OneOf(rapid.Int64Range(-4, 4), rapid.Int64Range(math.MinInt16, math.MaxInt16)), func(n int64) keyspace.Value { return keyspace.Int(t, n) })
	case keyspace.Int4:
		return rapid.Map(rapid.OneOf(rapid.Int64Range(-4, 4), rapid.Int64Range(math.MinInt32, math.MaxInt32)), func(n int64) keyspace.Value { return keyspace.Int(t, n) })
	case keyspace.Int8:
		return rapid.Map(rapid.OneOf(rapid.Int64Range(-4, 4), rapid.Int64()), func(n int64) keyspace.Value { return keyspace.Int(t, n) })
	case keyspace.Date, keyspace.Timestamp, keyspace.Timestamptz:
		return rapid.Map(rapid.Int64Range(-900, 900), func(n int64) keyspace.Value { return keyspace.Int(t, n) })
	case keyspace.Bool:
		return rapid.Map(rapid.Int64Range(0, 1), func(n int64) keyspace.Value { return keyspace.Int(t, n) })
	case keyspace.UUID:
		return rapid.Map(rapid.SliceOfN(rapid.ByteRange(0, 2), 16, 16), func(b []byte) keyspace.Value { return keyspace.Str(t, string(b)) })
	case keyspace.Bytea:
		return rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 0xfe, 0xff}), 0, 12), func(b []byte) keyspace.Value { return keyspace.Str(t, string(b)) })
	}
	return rapid.Map(rapid.SampledFrom(texts), func(s string) keyspace.Value { return keyspace.Str(t, s) })
}

func genKey(types []keyspace.Type) *rapid.Generator[keyspace.Key] {
	return rapid.Custom(func(rt *rapid.T) keyspace.Key {
		k := make(keyspace.Key, len(types))
		for i, t := range types {
			k[i] = genValue(t).Draw(rt, "value")
		}
		return k
	})
}

// distinct draws keys that differ from each other.
func distinct(rt *rapid.T, gen *rapid.Generator[keyspace.Key], most int, label string) []keyspace.Key {
	return rapid.SliceOfNDistinct(gen, 0, most, keyspace.Key.String).Draw(rt, label)
}

func genKeyspace(name string) *rapid.Generator[shardmap.Keyspace] {
	return rapid.Custom(func(rt *rapid.T) shardmap.Keyspace {
		k := shardmap.Keyspace{
			Name:     name,
			Strategy: rapid.SampledFrom([]keyspace.Strategy{keyspace.Hash, keyspace.Range, keyspace.List}).Draw(rt, "strategy"),
			Types:    rapid.SliceOfN(rapid.SampledFrom(allTypes), 1, 3).Draw(rt, "types"),
		}
		owner := func() string { return rapid.SampledFrom(shardNames).Draw(rt, "owner") }
		epoch := func() uint64 { return rapid.Uint64Range(1, 9).Draw(rt, "epoch") }
		key := genKey(k.Types)
		var bounds [][]string
		switch k.Strategy {
		case keyspace.Hash:
			k.Seed = rapid.SampledFrom([]int64{0, 1, -7}).Draw(rt, "seed")
			positions := rapid.SliceOfNDistinct(rapid.Int64Range(math.MinInt64+1, math.MaxInt64), 0, 12, rapid.ID[int64]).Draw(rt, "positions")
			slices.Sort(positions)
			for _, p := range positions {
				bounds = append(bounds, []string{strconv.FormatInt(p, 10)})
			}
		case keyspace.Range:
			prefix := rapid.Custom(func(rt *rapid.T) keyspace.Key {
				return key.Draw(rt, "bound")[:rapid.IntRange(1, len(k.Types)).Draw(rt, "columns")]
			})
			keys := distinct(rt, prefix, 12, "bounds")
			slices.SortFunc(keys, keyspace.CompareKeys)
			for _, b := range keys {
				bounds = append(bounds, b.Texts())
			}
		case keyspace.List:
			for _, v := range distinct(rt, key, 12, "values") {
				k.Values = append(k.Values, shardmap.ListValue{Key: v.Texts(), Shard: owner(), Epoch: epoch()})
			}
		}
		if k.Strategy != keyspace.List {
			for i := range len(bounds) + 1 {
				r := shardmap.Range{Shard: owner(), Epoch: epoch()}
				if i > 0 {
					r.Low = slices.Clone(bounds[i-1])
				}
				if i < len(bounds) {
					r.High = slices.Clone(bounds[i])
				}
				k.Ranges = append(k.Ranges, r)
			}
		}
		for _, p := range distinct(rt, key, 6, "pins") {
			k.Pins = append(k.Pins, shardmap.Pin{Key: p.Texts(), Shard: owner(), Epoch: epoch()})
		}
		return k
	})
}

// locateSlowly is what Locate must say, by looking at everything in turn and
// comparing values instead of encodings.
func locateSlowly(t rapid.TB, def *shardmap.Keyspace, k keyspace.Key) (shardmap.Assignment, bool) {
	parse := func(texts []string) keyspace.Key {
		key, err := keyspace.ParseKey(def.Types[:len(texts)], texts)
		if err != nil {
			t.Fatalf("ParseKey(%q): %v", texts, err)
		}
		return key
	}
	for i, p := range def.Pins {
		if parse(p.Key).Equal(k) {
			return shardmap.Assignment{Shard: p.Shard, Epoch: p.Epoch, Range: -1, Pinned: true, Unit: len(def.Ranges) + len(def.Values) + i}, true
		}
	}
	for i, v := range def.Values {
		if parse(v.Key).Equal(k) {
			return shardmap.Assignment{Shard: v.Shard, Epoch: v.Epoch, Range: -1, Unit: len(def.Ranges) + i}, true
		}
	}
	for i, r := range def.Ranges {
		// below says whether the key is below a bound.
		below := func(bound []string) bool {
			if def.Strategy == keyspace.Hash {
				n, err := strconv.ParseInt(bound[0], 10, 64)
				if err != nil {
					t.Fatalf("bound %q: %v", bound, err)
				}
				return keyspace.HashKey(def.Seed, k) < n
			}
			return keyspace.CompareKeys(k, parse(bound)) < 0
		}
		if (r.Low == nil || !below(r.Low)) && (r.High == nil || below(r.High)) {
			return shardmap.Assignment{Shard: r.Shard, Epoch: r.Epoch, Range: i, Unit: i}, true
		}
	}
	return shardmap.Assignment{}, false
}

// keysOf draws keys, some of them bounds, listed values and pins.
func keysOf(rt *rapid.T, def *shardmap.Keyspace) []keyspace.Key {
	keys := rapid.SliceOfN(genKey(def.Types), 1, 20).Draw(rt, "keys")
	take := func(texts []string) {
		if len(texts) != len(def.Types) || def.Strategy == keyspace.Hash && len(texts) == 0 {
			return
		}
		if k, err := keyspace.ParseKey(def.Types, texts); err == nil {
			keys = append(keys, k)
		}
	}
	if def.Strategy == keyspace.Range {
		for _, r := range def.Ranges {
			take(r.Low)
		}
	}
	for _, v := range def.Values {
		take(v.Key)
	}
	for _, p := range def.Pins {
		take(p.Key)
	}
	return keys
}

func TestLocateAgreesWithModelAndOwnership(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := genKeyspace("k").Draw(rt, "keyspace")
		snap, err := shardmap.NewSnapshot(baseState(k))
		if err != nil {
			rt.Fatalf("a valid state is refused: %v", err)
		}
		ix, _ := snap.Keyspace("k")
		for _, key := range keysOf(rt, ix.Def()) {
			want, ok := locateSlowly(rt, ix.Def(), key)
			got, err := ix.Locate(key)
			if (err == nil) != ok || got != want {
				rt.Fatalf("Locate(%v) = %+v, %v; want %+v, %v", key, got, err, want, ok)
			}
			var owners []string
			for _, name := range shardNames {
				own := snap.Ownership("k", name)
				if own.Owns(key) {
					owners = append(owners, name)
				}
			}
			if ok && !slices.Equal(owners, []string{want.Shard}) || !ok && owners != nil {
				rt.Fatalf("%v is at %+v, but owned by %v", key, want, owners)
			}
		}
		checkOwnerships(rt, snap, ix)
	})
}

// checkOwnerships checks the form of what guards get.
func checkOwnerships(rt *rapid.T, snap *shardmap.Snapshot, ix *shardmap.Index) {
	for _, name := range append(slices.Clone(shardNames), "no-such-shard") {
		own := snap.Ownership("k", name)
		if own.Keyspace != "k" || own.Strategy != ix.Def().Strategy || own.Seed != ix.Def().Seed || !slices.Equal(own.Types, ix.Def().Types) {
			rt.Fatalf("the ownership of %s is of another keyspace: %+v", name, own)
		}
		for i, iv := range own.Intervals {
			if iv.Last != (iv.Last && i == len(own.Intervals)-1) {
				rt.Fatalf("an interval follows the last: %+v", own.Intervals)
			}
			if own.Strategy == keyspace.Range {
				if string(keyspace.AppendOrdered(nil, iv.LowValues)) != iv.LowKey || string(keyspace.AppendOrdered(nil, iv.HighValues)) != iv.HighKey {
					rt.Fatalf("typed and encoded bounds differ: %+v", iv)
				}
			}
			if i == 0 {
				continue
			}
			before := own.Intervals[i-1]
			if own.Strategy == keyspace.Hash && before.High >= iv.Low || own.Strategy == keyspace.Range && before.HighKey >= iv.LowKey {
				rt.Fatalf("intervals are out of order or touch: %+v", own.Intervals)
			}
		}
		owns := len(own.Intervals)+len(own.Listed)+len(own.Pinned) > 0
		if slices.Contains(ix.Owners(), name) != owns {
			rt.Fatalf("Owners() = %v, but %s owns %+v", ix.Owners(), name, own)
		}
		if owns != (own.Epoch > 0) && len(own.PinnedElsewhere) == 0 {
			rt.Fatalf("%s has epoch %d with %+v", name, own.Epoch, own)
		}
	}
}

func TestOwnershipExample(t *testing.T) {
	k, err := shardmap.NewRangeKeyspace("k", []keyspace.Type{keyspace.Int8, keyspace.Text},
		[][]string{{"10"}, {"20", "m"}, {"30"}, {"40"}}, []string{"shard-0", "shard-1", "shard-1", "shard-0", "shard-1"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range k.Ranges {
		k.Ranges[i].Epoch = uint64(i + 1)
	}
	k.Pins = []shardmap.Pin{
		{Key: []string{"5", "x"}, Shard: "shard-1", Epoch: 7},
		{Key: []string{"25", "x"}, Shard: "shard-0", Epoch: 8},
		{Key: []string{"26", "x"}, Shard: "shard-1", Epoch: 2},
	}
	snap, err := shardmap.NewSnapshot(baseState(k))
	if err != nil {
		t.Fatal(err)
	}
	parse := func(texts ...string) keyspace.Key {
		key, err := keyspace.ParseKey(k.Types[:len(texts)], texts)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	encode := func(texts ...string) string { return string(keyspace.AppendOrdered(nil, parse(texts...))) }
	want := keyspace.Ownership{
		Keyspace: "k",
		Strategy: keyspace.Range,
		Types:    k.Types,
		Intervals: []keyspace.Interval{
			{LowKey: encode("10"), HighKey: encode("30"), LowValues: parse("10"), HighValues: parse("30")},
			{LowKey: encode("40"), LowValues: parse("40"), Last: true},
		},
		Pinned:          []keyspace.Key{parse("5", "x"), parse("26", "x")},
		PinnedElsewhere: []keyspace.Key{parse("25", "x")},
		Epoch:           8,
	}
	if got := snap.Ownership("k", "shard-1"); !reflect.DeepEqual(got, want) {
		t.Fatalf("the ownership is\n%+v\nwant\n%+v", got, want)
	}
	if got := snap.Ownership("nothing", "shard-1"); len(got.Intervals)+len(got.Pinned) != 0 || got.Keyspace != "nothing" {
		t.Fatalf("the ownership of an unknown keyspace is %+v", got)
	}
	ix, _ := snap.Keyspace("k")
	for i, text := range []string{"(,10)", "[10,(20,m))", "[(20,m),30)", "[30,40)", "[40,)"} {
		if got := ix.RangeText(i); got != text {
			t.Errorf("RangeText(%d) = %s, want %s", i, got, text)
		}
	}
	if ix.RangeText(-1) != "" || ix.RangeText(5) != "" {
		t.Error("RangeText of no range is not empty")
	}
}

// keyspaces of ten thousand ranges, the size that the bound on look-ups is for.
const many = 10_000

func bigIndex(t testing.TB, strategy keyspace.Strategy, types []keyspace.Type, pins int) (*shardmap.Index, []keyspace.Key) {
	t.Helper()
	keys := make([]keyspace.Key, 1024)
	for i := range keys {
		n := int64(i) * 7919 % many * 100
		for _, ty := range types {
			if ty == keyspace.Int8 {
				keys[i] = append(keys[i], keyspace.Int(ty, n+int64(i%3)-1))
			} else {
				keys[i] = append(keys[i], keyspace.Str(ty, fmt.Sprintf("customer-%010d", n+int64(i%3)-1)))
			}
		}
	}
	var k shardmap.Keyspace
	var err error
	if strategy == keyspace.Hash {
		k, err = shardmap.NewHashKeyspace("k", types, someShards(shardNames...), many)
	} else {
		bounds := make([][]string, many-1)
		shards := make([]string, many)
		for i := range shards {
			shards[i] = shardNames[i%len(shardNames)]
			if i > 0 {
				n := i * 100
				for _, ty := range types {
					if ty == keyspace.Int8 {
						bounds[i-1] = append(bounds[i-1], strconv.Itoa(n))
					} else {
						bounds[i-1] = append(bounds[i-1], fmt.Sprintf("customer-%010d", n))
					}
				}
			}
		}
		k, err = shardmap.NewRangeKeyspace("k", types, bounds, shards)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range pins {
		k.Pins = append(k.Pins, shardmap.Pin{Key: keys[i].Texts(), Shard: "shard-1"})
	}
	snap, err := shardmap.NewSnapshot(baseState(k))
	if err != nil {
		t.Fatal(err)
	}
	ix, _ := snap.Keyspace("k")
	return ix, keys
}

func TestLookUpsDoNotAllocate(t *testing.T) {
	long := ""
	for range 60 {
		long += "long key "
	}
	int8s, texts := []keyspace.Type{keyspace.Int8}, []keyspace.Type{keyspace.Text}
	hash, hashKeys := bigIndex(t, keyspace.Hash, int8s, 100)
	ranged, rangeKeys := bigIndex(t, keyspace.Range, texts, 100)
	both, bothKeys := bigIndex(t, keyspace.Range, []keyspace.Type{keyspace.Text, keyspace.Int8}, 1)
	list, err := shardmap.NewListKeyspace("l", texts, [][]string{{"a"}, {long}}, []string{"shard-0", "shard-1"})
	if err != nil {
		t.Fatal(err)
	}
	st := baseState(list)
	st.PutTable(shardmap.Table{Schema: "public", Name: "orders", Kind: shardmap.Whole})
	snap, err := shardmap.NewSnapshot(st)
	if err != nil {
		t.Fatal(err)
	}
	listed, _ := snap.Keyspace("l")
	a, longKey := keyspace.Key{keyspace.Str(keyspace.Text, "a")}, keyspace.Key{keyspace.Str(keyspace.Text, long)}
	encoded := keyspace.AppendOrdered(nil, rangeKeys[500])
	locate := func(ix *shardmap.Index, k keyspace.Key) func() {
		return func() {
			if _, err := ix.Locate(k); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, f := range map[string]func(){
		"LocateHash":                 func() { hash.LocateHash(12345) },
		"LocateOrdered":              func() { ranged.LocateOrdered(encoded) },
		"Locate in hash":             locate(hash, hashKeys[500]),
		"Locate a pin in hash":       locate(hash, hashKeys[5]),
		"Locate in range":            locate(ranged, rangeKeys[500]),
		"Locate a pin in range":      locate(ranged, rangeKeys[5]),
		"Locate two columns":         locate(both, bothKeys[500]),
		"Locate a long key":          locate(ranged, longKey),
		"Locate a listed value":      locate(listed, a),
		"Locate a long listed value": locate(listed, longKey),
		"Table":                      func() { snap.Table("public", "orders") },
		"Table that is not there":    func() { snap.Table("public", "nothing") },
		"Keyspace":                   func() { snap.Keyspace("l") },
		"Shard":                      func() { snap.Shard("shard-1") },
	} {
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestLocateAtManyRanges(t *testing.T) {
	for _, strategy := range []keyspace.Strategy{keyspace.Hash, keyspace.Range} {
		for _, types := range [][]keyspace.Type{{keyspace.Int8}, {keyspace.Text}, {keyspace.Text, keyspace.Int8}} {
			ix, keys := bigIndex(t, strategy, types, 0)
			for _, k := range keys[:64] {
				want, _ := locateSlowly(t, ix.Def(), k)
				if got, err := ix.Locate(k); err != nil || got != want {
					t.Fatalf("%s %v: Locate(%v) = %+v, %v; want %+v", strategy, types, k, got, err, want)
				}
			}
		}
	}
}

func BenchmarkLocateHash(b *testing.B) {
	ix, _ := bigIndex(b, keyspace.Hash, []keyspace.Type{keyspace.Int8}, 0)
	b.ReportAllocs()
	pos, sum := uint64(1), 0
	for b.Loop() {
		pos = pos*6364136223846793005 + 1442695040888963407
		sum += ix.LocateHash(int64(pos))
	}
	_ = sum
}

func BenchmarkLocateOrdered(b *testing.B) {
	for name, types := range map[string][]keyspace.Type{
		"bigint": {keyspace.Int8}, "text": {keyspace.Text}, "text-bigint": {keyspace.Text, keyspace.Int8},
	} {
		b.Run(name, func(b *testing.B) {
			ix, keys := bigIndex(b, keyspace.Range, types, 0)
			encoded := make([][]byte, len(keys))
			for i, k := range keys {
				encoded[i] = keyspace.AppendOrdered(nil, k)
			}
			b.ReportAllocs()
			n, sum := 0, 0
			for b.Loop() {
				sum += ix.LocateOrdered(encoded[n&1023])
				n += 389
			}
			_ = sum
		})
	}
}

// BenchmarkLocateCrowded has bounds that crowd behind few prefixes of 8 bytes,
// which not all of them share.
func BenchmarkLocateCrowded(b *testing.B) {
	var bounds [][]string
	shards := []string{"shard-0"}
	for _, tenant := range []string{"acme-corporation", "acme-corporation-of-america", "customer", "customers-united"} {
		for i := range many / 4 {
			bounds = append(bounds, []string{tenant, fmt.Sprintf("order-%08d", i*10)})
			shards = append(shards, shardNames[i%3])
		}
	}
	types := []keyspace.Type{keyspace.Text, keyspace.Text}
	k, err := shardmap.NewRangeKeyspace("k", types, bounds, shards)
	if err != nil {
		b.Fatal(err)
	}
	snap, err := shardmap.NewSnapshot(baseState(k))
	if err != nil {
		b.Fatal(err)
	}
	ix, _ := snap.Keyspace("k")
	encoded := make([][]byte, 1024)
	for i := range encoded {
		key, err := keyspace.ParseKey(types, bounds[i*9973%len(bounds)])
		if err != nil {
			b.Fatal(err)
		}
		encoded[i] = keyspace.AppendOrdered(nil, key)
	}
	b.ReportAllocs()
	n, sum := 0, 0
	for b.Loop() {
		sum += ix.LocateOrdered(encoded[n&1023])
		n += 389
	}
	_ = sum
}

func BenchmarkLocate(b *testing.B) {
	for _, c := range []struct {
		name     string
		strategy keyspace.Strategy
		types    []keyspace.Type
		pins     int
	}{
		{"hash-bigint", keyspace.Hash, []keyspace.Type{keyspace.Int8}, 0},
		{"hash-bigint-pins", keyspace.Hash, []keyspace.Type{keyspace.Int8}, 1000},
		{"hash-text", keyspace.Hash, []keyspace.Type{keyspace.Text}, 0},
		{"range-bigint", keyspace.Range, []keyspace.Type{keyspace.Int8}, 0},
		{"range-text-pins", keyspace.Range, []keyspace.Type{keyspace.Text}, 1000},
	} {
		b.Run(c.name, func(b *testing.B) {
			ix, keys := bigIndex(b, c.strategy, c.types, c.pins)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if _, err := ix.Locate(keys[n&1023]); err != nil {
					b.Fatal(err)
				}
				n += 389
			}
		})
	}
}

func BenchmarkNewSnapshot(b *testing.B) {
	ix, _ := bigIndex(b, keyspace.Range, []keyspace.Type{keyspace.Text}, 0)
	s := baseState(*ix.Def())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := shardmap.NewSnapshot(s); err != nil {
			b.Fatal(err)
		}
	}
}
