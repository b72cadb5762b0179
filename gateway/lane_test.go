//go:build linux

package gateway_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/oteltest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
)

// laneCount reads a counter of the router; label "" is all of its values together.
func (c *cluster) laneCount(t testing.TB, name, label string) int {
	t.Helper()
	families, err := c.metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return int(n)
}

// units is how many units the lane has answered, flights how often it handed a
// session over with an answer outstanding or not judged, idles before that.
func (c *cluster) units(t testing.TB) int { return c.laneCount(t, "cleave_lane_units_total", "") }
func (c *cluster) flights(t testing.TB) int {
	return c.laneCount(t, "cleave_lane_handovers_total", "flight")
}
func (c *cluster) idles(t testing.TB) int {
	return c.laneCount(t, "cleave_lane_handovers_total", "idle")
}

// warm prepares a statement in a new session and runs it until the lane does, and
// returns what runs it.
func (c *cluster) warm(t testing.TB, sql string, values ...string) (*client, func(values ...string)) {
	t.Helper()
	cl := c.raw(t)
	cl.send(parse("s", sql), describe('S', "s"), syncMsg)
	cl.until("Z I")
	run := func(values ...string) { cl.send(bind("", "s", values...), describe('P', ""), do("", 0), syncMsg) }
	for range 20 {
		before := c.units(t)
		run(values...)
		if got := cl.until("Z I"); slices.ContainsFunc(got, func(w string) bool { return strings.HasPrefix(w, "E ") }) {
			t.Fatalf("%s: %q", sql, got)
		}
		if c.units(t) > before {
			return cl, run
		}
	}
	t.Fatalf("%s is not run by the lane", sql)
	return nil, nil
}

// until returns the messages up to one.
func (c *client) until(word string) []string {
	c.t.Helper()
	var all []string
	for {
		w := c.next()
		all = append(all, w)
		if w == word || w == "gone" {
			return all
		}
	}
}

