package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/clustertest"
)

// TestBackupAndRestore makes a cluster of nothing but a repository, by a program that is killed again and again meanwhile.
func TestBackupAndRestore(t *testing.T) {
	file := clustertest.Files(t)
	ctx := context.Background()
	c, err := pgx.Connect(ctx, clustertest.URL(clustertest.Router(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	for _, sql := range []string{"SELECT cleave.create_keyspace('k', 'hash', 'bigint', ranges => 6)", "CREATE TABLE item (id bigint PRIMARY KEY) WITH (cleave.shard_key = 'id')",
		"INSERT INTO item SELECT i FROM generate_series(1, 5000) AS i"} {
		if _, err := c.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	repo, folder := "file://"+t.TempDir(), filepath.Join(t.TempDir(), "new")
	must := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := cli(t, nil, args...)
		if code != exitOK {
			t.Fatalf("%v: %d %s", args, code, stderr)
		}
		return stdout
	}
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(must("backup", "create", "--repository", repo, "--directory", file, "--json")), &made); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"backup", "list"}, {"backup", "show"}, {"backup", "verify"}} {
		if out := must(append(args, "--repository", repo)...); !strings.Contains(out, made.ID) {
			t.Errorf("%v: %s", args, out)
		}
	}
	if out := must("backup", "list", "--repository", repo); !strings.Contains(out, "never") {
		t.Errorf("before a drill: %s", out)
	}
	if out := must("backup", "drill", "--repository", repo); !strings.Contains(out, "5000 rows in 1 sharded table") {
		t.Errorf("the drill: %s", out)
	}
	if out := must("backup", "list", "--repository", repo); strings.Contains(out, "never") {
		t.Errorf("after a drill: %s", out)
	}
	if out := must("restore", "--from", repo, "--to", folder, "--dry-run"); !strings.Contains(out, "Would restore backup "+made.ID) || exists(folder) {
		t.Errorf("the plan: %s", out)
	}
	kills := 0
	for pause := time.Millisecond; ; pause = pause * 3 / 2 {
		bounded, stop := context.WithTimeout(ctx, pause) // its end is SIGKILL
		out, err := exec.CommandContext(bounded, binary(t), "restore", "--from", repo, "--to", folder).CombinedOutput()
		killed := bounded.Err() != nil
		stop()
		if err == nil {
			break
		}
		if !killed {
			t.Fatalf("%s", out)
		}
		kills++
	}
	t.Logf("killed %d times", kills)
	again, err := pgx.Connect(ctx, clustertest.URL(clustertest.Router(t, filepath.Join(folder, "directory.db"))))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close(ctx)
	var n int
	if err := again.QueryRow(ctx, "SELECT count(*) FROM item").Scan(&n); err != nil || n != 5000 {
		t.Errorf("%d rows: %v", n, err)
	}
	if code, _, stderr := cli(t, nil, "restore", "--from", repo, "--to", folder); code == exitOK || !strings.Contains(stderr, "is not empty") {
		t.Errorf("into a folder with a cluster: %d %s", code, stderr)
	}
	if code, _, stderr := cli(t, nil, "restore", "--from", repo, "--to", fmt.Sprint(folder, 2), "--backup", "20200101T000000Z-00000000"); code == exitOK || !strings.Contains(stderr, "no backup 20200101") {
		t.Errorf("a backup that is not there: %d %s", code, stderr)
	}
	// What was killed holds its lock for a lease.
	if err := os.RemoveAll(filepath.Join(strings.TrimPrefix(repo, "file://"), "locks")); err != nil {
		t.Fatal(err)
	}
	must("backup", "delete", made.ID, "--repository", repo)
	if out := must("backup", "list", "--repository", repo); !strings.Contains(out, "no backup") {
		t.Errorf("after the deletion: %s", out)
	}
}
