package schema

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// cluster is a map and the shards that it names.
type cluster struct {
	t      testing.TB
	dir    shardmap.Directory
	shards map[string]engine.Shard
	urls   map[string]string

	mu   sync.Mutex
	down map[string]bool
	held map[engine.Conn]string
	own  map[string]engine.Conn // of query and try
	idle map[string][]engine.Conn
}

func newCluster(t testing.TB, server *localpg.Server, n int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: memory.New(), shards: map[string]engine.Shard{}, urls: map[string]string{}, down: map[string]bool{}, held: map[engine.Conn]string{}, own: map[string]engine.Conn{}, idle: map[string][]engine.Conn{}}
	st := shardmap.State{Format: shardmap.Format, Cluster: "c1c1c1c1-0000-4000-8000-000000000001", DefaultShard: "shard-0"}
	for i := range n {
		c.install(fmt.Sprintf("shard-%d", i), pgtest.DatabaseOn(t, server), st.Cluster)
		name := fmt.Sprintf("shard-%d", i)
		st.Shards = append(st.Shards, shardmap.Shard{Name: name, Engine: "postgres", URL: c.urls[name], Weight: 1})
	}
	if _, err := c.dir.Update(context.Background(), shardmap.Change{By: "test", Op: "bootstrap", Why: "test"}, st); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for conn, shard := range c.held {
			t.Errorf("a conversation with %s was not given back", shard)
			_ = conn.Close()
		}
		_ = c.dir.Close()
	})
	return c
}

func (c *cluster) install(name, url, id string) {
	c.t.Helper()
	sh, err := postgres.Driver{}.Open(engine.Config{Cluster: id, Name: name, URL: url})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := sh.Install(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	c.shards[name], c.urls[name] = sh, url
	c.t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if conn := c.own[name]; conn != nil {
			_ = conn.Close()
			delete(c.own, name)
		}
		for _, conn := range c.idle[name] {
			_ = conn.Close()
		}
		delete(c.idle, name)
		_ = sh.Close()
	})
}

// connect hands out conversations that were given back in order, and new ones:
// most of a test's time would go into the server's processes else.
func (c *cluster) connect(ctx context.Context, shard string) (engine.Conn, func(bool), error) {
	c.mu.Lock()
	down := c.down[shard]
	c.mu.Unlock()
	if down {
		return nil, nil, sqlstate.New(sqlstate.CannotConnectNow, "shard %s is down", shard).OnShard(shard)
	}
	conn := c.reuse(shard)
	if conn == nil {
		var err error
		if conn, err = c.shards[shard].Connect(ctx, map[string]string{"application_name": "cleave"}); err != nil {
			return nil, nil, err
		}
	}
	c.mu.Lock()
	c.held[conn] = shard
	c.mu.Unlock()
	return conn, func(broken bool) {
		// DISCARD ALL fails in a transaction, so none stays open.
		keep := !broken && conn.SetDeadline(time.Now().Add(time.Second)) == nil && good(conn, "DISCARD ALL")
		c.mu.Lock()
		delete(c.held, conn)
		if keep {
			c.idle[shard] = append(c.idle[shard], conn)
		}
		c.mu.Unlock()
		if !keep {
			_ = conn.Close()
		}
	}, nil
}

// reuse returns a conversation that still works, or nil.
func (c *cluster) reuse(shard string) engine.Conn {
	for {
		c.mu.Lock()
		list := c.idle[shard]
		if len(list) == 0 {
			c.mu.Unlock()
			return nil
		}
		conn := list[len(list)-1]
		c.idle[shard] = list[:len(list)-1]
		c.mu.Unlock()
		if conn.SetDeadline(time.Now().Add(time.Second)) == nil && good(conn, "SELECT 1") && conn.SetDeadline(time.Time{}) == nil {
			return conn
		}
		_ = conn.Close()
	}
}

func good(conn engine.Conn, sql string) bool {
	_, err := engine.Exec(conn, sql)
	return err == nil
}

func (c *cluster) setDown(shard string, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[shard] = down
}

