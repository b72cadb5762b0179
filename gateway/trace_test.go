package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/oteltest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// traced starts a cluster whose spans a collector gets; only those of clients
// that ask for it, unless sample is more than 0.
func traced(t *testing.T, c config, sample float64) (*cluster, *pgx.Conn, [][]int64, *oteltest.Collector) {
	t.Helper()
	col := oteltest.Start(t)
	tr, err := trace.New(context.Background(), trace.Options{Endpoint: col.URL, Sample: sample, Interval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close(context.Background()) })
	c.tracer = tr
	cl, conn, keys := orders(t, c)
	return cl, conn, keys, col
}

// parentOf returns a traceparent with a trace id of its own.
func parentOf(n int) (text, traceID string) {
	traceID = fmt.Sprintf("%032x", n+1)
	return "00-" + traceID + "-00f067aa0ba902b7-01", traceID
}

func TestSpansHaveTheClientsTrace(t *testing.T) {
	var log logged
	cl, conn, keys, col := traced(t, config{slow: time.Nanosecond, log: log.logger()}, 0)
	const secret = "correct horse"
	key := keys[1][0]
	n := 0
	check := func(what, id, operation string, failed bool) {
		t.Helper()
		root := col.Await(t, 1, func(s oteltest.Span) bool { return s.Trace == id && s.Name == operation })[0]
		// A statement that is prepared first has a part more, under a root of its own.
		part := col.Await(t, 1, func(s oteltest.Span) bool {
			return s.Trace == id && s.Name == trace.PartShard && s.Parent == root.ID
		})[0]
		all := col.Spans()
		if root.Parent != "00f067aa0ba902b7" || part.Kind != "CLIENT" || root.Kind != "SERVER" {
			t.Errorf("%s: %+v\n%+v", what, root, part)
		}
		if root.Attributes["cleave.shard"] != "shard-1" || root.Attributes["cleave.plan"] != "one_shard" || (root.Error != "") != failed {
			t.Errorf("%s: %+v", what, root)
		}
		if root.Began.After(part.Began) || root.Ended.Before(part.Ended) || part.Ended.Before(part.Began) {
			t.Errorf("%s: times %+v %+v", what, root, part)
		}
		if strings.Contains(fmt.Sprint(all), secret) {
			t.Errorf("%s: a literal is in a span: %+v", what, all)
		}
	}
	for name, mode := range modes {
		if name == "describe" || name == "prepared" {
			continue // they would prepare each of these texts
		}
		parent, id := parentOf(n)
		n++
		exec(t, conn, "SELECT * FROM orders WHERE tenant_id = $1 AND note <> '"+secret+"' /*traceparent='"+parent+"'*/", mode, key)
		check(name+", at the end", id, "SELECT orders", false)
		parent, id = parentOf(n)
		n++
		exec(t, conn, "/*traceparent='"+parent+"',route='x'*/ SELECT * FROM orders WHERE tenant_id = $1", mode, key)
		check(name+", at the beginning", id, "SELECT orders", false)
	}
	// Prepared statements: the session says it.
	for _, set := range []string{"SET", "SET LOCAL"} {
		parent, id := parentOf(n)
		n++
		exec(t, conn, "BEGIN")
		exec(t, conn, set+" cleave.traceparent = '"+parent+"'")
		if got := one[string](t, conn, "SHOW cleave.traceparent"); got != parent {
			t.Errorf("SHOW gives %q", got)
		}
		exec(t, conn, "INSERT INTO orders VALUES ($1, $2, $3)", key, n, secret)
		check(set, id, "INSERT orders", false)
		if code := code(conn, "INSERT INTO orders VALUES ($1, $2, $3)", key, n, secret); code != "23505" {
			t.Errorf("code %s", code)
		}
		col.Await(t, 1, func(s oteltest.Span) bool { return s.Trace == id && s.Error == "SQLSTATE 23505" })
		exec(t, conn, "ROLLBACK")
		if got := one[string](t, conn, "SHOW cleave.traceparent"); got != "" {
			t.Errorf("after ROLLBACK: %q", got)
		}
	}
	parent, id := parentOf(n)
	exec(t, conn, "SET cleave.traceparent = '"+parent+"'")
	exec(t, conn, "SELECT * FROM orders WHERE tenant_id = $1", key)
	check("SET outside of a transaction", id, "SELECT orders", false)
	exec(t, conn, "RESET cleave.traceparent")
	exec(t, conn, "SELECT note FROM orders WHERE tenant_id = $1", key)
	wantCode(t, conn, "22023", "SET cleave.traceparent = 'nonsense'")
	wantCode(t, conn, "0A000", "SELECT set_config('cleave.traceparent', '"+parent+"', false)")
	// No shard has heard of it: no connection has to be told.
	if n := cl.samples(t, "cleave_pool_dials_total", "result", "ok"); n > 6 {
		t.Errorf("%v connections were made", n)
	}
	// The log has the trace's id, of the statements that are not suppressed.
	found := false
	for _, l := range log.lines(t, "slow statement") {
		id, _ := l["trace"].(string)
		found = found || len(id) == 32
	}
	if !found {
		t.Error("no line of the log has the id of the trace")
	}
	for _, s := range col.Spans() {
		if len(s.Trace) != 32 || !strings.HasPrefix(s.Trace, "0000000000") {
			t.Errorf("a statement without a parent was traced at a ratio of 0: %+v", s)
		}
	}
}

