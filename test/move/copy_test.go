package move

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/testrun"
)

// watched are shards whose movers tell what they load.
type watched struct {
	c *target
	// load stands before each Load of the target.
	load func(ctx context.Context, m engine.Mover, id string, t *engine.MoveTable, of engine.Part, rows io.Reader) (int64, error)
	// noted is told each table that is loaded, resumed the tables that are read as of a later moment.
	noted   func(t engine.LoadedTable)
	resumed func(set engine.Set)
	// partBytes is that of the coordinator's options.
	partBytes int64
}

// lead runs a coordinator of its own over the shards until stop is called.
func (w *watched) lead(name string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c := coordinator.New(coordinator.Options{Directory: w.c.dir, Candidate: name, PartBytes: w.partBytes, Shard: func(name string) (engine.Shard, error) {
		sh, err := w.c.rooms.Executor.Shard(name)
		return watchedShard{sh, w}, err
	}})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	once := sync.OnceFunc(func() { cancel(); <-done })
	w.c.t.Cleanup(once)
	return once
}

type watchedShard struct {
	engine.Shard
	w *watched
}

func (s watchedShard) Mover(token uint64) engine.Mover {
	m := s.Shard.(engine.Movable).Mover(token)
	if o, ok := m.(engine.Opener); ok {
		return struct {
			watchedMover
			engine.Opener
		}{watchedMover{m, s.w}, o}
	}
	return watchedMover{m, s.w}
}

type watchedMover struct {
	engine.Mover
	w *watched
}

func (m watchedMover) Load(ctx context.Context, id string, t *engine.MoveTable, of engine.Part, rows io.Reader) (int64, error) {
	return m.w.load(ctx, m.Mover, id, t, of, rows)
}

func (m watchedMover) SetLoaded(ctx context.Context, id string, t engine.LoadedTable) error {
	err := m.Mover.SetLoaded(ctx, id, t)
	if err == nil {
		m.w.noted(t)
	}
	return err
}

func (m watchedMover) CaptureRows(ctx context.Context, id string, set engine.Set) (engine.RowSource, error) {
	m.w.resumed(set)
	return m.Mover.CaptureRows(ctx, id, set)
}

// TestCopyGoesOn: a coordinator ends when two of three tables are copied, and the third in part; rows of
// all of them change before the next one, and while it copies the rest. It copies nothing twice.
func TestCopyGoesOn(t *testing.T) {
	testrun.Long(t, "coordinators are ended in the middle of copies; TestCrash of test/crash has a sample of kills")
	for name, engines := range kinds {
		t.Run(name, func(t *testing.T) {
			c := startAs(t, "", engines...)
			c.bank(3000)
			l := c.work(1)
			part := make(chan struct{})
			noted := make(chan engine.LoadedTable, 8)
			first := &watched{c: c, noted: func(t engine.LoadedTable) { noted <- t }}
			first.load = func(ctx context.Context, m engine.Mover, id string, t *engine.MoveTable, of engine.Part, rows io.Reader) (int64, error) {
				if t.Name != "bulk" {
					return m.Load(ctx, id, t, of, rows)
				}
				var some strings.Builder
				for in := bufio.NewReader(rows); some.Len() < 4000; {
					line, err := in.ReadString('\n')
					if err != nil {
						return 0, err
					}
					some.WriteString(line)
				}
				if _, err := m.Load(ctx, id, t, engine.Part{}, strings.NewReader(some.String())); err != nil {
					return 0, err
				}
				close(part)
				<-ctx.Done()
				return 0, ctx.Err()
			}
			stop := first.lead("first")
			c.move(admin.MoveRequest{ID: "m", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}})
			<-part
			before := []engine.LoadedTable{<-noted, <-noted}
			stop()

			change := func(n int) {
				c.exec(fmt.Sprintf(`UPDATE bulk SET body = 'changed %d' WHERE n < 3000 AND n %% 7 = %d`, n, n), fmt.Sprintf(`DELETE FROM bulk WHERE n < 3000 AND n %% 100 = %d`, n),
					fmt.Sprintf(`INSERT INTO bulk SELECT tenant, 10000 + id + %d, 'new' FROM account`, 1000*n), fmt.Sprintf(`UPDATE account SET note = 'changed %d' WHERE id = %d`, n, n))
			}
			change(1)
			beforeView := sync.OnceFunc(func() { change(2) })
			beforeLoad := sync.OnceFunc(func() { change(3) })
			var resumed []string
			copied := map[string]int64{}
			var mu sync.Mutex
			seen := make(chan struct{})
			second := &watched{c: c, noted: func(engine.LoadedTable) {}, resumed: func(set engine.Set) {
				for _, t := range set.Tables {
					resumed = append(resumed, t.Name)
				}
				beforeView()
			}}
			second.load = func(ctx context.Context, m engine.Mover, id string, t *engine.MoveTable, of engine.Part, rows io.Reader) (int64, error) {
				beforeLoad()
				<-seen // that the move says what it does
				n, err := m.Load(ctx, id, t, of, rows)
				mu.Lock()
				defer mu.Unlock()
				copied[t.Name] += n
				return n, err
			}
			second.lead("second")
			c.noted("m", "copying", "the copy was interrupted: ")
			close(seen)
			w := c.await("m", "done")
			c.history(w)
			l.end()
			if l.failed.Load() > 0 {
				t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
			}
			all := before[0].Rows + before[1].Rows
			if fmt.Sprint(resumed) != "[bulk]" || len(copied) != 1 || copied["bulk"] == 0 || w.Copied != all+copied["bulk"] {
				t.Errorf("copied before: %v; gone on with %v: %v; of all %d", before, resumed, copied, w.Copied)
			}
			if text := told(w); !strings.Contains(text, "rows were copied again, since their tables or parts of them were not whole when the copy was interrupted") {
				t.Errorf("it does not say what was copied again:\n%s", text)
			}
			if text := told(w); !strings.Contains(text, fmt.Sprintf("of them %d rows of 2 tables before the copy was interrupted", all)) || !strings.Contains(text, "both copies have the same") {
				t.Errorf("it does not say what it did:\n%s", text)
			}
			if n := c.number(`SELECT count(*) FROM bulk WHERE body = 'new'`); n != 3*tenants*accounts {
				t.Errorf("%d new rows", n)
			}
			if n := c.number(`SELECT count(*) FROM bulk`); n != 3000-3*30+3*tenants*accounts {
				t.Errorf("%d rows", n)
			}
			c.clean()
		})
	}
}

