package move

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/testrun"
)

// TestTablesOnOtherRouters: tables come, go, and come again as tables of another kind, on one router; clients of two
// others read them all the time. Each read has all rows of a table, or says that there is none: a router whose map is
// older never takes a table for one of the default shard. What was acknowledged on one router is so on the others.
func TestTablesOnOtherRouters(t *testing.T) {
	testrun.Long(t, "tables come and go beside several routers, on each engine")
	bin := *tested
	if bin == "" {
		bin = program(t)
	}
	for _, kind := range []string{"postgres", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := &histories{target: startAs(t, "", kind, kind, kind), kind: kind, seed: *seed, moved: &moved{count: map[string]int{}}, codes: map[string]int{}}
			if h.seed == 0 {
				h.seed = uint64(time.Now().UnixNano())
			}
			t.Logf("-seed %d", h.seed)
			for range 3 {
				h.routers = append(h.routers, h.startRouter(bin))
			}
			h.exec(`SELECT cleave.create_keyspace('k', 'hash', 'bigint', ranges => 6)`)
			(&elsewhere{histories: h, t: t}).run(12)
		})
	}
}

// TestSchemaChangeBesideSlowRouters: a statement that lasts, on another router, holds no schema change up that is not about its tables; a router that
// stands still holds it up until its lease ends, and is not wrong when it goes on.
func TestSchemaChangeBesideSlowRouters(t *testing.T) {
	testrun.Long(t, "routers have to be slow for longer than a schema change waits")
	bin := *tested
	if bin == "" {
		bin = program(t)
	}
	h := &histories{target: startAs(t, "", "postgres", "postgres"), kind: "postgres", moved: &moved{count: map[string]int{}}, codes: map[string]int{}}
	for range 2 {
		h.routers = append(h.routers, h.startRouter(bin))
	}
	h.exec(`SELECT cleave.create_keyspace('k', 'hash', 'bigint', ranges => 4)`, `CREATE TABLE slow (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k', cleave.keyspace = 'k')`,
		`INSERT INTO slow SELECT generate_series(1, 20)`)
	dial := func(url string) *pgconn.PgConn {
		conn, err := h.dial(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	run := func(conn *pgconn.PgConn, sql string) (string, error) {
		ctx, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		res, err := conn.Exec(ctx, sql).ReadAll()
		if err != nil || len(res) == 0 || len(res[len(res)-1].Rows) == 0 {
			return "", err
		}
		return string(res[len(res)-1].Rows[0][0]), nil
	}
	must := func(conn *pgconn.PgConn, sql string) {
		t.Helper()
		if _, err := run(conn, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}

	// Statements over all shards and of one, on the other router, that wait for a lock that somebody has on a shard.
	snap, err := h.dir.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := h.onShard(snap.Shards()[1].Name, "SELECT min(k) FROM slow")
	locker := dial(snap.Shards()[1].URL)
	must(locker, "BEGIN; LOCK TABLE slow")
	ended := make(chan error, 2)
	for _, sql := range []string{"SELECT count(*) FROM slow", "SELECT count(*) FROM slow WHERE k = " + key} {
		conn := dial(h.routers[1].url())
		go func() { _, err := run(conn, sql); ended <- err }()
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if n, err := run(locker, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'slow'::regclass"); err == nil && n == "2" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%s wait, %v", n, err)
		}
	}
	here := dial(h.routers[0].url())
	for _, sql := range []string{`CREATE TABLE quick (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k', cleave.keyspace = 'k')`, `CREATE TABLE whole (a int)`, `ALTER TABLE quick ADD COLUMN v int`, `DROP TABLE quick`,
		`CREATE TABLE quick (k bigint PRIMARY KEY) WITH (cleave.reference = true)`} {
		must(here, sql)
	}
	select {
	case err := <-ended:
		t.Errorf("the slow statements did not last: %v", err)
	default:
	}
	must(locker, "ROLLBACK")
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a slow statement: %v", err)
		}
	}

	// A router that stands still.
	there := dial(h.routers[1].url())
	if _, err := run(there, "SELECT count(*) FROM fresh"); codeOf(err) != "42P01" {
		t.Fatal(err)
	}
	stopped := h.routers[1].cmd.Process
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	must(here, `CREATE TABLE fresh (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k', cleave.keyspace = 'k')`)
	must(here, `INSERT INTO fresh SELECT generate_series(1, 20)`)
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		n, err := run(there, "SELECT count(*) FROM fresh")
		if err == nil && n == "20" {
			break
		}
		if err == nil || codeOf(err) == "42P01" || codeOf(err) == "0A000" || time.Now().After(end) {
			t.Fatalf("the router that stood still gives %s rows, %v", n, err)
		}
	}
}

