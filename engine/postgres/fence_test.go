package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestFenceOfAnyTables: guards that are in order are replaced together, the others one by one, in one transaction.
func TestFenceOfAnyTables(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	s := installed(t, url)
	c := connect(t, s)
	v := s.(engine.Movable).Mover(1)
	names := []string{"fine", "Fi\"ne '2", "none", "disabled", "renamed", "truncate gone", "shared", "composite", "later"}
	guards := make([]engine.Guard, len(names))
	for i, name := range names {
		key, pk := []string{"k"}, "k"
		if name == "composite" {
			key, pk = []string{"k", "other k"}, `k, "other k"`
		}
		guards[i] = engine.Guard{Schema: "public", Table: name, ShardKey: key}
		do(t, c, fmt.Sprintf(`CREATE TABLE %s (k bigint, "other k" bigint DEFAULT 1, PRIMARY KEY (%s))`, pgx.Identifier{name}.Sanitize(), pk))
	}
	owned := func(epoch uint64, low int64) []engine.Guard {
		all := slices.Clone(guards)
		one := keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Range, Types: []keyspace.Type{keyspace.Int8}, Epoch: epoch,
			Intervals: []keyspace.Interval{keyspace.NewKeyInterval(keyspace.Key{keyspace.Int(keyspace.Int8, low)}, nil)}}
		two := one
		two.Types = []keyspace.Type{keyspace.Int8, keyspace.Int8}
		for i := range all {
			if all[i].Owned = one; len(all[i].ShardKey) == 2 {
				all[i].Owned = two
			}
		}
		return all
	}
	if _, err := v.Fence(t.Context(), owned(1, 0)[:8]); err != nil {
		t.Fatal(err)
	}
	pgtest.Ask(t, url, `DROP TRIGGER "~cleave_guard" ON "none"; DROP TRIGGER "~cleave_guard_truncate" ON "none"; ALTER TABLE "disabled" DISABLE TRIGGER "~cleave_guard"; `+
		`ALTER TABLE "renamed" RENAME TO "has another name"; DROP TRIGGER "~cleave_guard_truncate" ON "truncate gone"; CREATE TABLE sharer (k bigint)`)
	pgtest.Ask(t, url, `DO $$ BEGIN EXECUTE 'CREATE TRIGGER x BEFORE INSERT ON sharer FOR EACH ROW EXECUTE FUNCTION cleave_internal.guard_' || '"shared"'::regclass::oid || '()'; END $$`)
	for i := range guards {
		if guards[i].Table == "renamed" {
			guards[i].Table = "has another name"
		}
	}
	fresh := 100
	check := func(what string, guards []engine.Guard, low int) {
		t.Helper()
		fresh++
		for _, g := range guards {
			table := pgx.Identifier{g.Table}.Sanitize()
			if _, err := engine.Exec(c, fmt.Sprintf("INSERT INTO %s (k) VALUES (%d)", table, low-1)); sqlstate.CodeOf(err) != sqlstate.NotOwner {
				t.Errorf("%s, %s takes what is below %d: %v", what, g.Table, low, err)
			}
			do(t, c, fmt.Sprintf("INSERT INTO %s (k) VALUES (%d)", table, fresh))
			if _, err := engine.Exec(c, "TRUNCATE "+table); sqlstate.CodeOf(err) != sqlstate.NotOwner {
				t.Errorf("%s, %s is truncated: %v", what, g.Table, err)
			}
			d, err := c.DescribeTable(t.Context(), g.Schema, g.Table)
			if err != nil || d.Guard == nil || d.Guard.Epoch != g.Owned.Epoch {
				t.Errorf("%s, %s has the guard %+v, %v", what, g.Table, d.Guard, err)
			}
		}
	}
	all := owned(2, 10)
	if _, err := v.Fence(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	check("fenced", all, 10)
	if pgtest.Ask(t, url, `WITH x AS (INSERT INTO sharer VALUES (5) RETURNING k) SELECT k FROM x`) != "5" {
		t.Error("a function of two tables was replaced")
	}
	// What cannot be guarded fails all of it.
	pgtest.Ask(t, url, `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER "~zzz" BEFORE INSERT ON later FOR EACH ROW EXECUTE FUNCTION f()`)
	if _, err := v.Fence(t.Context(), owned(3, 20)); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported || sqlstate.As(err).Table != "later" {
		t.Errorf("a trigger after the guard: %v", err)
	}
	pgtest.Ask(t, url, `DROP TRIGGER "~zzz" ON later`)
	check("not fenced", all, 10)
	all = owned(4, 9)
	if err := v.(engine.Opener).Open(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	check("opened", all, 9)
	pgtest.Ask(t, url, `DROP TRIGGER "~cleave_guard" ON later`)
	if err := v.(engine.Opener).Open(t.Context(), owned(5, 8)); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || sqlstate.As(err).Table != "later" {
		t.Errorf("a table without a guard is opened: %v", err)
	}
}
