package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

func putOther(k, v string) *engine.Change {
	return &engine.Change{Op: engine.ChangeInsert, New: []engine.Text{{String: k}, {String: v}}}
}

func runMoveOneApplier(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable)
	at := m.here()
	ended := func(what string, a engine.Applier, err error) {
		t.Helper()
		if err == nil {
			err = a.Change(m.ctx(), putOther("120", "1"))
		}
		if err == nil {
			err = a.Commit(m.ctx(), at)
		}
		if err == nil {
			_, err = a.Flush(m.ctx())
		}
		if err == nil {
			t.Fatalf("%s: the applier goes on", what)
		}
		m.must("close", a.Close())
		same(t, what, len(m.rows(m.to, 0)), 0)
	}
	a, err := m.dst.Apply(m.ctx(), m.id, m.set)
	m.must("apply", err)
	m.must("change", a.Change(m.ctx(), putOther("110", "1")))
	b, err := m.dst.Apply(m.ctx(), m.id, m.set)
	m.must("second apply", err)
	ended("a second applier", a, nil)
	// Another program's: its mover is not ours.
	c, err := mover(t, h.at(t, m.urls[1], Cluster, "shard-1"), 1).Apply(m.ctx(), m.id, m.set)
	m.must("third apply", err)
	ended("an applier elsewhere", b, nil)
	m.must("set applied", m.dst.SetApplied(m.ctx(), m.id, at))
	ended("a position was set", c, nil)
	d, err := m.dst.Apply(m.ctx(), m.id, m.set)
	m.must("apply", err)
	m.must("release", m.dst.Release(m.ctx(), m.id))
	ended("released", d, nil)

	e, err := m.dst.Apply(m.ctx(), m.id, m.set)
	m.must("apply", err)
	m.must("change", e.Change(m.ctx(), putOther("130", "1")))
	m.must("commit", e.Commit(m.ctx(), at))
	got, err := e.Flush(m.ctx())
	m.must("flush", err)
	same(t, "flushed", got, at)
	// What is given after the last Commit is rolled back.
	m.must("change", e.Change(m.ctx(), putOther("131", "1")))
	m.must("close", e.Close())
	same(t, "rows", m.rows(m.to, 0), []string{"130|1"})
	// Without a Flush it commits by itself.
	f, err := m.dst.Apply(m.ctx(), m.id, m.set)
	m.must("apply", err)
	m.must("change", f.Change(m.ctx(), putOther("132", "1")))
	m.must("commit", f.Commit(m.ctx(), at))
	for end := time.Now().Add(20 * time.Second); len(m.rows(m.to, 0)) != 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a transaction stays uncommitted for 20 s")
		}
	}
	m.must("close", f.Close())
}

func runMoveTokens(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable)
	old, young := mover(t, m.target, 5), mover(t, m.target, 6)
	m.must("seize", old.Seize(m.ctx()))
	m.must("seize again", old.Seize(m.ctx()))
	at := m.here()
	m.must("set applied", old.SetApplied(m.ctx(), m.id, at))
	a, err := old.Apply(m.ctx(), m.id, m.set)
	m.must("apply", err)
	m.must("change", a.Change(m.ctx(), putOther("110", "1")))
	_, err = a.Flush(m.ctx())
	m.must("flush", err)
	m.must("seize", young.Seize(m.ctx()))

	err = a.Commit(m.ctx(), at)
	if err == nil {
		_, err = a.Flush(m.ctx())
	}
	if err == nil {
		t.Fatal("a deposed leader's applier commits")
	}
	m.must("close", a.Close())
	guard := engine.Guard{Schema: "public", Table: "other", ShardKey: []string{"k"}, Owned: owns(9, 0, 9000)}
	for what, do := range map[string]func() error{
		"seize":       func() error { return old.Seize(m.ctx()) },
		"fence":       func() error { _, err := old.Fence(m.ctx(), []engine.Guard{guard}); return err },
		"purge":       func() error { _, err := old.Purge(m.ctx(), m.set, 10); return err },
		"set applied": func() error { return old.SetApplied(m.ctx(), m.id, at) },
		"capture": func() error {
			view, err := old.Capture(m.ctx(), "another", m.set)
			if err == nil {
				err = view.Close()
				m.t.Errorf("a deposed leader captures")
			}
			return err
		},
		"capture changes": func() error { _, err := old.CaptureChanges(m.ctx(), "another", m.set); return err },
		"release":         func() error { return old.Release(m.ctx(), m.id) },
		"load": func() error {
			_, err := old.Load(m.ctx(), m.id, &m.set.Tables[0], engine.Part{}, strings.NewReader("111\t1\n"))
			return err
		},
		"apply": func() error {
			a, err := old.Apply(m.ctx(), m.id, m.set)
			if err == nil {
				_ = a.Close()
			}
			return err
		},
	} {
		m.code(what, do(), sqlstate.ObjectNotInState)
	}
	same(t, "rows", m.to.do(`SELECT * FROM other`).rows(), []string(nil))
	got, err := young.Applied(m.ctx(), m.id)
	m.must("applied", err)
	same(t, "applied", got, at)
	m.dst = young // which cleans up
	m.must("set applied", young.SetApplied(m.ctx(), m.id, at))
	m.t.Cleanup(func() { m.clean(young) })
}