func (c *cluster) kill(t testing.TB, shard int, like string) {
	t.Helper()
	c.busy(t, shard, like, 1)
	c.direct(t, shard, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' AND query LIKE "+executor.QuoteLiteral(like))
}

// The lane runs what it is for: prepared, extended and simple statements.
func TestLaneIsUsed(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	for _, ks := range keys {
		exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", ks[0])
	}
	const n = 100
	for _, mode := range []string{"prepared", "extended", "simple", "update", "pipelined"} {
		c := cl.raw(t)
		c.send(parse("s", "SELECT note FROM orders WHERE tenant_id = $1"), syncMsg)
		c.want("1", "Z I")
		before := cl.units(t)
		for i := range n {
			k := fmt.Sprint(keys[i%len(keys)][0])
			switch mode {
			case "prepared":
				c.send(bind("", "s", k), describe('P', ""), do("", 0), syncMsg)
				c.want("2", "T note", "D n", "C SELECT 1", "Z I")
			case "extended":
				c.send(parse("", "SELECT note FROM orders WHERE tenant_id = $1"), bind("", "", k), describe('P', ""), do("", 0), syncMsg)
				c.want("1", "2", "T note", "D n", "C SELECT 1", "Z I")
			case "simple":
				c.send(&pgproto3.Query{String: "SELECT note FROM orders WHERE tenant_id = " + k + ";"})
				c.want("T note", "D n", "C SELECT 1", "Z I")
			case "update":
				c.send(&pgproto3.Query{String: "UPDATE orders SET note = 'n' WHERE tenant_id = " + k})
				c.want("C UPDATE 1", "Z I")
			case "pipelined":
				c.send(bind("", "s", k), do("", 0), syncMsg, &pgproto3.Query{String: "SELECT 1 FROM orders WHERE tenant_id = " + k}, bind("", "s", k), do("", 0), syncMsg)
				c.want("2", "D n", "C SELECT 1", "Z I", "T ?column?", "D 1", "C SELECT 1", "Z I", "2", "D n", "C SELECT 1", "Z I")
			}
		}
		// The first of each shard connects, prepares or plans.
		if got := cl.units(t) - before; got < n/2 {
			t.Errorf("%s: the lane has answered %d units of %d", mode, got, n)
		}
	}
	// A router without lanes gives the same answers.
	none := start(t, config{dir: cl.dir, urls: cl.shards, executor: executor.Limits{Lanes: -1}})
	c := none.raw(t)
	c.send(&pgproto3.Query{String: fmt.Sprintf("SELECT note FROM orders WHERE tenant_id = %d", keys[0][0])})
	c.want("T note", "D n", "C SELECT 1", "Z I")
	if none.units(t) != 0 || none.idles(t) != 0 {
		t.Error("a router without lanes uses one")
	}
}

const tell = `CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'told'; RETURN NULL; END $$;
	CREATE TRIGGER tell AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION tell()`

// The goroutine takes over with an answer outstanding: errors, notices, results
// that are large, clients that read slowly.
func TestLaneHandsOver(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	k := fmt.Sprint(keys[1][0])
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[1][0])
	cl.direct(t, 1, tell)
	c, run := cl.warm(t, "INSERT INTO orders VALUES ($1, $2, 'x')", k, "2")
	flights := cl.flights(t)
	run(k, "2")
	c.want("2", "n", "E 23505", "Z I")
	run(k, "3")
	c.want("2", "n", "C INSERT 0 1", "Z I")
	run(k, "no number")
	c.want("E 22P02", "Z I")
	run(k, "4")
	c.want("2", "n", "C INSERT 0 1", "Z I")
	if got := cl.flights(t) - flights; got < 1 {
		t.Errorf("%d flights were handed over", got)
	}

	c, run = cl.warm(t, "UPDATE orders SET note = note WHERE tenant_id = $1 AND id = 1", k)
	run(k)
	c.want("2", "n", "N 00000", "C UPDATE 1", "Z I")

	// A result of many megabytes, read slowly.
	const rows = 3000
	c, run = cl.warm(t, "SELECT note || repeat('y', $2::int), g FROM orders, generate_series(1, $3::int) g WHERE tenant_id = $1 AND id = 1", k, "1", "1")
	for range 3 {
		run(k, "2000", fmt.Sprint(rows))
		c.want("2", "T ?column?,g")
		for i := range rows {
			if got, want := c.next(), fmt.Sprintf("D n%s,%d", strings.Repeat("y", 2000), i+1); got != want {
				t.Fatalf("row %d is %.20s...", i, got)
			}
			if i == 10 {
				time.Sleep(50 * time.Millisecond) // the sockets' buffers are full by then
			}
		}
		c.want(fmt.Sprintf("C SELECT %d", rows), "Z I")
		run(k, "3", "1")
		c.want("2", "T ?column?,g", "D nyyy,1", "C SELECT 1", "Z I")
	}
}

// Messages that come in pieces, and clients that leave.
func TestLaneClients(t *testing.T) {
	cl, conn, keys := orders(t, config{executor: limitsOf(2)})
	k := fmt.Sprint(keys[0][0])
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[0][0])
	c, _ := cl.warm(t, "SELECT note FROM orders WHERE tenant_id = $1", k)
	var whole []byte
	for _, m := range []pgproto3.FrontendMessage{bind("", "s", k), describe('P', ""), do("", 0), syncMsg, &pgproto3.Query{String: "SELECT 7 FROM orders WHERE tenant_id = " + k}} {
		b, err := m.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, b...)
	}
	for at := 1; at < len(whole); at += 3 {
		idles := cl.idles(t)
		if _, err := c.nc.Write(whole[:at]); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(waitfor.Max); at < 5 && cl.idles(t) == idles && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // the lane gives up half a frame
		}
		if _, err := c.nc.Write(whole[at:]); err != nil {
			t.Fatal(err)
		}
		c.want("2", "T note", "D n", "C SELECT 1", "Z I", "T ?column?", "D 7", "C SELECT 1", "Z I")
	}
	for _, bye := range []string{"close", "terminate"} {
		c, run := cl.warm(t, "SELECT pg_sleep($2::float8) FROM orders WHERE tenant_id = $1", k, "0")
		run(k, "60")
		cl.busy(t, 0, "%pg_sleep%", 1)
		if bye == "terminate" {
			c.send(&pgproto3.Terminate{})
		}
		_ = c.nc.Close()
		cl.busy(t, 0, "%pg_sleep%", 0)
	}
	// A parked client that leaves, or ends the session, takes nothing with it.
	for range 50 {
		c, _ := cl.warm(t, "SELECT note FROM orders WHERE tenant_id = $1", k)
		_ = c.nc.Close()
	}
	c, _ = cl.warm(t, "SELECT note FROM orders WHERE tenant_id = $1", k)
	c.send(&pgproto3.Terminate{})
	if got := c.next(); got != "gone" {
		t.Errorf("after Terminate: %q", got)
	}
}

