package sqlite_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/enginetest"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMover(t *testing.T) {
	enginetest.RunMover(t, enginetest.MoverHarness{Harness: harness(), OlderSeizes: func(t testing.TB, url string, token uint64) {
		if err := sqlite.PlainExec(strings.TrimPrefix(url, "file:"), fmt.Sprintf(`UPDATE cleave_meta SET value = '%d' WHERE key = 'mover_token'`, token)); err != nil {
			t.Fatal(err)
		}
	}})
}

// movedPair is two files with the same tables, and the mover of each.
type movedPair struct {
	t   *testing.T
	url []string
	m   []engine.Mover
	c   []engine.Conn
	set engine.Set
}

// newPair makes two files. names are the tables that are moved, by the column k.
func newPair(t *testing.T, ddl string, names ...string) *movedPair {
	h := harness()
	p := &movedPair{t: t, url: []string{h.URL(t), h.URL(t)}}
	shards, m := moverFiles(t, p.url)
	p.m = m
	for _, s := range shards {
		if err := s.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := open(t, s)
		mustExec(t, c, ddl)
		p.c = append(p.c, c)
	}
	var tables []engine.MoveTable
	for _, n := range names {
		tables = append(tables, engine.MoveTable{Schema: "public", Name: n, ShardKey: []string{"k"}})
	}
	tables, err := m[0].Describe(t.Context(), tables)
	p.must(err)
	p.set = engine.Set{Tables: tables, Keys: movedKeys(1, 50)}
	return p
}

