package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// spreadTolerance is how far above its share a shard may be after a spread.
const spreadTolerance = 0.05

// drainTolerance keeps a drain from moving anything between the other shards.
const drainTolerance = 1e6

// parent carries out the effects of a workflow that moves nothing itself: it begins moves, waits for them and changes the map. It
// keeps nothing between two effects.
type parent struct {
	t  *term
	id string
}

// plan is workflow.Plan.
func (w *parent) plan(ctx context.Context, s *workflow.State, r *workflow.Result) error {
	snap, err := w.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	if s.Made == 0 {
		if err := w.alone(ctx, s); err != nil {
			return err
		}
	}
	if s.Spec.Kind == workflow.Drain {
		if snap, err = w.setDrain(ctx, s, w.id); err != nil {
			return err
		}
	}
	if r.Children, err = Plan(snap, &s.Spec); err != nil {
		return err
	}
	if err := w.free(ctx, s, snap, r.Children); err != nil {
		return err
	}
	if s.Spec.Kind == workflow.Merge {
		return Mergeable(snap, &s.Spec)
	}
	return nil
}

// setDrain notes in the map which drain empties the shard, "" for none: from then on nothing is placed on it. A shard that has left the
// map meanwhile is empty.
func (w *parent) setDrain(ctx context.Context, s *workflow.State, id string) (*shardmap.Snapshot, error) {
	op, why := "drain_begin", "nothing is placed on shard "+s.Spec.From+" while it is being drained"
	if id == "" {
		op, why = "drain_end", "shard "+s.Spec.From+" is not being drained any more"
	}
	return w.t.edit(ctx, s, op, why, func(cur *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		sh, ok := cur.Shard(s.Spec.From)
		if !ok || id == "" && sh.Drain != w.id {
			return true, nil
		}
		return !next.SetDrain(s.Spec.From, id), nil
	})
}

// endDrain is workflow.EndDrain.
func (w *parent) endDrain(ctx context.Context, s *workflow.State) error {
	_, err := w.setDrain(ctx, s, "")
	return err
}

// Mergeable says why two ranges cannot become one now: a move has a part of them, or can be reversed.
func Mergeable(snap *shardmap.Snapshot, spec *workflow.Spec) error {
	lower, upper, err := Neighbours(snap, spec.Keyspace, spec.At)
	if err != nil || lower == nil {
		return err
	}
	for _, r := range []*shardmap.Range{lower, upper} {
		if t := snap.TransitIn(spec.Keyspace, r); t != nil {
			return sqlstate.New(sqlstate.ObjectNotInState, "%s of keyspace %s is being moved by %s, or can still come back: its bounds stay as they are", t.Part.Text(), spec.Keyspace, t.ID).
				WithHint("see: cleave moves %s; to complete one: cleave complete %s", t.ID, t.ID)
		}
	}
	return nil
}

