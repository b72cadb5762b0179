package admin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var meta = Meta{By: "alice", Why: "a test"}

type cluster struct {
	t    testing.TB
	dir  shardmap.Directory
	ops  *Ops
	urls map[string]string
}

// newCluster bootstraps n databases.
func newCluster(t testing.TB, n int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: memory.New(), urls: map[string]string{}}
	c.ops = New(Options{Directory: c.dir, Drivers: []engine.Driver{postgres.Driver{}}, Software: "test", LockTimeout: 2 * time.Second})
	t.Cleanup(func() {
		_ = c.ops.Close()
		_ = c.dir.Close()
	})
	req := BootstrapRequest{Meta: meta}
	for i := range n {
		name := fmt.Sprintf("shard-%d", i)
		c.urls[name] = pgtest.Database(t)
		req.Shards = append(req.Shards, BootstrapShard{Name: name, URL: c.urls[name]})
	}
	res, err := c.ops.Bootstrap(context.Background(), req)
	if err != nil || !res.Created {
		t.Fatal(res, err)
	}
	return c
}

// ddl runs one statement as a router would, with the real planner.
func (c *cluster) ddl(sql string) {
	c.t.Helper()
	if err := c.tryDDL(sql); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

func (c *cluster) tryDDL(sql string) error {
	ctx := context.Background()
	snap, err := c.dir.Load(ctx)
	if err != nil {
		return err
	}
	st, err := planner.New(planner.Limits{}).Analyze(sql, snap, []string{"public"})
	if err != nil {
		return err
	}
	tx, err := schema.Begin(ctx, schema.Options{Directory: c.dir, Connect: c.ops.connect, Actor: "alice"}, snap)
	if err != nil {
		return err
	}
	if _, _, err := tx.Exec(ctx, st); err != nil {
		tx.Rollback(ctx)
		return err
	}
	return tx.Commit(ctx)
}

func (c *cluster) snap() *shardmap.Snapshot {
	c.t.Helper()
	s, err := c.dir.Load(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *cluster) try(shard, sql string) (*engine.Result, error) {
	c.t.Helper()
	sh, err := postgres.Driver{}.Open(engine.Config{Cluster: c.snap().State().Cluster, Name: shard, URL: c.urls[shard]})
	if err != nil {
		c.t.Fatal(err)
	}
	defer sh.Close()
	conn, err := sh.Connect(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return engine.Exec(conn, sql)
}

func (c *cluster) query(shard, sql string) string {
	c.t.Helper()
	res, err := c.try(shard, sql)
	if err != nil {
		c.t.Fatalf("%s: %s: %v", shard, sql, err)
	}
	if len(res.Rows) == 0 {
		return ""
	}
	return res.Rows[0][0].String
}

// healthy checks that doctor has nothing to say but ok.
func (c *cluster) healthy() {
	c.t.Helper()
	found, err := c.ops.Doctor(context.Background(), DoctorRequest{Meta: meta})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range found {
		if f.Level != LevelOK && !ofTheServer(f) {
			c.t.Errorf("doctor: %+v", f)
		}
	}
}

// ofTheServer reports whether a finding is about how the test server is set up: it
// gives safety away for speed.
func ofTheServer(f Finding) bool {
	return strings.HasPrefix(f.What, "fsync is off") || strings.HasPrefix(f.What, "full_page_writes is off")
}

// owner asks every shard to take a row of the key, and returns the one that does.
func (c *cluster) owner(key string) string {
	c.t.Helper()
	owner := ""
	for name := range c.urls {
		_, err := c.try(name, "BEGIN; INSERT INTO orders (tenant_id, id) VALUES ("+key+", 1); ROLLBACK")
		switch sqlstate.CodeOf(err) {
		case "":
			if owner != "" {
				c.t.Errorf("%s and %s both take key %s", owner, name, key)
			}
			owner = name
		case sqlstate.NotOwner:
		default:
			c.t.Fatal(err)
		}
	}
	return owner
}

func code(t testing.TB, err error, want sqlstate.Code) *sqlstate.Error {
	t.Helper()
	if sqlstate.CodeOf(err) != want {
		t.Fatalf("want %q, have %q: %v", want, sqlstate.CodeOf(err), err)
	}
	if err == nil {
		return nil
	}
	return sqlstate.As(err)
}

const createOrders = "CREATE TABLE orders (tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')"

func asState(err error) *sqlstate.Error { return sqlstate.As(err) }

func execute(conn engine.Conn, sql string) (*engine.Result, error) { return engine.Exec(conn, sql) }
