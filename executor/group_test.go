package executor_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

const systemSQL = "SELECT system_identifier FROM pg_control_system()"

// replicated starts an executor over one shard with a primary and replicas.
func replicated(t *testing.T, limits executor.Limits, replicas int) (*executor.Executor, shardmap.Directory, []*localpg.Server) {
	t.Helper()
	primary := pgtest.NewServer(t, nil)
	s := shardmap.Shard{Name: "shard-0", Engine: "postgres", URL: primary.URL("postgres"), Weight: 1, System: pgtest.Ask(t, primary.URL("postgres"), systemSQL)}
	install(t, s)
	pgtest.Ask(t, s.URL, "CREATE TABLE t (id int)")
	servers := []*localpg.Server{primary}
	for range replicas {
		r := pgtest.NewReplica(t, primary, "r", nil)
		servers = append(servers, r)
		s.Replicas = append(s.Replicas, r.URL("postgres"))
	}
	ex, dir := startWith(t, limits, s)
	return ex, dir, servers
}

func TestWritesFollowAPromotion(t *testing.T) {
	t.Parallel()
	ex, dir, servers := replicated(t, executor.Limits{ProbeEvery: 50 * time.Millisecond}, 1)
	c := acquire(t, ex, "shard-0", nil)
	value(t, c, "INSERT INTO t VALUES (1)")
	c.Release()
	pgtest.Await(t, servers[1].URL("postgres"), "SELECT count(*) FROM t", "1")
	servers[0].Kill()
	waitfor.True(t, "the loss is seen", func() bool { return !ex.Endpoints()[0].Up })
	go pgtestPromote(t, servers[1])
	c = acquire(t, ex, "shard-0", nil) // waits for the new primary
	value(t, c, "INSERT INTO t VALUES (2)")
	if n := value(t, c, "SELECT count(*) FROM t"); n != "2" || value(t, c, "SELECT pg_is_in_recovery()") != "f" {
		t.Errorf("%s rows", n)
	}
	c.Release()
	// The old primary comes back and still takes itself for one.
	old := pgtest.Restart(t, servers[0], nil)
	waitfor.True(t, "the old primary is seen", func() bool {
		e := ex.Endpoints()
		return e[0].Role == engine.Primary && e[0].Serves == "" && e[1].Serves == engine.Primary && e[0].Timeline < e[1].Timeline
	})
	for range 20 {
		c := acquire(t, ex, "shard-0", nil)
		value(t, c, "INSERT INTO t VALUES (3)")
		c.Release()
	}
	if n := pgtest.Ask(t, old.URL("postgres"), "SELECT count(*) FROM t WHERE id > 1"); n != "0" {
		t.Errorf("%s rows went to the old primary", n)
	}
	// It is told once, and each server that is not the primary has one place.
	waitfor.True(t, "the metrics tell", func() bool {
		return served(t, ex, "cleave_failovers_total") == `cleave_failovers_total{shard="shard-0"} 1`+"\n" &&
			served(t, ex, "cleave_replica_up") == `cleave_replica_up{replica="0",shard="shard-0"} 0`+"\n"
	})
	// Another router, which was not there: it asks both before it writes.
	other := follow(t, dir, executor.Limits{})
	c = acquire(t, other, "shard-0", nil)
	if value(t, c, "SELECT count(*) FROM t WHERE id = 3") != "20" {
		t.Error("a new router uses the old primary")
	}
	c.Release()
	// A third, which can reach the old one alone: the directory remembers.
	waitfor.True(t, "the directory has it", func() bool {
		r, err := dir.Record(context.Background(), shardmap.TimelineRecord("shard-0"))
		return err == nil && strings.HasSuffix(string(r.Value), " 2")
	})
	// The new one is gone, the old one there: it is refused, for it lacks rows.
	servers[1].Kill()
	waitfor.True(t, "the loss is seen", func() bool { return !ex.Endpoints()[1].Up })
	quick, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	if c, err := ex.Acquire(quick, "shard-0", nil); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		if c != nil {
			c.Release()
		}
		t.Errorf("an old primary is used: %v", err)
	}
	third := follow(t, dir, executor.Limits{FailoverWait: -1})
	if _, err := third.Acquire(context.Background(), "shard-0", nil); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || !strings.Contains(err.Error(), "timeline 2 was seen") {
		t.Errorf("a router that starts uses an old primary: %v", err)
	}
}

// served returns the lines of one metric, as they are served.
func served(t *testing.T, ex *executor.Executor, metric string) string {
	t.Helper()
	rec := httptest.NewRecorder()
	ex.Metrics().Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var lines string
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, metric+"{") {
			lines += line
		}
	}
	return lines
}

