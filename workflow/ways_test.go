package workflow

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// place is a state of a workflow with what it has made of the world: all that matters for what can follow.
type place struct {
	s       State
	held    bool // statements wait
	open    bool // the target's guards may let the part through while the source owns it
	moved   bool // the target owns the part
	transit bool
	drains  bool // the map says that the shard is being drained
}

// plain takes out of a state what does not change what can follow.
func (p place) plain() place {
	s := p.s.clone()
	s.Seq, s.Changed, s.OpenAt, s.HeldMS, s.Rows, s.Bytes, s.Copied = 1, 0, 0, 0, 0, 0, 0
	s.History = nil
	for _, text := range []*string{&s.Error, &s.Cause, &s.BackLost, &s.Tables} {
		if *text != "" {
			*text = "because"
		}
	}
	s.Tries = min(s.Tries, 1)
	s.Attempt = min(s.Attempt, 1)
	if s.Restarts < restartsMax { // one of the beginnings has used them up
		s.Restarts = 0
	}
	s.Made, s.PlanNext = min(s.Made, 1), min(s.PlanNext, 1)
	p.s = s
	return p
}

func (p place) key() string {
	s, o := &p.s, &p.s.Spec.Options
	return fmt.Sprint(s.Spec.Kind, o.KeepMS, o.AskedKeepMS, o.Unverified, o.Window, s.Step, s.Paused, s.Back, s.MayBeOpen, s.ShutLater, s.After, s.Ending, s.Tables, s.Attempt, s.Tries,
		s.Restarts, s.BackLost, s.Outdated, s.Error, s.Cause, len(s.Children), s.Made, s.PlanSteps, s.PlanNext, s.ApprovedBy, p.held, p.open, p.moved, p.transit, p.drains)
}

// does is what an effect that is carried out does to the world.
func (p *place) does(e Effect) {
	switch e.Op {
	case PutTransit:
		p.transit = true
	case Hold:
		p.held = true
	case SetGuards:
		if p.open && !p.s.ShutLater && p.s.Step != Opened {
			panic("both shards take the part: " + p.key())
		}
	case Unhold:
		p.held = false
	case OpenTarget:
		p.open = true
	case ShutTarget:
		p.open = false
	case Swap:
		p.moved, p.held, p.open = !p.s.Back, false, false
	case SettleGuards: // the guards that were left open by a reversal are shut by ShutTarget
	case DropTransit:
		p.transit = false
	case Plan:
		p.drains = p.s.Spec.Kind == Drain
	case EndDrain:
		p.drains = false
	}
}

// fails says how an effect fails for good; "" if it does not. It is asked for each try.
type fails func(p *place, e Effect) Class

// next are the places that can follow, under effects that fail for good, with the wishes that a person may have.
func (p place) next(f fails, wishes ...Wish) []place {
	var out []place
	add := func(s State, world place) {
		world.s = s
		out = append(out, world.plain())
	}
	for _, w := range wishes {
		if CanAsk(&p.s, w) == nil {
			s, _ := Step(p.s, Event{Kind: EventAsked, Wish: w, By: "me", At: 5})
			add(s, p)
		}
	}
	list := Effects(p.s)
	if list == nil {
		return out
	}
	world := p
	for _, e := range list {
		if c := f(&world, e); c != "" {
			s, _ := Step(p.s, Event{Kind: EventFailed, Seq: p.s.Seq, Op: e.Op, Class: c, Error: "because", At: 5})
			if e.Op == OpenTarget {
				world.open = true // it may be
			}
			add(s, world)
			return out
		}
		world.does(e)
	}
	for _, r := range p.results() {
		s, _ := Step(p.s, Event{Kind: EventDone, Seq: p.s.Seq, At: 5, Result: r})
		add(s, world)
	}
	return out
}

