package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestPartsThatCanBeNoted: only those of tables whose key is unique at each moment, and whose storage is a heap.
func TestPartsThatCanBeNoted(t *testing.T) {
	urls := [2]string{pgtest.Database(t), pgtest.Database(t)}
	for _, url := range urls {
		pgtest.Ask(t, pgtest.Super(url), `CREATE ACCESS METHOD stored TYPE TABLE HANDLER heap_tableam_handler`)
	}
	p := newPairOn(t, urls, []string{"keyed", "deferred", "other", "bare"},
		`CREATE TABLE keyed (k bigint PRIMARY KEY, v text)`,
		`CREATE TABLE deferred (k bigint PRIMARY KEY DEFERRABLE, v text)`, `ALTER TABLE deferred REPLICA IDENTITY FULL`,
		`CREATE TABLE other (k bigint PRIMARY KEY, v text) USING stored`,
		`CREATE TABLE bare (k bigint, v text)`, `ALTER TABLE bare REPLICA IDENTITY FULL`)
	for _, table := range p.set.Tables {
		p.do(`INSERT INTO ` + table.Name + ` SELECT n, repeat('x', 1000) FROM generate_series(100, 199) AS n`)
	}
	view, err := p.src.Capture(t.Context(), pairID, p.set)
	p.must(err)
	defer view.Close()
	for i, table := range p.set.Tables {
		parts, err := view.Parts(t.Context(), i, 1, nil)
		p.must(err)
		if noted := parts[0].Since != ""; len(parts) < 8 || noted != (table.Name == "keyed") {
			t.Errorf("%s: %d parts, the first is %+v", table.Name, len(parts), parts[0])
		}
	}
}

// TestLeaveIsOfTheSet: a key without the shard key is another tenant's on the target. That row stays.
func TestLeaveIsOfTheSet(t *testing.T) {
	p := newPair(t, []string{"loose"}, `CREATE TABLE loose (k bigint, id integer PRIMARY KEY, v text)`, `ALTER TABLE loose REPLICA IDENTITY FULL`)
	for _, url := range p.urls {
		pgtest.Ask(t, url, `INSERT INTO loose VALUES (100, 1, 'moves')`)
	}
	pgtest.Ask(t, p.urls[1], `INSERT INTO loose VALUES (900, 2, 'another''s')`)
	a, err := p.dst.Apply(t.Context(), pairID, p.set)
	p.must(err)
	for _, id := range []string{"1", "2", "3"} {
		p.must(a.Change(t.Context(), &engine.Change{Op: engine.ChangeLeave, Old: []engine.Text{{String: id}}}))
	}
	p.must(a.Commit(t.Context(), "0/1"))
	_, err = a.Flush(t.Context())
	p.must(err)
	p.must(a.Close())
	if left := pgtest.Ask(t, p.urls[1], `SELECT string_agg(id::text, ',') FROM loose`); left != "2" {
		t.Errorf("rows %s are left", left)
	}
}

// TestPartsOfFewRows: one row of a large table moves. The table is not divided as if all of it did.
func TestPartsOfFewRows(t *testing.T) {
	p := newPair(t, []string{"large"}, `CREATE TABLE large (k bigint PRIMARY KEY, v text)`)
	p.do(`INSERT INTO large SELECT n, repeat('x', 1000) FROM generate_series(199, 1699) AS n`)
	view, err := p.src.Capture(t.Context(), pairID, p.set)
	p.must(err)
	defer view.Close()
	parts, err := view.Parts(t.Context(), 0, 8192, nil)
	p.must(err)
	if len(parts) < 32 || len(parts) > 64 {
		t.Errorf("%d parts", len(parts))
	}
}

// leaves wants nothing but what leaves.
type leaves struct{ got []engine.ChangeOp }

func (l *leaves) Change(_ context.Context, c *engine.Change) error {
	l.got = append(l.got, c.Op)
	return nil
}

func (l *leaves) Commit(context.Context, engine.Position) error { return nil }

func (l *leaves) OnlyLeaves(int) bool { return true }

