package schema

import (
	"context"
	"reflect"
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

// overlayDeclarations brings the declarations that differ between the base and the edited state into next.
func (t *Tx) overlayDeclarations(next *shardmap.State) {
	if !t.declared {
		return
	}
	is := map[[2]string]bool{}
	for _, d := range t.state.Declarations {
		is[[2]string{d.Schema, d.Name}] = true
		if was := t.base.Declaration(d.Schema, d.Name); was == nil || !reflect.DeepEqual(*was, d) {
			next.PutDeclaration(d)
		}
	}
	for _, d := range t.base.State().Declarations {
		if !is[[2]string{d.Schema, d.Name}] {
			next.DropDeclaration(d.Schema, d.Name)
		}
	}
}
