package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const clusterID = "0d6cbf63-7f0b-4f38-9d2e-1f6f5d1a2b3c"

func start(t testing.TB, limits executor.Limits, shards int) (*executor.Executor, shardmap.Directory) {
	t.Helper()
	var all []shardmap.Shard
	for i := range shards {
		s := shardmap.Shard{Name: fmt.Sprint("shard-", i), Engine: "postgres", URL: pgtest.Database(t), Weight: 1}
		all = append(all, s)
		install(t, s)
	}
	return startWith(t, limits, all...)
}

// startWith starts an executor over shards that are installed.
func startWith(t testing.TB, limits executor.Limits, shards ...shardmap.Shard) (*executor.Executor, shardmap.Directory) {
	t.Helper()
	ctx := context.Background()
	state := shardmap.State{Format: shardmap.Format, Cluster: clusterID, DefaultShard: "shard-0", Shards: shards}
	dir := memory.New()
	if _, err := dir.Update(ctx, shardmap.Change{By: "test", Why: "test", Op: "test"}, state); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return follow(t, dir, limits), dir
}

// follow starts an executor over a directory.
func follow(t testing.TB, dir shardmap.Directory, limits executor.Limits) *executor.Executor {
	t.Helper()
	return followWith(t, dir, limits, postgres.Driver{})
}

func followWith(t testing.TB, dir shardmap.Directory, limits executor.Limits, driver engine.Driver) *executor.Executor {
	t.Helper()
	ex := executor.New(executor.Options{Directory: dir, Drivers: map[string]engine.Driver{"postgres": driver}, Planner: planner.New(planner.Limits{}), Limits: limits, Metrics: telemetry.New()})
	if err := ex.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ex.Close(); err != nil {
			t.Error(err)
		}
	})
	return ex
}