// Plan returns the moves that are next for a drain, a spread or a merge, at most
// workflow.MaxChildren: none if nothing is left to be moved. No constraint of the map is broken by them, nor by
// those of them that are done while others are not. Errors are Refused.
func Plan(snap *shardmap.Snapshot, spec *workflow.Spec) ([]workflow.Spec, error) {
	var all []workflow.Spec
	add := func(ks, from, to string, p shardmap.Part, pinned bool) {
		if from != to {
			all = append(all, workflow.Spec{Kind: workflow.Move, Keyspace: ks, Part: p.Clone(), From: from, To: to, WasPinned: pinned, Options: spec.Options})
		}
	}
	if spec.Kind == workflow.Merge {
		lower, upper, err := Neighbours(snap, spec.Keyspace, spec.At)
		if err != nil || lower == nil {
			return nil, classed(workflow.Refused, err)
		}
		to := spec.To
		if to == "" {
			if to = lower.Shard; snap.Drained(to) != nil {
				to = upper.Shard
			}
		}
		for _, r := range []*shardmap.Range{lower, upper} {
			add(spec.Keyspace, r.Shard, to, shardmap.Part{Low: r.Low, High: r.High}, false)
		}
		for i := range all {
			all[i].KeepMS = -1 // bounds of a part stay as they are as long as it can come back
		}
		return arrivals(snap, all, workflow.MaxChildren)
	}
	// Shards that are not in service, or that another workflow drains, get nothing and, but for one that is drained, give nothing.
	rest := map[string]bool{}
	var used []shardmap.Shard
	for _, s := range snap.Shards() {
		if (s.Service != shardmap.InService || s.Drain != "") && (spec.Kind != workflow.Drain || s.Name != spec.From) {
			rest[s.Name] = true
			continue
		}
		used = append(used, s)
	}
	if spec.To != "" {
		if err := receives(snap, spec.To); err != nil {
			return nil, err
		}
	}
	shards := shardmap.PlacementShards(used)
	tolerance := spreadTolerance
	if spec.Kind == workflow.Drain {
		tolerance = drainTolerance
		for i := range shards {
			if shards[i].Name == spec.From {
				shards[i].Weight = 0
			}
		}
	} else if len(spec.Shards) > 0 {
		for i := range shards {
			if !slices.Contains(spec.Shards, shards[i].Name) {
				shards[i].Weight = 0
			}
		}
	}
	st := snap.State()
	ruled := newRuled(snap, shards)
	for i := range st.Keyspaces {
		k := &st.Keyspaces[i]
		if spec.Keyspace != "" && k.Name != spec.Keyspace {
			continue
		}
		units := ruled.units[k.Name]
		if len(units) == 0 {
			continue
		}
		owners := make([]string, len(units))
		for n := range units {
			if owners[n] = units[n].Owner; spec.Kind == workflow.Drain && spec.To != "" && owners[n] == spec.From {
				owners[n] = spec.To
			}
		}
		if spec.Kind != workflow.Drain || spec.To == "" {
			// A drain moves pins too; a spread leaves them where somebody put them.
			stays := func(n int) bool {
				return rest[units[n].Owner] || spec.Kind != workflow.Drain && n >= len(k.Ranges)+len(k.Values)
			}
			if err := ruled.propose(k.Name, owners, tolerance, rest, stays); err != nil {
				return nil, classed(workflow.Refused, err)
			}
		}
		n := 0
		for _, r := range k.Ranges {
			add(k.Name, r.Shard, owners[n], shardmap.Part{Low: r.Low, High: r.High}, false)
			n++
		}
		for _, v := range k.Values {
			// A value that is pinned moves with its pin.
			if !slices.ContainsFunc(k.Pins, func(p shardmap.Pin) bool { return slices.Equal(p.Key, v.Key) }) {
				add(k.Name, v.Shard, owners[n], shardmap.Part{Key: v.Key}, false)
			}
			n++
		}
		for _, p := range k.Pins {
			if spec.Kind == workflow.Drain { // somebody put it where it is
				add(k.Name, p.Shard, owners[n], shardmap.Part{Key: p.Key}, true)
			}
			n++
		}
	}
	return arrivals(snap, all, workflow.MaxChildren)
}

// receives refuses a target that is read-only, out of service, or being drained.
func receives(snap *shardmap.Snapshot, shard string) error {
	if err := snap.Receives(shard); err != nil {
		return classed(workflow.Refused, err)
	}
	return nil
}

// Neighbours returns the ranges of a keyspace on both sides of a bound; nil if there
// is no such bound.
func Neighbours(snap *shardmap.Snapshot, ks string, at []string) (lower, upper *shardmap.Range, err error) {
	ix, ok := snap.Keyspace(ks)
	if !ok {
		return nil, nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", ks).WithHint("see: cleave keyspace list")
	}
	// Merge knows the canonical form of a bound: it goes if there is one.
	next := snap.State().Clone()
	err = next.Merge(ks, at)
	ranges := ix.Def().Ranges
	for i := 1; i < len(ranges); i++ {
		if slices.Equal(ranges[i].Low, at) {
			return &ranges[i-1], &ranges[i], nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	after, err := shardmap.NewSnapshot(next)
	if err != nil {
		return nil, nil, err
	}
	there, _ := after.Keyspace(ks)
	for i := 1; i < len(ranges); i++ {
		if i >= len(there.Def().Ranges) || !slices.Equal(there.Def().Ranges[i].Low, ranges[i].Low) {
			return &ranges[i-1], &ranges[i], nil
		}
	}
	return nil, nil, nil
}

// Middle returns the bound that cuts the range of a hash keyspace which a bound lies
// in into halves.
func Middle(snap *shardmap.Snapshot, ks string, part shardmap.Part) ([]string, error) {
	ix, ok := snap.Keyspace(ks)
	if !ok {
		return nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", ks).WithHint("see: cleave keyspace list")
	}
	if ix.Def().Strategy != keyspace.Hash {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "keyspace %s needs the key to split at", ks).WithHint("cleave split --keyspace %s --at KEY", ks)
	}
	keys := snap.Keys(ks, part)
	if len(keys.Intervals) != 1 {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "keyspace %s has no range %s", ks, part.Text())
	}
	iv := keys.Intervals[0]
	high := iv.High
	if iv.Last {
		high = math.MaxInt64
	}
	half := uint64(high-iv.Low) / 2
	if half == 0 {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "range %s has one position", part.Text())
	}
	return []string{strconv.FormatInt(iv.Low+int64(half), 10)}, nil
}

