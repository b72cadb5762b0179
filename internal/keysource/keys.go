package keysource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// Types are guessed from the first rows, and these bound how many: by number and by bytes.
const (
	guessRows  = 10_000
	guessBytes = 4 << 20
)

// Visitor gets the keys of all rows.
type Visitor interface {
	// Types comes first: the types of the key's columns.
	Types(types []keyspace.Type, guessed bool)
	// Key is a row's key; valid until Key returns.
	Key(key keyspace.Key) error
	// Null is a row with a column that is NULL, Empty one with an empty text. An
	// empty text that is a key comes to Key as well.
	Null()
	Empty()
}

// Options say how rows become keys.
type Options struct {
	Columns []int
	// Types of the columns; nil to guess them: a type is taken if all of the first
	// 10,000 values are of it, else text.
	Types []keyspace.Type
	// EmptyIsKey is true where an empty text differs from NULL: in a table.
	EmptyIsKey bool
}

// Keys reads all rows and gives their keys to v. A value that is not of its
// type ends it with PostgreSQL's error; where the type was guessed, a hint
// says how to go on.
func Keys(ctx context.Context, rows Rows, o Options, v Visitor) error {
	k := &keys{o: o, v: v, types: o.Types, key: make(keyspace.Key, len(o.Columns))}
	if k.types != nil {
		v.Types(k.types, false)
	}
	err := rows.Rows(ctx, o.Columns, func(fields [][]byte) error {
		if k.types != nil {
			return k.row(fields)
		}
		held := make([][]byte, len(fields))
		for i, f := range fields {
			held[i] = bytes.Clone(f)
			if f != nil && held[i] == nil {
				held[i] = []byte{}
			}
			k.bytes += len(f)
		}
		if k.held = append(k.held, held); len(k.held) < guessRows && k.bytes < guessBytes {
			return nil
		}
		return k.guess()
	})
	if k.types == nil {
		// Also when it was interrupted: what was read counts.
		if guessed := k.guess(); err == nil {
			err = guessed
		}
	}
	return err
}

type keys struct {
	o     Options
	v     Visitor
	types []keyspace.Type
	key   keyspace.Key
	held  [][][]byte
	bytes int
}

func (k *keys) guess() error {
	k.types = make([]keyspace.Type, len(k.o.Columns))
	for c := range k.types {
		k.types[c] = Guess(func(yield func([]byte) bool) {
			for _, row := range k.held {
				if !yield(row[c]) {
					return
				}
			}
		})
	}
	k.v.Types(k.types, true)
	held := k.held
	k.held = nil
	for i, row := range held {
		if err := k.row(row); err != nil {
			if e, ok := errors.AsType[*sqlstate.Error](err); ok {
				copied := *e
				copied.Message = fmt.Sprintf("row %d: %s", i+1, e.Message)
				return &copied
			}
			return err
		}
	}
	return nil
}

func (k *keys) row(fields [][]byte) error {
	empty := false
	for i, f := range fields {
		if f == nil {
			k.v.Null()
			return nil
		}
		if len(f) == 0 {
			empty = true
			if !k.o.EmptyIsKey {
				break
			}
		}
		val, err := keyspace.ParseText(k.types[i], f)
		if err != nil {
			return k.explain(i, err)
		}
		k.key[i] = val
	}
	if empty {
		k.v.Empty()
		if !k.o.EmptyIsKey {
			return nil
		}
	}
	return k.v.Key(k.key)
}

func (k *keys) explain(i int, err error) error {
	e := sqlstate.As(err)
	if k.o.Types != nil || k.types[i] == keyspace.Text {
		return e
	}
	copied := *e
	copied.Detail = "the type " + k.types[i].String() + " was guessed from the first rows"
	copied.Hint = "say the type: --type text" + strings.Repeat(",text", len(k.types)-1)
	return &copied
}

// guessable are the types that are guessed, in this order. A number has to be
// written as PostgreSQL prints it, because 007 as a text is not 7.
var guessable = []struct {
	t     keyspace.Type
	exact bool
}{{keyspace.Int8, true}, {keyspace.UUID, false}, {keyspace.Date, true}, {keyspace.Timestamptz, false}, {keyspace.Timestamp, false}}

// Guess returns the type that all values have: bigint, uuid, date, timestamptz,
// timestamp, boolean (true and false only), else text. NULLs and empty texts
// are of any type.
func Guess(values func(yield func([]byte) bool)) keyspace.Type {
	fits := make([]bool, len(guessable))
	for i := range fits {
		fits[i] = true
	}
	some, boolean := false, true
	for v := range values {
		if len(v) == 0 {
			continue
		}
		some = true
		boolean = boolean && (string(v) == "true" || string(v) == "false")
		for i, g := range guessable {
			if !fits[i] {
				continue
			}
			val, err := keyspace.ParseText(g.t, v)
			// A date has no time: PostgreSQL would drop it.
			fits[i] = err == nil && (!g.exact || val.Text() == string(v)) && (g.t != keyspace.Timestamp || hasTime(v))
		}
	}
	if !some {
		return keyspace.Text
	}
	for i, g := range guessable {
		if fits[i] {
			return g.t
		}
	}
	if boolean {
		return keyspace.Bool
	}
	return keyspace.Text
}

func hasTime(v []byte) bool { return bytes.IndexByte(v, ':') >= 0 && utf8.Valid(v) }
