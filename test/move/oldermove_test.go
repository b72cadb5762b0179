package move

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

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

// TestOlderDirectoryOfAMove puts the directory back, after each stage of a move, to what it was in each stage before it. Nothing that was
// acknowledged is lost, neither by the move that the old directory still has at work nor by the remedy; and reads are right or refused.
func TestOlderDirectoryOfAMove(t *testing.T) {
	testrun.Long(t, "a directory is put back in the middle of moves, which are begun again")
	folder := t.TempDir()
	files := []string{"directory.db", "s0.db", "s1.db"}
	at := func(stage, file string) string { return filepath.Join(folder, stage+" "+file) }
	path := filepath.Join(folder, files[0])
	keep := func(stage string) {
		for _, file := range files {
			copyDirectory(t, filepath.Join(folder, file), at(stage, file))
		}
	}
	acked := map[string]int{} // stage -> rows of bulk
	for i, stage := range stages {
		t.Run(stage, func(t *testing.T) {
			if i == 0 {
				var shards []admin.BootstrapShard
				for _, name := range []string{"s0", "s1"} {
					shards = append(shards, admin.BootstrapShard{Name: name, URL: "file:" + filepath.Join(folder, name+".db")})
				}
				startWith(t, path, "test", shards).bank(stageRows)
				return
			}
			join(t, path, "test").reach(i)
		})
		keep(stage)
		acked[stage] = stageRows + i*stageMore
	}
	for i, old := range stages {
		for _, now := range stages[i+1:] {
			for _, rebuild := range []bool{false, true} {
				t.Run(old+" after "+now+map[bool]string{true: ", rebuilt"}[rebuild], func(t *testing.T) {
					for _, file := range files {
						from := at(now, file)
						if file == files[0] {
							from = at(old, file)
						}
						copyDirectory(t, from, filepath.Join(folder, file))
					}
					putBack(t, path, old, now, acked[now], rebuild)
				})
			}
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
func putBack(t *testing.T, path, old, now string, rows int, rebuild bool) {
	same := old == "before" && now == "copying" || old == "opened" && now == "done" // nothing has changed hands since
	differs := !same && (now != "moved back" || old != "before")                    // the part has another owner now
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
	if is := newer(); is == same {
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
	found, err := c.rooms.Ops.Doctor(ctx, admin.DoctorRequest{Repair: true, SetBack: !rebuild, RebuildMap: rebuild})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Level == admin.LevelError && !strings.HasPrefix(f.Next, "cleave verify") {
			t.Errorf("doctor --repair: %+v", f)
		}
	}
	for _, w := range moves {
		if w.Ended || rebuild {
			continue
		}
		c.await(w.ID, "opened", "failed", "done", "cancelled")
		if w, err := c.rooms.Ops.Moves(ctx, w.ID); err != nil {
			t.Fatal(err)
		} else if w[0].Step == "opened" {
			c.finish(w[0].ID)
		}
	}
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
	c.await(c.move(admin.MoveRequest{ID: "again", Keyspace: "bank", Range: ":0", To: to, MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
	if n, err := read(); err != nil || n != rows {
		t.Errorf("%d rows of %d after the next move: %v", n, rows, err)
	}
}
