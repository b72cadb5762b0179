package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
)

// leaves applies changes as for a table of which only some parts were loaded.
type leaves struct{ engine.Applier }

func (l leaves) Change(ctx context.Context, c *engine.Change) error {
	switch c.Op {
	case engine.ChangeInsert:
		return nil
	case engine.ChangeUpdate, engine.ChangeDelete:
		return l.Applier.Change(ctx, &engine.Change{Op: engine.ChangeLeave, Table: c.Table, Old: c.Old})
	}
	return l.Applier.Change(ctx, c)
}

// leaveTo applies the changes up to a position as [leaves].
func (m *move) leaveTo(until engine.Position) {
	m.t.Helper()
	a, err := m.dst.Apply(m.ctx(), m.id, m.set)
	m.must("apply", err)
	at, err := m.dst.Applied(m.ctx(), m.id)
	m.must("applied", err)
	m.must("changes", m.src.Changes(m.ctx(), m.id, m.set, at, until, leaves{a}))
	_, err = a.Flush(m.ctx())
	m.must("flush", err)
	m.must("close", a.Close())
}

// partSize is that of parts: the table has some twenty.
const partSize = 32 << 10

// partsMove is a move of one table whose copy is interrupted.
type partsMove struct {
	*move
	sent, touched int // rows
	writers       *writers
}

// fill writes 400 rows. Some values lie out of line, where an engine has that.
func (m *partsMove) fill() {
	m.t.Helper()
	m.from.do(`BEGIN`)
	for n := range 400 {
		size := 1000
		if n%36 == 3 {
			size = 12000
		}
		var b strings.Builder
		for b.Len() < size {
			fmt.Fprintf(&b, "%016x", rand.Uint64())
		}
		m.from.do(fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, %d, '%s', %d)`, 100+n/4, -1-n%4, b.String(), n))
	}
	m.from.do(`COMMIT`)
}

// pour loads parts: all of them, or each second.
func (m *partsMove) pour(view engine.RowSource, list []engine.Part, all bool) {
	m.t.Helper()
	for i, part := range list {
		if i%2 == 1 && !all {
			continue
		}
		if i%8 == 0 {
			m.write()
		}
		var b bytes.Buffer
		m.must("rows", view.Rows(m.ctx(), 0, part, inPieces(i), &b))
		n, err := m.dst.Load(m.ctx(), m.id, &m.set.Tables[0], part, &b)
		m.must("load", err)
		m.sent += int(n)
	}
}

// change touches some rows.
func (m *partsMove) change() {
	m.t.Helper()
	for range 12 {
		k, id := 100+rand.IntN(100), -1-rand.IntN(4)
		m.from.do(fmt.Sprintf(`UPDATE "Row s" SET n = n + 1 WHERE "the key" = %d AND id BETWEEN -4 AND -1`, k),
			fmt.Sprintf(`DELETE FROM "Row s" WHERE "the key" = %d AND id = %d`, 100+rand.IntN(100), id),
			fmt.Sprintf(`UPDATE "Row s" SET id = id - 100 WHERE "the key" = %d AND id = %d`, 100+rand.IntN(100), id),
			fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, %d, 'new', 0)`, k, 1000000+rand.IntN(1<<30)))
		m.touched += 7
	}
}

// open begins a transaction that ends some time after.
func (m *partsMove) open(k int) (ended chan struct{}) {
	m.t.Helper()
	c := connect(m.t, m.source)
	c.do(`BEGIN`, fmt.Sprintf(`UPDATE "Row s" SET n = 77 WHERE "the key" = %d AND id = -1`, k), `SAVEPOINT a`, fmt.Sprintf(`UPDATE "Row s" SET n = 78 WHERE "the key" = %d AND id = -1`, k), `RELEASE a`)
	m.touched++
	ended = make(chan struct{})
	go func() { // some engines wait for it before they have a view
		defer close(ended)
		c.do(`COMMIT`)
	}()
	return ended
}

// again goes on with the copy, to its end or not.
func (m *partsMove) again(k int, toEnd bool) {
	m.t.Helper()
	list, err := m.dst.Loaded(m.ctx(), m.id)
	m.must("loaded", err)
	if len(list) != 1 || len(list[0].Parts) == 0 || list[0].Rows == 0 || list[0].Bytes == 0 {
		m.t.Fatalf("noted: %+v", list)
	}
	ended := m.open(k)
	m.write()
	view, err := m.src.CaptureRows(m.ctx(), m.id, m.set)
	m.must("capture rows", err)
	m.change()
	parts, err := view.Parts(m.ctx(), 0, partSize, list[0].Parts)
	m.must("divide", err)
	m.write()
	m.leaveTo(view.Position())
	m.must("set applied", m.dst.SetApplied(m.ctx(), m.id, view.Position()))
	m.pour(view, parts, toEnd)
	m.must("close", view.Close())
	<-ended
	m.change()
}

// runMoveParts: a copy of one table is interrupted thrice, while rows change: in parts that are loaded and in others, by sessions that are in
// the middle of a transaction when a view is taken. No row that did not change is read twice.
func runMoveParts(t *testing.T, h MoverHarness) {
	m := &partsMove{move: newMove(t, h, plainTable)}
	m.fill()
	m.interrupted(t)
	m.follow()
	m.equal()
	if most := 400 + m.touched; m.sent > most {
		t.Errorf("%d rows were sent, of 400 of which %d were touched", m.sent, m.touched)
	}
}

// writesAtATime bounds what the writers do in one step of a copy: else they do more the slower the machine is, and the copy never overtakes them.
const writesAtATime = 20

