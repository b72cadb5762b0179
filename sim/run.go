package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// endTicks bounds the time in which everything has to end when nothing fails any more.
const endTicks = 60_000

// Run simulates one cluster, inside of a bubble of [synctest]: time passes there when the simulation lets it. The error is a
// *[Violation].
func Run(o Options) (Report, error) {
	w := newWorld(o)
	defer w.end()
	for w.tick = 0; w.tick < w.o.Ticks && w.bad == ""; w.tick++ {
		w.once()
	}
	w.stopped = true
	w.trace("from here on nothing fails")
	for ; w.bad == "" && !w.over(); w.tick++ {
		if w.tick > w.o.Ticks+endTicks {
			w.fail("a workflow does not end: %s", w.unended())
			break
		}
		w.once()
		if (w.tick-w.o.Ticks)%3000 == 2999 {
			for _, id := range w.ids() {
				w.ask(id, workflow.Resume)
				w.ask(id, workflow.Complete)
			}
		}
	}
	if w.bad == "" {
		w.nothingLeft()
	}
	w.report.Ticks = w.tick
	if w.bad != "" {
		return w.report, &Violation{Seed: o.Seed, Break: o.Break, Aim: o.Aim, Tick: w.tick, What: w.bad}
	}
	return w.report, nil
}

// end ends what the processes do.
func (w *world) end() {
	w.mu.Lock()
	for _, p := range w.coords {
		if p.life != nil {
			p.kill()
		}
	}
	w.mu.Unlock()
	for _, l := range w.lives {
		<-l.ended
	}
}

// once lets one thing happen, and what comes of it by itself.
func (w *world) once() {
	w.mu.Lock()
	w.happen()
	// Everything takes a moment. What begins in two ticks is never due in the same instant, in which nothing says who is first.
	nap := w.nap + time.Duration(1+w.rand.IntN(1000))
	w.nap = 0
	w.mu.Unlock()
	time.Sleep(nap)
	synctest.Wait()
	w.invariants()
}

func (w *world) happen() {
	switch n := w.rand.IntN(100); {
	case n < w.moods.routers:
		w.routers[w.rand.IntN(len(w.routers))].step()
	case n < w.moods.routers+w.moods.coordinators:
		w.coords[w.rand.IntN(len(w.coords))].step()
	default:
		w.other(w.rand.IntN(15))
	}
}

// other is what happens beside routers and coordinators.
func (w *world) other(n int) {
	switch {
	case n < 1:
		w.bury()
	case n < 3:
		w.passes(w.rand.Int64N(20))
	case n < 4 && w.leader != 0 && !slices.ContainsFunc(w.coords, func(p *process) bool { return p.leads == w.leader }):
		w.trace("the dead leader's time is over")
		w.leader = 0
	case w.stopped:
		w.direct()
	case n < 5:
		if w.chance(10) { // the wall clock of the process that stamps events
			w.skew.Add(w.rand.Int64N(7_200_000) - 3_600_000)
		}
	case n < 12:
		w.direct()
	case n < 13:
		if w.chance(35) {
			w.operator()
		}
	case n < 14:
		if w.leader != 0 && w.chance(20) && w.chance(w.moods.trouble) {
			w.trace("the leader's time is over")
			w.leader = 0
		}
	default:
		if w.chance(10) && w.chance(w.moods.trouble) {
			s := w.shards[w.names()[w.rand.IntN(3)]]
			w.report.Crashes++
			w.trace("shard %s crashes", s.name)
			s.crash()
		}
	}
}

// passes lets time go by.
func (w *world) passes(ms int64) { w.nap += time.Duration(ms) * time.Millisecond }

// psql is somebody who writes on a shard without a router, in a transaction: a locking
// read, a write of what was read and one more, COMMIT.
type psql struct {
	shard *shard
	key   int
	t     *txn
	got   []int
	id    int
	step  int
}

