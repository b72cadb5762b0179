package differential

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/test/differential/cluster"
	"github.com/cleavedb/cleave/test/differential/compare"
	"github.com/cleavedb/cleave/test/differential/corpus"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// configurations are the clusters that statements are compared on.
var configurations = []cluster.Options{
	{Engine: "postgres", Shards: 2},
	{Engine: "postgres", Shards: 3},
	{Engine: "postgres", Shards: 5},
	{Engine: "sqlite", Shards: 2},
	{Engine: "sqlite", Shards: 3},
	{Engine: "sqlite", Shards: 5},
}

// pair is a cluster and one plain database, which hold the same rows.
type pair struct {
	t       testing.TB
	cluster *cluster.Cluster
	router  *compare.Session
	plain   *compare.Session
	encoder *compare.Session
	aside   *compare.Session // to the plain database, for what no test runs
	set     string           // the settings that the sessions have, for messages
	tables  []table
	initial map[string][]string // rows by table, as Rows gives them
	changed map[string]bool
	altered bool // the databases themselves have settings
	moving  bool // every key is on the move, see cluster.Move
}

type table struct{ schema, name string }

// newPair starts a cluster and makes the schemas on both sides.
func newPair(t testing.TB, o cluster.Options, schemas []corpus.Schema) *pair {
	t.Helper()
	return startPair(t, o, schemas, false)
}

func startPair(t testing.TB, o cluster.Options, schemas []corpus.Schema, moving bool) *pair {
	t.Helper()
	ctx := context.Background()
	pgtest.Server(t)
	var mu sync.Mutex // the harness names databases by number
	o.Database = func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		return pgtest.Database(t), nil
	}
	if o.Engine == "sqlite" {
		o.Dir = t.TempDir()
	}
	c, err := cluster.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &pair{t: t, cluster: c, initial: map[string][]string{}, changed: map[string]bool{}, moving: moving}
	url := pgtest.Database(t)
	p.encoder = p.open(url, compare.Help{})
	p.plain = p.open(url, compare.Help{Encoder: p.encoder})
	p.router = p.open(c.URL(), compare.Help{Encoder: p.encoder, TypeName: c.TypeName})
	p.aside = p.open(url, compare.Help{}) // its settings stay the usual ones
	steady(p, url)
	for _, s := range schemas {
		if slices.Contains(s.Engines, o.Engine) {
			p.load(s)
		}
	}
	return p
}

// steady switches autovacuum off: a plan, and with it the order of rows and how often a volatile function runs, is to depend on the
// statements before, not on the time that they took.
func steady(p *pair, url string) {
	p.t.Helper()
	server := p.open(pgtest.Super(url), compare.Help{})
	p.mustOn(server, "ALTER SYSTEM SET autovacuum = off")
	p.mustOn(server, "SELECT pg_reload_conf()")
}

func (p *pair) open(url string, help compare.Help) *compare.Session {
	p.t.Helper()
	s, err := compare.Open(context.Background(), url, help)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = s.Close() })
	return s
}

// load makes a schema's tables and carries the rows of the plain side over.
func (p *pair) load(s corpus.Schema) {
	p.t.Helper()
	ctx := context.Background()
	known := map[table]bool{}
	for _, t := range p.tables {
		known[t] = true
	}
	for _, step := range s.Steps {
		if step.Router {
			if o := p.router.Run(ctx, compare.Statement{SQL: step.SQL}); o.Err != nil || o.Lost != nil {
				p.t.Fatalf("%s, schema %s, on the router: %s\n%s", p.cluster.Name(), s.Name, step.SQL, o)
			}
		}
		if step.Plain {
			p.must(step.SQL)
		}
	}
	if p.moving {
		p.move()
	}
	p.must("CREATE SCHEMA IF NOT EXISTS pristine")
	for _, t := range p.cluster.Snapshot().State().Tables {
		at := table{t.Schema, t.Name}
		if known[at] {
			continue
		}
		if err := p.cluster.Fill(ctx, p.plain.Conn, t.Schema, t.Name); err != nil {
			p.t.Fatalf("%s: %v", p.cluster.Name(), err)
		}
		p.tables = append(p.tables, at)
		rows, err := p.cluster.PlainRows(ctx, p.plain.Conn, t.Schema, t.Name)
		if err != nil {
			p.t.Fatal(err)
		}
		p.initial[t.Schema+"."+t.Name] = rows
		p.must(fmt.Sprintf("CREATE TABLE pristine.%s AS TABLE %s", compare.Quote(t.Schema+"."+t.Name), qualified(at)))
		if d := p.tableDifference(at); d != "" {
			p.t.Fatalf("%s, as filled: %s", p.cluster.Name(), d)
		}
	}
}

func qualified(t table) string { return compare.Quote(t.schema) + "." + compare.Quote(t.name) }

func (p *pair) must(sql string) {
	p.t.Helper()
	p.mustOn(p.plain, sql)
}

func (p *pair) mustAside(sql string) {
	p.t.Helper()
	p.mustOn(p.aside, sql)
}

