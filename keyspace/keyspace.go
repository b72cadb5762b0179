package keyspace

import "slices"

// Strategy says how the positions of a keyspace are made from shard keys.
type Strategy string

const (
	// Hash keyspaces place a key at a signed 64-bit hash, equal to PostgreSQL's
	// own extended hash functions.
	Hash Strategy = "hash"
	// Range keyspaces place a key at itself: typed, ordered, text as bytes.
	Range Strategy = "range"
	// List keyspaces place only the keys that are listed.
	List Strategy = "list"
)

// DefaultSeed is the seed of the hash function of every new hash keyspace. It
// is recorded in the map, never assumed.
const DefaultSeed int64 = 0

// Type is the type of one shard key column.
type Type uint8

// The types a shard key column can have. Zero is no type.
const (
	Int2 Type = iota + 1
	Int4
	Int8
	Text
	Varchar
	UUID
	Date
	Timestamp
	Timestamptz
	Bytea
	Bool
)

// Value is one typed, non-NULL shard key column value. The zero Value is not valid.
//
// Integers, date (days since 2000-01-01), timestamps (microseconds since
// 2000-01-01) and bool are in num; text, varchar, bytea and uuid (16 bytes) are
// in str.
type Value struct {
	typ Type
	num int64
	str string
}

// Key is a shard key: one value per shard key column. A prefix of a key is used
// as a bound in composite range keyspaces.
type Key []Value

// Interval is a contiguous, half-open piece of a position space: Low is
// inclusive, High exclusive. Hash keyspaces use Low and High, where the last
// interval of the space has Last set and ignores High. Range keyspaces use
// LowKey and HighKey in the encoding of [AppendOrdered], where an empty LowKey
// is the beginning of the space and Last means that there is no upper bound.
type Interval struct {
	Low, High       int64
	LowKey, HighKey string
	// LowValues and HighValues are the same bounds as typed values, prefixes
	// allowed, for engines that compare typed columns. Empty where unbounded.
	LowValues, HighValues Key
	Last                  bool
}

// Ownership is what one shard owns of one keyspace: what its guard lets
// through. Intervals are sorted, disjoint and merged where they touch.
// A key is owned if it is in Pinned, or if it is not in PinnedElsewhere and its
// position is in an interval (list keyspaces: and it is in Listed).
type Ownership struct {
	Keyspace        string
	Strategy        Strategy
	Types           []Type
	Seed            int64
	Intervals       []Interval // hash and range
	Listed          []Key      // list
	Pinned          []Key      // owned whatever the position
	PinnedElsewhere []Key      // not owned whatever the position
	Epoch           uint64     // the highest epoch among them
}

// Is reports whether two ownerships are one: equal, with the keys and intervals in the same place, which are not looked at. False says nothing.
func (o *Ownership) Is(p *Ownership) bool {
	return o.Keyspace == p.Keyspace && o.Strategy == p.Strategy && o.Seed == p.Seed && o.Epoch == p.Epoch && slices.Equal(o.Types, p.Types) &&
		samePlace(o.Intervals, p.Intervals) && samePlace(o.Listed, p.Listed) && samePlace(o.Pinned, p.Pinned) && samePlace(o.PinnedElsewhere, p.PinnedElsewhere)
}

func samePlace[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
