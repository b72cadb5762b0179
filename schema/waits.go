package schema

import (
	"context"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
)

// waitsAfter is how long a statement of a change lasts before others are told which processes are the change's.
const waitsAfter = 500 * time.Millisecond

// waits tells others of the change's processes if what begins now lasts; the returned function ends that.
func (t *Tx) waits(ctx context.Context) (end func()) {
	if t.opts.Waits == nil || len(t.parts) < 2 {
		return func() {}
	}
	processes := map[string]uint32{}
	for _, p := range t.parts {
		if b, ok := p.conn.(engine.Backend); ok && p.can.Waits && b.PID() != 0 {
			processes[p.shard] = b.PID()
		}
	}
	ctx, stop := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Add(1)
	timer := time.AfterFunc(waitsAfter, func() {
		defer telling.Done()
		t.opts.Waits(ctx, processes)
	})
	return func() {
		stop()
		if timer.Stop() {
			return
		}
		telling.Wait() // what it has told is taken back
	}
}
