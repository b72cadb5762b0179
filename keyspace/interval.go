package keyspace

import (
	"encoding/json"
	"math"
	"math/bits"
	"sort"
)

// EvenRanges returns the n-1 inner bounds of n equal hash ranges, ascending.
// The first range begins at the lowest signed 64-bit number, the last one ends
// after the highest. Sizes differ by one at most. None for n below 2.
func EvenRanges(n int) []int64 {
	if n < 2 {
		return nil
	}
	bounds := make([]int64, n-1)
	for i := range bounds {
		// (i+1) * 2^64 / n, exactly; i+1 < n, so it fits 64 bits.
		q, _ := bits.Div64(uint64(i+1), 0, uint64(n))
		bounds[i] = int64(q ^ 1<<63)
	}
	return bounds
}

// WholeHash is the interval of every hash position.
func WholeHash() Interval { return Interval{Low: math.MinInt64, Last: true} }

// WholeRange is the interval of every key of a range keyspace.
func WholeRange() Interval { return Interval{Last: true} }

// ContainsHash reports whether a position of a hash keyspace is inside.
func (iv Interval) ContainsHash(position int64) bool {
	return iv.Low <= position && (iv.Last || position < iv.High)
}

// ContainsKey reports whether an encoding by [AppendOrdered] is inside an
// interval of a range keyspace. It does not allocate.
func (iv Interval) ContainsKey(encoded []byte) bool {
	return iv.LowKey <= string(encoded) && (iv.Last || string(encoded) < iv.HighKey)
}

// NewKeyInterval returns the interval of a range keyspace between two keys or
// prefixes of keys; an empty one is unbounded.
func NewKeyInterval(low, high Key) Interval {
	return Interval{
		LowKey: string(AppendOrdered(nil, low)), HighKey: string(AppendOrdered(nil, high)),
		LowValues: low, HighValues: high, Last: len(high) == 0,
	}
}

// intervalJSON is the stored form of an Interval: the encodings hold any bytes,
// which JSON strings cannot.
type intervalJSON struct {
	Low        int64  `json:"low,omitempty"`
	High       int64  `json:"high,omitempty"`
	LowKey     []byte `json:"low_key,omitempty"`
	HighKey    []byte `json:"high_key,omitempty"`
	LowValues  Key    `json:"low_values,omitempty"`
	HighValues Key    `json:"high_values,omitempty"`
	Last       bool   `json:"last,omitempty"`
}

// MarshalJSON writes the encodings in base64.
func (iv Interval) MarshalJSON() ([]byte, error) {
	return json.Marshal(intervalJSON{iv.Low, iv.High, []byte(iv.LowKey), []byte(iv.HighKey), iv.LowValues, iv.HighValues, iv.Last})
}

// UnmarshalJSON reads what MarshalJSON gives.
func (iv *Interval) UnmarshalJSON(b []byte) error {
	var j intervalJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*iv = Interval{j.Low, j.High, string(j.LowKey), string(j.HighKey), j.LowValues, j.HighValues, j.Last}
	return nil
}

// MergeIntervals sorts the intervals of a keyspace in place, joins those that
// touch or overlap, and returns the result.
func MergeIntervals(strategy Strategy, ivs []Interval) []Interval {
	hash := strategy == Hash
	sort.Slice(ivs, func(i, j int) bool {
		if hash {
			return ivs[i].Low < ivs[j].Low
		}
		return ivs[i].LowKey < ivs[j].LowKey
	})
	out := ivs[:0]
	for _, iv := range ivs {
		if len(out) == 0 {
			out = append(out, iv)
			continue
		}
		last := &out[len(out)-1]
		if touches := last.Last || (hash && iv.Low <= last.High) || (!hash && iv.LowKey <= last.HighKey); !touches {
			out = append(out, iv)
			continue
		}
		further := iv.Last || (hash && iv.High > last.High) || (!hash && iv.HighKey > last.HighKey)
		if !last.Last && further {
			last.High, last.HighKey, last.HighValues, last.Last = iv.High, iv.HighKey, iv.HighValues, iv.Last
		}
	}
	return out
}

// Owns reports whether the shard owns the key. The key must have a value for
// each of o.Types. Pinned keys and listed values are looked through one by one;
// a caller with many uses [NewOwner]. It does not allocate for keys that encode
// to 128 bytes or less.
func (o *Ownership) Owns(k Key) bool {
	if contains(o.Pinned, k) {
		return true
	}
	if contains(o.PinnedElsewhere, k) {
		return false
	}
	return o.ownsPosition(k, func(k Key) bool { return contains(o.Listed, k) })
}

func (o *Ownership) ownsPosition(k Key, listed func(Key) bool) bool {
	switch o.Strategy {
	case Hash:
		return o.OwnsHash(HashKey(o.Seed, k))
	case Range:
		var buf [128]byte
		return o.ownsEncoded(AppendOrdered(buf[:0], k))
	case List:
		return listed(k)
	default:
		return false
	}
}

// OwnsHash reports whether a position of a hash keyspace is in an interval;
// pinned keys are not looked at.
func (o *Ownership) OwnsHash(position int64) bool {
	lo, hi := 0, len(o.Intervals)
	for lo < hi { // the first interval that begins after the position
		mid := int(uint(lo+hi) >> 1)
		if o.Intervals[mid].Low <= position {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo > 0 && o.Intervals[lo-1].ContainsHash(position)
}

func (o *Ownership) ownsEncoded(encoded []byte) bool {
	lo, hi := 0, len(o.Intervals)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if o.Intervals[mid].LowKey <= string(encoded) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo > 0 && o.Intervals[lo-1].ContainsKey(encoded)
}

func contains(keys []Key, k Key) bool {
	for _, o := range keys {
		if CompareKeys(o, k) == 0 {
			return true
		}
	}
	return false
}

// Owner answers Owns by binary search, also among many pinned keys.
type Owner struct {
	o                        Ownership
	pinned, elsewhere, lists []Key
}

// NewOwner prepares an Ownership, which must not change afterwards.
func NewOwner(o Ownership) *Owner {
	return &Owner{o: o, pinned: sorted(o.Pinned), elsewhere: sorted(o.PinnedElsewhere), lists: sorted(o.Listed)}
}

// Ownership returns what the Owner was made from.
func (w *Owner) Ownership() *Ownership { return &w.o }

// Owns is [Ownership.Owns].
func (w *Owner) Owns(k Key) bool {
	if search(w.pinned, k) {
		return true
	}
	if search(w.elsewhere, k) {
		return false
	}
	if w.o.Strategy == List {
		return search(w.lists, k)
	}
	return w.o.ownsPosition(k, nil)
}

func sorted(keys []Key) []Key {
	s := append([]Key(nil), keys...)
	sort.Slice(s, func(i, j int) bool { return CompareKeys(s[i], s[j]) < 0 })
	return s
}

func search(keys []Key, k Key) bool {
	lo, hi := 0, len(keys)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		c := CompareKeys(keys[mid], k)
		if c == 0 {
			return true
		}
		if c < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return false
}
