package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/planner/complexity"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestDoubling: WITH queries and views that read the one before them twice are refused before anybody writes them out, over
// unsharded tables too, and a view of them cannot be made.
func TestDoubling(t *testing.T) {
	state := testState(t)
	for i := range 40 {
		for _, table := range []string{"orders", "notes"} {
			definition := "SELECT 1 AS a FROM public." + table
			if i > 0 {
				definition = fmt.Sprintf("SELECT p.a FROM public.%s_%d p JOIN public.%s_%d q ON true", table, i-1, table, i-1)
			}
			state.Views = append(state.Views, shardmap.View{Schema: "public", Name: fmt.Sprintf("%s_%d", table, i), Definition: definition})
		}
	}
	snap, err := shardmap.NewSnapshot(state)
	if err != nil {
		t.Fatal(err)
	}
	with := func(n int, how string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "WITH c0 AS %s (SELECT 1 AS x FROM notes)", how)
		for i := 1; i < n; i++ {
			fmt.Fprintf(&b, ", c%d AS %s (SELECT p.x FROM c%d p, c%d q)", i, how, i-1, i-1)
		}
		fmt.Fprintf(&b, " SELECT count(*) FROM c%d", n-1)
		return b.String()
	}
	p := New(Limits{})
	began := time.Now()
	for _, sql := range []string{
		with(12, "NOT MATERIALIZED"), with(100, "NOT MATERIALIZED"), "SELECT (" + with(30, "NOT MATERIALIZED") + ")", "EXPLAIN " + with(30, "NOT MATERIALIZED"), "INSERT INTO notes " + with(30, "NOT MATERIALIZED"),
		"CREATE VIEW v AS " + with(30, "NOT MATERIALIZED"), "CREATE TABLE n AS " + with(30, "NOT MATERIALIZED"), "COPY (" + with(30, "NOT MATERIALIZED") + ") TO STDOUT",
		"SELECT * FROM orders_20", "SELECT * FROM orders_39", "SELECT * FROM notes_20", "SELECT * FROM notes_39", "SELECT * FROM notes_9, notes_9 x", "CREATE VIEW v AS SELECT * FROM orders_39", "CREATE VIEW v AS SELECT * FROM notes_39",
		"UPDATE notes SET text = 'x' FROM notes_39", "DECLARE c CURSOR FOR SELECT * FROM notes_39",
	} {
		if _, err := p.Analyze(sql, snap, []string{"public"}); sqlstate.CodeOf(err) != sqlstate.StatementTooComplex {
			t.Errorf("%.60s: %v", sql, err)
		}
	}
	for _, sql := range []string{with(9, "NOT MATERIALIZED"), with(100, "MATERIALIZED"), "SELECT * FROM notes_8", "SELECT * FROM orders_3"} {
		if _, err := p.Analyze(sql, snap, []string{"public"}); sqlstate.CodeOf(err) == sqlstate.StatementTooComplex && strings.Contains(err.Error(), "written out") {
			t.Errorf("%.60s: %v", sql, err)
		}
	}
	t.Logf("%v", time.Since(began))
}

// TestChainsOfWith: WITH queries that read each the one before are bounded over several shards, and not on one, which PostgreSQL itself answers for.
func TestChainsOfWith(t *testing.T) {
	snap, p := testSnapshot(t), New(Limits{})
	with := func(n int, how, tail string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "WITH c1 AS %s (SELECT id FROM orders%s)", how, tail)
		for i := 2; i <= n; i++ {
			fmt.Fprintf(&b, ", c%d AS %s (SELECT id FROM c%d)", i, how, i-1)
		}
		fmt.Fprintf(&b, " SELECT id FROM c%d", n)
		return b.String()
	}
	apart := "WITH a AS (SELECT 1)"
	for i := range 300 {
		apart += fmt.Sprintf(", c%d AS (SELECT id FROM orders)", i)
	}
	for sql, want := range map[string]sqlstate.Code{
		with(complexity.ChainMax, "", ""):                                                    "",
		with(complexity.ChainMax+1, "", ""):                                                  sqlstate.StatementTooComplex,
		with(300, "MATERIALIZED", ""):                                                        "",
		with(1000, "", " WHERE tenant_id = 1"):                                               "",
		"EXPLAIN " + with(300, "", ""):                                                       sqlstate.StatementTooComplex,
		"SELECT (" + with(300, "", "") + " LIMIT 1)":                                         sqlstate.StatementTooComplex,
		"INSERT INTO items (tenant_id, id) SELECT id, id FROM (" + with(300, "", "") + ") s": sqlstate.StatementTooComplex,
		apart + " SELECT id FROM c1":                                                         "",
	} {
		st, err := p.Analyze(sql, snap, []string{"public"})
		if got := sqlstate.CodeOf(err); err != nil && got != want || err == nil && want != "" {
			t.Errorf("%.80s: %v, not %q", sql, err, want)
		}
		if err == nil && strings.Contains(sql, "tenant_id = 1") && st.Kind != plan.OneShard {
			t.Errorf("%.80s: %v", sql, st.Kind)
		}
	}
}