// What a client sends while its statement is in flight is read, however much it is.
// It makes no difference whether the loop or the goroutine goes on after the answer.
func TestLaneReadsOn(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	k := fmt.Sprint(keys[0][0])
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[0][0])
	const local = "SHOW cleave.read_policy" // not for the lane
	frame := func(size int) []byte {
		b, err := (&pgproto3.Query{String: local}).Encode(nil)
		if err == nil && size > len(b) {
			b, err = (&pgproto3.Query{String: local + strings.Repeat(" ", size-len(b))}).Encode(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		name    string
		divisor string
		rest    []byte // with the statement
		later   []byte // while it is in flight
		errs    int
	}{
		{"a frame of the goroutine's comes next", "1", frame(0), frame(0), 0},
		{"an error ends it", "0", frame(0), frame(0), 1},
		{"as much as the loop's buffer holds", "1", nil, append(frame(64<<10), frame(0)...), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, _ := cl.warm(t, "SELECT 1 / (length(pg_sleep($2::float8)::text) + $3::int) FROM orders WHERE tenant_id = $1", k, "0", "1")
			var b []byte
			for _, m := range []pgproto3.FrontendMessage{bind("", "s", k, "0.3", c.divisor), do("", 0), syncMsg} {
				var err error
				if b, err = m.Encode(b); err != nil {
					t.Fatal(err)
				}
			}
			// What is forgotten is found when the session gives up its buffers, a
			// second later. So one try that does not take that long is enough.
			for tries := 1; ; tries++ {
				if _, err := client.nc.Write(append(slices.Clip(b), c.rest...)); err != nil {
					t.Fatal(err)
				}
				cl.busy(t, 0, "%pg_sleep($2%", 1)
				if _, err := client.nc.Write(c.later); err != nil {
					t.Fatal(err)
				}
				errs := 0
				var since time.Time
				for i := range 3 {
					for _, w := range client.until("Z I") {
						if strings.HasPrefix(w, "E ") {
							errs++
						}
					}
					if i == 0 {
						since = time.Now()
					}
				}
				if errs != c.errs {
					t.Fatalf("%d errors", errs)
				}
				if time.Since(since) < 900*time.Millisecond {
					return
				}
				if tries == 5 {
					t.Fatalf("the answer that follows comes after %v", time.Since(since))
				}
			}
		})
	}
}

// A simple statement's comments name the client's span for the lane as well.
func TestLaneTraces(t *testing.T) {
	cl, conn, keys, col := traced(t, config{}, 0)
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[0][0])
	c := cl.raw(t)
	sql := fmt.Sprintf("SELECT note FROM orders WHERE tenant_id = %d", keys[0][0])
	for i, form := range []string{"%[1]s /*traceparent='%[2]s'*/", "/*traceparent='%[2]s'*/ %[1]s", "%[1]s /*traceparent='%[2]s'*/;"} {
		parent, id := parentOf(i)
		for tries := 0; ; tries++ {
			before := cl.units(t)
			text := sql
			if tries > 0 {
				text = fmt.Sprintf(form, sql, parent)
			}
			c.send(&pgproto3.Query{String: text})
			c.want("T note", "D n", "C SELECT 1", "Z I")
			if tries > 0 && cl.units(t) > before {
				break
			}
			if tries == 20 {
				t.Fatalf("%s is not run by the lane", form)
			}
			if tries > 0 { // the goroutine's span is not what is asked for
				parent, id = parentOf(100*tries + i)
			}
		}
		col.Await(t, 1, func(s oteltest.Span) bool { return s.Trace == id && s.Parent == "00f067aa0ba902b7" })
	}
}

