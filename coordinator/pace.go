package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/workflow"
)

// The pace of copies and clean-ups. Each shard is looked at all the time; while one is slower than it may be,
// or a replica of it further behind, the rate goes down by a factor, else up again.
const (
	paceLook = 250 * time.Millisecond
	// quietEvery is at which look the work stops for a moment, to see how the shard fares without it.
	quietEvery = 4
	quietWait  = 5 * time.Millisecond
	slower     = 0.6
	faster     = 1.15
	// The least rates: whatever a shard says, the work ends in a time that can be told from its size.
	leastBytes = 8 << 20 // a second
	leastRows  = 5000
	// Comparing only reads: it slows down less.
	leastCompared = 32 << 20
	// Where it is a bound of the user's that is exceeded, or a replica's, the least is so many times smaller.
	boundShare = 16
	// A shard on which so many transactions of others end in a second is in use.
	inUse = 30
	// What the work may add to the time of a small write on a shard in use, if no bound was given: less than
	// addLeast is none.
	addShare = 0.3
	addLeast = 10 * time.Millisecond
	// While others are at work a piece is small: their statements wait behind one for a moment only. Where small
	// writes take strainFrom or longer there is a pause after each piece, so many times as long as it took, and restMax at most.
	strainFrom = 5 * time.Millisecond
	rest       = 2
	restMax    = 20 * time.Millisecond
	smallRead  = 256 << 10 // bytes
	largeRead  = 8 << 20
	fewRows    = 500
	// knownAfter is for how long a shard is looked at before it is believed that nobody else is at work.
	knownAfter = 1500 * time.Millisecond
	// lookMax bounds one look.
	lookMax = 2 * time.Second
)

// pacer says how fast rows may be copied or deleted. Its unit is a byte of a copy, a row of a clean-up.
type pacer struct {
	job    *job
	how    atomic.Pointer[bounds] // they may be changed while it works
	least  float64                // units a second
	shards []*watched

	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	rate  float64 // units a second; 0: no bound
	peak  float64 // the greatest rate that was seen
	did   int64
	next  time.Time     // when the next piece may go
	quiet chan struct{} // closed at the end of a quiet moment, nil outside of one

	// beside: others are at work on the shards, or it is not known yet. Never if a bound was given, or none wanted.
	// strained: their small writes take long.
	beside, strained atomic.Bool
}

// bounds are those that a move's options give.
type bounds struct {
	latency time.Duration // of a small write; 0: what adapts itself, below 0: no bound
	lag     time.Duration // of a replica; 0: no bound
	bytes   int64         // likewise
}

func boundsOf(o *workflow.Options) *bounds {
	b := &bounds{latency: time.Duration(o.MaxLatencyMS) * time.Millisecond, bytes: max(o.MaxLagBytes, 0)}
	switch {
	case o.MaxLagMS == 0:
		b.lag = workflow.DefaultMaxLagMS * time.Millisecond
	case o.MaxLagMS > 0:
		b.lag = time.Duration(o.MaxLagMS) * time.Millisecond
	}
	return b
}

// turn is one of the goroutines that do the work of a pacer. Its methods are called by that one.
type turn struct {
	p     *pacer
	began time.Time
}

// turn begins the work of one goroutine.
func (p *pacer) turn() *turn { return &turn{p: p, began: time.Now()} }

// waited says that a part of the time since the last next was no work.
func (t *turn) waited(d time.Duration) { t.began = t.began.Add(d) }

// next is an engine.Pace: n more units have been done.
func (t *turn) next(ctx context.Context, n int64) (int64, error) {
	spent := time.Since(t.began)
	err := t.p.wait(ctx, n)
	pause(ctx, t.p.rests(spent, n))
	t.began = time.Now()
	return t.p.read(), cmp.Or(err, ctx.Err())
}

// rests is how long the work rests after n units that took so long.
func (p *pacer) rests(spent time.Duration, n int64) time.Duration {
	if !p.beside.Load() || !p.strained.Load() {
		return 0
	}
	return min(spent*rest, restMax, time.Duration(float64(n)/p.least*float64(time.Second)))
}

// read is how many bytes go well at a time.
func (p *pacer) read() int64 {
	if p.beside.Load() {
		return smallRead
	}
	return largeRead
}

// watched is a shard that is looked at.
type watched struct {
	name string
	w    engine.Watcher
	// How long a small write takes, smoothed, with the work going on and without.
	busy, calm time.Duration
	// others is how many transactions of others end in a second.
	others float64
	since  time.Time // of the first look
	known  bool      // whether others are at work
	counts []count
	log    []logEnd
}

type count struct {
	at time.Time
	n  int64
}

