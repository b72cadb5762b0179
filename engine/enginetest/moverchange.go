package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

func runMoveTypes(t *testing.T, h MoverHarness) {
	columns := append(append([]MoveColumn(nil), moveColumns...), h.Columns...)
	var ddl strings.Builder
	ddl.WriteString(`CREATE TABLE "Alle Typen" (k bigint NOT NULL, id bigint NOT NULL`)
	for i, c := range columns {
		fmt.Fprintf(&ddl, ", \"C %d\" %s", i, c.Type)
	}
	ddl.WriteString(`, PRIMARY KEY (k, id))`)
	m := newMove(t, h, moveTable{"Alle Typen", []string{"k"}, ddl.String()})
	insert := func(k, id int) {
		values := make([]string, len(columns))
		for i, c := range columns {
			values[i] = "NULL"
			if id%5 < 4 {
				values[i] = c.Values[id%len(c.Values)]
			}
		}
		m.from.do(fmt.Sprintf(`INSERT INTO "Alle Typen" VALUES (%d, %d, %s)`, k, id, strings.Join(values, ", ")))
	}
	for id := range 12 {
		insert(100+id%3, id)
		insert(50, id)
	}
	m.copy(3)
	m.equal()
	for id := range 12 {
		insert(150+id%3, id)
		insert(250, id)
	}
	m.follow()
	m.equal()
	for i, c := range columns {
		for j, v := range append(c.Values, "NULL") {
			m.from.do(fmt.Sprintf(`UPDATE "Alle Typen" SET "C %d" = %s WHERE k = %d AND id = %d`, i, v, 100+j%3, j%12))
		}
	}
	m.from.do(`DELETE FROM "Alle Typen" WHERE id = 3`)
	m.follow()
	m.equal()
	if len(m.rows(m.to, 0)) < 15 {
		t.Fatalf("only %d rows were moved", len(m.rows(m.to, 0)))
	}
}

func runMoveChanges(t *testing.T, h MoverHarness) {
	m := newMove(t, h, plainTable, otherTable)
	m.from.do(`INSERT INTO "Row s" VALUES (100, 1, 'a', 1), (99, 1, 'b', 2), (200, 1, 'c', 3)`)
	began, err := m.src.CaptureChanges(m.ctx(), m.id, m.set)
	m.must("capture", err)
	again, err := m.src.CaptureChanges(m.ctx(), m.id, m.set)
	m.must("capture again", err)
	same(t, "where it began", again, began)

	m.from.do(`INSERT INTO "Row s" VALUES (101, 1, NULL, 0.50)`)
	m.from.do(`INSERT INTO "Row s" VALUES (300, 1, 'never', 0)`) // not in the set
	m.from.do(`BEGIN`, `INSERT INTO "Row s" VALUES (102, 1, 'rolled back', 0)`, `ROLLBACK`)
	m.from.do(`BEGIN`, `UPDATE "Row s" SET v = 'x' WHERE "the key" = 100`,
		`SAVEPOINT one`, `INSERT INTO "Row s" VALUES (103, 1, 'rolled back', 0)`, `ROLLBACK TO SAVEPOINT one`,
		`INSERT INTO other VALUES (150, 1)`, `SAVEPOINT two`, `INSERT INTO other VALUES (151, 1)`, `RELEASE SAVEPOINT two`,
		`UPDATE other SET v = 2 WHERE k = 150`, `COMMIT`)
	m.from.do(`UPDATE "Row s" SET id = 2 WHERE "the key" = 101`)
	m.from.do(`UPDATE "Row s" SET "the key" = 105 WHERE "the key" = 101`)
	m.from.do(`UPDATE "Row s" SET "the key" = 106, v = 'in' WHERE "the key" = 99`)
	m.from.do(`UPDATE "Row s" SET "the key" = 201 WHERE "the key" = 105`)
	m.from.do(`DELETE FROM "Row s" WHERE "the key" = 106`)
	m.from.do(`DELETE FROM "Row s" WHERE "the key" = 200`) // not in the set
	m.from.do(`UPDATE "Row s" SET "the key" = 202 WHERE "the key" = 201`)
	m.from.do(`BEGIN`, `SET LOCAL cleave.guard_epoch = '3'`, `TRUNCATE other`, `INSERT INTO other VALUES (199, 7)`, `COMMIT`)
	want := []string{
		"[I Row s new 101 1 ~ 0.50]",
		"[U Row s old 100 1 new 100 1 x 1; I other new 150 1; I other new 151 1; U other old 150 new 150 2]",
		"[U Row s old 101 1 new 101 2 ~ 0.50]",
		"[U Row s old 101 2 new 105 2 ~ 0.50]",
		"[I Row s new 106 1 in 2]",
		"[D Row s old 105 2]",
		"[D Row s old 106 1]",
		"[T other; I other new 199 7]",
	}
	end := m.here()
	got := m.record(began, end)
	same(t, "changes", strings.Join(got.texts(), "\n"), strings.Join(want, "\n"))
	same(t, "changes from the beginning", strings.Join(m.record("", end).texts(), "\n"), strings.Join(want, "\n"))
	same(t, "nothing more", len(m.record(end, m.here()).all), 0)

	for _, c := range []struct {
		at, goal engine.Position
		want     bool
	}{{began, end, false}, {end, began, true}, {end, end, true}, {"", end, false}, {end, "", true}} {
		if m.src.Reached(c.at, c.goal) != c.want {
			t.Fatalf("Reached(%q, %q) is not %v", c.at, c.goal, c.want)
		}
	}
	lag, err := m.src.Lag(m.ctx(), m.id, began)
	m.must("lag", err)
	now, err := m.src.Lag(m.ctx(), m.id, m.here())
	m.must("lag", err)
	if lag <= now || now > 1<<20 {
		t.Fatalf("lag from the beginning %d, from the end %d", lag, now)
	}
	// The sink's error comes back as it is, and the stream can be read again.
	stop := errors.New("enough")
	r := &recorder{set: m.set, fail: stop, after: 3}
	if err := m.src.Changes(m.ctx(), m.id, m.set, began, end, r); !errors.Is(err, stop) {
		t.Fatalf("got %v", err)
	}
	same(t, "changes again", strings.Join(m.record(began, end).texts(), "\n"), strings.Join(want, "\n"))

	// What was forgotten is not asked for again.
	middle := got.all[3].at
	m.must("forget", m.src.Forget(m.ctx(), m.id, middle))
	m.must("forget less", m.src.Forget(m.ctx(), m.id, got.all[1].at))
	same(t, "the rest", strings.Join(m.record(middle, end).texts(), "\n"), strings.Join(want[4:], "\n"))
}