func pgtestPromote(t *testing.T, s *localpg.Server) {
	pgtest.Ask(t, s.SuperuserURL("postgres"), "SELECT pg_promote()")
}

func TestTwoPrimariesOfOneTimelineAreRefused(t *testing.T) {
	t.Parallel()
	ex, _, servers := replicated(t, executor.Limits{ProbeEvery: 50 * time.Millisecond, FailoverWait: -1}, 2)
	c := acquire(t, ex, "shard-0", nil)
	c.Release()
	servers[0].Kill()
	pgtestPromote(t, servers[1])
	pgtestPromote(t, servers[2])
	waitfor.True(t, "both are seen", func() bool {
		e := ex.Endpoints()
		return e[1].Role == engine.Primary && e[2].Role == engine.Primary
	})
	_, err := ex.Acquire(context.Background(), "shard-0", nil)
	if sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || !strings.Contains(err.Error(), "all say they are the primary") {
		t.Errorf("%v", err)
	}
	servers[2].Kill()
	// The one that is left is taken if it lacks nothing of what the other was seen to have: its log goes beyond.
	for _, sql := range []string{"SELECT pg_logical_emit_message(true, 'test', 'beyond')", "SELECT pg_switch_wal()", "SELECT pg_logical_emit_message(true, 'test', 'beyond')"} {
		pgtest.Ask(t, servers[1].SuperuserURL("postgres"), sql)
	}
	waitfor.True(t, "one is left", func() bool { return ex.Endpoints()[1].Serves == engine.Primary })
	c = acquire(t, ex, "shard-0", nil)
	c.Release()
}

// A replica that did not follow the primary is promoted to its timeline when that
// is down: it lacks what was written there.
func TestAnotherPrimaryOfTheLastOnesTimelineIsRefused(t *testing.T) {
	t.Parallel()
	ex, dir, servers := replicated(t, executor.Limits{ProbeEvery: 50 * time.Millisecond, FailoverWait: -1}, 2)
	c := acquire(t, ex, "shard-0", nil)
	c.Release()
	servers[0].Kill()
	pgtestPromote(t, servers[1])
	waitfor.True(t, "the first is elected", func() bool { return ex.Endpoints()[1].Serves == engine.Primary })
	c = acquire(t, ex, "shard-0", nil)
	value(t, c, "INSERT INTO t VALUES (1)")
	c.Release()
	servers[1].Kill()
	waitfor.True(t, "the loss is seen", func() bool { return !ex.Endpoints()[1].Up })
	pgtestPromote(t, servers[2])
	waitfor.True(t, "the second says it is the primary", func() bool { return ex.Endpoints()[2].Role == engine.Primary })
	_, err := ex.Acquire(context.Background(), "shard-0", nil)
	if sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || !strings.Contains(err.Error(), "was that and does not answer now") {
		t.Errorf("%v", err)
	}
	// The operator decides that what the first had is lost.
	cur, err := dir.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	next := cur.State().Clone()
	next.Shards[0].Replicas = next.Shards[0].Replicas[1:]
	if _, err := dir.Update(context.Background(), shardmap.Change{Expect: cur.Version(), By: "test", Op: "test"}, next); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the second serves", func() bool {
		c, err := ex.Acquire(context.Background(), "shard-0", nil)
		if err == nil {
			c.Release()
		}
		return err == nil
	})
}

func TestAStrangerIsNeverWrittenTo(t *testing.T) {
	t.Parallel()
	primary, stranger := pgtest.NewServer(t, nil), pgtest.NewServer(t, nil)
	s := shardmap.Shard{Name: "shard-0", Engine: "postgres", URL: stranger.URL("postgres"), Replicas: []string{primary.URL("postgres")}, Weight: 1,
		System: pgtest.Ask(t, primary.URL("postgres"), systemSQL)}
	install(t, s) // it even bears the shard's name
	s2 := s
	s2.URL = s.Replicas[0]
	install(t, s2)
	ex, _ := startWith(t, executor.Limits{}, s)
	for range 5 {
		c := acquire(t, ex, "shard-0", nil)
		if value(t, c, systemSQL) != s.System {
			t.Fatal("a stranger is used")
		}
		c.Release()
	}
	if e := ex.Endpoints(); e[0].Up || e[0].Err == nil || !strings.Contains(e[0].Err.Error(), "stranger") || e[0].Serves != "" {
		t.Errorf("%+v", e[0])
	}
}

