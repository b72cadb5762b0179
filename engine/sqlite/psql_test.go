package sqlite_test

import (
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// psqlSetup is what psql's commands are asked about.
const psqlSetup = `
CREATE TABLE customer (id bigint PRIMARY KEY, name text NOT NULL, city varchar(20) DEFAULT 'none', since date, UNIQUE (name, city));
CREATE TABLE orders (tenant_id bigint, id bigint, customer_id bigint REFERENCES customer ON DELETE CASCADE, note text, price numeric(10,2) DEFAULT 1.50,
  made timestamptz DEFAULT now(), code char(4), ok boolean DEFAULT true, raw bytea, u uuid DEFAULT gen_random_uuid(), qty integer CHECK (qty > 0), PRIMARY KEY (tenant_id, id));
CREATE INDEX orders_note ON orders (note DESC, made);
CREATE SCHEMA app;
CREATE TABLE app.plain (a integer, b double precision, c jsonb);
COMMENT ON TABLE customer IS 'people';
COMMENT ON COLUMN customer.name IS 'who';
`

// psqlCommands give the same with both engines.
var psqlCommands = []string{
	`\d`, `\dt`, `\d customer`, `\d orders`, `\d+ customer`, `\d+ orders`, `\di`, `\dn`, `\dn+`, `\dt app.*`, `\d app.plain`, `\dt cust*`,
	`\dv`, `\ds`, `\dm`, `\df`, `\dT`, `\dp`, `\dD`, `\dE`, `\d nosuch`, `\dt nosuch`, `\d orders_note`, `\dy`, `\dRp`, `\det`, `\dew`, `\des`, `\dP`,
	`\dX`, `\db`, `SELECT array_agg(code), min(code), ARRAY[code, code] FROM orders \gdesc`,
}

func runPSQL(t *testing.T, conn, command string) string {
	t.Helper()
	out, err := exec.Command(pgtest.PSQL(t), "-X", "-q", conn, "-c", command).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error() // quiet, and nothing found
	}
	return string(out)
}

func TestPSQLCommands(t *testing.T) {
	host, port := serve(t, harness().Open(t))
	theirs := pgtest.Database(t)
	u, err := url.Parse(theirs)
	if err != nil {
		t.Fatal(err)
	}
	owner := u.User.Username()
	ours := "postgres://" + owner + "@" + host + ":" + port + "/cleave?sslmode=disable"
	runPSQL(t, ours, psqlSetup)
	runPSQL(t, theirs, psqlSetup)
	// The only role that SQLite has is its superuser.
	runPSQL(t, pgtest.Super(theirs), "ALTER TABLESPACE pg_default OWNER TO "+owner+"; ALTER TABLESPACE pg_global OWNER TO "+owner)
	for _, command := range psqlCommands {
		if a, b := runPSQL(t, ours, command), runPSQL(t, theirs, command); a != b {
			t.Errorf("%s\nSQLite:\n%s\nPostgreSQL:\n%s", command, a, b)
		}
	}
	// These name the database, the version or sizes.
	for _, command := range []string{`\l`, `\l+`, `\du`, `\conninfo`, `\dt+`, `\di+`, `\encoding`, `\dconfig`} {
		if out := runPSQL(t, ours, command); strings.Contains(out, "ERROR") || out == "" {
			t.Errorf("%s: %s", command, out)
		}
	}
}