// logEnd says where a shard's log ended when.
type logEnd struct {
	at  time.Time
	end int64
}

// logMax is how many ends of a log are remembered: some 5 minutes.
const logMax = 1200

// pace begins to look at shards. end has to be called.
func (j *job) pace(ctx context.Context, s *workflow.State, least float64, shards ...string) (p *pacer, end func()) {
	p = &pacer{job: j, least: least}
	j.bounds(&s.Spec.Options)
	p.how.Store(boundsOf(j.how.Load()))
	ctx, p.stop = context.WithCancel(ctx)
	p.beside.Store(p.how.Load().latency == 0)
	p.done.Go(func() { p.run(ctx, shards) })
	return p, func() {
		p.stop()
		p.done.Wait()
	}
}

func (p *pacer) run(ctx context.Context, shards []string) {
	defer func() {
		p.loud()
		for _, s := range p.shards {
			_ = s.w.Close() // it has written nothing
		}
	}()
	for _, name := range shards {
		m, err := p.job.t.mover(ctx, name)
		if err != nil {
			continue // the work itself will say so
		}
		if v, ok := m.(engine.Watchable); ok {
			if w, err := v.Watch(ctx); err == nil {
				p.shards = append(p.shards, &watched{name: name, w: w})
			}
		}
	}
	var last int64
	at, slowed := time.Now(), false
	for n := 1; ctx.Err() == nil; n++ {
		how := boundsOf(p.job.how.Load())
		p.how.Store(how)
		p.beside.Store(how.latency == 0 && slices.ContainsFunc(p.shards, func(s *watched) bool { return !s.known || s.used() }))
		p.strained.Store(slices.ContainsFunc(p.shards, func(s *watched) bool { return s.used() && s.busy >= strainFrom }))
		pause(ctx, paceLook)
		why := p.look(ctx, n%quietEvery == 1)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		spent := time.Since(at).Seconds()
		is := float64(p.did-last) / spent
		last, at = p.did, time.Now()
		was := p.rate
		p.adapt(is, why)
		now := p.rate
		p.mu.Unlock()
		switch {
		case why.text != "":
			slowed = true
			p.job.prog.say("slowed: " + why.text)
		case slowed && now == 0: // else the note is not ours
			slowed = false
			p.job.prog.say("")
		}
		if (was == 0) != (now == 0) {
			p.job.log.Info("workflow pace", "slowed", now > 0, "why", why.text)
		}
	}
}

// tooMuch says what is too much on a shard, the zero value: nothing.
type tooMuch struct {
	text string
	// asked: it is more than a user's own bound, or a replica's.
	asked bool
}

// adapt changes the rate; is is that of the last moment. p.mu is held.
func (p *pacer) adapt(is float64, why tooMuch) {
	p.peak = max(p.peak, is)
	least := p.least
	if why.asked {
		least /= boundShare
	}
	switch over := why.text != ""; {
	case over && p.rate == 0:
		p.rate = max(is*slower, least)
	case over:
		p.rate = max(min(is, p.rate)*slower, least)
	case p.rate > 0:
		if p.rate *= faster; p.rate > 1.5*p.peak {
			p.rate = 0
		}
	}
}

// look asks all shards at the same time and returns why the work is to be slower.
func (p *pacer) look(ctx context.Context, calm bool) tooMuch {
	ctx, cancel := context.WithTimeout(ctx, lookMax)
	defer cancel()
	how := p.how.Load()
	said := make([]tooMuch, len(p.shards))
	each := func(f func(i int, s *watched)) {
		var all sync.WaitGroup
		for i, s := range p.shards {
			all.Go(func() { f(i, s) })
		}
		all.Wait()
	}
	each(func(i int, s *watched) { said[i] = s.see(ctx, p) })
	if calm && how.latency == 0 {
		p.hush()
		pause(ctx, quietWait)
		each(func(_ int, s *watched) {
			if s.used() {
				smooth(&s.calm, s.delay(ctx))
				smooth(&s.calm, s.delay(ctx))
			}
		})
		p.loud()
	}
	for _, why := range said {
		if why.text != "" {
			return why
		}
	}
	return tooMuch{}
}

// used reports whether others are at work on the shard.
func (s *watched) used() bool { return s.others >= inUse }

// delay is how long a small write takes, or has taken when the look was over; 0 if that is not known.
func (s *watched) delay(ctx context.Context) time.Duration {
	began := time.Now()
	d, err := s.w.Delay(ctx)
	switch {
	case err == nil:
		return d
	case ctx.Err() != nil:
		return time.Since(began)
	}
	return 0
}

// smooth brings a mean nearer to a measurement.
func smooth(mean *time.Duration, d time.Duration) {
	switch {
	case d == 0:
	case *mean == 0:
		*mean = d
	default:
		*mean += (d - *mean) / 4
	}
}

