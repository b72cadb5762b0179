package move

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// driver moves data all the time, in all ways that there are.
type driver struct {
	h  *histories
	r  *rand.Rand
	id int

	n int
}

// moved counts what was done, by how it ended, and remembers the last of it.
type moved struct {
	mu    sync.Mutex
	count map[string]int
	lines []string
}

func (m *moved) add(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	if len(m.lines) > 2000 {
		m.lines = slices.Delete(m.lines, 0, 1000)
	}
}

func (m *moved) ended(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count[what]++
}

// drive goes on until ctx ends, and what it has begun has ended.
func (d *driver) drive(ctx context.Context) {
	for ctx.Err() == nil {
		d.n++
		id := fmt.Sprintf("h%d-%d", d.id, d.n)
		if err := d.one(ctx, id); err != nil {
			var code sqlstate.Code
			if se := (*sqlstate.Error)(nil); errors.As(err, &se) {
				code = se.Code
			}
			d.h.moved.ended("refused " + string(code))
			d.h.moved.add("%s refused: %v", id, err)
			switch code {
			case sqlstate.ObjectNotInState, sqlstate.UndefinedObject: // another driver was faster
			case sqlstate.SerializationFailure, sqlstate.CannotConnectNow: // the map has changed meanwhile
			case sqlstate.LockNotAvailable: // an unpin sets guards, for which it waits like a client: docs/moving.md, "When something is in the way"
				if d.h.kind != "sqlite" {
					_ = d.h.wrong("%s: %v", id, err)
				}
			default:
				_ = d.h.wrong("%s: %v", id, err)
			}
		}
		time.Sleep(time.Duration(d.r.IntN(40)) * time.Millisecond)
	}
}

