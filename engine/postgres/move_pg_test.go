package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// pair is two shards with the same tables: two databases of one server, so that
// names of slots must not meet.
type pair struct {
	t        testing.TB
	urls     [2]string
	src, dst engine.Mover
	set      engine.Set
}

const pairID = "pair-1_f"

// newPair makes tables with a shard key k of type bigint; what moves is k from 100 to 199.
func newPair(t testing.TB, tables []string, ddl ...string) *pair {
	t.Helper()
	return newPairOn(t, [2]string{pgtest.Database(t), pgtest.Database(t)}, tables, ddl...)
}

func newPairOn(t testing.TB, urls [2]string, tables []string, ddl ...string) *pair {
	t.Helper()
	p := &pair{t: t, urls: urls}
	for i, m := range []*engine.Mover{&p.src, &p.dst} {
		s := installed(t, urls[i])
		for _, sql := range ddl {
			pgtest.Ask(t, urls[i], sql)
		}
		first := s.(engine.Movable).Mover(1)
		*m = first
		t.Cleanup(func() {
			if err := first.Release(context.Background(), pairID); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	low, high := keyspace.Key{keyspace.Int(keyspace.Int8, 100)}, keyspace.Key{keyspace.Int(keyspace.Int8, 200)}
	p.set.Keys = keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Int8}, Intervals: []keyspace.Interval{keyspace.NewKeyInterval(low, high)}}
	for _, table := range tables {
		p.set.Tables = append(p.set.Tables, engine.MoveTable{Schema: "public", Name: table, ShardKey: []string{"k"}})
	}
	var err error
	if p.set.Tables, err = p.src.Describe(t.Context(), p.set.Tables); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) do(sqls ...string) {
	p.t.Helper()
	for _, sql := range sqls {
		pgtest.Ask(p.t, p.urls[0], sql)
	}
}

func (p *pair) copy() {
	p.t.Helper()
	view, err := p.src.Capture(p.t.Context(), pairID, p.set)
	p.must(err)
	for i := range p.set.Tables {
		var b bytes.Buffer
		p.must(view.Rows(p.t.Context(), i, engine.Part{}, nil, &b))
		_, err := p.dst.Load(p.t.Context(), pairID, &p.set.Tables[i], engine.Part{}, &b)
		p.must(err)
	}
	p.must(view.Close())
	p.must(p.dst.SetApplied(p.t.Context(), pairID, view.Position()))
}

func (p *pair) follow() error {
	p.t.Helper()
	until, err := p.src.Here(p.t.Context())
	p.must(err)
	a, err := p.dst.Apply(p.t.Context(), pairID, p.set)
	p.must(err)
	at, err := p.dst.Applied(p.t.Context(), pairID)
	p.must(err)
	if err = p.src.Changes(p.t.Context(), pairID, p.set, at, until, a); err == nil {
		_, err = a.Flush(p.t.Context())
	}
	return errors.Join(err, a.Close())
}

func (p *pair) equal() {
	p.t.Helper()
	a, err := p.src.Sums(p.t.Context(), p.set, nil)
	p.must(err)
	b, err := p.dst.Sums(p.t.Context(), p.set, nil)
	p.must(err)
	if !slices.Equal(a, b) {
		for _, t := range p.set.Tables {
			sql := fmt.Sprintf(`SELECT string_agg(left(r::text, 200), E'\n' ORDER BY r::text) FROM %q r WHERE k BETWEEN 100 AND 199`, t.Name)
			p.t.Logf("%s: source\n%s\ntarget\n%s", t.Name, pgtest.Ask(p.t, p.urls[0], sql), pgtest.Ask(p.t, p.urls[1], sql))
		}
		p.t.Fatalf("source %v, target %v", a, b)
	}
}

// TestMoversKeepConversations: calls one after the other have one process of the server, and of those that are under
// way at a time four stay at most.
func TestMoversKeepConversations(t *testing.T) {
	p := newPair(t, []string{"b", "a"}, `CREATE TABLE a (k bigint PRIMARY KEY, v text)`, `CREATE TABLE b (k bigint PRIMARY KEY, n int)`)
	ctx := t.Context()
	processes := func() string {
		return pgtest.Ask(t, pgtest.Super(p.urls[0]), `SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'cleave other'`)
	}
	once := func() {
		t.Helper()
		tables, err := p.src.Describe(ctx, p.set.Tables)
		if err == nil {
			_, err = p.src.CheckMove(ctx, tables)
		}
		if err == nil {
			_, _, err = p.src.Sizes(ctx, p.set)
		}
		if err == nil {
			_, err = p.src.Here(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		if tables[0].Name != "b" || tables[1].Name != "a" || !slices.Equal(tables[0].Columns, []string{"k", "n"}) {
			t.Errorf("described: %+v", tables)
		}
	}
	if _, err := p.src.Here(ctx); err != nil {
		t.Fatal(err)
	}
	first := ""
	waitfor.True(t, "the processes that have ended are gone", func() bool {
		first = processes()
		return first != "" && !strings.Contains(first, ",")
	})
	for range 3 {
		once()
	}
	if now := processes(); now != first || strings.Contains(now, ",") {
		t.Errorf("processes %s, then %s", first, now)
	}
	_, err := p.src.Describe(ctx, append(slices.Clone(p.set.Tables), engine.MoveTable{Schema: "public", Name: "nosuch"}))
	if sqlstate.CodeOf(err) != sqlstate.UndefinedTable || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a table that is missing: %v", err)
	}
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if _, err := p.src.Here(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	waitfor.True(t, "four processes at most", func() bool { return strings.Count(processes(), ",") < 4 })
}

func TestMoveWithoutAPrimaryKey(t *testing.T) {
	p := newPair(t, []string{"bare", "byindex", "extra"},
		`CREATE TABLE bare (k bigint NOT NULL, a text, j json, p point, c char(5), n numeric)`, `ALTER TABLE bare REPLICA IDENTITY FULL`,
		`CREATE TABLE byindex (k bigint NOT NULL, u integer NOT NULL, v text, id integer PRIMARY KEY)`, `CREATE UNIQUE INDEX byindex_u ON byindex (k, u)`,
		`ALTER TABLE byindex REPLICA IDENTITY USING INDEX byindex_u`,
		`CREATE TABLE extra (k bigint NOT NULL, id integer PRIMARY KEY, v text)`, `ALTER TABLE extra REPLICA IDENTITY FULL`)
	if got := fmt.Sprint(p.set.Tables[0].Identity, p.set.Tables[1].Identity, p.set.Tables[2].Identity); got != "[k a j p c n] [k u] [id]" {
		t.Fatalf("identities %s", got)
	}
	p.do(`INSERT INTO bare VALUES (100, 'x', '{"a": 1}', '(1,2)', 'ab', 1.0), (100, 'x', '{"a": 1}', '(1,2)', 'ab', 1.0), (100, 'x', '{"a": 1}', '(1,2)', 'ab', 1.00), (101, NULL, NULL, NULL, NULL, NULL), (99, 'y', NULL, NULL, '', 0)`,
		`INSERT INTO byindex VALUES (100, 1, 'a', 1), (99, 2, 'b', 2)`, `INSERT INTO extra VALUES (100, 1, 'a'), (99, 2, 'b')`)
	p.copy()
	p.equal()
	p.do(
		// One of two rows that are the same, and not the one whose number has the same value.
		`DELETE FROM bare WHERE ctid = (SELECT min(ctid) FROM bare WHERE a = 'x')`,
		`UPDATE bare SET a = 'z', c = 'longr' WHERE ctid = (SELECT min(ctid) FROM bare WHERE a = 'x')`,
		`UPDATE bare SET p = '(3,4)' WHERE a IS NULL`,
		`INSERT INTO bare VALUES (102, NULL, 'null', NULL, NULL, NULL), (102, NULL, 'null', NULL, NULL, NULL)`,
		`UPDATE bare SET k = 103 WHERE ctid = (SELECT min(ctid) FROM bare WHERE k = 102)`,
		`UPDATE bare SET k = 104 WHERE k = 99`, `UPDATE bare SET k = 98 WHERE k = 101`,
		`UPDATE byindex SET u = 5, v = 'n' WHERE id = 1`, `UPDATE byindex SET k = 120 WHERE id = 2`, `UPDATE byindex SET v = 'm' WHERE u = 5`,
		`UPDATE extra SET k = 120 WHERE id = 2`, `UPDATE extra SET id = 7, k = 130 WHERE id = 1`, `UPDATE extra SET v = NULL WHERE id = 7`)
	p.must(p.follow())
	p.equal()
	p.do(`DELETE FROM bare`, `DELETE FROM byindex WHERE k = 120`, `DELETE FROM extra WHERE id = 2`)
	p.must(p.follow())
	p.equal()
}

// TestMoveKeysOfOtherSchemas: the equality of a key's type is found where it is, and
// with it the key's index.
func TestMoveKeysOfOtherSchemas(t *testing.T) {
	p := newPair(t, []string{"t"}, `CREATE SCHEMA "Far away"`, `CREATE EXTENSION citext SCHEMA "Far away"`, `CREATE EXTENSION ltree SCHEMA "Far away"`,
		`CREATE TYPE mood AS ENUM ('sad', 'ok')`, `CREATE DOMAIN small AS integer`,
		`CREATE TABLE t (k bigint NOT NULL, c "Far away".citext, l "Far away".ltree, m mood, s small, a integer[], v varchar(9), b char(3), f text, PRIMARY KEY (k, c, l, m, s, a, v, b))`)
	p.do(`INSERT INTO t VALUES (100, 'Aa', 'a.b', 'sad', 1, '{1}', 'v', 'b', 'x'), (100, 'B', 'a.b', 'ok', 2, '{}', '', '', 'y')`)
	p.copy()
	p.do(`UPDATE t SET f = 'z'`, `UPDATE t SET c = 'aA' WHERE s = 1`, `UPDATE t SET l = 'c', b = 'z' WHERE s = 1`, `DELETE FROM t WHERE m = 'ok'`)
	p.must(p.follow())
	p.equal()
}

// TestMoveRefusesTables: what cannot be followed is refused before it would make
// users' statements fail, with the statement that helps.
func TestMoveRefusesTables(t *testing.T) {
	for name, c := range map[string]struct {
		ddl, fix string
	}{
		"no key":            {`CREATE TABLE t (k bigint NOT NULL, v text)`, `ALTER TABLE "public"."t" REPLICA IDENTITY FULL`},
		"identity nothing":  {`CREATE TABLE t (k bigint PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING`, `ALTER TABLE "public"."t" REPLICA IDENTITY FULL`},
		"key not in it":     {`CREATE TABLE t (k bigint NOT NULL, id serial PRIMARY KEY)`, `ALTER TABLE "public"."t" REPLICA IDENTITY FULL`},
		"unlogged":          {`CREATE UNLOGGED TABLE t (k bigint PRIMARY KEY)`, `ALTER TABLE "public"."t" SET LOGGED`},
		"partitioned":       {`CREATE TABLE t (k bigint PRIMARY KEY) PARTITION BY RANGE (k)`, `partitioned tables cannot be moved`},
		"trigger on always": {`CREATE TABLE t (k bigint PRIMARY KEY); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f(); ALTER TABLE t ENABLE ALWAYS TRIGGER g`, `ALTER TABLE "public"."t" ENABLE TRIGGER "g"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, []string{"t"}, c.ddl)
			findings, err := p.src.CheckMove(t.Context(), p.set.Tables)
			p.must(err)
			if !slices.ContainsFunc(findings, func(f engine.Finding) bool { return f.Level == "error" && f.Fix == c.fix }) {
				t.Errorf("findings %+v", findings)
			}
			_, err = p.src.Capture(t.Context(), pairID, p.set)
			e := sqlstate.As(err)
			if e.Code != sqlstate.ObjectNotInState || e.Table != "t" || !strings.Contains(e.Hint, c.fix) {
				t.Errorf("got %v", err)
			}
			if _, err := p.src.CaptureChanges(t.Context(), pairID, p.set); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
				t.Errorf("got %v", err)
			}
			if n := pgtest.Ask(t, p.urls[0], `SELECT count(*) FROM pg_publication`); n != "0" {
				t.Errorf("%s publications are left", n)
			}
			// What the hint says helps.
			if strings.HasPrefix(c.fix, "ALTER") {
				p.do(c.fix)
				p.copy()
				p.do(`INSERT INTO t (k) VALUES (150)`, `DELETE FROM t WHERE k = 150`)
				p.must(p.follow())
			}
		})
	}
}

func TestMoveLargeValues(t *testing.T) {
	p := newPair(t, []string{"big"}, `CREATE TABLE big (k bigint NOT NULL, id integer NOT NULL, a text, b text, PRIMARY KEY (k, id))`, `ALTER TABLE big ALTER a SET STORAGE EXTERNAL`)
	p.do(`INSERT INTO big VALUES (100, 1, repeat('ab', 50000), 'x'), (99, 2, repeat('cd', 50000), 'y')`)
	p.copy()
	p.equal()
	p.do(`UPDATE big SET b = 'changed' WHERE id = 1`, `UPDATE big SET id = 3 WHERE id = 1`, `UPDATE big SET k = 101, b = NULL WHERE id = 3`,
		`UPDATE big SET a = repeat('ef', 60000) WHERE id = 3`, `INSERT INTO big VALUES (110, 9, repeat('z', 3000000), NULL)`, `UPDATE big SET b = 'small' WHERE id = 9`)
	p.must(p.follow())
	p.equal()
	// Into the set, with a value that the log does not have.
	p.do(`UPDATE big SET k = 102 WHERE id = 2`)
	err := p.follow()
	if e := sqlstate.As(err); e.Code != sqlstate.ObjectNotInState || e.Table != "big" || !strings.Contains(e.Hint, "REPLICA IDENTITY FULL") {
		t.Fatalf("got %v", err)
	}
	// What the hint says.
	p.do(`ALTER TABLE big REPLICA IDENTITY FULL`, `UPDATE big SET k = 99 WHERE id = 2`)
	pgtest.Ask(t, p.urls[1], `TRUNCATE big`)
	p.copy()
	p.do(`UPDATE big SET k = 102 WHERE id = 2`, `UPDATE big SET b = 'again' WHERE id = 3`, `DELETE FROM big WHERE id = 9`)
	p.must(p.follow())
	p.equal()
}

// TestMovePastTriggers: what is moved has been through the source's triggers,
// defaults and keys already.
func TestMovePastTriggers(t *testing.T) {
	p := newPair(t, []string{"child", "made", "hidden"},
		`CREATE TABLE parent (k bigint NOT NULL PRIMARY KEY)`,
		`CREATE TABLE child (k bigint NOT NULL REFERENCES parent ON DELETE CASCADE, id integer, v text, PRIMARY KEY (k, id))`,
		`CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.v := NEW.v || NEW.v; RETURN NEW; END'`,
		`CREATE TRIGGER twice BEFORE INSERT OR UPDATE ON child FOR EACH ROW EXECUTE FUNCTION twice()`,
		`CREATE TABLE made (k bigint NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, v integer, double integer GENERATED ALWAYS AS (v * 2) STORED, w integer DEFAULT 7, PRIMARY KEY (k, id))`,
		`CREATE TABLE hidden (k bigint NOT NULL PRIMARY KEY, v text)`, `ALTER TABLE hidden ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`,
		`CREATE POLICY writers ON hidden FOR INSERT WITH CHECK (true)`,
		`CREATE TYPE mood AS ENUM ('sad', 'it''s ok')`, `CREATE TYPE pair AS (a integer, b text)`, `CREATE DOMAIN small AS integer CHECK (VALUE < 10)`,
		`ALTER TABLE made ADD COLUMN m mood, ADD COLUMN p pair, ADD COLUMN s small, ADD COLUMN ms mood[]`)
	if got := fmt.Sprint(p.set.Tables[1].Columns, p.set.Tables[1].Types[4:]); got != "[k id v w m p s ms] [public.mood public.pair public.small public.mood[]]" {
		t.Fatalf("columns %s", got)
	}
	p.do(`INSERT INTO parent VALUES (100), (101)`, `INSERT INTO child VALUES (100, 1, 'a'), (101, 1, 'b')`,
		`INSERT INTO made (k, v, m, p, s, ms) VALUES (100, 1, 'sad', '(1,"x,y")', 3, '{sad,"it''s ok"}'), (100, 2, NULL, '(,)', NULL, NULL), (99, 3, 'sad', NULL, 1, '{}')`,
		`INSERT INTO hidden VALUES (100, 'x'), (101, 'y')`)
	p.copy()
	p.equal()
	p.do(`DELETE FROM parent WHERE k = 100`, `UPDATE child SET v = 'c'`, `INSERT INTO child VALUES (101, 2, 'd')`,
		`UPDATE made SET v = 5, m = 'it''s ok', p = NULL WHERE v = 1`, `UPDATE made SET k = 120 WHERE v = 3`, `INSERT INTO made (k, v) VALUES (105, 9)`, `UPDATE made SET w = NULL`)
	pgtest.Ask(t, pgtest.Super(p.urls[0]), `UPDATE hidden SET v = 'z'; DELETE FROM hidden WHERE k = 100`) // whom no policy keeps from seeing rows
	p.must(p.follow())
	p.equal()
	if got := pgtest.Ask(t, p.urls[1], `SELECT string_agg(concat_ws(' ', v, double, w), ', ' ORDER BY v) FROM made`); got != "2 4, 3 6, 5 10, 9 18" {
		t.Errorf("generated columns: %s", got)
	}
	// With the whole row in the log, generated columns too.
	p.do(`ALTER TABLE made REPLICA IDENTITY FULL`)
	pgtest.Ask(t, p.urls[1], `TRUNCATE made, child, hidden`)
	p.copy()
	p.do(`UPDATE made SET v = v + 1`, `DELETE FROM made WHERE v = 10`)
	p.must(p.follow())
	p.equal()
}

// TestMoveHugeTransaction has a transaction of a million rows in the stream: memory
// stays where it is.
func TestMoveHugeTransaction(t *testing.T) {
	testrun.Long(t, "a transaction of a million rows; the suite of movers has small ones")
	const n = 1_000_000
	p := newPair(t, []string{"t"}, `CREATE TABLE t (k bigint NOT NULL, id integer, v text, PRIMARY KEY (k, id))`)
	p.copy()
	p.do(fmt.Sprintf(`INSERT INTO t SELECT 100 + i %% 100, i, 'row ' || i FROM generate_series(1, %d) i`, n))
	until, err := p.src.Here(t.Context())
	p.must(err)
	a, err := p.dst.Apply(t.Context(), pairID, p.set)
	p.must(err)
	counted := &counting{Applier: a}
	p.must(p.src.Changes(t.Context(), pairID, p.set, "", until, counted))
	_, err = a.Flush(t.Context())
	p.must(err)
	p.must(a.Close())
	p.equal()
	if counted.n.Load() != n || counted.peak > 64<<20 {
		t.Fatalf("%d changes; the heap grew to %d MiB", counted.n.Load(), counted.peak>>20)
	}
	t.Logf("%d changes, heap at most %d MiB", counted.n.Load(), counted.peak>>20)
}

// slowSink takes its time.
type slowSink struct {
	for_  time.Duration
	slept bool
	n     int
}

func (s *slowSink) Change(context.Context, *engine.Change) error {
	if !s.slept {
		time.Sleep(s.for_)
	}
	s.slept = true
	s.n++
	return nil
}

func (s *slowSink) Commit(context.Context, engine.Position) error { return nil }

// TestMoveServers is about settings of the server.
func TestMoveServers(t *testing.T) {
	server := pgtest.NewServer(t, map[string]string{"wal_sender_timeout": "1s", "max_slot_wal_keep_size": "64MB", "max_wal_size": "64MB", "min_wal_size": "32MB"})
	p := newPairOn(t, [2]string{pgtest.DatabaseOn(t, server), pgtest.Database(t)}, []string{"t"}, `CREATE TABLE t (k bigint PRIMARY KEY, v text)`)
	t.Run("a slow sink does not time out", func(t *testing.T) {
		p.copy()
		p.do(`INSERT INTO t SELECT 100 + i, repeat('x', 100000) FROM generate_series(0, 99) i`) // more than sockets hold
		until, err := p.src.Here(t.Context())
		p.must(err)
		s := &slowSink{for_: 3 * time.Second}
		if err := p.src.Changes(t.Context(), pairID, p.set, "", until, s); err != nil || s.n != 100 {
			t.Fatalf("%d changes, %v", s.n, err)
		}
		// An idle stream neither.
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := p.src.Changes(ctx, pairID, p.set, until, "", s); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("forgotten log is dropped", func(t *testing.T) {
		restart := func() string {
			return pgtest.Ask(t, p.urls[0], `SELECT confirmed_flush_lsn FROM pg_replication_slots`)
		}
		before := restart()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- p.src.Changes(ctx, pairID, p.set, "", "", &slowSink{}) }()
		pgtest.Await(t, p.urls[0], `SELECT active FROM pg_replication_slots`, "t")
		time.Sleep(700 * time.Millisecond) // feedback has been sent
		if now := restart(); now != before {
			t.Fatalf("%s is forgotten, nobody said so", now)
		}
		at, err := p.src.Here(t.Context())
		p.must(err)
		p.must(p.src.Forget(t.Context(), pairID, at))
		pgtest.Await(t, p.urls[0], `SELECT confirmed_flush_lsn FROM pg_replication_slots`, string(at))
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		if err := p.src.Changes(t.Context(), pairID, p.set, engine.Position(before), at, &slowSink{}); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
			t.Fatalf("what was forgotten is given: %v", err)
		}
		p.do(`INSERT INTO t VALUES (1, '')`)
		at, err = p.src.Here(t.Context())
		p.must(err)
		p.must(p.src.Forget(t.Context(), pairID, at)) // without a stream
		if now := restart(); now != string(at) {
			t.Fatalf("%s, want %s", now, at)
		}
	})
	t.Run("a slot that lost its log", func(t *testing.T) {
		for range 12 {
			p.do(`SELECT pg_logical_emit_message(false, 'x', repeat('x', 16000000))`)
			pgtest.Ask(t, pgtest.Super(p.urls[0]), `SELECT pg_switch_wal()`)
		}
		pgtest.Ask(t, pgtest.Super(p.urls[0]), `CHECKPOINT`)
		err := p.src.Changes(t.Context(), pairID, p.set, "", "", &slowSink{})
		if e := sqlstate.As(err); e.Code != sqlstate.ObjectNotInState || !strings.Contains(e.Hint, "anew") {
			t.Fatalf("got %v", err)
		}
		pgtest.Ask(t, p.urls[1], `TRUNCATE t`)
		p.copy() // anew
		p.equal()
	})
}

// TestMoveShutdown: a server that is stopped does not wait for a stream whose changes
// were not forgotten.
func TestMoveShutdown(t *testing.T) {
	server := pgtest.NewServer(t, nil)
	url := pgtest.DatabaseOn(t, server)
	pgtest.Ask(t, url, `CREATE TABLE t (k bigint PRIMARY KEY, v text)`)
	v := installed(t, url).(engine.Movable).Mover(1)
	set := engine.Set{Keys: keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Int8}, Intervals: []keyspace.Interval{keyspace.WholeRange()}}}
	var err error
	if set.Tables, err = v.Describe(t.Context(), []engine.MoveTable{{Schema: "public", Name: "t", ShardKey: []string{"k"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.CaptureChanges(t.Context(), pairID, set); err != nil {
		t.Fatal(err)
	}
	pgtest.Ask(t, url, `INSERT INTO t VALUES (1, 'x')`)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), waitfor.Max)
	defer cancel()
	go func() { ended <- v.Changes(ctx, pairID, set, "", "", &slowSink{}) }()
	pgtest.Await(t, url, `SELECT active FROM pg_replication_slots`, "t")
	stopping := exec.Command("kill", "-INT", strconv.Itoa(server.PID()))
	if out, err := stopping.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	select {
	case <-server.Done():
	case <-time.After(40 * time.Second):
		t.Fatal("the server waits for the stream")
	}
	if err := <-ended; engine.Lost(err) == nil && sqlstate.CodeOf(err) != sqlstate.AdminShutdown {
		t.Fatalf("the stream ended with %v", err)
	}
}

func TestMoveCheckSettings(t *testing.T) {
	server := pgtest.NewServer(t, map[string]string{"wal_level": "replica", "max_replication_slots": "2", "max_slot_wal_keep_size": "1GB", "max_wal_senders": "1"})
	url := pgtest.DatabaseOn(t, server)
	installed(t, url)
	pgtest.Ask(t, pgtest.Super(url), `CREATE ROLE plain LOGIN`)
	s := open(t, strings.Replace(url, server.User()+"@", "plain@", 1))
	findings, err := s.(engine.Movable).Mover(1).CheckMove(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	levels := map[string]string{}
	for _, f := range findings {
		levels[f.Name] = f.Level
		if f.Level != "ok" && (f.Want == "" || f.Fix == "") {
			t.Errorf("%+v does not say what to do", f)
		}
	}
	for name, want := range map[string]string{
		"primary": "ok", "wal_level": "error", "max_replication_slots": "error", "max_wal_senders": "error", "max_slot_wal_keep_size": "warning",
		"privilege REPLICATION": "error", "privilege CREATE on the database": "error", "privilege CREATE on schema cleave_internal": "error",
		"privilege SET of session_replication_role": "error", "privilege SET of deadlock_timeout": "warning",
	} {
		if levels[name] != want {
			t.Errorf("%s is %q, want %q", name, levels[name], want)
		}
	}
}

// TestMoveByAnOrdinaryRole has no superuser, from version 15 on.
func TestMoveByAnOrdinaryRole(t *testing.T) {
	versions := pgtest.Versions(t)
	server := pgtest.NewServerOf(t, versions[slices.IndexFunc(versions, func(i localpg.Installation) bool { return i.Major >= 15 })], nil)
	p := newPairOn(t, [2]string{pgtest.DatabaseOn(t, server), pgtest.DatabaseOn(t, server)}, nil)
	pgtest.Ask(t, pgtest.Super(p.urls[0]), `CREATE ROLE mover LOGIN REPLICATION`)
	defer func() {
		for _, url := range p.urls {
			pgtest.Ask(t, pgtest.Super(url), `DROP OWNED BY mover`)
		}
		pgtest.Ask(t, pgtest.Super(p.urls[0]), `DROP ROLE mover`)
	}()
	pgtest.Ask(t, pgtest.Super(p.urls[0]), `GRANT SET ON PARAMETER session_replication_role, deadlock_timeout TO mover`)
	user := server.User() + "@"
	for i, m := range []*engine.Mover{&p.src, &p.dst} {
		pgtest.Ask(t, pgtest.Super(p.urls[i]), `GRANT CREATE ON DATABASE `+p.urls[i][strings.LastIndexByte(p.urls[i], '/')+1:strings.IndexByte(p.urls[i], '?')]+` TO mover`)
		pgtest.Ask(t, pgtest.Super(p.urls[i]), `GRANT CREATE ON SCHEMA cleave_internal, public TO mover`)
		pgtest.Ask(t, pgtest.Super(p.urls[i]), `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA cleave_internal TO mover`)
		pgtest.Ask(t, pgtest.Super(p.urls[i]), `SET ROLE mover; CREATE TABLE t (k bigint PRIMARY KEY, v text)`)
		*m = open(t, strings.Replace(p.urls[i], user, "mover@", 1)).(engine.Movable).Mover(1)
	}
	var err error
	p.set.Tables, err = p.src.Describe(t.Context(), []engine.MoveTable{{Schema: "public", Name: "t", ShardKey: []string{"k"}}})
	p.must(err)
	findings, err := p.src.CheckMove(t.Context(), p.set.Tables)
	p.must(err)
	for _, f := range findings {
		if f.Level == "error" {
			t.Errorf("%+v", f)
		}
	}
	pgtest.Ask(t, pgtest.Super(p.urls[0]), `INSERT INTO t VALUES (100, 'x')`)
	p.copy()
	pgtest.Ask(t, pgtest.Super(p.urls[0]), `INSERT INTO t VALUES (101, 'x')`)
	p.must(p.follow())
	p.equal()
	_, err = p.src.Fence(t.Context(), []engine.Guard{{Schema: "public", Table: "t", ShardKey: []string{"k"}, Owned: keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8}}}})
	p.must(err)
	n, err := p.src.Purge(t.Context(), p.set, 10)
	if n != 2 || err != nil {
		t.Fatalf("%d rows were purged: %v", n, err)
	}
	for _, m := range []engine.Mover{p.src, p.dst} {
		p.must(m.Release(t.Context(), pairID))
	}
}

// TestMoveRewrite: a table that gets another file under a copy.
func TestMoveRewrite(t *testing.T) {
	p := newPair(t, []string{"t"}, `CREATE TABLE t (k bigint PRIMARY KEY, v text)`)
	p.do(`INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(0, 999) i`)
	view, err := p.src.Capture(t.Context(), pairID, p.set)
	p.must(err)
	defer view.Close()
	parts, err := view.Parts(t.Context(), 0, 64<<10, nil)
	p.must(err)
	p.must(view.Rows(t.Context(), 0, parts[0], nil, io.Discard))
	p.do(`VACUUM FULL t`)
	if err := view.Rows(t.Context(), 0, parts[1], nil, io.Discard); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || sqlstate.As(err).Table != "t" {
		t.Fatalf("got %v", err)
	}
	// Parts are those of the table also when it is none of them.
	p.copy()
	p.equal()
	// A change of all values that is in no row's change.
	p.do(`ALTER TABLE t ALTER v TYPE text USING upper(v)`)
	if err := p.follow(); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || sqlstate.As(err).Table != "t" {
		t.Fatalf("got %v", err)
	}
}

func TestFenceWaitsForPreparedTransactions(t *testing.T) {
	p := newPair(t, []string{"t"}, `CREATE TABLE t (k bigint PRIMARY KEY, v text)`)
	p.do(`BEGIN; INSERT INTO t VALUES (150, 'x'); PREPARE TRANSACTION 'fence'`)
	guards := []engine.Guard{{Schema: "public", Table: "t", ShardKey: []string{"k"}, Owned: keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8}, Epoch: 2,
		Intervals: []keyspace.Interval{{Low: 0, High: math.MaxInt64}}}}}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	if _, err := p.src.Fence(ctx, guards); sqlstate.CodeOf(err) != sqlstate.LockNotAvailable {
		t.Fatalf("got %v", err)
	}
	p.do(`COMMIT PREPARED 'fence'`)
	if _, err := p.src.Fence(t.Context(), guards); err != nil {
		t.Fatal(err)
	}
}

// TestSizesAreOfLiveRows: what files keep of rows that have gone is not counted to those that are left.
func TestSizesAreOfLiveRows(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"t"}, "CREATE TABLE t (k bigint, v text)")
	pgtest.Ask(t, p.urls[0], "INSERT INTO t SELECT 100 + g % 100, repeat('x', 200) FROM generate_series(1, 2000) g")
	rows, full, err := p.src.Sizes(t.Context(), p.set)
	p.must(err)
	pgtest.Ask(t, p.urls[0], "DELETE FROM t WHERE k >= 110")
	left, bytes, err := p.src.Sizes(t.Context(), p.set)
	p.must(err)
	if rows != 2000 || left != 200 || bytes*9 > full {
		t.Errorf("%d rows of %d bytes, then %d of %d", rows, full, left, bytes)
	}
}