// stalled is a log that takes no line about a slow statement until it is told to.
type stalled struct {
	slog.Handler
	asked, proceed chan struct{}
	armed          *atomic.Bool // lines before are of a slow machine
}

func (s stalled) Enabled(context.Context, slog.Level) bool { return true }
func (s stalled) WithAttrs([]slog.Attr) slog.Handler       { return s }

func (s stalled) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "slow statement" && s.armed.Load() {
		select {
		case s.asked <- struct{}{}:
		default:
		}
		<-s.proceed
	}
	return nil
}

// A log that waits holds up the session whose line it is, no other.
func TestLaneLog(t *testing.T) {
	s := stalled{slog.DiscardHandler, make(chan struct{}, 1), make(chan struct{}), new(atomic.Bool)}
	cl, conn, keys := orders(t, config{slow: 500 * time.Millisecond, log: slog.New(s)})
	k := fmt.Sprint(keys[0][0])
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[0][0])
	slow, run := cl.warm(t, "SELECT pg_sleep($2::float8) FROM orders WHERE tenant_id = $1", k, "0")
	quick, ask := cl.warm(t, "SELECT note FROM orders WHERE tenant_id = $1", k)
	s.armed.Store(true)
	run(k, "1")
	<-s.asked
	_ = quick.nc.SetReadDeadline(time.Now().Add(waitfor.Max))
	ask(k)
	got := quick.until("Z I")
	close(s.proceed)
	if !slices.Contains(got, "D n") {
		t.Errorf("another session got %q", got)
	}
	slow.until("Z I")
}

// What happens to a statement in flight when its shard's connection breaks.
func TestLaneLostInFlight(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	k := fmt.Sprint(keys[1][0])
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[1][0])
	c, run := cl.warm(t, "SELECT pg_sleep($2::float8), 'read1' FROM orders WHERE tenant_id = $1", k, "0")
	flights := cl.flights(t)
	run(k, "1")
	cl.kill(t, 1, "%read1%")
	c.want("2", "T pg_sleep,?column?", "D ,read1", "C SELECT 1", "Z I") // run again
	c, run = cl.warm(t, "UPDATE orders SET note = 'w1' || pg_sleep($2::float8)::text WHERE tenant_id = $1", k, "0")
	run(k, "30")
	cl.kill(t, 1, "%w1%")
	c.want("2", "n", "E 08007", "Z I")
	run(k, "0")
	c.want("2", "n", "C UPDATE 1", "Z I")
	simple := "UPDATE orders SET note = 'w2' || pg_sleep(%s)::text WHERE tenant_id = " + k
	for range 3 {
		c.send(&pgproto3.Query{String: fmt.Sprintf(simple, "0")})
		c.want("C UPDATE 1", "Z I")
	}
	c.send(&pgproto3.Query{String: fmt.Sprintf(simple, "30")})
	cl.kill(t, 1, "%w2%")
	c.want("E 08007", "Z I")
	if got := cl.flights(t) - flights; got < 3 {
		t.Errorf("%d flights were handed over, want 3", got)
	}
	// The shard's connections die while everybody idles: nothing is lost.
	c, run = cl.warm(t, "SELECT note FROM orders WHERE tenant_id = $1 AND id = 9", k)
	cl.direct(t, 1, "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
	run(k)
	c.want("2", "T note", "C SELECT 0", "Z I")
}

