package moment

import "testing"

// The model of a moment beside commits and the loss of a process, which is searched through: every order of steps. Claims are those
// of docs/design/moment.md.
//
// S is committed on shard A through router 1, and its client is told, or a reader at router 0 that saw it. Who knows of S begins T,
// which is committed on shard B. X writes on both shards; anybody may commit what of it is prepared. Router 0 takes the
// moment. Router 1 is stopped, woken, killed, loses its lease and joins anew, and lifts its hush by itself, at any time.

// answer is how far an answer has come on its way to its client.
type answer uint8

const (
	unknown answer = iota // its process has nothing to tell
	waits                 // the process looked: without a lease, or with one that is new, it waits for the margin
	goes                  // the process looked, and is about to write it
	written
)

// phase is how far a moment has come.
type phase uint8

const (
	idle   phase = iota
	listed       // the members are known
	hushed       // all that were listed said that they are hushed
	lifted       // all were asked to lift
	valid
)

// world is a state of the model.
type world struct {
	// Of the shards.
	s, t bool
	x    uint8 // 1: prepared on B, 2: committed on A, 3: on both

	told, read answer // that S is committed: by router 1, and to a reader by router 0

	// Of router 1.
	dead, stopped bool
	lease, fresh  bool // the lease is live; it is younger than the margin
	member        bool // the directory lists it
	hush, own     bool // it is hushed; router 0 is
	lookedInside  bool // told waits since a look that was made while this moment was taken

	// Of the moment.
	at                 phase
	knew               bool // somebody knew of S when it was asked for
	asked              bool // router 1 is one of those that are hushed
	torn               bool // a hush was lifted early
	long               bool // it took longer than it may
	hasA, hasB         bool // the snapshots are taken
	seesS, seesT       bool
	seesXonA, seesXonB bool
}

func (w world) known() bool { return w.told == written || w.read == written }

// taking reports whether the moment's snapshots may be taken now or later.
func (w world) taking() bool { return w.at == listed || w.at == hushed }

// mistake is a way of doing it badly.
type mistake string

const (
	noMistake mistake = ""
	alone     mistake = "only the own process is hushed"
	hasty     mistake = "a snapshot is taken before all are hushed"
	earlyLift mistake = "the hush is lifted before the last snapshot"
	deaf      mistake = "who lifted by itself is not asked about it"
	readsPass mistake = "answers to reads are not withheld"
	noLease   mistake = "a process without a lease answers at once"
	newcomer  mistake = "a process that joined answers at once"
	noSpan    mistake = "a moment may take as long as it likes"
	unwaited  mistake = "a member that does not answer is not waited for"
	noRecords mistake = "the records are not compared"
	usesOld   mistake = "a moment is used by who asks after it"
)

// steps are the states that can follow.
func (w world) steps(m mistake) (all []world) {
	step := steps(w, &all)
	step(!w.s, func(n *world) { n.s = true })
	step(!w.t && w.known(), func(n *world) { n.t = true })
	step(w.x < 3, func(n *world) { n.x++ })
	return append(append(append(all, w.life()...), w.answers(m)...), w.take(m)...)
}

// life are the steps of router 1's life. A hush ends by itself.
func (w world) life() (all []world) {
	step := steps(w, &all)
	runs := !w.dead && !w.stopped
	step(!w.dead, func(n *world) { n.dead = true })
	step(runs, func(n *world) { n.stopped = true })
	step(w.stopped, func(n *world) { n.stopped = false })
	step(w.lease, func(n *world) { n.lease = false })
	step(w.member && !w.lease, func(n *world) { n.member = false })
	step(runs && !w.member, func(n *world) { n.member, n.lease, n.fresh = true, true, true })
	step(w.fresh, func(n *world) {
		n.fresh = false
		n.long = n.long || n.taking() && !n.asked
	})
	step(w.hush, func(n *world) { n.hush, n.torn = false, true })
	step(w.own, func(n *world) { n.own, n.torn = false, true })
	return all
}

// answers are the steps of what clients are told.
func (w world) answers(m mistake) (all []world) {
	step := steps(w, &all)
	runs := !w.dead && !w.stopped
	step(runs && w.s && w.told == unknown && !w.hush, func(n *world) {
		n.told, n.lookedInside = goes, n.taking()
		if !n.lease && m != noLease || n.lease && n.fresh && m != newcomer {
			n.told = waits
		}
	})
	step(w.told == waits, func(n *world) {
		n.told = goes
		n.long = n.long || n.lookedInside
	})
	step(runs && w.told == goes, func(n *world) { n.told = written })
	step(w.s && w.read == unknown && (!w.own || m == readsPass), func(n *world) { n.read = goes })
	step(w.read == goes, func(n *world) { n.read = written })
	return all
}

