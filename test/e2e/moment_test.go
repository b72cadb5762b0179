package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/executor/moment/momenttest"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

const momentKeys = 6

// moments are three routers whose clients' order is kept, or is not.
type moments struct {
	t       *testing.T
	routers []*cluster
	h       *momenttest.History
	mu      sync.Mutex
	refused map[string]int // by code
}

// newMoments has shards to which half of the connections are slow: snapshots that are begun at one time are taken at different
// times.
func newMoments(t *testing.T, mode string) *moments {
	m := &moments{t: t, h: momenttest.New(), refused: map[string]int{}}
	directory := "file:" + filepath.Join(pgtest.Dir(t), "directory.db")
	args := []string{"init", "--directory", directory}
	for i := range 2 {
		args = append(args, fmt.Sprintf("shard-%d=%s", i, slowed(t, pgtest.DatabaseOn(t, pgtest.Server(t)))))
	}
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range 3 {
		m.routers = append(m.routers, startRouter(t, directory, "--moments", mode))
	}
	m.routers[0].exec(t, `CREATE TABLE counter (id bigint PRIMARY KEY, n bigint NOT NULL) WITH (cleave.shard_key = 'id')`,
		fmt.Sprintf(`INSERT INTO counter SELECT g, 0 FROM generate_series(0, %d) AS g`, momentKeys-1))
	c := m.client()
	defer c.end()
	waitfor.True(t, "all routers know the table", func() bool {
		for _, r := range m.routers {
			if saw, err := c.snapshot(r, 0); err != nil || len(saw) != momentKeys {
				return false
			}
		}
		return true
	})
	return m
}

// slowed is the URL of a database by way of a relay that delays what every other connection says.
func slowed(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	server := u.Host
	u.Host = l.Addr().String()
	go func() {
		for n := 0; ; n++ {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go relay(nc, server, time.Duration(n%2)*25*time.Millisecond)
		}
	}()
	return u.String()
}

func relay(nc net.Conn, server string, delay time.Duration) {
	defer nc.Close()
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		defer nc.Close()
		_, _ = io.Copy(nc, to) // either end may be killed
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := nc.Read(buf)
		if err != nil {
			return
		}
		time.Sleep(delay)
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// client has a connection to each router that it has talked to.
type client struct {
	m     *moments
	conns map[*cluster]*pgx.Conn
}

func (m *moments) client() *client { return &client{m, map[*cluster]*pgx.Conn{}} }

// on runs f with a connection to a router, which answers within some seconds or not at all.
func (c *client) on(r *cluster, f func(context.Context, *pgx.Conn) error) (err error) {
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	if c.conns[r] == nil {
		if c.conns[r], err = pgx.Connect(ctx, r.url()); err != nil {
			return err
		}
	}
	if err = f(ctx, c.conns[r]); err != nil {
		c.close(r)
	}
	return err
}

func (c *client) close(r *cluster) {
	limit, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	if c.conns[r] != nil {
		_ = c.conns[r].Close(limit) // the router may be stopped
	}
	delete(c.conns, r)
}

func (c *client) end() {
	for _, r := range c.m.routers {
		c.close(r)
	}
}

// snapshot reads all counters in a REPEATABLE READ block, by one statement or one after the other.
func (c *client) snapshot(r *cluster, form int) (saw map[string]int, err error) {
	saw = map[string]int{}
	err = c.on(r, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "SET cleave.read_consistency = 'atomic'"); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
			return err
		}
		texts := []string{"SELECT id, n FROM counter"}
		if form%2 == 1 {
			texts = nil
			for k := range momentKeys {
				texts = append(texts, fmt.Sprintf("SELECT id, n FROM counter WHERE id = %d", (k+form)%momentKeys))
			}
		}
		for _, sql := range texts {
			rows, err := conn.Query(ctx, sql)
			if err != nil {
				return err
			}
			var id, n int
			if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error {
				saw[fmt.Sprint(id)] = n
				return nil
			}); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, "COMMIT")
		return err
	})
	return saw, err
}