// TestLeavesOfLargeValues: an update brings a row into the set whose large value the log does not have. Who wants only what leaves needs none.
func TestLeavesOfLargeValues(t *testing.T) {
	p := newPair(t, []string{"big"}, `CREATE TABLE big (k bigint NOT NULL, id integer NOT NULL, a text, PRIMARY KEY (k, id))`, `ALTER TABLE big ALTER a SET STORAGE EXTERNAL`)
	p.do(`INSERT INTO big VALUES (99, 1, repeat('ab', 50000)), (100, 2, repeat('cd', 50000))`)
	at, err := p.src.CaptureChanges(t.Context(), pairID, p.set)
	p.must(err)
	p.do(`UPDATE big SET k = 101 WHERE id = 1`, `INSERT INTO big VALUES (102, 3, 'new')`, `UPDATE big SET k = 103 WHERE id = 2`, `UPDATE big SET k = 99 WHERE id = 1`)
	until, err := p.src.Here(t.Context())
	p.must(err)
	to := &leaves{}
	p.must(p.src.Changes(t.Context(), pairID, p.set, at, until, to))
	if string(to.got[0])+string(to.got[1]) != "UD" || len(to.got) != 2 {
		t.Errorf("got %q", to.got)
	}
}

// openWriter is a transaction that has a number.
type openWriter struct {
	c *pgx.Conn
	n string
}

