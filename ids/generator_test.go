package ids_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/ids"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestIDParts(t *testing.T) {
	t.Parallel()
	c := newClock()
	g := ids.NewGenerator(ids.GeneratorOptions{Records: newRecords(t), Node: node(1023), Now: c.Now, Sleep: c.Sleep})
	list, err := g.Next(context.Background(), nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range list {
		at, n, counter := ids.Parts(id)
		if !at.Equal(c.Now().UTC()) || n != 1023 || counter != i || id <= 0 {
			t.Errorf("id %d: %v, node %d, counter %d", id, at, n, counter)
		}
	}
	last := time.UnixMilli(ids.Epoch + 1<<41 - 1).UTC()
	if last.Year() != 2094 {
		t.Errorf("the last id is of %v; the documentation says 2094", last)
	}
}

// A millisecond has room for 4,096 ids: then the next one is waited for.
func TestCounterOverflow(t *testing.T) {
	t.Parallel()
	c := newClock()
	g := ids.NewGenerator(ids.GeneratorOptions{Records: newRecords(t), Node: node(1), Now: c.Now, Sleep: c.Sleep})
	began := c.Now()
	list, err := g.Next(context.Background(), nil, 3*4096)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(list); i++ {
		if list[i] <= list[i-1] {
			t.Fatalf("%d after %d", list[i], list[i-1])
		}
	}
	if took := c.Now().Sub(began); took != 2*time.Millisecond {
		t.Errorf("%d ids took %v of the clock", len(list), took)
	}
}

func TestClockSteps(t *testing.T) {
	t.Parallel()
	c := newClock()
	r := newRecords(t)
	var s seen
	g := ids.NewGenerator(ids.GeneratorOptions{Records: r, Node: node(1), Now: c.Now, Sleep: c.Sleep})
	next := func(want sqlstate.Code) int64 {
		t.Helper()
		list, err := g.Next(context.Background(), nil, 1)
		if got := sqlstate.CodeOf(err); got != want {
			t.Fatalf("error %v, want %q", err, want)
		}
		if err != nil {
			if sqlstate.As(err).Hint == "" {
				t.Errorf("no hint: %v", err)
			}
			return 0
		}
		s.add(t, list...)
		return list[0]
	}
	a := next("")
	c.step(-3 * time.Second) // waited for
	if b := next(""); b <= a {
		t.Errorf("%d after %d", b, a)
	}
	c.step(-time.Hour)
	next(sqlstate.ObjectNotInState)
	// Another process with the same node number knows no more than the record says.
	g = ids.NewGenerator(ids.GeneratorOptions{Records: r, Node: node(1), Now: c.Now, Sleep: c.Sleep})
	next(sqlstate.ObjectNotInState)
	c.step(time.Hour)
	if b := next(""); b <= a {
		t.Errorf("%d after %d", b, a)
	}
	c.step(24 * time.Hour)
	next("")
	c.step(-100 * 365 * 24 * time.Hour)
	next(sqlstate.ObjectNotInState)
}

// A process that dies leaves a window behind, which nobody uses again.
func TestWindowOfADeadProcess(t *testing.T) {
	t.Parallel()
	c := newClock()
	r := newRecords(t)
	var s seen
	last := int64(0)
	for range 20 {
		g := ids.NewGenerator(ids.GeneratorOptions{Records: r, Node: node(7), Now: c.Now, Sleep: c.Sleep})
		list, err := g.Next(context.Background(), nil, 5)
		if err != nil {
			t.Fatal(err)
		}
		s.add(t, list...)
		if list[0] <= last {
			t.Errorf("%d after %d", list[0], last)
		}
		last = list[4]
	}
}

func TestDirectoryFails(t *testing.T) {
	t.Parallel()
	c := newClock()
	r := newRecords(t)
	var s seen
	g := ids.NewGenerator(ids.GeneratorOptions{Records: r, Node: node(1), Now: c.Now, Sleep: c.Sleep})
	next := func() error {
		list, err := g.Next(context.Background(), nil, 1)
		s.add(t, list...)
		return err
	}
	r.set(true, false)
	if err := next(); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || sqlstate.As(err).Hint == "" {
		t.Fatalf("error %v", err)
	}
	r.set(false, false)
	if err := next(); err != nil {
		t.Fatal(err)
	}
	// The window lasts two seconds; in its second half it would be extended.
	r.set(true, false)
	c.step(1500 * time.Millisecond)
	if err := next(); err != nil {
		t.Errorf("within the window: %v", err)
	}
	c.step(time.Second)
	if err := next(); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Errorf("after the window: %v", err)
	}
	// Writes that land although their answer is lost: the next window begins after them.
	r.set(false, true)
	for range 5 {
		c.step(3 * time.Second)
		if err := next(); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
			t.Errorf("lost answer: %v", err)
		}
	}
	r.set(false, false)
	if err := next(); err != nil {
		t.Error(err)
	}
	g = ids.NewGenerator(ids.GeneratorOptions{Node: node(1)})
	if err := next(); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Errorf("without records: %v", err)
	}
}

