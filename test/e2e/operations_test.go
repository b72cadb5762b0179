package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

// TestSecurityGuide runs the commands of docs/security.md.
func TestSecurityGuide(t *testing.T) {
	testrun.Short(t)
	t.Parallel()
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, "sqlite")
	blocks := strings.Split(string(page), "```sh run\n")[1:]
	if len(blocks) < 1 {
		t.Fatal("no block is marked")
	}
	for _, block := range blocks {
		script, _, _ := strings.Cut(block, "```")
		cmd := exec.Command("sh", "-eu", "-c", script)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "CLEAVE_ADMIN="+c.admin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s%v\n%s", script, err, out)
		}
	}
	if out := c.psql(t, "SELECT name, role FROM cleave.users", "-At"); strings.TrimSpace(out) != "ops|admin\nweb|writer" {
		t.Errorf("the users are %q", out)
	}
}

// TestMaintenanceGuide runs the commands of docs/maintenance.md.
func TestMaintenanceGuide(t *testing.T) {
	testrun.Short(t)
	t.Parallel()
	page, err := os.ReadFile("../../docs/maintenance.md")
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, "sqlite")
	c.exec(t, "CREATE TABLE orders (tenant_id bigint PRIMARY KEY) WITH (cleave.shard_key = 'tenant_id')", "INSERT INTO orders SELECT * FROM generate_series(1, 100)")
	blocks := strings.Split(string(page), "```sh run\n")[1:]
	if len(blocks) != 2 {
		t.Fatalf("%d blocks are marked", len(blocks))
	}
	for _, block := range blocks {
		script, _, _ := strings.Cut(block, "```")
		cmd := exec.Command("sh", "-eu", "-c", script)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "CLEAVE_ADMIN="+c.admin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s%v\n%s", script, err, out)
		}
		if strings.Contains(script, "shard list") && !strings.Contains(string(out), "read-only (its disk is replaced at noon), up") {
			t.Errorf("the list does not say it:\n%s", out)
		}
	}
	if out := c.psql(t, "SELECT count(*) FROM orders; SELECT count(*) FROM cleave.shards WHERE name = 'shard-2' OR state <> 'normal'", "-At"); strings.TrimSpace(out) != "100\n0" {
		t.Errorf("after all: %q", out)
	}
}

// TestOperationsGuide runs the commands of docs/operations.md that are marked.
func TestOperationsGuide(t *testing.T) {
	testrun.Short(t)
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	pgtest.SQLite3(t)
	c := start(t, "sqlite")
	c.exec(t, "CREATE TABLE orders (tenant_id bigint PRIMARY KEY) WITH (cleave.shard_key = 'tenant_id')", "INSERT INTO orders VALUES (42)")
	backup := t.TempDir()
	blocks := strings.Split(string(page), "```sh run\n")[1:]
	if len(blocks) < 3 {
		t.Fatalf("%d blocks are marked", len(blocks))
	}
	for _, block := range blocks {
		script, _, _ := strings.Cut(block, "```")
		cmd := exec.Command("sh", "-eu", "-c", script)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "CLEAVE_ADMIN="+c.admin, "CLEAVE_LISTEN="+c.listen, "CLEAVE_DATA="+c.dir, "BACKUP="+backup)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s%v\n%s", script, err, out)
		}
	}
	// The backup is a cluster: it starts, and has the row.
	c.stop()
	c.dir = backup
	c.up()
	if out := c.psql(t, "SELECT count(*) FROM orders WHERE tenant_id = 42", "-At"); strings.TrimSpace(out) != "1" {
		t.Errorf("the restored cluster says %q", out)
	}
}
