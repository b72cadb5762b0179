package crash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

const (
	// patience is how long a test waits for what must come: more than any machine needs.
	patience = 2 * time.Minute
	// settleMax bounds what may go on for a moment after a workflow has ended: transactions whose
	// router died are settled by others.
	settleMax = 45 * time.Second
	leaseTTL  = time.Second
)

// lane is a cluster of processes of its own, in which one combination after the other is tried.
type lane struct {
	t      testing.TB // of the combination that is under way
	engine string
	folder string
	url    string // of the directory
	etcd   *etcdtest.Cluster
	// ours is our own way to the directory, which nobody cuts.
	dir     shardmap.Directory
	ops     *admin.Ops
	servers []*server // of the shards s0 and s1; none with SQLite
	// processes: a coordinator and two routers, each of which would lead as well.
	processes []*process
	routers   []*router
	bank      *bank
	notes     *notes // of operations
	armed     int    // the number of the last point that was asked for
	tried     int    // combinations
	relations string // what the shards have when nothing goes on
	// usual is what doctor says when nothing was moved: that test servers do not wait for disks.
	usual []string
}

type router struct {
	*process
	url   string
	admin string // address of the operations
}

// server is a PostgreSQL server that can be killed and started again.
type server struct {
	*localpg.Server
	again localpg.Options
}

// newLane starts one. Its processes end with the test.
func newLane(t *testing.T, engineName string) *lane {
	t.Helper()
	ctx := context.Background()
	l := &lane{t: t, engine: engineName, folder: pgtest.Dir(t)}
	var req admin.BootstrapRequest
	for i := range 2 {
		name := fmt.Sprintf("s%d", i)
		url := "file:" + filepath.Join(l.folder, name+".db")
		if engineName == "postgres" {
			s := newServer(t)
			l.servers = append(l.servers, s)
			url = s.URL("bank")
		}
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: name, URL: url})
	}
	l.url = "file:" + filepath.Join(l.folder, "directory.db")
	if engineName == "postgres" {
		l.etcd = etcdtest.New(t, etcdtest.Options{})
		l.url = l.etcd.URL()
	}
	var err error
	if l.dir, err = wiring.OpenDirectory(ctx, l.url); err != nil {
		t.Fatal(err)
	}
	l.ops = wiring.NewOps(l.dir, "test", slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := errors.Join(l.ops.Close(), l.dir.Close()); err != nil {
			t.Error(err)
		}
	})
	if _, err := l.ops.Bootstrap(ctx, req); err != nil {
		t.Fatal(err)
	}
	l.add("coordinator", "coordinator")
	for i := range 2 {
		address, operate := l.address(), l.address()
		p := l.add(fmt.Sprintf("router-%d", i), "router", "--listen", address, "--admin", operate)
		l.routers = append(l.routers, &router{p, "postgres://app@" + address + "/cleave?sslmode=disable", operate})
	}
	l.fill()
	l.usual = l.doctor(ctx)
	l.bank = l.startBank()
	t.Cleanup(l.bank.end)
	// The first move makes what a shard keeps for moves; both ways, so that all have it.
	w := &trial{lane: l, r: rand.New(rand.NewPCG(1, 1)), id: "first"}
	for range 2 {
		w.before(func() { w.move(w.ranges()[0], workflow.Options{KeepMS: -1}) })
	}
	l.relations = l.shardRelations()
	return l
}

// address is one at which a process can listen, each time that it is started.
func (l *lane) address() string {
	l.t.Helper()
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	defer held.Close()
	return held.Addr().String()
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := pgtest.NewServer(t, nil)
	if err := s.CreateDatabase(t.Context(), "bank"); err != nil {
		t.Fatal(err)
	}
	own := &server{s, localpg.Options{Installation: s.Installation(), DataDir: s.DataDir(), SocketDir: s.SocketDir(), Port: s.Port(), Settings: pgtest.Settings()}}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := own.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return own
}

