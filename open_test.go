package cleave_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestOpenMakesOpensAndRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "a", "data")
	refused := func(url string, code sqlstate.Code, words ...string) {
		t.Helper()
		c, err := cleave.Open(ctx, url)
		if err == nil {
			_ = c.Close()
		}
		e := sqlstate.As(err)
		if err == nil || e.Code != code || e.Hint == "" {
			t.Errorf("%s: %v (hint %q), want %s with a hint", url, err, e.Hint, code)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error()+e.Hint, w) {
				t.Errorf("%s: %v (hint %q), want %q", url, err, e.Hint, w)
			}
		}
	}
	refused("file:"+dir, sqlstate.ConfigFileError, "there is no cluster", "?shards=4", "cleave up")
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused Open left something behind: %v", err)
	}
	first := open(t, "file:"+dir+"?shards=3")
	if n := len(first.Snapshot().Shards()); n != 3 {
		t.Errorf("%d shards", n)
	}
	run(t, first.DB(), createOrders)
	run(t, first.DB(), "INSERT INTO orders VALUES (7, 1, 'tea')")
	// While it is open: with and without the number of shards, a path alone, the
	// directory's file.
	for _, url := range []string{"file:" + dir, dir, "file:" + dir + "?shards=3", "file:" + filepath.Join(dir, "directory.db")} {
		c := open(t, url)
		var note string
		if err := c.DB().QueryRow("SELECT note FROM orders WHERE tenant_id = 7").Scan(&note); err != nil || note != "tea" {
			t.Errorf("%s: %q, %v", url, note, err)
		}
	}
	refused("file:"+dir+"?shards=4", sqlstate.ConfigFileError, "has 3 local shards, not 4")
	refused("file:"+filepath.Join(dir, "directory.db")+"?shards=3", sqlstate.ConfigFileError, "is a file")
	refused("file:"+dir+"?shards=0", sqlstate.InvalidParameterValue, "from 1 to")
	refused("file:"+dir+"?shards=many", sqlstate.InvalidParameterValue)
	refused("file:"+dir+"?size=4", sqlstate.InvalidParameterValue, "unknown parameter size")
	refused("", sqlstate.InvalidParameterValue, "file:PATH")
	refused("file:", sqlstate.InvalidParameterValue)
	refused("postgres://localhost/cleave", sqlstate.InvalidParameterValue, "pgx")
	refused("https://example.org", sqlstate.InvalidParameterValue)
	refused(filepath.Join(dir, "none.yaml"), sqlstate.ConfigFileError)
	if err := os.WriteFile(filepath.Join(dir, "..", "photo.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("file:"+filepath.Dir(dir)+"?shards=2", sqlstate.ConfigFileError, "is not empty")
}

func TestOpenBySettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "cleave.yaml")
	text := fmt.Sprintf("data: %s\nshards: 2\npool-size: 3\nlisten: 127.0.0.1:1\n", filepath.Join(dir, "data"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, file)
	if n := len(c.Snapshot().Shards()); n != 2 {
		t.Errorf("%d shards", n)
	}
	again := filepath.Join(dir, "again.yaml")
	if err := os.WriteFile(again, []byte("directory: file:"+filepath.Join(dir, "data", "directory.db")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := open(t, again); o.Snapshot().State().Cluster != c.Snapshot().State().Cluster {
		t.Error("another cluster")
	}
}

// TestOpenAtOnce lets many make the same cluster at the same time: one does.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "data") + "?shards=2"
	const n = 8
	var wg sync.WaitGroup
	ids := make([]string, n)
	for i := range n {
		wg.Go(func() {
			c, err := cleave.Open(context.Background(), url)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = c.Snapshot().State().Cluster
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("clusters %q", ids)
		}
	}
}

// TestMovedFolder: the shards of a folder are the files in it, also of a copy,
// and also if it is reached through a link.
func TestMovedFolder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	was, is, link := filepath.Join(dir, "was"), filepath.Join(dir, "is"), filepath.Join(dir, "link")
	c, err := cleave.Open(ctx, "file:"+was+"?shards=2")
	if err != nil {
		t.Fatal(err)
	}
	run(t, c.DB(), createOrders)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(is, os.DirFS(was)); err != nil {
		t.Fatal(err)
	}
	moved := open(t, "file:"+is)
	run(t, moved.DB(), "INSERT INTO orders VALUES (1, 1, 'in the copy')")
	version := moved.Snapshot().Version()
	if err := os.Symlink(is, link); err != nil {
		t.Fatal(err)
	}
	if v := open(t, "file:"+link).Snapshot().Version(); v != version {
		t.Errorf("a link to the folder changed the map from version %d to %d", version, v)
	}
	original := open(t, "file:"+was)
	var n int
	if err := original.DB().QueryRow("SELECT count(*) FROM orders WHERE tenant_id = 1").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows in the original, %v", n, err)
	}
}

