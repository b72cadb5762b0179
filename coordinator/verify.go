package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

const (
	// verifyBytes is about how much is compared at one position, unless the move says otherwise.
	verifyBytes = 256 << 20
	// verifyPieces bounds the pieces of a table: each of them reads the table.
	verifyPieces = 8
	// verifyStore is how long is compared until it is stored how far that has come.
	verifyStore = 5 * time.Second
)

// verify is workflow.Verify. Table by table, and of large ones sub-range by sub-range, the source is
// seen at one position, by a view; the target is brought to that very position, and stands still
// there while it is counted.
func (j *job) verify(ctx context.Context, s *workflow.State, e workflow.Effect, r *workflow.Result) error {
	j.endStream()
	p, err := j.copySession(ctx, s, e)
	if err != nil {
		return err
	}
	at := workflow.Verified{}
	if s.Verified != nil {
		at = *s.Verified
	} else if at.Pieces, err = p.pieces(ctx, cmp.Or(s.Spec.VerifyBytes, verifyBytes)); err != nil {
		return err
	}
	units := unitsOf(p.set, at.Pieces)
	pace, end := j.pace(ctx, s, leastCompared, e.Source, e.Target)
	defer end()
	for began := time.Now(); at.Done < len(units); {
		if err := j.gate(ctx); err != nil {
			return err
		}
		rows, err := p.compare(ctx, e, units[at.Done], pace)
		if err != nil {
			return err
		}
		at.Done++
		at.Rows += rows
		j.prog.copied(rows, 0)
		if at.Done < len(units) && time.Since(began) >= verifyStore {
			r.Verified = &at
			return nil
		}
	}
	r.Note = fmt.Sprintf("both copies have the same %d rows", at.Rows)
	return nil
}

// pieces is how many pieces of each table are compared one after the other; 0: all tables are
// compared at once.
func (p *copySession) pieces(ctx context.Context, most int64) (int, error) {
	_, all, err := p.from.Sizes(ctx, p.set)
	if err != nil || all <= most {
		return 0, err
	}
	if p.set.Keys.Strategy != keyspace.Hash || len(p.set.Keys.Intervals) == 0 {
		return 1, nil
	}
	largest := int64(0)
	for i := range p.set.Tables {
		_, bytes, err := p.from.Sizes(ctx, engine.Set{Tables: p.set.Tables[i : i+1], Keys: p.set.Keys})
		if err != nil {
			return 0, err
		}
		largest = max(largest, bytes)
	}
	return int(min(largest/most+1, verifyPieces)), nil
}

// unitsOf are the sets that are compared one after the other. They are the same for every
// leader, and each row of the set is in one of them.
func unitsOf(set engine.Set, pieces int) []engine.Set {
	if pieces == 0 {
		return []engine.Set{set}
	}
	var out []engine.Set
	for i := range set.Tables {
		for n := range pieces {
			out = append(out, engine.Set{Tables: set.Tables[i : i+1], Keys: set.Keys.Piece(n, pieces)})
		}
	}
	return out
}

// compare compares a unit, and returns its rows.
func (p *copySession) compare(ctx context.Context, e workflow.Effect, unit engine.Set, pace *pacer) (rows int64, err error) {
	if unit.Keys.Empty() {
		return 0, nil // a piece of less than a position
	}
	view, err := p.from.View(ctx, unit)
	if err != nil {
		return 0, err
	}
	defer view.Close()
	if err := p.applyUntil(ctx, e.Stream, view.Position()); err != nil {
		return 0, err
	}
	var a, b []engine.Sum
	var errA, errB error
	var both sync.WaitGroup
	both.Go(func() {
		turn := pace.turn()
		a, errA = view.Sums(ctx, func(ctx context.Context, read int64) (int64, error) {
			pace.job.prog.copied(0, read) // of one side
			return turn.next(ctx, read)
		})
	})
	both.Go(func() { b, errB = p.to.Sums(ctx, unit, pace.turn().next) })
	both.Wait()
	if errA != nil {
		return 0, errA
	}
	if errB != nil {
		return 0, errB
	}
	var diffs []string
	for i := range a {
		rows += a[i].Rows
		if a[i] != b[i] {
			t := &unit.Tables[i]
			diffs = append(diffs, fmt.Sprintf("%s.%s has %d rows%s on %s and %d on %s (checksums %x, %x)",
				t.Schema, t.Name, a[i].Rows, spanText(unit.Keys), e.Source, b[i].Rows, e.Target, a[i].Checksum, b[i].Checksum))
		}
	}
	if len(diffs) > 0 {
		return 0, classed(workflow.Differs, sqlstate.New(sqlstate.DataCorrupted, "the copies differ: %s", strings.Join(diffs, "; ")))
	}
	return rows, nil
}

// spanText says which positions of a hash keyspace keys are of, "" of others.
func spanText(keys keyspace.Ownership) string {
	if keys.Strategy != keyspace.Hash || len(keys.Intervals) == 0 {
		return ""
	}
	first, last := keys.Intervals[0], keys.Intervals[len(keys.Intervals)-1]
	if last.Last {
		return fmt.Sprintf(" at positions from %d", first.Low)
	}
	return fmt.Sprintf(" at positions %d to %d", first.Low, last.High-1)
}

// applyUntil applies everything before a position, and nothing after it.
func (p *copySession) applyUntil(ctx context.Context, stream string, until engine.Position) error {
	applier, after, err := p.apply(ctx, stream)
	if err != nil {
		return err
	}
	if p.partly != nil {
		applier = &leaving{Applier: applier, partly: p.partly}
	}
	err = p.from.Changes(ctx, stream, p.set, after, until, applier)
	if err == nil {
		_, err = applier.Flush(ctx)
	}
	if closing := applier.Close(); err == nil {
		err = closing
	}
	return gone(err)
}

// gone classes an error that says that the changes do not fit what was copied any more, because a table was
// changed, which the error names, or because they are lost.
func gone(err error) error {
	if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		return err
	}
	if sqlstate.As(err).Table != "" {
		return classed(workflow.Changed, err)
	}
	return classed(workflow.Gone, err)
}
