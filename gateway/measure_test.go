package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	dto "github.com/prometheus/client_model/go"

	"github.com/cleavedb/cleave/internal/waitfor"
)

// samples returns a metric's samples whose labels contain all of the pairs
// (name, value, ...): their number of observations, or their values, in sum.
func (c *cluster) samples(t testing.TB, name string, pairs ...string) float64 {
	t.Helper()
	families, err := c.metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if !hasLabels(m, pairs) {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func hasLabels(m *dto.Metric, pairs []string) bool {
	have := map[string]string{}
	for _, l := range m.GetLabel() {
		have[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(pairs); i += 2 {
		if have[pairs[i]] != pairs[i+1] {
			return false
		}
	}
	return true
}

// counted wants a metric to grow by n while f runs.
func (c *cluster) counted(t *testing.T, n float64, f func(), name string, pairs ...string) {
	t.Helper()
	before := c.samples(t, name, pairs...)
	f()
	if got := c.samples(t, name, pairs...) - before; got != n {
		t.Errorf("%s%v grew by %v, not %v", name, pairs, got, n)
	}
}

func TestStatementsAreCountedByShardKeyspaceAndPlan(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	ctx := context.Background()
	exec(t, conn, "CREATE TABLE codes (code int PRIMARY KEY) WITH (cleave.reference = true)")
	exec(t, conn, "CREATE TABLE plain (a int)")
	keyspace := cl.ex.Snapshot().State().Keyspaces[0].Name
	shard := func(i int) string { return fmt.Sprint("shard-", i) }
	k := keys[1][0]
	const total, seconds = "cleave_statements_total", "cleave_statement_seconds"
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			read := []string{"shard", shard(1), "keyspace", keyspace, "plan", "one_shard", "access", "read"}
			cl.counted(t, 2, func() {
				exec(t, conn, "SELECT * FROM orders WHERE tenant_id = $1", mode, k)
				exec(t, conn, "SELECT * FROM orders WHERE tenant_id = $1", mode, k)
			}, total, append(read, "result", "ok")...)
			cl.counted(t, 1, func() { exec(t, conn, "SELECT note FROM orders WHERE tenant_id = $1", mode, k) }, seconds, read...)
			write := []string{"shard", shard(1), "plan", "one_shard", "access", "write"}
			cl.counted(t, 1, func() { exec(t, conn, "DELETE FROM orders WHERE tenant_id = $1", mode, k) }, total, append(write, "result", "ok")...)
			exec(t, conn, "INSERT INTO orders VALUES ($1, 1, '')", mode, k)
			cl.counted(t, 1, func() { wantCode(t, conn, "23505", "INSERT INTO orders VALUES ($1, 1, '')", mode, k) }, total, append(write, "result", "error")...)
			cl.counted(t, 1, func() { wantCode(t, conn, "23505", "INSERT INTO orders VALUES ($1, 1, '')", mode, k) }, "cleave_shard_errors_total", "shard", shard(1), "fault", "client")
			cl.counted(t, 1, func() { exec(t, conn, "SELECT * FROM codes", mode) }, total, "plan", "reference", "result", "ok")
			cl.counted(t, 1, func() { exec(t, conn, "SELECT 1", mode) }, total, "plan", "any_shard", "result", "ok")
			cl.counted(t, 1, func() { exec(t, conn, "SELECT * FROM plain", mode) }, total, "plan", "default_shard", "result", "ok")
			cl.counted(t, 1, func() { exec(t, conn, "SELECT * FROM cleave.pins", mode) }, total, "plan", "virtual", "shard", "(router)", "result", "ok")
			cl.counted(t, 1, func() { wantCode(t, conn, "0A000", "SELECT ctid FROM orders", mode) }, "cleave_errors_total", "fault", "client", "sqlstate", "0A000")
			exec(t, conn, "DELETE FROM orders WHERE tenant_id = $1", mode, k)
		})
	}
	cl.counted(t, 1, func() { exec(t, conn, "CREATE TABLE more (a int)") }, total, "plan", "ddl", "shard", "(router)", "access", "write", "result", "ok")
	cl.counted(t, 1, func() { exec(t, conn, "SET work_mem = '1MB'") }, total, "plan", "control", "result", "ok")
	cl.counted(t, 1, func() {
		exec(t, conn, "BEGIN")
		exec(t, conn, "SELECT * FROM orders WHERE tenant_id = $1", k)
		exec(t, conn, "COMMIT")
	}, total, "plan", "control", "shard", shard(1), "result", "ok")
	cl.counted(t, 2, func() { exec(t, conn, "BEGIN"); exec(t, conn, "COMMIT") }, total, "plan", "control", "shard", "(router)", "result", "ok")
	// A batch is one conversation of several statements.
	batch := &pgx.Batch{}
	for range 5 {
		batch.Queue("SELECT * FROM orders WHERE tenant_id = $1", k)
	}
	cl.counted(t, 5, func() {
		if err := conn.SendBatch(ctx, batch).Close(); err != nil {
			t.Fatal(err)
		}
	}, total, "plan", "one_shard", "result", "ok")
}

func TestPoolWaitsAreTimed(t *testing.T) {
	cl, conn, keys := orders(t, config{executor: limitsOf(1)})
	other := cl.connect(t)
	exec(t, conn, "BEGIN")
	exec(t, conn, "SELECT * FROM orders WHERE tenant_id = $1 FOR UPDATE", keys[0][0])
	done := make(chan error, 1)
	go func() {
		_, err := other.Exec(context.Background(), "SELECT * FROM orders WHERE tenant_id = $1", keys[0][0])
		done <- err
	}()
	for end := time.Now().Add(waitfor.Max); cl.samples(t, "cleave_pool_queue", "shard", "shard-0") != 1; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the queue is not seen")
		}
	}
	exec(t, conn, "COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := cl.samples(t, "cleave_pool_wait_seconds", "shard", "shard-0"); n != 1 {
		t.Errorf("%v waits", n)
	}
	if n := cl.samples(t, "cleave_pool_connections_max"); n != 1 {
		t.Errorf("the pool's bound is %v", n)
	}
	if n := cl.samples(t, "cleave_shard_up"); n != 3 {
		t.Errorf("%v shards are up", n)
	}
}

