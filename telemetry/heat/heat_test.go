package heat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestRates(t *testing.T) {
	m, r := NewMeter(3), NewRates(2*time.Minute)
	r.Reset(3, func([]float64) []float64 { return make([]float64, 3) })
	for range 100 { // 10 a second for 1000 s, unit 1 only
		for range 100 {
			c, _ := m.Count(1)
			c.Took(20 * time.Millisecond)
		}
		r.Fold(m, 10*time.Second)
		if n, busy := r.Of(1); math.Abs(n-10) > 1e-6 || math.Abs(busy-0.2) > 1e-6 {
			t.Fatalf("%v statements, %v busy", n, busy) // also at once: the unknown past does not count
		}
	}
	if n, _ := r.Of(0); n != 0 {
		t.Errorf("unit 0 has %v", n)
	}
	r.Fold(m, 2*time.Minute)
	if n, _ := r.Of(1); math.Abs(n-5) > 0.2 {
		t.Errorf("%v after one half-life without load", n)
	}
	r.Fold(m, time.Hour)
	if n, _ := r.Of(1); n != 0 {
		t.Errorf("%v after an hour without load", n)
	}
	for _, unit := range []int{-1, 3, math.MaxInt >> 4} {
		if c, _ := m.Count(unit); c != nil {
			t.Errorf("there is a unit %d", unit)
		}
	}
	m, r = NewMeter(5), NewRates(2*time.Minute)
	r.Reset(5, func([]float64) []float64 { return make([]float64, 5) })
	for range 1000 {
		m.Spread(1, 4, One/4)
		m.Spread(4, 5, One)
		m.Count(2)
	}
	for _, bad := range [][2]int{{-1, 2}, {3, 3}, {4, 6}} {
		m.Spread(bad[0], bad[1], One)
	}
	r.Fold(m, 10*time.Second)
	for unit, want := range []float64{0, 25, 125, 25, 100} {
		if n, _ := r.Of(unit); math.Abs(n-want) > 1e-6 {
			t.Errorf("unit %d has %v, not %v", unit, n, want)
		}
	}
	var none *Cell
	none.Took(time.Second)
}

func TestSampleKeepsNoStepWithThePattern(t *testing.T) {
	m := NewMeter(1)
	var hits [4]int
	for i := range 1 << 16 {
		if _, sample := m.Count(0); sample {
			hits[i%4]++
		}
	}
	for i, n := range hits {
		if n < 1<<16/sampled/4*9/10 || n > 1<<16/sampled/4*11/10 {
			t.Errorf("of every fourth statement from %d, %d were sampled", i, n)
		}
	}
}

// TestSketch: keys with more than 1/size of all are found, and counts are off by Error at most.
func TestSketch(t *testing.T) {
	s, real := NewSketch(64), map[string]float64{}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 50_000 {
		key := fmt.Sprint("cold-", r.IntN(20_000))
		switch {
		case i%10 == 0:
			key = "hot"
		case i%20 == 1:
			key = "warm"
		}
		real[key]++
		s.Add(key)
	}
	top, all := s.Top(10, 0.03)
	if all != 50_000 || len(top) != 2 || top[0].Key != "hot" || top[1].Key != "warm" {
		t.Fatalf("of %v: %+v", all, top)
	}
	for _, c := range top {
		if c.Count < real[c.Key] || c.Count-c.Error > real[c.Key] {
			t.Errorf("%+v, it was %v", c, real[c.Key])
		}
	}
	s.Fade(0.5)
	if top, all := s.Top(10, 0.03); all != 25_000 || len(top) != 2 || top[0].Count > 2_600 {
		t.Errorf("faded: %v, %+v", all, top)
	}
	s.Fade(1e-9)
	if top, _ := s.Top(10, 0); len(top) != 0 || len(s.place) != 0 {
		t.Errorf("after all have faded: %+v", top)
	}
	if s.Add(string(make([]byte, KeyMax+1))) {
		t.Error("a key of any length is kept")
	}
}

func BenchmarkSpread(b *testing.B) {
	m := NewMeter(100_000)
	b.ReportAllocs()
	for b.Loop() {
		m.Spread(0, 100_000, 40)
	}
}

func BenchmarkCount(b *testing.B) {
	m := NewMeter(64)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c, _ := m.Count(i & 63)
		c.Took(1000)
		i++
	}
}
