package ids

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// The values that a process takes from the directory at a time if the sequence
// has no CACHE of its own.
const (
	blockDefault  = 100
	blockSmallint = 10
)

// blocksMax bounds the sequences of which a process keeps a block. The rest of a
// block that is forgotten is a gap.
const blocksMax = 10_000

// BlockSize returns how many values a process takes at a time.
func BlockSize(def *shardmap.Sequence) int64 {
	switch {
	case def.Cache > 0:
		return def.Cache
	case def.Type == "smallint":
		return blockSmallint
	}
	return blockDefault
}

// Sequences hands out the values of sequences in blocks that it takes from the
// directory. Within one process values come in order; the process's sessions
// share its blocks. Methods are safe for concurrent use.
type Sequences struct {
	records shardmap.Records

	mu     sync.Mutex
	blocks map[string]*block // by the sequence's ID
}

// block is what is left of the values that the process has taken.
type block struct {
	mu lock
	// Under mu.
	increment int64
	next      int64
	left      int64
	// made is what the block was taken under; another definition ends it.
	made shardmap.Sequence
	// revision is the record's after the block was taken, before what it said.
	revision uint64
	before   State
	fresh    bool // nothing was given from it
}

// NewSequences returns a Sequences without blocks. records nil: every method refuses with 0A000.
func NewSequences(records shardmap.Records) *Sequences {
	return &Sequences{records: records, blocks: map[string]*block{}}
}

// State is where a sequence is, as the directory knows it.
type State struct {
	Name string `json:"name"` // for people
	// Last is the last value that a process has taken, Called false if the next
	// one is Last itself.
	Last   int64 `json:"last"`
	Called bool  `json:"called"`
	// Sets counts the calls of setval(): only they bring a sequence back behind values that were given.
	Sets uint64 `json:"sets,omitempty"`
}

// RecordPrefix begins the keys of the records of sequences.
const RecordPrefix = "sequence/"

func sequenceKey(def *shardmap.Sequence) string { return RecordPrefix + def.ID }

// RecordKey is the key of the record that says where a sequence is.
func RecordKey(def *shardmap.Sequence) string { return sequenceKey(def) }

func (s *Sequences) block(ctx context.Context, def *shardmap.Sequence) (*block, error) {
	if s.records == nil {
		return nil, noRecords("the sequence " + def.QualifiedName())
	}
	s.mu.Lock()
	b := s.blocks[def.ID]
	if b == nil {
		if len(s.blocks) >= blocksMax {
			for id := range s.blocks {
				delete(s.blocks, id)
				break
			}
		}
		b = &block{mu: newLock()}
		s.blocks[def.ID] = b
	}
	s.mu.Unlock()
	if err := b.mu.lock(ctx); err != nil {
		return nil, err
	}
	if !sameNumbers(&b.made, def) {
		s.giveBack(ctx, b)
		b.made = *def
	}
	return b, nil
}

// giveBack returns what is left of a block to the sequence, if nobody has taken
// values since. It may fail: then the rest is a gap.
func (s *Sequences) giveBack(ctx context.Context, b *block) {
	if b.left == 0 {
		return
	}
	at := State{Name: b.made.QualifiedName(), Last: b.next - b.increment, Called: true, Sets: b.before.Sets}
	if b.fresh {
		at = b.before
	}
	b.left = 0
	_, _ = s.write(ctx, &b.made, at, b.revision)
}

// Release gives back what is left of all blocks: an orderly end leaves no gaps if
// no other process has taken values since. Blocks in use are left as they are.
func (s *Sequences) Release(ctx context.Context) {
	if s.records == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.blocks {
		if ctx.Err() != nil {
			return
		}
		select {
		case b.mu <- struct{}{}:
			s.giveBack(ctx, b)
			b.mu.unlock()
		default:
		}
	}
}