// Cancel, statement_timeout and the router's own limit reach a statement in flight.
func TestLaneStops(t *testing.T) {
	cl, conn, keys := orders(t, config{limits: gateway.Limits{CancelMax: time.Second}})
	k := fmt.Sprint(keys[1][0])
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[1][0])
	c, run := cl.warm(t, "SELECT pg_sleep($2::float8) FROM orders WHERE tenant_id = $1", k, "0")
	cancel := func() {
		nc, err := net.Dial("tcp", cl.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		b := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 16, 4, 210, 22, 46}, c.key.ProcessID)
		if _, err := nc.Write(append(b, key(c.key.SecretKey)...)); err != nil {
			t.Fatal(err)
		}
		_, _ = nc.Read(make([]byte, 1)) // its end
	}
	for range 3 {
		run(k, "30")
		cl.busy(t, 1, "%pg_sleep%", 1)
		cancel()
		c.want("2", "T pg_sleep", "E 57014", "Z I")
		cancel() // nothing runs
		run(k, "0")
		c.want("2", "T pg_sleep", "D ", "C SELECT 1", "Z I")
	}
	c.send(&pgproto3.Query{String: "SET statement_timeout = '200ms'"})
	c.until("Z I")
	for range 2 {
		run(k, "30")
		if got := c.until("Z I"); !slices.Contains(got, "E 57014") {
			t.Fatalf("got %q", got)
		}
		run(k, "0")
		c.until("Z I")
	}
}

// A router with an old map: the guard refuses what the lane sent, and the
// goroutine runs it again with the newer map.
func TestLaneGuard(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	exec(t, conn, "SELECT cleave.create_keyspace('k', 'list', 'bigint', listed => ARRAY['1=shard-0', '2=shard-0'])")
	exec(t, conn, "CREATE TABLE things (id bigint PRIMARY KEY, n int) WITH (cleave.shard_key = 'id', cleave.keyspace = 'k')")
	exec(t, conn, "INSERT INTO things VALUES (2, 0)")
	snap, err := cl.dir.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	f := &frozen{Directory: cl.dir, snap: snap}
	old := start(t, config{dir: f, urls: cl.shards, executor: executor.Limits{RefreshWait: 5 * time.Second}})
	c, run := old.warm(t, "INSERT INTO things VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = $2", "2", "1")
	if _, err := cl.ops.Pin(context.Background(), admin.PinRequest{Keyspace: "k", Key: []string{"1"}, Shard: "shard-1"}); err != nil {
		t.Fatal(err)
	}
	flights := old.flights(t)
	time.AfterFunc(200*time.Millisecond, f.thaw)
	run("1", "5")
	c.want("2", "n", "C INSERT 0 1", "Z I")
	if old.flights(t) == flights {
		t.Error("the refused write was not the lane's")
	}
	if a, b := cl.direct(t, 0, "SELECT count(*) FROM things WHERE id = 1"), cl.direct(t, 1, "SELECT count(*) FROM things WHERE id = 1"); a+b != "01" {
		t.Errorf("%s rows on the old owner, %s on the new one", a, b)
	}
}

// Parked sessions: they end when the router drains, and with their idle timeout.
func TestLaneParked(t *testing.T) {
	testrun.Long(t, "timeouts have to end; the other tests of the lane park sessions for a moment")
	cl, conn, keys := orders(t, config{})
	k := fmt.Sprint(keys[0][0])
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[0][0])
	parked, _ := cl.warm(t, "SELECT note FROM orders WHERE tenant_id = $1", k)
	busy, run := cl.warm(t, "SELECT pg_sleep($2::float8), note FROM orders WHERE tenant_id = $1", k, "0")
	run(k, "1")
	cl.busy(t, 0, "%pg_sleep%", 1)
	done := make(chan error)
	go func() {
		ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
		defer stop()
		done <- cl.server.Shutdown(ctx)
	}()
	parked.want("E FATAL 57P01")
	busy.want("2", "T pg_sleep,note", "D ,n", "C SELECT 1", "Z I", "E FATAL 57P01")
	if err := <-done; err != nil {
		t.Error(err)
	}

	cl = start(t, config{limits: gateway.Limits{IdleMax: 300 * time.Millisecond}})
	c := cl.raw(t)
	c.want("E FATAL 57P05")
	// An idle session gives up its buffers, and goes on with new ones.
	cl, _, keys = orders(t, config{})
	k = fmt.Sprint(keys[0][0])
	c, run = cl.warm(t, "SELECT 5 FROM orders WHERE tenant_id = $1", k)
	time.Sleep(1800 * time.Millisecond)
	run(k)
	c.want("2", "T ?column?", "C SELECT 0", "Z I")
}