// TestTraceCommentsShareAPlan: a comment that differs in each statement neither
// fills the plan cache nor the shards' prepared statements; the shard gets it
// with a simple statement.
func TestTraceCommentsShareAPlan(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	key := keys[1][0]
	send := func(mode pgx.QueryExecMode, i int) {
		t.Helper()
		parent, _ := parentOf(i)
		// No literal, so that the text itself is what the plan is found by.
		exec(t, conn, "SELECT 1 /*traceparent='"+parent+"'*/", pgx.QueryExecModeSimpleProtocol)
		exec(t, conn, "/*traceparent='"+parent+"'*/ SELECT now()", pgx.QueryExecModeSimpleProtocol)
		exec(t, conn, "SELECT * FROM orders WHERE tenant_id = $1 /*traceparent='"+parent+"'*/", mode, key)
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeDescribeExec} {
		send(mode, 0)
		entries, _ := cl.ex.PlanCacheSize()
		for i := range 50 {
			send(mode, i)
		}
		if now, _ := cl.ex.PlanCacheSize(); now != entries {
			t.Errorf("%v: the plan cache grew from %d to %d", mode, entries, now)
		}
	}
	// The text of a statement in the simple protocol arrives as it was sent.
	parent, _ := parentOf(7)
	sql := "SELECT current_query() FROM orders WHERE tenant_id = " + fmt.Sprint(key)
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, '')", key)
	var seen string
	if err := conn.QueryRow(context.Background(), sql+" /*traceparent='"+parent+"'*/", pgx.QueryExecModeSimpleProtocol).Scan(&seen); err != nil || !strings.HasSuffix(seen, parent+"'*/") {
		t.Errorf("the shard got %q, %v", seen, err)
	}
}

// TestTraceCommentsKeepPositions: an error's position is in the text that the
// client sent.
func TestTraceCommentsKeepPositions(t *testing.T) {
	_, conn, keys := orders(t, config{})
	parent, _ := parentOf(1)
	for name, mode := range modes {
		for _, c := range []struct{ before, after string }{
			{"", " /*traceparent='" + parent + "'*/"},
			{"/*traceparent='" + parent + "'*/ ", ""},
		} {
			for _, sql := range []string{
				fmt.Sprintf("SELECT nothing FROM orders WHERE tenant_id = %d", keys[0][0]),
				"SELECT nothing +",
				"SELECT nothing(1)",
			} {
				_, plain := conn.Exec(context.Background(), sql, mode)
				_, with := conn.Exec(context.Background(), c.before+sql+c.after, mode)
				p, ok1 := plain.(*pgconn.PgError)
				w, ok2 := with.(*pgconn.PgError)
				if !ok1 || !ok2 || p.Code != w.Code || p.Position > 0 && int(w.Position) != int(p.Position)+len(c.before) {
					t.Errorf("%s: %s%s%s: %v; without the comment: %v", name, c.before, sql, c.after, with, plain)
				}
			}
		}
	}
}

func TestRetriesAndWaitsAreSpans(t *testing.T) {
	cl, conn, keys, col := traced(t, config{executor: limitsOf(1)}, 1)
	exec(t, conn, "SELECT * FROM orders WHERE tenant_id = $1", keys[0][0])
	col.Await(t, 1, func(s oteltest.Span) bool { return s.Name == trace.PartWait && s.Attributes["cleave.shard"] != "" })
	// The shard's backend ends while it reads: the read is run again.
	exec(t, conn, "INSERT INTO orders VALUES ($1, 1, '')", keys[0][0])
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT pg_sleep(1) FROM orders WHERE tenant_id = $1", keys[0][0])
		done <- err
	}()
	const end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sl' || 'eep(1)%' AND wait_event = 'PgSleep'"
	for limit := time.Now().Add(waitfor.Max); cl.direct(t, 0, end) == "0"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the statement does not run")
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	attempt := col.Await(t, 1, func(s oteltest.Span) bool { return s.Name == trace.PartAttempt })[0]
	root := col.Await(t, 1, func(s oteltest.Span) bool { return s.ID == attempt.Parent })[0]
	if attempt.Error == "" || attempt.Attributes["cleave.shard"] != "shard-0" || root.Error != "" || root.Attributes["cleave.tries"] != int64(2) {
		t.Errorf("%+v\n%+v", root, attempt)
	}
}
