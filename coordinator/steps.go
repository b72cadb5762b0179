package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// editsAtOnce bounds the steps of a plan that one change of the map makes.
const editsAtOnce = 1000

// takeSteps is workflow.TakeSteps: the next steps of one kind.
func (w *parent) takeSteps(ctx context.Context, s *workflow.State, r *workflow.Result) error {
	p, err := LoadPlan(ctx, w.t.records, s.Spec.ID)
	if err != nil {
		if sqlstate.CodeOf(err) == sqlstate.UndefinedObject {
			return classed(workflow.Refused, err)
		}
		return err
	}
	snap, err := w.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	if s.PlanNext == 0 {
		if err := w.alone(ctx, s); err != nil {
			return err
		}
		if err := p.Fits(s.Spec.ID, snap); err != nil {
			return classed(workflow.Refused, err)
		}
	}
	rest := p.Steps[min(s.PlanNext, len(p.Steps)):]
	same := func(i int) bool { return rest[i].Kind == rest[0].Kind && rest[i].Phase == rest[0].Phase }
	if len(rest) > 0 && rest[0].Kind != workflow.Move {
		n := 1
		for n < min(len(rest), editsAtOnce) && same(n) {
			n++
		}
		r.Taken = n
		return w.editSteps(ctx, s, rest[:n], r)
	}
	most := workflow.MaxChildren
	if n := p.Options.AtOnce; n > 0 {
		most = min(n, most)
	}
	for i := 0; i < min(len(rest), most) && same(i); i++ {
		step := &rest[i]
		r.Children = append(r.Children, workflow.Spec{Kind: step.Kind, Keyspace: step.Keyspace, Part: step.Part.Clone(), From: step.From, To: step.To,
			WasPinned: step.Pinned, Options: s.Spec.Options})
		r.Taken++
	}
	return w.free(ctx, s, snap, r.Children)
}

// editSteps makes splits, pins or merges of a plan in one change of the map, and sets the guards, which
// say the epochs of ranges. Done twice it changes nothing. A merge is left out if its ranges are
// on different shards now, or a move has one of them.
func (w *parent) editSteps(ctx context.Context, s *workflow.State, steps []workflow.PlanStep, r *workflow.Result) error {
	kind, keyspaces, left := steps[0].Kind, map[string][]*workflow.PlanStep{}, 0
	for i := range steps {
		keyspaces[steps[i].Keyspace] = append(keyspaces[steps[i].Keyspace], &steps[i])
	}
	names := slices.Sorted(maps.Keys(keyspaces))
	text := map[workflow.Kind]string{workflow.Split: "%d ranges are cut", workflow.Pin: "%d keys are pinned", workflow.Merge: "%d bounds of ranges are removed"}[kind]
	snap, err := w.t.edit(ctx, s, string(kind), fmt.Sprintf(text, len(steps))+", of "+strings.Join(names, ", "), func(cur *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		left = 0
		for _, ks := range names {
			n, err := editKeyspace(kind, ks, keyspaces[ks], cur, next)
			if err != nil {
				return false, err
			}
			left += n
		}
		return assignments(cur.State()) == assignments(next), nil
	})
	switch code := sqlstate.CodeOf(err); {
	case err == nil:
	case (code == sqlstate.ObjectNotInState || code == sqlstate.UndefinedObject) && !errors.Is(err, shardmap.ErrDeposed):
		return classed(workflow.Refused, err)
	default:
		return err
	}
	if r.Note = fmt.Sprintf(text, len(steps)-left); left > 0 {
		r.Note += fmt.Sprintf(", %d are not: a move has a range beside them, or they are gone", left)
	}
	for _, ks := range names {
		if err := w.settleOwners(ctx, snap, ks); err != nil {
			return err
		}
	}
	return nil
}

// editKeyspace makes the steps of a keyspace, and counts those that are left out.
func editKeyspace(kind workflow.Kind, ks string, steps []*workflow.PlanStep, cur *shardmap.Snapshot, next *shardmap.State) (left int, err error) {
	var bounds [][]string
	merges := map[string]bool{}
	if kind == workflow.Merge {
		merges = mergeable(cur, ks)
	}
	for _, step := range steps {
		switch {
		case kind == workflow.Pin:
			owner, err := cur.OwnerOf(ks, step.Part)
			if err != nil {
				return left, err
			}
			if err := next.PutPin(ks, step.Part.Key, owner); err != nil {
				return left, err
			}
		case kind == workflow.Merge && !merges[strings.Join(step.At, "\x00")]:
			left++
		default:
			bounds = append(bounds, step.At)
		}
	}
	switch {
	case len(bounds) == 0:
	case kind == workflow.Split:
		err = next.SplitAll(ks, bounds)
	default:
		err = next.MergeAll(ks, bounds)
	}
	return left, err
}

// mergeable are the bounds of a keyspace at which two ranges can become one.
func mergeable(snap *shardmap.Snapshot, ks string) map[string]bool {
	out := map[string]bool{}
	ix, ok := snap.Keyspace(ks)
	if !ok {
		return out
	}
	ranges := ix.Def().Ranges
	moves := func(r *shardmap.Range) bool { return len(ix.Def().Transits) > 0 && snap.TransitIn(ks, r) != nil }
	for i := 1; i < len(ranges); i++ {
		if a, b := &ranges[i-1], &ranges[i]; a.Shard == b.Shard && !moves(a) && !moves(b) {
			out[strings.Join(b.Low, "\x00")] = true
		}
	}
	return out
}

// assignments is how many ranges and pins a map has.
func assignments(s *shardmap.State) (n int) {
	for i := range s.Keyspaces {
		n += len(s.Keyspaces[i].Ranges) + len(s.Keyspaces[i].Pins)
	}
	return n
}
