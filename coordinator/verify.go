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
	p, err := j.pair(ctx, s, e)
	if err != nil {
		return err
	}
	view, err := p.from.View(ctx, p.set)
	if err != nil {
		return err
	}
	defer view.Close()
	began := time.Now()
	if err := p.applyUntil(ctx, e.Stream, view.Position()); err != nil {
		return err
	}
	var a, b []engine.Sum
	var errA, errB error
	var both sync.WaitGroup
	both.Go(func() { a, errA = view.Sums(ctx) })
	both.Go(func() { b, errB = p.to.Sums(ctx, p.set) })
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
			t := &p.set.Tables[i]
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
func (p *pair) applyUntil(ctx context.Context, stream string, until engine.Position) error {
	applier, after, err := p.apply(ctx, stream)
	if err != nil {
		return err
	}
	err = p.from.Changes(ctx, stream, p.set, after, until, applier)
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
