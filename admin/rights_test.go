package admin

import (
	"context"
	"fmt"
	neturl "net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestInitNamesMissingRights: a first start with a role that is no superuser says what it lacks, each with the statement that grants it. What
// it then takes is enough for doctor and for distributing the role's own tables.
func TestInitNamesMissingRights(t *testing.T) {
	ctx := context.Background()
	super := func(url, sql string) { t.Helper(); pgtest.Ask(t, pgtest.Super(url), sql) }
	urls := []string{pgtest.Database(t), pgtest.Database(t)}
	super(urls[0], "CREATE ROLE plain LOGIN")
	t.Cleanup(func() {
		for _, url := range urls {
			super(url, "DROP OWNED BY plain, plain_mover")
		}
		super(urls[0], "DROP ROLE plain_mover, plain")
	})
	at := func(shard string) string { return urls[strings.Index("01", strings.TrimPrefix(shard, "shard-"))] }
	req := BootstrapRequest{Meta: meta}
	for i, url := range urls {
		super(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
		as, err := neturl.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		as.User = neturl.User("plain")
		req.Shards = append(req.Shards, BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: as.String()})
	}
	ops := New(Options{Directory: memory.New(), Drivers: []engine.Driver{postgres.Driver{}}, Software: "test"})
	t.Cleanup(func() { _ = ops.Close() })
	statement := regexp.MustCompile(`GRANT CREATE ON (DATABASE|SCHEMA) \S+ TO plain\b`)
	var res *BootstrapResult
	for granted := 0; ; granted++ {
		var err error
		if res, err = ops.Bootstrap(ctx, req); err == nil {
			break
		}
		e := sqlstate.As(err)
		grant := statement.FindString(e.Hint)
		if grant == "" || granted == len(urls) || e.Shard == "" {
			t.Fatalf("after %d grants: %v; hint: %s", granted, err, e.Hint)
		}
		super(at(e.Shard), grant)
	}
	// What only later steps need is a warning.
	for i, url := range urls {
		schema, mover := false, false
		for _, w := range res.Warnings {
			if strings.HasPrefix(w, fmt.Sprintf("shard shard-%d: ", i)) {
				schema = schema || strings.Contains(w, "(GRANT CREATE ON SCHEMA public TO plain)")
				mover = mover || strings.Contains(w, "(CREATE ROLE plain_mover LOGIN REPLICATION")
			}
		}
		if !schema || !mover {
			t.Errorf("shard-%d: %q", i, res.Warnings)
		}
		super(url, "GRANT CREATE ON SCHEMA public TO plain")
	}
	super(urls[0], `CREATE ROLE plain_mover LOGIN REPLICATION BYPASSRLS; GRANT plain, pg_read_all_stats TO plain_mover; DO $$ BEGIN
		IF current_setting('server_version_num')::int >= 150000 THEN EXECUTE 'GRANT SET ON PARAMETER session_replication_role, deadlock_timeout TO plain_mover'; ELSE ALTER ROLE plain_mover SUPERUSER; END IF; END $$`)
	c := &cluster{t: t, dir: ops.opts.Directory, ops: ops, urls: map[string]string{"shard-0": req.Shards[0].URL, "shard-1": req.Shards[1].URL}}
	// The leader would do this within a minute; doctor has the command for who has none.
	settled := func() {
		t.Helper()
		if _, err := ops.Doctor(ctx, DoctorRequest{Meta: meta, Repair: true}); err != nil {
			t.Fatal(err)
		}
		found, err := ops.Doctor(ctx, DoctorRequest{Meta: meta})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if _, sql, ok := strings.Cut(f.Next, "as a superuser: "); ok {
				super(at(f.Shard), sql)
			}
		}
		c.healthy()
	}
	settled()
	c.ddl("CREATE TABLE events (tenant bigint, v int)")
	if _, err := ops.Distribute(ctx, DistributeRequest{Meta: meta, Table: "events", ShardKey: []string{"tenant"}}); err != nil {
		t.Fatal(err)
	}
	settled()
}
