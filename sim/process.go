package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
)

// process is a process that runs [coordinator.Coordinator]. What it does to shards and to the directory passes a gate, which
// the world opens when it likes: so that one thing happens at a time, in an order that the seed gives.
type process struct {
	w      *world
	n      int
	life   *life
	idle   int    // for how many steps nothing of it could go on
	leads  uint64 // the token with which it leads, as far as it knows; 0: it does not
	depose func()
}

// life is one life of a process. What belongs to one that was killed reaches nothing any more.
type life struct {
	p     *process
	dead  bool
	stop  context.CancelFunc
	ended chan struct{}
	gates []*gate
}

// gate is where a goroutine of a coordinator waits for its turn.
type gate struct {
	what  string
	ready func() bool // whether what it waits for is there; nil: it waits for nothing
	open  chan fate
}

// fate is what becomes of a call.
type fate int

const (
	done fate = iota
	notSent
	noAnswer // it is done, and the caller does not learn of it
	killed
)

var errKilled = errors.New("the process was killed")

// pass waits for the world to let a call go on. When it returns without an error the world's lock is held, and after is to be
// called with what came of the call, which releases it. The errors are those of ctx, and of a call that did not get through.
func (l *life) pass(ctx context.Context, shard, what string, ready func() bool) (after func(error) error, err error) {
	w := l.p.w
	w.mu.Lock()
	if l.dead {
		w.mu.Unlock()
		return nil, errKilled
	}
	g := &gate{what: what, ready: ready, open: make(chan fate, 1)}
	l.gates = append(l.gates, g)
	w.mu.Unlock()
	var f fate
	select {
	case f = <-g.open:
	case <-ctx.Done():
		w.mu.Lock()
		l.drop(g)
		w.mu.Unlock()
		return nil, ctx.Err()
	}
	lost := func(sent bool) error {
		return &engine.LostError{Shard: shard, Sent: sent, Err: errors.New("no answer")}
	}
	w.mu.Lock()
	switch {
	case l.dead || f == killed:
		err = errKilled
	case f == notSent:
		err = lost(false)
	default:
		return func(err error) error {
			w.mu.Unlock()
			if f == noAnswer && err == nil {
				return lost(true)
			}
			return err
		}, nil
	}
	w.mu.Unlock()
	return nil, err
}

func (l *life) drop(g *gate) {
	l.gates = slices.DeleteFunc(l.gates, func(o *gate) bool { return o == g })
}

// peek locks the world for what needs no turn, unless the process is dead.
func (l *life) peek() error {
	l.p.w.mu.Lock()
	if l.dead {
		l.p.w.mu.Unlock()
		return errKilled
	}
	return nil
}

// step lets one thing of the process happen.
func (p *process) step() {
	w := p.w
	switch {
	case p.life == nil:
		p.start()
		return
	case !w.stopped && w.rand.IntN(w.moods.crash) == 0:
		p.kill()
		return
	case p.leads != 0 && p.leads != w.leader && w.chance(3):
		w.trace("coordinator %d: notices that it was deposed", p.n)
		p.leads = 0
		p.depose()
		return
	}
	var offers []*gate
	for _, g := range p.life.gates {
		if g.ready == nil || g.ready() {
			offers = append(offers, g)
		}
	}
	if len(offers) == 0 {
		if p.leads != 0 && p.leads == w.leader {
			p.rest()
		}
		return
	}
	p.idle = 0
	// In an order that does not depend on which goroutine came first.
	slices.SortStableFunc(offers, func(a, b *gate) int { return strings.Compare(a.what, b.what) })
	g := offers[w.rand.IntN(len(offers))]
	f := w.fate(g)
	w.trace("coordinator %d: %s%s", p.n, g.what, [...]string{"", ", which fails", ", whose answer is lost", ""}[f])
	p.life.drop(g)
	g.open <- f
}

// fate is what becomes of the call behind a gate.
func (w *world) fate(g *gate) fate {
	opening := strings.HasPrefix(g.what, "opens ") && w.chance(w.moods.openings)
	if !w.stopped && (opening || w.rand.IntN(w.moods.failure) == 0) {
		return notSent + fate(w.rand.IntN(2))
	}
	return done
}

// rest lets time go by while the leader waits for it: the longer it waits the more, unless statements are held,
// or members are asked.
func (p *process) rest() {
	w := p.w
	if p.idle++; w.newest().holding() || w.unacknowledged() {
		w.passes(w.rand.Int64N(4))
		return
	}
	w.passes(w.rand.Int64N(4 << min(p.idle, 11)))
}

// unacknowledged reports whether a member has not acknowledged the newest map.
func (w *world) unacknowledged() bool {
	return slices.ContainsFunc(w.members, func(m member) bool { return m.listed && m.acked < w.snap.Version() })
}

func (p *process) start() {
	w := p.w
	w.trace("coordinator %d: starts", p.n)
	ctx, stop := context.WithCancel(context.Background())
	l := &life{p: p, stop: stop, ended: make(chan struct{})}
	p.life, p.leads, p.idle = l, 0, 0
	w.lives = append(w.lives, l)
	c := coordinator.New(coordinator.Options{
		Directory: &directory{l: l}, Candidate: "sim", Now: w.clock,
		Shard: func(name string) (engine.Shard, error) { return &simulated{s: w.shards[name], l: l}, nil },
	})
	go func() {
		defer close(l.ended)
		c.Run(ctx)
	}()
}

// kill is kill -9: nothing of it gets through any more.
func (p *process) kill() {
	w, l := p.w, p.life
	w.report.Crashes++
	w.trace("coordinator %d: crashes", p.n)
	l.dead = true
	l.stop()
	for _, g := range l.gates {
		g.open <- killed
	}
	l.gates, p.life, p.leads = nil, nil, 0
}

// campaign waits until nobody leads.
func (l *life) campaign(ctx context.Context) (*shardmap.Leadership, error) {
	p, w := l.p, l.p.w
	after, err := l.pass(ctx, "", "campaigns", func() bool { return w.leader == 0 })
	if err != nil {
		return nil, err
	}
	w.tokens++
	w.leader, p.leads = w.tokens, w.tokens
	w.trace("coordinator %d: leads with token %d", p.n, w.leader)
	lead, depose := shardmap.NewLeadership(w.leader, func() {}, func(context.Context) error { return nil })
	p.depose = depose
	if err := after(nil); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.leads = 0
		return nil, err
	}
	return lead, nil
}

// clock is the wall clock of coordinators and operators.
func (w *world) clock() time.Time {
	return time.Now().Add(time.Duration(w.skew.Load()) * time.Millisecond)
}
