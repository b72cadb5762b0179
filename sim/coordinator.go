package sim

import (
	"errors"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// coordinator carries workflows out while it believes that it leads.
type coordinator struct {
	w     *world
	n     int
	token uint64 // 0: it does not lead, as far as it knows
	runs  map[string]*running
	seen  map[string]bool // shards that it has seized
}

// running is a workflow that a coordinator has in hand.
type running struct {
	state   workflow.State
	rev     uint64
	effects []workflow.Effect
	at      int // the effect that is under way
	result  workflow.Result

	// Of the effect under way.
	todo    []int // keys
	applier map[string]int
	wait    int64
	started bool
	later   bool // a copy that goes on: what is loaded is brought to the position of the rest
	begun   bool // the position of a copy is to be written
	shut    bool // it has brought the move to its opening itself: nobody else has opened the target
	// untouched: the opening that was taken back had not begun
	untouched bool
}

var errLater = errors.New("not yet")

func (c *coordinator) step() {
	w := c.w
	switch {
	case c.token == 0:
		if w.leader == 0 {
			w.tokens++
			w.leader, c.token = w.tokens, w.tokens
			c.runs, c.seen = map[string]*running{}, map[string]bool{}
			w.trace("coordinator %d: leads with token %d", c.n, c.token)
		}
	case !w.stopped && w.rand.IntN(w.moods.crash) == 0:
		w.report.Crashes++
		w.trace("coordinator %d: crashes", c.n)
		c.token, c.runs = 0, nil
	default:
		ids := w.ids()
		if len(ids) > 0 {
			c.work(ids[w.rand.IntN(len(ids))])
		}
	}
}

// work goes on with one workflow by one step.
func (c *coordinator) work(id string) {
	w := c.w
	run := c.runs[id]
	if run == nil || w.records[id].rev != run.rev && w.chance(30) { // somebody asked for something
		s, rev := w.load(id)
		if run != nil && run.state.Seq == s.Seq && len(workflow.Effects(s)) == len(run.effects) {
			run.state, run.rev = s, rev // what is under way goes on
			return
		}
		run = &running{state: s, rev: rev, effects: workflow.Effects(s), applier: map[string]int{}}
		c.runs[id] = run
	}
	if run.at >= len(run.effects) {
		if len(run.effects) > 0 {
			c.event(id, run, workflow.Event{Kind: workflow.EventDone, Seq: run.state.Seq, Result: run.result})
		} else if w.records[id].rev != run.rev {
			delete(c.runs, id)
		}
		return
	}
	e := run.effects[run.at]
	if e.Op != workflow.Sleep && !w.stopped && w.rand.IntN(w.moods.failure) == 0 {
		c.event(id, run, workflow.Event{Kind: workflow.EventFailed, Seq: run.state.Seq, Op: e.Op, Class: workflow.Again, Error: "a shard was not there"})
		return
	}
	for _, name := range []string{e.Source, e.Target} {
		if name == "" || c.seen[name] {
			continue
		}
		if !w.shards[name].seize(c.token) && w.o.Break != NoToken {
			c.deposed()
			return
		}
		c.seen[name] = true
	}
	switch err := c.do(run, e); {
	case err == nil:
		w.trace("coordinator %d: %s: %s, source %s, target %s: done", c.n, id, e.Op, e.Source, e.Target)
		run.at, run.started, run.todo = run.at+1, false, nil
	case errors.Is(err, errLater):
	case errors.Is(err, errDeposed):
		c.deposed()
	default:
		class := workflow.Again
		if f := new(failure); errors.As(err, &f) {
			class = f.class
		}
		w.trace("coordinator %d: %s: %s: %s: %v", c.n, id, e.Op, class, err)
		c.event(id, run, workflow.Event{Kind: workflow.EventFailed, Seq: run.state.Seq, Op: e.Op, Class: class, Error: err.Error()})
	}
}

type failure struct {
	class workflow.Class
	what  string
}

func (f *failure) Error() string { return f.what }

func (c *coordinator) deposed() {
	c.w.trace("coordinator %d: notices that it was deposed", c.n)
	c.token, c.runs = 0, nil
}

func (c *coordinator) event(id string, run *running, e workflow.Event) {
	w := c.w
	e.At = w.now
	next, effects := workflow.Step(run.state, e)
	rev, ok, err := w.put(c.token, id, next, run.rev)
	if err != nil {
		c.deposed()
		return
	}
	if !ok {
		delete(c.runs, id)
		return
	}
	if next.Step != run.state.Step {
		w.trace("workflow %s: %s -> %s", id, run.state.Step, next.Step)
		switch next.Step {
		case workflow.Opened:
			w.report.Moved++
		case workflow.RolledBack:
			w.report.RolledBack++
		case workflow.Cancelled:
			w.report.Cancelled++
		case workflow.Failed:
			w.report.Failed++
		}
	}
	shut := next.Step == workflow.Opening && run.state.Step == workflow.Closing
	untouched := run.untouched || next.Step == workflow.Reopening && run.state.Step == workflow.Opening && run.shut
	c.runs[id] = &running{state: next, rev: rev, effects: effects, applier: run.applier, shut: shut, untouched: untouched && next.Step != workflow.Opening}
}

// do does a piece of an effect: nil when it is done, errLater when it is not.
func (c *coordinator) do(run *running, e workflow.Effect) error {
	w := c.w
	spec := &run.state.Spec
	source, target := w.shards[e.Source], w.shards[e.Target]
	may := func(s *shard) error {
		if !s.may(c.token) {
			return errDeposed
		}
		return nil
	}
	limit := int64(300)
	if w.o.Break == BlindBack && e.Op == workflow.OpenTarget {
		limit = 3
	}
	late := func() error {
		if run.wait++; run.wait > limit {
			run.wait = 0
			return &failure{workflow.Late, "not in time"}
		}
		return errLater
	}
	switch e.Op {
	case workflow.Purge, workflow.Release, workflow.SetGuards, workflow.SettleGuards:
		// What has no transit in the map has made nothing, or has cleaned up; another's
		// copy may be there by now.
		if w.newest().transit(spec.ID) == nil {
			return nil
		}
	}
	switch e.Op {
	case workflow.Check:
		if owner, err := w.snap.OwnerOf(ks, spec.Part); err != nil || owner != spec.From {
			return &failure{workflow.Refused, "the part has another owner"}
		}
		return nil
	case workflow.CompareSchema, workflow.Verify:
		if e.Op == workflow.Verify {
			return c.verify(run, e)
		}
		return nil
	case workflow.PutTransit:
		if w.newest().transit(spec.ID) != nil {
			return nil
		}
		err := w.update(c.token, spec.ID, "put transit "+spec.ID, func(s *shardmap.State) error {
			if owner, err := w.snap.OwnerOf(ks, spec.Part); err != nil || owner != spec.From {
				return &failure{workflow.Refused, "the part has another owner"}
			}
			s.PutTransit(ks, shardmap.Transit{ID: spec.ID, Part: spec.Part, From: spec.From, To: spec.To})
			return nil
		})
		if err != nil && !errors.Is(err, errDeposed) {
			return &failure{workflow.Refused, err.Error()}
		}
		return err
	case workflow.AwaitMembers:
		t := w.newest().transit(spec.ID)
		if t == nil {
			return &failure{workflow.Refused, "the transit is not in the map"}
		}
		for _, m := range w.members {
			if m.listed && m.acked < t.Epoch && w.o.Break != NoAck {
				if e.ForMS > 0 {
					return late()
				}
				return errLater
			}
		}
		return nil
	case workflow.Release:
		streams := []string{e.Stream}
		if e.Stream == "" {
			streams = []string{workflow.Forth(spec.ID), workflow.Back(spec.ID)}
		}
		if !source.mine() || !target.mine() {
			return errLater
		}
		for _, s := range []*shard{source, target} {
			if err := may(s); err != nil {
				return err
			}
			for _, stream := range streams {
				delete(s.captures, stream)
				delete(s.applied, stream)
				delete(s.applying, stream)
				delete(s.loaded, stream)
			}
		}
		return nil
	case workflow.Purge:
		if err := may(target); err != nil {
			return err
		}
		rows := target.has(c.keys(spec))
		if run.state.Step == workflow.Copying {
			rows = slices.DeleteFunc(rows, func(k int) bool { return target.loaded[e.Stream][k] })
		}
		if len(rows) == 0 {
			return nil
		}
		k := rows[0]
		if target.guard.Owns(keyOf(k)) {
			w.fail("shard %s is purged of key %d, whose writes it takes", target.name, k)
		}
		if target.free(nil, k) {
			target.put(k, nil)
		}
		return errLater
	case workflow.AwaitWindow, workflow.AskMembers: // a window or a member keeps it waiting, or does not
		if w.rand.IntN(10) > 0 {
			return errLater
		}
		return nil
	case workflow.Copy:
		return c.copy(run, e, source, target, may)
	case workflow.Follow, workflow.FollowFor, workflow.KeepBack:
		if e.Op == workflow.KeepBack && w.now >= e.UntilMS {
			return nil
		}
		more, err := c.apply(run, e.Stream, source, target)
		if err != nil {
			return err
		}
		if e.Op == workflow.KeepBack || more {
			return errLater
		}
		return nil
	case workflow.CaptureBack:
		if err := may(source); err != nil {
			return err
		}
		if !source.mine() {
			return errLater
		}
		if source.captures[e.Stream] == nil {
			source.captures[e.Stream] = &capture{c.keys(spec), len(source.log)}
			if w.o.Break == NoMark && target.applied[e.Stream] == 0 {
				target.applied[e.Stream] = len(source.log)
			}
		}
		return nil
	case workflow.Hold, workflow.Unhold:
		t := w.newest().transit(spec.ID)
		if t == nil || t.Hold == e.Hold {
			return nil
		}
		return w.update(c.token, spec.ID, string(e.Op)+" "+string(e.Hold)+" "+spec.ID, func(s *shardmap.State) error {
			t := t.Transit
			t.Hold = e.Hold
			s.PutTransit(ks, t)
			return nil
		})
	case workflow.Fence:
		if err := may(source); err != nil {
			return err
		}
		if !source.fenceFree() {
			return late()
		}
		source.setGuard(keyspace.NewOwner(w.guards(source.name, "")))
		return nil
	case workflow.DrainSource:
		if w.o.Break == NoDrain {
			return nil
		}
		more, err := c.apply(run, e.Stream, source, target)
		if err == nil && more {
			return late()
		}
		return err
	case workflow.SetGuards:
		if err := may(source); err != nil {
			return err
		}
		if !source.mine() {
			return errLater
		}
		source.setGuard(keyspace.NewOwner(w.guards(source.name, spec.ID)))
		return nil
	case workflow.MarkBack:
		if err := may(target); err != nil {
			return err
		}
		if !target.mine() {
			return late()
		}
		if w.o.Break != NoMark {
			target.applied[e.Stream] = len(source.log)
		}
		return nil
	case workflow.OpenTarget:
		if err := may(target); err != nil {
			return err
		}
		if !target.mine() {
			return late() // it may be open, from a leader before this one: it is shut before the source is opened
		}
		next := w.snap.State().Clone()
		if err := next.SetOwner(ks, spec.Part, target.name); err != nil {
			return err
		}
		c.unhold(&next, spec.ID)
		snap, err := shardmap.Advance(w.snap, shardmap.Change{Expect: w.snap.Version(), By: "sim", Op: "open", Transit: spec.ID}, next)
		if err != nil {
			return err
		}
		target.setGuard(keyspace.NewOwner(guardsOf(snap, target.name, "")))
		return nil
	case workflow.Swap:
		t := w.newest().transit(spec.ID)
		if owner, err := w.snap.OwnerOf(ks, spec.Part); err == nil && owner == e.Target && (t == nil || t.Hold == shardmap.NoHold) {
			return nil
		}
		return w.update(c.token, spec.ID, "swap "+spec.ID, func(s *shardmap.State) error {
			if err := s.SetOwner(ks, spec.Part, e.Target); err != nil {
				return err
			}
			c.unhold(s, spec.ID)
			return nil
		})
	case workflow.ShutTarget:
		if run.untouched || w.o.Break == BlindBack {
			return nil
		}
		if err := may(target); err != nil {
			return err
		}
		if !target.mine() {
			return errLater
		}
		target.setGuard(keyspace.NewOwner(w.guards(target.name, "")))
		return nil
	case workflow.SettleGuards:
		for _, s := range []*shard{source, target} {
			if err := may(s); err != nil {
				return err
			}
			if !s.mine() {
				return errLater
			}
			s.setGuard(keyspace.NewOwner(w.guards(s.name, "")))
		}
		return nil
	case workflow.DropTransit:
		if w.newest().transit(spec.ID) == nil {
			return nil
		}
		return w.update(c.token, spec.ID, "drop transit "+spec.ID, func(s *shardmap.State) error {
			s.DropTransit(ks, spec.ID)
			return nil
		})
	case workflow.Sleep:
		if e.UntilMS > 0 && w.now < e.UntilMS {
			return errLater
		}
		if !run.started {
			run.started, run.wait = true, w.up+e.ForMS
		}
		if w.up < run.wait {
			return errLater
		}
		run.wait = 0
		return nil
	}
	panic("effect " + string(e.Op))
}

func (c *coordinator) unhold(s *shardmap.State, id string) {
	if t := c.w.newest().transit(id); t != nil {
		t := t.Transit
		t.Hold = shardmap.NoHold
		s.PutTransit(ks, t)
	}
}

// guards are what a shard's guards have to be by the map: what it owns, without what is held; but
// with the part of the transit but, held or not.
func (w *world) guards(name, but string) keyspace.Ownership {
	return guardsOf(w.snap, name, but)
}

func guardsOf(snap *shardmap.Snapshot, name, but string) keyspace.Ownership {
	own := snap.Ownership(ks, name)
	ix, _ := snap.Keyspace(ks)
	owner := keyspace.NewOwner(own)
	var pinned []keyspace.Key
	for _, k := range keys {
		key := keyOf(k)
		held := slices.ContainsFunc(ix.Def().Transits, func(t shardmap.Transit) bool {
			part := snap.Keys(ks, t.Part)
			return t.Hold != shardmap.NoHold && t.ID != but && part.Owns(key)
		})
		if owner.Owns(key) && !held {
			pinned = append(pinned, key)
		}
	}
	// As a list of keys: the simulation has few.
	return keyspace.Ownership{Keyspace: ks, Strategy: keyspace.List, Types: own.Types, Listed: pinned, Epoch: own.Epoch}
}

// keys are the keys of a part. Pins inside of it do not change while it is in transit.
func (c *coordinator) keys(spec *workflow.Spec) *keyspace.Owner {
	return keyspace.NewOwner(c.w.snap.Keys(ks, spec.Part))
}

// copy captures, then loads one row after the other; each is a table of its own. If some are
// loaded already, it brings them to the position of now, and loads the others as of that.
func (c *coordinator) copy(run *running, e workflow.Effect, source, target *shard, may func(*shard) error) error {
	if err := may(source); err != nil {
		return err
	}
	if err := may(target); err != nil {
		return err
	}
	there := target.loaded[e.Stream]
	if !run.started {
		if !source.mine() {
			return errLater
		}
		part := c.keys(&run.state.Spec)
		if len(there) == 0 {
			source.captures[e.Stream] = &capture{part, len(source.log)}
		}
		run.started, run.wait = true, int64(len(source.log))
		run.todo = slices.DeleteFunc(slices.Clone(keys), func(k int) bool { return there[k] || !part.Owns(keyOf(k)) })
		run.later = len(there) > 0 && len(run.todo) > 0
		run.begun = !run.later && len(there) == 0
		return errLater
	}
	if source.captures[e.Stream] == nil {
		return &failure{workflow.Again, "the capture is gone"}
	}
	if run.later {
		more, err := c.applyTo(run, e.Stream, source, target, int(run.wait), there)
		if err != nil {
			return err
		}
		if run.later = more; !more {
			run.begun = true
		}
		return errLater
	}
	if run.begun { // where what is loaded now is as of
		if !target.mine() {
			return errLater
		}
		target.applied[e.Stream] = int(run.wait)
		run.begun = false
		return errLater
	}
	if len(run.todo) > 0 {
		k := run.todo[0]
		row := source.at(k, int(run.wait))
		if !slices.Equal(target.rows[k], row) { // loaded, and noted by the next step
			if !target.free(nil, k) {
				return errLater
			}
			target.put(k, row)
			return errLater
		}
		if there == nil {
			there = map[int]bool{}
			target.loaded[e.Stream] = there
		}
		there[k] = true
		run.todo = run.todo[1:]
		return errLater
	}
	run.result.Rows = 1
	run.wait = 0
	return nil
}

// apply applies the next change of a stream; more says that there may be another.
func (c *coordinator) apply(run *running, stream string, source, target *shard) (more bool, err error) {
	return c.applyTo(run, stream, source, target, len(source.log), nil)
}

// applyTo applies the next change before a position; of these keys only, if there are some.
func (c *coordinator) applyTo(run *running, stream string, source, target *shard, until int, only map[int]bool) (more bool, err error) {
	w := c.w
	if !target.may(c.token) {
		return false, errDeposed
	}
	captured := source.captures[stream]
	if captured == nil {
		return false, &failure{workflow.Again, "there is no capture " + stream}
	}
	// One Applier at a time: a new one ends the others.
	if me := run.applier[stream]; me == 0 || target.applying[stream] != me {
		target.appliers++
		run.applier[stream], target.applying[stream] = target.appliers, target.appliers
	}
	at := max(target.applied[stream], captured.from)
	for ; at < until; at++ {
		entry := source.log[at]
		if !captured.keys.Owns(keyOf(entry.key)) || only != nil && (!only[entry.key] || w.o.Break == NoCatchUp) {
			continue
		}
		if !target.free(nil, entry.key) {
			return true, nil // waits for a lock on the row
		}
		if !slices.Equal(target.rows[entry.key], entry.before) {
			w.fail("stream %s from %s to %s does not fit at %d: key %d was %v, and is %v", stream, source.name, target.name, at, entry.key, entry.before, target.rows[entry.key])
		}
		target.put(entry.key, entry.after)
		target.applied[stream] = at + 1
		return true, nil
	}
	target.applied[stream] = at
	return false, nil
}

// verify compares both copies at the applied position.
func (c *coordinator) verify(run *running, e workflow.Effect) error {
	source, target := c.w.shards[e.Source], c.w.shards[e.Target]
	if !target.may(c.token) { // the applier that brings it to the position is refused
		return errDeposed
	}
	part := c.keys(&run.state.Spec)
	position := target.applied[e.Stream]
	for _, k := range keys {
		if part.Owns(keyOf(k)) && !slices.Equal(source.at(k, position), target.rows[k]) {
			c.w.fail("the copies of key %s differ: %v on %s at %d, %v on %s", strconv.Itoa(k), source.at(k, position), source.name, position, target.rows[k], target.name)
		}
	}
	return nil
}
