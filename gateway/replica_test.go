package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// withReplicas is a cluster of one shard whose servers are the router's only
// ones: the primary first.
func withReplicas(t *testing.T, c config, replicas int) (*cluster, []*localpg.Server) {
	t.Helper()
	servers := []*localpg.Server{pgtest.NewServer(t, nil)}
	c.urls, c.shards = []string{servers[0].URL("postgres")}, 1
	if c.executor.ProbeEvery == 0 {
		c.executor.ProbeEvery = 50 * time.Millisecond
	}
	cl := start(t, c)
	conn := cl.connect(t)
	exec(t, conn, ordersTable)
	for i := range replicas {
		r := pgtest.NewReplica(t, servers[0], fmt.Sprintf("r%d", i+1), nil)
		servers = append(servers, r)
		exec(t, conn, fmt.Sprintf("SELECT cleave.add_replica('shard-0', '%s')", r.URL("postgres")))
	}
	awaitRows(t, conn, "SELECT count(*) FROM cleave.endpoints WHERE serves IS NOT NULL AND lag_seconds IS NOT NULL", replicas)
	if replicas > 0 {
		// The router has to know that they have what the map's last change left.
		exec(t, conn, "SET cleave.read_policy = 'replica'; SET cleave.max_replica_lag = '-1'")
		for end := time.Now().Add(waitfor.Max); strings.HasSuffix(one[string](t, conn, whichSQL), " "+portOf(servers[0])); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no replica is read for long")
			}
		}
	}
	return cl, servers
}

func awaitRows(t testing.TB, conn *pgx.Conn, sql string, want int) {
	t.Helper()
	for end := time.Now().Add(waitfor.Max); one[int](t, conn, sql) != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is not %d for long", sql, want)
		}
	}
}

func portOf(s *localpg.Server) string { return fmt.Sprint(s.Port()) }

const whichSQL = "SELECT count(*)::text || ' ' || current_setting('port') FROM orders WHERE tenant_id = 7"