// logged collects log lines as JSON.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// lines returns the attributes of the lines with that message.
func (l *logged) lines(t testing.TB, message string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for line := range strings.Lines(l.b.String()) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == message {
			out = append(out, m)
		}
	}
	return out
}

func TestSlowStatementsAreLogged(t *testing.T) {
	var log logged
	cl, conn, keys := orders(t, config{slow: 50 * time.Millisecond, log: log.logger()})
	k := keys[2][0]
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x'), ($1, 2, 'y')", k)
	exec(t, conn, "SET application_name = 'shop'")
	const secret = "correct horse"
	for name, mode := range modes {
		n := len(log.lines(t, "slow statement"))
		exec(t, conn, "SELECT note, pg_sleep(0.04) FROM orders WHERE tenant_id = $1 AND note <> $2", mode, k, secret)
		var line map[string]any
		for end := time.Now().Add(waitfor.Max); ; time.Sleep(10 * time.Millisecond) {
			// On a slow machine a Parse before it has a line as well.
			for _, l := range log.lines(t, "slow statement")[n:] {
				if shape, _ := l["shape"].(string); strings.HasPrefix(shape, "SELECT") {
					line = l
				}
			}
			if line != nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: no line", name)
			}
		}
		for key, want := range map[string]any{"shard": "shard-2", "plan": "one_shard", "rows": 2.0, "application": "shop", "user": "app", "level": "WARN"} {
			if line[key] != want {
				t.Errorf("%s: %s is %v, not %v", name, key, line[key], want)
			}
		}
		shape, _ := line["shape"].(string)
		if !strings.HasPrefix(shape, "SELECT note, pg_sleep($n) FROM orders") || strings.Contains(fmt.Sprint(line), secret) {
			t.Errorf("%s: %v", name, line)
		}
		total, _ := line["total_ms"].(float64)
		shard, _ := line["shard_ms"].(float64)
		if total < 50 || shard < 50 || shard > total || line["bytes"] == 0.0 || line["session"] == nil {
			t.Errorf("%s: %v", name, line)
		}
	}
	// An error has its SQLSTATE; its text, which may hold data, is not logged.
	_ = code(conn, "SELECT pg_sleep(0.06), 1 / (note = '"+secret+"')::int FROM orders WHERE tenant_id = "+fmt.Sprint(k), pgx.QueryExecModeSimpleProtocol)
	cl.server.SetSlow(0)
	exec(t, conn, "SELECT pg_sleep(0.06)")
	lines := log.lines(t, "slow statement")
	if last := lines[len(lines)-1]; last["sqlstate"] != "22012" || strings.Contains(fmt.Sprint(lines), secret) {
		t.Errorf("%v", last)
	}
	if n := cl.samples(t, "cleave_slow_statements_total"); int(n) != len(lines) {
		t.Errorf("%v slow statements are counted, %d logged", n, len(lines))
	}
}

func TestSlowStatementsAreLoggedInBounds(t *testing.T) {
	var log logged
	cl, conn, _ := orders(t, config{slow: time.Nanosecond, log: log.logger()})
	for range 200 {
		exec(t, conn, "BEGIN; COMMIT")
	}
	lines := len(log.lines(t, "slow statement"))
	total, suppressed := cl.samples(t, "cleave_slow_statements_total"), cl.samples(t, "cleave_slow_statements_suppressed_total")
	if total < 200 || suppressed == 0 || int(total-suppressed) != lines {
		t.Errorf("%d lines, %v statements, %v suppressed", lines, total, suppressed)
	}
}
