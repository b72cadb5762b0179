package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
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

// endAwaited rolls back when somebody waits for it.
func (w *openWriter) endAwaited(t *testing.T, url string) {
	t.Helper()
	pgtest.Await(t, url, `SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid = '`+w.n+`'`, "1")
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
	made := make(chan error, 1)
	go func() {
		view, err = p.src.CaptureRows(t.Context(), pairID, p.set)
		made <- err
	}()
	pgtest.Await(t, p.urls[0], `SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid = '`+first.n+`'`, "1")
	for n := range 10 {
		p.do(fmt.Sprintf(`INSERT INTO keyed VALUES (%d, 'between')`, 140+n))
	}
	second := startWriter(t, p.urls[0])
	first.endAwaited(t, p.urls[0])
	third := startWriter(t, p.urls[0])
	second.endAwaited(t, p.urls[0])
	p.must(<-made)
	p.must(third.c.Close(t.Context()))
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
