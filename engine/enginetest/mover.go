package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// MoverHarness is what the suite about moves needs to know about an engine besides
// its [Harness].
type MoverHarness struct {
	Harness
	// Restart kills the shard's server without warning and starts it again; nil for
	// an engine without one.
	Restart func(t testing.TB, url string)
	// Columns are types beyond those that all engines store, with values to try.
	Columns []MoveColumn
	// Huge is the number of rows of the largest transaction; 0 is 20,000.
	Huge int
	// OlderSeizes does what Seize did in versions that knew no parts of tables.
	OlderSeizes func(t testing.TB, url string, token uint64)
}

// MoveColumn is a type of columns with values of it, as SQL.
type MoveColumn struct {
	Type   string
	Values []string
}

// moveColumns are what all engines store.
var moveColumns = []MoveColumn{
	{"boolean", []string{"true", "false"}},
	{"smallint", []string{"-32768", "0", "32767"}},
	{"integer", []string{"-2147483648", "7"}},
	{"bigint", []string{"-9223372036854775807", "9223372036854775807"}},
	{"numeric", []string{"1.50", "-12345678901234567890.123456789", "0.000"}},
	{"numeric(12,2)", []string{"99.90", "-0.01"}},
	{"double precision", []string{"0.1", "-1e300", "3", "5e-324"}},
	{"text", []string{"''", "'a'", `'back\slash'`, "'tab\tnew\nline\rreturn'", `'\N'`, `'\.'`, "'żółw 🐢'", "'it''s'"}},
	{"varchar(20)", []string{"''", "'short'"}},
	{"char(5)", []string{"'ab'", "'abcde'"}},
	{"uuid", []string{"'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"}},
	{"bytea", []string{`'\x'`, `'\x00ff5c0a'`}},
	{"date", []string{"'2026-11-22'", "'1999-12-31'"}},
	{"time", []string{"'00:00:00'", "'23:59:59.999999'"}},
	{"timestamp", []string{"'2026-11-22 06:30:00.5'", "'1970-01-01 00:00:00'"}},
	{"timestamptz", []string{"'2026-11-22 06:30:00.000001+02'", "'2000-01-01 00:00:00+00'"}},
	{"json", []string{`'{"b": 1,  "a": [null, "x\\ny"]}'`, "'3'"}},
	{"jsonb", []string{`'{"b": 1, "a": [null, "x\\ny"]}'`, "'[]'"}},
}

// RunMover runs the part of the suite about moves.
func RunMover(t *testing.T, h MoverHarness) {
	t.Run("Types", func(t *testing.T) { runMoveTypes(t, h) })
	t.Run("Changes", func(t *testing.T) { runMoveChanges(t, h) })
	t.Run("Random", func(t *testing.T) { runMoveRandom(t, h) })
	t.Run("Sets", func(t *testing.T) { runMoveSets(t, h) })
	t.Run("Resume", func(t *testing.T) { runMoveResume(t, h) })
	t.Run("Interrupted", func(t *testing.T) { runMoveInterrupted(t, h) })
	t.Run("Parts", func(t *testing.T) { runMoveParts(t, h) })
	t.Run("Parts written", func(t *testing.T) { runMovePartsWritten(t, h) })
	t.Run("Parts of a table that grows", func(t *testing.T) { runMovePartsGrown(t, h) })
	t.Run("Parts and an older leader", func(t *testing.T) { runMovePartsOlder(t, h) })
	t.Run("Leave", func(t *testing.T) { runMoveLeave(t, h) })
	t.Run("Huge", func(t *testing.T) { runMoveHuge(t, h) })
	t.Run("Strict", func(t *testing.T) { runMoveStrict(t, h) })
	t.Run("One applier", func(t *testing.T) { runMoveOneApplier(t, h) })
	t.Run("Tokens", func(t *testing.T) { runMoveTokens(t, h) })
	t.Run("Fence", func(t *testing.T) { runMoveFence(t, h) })
	t.Run("Open", func(t *testing.T) { runMoveOpen(t, h) })
	t.Run("Concurrent", func(t *testing.T) { runMoveConcurrent(t, h) })
	t.Run("Purge", func(t *testing.T) { runMovePurge(t, h) })
	t.Run("Sums", func(t *testing.T) { runMoveSums(t, h) })
	t.Run("View", func(t *testing.T) { runMoveView(t, h) })
	t.Run("Release", func(t *testing.T) { runMoveRelease(t, h) })
	t.Run("Definition", func(t *testing.T) { runMoveDefinition(t, h) })
	t.Run("Check", func(t *testing.T) { runMoveCheck(t, h) })
	if h.Restart != nil {
		t.Run("Crash", func(t *testing.T) { runMoveCrash(t, h) })
	}
}

