package keyspace_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/cleavedb/cleave/keyspace"
)

// randomOwnership makes an ownership whose bounds and keys are near the given ones.
func randomOwnership(r *rand.Rand, types []Type, keys []Key) Ownership {
	o := Ownership{Strategy: []Strategy{Hash, Range, List}[r.IntN(3)], Types: types, Seed: seeds[r.IntN(len(seeds))]}
	some := func(most int) (out []Key) {
		for range r.IntN(most + 1) {
			out = append(out, keys[r.IntN(len(keys))])
		}
		return out
	}
	o.Pinned, o.PinnedElsewhere = some(4), some(4)
	n := 2 * (r.IntN(3) + 1)
	if r.IntN(3) == 0 {
		n = 2 * (r.IntN(15) + 1)
	}
	switch o.Strategy {
	case List:
		o.Listed = some(20)
	case Hash:
		at := []int64{math.MinInt64}
		for range n {
			at = append(at, HashKey(o.Seed, keys[r.IntN(len(keys))])+int64(r.IntN(2)))
		}
		slices.Sort(at)
		at = slices.Compact(at)[r.IntN(2):]
		for i := 0; i+1 < len(at); i += 2 {
			o.Intervals = append(o.Intervals, Interval{Low: at[i], High: at[i+1]})
		}
		if len(at)%2 == 1 {
			o.Intervals = append(o.Intervals, Interval{Low: at[len(at)-1], Last: true})
		}
	case Range:
		bounds := []Key{nil}
		for range n {
			k := keys[r.IntN(len(keys))]
			bounds = append(bounds, k[:1+r.IntN(len(k))])
		}
		enc := func(k Key) string { return string(AppendOrdered(nil, k)) }
		slices.SortFunc(bounds, func(a, b Key) int { return strings.Compare(enc(a), enc(b)) })
		bounds = slices.CompactFunc(bounds, func(a, b Key) bool { return enc(a) == enc(b) })[r.IntN(2):]
		for i := 0; i+1 < len(bounds); i += 2 {
			o.Intervals = append(o.Intervals, NewKeyInterval(bounds[i], bounds[i+1]))
		}
		if len(bounds)%2 == 1 {
			o.Intervals = append(o.Intervals, NewKeyInterval(bounds[len(bounds)-1], nil))
		}
	}
	return o
}

// testConditions compares Condition on the server with Owns.
func testConditions(t *testing.T, db *database) {
	r := seeded(t)
	db.run("SET search_path = ''; SET standard_conforming_strings = off")
	defer db.run("RESET ALL")
	for round := range 70 {
		types := make([]Type, 1+r.IntN(3))
		for i := range types {
			types[i] = Types()[r.IntN(len(Types()))]
		}
		if round < len(Types()) {
			types = []Type{Types()[round]}
		}
		keys := make([]Key, 120)
		arrays := make([][]string, len(types))
		for i := range keys {
			for c, typ := range types {
				v := randomValue(r, typ)
				if r.IntN(2) == 0 {
					e := edgeValues(typ)
					v = e[r.IntN(min(6, len(e)))]
				}
				keys[i] = append(keys[i], v)
				arrays[c] = append(arrays[c], v.Text())
			}
		}
		var unnest, xs, casts, names []string
		for c, typ := range types {
			unnest = append(unnest, fmt.Sprintf("$%d::text[]", c+1))
			xs = append(xs, fmt.Sprintf("x%d", c))
			casts = append(casts, fmt.Sprintf("x%d::%s AS v%d", c, typ, c))
			names = append(names, fmt.Sprintf("s.v%d", c))
		}
		var conditions []string
		var owned []Ownership
		for range 4 {
			o := randomOwnership(r, types, keys)
			owned = append(owned, o)
			conditions = append(conditions, Condition(&o, names))
		}
		rows := db.rows(t, fmt.Sprintf("SELECT %s, n FROM (SELECT %s, n FROM ROWS FROM (unnest(%s)) WITH ORDINALITY AS u(%s, n)) s ORDER BY n",
			strings.Join(conditions, ", "), strings.Join(casts, ", "), strings.Join(unnest, ", "), strings.Join(xs, ", ")), arrays...)
		for i, row := range rows {
			for c := range owned {
				if want := owned[c].Owns(keys[i]); strconv.FormatBool(want)[:1] != row[c] {
					t.Fatalf("%v: owned %v, PostgreSQL says %s\n%+v\n%s", keys[i], want, row[c], owned[c], conditions[c])
				}
			}
		}
	}
}

func TestConditionOfNothing(t *testing.T) {
	for _, s := range []Strategy{Hash, Range, List} {
		if c := Condition(&Ownership{Strategy: s, Types: []Type{Int8}}, []string{"k"}); c != "(false)" {
			t.Errorf("%s: %s", s, c)
		}
	}
	o := Ownership{Strategy: List, Types: []Type{Text}, Listed: []Key{{Str(Text, "a\x00b")}}}
	if c := Condition(&o, []string{"k"}); c != "(false)" {
		t.Errorf("a text that no row can have: %s", c)
	}
}