// TestCopyGoesOnWithinATable: a coordinator ends when some parts of a table are copied. Rows of all parts change before the next one, and
// while it copies the rest. It copies again no row that was not changed.
func TestCopyGoesOnWithinATable(t *testing.T) {
	testrun.Long(t, "a coordinator is ended in the middle of a table; TestMover/Parts of both engines and TestCopyGoesOnWithinATable of coordinator have the parts of it")
	for name, engines := range kinds {
		t.Run(name, func(t *testing.T) { copyGoesOnWithinATable(t, engines) })
	}
}

func copyGoesOnWithinATable(t *testing.T, engines []string) {
	const rows = 3000
	c := startAs(t, "", engines...)
	c.bank(rows)
	moved := c.number(`SELECT count(*) FROM bulk`) // all of it, as far as the bound below needs to know
	l := c.work(1)
	var began, noted, had atomic.Int64
	part := make(chan struct{})
	first := &watched{c: c, partBytes: 8 << 10, noted: func(engine.LoadedTable) {}, resumed: func(engine.Set) {}}
	first.load = func(ctx context.Context, m engine.Mover, id string, t *engine.MoveTable, of engine.Part, rows io.Reader) (int64, error) {
		if t.Name != "bulk" {
			return m.Load(ctx, id, t, of, rows)
		}
		if began.Add(1) > 4 {
			began.Add(-1)
			<-ctx.Done()
			return 0, ctx.Err()
		}
		n, err := m.Load(ctx, id, t, of, rows)
		if err != nil { // the next try gets its turn
			began.Add(-1)
			return n, err
		}
		had.Add(n)
		if noted.Add(1) == 4 {
			close(part)
		}
		return n, nil
	}
	stop := first.lead("first")
	c.move(admin.MoveRequest{ID: "m", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}})
	<-part
	stop()
	change := func(n int) {
		c.exec(fmt.Sprintf(`UPDATE bulk SET body = 'changed %d' WHERE n < %d AND n %% 50 = %d`, n, rows, n), fmt.Sprintf(`UPDATE bulk SET n = n + 100000 WHERE n < %d AND n %% 100 = %d`, rows, 10+n),
			fmt.Sprintf(`DELETE FROM bulk WHERE n < %d AND n %% 100 = %d`, rows, 20+n), fmt.Sprintf(`INSERT INTO bulk SELECT tenant, 10000 + id + %d, 'new' FROM account`, 1000*n))
	}
	change(1)
	var again, others atomic.Int64
	beforeView, beforeLoad := sync.OnceFunc(func() { change(2) }), sync.OnceFunc(func() { change(3) })
	second := &watched{c: c, partBytes: 8 << 10, noted: func(engine.LoadedTable) {}, resumed: func(engine.Set) { beforeView() }}
	second.load = func(ctx context.Context, m engine.Mover, id string, t *engine.MoveTable, of engine.Part, rows io.Reader) (int64, error) {
		beforeLoad()
		n, err := m.Load(ctx, id, t, of, rows)
		if t.Name == "bulk" && of.Changed != "" {
			again.Add(n)
		} else if t.Name == "bulk" {
			others.Add(n)
		}
		return n, err
	}
	second.lead("second")
	w := c.await("m", "done")
	c.history(w)
	l.end()
	if l.failed.Load() > 0 {
		t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
	}
	touched := int64(2*(rows/50+rows/100) + 2*tenants*accounts)
	if had.Load() == 0 || again.Load() > touched || had.Load()+others.Load() > int64(moved)+touched {
		t.Errorf("%d rows were kept, %d changed ones and %d others were copied, of %d of which %d were touched", had.Load(), again.Load(), others.Load(), moved, touched)
	}
	if text := told(w); !strings.Contains(text, fmt.Sprintf("the copy of table public.bulk went on after %d rows", had.Load())) || !strings.Contains(text, "both copies have the same") {
		t.Errorf("it does not say what it did:\n%s", text)
	}
	if n := c.number(`SELECT count(*) FROM bulk`); n != rows-3*rows/100+3*tenants*accounts {
		t.Errorf("%d rows", n)
	}
	c.clean()
}
