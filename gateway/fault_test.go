package gateway_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
)

// busy waits until n statements like the text run on a shard.
func (c *cluster) busy(t testing.TB, shard int, text string, n int) {
	t.Helper()
	var got string
	for end := time.Now().Add(waitfor.Max); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		got = c.direct(t, shard, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' AND query LIKE "+executor.QuoteLiteral(text))
		if got == fmt.Sprint(n) {
			return
		}
	}
	t.Fatalf("%s statements like %s run on shard %d, want %d", got, text, shard, n)
}

func TestCancel(t *testing.T) {
	cl, _, keys := orders(t, config{})
	c := cl.raw(t)
	slow := fmt.Sprintf("SELECT pg_sleep(30) FROM (VALUES (1)) v LEFT JOIN orders ON tenant_id = %d", keys[1][0])
	c.send(&pgproto3.Query{String: slow})
	cl.busy(t, 1, "%pg_sleep(30)%", 1)
	cancel := func(secret uint32) {
		nc, err := net.Dial("tcp", cl.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		b := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 16, 4, 210, 22, 46}, c.key.ProcessID)
		if _, err := nc.Write(binary.BigEndian.AppendUint32(b, secret)); err != nil {
			t.Fatal(err)
		}
		_, _ = nc.Read(make([]byte, 1)) // its end
	}
	secret := binary.BigEndian.Uint32(key(c.key.SecretKey))
	cancel(secret + 1)
	time.Sleep(100 * time.Millisecond)
	cl.busy(t, 1, "%pg_sleep(30)%", 1)
	cancel(secret)
	c.want("T pg_sleep", "E 57014", "Z I")
	cancel(secret) // nothing runs: nothing happens
	c.send(&pgproto3.Query{String: "SELECT 1"})
	c.want("T ?column?", "D 1", "C SELECT 1", "Z I")

	// While a COPY waits for the client.
	c.send(&pgproto3.Query{String: "CREATE TABLE whole (a int)"})
	c.want("C CREATE TABLE", "Z I")
	c.send(&pgproto3.Query{String: "COPY whole FROM STDIN"})
	c.want("G")
	c.send(&pgproto3.CopyData{Data: []byte("1\n")})
	cancel(secret)
	c.want("E 57014", "Z I")
	c.send(&pgproto3.CopyDone{}, &pgproto3.Query{String: "SELECT count(*) FROM whole"})
	c.want("T count", "D 0", "C SELECT 1", "Z I")

	// While it waits for a connection.
	cl2, _, keys := orders(t, config{executor: executor.Limits{PoolMax: 1, PoolWait: time.Minute}})
	holder := cl2.connect(t)
	exec(t, holder, "BEGIN")
	exec(t, holder, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[2][0])
	ctx, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	waiting := cl2.connect(t)
	began := time.Now()
	_, err := waiting.Exec(ctx, "SELECT * FROM orders WHERE tenant_id = $1", keys[2][1])
	if err == nil || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

func key[T uint32 | []byte](k T) []byte {
	switch k := any(k).(type) {
	case []byte:
		return k
	case uint32:
		return binary.BigEndian.AppendUint32(nil, k)
	}
	return nil
}

