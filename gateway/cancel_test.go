package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
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
	testrun.Long(t, "some dozens of moments; TestCancelAtAnyMoment has them for a cancel")
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

// TestTimeoutBetweenMessages: statement_timeout counts while the client keeps a statement's next message back, and not
// between a Sync or an Execute and the next statement.
func TestTimeoutBetweenMessages(t *testing.T) {
	p := withPlain(t)
	one := fmt.Sprintf("SELECT note FROM orders WHERE tenant_id = %d AND id = 2", p.keys[1][0])
	type step struct {
		wait bool
		batch
	}
	for name, sql := range map[string]string{"one shard": one, "several": "SELECT count(*) FROM orders", "no table": "SELECT $1::text", "router": "SHOW lock_timeout"} {
		for what, steps := range map[string][]step{
			"parse":    {{false, batch{parse("s", sql)}}, {true, batch{describe('S', "s"), syncMsg}}, {false, batch{parse("", "SELECT 1"), bind("", ""), do("", 0), syncMsg}}},
			"flush":    {{false, batch{parse("s", sql), &pgproto3.Flush{}}}, {true, batch{describe('S', "s"), syncMsg}}, {false, batch{query("SELECT 1")}}},
			"sync":     {{false, batch{parse("s", sql)}}, {true, batch{syncMsg}}},
			"executed": {{false, batch{parse("", "SELECT 1"), bind("", ""), do("", 0), &pgproto3.Flush{}}}, {true, batch{parse("", "SELECT 2"), bind("", ""), do("", 0), syncMsg}}},
			"begin":    {{false, batch{query("BEGIN")}}, {true, batch{parse("s", sql), describe('S', "s")}}, {true, batch{syncMsg}}, {false, batch{query("ROLLBACK")}}},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				var told [2][]string
				for i, c := range []*client{p.cl.raw(t), plain(t, p.plain)} {
					c.send(query("SET statement_timeout = 2000"))
					c.until("Z I")
					for _, s := range steps {
						if s.wait {
							time.Sleep(2500 * time.Millisecond) // longer than the timeout, which nothing else shows
						}
						c.send(s.batch...)
						if last := s.batch[len(s.batch)-1]; last != syncMsg {
							if _, ok := last.(*pgproto3.Query); !ok {
								continue
							}
						}
						for w := ""; !strings.HasPrefix(w, "Z ") && w != "gone"; {
							w = c.next()
							told[i] = append(told[i], w)
						}
					}
				}
				if got, want := fmt.Sprint(told[0]), fmt.Sprint(told[1]); got != want {
					t.Errorf("router: %s\nPostgreSQL: %s", got, want)
				}
			})
		}
	}
}

// TestOneCancelStopsOneUnit: of two units that came together, a cancel that ends a wait of the first at the router leaves the second alone.
func TestOneCancelStopsOneUnit(t *testing.T) {
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	total := fill(t, conn, keys, 3)
	other := cl.connect(t)
	exec(t, other, "BEGIN")
	exec(t, other, "SELECT count(*) FROM orders")
	ctx := context.Background()
	p := conn.PgConn().StartPipeline(ctx)
	for _, sql := range []string{"ALTER TABLE orders ADD COLUMN later int", "SELECT count(*)::text FROM orders"} {
		p.SendQueryParams(sql, nil, nil, nil, nil)
		p.SendPipelineSync()
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the schema change waits for a lock", func() bool {
		return slices.ContainsFunc([]int{0, 1, 2}, func(shard int) bool {
			return cl.direct(t, shard, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass") != "0"
		})
	})
	if err := conn.PgConn().CancelRequest(ctx); err != nil {
		t.Fatal(err)
	}
	var said []string
	for len(said) < 4 {
		res, err := p.GetResults()
		if _, synced := res.(*pgconn.PipelineSync); synced {
			said = append(said, "sync")
			continue
		}
		if err != nil {
			said = append(said, codeOf(err))
			continue
		}
		got := res.(*pgconn.ResultReader).Read()
		if got.Err != nil || len(got.Rows) != 1 {
			said = append(said, codeOf(got.Err))
			continue
		}
		said = append(said, string(got.Rows[0][0]))
	}
	if want := []string{"57014", "sync", strconv.Itoa(total), "sync"}; !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
