package move

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// toldOf is a directory whose changes of the map and of workflows are told, one after the other, before they are made.
type toldOf struct {
	shardmap.Directory
	records shardmap.Records // of a leader; nil: the directory's
	tell    func(what string)
}

func (d *toldOf) Update(ctx context.Context, change shardmap.Change, next shardmap.State) (*shardmap.Snapshot, error) {
	d.tell("map: " + change.Op)
	return d.Directory.Update(ctx, change, next)
}

func (d *toldOf) Fenced(token uint64) shardmap.Records {
	return &toldOf{Directory: d.Directory, records: d.Directory.Fenced(token), tell: d.tell}
}

func (d *toldOf) PutRecord(ctx context.Context, key string, value []byte, expect uint64) (uint64, error) {
	if id, ok := strings.CutPrefix(key, workflow.RecordPrefix); ok {
		if s, err := workflow.Decode(value); err == nil {
			d.tell(id + ": " + string(s.Step))
		}
	}
	if d.records != nil {
		return d.records.PutRecord(ctx, key, value, expect)
	}
	return d.Directory.PutRecord(ctx, key, value, expect)
}

func (d *toldOf) DeleteRecord(ctx context.Context, key string, expect uint64) error {
	if d.records != nil {
		return d.records.DeleteRecord(ctx, key, expect)
	}
	return d.Directory.DeleteRecord(ctx, key, expect)
}

// stepFiles are the files of a cluster on SQLite shards.
var stepFiles = []string{"directory.db", "s0.db", "s1.db"}

// steps are what a cluster's files were just before each change of the directory: what came before it is done.
type steps struct {
	folder string
	mu     sync.Mutex
	on     bool
	names  []string // what comes next
	acked  []int    // the rows of bulk
	rows   int
	err    error
	insert func() (int, error)
}

func (s *steps) live(file string) string { return filepath.Join(s.folder, file) }

func (s *steps) kept(i int, file string) string {
	return filepath.Join(s.folder, fmt.Sprintf("%d-%s", i, file))
}

// tell keeps the files, and adds rows.
func (s *steps) tell(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on || s.err != nil {
		return
	}
	n, err := s.insert()
	s.rows += n
	for _, file := range stepFiles {
		if err == nil {
			err = backUp(s.live(file), s.kept(len(s.names), file))
		}
	}
	s.names, s.acked, s.err = append(s.names, what), append(s.acked, s.rows), err
}

// backUp copies a SQLite file that others have open.
func backUp(from, to string) error {
	src, err := sqlite.OpenConn(from, sqlite.OpenReadOnly)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := sqlite.OpenConn(to, sqlite.OpenCreate|sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	defer dst.Close()
	b, err := sqlite.NewBackup(dst, "", src, "")
	if err != nil {
		return err
	}
	_, err = b.Step(-1)
	if end := b.Close(); err == nil {
		err = end
	}
	return err
}

// make has a range go to s1, come back by a reversal, and go again for good.
func (s *steps) make(t *testing.T) {
	var shards []admin.BootstrapShard
	for _, name := range []string{"s0", "s1"} {
		shards = append(shards, admin.BootstrapShard{Name: name, URL: "file:" + s.live(name+".db")})
	}
	t.Run("start", func(t *testing.T) { startWith(t, s.live(stepFiles[0]), "test", shards).bank(stageRows) })
	s.rows = stageRows
	c := joinBehind(t, s.live(stepFiles[0]), "test", func(dir shardmap.Directory) shardmap.Directory { return &toldOf{Directory: dir, tell: s.tell} })
	conn := c.connect()
	s.insert = func() (int, error) { return c.add(conn, s.rows) }
	s.set(true)
	c.await(c.move(admin.MoveRequest{ID: "first", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "1h"}}), "opened")
	if _, err := c.rooms.Ops.Reverse(t.Context(), admin.WorkflowRequest{ID: "first"}); err != nil {
		t.Fatal(err)
	}
	c.await("first", "rolled back")
	c.await(c.move(admin.MoveRequest{ID: "second", Keyspace: "bank", Range: ":0", To: "s1", MoveOptions: admin.MoveOptions{Keep: "0"}}), "done")
	s.tell("the end")
	s.set(false)
	if s.err != nil {
		t.Fatal(s.err)
	}
}

func (s *steps) set(on bool) {
	s.mu.Lock()
	s.on = on
	s.mu.Unlock()
}

// add inserts rows of two tenants, unless statements are held.
func (c *target) add(conn *pgx.Conn, from int) (n int, err error) {
	snap, err := c.dir.Load(context.Background())
	if err != nil {
		return 0, err
	}
	ks, _ := snap.Keyspace("bank")
	if slices.ContainsFunc(ks.Def().Transits, func(t shardmap.Transit) bool { return t.Hold != shardmap.NoHold }) {
		return 0, nil
	}
	for tenant := range 2 {
		if _, err := conn.Exec(context.Background(), fmt.Sprintf(`INSERT INTO bulk VALUES (%d, %d, 'more')`, tenant, from+tenant)); codeOf(err) == "57P03" {
			return n, nil // the machine stood still for longer than a lease: nothing was done
		} else if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// open are the cluster's files that this process still has open.
func (s *steps) open() (list []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, s.folder) {
			list = append(list, filepath.Base(to))
		}
	}
	return list
}

// TestOlderDirectoryAtEachStep stops a cluster before each change of its directory, while a range goes, comes back and goes again, and puts
// the directory back to what it was before an earlier change. Nothing that was acknowledged is lost, neither by what the old directory has
// at work nor by the remedy, and reads are right or refused. With -soak: every pair of steps.
func TestOlderDirectoryAtEachStep(t *testing.T) {
	testrun.Long(t, "a directory is put back at each step of moves, which are begun again")
	s := &steps{folder: t.TempDir()}
	t.Run("moves", s.make)
	if t.Failed() {
		return
	}
	for i, name := range s.names {
		t.Logf("%d: %s, %d rows", i, name, s.acked[i])
	}
	if len(s.names) < 30 {
		t.Errorf("%d steps", len(s.names))
	}
	for now := range s.names {
		for old := range now {
			if *soak <= time.Minute && (now-old > 1 || now%2 > 0) && (3*now+5*old)%31 > 0 {
				continue
			}
			rebuild := (now+old)%2 == 1
			t.Run(fmt.Sprintf("%d after %d%s", old, now, map[bool]string{true: " rebuilt"}[rebuild]), func(t *testing.T) {
				for _, file := range stepFiles {
					at := now
					if file == stepFiles[0] {
						at = old
					}
					copyDirectory(t, s.kept(at, file), s.live(file))
				}
				putBack(t, s.live(stepFiles[0]), "", "", s.acked[now], rebuild)
			})
			if list := s.open(); len(list) > 0 {
				t.Fatalf("a router that has ended has files open: %v", list)
			}
		}
	}
}
