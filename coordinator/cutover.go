package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// editTries bounds how often a change of the map is made anew because somebody was faster.
const editTries = 20

// edit changes the map for a workflow. change returns nil if nothing is left to do.
func (t *term) edit(ctx context.Context, s *workflow.State, op, why string, change func(cur *shardmap.Snapshot, next *shardmap.State) (done bool, err error)) (*shardmap.Snapshot, error) {
	for range editTries {
		cur, err := t.c.opts.Directory.Load(ctx)
		if err != nil {
			return nil, err
		}
		next := cur.State().Clone()
		done, err := change(cur, &next)
		if err != nil {
			return nil, err
		}
		if done {
			return cur, nil
		}
		snap, err := t.c.opts.Directory.Update(ctx, shardmap.Change{
			Expect: cur.Version(), By: s.Spec.By, Op: op, Why: why + " (" + s.Spec.ID + ")", Transit: transitOf(s), Token: t.token,
		}, next)
		if errors.Is(err, shardmap.ErrConflict) {
			continue
		}
		if err == nil {
			t.c.log.Info("map changed", "workflow", s.Spec.ID, "version", snap.Version(), "op", op, "why", why)
		}
		return snap, err
	}
	return nil, sqlstate.New(sqlstate.SerializationFailure, "the shard map changes too often")
}

// transitOf is the transit that a change of the map is for, "" for none.
func transitOf(s *workflow.State) string {
	if s.Spec.Kind == workflow.Move {
		return s.Spec.ID
	}
	return ""
}

// putTransit is workflow.PutTransit.
func (j *job) putTransit(ctx context.Context, s *workflow.State) error {
	snap, err := j.t.edit(ctx, s, "move_begin", fmt.Sprintf("%s goes from %s to %s", s.Spec.Part.Text(), s.Spec.From, s.Spec.To), func(cur *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		if _, t := cur.Transit(j.id); t != nil && t.Hold == shardmap.NoHold {
			return true, nil
		}
		if err := gives(cur, &s.Spec, s.Spec.From); err != nil { // another move may have brought it to the target meanwhile
			return false, err
		}
		if err := Arrives(cur, &s.Spec, s.Back); err != nil {
			return false, err
		}
		for _, bound := range [][]string{s.Spec.Part.Low, s.Spec.Part.High} {
			if bound != nil {
				if err := next.Split(s.Spec.Keyspace, bound); err != nil {
					return false, err
				}
			}
		}
		next.PutTransit(s.Spec.Keyspace, shardmap.Transit{ID: j.id, Part: s.Spec.Part.Clone(), From: s.Spec.From, To: s.Spec.To})
		return false, nil
	})
	if err != nil {
		if sqlstate.CodeOf(err) == sqlstate.ObjectNotInState && !errors.Is(err, shardmap.ErrDeposed) {
			return classed(workflow.Refused, err) // another move is of a part of it
		}
		return err
	}
	_, t := snap.Transit(j.id)
	j.members = t.Epoch
	// A range that was cut has another epoch, which the guards have to say.
	return j.t.guards.settle(ctx, s.Spec.Keyspace, s.Spec.From)
}

// setHold puts a transit with the hold, or without one.
func setHold(cur *shardmap.Snapshot, next *shardmap.State, id string, hold shardmap.Hold) (done bool) {
	ks, t := cur.Transit(id)
	if t == nil || t.Hold == hold {
		return true
	}
	with := *t
	with.Part, with.Hold = t.Clone(), hold
	next.PutTransit(ks, with)
	return false
}

// hold is workflow.Hold.
func (j *job) hold(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	set, err := j.same(ctx, s, e.Source)
	if err != nil {
		return err
	}
	began := time.Now()
	guardsAt := j.t.guards.timesSet(e.Source)
	j.guardsAt = 0
	snap, err := j.t.edit(ctx, s, "move_hold", s.Spec.Part.Text()+" is held while it changes its owner", func(cur *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		if _, text := Tables(cur, s.Spec.Keyspace); text != set.tables {
			return false, changedError(s)
		}
		_, t := cur.Transit(j.id)
		if t == nil {
			return false, refuse("the map has no transit %s", j.id)
		}
		if err := Arrives(cur, &s.Spec, s.Back); err != nil {
			return false, err
		}
		if t.Hold == shardmap.NoHold { // else somebody may have fenced it already
			j.guardsAt = guardsAt
			j.t.guards.fences(j.id, false)
		}
		return setHold(cur, next, j.id, e.Hold), nil
	})
	if err != nil {
		return err
	}
	_, t := snap.Transit(j.id)
	j.members, j.heldAt = t.Epoch, began
	return nil
}