// add starts a process with a way of its own to the directory.
func (l *lane) add(name string, args ...string) *process {
	l.t.Helper()
	p := &process{name: name, env: []string{"CLEAVE_CRASH_POINT=" + l.point()}}
	url := l.url
	if l.etcd != nil {
		p.way = l.etcd.Network(l.t)
		url = p.way.URL(url)
	}
	p.args = append(args, "--directory", url, "--lease-ttl", leaseTTL.String())
	l.processes = append(l.processes, p)
	l.t.Cleanup(p.kill)
	if err := p.start(); err != nil {
		l.t.Fatal(err)
	}
	return p
}

// exec runs statements on a router.
func (l *lane) exec(sql ...string) error { return l.execAt(l.routers[0].url, sql...) }

func (l *lane) execAt(url string, sql ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callMax)
	defer cancel()
	conn, err := dial(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for _, s := range sql {
		_, err := conn.Exec(ctx, s)
		// The machine stood still for longer than a lease: nothing was done.
		for ; code(err) == "57P03" && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			_, err = conn.Exec(ctx, s)
		}
		if err != nil {
			return fmt.Errorf("%.80s: %w", s, err)
		}
	}
	return nil
}

// fill makes the tables and their rows, in a keyspace of two ranges, one on each shard.
func (l *lane) fill() {
	l.t.Helper()
	var list, many []string
	for t := range tenants {
		for a := range accounts {
			list = append(list, fmt.Sprintf("(%d, %d, %d)", t, a, balance))
		}
	}
	for n := range bulkRows {
		many = append(many, fmt.Sprintf("(%d, %d, '%s')", n%tenants, n, strings.Repeat("abcdefghij", 10)))
	}
	const with = `WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`
	if err := l.exec(
		`SELECT cleave.create_keyspace('bank', 'hash', 'bigint', ranges => 2, shards => ARRAY['s0', 's1'])`,
		`CREATE TABLE account (tenant bigint NOT NULL, id int NOT NULL, balance bigint NOT NULL, PRIMARY KEY (tenant, id)) `+with,
		`CREATE TABLE entry (tenant bigint NOT NULL, client int NOT NULL, n bigint NOT NULL, account int NOT NULL, amount bigint NOT NULL, PRIMARY KEY (tenant, client, n)) `+with,
		`CREATE TABLE bulk (tenant bigint NOT NULL, n int NOT NULL, body text NOT NULL, PRIMARY KEY (tenant, n)) `+with,
		`INSERT INTO account VALUES `+strings.Join(list, ", "),
		`INSERT INTO bulk VALUES `+strings.Join(many, ", "),
	); err != nil {
		l.t.Fatal(err)
	}
	// The other router knows the tables too.
	l.eventually("the second router serves", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), callMax)
		defer cancel()
		conn, err := dial(ctx, l.routers[1].url)
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		var n int
		return conn.QueryRow(ctx, `SELECT count(*) FROM account`).Scan(&n)
	})
}

// eventually tries something until it goes well.
func (l *lane) eventually(what string, try func() error) {
	l.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("in %v it did not come to this: %s: %v", patience, what, err)
		}
	}
}

// snapshot is the map.
func (l *lane) snapshot() (snap *shardmap.Snapshot) {
	l.t.Helper()
	l.eventually("the map can be read", func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		snap, err = l.dir.Load(ctx)
		return err
	})
	return snap
}

// state is a workflow as it is stored.
func (l *lane) state(id string) (s workflow.State) {
	l.t.Helper()
	l.eventually("the workflow can be read", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r, err := l.dir.Record(ctx, workflow.RecordPrefix+id)
		if err != nil {
			return err
		}
		s, err = workflow.Decode(r.Value)
		return err
	})
	return s
}