// RunMoverBasics is a part of [RunMover] that is quick, for further versions of an engine.
func RunMoverBasics(t *testing.T, h MoverHarness) {
	t.Run("Types", func(t *testing.T) { runMoveTypes(t, h) })
	t.Run("Changes", func(t *testing.T) { runMoveChanges(t, h) })
	t.Run("Fence", func(t *testing.T) { runMoveFence(t, h) })
	t.Run("Purge", func(t *testing.T) { runMovePurge(t, h) })
	t.Run("View", func(t *testing.T) { runMoveView(t, h) })
	t.Run("Parts written", func(t *testing.T) { runMovePartsWritten(t, h) })
	t.Run("Parts and an older leader", func(t *testing.T) { runMovePartsOlder(t, h) })
}

// moveTable is a table of the suite: its columns come after the shard key's.
type moveTable struct {
	name string
	key  []string
	ddl  string
}

// plainTable is what most tests move.
var plainTable = moveTable{"Row s", []string{"the key"},
	`CREATE TABLE "Row s" ("the key" bigint NOT NULL, id bigint NOT NULL, v text, n numeric, PRIMARY KEY ("the key", id))`}

var otherTable = moveTable{"other", []string{"k"},
	`CREATE TABLE other (k bigint NOT NULL PRIMARY KEY, v bigint NOT NULL)`}

// move is two shards with the same tables, and a set on its way from one to the other.
type move struct {
	t              testing.TB
	h              MoverHarness
	urls           [2]string
	source, target engine.Shard
	src, dst       engine.Mover
	from, to       *talk
	set            engine.Set
	id             string
}

// newMove makes shards with tables. The source owns keys 0 to 999, the target 5000 to
// 5999, the set is 100 to 199. With other keys than bigint, guards are left out.
func newMove(t testing.TB, h MoverHarness, tables ...moveTable) *move {
	t.Helper()
	m := &move{t: t, h: h, id: "move-A_1", set: engine.Set{Keys: owns(1, 100, 200)}}
	m.open(h.URL(t), h.URL(t))
	m.make(tables...)
	for _, table := range tables {
		setGuard(t, m.from, engine.Guard{Schema: "public", Table: table.name, ShardKey: table.key, Owned: owns(3, 0, 1000)})
		setGuard(t, m.to, engine.Guard{Schema: "public", Table: table.name, ShardKey: table.key, Owned: owns(3, 5000, 6000)})
	}
	return m
}

func (m *move) open(source, target string) {
	m.t.Helper()
	m.urls = [2]string{source, target}
	for i, s := range []*engine.Shard{&m.source, &m.target} {
		*s = m.h.at(m.t, m.urls[i], Cluster, fmt.Sprintf("shard-%d", i))
		if err := (*s).Install(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
	}
	m.src, m.dst = mover(m.t, m.source, 1), mover(m.t, m.target, 1)
	m.connect()
	m.t.Cleanup(func() {
		for _, v := range []engine.Mover{m.src, m.dst} {
			m.clean(v)
		}
	})
}

// clean leaves nothing of the test on a shard whose server others may share.
func (m *move) clean(v engine.Mover) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ids, err := v.Captures(ctx)
	for _, id := range ids {
		err = errors.Join(err, v.Release(ctx, id))
	}
	if err == nil {
		if ids, err = v.Captures(ctx); err == nil && len(ids) > 0 {
			err = fmt.Errorf("after Release there are captures: %q", ids)
		}
	}
	if err != nil && sqlstate.CodeOf(err) != sqlstate.ObjectNotInState { // a test of tokens has ours deposed
		m.t.Errorf("release: %v", err)
	}
}

func (m *move) connect() { m.from, m.to = connect(m.t, m.source), connect(m.t, m.target) }