func runMoveFence(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable, plainTable)
	var narrow []engine.Guard
	for _, table := range m.set.Tables {
		owned := owns(4, 0, 100)
		owned.Intervals = append(owned.Intervals, owns(4, 200, 1000).Intervals...)
		narrow = append(narrow, engine.Guard{Schema: "public", Table: table.Name, ShardKey: table.ShardKey, Owned: owned})
	}
	writer := connect(t, m.source)
	began, err := m.src.CaptureChanges(m.ctx(), m.id, m.set)
	m.must("capture", err)
	open := map[string]string{"a writer": `INSERT INTO other VALUES (%d, 1)`}
	if len(h.Isolation) > 1 { // engines with row locks
		writer.do(`INSERT INTO other VALUES (110, 1)`)
		open["a row lock"] = `SELECT * FROM other WHERE k = 110 AND k < %d FOR UPDATE`
	}
	k := 110
	for what, sql := range open {
		k++
		writer.do(`BEGIN`, fmt.Sprintf(sql, k))
		ctx, cancel := context.WithTimeout(m.ctx(), 700*time.Millisecond)
		start := time.Now()
		_, err := m.src.Fence(ctx, narrow)
		cancel()
		m.code(what, err, sqlstate.LockNotAvailable)
		if d := time.Since(start); d > 5*time.Second {
			t.Fatalf("%s: it took %v", what, d)
		}
		writer.do(fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, 1, 'x', 1)`, k), `COMMIT`)
		writer.do(fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, 2, 'x', 1)`, k)) // the guard is what it was
	}
	// It goes on when the writer ends.
	writer.do(`BEGIN`, `INSERT INTO other VALUES (120, 1)`)
	type result struct {
		at  engine.Position
		err error
	}
	done := make(chan result, 1)
	go func() {
		at, err := m.src.Fence(m.ctx(), narrow)
		done <- result{at, err}
	}()
	select {
	case r := <-done:
		t.Fatalf("it did not wait: %+v", r)
	case <-time.After(300 * time.Millisecond):
	}
	writer.do(`INSERT INTO "Row s" VALUES (120, 1, 'x', 1)`, `COMMIT`)
	r := <-done
	m.must("fence", r.err)
	for _, c := range []*talk{writer, m.from} {
		c.refused(`INSERT INTO other VALUES (130, 1)`, sqlstate.NotOwner)
		c.refused(`UPDATE "Row s" SET v = 'y' WHERE "the key" = 120`, sqlstate.NotOwner)
	}
	writer.do(`INSERT INTO other VALUES (230, 1)`)
	// Everything that the old guards let through is before the position.
	all := strings.Join(m.record(began, r.at).texts(), "\n")
	if !strings.Contains(all, "I other new 120 1") || !strings.Contains(all, "I Row s new 120 1") {
		t.Fatalf("the last transaction is not before the fence: %s", all)
	}
	same(t, "after it", len(m.record(r.at, m.here()).all), 0)
	// Again, as after a crash.
	_, err = m.src.Fence(m.ctx(), narrow)
	m.must("fence again", err)
	// All or none.
	wrong := append(slices.Clone(narrow), engine.Guard{Schema: "public", Table: "not there", ShardKey: []string{"k"}, Owned: owns(5, 0, 1)})
	wrong[0].Owned = owns(5, 0, 1000)
	_, err = m.src.Fence(m.ctx(), wrong)
	m.code("a table that is not there", err, sqlstate.UndefinedTable)
	writer.refused(`INSERT INTO other VALUES (131, 1)`, sqlstate.NotOwner)
}

