package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// Unended returns the workflows that have not ended, the oldest first.
func Unended(ctx context.Context, records shardmap.Records) ([]workflow.State, error) {
	var all []workflow.State
	for after := ""; ; {
		page, err := records.Records(ctx, workflow.RecordPrefix, after, 100)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			after = r.Key
			s, err := workflow.Decode(r.Value)
			if err != nil {
				return nil, fmt.Errorf("the record %s: %w", r.Key, err)
			}
			if !s.Step.Ended() {
				all = append(all, s)
			}
		}
		if len(page) < 100 {
			break
		}
	}
	slices.SortFunc(all, older)
	return all, nil
}

func older(a, b workflow.State) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Spec.ID, b.Spec.ID))
}

// Conflict says which of the workflows keeps another one from being begun: of those that decide where
// everything is to be (plans, drains, spreads) one is carried out at a time, or they would undo each
// other's work. Plans of different keyspaces do not meet. 55000, nil if none does.
func Conflict(spec *workflow.Spec, others []workflow.State) error {
	if !decides(spec.Kind) {
		return nil
	}
	for i := range others {
		o := &others[i]
		// A drain in its clean-up moves nothing any more.
		if o.Spec.ID == spec.ID || !decides(o.Spec.Kind) || !o.UnderWay() || o.Step == workflow.Cleaning || o.Spec.Keyspace != "" && spec.Keyspace != "" && o.Spec.Keyspace != spec.Keyspace {
			continue
		}
		what := fmt.Sprintf("plan %s is being carried out: %d of %d steps were begun", o.Spec.ID, o.PlanNext, o.PlanSteps)
		switch {
		case o.Spec.Kind == workflow.Drain:
			what = fmt.Sprintf("shard %s is being drained by %s", o.Spec.From, o.Spec.ID)
		case o.Spec.Kind == workflow.Spread:
			what = fmt.Sprintf("%s is spreading ranges over shards", o.Spec.ID)
		case o.Step == workflow.Planning:
			what = fmt.Sprintf("plan %s is being made, and carried out then", o.Spec.ID)
		}
		return sqlstate.New(sqlstate.ObjectNotInState, "%s; both would move the same", what).
			WithHint("see how far it is: cleave moves %s; to end it: cleave cancel %s", o.Spec.ID, o.Spec.ID)
	}
	return nil
}

// decides reports whether workflows of a kind decide where everything is to be.
func decides(k workflow.Kind) bool {
	return k == workflow.Rebalance || k == workflow.Drain || k == workflow.Spread
}

// alone is Conflict for a workflow that has moved nothing yet: it waits for those that have, and for
// older ones.
func (w *parent) alone(ctx context.Context, s *workflow.State) error {
	all, err := Unended(ctx, w.t.records)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(all, func(o workflow.State) bool { return o.Made == 0 && o.PlanNext == 0 && older(o, *s) > 0 })
	return classed(workflow.Again, Conflict(&s.Spec, others))
}

// pending are the moves that have not ended.
func (w *parent) pending(ctx context.Context) ([]workflow.State, error) {
	all, err := Unended(ctx, w.t.records)
	return slices.DeleteFunc(all, func(o workflow.State) bool { return o.Spec.Kind != workflow.Move }), err
}

// wanted are the parts that moves want which are not in transit yet.
func (w *parent) wanted(ctx context.Context, snap *shardmap.Snapshot) (map[string][]shardmap.Part, error) {
	all, err := w.pending(ctx)
	out := map[string][]shardmap.Part{}
	for i := range all {
		if _, t := snap.Transit(all[i].Spec.ID); t == nil {
			out[all[i].Spec.Keyspace] = append(out[all[i].Spec.Keyspace], all[i].Spec.Part)
		}
	}
	return out, err
}

// free is an error while another move has some of what children are to move, or, of a
// drain, brings something to the shard.
func (w *parent) free(ctx context.Context, s *workflow.State, snap *shardmap.Snapshot, children []workflow.Spec) error {
	if len(children) == 0 && s.Spec.Kind != workflow.Drain {
		return nil
	}
	all, err := w.pending(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		o := &all[i]
		for n := range children {
			if c := &children[n]; c.Keyspace == o.Spec.Keyspace && snap.Overlap(c.Keyspace, c.Part, o.Spec.Part) {
				return w.inTheWay(ctx, s, o)
			}
		}
		// What has no transit yet is refused: the shard gets nothing new.
		if _, t := snap.Transit(o.Spec.ID); t != nil && s.Spec.Kind == workflow.Drain && o.Target() == s.Spec.From && o.Step != workflow.Opened && o.Step != workflow.Cleaning && o.Step != workflow.Cancelling {
			return w.inTheWay(ctx, s, o)
		}
	}
	return nil
}

// inTheWay is the error of a workflow that needs a part which a move has. If that can only be
// reversed, a drain may complete it.
func (w *parent) inTheWay(ctx context.Context, s, move *workflow.State) error {
	id := move.Spec.ID
	what := fmt.Sprintf("%s of keyspace %s", move.Spec.Part.Text(), move.Spec.Keyspace)
	switch {
	case move.Step == workflow.Cleaning || move.Step == workflow.Cancelling:
		return classed(workflow.Again, sqlstate.New(sqlstate.ObjectNotInState, "what move %s has left of %s is being removed", id, what))
	case move.Step != workflow.Opened || move.Back:
		return classed(workflow.Again, sqlstate.New(sqlstate.ObjectNotInState, "%s is being moved from %s to %s by %s, which is waited for", what, move.Source(), move.Target(), id).
			WithHint("see: cleave moves %s; before its cutover it can be ended: cleave cancel %s", id, id))
	case !s.Spec.Complete:
		until := time.UnixMilli(move.OpenAt + move.Spec.KeepMS).UTC().Format("2006-01-02 15:04 MST")
		text := "move %s of %s can be reversed until %s"
		if move.BackLost != "" {
			text = "move %s of %s cannot be reversed, and its old rows are kept until %s"
		}
		return classed(workflow.Again, sqlstate.New(sqlstate.ObjectNotInState, text, id, what, until).WithHint("to go on now: cleave complete %s", id))
	}
	if _, err := Ask(ctx, w.t.records, id, workflow.Complete, s.Spec.By, nil); err != nil {
		return err
	}
	w.t.again()
	return classed(workflow.Again, sqlstate.New(sqlstate.ObjectNotInState, "what move %s has left of %s is being removed", id, what))
}