// sameNumbers reports whether two definitions give the same values. A new name or
// owner is no reason to give up a block.
func sameNumbers(a, b *shardmap.Sequence) bool {
	return a.ID == b.ID && a.Increment == b.Increment && a.Min == b.Min && a.Max == b.Max && a.Cycle == b.Cycle && a.Cache == b.Cache
}

// Next appends the sequence's next n values to dst. Those of one call are in
// the sequence's order; they come from one block if it has as many left.
//
// Errors: 2200H at the end of a sequence that does not cycle (values before it
// are given up), 57P03 if the directory cannot be reached, ctx's own.
func (s *Sequences) Next(ctx context.Context, def *shardmap.Sequence, dst []int64, n int) ([]int64, error) {
	b, err := s.block(ctx, def)
	if err != nil {
		return dst, err
	}
	defer b.mu.unlock()
	for n > 0 {
		if b.left == 0 {
			if err := s.take(ctx, def, b, max(BlockSize(def), int64(n))); err != nil {
				return dst, err
			}
		}
		for ; n > 0 && b.left > 0; n-- {
			dst = append(dst, b.next)
			b.left, b.fresh = b.left-1, false
			if b.left > 0 {
				b.next += b.increment // not past the end: that could overflow
			}
		}
	}
	return dst, nil
}

// take reserves want values, fewer at the end of the sequence.
func (s *Sequences) take(ctx context.Context, def *shardmap.Sequence, b *block, want int64) error {
	ctx, stop := context.WithTimeout(ctx, reserveMax)
	defer stop()
	for range rounds {
		at, revision, err := s.read(ctx, def)
		if err != nil {
			return err
		}
		first, count, err := span(def, at, want)
		if err != nil {
			return err
		}
		last := first + (count-1)*def.Increment
		taken, err := s.write(ctx, def, State{Name: def.QualifiedName(), Last: last, Called: true, Sets: at.Sets}, revision)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		b.increment, b.next, b.left, b.made = def.Increment, first, count, *def
		b.revision, b.before, b.fresh = taken, at, true
		return nil
	}
	return busy(sequenceKey(def))
}

// span is the next run of at most want values after a state, without a turn from
// one end to the other in it.
func span(def *shardmap.Sequence, at State, want int64) (first, count int64, err error) {
	inc := def.Increment
	first = at.Last
	if at.Called {
		// Differences of int64 may overflow; as uint64 they do not.
		switch {
		case inc > 0 && (at.Last >= def.Max || uint64(def.Max)-uint64(at.Last) < uint64(inc)):
			if !def.Cycle {
				return 0, 0, exhausted(def, "maximum", def.Max)
			}
			first = def.Min
		case inc < 0 && (at.Last <= def.Min || uint64(at.Last)-uint64(def.Min) < negated(inc)):
			if !def.Cycle {
				return 0, 0, exhausted(def, "minimum", def.Min)
			}
			first = def.Max
		default:
			first = at.Last + inc
		}
	}
	// The definition may have been narrowed meanwhile (ALTER SEQUENCE).
	if first > def.Max && inc > 0 || first < def.Min && inc < 0 {
		if !def.Cycle {
			if inc > 0 {
				return 0, 0, exhausted(def, "maximum", def.Max)
			}
			return 0, 0, exhausted(def, "minimum", def.Min)
		}
		if first = def.Min; inc < 0 {
			first = def.Max
		}
	}
	var more uint64 // values after first
	if inc > 0 {
		more = (uint64(def.Max) - uint64(first)) / uint64(inc)
	} else {
		more = (uint64(first) - uint64(def.Min)) / negated(inc)
	}
	count = want
	if more < uint64(math.MaxInt64) {
		count = min(want, int64(more)+1)
	}
	return first, count, nil
}

// negated is -n, for negative n, math.MinInt64 included.
func negated(n int64) uint64 { return uint64(-(n + 1)) + 1 }

func exhausted(def *shardmap.Sequence, end string, value int64) error {
	return sqlstate.New(sqlstate.SequenceLimitExceeded, "nextval: reached %s value of sequence \"%s\" (%d)", end, def.Name, value)
}

