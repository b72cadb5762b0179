package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

// writers write to the source until they are refused for what moves, and remember
// what was acknowledged.
type writers struct {
	wg      sync.WaitGroup
	mu      sync.Mutex
	failed  error
	refused int
	written int
	// last is the acknowledged value of each key of the table other; 0 is none.
	last map[int]int
	stop chan struct{}
	// allowed has a token for each write that they may do; nil: any number.
	allowed chan struct{}
}

// start makes n writers, each with keys of its own, most of them in the set.
func (w *writers) start(m *move, n int) {
	w.last, w.stop = map[int]int{}, make(chan struct{})
	for i := range n {
		c := connect(m.t, m.source)
		w.wg.Go(func() {
			if err := w.write(c, rand.New(rand.NewPCG(20261122, uint64(i))), i, n); err != nil {
				w.mu.Lock()
				w.failed = errors.Join(w.failed, fmt.Errorf("writer %d: %w", i, err))
				w.mu.Unlock()
			}
		})
	}
}

func (w *writers) write(c *talk, r *rand.Rand, i, n int) error {
	mine := map[int]int{}
	for serial := 1; ; serial++ {
		if !w.goesOn() {
			return nil
		}
		k := 95 + r.IntN(110)
		k -= k%n - i
		var sqls []string
		next := serial
		switch r.IntN(7) {
		case 0:
			sqls, next = []string{fmt.Sprintf(`DELETE FROM other WHERE k = %d`, k)}, 0
		case 1:
			sqls = []string{`BEGIN`, fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, %d, '%s', 0)`, k, serial, strings.Repeat("x", r.IntN(300))), `COMMIT`}
			next = mine[k]
		case 2:
			sqls, next = []string{`BEGIN`, fmt.Sprintf(`UPDATE other SET v = v + 1 WHERE k = %d`, k), `ROLLBACK`}, mine[k]
		case 3:
			sqls, next = []string{fmt.Sprintf(`UPDATE "Row s" SET v = 'u', n = n + 1 WHERE "the key" = %d`, k)}, mine[k]
		case 4: // parts of transactions
			sqls, next = []string{`BEGIN`, fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, %d, 'a', 0)`, k, serial), `SAVEPOINT a`, fmt.Sprintf(`UPDATE "Row s" SET n = n + 1 WHERE "the key" = %d`, k), `RELEASE a`,
				`SAVEPOINT b`, fmt.Sprintf(`DELETE FROM "Row s" WHERE "the key" = %d`, k), `ROLLBACK TO b`, `COMMIT`}, mine[k]
		default:
			sqls = []string{fmt.Sprintf(`INSERT INTO other VALUES (%d, %d) ON CONFLICT (k) DO UPDATE SET v = %d`, k, serial, serial)}
		}
		var failed *sqlstate.Error
		for _, sql := range sqls {
			if failed = c.query(sql).err(); failed != nil {
				break
			}
		}
		if failed != nil {
			if len(sqls) > 1 {
				_ = c.query(`ROLLBACK`)
			}
			if failed.Code != sqlstate.NotOwner {
				return failed
			}
			w.mu.Lock()
			w.refused++
			w.mu.Unlock()
			time.Sleep(time.Millisecond)
			continue
		}
		mine[k] = next
		w.mu.Lock()
		w.written++
		w.last[k] = next
		w.mu.Unlock()
	}
}

// goesOn waits until a writer may write, and reports whether it is to.
func (w *writers) goesOn() bool {
	if w.allowed == nil {
		select {
		case <-w.stop:
			return false
		default:
			return true
		}
	}
	select {
	case <-w.stop:
		return false
	case <-w.allowed:
		return true
	}
}

// allow lets them do n more writes.
func (w *writers) allow(n int) {
	for range n {
		w.allowed <- struct{}{}
	}
}

// awaitWrites returns how many writes were acknowledged, after n more than there are now.
func (w *writers) awaitWrites(t testing.TB, n int) int {
	t.Helper()
	written := func() (int, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.written, w.failed
	}
	from, _ := written()
	waitfor.True(t, fmt.Sprintf("%d writes are acknowledged", n), func() bool {
		now, err := written()
		return now >= from+n || err != nil
	})
	now, _ := written()
	return now
}

