package sqlite_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/enginetest"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

func mustExec(t testing.TB, c engine.Conn, sql string) *engine.Result {
	t.Helper()
	r, err := engine.Exec(c, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return r
}

func open(t testing.TB, s engine.Shard) engine.Conn {
	t.Helper()
	c, err := s.Connect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// An error of a function must stop the statement that calls it, also from inside
// a trigger (see register.go).
func TestFunctionErrorStopsStatement(t *testing.T) {
	c := open(t, harness().Open(t))
	mustExec(t, c, "CREATE TABLE t (a integer, CHECK (10 / a > 0))")
	for _, sql := range []string{"SELECT 1 / 0", "INSERT INTO t VALUES (0)", "SELECT sum(1 / x) FROM (VALUES (1), (0)) v(x)", "SELECT 1 WHERE 1 / 0 = 1"} {
		if _, err := engine.Exec(c, sql); sqlstate.CodeOf(err) != "22012" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if r := mustExec(t, c, "SELECT count(*) FROM t"); r.Rows[0][0].String != "0" {
		t.Fatalf("rows: %v", r.Rows)
	}
}

func TestVirtual(t *testing.T) {
	tables := []engine.VirtualTable{{
		Name:    "shards",
		Columns: []engine.VirtualColumn{{Name: "name", OID: 25}, {Name: "rows", OID: 20}, {Name: "weight", OID: 701}, {Name: "up", OID: 16}, {Name: "since", OID: 1184}},
		Rows: [][]engine.Text{
			{{String: "shard-0"}, {String: "12"}, {String: "1.5"}, {String: "t"}, {String: "2020-01-01 00:00:00+00"}},
			{{String: "shard-1"}, {Null: true}, {String: "2"}, {String: "f"}, {Null: true}},
		},
	}}
	c, err := sqlite.OpenVirtual("cleave", tables)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := mustExec(t, c, "SELECT s.name, s.rows + 1, weight, up, since FROM cleave.shards s ORDER BY name")
	if got := fmt.Sprint(r.Rows); got != "[[{shard-0 false} {13 false} {1.5 false} {t false} {2020-01-01 00:00:00+00 false}] [{shard-1 false} { true} {2 false} {f false} { true}]]" {
		t.Fatalf("rows %s", got)
	}
	mustExec(t, c, "BEGIN; SELECT count(*) FROM shards; COMMIT")
	for sql, code := range map[string]sqlstate.Code{
		"INSERT INTO cleave.shards VALUES ('x')": sqlstate.InsufficientPrivilege, "DELETE FROM cleave.shards": sqlstate.InsufficientPrivilege,
		"DROP TABLE cleave.shards": sqlstate.InsufficientPrivilege, "CREATE TABLE x (a int)": sqlstate.InsufficientPrivilege, "SELECT * FROM cleave.nosuch": sqlstate.UndefinedTable,
	} {
		if _, err := engine.Exec(c, sql); sqlstate.CodeOf(err) != code {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if r := mustExec(t, c, "SELECT column_name FROM information_schema.columns WHERE table_name = 'shards' ORDER BY ordinal_position LIMIT 1"); r.Rows[0][0].String != "name" {
		t.Fatalf("columns %v", r.Rows)
	}
}

// Writers of several handles (as several processes are) wait for each other;
// nothing is lost.
func TestConcurrentWriters(t *testing.T) {
	url := harness().URL(t)
	var shards []engine.Shard
	for range 2 {
		s, err := sqlite.Driver{}.Open(engine.Config{Cluster: enginetest.Cluster, Name: enginetest.Shard, URL: url + "?busy_timeout=30s"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		shards = append(shards, s)
	}
	if err := shards[0].Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, open(t, shards[0]), "CREATE TABLE n (id integer PRIMARY KEY, v bigint); INSERT INTO n VALUES (1, 0)")
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	const each = 40
	for i := range 4 {
		c := open(t, shards[i%2])
		wg.Go(func() {
			for range each {
				if _, err := engine.Exec(c, "BEGIN; SELECT v FROM n WHERE id = 1; UPDATE n SET v = v + 1 WHERE id = 1; COMMIT"); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	if r := mustExec(t, open(t, shards[1]), "SELECT v FROM n"); r.Rows[0][0].String != fmt.Sprint(4*each) {
		t.Fatalf("v = %v", r.Rows)
	}

	// Another process is one that does not queue here; another name of the file is as good. It has one writer, and
	// gets its turns among those of four, who never let the file go.
	path, _, _ := strings.Cut(strings.TrimPrefix(url, "file:"), "?")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(path), link); err != nil {
		t.Fatal(err)
	}
	other := open(t, openURL(t, "file:"+filepath.Join(link, filepath.Base(path))+"?busy_timeout=30s"))
	var over atomic.Bool
	var many atomic.Int64
	var worst int64
	for range 4 {
		c := open(t, shards[0])
		wg.Go(func() {
			for !over.Load() {
				if _, err := engine.Exec(c, "BEGIN; UPDATE n SET v = v + 1 WHERE id = 1; SELECT count(*) FROM generate_series(1, 2000); COMMIT"); err != nil {
					t.Error(err)
					return
				}
				many.Add(1)
			}
		})
	}
	for many.Load() < 4 && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	for range each {
		before := many.Load()
		mustExec(t, other, "UPDATE n SET v = v + 1 WHERE id = 1")
		worst = max(worst, many.Load()-before)
	}
	over.Store(true)
	wg.Wait()
	t.Logf("at most %d others went first", worst)
	if worst > 8 {
		t.Errorf("a process that waits for the write lock is overtaken %d times", worst)
	}

	// A transaction with a snapshot waits for a writer of another process as well: it may be the latest when that one has ended.
	first := open(t, shards[0])
	mustExec(t, first, "BEGIN; UPDATE n SET v = 0")
	mustExec(t, other, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT v FROM n")
	wrote := make(chan error, 1)
	go func() { _, err := engine.Exec(other, "UPDATE n SET v = 1; COMMIT"); wrote <- err }()
	for waits := (time.Time{}); waits.IsZero() && len(wrote) == 0; time.Sleep(time.Millisecond) {
		_, waits = other.(engine.Grouped).WriteLock()
	}
	mustExec(t, first, "ROLLBACK")
	if err := <-wrote; err != nil {
		t.Errorf("a snapshot's first write, while another process was writing: %v", err)
	}
}

func TestLockTimeoutAndSerialization(t *testing.T) {
	s := harness().Open(t)
	a, b := open(t, s), open(t, s)
	mustExec(t, a, "CREATE TABLE n (v integer); INSERT INTO n VALUES (1)")
	mustExec(t, a, "BEGIN; UPDATE n SET v = 2")
	mustExec(t, b, "SET lock_timeout TO '100ms'")
	if _, err := engine.Exec(b, "UPDATE n SET v = 3"); sqlstate.CodeOf(err) != sqlstate.LockNotAvailable {
		t.Fatalf("got %v", err)
	}
	if r := mustExec(t, b, "SELECT v FROM n"); r.Rows[0][0].String != "1" {
		t.Fatalf("an uncommitted value: %v", r.Rows)
	}
	mustExec(t, a, "COMMIT")
	mustExec(t, b, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT v FROM n")
	mustExec(t, a, "UPDATE n SET v = 4")
	if r := mustExec(t, b, "SELECT v FROM n"); r.Rows[0][0].String != "2" {
		t.Fatalf("the snapshot moved: %v", r.Rows)
	}
	if _, err := engine.Exec(b, "UPDATE n SET v = 5"); sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
		t.Fatalf("got %v", err)
	}
	mustExec(t, b, "ROLLBACK")
	// READ COMMITTED sees each commit, and may write after it.
	mustExec(t, b, "BEGIN; SELECT v FROM n")
	mustExec(t, a, "UPDATE n SET v = 6")
	if r := mustExec(t, b, "SELECT v FROM n"); r.Rows[0][0].String != "6" {
		t.Fatalf("READ COMMITTED: %v", r.Rows)
	}
	mustExec(t, b, "UPDATE n SET v = v + 1; COMMIT")
}

// A wait that reaches its bound is 55P03 where PostgreSQL has that bound (lock_timeout), and where a client cannot
// expect anything else; under the levels whose clients run a transaction again it is their 40001.
func TestWaitForTheWriterByIsolation(t *testing.T) {
	s := openURL(t, harness().URL(t)+"?busy_timeout=50ms")
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := open(t, s), open(t, s)
	mustExec(t, a, "CREATE TABLE n (k integer, v integer); INSERT INTO n VALUES (1, 1), (2, 1)")
	for _, c := range []struct {
		begin string
		want  sqlstate.Code
	}{
		{"BEGIN; SELECT v FROM n", sqlstate.LockNotAvailable},
		{"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT v FROM n", sqlstate.SerializationFailure},
		{"BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT v FROM n", sqlstate.SerializationFailure},
		{"BEGIN ISOLATION LEVEL SERIALIZABLE", sqlstate.SerializationFailure},
		{"BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL lock_timeout = '50ms'; SELECT v FROM n", sqlstate.LockNotAvailable},
		{"SET default_transaction_isolation = 'serializable'; BEGIN", sqlstate.SerializationFailure},
		{"RESET default_transaction_isolation; BEGIN", sqlstate.LockNotAvailable},
	} {
		mustExec(t, b, c.begin)
		mustExec(t, a, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT v FROM n; UPDATE n SET v = v + 1 WHERE k = 1")
		_, err := engine.Exec(b, "UPDATE n SET v = v + 1 WHERE k = 2")
		if sqlstate.CodeOf(err) != c.want {
			t.Errorf("%s: got %v, want %s", c.begin, err, c.want)
		}
		mustExec(t, b, "ROLLBACK")
		mustExec(t, a, "COMMIT")
	}
	if r := mustExec(t, b, "SELECT v FROM n ORDER BY k"); r.Rows[0][0].String != "8" || r.Rows[1][0].String != "1" {
		t.Errorf("rows %v", r.Rows)
	}
}

func TestStatementTimeout(t *testing.T) {
	c := open(t, harness().Open(t))
	mustExec(t, c, "SET statement_timeout TO 100")
	start := time.Now()
	if _, err := engine.Exec(c, harness().Slow); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
		t.Fatalf("got %v", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Fatalf("it took %v", d)
	}
	mustExec(t, c, "SET statement_timeout TO 0; SELECT 1")
}

// A plan prepared before another conversation changed the table must not give
// rows of the old shape.
func TestPlanAfterChange(t *testing.T) {
	s := harness().Open(t)
	a, b := open(t, s), open(t, s)
	mustExec(t, a, "CREATE TABLE t (x integer, y integer); INSERT INTO t VALUES (1, 2)")
	if o := converse2(t, b, wire.AppendEmpty(wire.AppendParse(nil, "p", "SELECT * FROM t", nil), wire.Sync)); o.err != nil {
		t.Fatal(o.err)
	}
	run := func() outcome {
		f := wire.AppendBind(nil, "", "p", nil, nil, nil)
		return converse2(t, b, wire.AppendEmpty(wire.AppendExecute(f, "", 0), wire.Sync))
	}
	if o := run(); o.err != nil || o.rows[0] != "1|2" {
		t.Fatalf("%+v", o)
	}
	mustExec(t, a, "ALTER TABLE t DROP COLUMN x; ALTER TABLE t ADD COLUMN x text DEFAULT 'new'")
	if o := run(); o.err == nil || o.err.Message != "cached plan must not change result type" {
		t.Fatalf("%+v", o)
	}
	if r := mustExec(t, b, "SELECT * FROM t"); fmt.Sprint(r.Rows) != "[[{2 false} {new false}]]" {
		t.Fatalf("%v", r.Rows)
	}
}

func converse2(t *testing.T, c engine.Conn, frames []byte) outcome { return converse(t, c, frames) }

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	connectTo := func(name string) error {
		s, err := sqlite.Driver{}.Open(engine.Config{Cluster: enginetest.Cluster, Name: enginetest.Shard, URL: "file:" + filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c, err := s.Connect(t.Context(), nil)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "junk.db"), []byte(strings.Repeat("this is no database ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := connectTo("junk.db"); sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
		t.Errorf("junk: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "empty.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"none.db", "empty.db"} {
		if err := connectTo(name); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !strings.Contains(sqlstate.As(err).Hint, "cleave shard set") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, url := range []string{"postgres://x", "file:", "file://host/x.db", "file:/x.db?nosuch=1", "file:/x.db?busy_timeout=never"} {
		if _, err := (sqlite.Driver{}).Open(engine.Config{URL: url}); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestConnectionCap(t *testing.T) {
	s, err := sqlite.Driver{}.Open(engine.Config{Cluster: "c", Name: "s", URL: harness().URL(t) + "?max_connections=2"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := open(t, s)
	open(t, s)
	if _, err := s.Connect(t.Context(), nil); sqlstate.CodeOf(err) != sqlstate.TooManyConnections {
		t.Fatalf("got %v", err)
	}
	a.Close()
	open(t, s)
}

// A program without Cleave's functions cannot write to a guarded table.
func TestGuardAgainstOtherPrograms(t *testing.T) {
	url := harness().URL(t)
	s, err := sqlite.Driver{}.Open(engine.Config{Cluster: enginetest.Cluster, Name: enginetest.Shard, URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := open(t, s)
	mustExec(t, c, "CREATE TABLE g (id bigint PRIMARY KEY)")
	guard := engine.Guard{Schema: "public", Table: "g", ShardKey: []string{"id"},
		Owned: keyspace.Ownership{Keyspace: "k", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8}, Intervals: []keyspace.Interval{{Low: -1 << 63, Last: true}}, Epoch: 1}}
	if err := c.SetGuard(t.Context(), guard); err != nil {
		t.Fatal(err)
	}
	mustExec(t, c, "INSERT INTO g VALUES (1)")
	if err := sqlite.PlainExec(strings.TrimPrefix(url, "file:"), "INSERT INTO g VALUES (2)"); err == nil || !strings.Contains(err.Error(), "cleave_") {
		t.Fatalf("got %v", err)
	}
}

const crashVariable = "CLEAVE_SQLITE_CRASH_URL"

// TestCrashChild is the process that TestCrash kills.
func TestCrashChild(t *testing.T) {
	url := os.Getenv(crashVariable)
	if url == "" {
		return // only TestCrash starts it
	}
	s, err := sqlite.Driver{}.Open(engine.Config{Cluster: enginetest.Cluster, Name: enginetest.Shard, URL: url})
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, s)
	for i := 0; ; i++ {
		mustExec(t, c, fmt.Sprintf("INSERT INTO log VALUES (%d, '%s')", i, strings.Repeat("x", 500)))
		fmt.Printf("acknowledged %d\n", i)
	}
}

// TestCrash kills a writer again and again: every acknowledged row is there.
func TestCrash(t *testing.T) {
	url := harness().URL(t)
	s, err := sqlite.Driver{}.Open(engine.Config{Cluster: enginetest.Cluster, Name: enginetest.Shard, URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		c := open(t, s)
		mustExec(t, c, "DROP TABLE IF EXISTS log; CREATE TABLE log (id integer PRIMARY KEY, pad text)")
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
		cmd.Env = append(os.Environ(), crashVariable+"="+url)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		last := -1
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			var n int
			if _, err := fmt.Sscanf(sc.Text(), "acknowledged %d", &n); err == nil {
				last = n
			}
			if last == 100+50*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := sc.Err(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
		cmd.Wait()
		r := mustExec(t, c, "SELECT count(*), max(id) FROM log")
		var count, most int
		fmt.Sscan(r.Rows[0][0].String, &count)
		fmt.Sscan(r.Rows[0][1].String, &most)
		if last < 100 || most < last || count != most+1 {
			t.Fatalf("round %d: acknowledged up to %d, %d rows up to %d", round, last, count, most)
		}
		c.Close()
	}
}

// FuzzStatement: whatever the text, the conversation answers and goes on.
func FuzzStatement(f *testing.F) {
	for _, name := range []string{"expression", "query", "change", "datetime"} {
		text, err := os.ReadFile("testdata/" + name + ".sql")
		if err != nil {
			f.Fatal(err)
		}
		for _, s := range statements(string(text)) {
			f.Add(s)
		}
	}
	c, err := sqlite.OpenVirtual("cleave", []engine.VirtualTable{{Name: "customer", Columns: []engine.VirtualColumn{{Name: "id", OID: 20}, {Name: "name", OID: 25}, {Name: "city", OID: 25}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	f.Fuzz(func(t *testing.T, sql string) {
		if strings.ContainsRune(sql, 0) {
			return
		}
		b := wire.AppendQuery(nil, "SET statement_timeout TO 200")
		b = wire.AppendParse(b, "", sql, nil)
		b = wire.AppendDescribe(b, 'S', "")
		b = wire.AppendBind(b, "", "", nil, nil, nil)
		b = wire.AppendExecute(b, "", 10)
		b = wire.AppendEmpty(b, wire.Sync)
		b = wire.AppendQuery(b, "ROLLBACK")
		b = wire.AppendQuery(b, "SET statement_timeout TO 0")
		if err := c.Send(b); err != nil {
			t.Fatal(err)
		}
		for ready := 0; ready < 4; {
			out, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			for len(out) > 0 {
				fr, rest, ok, err := wire.Cut(out)
				if err != nil || !ok {
					t.Fatalf("%v", err)
				}
				switch fr.Type() {
				case wire.ReadyForQuery:
					ready++
				case wire.ErrorResponse:
					if e := wire.ParseReport(fr.Body()); e.Code == sqlstate.InternalError {
						t.Fatalf("%s: %v", sql, e)
					}
				}
				out = rest
			}
		}
	})
}

// BenchmarkPoint is a prepared SELECT by primary key through the protocol.
func BenchmarkPoint(b *testing.B) {
	s, err := sqlite.Driver{}.Open(engine.Config{Cluster: "c", Name: "s", URL: "file:" + filepath.Join(b.TempDir(), "b.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.Install(b.Context()); err != nil {
		b.Fatal(err)
	}
	c := open(b, s)
	mustExec(b, c, "CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t SELECT g, 'value ' || g FROM generate_series(1, 10000) g")
	if err := c.Send(wire.AppendEmpty(wire.AppendParse(nil, "p", "SELECT id, v FROM t WHERE id = $1", nil), wire.Sync)); err != nil {
		b.Fatal(err)
	}
	if _, err := c.Receive(); err != nil {
		b.Fatal(err)
	}
	var frames []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		frames = wire.AppendBind(frames[:0], "", "p", nil, [][]byte{[]byte(fmt.Sprint(i%10000 + 1))}, nil)
		frames = wire.AppendEmpty(wire.AppendExecute(frames, "", 0), wire.Sync)
		if err := c.Send(frames); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Receive(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenVirtual is what a statement on the schema cleave costs to begin.
func BenchmarkOpenVirtual(b *testing.B) {
	tables := []engine.VirtualTable{{Name: "shards", Columns: []engine.VirtualColumn{{Name: "name", OID: 25}}, Rows: [][]engine.Text{{{String: "shard-0"}}}}}
	for b.Loop() {
		c, err := sqlite.OpenVirtual("cleave", tables)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := engine.Exec(c, "SELECT * FROM cleave.shards"); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
