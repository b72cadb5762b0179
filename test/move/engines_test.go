package move

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
)

// TestMoveBetweenEngines: a SQLite file becomes a shard of a PostgreSQL cluster, gets all rows and gives
// them back, while clients are at work.
func TestMoveBetweenEngines(t *testing.T) {
	testrun.Short(t)
	c := start(t, "postgres")
	ctx := context.Background()
	c.bank(1000)
	ops := c.rooms.Ops
	c.exec(`CREATE TABLE gone (k bigint PRIMARY KEY, during int4range) WITH (cleave.shard_key = 'k', cleave.keyspace = 'bank')`,
		`CREATE INDEX gone_during ON gone USING gist (during)`)
	path := filepath.Join(t.TempDir(), "file.db")
	add := admin.AddShardRequest{Name: "s1", URL: "file:" + path}
	if _, err := ops.AddShard(ctx, add); err == nil {
		t.Fatal("a file took a table that SQLite cannot have")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
	// What is dropped is no shard's business any more.
	c.exec(`DROP TABLE gone`)
	if _, err := ops.AddShard(ctx, add); err != nil {
		t.Fatal(err)
	}
	l := c.workAt(3, 5*time.Millisecond)
	verify := func(owner string) {
		t.Helper()
		list, err := ops.Verify(ctx, admin.VerifyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			if v.Error != "" || v.Orphans != 0 || v.Shard != owner && v.Rows != 0 {
				t.Errorf("%+v", v)
			}
		}
	}
	for _, step := range []struct{ id, to, keep, at string }{{"there", "s1", "1h", "opened"}, {"stay", "s1", "0", "done"}, {"back", "s0", "0", "done"}} {
		c.history(c.await(c.move(admin.MoveRequest{ID: step.id, Keyspace: "bank", Range: ":", To: step.to, MoveOptions: admin.MoveOptions{Keep: step.keep}}), step.at))
		verify(step.to)
		if step.at == "opened" {
			if _, err := ops.Reverse(ctx, admin.WorkflowRequest{ID: step.id}); err != nil {
				t.Fatal(err)
			}
			c.await(step.id, "rolled back")
			verify("s0")
		}
	}
	l.end()
	if l.failed.Load() > 0 {
		t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
	}
	if n := c.number(`SELECT count(*) FROM bulk`); n != 1000 {
		t.Errorf("%d rows", n)
	}
	c.clean()
}
