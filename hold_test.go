package cleave_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/sqlitedir"
)

// TestHeldKeys: while a key of a SQLite cluster is held, sessions, ForKey and Owners
// that need it wait, at most as long as they may; other keys are free.
func TestHeldKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c, url := fresh(t, "3")
	run(t, c.DB(), createOrders)
	run(t, c.DB(), "INSERT INTO orders VALUES (7, 1, 'tea')")
	dir, err := sqlitedir.Open(filepath.Join(strings.TrimPrefix(url, "file:"), "directory.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	change := func(edit func(*shardmap.State)) uint64 {
		t.Helper()
		snap, err := dir.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next := snap.State().Clone()
		edit(&next)
		if snap, err = dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Op: "move", Transit: "m7"}, next); err != nil {
			t.Fatal(err)
		}
		waitfor.True(t, "the client knows the map", func() bool { return c.Snapshot().Version() >= snap.Version() })
		return snap.Version()
	}
	owner, err := c.ForKey(ctx, "hash_bigint", 7)
	if err != nil {
		t.Fatal(err)
	}
	transit := shardmap.Transit{ID: "m7", Part: shardmap.Part{Key: []string{"7"}}, From: owner.Shard(), To: another(c, owner.Shard()), Hold: shardmap.HoldNew}
	tx, err := owner.DB().Begin() // it used the owner before
	if err != nil {
		t.Fatal(err)
	}
	var note string
	if err := tx.QueryRow("SELECT note FROM orders WHERE tenant_id = 7").Scan(&note); err != nil {
		t.Fatal(err)
	}
	held := change(func(s *shardmap.State) { s.PutTransit("hash_bigint", transit) })
	acknowledged := func() bool {
		all, err := dir.Members(ctx)
		return err == nil && len(all) == 1 && all[0].Acknowledged >= held
	}
	time.Sleep(100 * time.Millisecond)
	if acknowledged() {
		t.Error("the hold is acknowledged while a transaction is open on the owner")
	}
	if err := tx.QueryRow("SELECT note FROM orders WHERE tenant_id = 7").Scan(&note); err != nil {
		t.Errorf("a transaction that used the owner before: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	waitfor.True(t, "the map is acknowledged", acknowledged)

	other := keyOf(t, c, another(c, owner.Shard()))
	run(t, c.DB(), "INSERT INTO orders VALUES ($1, 1, 'x')", other)
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	if _, err := c.ForKey(short, "hash_bigint", 7); codeOf(err) != "40001" {
		t.Errorf("ForKey of a held key: %v", err)
	}
	stop()
	conn, err := c.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "SET cleave.hold_timeout = '100ms'"); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"UPDATE orders SET note = 'x' WHERE tenant_id = 7", "SELECT count(*) FROM orders", "TRUNCATE orders"} {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); codeOf(err) != "40001" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	waits := map[string]func() error{
		"ForKey":  func() error { _, err := c.ForKey(ctx, "hash_bigint", 7); return err },
		"session": func() error { _, err := c.DB().Exec("UPDATE orders SET note = 'ink' WHERE tenant_id = 7"); return err },
		"several": func() error { _, err := c.DB().Exec("SELECT count(*) FROM orders"); return err },
		"Owner":   func() error { _, err := owner.Pool().Exec(ctx, "SELECT * FROM orders WHERE tenant_id = 7"); return err },
	}
	done := make(chan string, len(waits))
	for name, do := range waits {
		go func() {
			if err := do(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			done <- name
		}()
	}
	select {
	case name := <-done:
		t.Errorf("%s did not wait", name)
	case <-time.After(300 * time.Millisecond):
	}
	change(func(s *shardmap.State) { s.DropTransit("hash_bigint", "m7") })
	for range waits {
		select {
		case <-done:
		case <-time.After(waitfor.Max):
			t.Fatal("something waits although nothing is held")
		}
	}
	if err := c.DB().QueryRow("SELECT note FROM orders WHERE tenant_id = 7").Scan(&note); err != nil || note != "ink" {
		t.Errorf("%s, %v", note, err)
	}
}
