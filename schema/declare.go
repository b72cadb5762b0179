package schema

import (
	"context"
	"slices"

	"github.com/cleavedb/cleave/shardmap"
)

// OpDeclare is the history's word for a change of declarations alone.
const OpDeclare = "declare"

// Declare changes what tables become when they are made: edit says it of a map. The CREATE TABLEs after it go by that.
//
// Errors: those of edit and of the lock of schema changes. The transaction has failed after one.
func (t *Tx) Declare(ctx context.Context, edit func(cur *shardmap.Snapshot) (*shardmap.State, error)) error {
	if err := t.usable(); err != nil {
		return err
	}
	if err := t.lock(ctx); err != nil {
		return t.fail(err)
	}
	next, err := edit(t.over)
	if err != nil {
		return t.fail(err)
	}
	t.state.Declarations = slices.Clone(next.Declarations)
	if err := t.refresh(); err != nil {
		return t.fail(err)
	}
	t.ran, t.declared = true, true
	t.ops = append(t.ops, OpDeclare)
	return nil
}
