package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// verify is workflow.Verify. The source is seen at one position, by a view; the target is
// brought to that very position, and stands still there while it is counted.
func (j *job) verify(ctx context.Context, s *workflow.State, e workflow.Effect, r *workflow.Result) error {
	j.endStream()
	set, err := j.same(ctx, s, e.Source)
	if err != nil {
		return err
	}
	from, err := j.t.mover(ctx, e.Source)
	if err != nil {
		return err
	}
	to, err := j.t.mover(ctx, e.Target)
	if err != nil {
		return err
	}
	view, err := from.View(ctx, set.set)
	if err != nil {
		return err
	}
	defer view.Close()
	began := time.Now()
	if err := j.applyUntil(ctx, e.Stream, set.set, from, to, view.Position()); err != nil {
		return err
	}
	var a, b []engine.Sum
	var errA, errB error
	var both sync.WaitGroup
	both.Go(func() { a, errA = view.Sums(ctx) })
	both.Go(func() { b, errB = to.Sums(ctx, set.set) })
	both.Wait()
	if errA != nil {
		return errA
	}
	if errB != nil {
		return errB
	}
	rows := int64(0)
	var diffs []string
	for i := range a {
		rows += a[i].Rows
		if a[i] != b[i] {
			t := &set.set.Tables[i]
			diffs = append(diffs, fmt.Sprintf("%s.%s has %d rows on %s and %d on %s (checksums %x, %x)", t.Schema, t.Name, a[i].Rows, e.Source, b[i].Rows, e.Target, a[i].Checksum, b[i].Checksum))
		}
	}
	if len(diffs) > 0 {
		return classed(workflow.Differs, sqlstate.New(sqlstate.DataCorrupted, "the copies differ: %s", strings.Join(diffs, "; ")))
	}
	r.Note = fmt.Sprintf("both copies have the same %d rows, compared in %s", rows, time.Since(began).Round(time.Millisecond))
	return nil
}

// applyUntil applies everything before a position, and nothing after it.
func (j *job) applyUntil(ctx context.Context, stream string, set engine.Set, from, to engine.Mover, until engine.Position) error {
	applier, err := to.Apply(ctx, stream, set)
	if err != nil {
		return err
	}
	after, err := to.Applied(ctx, stream) // after Apply, which waits for the end of one before it
	if err != nil {
		_ = applier.Close() // the first error is the one to report
		return err
	}
	err = from.Changes(ctx, stream, set, after, until, applier)
	if err == nil {
		_, err = applier.Flush(ctx)
	}
	if closing := applier.Close(); err == nil {
		err = closing
	}
	if sqlstate.CodeOf(err) == sqlstate.ObjectNotInState {
		return classed(workflow.Changed, err)
	}
	return err
}
