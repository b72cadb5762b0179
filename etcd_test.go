package cleave_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/cleavedb/cleave"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestOpenEtcd: a cluster whose directory is in a real etcd, opened by two programs.
func TestOpenEtcd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := etcdtest.New(t, etcdtest.Options{}).URL()
	if c, err := cleave.Open(ctx, url); sqlstate.CodeOf(err) != sqlstate.ConfigFileError {
		t.Errorf("an empty directory: %v, %v", c, err)
	}
	dir, err := wiring.OpenDirectory(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	ops := wiring.NewOps(dir, "test", slog.New(slog.DiscardHandler))
	var req admin.BootstrapRequest
	for i := range 3 {
		name := fmt.Sprintf("shard-%d", i)
		req.Shards = append(req.Shards, admin.BootstrapShard{Name: name, URL: "file:" + filepath.Join(t.TempDir(), name+".db")})
	}
	if _, err := ops.Bootstrap(ctx, req); err != nil {
		t.Fatal(err)
	}
	_, _ = ops.Close(), dir.Close()

	a, b := open(t, url), open(t, url)
	run(t, a.DB(), createOrders)
	run(t, a.DB(), "INSERT INTO orders VALUES (7, 1, 'tea')")
	waitfor.True(t, "the other client knows the keyspace", func() bool { _, ok := b.Snapshot().Keyspace("hash_bigint"); return ok })
	var note string
	if err := b.DB().QueryRow("SELECT note FROM orders WHERE tenant_id = 7").Scan(&note); err != nil || note != "tea" {
		t.Errorf("%q, %v", note, err)
	}
	var clients int
	if err := b.DB().QueryRow("SELECT count(*) FROM cleave.routers WHERE role = 'client'").Scan(&clients); err != nil || clients != 2 {
		t.Errorf("%d clients, %v", clients, err)
	}
	// The owner's changes come from one program to the other, which acknowledges
	// them once its own statements by the older map are over.
	o, err := b.ForKey(ctx, "hash_bigint", 8)
	if err != nil {
		t.Fatal(err)
	}
	pin(t, a, "8", another(a, o.Shard()))
	<-o.Changed()
	if _, err := o.Pool().Exec(ctx, "SELECT 1"); codeOf(err) != "40001" {
		t.Errorf("a stale owner: %v", err)
	}
	waitfor.True(t, "all members know the newest map", func() bool {
		var lag int
		err := a.DB().QueryRow("SELECT max(lag) FROM cleave.routers").Scan(&lag)
		return err == nil && lag == 0
	})
}

// TestLostDirectory: a program that cannot reach the directory any more answers
// nothing, and goes on by itself.
func TestLostDirectory(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := etcdtest.New(t, etcdtest.Options{})
	url := server.URL()
	dir, err := wiring.OpenDirectory(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	ops := wiring.NewOps(dir, "test", slog.New(slog.DiscardHandler))
	if _, err := ops.Bootstrap(ctx, admin.BootstrapRequest{Shards: []admin.BootstrapShard{{Name: "shard-0", URL: "file:" + filepath.Join(t.TempDir(), "0.db")}}}); err != nil {
		t.Fatal(err)
	}
	_, _ = ops.Close(), dir.Close()
	c := open(t, url)
	run(t, c.DB(), createOrders)
	o, err := c.ForKey(ctx, "hash_bigint", 1)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := o.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	server.Pause(t, 0)
	server.Pause(t, 1)
	waitfor.True(t, "the lease has ended", func() bool { _, err := c.ForKey(ctx, "hash_bigint", 1); return codeOf(err) == "57P03" })
	if _, err := conn.Exec(ctx, "SELECT count(*) FROM orders"); codeOf(err) != "57P03" {
		t.Errorf("a direct connection: %v", err)
	}
	if _, err := c.DB().Exec("SELECT count(*) FROM orders WHERE tenant_id = 1"); codeOf(err) != "57P03" {
		t.Errorf("a session: %v", err)
	}
	server.Resume(t, 0)
	server.Resume(t, 1)
	waitfor.True(t, "there is a lease again", func() bool { _, err := c.ForKey(ctx, "hash_bigint", 1); return err == nil })
	if _, err := conn.Exec(ctx, "SELECT count(*) FROM orders"); err != nil {
		t.Errorf("the direct connection afterwards: %v", err)
	}
}