// editMap is workflow.EditMap.
func (w *parent) editMap(ctx context.Context, s *workflow.State, r *workflow.Result) error {
	spec := &s.Spec
	op, why := string(spec.Kind), ""
	snap, err := w.t.edit(ctx, s, op, fmt.Sprintf("%s of keyspace %s", spec.Kind, spec.Keyspace), func(cur *shardmap.Snapshot, next *shardmap.State) (bool, error) {
		if spec.Kind == workflow.Pin {
			owner, err := cur.OwnerOf(spec.Keyspace, spec.Part)
			if err == nil {
				why = "pinned to " + owner + ", where it is"
				err = next.PutPin(spec.Keyspace, spec.Part.Key, owner)
			}
			return err == nil && pins(cur.State(), spec.Keyspace) == pins(next, spec.Keyspace), err
		}
		done, err := editBound(spec, cur, next)
		if done || err != nil {
			return done, err
		}
		a, _ := cur.Keyspace(spec.Keyspace)
		for i := range next.Keyspaces {
			if k := &next.Keyspaces[i]; k.Name == spec.Keyspace {
				why = fmt.Sprintf("%d ranges", len(k.Ranges))
				return a != nil && len(k.Ranges) == len(a.Def().Ranges), nil
			}
		}
		return true, nil
	})
	if sqlstate.CodeOf(err) == sqlstate.ObjectNotInState && !errors.Is(err, shardmap.ErrDeposed) {
		return classed(workflow.Refused, err)
	}
	if err != nil {
		return err
	}
	r.Note = why
	return w.settleOwners(ctx, snap, spec.Keyspace)
}

// editBound splits a range in two, or merges two. done: after a crash the range is the half already, and is not cut again.
func editBound(spec *workflow.Spec, cur *shardmap.Snapshot, next *shardmap.State) (done bool, err error) {
	if spec.Kind != workflow.Split {
		return false, next.Merge(spec.Keyspace, spec.At)
	}
	at := spec.At
	if len(at) == 0 {
		ix, ok := cur.Keyspace(spec.Keyspace)
		if !ok || !slices.ContainsFunc(ix.Def().Ranges, func(r shardmap.Range) bool {
			return slices.Equal(r.Low, spec.Part.Low) && slices.Equal(r.High, spec.Part.High)
		}) {
			return true, nil
		}
		if at, err = Middle(cur, spec.Keyspace, spec.Part); err != nil {
			return false, err
		}
	}
	return false, next.Split(spec.Keyspace, at)
}

// settleOwners sets the guards of a keyspace, which say the epochs of its ranges: these are others now.
func (w *parent) settleOwners(ctx context.Context, snap *shardmap.Snapshot, ks string) error {
	ix, ok := snap.Keyspace(ks)
	if !ok {
		return nil
	}
	for _, shard := range ix.Owners() {
		if err := w.t.guards.settle(ctx, ks, shard); err != nil {
			return err
		}
	}
	return nil
}

// pins is how many pins a keyspace has.
func pins(s *shardmap.State, ks string) int {
	for i := range s.Keyspaces {
		if s.Keyspaces[i].Name == ks {
			return len(s.Keyspaces[i].Pins)
		}
	}
	return 0
}