func (w *world) direct() {
	if len(w.psql) < 2 && !w.stopped && !w.moods.routersOnly {
		s := w.shards[w.names()[w.rand.IntN(3)]]
		w.psql = append(w.psql, &psql{shard: s, key: w.key(), t: s.begin()})
	}
	if len(w.psql) == 0 {
		return
	}
	p := w.psql[w.rand.IntN(len(w.psql))]
	gone := func() { w.psql = slices.DeleteFunc(w.psql, func(o *psql) bool { return o == p }) }
	if !p.shard.alive(p.t) {
		gone()
		return
	}
	switch p.step {
	case 0:
		if !p.shard.free(p.t, p.key) {
			return
		}
		p.t.locked[p.key], p.got = true, slices.Clone(p.shard.read(p.t, p.key))
	case 1:
		p.id = w.newID()
		if !p.shard.write(p.t, p.key, append(slices.Clone(p.got), p.id)) {
			p.shard.end(p.t)
			gone()
			return
		}
	case 2:
		p.shard.commit(p.t)
		w.acked[p.key] = append(w.acked[p.key], p.id)
		w.report.Writes++
		gone()
	}
	p.step++
}

// bury lets a shard notice that a client is gone.
func (w *world) bury() {
	if len(w.orphans) == 0 {
		return
	}
	o := w.orphans[0]
	w.orphans = w.orphans[1:]
	s := w.shards[o.shard]
	switch {
	case !s.alive(o.t):
	case o.committed:
		s.commit(o.t)
	default:
		s.end(o.t)
	}
}

// operator asks for something.
func (w *world) operator() {
	ids := w.ids()
	running := 0
	for _, id := range ids {
		if !w.flows[id].Step.Ended() {
			running++
		}
	}
	if running < 2 && w.chance(60) || len(ids) == 0 {
		w.spawn()
		return
	}
	if w.chance(15) {
		w.splitOrMerge()
		return
	}
	id := ids[w.rand.IntN(len(ids))]
	wish := workflow.Complete
	switch s := w.flows[id]; {
	case s.Paused || w.chance(20):
		wish = workflow.Resume
	case w.chance(20) && w.chance(w.moods.trouble):
		wish = workflow.Pause
	case s.Step == workflow.Opened && w.chance(60):
		wish = workflow.Reverse
	case w.chance(15) && w.chance(w.moods.trouble):
		wish = workflow.Cancel
	}
	w.ask(id, wish)
}

func (w *world) ask(id string, wish workflow.Wish) {
	s := w.flows[id]
	if workflow.CanAsk(&s, wish) != nil {
		return
	}
	before, _ := s.Encode()
	next, _ := workflow.Step(s, workflow.Event{Kind: workflow.EventAsked, At: w.clock().UnixMilli(), Wish: wish, By: "sim"})
	if after, _ := next.Encode(); bytes.Equal(before, after) {
		return
	}
	if w.store(id, next) {
		w.trace("the operator: %s %s (%s)", wish, id, s.Step)
	}
}

// spawn asks for a move of a range or of a key.
func (w *world) spawn() {
	ix, _ := w.snap.Keyspace(ks)
	part := w.part(ix.Def().Ranges)
	from, err := w.snap.OwnerOf(ks, part)
	if err != nil || len(ix.Def().Transits) > 0 && w.chance(80) && slices.ContainsFunc(keys, func(k int) bool {
		part := w.snap.Keys(ks, part)
		return part.Owns(keyOf(k)) && slices.ContainsFunc(w.newest().transits, func(t transit) bool { return t.keys.Owns(keyOf(k)) })
	}) {
		return
	}
	to := w.names()[w.rand.IntN(3)]
	if to == from {
		return
	}
	w.spawned++
	spec := workflow.Spec{ID: "m" + strconv.Itoa(w.spawned), Kind: workflow.Move, Keyspace: ks, Part: part, From: from, To: to, By: "sim"}
	spec.Options = workflow.Options{Polite: 1 + w.rand.IntN(3), MaxLatencyMS: -1, MaxLagMS: -1}
	if w.rand.IntN(3) == 0 {
		spec.Window = "00:00-24:00"
	}
	if w.chance(30) {
		spec.KeepMS = -1
	}
	spec.HoldMS = w.moods.hold
	spec.Options = spec.WithDefaults()
	if w.store(spec.ID, workflow.New(spec, w.clock().UnixMilli())) {
		w.trace("the operator: move %s of %s from %s to %s", spec.ID, part.Text(), from, to)
	}
}