func mover(t testing.TB, s engine.Shard, token uint64) engine.Mover {
	t.Helper()
	able, ok := s.(engine.Movable)
	if !ok {
		t.Fatalf("%T cannot move rows", s)
	}
	return able.Mover(token)
}

func (m *move) make(tables ...moveTable) {
	m.t.Helper()
	var wanted []engine.MoveTable
	for _, table := range tables {
		m.from.do(table.ddl)
		m.to.do(table.ddl)
		wanted = append(wanted, engine.MoveTable{Schema: "public", Name: table.name, ShardKey: table.key})
	}
	var err error
	if m.set.Tables, err = m.src.Describe(m.t.Context(), wanted); err != nil {
		m.t.Fatal(err)
	}
}

func (m *move) ctx() context.Context {
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Minute)
	m.t.Cleanup(cancel)
	return ctx
}

func (m *move) must(what string, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
}

// copy captures the set and loads its rows, tables in parts at the same time.
func (m *move) copy(parts int) {
	m.t.Helper()
	view, err := m.src.Capture(m.ctx(), m.id, m.set)
	m.must("capture", err)
	defer func() { m.must("close view", view.Close()) }()
	m.load(view, parts)
	m.must("set applied", m.dst.SetApplied(m.ctx(), m.id, view.Position()))
}

// partBytes are the bytes of a part by which a table has one, or as many as it gets.
func partBytes(parts int) int64 {
	if parts == 1 {
		return 1 << 40
	}
	return 1
}

func (m *move) load(view engine.RowSource, parts int) {
	m.t.Helper()
	var all error
	var wait sync.WaitGroup
	var mu sync.Mutex
	for table := range m.set.Tables {
		list, err := view.Parts(m.ctx(), table, partBytes(parts), nil)
		m.must("divide", err)
		for i, part := range list {
			wait.Go(func() {
				err := m.pour(m.ctx(), view, table, part, i)
				mu.Lock()
				defer mu.Unlock()
				all = errors.Join(all, err)
			})
		}
	}
	wait.Wait()
	m.must("copy", all)
}

// pour loads a part, in pieces or not.
func (m *move) pour(ctx context.Context, view engine.RowSource, table int, part engine.Part, pieces int) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := view.Rows(ctx, table, part, inPieces(table+pieces), w)
		w.CloseWithError(err)
		done <- err
	}()
	_, err := m.dst.Load(ctx, m.id, &m.set.Tables[table], part, r)
	r.CloseWithError(errors.New("the load has ended"))
	return errors.Join(err, <-done)
}

func (m *move) here() engine.Position {
	m.t.Helper()
	at, err := m.src.Here(m.ctx())
	m.must("here", err)
	return at
}

// follow applies the changes up to now.
func (m *move) follow() {
	m.t.Helper()
	m.must("follow", m.followTo(m.here()))
}

func (m *move) followTo(until engine.Position) error {
	ctx := m.ctx()
	a, err := m.dst.Apply(ctx, m.id, m.set)
	if err != nil {
		return err
	}
	at, err := m.dst.Applied(ctx, m.id)
	if err != nil {
		return errors.Join(err, a.Close())
	}
	if err := m.src.Changes(ctx, m.id, m.set, at, until, a); err != nil {
		return errors.Join(err, a.Close())
	}
	if _, err := a.Flush(ctx); err != nil {
		return errors.Join(err, a.Close())
	}
	return a.Close()
}

// equal compares both sides by their sums, and by their rows as the engine prints them.
func (m *move) equal() {
	m.t.Helper()
	a, err := m.src.Sums(m.ctx(), m.set, nil)
	m.must("sums of the source", err)
	b, err := m.dst.Sums(m.ctx(), m.set, nil)
	m.must("sums of the target", err)
	for i, table := range m.set.Tables {
		if src, dst := m.rows(m.from, i), m.rows(m.to, i); !slices.Equal(src, dst) {
			m.t.Fatalf("%s: the source has\n%.3000s\nthe target\n%.3000s", table.Name, strings.Join(src, "\n"), strings.Join(dst, "\n"))
		}
		if a[i] != b[i] {
			m.t.Fatalf("%s: rows are equal, sums are not: %+v and %+v", table.Name, a[i], b[i])
		}
		if n := len(m.rows(m.from, i)); int64(n) != a[i].Rows {
			m.t.Fatalf("%s: %d rows, the sum says %d", table.Name, n, a[i].Rows)
		}
	}
}

