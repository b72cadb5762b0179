// Package move moves data between real shards while clients are at work.
package move

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a test waits for what must come, and for a sign that a workflow goes on: more than any machine needs.
const patience = waitfor.Max

// target is a router with a coordinator over shards.
type target struct {
	t     *testing.T
	path  string // of the directory
	dir   shardmap.Directory
	rooms *wiring.Rooms
	url   string
	// servers are those of the shards whose engine is "server".
	servers []*server
}

// server is a PostgreSQL server that can be killed and started again.
type server struct {
	t *testing.T
	*localpg.Server
	again localpg.Options
}

func newServer(t *testing.T, settings map[string]string) *server {
	t.Helper()
	s := pgtest.NewServer(t, settings)
	if err := s.CreateDatabase(t.Context(), "bank"); err != nil {
		t.Fatal(err)
	}
	own := &server{t: t, Server: s, again: localpg.Options{Installation: s.Installation(), DataDir: s.DataDir(), SocketDir: s.SocketDir(), Port: s.Port(), Settings: pgtest.Settings()}}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
		defer stop()
		if err := own.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return own
}

// crash kills the server and starts it again.
func (s *server) crash() {
	s.t.Helper()
	s.Kill()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	next, err := localpg.Start(ctx, s.again)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Server = next
}

// start starts a cluster whose shards are of the engines, one each, with a coordinator
// in the router's process.
func start(t *testing.T, engines ...string) *target {
	t.Helper()
	return startAs(t, "test", engines...)
}

// startAs is start; without a candidate's name there is no coordinator.
func startAs(t *testing.T, candidate string, engines ...string) *target {
	t.Helper()
	return startOn(t, filepath.Join(t.TempDir(), "directory.db"), candidate, engines...)
}

// startOn is startAs with the directory at a path or URL.
func startOn(t *testing.T, path, candidate string, engines ...string) *target {
	t.Helper()
	folder := t.TempDir()
	var shards []admin.BootstrapShard
	var servers []*server
	for i, e := range engines {
		url := "file:" + filepath.Join(folder, fmt.Sprintf("s%d.db", i))
		switch e {
		case "postgres":
			url = pgtest.Database(t)
		case "durable": // of its own, which waits for its disk
			s := newServer(t, map[string]string{"fsync": "on"})
			servers = append(servers, s)
			url = s.URL("bank")
		case "server": // of its own, to be killed
			s := newServer(t, nil)
			servers = append(servers, s)
			url = s.URL("bank")
		}
		shards = append(shards, admin.BootstrapShard{Name: fmt.Sprintf("s%d", i), URL: url})
	}
	c := startWith(t, path, candidate, shards)
	c.servers = servers
	return c
}

// startNamed is start with shards of the test's own.
func startNamed(t *testing.T, candidate string, shards ...admin.BootstrapShard) *target {
	t.Helper()
	return startWith(t, filepath.Join(t.TempDir(), "directory.db"), candidate, shards)
}