func TestClientThatLeaves(t *testing.T) {
	cl, _, keys := orders(t, config{executor: limitsOf(1)})
	for _, bye := range []string{"close", "terminate"} {
		c := cl.raw(t)
		c.send(&pgproto3.Query{String: fmt.Sprintf("SELECT pg_sleep(60) FROM (VALUES (1)) v LEFT JOIN orders ON tenant_id = %d", keys[0][0])})
		cl.busy(t, 0, "%pg_sleep(60)%", 1)
		if bye == "terminate" {
			c.send(&pgproto3.Terminate{})
		}
		_ = c.nc.Close()
		cl.busy(t, 0, "%pg_sleep(60)%", 0)
	}
	// In a transaction: it is rolled back, the connection is free again.
	c := cl.raw(t)
	c.send(&pgproto3.Query{String: "BEGIN"}, &pgproto3.Query{String: fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 'n')", keys[0][0])})
	c.want("C BEGIN", "Z T", "C INSERT 0 1", "Z T")
	_ = c.nc.Close()
	conn := cl.connect(t)
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", keys[0][0]); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestPoolIsBounded(t *testing.T) {
	cl, conn, keys := orders(t, config{executor: executor.Limits{PoolMax: 2, PoolWait: 3 * time.Second}})
	var holders []*pgx.Conn
	for range 2 {
		h := cl.connect(t)
		exec(t, h, "BEGIN")
		exec(t, h, "SELECT * FROM orders WHERE tenant_id = $1", keys[1][0])
		holders = append(holders, h)
	}
	wantCode(t, conn, "53300", "SELECT * FROM orders WHERE tenant_id = $1", keys[1][0])
	wantCode(t, conn, "", "SELECT * FROM orders WHERE tenant_id = $1", keys[2][0])
	exec(t, holders[0], "COMMIT")
	wantCode(t, conn, "", "SELECT * FROM orders WHERE tenant_id = $1", keys[1][0])

	// Many sessions share few connections.
	var wg sync.WaitGroup
	errs := make(chan error, 20)
	for i := range 20 {
		c := cl.connect(t)
		wg.Go(func() {
			for j := range 30 {
				if _, err := c.Exec(context.Background(), "SELECT * FROM orders WHERE tenant_id = $1", keys[(i+j)%3][j%10]); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	for _, h := range cl.ex.Health() {
		if h.Open > 2 || h.Waiting != 0 {
			t.Errorf("%+v", h)
		}
	}
}

func TestShardThatIsDown(t *testing.T) {
	up := pgtest.NewServer(t, nil)
	urls := []string{pgtest.DatabaseOn(t, up), pgtest.DatabaseOn(t, up)}
	down := pgtest.NewServer(t, nil)
	urls = append(urls, pgtest.DatabaseOn(t, down))
	cl, conn, keys := orders(t, config{urls: urls})
	sel := "SELECT count(*) FROM orders WHERE tenant_id = $1"
	ins := "INSERT INTO orders VALUES ($1, $2, 'n')"
	exec(t, conn, sel, keys[2][0])
	exec(t, conn, ins, keys[2][0], 1)
	tx := cl.connect(t)
	exec(t, tx, "BEGIN")
	exec(t, tx, ins, keys[2][1], 1)
	ctx := context.Background()
	down.Kill()
	began := time.Now()
	for range 20 {
		wantCode(t, conn, "57P03", sel, keys[2][0])
		wantCode(t, conn, "57P03", ins, keys[2][0], 2)
		wantCode(t, conn, "", sel, keys[0][0])
		wantCode(t, conn, "", ins+" ON CONFLICT DO NOTHING", keys[1][0], 2)
	}
	if took := time.Since(began); took > 30*time.Second { // one that is dialled anew for each statement takes minutes
		t.Errorf("a shard that is down fails slowly: %v", took)
	}
	run(t, tx, []step{{fmt.Sprintf("INSERT INTO orders VALUES (%d, 2, 'n')", keys[2][1]), "40001 E"}, {"SELECT 1", "25P02 E"}, {"COMMIT", "ROLLBACK I"}, {"SELECT 1", "SELECT 1: 1 I"}})
	exec(t, conn, "BEGIN")
	wantCode(t, conn, "57P03", ins, keys[2][0], 3)
	run(t, conn, []step{{"COMMIT", "ROLLBACK I"}})
	again, err := localpg.Start(ctx, localpg.Options{Installation: down.Installation(), DataDir: down.DataDir(), SocketDir: down.SocketDir(), Port: down.Port(), Settings: pgtest.Settings()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := again.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	var got string
	for end := time.Now().Add(waitfor.Max); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = code(conn, sel, keys[2][0]); got == "" {
			break
		}
	}
	if got != "" {
		t.Errorf("the shard is up again, but: %s", got)
	}
	if n := one[int](t, conn, sel, keys[2][0]); n != 1 {
		t.Errorf("%d rows", n)
	}
	if n := one[int](t, conn, sel, keys[2][1]); n != 0 {
		t.Errorf("%d rows of the lost transaction", n)
	}
}

// TestConnectionLostInFlight kills the shard's side of a connection.
func TestConnectionLostInFlight(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	k := keys[1][0]
	kill := func(like string) {
		cl.busy(t, 1, like, 1)
		cl.direct(t, 1, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' AND query LIKE "+executor.QuoteLiteral(like))
	}
	c := cl.raw(t)
	// A read is run again: it takes as long, and succeeds.
	c.send(&pgproto3.Query{String: fmt.Sprintf("SELECT pg_sleep(1), 'read1' FROM (VALUES (1)) v LEFT JOIN orders ON tenant_id = %d", k)})
	kill("%read1%")
	c.want("T pg_sleep,?column?", "D ,read1", "C SELECT 1", "Z I")
	// A write is not.
	c.send(&pgproto3.Query{String: fmt.Sprintf("INSERT INTO orders SELECT %d, 500, 'w1' FROM (SELECT pg_sleep(30)) s", k)})
	kill("%w1%")
	c.want("E 08007", "Z I")
	c.send(parse("", fmt.Sprintf("INSERT INTO orders SELECT %d, 501, 'w2' FROM (SELECT pg_sleep(30)) s", k)), bind("", ""), do("", 0), syncMsg)
	kill("%w2%")
	c.want("1", "2", "E 08007", "Z I")
	// Inside a transaction, nothing was committed.
	c.send(&pgproto3.Query{String: fmt.Sprintf("BEGIN; INSERT INTO orders VALUES (%d, 502, 'w3')", k)})
	c.want("C BEGIN", "C INSERT 0 1", "Z T")
	c.send(&pgproto3.Query{String: fmt.Sprintf("INSERT INTO orders SELECT %d, 503, 'w4' FROM (SELECT pg_sleep(30)) s", k)})
	kill("%w4%")
	c.want("E 40001", "Z E")
	c.send(&pgproto3.Query{String: "ROLLBACK"})
	c.want("C ROLLBACK", "Z I")
	// Idle in a transaction.
	c.send(&pgproto3.Query{String: fmt.Sprintf("BEGIN; INSERT INTO orders VALUES (%d, 504, 'w5')", k)})
	c.want("C BEGIN", "C INSERT 0 1", "Z T")
	kill("%w5%")
	c.send(&pgproto3.Query{String: "COMMIT"})
	if got := c.next(); got != "E 08007" && got != "E 40001" {
		t.Errorf("COMMIT on a lost connection: %q", got)
	}
	c.want("Z I")
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", k); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// frozen is a directory whose watchers hear nothing until it is told to go on.
type frozen struct {
	shardmap.Directory
	mu   sync.Mutex
	snap *shardmap.Snapshot // nil: not frozen
}

func (f *frozen) Load(ctx context.Context) (*shardmap.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.snap != nil {
		return f.snap, nil
	}
	return f.Directory.Load(ctx)
}

func (f *frozen) Watch(ctx context.Context) (<-chan *shardmap.Snapshot, error) {
	ch := make(chan *shardmap.Snapshot)
	context.AfterFunc(ctx, func() { close(ch) })
	return ch, nil
}

func (f *frozen) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snap = nil
}

// TestOldMap: a router whose map is old writes to the wrong shard, is refused by
// its guard, and runs the statement again when it has the newer map.
func TestOldMap(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	exec(t, conn, "SELECT cleave.create_keyspace('k', 'list', 'bigint', listed => ARRAY['1=shard-0', '2=shard-0', '3=shard-0'])")
	exec(t, conn, "CREATE TABLE things (id bigint PRIMARY KEY, n int) WITH (cleave.shard_key = 'id', cleave.keyspace = 'k')")
	freeze := func() (*frozen, *cluster) {
		snap, err := cl.dir.Load(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		f := &frozen{Directory: cl.dir, snap: snap}
		return f, start(t, config{dir: f, urls: cl.shards, executor: executor.Limits{RefreshWait: 5 * time.Second}, limits: gateway.Limits{RetriesMax: 1}})
	}
	pin := func(k int, shard string) {
		t.Helper()
		if _, err := cl.ops.Pin(context.Background(), admin.PinRequest{Keyspace: "k", Key: []string{fmt.Sprint(k)}, Shard: shard}); err != nil {
			t.Fatal(err)
		}
	}
	for i, mode := range []string{"simple", "extended", "transaction"} {
		k := i + 1
		f, old := freeze()
		pin(k, "shard-1")
		time.AfterFunc(300*time.Millisecond, f.thaw)
		c := old.raw(t)
		ins := fmt.Sprintf("INSERT INTO things VALUES (%d, 1)", k)
		switch mode {
		case "simple":
			c.send(&pgproto3.Query{String: ins})
			c.want("C INSERT 0 1", "Z I")
		case "extended":
			c.send(parse("s", "INSERT INTO things VALUES ($1, 1)"), bind("", "s", fmt.Sprint(k)), do("", 0), syncMsg)
			c.want("1", "2", "C INSERT 0 1", "Z I")
			c.send(bind("", "s", fmt.Sprint(k)), do("", 0), syncMsg)
			c.want("2", "E 23505", "Z I")
		case "transaction":
			c.send(&pgproto3.Query{String: "BEGIN"}, &pgproto3.Query{String: ins}, &pgproto3.Query{String: "COMMIT"})
			c.want("C BEGIN", "Z T", "C INSERT 0 1", "Z T", "C COMMIT", "Z I")
		}
		if n := cl.direct(t, 1, fmt.Sprintf("SELECT count(*) FROM things WHERE id = %d", k)); n != "1" {
			t.Errorf("%s: %s rows on the owner", mode, n)
		}
		if n := cl.direct(t, 0, fmt.Sprintf("SELECT count(*) FROM things WHERE id = %d", k)); n != "0" {
			t.Errorf("%s: %s rows on the old owner", mode, n)
		}
	}
	// A router that hears nothing new says so, and nothing is written.
	exec(t, conn, "DELETE FROM things WHERE id = 1")
	f, old := freeze()
	_ = f
	pin2 := func() { // back to shard-0 by removing the pin
		if _, err := cl.ops.Unpin(context.Background(), admin.UnpinRequest{Keyspace: "k", Key: []string{"1"}}); err != nil {
			t.Fatal(err)
		}
	}
	pin2()
	c := old.raw(t)
	c.send(&pgproto3.Query{String: "INSERT INTO things VALUES (1, 1)"})
	c.want("E 40001", "Z I")
	c.send(&pgproto3.Query{String: "BEGIN"}, &pgproto3.Query{String: "INSERT INTO things VALUES (2, 2) ON CONFLICT DO NOTHING"}, &pgproto3.Query{String: "INSERT INTO things VALUES (1, 1)"})
	c.want("C BEGIN", "Z T", "C INSERT 0 0", "Z T", "E 40001", "Z E")
	c.send(&pgproto3.Query{String: "ROLLBACK"})
	c.want("C ROLLBACK", "Z I")
	if n := one[int](t, conn, "SELECT count(*) FROM things WHERE id = 1"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestSessionLimits(t *testing.T) {
	cl := start(t, config{shards: 1, limits: gateway.Limits{SessionsMax: 2, StatementsMax: 3, MessageMax: 1 << 16, IdleMax: 700 * time.Millisecond, IdleInTransactionMax: 700 * time.Millisecond, StatementMax: 500 * time.Millisecond, StartupMax: time.Second, SettingsBytes: 200, DeferredMax: 5}})
	silent := cl.dial(t)
	a := cl.raw(t)
	b := cl.raw(t)
	over := cl.dial(t)
	over.send(&pgproto3.StartupMessage{ProtocolVersion: 196608, Parameters: map[string]string{"user": "app", "database": "cleave"}})
	over.want("E FATAL 53300", "gone")
	for i := range 3 {
		a.send(parse(fmt.Sprint(i), "SELECT 1"), syncMsg)
		a.want("1", "Z I")
	}
	a.send(parse("more", "SELECT 1"), syncMsg)
	a.want("E 54000", "Z I")
	a.send(&pgproto3.Query{String: "SET my.x = '" + strings.Repeat("x", 300) + "'"})
	a.want("E 54000", "Z I")
	a.send(&pgproto3.Query{String: "BEGIN"})
	a.want("C BEGIN", "Z T")
	for range 5 {
		a.send(&pgproto3.Query{String: "SAVEPOINT s"})
		a.want("C SAVEPOINT", "Z T")
	}
	a.send(&pgproto3.Query{String: "SAVEPOINT s"})
	a.want("E 54000", "Z E")
	b.send(&pgproto3.Query{String: "SELECT pg_sleep(20)"})
	b.want("T pg_sleep", "E 57014", "Z I")
	a.want("E FATAL 25P03", "gone")
	b.want("E FATAL 57P05", "gone")
	silent.want("gone")
	c := cl.raw(t)
	_, _ = c.nc.Write([]byte("Q\x00\x02\x00\x00"))
	c.want("E FATAL 08P01", "gone")
}

func TestShutdown(t *testing.T) {
	cl, _, keys := orders(t, config{})
	idle := cl.raw(t)
	busy := cl.raw(t)
	busy.send(&pgproto3.Query{String: fmt.Sprintf("SELECT pg_sleep(1), 'down' FROM (VALUES (1)) v LEFT JOIN orders ON tenant_id = %d", keys[0][0])})
	tx := cl.raw(t)
	tx.send(&pgproto3.Query{String: "BEGIN"}, &pgproto3.Query{String: fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 'n')", keys[0][0])})
	tx.want("C BEGIN", "Z T", "C INSERT 0 1", "Z T")
	stuck := cl.raw(t)
	stuck.send(&pgproto3.Query{String: "SELECT pg_sleep(60)"})
	cl.busy(t, 0, "%down%", 1)
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	go func() { done <- cl.server.Shutdown(ctx) }()
	idle.want("E FATAL 57P01", "gone")
	if nc, err := net.Dial("tcp", cl.addr); err == nil {
		_ = nc.Close()
		t.Error("a client is still accepted")
	}
	busy.want("T pg_sleep,?column?", "D ,down", "C SELECT 1", "Z I", "E FATAL 57P01", "gone")
	tx.send(&pgproto3.Query{String: "COMMIT"})
	tx.want("C COMMIT", "Z I", "E FATAL 57P01", "gone")
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if got := stuck.next(); got == "D " {
		t.Errorf("the stuck session goes on: %q", got)
	}
}
