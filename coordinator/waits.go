package coordinator

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/workflow"
)

// waitLook is how often a job looks whether somebody on a shard keeps a step waiting. standsFor is after how long without
// a row it notes that none has passed.
const (
	waitLook  = time.Second
	standsFor = 10 * time.Second
)

// waits reports whether in a step somebody on a shard may be waited for without a bound, while no statement waits.
func waits(s *workflow.State) bool {
	if s.Spec.Kind != workflow.Move {
		return false
	}
	switch s.Step {
	case workflow.Preparing, workflow.Copying, workflow.CatchingUp, workflow.Verifying, workflow.Cleaning, workflow.Cancelling:
		return true
	}
	return false
}

// tellWaits says, until ctx ends, for whom the step waits on its shards: a transaction that has written anything on the
// server keeps a snapshot of its log waiting, whatever database it is in. Who was there at two looks is named.
func (j *job) tellWaits(ctx context.Context, s *workflow.State) {
	defer j.prog.waitsFor("", "")
	last, since, warned := "", time.Now(), false
	done, moved := int64(0), time.Now()
	for {
		if pause(ctx, waitLook); ctx.Err() != nil {
			return
		}
		shard, list := j.waitsFor(ctx, s)
		if now := j.prog.rows.Load() + j.prog.bytes.Load() + j.prog.changes.Load(); now != done || j.prog.said() || s.Step != workflow.Copying || j.isPaused() {
			done, moved = now, time.Now()
		}
		if len(list) == 0 {
			last = ""
			j.prog.waitsFor(stands(s, time.Since(moved)))
			continue
		}
		if list[0].Who != last { // another one: that is no standstill
			last, since, warned = list[0].Who, time.Now(), false
			continue
		}
		note := "waits on shard " + shard + " for " + engine.Blockers(list)
		if end := list[0].Command; end != "" {
			note += "; to end it, run there: " + end
		}
		trouble := ""
		if time.Since(since) >= knownMax {
			trouble = note
			if !warned {
				j.log.Warn("a transaction on a shard holds the workflow up", "step", s.Step, "why", note)
			}
			warned = true
		}
		j.prog.waitsFor(note, trouble)
	}
}

// stands says, as a note and in the end as an error, that no row has passed for a while, though nothing is known to hold
// the step up: a server or a disk that hangs says nothing.
func stands(s *workflow.State, d time.Duration) (note, trouble string) {
	if d < standsFor {
		return "", ""
	}
	note = "no row has passed for more than " + standsFor.String() + ": look at the servers of shards " + s.Source() + " and " + s.Target() + " (pg_stat_activity, disk space, network)"
	if d >= knownMax {
		trouble = note
	}
	return note, trouble
}

// waitsFor returns who is waited for, on the first of the shards where that is somebody.
func (j *job) waitsFor(ctx context.Context, s *workflow.State) (string, []engine.Blocker) {
	for _, name := range []string{s.Source(), s.Target()} {
		m, err := j.t.mover(ctx, name)
		if err != nil {
			continue // the effect says so
		}
		if b, ok := m.(engine.Blocked); ok {
			if list, err := b.Blockers(ctx, workflow.Forth(j.id), workflow.Back(j.id)); err == nil && len(list) > 0 {
				return name, list
			}
		}
	}
	return "", nil
}