// fenceMax bounds the wait for the tables' locks in a cutover. A transaction that has written
// other keys of the source may wait for a key that is held: it holds a lock that the fence
// needs. So the hold is soon taken back, and tried again later.
const fenceMax = 700 * time.Millisecond

// fence is workflow.Fence: the guards of the map with the hold.
func (j *job) fence(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	whole, cancel := j.bound(ctx, e)
	defer cancel()
	turn, cancel := context.WithTimeout(whole, fenceMax)
	defer cancel()
	unlock, err := j.t.guards.lock(turn, e.Source)
	if err != nil {
		return late(ctx, err)
	}
	defer unlock()
	bound, cancel := context.WithTimeout(whole, fenceMax)
	defer cancel()
	unfenced := j.t.guards.unfenced()
	delete(unfenced, j.id)
	snap, err := j.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	if _, t := snap.Transit(j.id); t == nil || t.Hold == shardmap.NoHold {
		return sqlstate.New(sqlstate.ObjectNotInState, "the map has no hold of %s", j.id)
	}
	if snap, err = asGuarded(snap, s.Spec.Keyspace, unfenced); err != nil {
		return err
	}
	if err := j.clearWay(bound, s, e); err != nil {
		return late(ctx, err)
	}
	j.fencedAt, err = j.t.guards.set(bound, schema.GuardsOf(snap, s.Spec.Keyspace, e.Source), e.Source)
	if sqlstate.CodeOf(err) != sqlstate.LockNotAvailable { // else nothing was done
		j.t.guards.fences(j.id, true)
	}
	return late(ctx, err)
}

// clearWay applies what there is, so that somebody who keeps a target of one writer to himself
// is noticed while the source still takes writes.
func (j *job) clearWay(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	m, err := j.t.mover(ctx, e.Target)
	if err != nil {
		return err
	}
	if _, ok := m.(engine.Opener); ok {
		return nil
	}
	st, err := j.follows(ctx, s, e)
	if err != nil {
		return err
	}
	at, err := st.from.Here(ctx)
	if err != nil {
		return err
	}
	return st.reach(ctx, at)
}

// setGuards is workflow.SetGuards: the guards of the map as it is without the hold.
func (j *job) setGuards(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	snap, err := j.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	_, t := snap.Transit(j.id)
	switch {
	case t == nil:
		return nil // nothing was fenced for it
	case t.Hold == shardmap.NoHold:
		return j.t.guards.settle(ctx, s.Spec.Keyspace, e.Source)
	case j.guardsAt != 0 && j.guardsAt == j.t.guards.timesSet(e.Source):
		return nil // they are those from before the hold, and nobody else fences the part
	}
	if err := j.notes().unseen(ctx, s, snap); err != nil {
		return err
	}
	return j.t.guards.unfence(ctx, s.Spec.Keyspace, e.Source, j.id)
}

// unhold is workflow.Unhold.
func (j *job) unhold(ctx context.Context, s *workflow.State) error {
	j.heldAt = time.Time{}
	_, err := j.t.edit(ctx, s, "move_unhold", s.Spec.Part.Text()+" stays for now", func(cur *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		return setHold(cur, next, j.id, shardmap.NoHold), nil
	})
	if err == nil {
		j.t.guards.fences(j.id, true) // it has no hold
	}
	return err
}

