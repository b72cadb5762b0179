package gateway_test

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/admin"
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
	exec(t, conn, `DROP FUNCTION touched CASCADE`)
	for shard := range cl.shards {
		if n := cl.direct(t, shard, `SELECT count(*) FROM pg_trigger WHERE tgname = 'touches'`); n != "0" {
			t.Errorf("shard %d has the trigger", shard)
		}
	}
}

// TestDropCascade: what CASCADE drops of tables of every kind (columns, defaults, constraints) is dropped on every shard, and the map
// knows it.
func TestDropCascade(t *testing.T) {
	t.Parallel()
	cl, conn, _ := orders(t, config{shards: 2})
	pg := plainConn(t)
	exec(t, pg, strings.Replace(ordersTable, " WITH (cleave.shard_key = 'tenant_id')", "", 1))
	for _, sql := range []string{
		`CREATE SCHEMA kinds; CREATE TYPE kinds.size AS ENUM ('s', 'l'); CREATE TYPE color AS ENUM ('red', 'blue'); CREATE DOMAIN small AS int CHECK (VALUE < 10); CREATE FUNCTION five() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 5'`,
		`CREATE TABLE w (id int PRIMARY KEY, c color, s kinds.size, d small, n int DEFAULT five(), CHECK (n <= five()))`,
		`CREATE TABLE r (id int PRIMARY KEY, c color, n int DEFAULT five())`,
		`ALTER TABLE orders ADD COLUMN c color, ADD COLUMN s kinds.size, ADD COLUMN d small, ADD COLUMN n int DEFAULT five(), ADD CONSTRAINT few CHECK (n <= five())`,
		`CREATE VIEW colored AS SELECT tenant_id, c FROM orders`,
	} {
		exec(t, pg, sql)
		if strings.HasPrefix(sql, `CREATE TABLE r `) {
			sql += ` WITH (cleave.reference = true)`
		}
		if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	rows := []string{`INSERT INTO orders (tenant_id, id) SELECT i, i FROM generate_series(1, 9) AS i`, `INSERT INTO w (id) VALUES (1)`, `INSERT INTO r (id) VALUES (1)`}
	look := []string{`SELECT to_json(o)::text FROM orders AS o ORDER BY tenant_id`, `SELECT to_json(w)::text FROM w`, `SELECT to_json(r)::text FROM r`, `SELECT count(*) FROM colored`,
		`DELETE FROM orders`, `DELETE FROM w`, `DELETE FROM r`}
	for _, sql := range []string{`DROP FUNCTION five()`, `DROP FUNCTION five() CASCADE`, `DROP DOMAIN small CASCADE`, `BEGIN; DROP TYPE color CASCADE; ROLLBACK`, `DROP TYPE color CASCADE`, `DROP SCHEMA kinds CASCADE`} {
		sameAsPlain(t, cl, conn, pg, append(append([]string{sql}, rows...), look...)...)
	}
	found, err := cl.ops.Doctor(t.Context(), admin.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Level == admin.LevelError {
			t.Errorf("%+v", f)
		}
	}
	// A shard key stays.
	for _, sql := range []string{`CREATE DOMAIN tenant AS bigint`, `CREATE TABLE keyed (k tenant PRIMARY KEY) WITH (cleave.shard_key = 'k')`} {
		if code(conn, sql) != "" {
			return // a domain is no key
		}
	}
	if code(conn, `DROP DOMAIN tenant CASCADE`) == "" {
		t.Error("the shard key is gone")
	}
}
