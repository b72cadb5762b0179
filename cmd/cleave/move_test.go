package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestNotReversed: a reversal that was waited for and is given up is an error that says why, and one that is
// lost is not said to be kept.
func TestNotReversed(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	for _, c := range []struct {
		w         admin.WorkflowInfo
		err, text string
	}{
		{w: admin.WorkflowInfo{ID: "m", Step: "rolled back", Ended: true}},
		{w: admin.WorkflowInfo{ID: "m", Step: "cancelled", Ended: true}},
		{w: admin.WorkflowInfo{ID: "m", Step: "cleaning", Back: true}},
		{w: admin.WorkflowInfo{ID: "m", Step: "opened", KeptUntil: &soon}, err: "m was not reversed: somebody has ended that", text: "it can be reversed until"},
		{w: admin.WorkflowInfo{ID: "m", Step: "opened", From: "s0", BackLost: "the slot is gone", RowsUntil: &soon}, err: "m was not reversed: the slot is gone",
			text: "it cannot be reversed: the slot is gone\nthe old rows on s0 are deleted at"},
		{w: admin.WorkflowInfo{ID: "m", Step: "done", Ended: true, BackLost: "tables were changed"}, err: "tables were changed", text: "it cannot be reversed: tables were changed\n"},
	} {
		err := notBack(&c.w)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v", c.w, err)
		}
		if got := backText(&c.w); !strings.HasPrefix(got, c.text) || c.text == "" && got != "" || c.w.BackLost != "" && strings.Contains(got, "kept") {
			t.Errorf("%+v: %q", c.w, got)
		}
	}
}

// TestMoveThatIsRefused: a move, and a dry run, that is refused by how the tables are ends with an error, without
// --wait too; one that works does not, and says in the end what it has moved.
func TestMoveThatIsRefused(t *testing.T) {
	pgtest.PSQL(t) // installs PostgreSQL where it is missing
	r := start(t, "up", "--engine", "postgres", "--servers", "1", "--shards", "2", "--data", filepath.Join(pgtest.Dir(t), "data"))
	r.ok("sql", createOrders, "INSERT INTO orders SELECT i, i, 'x' FROM generate_series(1, 100) i", "ALTER TABLE orders SET UNLOGGED")
	to := "shard-0"
	if r.owner(42) == to {
		to = "shard-1"
	}
	move := []string{"move", "--keyspace", "hash_bigint", "--key", "42", "--to", to, "--keep", "0"}
	for _, args := range [][]string{append(slices.Clone(move), "--dry-run"), append(slices.Clone(move), "--id", "never"), append(slices.Clone(move), "--json")} {
		code, stdout, stderr := r.cleave("", args...)
		if code != exitFailed || !strings.Contains(stdout+stderr, "SET LOGGED") {
			t.Errorf("%q: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	r.ok("sql", "ALTER TABLE orders SET LOGGED")
	r.ok(append(slices.Clone(move), "--dry-run")...)
	r.ok(append(slices.Clone(move), "--id", "works", "--wait")...)
	if out := r.ok("moves", "works"); !strings.Contains(out, "done: 1 rows moved") {
		t.Errorf("%s", out)
	}
	r.ok("split", "--keyspace", "hash_bigint", "--at", "42", "--wait")
}