func TestReplicasComeAndGoWithoutALostStatement(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewServer(t, nil)
	s := shardmap.Shard{Name: "shard-0", Engine: "postgres", URL: primary.URL("postgres"), Weight: 1}
	install(t, s)
	r := pgtest.NewReplica(t, primary, "r", nil)
	ex, dir := startWith(t, executor.Limits{FailoverWait: -1}, s)
	done, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(failed)
		for {
			select {
			case <-done:
				return
			default:
			}
			c, err := ex.Acquire(context.Background(), "shard-0", nil)
			if err == nil {
				_, err = c.Exec("SELECT 1")
				c.Release()
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	change := func(edit func(*shardmap.Shard)) {
		t.Helper()
		cur, err := dir.Load(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		next := cur.State().Clone()
		edit(&next.Shards[0])
		snap, err := dir.Update(context.Background(), shardmap.Change{Expect: cur.Version(), By: "test", Op: "test"}, next)
		if err != nil {
			t.Fatal(err)
		}
		if err := ex.AwaitVersion(context.Background(), snap.Version()); err != nil {
			t.Fatal(err)
		}
	}
	system := pgtest.Ask(t, s.URL, systemSQL)
	for range 3 {
		change(func(s *shardmap.Shard) { s.Replicas, s.System = []string{r.URL("postgres")}, system })
		waitfor.True(t, "the replica serves", func() bool { return ex.Endpoints()[1].Serves == engine.Replica })
		change(func(s *shardmap.Shard) { s.Replicas, s.System = nil, "" })
	}
	close(done)
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

func TestReadsOnReplicas(t *testing.T) {
	t.Parallel()
	ex, _, servers := replicated(t, executor.Limits{ProbeEvery: 50 * time.Millisecond}, 2)
	read := func(policy executor.ReadPolicy, lag time.Duration, w *executor.Writes) string {
		t.Helper()
		c, err := ex.AcquireRead(context.Background(), "shard-0", nil, policy, lag, w)
		if err != nil {
			t.Fatal(err)
		}
		if c == nil {
			return "primary"
		}
		defer c.Release()
		res, err := c.Exec("SELECT current_setting('port')")
		if err != nil {
			return "lost"
		}
		return res.Rows[0][0].String
	}
	var none executor.Writes
	first := pgtest.Ask(t, servers[1].URL("postgres"), "SHOW port")
	second := pgtest.Ask(t, servers[2].URL("postgres"), "SHOW port")
	seen := map[string]bool{}
	waitfor.True(t, "both replicas are read", func() bool {
		seen[read(executor.ReadReplica, time.Minute, &none)] = true
		return seen[first] && seen[second]
	})
	if got := read(executor.ReadPrimary, time.Minute, &none); got != "primary" {
		t.Errorf("policy primary reads on %s", got)
	}
	// What the session wrote it sees: on the primary while a replica has not got it.
	for _, s := range servers[1:] {
		pgtest.Ask(t, s.SuperuserURL("postgres"), "SELECT pg_wal_replay_pause()")
		pgtest.Await(t, s.SuperuserURL("postgres"), "SELECT pg_get_wal_replay_pause_state()", "paused")
	}
	var mine executor.Writes
	c := acquire(t, ex, "shard-0", nil)
	mine.Note(c)
	value(t, c, "INSERT INTO t VALUES (7)")
	c.Release()
	if got := read(executor.ReadReplica, executor.AnyLag, &mine); got != "primary" {
		t.Errorf("own write read on %s, which has not replayed it", got)
	}
	if got := read(executor.ReadReplica, executor.AnyLag, &none); got == "primary" {
		t.Error("a session that wrote nothing may read a replica of any lag")
	}
	// The bound on the lag.
	waitfor.True(t, "the lag grows over the bound", func() bool { return read(executor.ReadReplica, 400*time.Millisecond, &none) == "primary" })
	pgtest.Ask(t, servers[1].SuperuserURL("postgres"), "SELECT pg_wal_replay_resume()")
	waitfor.True(t, "the first replica is fit again", func() bool { return read(executor.ReadReplica, 400*time.Millisecond, &mine) == first })
	if got := read(executor.ReadReplica, 400*time.Millisecond, &mine); got != first {
		t.Errorf("read on %s", got)
	}
	// A replica that is down.
	servers[1].Kill()
	pgtest.Ask(t, servers[2].SuperuserURL("postgres"), "SELECT pg_wal_replay_resume()")
	waitfor.True(t, "the second replica is read", func() bool { return read(executor.ReadReplica, time.Minute, &mine) == second })
	for range 20 {
		if got := read(executor.ReadReplica, time.Minute, &mine); got == first {
			t.Errorf("read on a server that is down")
		}
	}
	for _, e := range ex.Endpoints()[2:] {
		if e.Lag < 0 || e.LagBytes < 0 || e.Serves != engine.Replica {
			t.Errorf("%+v", e)
		}
	}
}

// A replica that crashed shows less when it is back than it did before.
func TestAReplicaThatWentBackIsNotRead(t *testing.T) {
	t.Parallel()
	ex, _, servers := replicated(t, executor.Limits{ProbeEvery: time.Hour}, 1)
	var mine executor.Writes
	c := acquire(t, ex, "shard-0", nil)
	mine.Note(c)
	value(t, c, "INSERT INTO t VALUES (7)")
	pgtest.Await(t, servers[1].URL("postgres"), "SELECT count(*) FROM t", "1")
	read := func() *executor.Conn {
		t.Helper()
		c, err := ex.AcquireRead(context.Background(), "shard-0", nil, executor.ReadReplica, executor.AnyLag, &mine)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	waitfor.True(t, "the replica is known to have the write", func() bool {
		c.Doubt()
		r := read()
		if r == nil {
			return false
		}
		r.Break() // no connection is left that would tell of the crash
		r.Release()
		e := ex.Endpoints()[1]
		return e.Up && e.LagBytes == 0
	})
	c.Release()
	asked := ex.Endpoints()[1].SinceAsking
	waitfor.True(t, "the last probe has ended", func() bool {
		was := asked
		asked = ex.Endpoints()[1].SinceAsking
		return asked > was && asked > 200*time.Millisecond
	})
	servers[1].Kill()
	pgtest.Restart(t, servers[1], map[string]string{"recovery_min_apply_delay": "1h"})
	if n := pgtest.Ask(t, servers[1].URL("postgres"), "SELECT count(*) FROM t"); n != "0" {
		t.Fatalf("%s rows: the replica did not go back", n)
	}
	if r := read(); r != nil {
		t.Errorf("own write read on a replica that shows %s rows now", value(t, r, "SELECT count(*) FROM t"))
		r.Release()
	}
}

func TestTheWaitForAPrimaryIsBounded(t *testing.T) {
	t.Parallel()
	ex, _, servers := replicated(t, executor.Limits{ProbeEvery: 50 * time.Millisecond, FailoverWait: 500 * time.Millisecond}, 1)
	c := acquire(t, ex, "shard-0", nil)
	c.Release()
	servers[0].Kill()
	waitfor.True(t, "the loss is seen", func() bool { return !ex.Endpoints()[0].Up })
	began := time.Now()
	_, err := ex.Acquire(context.Background(), "shard-0", nil)
	if sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || sqlstate.As(err).Retry != sqlstate.RetrySafe {
		t.Errorf("%v", err)
	}
	// The bound counts from the loss: later statements do not wait for it again.
	for range 100 {
		if _, err := ex.Acquire(context.Background(), "shard-0", nil); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
			t.Fatal(err)
		}
	}
	if waited := time.Since(began); waited > 30*time.Second {
		t.Errorf("100 statements waited %v", waited)
	}
	// A statement that is cancelled does not wait on.
	gone, stop := context.WithCancel(context.Background())
	stop()
	if _, err := ex.Acquire(gone, "shard-0", nil); err == nil {
		t.Error("it was had")
	}
	// The same server comes back: no promotion, no restart of the router.
	pgtest.Restart(t, servers[0], nil)
	waitfor.True(t, "it is used again", func() bool {
		c, err := ex.Acquire(context.Background(), "shard-0", nil)
		if err == nil {
			c.Release()
		}
		return err == nil
	})
}

func TestNearestIsTheOneThatAnswersFastest(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewServer(t, nil)
	r := pgtest.NewReplica(t, primary, "r", nil)
	s := shardmap.Shard{Name: "shard-0", Engine: "postgres", URL: primary.URL("postgres"), Weight: 1, System: pgtest.Ask(t, primary.URL("postgres"), systemSQL)}
	install(t, s)
	// A unix socket is nearest of all.
	s.Replicas = []string{r.SocketURL("postgres")}
	ex, _ := startWith(t, executor.Limits{ProbeEvery: 50 * time.Millisecond}, s)
	var none executor.Writes
	read := func() *executor.Conn {
		c, err := ex.AcquireRead(context.Background(), "shard-0", nil, executor.ReadNearest, time.Minute, &none)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	waitfor.True(t, "the local replica is read", func() bool {
		c := read()
		if c == nil {
			return false
		}
		c.Release()
		return true
	})
	if e := ex.Endpoints(); !e[1].Local || e[1].Latency != 0 || e[0].Local || e[0].Latency == 0 {
		t.Errorf("%+v", e)
	}
	pgtest.Ask(t, r.SuperuserURL("postgres"), "SELECT pg_wal_replay_pause()")
	r.Kill()
	waitfor.True(t, "the primary is read", func() bool {
		c := read()
		if c != nil {
			c.Release()
		}
		return c == nil
	})
}
