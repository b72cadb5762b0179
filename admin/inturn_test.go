package admin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/shardmap"
)

// TestInTurn: what many want at once is read once at a time, nobody gets what was read before the call, and who leaves harms no other.
func TestInTurn(t *testing.T) {
	var turn inTurn[int64]
	var reads, under atomic.Int64
	gate := make(chan struct{})
	read := func(ctx context.Context) (int64, error) {
		if under.Add(1) != 1 {
			t.Error("two are read at once")
		}
		defer under.Add(-1)
		n := reads.Add(1)
		select {
		case <-gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		return n, nil
	}
	var all sync.WaitGroup
	first, leave := context.WithCancel(t.Context())
	all.Go(func() {
		if _, err := turn.do(first, read); !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
	})
	waitfor.True(t, "the first is read", func() bool { return reads.Load() == 1 })
	for range 50 {
		all.Go(func() {
			if n, err := turn.do(t.Context(), read); err != nil || n < 2 {
				t.Errorf("reading %d, %v", n, err)
			}
		})
	}
	leave()
	waitfor.True(t, "the second is read", func() bool { return reads.Load() == 2 })
	close(gate)
	all.Wait()
}

// TestKeyspacesOfShardsInService: a new keyspace has no range on a shard that is not in service, and naming one is refused.
func TestKeyspacesOfShardsInService(t *testing.T) {
	c := newCluster(t, 3)
	ctx := context.Background()
	set := func(name, state string) {
		t.Helper()
		if _, err := c.ops.SetShard(ctx, SetShardRequest{Meta: meta, Name: name, State: state}); err != nil {
			t.Fatal(err)
		}
	}
	set("shard-1", "read-only")
	set("shard-2", "out-of-service")
	two := []string{"bigint"}
	for _, req := range []CreateKeyspaceRequest{
		{Name: "h", Strategy: "hash", KeyTypes: two}, {Name: "r", Strategy: "range", KeyTypes: two, Bounds: [][]string{{"1"}, {"2"}}},
		{Name: "l", Strategy: "list", KeyTypes: two, Values: []ListedValue{{Key: []string{"1"}}, {Key: []string{"2"}}}},
	} {
		req.Meta = meta
		if _, err := c.ops.CreateKeyspace(ctx, req); err != nil {
			t.Fatal(err)
		}
		ix, _ := c.snap().Keyspace(req.Name)
		def := ix.Def()
		for _, r := range def.Ranges {
			if r.Shard != "shard-0" {
				t.Errorf("%s: a range is on %s", req.Name, r.Shard)
			}
		}
		for _, v := range def.Values {
			if v.Shard != "shard-0" {
				t.Errorf("%s: a value is on %s", req.Name, v.Shard)
			}
		}
	}
	for _, req := range []CreateKeyspaceRequest{
		{Name: "no", Strategy: "hash", KeyTypes: two, Shards: []string{"shard-0", "shard-1"}},
		{Name: "no", Strategy: "list", KeyTypes: two, Values: []ListedValue{{Key: []string{"1"}, Shard: "shard-2"}}},
	} {
		req.Meta = meta
		_, err := c.ops.CreateKeyspace(ctx, req)
		code(t, err, "55000")
	}
	set("shard-0", "read-only")
	_, err := c.ops.CreateKeyspace(ctx, CreateKeyspaceRequest{Meta: meta, Name: "no", Strategy: "hash", KeyTypes: two})
	code(t, err, "55000")
	if len(c.snap().OpenShards("no")) != 0 {
		t.Error("a shard is open")
	}
}

// TestUnreadFunctions: what another version has read is a warning of doctor, and what was never read is none.
func TestUnreadFunctions(t *testing.T) {
	for _, c := range []struct {
		read, known, found int
	}{{0, 0, 0}, {semantics.FunctionRules, 1, 0}, {0, 1, 1}, {semantics.FunctionRules - 1, 0, 1}, {semantics.FunctionRules + 1, 1, 1}} {
		st := shardmap.State{Format: shardmap.Format, Cluster: "c", DefaultShard: "s", Shards: []shardmap.Shard{{Name: "s", Engine: "sqlite", URL: "sqlite:x", Weight: 1}}, FunctionsRead: c.read, Functions: []shardmap.Function{{Schema: "public", Name: "f", Kind: "p"}}[:c.known]}
		snap, err := shardmap.NewSnapshot(st)
		if err != nil {
			t.Fatal(err)
		}
		if got := unreadFunctions(snap); len(got) != c.found {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestAdviceOnUnreadFunctions: what doctor advises has the functions read again, on either engine, and changes nothing else.
func TestAdviceOnUnreadFunctions(t *testing.T) {
	for _, e := range []string{"sqlite", "postgres"} {
		t.Run(e, func(t *testing.T) {
			c := newMixedCluster(t, e)
			c.ddl("CREATE SCHEMA IF NOT EXISTS public")
			found := func() []Finding {
				all, err := c.ops.Doctor(t.Context(), DoctorRequest{})
				if err != nil {
					t.Fatal(err)
				}
				return slices.DeleteFunc(all, func(f Finding) bool { return !strings.Contains(f.What, "another version") })
			}
			if got := found(); len(got) > 0 {
				t.Fatalf("before: %+v", got)
			}
			before := *c.snap().State()
			other := before
			other.FunctionsRead = semantics.FunctionRules - 1
			if _, err := c.dir.Update(t.Context(), shardmap.Change{By: "test", Why: "test", Op: "test", Expect: other.Version}, other); err != nil {
				t.Fatal(err)
			}
			got := found()
			if len(got) != 1 || strings.Contains(got[0].What, "refused") {
				t.Fatalf("of another version: %+v", got)
			}
			_, sql, _ := strings.Cut(got[0].Next, `"`)
			c.ddl(strings.TrimSuffix(sql, `"`))
			if got := found(); len(got) > 0 {
				t.Errorf("after %s: %+v", sql, got)
			}
			if now := c.snap().State(); now.FunctionsRead != before.FunctionsRead || len(now.Tables) != 0 {
				t.Errorf("the map is %+v", now)
			}
		})
	}
}