func (d *driver) one(ctx context.Context, id string) error {
	bg := context.WithoutCancel(ctx)
	ops, r := d.h.rooms.Ops, d.r
	ks := []string{"bank", "shelf"}[r.IntN(2)]
	to := fmt.Sprintf("s%d", r.IntN(historyShards))
	keep := []string{"0", "1h"}[r.IntN(2)]
	o := admin.MoveOptions{Keep: keep, Unverified: r.IntN(8) == 0}
	meta := admin.Meta{By: "test"}
	ranges, err := ops.Ranges(bg, ks)
	if err != nil {
		return err
	}
	some := ranges[r.IntN(len(ranges))]
	var res *admin.WorkflowResult
	what := ""
	switch n := r.IntN(100); {
	case n < 10 && len(ranges) < 12:
		what = "split"
		res, err = ops.Split(bg, admin.SplitRequest{Meta: meta, ID: id, Keyspace: ks, At: []string{d.position(ks)}})
	case n < 25 && len(ranges) > 3:
		what = "merge"
		at := ranges[1+r.IntN(len(ranges)-1)].Low
		res, err = ops.Merge(bg, admin.MergeRequest{Meta: meta, ID: id, Keyspace: ks, At: []string{at}, MoveOptions: o})
	case n < 40:
		what = "move key"
		res, err = ops.Move(bg, admin.MoveRequest{Meta: meta, ID: id, Keyspace: ks, Key: []string{d.key(ks)}, To: to, MoveOptions: o})
	case n < 50:
		pins, err := ops.Pins(bg, ks)
		if err != nil || len(pins) == 0 {
			return err
		}
		pin := pins[r.IntN(len(pins))]
		_, err = ops.Unpin(bg, admin.UnpinRequest{Meta: meta, Keyspace: ks, Key: pin.Key})
		d.h.moved.add("unpin %s %v: %v", ks, pin.Key, err)
		if err == nil {
			d.h.moved.ended("unpin")
		}
		return err
	case n < 53:
		what = "drain"
		res, err = ops.Drain(bg, admin.DrainRequest{Meta: meta, ID: id, Shard: to, MoveOptions: admin.MoveOptions{Keep: "0"}})
	case n < 57:
		what = "spread"
		res, err = ops.Spread(bg, admin.SpreadRequest{Meta: meta, ID: id, MoveOptions: admin.MoveOptions{Keep: "0"}})
	case n < 75:
		what = "move part of a range"
		a, b := d.position(ks), d.position(ks)
		x, _ := strconv.ParseInt(a, 10, 64)
		if y, _ := strconv.ParseInt(b, 10, 64); y < x {
			a, b = b, a
		}
		if a == b {
			return nil
		}
		res, err = ops.Move(bg, admin.MoveRequest{Meta: meta, ID: id, Keyspace: ks, Range: a + ":" + b, To: to, MoveOptions: o})
	default:
		what = "move range"
		res, err = ops.Move(bg, admin.MoveRequest{Meta: meta, ID: id, Keyspace: ks, Range: some.Low + ".." + some.High, To: to, MoveOptions: o})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if res.Workflow == nil {
		return nil // there already
	}
	d.h.moved.add("%s %s of %s: %v", id, what, ks, res.Plan)
	d.follow(ctx, id, what)
	return nil
}

// position is where a range may be cut: more often where the keys are.
func (d *driver) position(ks string) string {
	if ks == "shelf" {
		return fmt.Sprint(d.r.IntN(historyRegisters))
	}
	return fmt.Sprint(int64(d.r.Uint64()))
}

func (d *driver) key(ks string) string {
	if ks == "shelf" {
		return fmt.Sprint(d.r.IntN(historyRegisters))
	}
	return fmt.Sprint(d.r.IntN(historyTenants))
}

// follow sees a workflow to its end, and sometimes interferes.
func (d *driver) follow(ctx context.Context, id, what string) {
	bg := context.WithoutCancel(ctx)
	ops, r := d.h.rooms.Ops, d.r
	req := admin.WorkflowRequest{Meta: admin.Meta{By: "test"}, ID: id}
	ask := func(wish string, f func(context.Context, admin.WorkflowRequest) (*admin.WorkflowInfo, error)) {
		_, err := f(bg, req)
		d.h.moved.add("%s %s: %v", id, wish, err)
		if err == nil {
			d.h.moved.ended(wish)
		}
	}
	cancel, pause, back := r.IntN(10) == 0, r.IntN(10) == 0, r.IntN(2) == 0
	when := time.Duration(r.IntN(400)) * time.Millisecond
	var opened time.Time
	linger := time.Duration(r.IntN(600)) * time.Millisecond
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		list, err := ops.Moves(bg, id)
		if err != nil {
			d.h.moved.add("%s: %v", id, err)
			if time.Since(begun) > 5*patience {
				_ = d.h.wrong("%s: %v", id, err)
				return
			}
			continue
		}
		w := list[0]
		switch {
		case w.Ended:
			d.h.moved.ended(what + ": " + w.Step)
			d.h.held(w.HeldMS)
			lines := make([]string, 0, len(w.History))
			for _, l := range w.History {
				lines = append(lines, l.At.Format("05.000 ")+l.Step+" "+l.What)
			}
			d.h.moved.add("%s %s: %s %s\n    %s", id, w.Part, w.Step, w.Error, strings.Join(lines, "\n    "))
			if w.Step == "failed" && !d.excused(w) {
				_ = d.h.wrong("%s, a %s, failed: %s", id, what, w.Error)
			}
			return
		case time.Since(begun) > 5*patience:
			_ = d.h.wrong("%s, a %s, does not end: %s, attempt %d, %s", id, what, w.Step, w.Attempt, w.Error)
			return
		case w.Step == "opened" && opened.IsZero():
			opened = time.Now()
		case w.Step == "opened" && w.KeptUntil != nil && time.Since(opened) > linger:
			opened, linger = time.Now(), time.Second // a rollback that could not be done is asked for no more
			if back && w.BackLost == "" {
				back = false
				ask("rollback", ops.Reverse)
			} else {
				ask("finish", ops.Complete)
			}
		case pause && time.Since(begun) > when:
			pause = false
			ask("pause", ops.Pause)
			time.Sleep(when)
			ask("resume", ops.Resume)
		case cancel && time.Since(begun) > when && what != "split":
			cancel = false
			ask("cancel", ops.Cancel)
		}
	}
}

// excused reports whether a workflow was refused before a row was copied: another one was faster
// with some of its part. What fails later is a fault.
func (d *driver) excused(w admin.WorkflowInfo) bool {
	children, parent := strings.CutPrefix(w.Error, "these moves were not done: ")
	for _, l := range w.History {
		if parent && l.Step == string(workflow.Cleaning) {
			continue // a drain takes its note out of the map
		}
		if !slices.Contains([]workflow.StepName{workflow.Planned, workflow.Preparing, workflow.Planning, workflow.Working, workflow.Editing, workflow.Cancelling, workflow.Failed}, workflow.StepName(l.Step)) {
			return false
		}
	}
	if parent {
		children, _, _ = strings.Cut(children, "; ") // the first one's reason
		for id := range strings.SplitSeq(children, ", ") {
			list, err := d.h.rooms.Ops.Moves(context.Background(), id)
			if err != nil || list[0].Step == "failed" && !d.excused(list[0]) {
				d.h.moved.add("%s: %+v %v", id, list, err)
				return false
			}
		}
	}
	d.h.moved.ended("failed: another was faster")
	return w.Error != ""
}
