package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// endless are statements over several shards that compute for ever, and so do not
// notice that their client or router has gone. %d makes each text a new one.
var endless = []string{
	"SELECT sum(g * tenant_id) + %d FROM orders, generate_series(1, 100000000000) g",
	"SELECT count(*) + %d FROM orders a JOIN orders b ON a.id = b.id, generate_series(1, 100000000000) g",
	"SELECT tenant_id + g + %d FROM orders, generate_series(1, 100000000000) g WHERE g < 0",
}

const obeyed = 3 * time.Second // less than any deadline that ends a statement by force

// idleShards waits until no shard runs anything.
func (c *cluster) idleShards(t *testing.T, what string) {
	t.Helper()
	end := time.Now().Add(obeyed)
	for i := range c.shards {
		for {
			run := c.direct(t, i, "SELECT string_agg(query, '; ') FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
			if run == "" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: shard %d still runs %s", what, i, run)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// moments are the times after which something is done to a statement.
func moments() (all []time.Duration) {
	for d := time.Duration(0); d <= 300*time.Millisecond; d += 5 * time.Millisecond {
		if all = append(all, d); d >= 40*time.Millisecond {
			d += 35 * time.Millisecond
		}
	}
	return all
}

// begin sends a statement on a connection, and returns when the router has it.
func (c *cluster) begin(t *testing.T, conn *pgx.Conn, sql string) <-chan string {
	t.Helper()
	before := c.samples(t, "cleave_client_received_bytes_total")
	done := make(chan string, 1)
	go func() {
		_, err := conn.PgConn().Exec(context.Background(), sql).ReadAll()
		done <- codeOf(err)
	}()
	for c.samples(t, "cleave_client_received_bytes_total") < before+float64(len(sql)) {
		time.Sleep(time.Millisecond / 2)
	}
	return done
}

// TestCancelAtAnyMoment cancels statements that never end at many moments of their
// beginning: a cancel that comes before a shard has the statement is not lost.
func TestCancelAtAnyMoment(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	total, n := fill(t, conn, keys, 10), 0
	for _, block := range []bool{false, true} {
		for i, d := range moments() {
			n++
			sql := fmt.Sprintf(endless[i%len(endless)], n)
			if block {
				exec(t, conn, "BEGIN")
			}
			done := cl.begin(t, conn, sql)
			time.Sleep(d)
			if err := conn.PgConn().CancelRequest(context.Background()); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-done:
				if got != "57014" {
					t.Errorf("after %v: SQLSTATE %q", d, got)
				}
			case <-time.After(obeyed):
				t.Errorf("after %v: %s: no answer", d, sql)
				<-done
			}
			if block {
				exec(t, conn, "ROLLBACK")
			}
			cl.idleShards(t, fmt.Sprintf("%s, cancelled after %v", sql, d))
		}
	}
	if n := one[int](t, conn, "SELECT count(*) FROM orders"); n != total {
		t.Errorf("%d rows, want %d", n, total)
	}
}

// TestClientLeavesAtAnyMoment is the same with clients that close their connection.
func TestClientLeavesAtAnyMoment(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	fill(t, conn, keys, 10)
	for i, d := range []time.Duration{0, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond} {
		c := cl.connect(t)
		sql := fmt.Sprintf(endless[i%len(endless)], -i)
		done := cl.begin(t, c, sql)
		time.Sleep(d)
		_ = c.PgConn().Conn().Close()
		<-done
		cl.idleShards(t, fmt.Sprintf("%s, left after %v", sql, d))
	}
}

// TestShutdownStopsStatements ends the router while statements run.
func TestShutdownStopsStatements(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	fill(t, conn, keys, 10)
	c, one := cl.connect(t), cl.connect(t)
	done := cl.begin(t, c, fmt.Sprintf(endless[0], 1))
	single := cl.begin(t, one, fmt.Sprintf("SELECT count(*) FROM orders, generate_series(1, 100000000000) WHERE tenant_id = %d", keys[0][0]))
	cl.runs(t, 1, "generate_series")
	now, stop := context.WithCancel(context.Background())
	stop()
	_ = cl.server.Shutdown(now) // it says that it had to use force
	<-done
	<-single
	cl.idleShards(t, "after the router's end")
}