// await waits until a workflow is at a step; it must not end otherwise.
func (l *lane) await(id string, step workflow.StepName) {
	l.t.Helper()
	began, moved, version := time.Now(), time.Now(), uint64(0)
	for ; ; time.Sleep(5 * time.Millisecond) {
		s := l.state(id)
		if s.Step == step {
			return
		}
		// One of many moves may take long on a busy machine, as long as it goes on.
		if time.Since(moved) > patience/8 {
			if now := l.snapshot().Version(); now != version {
				moved, version = time.Now(), now
			}
		}
		if s.Step.Ended() || time.Since(moved) > patience || time.Since(began) > 5*patience {
			l.t.Fatalf("%s is %q and not %q after %v: %s\n%s", id, s.Step, step, time.Since(began), s.Error, l.history(id))
		}
	}
}

// history is that of a workflow and of those that it has begun, for people.
func (l *lane) history(id string) string {
	var b strings.Builder
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	all, err := l.dir.Records(ctx, workflow.RecordPrefix, "", 1000)
	if err != nil {
		return err.Error()
	}
	for _, r := range all {
		s, err := workflow.Decode(r.Value)
		if err != nil || s.Spec.ID != id && s.Spec.Parent != id {
			continue
		}
		fmt.Fprintf(&b, "%s is %s (back %v): %s\n", s.Spec.ID, s.Step, s.Back, s.Error)
		for _, h := range s.History {
			fmt.Fprintf(&b, "  %s %s | %s\n", time.UnixMilli(h.At).Format("15:04:05.000"), h.Step, h.What)
		}
	}
	return b.String()
}

// point is the file by which coordinators are asked to wait at a point.
func (l *lane) point() string { return filepath.Join(l.folder, "point") }

// arm asks the coordinator that leads to wait at a point.
func (l *lane) arm(p point) {
	l.t.Helper()
	l.armAt(fmt.Sprintf("%s|%v|%d", p.step, p.back, p.n))
}

// armAt asks every process that comes to a place to wait there.
func (l *lane) armAt(place string) {
	l.t.Helper()
	l.armed++
	text := fmt.Sprintf("%d|%s", l.armed, place)
	if err := os.WriteFile(l.point()+".new", []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(l.point()+".new", l.point()); err != nil {
		l.t.Fatal(err)
	}
}

// disarm lets a process that waits go on.
func (l *lane) disarm() { _ = os.Remove(l.point()) }

// reached waits until somebody is at the point, and returns who.
func (l *lane) reached(id string) (pid int) {
	l.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if pid := l.at(); pid != 0 {
			return pid
		}
		late := time.Now().After(end)
		if !late && time.Now().UnixMilli()%16 != 0 {
			continue
		}
		if s := l.state(id); s.Step.Ended() || late {
			b, _ := os.ReadFile(l.point())
			l.t.Fatalf("%s is %q and did not come to the point %s\n%s", id, s.Step, b, l.history(id))
		}
	}
}

// at is the process that waits at the point or place that was asked for last, 0 if none does yet.
func (l *lane) at() (pid int) {
	b, err := os.ReadFile(l.point() + ".reached")
	if number, who, ok := strings.Cut(string(b), "|"); err == nil && ok && number == strconv.Itoa(l.armed) {
		if pid, err = strconv.Atoi(who); err == nil {
			return pid
		}
	}
	return 0
}

// shard opens a shard as its engine does, past the routers.
func (l *lane) shard(s *shardmap.Shard) (engine.Shard, error) {
	for _, d := range wiring.Drivers() {
		if d.Name() == s.Engine {
			return d.Open(engine.Config{Cluster: l.snapshot().State().Cluster, Name: s.Name, URL: s.URL})
		}
	}
	return nil, fmt.Errorf("nobody knows the engine %s", s.Engine)
}

// onShard asks a shard itself; the answer is the first row's first column.
func (l *lane) onShard(s *shardmap.Shard, sql string) (string, error) {
	all := *s
	all.URL = pgtest.Super(s.URL) // what moves have there is their mover's
	sh, err := l.shard(&all)
	if err != nil {
		return "", err
	}
	defer sh.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := sh.Connect(ctx, map[string]string{"client_encoding": "UTF8"})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	res, err := engine.Exec(conn, sql)
	if err != nil || len(res.Rows) == 0 {
		return "", err
	}
	return res.Rows[0][0].String, nil
}
