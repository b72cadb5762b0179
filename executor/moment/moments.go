package moment

import (
	"context"
	"sync"
	"time"
)

// restMin is the least time between two hushes that a process asks for.
const restMin = 20 * time.Millisecond

// Others are the other processes that answer clients of the cluster.
type Others interface {
	// Hush returns when all of them are hushed. lift ends it; whole: each of them was hushed until it was asked to lift.
	Hush(ctx context.Context) (lift func() (whole bool), err error)
}

// Moments are the hushes that the transactions of one process ask for: those that ask at one time share one. Methods are
// safe for concurrent use.
type Moments struct {
	gate   *Gate
	others Others // nil: there are none
	// quiet has own commits over several shards wait until loud is called.
	quiet func() (loud func())

	turn sync.Mutex // held by the round that is at work
	rest time.Time  // when it ended; under turn
	mu   sync.Mutex
	next *round // whom one can join
}

// New makes Moments of a process. others may be nil.
func New(gate *Gate, others Others, quiet func() (loud func())) *Moments {
	return &Moments{gate: gate, others: others, quiet: quiet}
}

// round is one hush and those who share it.
type round struct {
	taking sync.WaitGroup // those who have joined and not taken yet
	open   chan struct{}  // closed when the hush is on, or err is set
	hush   *Hush
	lifted chan struct{} // closed when it is over
	whole  bool
	err    error
}

// Take runs take while all processes are hushed. whole: they were until it had returned. Otherwise what was taken is of no
// moment, and the caller may try again. Errors: those of take, of Others, and the end of ctx.
func (m *Moments) Take(ctx context.Context, take func() error) (whole bool, err error) {
	r := m.join()
	select {
	case <-r.open:
	case <-ctx.Done():
		r.taking.Done()
		return false, context.Cause(ctx)
	}
	if r.err != nil || r.hush == nil {
		r.taking.Done()
		return false, r.err
	}
	err = take()
	in := r.hush.On()
	r.taking.Done()
	<-r.lifted
	return in && r.whole, err
}

// join returns a round whose hush has not begun, as one of those who take.
func (m *Moments) join() *round {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		m.next = &round{open: make(chan struct{}), lifted: make(chan struct{})}
		go m.run(m.next)
	}
	m.next.taking.Add(1)
	return m.next
}

// run is a round from its beginning, which waits for the one before it.
func (m *Moments) run(r *round) {
	m.turn.Lock()
	defer m.turn.Unlock()
	time.Sleep(restMin - time.Since(m.rest))
	m.mu.Lock()
	m.next = nil
	m.mu.Unlock()
	defer func() { m.rest = time.Now() }()
	defer close(r.lifted)
	defer m.quiet()()
	lift, err := m.hush(r)
	close(r.open)
	if err != nil || r.hush == nil {
		lift()
		return
	}
	taken := make(chan struct{})
	go func() {
		r.taking.Wait()
		close(taken)
	}()
	over := time.NewTimer(time.Until(r.hush.until))
	defer over.Stop()
	select {
	case <-taken:
	case <-over.C:
	}
	others := lift()
	own := r.hush.Lift()
	r.whole = own && others
}

// hush hushes all processes. r.hush is nil if that was not to be had now.
func (m *Moments) hush(r *round) (lift func() bool, err error) {
	lift = func() bool { return true }
	if m.others != nil {
		limit, stop := context.WithTimeout(context.Background(), Bound)
		defer stop()
		if lift, r.err = m.others.Hush(limit); r.err != nil {
			return func() bool { return false }, r.err
		}
	}
	r.hush = m.gate.Hush(Bound)
	return lift, nil
}
