package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/sqlstate"
)

// writesTo are statements that write to a table of cleave_internal, or change it; each says what a role may do that it is not refused.
func writesTo(table string, columns []string) map[string]string {
	name := "cleave_internal." + table
	all := map[string]string{
		"DELETE": "DELETE FROM " + name, "TRUNCATE": "TRUNCATE " + name, "DROP": "DROP TABLE " + name + " CASCADE", "LOCK": "LOCK TABLE " + name,
		"ALTER": "ALTER TABLE " + name + " ADD COLUMN more int", "OWNER": "ALTER TABLE " + name + " OWNER TO CURRENT_USER", "RENAME": "ALTER TABLE " + name + " RENAME TO other",
		"SCHEMA": "ALTER TABLE " + name + " SET SCHEMA public", "GRANT": "DO $$ BEGIN GRANT ALL ON " + name + " TO PUBLIC; IF NOT has_table_privilege('stranger', '" + name + "', 'UPDATE') THEN RAISE insufficient_privilege; END IF; END $$",
		"TRIGGER": "CREATE TRIGGER x BEFORE INSERT ON " + name + " EXECUTE FUNCTION suppress_redundant_updates_trigger()", "RULE": "CREATE RULE x AS ON INSERT TO " + name + " DO INSTEAD NOTHING",
		"INDEX": "CREATE INDEX ON " + name + " ((true))", "CHILD": "CREATE TABLE child () INHERITS (" + name + ")", "REFERENCES": "CREATE TABLE refers (c text REFERENCES " + name + ")",
		"POLICY": "ALTER TABLE " + name + " ENABLE ROW LEVEL SECURITY", "STATISTICS": "CREATE STATISTICS x ON (1 + 1), (2 + 2) FROM " + name,
	}
	for _, c := range columns {
		all["INSERT ("+c+")"] = fmt.Sprintf("INSERT INTO %s (%s) SELECT %[2]s FROM %[1]s", name, c)
		all["UPDATE ("+c+")"] = fmt.Sprintf("UPDATE %s SET %s = NULL", name, c)
	}
	return all
}