// TestSumsInPieces: sums are the same when a table is read piece by piece, also if it gets another
// file and rows are changed meanwhile.
func TestSumsInPieces(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"t"}, "CREATE TABLE t (k bigint, id integer, v text)")
	pgtest.Ask(t, p.urls[0], "INSERT INTO t SELECT g % 300, g, repeat('x', 500) FROM generate_series(1, 9000) g")
	want, err := p.src.Sums(t.Context(), p.set, nil)
	p.must(err)
	view, err := p.src.View(t.Context(), p.set)
	p.must(err)
	defer view.Close()
	pgtest.Ask(t, p.urls[0], "VACUUM FULL t")
	pieces := 0
	got, err := view.Sums(t.Context(), func(context.Context, int64) (int64, error) {
		if pieces++; pieces == 2 {
			pgtest.Ask(t, p.urls[0], "UPDATE t SET v = v || 'y' WHERE id % 2 = 0")
			pgtest.Ask(t, p.urls[0], "INSERT INTO t SELECT 150, g, repeat('z', 500) FROM generate_series(10001, 15000) g")
		}
		return 1 << 20, nil
	})
	p.must(err)
	if !slices.Equal(got, want) || got[0].Rows != 3000 || pieces < 4 {
		t.Errorf("%v in %d pieces, %v in one", got, pieces, want)
	}
	enough := errors.New("enough")
	if _, err := p.src.Sums(t.Context(), p.set, func(context.Context, int64) (int64, error) { return 0, enough }); !errors.Is(err, enough) {
		t.Errorf("the pace's error became %v", err)
	}
}

