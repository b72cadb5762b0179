package move

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/schema"
)

// TestOlderDirectory: a directory that is put back to what it was before a move sets no guard back by itself and deletes no
// rows; a person's decision and verify bring all rows to where the map finds them. Likewise if the map was changed since, until
// its version has passed the epochs of the guards.
func TestOlderDirectory(t *testing.T) {
	testrun.Long(t, "six clusters whose directories are put back, and verified; the epochs of guards are in engine/enginetest")
	for _, kind := range []string{"postgres", "postgres, cut before", "postgres, changed since", "sqlite", "sqlite, cut before", "sqlite, changed since"} {
		t.Run(kind, func(t *testing.T) {
			engine, what, _ := strings.Cut(kind, ", ")
			cut, changed := what == "cut before", what == "changed since"
			folder := t.TempDir()
			path, old := filepath.Join(folder, "directory.db"), filepath.Join(folder, "old.db")
			var shards []admin.BootstrapShard
			for _, name := range []string{"s0", "s1"} {
				url := "file:" + filepath.Join(folder, name+".db")
				if engine == "postgres" {
					url = pgtest.Database(t)
				}
				shards = append(shards, admin.BootstrapShard{Name: name, URL: url})
			}
			t.Run("before", func(t *testing.T) {
				c := startWith(t, path, "test", shards)
				c.bank(500)
				if cut { // the guard of what s0 keeps has then the same epoch before and after the move
					if _, err := c.rooms.Ops.Split(t.Context(), admin.SplitRequest{ID: "cut", Keyspace: "bank", At: []string{"0"}}); err != nil {
						t.Fatal(err)
					}
					c.await("cut", "done")
				}
			})
			copyDirectory(t, path, old)
			t.Run("move", func(t *testing.T) {
				c := join(t, path, "test")
				c.await(c.move(admin.MoveRequest{ID: "first", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
			})
			copyDirectory(t, old, path)
			if changed {
				t.Run("change", func(t *testing.T) { change(t, join(t, path, "test")) })
			}
			t.Run("older", func(t *testing.T) { older(t, join(t, path, "test")) })
		})
	}
}

// copyDirectory copies a directory's file that nobody has open.
func copyDirectory(t *testing.T, from, to string) {
	t.Helper()
	for _, end := range []string{"-wal", "-shm"} {
		for _, file := range []string{from, to} {
			if err := os.Remove(file + end); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// change changes the map until its version is above the epoch of every guard, and tries what would set guards by it.
func change(t *testing.T, c *target) {
	ctx := context.Background()
	for range 20 {
		snap, err := c.dir.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Fence(ctx, c.dir, "test", snap); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.rooms.Ops.Split(ctx, admin.SplitRequest{ID: "settles", Keyspace: "bank", At: []string{"1000"}}); err != nil {
		t.Fatal(err)
	}
	if w := c.await("settles", "failed"); !strings.Contains(w.Error, "that no version of the map has made") {
		t.Errorf("%q", w.Error)
	}
	if _, err := c.rooms.Ops.Pin(ctx, admin.PinRequest{Keyspace: "bank", Key: []string{"100000"}, Shard: "s1"}); err == nil || !strings.Contains(err.Error(), "that no version of the map has made") {
		t.Errorf("a pin: %v", err)
	}
}

func older(t *testing.T, c *target) {
	ctx := context.Background()
	const rows = `SELECT count(*) FROM bulk`
	there := c.onShard("s1", rows)
	if there == "0" {
		t.Fatal("the move has moved nothing")
	}
	doctor := func(req admin.DoctorRequest) (newer, setBack bool) {
		t.Helper()
		found, err := c.rooms.Ops.Doctor(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			newer = newer || f.Level == admin.LevelError && strings.Contains(f.What, "put back to an older state") && strings.Contains(f.Next, "--set-back-guards")
			setBack = setBack || f.Done == "set as the map says"
		}
		return newer, setBack
	}
	c.move(admin.MoveRequest{ID: "unsure", Keyspace: "bank", Range: ":0", To: "s1"})
	if w := c.await("unsure", "failed"); !strings.Contains(w.Error, "the directory was put back to an older state") {
		t.Errorf("%q", w.Error)
	}
	if n := c.onShard("s1", rows); n != there {
		t.Fatalf("%s rows instead of %s", n, there)
	}
	c.rooms.Recover(ctx) // as a router that starts does
	conn := c.connect()
	stopped := func() (refusals int) {
		for _, sql := range []string{rows, `SELECT * FROM bulk WHERE tenant = 1`, `UPDATE bulk SET body = 'y' WHERE tenant = 1`, `DELETE FROM bulk WHERE tenant = 1 AND n < 0`} {
			var refusal *pgconn.PgError
			if _, err := conn.Exec(ctx, sql); errors.As(err, &refusal) && refusal.Code == "55000" {
				refusals++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return refusals
	}
	if n := stopped(); n != 4 {
		t.Fatalf("%d of 4 statements are refused", n)
	}
	for _, req := range []admin.DoctorRequest{{}, {SetBack: true}, {Repair: true}, {}} {
		newer, setBack := doctor(req)
		if !newer || setBack {
			t.Fatalf("doctor %+v: newer %t, set back %t", req, newer, setBack)
		}
	}
	if _, setBack := doctor(admin.DoctorRequest{Repair: true, SetBack: true}); !setBack {
		t.Fatal("the guards are not set back")
	}
	c.eventually("the shards go on", func() bool { return stopped() == 0 })
	if _, err := c.rooms.Ops.Verify(ctx, admin.VerifyRequest{Repair: true}); err != nil {
		t.Fatal(err)
	}
	if n := c.number(rows); n != 500 {
		t.Errorf("%d rows", n)
	}
	if n := c.onShard("s1", rows); n == there {
		t.Errorf("%s rows are still on s1", n)
	}
	if newer, _ := doctor(admin.DoctorRequest{}); newer {
		t.Error("doctor still finds a newer guard")
	}
}

// TestMoveOntoRows: rows of the part that no move has copied to its target are not deleted there.
func TestMoveOntoRows(t *testing.T) {
	testrun.Long(t, "a directory is put back first, so that rows are left; TestVerifiedPieceByPiece finds one that should not be there")
	ctx := context.Background()
	urls := []string{pgtest.Database(t), pgtest.Database(t)}
	c := startNamed(t, "test", admin.BootstrapShard{Name: "s0", URL: urls[0]}, admin.BootstrapShard{Name: "s1", URL: urls[1]})
	c.bank(100)
	conn, err := pgx.Connect(ctx, pgtest.PastGuards(urls[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	// Their hashes lie on both sides of 0.
	for _, sql := range []string{"SET session_replication_role = replica", "INSERT INTO bulk SELECT g, 1, 'the only one' FROM generate_series(100, 140) AS g"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	c.move(admin.MoveRequest{ID: "onto", Keyspace: "bank", Range: ":0", To: "s1"})
	if w := c.await("onto", "failed"); !strings.Contains(w.Error, "which no move has copied there") {
		t.Errorf("%q", w.Error)
	}
	if n := c.onShard("s1", `SELECT count(*) FROM bulk`); n != "41" {
		t.Errorf("%s rows instead of 41", n)
	}
}
