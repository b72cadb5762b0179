package keyspace

import (
	"reflect"
	"testing"
)

// TestOwnedText: what is owned comes back from its text, and the order of keys does not matter.
func TestOwnedText(t *testing.T) {
	key := func(types []Type, texts ...string) Key {
		k, err := ParseKey(types[:len(texts)], texts)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	one, two := []Type{Int8}, []Type{Text, Int4}
	for _, o := range []Ownership{
		{Strategy: Hash, Types: one, Seed: 7},
		{Strategy: Hash, Types: one, Intervals: []Interval{{Low: -1 << 63, High: -5}, {Low: 9, Last: true}}, Pinned: []Key{key(one, "1"), key(one, "3")}, PinnedElsewhere: []Key{key(one, "2")}},
		{Strategy: Range, Types: two, Intervals: []Interval{NewKeyInterval(nil, key(two, "it's \"x\"\n")), NewKeyInterval(key(two, "m", "4"), nil)}},
		{Strategy: List, Types: one, Listed: []Key{key(one, "-3"), key(one, "9")}},
	} {
		is, err := DecodeOwned(o.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(is, o) {
			t.Errorf("%s\n%+v\n%+v", o.Encode(), is, o)
		}
	}
	a := Ownership{Strategy: List, Types: one, Listed: []Key{key(one, "9"), key(one, "-3")}}
	b := Ownership{Strategy: List, Types: one, Listed: []Key{key(one, "-3"), key(one, "9")}}
	if a.Encode() != b.Encode() {
		t.Errorf("%s is not %s", a.Encode(), b.Encode())
	}
	hash := func(low, high int64, last bool) *Ownership {
		return &Ownership{Strategy: Hash, Types: one, Intervals: []Interval{{Low: low, High: high, Last: last}}}
	}
	for _, c := range []struct {
		a, b  *Ownership
		meets bool
	}{
		{hash(0, 5, false), hash(5, 9, false), false}, {hash(0, 6, false), hash(5, 9, false), true}, {hash(7, 0, true), hash(5, 8, false), true}, {hash(7, 0, true), hash(5, 7, false), false},
		{&a, &Ownership{Types: one, Pinned: []Key{key(one, "9")}}, true}, {&a, &Ownership{Types: one, Pinned: []Key{key(one, "8")}}, false},
	} {
		if is := c.a.Meets(c.b); is != c.meets {
			t.Errorf("%s meets %s: %t", c.a.Describe(), c.b.Describe(), is)
		}
	}
	for _, text := range []string{"", "{", `{"strategy":"hash","types":["bigint"],"ranges":[[["x"],null]]}`, `{"strategy":"range","types":["bigint"],"ranges":[[["1","2"],null]]}`} {
		if _, err := DecodeOwned(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
