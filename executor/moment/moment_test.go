package moment

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGate(t *testing.T) {
	var g Gate
	g.Pass()
	(*Gate)(nil).Pass()
	one, two := g.Hush(time.Hour), g.Hush(time.Hour)
	passed := make(chan struct{})
	go func() {
		g.Pass()
		close(passed)
	}()
	if !one.On() || !one.Lift() || one.On() || one.Lift() {
		t.Error("a hush is on until it is lifted, once")
	}
	if g.Open() {
		t.Error("the other hush does not keep it shut")
	}
	select {
	case <-passed:
		t.Error("an answer passed during a hush")
	default:
	}
	if !two.Lift() || !g.Open() {
		t.Error("it did not open")
	}
	<-passed
}

// TestGateOpensByItself: who asked for a hush may be gone.
func TestGateOpensByItself(t *testing.T) {
	var g Gate
	h := g.Hush(time.Millisecond)
	g.Pass()
	if h.On() || h.Lift() {
		t.Error("it says that it was on until it was lifted")
	}
	if !g.Hush(time.Hour).Lift() {
		t.Error("the next one is not its own")
	}
}

// TestHushesInARowLetPass: what waited for one hush does not wait for the next.
func TestHushesInARowLetPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		one := g.Hush(time.Hour)
		passed := make(chan struct{})
		go func() {
			g.Pass()
			close(passed)
		}()
		synctest.Wait() // it waits for the first
		one.Lift()
		two := g.Hush(time.Hour)
		synctest.Wait()
		select {
		case <-passed:
		default:
			t.Error("an answer that waited for one hush waits for the next")
		}
		two.Lift()
		<-passed
	})
}

// TestSlowMomentsRest: a process is silent for a fifth of the time at most, however long its shards take.
func TestSlowMomentsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		m := New(&g, nil, func() func() { return func() {} }, nil)
		var begun, ended time.Time
		for range 3 {
			if whole, err := m.Take(t.Context(), func() error {
				begun = time.Now()
				time.Sleep(Bound / 2)
				return nil
			}); !whole || err != nil {
				t.Fatal(whole, err)
			}
			if rest := begun.Sub(ended); !ended.IsZero() && rest < 4*Bound/2 {
				t.Errorf("it rested for %v", rest)
			}
			ended = time.Now()
		}
	})
}

// TestGateIsNotShutForGood: hushes that overlap in a row.
func TestGateIsNotShutForGood(t *testing.T) {
	var g Gate
	last := g.Hush(time.Hour)
	waitfor.True(t, "a hush is refused", func() bool {
		h := g.Hush(time.Hour)
		if h != nil {
			last.Lift()
			last = h
		}
		return h == nil
	})
	if last.Lift(); g.Hush(time.Hour) == nil {
		t.Error("it is refused after a break")
	}
}

// others is the other processes of a test.
type others struct {
	meet        func() error
	hush, whole func() bool
}

func (o others) Meet(context.Context) (Meeting, error) { return o, o.meet() }
func (o others) Hush() bool                            { return o.hush() }
func (o others) Lift() bool                            { return o.whole() }

func sure() bool   { return true }
func unsure() bool { return false }
func meets() error { return nil }

// TestTake: those who ask at one time share a hush, those who ask while it is on do not.
func TestTake(t *testing.T) {
	var g Gate
	var hushes, quiet atomic.Int32
	m := New(&g, others{meets, func() bool { hushes.Add(1); return true }, sure}, func() func() {
		quiet.Add(1)
		return func() { quiet.Add(-1) }
	}, nil)
	late := make(chan struct{})
	take := func() error {
		if g.Open() || quiet.Load() != 1 {
			t.Error("it is not hushed, or commits are not asked to wait")
		}
		return nil
	}
	var all sync.WaitGroup
	m.turn.Lock() // a round is at work
	for range 5 {
		all.Go(func() {
			if whole, err := m.Take(t.Context(), take); !whole || err != nil {
				t.Error(whole, err)
			}
		})
	}
	first := m.join()
	m.turn.Unlock()
	<-first.open
	all.Go(func() {
		<-late
		if whole, err := m.Take(t.Context(), take); !whole || err != nil {
			t.Error(whole, err)
		}
	})
	close(late)
	waitfor.True(t, "another round is there", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.next != nil && m.next != first
	})
	first.taking.Done()
	all.Wait()
	if n := hushes.Load(); n < 2 || n > 3 {
		t.Errorf("%d hushes", n)
	}
	if !g.Open() || quiet.Load() != 0 {
		t.Error("something is left")
	}
}

// TestTakeIsOfNoMoment: what is not sure to have been taken while all were hushed.
func TestTakeIsOfNoMoment(t *testing.T) {
	failed := errors.New("no")
	none := func() func() { return func() {} }
	for name, try := range map[string]struct {
		others Others
		take   func(*Gate) error
		err    error
		end    telemetry.HushEnd
	}{
		"another process lifted it":         {others: others{meets, sure, unsure}, end: telemetry.HushTorn},
		"another process is silent already": {others: others{meets, unsure, sure}, end: telemetry.HushRefused},
		"another process is not there":      {others: others{func() error { return failed }, sure, sure}, err: failed, end: telemetry.HushUnreached},
		"it took too long":                  {take: func(g *Gate) error { g.Pass(); return nil }}, // the hush was whole, or not
	} {
		t.Run(name, func(t *testing.T) {
			var g Gate
			metrics := telemetry.New()
			whole, err := New(&g, try.others, none, metrics).Take(t.Context(), func() error {
				if try.take != nil {
					return try.take(&g)
				}
				return nil
			})
			if whole || !errors.Is(err, try.err) || !g.Open() {
				t.Error(whole, err)
			}
			hushed := uint64(1)
			if try.end == telemetry.HushUnreached || try.end == telemetry.HushRefused {
				hushed = 0
			}
			if ends, silences := counts(t, metrics); try.end != "" && (ends[string(try.end)] != 1 || len(ends) != 1 || silences != hushed) {
				t.Errorf("it is counted as %v, and %d silences", ends, silences)
			}
		})
	}
	m := New(new(Gate), nil, none, nil)
	if whole, err := m.Take(t.Context(), func() error { return failed }); !whole || err != failed {
		t.Error(whole, err)
	}
	m.turn.Lock()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if whole, err := m.Take(ctx, func() error { return nil }); whole || !errors.Is(err, context.Canceled) {
		t.Error(whole, err)
	}
	m.turn.Unlock()
	if whole, err := m.Take(t.Context(), func() error { return nil }); !whole || err != nil {
		t.Error(whole, err)
	}
}

// counts are the hushes that were counted, by their ends, and how often the process was silent.
func counts(t *testing.T, m *telemetry.Metrics) (ends map[string]float64, silences uint64) {
	t.Helper()
	all, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	ends = map[string]float64{}
	for _, f := range all {
		for _, one := range f.Metric {
			switch f.GetName() {
			case "cleave_silence_seconds":
				silences += one.Histogram.GetSampleCount()
			case "cleave_hushes_total":
				if n := one.Counter.GetValue(); n > 0 {
					ends[one.Label[0].GetValue()] = n
				}
			}
		}
	}
	return ends, silences
}
