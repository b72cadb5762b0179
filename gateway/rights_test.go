package gateway_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/access"
)

// TestCodeIsConfined: no object brings code to a shard that the server does not confine, or a setting that a session may
// not have. This holds for every user who makes one.
func TestCodeIsConfined(t *testing.T) {
	cl := start(t, config{shards: 2})
	conn := cl.connect(t)
	exec(t, conn, "CREATE FUNCTION harmless(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'")
	for _, sql := range []string{
		"CREATE FUNCTION f(text) RETURNS text LANGUAGE internal IMMUTABLE AS 'pg_read_file_all'",
		"CREATE FUNCTION f(text, text, bool) RETURNS text LANGUAGE 'internal' IMMUTABLE STRICT AS 'set_config_by_name'",
		"CREATE FUNCTION f(text) RETURNS text AS 'pg_read_file_all' LANGUAGE \"internal\"",
		"CREATE FUNCTION f(text) RETURNS text LANGUAGE c AS '$libdir/dblink', 'dblink_connect'",
		"CREATE OR REPLACE FUNCTION harmless(int) RETURNS int LANGUAGE internal AS 'int4abs'",
		"CREATE PROCEDURE f(text) LANGUAGE internal AS 'pg_read_file_all'",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql SET session_replication_role = replica AS 'SELECT 1'",
		"ALTER FUNCTION harmless(int) SET session_replication_role = replica",
		"ALTER FUNCTION harmless(int) SET session_replication_role TO 'replica'",
		"ALTER ROUTINE harmless(int) SET \"session_replication_role\" = 'local'",
		"DO $$ BEGIN UPDATE pg_settings SET setting = 'replica' WHERE name = 'session_replication_role'; END $$",
		"DO LANGUAGE internal 'pg_read_file_all'",
		"CREATE AGGREGATE a(int) (SFUNC = int4pl, STYPE = int)",
		"CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)",
		"CREATE CAST (text AS int) WITH INOUT",
		"CREATE TYPE b (INPUT = int4in, OUTPUT = int4out)",
		"CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION harmless()",
		"CREATE FOREIGN DATA WRAPPER w",
		"CREATE LANGUAGE plx HANDLER plpgsql_call_handler",
		"CREATE TRANSFORM FOR int LANGUAGE sql (FROM SQL WITH FUNCTION harmless(internal))",
		"CREATE OPERATOR CLASS c FOR TYPE int USING btree AS OPERATOR 1 <",
		"CREATE ACCESS METHOD m TYPE INDEX HANDLER bthandler",
		"LOAD 'dblink'",
	} {
		if got := code(conn, sql); got != "42501" && got != "0A000" {
			t.Errorf("%s: %q, want 42501 or 0A000", sql, got)
		}
	}
	for shard := range 2 {
		if got := cl.direct(t, shard, `SELECT count(*) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
			WHERE p.pronamespace = 'public'::regnamespace AND (NOT l.lanpltrusted OR p.proconfig IS NOT NULL)`); got != "0" {
			t.Errorf("shard %d has %s such functions", shard, got)
		}
	}
	// What a superuser has made on the shard itself does not stand in the way, and is not believed to be harmless.
	cl.super(t, 0, "CREATE FUNCTION older(text) RETURNS text LANGUAGE internal IMMUTABLE STRICT AS 'pg_read_file_all'")
	exec(t, conn, "CREATE FUNCTION harmless2(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN $1; END'")
	wantCode(t, conn, "0A000", "SELECT older('PG_VERSION')")
}

// TestCatalogsThroughViews: no view leads a write to PostgreSQL's catalogues, which a superuser may write to.
func TestCatalogsThroughViews(t *testing.T) {
	cl := start(t, config{shards: 2})
	conn := cl.connect(t)
	exec(t, conn, "CREATE VIEW procs AS SELECT proname, prosrc, prolang FROM pg_proc")
	exec(t, conn, "CREATE VIEW procs2 AS SELECT * FROM procs")
	if one[int](t, conn, "SELECT count(*) FROM procs2") == 0 {
		t.Error("the view has no rows")
	}
	for _, sql := range []string{
		"UPDATE procs SET prosrc = prosrc", "UPDATE procs2 SET prosrc = prosrc", "DELETE FROM procs2", "INSERT INTO procs (proname) VALUES ('x')",
		"WITH u AS (UPDATE procs2 SET prosrc = prosrc RETURNING 1) SELECT count(*) FROM u", "EXPLAIN ANALYZE UPDATE procs SET prosrc = prosrc",
		"PREPARE p AS UPDATE procs SET prosrc = prosrc", "DO $$ BEGIN UPDATE procs SET prosrc = prosrc; END $$",
		"MERGE INTO procs USING (SELECT 1) s ON false WHEN NOT MATCHED THEN INSERT (proname) VALUES ('x')",
		"CREATE TEMP VIEW v AS SELECT * FROM pg_proc", "CREATE TEMP VIEW v AS SELECT * FROM procs",
		"CREATE TEMP VIEW v AS SELECT * FROM pg_settings", "CREATE VIEW v AS SELECT * FROM pg_settings",
	} {
		if got := code(conn, sql); got != "42501" && got != "0A000" {
			t.Errorf("%s: %q, want 42501 or 0A000", sql, got)
		}
	}
}