// TestAShardThatWasNotPrepared: a process was killed between the first map and the preparation of all shards. The next one goes on with it.
func TestAShardThatWasNotPrepared(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	c, err := cleave.Open(context.Background(), "file:"+folder+"?shards=3")
	if err != nil {
		t.Fatal(err)
	}
	if v := c.Snapshot().Version(); v != 1 {
		t.Fatalf("a new cluster has version %d", v)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "shard-1.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	run(t, open(t, "file:"+folder).DB(), createOrders)
}

// childURL says to TestMain's binary that it is a child.
const childURL = "CLEAVE_TEST_CHILD_URL"

// TestKilled: a process that makes a cluster, and one that is in a transaction,
// are killed; nothing of them is in the way, and nothing is lost.
func TestKilled(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := "file:" + filepath.Join(t.TempDir(), "data")
	for round := range 3 {
		if round == 1 {
			run(t, open(t, url+"?shards=2").DB(), createOrders)
		}
		cmd, out := startChild(t, url+"?shards=2")
		if round == 0 {
			for i := 0; i < 1000; i++ {
				if _, err := os.Stat(filepath.Join(strings.TrimPrefix(url, "file:"), "cleave.json")); err == nil {
					break // it has begun, and is somewhere in the middle
				}
				time.Sleep(time.Millisecond)
			}
		} else if !out.Scan() || out.Text() != "in transaction <nil>" {
			// It is killed inside a transaction that holds the shard's write lock.
			t.Fatalf("the child says %q, %v", out.Text(), out.Err())
		}
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		c := open(t, url+"?shards=2")
		if round == 0 {
			continue // killed at whatever point of making it
		}
		ctx, cancel := context.WithTimeout(ctx, waitfor.Max)
		var n, open int
		err := c.DB().QueryRowContext(ctx, "SELECT count(*) FROM orders WHERE tenant_id = 5 AND note = 'committed'").Scan(&n)
		if err == nil {
			err = c.DB().QueryRowContext(ctx, "SELECT count(*) FROM orders WHERE tenant_id = 5 AND note = 'open'").Scan(&open)
		}
		if err != nil || n != round*10 || open != 0 {
			t.Errorf("round %d: %d committed rows, %d of open transactions, %v", round, n, open, err)
		}
		if _, err := c.DB().ExecContext(ctx, "INSERT INTO orders VALUES (5, -$1::bigint, 'after')", round); err != nil {
			t.Errorf("round %d: a lock was left: %v", round, err)
		}
		cancel()
	}
}

// child is the other process of TestKilled.
func child(url string) {
	ctx := context.Background()
	c, err := cleave.Open(ctx, url)
	if err != nil {
		fmt.Println("open:", err)
		return
	}
	var from int
	if err := c.DB().QueryRow("SELECT coalesce(max(id), 0) FROM orders WHERE tenant_id = 5").Scan(&from); err != nil {
		fmt.Println("max:", err)
		return
	}
	for i := range 10 {
		if _, err := c.DB().Exec("INSERT INTO orders VALUES (5, $1, 'committed')", from+1+i); err != nil {
			fmt.Println("insert:", err)
			return
		}
	}
	tx, err := c.DB().Begin()
	if err == nil {
		_, err = tx.Exec("INSERT INTO orders VALUES (5, $1, 'open')", from+100)
	}
	fmt.Println("in transaction", err)
	select {}
}

// startChild starts this test binary as a child that runs [child].
func startChild(t *testing.T, url string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+url)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, bufio.NewScanner(out)
}
