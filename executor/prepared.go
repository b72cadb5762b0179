package executor

import (
	"encoding/binary"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cleavedb/cleave/sqlstate"
)

// Prepared is a statement as shards know it: its text, the parameter types that
// the client gave, and what else decides what the text means. Sessions that
// prepare the same thing share one Prepared, and so each connection of a pool
// prepares it once.
type Prepared struct {
	Text string
	OIDs []uint32
	// Settings are those under which the text was prepared: a shard reads
	// literals ('2026-01-01'::timestamptz) when it parses.
	Settings *Settings
	reads    bool   // there is something in it that settings decide
	name     string // on every connection
	age      uint64 // of intern.age when it was made
}

// MayRead reports whether there may be something in a text that the settings at its Parse decide: a string, or "= NULL".
func MayRead(text string) bool {
	for i := range len(text) {
		switch c := text[i]; c {
		case '\'':
			return true
		case '$':
			if i+1 < len(text) && (text[i+1] < '0' || text[i+1] > '9') {
				return true
			}
		case 'n', 'N':
			if i+4 <= len(text) && strings.EqualFold(text[i:i+4], "null") {
				return true
			}
		}
	}
	return false
}

// Name is the statement's name on a shard's connection.
func (p *Prepared) Name() string { return p.name }

// internMax bounds the table of shared Prepareds. When it is full, it starts
// anew: later sessions get new names, and connections close the old ones by
// their own bound.
const (
	internMax   = 16384
	internBytes = 64 << 20
)

// intern has the Prepareds that sessions share.
type intern struct {
	// age counts how often shards were found to have prepared what no longer holds.
	age  atomic.Uint64
	mu   sync.Mutex
	next uint64
	size int
	all  map[string]*Prepared
	key  []byte
}

// Prepare returns the shared Prepared for a statement text analysed under a
// schema version and the session's settings.
func (in *intern) Prepare(text string, oids []uint32, schemaVersion uint64, s *Settings) *Prepared {
	in.mu.Lock()
	defer in.mu.Unlock()
	k := binary.BigEndian.AppendUint64(in.key[:0], schemaVersion)
	k = binary.BigEndian.AppendUint16(k, uint16(len(oids)))
	for _, o := range oids {
		k = binary.BigEndian.AppendUint32(k, o)
	}
	k = append(k, s.parseKey()...)
	k = append(k, 1)
	k = append(k, text...)
	in.key = k
	if p, ok := in.all[string(k)]; ok {
		return p
	}
	if in.all == nil || len(in.all) >= internMax || in.size > internBytes {
		in.all, in.size = make(map[string]*Prepared), 0
	}
	in.next++
	in.size += len(k) + len(text)
	p := &Prepared{Text: text, OIDs: append([]uint32(nil), oids...), Settings: s, reads: MayRead(text), name: "c" + strconv.FormatUint(in.next, 10), age: in.age.Load()}
	in.all[string(k)] = p
	if cap(in.key) > 1<<20 {
		in.key = nil
	}
	return p
}

// Outlived reports whether a shard's error says that a statement was prepared before something
// that it names, or that a function of it names, was dropped: a type by its OID, mostly.
func Outlived(e *sqlstate.Error) bool {
	switch e.Code {
	case sqlstate.InternalError:
		return strings.HasPrefix(e.Message, "cache lookup failed for ") || strings.HasPrefix(e.Message, "could not open relation with OID ")
	case sqlstate.UndefinedObject:
		return strings.HasPrefix(e.Message, "type with OID ")
	case sqlstate.InvalidBinary:
		return strings.HasPrefix(e.Message, "invalid internal value for enum")
	case sqlstate.FeatureNotSupported:
		return e.Message == "cached plan must not change result type"
	}
	return false
}

// Outlive makes every statement be prepared anew when it is next run. A schema change in the
// map does the same. Outlive is for statements that were prepared while the change was being
// committed, and for a change that was made on a shard directly.
func (in *intern) Outlive() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.age.Add(1)
	in.all, in.size = nil, 0
}

// Valid reports whether p is what Prepare would return for it.
func (in *intern) Valid(p *Prepared) bool { return p.age == in.age.Load() }

// preparedSet is the prepared statements of one connection, least recently used
// first. It is small, so moving an element costs less than a list's pointers.
type preparedSet struct {
	byID map[*Prepared]*held
	max  int
	tick uint64
}

type held struct {
	p    *Prepared
	used uint64 // tick
	turn uint64 // the turn of the connection in which it was last used
}

func (s *preparedSet) has(p *Prepared, turn uint64) bool {
	h, ok := s.byID[p]
	if !ok {
		return false
	}
	s.tick++
	h.used, h.turn = s.tick, turn
	return true
}

// add notes p and returns the one that has to be closed for it, if any. What
// the current turn uses is never closed, so that the bound may be passed within a turn.
func (s *preparedSet) add(p *Prepared, turn uint64) (evicted *Prepared) {
	if s.byID == nil {
		s.byID = make(map[*Prepared]*held)
	}
	if len(s.byID) >= s.max {
		var oldest *held
		for _, h := range s.byID {
			if h.turn != turn && (oldest == nil || h.used < oldest.used) {
				oldest = h
			}
		}
		if oldest != nil {
			evicted = oldest.p
			delete(s.byID, oldest.p)
		}
	}
	s.tick++
	s.byID[p] = &held{p: p, used: s.tick, turn: turn}
	return evicted
}

func (s *preparedSet) remove(p *Prepared) { delete(s.byID, p) }
