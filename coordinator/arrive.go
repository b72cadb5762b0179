package coordinator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// Arrives says why the map would not take a shard as the owner of what a move brings it, mostly because of a
// constraint, or since the shard is being drained: 55000, Refused. back: of a move that is reversed. Nobody begins a move, or holds statements for one,
// of which it is known that it cannot arrive.
func Arrives(cur *shardmap.Snapshot, spec *workflow.Spec, back bool) error {
	if len(cur.State().Constraints) == 0 && !cur.Draining() {
		return nil
	}
	next := cur.State().Clone()
	to := spec.To
	if back {
		to = spec.From
	}
	if owner, err := cur.OwnerOf(spec.Keyspace, spec.Part); err == nil && owner == to {
		return nil
	}
	if err := newOwner(&next, spec, spec.Part, to, back); err != nil {
		return classed(workflow.Refused, err)
	}
	return breaks(cur, next, spec.ID)
}

// gives fails unless a shard owns the part: Refused.
func gives(cur *shardmap.Snapshot, spec *workflow.Spec, source string) error {
	owner, err := cur.OwnerOf(spec.Keyspace, spec.Part)
	switch {
	case err != nil:
		return classed(workflow.Refused, err)
	case owner != source:
		return refuse("shard %s owns %s of keyspace %s, not shard %s", owner, spec.Part.Text(), spec.Keyspace, source)
	}
	return nil
}

// breaks says which constraint a map would break that it keeps now, or which drain it would work against: Refused.
func breaks(cur *shardmap.Snapshot, next shardmap.State, by string) error {
	after, err := shardmap.NewSnapshot(next)
	if err != nil {
		return classed(workflow.Refused, err)
	}
	return classed(workflow.Refused, shardmap.Breaks(cur, after, by))
}

// newOwner makes a shard the owner of a part. A pin that goes, or was not there before, leaves the key where its range
// is.
func newOwner(next *shardmap.State, spec *workflow.Spec, part shardmap.Part, to string, back bool) error {
	if part.Key != nil && (spec.Unpin && !back || !spec.WasPinned && back) {
		without := next.Clone()
		if _, err := without.DropPin(spec.Keyspace, part.Key); err != nil {
			return err
		}
		if snap, err := shardmap.NewSnapshot(without); err == nil {
			if there, err := snap.OwnerOf(spec.Keyspace, part); err == nil && there == to {
				*next = without
				return nil
			}
		}
	}
	return next.SetOwner(spec.Keyspace, part, to)
}

// arrivals are those of some moves that the map takes as it is, at most so many: the others are for later, when these
// have made room. A plan as a whole that breaks a constraint is Refused, and so is one of which nothing can begin.
func arrivals(snap *shardmap.Snapshot, all []workflow.Spec, most int) ([]workflow.Spec, error) {
	if len(snap.State().Constraints) == 0 && !snap.Draining() {
		return all[:min(len(all), most)], nil
	}
	// A part that another move has is waited for (see free), so that its transit will have ended by then.
	next := snap.State().Clone()
	for i := range next.Keyspaces {
		next.Keyspaces[i].Transits = nil
	}
	for i := range all {
		if err := newOwner(&next, &all[i], all[i].Part, all[i].To, false); err != nil {
			return nil, classed(workflow.Refused, err)
		}
	}
	if err := breaks(snap, next, ""); err != nil {
		return nil, err
	}
	var out []workflow.Spec
	var first error
	for i := range all {
		if len(out) == most {
			break
		}
		if inTransit(snap, &all[i]) {
			out = append(out, all[i])
		} else if err := Arrives(snap, &all[i], false); err == nil {
			out = append(out, all[i])
		} else if first == nil {
			first = err
		}
	}
	if len(out) == 0 && len(all) > 0 {
		return nil, first
	}
	return out, nil
}

// inTransit reports whether some of what a move wants is on its way by another one.
func inTransit(snap *shardmap.Snapshot, spec *workflow.Spec) bool {
	ix, ok := snap.Keyspace(spec.Keyspace)
	return ok && slices.ContainsFunc(ix.Def().Transits, func(t shardmap.Transit) bool { return snap.Overlap(spec.Keyspace, t.Part, spec.Part) })
}

// shutTarget is workflow.ShutTarget: the target's guards are those of the map again. Their epoch does not tell whether
// they are: that of an opening that was taken back may be given to another change.
func (j *job) shutTarget(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	if j.untouched {
		return nil
	}
	limit := guardBound
	if s.Step == workflow.Reopening {
		limit = openMax // statements wait
	}
	return j.t.guards.inTurns(ctx, e.Target, limit, func(ctx context.Context, try time.Duration) error {
		unfenced := j.t.guards.unfenced()
		snap, err := j.t.c.opts.Directory.Load(ctx)
		if err != nil {
			return err
		}
		if _, ok := snap.Shard(e.Target); !ok {
			return nil
		}
		if snap, err = asGuarded(snap, s.Spec.Keyspace, unfenced); err != nil {
			return err
		}
		bound, cancel := context.WithTimeout(ctx, try)
		defer cancel()
		_, err = j.t.guards.set(bound, schema.GuardsOf(snap, s.Spec.Keyspace, e.Target), e.Target)
		return err
	})
}

// openTries is after how many tries of a leader that does not know since when statements are held a cutover is taken
// back whose target cannot be opened.
const openTries = 4

// notOpened is the error of a target that cannot be opened, while the map says that the source is the owner. It is Late
// when the map will never take the target, and when the bound of the cutover is over: the target is lost, perhaps.
// A cutover that holds statements must be able to let them go without it.
func (j *job) notOpened(s *workflow.State, err error) error {
	var refused bool
	if sqlstate.CodeOf(err) == sqlstate.ObjectNotInState && !errors.Is(err, shardmap.ErrDeposed) {
		refused = true
	}
	over := s.Tries >= openTries
	if !j.heldAt.IsZero() {
		over = time.Since(j.heldAt) > time.Duration(s.Spec.HoldMS)*time.Millisecond
	}
	if refused || over {
		return classed(workflow.Late, err)
	}
	return err
}
