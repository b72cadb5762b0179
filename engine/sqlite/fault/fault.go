// Package fault stops a translation or a change of the schema with an error: Raise panics, and Catch or Guard at the
// top turns the panic into the error. So an error ends everything, and the checks in between stay readable.
package fault

import "github.com/cleavedb/cleave/sqlstate"

// failed is what Raise panics with.
type failed struct{ err error }

// Raise stops with an error.
func Raise(err error) { panic(failed{err}) }

// Raisef stops with an error of PostgreSQL's.
func Raisef(code sqlstate.Code, format string, args ...any) {
	panic(failed{sqlstate.New(code, format, args...)})
}

// Refuse stops with the refusal of what a SQLite shard does not have.
func Refuse(id sqlstate.ID, what string, args ...any) {
	Raise(sqlstate.Refusal(id, what+" is not supported on a SQLite shard", args...).WithHint("See docs/sql-sqlite.md, or use a PostgreSQL shard."))
}

// Catch turns a panic of Raise into *err. Panics of any other kind go on.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failed:
		*err = r.err
	default:
		panic(r)
	}
}

// Of returns the error with which Raise panicked, nil of another panic.
func Of(recovered any) error {
	f, _ := recovered.(failed)
	return f.err
}

// Guard runs fn and turns a panic of any kind into an error.
func Guard(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if f, ok := r.(failed); ok {
				err = f.err
				return
			}
			err = sqlstate.New(sqlstate.InternalError, "internal error: %v", r).
				WithHint("Please report it with the statement: https://github.com/cleavedb/cleave/issues.")
		}
	}()
	return fn()
}
