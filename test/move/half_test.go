package move

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestSplitInHalves: ranges are cut where half of the rows are below, whatever the key's type and
// the shard's engine.
func TestSplitInHalves(t *testing.T) {
	testrun.Long(t, "ten splits, by types of keys and engines; TestPlan has splits")
	for _, e := range []string{"sqlite", "postgres"} {
		t.Run(e, func(t *testing.T) {
			c := start(t, e)
			ctx := context.Background()
			for name, k := range map[string]struct {
				types, columns, key string
				value               func(n int) string
				low, high           string // bounds of what the middle may be
			}{
				"ints":  {`'bigint'`, `a bigint`, `a`, func(n int) string { return fmt.Sprint(n * n) }, "2401", "2601"},
				"texts": {`'text'`, `a text`, `a`, func(n int) string { return fmt.Sprintf("'k%03d,\"é'", n) }, "k049", "k051"},
				"uuids": {`'uuid'`, `a uuid`, `a`, func(n int) string { return fmt.Sprintf("'00000000-0000-0000-0000-%012d'", n) }, "00000000-0000-0000-0000-000000000049", "00000000-0000-0000-0000-000000000051"},
				"dates": {`'date'`, `a date`, `a`, func(n int) string { return fmt.Sprintf("'2026-%02d-%02d'", 1+n/28, 1+n%28) }, "2026-02-21", "2026-02-23"},
				"pairs": {`ARRAY['text', 'bigint']`, `a text, b bigint`, `a, b`, func(n int) string { return fmt.Sprintf("'eu', %d", n) }, "eu,49", "eu,51"},
			} {
				c.exec(fmt.Sprintf(`SELECT cleave.create_keyspace('%s', 'range', %s)`, name, k.types),
					fmt.Sprintf(`CREATE TABLE t_%s (%s, PRIMARY KEY (%s)) WITH (cleave.shard_key = '%s', cleave.keyspace = '%s')`, name, k.columns, k.key, k.key, name))
				var rows []string
				for n := range 100 {
					rows = append(rows, "("+k.value(n)+")")
				}
				c.exec(fmt.Sprintf(`INSERT INTO t_%s VALUES %s`, name, strings.Join(rows, ", ")))
				res, err := c.rooms.Ops.Split(ctx, admin.SplitRequest{Keyspace: name, Range: ":"})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				c.await(res.Workflow.ID, "done")
				ix, _ := c.rooms.Executor.Snapshot().Keyspace(name)
				at := strings.Join(ix.Def().Ranges[1].Low, ",")
				if len(ix.Def().Ranges) != 2 || at < k.low || at > k.high || (name == "ints" || name == "pairs") && len(at) != len(k.low) {
					t.Errorf("%s was cut at %s, not between %s and %s", name, at, k.low, k.high)
				}
				if n := c.number(`SELECT count(*) FROM t_` + name); n != 100 {
					t.Errorf("%s: %d rows", name, n)
				}
			}
			c.plans()
			// One key with most of the rows: the bound is after it, and one key alone cannot be cut.
			c.exec(`SELECT cleave.create_keyspace('heavy', 'range', 'bigint')`,
				`CREATE TABLE heavy (a bigint, n int, PRIMARY KEY (a, n)) WITH (cleave.shard_key = 'a', cleave.keyspace = 'heavy')`)
			_, err := c.rooms.Ops.Split(ctx, admin.SplitRequest{Keyspace: "heavy", Range: ":"})
			if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
				t.Errorf("no rows: %v", err)
			}
			c.exec(`INSERT INTO heavy VALUES (1, 1), (1, 2), (1, 3), (1, 4)`)
			if _, err := c.rooms.Ops.Split(ctx, admin.SplitRequest{Keyspace: "heavy", Range: ":"}); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !strings.Contains(err.Error(), "one key") {
				t.Errorf("one key: %v", err)
			}
			c.exec(`INSERT INTO heavy VALUES (9, 1)`)
			res, err := c.rooms.Ops.Split(ctx, admin.SplitRequest{Meta: admin.Meta{DryRun: true}, Keyspace: "heavy", Range: ":", Half: "rows"})
			if err != nil || !strings.Contains(res.Plan[0], " at 9;") {
				t.Errorf("%v, %+v", err, res)
			}
			// By rows and by load in a hash keyspace: tenant 7 has nearly all of both.
			c.exec(`SELECT cleave.create_keyspace('bank', 'hash', 'bigint', ranges => 1)`,
				`CREATE TABLE account (tenant bigint, balance int, id int, PRIMARY KEY (tenant, id)) WITH (cleave.shard_key = 'tenant', cleave.keyspace = 'bank')`)
			var rows []string
			for n := range 300 {
				tenant := 7
				if n%6 == 0 {
					tenant = n / 6
				}
				rows = append(rows, fmt.Sprintf("(%d, 1, %d)", tenant, n))
			}
			c.exec(`INSERT INTO account VALUES ` + strings.Join(rows, ", "))
			hot := keyspace.HashKey(keyspace.DefaultSeed, keyspace.Key{keyspace.Int(keyspace.Int8, 7)})
			bound := func(half string) string {
				res, err := c.rooms.Ops.Split(ctx, admin.SplitRequest{Meta: admin.Meta{DryRun: true}, Keyspace: "bank", Range: ":", Half: half})
				if err != nil {
					t.Fatalf("%s: %v", half, err)
				}
				_, text, _ := strings.Cut(res.Plan[0], " at ")
				text, _, _ = strings.Cut(text, ";")
				return text
			}
			if at := bound("rows"); at != fmt.Sprint(hot) {
				t.Errorf("by rows at %s, tenant 7 is at %d", at, hot)
			}
			if at := bound(""); at != "-1" && at != "0" {
				t.Errorf("by positions at %s", at)
			}
			end := c.hammer(7)
			c.until("the load is known", func() bool {
				h, err := c.rooms.Ops.Heat(ctx, admin.HeatRequest{Keyspace: "bank"})
				return err == nil && len(h.Ranges) == 1 && len(h.Keys) > 0 && h.Keys[0].Key[0] == "7" && h.Keys[0].Share > 0.6
			})
			if at := bound("load"); at != fmt.Sprint(hot) && at != fmt.Sprint(hot+1) {
				t.Errorf("by load at %s, tenant 7 is at %d", at, hot)
			}
			end()
		})
	}
}