const elsewhereRows = 40

// elsewhere is the state of TestTablesOnOtherRouters.
type elsewhere struct {
	*histories
	t      *testing.T
	reads  atomic.Int64
	absent atomic.Int64
}

// kindsOfTables are the ends of CREATE TABLE.
var kindsOfTables = []string{
	"WITH (cleave.shard_key = 'k', cleave.keyspace = 'k')",
	"WITH (cleave.reference = true)",
	"",
	"WITH (cleave.shard_key = 'v', cleave.keyspace = 'k')",
}

func (e *elsewhere) run(rounds int) {
	ctx, stop := context.WithCancel(e.t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	for _, r := range e.routers {
		for range 2 {
			readers.Go(func() { e.read(ctx, r) })
		}
	}
	r := rand.New(rand.NewPCG(e.seed, 7))
	for n := range rounds {
		if e.t.Failed() {
			return
		}
		e.round(n, r)
	}
	stop()
	readers.Wait()
	e.t.Logf("%d reads of all rows, %d of no table", e.reads.Load(), e.absent.Load())
	if e.reads.Load() == 0 || e.absent.Load() == 0 {
		e.t.Error("nothing was shown")
	}
}

// round makes the table on one router with all its rows, looks from the others, and drops it on another one.
func (e *elsewhere) round(n int, r *rand.Rand) {
	var conns []*pgconn.PgConn
	for _, router := range e.routers {
		conn, err := e.dial(e.t.Context(), router.url())
		if err != nil {
			e.t.Fatal(err)
		}
		defer conn.Close(context.Background())
		conns = append(conns, conn)
	}
	do := func(at int, want, sql string) {
		e.t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			res, err := conns[at].Exec(e.t.Context(), sql).ReadAll()
			code := codeOf(err)
			if err != nil && code != want && (code == "40001" || code == "55P03" || code == "40P01") && time.Now().Before(end) {
				continue // readers' locks are in the way
			}
			got := ""
			if err != nil {
				got = code + " " + err.Error()
			} else if len(res) > 0 {
				got = res[len(res)-1].CommandTag.String()
			}
			if err != nil && code == want || err == nil && got == want {
				return
			}
			e.t.Errorf("round %d: %s on router %d gave %s, not %s", n, sql, at, got, want)
			return
		}
	}
	made, other := r.IntN(len(conns)), r.IntN(len(conns))
	kind := kindsOfTables[(n+r.IntN(2))%len(kindsOfTables)]
	create := fmt.Sprintf("BEGIN; CREATE TABLE t (k bigint, v bigint, PRIMARY KEY (k, v)) %s; INSERT INTO t SELECT g, g * 7 FROM generate_series(1, %d) AS g; COMMIT", kind, elsewhereRows)
	if e.kind == "sqlite" { // its transactions with rows on several shards are refused beside schema changes
		create = fmt.Sprintf("CREATE TABLE t (k bigint, v bigint, PRIMARY KEY (k, v)) %s", kind)
	}
	began := time.Now()
	if e.kind == "sqlite" {
		do(made, "CREATE TABLE", create)
		do(other, fmt.Sprintf("INSERT 0 %d", elsewhereRows), fmt.Sprintf("INSERT INTO t SELECT g, g * 7 FROM generate_series(1, %d) AS g", elsewhereRows))
	} else {
		do(made, "COMMIT", create)
	}
	e.moved.add("round %d: %s took %v", n, kind, time.Since(began))
	for at := range conns {
		do(at, fmt.Sprintf("UPDATE %d", elsewhereRows), "UPDATE t SET v = v")
	}
	do(other, "DROP TABLE", "DROP TABLE t")
	for at := range conns {
		do(at, "42P01", "SELECT count(*) FROM t")
	}
}

// read reads the table again and again.
func (e *elsewhere) read(ctx context.Context, r *router) {
	conn, err := e.dial(ctx, r.url())
	if err != nil {
		e.t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	// On PostgreSQL the rows come with the table, shard by shard: a read has them all, or one of its shards has no table.
	for ctx.Err() == nil {
		res, err := conn.Exec(context.WithoutCancel(ctx), "SELECT count(*) FROM t").ReadAll()
		switch code := codeOf(err); {
		case err == nil:
			n := string(res[0].Rows[0][0])
			if want := fmt.Sprint(elsewhereRows); n != want && !(e.kind == "sqlite" && n == "0") {
				e.t.Errorf("a read of router %s gave %s rows, not %s", r.listen, n, want)
				return
			}
			e.reads.Add(1)
		case code == "42P01":
			e.absent.Add(1)
		case code == "40001" || code == "55P03" || code == "40P01" || code == "57P03":
		default:
			e.t.Errorf("a read of router %s: %v", r.listen, err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}