func TestLayoutIsRecorded(t *testing.T) {
	t.Parallel()
	r := newRecords(t)
	g := ids.NewGenerator(ids.GeneratorOptions{Records: r, Node: node(1)})
	if _, err := g.Next(context.Background(), nil, 1); err != nil {
		t.Fatal(err)
	}
	rec, err := r.Record(context.Background(), "ids/layout")
	if err != nil || string(rec.Value) != `{"epoch_ms":1735689600000,"time_bits":41,"node_bits":10,"counter_bits":12}` {
		t.Fatalf("%s, %v", rec.Value, err)
	}
	if _, err := r.PutRecord(context.Background(), "ids/layout", []byte(`{"epoch_ms":5}`), rec.Revision); err != nil {
		t.Fatal(err)
	}
	g = ids.NewGenerator(ids.GeneratorOptions{Records: r, Node: node(2)})
	if _, err := g.Next(context.Background(), nil, 1); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Errorf("another layout: %v", err)
	}
}

// Processes that share node numbers, die, come back, and whose clocks go
// forwards and backwards never give an id twice; each gives them in order.
func TestManyProcesses(t *testing.T) {
	t.Parallel()
	r := newRecords(t)
	var s seen
	var wg sync.WaitGroup
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for p := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(p)))
			c := newClock()
			var number atomic.Uint32
			life := func() *ids.Generator {
				return ids.NewGenerator(ids.GeneratorOptions{Records: r, Node: func() uint16 { return uint16(number.Load()) }, Now: c.Now, Sleep: c.Sleep})
			}
			g, last := life(), int64(0)
			for range 400 {
				switch rnd.IntN(12) {
				case 0:
					g, last = life(), 0 // killed and started again
				case 1:
					number.Store(rnd.Uint32N(3)) // the lease was lost, and another number got
				case 2:
					c.step(-time.Duration(rnd.IntN(4000)) * time.Millisecond)
				case 3:
					c.step(time.Duration(rnd.IntN(3000)) * time.Millisecond)
				default:
					c.step(time.Duration(rnd.IntN(3)) * time.Millisecond)
				}
				list, err := g.Next(context.Background(), nil, 1+rnd.IntN(20))
				if code := sqlstate.CodeOf(err); err != nil && code != sqlstate.ObjectNotInState {
					t.Errorf("process %d: %v", p, err)
					return
				}
				s.add(t, list...)
				for _, id := range list {
					if id <= last {
						t.Errorf("process %d: %d after %d", p, id, last)
					}
					last = id
				}
			}
		})
	}
	wg.Wait()
	if len(s.at) < 100 {
		t.Errorf("only %d ids", len(s.at))
	}
}

// FuzzGenerators interleaves three processes with two node numbers as the bytes say.
func FuzzGenerators(f *testing.F) {
	f.Add([]byte{0, 1, 2, 0x10, 0x21, 0x32, 0x40, 0x51, 0x62, 0x70, 0, 0, 1, 2})
	f.Add([]byte{0, 0x30, 0, 0x40, 0, 0x50, 0, 0x60, 0, 0x11, 1, 0x41, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 300 {
			ops = ops[:300]
		}
		r := newRecords(t)
		var s seen
		type process struct {
			c    *clock
			node uint16
			g    *ids.Generator
			last int64
		}
		var ps [3]process
		start := func(p *process) {
			p.g, p.last = ids.NewGenerator(ids.GeneratorOptions{Records: r, Node: func() uint16 { return p.node }, Now: p.c.Now, Sleep: p.c.Sleep}), 0
		}
		for i := range ps {
			ps[i].c, ps[i].node = newClock(), uint16(i%2)
			start(&ps[i])
		}
		for _, op := range ops {
			p := &ps[op&3%3]
			arg := int(op >> 2 & 3)
			switch op >> 4 {
			case 1:
				start(p)
			case 2:
				p.node ^= 1
			case 3:
				p.c.step(-time.Duration(arg*arg*700) * time.Millisecond)
			case 4:
				p.c.step(time.Duration(arg*arg*700) * time.Millisecond)
			case 5:
				r.set(arg == 1, arg == 2)
			case 6:
				p.c.step(time.Millisecond)
			case 7:
				p.c.step(-time.Millisecond)
			default:
				list, _ := p.g.Next(context.Background(), nil, 1+arg*1500) // an error gives fewer ids
				s.add(t, list...)
				for _, id := range list {
					if id <= p.last {
						t.Errorf("%d after %d", id, p.last)
					}
					p.last = id
				}
			}
		}
	})
}

func BenchmarkNext(b *testing.B) {
	g := ids.NewGenerator(ids.GeneratorOptions{Records: newRecords(b), Node: node(1)})
	ctx := context.Background()
	buf := make([]int64, 0, 1)
	for b.Loop() {
		if _, err := g.Next(ctx, buf, 1); err != nil {
			b.Fatal(err)
		}
	}
}
