package shardmap

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// Index is one keyspace of a [Snapshot], ready for look-ups. Immutable, safe
// for concurrent use.
type Index struct {
	def *Keyspace

	// lows are the lower bounds of a hash keyspace's ranges but the first, with
	// the sign bit flipped so that they order as unsigned numbers.
	lows ladder

	// bounds are the encoded lower bounds of a range keyspace's ranges but the first.
	bounds *bounds
	// lowValues are the typed lower bounds; lowValues[0] is nil.
	lowValues []keyspace.Key

	// pins and values map encoded keys to their places in def.
	pins      map[string]int32
	pinKeys   []keyspace.Key
	values    map[string]int32
	valueKeys []keyspace.Key

	// held is nil unless a transit has a hold.
	held *holds

	first int // the number of the first unit
}

// Assignment is where a key lives.
type Assignment struct {
	Shard  string
	Epoch  uint64 // the map version at which this assignment last changed
	Range  int    // index into Def().Ranges, -1 for a pin or a listed value
	Unit   int    // the number of the assignment, see [Snapshot.Units]
	Pinned bool
}

// Def returns the keyspace as data. Read-only.
func (ix *Index) Def() *Keyspace { return ix.def }

// Locate returns the assignment of a whole shard key: a pin if there is one,
// else the listed value or the range. It allocates only for the error.
//
// Errors: 42804 if the key's types are not the keyspace's, 23514 if no shard
// is listed for it.
func (ix *Index) Locate(k keyspace.Key) (Assignment, error) {
	def := ix.def
	if len(k) != len(def.Types) {
		return Assignment{}, ix.typeError(k)
	}
	size := 0
	for i := range k {
		if k[i].Type() != def.Types[i] {
			return Assignment{}, ix.typeError(k)
		}
		size += 16 + 2*len(k[i].Bytes())
	}
	if def.Strategy == keyspace.Hash && len(ix.pins) == 0 {
		return ix.rangeAt(ix.LocateHash(keyspace.HashKey(def.Seed, k))), nil
	}
	if size > stackKeyMax {
		return ix.locateLong(k)
	}
	var stack [stackKeyMax]byte
	return ix.locateEncoded(k, keyspace.AppendOrdered(stack[:0], k))
}

// stackKeyMax bounds the encoded keys that are built on the stack, bytes.
const stackKeyMax = 160

// longKeys holds the buffers of longer ones. A buffer that grew beyond
// keyBufferMax is left to the garbage collector.
var longKeys = sync.Pool{New: func() any { return new([]byte) }}

const keyBufferMax = 64 << 10

func (ix *Index) locateLong(k keyspace.Key) (Assignment, error) {
	buf := longKeys.Get().(*[]byte)
	enc := keyspace.AppendOrdered((*buf)[:0], k)
	a, err := ix.locateEncoded(k, enc)
	if cap(enc) <= keyBufferMax {
		*buf = enc
		longKeys.Put(buf)
	}
	return a, err
}

func (ix *Index) locateEncoded(k keyspace.Key, enc []byte) (Assignment, error) {
	def := ix.def
	if i, ok := ix.pins[string(enc)]; ok {
		p := &def.Pins[i]
		return Assignment{Shard: p.Shard, Epoch: p.Epoch, Range: -1, Pinned: true, Unit: ix.first + len(def.Ranges) + len(def.Values) + int(i)}, nil
	}
	switch def.Strategy {
	case keyspace.Hash:
		return ix.rangeAt(ix.LocateHash(keyspace.HashKey(def.Seed, k))), nil
	case keyspace.Range:
		return ix.rangeAt(ix.LocateOrdered(enc)), nil
	}
	if i, ok := ix.values[string(enc)]; ok {
		v := &def.Values[i]
		return Assignment{Shard: v.Shard, Epoch: v.Epoch, Range: -1, Unit: ix.first + len(def.Ranges) + int(i)}, nil
	}
	err := sqlstate.New(sqlstate.CheckViolation, "no shard is listed for value %s of keyspace %q", keyText(k.Texts()), def.Name).
		WithHint("give it a shard first: SELECT cleave.pin('%s', %s, 'SHARD')", def.Name, keyLiteral(k))
	err.Keyspace = def.Name
	return Assignment{}, err
}

func (ix *Index) rangeAt(i int) Assignment {
	r := &ix.def.Ranges[i]
	return Assignment{Shard: r.Shard, Epoch: r.Epoch, Range: i, Unit: ix.first + i}
}

func (ix *Index) typeError(k keyspace.Key) error {
	have := make([]string, len(k))
	for i := range k {
		have[i] = k[i].Type().String()
	}
	err := sqlstate.New(sqlstate.DatatypeMismatch, "a shard key of keyspace %q is (%s), not (%s)",
		ix.def.Name, typeList(ix.def.Types), strings.Join(have, ", "))
	err.Keyspace = ix.def.Name
	return err
}

// LocateHash returns the index into Def().Ranges of the range that holds a
// position of a hash keyspace, pins left aside. It must not be called on a
// keyspace of another strategy.
func (ix *Index) LocateHash(pos int64) int {
	return ix.lows.atMost(flip(pos))
}

// flip maps signed numbers to unsigned ones of the same order.
func flip(n int64) uint64 { return uint64(n) ^ 1<<63 }

// LocateOrdered returns the index into Def().Ranges of the range that holds a
// position of a range keyspace, given in the encoding of
// [keyspace.AppendOrdered], pins left aside. It must not be called on a
// keyspace of another strategy.
func (ix *Index) LocateOrdered(enc []byte) int {
	return ix.bounds.atMost(enc)
}