// write lets the writers write beside what follows.
func (m *partsMove) write() {
	if m.writers != nil {
		m.writers.allow(writesAtATime)
	}
}

// runMovePartsWritten is runMoveParts with writers that write beside each of its steps.
func runMovePartsWritten(t *testing.T, h MoverHarness) {
	m := &partsMove{move: newMove(t, h, plainTable, otherTable)}
	m.set.Tables = m.set.Tables[:1]
	m.fill()
	w := &writers{allowed: make(chan struct{}, 100*writesAtATime)}
	m.writers = w
	w.start(m.move, 3)
	m.write()
	w.awaitWrites(t, writesAtATime/2)
	m.interrupted(t)
	m.write()
	w.awaitWrites(t, writesAtATime/2)
	w.end(t)
	m.follow()
	m.equal()
}

// interrupted copies the table in four tries.
func (m *partsMove) interrupted(t *testing.T) {
	t.Helper()
	m.begin(false)
	m.change()
	for round := range 3 {
		m.again(100+round, round == 2)
	}
	m.must("set loaded", m.dst.SetLoaded(m.ctx(), m.id, engine.LoadedTable{Schema: "public", Name: "Row s", Rows: 400, Bytes: 1}))
	list, err := m.dst.Loaded(m.ctx(), m.id)
	m.must("loaded", err)
	if len(list) != 1 || list[0].Parts != nil {
		t.Errorf("a table that is whole is noted as %+v", list)
	}
}

// begin captures the table and loads some of its parts, or all.
func (m *partsMove) begin(all bool) {
	m.t.Helper()
	view, err := m.src.Capture(m.ctx(), m.id, m.set)
	m.must("capture", err)
	m.must("set applied", m.dst.SetApplied(m.ctx(), m.id, view.Position()))
	parts, err := view.Parts(m.ctx(), 0, partSize, nil)
	m.must("divide", err)
	if len(parts) < 8 || parts[0].Since == "" {
		m.t.Fatalf("%d parts, the first is %+v", len(parts), parts[0])
	}
	m.pour(view, parts, all)
	m.must("close", view.Close())
}

// runMovePartsGrown: a table has grown by the time its copy goes on. What is new is divided too.
func runMovePartsGrown(t *testing.T, h MoverHarness) {
	m := &partsMove{move: newMove(t, h, plainTable)}
	m.fill()
	m.begin(true)
	for n := range 200 {
		m.from.do(fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, %d, '%s', 0)`, 100+n/4, 5000+n, strings.Repeat("new ", 250)))
	}
	list, err := m.dst.Loaded(m.ctx(), m.id)
	m.must("loaded", err)
	view, err := m.src.CaptureRows(m.ctx(), m.id, m.set)
	m.must("capture rows", err)
	parts, err := view.Parts(m.ctx(), 0, partSize, list[0].Parts)
	m.must("divide", err)
	if more := len(parts) - len(list[0].Parts); more < 4 {
		t.Errorf("%d rows that are new are in %d parts", 200, more)
	}
	m.leaveTo(view.Position())
	m.must("set applied", m.dst.SetApplied(m.ctx(), m.id, view.Position()))
	m.pour(view, parts, true)
	m.must("close", view.Close())
	m.must("set loaded", m.dst.SetLoaded(m.ctx(), m.id, engine.LoadedTable{Schema: "public", Name: "Row s", Rows: 600, Bytes: 1}))
	same(t, "rows that were sent", m.sent, 600)
	m.follow()
	m.equal()
}

// runMovePartsOlder: a leader that knows parts takes them over. One that does not may have purged their rows: after it they are forgotten.
func runMovePartsOlder(t *testing.T, h MoverHarness) {
	m := &partsMove{move: newMove(t, h, plainTable)}
	m.fill()
	m.must("seize", mover(t, m.target, 5).Seize(m.ctx()))
	m.dst = mover(t, m.target, 5)
	m.begin(false)
	noted := func(token uint64) int {
		m.dst = mover(t, m.target, token)
		m.must("seize", m.dst.Seize(m.ctx()))
		list, err := m.dst.Loaded(m.ctx(), m.id)
		m.must("loaded", err)
		return len(list)
	}
	same(t, "tables noted for the same leader", noted(5), 1)
	same(t, "tables noted for the next leader", noted(6), 1)
	h.OlderSeizes(t, m.urls[1], 7)
	same(t, "tables noted after an older leader", noted(8), 0)
	same(t, "tables noted for the one after that", noted(9), 0)
}

// runMoveLeave: a row that a change lets leave need not be there. One with its key that is not of the set stays.
func runMoveLeave(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable)
	m.to.do(`INSERT INTO other VALUES (5500, 1)`)
	a, err := m.dst.Apply(m.ctx(), m.id, m.set)
	m.must("apply", err)
	m.must("change", a.Change(m.ctx(), putOther("110", "1")))
	for _, k := range []string{"110", "120", "5500"} {
		m.must("leave", a.Change(m.ctx(), &engine.Change{Op: engine.ChangeLeave, Old: []engine.Text{{String: k}}}))
	}
	m.must("commit", a.Commit(m.ctx(), m.here()))
	_, err = a.Flush(m.ctx())
	m.must("flush", err)
	m.must("close", a.Close())
	same(t, "rows that are left", len(m.to.do(`SELECT k FROM other WHERE k = 5500`).all('D')), 1)
	same(t, "rows of the set that are left", len(m.rows(m.to, 0)), 0)
}