func (p *pair) mustOn(s *compare.Session, sql string) {
	p.t.Helper()
	if _, err := s.Conn.Exec(context.Background(), sql).ReadAll(); err != nil {
		p.t.Fatalf("one database: %s: %v", sql, err)
	}
}

// tableDifference returns "" if a table holds the same rows on both sides.
func (p *pair) tableDifference(t table) string {
	want, err := p.cluster.PlainRows(context.Background(), p.aside.Conn, t.schema, t.name)
	if err != nil {
		return err.Error()
	}
	got, err := p.cluster.Rows(t.schema, t.name)
	if err != nil {
		return err.Error()
	}
	if slices.Equal(want, got) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "table %s holds other rows:\n", t.name)
	for _, r := range only(got, want) {
		fmt.Fprintf(&b, "  on the shards only: %s\n", r)
	}
	for _, r := range only(want, got) {
		fmt.Fprintf(&b, "  in the one database only: %s\n", r)
	}
	return b.String()
}

// only returns what a has more often than b; both are sorted.
func only(a, b []string) (out []string) {
	for _, r := range a {
		if i, ok := slices.BinarySearch(b, r); ok {
			b = slices.Delete(slices.Clone(b), i, i+1)
		} else if len(out) < 20 {
			out = append(out, r)
		}
	}
	return out
}

// reset brings the tables that were written back to what they were.
func (p *pair) reset() {
	p.t.Helper()
	for _, t := range p.tables {
		key := t.schema + "." + t.name
		if !p.changed[key] {
			continue
		}
		p.mustAside(fmt.Sprintf("BEGIN; DELETE FROM %s; INSERT INTO %[1]s OVERRIDING SYSTEM VALUE TABLE pristine.%s; COMMIT", qualified(t), compare.Quote(key)))
		err := p.cluster.Empty(context.Background(), t.schema, t.name)
		if err == nil {
			err = p.cluster.Fill(context.Background(), p.aside.Conn, t.schema, t.name)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		delete(p.changed, key)
	}
}

var word = regexp.MustCompile(`[a-z_][a-z_0-9]*`)

var writing = regexp.MustCompile(`(?is)\b(insert|update|delete|merge|copy|truncate|commit|rollback|end|call|alter)\b`)

var control = regexp.MustCompile(`(?i)\b(begin|commit|rollback|end|vacuum|concurrently)\b`)

// mentioned returns the tables whose names a text has, if it may write.
func (p *pair) mentioned(sql string) (out []table) {
	if !writing.MatchString(sql) {
		return nil
	}
	words := word.FindAllString(strings.ToLower(sql), -1)
	for _, t := range p.tables {
		if slices.Contains(words, t.name) {
			out = append(out, t)
			p.changed[t.schema+"."+t.name] = true
		}
	}
	return out
}

// verdict is what became of a statement.
type verdict uint8

const (
	equal verdict = iota
	refused
	differs
)

// run runs a statement on both sides, the plain one in a way that leaves nothing
// behind if the router refused it.
func (p *pair) run(ctx context.Context, st compare.Statement, o compare.Options) (verdict, string) {
	v, why, _ := p.runFor(ctx, st, o)
	return v, why
}

// runFor is run that returns the plain side's outcome as well.
func (p *pair) runFor(ctx context.Context, st compare.Statement, o compare.Options) (verdict, string, *compare.Outcome) {
	got := p.router.Run(ctx, st)
	inside := p.plain.Conn.TxStatus() != 'I'
	undo := got.Refused() && !inside
	if undo && control.MatchString(st.SQL) {
		return refused, got.Err.Message, nil // it would end the transaction that takes it back
	}
	if undo {
		p.must("BEGIN")
	}
	one := st
	one.SQL = corpus.Plain(st.SQL)
	want := p.plain.Run(ctx, one)
	if undo {
		p.must("ROLLBACK")
	}
	if got.Refused() && !want.Refused() {
		return refused, got.Err.Message, want
	}
	o.Modifiers = o.Modifiers || p.cluster.Engine == "sqlite" // see docs/sql-sqlite.md
	if d := compare.Difference(want, got, o); d != "" {
		return differs, d, want
	}
	return equal, "", want
}

// check runs an item and compares the tables that it may have written.
func (p *pair) check(ctx context.Context, it corpus.Item, mode compare.Mode) (verdict, string) {
	v, why := equal, ""
	var tables []table
	for _, st := range it.Statements {
		if !it.Parameters {
			st.Mode = mode
		}
		for _, t := range p.mentioned(st.SQL) {
			if !slices.Contains(tables, t) {
				tables = append(tables, t)
			}
		}
		if v, why = p.run(ctx, st, it.Options); v != equal {
			break
		}
	}
	for _, s := range []*compare.Session{p.router, p.plain} {
		if s.Conn.TxStatus() == 'I' {
			continue
		}
		if v == equal {
			v, why = differs, "a transaction is left open"
		}
		if o := s.Run(ctx, compare.Statement{SQL: "ROLLBACK"}); o.Lost != nil {
			return differs, o.String()
		}
	}
	if v == differs {
		return v, why
	}
	for _, t := range tables {
		if d := p.tableDifference(t); d != "" {
			return differs, d
		}
	}
	return v, why
}
