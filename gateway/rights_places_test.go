package gateway_test

import (
	"strings"
	"testing"
)

// TestCodeHasNoBackDoor: a function that acts on its session can be made, and is run from no place in a statement where an
// expression or the name of a function can stand.
func TestCodeHasNoBackDoor(t *testing.T) {
	cl := start(t, config{shards: 1})
	conn := cl.connect(t)
	for _, sql := range []string{
		"CREATE TABLE t (a int, b int)", "INSERT INTO t VALUES (1, 2)",
		"CREATE FUNCTION evil(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'the code ran'; EXECUTE 'SELECT 1'; RETURN $1; END $$",
		"CREATE FUNCTION evil() RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'the code ran'; EXECUTE 'SELECT 1'; RETURN 1; END $$",
		"CREATE FUNCTION evil_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the code ran'; EXECUTE 'SELECT 1'; RETURN NEW; END $$",
		"CREATE FUNCTION evil_diff(float8, float8) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'the code ran'; EXECUTE 'SELECT 1'; RETURN $1 - $2; END $$",
		"CREATE FUNCTION evil_of(t) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'the code ran'; EXECUTE 'SELECT 1'; RETURN 1; END $$",
		"CREATE FUNCTION evil_any(anyelement) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'the code ran'; EXECUTE 'SELECT 1'; RETURN 1; END $$",
		"CREATE TABLE whole (a int) PARTITION BY RANGE (a)", "CREATE TABLE part (a int)", "CREATE TYPE pair AS (a int, b int)", "CREATE VIEW seen AS SELECT a, b FROM t",
		"CREATE TABLE s (k bigint PRIMARY KEY, v int) WITH (cleave.shard_key = 'k')", "INSERT INTO s VALUES (1, 1)", "CREATE TEMP TABLE temp_t (a int, b int)", "INSERT INTO temp_t VALUES (1, 2)", "PREPARE given(int) AS SELECT $1",
		"CREATE PROCEDURE evil_act() LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the code ran'; EXECUTE 'SELECT 1'; END $$",
	} {
		exec(t, conn, sql)
	}
	// What PostgreSQL itself brings, or what can be read, stays.
	for _, sql := range []string{
		"CREATE FUNCTION good_diff(float8, float8) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT $1 - $2'",
		"CREATE TYPE range1 AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = float8mi)", "CREATE TYPE range2 AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = good_diff)",
		"CREATE TABLE parts (a int) PARTITION BY RANGE (abs(a))", "CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (abs(-1)) TO (10)",
		"CREATE TABLE excluded (a int4range, EXCLUDE USING gist (a WITH &&))",
	} {
		exec(t, conn, sql)
	}
	for _, sql := range []string{
		"SELECT evil()", "SELECT 1 FROM t WHERE evil(a) = 1", "SELECT a FROM t ORDER BY evil(a)", "SELECT 1 LIMIT evil()", "SELECT * FROM evil()", "SELECT * FROM ROWS FROM (evil(), evil(1))",
		"SELECT (SELECT evil())", "WITH x AS (SELECT evil()) SELECT * FROM x", "VALUES (evil())", "SELECT sum(evil(a)) OVER () FROM t", "SELECT count(*) FILTER (WHERE evil(a) = 1) FROM t",
		"SELECT a FROM t GROUP BY a HAVING evil(a) = 1", "SELECT 1 FROM t JOIN t u ON evil(t.a) = 1", "SELECT * FROM t TABLESAMPLE bernoulli (evil())", "SELECT (ARRAY[1])[evil()]",
		"SELECT CASE WHEN evil() = 1 THEN 1 END", "SELECT (t).evil_of FROM t", "SELECT t.evil_of FROM t", "SELECT (x).evil_of FROM (SELECT t AS x FROM t) y", "UPDATE t SET b = t.evil_of", "SELECT (ROW(1, 2)::t).evil_of",
		"CREATE INDEX ON t ((t.evil_of))", "SELECT 1 FROM t WHERE t.evil_of = 1",
		// x.f and (x).f are calls as well where x has no column f, of functions of PostgreSQL's, too.
		"SELECT t.evil_any FROM t", "SELECT (t.a).evil_any FROM t", "SELECT (1).evil_any", "SELECT (ROW(1, 2)::pair).evil_any", "SELECT s.evil_any FROM s", "SELECT s.evil_any FROM s WHERE k = 1", "SELECT (s).evil_any FROM s",
		"SELECT x.evil_any FROM (SELECT 1 AS a) x", "SELECT (x.*).evil_any FROM (SELECT 1 AS a) x", "WITH x AS (SELECT 1 AS a) SELECT x.evil_any FROM x", "SELECT x.evil_any FROM generate_series(1, 2) x",
		"UPDATE s SET v = s.evil_any WHERE k = 1", "DELETE FROM s WHERE s.evil_any = 1", "INSERT INTO s VALUES (2, 2) RETURNING s.evil_any", "INSERT INTO s VALUES (1, 2) ON CONFLICT (k) DO UPDATE SET v = excluded.evil_any",
		"SELECT (1::bigint).pg_advisory_lock", "SELECT ('SELECT 1'::text).ts_stat", "SELECT (0.5::float8).setseed", "SELECT ('/etc'::text).pg_ls_dir", "SELECT (1).pg_terminate_backend",
		"DO $$ BEGIN PERFORM x.evil_any FROM t x; END $$", "DO $$ DECLARE v pair; BEGIN v := ROW(1, 2); PERFORM (v).evil_any; END $$", "DO $$ BEGIN IF (1).evil_any = 1 THEN NULL; END IF; END $$",
		"CREATE FUNCTION of_row(r pair) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT r.evil_any'; SELECT of_row(ROW(1, 2)::pair)",
		"CREATE FUNCTION of_row2(r pair) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN (r).evil_any; END $$; SELECT of_row2(ROW(1, 2)::pair)",
		"CREATE FUNCTION locks() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1 FROM (SELECT (1::bigint).pg_advisory_lock) x'; SELECT locks()",
		"CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.evil_any = 1) EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		// What the map does not know, and what is a shard's to compute.
		"ALTER TABLE temp_t ALTER COLUMN b SET DEFAULT evil()", "ALTER TABLE temp_t ADD COLUMN c int DEFAULT evil()", "ALTER TABLE temp_t ADD CHECK (evil(a) = 1)", "ALTER TABLE temp_t ALTER COLUMN b TYPE int USING evil(b)",
		"ALTER TABLE temp_t ADD CHECK (temp_t.evil_any = 1)", "ALTER VIEW seen ALTER COLUMN a SET DEFAULT evil()", "ALTER TABLE seen ALTER COLUMN a SET DEFAULT evil()",
		"EXECUTE given(evil())", "EXECUTE given((1).evil_any)", "EXPLAIN ANALYZE EXECUTE given(evil())", "CREATE TABLE u AS EXECUTE given(evil())", "EXECUTE given(length(set_config('work_mem', '1MB', false)))",
		"INSERT INTO t VALUES (1) ON CONFLICT (evil(a)) DO NOTHING", "INSERT INTO s VALUES (1, 2) ON CONFLICT (k) DO UPDATE SET v = evil()", "COPY t FROM STDIN WHERE evil(a) = 1", "SELECT a FROM t WINDOW x AS (ORDER BY evil(a))",
		"SELECT count(*) OVER (ORDER BY a ROWS BETWEEN evil() PRECEDING AND CURRENT ROW) FROM t", "SELECT DISTINCT ON (evil(a)) a FROM t", "SELECT a FROM t FETCH FIRST (evil()) ROWS ONLY", "SELECT * FROM t, LATERAL evil(a)",
		"UPDATE t SET (a, b) = (SELECT evil(), 1)", "SELECT now() AT TIME ZONE evil()::text", "SELECT a FROM t GROUP BY GROUPING SETS ((evil(a)), a)", "SELECT percentile_cont(evil()) WITHIN GROUP (ORDER BY a) FROM t",
		"MERGE INTO t USING (SELECT 1 AS x) s ON a = x WHEN NOT MATCHED THEN INSERT VALUES (evil())", "WITH RECURSIVE z(n) AS (SELECT 1 UNION ALL SELECT evil(n) FROM z) SELECT * FROM z", "SELECT set_config('work_mem', evil()::text, false)",
		"INSERT INTO t VALUES (evil())", "INSERT INTO t SELECT evil()", "UPDATE t SET b = evil(a)", "DELETE FROM t WHERE evil(a) = 1", "INSERT INTO t VALUES (1) RETURNING evil()",
		"MERGE INTO t USING (SELECT 1 AS x) s ON a = x WHEN MATCHED AND evil(b) = 2 THEN DELETE",
		"COPY (SELECT evil()) TO STDOUT", "EXPLAIN ANALYZE SELECT evil()", "DECLARE c CURSOR WITH HOLD FOR SELECT evil()", "PREPARE p AS SELECT evil()",
		"DO $$ BEGIN PERFORM evil(); END $$", "DO $$ BEGIN EXECUTE 'SET session_replication_role = replica'; END $$", "DO $$ BEGIN PERFORM set_config('session_replication_role', 'replica', false); END $$",
		"DO $$ BEGIN SET session_replication_role = replica; END $$", "CALL evil_act()", "DO $$ BEGIN CALL evil_act(); END $$",
		"CREATE TABLE u (a int DEFAULT evil())", "CREATE TABLE u (a int CHECK (evil(a) = 1))", "CREATE TABLE u (a int, b int GENERATED ALWAYS AS (evil(a)) STORED)",
		"CREATE TABLE u AS SELECT evil()", "SELECT evil() INTO u", "CREATE MATERIALIZED VIEW m AS SELECT evil()", "CREATE TEMP TABLE v (a int DEFAULT evil())", "CREATE TEMP TABLE v AS SELECT evil()",
		"CREATE TABLE u (a int) PARTITION BY RANGE (evil(a))", "CREATE TEMP TABLE v (a int) PARTITION BY RANGE (evil(a))", "CREATE TEMP TABLE v (a int, EXCLUDE ((evil(a)) WITH =))",
		"CREATE TABLE u PARTITION OF whole FOR VALUES FROM (evil()) TO (10)", "ALTER TABLE whole ATTACH PARTITION part FOR VALUES FROM (evil()) TO (10)", "CREATE TABLE u (a int, EXCLUDE ((evil(a)) WITH =))",
		"ALTER TABLE t ADD COLUMN c int DEFAULT evil()", "ALTER TABLE t ALTER COLUMN b SET DEFAULT evil()", "ALTER TABLE t ALTER COLUMN b TYPE int USING evil(b)", "ALTER TABLE t ADD CHECK (evil(a) = 1)",
		"CREATE INDEX ON t (evil(a))", "CREATE INDEX ON t (a) WHERE evil(a) = 1", "CREATE STATISTICS s ON (evil(a)), b FROM t", "CREATE DOMAIN d AS int CHECK (evil(VALUE) = 1)", "CREATE DOMAIN d AS int DEFAULT evil()",
		"CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION evil_row()", "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW WHEN (evil(NEW.a) = 1) EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		"CREATE TYPE r AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = evil_diff)", "CREATE POLICY p ON t USING (evil(a) = 1)", "CREATE RULE r AS ON INSERT TO t DO ALSO SELECT evil()",
		"CREATE FUNCTION f(a int DEFAULT evil()) RETURNS int LANGUAGE sql AS 'SELECT 1'; SELECT f()", "CREATE FUNCTION g() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT evil()'; SELECT g()",
		"CREATE FUNCTION h() RETURNS int LANGUAGE sql IMMUTABLE RETURN evil(); SELECT h()", "CREATE VIEW w AS SELECT evil() AS x; SELECT * FROM w",
		"COPY t TO '/tmp/x'", "COPY t FROM '/etc/passwd'", "COPY t TO PROGRAM 'true'", "COPY (SELECT 1) TO PROGRAM 'true'", "COPY t FROM PROGRAM 'true'",
		"CREATE TABLESPACE x LOCATION '/tmp'", "CREATE SERVER s FOREIGN DATA WRAPPER w", "ALTER SYSTEM SET work_mem = '1MB'", "SET SESSION AUTHORIZATION DEFAULT",
		"ALTER ROLE CURRENT_USER SET session_replication_role = replica", "ALTER DATABASE postgres SET session_replication_role = replica",
		"CREATE FUNCTION k(int) RETURNS int LANGUAGE sql SUPPORT generate_series_int4_support AS 'SELECT 1'", "ALTER FUNCTION evil(int) SUPPORT generate_series_int4_support",
		"ALTER TYPE int4 SET (RECEIVE = int8recv)", "SECURITY LABEL ON TABLE t IS 'x'", "SELECT lo_import('/etc/passwd')", "SELECT pg_read_file('PG_VERSION')",
	} {
		_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
		switch {
		case err == nil:
			t.Errorf("taken: %s", sql)
		case strings.Contains(err.Error(), "the code ran"):
			t.Errorf("%s: %v", sql, err)
		}
		_, _ = conn.PgConn().Exec(t.Context(), "ROLLBACK").ReadAll()
		if got := one[string](t, conn, "SELECT current_setting('session_replication_role')"); got != "origin" {
			t.Fatalf("after %s a connection has session_replication_role = %s", sql, got)
		}
	}
}