// read returns where the sequence is; revision 0 if nobody took values so far.
func (s *Sequences) read(ctx context.Context, def *shardmap.Sequence) (State, uint64, error) {
	rec, err := s.records.Record(ctx, sequenceKey(def))
	if errors.Is(err, shardmap.ErrNotFound) {
		return State{Name: def.QualifiedName(), Last: def.First}, 0, nil
	}
	if err != nil {
		return State{}, 0, unreachable(err)
	}
	var at State
	if err := decode(rec, &at); err != nil {
		return State{}, 0, err
	}
	return at, rec.Revision, nil
}

func (s *Sequences) write(ctx context.Context, def *shardmap.Sequence, at State, revision uint64) (uint64, error) {
	v, err := json.Marshal(at)
	if err != nil {
		return 0, sqlstate.Wrap(err, sqlstate.InternalError, "the state of sequence %s cannot be written", def.QualifiedName())
	}
	revision, err = s.records.PutRecord(ctx, sequenceKey(def), v, revision)
	if err == nil || errors.Is(err, shardmap.ErrConflict) {
		return revision, err
	}
	// Perhaps it was written: then those values are a gap.
	return 0, unreachable(err)
}

// Set is setval(): the next value is value if called is false, else the one
// after it. Blocks that other processes hold go on until they are used up.
//
// Errors: 22003 for a value out of the sequence's bounds, those of Next.
func (s *Sequences) Set(ctx context.Context, def *shardmap.Sequence, value int64, called bool) error {
	if value < def.Min || value > def.Max {
		return sqlstate.New(sqlstate.NumericOutOfRange, "setval: value %d is out of bounds for sequence \"%s\" (%d..%d)", value, def.Name, def.Min, def.Max)
	}
	b, err := s.block(ctx, def)
	if err != nil {
		return err
	}
	defer b.mu.unlock()
	ctx, stop := context.WithTimeout(ctx, reserveMax)
	defer stop()
	for range rounds {
		at, revision, err := s.read(ctx, def)
		if err != nil {
			return err
		}
		_, err = s.write(ctx, def, State{Name: def.QualifiedName(), Last: value, Called: called, Sets: at.Sets + 1}, revision)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err == nil {
			b.left = 0
		}
		return err
	}
	return busy(sequenceKey(def))
}

// Settle gives back what is left of this process's block, and returns where the
// sequence is then: at the last value given, unless another process holds a block.
// Errors: those of Where.
func (s *Sequences) Settle(ctx context.Context, def *shardmap.Sequence) (State, error) {
	b, err := s.block(ctx, def)
	if err != nil {
		return State{}, err
	}
	defer b.mu.unlock()
	s.giveBack(ctx, b)
	at, _, err := s.read(ctx, def)
	return at, err
}

// Where returns where a sequence is in the directory: ahead of what was given,
// by the blocks that processes hold. Errors: 57P03, 0A000, ctx's own.
func (s *Sequences) Where(ctx context.Context, def *shardmap.Sequence) (State, error) {
	if s.records == nil {
		return State{}, noRecords("the sequence " + def.QualifiedName())
	}
	at, _, err := s.read(ctx, def)
	return at, err
}

// Forget deletes the record of a sequence that is gone. Errors: 57P03.
func (s *Sequences) Forget(ctx context.Context, def *shardmap.Sequence) error {
	if s.records == nil {
		return nil
	}
	s.mu.Lock()
	delete(s.blocks, def.ID)
	s.mu.Unlock()
	for range rounds {
		_, revision, err := s.read(ctx, def)
		if err != nil || revision == 0 {
			return err
		}
		if err = s.records.DeleteRecord(ctx, sequenceKey(def), revision); err == nil || errors.Is(err, shardmap.ErrNotFound) {
			return nil
		}
		if !errors.Is(err, shardmap.ErrConflict) {
			return unreachable(err)
		}
	}
	return busy(sequenceKey(def))
}