// LocateRange is LocateHash and LocateOrdered for a key: the index of the range
// that holds its position, pins left aside, -1 in a list keyspace.
func (ix *Index) LocateRange(k keyspace.Key) int {
	switch ix.def.Strategy {
	case keyspace.Hash:
		return ix.LocateHash(keyspace.HashKey(ix.def.Seed, k))
	case keyspace.Range:
		return ix.LocateOrdered(keyspace.AppendOrdered(nil, k))
	}
	return -1
}

// UnpinnedOwner is the shard that would own a key without pins, "" for a list
// value that is not listed.
func (ix *Index) UnpinnedOwner(k keyspace.Key) string {
	if i := ix.LocateRange(k); i >= 0 {
		return ix.def.Ranges[i].Shard
	}
	if i, ok := ix.values[string(keyspace.AppendOrdered(nil, k))]; ok {
		return ix.def.Values[i].Shard
	}
	return ""
}

// lowHash is the lower bound of range i.
func (ix *Index) lowHash(i int) int64 {
	if i == 0 {
		return math.MinInt64
	}
	return int64(ix.lows.sorted[i-1] ^ 1<<63)
}

// lowKey is the encoded lower bound of range i, "" for the first.
func (ix *Index) lowKey(i int) string {
	if i == 0 {
		return ""
	}
	return ix.bounds.key(i - 1)
}

// Owners returns the names of the shards that own something of the keyspace, by
// range, value or pin, sorted.
func (ix *Index) Owners() []string {
	seen := map[string]bool{}
	for i := range ix.def.Ranges {
		seen[ix.def.Ranges[i].Shard] = true
	}
	for i := range ix.def.Values {
		seen[ix.def.Values[i].Shard] = true
	}
	for i := range ix.def.Pins {
		seen[ix.def.Pins[i].Shard] = true
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// RangeText returns range i in PostgreSQL's notation of ranges, for people:
// "[0,4611686018427387904)", an unbounded side empty: "(,m)"; composite bounds
// in parentheses: "[(7,eu),(9))". It is "" if there is no range i, as for pins
// and listed values.
func (ix *Index) RangeText(i int) string {
	if i < 0 || i >= len(ix.def.Ranges) {
		return ""
	}
	r := &ix.def.Ranges[i]
	return boundsText(r.Low, r.High)
}

func boundsText(low, high []string) string {
	var b strings.Builder
	if low == nil {
		b.WriteByte('(')
	} else {
		b.WriteByte('[')
		b.WriteString(keyText(low))
	}
	b.WriteByte(',')
	if high != nil {
		b.WriteString(keyText(high))
	}
	b.WriteByte(')')
	return b.String()
}

// keyText prints the texts of a key: bare if there is one, else as a row.
func keyText(texts []string) string {
	if len(texts) == 1 {
		return quoteText(texts[0])
	}
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = quoteText(t)
	}
	return "(" + strings.Join(quoted, ",") + ")"
}

// quoteText quotes as PostgreSQL does in the text of ranges and rows, and also
// keeps control characters out of lines meant for people.
func quoteText(s string) string {
	if s == "" {
		return `""`
	}
	if !strings.ContainsAny(s, "\"\\,()[] \t\r\n\v\f") && !strings.ContainsFunc(s, isControl) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case isControl(r):
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// keyLiteral is a key as the SQL function's argument for it.
func keyLiteral(k keyspace.Key) string {
	if len(k) == 1 {
		return k[0].Literal()
	}
	texts := make([]string, len(k))
	for i := range k {
		texts[i] = k[i].Literal()
	}
	return "ROW(" + strings.Join(texts, ", ") + ")"
}

func typeList(types []keyspace.Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// At returns the shard that owns the rows at a position as a guard's error writes it (engine.Refusal):
// the hash, or the key's texts; "" for a value that is not listed. moving: a transit has keys there. ok is
// false if the position does not tell a key for certain, as texts with commas in them, or times in another
// form than ISO's.
func (ix *Index) At(position string) (shard string, moving, ok bool) {
	at, ok := ix.place(position)
	if !ok {
		return "", false, false
	}
	for i := range ix.def.Transits {
		span, err := ix.span(ix.def.Transits[i].Part.Clone())
		if err != nil || at.in(ix, span) { // never an error: the map was checked
			return "", true, true
		}
	}
	if at.key != nil {
		found, err := ix.Locate(at.key)
		if err != nil {
			return "", false, true // it is not listed
		}
		return found.Shard, false, true
	}
	for i, k := range ix.pinKeys {
		if keyspace.HashKey(ix.def.Seed, k) == at.hash {
			return ix.def.Pins[i].Shard, false, true
		}
	}
	return ix.def.Ranges[ix.LocateHash(at.hash)].Shard, false, true
}

// place is the position of a row: a hash, or, where a guard tells it, the key.
type place struct {
	hash int64
	key  keyspace.Key
}

func (ix *Index) place(position string) (place, bool) {
	if ix.def.Strategy == keyspace.Hash {
		n, err := strconv.ParseInt(position, 10, 64)
		return place{hash: n}, err == nil
	}
	texts := []string{position}
	if len(ix.def.Types) > 1 {
		texts = strings.Split(position, ", ")
	}
	key, err := keyspace.ParseKey(ix.def.Types, texts)
	return place{key: key}, err == nil
}

// in reports whether a span has the place, pins left aside.
func (p place) in(ix *Index, s span) bool {
	switch {
	case p.key != nil && s.key != nil:
		return s.key.Equal(p.key)
	case p.key != nil:
		return ix.contains(s.iv, p.key)
	case s.key != nil:
		return keyspace.HashKey(ix.def.Seed, s.key) == p.hash
	}
	return s.iv.ContainsHash(p.hash)
}