func startWith(t *testing.T, path, candidate string, shards []admin.BootstrapShard) *target {
	t.Helper()
	ctx := context.Background()
	dir, err := wiring.OpenDirectory(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	ops := wiring.NewOps(dir, "test", slog.New(slog.DiscardHandler))
	_, err = ops.Bootstrap(ctx, admin.BootstrapRequest{Shards: shards})
	if err := errors.Join(err, ops.Close(), dir.Close()); err != nil {
		t.Fatal(err)
	}
	return join(t, path, candidate)
}

// join starts a router on a directory that has a map.
func join(t *testing.T, path, candidate string) *target {
	return joinBehind(t, path, candidate, func(dir shardmap.Directory) shardmap.Directory { return dir })
}

// joinBehind is join with something between the rooms and the directory.
func joinBehind(t *testing.T, path, candidate string, behind func(shardmap.Directory) shardmap.Directory) *target {
	t.Helper()
	ctx := context.Background()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("CLEAVE_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	dir, err := wiring.OpenDirectory(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	// What ranges get is known at once, and forgotten soon.
	cfg, err := config.Load(config.Input{Flags: map[string]string{"load-window": "2s"}})
	if err != nil {
		t.Fatal(err)
	}
	member := uuid.NewString()
	lease, leave, err := dir.Join(ctx, shardmap.Member{ID: member, Role: "router", Address: "test", Host: "here", Software: "test"})
	if err != nil {
		t.Fatal(err)
	}
	rooms, err := wiring.New(ctx, wiring.Options{Directory: behind(dir), Lease: lease, Member: member, Config: &cfg.Config, Log: log, Candidate: candidate})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- rooms.Gateway.Serve(ctx, l) }()
	t.Cleanup(func() {
		limit, cancel := context.WithTimeout(ctx, waitfor.Max)
		defer cancel()
		if err := errors.Join(rooms.Gateway.Shutdown(limit), rooms.Close(), leave(limit), dir.Close()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != gateway.ErrClosed {
			t.Error(err)
		}
	})
	return &target{t: t, path: path, dir: dir, rooms: rooms, url: "postgres://app@" + l.Addr().String() + "/cleave?sslmode=disable"}
}

// connect opens a session.
func (c *target) connect() *pgx.Conn {
	c.t.Helper()
	conn, err := pgx.Connect(context.Background(), c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (c *target) exec(sql ...string) {
	c.t.Helper()
	conn, err := pgx.Connect(context.Background(), c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, s := range sql {
		if _, err := conn.Exec(context.Background(), s); err != nil {
			c.t.Fatalf("%s: %v", s, err)
		}
	}
}

// number asks the router.
func (c *target) number(sql string) (n int64) {
	c.t.Helper()
	conn, err := pgx.Connect(context.Background(), c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// onShard asks a shard itself.
func (c *target) onShard(shard, sql string) string {
	c.t.Helper()
	c.eventually("the router's map has shard "+shard, func() bool {
		_, err := c.rooms.Executor.Shard(shard)
		return err == nil
	})
	sh, err := c.rooms.Executor.Shard(shard)
	if err != nil {
		c.t.Fatal(err)
	}
	if def, _ := c.rooms.Executor.Snapshot().Shard(shard); def.Engine == postgres.Name {
		// What moves have there is their mover's: the server's superuser sees it.
		if sh, err = (postgres.Driver{}).Open(engine.Config{Name: shard, URL: pgtest.Super(def.URL)}); err != nil {
			c.t.Fatal(err)
		}
		defer sh.Close()
	}
	conn, err := sh.Connect(context.Background(), map[string]string{"client_encoding": "UTF8"})
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	res, err := engine.Exec(conn, sql)
	if err != nil {
		c.t.Fatalf("%s: %s: %v", shard, sql, err)
	}
	return res.Rows[0][0].String
}

// await waits until a workflow is at one of the steps.
func (c *target) await(id string, steps ...string) admin.WorkflowInfo {
	c.t.Helper()
	end, seen := time.Now().Add(patience), ""
	last := time.Now().Add(5 * patience) // it may go on in a circle
	for {
		list, err := c.rooms.Ops.Moves(context.Background(), id)
		if err != nil {
			c.t.Fatal(err)
		}
		w := list[0]
		if now := c.sign(w); now != seen {
			end, seen = time.Now().Add(patience), now // it goes on
		}
		for _, s := range steps {
			if w.Step == s {
				return w
			}
		}
		if now := time.Now(); w.Ended || now.After(end) || now.After(last) {
			for _, l := range w.History {
				c.t.Log(l.At.Format("15:04:05.000"), l.Step, l.What)
			}
			c.t.Fatalf("%s is %q, not one of %v: %s", id, w.Step, steps, w.Error)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sign is another one as long as a workflow, or one of its moves, goes on.
func (c *target) sign(w admin.WorkflowInfo) string {
	text := fmt.Sprint(w.Step, w.Begun, w.Rows, w.Bytes)
	for _, id := range w.Children {
		if list, err := c.rooms.Ops.Moves(context.Background(), id); err == nil {
			text += c.sign(list[0])
		}
	}
	return text
}

// clean fails if a move has left anything behind.
func (c *target) clean() {
	c.t.Helper()
	snap, err := c.dir.Load(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, k := range snap.State().Keyspaces {
		if len(k.Transits) > 0 {
			c.t.Errorf("transits are left: %v", k.Transits)
		}
	}
	for _, s := range snap.Shards() {
		sh, err := c.rooms.Executor.Shard(s.Name)
		if err != nil {
			c.t.Fatal(err)
		}
		if left, err := sh.(engine.Movable).Mover(0).Captures(context.Background()); err != nil || len(left) > 0 {
			c.t.Errorf("captures are left on %s: %v %v", s.Name, left, err)
		}
	}
	found, err := c.rooms.Ops.Doctor(context.Background(), admin.DoctorRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range found {
		if f.Level == admin.LevelError || f.Table != "" {
			c.t.Errorf("doctor: %s %s %s", f.Level, f.Shard, f.What)
		}
	}
}

// The bank: accounts by tenant, and a log of what was done, so that nothing can be lost
// or done twice unseen.
const (
	tenants  = 40
	accounts = 5
	balance  = 1000
)

// bank makes the tables, in a keyspace of one range that s0 has.
func (c *target) bank(rows int) {
	c.t.Helper()
	c.exec(
		`SELECT cleave.create_keyspace('bank', 'hash', 'bigint', ranges => 1, shards => ARRAY['s0'])`,
		`CREATE TABLE account (tenant bigint NOT NULL, id int NOT NULL, balance bigint NOT NULL, note text, PRIMARY KEY (tenant, id)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`,
		`CREATE TABLE entry (tenant bigint NOT NULL, client int NOT NULL, n bigint NOT NULL, amount bigint NOT NULL, PRIMARY KEY (tenant, client, n)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`,
		`CREATE TABLE bulk (tenant bigint NOT NULL, n int NOT NULL, body text NOT NULL, PRIMARY KEY (tenant, n)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`,
	)
	var values []string
	for t := range tenants {
		for a := range accounts {
			values = append(values, fmt.Sprintf("(%d, %d, %d, 'x')", t, a, balance))
		}
	}
	c.exec(`INSERT INTO account VALUES ` + strings.Join(values, ", "))
	for begin := 0; begin < rows; begin += 2000 {
		values = values[:0]
		for i := begin; i < min(rows, begin+2000); i++ {
			values = append(values, fmt.Sprintf("(%d, %d, '%s')", i%tenants, i, strings.Repeat("abcdefghij", 10)))
		}
		c.exec(`INSERT INTO bulk VALUES ` + strings.Join(values, ", "))
	}
}

// load is clients at work.
type load struct {
	c       *target
	stop    context.CancelFunc
	pause   time.Duration
	done    sync.WaitGroup
	did     atomic.Int64
	failed  atomic.Int64
	slowest atomic.Int64 // nanoseconds
	mu      sync.Mutex
	acked   map[string]bool // entries whose COMMIT was answered
	unknown map[string]bool // entries whose COMMIT was not
	first   error
}

// work starts clients that transfer within tenants until end is called. They leave the machine something for the move itself.
func (c *target) work(clients int) *load { return c.workAt(clients, time.Millisecond) }

// workAt is work with another pause after each transaction: on a busy machine a file takes more changes than the other shard can follow.
func (c *target) workAt(clients int, pause time.Duration) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{c: c, stop: stop, pause: pause, acked: map[string]bool{}, unknown: map[string]bool{}}
	for i := range clients {
		l.done.Go(func() { l.client(ctx, i) })
	}
	return l
}

func (l *load) client(ctx context.Context, client int) {
	r := rand.New(rand.NewPCG(uint64(client), 7))
	conn, err := pgx.Connect(ctx, l.c.url)
	if err != nil {
		l.fail(err)
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for n := int64(1); ctx.Err() == nil; n++ {
		time.Sleep(l.pause)
		tenant, from := r.IntN(tenants), r.IntN(accounts)
		to := (from + 1 + r.IntN(accounts-1)) % accounts
		amount := 1 + r.IntN(9)
		key := fmt.Sprintf("%d/%d/%d", tenant, client, n)
		began := time.Now()
		committing := false
		// What was begun is finished: a cancelled COMMIT would tell nothing.
		one := context.WithoutCancel(ctx)
		err := func() error {
			if n%3 == 0 { // one statement
				committing = true
				_, err := conn.Exec(one, `INSERT INTO entry VALUES ($1, $2, $3, 0)`, tenant, client, n)
				return err
			}
			tx, err := conn.Begin(one)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(one) }()
			type statement struct {
				sql  string
				args []any
			}
			list := []statement{
				{`UPDATE account SET balance = balance - $3 WHERE tenant = $1 AND id = $2`, []any{tenant, from, amount}},
				{`UPDATE account SET balance = balance + $3, note = $4 WHERE tenant = $1 AND id = $2`, []any{tenant, to, amount, key}},
				{`INSERT INTO entry VALUES ($1, $2, $3, $4)`, []any{tenant, client, n, amount}},
			}
			if to < from { // always in the same order, so that clients do not wait for each other in a ring
				list[0], list[1] = list[1], list[0]
			}
			for _, s := range list {
				if _, err := tx.Exec(one, s.sql, s.args...); err != nil {
					return err
				}
			}
			committing = true
			return tx.Commit(one)
		}()
		took := time.Since(began)
		for {
			was := l.slowest.Load()
			if int64(took) <= was || l.slowest.CompareAndSwap(was, int64(took)) {
				break
			}
		}
		l.mu.Lock()
		switch {
		case err == nil:
			l.acked[key] = true
			l.did.Add(1)
		default:
			if committing {
				l.unknown[key] = true
			}
			l.failed.Add(1)
			if l.first == nil {
				l.first = err
			}
		}
		l.mu.Unlock()
		if err != nil && conn.IsClosed() {
			// A router that has no lease for a moment takes no session.
			next, err := pgx.Connect(one, l.c.url)
			for end := time.Now().Add(patience); err != nil && time.Now().Before(end) && ctx.Err() == nil; {
				time.Sleep(20 * time.Millisecond)
				next, err = pgx.Connect(one, l.c.url)
			}
			if err != nil {
				l.fail(err)
				return
			}
			conn = next
		}
	}
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed.Add(1)
	if l.first == nil {
		l.first = err
	}
}

// end stops the clients and checks that all they were told is true.
func (l *load) end() {
	t := l.c.t
	t.Helper()
	l.stop()
	l.done.Wait()
	t.Logf("%d transactions, %d failed, the slowest took %s", l.did.Load(), l.failed.Load(), time.Duration(l.slowest.Load()).Round(time.Millisecond))
	if l.first != nil {
		t.Logf("the first failure: %v", l.first)
	}
	l.c.check(l)
}

// check compares what is stored with what clients were told.
func (c *target) check(l *load) {
	t := c.t
	t.Helper()
	if n := c.number(`SELECT sum(balance)::bigint FROM account`); n != tenants*accounts*balance {
		t.Errorf("the sum is %d, not %d", n, tenants*accounts*balance)
	}
	if n := c.number(`SELECT count(*) FROM account`); n != tenants*accounts {
		t.Errorf("%d accounts, not %d", n, tenants*accounts)
	}
	conn := c.connect()
	rows, err := conn.Query(context.Background(), `SELECT tenant, client, n FROM entry`)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for rows.Next() {
		var tenant, client, n int64
		if err := rows.Scan(&tenant, &client, &n); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("%d/%d/%d", tenant, client, n)
		if found[key] {
			t.Errorf("entry %s is there twice", key)
		}
		found[key] = true
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	lost, extra := 0, 0
	for key := range l.acked {
		if !found[key] {
			lost++
		}
	}
	for key := range found {
		if !l.acked[key] && !l.unknown[key] {
			extra++
		}
	}
	if lost > 0 || extra > 0 {
		t.Errorf("of %d acknowledged entries %d are lost, %d are there that were not acknowledged", len(l.acked), lost, extra)
	}
}