// results are those with which the effects of a step can be done.
func (p *place) results() []Result {
	child := Result{Children: []Spec{{Kind: Move, To: "b"}}, Taken: 1}
	switch p.s.Step {
	case Planning:
		if p.s.Spec.Kind == Rebalance {
			return []Result{{}, {PlanSteps: 1}}
		}
		return []Result{{}, child}
	case Choosing:
		return []Result{{}, child, {Taken: 1}}
	case Working:
		return []Result{{}, {Failed: []string{"p-1"}}}
	}
	return []Result{{}}
}

// everything is what can happen in a place: each effect may fail in each way, or its process may die.
func (p place) everything() []place {
	out := p.next(func(*place, Effect) Class { return "" }, Pause, Resume, Cancel, Reverse, Complete, Approve)
	world := p
	for _, e := range Effects(p.s) {
		out = append(out, world.plain()) // it dies here
		for _, c := range []Class{Again, Late, Changed, Gone, Refused, Differs} {
			if c == Late && e.Op == Swap {
				continue // it is Again
			}
			s, _ := Step(p.s, Event{Kind: EventFailed, Seq: p.s.Seq, Op: e.Op, Class: c, Error: "because", At: 5})
			after := world
			if e.Op == OpenTarget {
				after.open = true // it may be
			}
			after.s = s
			out = append(out, after.plain())
		}
		world.does(e)
	}
	return out
}

// reach returns all places that can be reached.
func reach(from []place, next func(place) []place) map[string]place {
	seen := map[string]place{}
	todo := from
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, ok := seen[p.key()]; ok {
			continue
		}
		seen[p.key()] = p
		todo = append(todo, next(p)...)
	}
	return seen
}

// walked has the places, and what follows each when all goes well, with some wishes.
type walked struct {
	all  map[string]place
	well map[string]map[string][]string // by wishes and place
}

// after returns what can follow in a place. Only where an effect may fail it has to be found out anew.
func (w *walked) after(k string, f fails, ops map[Op]bool, wishes ...Wish) []string {
	p := w.all[k]
	differs := slices.ContainsFunc(Effects(p.s), func(e Effect) bool { return ops[e.Op] })
	by := fmt.Sprint(wishes)
	if known, ok := w.well[by][k]; ok && !differs {
		return known
	}
	if !differs {
		f = func(*place, Effect) Class { return "" }
	}
	var out []string
	for _, n := range p.next(f, wishes...) {
		key := n.key()
		if _, ok := w.all[key]; !ok {
			panic("a place that was not found: " + key)
		}
		out = append(out, key)
	}
	if !differs {
		if w.well[by] == nil {
			w.well[by] = map[string][]string{}
		}
		w.well[by][k] = out
	}
	return out
}

// stuck returns the places from which no good one can be reached.
func (w *walked) stuck(good func(place) bool, f fails, ops map[Op]bool, wishes ...Wish) []place {
	before := map[string][]string{}
	reaches := map[string]bool{}
	var todo []string
	for k, p := range w.all {
		if good(p) {
			reaches[k] = true
			todo = append(todo, k)
		}
		for _, n := range w.after(k, f, ops, wishes...) {
			before[n] = append(before[n], k)
		}
	}
	for len(todo) > 0 {
		k := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, b := range before[k] {
			if !reaches[b] {
				reaches[b] = true
				todo = append(todo, b)
			}
		}
	}
	var out []place
	for k, p := range w.all {
		if !reaches[k] {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b place) int { return strings.Compare(a.key(), b.key()) })
	return out
}

func begins() []place {
	var out []place
	for _, o := range []Options{{}, {KeepMS: -1}, {Unverified: true, Window: "01:00-02:00"}} {
		s := move(o)
		out = append(out, place{s: s}.plain())
		s.Restarts = restartsMax
		out = append(out, place{s: s}.plain())
	}
	for _, k := range []Kind{Split, Merge, Drain, Spread, Rebalance, Pin} {
		out = append(out, place{s: New(Spec{ID: "p", Kind: k, Keyspace: "k", From: "a", By: "test"}, 1)}.plain())
	}
	return out
}

