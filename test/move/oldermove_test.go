package move

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

// stages are the states of a directory and its shards, one after the other, that a test keeps: a move is at work in some.
var stages = []string{"before", "copying", "opened", "done", "moved back"}

// stageRows are the rows of bulk at first, stageMore those that each stage adds.
const stageRows, stageMore = 400, 40

// reach goes on from one stage to the next, stages[i].
func (c *target) reach(i int) {
	c.t.Helper()
	switch stages[i] {
	case "copying":
		c.move(admin.MoveRequest{ID: "first", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "1h", RowsPerSecond: 40}})
		c.await("first", "copying")
		c.eventually("rows are on s1", func() bool { return c.onShard("s1", `SELECT count(*) FROM account`) != "0" })
	case "opened":
		c.await("first", "opened")
	case "done":
		c.finish("first")
	case "moved back":
		c.await(c.move(admin.MoveRequest{ID: "home", Keyspace: "bank", Range: ":0", To: "s0", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
	}
	for n := range stageMore {
		c.exec(fmt.Sprintf(`INSERT INTO bulk VALUES (%d, %d, '%s')`, n%tenants, 1000*i+n, stages[i]))
	}
}

// TestOlderDirectoryOfAPostgresMove does so with PostgreSQL shards, whose captures are slots and whose guards are triggers: each pair of stages
// with databases of its own, which cannot be put back as files can.
func TestOlderDirectoryOfAPostgresMove(t *testing.T) {
	testrun.Long(t, "a directory is put back in the middle of a move, and the move begun again")
	for i, old := range stages {
		for n, now := range stages[i+1:] {
			rebuild := (i+n)%2 == 1
			t.Run(old+" after "+now+map[bool]string{true: ", rebuilt"}[rebuild], func(t *testing.T) {
				t.Parallel() // it mostly waits for a bounded copy
				folder := t.TempDir()
				path, kept := filepath.Join(folder, "directory.db"), filepath.Join(folder, "kept.db")
				shards := []admin.BootstrapShard{{Name: "s0", URL: pgtest.Database(t)}, {Name: "s1", URL: pgtest.Database(t)}}
				last := i + 1 + n
				for at := 0; at <= last; at++ {
					t.Run(stages[at], func(t *testing.T) {
						if at == 0 {
							startWith(t, path, "test", shards).bank(stageRows)
							return
						}
						join(t, path, "test").reach(at)
					})
					if at == i {
						copyDirectory(t, path, kept)
					}
				}
				copyDirectory(t, kept, path)
				putBack(t, path, old, now, stageRows+last*stageMore, rebuild)
			})
		}
	}
}

// finish completes a move.
func (c *target) finish(id string) {
	c.t.Helper()
	if _, err := c.rooms.Ops.Complete(context.Background(), admin.WorkflowRequest{ID: id}); err != nil {
		c.t.Fatal(err)
	}
	c.await(id, "done")
}

// putBack goes the way that doctor names, and looks for all rows. rebuild: the map is made from the guards, not the guards from the map.
// old and now are stages; "": what doctor has to find is not known.
func putBack(t *testing.T, path, old, now string, rows int, rebuild bool) {
	known := old != ""
	same := known && (old == "before" && now == "copying" || old == "opened" && now == "done") // nothing has changed hands since
	differs := known && !same && (now != "moved back" || old != "before")                      // the part has another owner now
	ctx := context.Background()
	c := join(t, path, "test")
	c.rooms.Recover(ctx) // as a router that starts does
	// Whatever the old directory has at work goes on meanwhile.
	moves, err := c.rooms.Ops.Moves(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	newer := func() bool {
		found, err := c.rooms.Ops.Doctor(ctx, admin.DoctorRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Newer {
				return true
			}
		}
		return false
	}
	conn := c.connect()
	read := func() (n int, err error) {
		err = conn.QueryRow(ctx, `SELECT count(*) FROM bulk`).Scan(&n)
		return n, err
	}
	if is := newer(); known && is == same {
		t.Errorf("doctor finds a newer guard: %t", is)
	}
	if n, err := read(); err == nil && n != rows || err != nil && same {
		t.Errorf("%d rows of %d are read: %v", n, rows, err)
	}
	before, err := c.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := c.rooms.Ops.Doctor(ctx, admin.DoctorRequest{RebuildMap: true}); err != nil || differs && found[len(found)-1].Level == admin.LevelOK {
		t.Errorf("how the map differs: %+v %v", found, err)
	}
	if is, err := c.dir.Load(ctx); err != nil || is.Version() != before.Version() && len(moves) == 0 {
		t.Errorf("doctor without --repair has changed the map: %v", err)
	}
	c.repair(rebuild)
	c.finishAll()
	if _, err := c.rooms.Ops.Verify(ctx, admin.VerifyRequest{Repair: true}); err != nil {
		t.Fatal(err)
	}
	c.eventually("statements are answered", func() bool { _, err := read(); return err == nil })
	if n, _ := read(); n != rows {
		t.Errorf("%d rows of %d after the remedy", n, rows)
	}
	// Each where its key is looked for.
	for tenant := range tenants {
		want := c.number(fmt.Sprintf(`SELECT count(*) FROM bulk WHERE tenant + 0 = %d`, tenant))
		if n := c.number(fmt.Sprintf(`SELECT count(*) FROM bulk WHERE tenant = %d`, tenant)); n != want || n == 0 {
			t.Errorf("tenant %d has %d rows, not %d", tenant, n, want)
		}
	}
	if newer() {
		t.Error("doctor still finds a newer guard")
	}
	// And the part can be moved: the tokens of leaders are above those that shards knew.
	snap, err := c.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	to := "s1"
	if own := snap.Ownership("bank", "s1"); len(own.Intervals) > 0 {
		to = "s0"
	}
	again := admin.MoveRequest{ID: "again", Keyspace: "bank", Range: ":0", To: to, MoveOptions: admin.MoveOptions{Keep: "0"}}
	if w := c.await(c.move(again), "done", "failed"); w.Step == "failed" {
		// What the lost map's leader had under way has come after the verification.
		if !strings.HasSuffix(w.Error, "cleave verify --repair") {
			t.Fatal(w.Error)
		}
		if _, err := c.rooms.Ops.Verify(ctx, admin.VerifyRequest{Repair: true}); err != nil {
			t.Fatal(err)
		}
		again.ID = "once-again"
		c.await(c.move(again), "done")
	}
	c.eventually("statements are answered after the next move", func() bool { _, err := read(); return err == nil })
	if n, err := read(); err != nil || n != rows {
		t.Errorf("%d rows of %d after the next move: %v", n, rows, err)
	}
}

// repair makes map and guards agree. A map cannot be made from guards while a move is at them; if the cluster stopped where no shard let a
// part through, never.
func (c *target) repair(rebuild bool) {
	c.t.Helper()
	ask := func(req admin.DoctorRequest) (errs []admin.Finding) {
		found, err := c.rooms.Ops.Doctor(context.Background(), req)
		if err != nil {
			c.t.Fatal(err)
		}
		return slices.DeleteFunc(found, func(f admin.Finding) bool {
			return f.Level != admin.LevelError || strings.HasPrefix(f.Next, "cleave verify")
		})
	}
	for range 5 {
		if errs := ask(admin.DoctorRequest{Repair: true, SetBack: !rebuild, RebuildMap: rebuild}); len(errs) == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	ask(admin.DoctorRequest{Repair: true, SetBack: true}) // which finds what it mends
	if errs := ask(admin.DoctorRequest{Repair: true, SetBack: true}); len(errs) > 0 {
		c.t.Fatalf("doctor --repair --set-back-guards: %+v", errs)
	}
}

// finishAll waits until no move is at work, and completes those that wait for that.
func (c *target) finishAll() {
	c.t.Helper()
	moves, err := c.rooms.Ops.Moves(context.Background(), "")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, w := range moves {
		if c.await(w.ID, "opened", "failed", "done", "cancelled", "rolled back").Step == "opened" {
			c.finish(w.ID)
		}
	}
}