// TestIdleCommitSettles: what a Commit without changes says has been reached is committed, even if COMMIT
// takes its time: reverse replication begins behind it, and others read it.
func TestIdleCommitSettles(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"t"}, "CREATE TABLE t (k bigint PRIMARY KEY, v text)")
	for _, sql := range []string{
		"CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END'",
		"CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger()",
		"ALTER TABLE t ENABLE ALWAYS TRIGGER linger",
	} {
		pgtest.Ask(t, p.urls[1], sql)
	}
	p.must(p.dst.SetApplied(t.Context(), pairID, "0/1"))
	a, err := p.dst.Apply(t.Context(), pairID, p.set)
	p.must(err)
	defer a.Close()
	for i, key := range []string{"100", "101"} {
		p.must(a.Change(t.Context(), &engine.Change{Op: engine.ChangeInsert, New: []engine.Text{{String: key}, {String: "x"}}}))
		p.must(a.Commit(t.Context(), engine.Position(fmt.Sprintf("0/%d", 2*i+2))))
		if i == 1 { // the timer's COMMIT is on its way
			time.Sleep(250 * time.Millisecond)
		}
		p.must(a.Commit(t.Context(), engine.Position(fmt.Sprintf("0/%d", 2*i+3))))
		if n := pgtest.Ask(t, p.urls[1], "SELECT count(*) FROM t"); n != fmt.Sprint(i+1) {
			t.Errorf("%s rows are there after the %dth COMMIT", n, i+1)
		}
	}
}

// TestApplierThatIsCalledOff: what ends an applier's conversation because its context has ended is told as the context's end, whichever
// call meets it.
func TestApplierThatIsCalledOff(t *testing.T) {
	p := newPair(t, []string{"a"}, `CREATE TABLE a (k bigint PRIMARY KEY, v text)`)
	ctx, stop := context.WithCancel(t.Context())
	a, err := p.dst.Apply(ctx, "called-off", p.set)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	insert := &engine.Change{Op: engine.ChangeInsert, New: []engine.Text{{String: "100"}, {String: "x"}}}
	if err := a.Change(ctx, insert); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(ctx, "0/1"); err != nil {
		t.Fatal(err)
	}
	stop()
	waitfor.True(t, "its conversation is severed", func() bool {
		_, err := a.Flush(ctx)
		return err != nil
	})
	if err := a.Change(ctx, insert); !errors.Is(err, context.Canceled) {
		t.Errorf("a change: %v", err)
	}
	if err := a.Commit(ctx, "0/2"); !errors.Is(err, context.Canceled) {
		t.Errorf("a commit: %v", err)
	}
	if _, err := a.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a flush: %v", err)
	}
}