func TestReadPolicies(t *testing.T) {
	t.Parallel()
	cl, servers := withReplicas(t, config{}, 1)
	primary, replica := portOf(servers[0]), portOf(servers[1])
	conn := cl.connect(t)
	want := func(conn *pgx.Conn, sql, want string, args ...any) {
		t.Helper()
		if got := one[string](t, conn, sql, args...); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	want(conn, "SHOW cleave.read_policy", "primary")
	want(conn, "SHOW cleave.max_replica_lag", "10s")
	want(conn, whichSQL, "0 "+primary)
	exec(t, conn, "SET cleave.read_policy = 'replica'")
	want(conn, "SHOW cleave.read_policy", "replica")
	want(conn, whichSQL, "0 "+replica)
	want(conn, "SELECT count(*)::text || ' ' || current_setting('port') FROM orders WHERE tenant_id = $1", "0 "+replica, 7)
	want(conn, "/* cleave: read_policy=primary */ "+whichSQL, "0 "+primary)
	want(conn, "SELECT count(*)::text || ' ' || current_setting('port') FROM orders", "0 "+replica)
	// What must not go there.
	want(conn, whichSQL+" AND random() < 2", "0 "+primary)
	want(conn, "SELECT count(*)::text || ' ' || current_setting('port') FROM orders WHERE random() < 2", "0 "+primary)
	for _, sql := range []string{"SELECT current_setting('port') FROM orders WHERE tenant_id = 7 FOR UPDATE", "SELECT nextval('s') FROM pg_class LIMIT 1"} {
		if c := code(conn, sql); c == "25006" {
			t.Errorf("%s went to a replica", sql)
		}
	}
	// Read your own writes, in the session's order.
	for i := range 30 {
		exec(t, conn, "INSERT INTO orders VALUES (7, $1, 'x')", i)
		if got := one[int](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = 7"); got != i+1 {
			t.Fatalf("%d rows after %d writes", got, i+1)
		}
		if got := one[int](t, conn, "SELECT count(*) FROM orders"); got != i+1 {
			t.Fatalf("%d rows of all keys after %d writes", got, i+1)
		}
	}
	// One transaction is one server.
	tx, err := conn.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "INSERT INTO orders VALUES (7, 100, 'x')")
	want(conn, whichSQL, "31 "+primary)
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	// A read-only transaction uses a replica under the policy.
	fresh := cl.connect(t, "&options=-c%20cleave.read_policy%3Dreplica")
	pgtest.Await(t, servers[1].URL("postgres"), "SELECT count(*) FROM orders", "30")
	exec(t, fresh, "BEGIN READ ONLY")
	want(fresh, whichSQL, "30 "+replica)
	want(fresh, "SELECT current_setting('port') FROM orders WHERE tenant_id = 7 AND id = 0 AND random() < 2", replica)
	wantCode(t, fresh, "25006", "INSERT INTO orders VALUES (7, 200, 'x')")
	exec(t, fresh, "ROLLBACK")
	exec(t, fresh, "BEGIN READ ONLY")
	wantCode(t, fresh, "25006", "CREATE TABLE x (a int)")
	exec(t, fresh, "ROLLBACK")
	exec(t, fresh, "BEGIN; SET TRANSACTION READ ONLY")
	exec(t, fresh, "SET LOCAL cleave.read_policy = 'primary'")
	want(fresh, whichSQL, "30 "+primary)
	exec(t, fresh, "COMMIT")
	want(fresh, whichSQL, "30 "+replica)
	exec(t, fresh, "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY")
	want(fresh, whichSQL, "30 "+primary)
	exec(t, fresh, "COMMIT")
	exec(t, fresh, "SET default_transaction_isolation = 'serializable'")
	want(fresh, whichSQL, "30 "+primary)
	exec(t, fresh, "RESET ALL")
	want(fresh, "SHOW cleave.read_policy", "replica")
	exec(t, fresh, "SET cleave.read_policy = DEFAULT; SET cleave.max_replica_lag = '0'")
	want(fresh, whichSQL, "30 "+primary)
	// Messages before one Sync: a read, a write, a read.
	pipelined := cl.connect(t, "&options=-c%20cleave.read_policy%3Dreplica")
	b := &pgx.Batch{}
	b.Queue(whichSQL)
	b.Queue("INSERT INTO orders VALUES (7, 300, 'x')")
	b.Queue(whichSQL)
	res := pipelined.SendBatch(context.Background(), b)
	var got [2]string
	err = errors.Join(res.QueryRow().Scan(&got[0]), func() error { _, err := res.Exec(); return err }(), res.QueryRow().Scan(&got[1]), res.Close())
	if err != nil || got[0] != "30 "+replica && got[0] != "30 "+primary || got[1] != "31 "+primary {
		t.Errorf("%v %v", got, err)
	}
	// Misuse.
	wantCode(t, conn, "22023", "SET cleave.read_policy = 'best'")
	wantCode(t, conn, "22023", "SET cleave.max_replica_lag = 'soon'")
	wantCode(t, conn, "22023", "/* cleave: read_policy=best */ "+whichSQL)
	wantCode(t, conn, "0A000", "SELECT set_config('cleave.read_policy', 'replica', false)")
	wantCode(t, conn, "42501", "SET cleave.other = '1'")
	wantCode(t, conn, "42710", fmt.Sprintf("SELECT cleave.add_replica('shard-0', '%s')", servers[1].URL("postgres")))
}