// spawn is workflow.Spawn.
func (w *parent) spawn(ctx context.Context, _ *workflow.State, e workflow.Effect) error {
	key := workflow.RecordPrefix + e.Child.ID
	if _, err := w.t.c.opts.Directory.Record(ctx, key); !errors.Is(err, shardmap.ErrNotFound) {
		return err
	}
	child := workflow.New(*e.Child, time.Now().UnixMilli())
	b, err := child.Encode()
	if err != nil {
		return err
	}
	if _, err = w.t.records.PutRecord(ctx, key, b, 0); errors.Is(err, shardmap.ErrConflict) {
		return nil
	}
	w.t.again()
	return err
}

// childLook is how often a parent looks at its children.
const childLook = 300 * time.Millisecond

// awaitChildren is workflow.AwaitChildren.
func (w *parent) awaitChildren(ctx context.Context, s *workflow.State, r *workflow.Result) error {
	for {
		left := 0
		var failed []string
		for _, c := range s.Children {
			child, err := w.child(ctx, c.ID)
			if err != nil {
				return err
			}
			switch {
			case child == nil:
			case s.Spec.Kind == workflow.Drain && child.Step == workflow.Failed && w.left(ctx, &child.Spec):
			// Another move was faster: what there is to do is planned anew.
			case child.Step == workflow.Failed || child.Step == workflow.Cancelled || child.Step == workflow.RolledBack:
				failed = append(failed, c.ID)
				if r.Note == "" && child.Error != "" {
					r.Note = c.ID + ": " + child.Error
				}
			case !child.Step.Ended() && child.Step != workflow.Opened:
				left++
			}
		}
		if left == 0 {
			r.Failed = failed
			return nil
		}
		pause(ctx, childLook)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// child is the state of a child, nil if it ended long ago, or was never begun.
func (w *parent) child(ctx context.Context, id string) (*workflow.State, error) {
	rec, err := w.t.c.opts.Directory.Record(ctx, workflow.RecordPrefix+id)
	if errors.Is(err, shardmap.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := workflow.Decode(rec.Value)
	return &s, err
}

// left reports whether the part of a move that failed has gone to another shard without it.
func (w *parent) left(ctx context.Context, move *workflow.Spec) bool {
	snap, err := w.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return false
	}
	owner, err := snap.OwnerOf(move.Keyspace, move.Part)
	return err == nil && owner != move.From
}

// cancelChildren is workflow.CancelChildren.
func (w *parent) cancelChildren(ctx context.Context, s *workflow.State) error {
	for _, c := range s.Children {
		if _, err := Ask(ctx, w.t.records, c.ID, workflow.Cancel, s.Spec.By, nil); err != nil {
			code := sqlstate.CodeOf(err)
			if code == sqlstate.ObjectNotInState && !errors.Is(err, shardmap.ErrDeposed) || errors.Is(err, shardmap.ErrNotFound) {
				continue // too late for it
			}
			return err
		}
	}
	w.t.again()
	return nil
}

// Ask applies an operator's wish to the record of a workflow, and returns what is
// stored then. bounds are those that it goes on by when it is resumed; nil: as before. Errors: 42704 if there is no such workflow, 55000 if it cannot be
// granted now.
func Ask(ctx context.Context, records shardmap.Records, id string, wish workflow.Wish, by string, bounds *workflow.Bounds) (workflow.State, error) {
	for {
		r, err := records.Record(ctx, workflow.RecordPrefix+id)
		if errors.Is(err, shardmap.ErrNotFound) {
			return workflow.State{}, sqlstate.Wrap(err, sqlstate.UndefinedObject, "there is no workflow %q", id).WithHint("see: cleave moves")
		}
		if err != nil {
			return workflow.State{}, err
		}
		s, err := workflow.Decode(r.Value)
		if err != nil {
			return s, err
		}
		if err := workflow.CanAsk(&s, wish); err != nil {
			return s, err
		}
		next, _ := workflow.Step(s, workflow.Event{Kind: workflow.EventAsked, At: time.Now().UnixMilli(), Wish: wish, By: by, Bounds: bounds})
		b, err := next.Encode()
		if err != nil {
			return s, err
		}
		if bytes.Equal(b, r.Value) {
			return next, nil // it is so already
		}
		if _, err = records.PutRecord(ctx, r.Key, b, r.Revision); err == nil {
			return next, nil
		} else if !errors.Is(err, shardmap.ErrConflict) {
			return s, err
		}
	}
}
