package postgres_test

import (
	"context"
	"testing"

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