// TestReadsOfSeveralShardsOnReplicas: two shards on one server, which has one replica.
func TestReadsOfSeveralShardsOnReplicas(t *testing.T) {
	testrun.Long(t, "a server with a replica of its own; TestReadPolicies has replicas")
	t.Parallel()
	server := pgtest.NewServer(t, nil)
	pgtest.Ask(t, server.URL("postgres"), "CREATE DATABASE other")
	cl := start(t, config{urls: []string{server.URL("postgres"), server.URL("other")}, shards: 2, executor: executor.Limits{ProbeEvery: 50 * time.Millisecond}})
	conn := cl.connect(t)
	exec(t, conn, ordersTable)
	exec(t, conn, "CREATE UNLOGGED TABLE fleeting (tenant_id bigint PRIMARY KEY) WITH (cleave.shard_key = 'tenant_id')")
	exec(t, conn, "INSERT INTO fleeting SELECT generate_series(1, 5)")
	replica := pgtest.NewReplica(t, server, "r1", nil)
	exec(t, conn, fmt.Sprintf("SELECT cleave.add_replica('shard-0', '%s')", replica.URL("postgres")))
	exec(t, conn, fmt.Sprintf("SELECT cleave.add_replica('shard-1', '%s')", replica.URL("other")))
	const where = "SELECT string_agg(DISTINCT port, ' ') FROM (SELECT current_setting('port') AS port, tenant_id FROM orders) o"
	const scattered = "SELECT current_setting('port') FROM orders ORDER BY tenant_id"
	exec(t, conn, "INSERT INTO orders SELECT g, g, 'x' FROM generate_series(1, 50) g")
	exec(t, conn, "SET cleave.read_policy = 'replica'; SET cleave.max_replica_lag = '-1'")
	for end := time.Now().Add(waitfor.Max); one[string](t, conn, where) != portOf(replica); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the replicas are not read for long")
		}
	}
	for range 3 { // described, and known
		rows, _ := conn.Query(context.Background(), scattered) // its error is told by the rows
		ports, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(ports) != 50 || strings.Count(strings.Join(ports, " "), portOf(replica)) != 50 {
			t.Fatal(ports, err)
		}
	}
	// What a replica cannot answer, and what must not go there.
	if n := one[int](t, conn, "SELECT count(*) FROM fleeting"); n != 5 {
		t.Errorf("%d rows of an unlogged table", n)
	}
	if port := one[string](t, conn, "SELECT current_setting('port') FROM orders WHERE id = 7 FOR UPDATE"); port != portOf(server) {
		t.Errorf("rows are locked on %s", port)
	}
	exec(t, conn, "BEGIN")
	if port := one[string](t, conn, where); port != portOf(server) {
		t.Errorf("a transaction reads on %s", port)
	}
	exec(t, conn, "COMMIT")
	exec(t, conn, "SET cleave.read_consistency = 'atomic'")
	if port := one[string](t, conn, where); port != portOf(server) {
		t.Errorf("an atomic read is on %s", port)
	}
	exec(t, conn, "RESET cleave.read_consistency")
	// A replica that stands still: its own writes a session sees nevertheless, others do not.
	other := cl.connect(t, "&options=-c%20cleave.read_policy%3Dreplica%20-c%20cleave.max_replica_lag%3D-1")
	pgtest.Ask(t, replica.SuperuserURL("postgres"), "SELECT pg_wal_replay_pause()")
	pgtest.Await(t, replica.SuperuserURL("postgres"), "SELECT pg_get_wal_replay_pause_state()", "paused")
	const count = "SELECT count(*) FROM orders a JOIN orders b ON a.id = b.id"
	b := &pgx.Batch{}
	b.Queue(count)
	b.Queue("INSERT INTO orders SELECT g, g, 'x' FROM generate_series(51, 60) g")
	b.Queue(count)
	res := conn.SendBatch(context.Background(), b)
	var before, after int
	err := errors.Join(res.QueryRow().Scan(&before), func() error { _, err := res.Exec(); return err }(), res.QueryRow().Scan(&after), res.Close())
	if err != nil || before != 50 || after != 60 {
		t.Errorf("%d, then %d rows: %v", before, after, err)
	}
	if n := one[int](t, conn, count); n != 60 {
		t.Errorf("%d rows after one's own write", n)
	}
	if n := one[int](t, other, count); n != 50 {
		t.Errorf("%d rows on a replica that stands still", n)
	}
	pgtest.Ask(t, replica.SuperuserURL("postgres"), "SELECT pg_wal_replay_resume()")
	awaitRows(t, other, count, 60)
}