// runMoveRandom makes transactions of all kinds, and follows now and then.
func runMoveRandom(t *testing.T, h MoverHarness) {
	seed := uint64(20261122)
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	m := newMove(t, h, plainTable, otherTable)
	// Keys around both bounds of the set.
	key := func() int { return []int{98, 99, 100, 101, 150, 198, 199, 200, 201}[r.IntN(9)] }
	one := func() string {
		switch r.IntN(9) {
		case 0, 1:
			return fmt.Sprintf(`INSERT INTO "Row s" VALUES (%d, %d, 'v%d', %d.%d) ON CONFLICT DO NOTHING`, key(), r.IntN(6), r.IntN(1000), r.IntN(9), r.IntN(9))
		case 2:
			return fmt.Sprintf(`INSERT INTO other VALUES (%d, %d) ON CONFLICT (k) DO UPDATE SET v = other.v + 1`, key(), r.IntN(9))
		case 3:
			return fmt.Sprintf(`UPDATE "Row s" SET v = 'u%d' WHERE id = %d`, r.IntN(1000), r.IntN(6))
		case 4:
			return fmt.Sprintf(`UPDATE "Row s" SET id = id + 10 + %d WHERE "the key" = %d AND id < 10 AND id = %d`, 10*r.IntN(1000), key(), r.IntN(6))
		case 5:
			a, b := key(), key()
			return fmt.Sprintf(`UPDATE "Row s" SET "the key" = %d WHERE "the key" = %d AND NOT EXISTS (SELECT FROM "Row s" x WHERE x."the key" = %d)`, a, b, a)
		case 6:
			return fmt.Sprintf(`DELETE FROM "Row s" WHERE "the key" = %d AND id = %d`, key(), r.IntN(6))
		case 7:
			a, b := key(), key()
			return fmt.Sprintf(`UPDATE other SET k = %d, v = v + 100 WHERE k = %d AND NOT EXISTS (SELECT FROM other x WHERE x.k = %d)`, a, b, a)
		default:
			return fmt.Sprintf(`DELETE FROM other WHERE k = %d`, key())
		}
	}
	transaction := func() {
		if r.IntN(3) == 0 {
			m.from.do(one())
			return
		}
		m.from.do(`BEGIN`)
		for range 1 + r.IntN(6) {
			if r.IntN(4) > 0 {
				m.from.do(one())
				continue
			}
			m.from.do(`SAVEPOINT s`, one(), one())
			m.from.do([]string{`ROLLBACK TO SAVEPOINT s`, `RELEASE SAVEPOINT s`}[r.IntN(2)])
		}
		if r.IntN(50) == 0 {
			m.from.do(`SET LOCAL cleave.guard_epoch = '3'`, `TRUNCATE other`)
		}
		m.from.do([]string{`COMMIT`, `COMMIT`, `COMMIT`, `ROLLBACK`}[r.IntN(4)])
	}
	for range 40 {
		transaction()
	}
	m.copy(2)
	m.equal()
	for range 8 {
		for range r.IntN(40) {
			transaction()
		}
		m.follow()
		m.equal()
	}
}