func (p *movedPair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// copy moves the rows of now.
func (p *movedPair) copy() {
	p.t.Helper()
	ctx := p.t.Context()
	view, err := p.m[0].Capture(ctx, "pair_f", p.set)
	p.must(err)
	defer view.Close()
	for i := range p.set.Tables {
		r, w := io.Pipe()
		go func() { w.CloseWithError(view.Rows(ctx, i, engine.Part{}, nil, w)) }()
		_, err := p.m[1].Load(ctx, "pair_f", &p.set.Tables[i], engine.Part{}, r)
		p.must(err)
	}
	p.must(p.m[1].SetApplied(ctx, "pair_f", view.Position()))
}

// follow applies what has changed, returns the kinds of changes, and compares.
func (p *movedPair) follow() string {
	p.t.Helper()
	ctx := p.t.Context()
	end, err := p.m[0].Here(ctx)
	p.must(err)
	a, err := p.m[1].Apply(ctx, "pair_f", p.set)
	p.must(err)
	defer a.Close()
	at, err := a.Flush(ctx)
	p.must(err)
	ops := &noted{Applier: a, set: p.set}
	p.must(p.m[0].Changes(ctx, "pair_f", p.set, at, end, ops))
	_, err = a.Flush(ctx)
	p.must(err)
	x, err := p.m[0].Sums(ctx, p.set, nil)
	p.must(err)
	y, err := p.m[1].Sums(ctx, p.set, nil)
	p.must(err)
	if fmt.Sprint(x) != fmt.Sprint(y) {
		p.t.Fatalf("after %s the source has %+v, the target %+v", ops.ops, x, y)
	}
	return strings.TrimSpace(ops.ops)
}

// noted notes the kind and table of each change.
type noted struct {
	engine.Applier
	set engine.Set
	ops string
}

func (n *noted) Change(ctx context.Context, c *engine.Change) error {
	n.ops += fmt.Sprintf("%c:%s ", c.Op, n.set.Tables[c.Table].Name)
	return n.Applier.Change(ctx, c)
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// What a foreign key does to other rows is captured like what the statement says.
func TestMoverCascades(t *testing.T) {
	p := newPair(t, `CREATE TABLE a (k bigint PRIMARY KEY, v text, UNIQUE (k, v));
		CREATE TABLE b (k bigint REFERENCES a ON DELETE CASCADE ON UPDATE CASCADE, id bigint, v text, PRIMARY KEY (k, id));
		CREATE TABLE c (k bigint, id bigint, v text, PRIMARY KEY (k, id), FOREIGN KEY (k, v) REFERENCES a (k, v) ON DELETE RESTRICT ON UPDATE CASCADE);
		CREATE TABLE d (k bigint NOT NULL, id bigint PRIMARY KEY, v bigint REFERENCES a ON DELETE SET NULL)`, "a", "b", "c", "d")
	c := p.c[0]
	mustExec(t, c, "INSERT INTO a SELECT i, 'v' FROM generate_series(1, 60) i; INSERT INTO b SELECT i % 60 + 1, i, 'b' FROM generate_series(1, 200) i; INSERT INTO d SELECT i, i, i FROM generate_series(1, 60) i")
	p.copy()
	mustExec(t, c, "DELETE FROM a WHERE k = 7")
	equal(t, "cascade", p.follow(), "U:d D:b D:b D:b D:b D:a")
	mustExec(t, c, "DELETE FROM d WHERE v = 8; UPDATE a SET k = 107 WHERE k = 8") // leaves the set, with its rows
	equal(t, "out of the set", p.follow(), "D:d D:b D:b D:b D:b D:a")
	mustExec(t, c, "UPDATE a SET k = 8 WHERE k = 107")
	equal(t, "into the set", p.follow(), "I:b I:b I:b I:b I:a")
	mustExec(t, c, "INSERT INTO c VALUES (9, 1, 'v'); UPDATE a SET v = 'w' WHERE k = 9")
	equal(t, "two columns", p.follow(), "I:c U:c U:a")
	mustExec(t, c, "BEGIN; SET LOCAL cleave.guard_epoch = '1'; INSERT INTO b VALUES (10, 1000, 'gone'); TRUNCATE a, b, c, d; INSERT INTO a VALUES (1, 'again'), (55, 'other'); COMMIT")
	equal(t, "truncate", p.follow(), "I:b T:a T:b T:c T:d I:a")
	mustExec(t, c, "INSERT INTO a VALUES (1, 'upsert') ON CONFLICT (k) DO UPDATE SET v = excluded.v; INSERT INTO a VALUES (1, 'ignored') ON CONFLICT DO NOTHING")
	equal(t, "upsert", p.follow(), "U:a")
}

// Rows of a table without a key are told apart by all they have, as it is stored.
func TestMoverWithoutKey(t *testing.T) {
	p := newPair(t, `CREATE TABLE t (k bigint, n numeric, j json, c char(3))`, "t")
	c := p.c[0]
	mustExec(t, c, `INSERT INTO t VALUES (1, 1.0, '{"a":1}', 'a'), (1, 1.00, '{"a":1}', 'a'), (1, 1.0, '{"a": 1}', 'a'), (1, 1.0, '{"a":1}', 'a'), (1, NULL, NULL, NULL), (1, NULL, NULL, NULL)`)
	p.copy()
	mustExec(t, c, `DELETE FROM t WHERE n::text = '1.00'`)
	equal(t, "delete", p.follow(), "D:t")
	mustExec(t, c, `UPDATE t SET c = 'b' WHERE j::text = '{"a":1}' AND n::text = '1.0'; DELETE FROM t WHERE n IS NULL; UPDATE t SET n = 2.50 WHERE j::text = '{"a": 1}'`)
	equal(t, "all", p.follow(), "U:t U:t D:t D:t U:t")
}

func TestMoverWideTable(t *testing.T) {
	columns := func(n int) string {
		var b strings.Builder
		b.WriteString("CREATE TABLE t (k bigint PRIMARY KEY")
		for i := range n - 1 {
			fmt.Fprintf(&b, ", c%d text", i)
		}
		return b.String() + ")"
	}
	p := newPair(t, columns(330), "t")
	mustExec(t, p.c[0], "INSERT INTO t (k, c0, c328) VALUES (1, 'first', 'last')")
	p.copy()
	mustExec(t, p.c[0], "UPDATE t SET c328 = 'changed'; INSERT INTO t (k, c100) VALUES (2, 'x')")
	equal(t, "wide", p.follow(), "U:t I:t")
	p = newPair(t, columns(331), "t")
	findings, err := p.m[0].CheckMove(t.Context(), p.set.Tables)
	p.must(err)
	if len(findings) != 1 || findings[0].Level != "error" {
		t.Errorf("%+v", findings)
	}
	if _, err := p.m[0].CaptureChanges(t.Context(), "pair_f", p.set); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Errorf("a table that is too wide: %v", err)
	}
	mustExec(t, p.c[0], "INSERT INTO t (k) VALUES (1)") // nothing is left of it
}

// A file of an earlier version gets what moves need; a program without Cleave's
// functions cannot write past a capture.
func TestMoverOtherPrograms(t *testing.T) {
	p := newPair(t, "CREATE TABLE t (k bigint PRIMARY KEY)", "t")
	path := strings.TrimPrefix(p.url[0], "file:")
	for _, c := range p.c {
		c.Close()
	}
	old := harness().URL(t)
	shards, m := moverFiles(t, []string{old})
	p.must(shards[0].Install(t.Context()))
	c := open(t, shards[0])
	mustExec(t, c, "CREATE TABLE t (k bigint PRIMARY KEY)")
	for _, name := range []string{"cleave_log", "cleave_move"} {
		p.must(sqlite.PlainExec(strings.TrimPrefix(old, "file:"), "DROP TABLE "+name))
	}
	_, err := m[0].CaptureChanges(t.Context(), "old", p.set)
	p.must(err)
	mustExec(t, c, "INSERT INTO t VALUES (1)")

	_, err = p.m[0].CaptureChanges(t.Context(), "pair_f", p.set)
	p.must(err)
	for _, sql := range []string{"INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (77)"} {
		if err := sqlite.PlainExec(path, sql); err == nil || !strings.Contains(err.Error(), "cleave_") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	other := p.set
	other.Keys = movedKeys(1, 20)
	if _, err := p.m[0].CaptureChanges(t.Context(), "pair_f", other); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Errorf("another set under the same id: %v", err)
	}
	if err := p.m[0].Changes(t.Context(), "pair_f", other, "", "", &noted{}); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Errorf("changes of another set: %v", err)
	}
	if err := p.m[0].Changes(t.Context(), "pair_f", p.set, "", "17/2", &noted{}); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
		t.Errorf("another engine's position: %v", err)
	}
}