// part is what a move is asked for: a range or a key. In a run with an aim it is one that is used.
func (w *world) part(ranges []shardmap.Range) shardmap.Part {
	key, n := keys[w.rand.IntN(len(keys))], w.rand.IntN(len(ranges))
	if w.o.Aim != Whole {
		key = w.key()
		n = slices.IndexFunc(ranges, func(r shardmap.Range) bool {
			own := w.snap.Keys(ks, shardmap.Part{Low: r.Low, High: r.High})
			return own.Owns(keyOf(key))
		})
	}
	if n < 0 || w.chance(30) { // a key with a pin is of no range
		return shardmap.Part{Key: []string{strconv.Itoa(key)}}
	}
	return shardmap.Part{Low: ranges[n].Low, High: ranges[n].High}
}

func (w *world) splitOrMerge() {
	ix, _ := w.snap.Keyspace(ks)
	var bounds [][]string
	for _, r := range ix.Def().Ranges[1:] {
		bounds = append(bounds, r.Low)
	}
	at := []string{strconv.Itoa(100 + 5*w.rand.IntN(40))}
	op := "split at " + at[0]
	edit := func(s *shardmap.State) error { return s.Split(ks, at) }
	if w.chance(50) {
		at = bounds[w.rand.IntN(len(bounds))]
		op = "merge at " + at[0]
		edit = func(s *shardmap.State) error { return s.Merge(ks, at) }
	}
	w.update(op, edit)
}

// over reports whether every workflow has ended and nothing is under way.
func (w *world) over() bool {
	for _, id := range w.ids() {
		if !w.flows[id].Step.Ended() {
			return false
		}
	}
	if len(w.psql)+len(w.orphans) > 0 {
		return false
	}
	for _, s := range w.shards { // what a coordinator could not release is swept
		if len(s.captures)+len(s.applied) > 0 {
			return false
		}
	}
	for _, r := range w.routers {
		for _, s := range r.ses {
			if s.phase != idle {
				return false
			}
		}
	}
	return true
}

func (w *world) unended() string {
	for _, id := range w.ids() {
		if s := w.flows[id]; !s.Step.Ended() {
			return fmt.Sprintf("%s is %s, paused %v, error %q", id, s.Step, s.Paused, s.Error)
		}
	}
	for _, name := range w.names() {
		if s := w.shards[name]; len(s.captures)+len(s.applied) > 0 {
			return fmt.Sprintf("on shard %s captures %v and positions %v are left", name, s.captures, s.applied)
		}
	}
	return "a session"
}

// nothingLeft holds when every workflow has ended.
func (w *world) nothingLeft() {
	v := w.newest()
	if len(v.transits) > 0 {
		w.fail("a transit is left: %+v", v.transits[0].Transit)
	}
	for _, name := range w.names() {
		s := w.shards[name]
		if len(s.captures)+len(s.applied) > 0 {
			w.fail("on shard %s captures %v and positions %v are left", name, s.captures, s.applied)
		}
		for _, k := range keys {
			owner := v.owners[k] == name
			if _, has := s.rows[k]; has && !owner {
				w.fail("shard %s has key %d, which %s owns", name, k, v.owners[k])
			}
			if owner != s.guard.Owns(keyOf(k)) {
				w.fail("the guard of %s says %v of key %d, the map %v", name, !owner, k, owner)
			}
			if owner {
				w.whole(s, k, "owns")
			}
		}
	}
}