// runMoveSets moves sets of every strategy with keys of several types.
func runMoveSets(t *testing.T, h MoverHarness) {
	kinds := [][]keyspace.Type{
		{keyspace.Int8}, {keyspace.Text}, {keyspace.UUID}, {keyspace.Int4, keyspace.Text}, {keyspace.Timestamptz}, {keyspace.Bytea}, {keyspace.Date, keyspace.Varchar},
	}
	seed := uint64(20261122)
	r := rand.New(rand.NewPCG(seed, 2))
	m := newMove(t, h)
	for i, types := range kinds {
		table := moveTable{name: fmt.Sprintf("set %d", i)}
		columns, params, oids := []string{}, []string{}, []uint32{}
		for j, typ := range types {
			table.key = append(table.key, fmt.Sprintf("k%d", j))
			columns = append(columns, fmt.Sprintf("k%d %s NOT NULL", j, typ))
			params = append(params, fmt.Sprintf("$%d", j+1))
			oids = append(oids, typ.OID())
		}
		table.ddl = `CREATE TABLE ` + name(table.name) + ` (` + strings.Join(columns, ", ") + `, n bigint NOT NULL, PRIMARY KEY (` + strings.Join(table.key, ", ") + `, n))`
		m.make(table)
		serial := 0
		put := func(k keyspace.Key) {
			serial++
			if e := m.from.prepared(fmt.Sprintf(`INSERT INTO %s VALUES (%s, %d)`, name(table.name), strings.Join(params, ", "), serial), oids, k.Texts()...).err(); e != nil {
				t.Fatalf("%v: %v", k, e)
			}
		}
		for j, strategy := range []keyspace.Strategy{keyspace.Hash, keyspace.Range, keyspace.List} {
			m.id = fmt.Sprintf("set_%d-%d", i, j)
			var try []keyspace.Key
			m.set.Keys, try = randomOwnership(r, strategy, types)
			m.from.do(`DELETE FROM ` + name(table.name))
			m.to.do(`DELETE FROM ` + name(table.name))
			for _, k := range try {
				put(k)
			}
			m.copy(2)
			m.equal()
			for _, k := range try[:min(len(try), 10)] {
				put(k)
			}
			m.from.do(`DELETE FROM `+name(table.name)+` WHERE n < 3`, `UPDATE `+name(table.name)+` SET n = n + 100000 WHERE n < 9`)
			m.follow()
			m.equal()
			// Some keys must have been in, some out, over all rounds; here: the sum knows no more than the set.
			sums, err := m.src.Sums(m.ctx(), m.set, nil)
			m.must("sums", err)
			turned := m.set
			turned.Except = true
			others, err := m.src.Sums(m.ctx(), turned, nil)
			m.must("sums of the others", err)
			if all := m.from.do(`SELECT count(*) FROM ` + name(table.name)).rows()[0]; fmt.Sprint(sums[0].Rows+others[0].Rows) != all {
				t.Fatalf("%v %v: %d rows in the set, %d not, %s in all (seed %d)", strategy, types, sums[0].Rows, others[0].Rows, all, seed)
			}
			m.must("release", m.src.Release(m.ctx(), m.id))
			m.must("release", m.dst.Release(m.ctx(), m.id))
		}
	}
}