// kill ends all conversations with a shard at the server's side.
func (c *cluster) kill(shard string) {
	c.query(shard, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
}

func (c *cluster) snap() *shardmap.Snapshot {
	c.t.Helper()
	s, err := c.dir.Load(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// super runs a statement as the server's superuser.
func (c *cluster) super(shard, sql string) {
	c.t.Helper()
	pgtest.Ask(c.t, pgtest.Super(c.urls[shard]), sql)
}

func (c *cluster) options() Options {
	return Options{Directory: c.dir, Connect: c.connect, Actor: "alice", LockTimeout: 2 * time.Second}
}

func (c *cluster) begin(o Options) *Tx {
	c.t.Helper()
	tx, err := Begin(context.Background(), o, c.snap())
	if err != nil {
		c.t.Fatal(err)
	}
	return tx
}

// one runs statements in one transaction and commits.
func (c *cluster) one(o Options, statements ...*plan.Statement) error {
	c.t.Helper()
	return c.oneWith(o, "", statements...)
}

// oneWith is one in whose transaction rows are written on every shard.
func (c *cluster) oneWith(o Options, rows string, statements ...*plan.Statement) error {
	c.t.Helper()
	tx := c.begin(o)
	for _, st := range statements {
		if _, _, err := tx.Exec(context.Background(), st); err != nil {
			if errors.Is(err, errCrash) {
				return tx.crash(err)
			}
			tx.Rollback(context.Background())
			return err
		}
	}
	for name := range c.shards {
		if rows == "" {
			continue
		}
		conn, err := tx.Conn(context.Background(), name)
		if err == nil {
			_, _, err = run(context.Background(), conn, rows)
		}
		if errors.Is(err, errCrash) {
			return tx.crash(err)
		}
		if err != nil {
			tx.Rollback(context.Background())
			return err
		}
		tx.Rows()
	}
	return tx.Commit(context.Background())
}

func (c *cluster) must(statements ...*plan.Statement) {
	c.t.Helper()
	if err := c.one(c.options(), statements...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) query(shard, sql string) *engine.Result {
	c.t.Helper()
	res, err := c.try(shard, sql)
	if err != nil {
		c.t.Fatalf("%s: %s: %v", shard, sql, err)
	}
	return res
}

// try runs SQL over the test's own conversation with a shard, which is kept.
func (c *cluster) try(shard, sql string) (*engine.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.own[shard]
	if conn == nil {
		var err error
		if conn, err = c.shards[shard].Connect(context.Background(), nil); err != nil {
			return nil, err
		}
		c.own[shard] = conn
	}
	res, err := engine.Exec(conn, sql)
	if lost(err) {
		_ = conn.Close()
		delete(c.own, shard)
	}
	return res, err
}

func (c *cluster) has(shard, table string) bool {
	c.t.Helper()
	return c.query(shard, "SELECT to_regclass('"+table+"') IS NOT NULL").Rows[0][0].String == "t"
}

// agree checks that the map and all shards say the same, and that nothing is prepared.
func (c *cluster) agree() {
	c.t.Helper()
	found, err := Recover(context.Background(), RecoverOptions{Directory: c.dir, Connect: c.connect, DryRun: true})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range found {
		if f.Level != levelOK {
			c.t.Errorf("not as the map says: %+v", f)
		}
	}
	for name := range c.shards {
		if n := c.query(name, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()").Rows[0][0].String; n != "0" {
			c.t.Errorf("%s prepared transactions are left on %s", n, name)
		}
	}
}

func (c *cluster) recover() []Finding {
	c.t.Helper()
	// Tests do not wait until a prepared transaction is old.
	found, err := Recover(context.Background(), RecoverOptions{Directory: c.dir, Connect: c.connect, Age: time.Nanosecond})
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

func code(t testing.TB, err error, want sqlstate.Code) *sqlstate.Error {
	t.Helper()
	if sqlstate.CodeOf(err) != want {
		t.Fatalf("want %s, have %q: %v", want, sqlstate.CodeOf(err), err)
	}
	if want == "" {
		return nil
	}
	return sqlstate.As(err)
}

// The statements, as the planner would give them.

func public(name string) plan.TableName { return plan.TableName{Schema: "public", Name: name} }

func create(name, columns string, key ...string) *plan.Statement {
	c := &plan.CreateTable{TableName: public(name), Kind: shardmap.Sharded, ShardKey: key}
	if len(key) == 0 {
		c.Kind = shardmap.Whole
	}
	return &plan.Statement{Kind: plan.DDLKind, Tag: "CREATE TABLE", Text: "CREATE TABLE " + name + " (" + columns + ")",
		DDL: &plan.DDL{Op: "create table", AllShards: len(key) > 0, Create: c}}
}

func reference(name, columns string) *plan.Statement {
	st := create(name, columns, "x")
	st.DDL.Create.Kind, st.DDL.Create.ShardKey = shardmap.Reference, nil
	return st
}

func alter(all bool, name, rest string) *plan.Statement {
	return &plan.Statement{Kind: plan.DDLKind, Tag: "ALTER TABLE", Text: "ALTER TABLE " + name + " " + rest,
		DDL: &plan.DDL{Op: "alter table", AllShards: all, Altered: []plan.TableName{public(name)}}}
}

func rename(all bool, name, to string) *plan.Statement {
	st := alter(all, name, "RENAME TO "+to)
	old := public(name)
	st.DDL.Altered, st.DDL.Renamed = []plan.TableName{public(to)}, &old
	return st
}

func drop(all bool, names ...string) *plan.Statement {
	st := &plan.Statement{Kind: plan.DDLKind, Tag: "DROP TABLE", Text: "DROP TABLE ", DDL: &plan.DDL{Op: "drop table", AllShards: all}}
	for i, n := range names {
		if i > 0 {
			st.Text += ", "
		}
		st.Text += n
		st.DDL.Dropped = append(st.DDL.Dropped, public(n))
	}
	return st
}

func truncate(all bool, names ...string) *plan.Statement {
	st := drop(all, names...)
	st.Tag, st.Text = "TRUNCATE TABLE", "TRUNCATE"+st.Text[len("DROP"):]
	st.DDL.Op, st.DDL.Truncated, st.DDL.Dropped = "truncate", st.DDL.Dropped, nil
	return st
}

func index(table, text string) *plan.Statement {
	return &plan.Statement{Kind: plan.DDLKind, Tag: "CREATE INDEX", Text: text,
		DDL: &plan.DDL{Op: "create index", AllShards: true, Altered: []plan.TableName{public(table)}}}
}

const orders = "tenant_id bigint, id bigint, note text, PRIMARY KEY (tenant_id, id)"
