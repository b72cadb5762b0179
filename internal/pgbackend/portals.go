package pgbackend

import (
	"iter"
	"maps"

	"github.com/cleavedb/cleave/sqlstate"
)

// Portals are the portals of one client, those of Bind and the cursors of DECLARE. The one without a name is "".
type Portals[P any] struct {
	// Max bounds their number; 0: it does not.
	Max int
	// Gone is told of each that ends; it may be nil.
	Gone  func(P)
	named map[string]opened[P]
}

// opened is a portal with the number of savepoints that were set when it was made.
type opened[P any] struct {
	p     P
	depth int
}

// Len is how many there are.
func (t *Portals[P]) Len() int { return len(t.named) }

// All gives all with their names, in no order. They may be dropped meanwhile.
func (t *Portals[P]) All() iter.Seq2[string, P] {
	return func(yield func(string, P) bool) {
		for name, o := range t.named {
			if !yield(name, o.p) {
				return
			}
		}
	}
}

// Names gives their names, in no order.
func (t *Portals[P]) Names() iter.Seq[string] { return maps.Keys(t.named) }

// Find finds a portal.
func (t *Portals[P]) Find(name string) (p P, ok bool) {
	o, ok := t.named[name]
	return o.p, ok
}

// Named is Find by bytes, which are not copied.
func (t *Portals[P]) Named(name []byte) (p P, ok bool) {
	o, ok := t.named[string(name)]
	return o.p, ok
}

// NoPortal is the error of a message that names no portal.
func NoPortal(name string) error {
	return sqlstate.New(sqlstate.InvalidCursorName, "portal \"%s\" does not exist", name)
}

// duplicateCursor is PostgreSQL's code for a portal whose name is in use.
const duplicateCursor sqlstate.Code = "42P03"

// Exists is the error of a Bind or DECLARE of a name that is in use.
func Exists(name string) error {
	return sqlstate.New(duplicateCursor, "cursor \"%s\" already exists", name)
}

// Free is the error of a portal that cannot be made: the name is in use, or there are too many. The one without a name is replaced by
// the next (CreatePortal of portalmem.c).
func (t *Portals[P]) Free(name []byte) error {
	_, has := t.named[string(name)]
	switch {
	case has && len(name) > 0:
		return Exists(string(name))
	case !has && t.Max > 0 && len(t.named) >= t.Max:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "%d portals are open", len(t.named)).
			WithHint("Close those that are not needed.")
	}
	return nil
}

// Put keeps a portal that was made while so many savepoints were set, in place of the one that had the name.
func (t *Portals[P]) Put(name string, p P, depth int) {
	if t.Gone != nil {
		t.Drop(name)
	}
	if t.named == nil {
		t.named = map[string]opened[P]{}
	}
	t.named[name] = opened[P]{p, depth}
}

// Drop ends the portal of the name, and reports whether there was one.
func (t *Portals[P]) Drop(name string) bool {
	o, ok := t.named[name]
	if !ok {
		return false
	}
	delete(t.named, name)
	if t.Gone != nil {
		t.Gone(o.p)
	}
	return true
}

// Take takes the portal of the name out of the table, which does not end it.
func (t *Portals[P]) Take(name string) (p P, ok bool) {
	o, ok := t.named[name]
	delete(t.named, name)
	return o.p, ok
}

// Released is what the RELEASE of the savepoint at does: what was made behind it belongs to what is outside of it
// (AtSubCommit_Portals of portalmem.c).
func (t *Portals[P]) Released(at int) {
	for name, o := range t.named {
		if o.depth > at {
			o.depth = at
			t.named[name] = o
		}
	}
}

// RolledBack is what the ROLLBACK TO the savepoint at does: what was made behind it ends (AtSubAbort_Portals).
func (t *Portals[P]) RolledBack(at int) {
	for name, o := range t.named {
		if o.depth > at {
			t.Drop(name)
		}
	}
}

// Ended is what the end of the transaction does: all end but those that stay, which are of no transaction from now on. stay may be
// nil.
func (t *Portals[P]) Ended(stay func(P) bool) {
	if t.Gone == nil && stay == nil {
		clear(t.named)
		return
	}
	for name, o := range t.named {
		switch {
		case stay == nil || !stay(o.p):
			t.Drop(name)
		case o.depth > 0:
			o.depth = 0
			t.named[name] = o
		}
	}
}