// TestInternalTablesAreTheMovers tries each write on each internal table, as each role that a client's statement can run as. What comes to the schema later is
// tried as well, and is a finding unless the mover owns it.
func TestInternalTablesAreTheMovers(t *testing.T) {
	url := pgtest.Database(t)
	super := pgtest.Super(url)
	s := installed(t, url)
	c := connect(t, s)
	pgtest.Ask(t, super, `CREATE ROLE stranger LOGIN; CREATE ROLE passed LOGIN; GRANT passed TO cleave`)
	t.Cleanup(func() { pgtest.Ask(t, super, `DROP OWNED BY stranger, passed; DROP ROLE stranger, passed`) })
	layout := func() []string {
		return strings.Split(do(t, c, `SELECT string_agg(relname || '|' || relowner::regrole || '|' || (SELECT string_agg(attname, ',') FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0), E'\n' ORDER BY relname)
			FROM pg_class c WHERE relnamespace = 'cleave_internal'::regnamespace AND relkind = 'r'`), "\n")
	}
	check := func(what string) {
		t.Helper()
		may := map[string][]string{
			"cleave": {"transaction INSERT (id)", "transaction INSERT (shards)", "transaction INSERT (decided)", "transaction DELETE", "schema_change INSERT (id)", "schema_change DELETE",
				"transaction LOCK", "schema_change LOCK"},
			"passed":   {"transaction INSERT (id)", "transaction INSERT (shards)", "transaction INSERT (decided)"},
			"stranger": {"transaction INSERT (id)", "transaction INSERT (shards)", "transaction INSERT (decided)"},
		}
		tables := layout()
		if len(tables) != 9 {
			t.Errorf("%s: the tables are %q", what, tables)
		}
		for role, allowed := range may {
			as := connect(t, open(t, strings.Replace(url, "cleave@", role+"@", 1)))
			var done []string
			for _, line := range tables {
				f := strings.Split(line, "|")
				if f[1] != "cleave_mover" {
					t.Errorf("%s: %s is owned by %s", what, f[0], f[1])
				}
				if role == "cleave" { // pg_dump
					do(t, as, `SELECT count(*) FROM cleave_internal.`+f[0])
				}
				for name, sql := range writesTo(f[0], strings.Split(f[2], ",")) {
					_, err := engine.Exec(as, "BEGIN; "+sql)
					if sqlstate.CodeOf(err) != sqlstate.InsufficientPrivilege {
						done = append(done, f[0]+" "+name)
						if !slices.Contains(allowed, f[0]+" "+name) {
							t.Errorf("%s: %s may %s: %v", what, role, sql, err)
						}
					}
					do(t, as, "ROLLBACK")
				}
			}
			if len(done) != len(allowed) {
				t.Errorf("%s: %s may %q, want %q", what, role, done, allowed)
			}
			for _, sql := range []string{`DROP SCHEMA cleave_internal CASCADE`, `ALTER SCHEMA cleave_internal RENAME TO other`, `ALTER SCHEMA cleave_internal OWNER TO CURRENT_USER`} {
				refused(t, as, sqlstate.InsufficientPrivilege, sql)
			}
		}
	}
	check("installed")

	// As an older version left it: all is the role's of the URL.
	pgtest.Ask(t, super, `ALTER SCHEMA cleave_internal OWNER TO cleave; ALTER TABLE cleave_internal.shard OWNER TO cleave; ALTER TABLE cleave_internal.transaction OWNER TO cleave;
		GRANT SELECT, INSERT ON cleave_internal.transaction TO PUBLIC; DROP TABLE cleave_internal.schema_change, cleave_internal.leader, cleave_internal.capture, cleave_internal.applied, cleave_internal.loaded, cleave_internal.loaded_part, cleave_internal.leader_of_parts`)
	do(t, c, `INSERT INTO cleave_internal.transaction (id) VALUES ('00000000-0000-4000-8000-000000000001')`)
	finding := func(level string) {
		t.Helper()
		rep, err := s.Check(t.Context())
		i := slices.IndexFunc(rep.Findings, func(f engine.Finding) bool { return f.Name == "owner of cleave_internal" })
		if err != nil || i < 0 || rep.Findings[i].Level != level {
			t.Errorf("%v, %+v", err, rep.Findings)
		}
	}
	finding("warning")
	// A transaction that is prepared holds the table; nobody waits for it long.
	do(t, c, `BEGIN`, `INSERT INTO cleave_internal.transaction (id) VALUES ('00000000-0000-4000-8000-000000000002')`)
	if err := s.(engine.Keeper).Keep(t.Context()); sqlstate.CodeOf(err) != sqlstate.LockNotAvailable {
		t.Errorf("while somebody writes: %v", err)
	}
	do(t, c, `COMMIT`)
	for range 2 {
		if err := s.(engine.Keeper).Keep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	finding("ok")
	check("upgraded")
	if n := do(t, c, `SELECT count(*) FROM cleave_internal.transaction`); n != "2" {
		t.Errorf("%s records", n)
	}

	// Another role's: nothing is changed, and doctor has the statements.
	pgtest.Ask(t, super, `ALTER SCHEMA cleave_internal OWNER TO stranger; REVOKE ALL ON ALL TABLES IN SCHEMA cleave_internal FROM cleave; REVOKE INSERT ON cleave_internal.transaction FROM PUBLIC`)
	if err := s.(engine.Keeper).Keep(t.Context()); sqlstate.CodeOf(err) != sqlstate.InsufficientPrivilege {
		t.Errorf("of another role: %v", err)
	}
	finding("warning")
	rep, _ := s.Check(t.Context())
	for _, f := range rep.Findings {
		if _, fix, ok := strings.Cut(f.Fix, "as a superuser: "); ok {
			for _, sql := range strings.Split(fix, "; ") {
				pgtest.Ask(t, super, sql)
			}
		}
	}
	finding("ok")
	check("by hand")

	// The mover is given up: all is the role's of the URL again, and nothing is the matter.
	pgtest.Ask(t, super, `REASSIGN OWNED BY cleave_mover TO cleave`)
	do(t, c, `UPDATE cleave_internal.transaction SET at = now()`)
}