func TestAReplicaThatLagsIsNotRead(t *testing.T) {
	testrun.Long(t, "a server with a replica of its own that falls behind; TestReadPolicies has replicas")
	t.Parallel()
	cl, servers := withReplicas(t, config{}, 1)
	primary, replica := portOf(servers[0]), portOf(servers[1])
	reader, writer := cl.connect(t, "&options=-c%20cleave.read_policy%3Dreplica"), cl.connect(t)
	exec(t, reader, "SET cleave.max_replica_lag = '-1'")
	pgtest.Ask(t, servers[1].SuperuserURL("postgres"), "SELECT pg_wal_replay_pause()")
	pgtest.Await(t, servers[1].SuperuserURL("postgres"), "SELECT pg_get_wal_replay_pause_state()", "paused")
	exec(t, writer, "INSERT INTO orders VALUES (7, 1, 'x')")
	if got := one[string](t, reader, whichSQL); got != "0 "+replica {
		t.Errorf("without a bound: %s", got)
	}
	exec(t, reader, "SET cleave.max_replica_lag = '500ms'")
	for end := time.Now().Add(waitfor.Max); one[string](t, reader, whichSQL) != "1 "+primary; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a replica that lags is read for long")
		}
	}
	// A table that the replica has not got yet.
	exec(t, writer, "CREATE TABLE fresh (tenant_id bigint PRIMARY KEY) WITH (cleave.shard_key = 'tenant_id')")
	exec(t, reader, "SET cleave.max_replica_lag = '-1'")
	if got := one[string](t, reader, "SELECT count(*)::text || ' ' || current_setting('port') FROM fresh WHERE tenant_id = 1"); got != "0 "+primary {
		t.Errorf("a new table: %s", got)
	}
	pgtest.Ask(t, servers[1].SuperuserURL("postgres"), "SELECT pg_wal_replay_resume()")
	exec(t, reader, "SET cleave.max_replica_lag = '2s'")
	for end := time.Now().Add(waitfor.Max); one[string](t, reader, whichSQL) != "1 "+replica; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a replica that has caught up is not read for long")
		}
	}
	// Gone: reads go elsewhere, none fails.
	servers[1].Kill()
	for range 50 {
		if got := one[string](t, reader, whichSQL); got != "1 "+primary {
			t.Fatalf("%s", got)
		}
	}
	// Taken out of the map, by the address alone.
	exec(t, writer, fmt.Sprintf("SELECT cleave.remove_replica('shard-0', 'postgres://127.0.0.1:%s/postgres')", replica))
	if n := one[int](t, writer, "SELECT count(*) FROM cleave.endpoints"); n != 1 {
		t.Errorf("%d servers are left", n)
	}
}