// swapped is the map in which the target owns the part, without a hold.
func (j *job) swapped(s *workflow.State, target string, cur *shardmap.Snapshot, next *shardmap.State) (done bool, err error) {
	ks, t := cur.Transit(j.id)
	if t == nil {
		return false, refuse("the map has no transit %s", j.id)
	}
	owner, err := cur.OwnerOf(ks, t.Part)
	if err != nil {
		return false, err
	}
	if owner == target {
		return setHold(cur, next, j.id, shardmap.NoHold), nil
	}
	setHold(cur, next, j.id, shardmap.NoHold)
	return false, newOwner(next, &s.Spec, t.Part, target, s.Back)
}

// openTarget is workflow.OpenTarget.
func (j *job) openTarget(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	unfenced := j.t.guards.unfenced()
	cur, err := j.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	next := cur.State().Clone()
	done, err := j.swapped(s, e.Target, cur, &next)
	if err != nil || done {
		return err
	}
	j.untouched = j.shut
	// As the directory will make it, epochs included.
	after, err := shardmap.Advance(cur, shardmap.Change{Expect: cur.Version(), By: s.Spec.By, Op: "move", Transit: j.id}, next)
	if err == nil {
		after, err = asGuarded(after, s.Spec.Keyspace, unfenced)
	}
	if err != nil {
		return j.notOpened(s, err)
	}
	limit := guardBound
	if j.shut {
		limit = openMax
	} else if err := j.notes().copied(ctx, s, e); err != nil {
		if ctx.Err() != nil || errors.Is(err, errPutBack) {
			return err
		}
		return j.notOpened(s, err)
	}
	bound, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = j.t.guards.widen(bound, schema.GuardsOf(after, s.Spec.Keyspace, e.Target), e.Target)
	if j.shut && sqlstate.CodeOf(err) == sqlstate.LockNotAvailable {
		j.untouched = true
		return late(ctx, err) // nobody has opened them: it can be taken back
	}
	j.shut, j.untouched = false, false
	if err != nil && ctx.Err() == nil {
		return j.notOpened(s, err)
	}
	return err
}

// openMax bounds the wait for a target of one writer, as long as the cutover can still be
// taken back. With what came before it is less than statements wait.
const openMax = 2 * time.Second

// swap is workflow.Swap.
func (j *job) swap(ctx context.Context, s *workflow.State, e workflow.Effect, r *workflow.Result) error {
	_, err := j.t.edit(ctx, s, "move", fmt.Sprintf("%s of keyspace %s moved from %s to %s", s.Spec.Part.Text(), s.Spec.Keyspace, e.Source, e.Target), func(cur *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		return j.swapped(s, e.Target, cur, next)
	})
	if err != nil {
		return err
	}
	if err := j.notes().noteSpare(ctx, s, e.Source); err != nil {
		return err
	}
	if !j.heldAt.IsZero() {
		r.HeldMS = time.Since(j.heldAt).Milliseconds()
		j.heldAt = time.Time{}
	}
	return nil
}

// settleGuards is workflow.SettleGuards.
func (j *job) settleGuards(ctx context.Context, s *workflow.State) error {
	shards := []string{s.Spec.To, s.Spec.From}
	if s.Spec.Part.Key != nil {
		// The shard that has the range of a pinned key says of it that it is elsewhere, as of which epoch.
		snap, err := j.t.c.opts.Directory.Load(ctx)
		if err != nil {
			return err
		}
		if ix, ok := snap.Keyspace(s.Spec.Keyspace); ok {
			key, err := keyspace.ParseKey(ix.Def().Types, s.Spec.Part.Key)
			if err != nil {
				return err
			}
			if owner := ix.UnpinnedOwner(key); owner != "" && !slices.Contains(shards, owner) {
				shards = append(shards, owner)
			}
		}
	}
	for _, shard := range shards {
		if err := j.t.guards.settle(ctx, s.Spec.Keyspace, shard); err != nil {
			return err
		}
	}
	return nil
}

// dropTransit is workflow.DropTransit.
func (j *job) dropTransit(ctx context.Context, s *workflow.State) error {
	j.notes().drop(ctx, s)
	_, err := j.t.edit(ctx, s, "move_end", s.Spec.Part.Text()+" has one copy", func(cur *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		ks, t := cur.Transit(j.id)
		if t == nil {
			return true, nil
		}
		next.DropTransit(ks, j.id)
		return false, nil
	})
	return err
}