// plans has plans cut the ranges of the range keyspaces that there are into small ones, and merge them again.
func (c *target) plans() {
	c.t.Helper()
	ctx := context.Background()
	ranges := func() map[string]int {
		out := map[string]int{}
		for _, k := range c.rooms.Executor.Snapshot().State().Keyspaces {
			out[k.Name] = len(k.Ranges)
		}
		return out
	}
	before := c.rooms.Executor.Snapshot().Version()
	plan := func(req admin.PlanRequest, steps bool) {
		c.t.Helper()
		req.Approve = true
		if _, err := c.rooms.Ops.Plan(ctx, req); err != nil {
			c.t.Fatal(err)
		}
		if w := c.await(req.ID, "done"); w.Steps > 0 != steps {
			c.t.Errorf("plan %s has %d steps", req.ID, w.Steps)
		}
	}
	plan(admin.PlanRequest{ID: "cut", SplitBytes: 90}, true)
	for name, n := range ranges() {
		if n < 4 || n > 100 {
			c.t.Errorf("%s has %d ranges", name, n)
		}
		if n := c.number(`SELECT count(*) FROM t_` + name); n != 100 {
			c.t.Errorf("%s: %d rows", name, n)
		}
	}
	if n := c.rooms.Executor.Snapshot().Version() - before; n > 1 {
		c.t.Errorf("the map was changed %d times", n)
	}
	plan(admin.PlanRequest{ID: "rest", SplitBytes: 90}, false)
	plan(admin.PlanRequest{ID: "merge", MergeBytes: 1 << 30, MergeLoad: 1e9}, true)
	for name, n := range ranges() {
		if n != 1 {
			c.t.Errorf("%s has %d ranges", name, n)
		}
	}
	c.clean()
}
