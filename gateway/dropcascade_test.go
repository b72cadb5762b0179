package gateway_test

import (
	"strings"
	"testing"
)

// TestDropFunctionCascade: CASCADE of a DROP does nothing where nothing depends on the object, as test suites and
// migrations write it to begin anew; what it would drop of tables is named.
func TestDropFunctionCascade(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	pg := plainConn(t)
	exec(t, pg, strings.Replace(ordersTable, " WITH (cleave.shard_key = 'tenant_id')", "", 1))
	const trigger = `CREATE FUNCTION touched() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.n = 4 THEN RAISE EXCEPTION 'no'; END IF; RETURN new; END $$`
	sameAsPlain(t, cl, conn, pg,
		`DROP FUNCTION IF EXISTS touched CASCADE`, `DROP FUNCTION touched() CASCADE`,
		trigger, `DROP FUNCTION touched() CASCADE /* all */ ; `, `DROP FUNCTION touched()`,
		trigger, `BEGIN; DROP FUNCTION public.touched cascade; ROLLBACK; DROP ROUTINE touched CASCADE`,
		`DROP EXTENSION IF EXISTS pg_trgm CASCADE`,
		// pgx's TestConnQueryRowConstraintErrors.
		`CREATE TEMPORARY TABLE defer_test (id text PRIMARY KEY, n int NOT NULL, UNIQUE (n), UNIQUE (n) DEFERRABLE INITIALLY DEFERRED)`,
		`DROP FUNCTION IF EXISTS touched CASCADE`, trigger,
		`CREATE CONSTRAINT TRIGGER test AFTER INSERT OR UPDATE ON defer_test DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION touched()`,
		`INSERT INTO defer_test (id, n) VALUES ('a', 1), ('b', 2), ('c', 3)`, `INSERT INTO defer_test (id, n) VALUES ('e', 4) RETURNING id`,
		`SELECT * FROM defer_test ORDER BY id`,
	)
	exec(t, conn, `DISCARD ALL`)
	exec(t, conn, `CREATE TRIGGER touches BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION touched()`)
	_, err := conn.Exec(t.Context(), `DROP FUNCTION touched CASCADE`)
	if codeOf(err) != "0A000" || !strings.Contains(err.Error(), "DROP FUNCTION ... CASCADE") {
		t.Errorf("with a trigger that depends on it: %v", err)
	}
	exec(t, conn, `DROP TRIGGER touches ON orders`)
	exec(t, conn, `DROP FUNCTION touched CASCADE`)
}
