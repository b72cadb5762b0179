package e2e

import (
	_ "embed"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

// ordinarySchema is what applications have: serial and identity columns, foreign
// keys, indexes, views, functions, triggers, comments, privileges, rows.
//
//go:embed testdata/ordinary.sql
var ordinarySchema string

// TestDump loads a dump of an ordinary database, with some tables declared sharded,
// and dumps it again: what pg_dump writes then is what it wrote first, but for
// identity columns, and loads into a plain PostgreSQL.
func TestDump(t *testing.T) {
	testrun.Short(t)
	plain := pgtest.Database(t)
	if out := psql(t, plain, ordinarySchema, "-v", "ON_ERROR_STOP=1", "-q"); strings.Contains(out, "ERROR") {
		t.Fatal(out)
	}
	pgDump := func(url string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), pgtest.PGDump(t), append(args, url)...).CombinedOutput()
		if err != nil {
			t.Fatalf("pg_dump: %v\n%s", err, out)
		}
		return string(out)
	}
	c := start(t, "postgres")
	c.exec(t, `SELECT cleave.declare('currencies', reference => true)`, `SELECT cleave.declare('tenants', reference => true)`,
		`SELECT cleave.declare('customers', shard_key => 'tenant_id')`, `SELECT cleave.declare('public.orders', shard_key => ARRAY['tenant_id'])`)
	first := ownerless(pgDump(plain, "--schema-only", "--no-owner"))
	if out := c.psql(t, first, "-v", "ON_ERROR_STOP=1", "-q"); strings.Contains(out, "ERROR") {
		t.Fatalf("loading the dump:\n%s", out)
	}
	if out := c.psql(t, `SELECT name, kind FROM cleave.tables ORDER BY name;`, "-A", "-t"); !strings.Contains(out, "currencies|reference\ncustomers|sharded\nlog|whole\norders|sharded\nsettings|whole\ntenants|reference") {
		t.Errorf("the tables are\n%s", out)
	}
	second := ownerless(pgDump(c.url(), "--schema-only", "--no-owner"))
	if strings.Contains(second, "cleave") {
		t.Errorf("the dump shows something of Cleave's:\n%s", second)
	}
	want, got := lines(first), lines(second)
	for line := range want {
		if !got[line] && !strings.Contains(line, "IDENTITY") && !strings.Contains(line, "SEQUENCE NAME") && line != ");" {
			t.Errorf("pg_dump through the router lacks %q", line)
		}
	}
	back := pgtest.Database(t)
	if out := psql(t, back, second, "-v", "ON_ERROR_STOP=1", "-q"); strings.Contains(out, "ERROR") {
		t.Fatalf("loading it into PostgreSQL:\n%s", out)
	}
	// And it is a working cluster.
	c.exec(t, `INSERT INTO customers (tenant_id, email) VALUES (1, 'a'), (2, 'b')`, `UPDATE orders SET note = 'x' WHERE tenant_id = 1`)
	if out := c.psql(t, "SELECT count(*) FROM big_orders;\n\\d orders\n\\ds\n\\df\n\\dn", "-A", "-t"); strings.Contains(out, "cleave_") || strings.Contains(out, "ERROR") {
		t.Errorf("psql shows\n%s", out)
	}
	// With the rows, it is a plain database that goes on where the cluster was.
	for _, args := range [][]string{{"--no-owner"}, {"--no-owner", "--inserts"}} {
		whole := pgtest.Database(t)
		if out := psql(t, whole, pgDump(c.url(), args...), "-v", "ON_ERROR_STOP=1", "-q"); strings.Contains(out, "ERROR") {
			t.Fatalf("loading the rows into PostgreSQL, %v:\n%s", args, out)
		}
		for _, table := range []string{"customers", "orders", "currencies", "tenants", "settings", "log"} {
			const rows = "SELECT count(*), md5(string_agg(t::text, ';' ORDER BY t::text)) FROM "
			if want, got := c.psql(t, rows+table+" t;", "-A", "-t"), psql(t, whole, rows+table+" t;", "-A", "-t"); want != got {
				t.Errorf("%v: %s has %s, want %s", args, table, got, want)
			}
		}
		if out := psql(t, whole, `INSERT INTO customers (tenant_id, email) VALUES (1, 'later');`, "-v", "ON_ERROR_STOP=1", "-q"); strings.Contains(out, "ERROR") {
			t.Errorf("%v: %s", args, out)
		}
	}
}

var restriction = regexp.MustCompile(`(?m)^\\(un)?restrict .*\n`)

// ownerless takes out what differs from run to run.
func ownerless(dump string) string { return restriction.ReplaceAllString(dump, "") }

func lines(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			out[strings.TrimRight(line, ",;")] = true
		}
	}
	return out
}