func startWriter(t *testing.T, url string) *openWriter {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	w := &openWriter{c: c}
	if _, err := c.Exec(t.Context(), `BEGIN`); err != nil {
		t.Fatal(err)
	}
	if err := c.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text`).Scan(&w.n); err != nil {
		t.Fatal(err)
	}
	return w
}

// awaited returns when somebody waits for its end.
func (w *openWriter) awaited(t *testing.T, url string) {
	t.Helper()
	pgtest.Await(t, url, `SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid = '`+w.n+`'`, "1")
}

func (w *openWriter) end(t *testing.T) {
	t.Helper()
	if err := w.c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSnapshotWithMaxBeforeMin: a slot's snapshot has its max before its min if transactions end while it is made, and others are open then. An input of pg_snapshot refuses it. It sees rows of those between the two, so they are read as changed ones, and once.
func TestSnapshotWithMaxBeforeMin(t *testing.T) {
	server := pgtest.NewServer(t, map[string]string{"autovacuum": "off"}) // all transactions are the test's
	p := newPairOn(t, [2]string{pgtest.DatabaseOn(t, server), pgtest.DatabaseOn(t, server)}, []string{"keyed"}, `CREATE TABLE keyed (k bigint PRIMARY KEY, v text)`)
	p.do(`INSERT INTO keyed SELECT n, repeat('x', 1000) FROM generate_series(100, 139) AS n`)
	view, err := p.src.Capture(t.Context(), pairID, p.set)
	p.must(err)
	there, err := view.Parts(t.Context(), 0, 1, nil)
	p.must(err)
	p.must(view.Close())

	first := startWriter(t, p.urls[0])
	made, ctx := make(chan error, 1), waitfor.Context(t)
	go func() {
		view, err = p.src.CaptureRows(ctx, pairID, p.set)
		made <- err
	}()
	first.awaited(t, p.urls[0])
	for n := range 10 {
		p.do(fmt.Sprintf(`INSERT INTO keyed VALUES (%d, 'between')`, 140+n))
	}
	second := startWriter(t, p.urls[0])
	first.end(t)
	second.awaited(t, p.urls[0]) // what is open now is waited for; what begins from here on is not
	third := startWriter(t, p.urls[0])
	second.end(t)
	p.must(<-made)
	third.end(t)
	parts, lines := p.changed(view, there)
	if want := third.n + ":" + third.n + ":"; parts[0].Since != want {
		t.Errorf("the view is %s, not %s", parts[0].Since, want)
	}
	if len(lines) != 10 || !strings.HasPrefix(lines[0], "140\t") {
		t.Errorf("10 rows are new; read are %q", lines)
	}
	p.must(view.Close())

	p.do(`INSERT INTO keyed SELECT n, 'after' FROM generate_series(150, 154) AS n`)
	view, err = p.src.CaptureRows(t.Context(), pairID, p.set)
	p.must(err)
	defer view.Close()
	if _, lines = p.changed(view, parts); len(lines) != 5 || !strings.HasPrefix(lines[0], "150\t") {
		t.Errorf("5 rows are new; read are %q", lines)
	}
}

// changed are the parts of the one table, if some were loaded, and the rows that are read of them.
func (p *pair) changed(view engine.RowSource, there []engine.Part) ([]engine.Part, []string) {
	p.t.Helper()
	parts, err := view.Parts(p.t.Context(), 0, 1, there)
	p.must(err)
	var b strings.Builder
	for _, part := range parts {
		p.must(view.Rows(p.t.Context(), 0, part, nil, &b))
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	slices.Sort(lines)
	return parts, lines
}

// leaver applies what lets rows leave, and nothing else.
type leaver struct{ engine.Applier }

func (l leaver) OnlyLeaves(int) bool { return true }

func (l leaver) Change(ctx context.Context, c *engine.Change) error {
	if !c.Op.HasOld() {
		return nil
	}
	return l.Applier.Change(ctx, &engine.Change{Op: engine.ChangeLeave, Table: c.Table, Old: c.Old})
}

// goOn copies parts of all tables, those that which says, as of a view. Beside it rows change.
func (p *pair) goOn(view engine.RowSource, which func(i int) bool, beside ...string) {
	p.t.Helper()
	ctx := p.t.Context()
	noted, err := p.dst.Loaded(ctx, pairID)
	p.must(err)
	p.do(beside...)
	if len(noted) > 0 {
		a, err := p.dst.Apply(ctx, pairID, p.set)
		p.must(err)
		at, err := p.dst.Applied(ctx, pairID)
		p.must(err)
		p.must(p.src.Changes(ctx, pairID, p.set, at, view.Position(), leaver{a}))
		_, err = a.Flush(ctx)
		p.must(errors.Join(err, a.Close()))
	}
	p.must(p.dst.SetApplied(ctx, pairID, view.Position()))
	for n := range p.set.Tables {
		t := &p.set.Tables[n]
		var there []engine.Part
		for _, l := range noted {
			if l.Name == t.Name {
				there = l.Parts
			}
		}
		parts, err := view.Parts(ctx, n, 32<<10, there)
		p.must(err)
		if len(parts) < 4 {
			p.t.Fatalf("%s has %d parts", t.Name, len(parts))
		}
		for i, part := range parts {
			if !which(i) {
				continue
			}
			var b strings.Builder
			p.must(view.Rows(ctx, n, part, nil, &b))
			_, err := p.dst.Load(ctx, pairID, t, part, strings.NewReader(b.String()))
			p.must(err)
		}
	}
	p.must(view.Close())
}

// awkward are changes by which a row could be lost or be there twice: keys that differ for the log and are equal for an index, keys that are
// exchanged, are taken again, or come back; unique values that rows exchange; large values that the log does not have.
func awkward(n int) []string {
	sql := func(text string) string { return strings.ReplaceAll(text, "$n", fmt.Sprint(n)) }
	return []string{
		sql(`UPDATE nocase SET name = CASE WHEN name COLLATE "C" = 'row' THEN 'ROW' ELSE 'row' END WHERE k % 7 = $n`),
		sql(`UPDATE nocase SET name = name || 'x' WHERE k % 11 = $n`),
		sql(`BEGIN; DELETE FROM nocase WHERE k % 13 = $n; INSERT INTO nocase SELECT k, 'ROW', 'again' FROM generate_series(100, 199) AS k WHERE k % 13 = $n; SAVEPOINT a; UPDATE nocase SET v = 'again $n' WHERE k % 26 = $n; COMMIT`),
		sql(`BEGIN; UPDATE indexed SET other = NULL WHERE k = 120 + $n; UPDATE indexed SET other = 20 + $n WHERE k = 160 + $n; UPDATE indexed SET other = 60 + $n WHERE k = 120 + $n; COMMIT`),
		sql(`UPDATE indexed SET id = id + 1000 WHERE id % 9 = $n`), sql(`UPDATE indexed SET id = id - 1000 WHERE id >= 1000 AND id % 2 = $n % 2`),
		sql(`BEGIN; UPDATE indexed SET id = -1 WHERE k = 140; UPDATE indexed SET id = -2 WHERE k = 140; COMMIT; UPDATE indexed SET id = 40 WHERE k = 140`),
		sql(`UPDATE wide SET v = 'changed $n' WHERE k % 5 = $n`),
		sql(`BEGIN; UPDATE wide SET k = -1 WHERE k = 110 + $n; UPDATE wide SET k = 110 + $n WHERE k = 150 + $n; UPDATE wide SET k = 150 + $n WHERE k = -1; COMMIT`),
	}
}

// TestPartsOfAwkwardTables: the copy of tables is interrupted twice while rows change in every way that could break it.
func TestPartsOfAwkwardTables(t *testing.T) {
	p := newPair(t, []string{"nocase", "indexed", "wide"},
		`CREATE COLLATION nocase_c (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
		`CREATE TABLE nocase (k bigint, name text COLLATE nocase_c, v text, PRIMARY KEY (k, name))`,
		`CREATE TABLE indexed (k bigint NOT NULL, id integer NOT NULL, other integer UNIQUE, v text)`,
		`CREATE UNIQUE INDEX indexed_id ON indexed (k, id)`, `ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_id`,
		`CREATE TABLE wide (k bigint PRIMARY KEY, v text, big text)`, `ALTER TABLE wide ALTER big SET STORAGE EXTERNAL`)
	p.do(`INSERT INTO nocase SELECT k, 'row', repeat(md5(k::text), 60) FROM generate_series(100, 199) AS k`,
		`INSERT INTO indexed SELECT k, k - 100, k - 100, repeat(md5(k::text), 60) FROM generate_series(100, 199) AS k`,
		`INSERT INTO wide SELECT k, repeat(md5(k::text), 60), repeat('ab', 5000) FROM generate_series(100, 199) AS k`)
	view, err := p.src.Capture(t.Context(), pairID, p.set)
	p.must(err)
	p.goOn(view, func(i int) bool { return i%2 == 0 }, awkward(0)...)
	p.do(awkward(1)...)
	p.do(`VACUUM nocase`, `VACUUM indexed`, `VACUUM wide`) // rows that are gone make place for others
	view, err = p.src.CaptureRows(t.Context(), pairID, p.set)
	p.must(err)
	p.goOn(view, func(i int) bool { return i%3 > 0 }, awkward(2)...)
	p.do(awkward(3)...)
	p.do(`VACUUM FREEZE nocase`, `VACUUM FREEZE indexed`, `VACUUM FREEZE wide`) // an xmin outlives it
	view, err = p.src.CaptureRows(t.Context(), pairID, p.set)
	p.must(err)
	p.goOn(view, func(int) bool { return true }, `UPDATE nocase SET v = 'last' WHERE k % 3 = 0`, `DELETE FROM wide WHERE k % 3 = 0`)
	for _, table := range p.set.Tables {
		p.must(p.dst.SetLoaded(t.Context(), pairID, engine.LoadedTable{Schema: table.Schema, Name: table.Name, Rows: 1}))
	}
	p.must(p.follow())
	p.equal()
}

// TestPartsOfARewrittenTable: notes of parts are of a file that the table has no more.
func TestPartsOfARewrittenTable(t *testing.T) {
	p := newPair(t, []string{"keyed"}, `CREATE TABLE keyed (k bigint PRIMARY KEY, v text)`)
	p.do(`INSERT INTO keyed SELECT n, repeat('x', 1000) FROM generate_series(100, 199) AS n`)
	view, err := p.src.Capture(t.Context(), pairID, p.set)
	p.must(err)
	p.goOn(view, func(i int) bool { return i%2 == 0 })
	noted, err := p.dst.Loaded(t.Context(), pairID)
	p.must(err)
	for _, sql := range []string{`VACUUM FULL keyed`, `BEGIN; TRUNCATE keyed; INSERT INTO keyed VALUES (100, 'new'); COMMIT`, `CLUSTER keyed USING keyed_pkey`} {
		p.do(sql)
		view, err := p.src.CaptureRows(t.Context(), pairID, p.set)
		p.must(err)
		if _, err := view.Parts(t.Context(), 0, 1, noted[0].Parts); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
			t.Errorf("%s: got %v", sql, err)
		}
		p.must(view.Close())
	}
}
