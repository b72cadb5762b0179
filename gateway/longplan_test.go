package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
)

// TestALongStatementIsPlannedOnce: neither the session nor the conversation over several shards plans again what the other has
// planned, though no part of the plan cache takes it.
func TestALongStatementIsPlannedOnce(t *testing.T) {
	testrun.Long(t, "statements are so long that planning shows; TestManyParameters has a long one")
	t.Parallel()
	cl, conn, _ := orders(t, config{})
	entries, _ := cl.ex.PlanCacheSize()
	for name, sql := range map[string]string{
		"and":      "SELECT id FROM orders WHERE id = 1" + strings.Repeat(" AND id <> 2", 20_000),
		"coalesce": "SELECT coalesce(id" + strings.Repeat(", id", 60_000) + ") FROM orders",
	} {
		run := func() {
			if _, err := conn.PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		cl.counted(t, 1, run, "cleave_plan_cache_misses_total")
		if now, _ := cl.ex.PlanCacheSize(); now != entries {
			t.Errorf("%s: the plan cache has it", name)
		}
	}
}

// TestPlanningCanBeStopped: a statement that is refused when it has been planned is stopped before, by statement_timeout and by a cancel
// request, and the session goes on.
func TestPlanningCanBeStopped(t *testing.T) {
	testrun.Long(t, "statements are so long that planning can be stopped; TestCancel stops running ones")
	t.Parallel()
	cl, conn, keys := orders(t, config{})
	fill(t, conn, keys, 1)
	const refused = "0A000"
	text := func(n int, tail string) string {
		return "SELECT ctid FROM orders WHERE id = 1" + strings.Repeat(" AND id <> 2", n) + tail
	}
	code := func(sql string) string {
		_, err := conn.PgConn().Exec(context.Background(), sql).ReadAll()
		return codeOf(err)
	}
	if got := code(text(10, "")); got != refused {
		t.Fatalf("SQLSTATE %q", got)
	}
	exec(t, conn, "SET statement_timeout = '20ms'")
	for _, tail := range []string{"", ";"} {
		if got := code(text(15_000, tail)); got != "57014" {
			t.Errorf("statement_timeout: SQLSTATE %q", got)
		}
	}
	if _, err := conn.Prepare(context.Background(), "p", text(15_000, "")); err == nil || !strings.Contains(err.Error(), "57014") {
		t.Errorf("statement_timeout of a Parse: %v", err)
	}
	exec(t, conn, "SET statement_timeout = 0")
	done := cl.begin(t, conn, text(15_000, " "))
	if err := conn.PgConn().CancelRequest(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got != "57014" {
		t.Errorf("cancelled: SQLSTATE %q", got)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM orders"); n == 0 {
		t.Error("no rows")
	}
}
