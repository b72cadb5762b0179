package pgbackend

import (
	"iter"

	"github.com/cleavedb/cleave/sqlstate"
)

// Savepoints are those of one transaction, outermost first, each with what its ROLLBACK TO brings back.
type Savepoints[T any] struct {
	set []savepoint[T]
}

type savepoint[T any] struct {
	name string
	was  T
}

// Len is how many are set.
func (s *Savepoints[T]) Len() int { return len(s.set) }

// Set sets one.
func (s *Savepoints[T]) Set(name string, was T) { s.set = append(s.set, savepoint[T]{name, was}) }

// Find finds the innermost one of the name.
func (s *Savepoints[T]) Find(name string) (at int, err error) {
	for i := len(s.set) - 1; i >= 0; i-- {
		if s.set[i].name == name {
			return i, nil
		}
	}
	return -1, sqlstate.New(sqlstate.InvalidSavepoint, "savepoint \"%s\" does not exist", name)
}

// At is what the savepoint at brings back.
func (s *Savepoints[T]) At(at int) T { return s.set[at].was }

// Release takes the savepoint at away, and those inside of it.
func (s *Savepoints[T]) Release(at int) {
	clear(s.set[at:])
	s.set = s.set[:at]
}

// RollBack takes those inside of the savepoint at away.
func (s *Savepoints[T]) RollBack(at int) { s.Release(at + 1) }

// Clear takes all away.
func (s *Savepoints[T]) Clear() { s.set = nil }

// All gives names and what they bring back, outermost first.
func (s *Savepoints[T]) All() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, p := range s.set {
			if !yield(p.name, p.was) {
				return
			}
		}
	}
}