// TestEveryStateHasAWayOut walks every state that a workflow can be in, whatever happens to it in whatever order, and
// shows that none is a dead end: not when all goes well from there on, not when an effect fails for good, and not when
// a shard is lost. Statements that are held are let go without anybody's wish.
func TestEveryStateHasAWayOut(t *testing.T) {
	w := walked{all: reach(begins(), place.everything), well: map[string]map[string][]string{}}
	t.Logf("%d places", len(w.all))
	if len(w.all) < 200 {
		t.Fatalf("only %d places were found", len(w.all))
	}
	wishes := []Wish{Resume, Cancel, Reverse, Complete, Approve}
	report := func(what string, bad []place) {
		t.Helper()
		for _, p := range bad[:min(1, len(bad))] {
			t.Errorf("%s: no way out of %s, and %d such; %s", what, p.s.Step, len(bad)-1, p.key())
		}
	}
	ended := func(p place) bool { return p.s.Step.Ended() }
	free := func(p place) bool { return !p.held }

	ops := map[Op]bool{}
	for _, p := range w.all {
		if p.s.Step.Ended() && p.drains {
			t.Errorf("it has ended, and the shard still counts as one that is being drained: %s", p.key())
		}
		if p.s.Step.Ended() && p.s.Spec.Kind == Move && (p.held || p.open || p.transit || p.moved != (p.s.Step == Done)) {
			t.Errorf("it has ended and left something: %s", p.key())
		}
		for _, e := range Effects(p.s) {
			ops[e.Op] = true
		}
	}
	// All is well from here on: nobody has to wish for anything, but for what is paused or waits for approval.
	well := func(*place, Effect) Class { return "" }
	report("all is well", w.stuck(ended, well, nil, Resume, Approve))
	report("all is well, statements held", w.stuck(free, well, nil))

	// The directory and the owner of the rows have to be there for these, or they only wait. They are tried again until
	// they go; what is held is let go before.
	must := map[Op]bool{SettleGuards: true, Release: true, Purge: true, DropTransit: true, ShutTarget: true, CancelChildren: true, AwaitChildren: true,
		SetGuards: true, Unhold: true, Swap: true, EditMap: true, EndDrain: true}
	delete(ops, Sleep) // waits do not fail
	delete(ops, AwaitWindow)
	for op := range ops {
		for _, c := range []Class{Again, Changed, Gone, Refused, Differs} {
			f := func(_ *place, e Effect) Class {
				switch {
				case e.Op != op:
					return ""
				case op == OpenTarget:
					return Late // the coordinator says so when the bound is over
				}
				return c
			}
			what := fmt.Sprintf("%s fails for good, %s", op, c)
			if op != SetGuards && op != Unhold && op != Swap {
				report(what+", statements held", w.stuck(free, f, map[Op]bool{op: true}))
			}
			if !must[op] {
				report(what, w.stuck(ended, f, map[Op]bool{op: true}, wishes...))
			}
		}
	}
	// A shard is lost, for ever: all that concerns it fails.
	for _, lost := range []string{"a", "b"} {
		both := map[Op]bool{Check: true, CompareSchema: true, Release: true, Copy: true, Follow: true, FollowFor: true, DrainSource: true, KeepBack: true,
			CaptureBack: true, Verify: true, MarkBack: true, Fence: true, SettleGuards: true}
		f := func(p *place, e Effect) Class {
			at := map[Op]string{Purge: e.Target, OpenTarget: e.Target, ShutTarget: e.Target, SetGuards: e.Source}[e.Op]
			switch {
			case at != lost && !both[e.Op]:
				return ""
			case e.Op == OpenTarget:
				return Late
			}
			return Again
		}
		// Statements on rows that are lost cannot go on; those on rows that the other shard owns do.
		report("shard "+lost+" is lost", w.stuck(func(p place) bool { return free(p) || p.moved == (lost == "b") }, f, ops))
	}
}