// rows are a table's rows of the set, sorted.
func (m *move) rows(c *talk, table int) []string {
	m.t.Helper()
	mt := m.set.Tables[table]
	owner := keyspace.NewOwner(m.set.Keys)
	var out []string
	for _, b := range c.do(`SELECT ` + names(mt.ShardKey) + `, ` + names(mt.Columns) + ` FROM ` + name(mt.Name)).all('D') {
		values, err := splitRow(b)
		m.must("row", err)
		if k, err := keyspace.ParseKey(m.set.Keys.Types, values[:len(mt.ShardKey)]); err == nil && owner.Owns(k) {
			out = append(out, strings.Join(values[len(mt.ShardKey):], "|"))
		}
	}
	slices.Sort(out)
	return out
}

func name(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func names(all []string) string {
	quoted := make([]string, len(all))
	for i, s := range all {
		quoted[i] = name(s)
	}
	return strings.Join(quoted, ", ")
}

// inPieces is a pace of pieces of a few kilobytes for each second part, else none.
func inPieces(part int) engine.Pace {
	if part%2 == 1 {
		return nil
	}
	return func(context.Context, int64) (int64, error) { return 16 << 10, nil }
}

// rowsText is what Rows gives for all parts of a table.
func rowsText(t testing.TB, ctx context.Context, view engine.RowSource, table, parts int) []string {
	t.Helper()
	var b bytes.Buffer
	list, err := view.Parts(ctx, table, partBytes(parts), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range list {
		if err := view.Rows(ctx, table, part, inPieces(i), &b); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	slices.Sort(lines)
	return lines
}

// recorder is a sink that keeps what it is given, as text.
type recorder struct {
	set engine.Set
	all []recorded
	now []string
	// fail is returned after so many changes, if it is not nil.
	fail  error
	after int
	idle  func()
}

type recorded struct {
	changes []string
	at      engine.Position
}

func (r *recorder) Change(_ context.Context, c *engine.Change) error {
	if r.fail != nil {
		if r.after--; r.after < 0 {
			return r.fail
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%c %s", c.Op, r.set.Tables[c.Table].Name)
	put := func(what string, values []engine.Text, same []bool) {
		if values == nil {
			return
		}
		fmt.Fprintf(&b, " %s", what)
		for i, v := range values {
			switch {
			case same != nil && same[i]:
				b.WriteString(" =")
			case v.Null:
				b.WriteString(" ~")
			default:
				b.WriteString(" " + v.String)
			}
		}
	}
	if c.Op == engine.ChangeUpdate || c.Op == engine.ChangeDelete {
		put("old", c.Old, nil)
	}
	if c.Op == engine.ChangeUpdate || c.Op == engine.ChangeInsert {
		put("new", c.New, c.Same)
	}
	r.now = append(r.now, b.String())
	return nil
}

func (r *recorder) Commit(_ context.Context, at engine.Position) error {
	if len(r.now) > 0 {
		r.all = append(r.all, recorded{r.now, at})
	} else if r.idle != nil {
		r.idle()
	}
	r.now = nil
	return nil
}

// texts are the changes of all transactions, each transaction in brackets.
func (r *recorder) texts() []string {
	out := make([]string, len(r.all))
	for i, tx := range r.all {
		out[i] = "[" + strings.Join(tx.changes, "; ") + "]"
	}
	return out
}

// record is what Changes gives between two positions.
func (m *move) record(after, until engine.Position) *recorder {
	m.t.Helper()
	r := &recorder{set: m.set}
	m.must("changes", m.src.Changes(m.ctx(), m.id, m.set, after, until, r))
	if len(r.now) > 0 {
		m.t.Fatalf("changes without a commit: %q", r.now)
	}
	return r
}

// code fails unless err has the code.
func (m *move) code(what string, err error, codes ...sqlstate.Code) {
	m.t.Helper()
	if err == nil || !slices.Contains(codes, sqlstate.CodeOf(err)) {
		m.t.Fatalf("%s: got %v, want %v", what, err, codes)
	}
}

func splitRow(b []byte) ([]string, error) {
	values, err := wire.SplitRow(b, nil)
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
		if v == nil {
			texts[i] = "~"
		}
	}
	return texts, err
}