// runMoveResume reads and applies from every position, and lets appliers die at
// every transaction.
func runMoveResume(t *testing.T, h MoverHarness) {
	m := newMove(t, h, plainTable, otherTable)
	m.from.do(`INSERT INTO "Row s" VALUES (100, 1, 'a', 1)`)
	m.copy(1)
	began, err := m.dst.Applied(m.ctx(), m.id)
	m.must("applied", err)
	for i := range 12 {
		m.from.do(`BEGIN`, fmt.Sprintf(`INSERT INTO other VALUES (%d, %d)`, 110+i, i), fmt.Sprintf(`UPDATE "Row s" SET n = %d WHERE "the key" = 100`, i), `COMMIT`)
		m.from.do(fmt.Sprintf(`UPDATE other SET v = v + 1 WHERE k = %d`, 110+i/2))
	}
	end := m.here()
	all := m.record(began, end)
	same(t, "transactions", len(all.all), 24)
	for i, tx := range all.all {
		same(t, fmt.Sprintf("after transaction %d", i), strings.Join(m.record(tx.at, end).texts(), "\n"), strings.Join(all.texts()[i+1:], "\n"))
		same(t, fmt.Sprintf("until transaction %d", i), strings.Join(m.record(began, tx.at).texts(), "\n"), strings.Join(all.texts()[:i+1], "\n"))
	}
	// An applier dies after each number of changes; what it committed is not given again.
	for n := 1; ; n++ {
		a, err := m.dst.Apply(m.ctx(), m.id, m.set)
		m.must("apply", err)
		at, err := m.dst.Applied(m.ctx(), m.id)
		m.must("applied", err)
		err = m.src.Changes(m.ctx(), m.id, m.set, at, end, &dying{Applier: a, changes: n % 7})
		if err == nil {
			at, err = a.Flush(m.ctx())
			m.must("flush", err)
			m.must("close", a.Close())
			got, err := m.dst.Applied(m.ctx(), m.id)
			m.must("applied", err)
			same(t, "applied", got, at)
			break
		}
		m.must("close", a.Close())
		if !errors.Is(err, errDies) || n > 200 {
			t.Fatalf("round %d: %v", n, err)
		}
	}
	m.equal()
}

var errDies = errors.New("the applier dies here")

// dying is an applier that fails after so many changes.
type dying struct {
	engine.Applier
	changes int
}

func (d *dying) Change(ctx context.Context, c *engine.Change) error {
	if d.changes--; d.changes < 0 {
		return errDies
	}
	return d.Applier.Change(ctx, c)
}

func (d *dying) Commit(ctx context.Context, at engine.Position) error {
	if err := d.Applier.Commit(ctx, at); err != nil {
		return err
	}
	_, err := d.Applier.Flush(ctx)
	return err
}

// runMoveHuge has a transaction that no buffer of changes holds.
func runMoveHuge(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable)
	n := h.Huge
	if n == 0 {
		n = 20_000
	}
	m.set.Keys = owns(1, 0, int64(n))
	setGuard(t, m.from, engine.Guard{Schema: "public", Table: "other", ShardKey: []string{"k"}, Owned: owns(4, 0, int64(n))})
	m.copy(1)
	m.from.do(`BEGIN`)
	for from := 0; from < n; from += 1000 {
		var b strings.Builder
		b.WriteString(`INSERT INTO other VALUES `)
		for i := from; i < min(from+1000, n); i++ {
			if i > from {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "(%d, %d)", i, i%7)
		}
		m.from.do(b.String())
	}
	m.from.do(`UPDATE other SET v = v + 1`, `DELETE FROM other WHERE v = 3`, `COMMIT`)
	m.follow()
	m.equal()
}

func runMoveStrict(t *testing.T, h MoverHarness) {
	m := newMove(t, h, otherTable)
	m.to.do(`SET cleave.guard_epoch = '0'`)
	text := func(all ...string) []engine.Text {
		out := make([]engine.Text, len(all))
		for i, s := range all {
			out[i] = engine.Text{String: s}
		}
		return out
	}
	m.must("set applied", m.dst.SetApplied(m.ctx(), m.id, m.here()))
	began, err := m.dst.Applied(m.ctx(), m.id)
	m.must("applied", err)
	insert := engine.Change{Op: engine.ChangeInsert, New: text("100", "1")}
	for what, changes := range map[string][]engine.Change{
		"insert twice":      {insert, insert},
		"update of nothing": {insert, {Op: engine.ChangeUpdate, Old: text("101"), New: text("101", "2"), Same: []bool{false, false}}},
		"delete of nothing": {insert, {Op: engine.ChangeDelete, Old: text("101")}},
		"update to a key that is there": {insert, {Op: engine.ChangeInsert, New: text("102", "1")},
			{Op: engine.ChangeUpdate, Old: text("102"), New: text("100", "2"), Same: []bool{false, false}}},
	} {
		a, err := m.dst.Apply(m.ctx(), m.id, m.set)
		m.must("apply", err)
		for i := range changes {
			if err = a.Change(m.ctx(), &changes[i]); err != nil {
				break
			}
		}
		if err == nil {
			err = a.Commit(m.ctx(), m.here())
		}
		if err == nil {
			_, err = a.Flush(m.ctx())
		}
		m.code(what, err, sqlstate.DataCorrupted)
		if e := sqlstate.As(err); e.Table != "other" {
			t.Fatalf("%s: the error names no table: %+v", what, e)
		}
		m.must("close", a.Close())
		same(t, what+": rows", len(m.rows(m.to, 0)), 0)
		at, err := m.dst.Applied(m.ctx(), m.id)
		m.must("applied", err)
		same(t, what+": applied", at, began)
	}
}
