package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// TestCopyGoesOnWithinATable: a copy ends after some parts of a table, thrice, the first time with its leader. Without writers no row is
// copied twice; with writers none is lost or there twice.
func TestCopyGoesOnWithinATable(t *testing.T) {
	for _, writers := range []bool{false, true} {
		t.Run(fmt.Sprint(writers), func(t *testing.T) {
			l := newLittle(t)
			l.partBytes = 1
			rows := int64(0)
			for k := range int64(littleRows) {
				if l.ofPart(k) {
					rows++
				}
			}
			var loads atomic.Int64
			var gone atomic.Bool
			first := make(chan struct{})
			l.shards["c"].fail = func(method string) error {
				if method != "Load" {
					return nil
				}
				switch n := loads.Add(1); {
				case n == 4:
					close(first)
					fallthrough
				case !gone.Load() && n > 4, gone.Load() && n%7 == 0 && n < 30:
					return &engine.LostError{Shard: "c", Sent: true, Err: errors.New("no answer")}
				}
				return nil
			}
			end := func() {}
			if writers {
				end = l.work()
			}
			leader := l.lead(nil)
			l.move("m", workflow.Options{KeepMS: -1})
			<-first
			leader.end()
			gone.Store(true)
			l.lead(nil)
			s := l.is("m", workflow.Done)
			end()
			l.settled("c")
			if text := fmt.Sprint(s.History); !strings.Contains(text, "the copy of table public.t went on after ") {
				t.Errorf("it does not say so: %s", text)
			}
			if !writers && s.Copied != rows {
				t.Errorf("%d rows were copied, there are %d", s.Copied, rows)
			}
		})
	}
}

// TestCopyThatCannotGoOn: rows are there that the source takes for changed ones of noted parts, or rows of a part that is not noted. The
// table is copied from its beginning.
func TestCopyThatCannotGoOn(t *testing.T) {
	for _, there := range []int64{5, 8} { // the first part that is noted, and the first that is not
		t.Run(fmt.Sprint(there), func(t *testing.T) { cannotGoOn(t, there) })
	}
}

func cannotGoOn(t *testing.T, there int64) {
	l := newLittle(t)
	l.partBytes, l.streams = 1, 1
	var loads, forgotten atomic.Int64
	l.shards["c"].fail = func(method string) error {
		switch method {
		case "Load":
			switch loads.Add(1) {
			case 4:
				return &engine.LostError{Shard: "c", Sent: true, Err: errors.New("no answer")}
			case there:
				return sqlstate.New(sqlstate.UniqueViolation, "a row is there")
			}
		case "ForgetParts":
			forgotten.Add(1)
		}
		return nil
	}
	l.lead(nil)
	l.move("m", workflow.Options{KeepMS: -1})
	l.is("m", workflow.Done)
	l.settled("c")
	if forgotten.Load() == 0 {
		t.Error("no parts were forgotten")
	}
}

// TestPartsAreForgottenLast: a part is loaded by another stream while one finds that the table cannot go on. Its note does not outlive the others.
func TestPartsAreForgottenLast(t *testing.T) {
	l := newLittle(t)
	l.partBytes, l.streams = 1, 2
	var tries, loads, again, rows atomic.Int64
	other, forgotten := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l.shards["c"].fail = func(method string) error {
		switch method {
		case "SetApplied":
			tries.Add(1) // the first is the note that the rows are the move's own
		case "Load":
			switch {
			case tries.Load() == 2 && loads.Add(1) == 4:
				return &engine.LostError{Shard: "c", Sent: true, Err: errors.New("no answer")}
			case tries.Load() == 3 && again.Add(1) == 1:
				<-other
				return sqlstate.New(sqlstate.UniqueViolation, "a row is there")
			}
		case "a row":
			if tries.Load() == 3 && rows.Add(1) == 1 {
				close(other)
				select {
				case <-forgotten:
				case <-time.After(300 * time.Millisecond):
				}
			}
		case "ForgetParts":
			once.Do(func() { close(forgotten) })
		}
		return nil
	}
	l.lead(nil)
	l.move("m", workflow.Options{KeepMS: -1})
	l.is("m", workflow.Done)
	l.settled("c")
}

// commits counts what an applier is given.
type commits struct {
	engine.Applier
	changes, commits int
}

func (c *commits) Change(context.Context, *engine.Change) error {
	c.changes++
	return nil
}

func (c *commits) Commit(context.Context, engine.Position) error {
	c.commits++
	return nil
}

// TestTransactionsOfDroppedInserts: nothing of them comes to the target, not even that they have ended.
func TestTransactionsOfDroppedInserts(t *testing.T) {
	to := &commits{}
	l := &leaving{Applier: to, partly: []bool{true, false}}
	for i, give := range [][]engine.Change{
		{{Op: engine.ChangeInsert}}, {}, {{Op: engine.ChangeInsert}, {Op: engine.ChangeDelete}}, {{Op: engine.ChangeInsert}}, {{Op: engine.ChangeInsert, Table: 1}},
	} {
		for _, c := range give {
			if err := l.Change(t.Context(), &c); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Commit(t.Context(), at(i)); err != nil {
			t.Fatal(err)
		}
	}
	if to.changes != 2 || to.commits != 2 {
		t.Errorf("%d changes and %d transactions", to.changes, to.commits)
	}
}

// keep returns what puts a shard back to what it is now: a standby that takes over without its last commits.
func (s *memoryShard) keep() (back func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, applied, loaded := maps.Clone(s.rows), maps.Clone(s.applied), map[string][]engine.LoadedTable{}
	for id, list := range s.loaded {
		for _, t := range list {
			t.Parts = slices.Clone(t.Parts)
			loaded[id] = append(loaded[id], t)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rows, s.applied, s.loaded = rows, applied, loaded
	}
}

// TestTargetLosesItsLastCommits: a standby takes over, in the middle of a copy, without the last parts. If the copy sees the server go it goes
// on behind the parts that are left. If it does not, the comparison finds that rows are missing: the move fails, and its source has all.
func TestTargetLosesItsLastCommits(t *testing.T) {
	for _, seen := range []bool{true, false} {
		t.Run(fmt.Sprint(seen), func(t *testing.T) {
			l := newLittle(t)
			l.partBytes, l.streams = 1, 1
			var loads atomic.Int64
			var back func()
			c := l.shards["c"]
			c.fail = func(method string) error {
				if method != "Load" {
					return nil
				}
				switch loads.Add(1) {
				case 3:
					back = c.keep()
				case 6:
					back()
					if seen {
						return &engine.LostError{Shard: "c", Sent: true, Err: errors.New("no answer")}
					}
				}
				return nil
			}
			l.lead(nil)
			l.move("m", workflow.Options{KeepMS: -1})
			if seen {
				l.is("m", workflow.Done)
				l.settled("c")
				return
			}
			s := await(t, l.dir, "m", func(s *workflow.State) bool { return s.Step.Ended() })
			if text := fmt.Sprint(s.History); s.Step != workflow.Failed || !strings.Contains(text, "differ") {
				t.Errorf("it is %s: %s", s.Step, text)
			}
			l.settled("a")
		})
	}
}