// runMoveOpen widens guards while a transaction is open that has written to the table.
func runMoveOpen(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable)
	opener, ok := m.dst.(engine.Opener)
	if !ok {
		return // its guards are opened by Fence
	}
	writer := connect(t, m.target)
	writer.do(`BEGIN`, `INSERT INTO other VALUES (5000, 1)`)
	wide := owns(5, 100, 200)
	wide.Intervals = append(wide.Intervals, owns(5, 5000, 6000).Intervals...)
	guards := []engine.Guard{{Schema: "public", Table: "other", ShardKey: []string{"k"}, Owned: wide}}
	m.must("open", opener.Open(m.ctx(), guards))
	m.must("open again", opener.Open(m.ctx(), guards))
	m.to.do(`INSERT INTO other VALUES (100, 1), (5001, 1)`)
	m.to.refused(`INSERT INTO other VALUES (300, 1)`, sqlstate.NotOwner)
	writer.do(`INSERT INTO other VALUES (5002, 1)`, `COMMIT`, `INSERT INTO other VALUES (101, 1)`)
	tab, err := m.to.DescribeTable(m.ctx(), "public", "other")
	m.must("describe", err)
	if tab.Guard == nil || tab.Guard.Epoch != 5 {
		t.Fatalf("guard %+v", tab.Guard)
	}
	m.to.do(`CREATE TABLE bare (k bigint PRIMARY KEY)`)
	guards[0].Owned, guards = owns(6, 0, 9000), append(guards, engine.Guard{Schema: "public", Table: "bare", ShardKey: []string{"k"}, Owned: wide})
	m.code("a table without a guard", opener.Open(m.ctx(), guards), sqlstate.ObjectNotInState)
	m.to.refused(`INSERT INTO other VALUES (300, 1)`, sqlstate.NotOwner) // all or none
	m.must("seize", mover(t, m.target, 9).Seize(m.ctx()))
	m.code("a deposed leader", opener.Open(m.ctx(), guards[:1]), sqlstate.ObjectNotInState)
	m.dst = mover(t, m.target, 9)
}

