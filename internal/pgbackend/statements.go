package pgbackend

import (
	"iter"
	"maps"

	"github.com/cleavedb/cleave/sqlstate"
)

// Statements are the prepared statements of one client. The one without a name is "".
type Statements[S comparable] struct {
	// Max bounds their number, MaxBytes the bytes of their texts; 0: it does not.
	Max, MaxBytes int
	// Gone is told of each that ends; it may be nil.
	Gone  func(S)
	named map[string]kept[S]
	bytes int
}

type kept[S any] struct {
	s    S
	size int
}

// Len is how many there are.
func (t *Statements[S]) Len() int { return len(t.named) }

// All gives all with their names, in no order. They may be dropped meanwhile.
func (t *Statements[S]) All() iter.Seq2[string, S] {
	return func(yield func(string, S) bool) {
		for name, k := range t.named {
			if !yield(name, k.s) {
				return
			}
		}
	}
}

// Names gives their names, in no order.
func (t *Statements[S]) Names() iter.Seq[string] { return maps.Keys(t.named) }

// Has reports whether there is one of the name.
func (t *Statements[S]) Has(name string) bool {
	_, ok := t.named[name]
	return ok
}

// Find finds a statement.
func (t *Statements[S]) Find(name []byte) (s S, ok bool) {
	k, ok := t.named[string(name)]
	return k.s, ok
}

// Get finds the statement that a Bind, a Describe or an EXECUTE names.
func (t *Statements[S]) Get(name []byte) (s S, err error) {
	k, ok := t.named[string(name)]
	switch {
	case ok:
		return k.s, nil
	case len(name) == 0:
		return s, sqlstate.New(sqlstate.InvalidStatementName, "unnamed prepared statement does not exist")
	}
	return s, sqlstate.New(sqlstate.InvalidStatementName, "prepared statement \"%s\" does not exist", name)
}

// Unsupplied is the error of a Bind with another number of values than its statement has parameters.
func Unsupplied(got int, statement string, want int) error {
	return sqlstate.New(sqlstate.ProtocolViolation, "bind message supplies %d parameters, but prepared statement \"%s\" requires %d", got, statement, want)
}

// Replace begins a Parse: the statement without a name ends with the next one's Parse, and with a Query, whatever becomes of these
// (drop_unnamed_stmt of postgres.c).
func (t *Statements[S]) Replace(name string) {
	if name == "" {
		t.Drop("")
	}
}

// Taken is the error of a Parse or PREPARE whose name is in use. PostgreSQL looks when the text has been analysed
// (StorePreparedStatement of prepare.c).
func (t *Statements[S]) Taken(name string) error {
	if name != "" && t.Has(name) {
		return sqlstate.New(sqlstate.DuplicatePrepared, "prepared statement \"%s\" already exists", name)
	}
	return nil
}

// Room is the error of one more statement of so many bytes.
func (t *Statements[S]) Room(size int) error {
	if t.Max > 0 && len(t.named) >= t.Max || t.MaxBytes > 0 && t.bytes+size > t.MaxBytes {
		e := sqlstate.New(sqlstate.ProgramLimitExceeded, "too many prepared statements (%d, %d bytes)", len(t.named), t.bytes)
		if t.MaxBytes > 0 {
			return e.WithHint("Close those that are not needed (DEALLOCATE): the limits are %d statements and %d bytes for a session.", t.Max, t.MaxBytes)
		}
		return e.WithHint("Close those that are not needed (DEALLOCATE): the limit is %d statements for a session.", t.Max)
	}
	return nil
}

// Put keeps a statement of so many bytes, in place of the one that had the name.
func (t *Statements[S]) Put(name string, s S, size int) {
	t.Drop(name)
	if t.named == nil {
		t.named = map[string]kept[S]{}
	}
	t.named[name] = kept[S]{s, size}
	t.bytes += size
}

// Add is what a Parse ends with: the statement is kept, if its name is free and there is room.
func (t *Statements[S]) Add(name string, s S, size int) error {
	if err := t.Taken(name); err != nil {
		return err
	}
	if err := t.Room(size); err != nil {
		return err
	}
	t.Put(name, s, size)
	return nil
}

// Drop ends the statement of the name, and reports whether there was one.
func (t *Statements[S]) Drop(name string) bool {
	k, ok := t.named[name]
	if !ok {
		return false
	}
	delete(t.named, name)
	t.bytes -= k.size
	if t.Gone != nil {
		t.Gone(k.s)
	}
	return true
}

// DropOnly ends the statement of the name if it is s.
func (t *Statements[S]) DropOnly(name string, s S) {
	if k, ok := t.named[name]; ok && k.s == s {
		t.Drop(name)
	}
}

// Clear ends all.
func (t *Statements[S]) Clear() {
	for name := range t.named {
		t.Drop(name)
	}
}
