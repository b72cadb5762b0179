package keyspace

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// ownedJSON is the stored form of what an Ownership owns.
type ownedJSON struct {
	Strategy  Strategy      `json:"strategy"`
	Types     []Type        `json:"types"`
	Seed      int64         `json:"seed,omitempty"`
	Ranges    [][2][]string `json:"ranges,omitempty"` // low and high; null is unbounded
	Listed    [][]string    `json:"listed,omitempty"`
	Pinned    [][]string    `json:"pinned,omitempty"`
	Elsewhere [][]string    `json:"elsewhere,omitempty"`
}

// Encode returns what is owned as one line of text, without keyspace and epoch: two ownerships of a keyspace own the same
// if their texts are equal. [DecodeOwned] reads it.
func (o *Ownership) Encode() string {
	j := ownedJSON{Strategy: o.Strategy, Types: o.Types, Seed: o.Seed, Listed: textsOf(o.Listed), Pinned: textsOf(o.Pinned), Elsewhere: textsOf(o.PinnedElsewhere)}
	for _, iv := range o.Intervals {
		r := [2][]string{iv.LowValues.Texts(), iv.HighValues.Texts()}
		if o.Strategy == Hash {
			r = [2][]string{{strconv.FormatInt(iv.Low, 10)}, {strconv.FormatInt(iv.High, 10)}}
		} else if len(r[0]) == 0 {
			r[0] = nil
		}
		if iv.Last {
			r[1] = nil
		}
		j.Ranges = append(j.Ranges, r)
	}
	b, err := json.Marshal(j)
	if err != nil {
		panic(err) // plain data always encodes; a type that is none has no ownership
	}
	return string(b)
}

// textsOf returns keys in the keyspace's order.
func textsOf(keys []Key) [][]string {
	in := slices.Clone(keys)
	slices.SortFunc(in, CompareKeys)
	var out [][]string
	for _, k := range in {
		out = append(out, k.Texts())
	}
	return out
}

// DecodeOwned reads what Encode wrote: an Ownership without keyspace and epoch. Errors: XX001 for any other text.
func DecodeOwned(text string) (o Ownership, err error) {
	var j ownedJSON
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return o, sqlstate.Wrap(err, sqlstate.DataCorrupted, "what a guard owns cannot be read: %v", err)
	}
	o = Ownership{Strategy: j.Strategy, Types: j.Types, Seed: j.Seed}
	prefix := func(texts []string) Key {
		if err != nil || len(texts) == 0 {
			return nil
		}
		var k Key
		k, err = ParseKey(o.Types[:min(len(texts), len(o.Types))], texts)
		return k
	}
	for _, r := range j.Ranges {
		if o.Strategy != Hash {
			o.Intervals = append(o.Intervals, NewKeyInterval(prefix(r[0]), prefix(r[1])))
			continue
		}
		iv := Interval{Last: len(r[1]) == 0}
		if len(r[0]) == 1 && err == nil {
			iv.Low, err = strconv.ParseInt(r[0][0], 10, 64)
		}
		if !iv.Last && err == nil {
			iv.High, err = strconv.ParseInt(r[1][0], 10, 64)
		}
		o.Intervals = append(o.Intervals, iv)
	}
	for _, part := range []struct {
		from [][]string
		to   *[]Key
	}{{j.Listed, &o.Listed}, {j.Pinned, &o.Pinned}, {j.Elsewhere, &o.PinnedElsewhere}} {
		for _, texts := range part.from {
			*part.to = append(*part.to, prefix(texts))
		}
	}
	if err != nil {
		return o, sqlstate.Wrap(err, sqlstate.DataCorrupted, "what a guard owns cannot be read: %v", err)
	}
	return o, nil
}

// Meets reports whether o owns anything of a part: of its intervals, listed values or pinned keys.
func (o *Ownership) Meets(part *Ownership) bool {
	for _, a := range o.Intervals {
		for _, b := range part.Intervals {
			if o.Strategy == Hash && (a.Last || b.Low < a.High) && (b.Last || a.Low < b.High) ||
				o.Strategy != Hash && (a.Last || b.LowKey < a.HighKey) && (b.Last || a.LowKey < b.HighKey) {
				return true
			}
		}
	}
	return slices.ContainsFunc(slices.Concat(part.Pinned, part.Listed), o.Owns)
}

// ownedMost bounds what Describe lists.
const ownedMost = 4

// Describe says what is owned, for people: the first few of many.
func (o *Ownership) Describe() string {
	var parts []string
	for _, iv := range o.Intervals {
		low, high := "the beginning", "the end"
		switch {
		case o.Strategy == Hash:
			if low = strconv.FormatInt(iv.Low, 10); iv.Low == -1<<63 {
				low = "the beginning"
			}
			if !iv.Last {
				high = strconv.FormatInt(iv.High, 10)
			}
		default:
			if len(iv.LowValues) > 0 {
				low = iv.LowValues.String()
			}
			if !iv.Last {
				high = iv.HighValues.String()
			}
		}
		parts = append(parts, low+" to "+high)
	}
	for _, k := range o.Listed {
		parts = append(parts, k.String())
	}
	for _, k := range o.Pinned {
		parts = append(parts, "key "+k.String())
	}
	for _, k := range o.PinnedElsewhere {
		parts = append(parts, "not key "+k.String())
	}
	if len(parts) == 0 {
		return "nothing"
	}
	if more := len(parts) - ownedMost; more > 0 {
		parts = append(parts[:ownedMost], fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}
