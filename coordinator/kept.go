package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// kept is what a target has of a copy that was interrupted; of the first copy it is nothing.
// See docs/design/moving.md, "A copy that goes on".
type kept struct {
	whole, partly []engine.LoadedTable
	// rest are the tables that are not whole, unnoted those of them of which no part is noted.
	rest, unnoted engine.Set
}

// kept asks the target. Nothing is being loaded under the stream then.
func (p *copySession) kept(ctx context.Context, stream string) (*kept, error) {
	noted, err := p.to.Loaded(ctx, stream)
	if err != nil {
		return nil, err
	}
	k := &kept{rest: p.set, unnoted: p.set}
	k.rest.Tables, k.unnoted.Tables = nil, nil
	for _, t := range p.set.Tables {
		n := slices.IndexFunc(noted, func(l engine.LoadedTable) bool { return l.Schema == t.Schema && l.Name == t.Name })
		switch {
		case n < 0:
			k.rest.Tables, k.unnoted.Tables = append(k.rest.Tables, t), append(k.unnoted.Tables, t)
		case noted[n].Parts != nil:
			k.rest.Tables, k.partly = append(k.rest.Tables, t), append(k.partly, noted[n])
		default:
			k.whole = append(k.whole, noted[n])
		}
	}
	return k, nil
}

// size is what is kept.
func (k *kept) size() (rows, bytes int64) {
	for _, list := range [][]engine.LoadedTable{k.whole, k.partly} {
		for _, t := range list {
			rows, bytes = rows+t.Rows, bytes+t.Bytes
		}
	}
	return rows, bytes
}

// partOf is what is noted of a table that is not whole; the zero value if no part is.
func (k *kept) partOf(t *engine.MoveTable) engine.LoadedTable {
	for _, l := range k.partly {
		if l.Schema == t.Schema && l.Name == t.Name {
			return l
		}
	}
	return engine.LoadedTable{}
}

// told says what is kept, for the move's history.
func (k *kept) told() string {
	var says []string
	if len(k.whole) > 0 {
		rows := int64(0)
		for _, t := range k.whole {
			rows += t.Rows
		}
		says = append(says, fmt.Sprintf("of them %d rows of %d tables before the copy was interrupted", rows, len(k.whole)))
	}
	for _, t := range k.partly {
		says = append(says, fmt.Sprintf("the copy of table %s.%s went on after %d rows", t.Schema, t.Name, t.Rows))
	}
	return strings.Join(says, ", ")
}

// again says why rows are copied again, for the move's history.
func again(rows int64) string {
	return fmt.Sprintf("about %d rows were copied again, since their tables or parts of them were not whole when the copy was interrupted", rows)
}

// doing says what is kept, for the progress of a move.
func (k *kept) doing(again int64) string {
	rows, _ := k.size()
	text := fmt.Sprintf("the copy was interrupted: %d rows are kept, about %d rows are copied again", rows, again)
	for _, t := range k.partly {
		text += fmt.Sprintf("; the copy of table %s.%s goes on after %d rows", t.Schema, t.Name, t.Rows)
	}
	return text
}

// source returns the rows of what is not whole, as of a position to which it has brought what is kept, and of which parts they are.
func (k *kept) source(ctx context.Context, p *copySession, stream string, bytes int64) (engine.RowSource, []part, error) {
	first := len(k.whole)+len(k.partly) == 0
	var rows engine.RowSource
	var err error
	if first {
		rows, err = p.from.Capture(ctx, stream, p.set)
	} else if err = k.catchUpToNow(ctx, p, stream); err == nil {
		rows, err = p.from.CaptureRows(ctx, stream, k.rest)
		err = gone(err)
	}
	if err != nil {
		return nil, nil, err
	}
	work, err := k.divide(ctx, p, stream, rows, bytes)
	if err == nil && !first {
		err = k.catchUp(ctx, p, stream, rows.Position())
	}
	if err != nil {
		return nil, nil, errors.Join(err, rows.Close())
	}
	return rows, work, nil
}

// part is a part of a table to be copied.
type part struct {
	table int // of the rest
	engine.Part
}

// divide returns the parts that are missing on the target.
func (k *kept) divide(ctx context.Context, p *copySession, stream string, rows engine.RowSource, bytes int64) (work []part, err error) {
	for i := range k.rest.Tables {
		t := &k.rest.Tables[i]
		there := k.partOf(t).Parts
		parts, err := rows.Parts(ctx, i, bytes, there)
		if there != nil && sqlstate.CodeOf(err) == sqlstate.ObjectNotInState {
			err = classed(workflow.Again, errors.Join(err, p.anew(ctx, stream, t)))
		}
		if err != nil {
			return nil, err
		}
		for _, of := range parts {
			work = append(work, part{i, of})
		}
	}
	return work, nil
}

// anew gives up the parts of a table that are noted: the next try purges it and copies it from its beginning. No part
// of it may be noted after that, so it ends what may still be loading them, behind a conversation that was lost.
func (p *copySession) anew(ctx context.Context, stream string, t *engine.MoveTable) error {
	if _, err := p.to.Loaded(ctx, stream); err != nil {
		return err
	}
	return p.to.ForgetParts(ctx, stream, t)
}

// catchUp brings what is kept to a position: whole tables by their changes. Of others the changed rows leave; the
// view of that position has them.
func (k *kept) catchUp(ctx context.Context, p *copySession, stream string, until engine.Position) error {
	there := *p
	there.set.Tables = nil
	there.partly = nil
	for _, t := range p.set.Tables {
		if slices.ContainsFunc(k.unnoted.Tables, func(u engine.MoveTable) bool { return u.Schema == t.Schema && u.Name == t.Name }) {
			continue
		}
		there.set.Tables = append(there.set.Tables, t)
		there.partly = append(there.partly, k.partOf(&t).Parts != nil)
	}
	return there.applyUntil(ctx, stream, until)
}

// catchUpToNow does most of that before there is a view, which keeps the source from vacuuming while it is open.
func (k *kept) catchUpToNow(ctx context.Context, p *copySession, stream string) error {
	now, err := p.from.Here(ctx)
	if err != nil {
		return err
	}
	return k.catchUp(ctx, p, stream, now)
}

// leaving lets changed rows leave tables of which only some parts are on the target. An insert is not in them, and a
// row that an update brings is not either.
type leaving struct {
	engine.Applier
	partly []bool
	given  bool // a change of the transaction
}

var _ engine.Leaver = (*leaving)(nil)

// OnlyLeaves implements engine.Leaver.
func (l *leaving) OnlyLeaves(table int) bool { return l.partly[table] }

// Commit implements engine.ChangeSink. It passes on only transactions with a change: the applier takes one without for
// the sign that the stream rests, and commits.
func (l *leaving) Commit(ctx context.Context, at engine.Position) error {
	if !l.given {
		return nil
	}
	l.given = false
	return l.Applier.Commit(ctx, at)
}

// Change implements engine.ChangeSink.
func (l *leaving) Change(ctx context.Context, c *engine.Change) error {
	if c.Op == engine.ChangeInsert && l.partly[c.Table] {
		return nil
	}
	l.given = true
	if !l.partly[c.Table] || c.Op == engine.ChangeTruncate {
		return l.Applier.Change(ctx, c)
	}
	return l.Applier.Change(ctx, &engine.Change{Op: engine.ChangeLeave, Table: c.Table, Old: c.Old})
}
