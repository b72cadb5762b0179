package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
)

const (
	dumpAccounts = 40
	dumpKeys     = 6
)

// dumpWriters moves money between shards, and counts up on one shard after the other, each time with the answer to the one
// before, until the returned function is called.
func dumpWriters(t *testing.T, c *cluster) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	writes := func(f func(i int) []string) {
		conn := c.connect(t)
		work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				for _, sql := range f(i) {
					if _, err := conn.Exec(context.Background(), sql); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	writes(func(i int) []string {
		move := "UPDATE account SET balance = balance + %d WHERE id = %d"
		return []string{"BEGIN", fmt.Sprintf(move, -1, i%dumpAccounts), fmt.Sprintf(move, 1, (i*7+3)%dumpAccounts), "COMMIT"}
	})
	last := 0
	writes(func(i int) []string {
		last++
		return []string{fmt.Sprintf("UPDATE counter SET n = %d WHERE id = %d", last, last%dumpKeys)}
	})
	return func() {
		stop()
		work.Wait()
	}
}

// oneMoment checks a database that was restored from a dump.
func oneMoment(t *testing.T, url string) {
	t.Helper()
	sum := strings.TrimSpace(psql(t, url, "SELECT sum(balance), count(*) FROM account;", "-A", "-t"))
	if want := fmt.Sprintf("%d|%d", dumpAccounts*1000, dumpAccounts); sum != want {
		t.Errorf("the accounts have %s, want %s", sum, want)
	}
	// Each counter has the last of its numbers up to the greatest one.
	wrong := psql(t, url, fmt.Sprintf(`SELECT id, n, m FROM counter, (SELECT max(n) AS m FROM counter) AS t
		WHERE n IS DISTINCT FROM greatest(m - (m - id + %[1]d) %% %[1]d, 0);`, dumpKeys), "-A", "-t")
	if strings.TrimSpace(wrong) != "" {
		t.Errorf("the order of the counters is broken:\n%s", wrong)
	}
}

// TestDumpOfOneMoment: pg_dump in all its ways dumps one moment of all shards, beside writers, and what is restored has the schema
// and the rows of the cluster.
func TestDumpOfOneMoment(t *testing.T) {
	c := start(t, "postgres")
	c.exec(t, `SELECT cleave.declare('currencies', reference => true)`, `SELECT cleave.declare('tenants', reference => true)`,
		`SELECT cleave.declare('customers', shard_key => 'tenant_id')`, `SELECT cleave.declare('public.orders', shard_key => ARRAY['tenant_id'])`)
	if out := c.psql(t, ordinarySchema, "-v", "ON_ERROR_STOP=1", "-q"); strings.Contains(out, "ERROR") {
		t.Fatal(out)
	}
	c.exec(t, `CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (cleave.shard_key = 'id')`,
		`CREATE TABLE counter (id bigint PRIMARY KEY, n bigint NOT NULL) WITH (cleave.shard_key = 'id')`,
		fmt.Sprintf(`INSERT INTO account SELECT g, 1000 FROM generate_series(0, %d) AS g`, dumpAccounts-1),
		fmt.Sprintf(`INSERT INTO counter SELECT g, 0 FROM generate_series(0, %d) AS g`, dumpKeys-1))
	end := dumpWriters(t, c)
	defer end()
	for _, way := range []struct {
		name string
		env  string
		args []string
	}{
		{"jobs", "", []string{"-Fd", "-j", "4"}},
		{"folder", "PGOPTIONS=-c cleave.read_consistency=atomic", []string{"-Fd"}},
		{"plain", "PGOPTIONS=-c cleave.read_consistency=atomic", []string{"-Fp"}},
	} {
		t.Run(way.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "dump")
			run(t, way.env, pgtest.PGDump(t), append(way.args, "--no-owner", "-f", file, c.url())...)
			back := pgtest.Database(t)
			if way.args[0] == "-Fp" {
				run(t, "", pgtest.PSQL(t), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file, back)
			} else {
				run(t, "", pgtest.PGRestore(t), "--no-owner", "--exit-on-error", "-d", back, file)
			}
			oneMoment(t, back)
			for _, table := range []string{"customers", "orders", "currencies", "tenants", "settings", "audit.log"} {
				const rows = "SELECT count(*), md5(string_agg(t::text, ';' ORDER BY t::text)) FROM "
				if want, got := c.psql(t, rows+table+" t;", "-A", "-t"), psql(t, back, rows+table+" t;", "-A", "-t"); want != got {
					t.Errorf("%s has %s, want %s", table, got, want)
				}
			}
			schemaOf := func(url string) string {
				return ownerless(run(t, "", pgtest.PGDump(t), "--schema-only", "--no-owner", url))
			}
			if want, got := schemaOf(c.url()), schemaOf(back); want != got {
				for line := range lines(want) {
					if !lines(got)[line] {
						t.Errorf("the restored database lacks %q", line)
					}
				}
			}
		})
	}
	if out, err := exec.Command(pgtest.PGDump(t), "--serializable-deferrable", c.url()).CombinedOutput(); err == nil || !strings.Contains(string(out), "CLV-1003") {
		t.Errorf("--serializable-deferrable: %v\n%.500s", err, out)
	}
}

// TestDumpOfFiles: shards that are SQLite files export no snapshot, and say so.
func TestDumpOfFiles(t *testing.T) {
	c := start(t, "sqlite")
	for _, sql := range []string{"SELECT pg_export_snapshot()", "SET TRANSACTION SNAPSHOT '00'"} {
		if out := c.psql(t, "BEGIN ISOLATION LEVEL REPEATABLE READ;\n"+sql+";"); !strings.Contains(out, "CLV-1035") {
			t.Errorf("%s: %s", sql, out)
		}
	}
}

// run runs a program, which has to succeed.
func run(t *testing.T, env, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	if cmd.Env = os.Environ(); env != "" {
		cmd.Env = append(cmd.Env, env)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%.3000s", filepath.Base(program), args, err, out)
	}
	return string(out)
}