func runMovePurge(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable, plainTable)
	for k := 95; k < 205; k++ {
		m.from.do(fmt.Sprintf(`INSERT INTO other VALUES (%d, 1)`, k), fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, 1, 'x', 1)`, k))
	}
	narrow := owns(4, 0, 100) // the rows are a stranger's when they are purged
	setGuard(t, m.from, engine.Guard{Schema: "public", Table: "other", ShardKey: []string{"k"}, Owned: narrow})
	total, rounds := 0, 0
	for {
		n, err := m.src.Purge(m.ctx(), m.set, 30)
		m.must("purge", err)
		if n > 30 {
			t.Fatalf("%d rows were purged, at most 30 were wanted", n)
		}
		total += n
		if rounds++; n < 30 {
			break
		}
	}
	same(t, "purged", total, 200)
	same(t, "rounds", rounds, 7)
	for _, table := range []string{"other", `"Row s"`} {
		same(t, table, m.from.do(`SELECT count(*) FROM `+table).rows(), []string{"10"})
	}
	// Rows that come later are found again.
	wide := owns(5, 0, 1000)
	setGuard(t, m.from, engine.Guard{Schema: "public", Table: "other", ShardKey: []string{"k"}, Owned: wide})
	m.from.do(`INSERT INTO other VALUES (100, 1), (101, 1), (50, 1)`)
	n, err := m.src.Purge(m.ctx(), m.set, 30)
	m.must("purge", err)
	same(t, "purged", n, 2)
	turned := m.set
	turned.Except = true
	if n, err = m.src.Purge(m.ctx(), turned, 1000); n != 21 || err != nil {
		t.Fatalf("purge of all others: %d, %v", n, err)
	}
}

func runMoveSums(t *testing.T, h MoverHarness) {
	m := newMove(t, h, plainTable, otherTable)
	sums, err := m.src.Sums(m.ctx(), m.set, nil)
	m.must("sums", err)
	same(t, "no rows", sums, []engine.Sum{{}, {}})
	rows := [][]string{{"100", "1", "~", "~"}, {"101", "1", "", "0.50"}, {"150", "-7", "żółw\n", "-3"}}
	var want uint64
	for _, row := range rows {
		line, values := "", make([]string, len(row))
		for i, v := range row {
			values[i] = "'" + v + "'"
			if v == "~" {
				line, values[i] = line+"N", "NULL"
				continue
			}
			line += fmt.Sprintf("%d:%s", len(v), v)
		}
		want += uint64(keyspace.HashKey(0, keyspace.Key{keyspace.Str(keyspace.Text, line)}))
		m.from.do(`INSERT INTO "Row s" VALUES (` + strings.Join(values, ", ") + `)`)
	}
	m.from.do(`INSERT INTO "Row s" VALUES (99, 1, 'x', 1), (200, 1, 'x', 1)`)
	sums, err = m.src.Sums(m.ctx(), m.set, nil)
	m.must("sums", err)
	same(t, "sums", sums, []engine.Sum{{Rows: 3, Checksum: want}, {}})

	for k := 0; k < 1000; k += 10 {
		var values []string
		for i := range 10 {
			values = append(values, fmt.Sprintf("(%d, %d)", k+i, i))
		}
		m.from.do(`INSERT INTO other VALUES ` + strings.Join(values, ", "))
	}
	count, size, err := m.src.Sizes(m.ctx(), m.set)
	m.must("sizes", err)
	if count < 50 || count > 210 || size < 100 || size > 1<<20 {
		t.Fatalf("Sizes of 103 rows: %d rows, %d bytes", count, size)
	}
}

func runMoveView(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable)
	m.from.do(`INSERT INTO other VALUES (100, 1), (500, 1)`)
	began, err := m.src.CaptureChanges(m.ctx(), m.id, m.set)
	m.must("capture", err)
	m.from.do(`INSERT INTO other VALUES (101, 1)`)
	before, err := m.src.Sums(m.ctx(), m.set, nil)
	m.must("sums", err)
	v, err := m.src.View(m.ctx(), m.set)
	m.must("view", err)
	m.from.do(`INSERT INTO other VALUES (102, 1)`, `DELETE FROM other WHERE k = 100`)
	for _, pace := range []engine.Pace{nil, func(context.Context, int64) (int64, error) { return 0, nil }} {
		sums, err := v.Sums(m.ctx(), pace)
		m.must("sums of the view", err)
		same(t, "sums of the view", sums, before)
	}
	m.must("close", v.Close())
	same(t, "before the view", m.record(began, v.Position()).texts(), []string{"[I other new 101 1]"})
	same(t, "after the view", m.record(v.Position(), m.here()).texts(), []string{"[I other new 102 1]", "[D other old 100]"})

	// A capture's view is as fixed.
	s, err := m.src.Capture(m.ctx(), m.id, m.set)
	m.must("capture", err)
	m.from.do(`INSERT INTO other VALUES (103, 1)`, `UPDATE other SET v = 5`)
	for parts := range 3 {
		same(t, "rows of the view", rowsText(t, m.ctx(), s, 0, parts+1), []string{"101\t1", "102\t1"})
	}
	m.must("close", s.Close())
	m.must("close again", s.Close())
	same(t, "after the capture", m.record(s.Position(), m.here()).texts(), []string{"[I other new 103 1]", "[U other old 101 new 101 5; U other old 102 new 102 5; U other old 103 new 103 5]"})
	if err := s.Rows(m.ctx(), 0, engine.Part{}, nil, &bytes.Buffer{}); err == nil {
		t.Fatal("a closed view has rows")
	}
}

func runMoveRelease(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable)
	ids := func() []string {
		t.Helper()
		ids, err := m.src.Captures(m.ctx())
		m.must("captures", err)
		slices.Sort(ids)
		return ids
	}
	same(t, "at first", ids(), []string(nil))
	m.must("release of nothing", m.src.Release(m.ctx(), m.id))
	long := strings.Repeat("aB-_9", 8)
	for _, id := range []string{"A-1", "a_1", "a-1", long} {
		_, err := m.src.CaptureChanges(m.ctx(), id, m.set)
		m.must("capture "+id, err)
	}
	m.must("set applied", m.src.SetApplied(m.ctx(), "applied_only", "1"))
	same(t, "all", ids(), []string{"A-1", "a-1", long, "a_1", "applied_only"})
	m.must("release", m.src.Release(m.ctx(), "a-1"))
	m.must("release", m.src.Release(m.ctx(), "applied_only"))
	m.must("release again", m.src.Release(m.ctx(), "a-1"))
	same(t, "others", ids(), []string{"A-1", long, "a_1"})
	at, err := m.src.Applied(m.ctx(), "applied_only")
	m.must("applied", err)
	same(t, "applied", at, engine.Position(""))

	// While it is in use by somebody else.
	reading, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		r := &recorder{set: m.set}
		once := false
		r.idle = func() {
			if !once {
				close(reading)
			}
			once = true
		}
		stopped <- m.src.Changes(m.ctx(), "A-1", m.set, "", "", r)
	}()
	<-reading
	m.must("release", mover(t, h.at(t, m.urls[0], Cluster, "shard-0"), 1).Release(m.ctx(), "A-1"))
	if err := <-stopped; err == nil {
		t.Fatal("the changes of a released capture go on")
	}
	if err := m.src.Changes(m.ctx(), "A-1", m.set, "", "", &recorder{set: m.set}); err == nil {
		t.Fatal("a released capture has changes")
	}
	same(t, "others", ids(), []string{long, "a_1"})
	// A second reader ends the first.
	reading = make(chan struct{})
	go func() {
		r := &recorder{set: m.set}
		once := false
		r.idle = func() {
			if !once {
				close(reading)
			}
			once = true
		}
		stopped <- m.src.Changes(m.ctx(), "a_1", m.set, "", "", r)
	}()
	<-reading
	m.from.do(`INSERT INTO other VALUES (100, 1)`)
	r := &recorder{set: m.set}
	m.must("changes", mover(t, h.at(t, m.urls[0], Cluster, "shard-0"), 1).Changes(m.ctx(), "a_1", m.set, "", m.here(), r))
	same(t, "changes", r.texts(), []string{"[I other new 100 1]"})
	// A capture again begins anew, also when its view is still open.
	view, err := m.src.Capture(m.ctx(), "a_1", m.set)
	m.must("capture", err)
	second, err := m.src.Capture(m.ctx(), "a_1", m.set)
	m.must("capture again", err)
	<-stopped // with whatever error
	same(t, "rows", rowsText(t, m.ctx(), second, 0, 1), []string{"100\t1"})
	m.must("close", second.Close())
	_ = view.Close() // its connections may be gone
	same(t, "all", ids(), []string{long, "a_1"})
}

func runMoveDefinition(t *testing.T, h MoverHarness) {
	m := newMove(t, h, plainTable, otherTable)
	began, err := m.src.CaptureChanges(m.ctx(), m.id, m.set)
	m.must("capture", err)
	m.from.do(`INSERT INTO other VALUES (100, 1)`, `ALTER TABLE other ADD COLUMN more text`, `INSERT INTO other VALUES (101, 1, 'x')`)
	r := &recorder{set: m.set}
	err = m.src.Changes(m.ctx(), m.id, m.set, began, m.here(), r)
	m.code("a column more", err, sqlstate.ObjectNotInState)
	if e := sqlstate.As(err); e.Table != "other" || e.Schema != "public" {
		t.Fatalf("the error names %q.%q: %v", e.Schema, e.Table, err)
	}
	for _, text := range r.texts() {
		if strings.Contains(text, "101") {
			t.Fatalf("a change after the new column: %s", text)
		}
	}
	// The table is not even written to.
	_, err = m.src.CaptureChanges(m.ctx(), "again", engine.Set{Tables: m.set.Tables[:1], Keys: m.set.Keys})
	m.must("capture", err)
	m.from.do(`DROP TABLE "Row s"`)
	err = m.src.Changes(m.ctx(), "again", engine.Set{Tables: m.set.Tables[:1], Keys: m.set.Keys}, "", m.here(), r)
	m.code("no table", err, sqlstate.ObjectNotInState, sqlstate.UndefinedTable)
	_, err = m.src.Describe(m.ctx(), []engine.MoveTable{{Schema: "public", Name: "Row s", ShardKey: []string{"the key"}}})
	m.code("describe", err, sqlstate.UndefinedTable)
}

func runMoveCheck(t *testing.T, h MoverHarness) {
	m := newMove(t, h, plainTable, otherTable)
	for _, s := range []engine.Mover{m.src, m.dst} {
		findings, err := s.CheckMove(m.ctx(), m.set.Tables)
		m.must("check", err)
		for _, f := range findings {
			if f.Level == "error" {
				t.Errorf("%+v", f)
			}
		}
	}
	same(t, "columns", m.set.Tables[0].Columns, []string{"the key", "id", "v", "n"})
	same(t, "types", m.set.Tables[0].Types, []string{"bigint", "bigint", "text", "numeric"})
	same(t, "identity", m.set.Tables[0].Identity, []string{"the key", "id"})
	ids, err := m.src.Captures(m.ctx())
	m.must("captures", err)
	same(t, "nothing was changed", len(ids), 0)
}
