package move

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

// TestTheTargetsDiskIsFull: a move whose target has no room says so, doctor and the metric too; it can be cancelled while there is none
// (a file needs some for that), and goes on when there is some. Nothing is lost.
func TestTheTargetsDiskIsFull(t *testing.T) {
	testrun.Long(t, "file systems are filled until moves give up for a while, on both engines")
	const room, rows = 16 << 20, 8000
	t.Run("postgres", func(t *testing.T) {
		c := start(t, "postgres", "server")
		disk := pgtest.SmallDisk(t, room, c.servers[0].DataDir())
		pgtest.Ask(t, c.servers[0].SuperuserURL("bank"), fmt.Sprintf(`CREATE TABLESPACE tight LOCATION '%s'`, disk))
		c.bank(rows)
		pgtest.Ask(t, c.servers[0].SuperuserURL("bank"), `ALTER TABLE bulk SET TABLESPACE tight`)
		fullDisk(t, c, disk, room, rows, false)
	})
	t.Run("sqlite", func(t *testing.T) {
		disk := pgtest.SmallDisk(t, room, t.TempDir())
		c := startNamed(t, "test", admin.BootstrapShard{Name: "s0", URL: "file:" + filepath.Join(t.TempDir(), "s0.db")}, admin.BootstrapShard{Name: "s1", URL: "file:" + filepath.Join(disk, "s1.db")})
		c.bank(rows)
		fullDisk(t, c, disk, room, rows, true)
	})
}

func fullDisk(t *testing.T, c *target, disk string, room int64, rows int, file bool) {
	ctx := context.Background()
	c.exec(`UPDATE bulk SET body = repeat('0123456789', 100)`) // 1,000 bytes each, of which half goes
	filler := filepath.Join(disk, "filler")
	fill := func() {
		t.Helper()
		free := room - 2<<20
		for _, name := range []string{"s1.db", "s1.db-wal", "s1.db-shm"} {
			if st, err := os.Stat(filepath.Join(disk, name)); err == nil {
				free -= st.Size()
			}
		}
		if err := os.WriteFile(filler, make([]byte, free), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// stands waits until the move says that it does not get further, and everybody else does too.
	stands := func(id string) {
		t.Helper()
		c.eventually("the move says why", func() bool {
			list, err := c.rooms.Ops.Moves(ctx, id)
			if err != nil || list[0].Ended {
				t.Fatal(list, err)
			}
			text := strings.ToLower(list[0].Error)
			return list[0].Step == "copying" && strings.Contains(text, "shard s1") && (strings.Contains(text, "no space left on device") || strings.Contains(text, "full"))
		})
		c.eventually("doctor says so", func() bool {
			found, err := c.rooms.Ops.Doctor(ctx, admin.DoctorRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if f.Level != admin.LevelOK && strings.Contains(f.What, "move "+id+" has not got further") && strings.Contains(f.Next, "cleave moves "+id) {
					return true
				}
			}
			return false
		})
		c.eventually("the metric does", func() bool { return c.rooms.Coordinator.Stuck() > 0 })
	}
	whole := func(lower string) {
		t.Helper()
		if n := c.number(`SELECT count(*) FROM bulk WHERE length(body) = 1000`); n != int64(rows) {
			t.Errorf("%d rows", n)
		}
		if n := c.onShard("s1", `SELECT count(*) FROM bulk`); (n == "0") != (lower == "s0") {
			t.Errorf("s1 has %s rows", n)
		}
	}
	fill()
	c.move(admin.MoveRequest{ID: "full", Keyspace: "bank", Range: ":0", To: "s1"})
	stands("full")
	if _, err := c.rooms.Ops.Cancel(ctx, admin.WorkflowRequest{ID: "full"}); err != nil {
		t.Fatal(err)
	}
	if file { // to delete rows a file needs room for its log
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	c.await("full", "cancelled")
	whole("s0")
	if c.rooms.Coordinator.Stuck() != 0 {
		c.eventually("the metric is 0 again", func() bool { return c.rooms.Coordinator.Stuck() == 0 })
	}
	c.clean()
	if file {
		return
	}

	c.move(admin.MoveRequest{ID: "again", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}})
	stands("again")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	c.history(c.await("again", "done"))
	whole("s1")
	c.clean()
}
