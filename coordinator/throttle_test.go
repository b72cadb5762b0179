package coordinator

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/workflow"
)

// TestThrottle: the bound holds over any second, after a pause too.
func TestThrottle(t *testing.T) {
	bound := func(rows, bytes int64) *throttle {
		t := &throttle{how: &atomic.Pointer[workflow.Options]{}}
		t.how.Store(&workflow.Options{RowsPerSecond: rows, BytesPerSecond: bytes})
		return t
	}
	l := bound(1000, 1<<20)
	now := time.Unix(1000, 0)
	let := func(rows, bytes int64) { now = now.Add(max(l.take(now, rows, bytes), 0)) }
	for _, idle := range []time.Duration{0, time.Minute, time.Hour} {
		now = now.Add(idle)
		from, passed := now, 0
		for now.Sub(from) < 10*time.Second {
			let(100, 1000)
			passed += 100
		}
		if took := now.Sub(from).Seconds(); float64(passed) > 1000*(took+throttleCredit.Seconds())+100 || float64(passed) < 1000*took*0.95 {
			t.Errorf("after %v: %d rows in %.1f s", idle, passed, took)
		}
	}
	from := now
	for range 64 {
		let(1, 1<<20)
	}
	if took := now.Sub(from).Seconds(); took < 63 || took > 65 {
		t.Errorf("64 MiB took %.1f s", took)
	}
	rows := bytes.Repeat([]byte("12345\n"), 100000)
	if n := len(l.piece(rows)); n != 250*6 {
		t.Errorf("a piece has %d bytes", n)
	}
	if n := len(bound(0, 4000).piece(rows)); n != 1000 {
		t.Errorf("a piece has %d bytes", n)
	}
	if n := len(bound(0, 0).piece(rows)); n != len(rows) {
		t.Errorf("without a bound a piece has %d bytes", n)
	}
	if n := len(bound(1, 0).piece(rows)); n != 6 {
		t.Errorf("the least piece has %d bytes", n)
	}
	// Bounds can be changed while it works.
	l.how.Store(&workflow.Options{})
	if need := l.take(now.Add(time.Hour), 1_000_000, 1<<40); need > 0 {
		t.Errorf("%s without a bound", need)
	}
}
