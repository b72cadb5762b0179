package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
)

// away is a directory that can go away.
type away struct {
	shardmap.Directory
	gone atomic.Bool
}

var errAway = errors.New("the directory is away")

func (d *away) Members(ctx context.Context) ([]shardmap.MemberState, error) {
	if d.gone.Load() {
		return nil, errAway
	}
	return d.Directory.Members(ctx)
}

func (d *away) History(ctx context.Context, after uint64, limit int) ([]shardmap.Entry, error) {
	if d.gone.Load() {
		return nil, errAway
	}
	return d.Directory.History(ctx, after, limit)
}

// TestVirtualWithoutDirectory: when the directory is away and the lease has run
// out, the schema cleave still shows what this router knows by itself.
func TestVirtualWithoutDirectory(t *testing.T) {
	dir := &away{Directory: memory.New()}
	t.Cleanup(func() { _ = dir.Close() })
	var req admin.BootstrapRequest
	var urls []string
	for i := range 2 {
		urls = append(urls, pgtest.Database(t))
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: fmt.Sprintf("shard-%d", i), URL: urls[i]})
	}
	boot := admin.New(admin.Options{Directory: dir, Drivers: []engine.Driver{postgres.Driver{}}})
	if _, err := boot.Bootstrap(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := boot.Close(); err != nil {
		t.Fatal(err)
	}
	lease := shardmap.NewLease(nil)
	lease.Extend(time.Now(), time.Hour)
	cl := start(t, config{dir: dir, urls: urls, lease: lease})
	c := cl.connect(t)
	if n := one[int](t, c, "SELECT count(*) FROM cleave.history"); n == 0 {
		t.Error("no history")
	}
	// In one unit each statement has the rows of the tables that it names.
	results, err := c.PgConn().Exec(t.Context(), "SELECT count(*) FROM cleave.shards; SELECT count(*) > 0 FROM cleave.history; SELECT count(*) FROM cleave.shards").ReadAll()
	if err != nil || len(results) != 3 || string(results[1].Rows[0][0]) != "t" || string(results[2].Rows[0][0]) != "2" {
		t.Errorf("several in one text: %v, %v", results, err)
	}
	p := c.PgConn().StartPipeline(t.Context())
	p.SendQueryParams("SELECT count(*) FROM cleave.shards", nil, nil, nil, nil)
	p.SendQueryParams("SELECT count(*) > 0 FROM cleave.history", nil, nil, nil, nil)
	if err := p.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2", "t"} {
		res, err := p.GetResults()
		if err != nil {
			t.Fatal(err)
		}
		rr, ok := res.(*pgconn.ResultReader)
		if !ok {
			t.Fatalf("a %T", res)
		}
		if got := rr.Read(); got.Err != nil || len(got.Rows) != 1 || string(got.Rows[0][0]) != want {
			t.Errorf("in a pipeline: %v, want %s", got, want)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	dir.gone.Store(true)
	lease.End()
	for _, table := range []string{"shards", "endpoints", "sessions", "keyspaces", "ranges", "tables", "pins", "transits"} {
		if got := code(c, "SELECT * FROM cleave."+table); got != "" {
			t.Errorf("cleave.%s without the directory: SQLSTATE %s", table, got)
		}
	}
	for _, table := range []string{"routers", "HISTORY"} {
		wantCode(t, c, "57P03", "SELECT * FROM cleave."+table)
	}
}