// A set of some keys is looked up by the key's index, not in all rows.
func TestMoverFewKeys(t *testing.T) {
	p := newPair(t, "CREATE TABLE t (k bigint, id bigint, PRIMARY KEY (k, id))", "t")
	mustExec(t, p.c[0], "INSERT INTO t SELECT i % 1000, i FROM generate_series(1, 20000) i")
	p.set.Keys = keyspace.Ownership{Keyspace: "k", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8}, Pinned: []keyspace.Key{{keyspace.Int(keyspace.Int8, 17)}, {keyspace.Int(keyspace.Int8, 23)}}}
	sums, err := p.m[0].Sums(t.Context(), p.set, nil)
	p.must(err)
	rows, bytes, err := p.m[0].Sizes(t.Context(), p.set)
	p.must(err)
	if sums[0].Rows != 40 || rows < 20 || rows > 80 || bytes == 0 {
		t.Errorf("40 rows are %d, and said to be %d of %d bytes", sums[0].Rows, rows, bytes)
	}
	if plan := sqlite.SetPlan(t, strings.TrimPrefix(p.url[0], "file:"), &p.set); !strings.Contains(plan, "USING INDEX t_pkey") && !strings.Contains(plan, "USING COVERING INDEX t_pkey") {
		t.Errorf("the plan is %s", plan)
	}
	p.copy()
	mustExec(t, p.c[0], "UPDATE t SET id = id + 100000 WHERE k = 23; UPDATE t SET k = 17 WHERE k = 18")
	p.follow()
}