// steps returns what adds a state that can follow w.
func steps(w world, all *[]world) func(can bool, change func(*world)) {
	return func(can bool, change func(*world)) {
		if can {
			n := w
			change(&n)
			*all = append(*all, n)
		}
	}
}

// take are the steps of the moment.
func (w world) take(m mistake) (all []world) {
	step := steps(w, &all)
	runs := !w.dead && !w.stopped
	step(w.at == idle, func(n *world) { n.at, n.asked, n.knew = listed, n.member && m != alone, n.known() })
	step(w.at == listed && !w.own, func(n *world) { n.own = true })
	step(w.at == listed && w.asked && runs && !w.hush, func(n *world) { n.hush = true })
	step(w.at == listed && w.own && (w.hush || !w.asked || m == unwaited && !runs), func(n *world) { n.at = hushed })
	may := w.at == hushed || w.at == listed && m == hasty || w.at == lifted && m == earlyLift
	step(may && !w.hasA, func(n *world) { n.hasA, n.seesS, n.seesXonA = true, n.s, n.x >= 2 })
	step(may && !w.hasB, func(n *world) { n.hasB, n.seesT, n.seesXonB = true, n.t, n.x == 3 })
	return append(all, w.end(m)...)
}

// end are the steps that end the moment.
func (w world) end(m mistake) (all []world) {
	step := steps(w, &all)
	runs := !w.dead && !w.stopped
	both := w.hasA && w.hasB
	step(w.at == hushed && (both || m == earlyLift) && (!w.asked || runs || m == unwaited), func(n *world) { n.at, n.hush, n.own = lifted, false, false })
	step(w.at == lifted && m == usesOld, func(n *world) { n.knew = n.known() })
	step(w.at == lifted && both && w.counts(m), func(n *world) { n.at = valid })
	// It is given up, and begins anew.
	step(w.at != idle && w.at != valid, func(n *world) {
		n.at, n.asked, n.torn, n.long, n.hush, n.own, n.lookedInside = idle, false, false, false, false, false, false
		n.hasA, n.hasB, n.seesS, n.seesT, n.seesXonA, n.seesXonB = false, false, false, false, false, false
	})
	return all
}

// counts reports whether who takes the moment takes it for one.
func (w world) counts(m mistake) bool {
	return (!w.torn || m == deaf) && (!w.long || m == noSpan) && (w.seesXonA == w.seesXonB || m == noRecords)
}

// wrong says which claim a valid moment breaks.
func (w world) wrong() string {
	switch {
	case w.at != valid:
	case w.seesT && !w.seesS:
		return "order"
	case w.knew && !w.seesS:
		return "recent"
	case w.seesXonA != w.seesXonB:
		return "whole"
	}
	return ""
}

// search looks at every state until one breaks the claim, or any if it is "". It returns how many it has seen, what is broken, and
// whether a moment was valid.
func search(m mistake, claim string) (states int, broken string, found bool) {
	first := world{lease: true, member: true}
	seen := map[world]bool{first: true}
	for todo := []world{first}; len(todo) > 0; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if why := w.wrong(); why != "" && (claim == "" || why == claim) {
			return len(seen), why, true
		}
		if w.at == valid {
			found = true
			continue
		}
		for _, n := range w.steps(m) {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen), "", found
}

func TestModel(t *testing.T) {
	states, broken, found := search(noMistake, "")
	if broken != "" || !found {
		t.Errorf("one of %d states breaks %q; a moment was found: %v", states, broken, found)
	}
	t.Logf("%d states", states)
}

// TestModelFindsMistakes: each safeguard is needed.
func TestModelFindsMistakes(t *testing.T) {
	for m, claim := range map[mistake]string{
		alone: "order", hasty: "order", earlyLift: "order", deaf: "order", readsPass: "order", noLease: "order", newcomer: "order",
		noSpan: "order", unwaited: "order", noRecords: "whole", usesOld: "recent",
	} {
		t.Run(string(m), func(t *testing.T) {
			if states, broken, _ := search(m, claim); broken == "" {
				t.Errorf("none of %d states breaks %q", states, claim)
			}
		})
	}
}