func install(t testing.TB, s shardmap.Shard) {
	t.Helper()
	sh, err := postgres.Driver{}.Open(engine.Config{Cluster: clusterID, Name: s.Name, URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := sh.Install(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := sh.Close(); err != nil {
		t.Fatal(err)
	}
}

func acquire(t testing.TB, ex *executor.Executor, shard string, s *executor.Settings) *executor.Conn {
	t.Helper()
	c, err := ex.Acquire(context.Background(), shard, s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func value(t testing.TB, c *executor.Conn, sql string) string {
	t.Helper()
	res, err := c.Exec(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if len(res.Rows) == 0 {
		return ""
	}
	return res.Rows[0][0].String
}

func TestSettingsFollowTheSession(t *testing.T) {
	ex, _ := start(t, executor.Limits{PoolMax: 1}, 1)
	var a *executor.Settings
	a = a.With("work_mem", "'5MB'").With("timezone", "'Asia/Tokyo'").With("my.x", "'1'")
	b := a.Without("work_mem").With("my.x", "'2'")
	for range 3 {
		for _, want := range []struct {
			s            *executor.Settings
			mem, zone, x string
		}{{a, "5MB", "Asia/Tokyo", "1"}, {b, "4MB", "Asia/Tokyo", "2"}, {nil, "4MB", "UTC", ""}} {
			c := acquire(t, ex, "shard-0", want.s)
			if m, z, x := value(t, c, "SHOW work_mem"), value(t, c, "SHOW timezone"), value(t, c, "SELECT current_setting('my.x', true)"); m != want.mem || z != want.zone || x != want.x {
				t.Errorf("%s %s %s, want %+v", m, z, x, want)
			}
			c.Release()
		}
	}
	// A value that the shard refuses costs the connection, and says which setting.
	_, err := ex.Acquire(context.Background(), "shard-0", a.With("timezone", "'No/Where'"))
	if sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
		t.Errorf("%v", err)
	}
	c := acquire(t, ex, "shard-0", nil)
	if z := value(t, c, "SHOW timezone"); z != "UTC" {
		t.Errorf("timezone %s", z)
	}
	c.Release()
}

func TestReleaseIsClean(t *testing.T) {
	ex, _ := start(t, executor.Limits{PoolMax: 1}, 1)
	c := acquire(t, ex, "shard-0", nil)
	pid := value(t, c, "SELECT pg_backend_pid()")
	c.Release()
	c = acquire(t, ex, "shard-0", nil)
	if p := value(t, c, "SELECT pg_backend_pid()"); p != pid {
		t.Error("a clean connection is not used again")
	}
	value(t, c, "BEGIN")
	c.Release()
	c = acquire(t, ex, "shard-0", nil)
	if p := value(t, c, "SELECT pg_backend_pid()"); p == pid {
		t.Error("a connection in a transaction is used again")
	}
	if c.Status() != 'I' {
		t.Errorf("status %c", c.Status())
	}
	c.Release()
	// Given to others, who leave a transaction open.
	ec, release, err := ex.Connect(context.Background(), "shard-0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Exec(ec, "BEGIN"); err != nil {
		t.Fatal(err)
	}
	release(false)
	release(false) // twice is harmless
	c = acquire(t, ex, "shard-0", nil)
	if res, err := c.Exec("SELECT 1"); err != nil || res.Status != 'I' {
		t.Errorf("%+v, %v", res, err)
	}
	c.Release()
	if h := ex.Health()[0]; h.Open != 1 || h.Idle != 1 {
		t.Errorf("%+v", h)
	}
}

func TestPoolHoldsItsBound(t *testing.T) {
	ex, _ := start(t, executor.Limits{PoolMax: 3, PoolWait: 100 * time.Millisecond, WaitersMax: 2}, 1)
	var held []*executor.Conn
	for range 3 {
		held = append(held, acquire(t, ex, "shard-0", nil))
	}
	_, err := ex.Acquire(context.Background(), "shard-0", nil)
	var se *sqlstate.Error
	if !errors.As(err, &se) || se.Code != sqlstate.TooManyConnections || se.Shard != "shard-0" || se.Hint == "" {
		t.Errorf("%v", err)
	}
	for _, c := range held {
		c.Release()
	}
}

// TestDeadlineEndsWithTheUse: a deadline that a use has left on a connection does not bound the next one.
func TestDeadlineEndsWithTheUse(t *testing.T) {
	ex, _ := start(t, executor.Limits{PoolMax: 1}, 1)
	left := func(c *executor.Conn) {
		t.Helper()
		if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		c.Release()
	}
	c := acquire(t, ex, "shard-0", nil)
	pid := value(t, c, "SELECT pg_backend_pid()")
	left(c)
	c = acquire(t, ex, "shard-0", nil)
	if got := value(t, c, "SELECT pg_backend_pid()"); got != pid {
		t.Errorf("the connection was closed")
	}
	c.Pin()
	left(c)
	if got := value(t, c, "SELECT pg_backend_pid()"); got != pid {
		t.Errorf("the connection that a session keeps was closed")
	}
	c.Unpin()
	c.Release()
}

// TestPoolWaits: who waits for a connection gets the next one that is free, and can stop waiting.
func TestPoolWaits(t *testing.T) {
	ex, _ := start(t, executor.Limits{PoolMax: 3, PoolWait: waitfor.Max, WaitersMax: 2}, 1)
	var held []*executor.Conn
	for range 3 {
		held = append(held, acquire(t, ex, "shard-0", nil))
	}
	oneWaits := func() {
		t.Helper()
		waitfor.True(t, "one waits for a connection", func() bool { return ex.Health()[0].Waiting == 1 })
	}
	ctx, cancel := context.WithCancel(context.Background())
	canceled := make(chan error)
	go func() {
		_, err := ex.Acquire(ctx, "shard-0", nil)
		canceled <- err
	}()
	oneWaits()
	cancel()
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	got := make(chan *executor.Conn)
	go func() {
		c, err := ex.Acquire(context.Background(), "shard-0", nil)
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	oneWaits()
	held[0].Release()
	(<-got).Release()
	held[1].Break()
	held[1].Release()
	held[2].Release()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				c, err := ex.Acquire(context.Background(), "shard-0", nil)
				if sqlstate.CodeOf(err) == sqlstate.TooManyConnections {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				c.Release()
			}
		})
	}
	wg.Wait()
	if h := ex.Health()[0]; h.Open > 3 || h.Waiting != 0 || h.Idle != h.Open {
		t.Errorf("%+v", h)
	}
}

func TestShardsComeAndGo(t *testing.T) {
	ex, dir := start(t, executor.Limits{}, 2)
	ctx := context.Background()
	c := acquire(t, ex, "shard-1", nil)
	idle := acquire(t, ex, "shard-1", nil)
	idle.Release()
	next := ex.Snapshot().State().Clone()
	added := shardmap.Shard{Name: "shard-9", Engine: "postgres", URL: pgtest.Database(t), Weight: 1}
	install(t, added)
	next.DropShard("shard-1")
	next.PutShard(added)
	snap, err := dir.Update(ctx, shardmap.Change{Expect: next.Version, By: "test", Why: "test", Op: "test"}, next)
	if err != nil {
		t.Fatal(err)
	}
	if err := ex.AwaitVersion(ctx, snap.Version()); err != nil {
		t.Fatal(err)
	}
	if v := value(t, c, "SELECT 1"); v != "1" {
		t.Error("a conversation that was in use broke")
	}
	c.Release()
	if _, err := ex.Acquire(ctx, "shard-1", nil); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Errorf("a shard that is gone: %v", err)
	}
	acquire(t, ex, "shard-9", nil).Release()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := ex.AwaitVersion(short, snap.Version()+1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("AwaitVersion of a version that never comes: %v", err)
	}
}

func TestIdleConnectionsAreProbed(t *testing.T) {
	ex, _ := start(t, executor.Limits{}, 1)
	a, b := acquire(t, ex, "shard-0", nil), acquire(t, ex, "shard-0", nil)
	pid := value(t, a, "SELECT pg_backend_pid()")
	a.Release()
	time.Sleep(300 * time.Millisecond)
	value(t, b, "SELECT pg_terminate_backend("+pid+")")
	time.Sleep(50 * time.Millisecond)
	c := acquire(t, ex, "shard-0", nil)
	if value(t, c, "SELECT 1") != "1" {
		t.Error("a dead connection was given out")
	}
	c.Release()
	b.Release()
}

type sink struct{ got []byte }

func (s *sink) Frames(b []byte) error    { s.got = append(s.got, b...); return nil }
func (s *sink) Parameter(string, string) {}
func (s *sink) types() string {
	var out strings.Builder
	for b := s.got; len(b) > 0; {
		f, rest, ok, err := wire.Cut(b)
		if err != nil || !ok {
			return out.String() + "!"
		}
		out.WriteByte(f.Type())
		b = rest
	}
	s.got = nil
	return out.String()
}

func TestPipeline(t *testing.T) {
	ex, _ := start(t, executor.Limits{PreparedMax: 4}, 1)
	c := acquire(t, ex, "shard-0", nil)
	defer c.Release()
	p := executor.Pipeline{Conn: c}
	var s sink
	mark := wire.AppendEmpty(nil, wire.NoData)
	rest := []byte{0, 0, 0, 0, 0, 0}
	prep := ex.Prepare("SELECT 1", nil, 1, nil)
	p.Local(mark)
	p.Prepare(prep, nil, true)
	p.Local(mark)
	p.Bind("", prep.Name(), rest, true)
	p.Execute("", 0, nil)
	p.Local(mark)
	if o, err := p.Run(executor.Sync, &s); err != nil || o.Err != nil || !o.Ready || o.Status != 'I' {
		t.Fatalf("%+v, %v", o, err)
	}
	if got := s.types(); got != "n1n2DCn" {
		t.Errorf("relayed %q", got)
	}
	// Prepared already: the client's ParseComplete is the router's own.
	p.Prepare(prep, nil, true)
	p.Bind("", prep.Name(), rest, false)
	p.DescribeStatement(prep.Name(), false, nil)
	p.Execute("", 0, nil)
	if o, err := p.Run(executor.Sync, &s); err != nil || o.Err != nil {
		t.Fatalf("%+v, %v", o, err)
	}
	if got := s.types(); got != "1TDC" {
		t.Errorf("relayed %q", got)
	}
	// An error drops what follows it, up to the Sync, and what was not prepared.
	bad := ex.Prepare("SELECT nope", nil, 1, nil)
	good := ex.Prepare("SELECT 2", nil, 1, nil)
	p.Prepare(bad, "bad", true)
	p.Prepare(good, "good", true)
	p.Local(mark)
	o, err := p.Run(executor.Flush, &s)
	if err != nil || o.Err == nil || o.Err.Code != sqlstate.UndefinedColumn || o.Ready || !p.Skipping() {
		t.Fatalf("%+v, %v", o, err)
	}
	if got := s.types(); got != "" {
		t.Errorf("relayed %q", got)
	}
	if r := p.Rejected(); len(r) != 2 || r[0] != "bad" || r[1] != "good" {
		t.Errorf("rejected %v", r)
	}
	if p.HasPrepared(good) || p.HasPrepared(bad) {
		t.Error("a statement after an error counts as prepared")
	}
	if o, err := p.Run(executor.Sync, &s); err != nil || !o.Ready || p.Skipping() {
		t.Fatalf("%+v, %v", o, err)
	}
	// The connection keeps a bounded number of statements.
	for i := range 20 {
		x := ex.Prepare(fmt.Sprint("SELECT ", i), nil, 1, nil)
		p.Prepare(x, nil, false)
		p.Bind("", x.Name(), rest, false)
		p.Execute("", 0, nil)
		if o, err := p.Run(executor.Sync, &s); err != nil || o.Err != nil {
			t.Fatalf("%+v, %v", o, err)
		}
		p.Reset()
		c.Release()
		c = acquire(t, ex, "shard-0", nil)
		p.Conn = c
	}
	if n := value(t, c, "SELECT count(*) FROM pg_prepared_statements"); n != "4" {
		t.Errorf("%s prepared statements on the shard", n)
	}
	s.types()
	p.Query("SELECT 1; SELECT 2")
	if o, err := p.Run(executor.None, &s); err != nil || !o.Ready {
		t.Fatalf("%+v, %v", o, err)
	}
	if got := s.types(); got != "TDCTDC" {
		t.Errorf("relayed %q", got)
	}
}

func TestPlanCacheIsBounded(t *testing.T) {
	ex, _ := start(t, executor.Limits{PlanEntries: 64, PlanBytes: 1 << 20}, 1)
	snap := ex.Snapshot()
	first, err := ex.Plan(nil, []byte("SELECT 1"), nil, snap, false)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ex.Plan(nil, []byte("SELECT 1"), nil, snap, false); err != nil || again != first {
		t.Errorf("not cached: %v", err)
	}
	if other, err := ex.Plan(nil, []byte("SELECT 1"), nil, snap, true); err != nil || other == first {
		t.Errorf("a private plan is shared: %v", err)
	}
	for i := range 1000 {
		if _, err := ex.Plan(nil, fmt.Appendf(nil, "SELECT %d, 'x'", i), nil, snap, false); err != nil {
			t.Fatal(err)
		}
	}
	if entries, _ := ex.PlanCacheSize(); entries > 64 {
		t.Errorf("%d entries", entries)
	}
	big := []byte("SELECT '" + strings.Repeat("x", 1<<20) + "'")
	if _, err := ex.Plan(nil, big, nil, snap, false); err != nil {
		t.Fatal(err)
	}
	if _, bytes := ex.PlanCacheSize(); bytes > 1<<20 {
		t.Errorf("%d bytes", bytes)
	}
}

func TestSearchPath(t *testing.T) {
	for in, want := range map[string]string{
		`a, "B c", 'D'`: "a|B c|D", `"$user", public`: "$user|public", `''`: "", `'a''b', "c""d"`: `a'b|c"d`, `E'x\'y', Z`: "x'y|z", executor.Text(`"$user",Public,'a', E'b'`): "$user|public|'a'|e'b'", executor.Text(""): "",
		executor.Text("Ärzte, ÖL"): "Ärzte|Öl",
	} {
		if got := strings.Join(executor.SplitPath(in), "|"); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
	if q := executor.QuoteLiteral(`a'b\c`); q != `E'a''b\\c'` {
		t.Error(q)
	}
}
