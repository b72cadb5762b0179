package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestReplicaCommands makes a cluster of databases that exist and gives its
// shards replicas, by the commands alone.
func TestReplicaCommands(t *testing.T) {
	primary, stranger := pgtest.NewServer(t, nil), pgtest.NewServer(t, nil)
	first, second := pgtest.NewReplica(t, primary, "r1", nil), pgtest.NewReplica(t, primary, "r2", nil)
	directory := "file:" + filepath.Join(pgtest.Dir(t), "directory.db")
	for _, db := range []string{"a", "b"} {
		if err := primary.CreateDatabase(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []*localpg.Server{first, second} {
		waitfor.True(t, "the replicas have the databases", func() bool {
			return pgtest.Ask(t, r.URL("postgres"), "SELECT count(*) FROM pg_database WHERE datname IN ('a', 'b')") == "2"
		})
	}
	for _, bad := range [][]string{{"init", "--directory", directory}, {"init", "a=" + primary.URL("a")}, {"init", "--directory", directory, primary.URL("a")}} {
		if code, _, stderr := command(t, "", bad...); code != 2 || strings.Contains(stderr, "panic") {
			t.Errorf("%v: exit code %d, %s", bad, code, stderr)
		}
	}
	if code, out, stderr := command(t, "", "init", "--directory", directory, "a="+primary.URL("a")); code != 0 || !strings.Contains(out, "1 shard") {
		t.Fatalf("init: %d %s%s", code, out, stderr)
	}
	for _, s := range []*localpg.Server{first, second} {
		pgtest.Await(t, s.URL("postgres"), "SELECT count(*) FROM pg_database WHERE datname IN ('a', 'b')", "2")
		pgtest.Await(t, s.URL("a"), "SELECT count(*) FROM pg_tables WHERE schemaname = 'cleave_internal' AND tablename = 'shard'", "1")
	}
	if code, _, stderr := command(t, "", "init", "--directory", directory, "a="+primary.URL("a")); code == 0 || !strings.Contains(stderr, "already") {
		t.Errorf("a second init: %d %s", code, stderr)
	}
	r := start(t, "router", "--directory", directory)
	refused := func(want string, args ...string) {
		t.Helper()
		if code, _, stderr := r.cleave("", args...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	refused("does not exist", "shard", "replica", "add", "nope", first.URL("a"))
	refused("already", "shard", "replica", "add", "a", primary.URL("a"))
	refused("not been set up", "shard", "replica", "add", "a", first.URL("b"))
	refused("not been set up", "shard", "replica", "add", "a", stranger.URL("postgres"))
	refused("cannot be reached", "shard", "replica", "add", "a", "postgres://u:secret@127.0.0.1:1/a")
	refused("only server", "shard", "replica", "remove", "a", primary.URL("a"))
	// A copy by hand that bears the marks is a stranger all the same.
	pgtest.Ask(t, stranger.URL("postgres"), "CREATE SCHEMA cleave_internal; CREATE TABLE cleave_internal.shard (cluster text, name text, format int)")
	mark := pgtest.Ask(t, primary.URL("a"), "SELECT format('INSERT INTO cleave_internal.shard VALUES (%L, %L, %s)', cluster, name, format) FROM cleave_internal.shard")
	pgtest.Ask(t, stranger.URL("postgres"), mark)
	refused("not a copy", "shard", "replica", "add", "a", stranger.URL("postgres"))

	if out := r.ok("shard", "replica", "add", "a", first.URL("a"), "--dry-run"); !strings.Contains(out, "a replica on timeline 1") {
		t.Errorf("dry run: %s", out)
	}
	var before []admin.ShardInfo
	if r.into(&before, "shard", "list"); len(before[0].Endpoints) != 0 {
		t.Errorf("a dry run changed something: %+v", before)
	}
	r.ok("shard", "replica", "add", "a", first.URL("a"), "--why", "a test")
	r.ok("shard", "set", "a", "--url", first.URL("a")+"&connect_timeout=3")
	refused("none of its servers", "shard", "set", "a", "--url", second.URL("a"))
	r.ok("shard", "add", "b", primary.URL("b"), "--replica", first.URL("b"), "--replica", second.URL("b"))
	if err := stranger.CreateDatabase(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	refused("is not a replica of", "shard", "add", "c", stranger.URL("c"), "--replica", first.URL("postgres"))
	var shards []admin.ShardInfo
	r.into(&shards, "shard", "list")
	if len(shards) != 2 || len(shards[0].Endpoints) != 2 || len(shards[1].Endpoints) != 3 {
		t.Fatalf("%+v", shards)
	}
	for _, s := range shards {
		for i, e := range s.Endpoints {
			want := map[bool]string{true: "primary", false: "replica"}[i == 0]
			if e.Role != want || e.Serves != want || e.Health != "up" || e.Timeline != 1 || i > 0 && e.LagBytes == nil {
				t.Errorf("%s: %+v", s.Name, e)
			}
		}
	}
	if out := r.ok("shard", "list"); !strings.Contains(out, "  replica") || !strings.Contains(out, "bytes behind") {
		t.Errorf("the list: %s", out)
	}
	var served int
	for end := time.Now().Add(waitfor.Max); served != 5 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		served = one[int](t, r.session(), "SELECT count(*) FROM cleave.endpoints WHERE serves IS NOT NULL AND health = 'up'")
	}
	if served != 5 {
		t.Errorf("the router uses %d servers", served)
	}
	refused("is the primary", "shard", "replica", "remove", "a", primary.URL("a"))
	r.ok("shard", "replica", "remove", "b", second.URL("b"), "--dry-run")
	r.ok("shard", "replica", "remove", "b", second.URL("b"))
	r.ok("shard", "replica", "remove", "b", first.URL("b"))
	if out := r.ok("map", "diff"); !strings.Contains(out, "replica postgres://") {
		t.Errorf("the difference: %s", out)
	}
	r.ok("shard", "add", "c", stranger.URL("c"))
	execAll(t, r.session(), createOrders)
	tenant := 1
	for r.owner(tenant) != "a" {
		tenant++
	}
	// Failover: what was the first URL leaves the map.
	primary.Kill()
	// While there is no primary, the advice is to make one, and never to give up the server that is left.
	waitfor.True(t, "doctor finds no primary", func() bool {
		_, out, _ := r.cleave("", "doctor")
		if strings.Contains(out, "shard replica remove") {
			t.Errorf("doctor: %s", out)
		}
		return strings.Contains(out, "shard a has no server that is known to be its primary: it takes no writes") && strings.Contains(out, "start the shard's primary, or promote the replica that has replayed most (pg_promote)")
	})
	dry := []string{"move", "--keyspace", "hash_bigint", "--key", fmt.Sprint(tenant), "--to", "c", "--dry-run"}
	if _, out, _ := r.cleave("", dry...); !strings.Contains(out, "it would be refused now: shard a") {
		t.Errorf("a move from a shard without a primary: %s", out)
	}
	pgtest.Ask(t, first.SuperuserURL("a"), "SELECT pg_promote()")
	if _, out, _ := r.cleave("", "doctor"); !strings.Contains(out, "gets no statements") || !strings.Contains(out, "cleave shard replica remove a") {
		t.Errorf("doctor: %s", out)
	}
	// A dry run asks the server that is the primary now, while the first URL is still the dead one's.
	waitfor.True(t, "a move would not be refused", func() bool {
		code, out, _ := r.cleave("", dry...)
		return code == 0 && !strings.Contains(out, "refused")
	})
	r.ok("shard", "replica", "remove", "a", primary.URL("a"))
	execAll(t, r.session(), "CREATE TABLE after_failover (a int)")
	var after []admin.ShardInfo
	if r.into(&after, "shard", "list"); after[0].Health != "up" || len(after[0].Endpoints) != 0 {
		t.Errorf("%+v", after[0])
	}
}