// writes counts up one after the other of its keys, each time through another router, when it has the answer to the one before.
func (m *moments) writes(ctx context.Context, seed uint64, keys []int) {
	r, c := rand.New(rand.NewPCG(seed, 0)), m.client()
	defer c.end()
	for i := 0; ctx.Err() == nil; i++ {
		key := keys[i%len(keys)]
		_ = m.h.Write(fmt.Sprint(key), func(n int) error { // it has no error
			sql := fmt.Sprintf("UPDATE counter SET n = greatest(n, %d) WHERE id = %d", n, key)
			for {
				err := c.on(m.routers[r.IntN(len(m.routers))], func(ctx context.Context, conn *pgx.Conn) error {
					tag, err := conn.Exec(ctx, sql)
					if err == nil && tag.RowsAffected() != 1 {
						m.t.Errorf("%s: %s", sql, tag)
					}
					return err
				})
				if err == nil {
					return nil
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// begin has clients write and read until the returned function is called.
func (m *moments) begin() (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for w := range 2 {
		work.Go(func() { m.writes(ctx, uint64(w), []int{w, w + 2, w + 4}) })
	}
	for i, r := range m.routers {
		work.Go(func() {
			c := m.client()
			defer c.end()
			for n := i; ctx.Err() == nil; n++ {
				if err := m.h.Read(func() (map[string]int, error) { return c.snapshot(r, n) }); err != nil {
					m.mu.Lock()
					m.refused[code(err)]++
					m.mu.Unlock()
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	return func() {
		stop()
		work.Wait()
	}
}

// TestMoments: clients count up on one shard after the other, through three routers, of which one is stopped, woken up, and killed.
// What REPEATABLE READ blocks see through any of them is in the order that all clients saw.
func TestMoments(t *testing.T) {
	m := newMoments(t, "cluster")
	end := m.begin()
	defer end()
	more := func(what string) {
		t.Helper()
		want := m.h.Reads() + 30
		waitfor.True(t, what, func() bool { return m.h.Reads() >= want })
	}
	more("moments are taken")
	victim := m.routers[2]
	for range 2 {
		pid := victim.cmd.Process
		if err := pid.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		more("others go on without a router that is stopped")
		if err := pid.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		more("it has woken up")
	}
	victim.kill()
	more("others go on without a router that is gone")
	victim.run()
	waitfor.True(t, "the router is ready again", victim.healthy)
	more("it is back")
	end()
	t.Logf("%d snapshots, refused by code: %v", m.h.Reads(), m.refused)
	if wrong := m.h.Check(); len(wrong) > 0 {
		t.Errorf("%d of %d snapshots are not strict: %q", len(wrong), m.h.Reads(), wrong[:min(len(wrong), 5)])
	}
}

// TestMomentsBesideMoves: counters move between the shards while clients count up and read. What is seen is in the order that all
// clients saw; some blocks are told that rows have moved (40001).
func TestMomentsBesideMoves(t *testing.T) {
	testrun.Long(t, "keys move beside clients for half a minute")
	m := newMoments(t, "cluster")
	end := m.begin()
	defer end()
	r := m.routers[0]
	for i, key := range []int{0, 1, 2, 0, 1} {
		want := m.h.Reads() + 10
		to := fmt.Sprintf("shard-%d", i%2)
		owner := strings.TrimSpace(r.psql(t, fmt.Sprintf("EXPLAIN (ROUTE) SELECT n FROM counter WHERE id = %d;", key), "-A", "-t"))
		if strings.Contains(owner, to) {
			to = fmt.Sprintf("shard-%d", 1-i%2)
		}
		r.cli(t, "move", "--keyspace", "hash_bigint", "--key", fmt.Sprint(key), "--to", to, "--keep", "0", "--wait")
		waitfor.True(t, "moments are taken after a move", func() bool { return m.h.Reads() >= want })
	}
	end()
	t.Logf("%d snapshots, refused by code: %v", m.h.Reads(), m.refused)
	for code, n := range m.refused {
		if code != "40001" {
			t.Errorf("%d blocks got %s", n, code)
		}
	}
	if wrong := m.h.Check(); len(wrong) > 0 {
		t.Errorf("%d of %d snapshots are not strict: %q", len(wrong), m.h.Reads(), wrong[:min(len(wrong), 5)])
	}
}

// TestMomentsBesideADrain: a router that drains for long keeps no other one from a moment, also none that has just started.
func TestMomentsBesideADrain(t *testing.T) {
	m := newMoments(t, "cluster")
	drains, starts := m.routers[2], m.routers[1]
	holder := drains.connect(t)
	if _, err := holder.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := drains.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "it drains", func() bool { return !drains.healthy() })
	starts.stop()
	starts.run()
	waitfor.True(t, "the router is ready again", starts.healthy)
	c := m.client()
	defer c.end()
	for range 3 {
		if saw, err := c.snapshot(starts, 0); err != nil || len(saw) != momentKeys {
			t.Errorf("%v: %v", saw, err)
		}
	}
	if _, err := holder.Exec(t.Context(), "COMMIT"); err != nil {
		t.Error(err)
	}
	waitfor.True(t, "it has ended", func() bool {
		select {
		case err := <-drains.exited:
			drains.exited <- err
			return true
		default:
			return false
		}
	})
	if _, err := c.snapshot(starts, 0); err != nil {
		t.Error(err)
	}
}

// TestMomentsOfOneRouter: routers that do not ask each other take snapshots that are not strict. So the test above can fail.
func TestMomentsOfOneRouter(t *testing.T) {
	m := newMoments(t, "router")
	end := m.begin()
	defer end()
	waitfor.True(t, "a snapshot is not strict", func() bool { return len(m.h.Check()) > 0 })
	t.Logf("%d snapshots: %q", m.h.Reads(), m.h.Check()[0])
}
