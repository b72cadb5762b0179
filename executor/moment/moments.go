package moment

import (
	"context"
	"sync"
	"time"

	"github.com/cleavedb/cleave/telemetry"
)

// Between two hushes that a process asks for there is a rest: restMin at least, and restTimes as long as the last hush was, so that slow
// shards do not silence their routers.
const (
	restMin   = 20 * time.Millisecond
	restTimes = 4
)

// meetMax is how long a moment waits for the other processes to be reached.
const meetMax = 10 * time.Second

// Others are the other processes that answer clients of the cluster.
type Others interface {
	// Meet finds out who they are, and reaches all of them. Nobody is hushed meanwhile.
	Meet(ctx context.Context) (Meeting, error)
}

// Meeting are the others for one hush.
type Meeting interface {
	// Hush reports whether all of them are hushed now.
	Hush() bool
	// Lift ends that, whether or not all were. whole: each was hushed until it was asked to lift.
	Lift() (whole bool)
}

// nobody is the Meeting of a process that is alone.
type nobody struct{}

func (nobody) Hush() bool { return true }
func (nobody) Lift() bool { return true }

// Moments are the hushes that the transactions of one process ask for: those that ask at one time share one. Methods are
// safe for concurrent use.
type Moments struct {
	gate    *Gate
	others  Others // nil: there are none
	metrics *telemetry.Metrics
	// quiet has own commits over several shards wait until loud is called.
	quiet func() (loud func())

	turn sync.Mutex // held by the round that is at work
	rest time.Time  // when the next hush may begin; under turn
	mu   sync.Mutex
	next *round // whom one can join
}

// New makes Moments of a process, before there are hushes. others may be nil, and metrics, which are told of hushes.
func New(gate *Gate, others Others, quiet func() (loud func()), metrics *telemetry.Metrics) *Moments {
	gate.metrics = metrics
	return &Moments{gate: gate, others: others, quiet: quiet, metrics: metrics}
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
	time.Sleep(time.Until(m.rest))
	meeting, err := m.meet()
	m.mu.Lock()
	m.next = nil
	m.mu.Unlock()
	began := time.Now()
	defer func() { m.rest = time.Now().Add(max(restMin, restTimes*time.Since(began))) }()
	defer close(r.lifted)
	if r.err = err; err != nil {
		m.metrics.Hush(telemetry.HushUnreached)
		close(r.open)
		return
	}
	defer m.quiet()()
	if meeting.Hush() {
		r.hush = m.gate.Hush(Bound)
	}
	if r.hush == nil {
		m.metrics.Hush(telemetry.HushRefused)
		close(r.open)
		meeting.Lift()
		return
	}
	close(r.open)
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
	others := meeting.Lift()
	own := r.hush.Lift()
	end := telemetry.HushTorn
	if r.whole = own && others; r.whole {
		end = telemetry.HushWhole
	}
	m.metrics.Hush(end)
}

func (m *Moments) meet() (Meeting, error) {
	if m.others == nil {
		return nobody{}, nil
	}
	limit, stop := context.WithTimeout(context.Background(), meetMax)
	defer stop()
	return m.others.Meet(limit)
}