// see looks at the shard once and returns what is too much on it.
func (s *watched) see(ctx context.Context, p *pacer) tooMuch {
	how := p.how.Load()
	d := s.delay(ctx)
	smooth(&s.busy, d)
	v, err := s.w.Vitals(ctx)
	if err == nil {
		s.note(time.Now(), v)
	} else if ctx.Err() == nil {
		p.job.log.Debug("a shard does not say how it fares", telemetry.KeyShard, s.name, telemetry.KeyError, err)
	}
	if slow := s.tooSlow(how, d); slow != (tooMuch{}) {
		return slow
	}
	if err != nil || v.Replica == "" {
		return tooMuch{}
	}
	if n := v.Log - v.Replayed; how.bytes > 0 && n > how.bytes {
		return tooMuch{fmt.Sprintf("%s replica %s is %d bytes behind, bound %d", s.name, v.Replica, n, how.bytes), true}
	}
	if lag := s.lag(time.Now(), v.Replayed); how.lag > 0 && lag > how.lag {
		return tooMuch{fmt.Sprintf("%s replica %s is %.0f s behind, bound %.0f s", s.name, v.Replica, lag.Seconds(), how.lag.Seconds()), true}
	}
	return tooMuch{}
}

// tooSlow says whether small writes take longer on the shard than they may; d is what the last one took.
func (s *watched) tooSlow(how *bounds, d time.Duration) tooMuch {
	ms := func(d time.Duration) string {
		return fmt.Sprintf("%.0f ms", max(float64(d)/float64(time.Millisecond), 1))
	}
	switch {
	case how.latency > 0 && max(s.busy, d) > how.latency && d > how.latency/2:
		return tooMuch{fmt.Sprintf("%s latency %s, bound %s", s.name, ms(max(s.busy, d)), ms(how.latency)), true}
	case how.latency == 0 && s.used() && s.calm > 0 && s.busy > mayTake(s.calm):
		return tooMuch{fmt.Sprintf("%s latency %s, %s without this work, which may make it %s", s.name, ms(s.busy), ms(s.calm), ms(mayTake(s.calm))), false}
	}
	return tooMuch{}
}

// mayTake is how long a small write may take beside the work, if it takes so long without.
func mayTake(calm time.Duration) time.Duration {
	return calm + max(time.Duration(float64(calm)*addShare), addLeast)
}

// note remembers what a shard said.
func (s *watched) note(now time.Time, v engine.Vitals) {
	if s.since.IsZero() {
		s.since = now
	}
	s.known = v.Transactions < 0 || now.Sub(s.since) >= knownAfter
	if v.Transactions >= 0 {
		s.counts = append(s.counts, count{now, v.Transactions})
		// Servers say what they have counted about once in a second.
		for len(s.counts) > 2 && now.Sub(s.counts[1].at) > 2*time.Second {
			s.counts = s.counts[1:]
		}
		if first := s.counts[0]; now.Sub(first.at) > paceLook/2 {
			s.others = float64(v.Transactions-first.n) / now.Sub(first.at).Seconds()
		}
	}
	if n := len(s.log); n == 0 || s.log[n-1].end < v.Log {
		if s.log = append(s.log, logEnd{now, v.Log}); len(s.log) > logMax {
			s.log = s.log[1:]
		}
	}
}

// lag is for how long what a replica has not replayed is in the log, as far as is remembered.
func (s *watched) lag(now time.Time, replayed int64) time.Duration {
	for _, l := range s.log {
		if l.end > replayed {
			return now.Sub(l.at)
		}
	}
	return 0
}

// hush begins a quiet moment, loud ends it.
func (p *pacer) hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet = make(chan struct{})
}

func (p *pacer) loud() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet != nil {
		close(p.quiet)
		p.quiet = nil
	}
}

// wait returns when n more units may go. Errors: that of ctx.
func (p *pacer) wait(ctx context.Context, n int64) error {
	p.mu.Lock()
	p.did += n
	quiet := p.quiet
	var d time.Duration
	if p.rate > 0 {
		now := time.Now()
		if p.next.Before(now) {
			p.next = now
		}
		p.next = p.next.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
		d = p.next.Sub(now)
	}
	p.mu.Unlock()
	if quiet != nil {
		select {
		case <-quiet:
		case <-ctx.Done():
		}
	}
	if d > 0 {
		pause(ctx, d)
	}
	return ctx.Err()
}

// some is how many of at most n units go well at a time.
func (p *pacer) some(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beside.Load() {
		n = min(n, fewRows)
	}
	if p.rate == 0 {
		return n
	}
	return min(n, max(int(p.rate/5), 100))
}