func (w *writers) end(t testing.TB) {
	t.Helper()
	close(w.stop)
	w.wg.Wait()
	if w.failed != nil {
		t.Fatal(w.failed)
	}
}

// runMoveConcurrent moves a set while it is written to, from the capture to the
// fence, and compares with what the writers were told.
func runMoveConcurrent(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable, plainTable)
	for k := range 1000 {
		m.from.do(fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, 0, 'before', 1)`, k))
	}
	w := &writers{}
	w.start(m, 4)
	w.awaitWrites(t, 20)
	m.copy(2)
	copied := w.awaitWrites(t, 0)
	for range 3 {
		m.follow()
		w.awaitWrites(t, 10)
	}
	// The stream goes on over the fence, as it does in a move.
	ctx, cancel := context.WithCancel(m.ctx())
	a, err := m.dst.Apply(ctx, m.id, m.set)
	m.must("apply", err)
	at, err := m.dst.Applied(ctx, m.id)
	m.must("applied", err)
	streamed := make(chan error, 1)
	go func() { streamed <- m.src.Changes(ctx, m.id, m.set, at, "", a) }()
	w.awaitWrites(t, 20)
	var narrow []engine.Guard
	for _, table := range m.set.Tables {
		owned := owns(4, 0, 100)
		owned.Intervals = append(owned.Intervals, owns(4, 200, 1000).Intervals...)
		narrow = append(narrow, engine.Guard{Schema: "public", Table: table.Name, ShardKey: table.ShardKey, Owned: owned})
	}
	fence, err := m.src.Fence(m.ctx(), narrow)
	m.must("fence", err)
	waitfor.True(t, "a write is refused", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.refused > 0 || w.failed != nil
	})
	cancel()
	if err := <-streamed; !errors.Is(err, context.Canceled) {
		t.Fatalf("the stream ended with %v", err)
	}
	m.must("close", a.Close())
	m.must("drain", m.followTo(fence))
	m.equal() // writers go on, but not in the set
	w.end(t)
	m.equal()
	t.Logf("%d writes, %d until the copy's end, %d refused", w.written, copied, w.refused)
	for k := 100; k < 200; k++ {
		want := []string(nil)
		if v := w.last[k]; v > 0 {
			want = []string{fmt.Sprintf("%d|%d", k, v)}
		}
		same(t, fmt.Sprintf("key %d", k), m.to.do(fmt.Sprintf(`SELECT k, v FROM other WHERE k = %d`, k)).rows(), want)
	}
	// Over to the other side: the target's guards are opened, changes flow back.
	back := m.id + "_b"
	var wide []engine.Guard
	for _, table := range m.set.Tables {
		wide = append(wide, engine.Guard{Schema: "public", Table: table.Name, ShardKey: table.ShardKey, Owned: owns(5, 100, 200)})
	}
	_, err = m.dst.CaptureChanges(m.ctx(), back, m.set)
	m.must("capture of reverse replication", err)
	start, err := m.dst.Here(m.ctx())
	m.must("here", err)
	m.must("reverse replication", m.src.SetApplied(m.ctx(), back, start))
	_, err = m.dst.Fence(m.ctx(), wide)
	m.must("open", err)
	m.to.do(`INSERT INTO "Row s" VALUES (150, 77777, 'there', 1)`, `DELETE FROM other WHERE k < 150`, `UPDATE "Row s" SET v = 'now' WHERE id = 0`)
	there := &move{t: t, h: h, src: m.dst, dst: m.src, from: m.to, to: m.from, set: m.set, id: back}
	there.follow()
	there.equal()
	if n := m.from.do(`SELECT k FROM other WHERE k >= 100 AND k < 150`).rows(); len(n) > 0 {
		t.Fatalf("deleted on the target, still on the source: %q", n)
	}
}

// runMoveCrash kills servers in the middle of each step.
func runMoveCrash(t *testing.T, h MoverHarness) {
	setup := func(t *testing.T) *move {
		m := newMove(t, h, otherTable)
		for k := 0; k < 1000; k += 10 {
			m.from.do(fmt.Sprintf(`INSERT INTO other SELECT %d + d, 1 FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS x(d)`, k))
		}
		return m
	}
	restart := func(m *move, which int) {
		m.t.Helper()
		h.Restart(m.t, m.urls[which])
		m.connect()
	}
	t.Run("while rows are read", func(t *testing.T) {
		m := setup(t)
		view, err := m.src.Capture(m.ctx(), m.id, m.set)
		m.must("capture", err)
		restart(m, 0)
		if err := view.Rows(m.ctx(), 0, engine.Part{}, nil, io.Discard); err == nil {
			t.Fatal("a view outlives its server")
		}
		_ = view.Close()
		m.copy(1) // from the beginning
		m.from.do(`UPDATE other SET v = 2`)
		m.follow()
		m.equal()
	})
	t.Run("while rows are loaded", func(t *testing.T) {
		m := setup(t)
		r, w := io.Pipe()
		loaded := make(chan error, 1)
		go func() {
			_, err := m.dst.Load(m.ctx(), m.id, &m.set.Tables[0], engine.Part{}, r)
			r.CloseWithError(errors.New("the load has ended"))
			loaded <- err
		}()
		for k := range 50 {
			if _, err := fmt.Fprintf(w, "%d\t1\n", 100+k); err != nil {
				t.Fatal(err)
			}
		}
		restart(m, 1)
		w.Close()
		if err := <-loaded; err == nil {
			t.Fatal("the load outlives its server")
		}
		for n := 10; n == 10; {
			var err error
			n, err = m.dst.Purge(m.ctx(), m.set, 10)
			m.must("purge", err)
		}
		m.copy(1)
		m.equal()
	})
	t.Run("while changes are read and applied", func(t *testing.T) {
		m := setup(t)
		m.copy(1)
		for round := range 4 {
			for i := range 300 {
				m.from.do(fmt.Sprintf(`UPDATE other SET v = v + 1 WHERE k = %d`, 100+(i*7+round)%100))
			}
			a, err := m.dst.Apply(m.ctx(), m.id, m.set)
			m.must("apply", err)
			at, err := m.dst.Applied(m.ctx(), m.id)
			m.must("applied", err)
			killed := &killing{Applier: a, after: 50 + 60*round, kill: func() { restart(m, round%2) }}
			err = m.src.Changes(m.ctx(), m.id, m.set, at, "", killed)
			if err == nil {
				t.Fatal("nothing was noticed")
			}
			_ = a.Close()
		}
		m.follow()
		m.equal()
	})
	t.Run("between the steps", func(t *testing.T) {
		m := setup(t)
		m.copy(1)
		began, err := m.dst.Applied(m.ctx(), m.id)
		m.must("applied", err)
		m.from.do(`UPDATE other SET v = 3`)
		want := m.record(began, m.here()).texts()
		restart(m, 0)
		same(t, "changes after a crash", fmt.Sprint(m.record(began, m.here()).texts()), fmt.Sprint(want))
		fence, err := m.src.Fence(m.ctx(), []engine.Guard{{Schema: "public", Table: "other", ShardKey: []string{"k"}, Owned: owns(4, 0, 100)}})
		m.must("fence", err)
		restart(m, 0)
		m.from.refused(`UPDATE other SET v = 4 WHERE k = 150`, sqlstate.NotOwner)
		m.must("drain", m.followTo(fence))
		restart(m, 1)
		m.equal()
		n, err := m.src.Purge(m.ctx(), m.set, 40)
		m.must("purge", err)
		same(t, "purged", n, 40)
		restart(m, 0)
		n, err = m.src.Purge(m.ctx(), m.set, 100)
		m.must("purge", err)
		same(t, "purged", n, 60)
		ids, err := m.src.Captures(m.ctx())
		m.must("captures", err)
		same(t, "captures", ids, []string{m.id})
	})
}

// killing calls kill after so many changes.
type killing struct {
	engine.Applier
	after int
	kill  func()
}

func (k *killing) Change(ctx context.Context, c *engine.Change) error {
	if k.after--; k.after == 0 {
		k.kill()
	}
	return k.Applier.Change(ctx, c)
}

// runMoveInterrupted: a copy ends when one table is there and another in part. It goes on with what is
// not there, as of a later moment, while all tables change.
func runMoveInterrupted(t *testing.T, h MoverHarness) {
	m := newMove(t, h, plainTable, otherTable)
	for k := 100; k < 150; k++ {
		m.from.do(fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, 1, 'a', 1)`, k), fmt.Sprintf(`INSERT INTO other VALUES (%d, 1)`, k))
	}
	// both changes keys in both tables, the other first.
	both := func(k int) {
		t.Helper()
		m.from.do(`BEGIN`, fmt.Sprintf(`UPDATE other SET v = v + 1 WHERE k = %d`, k), fmt.Sprintf(`UPDATE "Row s" SET n = n + 1 WHERE "the key" = %d`, k),
			fmt.Sprintf(`INSERT INTO other VALUES (%d, 2)`, k+50), `COMMIT`, fmt.Sprintf(`DELETE FROM other WHERE k = %d`, k+1), fmt.Sprintf(`DELETE FROM "Row s" WHERE "the key" = %d`, k+1))
	}
	first, err := m.src.Capture(m.ctx(), m.id, m.set)
	m.must("capture", err)
	m.must("set applied", m.dst.SetApplied(m.ctx(), m.id, first.Position()))
	m.must("load", m.pour(m.ctx(), first, 0, engine.Part{}, 0))
	there := engine.LoadedTable{Schema: "public", Name: "Row s", Rows: 50, Bytes: 1 << 40}
	m.must("set loaded", m.dst.SetLoaded(m.ctx(), m.id, there))
	_, err = m.dst.Load(m.ctx(), m.id, &m.set.Tables[1], engine.Part{}, strings.NewReader("100\t1\n101\t1\n"))
	m.must("load", err)
	m.must("close", first.Close())
	both(100)

	// Who has a load under way cannot end it any more.
	r, w := io.Pipe()
	loaded := make(chan error, 1)
	go func() {
		_, err := m.dst.Load(m.ctx(), m.id, &m.set.Tables[1], engine.Part{}, r)
		r.CloseWithError(errors.New("the load has ended"))
		loaded <- err
	}()
	_, err = fmt.Fprint(w, "199\t1\n")
	m.must("write", err)
	list, err := m.dst.Loaded(m.ctx(), m.id)
	m.must("loaded", err)
	same(t, "loaded", list, []engine.LoadedTable{there})
	w.Close()
	if err := <-loaded; err == nil {
		t.Fatal("a load went on that was to be ended")
	}

	done, rest := *m, *m
	done.set.Tables, rest.set.Tables = m.set.Tables[:1], m.set.Tables[1:]
	for n := 10; n == 10; {
		n, err = m.dst.Purge(m.ctx(), rest.set, 10)
		m.must("purge", err)
	}
	both(102)
	m.from.do(`BEGIN`, `SET LOCAL cleave.guard_epoch = '3'`, `TRUNCATE "Row s"`, `INSERT INTO "Row s" VALUES (104, 2, 'b', 1), (107, 3, 'c', 1)`, `COMMIT`)
	later, err := m.src.CaptureRows(m.ctx(), m.id, rest.set)
	m.must("capture rows", err)
	both(104)
	m.must("follow", done.followTo(later.Position()))
	same(t, "the table that was there", m.to.do(`SELECT "the key", n FROM "Row s" ORDER BY 1`).rows(), []string{"104|1", "107|1"})
	m.must("set applied", m.dst.SetApplied(m.ctx(), m.id, later.Position()))
	rest.load(later, 2)
	m.must("close", later.Close())
	both(106)
	m.follow()
	m.equal()

	m.must("release", m.dst.Release(m.ctx(), m.id))
	list, err = m.dst.Loaded(m.ctx(), m.id)
	m.must("loaded", err)
	same(t, "loaded, released", len(list), 0)
	m.must("release", m.src.Release(m.ctx(), m.id))
	_, err = m.src.CaptureRows(m.ctx(), m.id, rest.set)
	m.code("rows of no capture", err, sqlstate.ObjectNotInState)
}