// A session's goroutine and descriptors go with its client (goroutines: goleak in TestMain).
func TestLaneLeaksNoDescriptors(t *testing.T) {
	cl, _, keys := orders(t, config{executor: limitsOf(1)})
	count := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	c, _ := cl.warm(t, "SELECT note FROM orders WHERE tenant_id = $1", fmt.Sprint(keys[0][0]))
	before := count()
	for range 100 {
		c, run := cl.warm(t, "SELECT note FROM orders WHERE tenant_id = $1", fmt.Sprint(keys[0][0]))
		run(fmt.Sprint(keys[0][0]))
		_ = c.nc.Close()
	}
	for end := time.Now().Add(waitfor.Max); count() > before+5 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	// Other tests of this package run beside this one, but none of them holds so many.
	if after := count(); after > before+80 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	_ = c.nc.Close()
}

// A lease that runs out while the shard works: the lane does not give the answer
// to the client by itself.
func TestLaneLease(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	k := fmt.Sprint(keys[0][0])
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'n')", keys[0][0])
	lease := shardmap.NewLease(nil)
	lease.Extend(time.Now(), time.Hour)
	other := start(t, config{dir: cl.dir, urls: cl.shards, lease: lease})
	c, run := other.warm(t, "SELECT pg_sleep($2::float8) FROM orders WHERE tenant_id = $1", k, "0")
	flights := other.flights(t)
	run(k, "1")
	other.busy(t, 0, "%pg_sleep%", 1)
	lease.End()
	c.until("Z I")
	if other.flights(t) != flights+1 {
		t.Error("the lane has answered after the end of its lease")
	}
}

// scrambled is the same random bytes for two routers.
type scrambled struct {
	rnd  *rand.Rand
	keys [][]int64
}

func (s *scrambled) pick(of ...string) string { return of[s.rnd.IntN(len(of))] }

func (s *scrambled) sql() string {
	k := s.keys[s.rnd.IntN(2)][s.rnd.IntN(3)]
	id := s.rnd.IntN(6)
	return s.pick(
		fmt.Sprintf("SELECT id, note FROM orders WHERE tenant_id = %d ORDER BY id", k),
		fmt.Sprintf("SELECT id, note FROM orders WHERE tenant_id = %d ORDER BY id;", k),
		fmt.Sprintf("INSERT INTO orders VALUES (%d, %d, 'n%d')", k, id, id),
		fmt.Sprintf("INSERT INTO orders VALUES (%d, %d, 'm') RETURNING id", k, id),
		fmt.Sprintf("UPDATE orders SET note = note || 'u' WHERE tenant_id = %d AND id = %d", k, id),
		fmt.Sprintf("DELETE FROM orders WHERE tenant_id = %d AND id = %d", k, id),
		fmt.Sprintf("SELECT 1 / (id - %d) FROM orders WHERE tenant_id = %d ORDER BY id", id, k),
		fmt.Sprintf("SELECT repeat(note, %d) FROM orders WHERE tenant_id = %d ORDER BY id", 1+s.rnd.IntN(20000), k),
		fmt.Sprintf("SELECT id FROM orders WHERE tenant_id = %d ORDER BY id DESC; SELECT note FROM orders WHERE tenant_id = %d ORDER BY id", k, k),
		fmt.Sprintf("SELECT nothing FROM orders WHERE tenant_id = %d", k),
		fmt.Sprintf("SELEC id FROM orders WHERE tenant_id = %d", k),
		"BEGIN", "COMMIT", "ROLLBACK", "", "SELECT 1", "SET work_mem = '5MB'", "SHOW work_mem", "SELECT count(*) FROM orders WHERE tenant_id IN (1, 2, 3)",
	)
}

