package simulate

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/cleavedb/cleave/keyspace"
)

// heavyCapacity is the number of counters for the heaviest keys: a key with more
// than 1/4096 of the rows is surely among them.
const heavyCapacity = 4096

// Position is a key as strategies see it: where it hashes to, and how it sorts.
type Position struct {
	Hash    int64  // keyspace.HashKey with the default seed
	Ordered []byte // keyspace.AppendOrdered, valid until the next key
	ID      uint64 // equal for equal keys, and as good as never for others
}

// Profile learns what a key is like from the keys of all rows. It is used by
// one goroutine.
type Profile struct {
	types    []keyspace.Type
	rows     uint64
	nulls    uint64
	empty    uint64
	distinct *distinct
	heavy    *heavy
	arrival  arrival
	sample   *sample // nil in a column's profile
	buf      []byte
}

// NewProfile returns the profile of a key of these types.
func NewProfile(types []keyspace.Type) *Profile {
	return &Profile{types: types, distinct: newDistinct(16), heavy: newHeavy(heavyCapacity), sample: &sample{}}
}

// NewColumnProfile returns a profile in less than 1 MiB, for many columns side
// by side: with fewer counters and without bounds for ranges.
func NewColumnProfile(t keyspace.Type) *Profile {
	return &Profile{types: []keyspace.Type{t}, distinct: newDistinct(14), heavy: newHeavy(heavyCapacity / 8)}
}

// Types are the types of the key's columns.
func (p *Profile) Types() []keyspace.Type { return p.types }

// Rows is the number of rows with a key.
func (p *Profile) Rows() uint64 { return p.rows }

// AddNull counts a row without a key: a column of it is NULL.
func (p *Profile) AddNull() { p.nulls++ }

// AddEmpty counts a row whose key has an empty text in it. Where that is a key
// like others, it is given to Add as well.
func (p *Profile) AddEmpty() { p.empty++ }

// Locate makes the Position of a key. It is valid until the next call.
func (p *Profile) Locate(key keyspace.Key) Position {
	p.buf = keyspace.AppendOrdered(p.buf[:0], key)
	return Position{Hash: keyspace.HashKey(keyspace.DefaultSeed, key), Ordered: p.buf, ID: xxhash.Sum64(p.buf)}
}

// Add counts a row. pos is what Locate gave for its key; key is not kept.
func (p *Profile) Add(key keyspace.Key, pos Position) {
	p.rows++
	p.distinct.add(pos.ID)
	p.heavy.add(pos.ID, key)
	p.arrival.add(pos.Ordered)
	if p.sample != nil {
		p.sample.add(pos.Ordered)
	}
}

// Key is what a profile says of a key.
type Key struct {
	// Rows have a key. Nulls have none, as a column of it is NULL, and Empty have an
	// empty text. Files do not tell the two apart, so those rows are not placed;
	// in a table an empty text is a key like others and is in Rows as well.
	Rows  uint64 `json:"rows"`
	Nulls uint64 `json:"nulls"`
	Empty uint64 `json:"empty"`
	// Distinct keys, with the standard error of the estimate as a share of it; 0
	// if they were counted one by one.
	Distinct      uint64  `json:"distinct"`
	DistinctError float64 `json:"distinct_error"`
	// Top are the heaviest keys, the heaviest first.
	Top []TopKey `json:"top"`
	// Rising is the share of rows whose key is above that of the row RisingLag
	// rows earlier, of those where the two differ: 1 for a serial number, 0.5 for
	// random keys, 0 for one that falls. RisingLag is 0 if there were too few rows.
	Rising    float64 `json:"rising"`
	RisingLag int     `json:"rising_lag"`
}

// TopKey is one heavy key.
type TopKey struct {
	Key []string `json:"key"` // the text of each column, cut after 256 bytes
	// Rows is how many rows have it, at most; it may be too high by Error.
	Rows  uint64 `json:"rows"`
	Error uint64 `json:"error"`
	// Share is Rows of all rows with a key, 0 to 1.
	Share float64 `json:"share"`
}

// Sure is the share of rows that the key surely has.
func (t *TopKey) Sure() float64 {
	if t.Rows == 0 {
		return 0
	}
	return t.Share * float64(t.Rows-t.Error) / float64(t.Rows)
}

// Key returns what is known by now, with the top heaviest keys.
func (p *Profile) Key(top int) Key {
	k := Key{Rows: p.rows, Nulls: p.nulls, Empty: p.empty, Top: []TopKey{}}
	k.Distinct, k.DistinctError = p.distinct.count()
	k.Distinct = min(k.Distinct, p.rows)
	k.Rising, k.RisingLag = p.arrival.rising()
	for _, c := range p.heavy.top(top) {
		k.Top = append(k.Top, TopKey{Key: c.key.Texts(), Rows: c.count, Error: c.over, Share: float64(c.count) / float64(p.rows)})
	}
	return k
}

// bounds returns the sampled keys in order, one for each sampled row.
func (p *Profile) bounds() []string {
	if p.sample == nil {
		return nil
	}
	keys := slices.Clone(p.sample.keys)
	slices.Sort(keys)
	return keys
}
