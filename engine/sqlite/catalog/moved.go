package catalog

import (
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/keyspace"
)

// Capture is a capture, an object of the catalogue: so every conversation knows,
// in each of its transactions, what is captured in it.
type Capture struct {
	OID    uint32          `json:"oid"`
	ID     string          `json:"id"`
	Set    engine.Set      `json:"set"`
	Tables []CapturedTable `json:"tables"`
	Begin  int64           `json:"begin"` // seq of the last change before it
	// Released: the triggers are gone, rows of the log may be left.
	Released bool `json:"released,omitempty"`

	Rows *RowSet `json:"-"`
}

// CapturedTable says how a table's rows are in the log.
type CapturedTable struct {
	OID      uint32   `json:"oid"`
	Types    []uint32 `json:"types"`    // of the columns
	Key      []int    `json:"key"`      // shard key, as places in the columns
	Identity []int    `json:"identity"` // likewise
}

// RowSet tells which rows belong to a set.
type RowSet struct {
	owner  *keyspace.Owner
	Types  []keyspace.Type
	except bool
	key    keyspace.Key
}

// NewRowSet returns the rows of a set.
func NewRowSet(set *engine.Set) *RowSet {
	return &RowSet{owner: keyspace.NewOwner(set.Keys), Types: set.Keys.Types, except: set.Except, key: make(keyspace.Key, len(set.Keys.Types))}
}

// Has reports whether a row with these shard key values is in the set.
func (s *RowSet) Has(a []function.Arg) bool {
	for i, t := range s.Types {
		switch a[i].Type() {
		case sqlite.TypeNull:
			return s.except
		case sqlite.TypeInteger:
			s.key[i] = keyspace.Int(t, a[i].Int64())
		default:
			s.key[i] = keyspace.Str(t, string(a[i].Blob()))
		}
	}
	return s.owner.Owns(s.key) != s.except
}

// Capture finds the capture of an id, nil if there is none. One that was released has no id any more,
// whether or not its rows of the log are gone: a process may have died between the two.
func (c *Catalog) Capture(id string) *Capture {
	for _, d := range c.Captures {
		if d.ID == id && !d.Released {
			return d
		}
	}
	return nil
}

// SameSet reports whether a capture is that of the set.
func (d *Capture) SameSet(set *engine.Set) bool {
	return Encode(d.Set) == Encode(*set)
}

// PlacesOf says for each table of a capture which one of the set's it is, -1 for none. ok is false
// for a set that is not of the capture's keys and of tables of its.
func (d *Capture) PlacesOf(set *engine.Set) (places []int, ok bool) {
	if set.Except != d.Set.Except || Encode(d.Set.Keys) != Encode(set.Keys) {
		return nil, false
	}
	found := 0
	for i := range d.Set.Tables {
		at, text := -1, Encode(d.Set.Tables[i])
		for n := range set.Tables {
			if Encode(set.Tables[n]) == text {
				at, found = n, found+1
			}
		}
		places = append(places, at)
	}
	return places, found == len(set.Tables)
}