// batch returns whole messages that end with a Sync or a Query, and how many
// ReadyForQuery answer them.
func (s *scrambled) batch(names *int) (b []byte, ready int) {
	add := func(ms ...pgproto3.FrontendMessage) {
		for _, m := range ms {
			var err error
			if b, err = m.Encode(b); err != nil {
				panic(err)
			}
		}
	}
	const sel = "SELECT id, note FROM orders WHERE tenant_id = $1 ORDER BY id"
	const ins = "INSERT INTO orders VALUES ($1, $2, 'p') RETURNING note"
	for range 1 + s.rnd.IntN(3) {
		k, id := fmt.Sprint(s.keys[s.rnd.IntN(2)][s.rnd.IntN(3)]), fmt.Sprint(s.rnd.IntN(6))
		switch s.rnd.IntN(9) {
		case 0, 1, 2:
			add(&pgproto3.Query{String: s.sql()})
			ready++
			continue
		case 3:
			add(bind("", "sel", k), describe('P', ""), do("", uint32(s.rnd.IntN(3))))
		case 4:
			add(bind("", "ins", k, id), do("", 0), bind("", "sel", k), do("", 0))
		case 5:
			add(parse("", sel), bind("", "", k), describe('P', ""), do("", 0))
		case 6:
			add(parse("", ins), describe('S', ""), bind("p", "", k, id), do("p", 0), &pgproto3.Close{ObjectType: 'P', Name: "p"})
		case 7:
			*names++
			n := fmt.Sprint("n", *names)
			add(parse(n, s.pick(sel, s.sql())), bind("", n, k), do("", 0), &pgproto3.Close{ObjectType: 'S', Name: n})
		case 8:
			add(parse("sel", sel), bind("", "missing", k), describe('S', "ins"), &pgproto3.Flush{})
		}
		add(syncMsg)
		ready++
	}
	return b, ready
}

// talk sends b in pieces and returns the answers; OIDs of tables, which
// differ between clusters, are made zero.
func talk(t *testing.T, c *client, b []byte, cuts []int, ready int) []byte {
	t.Helper()
	go func() {
		from := 0
		for _, to := range append(cuts, len(b)) {
			_, _ = c.nc.Write(b[from:to]) // an error shows in the answers
			from = to
		}
	}()
	var all []byte
	for ready > 0 {
		head := make([]byte, 5)
		if _, err := io.ReadFull(c.nc, head); err != nil {
			t.Fatalf("%v after %q, of %q", err, all, b)
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(c.nc, body); err != nil {
			t.Fatal(err)
		}
		switch head[0] {
		case 'Z':
			ready--
		case 'T':
			for rest, n := body[2:], binary.BigEndian.Uint16(body); n > 0; n-- {
				i := bytes.IndexByte(rest, 0)
				clear(rest[i+1 : i+5])
				rest = rest[i+19:]
			}
		}
		all = append(append(all, head...), body...)
	}
	return all
}

// Two routers, one without lanes, get the same bytes and give the same bytes.
func TestLaneMakesNoDifference(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	with, _, keys := orders(t, config{shards: 2})
	without, _, _ := orders(t, config{shards: 2, executor: executor.Limits{Lanes: -1}})
	s := &scrambled{rnd: rand.New(rand.NewPCG(seed, 1)), keys: keys}
	names := 0
	for session := range 12 {
		a, b := with.raw(t), without.raw(t)
		for _, c := range []*client{a, b} {
			c.send(parse("sel", "SELECT id, note FROM orders WHERE tenant_id = $1 ORDER BY id"), parse("ins", "INSERT INTO orders VALUES ($1, $2, 'p') RETURNING note"), syncMsg)
			c.until("Z I")
		}
		for step := range 60 {
			msg, ready := s.batch(&names)
			var cuts []int
			if s.rnd.IntN(3) == 0 {
				for range 1 + s.rnd.IntN(3) {
					cuts = append(cuts, s.rnd.IntN(len(msg)))
				}
				slices.Sort(cuts)
			}
			want, got := talk(t, b, msg, cuts, ready), talk(t, a, msg, cuts, ready)
			if !bytes.Equal(want, got) {
				t.Fatalf("session %d, step %d (seed %d)\nsent %q\nwithout the lane %q\nwith it          %q", session, step, seed, msg, want, got)
			}
		}
		_ = a.nc.Close()
		_ = b.nc.Close()
	}
	if with.units(t) < 50 {
		t.Errorf("the lane has answered %d units only", with.units(t))
	}
}
