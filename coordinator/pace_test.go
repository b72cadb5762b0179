package coordinator

import (
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
)

// TestPaceIsBounded: whatever shards say, the work goes on, and is as fast as before when they
// are well again.
func TestPaceIsBounded(t *testing.T) {
	p := &pacer{least: leastBytes}
	const full = 80 << 20
	p.adapt(full, tooMuch{})
	if p.rate != 0 {
		t.Fatalf("a rate of %v without a reason", p.rate)
	}
	for range 1000 {
		is := float64(full)
		if p.rate > 0 {
			is = p.rate
		}
		p.adapt(is, tooMuch{text: "slow"})
		if p.rate < leastBytes || p.rate > full*slower {
			t.Fatalf("%v", p.rate)
		}
	}
	if p.rate != leastBytes {
		t.Errorf("%v after a long time", p.rate)
	}
	for range 1000 { // more than somebody's own bound
		p.adapt(p.rate, tooMuch{text: "slow", asked: true})
	}
	if p.rate != leastBytes/boundShare {
		t.Errorf("%v after a long time beyond a bound", p.rate)
	}
	looks := 0
	for ; p.rate > 0; looks++ {
		p.adapt(min(p.rate, full), tooMuch{})
	}
	if after := time.Duration(looks) * paceLook; after > time.Minute {
		t.Errorf("as fast as before after %s", after)
	}
}

// TestRest: beside others the work is done in small pieces; where their small writes take long there are pauses, which
// are longer than the pieces, and bounded. Neither where nobody is, nor if there is a bound.
func TestRest(t *testing.T) {
	p := &pacer{least: 1}
	check := func(what string, work, rests time.Duration, reads int64, rows int) {
		t.Helper()
		if is := p.rests(work, 1); is != rests || p.read() != reads || p.some(purgeBatch) != rows {
			t.Errorf("%s: after %s of work %s of rest, not %s; pieces of %d bytes and %d rows", what, work, is, rests, p.read(), p.some(purgeBatch))
		}
	}
	p.beside.Store(true)
	check("beside writes that are fast", time.Hour, 0, smallRead, fewRows)
	p.strained.Store(true)
	check("beside writes that take long", 5*time.Millisecond, 5*time.Millisecond*rest, smallRead, fewRows)
	check("after a long piece", time.Hour, restMax, smallRead, fewRows)
	p.least = 1000
	check("with a rate that is never undershot", time.Hour, time.Millisecond, smallRead, fewRows)
	p.beside.Store(false)
	check("beside nobody", time.Hour, 0, largeRead, purgeBatch)
	s := &watched{}
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		vitals engine.Vitals
		known  bool
	}{{engine.Vitals{}, false}, {engine.Vitals{Transactions: -1}, true}} {
		if s.note(now, c.vitals); s.known != c.known {
			t.Errorf("known: %v after a look", s.known)
		}
	}
	if s.note(now.Add(knownAfter), engine.Vitals{Transactions: 1}); !s.known || s.used() {
		t.Error("others are at work")
	}
}

// TestLatencyOfAMillisecond: what small writes take is too much only from an absolute time on, however fast they were.
func TestLatencyOfAMillisecond(t *testing.T) {
	ms := time.Millisecond
	for calm, most := range map[time.Duration]time.Duration{ms / 10: 10*ms + ms/10, ms: 11 * ms, 20 * ms: 30 * ms, 100 * ms: 130 * ms} {
		if got := mayTake(calm); got != most {
			t.Errorf("%s without the work: %s, not %s", calm, got, most)
		}
	}
}

// TestReplicaLag: the lag of a replica is the age of what it has not replayed.
func TestReplicaLag(t *testing.T) {
	s := &watched{}
	now := time.Unix(1000, 0)
	for i := range int64(100) {
		s.note(now.Add(time.Duration(i)*time.Second), engine.Vitals{Transactions: -1, Log: 1000 * i})
	}
	last := now.Add(99 * time.Second)
	for replayed, want := range map[int64]time.Duration{99_000: 0, 98_999: 0, 98_500: 0, 89_500: 9 * time.Second, 89_000: 9 * time.Second, -1: 99 * time.Second} {
		if got := s.lag(last, replayed); got != want {
			t.Errorf("%d: %s, not %s", replayed, got, want)
		}
	}
	if s.others != 0 {
		t.Error("transactions of nobody")
	}
	for i := range 5000 {
		s.note(last.Add(time.Duration(i)*time.Second), engine.Vitals{Transactions: int64(i) * 40, Log: 1_000_000 + int64(i)})
	}
	if len(s.log) > logMax || len(s.counts) > 5 || !s.used() || s.others != 40 {
		t.Errorf("%d ends, %d counts, %v a second", len(s.log), len(s.counts), s.others)
	}
}