// TestPromotionUnderLoad kills the primary while sessions write, promotes a
// synchronous replica, and looks whether every acknowledged row is there.
func TestPromotionUnderLoad(t *testing.T) {
	testrun.Long(t, "servers are killed and promoted while sessions write; TestReadPolicies has replicas")
	cl, servers := withReplicas(t, config{executor: executor.Limits{ProbeEvery: time.Second}}, 1)
	pgtest.Ask(t, servers[0].SuperuserURL("postgres"), "ALTER SYSTEM SET synchronous_standby_names = 'r1'")
	pgtest.Ask(t, servers[0].SuperuserURL("postgres"), "SELECT pg_reload_conf()")
	pgtest.Await(t, servers[0].SuperuserURL("postgres"), "SELECT sync_state FROM pg_stat_replication", "sync")
	const writers = 8
	var acked [writers][]int
	var unknown, refused atomic.Int64
	var before, after atomic.Int64 // acknowledged before the kill; writers that wrote after it
	var recovered [writers]time.Time
	var killed atomic.Int64 // when it was dead
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		conn := cl.connect(t)
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				_, err := conn.Exec(context.Background(), "INSERT INTO orders VALUES ($1, $2, 'x')", w, i)
				var pe *pgconn.PgError
				switch {
				case err == nil:
					acked[w] = append(acked[w], i)
					if k := killed.Load(); k == 0 {
						before.Add(1)
					} else if recovered[w].IsZero() && began.UnixNano() > k {
						recovered[w] = time.Now()
						after.Add(1)
					}
				case errors.As(err, &pe) && pe.Code == "08007":
					unknown.Add(1)
				case errors.As(err, &pe) && pe.Code == "57P03":
					refused.Add(1)
				default:
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	await := func(what string, n *atomic.Int64, want int64) {
		t.Helper()
		for end := time.Now().Add(waitfor.Max); n.Load() < want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	await("they do not write", &before, 500*writers)
	servers[0].Kill()
	dead := time.Now()
	killed.Store(dead.UnixNano()) // what begins from now on is not the dead one's
	pgtest.Ask(t, servers[1].SuperuserURL("postgres"), "SELECT pg_promote()")
	promoted := time.Now()
	await("writers do not recover", &after, writers)
	close(stop)
	wg.Wait()
	total := 0
	for w, rows := range acked {
		if recovered[w].IsZero() {
			t.Errorf("writer %d wrote nothing after the promotion", w)
		}
		have := pgtest.Ask(t, servers[1].URL("postgres"), fmt.Sprintf("SELECT string_agg(id::text, ',' ORDER BY id) FROM orders WHERE tenant_id = %d", w))
		there := map[string]bool{}
		for _, id := range strings.Split(have, ",") {
			there[id] = true
		}
		for _, id := range rows {
			if !there[fmt.Sprint(id)] {
				t.Errorf("the acknowledged row %d of writer %d is lost", id, w)
			}
		}
		total += len(rows)
	}
	var slowest time.Time
	for _, r := range recovered {
		if r.After(slowest) {
			slowest = r
		}
	}
	t.Logf("%d rows acknowledged, none lost; %d writes with unknown outcome, %d refused; promoted %v after the death, every writer writes again after %v (%v after the promotion)",
		total, unknown.Load(), refused.Load(), promoted.Sub(dead).Round(time.Millisecond),
		slowest.Sub(dead).Round(time.Millisecond), slowest.Sub(promoted).Round(time.Millisecond))
	// The old primary comes back with rows of its own time, and gets no statement.
	old := pgtest.Restart(t, servers[0], map[string]string{"synchronous_standby_names": ""})
	conn := cl.connect(t)
	awaitRows(t, conn, "SELECT count(*) FROM cleave.endpoints WHERE role = 'primary' AND serves IS NULL AND reason LIKE 'an old primary%'", 1)
	for i := range 20 {
		exec(t, conn, "INSERT INTO orders VALUES (50, $1, 'after')", i)
	}
	if n := pgtest.Ask(t, old.URL("postgres"), "SELECT count(*) FROM orders WHERE tenant_id = 50"); n != "0" {
		t.Errorf("%s rows went to the old primary", n)
	}
	// It leaves the map; the promoted one stays, and may not leave.
	if _, err := cl.ops.RemoveReplica(context.Background(), admin.ReplicaRequest{Shard: "shard-0", URL: servers[1].URL("postgres")}); err == nil {
		t.Error("the primary was removed")
	}
	exec(t, conn, fmt.Sprintf("SELECT cleave.remove_replica('shard-0', '%s')", servers[0].URL("postgres")))
	exec(t, conn, "INSERT INTO orders VALUES (50, 1000, 'after')")
}

// TestAPrimaryThatHangsIsLeft: the old primary does not die, it stops. What waits
// for it ends when another is promoted.
func TestAPrimaryThatHangsIsLeft(t *testing.T) {
	testrun.Long(t, "a server that hangs is waited for; TestReadPolicies has replicas")
	t.Parallel()
	cl, servers := withReplicas(t, config{}, 1)
	idle, writer, reader := cl.connect(t), cl.connect(t), cl.connect(t)
	exec(t, idle, "BEGIN")
	exec(t, idle, "INSERT INTO orders VALUES (1, 1, 'idle')")
	// Two connections idle then, so that neither the write nor the read has to wait
	// for a new one, which would lead to the new primary.
	exec(t, reader, "BEGIN")
	exec(t, reader, "SELECT FROM orders WHERE tenant_id = 7")
	exec(t, writer, "INSERT INTO orders VALUES (7, 0, 'x')")
	exec(t, reader, "COMMIT")
	if h := cl.ex.Health()[0]; h.Idle < 2 {
		t.Fatalf("the pool is not as the test wants it: %+v", h)
	}
	pgtest.Await(t, servers[1].URL("postgres"), "SELECT count(*) FROM orders", "1")
	freeze(t, servers[0])
	wrote, read := make(chan string, 1), make(chan error, 1)
	go func() { wrote <- code(writer, "INSERT INTO orders VALUES (7, 1, 'x')") }()
	go func() {
		var n int
		err := reader.QueryRow(context.Background(), "SELECT count(*) FROM orders WHERE tenant_id = 7").Scan(&n)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows", n)
		}
		read <- err
	}()
	for end := time.Now().Add(waitfor.Max); cl.ex.Endpoints()[0].Up; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the silence is not noticed")
		}
	}
	pgtest.Ask(t, servers[1].SuperuserURL("postgres"), "SELECT pg_promote()")
	if c := <-wrote; c != "08007" {
		t.Errorf("a write in flight: %q", c)
	}
	if err := <-read; err != nil {
		t.Errorf("a read in flight: %v", err)
	}
	wantCode(t, idle, "40001", "INSERT INTO orders VALUES (1, 2, 'idle')")
	exec(t, idle, "ROLLBACK")
	exec(t, idle, "INSERT INTO orders VALUES (1, 3, 'idle')")
}