// TestSecretsAreForAdministrators: what PostgreSQL shows to superusers only, and the cluster's own secrets.
func TestSecretsAreForAdministrators(t *testing.T) {
	a := newAuthority(t)
	cl := start(t, config{shards: 2, tls: a.server(""), auth: passwords})
	addUser(t, cl, "bob", access.Ordinary)
	addUser(t, cl, "ops", access.Admin)
	bob, ops := cl.withTLS(t, "bob"), cl.withTLS(t, "ops")
	for _, sql := range []string{
		"SELECT count(*) FROM pg_authid", "SELECT count(*) FROM pg_catalog.pg_shadow", "TABLE pg_authid", "SELECT count(*) FROM pg_hba_file_rules",
		"SELECT count(*) FROM pg_file_settings", "SELECT count(*) FROM pg_hba_file_rules()", "SELECT count(*) FROM pg_show_all_file_settings()",
		"SELECT 1 WHERE EXISTS (SELECT FROM pg_authid)", "WITH a AS (SELECT rolpassword FROM pg_authid) SELECT count(*) FROM a",
		"COPY (SELECT rolpassword FROM pg_authid) TO STDOUT", "COPY pg_authid TO STDOUT", "EXPLAIN SELECT * FROM pg_authid",
		"PREPARE p AS SELECT rolpassword FROM pg_authid; EXECUTE p", "CREATE VIEW v AS SELECT * FROM pg_authid", "CREATE TEMP VIEW w AS SELECT * FROM pg_authid",
		"CREATE TABLE stolen AS SELECT rolpassword FROM pg_authid", "SELECT count(*) FROM cleave.users", "SELECT 1; SELECT count(*) FROM pg_authid",
		"DO $$ BEGIN PERFORM rolpassword FROM pg_authid; END $$", "CREATE FUNCTION pg_temp.stolen() RETURNS text LANGUAGE sql AS 'SELECT rolpassword FROM pg_authid LIMIT 1'",
		"DO $$ DECLARE h text; BEGIN SELECT rolpassword INTO h FROM pg_authid LIMIT 1; RAISE NOTICE '%', h; END $$",
		"BEGIN; DECLARE c CURSOR FOR SELECT rolpassword FROM pg_authid; FETCH c",
	} {
		if _, err := bob.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); codeOf(err) != "42501" && codeOf(err) != "0A000" {
			t.Errorf("%s (simple): %v", sql, err)
		}
		exec(t, bob, "ROLLBACK")
	}
	for range 2 { // also from the cache
		if _, err := bob.Exec(t.Context(), "SELECT rolpassword FROM pg_authid WHERE rolname = $1", "bob"); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("with a parameter: %v", err)
		}
		// An administrator is not kept from what the shards' role may not see either.
		if _, err := ops.Exec(t.Context(), "SELECT count(*) FROM pg_authid WHERE rolname = $1", "bob"); codeOf(err) != "42501" || !strings.Contains(err.Error(), "permission denied for table pg_authid") {
			t.Errorf("an administrator: %v", err)
		}
		if one[int](t, ops, "SELECT count(*) FROM cleave.users") == 0 {
			t.Error("an administrator does not see the users")
		}
	}
	wantCode(t, bob, "42501", "CREATE EXTENSION amcheck")
	// The shards' role is no superuser: one installs it on each shard.
	if _, err := ops.Exec(t.Context(), "CREATE EXTENSION amcheck"); codeOf(err) != "42501" || !strings.Contains(err.Error(), "permission denied to create extension") {
		t.Errorf("an extension that is not trusted: %v", err)
	}
	exec(t, bob, "CREATE EXTENSION pg_trgm")
	if _, err := bob.Exec(t.Context(), "SELECT set_limit(0.9)", pgx.QueryExecModeSimpleProtocol); codeOf(err) != "0A000" {
		t.Errorf("set_limit(): %v", err)
	}
	for _, table := range []string{"shards", "endpoints"} {
		if n := one[int](t, bob, "SELECT count(url) FROM cleave."+table); n != 0 {
			t.Errorf("a user sees %d URLs in cleave.%s", n, table)
		}
	}
	if one[int](t, ops, "SELECT count(*) FROM cleave.users") != 2 || one[int](t, ops, "SELECT count(url) FROM cleave.shards") != 2 {
		t.Error("an administrator does not see users and URLs")
	}
	if one[int](t, bob, "SELECT count(*) FROM pg_roles") == 0 {
		t.Error("a user does not see the roles")
	}
}

// withTLS connects as a user whose password is its name, doubled.
func (c *cluster) withTLS(t *testing.T, user string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), "postgres://"+user+":"+user+user+"@"+c.addr+"/cleave?sslmode=require")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}
