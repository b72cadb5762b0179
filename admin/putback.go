package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// heldAndSeen are the parts on hold whose new owner shows more than the record of the move knows: its guard lets the part through although no
// opening was begun, or it has no note of the move's copy. The directory was put back to an older state then. schema.Recover says nothing of
// guards of a part on hold.
func (o *backend) heldAndSeen(ctx context.Context) (out []Finding) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil // said elsewhere
	}
	for i := range snap.State().Keyspaces {
		ks := &snap.State().Keyspaces[i]
		for _, t := range ks.Transits {
			if t.Hold == shardmap.NoHold {
				continue
			}
			if target, why := o.seenMore(ctx, snap, ks.Name, &t); why != "" {
				out = append(out, Finding{Level: LevelError, Shard: target, Newer: true, Next: schema.NewerNext,
					What: fmt.Sprintf("%s of keyspace %s is on hold for move %s to shard %s, but %s: the directory was put back to an older state, and rows may be where the map does not say",
						t.Text(), ks.Name, t.ID, target, why)})
			}
		}
	}
	return out
}

// seenMore says what the new owner of a held part shows that the record of its move does not know. It is read before the record: the
// move may go on meanwhile.
func (o *backend) seenMore(ctx context.Context, snap *shardmap.Snapshot, ks string, t *shardmap.Transit) (target, why string) {
	bound, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	owner, err := snap.OwnerOf(ks, t.Part)
	if err != nil {
		return "", ""
	}
	if target = t.To; owner == target {
		target = t.From
	}
	conn, release, err := o.connect(bound, target)
	if err != nil {
		return "", ""
	}
	_, through := schema.LetsThrough(bound, conn, snap, ks, target, t.Part)
	release(false)
	noted := o.hasNote(bound, snap, target, t.ID)
	r, err := o.opts.Directory.Record(bound, workflow.RecordPrefix+t.ID)
	if err != nil {
		return "", ""
	}
	s, err := workflow.Decode(r.Value)
	if err != nil {
		return "", ""
	}
	return target, moreThan(&s, through, noted)
}

// moreThan says what a target shows that a record of a move in its cutover does not know.
func moreThan(s *workflow.State, through, noted bool) string {
	begun := s.MayBeOpen || s.Step == workflow.Opening
	switch {
	case !slices.Contains([]workflow.StepName{workflow.Closing, workflow.Opening, workflow.Reopening, workflow.Cancelling}, s.Step):
	case through && !begun:
		return "its guards let through what the move has not opened there"
	case begun && s.Notes && !noted:
		return "it does not know of the move's copy"
	}
	return ""
}

// hasNote reports whether a shard knows of a move's copy, true if it cannot be asked.
func (o *backend) hasNote(ctx context.Context, snap *shardmap.Snapshot, shard, id string) bool {
	def, ok := snap.Shard(shard)
	if !ok {
		return true
	}
	m, err := o.mover(snap, def)
	if err != nil {
		return true
	}
	note, err := m.Applied(ctx, workflow.Spare(id))
	return err != nil || note != ""
}

// letGo takes all holds out of the map, and the transits that no workflow is at work on: a person has decided that the map is right, so nobody
// waits for another owner. Guards of parts on hold would be left as they are. What a lost move has copied, verify finds.
func (o *backend) letGo(ctx context.Context, by string) error {
	for {
		snap, err := o.load(ctx)
		if err != nil {
			return err
		}
		next, id := o.without(ctx, snap)
		if id == "" {
			return nil
		}
		if _, err := o.opts.Directory.Update(ctx, shardmap.Change{Expect: snap.Version(), By: by, Why: "guards are set back to the map", Op: "rebuild", Transit: id}, next); err != nil && !errors.Is(err, shardmap.ErrConflict) {
			return directoryError(err)
		}
	}
}

// without is a map without one of its holds, or of its transits that are left; "": it has none.
func (o *backend) without(ctx context.Context, snap *shardmap.Snapshot) (next shardmap.State, id string) {
	for i := range snap.State().Keyspaces {
		ks := &snap.State().Keyspaces[i]
		for _, t := range ks.Transits {
			next = snap.State().Clone()
			if over, err := o.isOver(ctx, t.ID); err == nil && over {
				next.DropTransit(ks.Name, t.ID)
				return next, t.ID
			}
			if t.Hold != shardmap.NoHold {
				t.Hold = shardmap.NoHold
				next.PutTransit(ks.Name, t)
				return next, t.ID
			}
		}
	}
	return next, ""
}

// isOver reports whether no workflow of that id is at work.
func (o *backend) isOver(ctx context.Context, id string) (bool, error) {
	r, err := o.opts.Directory.Record(ctx, workflow.RecordPrefix+id)
	if errors.Is(err, shardmap.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	s, err := workflow.Decode(r.Value)
	return err == nil && s.Step.Ended(), err
}

// holding is the move of a part on hold, "" if there is none.
func holding(snap *shardmap.Snapshot) string {
	for i := range snap.State().Keyspaces {
		for _, t := range snap.State().Keyspaces[i].Transits {
			if t.Hold != shardmap.NoHold {
				return t.ID
			}
		}
	}
	return ""
}