// A capture that is far behind does not hold up others, and Forget makes room.
func TestMoverForget(t *testing.T) {
	p := newPair(t, "CREATE TABLE t (k bigint PRIMARY KEY, n bigint)", "t")
	p.copy()
	_, err := p.m[0].CaptureChanges(t.Context(), "other", p.set)
	p.must(err)
	for range 3 {
		mustExec(t, p.c[0], "INSERT INTO t SELECT i, 1 FROM generate_series(0, 49) i ON CONFLICT (k) DO UPDATE SET n = t.n + 1")
		p.follow()
		mustExec(t, p.c[0], "DELETE FROM t")
		p.follow()
	}
	left := func() string {
		return sqlite.PlainValue(t, strings.TrimPrefix(p.url[0], "file:"), "SELECT group_concat(n) FROM (SELECT count(*) AS n FROM cleave_log GROUP BY capture)")
	}
	equal(t, "rows of the log", left(), "300,300")
	at, err := p.m[1].Applied(t.Context(), "pair_f")
	p.must(err)
	p.must(p.m[0].Forget(t.Context(), "pair_f", at))
	equal(t, "rows of the log", left(), "300")
	lag, err := p.m[0].Lag(t.Context(), "other", "0")
	p.must(err)
	mine, err := p.m[0].Lag(t.Context(), "pair_f", at)
	p.must(err)
	if lag < 1000 || mine != 0 {
		t.Errorf("the lags are %d and %d", lag, mine)
	}
	if err := p.m[0].Changes(t.Context(), "pair_f", p.set, "1", at, &noted{}); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Errorf("changes that are forgotten: %v", err)
	}
	if !p.m[0].Reached(at, "5") || p.m[0].Reached("5", at) || p.m[0].Reached("", "5") || !p.m[0].Reached("5", "") || !p.m[0].Reached(at, at) {
		t.Error("positions are not in order")
	}
}

// A prepared transaction's changes are in the log when it is committed, once, and
// nobody's are before them.
func TestMoverPrepared(t *testing.T) {
	p := newPair(t, "CREATE TABLE t (k bigint PRIMARY KEY, n bigint)", "t")
	c := p.c[0]
	mustExec(t, c, "INSERT INTO t SELECT i, 0 FROM generate_series(1, 60) i")
	p.copy()
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "UPDATE t SET n = 1 WHERE k < 3")
	mustExec(t, c, "INSERT INTO t VALUES (0, 5)")
	mustExec(t, c, "PREPARE TRANSACTION 'one'")
	equal(t, "before it is committed", p.follow(), "")
	mustExec(t, c, "COMMIT PREPARED 'one'")
	mustExec(t, c, "DELETE FROM t WHERE k = 2")
	equal(t, "when it is committed", p.follow(), "U:t U:t I:t D:t")
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "DELETE FROM t")
	mustExec(t, c, "PREPARE TRANSACTION 'two'")
	mustExec(t, c, "ROLLBACK PREPARED 'two'")
	mustExec(t, c, "UPDATE t SET n = 7 WHERE k = 1")
	equal(t, "when one is rolled back", p.follow(), "U:t")
}

// TestPartAroundRowsThatAreThere: a part is loaded around its rows that are there. Another row in their place is no such row: the notes are
// stale.
func TestPartAroundRowsThatAreThere(t *testing.T) {
	p := newPair(t, `CREATE TABLE u (k bigint PRIMARY KEY, id bigint UNIQUE, c char(5), f float8, v text)`, "u")
	at, err := p.m[0].Here(t.Context())
	p.must(err)
	p.must(p.m[1].SetApplied(t.Context(), "pair_f", at))
	load := func(rows string) error {
		_, err := p.m[1].Load(t.Context(), "pair_f", &p.set.Tables[0], engine.Part{Place: "1:0-9", Since: "1"}, strings.NewReader(rows))
		return err
	}
	const there = "1\t1\ta\t1\tx\n2\t2\tb\t-0\t\\N\n"
	p.must(load(there))
	p.must(load(there + "3\t\\N\tc\t0.5\ty\n"))
	for _, row := range []string{"1\t1\ta\t1\tother\n", "1\t9\ta\t1\tx\n", "4\t1\ta\t1\tx\n", "2\t2\tb\t-0\t\n"} {
		if err := load(row); sqlstate.CodeOf(err) != sqlstate.UniqueViolation {
			t.Errorf("%q: got %v", row, err)
		}
	}
	equal(t, "rows", fmt.Sprint(len(mustExec(t, p.c[1], `SELECT k FROM u`).Rows)), "3")
}
