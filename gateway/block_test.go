package gateway_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// blockClient is a connection that keeps the notices.
type blockClient struct {
	*pgx.Conn
	said []string
}

func blockConnect(t *testing.T, url string) *blockClient {
	t.Helper()
	c := &blockClient{}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { c.said = append(c.said, reportOf((*pgconn.PgError)(n))) }
	if c.Conn, err = pgx.ConnectConfig(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

var ofShard = regexp.MustCompile(`\n?shard shard-[^\n]*$`)

func reportOf(e *pgconn.PgError) string {
	return fmt.Sprintf("%s %s: %s / %s / %s / %d %d %q / %s", e.Severity, e.Code, e.Message, e.Detail, e.Hint, e.Position, e.InternalPosition, e.InternalQuery, ofShard.ReplaceAllString(e.Where, ""))
}

// run runs a text and says all that came of it. simple: as a simple query.
func (c *blockClient) run(sql string, simple bool) string {
	c.said = nil
	var err error
	tag := ""
	if simple {
		var all []*pgconn.Result
		all, err = c.PgConn().Exec(context.Background(), sql).ReadAll()
		for _, r := range all {
			tag += r.CommandTag.String() + ";"
			for _, row := range r.Rows {
				tag += fmt.Sprintf(" %s", row)
			}
		}
	} else {
		var t pgconn.CommandTag
		t, err = c.Exec(context.Background(), sql)
		tag = t.String()
	}
	out := strings.Join(append(c.said, tag), "\n")
	if err != nil {
		e, ok := err.(*pgconn.PgError)
		if !ok {
			return out + "\n" + err.Error()
		}
		out += "\n" + reportOf(e)
	}
	return out + "\n" + string(c.PgConn().TxStatus())
}

// blockState is what the schema is, in names that both sides have.
const blockState = `SELECT string_agg(k || ' ' || n, ', ' ORDER BY k, n) FROM (
 SELECT 'type' AS k, typname::text AS n FROM pg_type t JOIN pg_namespace s ON s.oid = typnamespace WHERE nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema' AND nspname <> 'cleave_internal' AND typtype IN ('e', 'd')
 UNION ALL SELECT 'column', table_schema || '.' || table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns WHERE table_schema NOT IN ('pg_catalog', 'information_schema', 'cleave_internal')
 UNION ALL SELECT 'constraint', conname::text FROM pg_constraint c JOIN pg_class r ON r.oid = conrelid JOIN pg_namespace s ON s.oid = relnamespace WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal') AND contype <> 'n'
 UNION ALL SELECT 'index', indexname::text FROM pg_indexes WHERE schemaname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal')
 UNION ALL SELECT 'view', viewname::text FROM pg_views WHERE schemaname NOT IN ('pg_catalog', 'information_schema', 'cleave_internal')) x`

// blocks are run one after the other; each is one message.
var blocks = []string{
	`DO $$ BEGIN CREATE TYPE "public"."mood" AS ENUM('a','b'); EXCEPTION WHEN duplicate_object THEN null; END $$;`,
	`DO $$ BEGIN CREATE TYPE "public"."mood" AS ENUM('a','b'); EXCEPTION WHEN duplicate_object THEN null; END $$;`,
	`DO $$ BEGIN CREATE TYPE mood AS ENUM('a','b'); END $$`,
	"DO $x$\nBEGIN\n  CREATE TYPE mood AS ENUM('a','b');\nEXCEPTION WHEN duplicate_table OR undefined_table THEN null;\nEND $x$",
	`DO LANGUAGE plpgsql 'BEGIN IF NOT EXISTS (SELECT 1 FROM pg_type WHERE typname = ''mood'') THEN CREATE TYPE mood AS ENUM (''x''); END IF; END'`,
	`DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_type WHERE typname = 'state') THEN CREATE TYPE state AS ENUM ('on', 'off'); END IF; END $$ LANGUAGE plpgsql`,
	`CREATE TABLE b (id bigint PRIMARY KEY, label text)`,
	`CREATE TABLE a (id bigint PRIMARY KEY, b bigint, m mood)`,
	`DO $$ BEGIN
 ALTER TABLE "a" ADD CONSTRAINT "a_b_fk" FOREIGN KEY ("b") REFERENCES "public"."b"("id") ON DELETE no action ON UPDATE no action;
EXCEPTION
 WHEN duplicate_object THEN null;
END $$;`,
	`DO $$ BEGIN
 ALTER TABLE "a" ADD CONSTRAINT "a_b_fk" FOREIGN KEY ("b") REFERENCES "public"."b"("id") ON DELETE no action ON UPDATE no action;
EXCEPTION
 WHEN duplicate_object THEN null;
END $$;`,
	`DO $$ BEGIN ALTER TABLE nosuch ADD CONSTRAINT x FOREIGN KEY (b) REFERENCES b(id); EXCEPTION WHEN duplicate_object THEN null; END $$;`,
	`DO $$ BEGIN ALTER TABLE nosuch ADD x int; EXCEPTION WHEN undefined_table THEN RAISE NOTICE 'no table: % (%) %%', SQLERRM, SQLSTATE USING HINT = 'make it', DETAIL = 'none'; END $$;`,
	"DO $$\n-- all of it\nBEGIN\n  CREATE TABLE half (x int); /* made */\n  CREATE TABLE b (x int);\nEXCEPTION\n  WHEN duplicate_table THEN\n    RAISE WARNING 'there already';\n    CREATE TABLE other (x int);\nEND $$",
	`DO $$ BEGIN CREATE TABLE half (x int); CREATE TABLE b (x int); END $$`,
	`DO $$ BEGIN
 IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_name = 'b' AND column_name = 'size') THEN
  ALTER TABLE b ADD COLUMN size int NOT NULL DEFAULT 0;
  CREATE INDEX b_size ON b (size);
 END IF;
 IF EXISTS (SELECT FROM pg_tables WHERE tablename = 'nosuch') THEN DROP TABLE nosuch; ELSIF to_regclass('public.other') IS NOT NULL THEN DROP TABLE other; ELSE CREATE TABLE never (); END IF;
END $$`,
	`DO $$ BEGIN IF (SELECT count(*) FROM pg_indexes WHERE indexname = 'b_size') > 0 THEN ALTER INDEX b_size RENAME TO b_by_size; END IF; END $$`,
	`DO $$ BEGIN IF count(*) = 0 FROM pg_type WHERE typname = 'positive' THEN CREATE DOMAIN positive AS int CHECK (VALUE > 0); COMMENT ON DOMAIN positive IS 'it''s'; END IF; END $$`,
	`DO $$ BEGIN CREATE DOMAIN positive AS text; EXCEPTION WHEN OTHERS THEN NULL; END $$`,
	`DO $$ BEGIN CREATE DOMAIN positive AS text; EXCEPTION WHEN syntax_error_or_access_rule_violation THEN RAISE; END $$`,
	`DO $$ BEGIN CREATE DOMAIN positive AS text; EXCEPTION WHEN SQLSTATE '42710' THEN RAISE EXCEPTION 'I said %', SQLERRM USING ERRCODE = 'unique_violation'; END $$`,
	`DO $$ BEGIN CREATE TABLE t1 (a int); BEGIN CREATE TABLE t2 (a int); CREATE TABLE t1 (a int); EXCEPTION WHEN duplicate_table THEN CREATE TABLE t3 (a int); END; CREATE TABLE t4 (a int); EXCEPTION WHEN OTHERS THEN CREATE TABLE t5 (a int); END $$`,
	`DO $$ BEGIN CREATE TABLE u1 (a int); BEGIN CREATE TABLE u1 (a int); EXCEPTION WHEN undefined_table THEN CREATE TABLE u3 (a int); END; CREATE TABLE u4 (a int); EXCEPTION WHEN duplicate_table THEN CREATE TABLE u5 (a int); END $$`,
	`DO $$ BEGIN CREATE TABLE v1 (a int); BEGIN CREATE TABLE v1 (a int); EXCEPTION WHEN duplicate_table THEN CREATE TABLE v1 (a int); END; END $$`,
	`DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_class WHERE nosuch = 1) THEN CREATE TABLE w (a int); END IF; END $$`,
	`DO $$ BEGIN IF 1/0 = 1 THEN CREATE TABLE w (a int); END IF; END $$`,
	`DO $$ BEGIN IF 1/0 = 1 THEN CREATE TABLE w (a int); END IF; EXCEPTION WHEN division_by_zero THEN CREATE TABLE w1 (a int); END $$`,
	`DO $$ BEGIN IF NULL THEN CREATE TABLE w (a int); END IF; END $$`,
	`DO $$ BEGIN RETURN; CREATE TABLE w (a int); END $$`,
	`DO $$ BEGIN EXECUTE 'CREATE TABLE x1 (a int)'; EXECUTE format('ALTER TABLE %I ADD COLUMN %I int', 'x1', 'B c'); EXECUTE 'CREATE TABLE x2 (a int); CREATE TABLE x3 (a x1)'; EXECUTE ''; END $$`,
	`DO $$ BEGIN EXECUTE 'CREATE TABLE x1 (a int)'; END $$`,
	`DO $$ BEGIN EXECUTE 'CREATE TABL x1 (a int)'; END $$`,
	`DO $$ BEGIN EXECUTE NULL; END $$`,
	`DO $$ BEGIN EXECUTE 'CREATE TABL x1 (a int)'; EXCEPTION WHEN syntax_error THEN RAISE INFO 'none'; END $$`,
	`DO $$ BEGIN CREATE TABLE IF NOT EXISTS b (id int); DROP TABLE IF EXISTS nosuch; END $$`,
	`DO $$ BEGIN CREATE TABLE y (a nosuch); END $$`,
	`DO $$ BEGIN CREATE TABLE y (a int, a int); EXCEPTION WHEN duplicate_column THEN NULL; END $$`,
	`DO $$ BEGIN ALTER TABLE a ADD CHECK (nosuch > 0); END $$`,
	`DO $$ BEGIN CREATE INDEX CONCURRENTLY i ON b (id); END $$`,
	`DO $$ BEGIN CREATE INDEX CONCURRENTLY i ON b (id); EXCEPTION WHEN active_sql_transaction THEN CREATE INDEX i ON b (id); END $$`,
	`DO $$ BEGIN CREATE VIEW seen AS SELECT * FROM b; CREATE SCHEMA s; CREATE TABLE s.t (a int PRIMARY KEY); GRANT SELECT ON s.t TO PUBLIC; DROP VIEW seen; END $$`,
	`DO $$ BEGIN CREATE TABLE z (a int); END $$; DO $$ BEGIN ALTER TABLE z ADD b int; END $$; SELECT count(*) FROM z`,
	`CREATE TABLE zz (a int); DO $$ BEGIN ALTER TABLE zz ADD b int; ALTER TABLE zz ADD b int; END $$`,
	`BEGIN; SAVEPOINT s; DO $$ BEGIN CREATE TABLE q (a int); EXCEPTION WHEN OTHERS THEN NULL; END $$; INSERT INTO q VALUES (1); ROLLBACK TO s; DO $$ BEGIN CREATE TABLE q (a int); CREATE TABLE q (a int); EXCEPTION WHEN OTHERS THEN NULL; END $$; COMMIT`,
	`BEGIN; SAVEPOINT s; DO $$ BEGIN CREATE TABLE q (a int); CREATE TABLE q (a int); EXCEPTION WHEN undefined_table THEN NULL; END $$`,
	`ROLLBACK TO s; CREATE TABLE q (b int); DO $$ BEGIN ALTER TABLE q RENAME b TO c; END $$; COMMIT`,
	`DO $$ BEGIN CREATE TABLE x (a int); EXCEPTION WHEN nosuch THEN NULL; END $$`,
	`DO $$ BEGIN CREATE TABLE x (a int); RAISE NOTICE 'a %'; END $$`,
	`SET client_min_messages = warning; DO $$ BEGIN CREATE TABLE IF NOT EXISTS b (id int); RAISE NOTICE 'quiet'; RAISE WARNING 'loud'; END $$; RESET client_min_messages`,
	`BEGIN READ ONLY; DO $$ BEGIN CREATE TABLE x (a int); END $$`,
	`ROLLBACK`,
	`BEGIN READ ONLY; DO $$ BEGIN CREATE TABLE x (a int); EXCEPTION WHEN read_only_sql_transaction THEN RAISE NOTICE 'only read'; END $$`,
	`ROLLBACK`,
	`DO $$ BEGIN ALTER TABLE b ADD note text; INSERT INTO b (id, size) SELECT i, i FROM generate_series(1, 5) i; UPDATE b SET note = 'n' || id WHERE size > 2; ALTER TABLE b ALTER note SET DEFAULT 'd'; INSERT INTO b (id, size) VALUES (9, 9); PERFORM count(*) FROM b; PERFORM 1; END $$`,
	`SELECT string_agg(id || coalesce(note, '-'), ',' ORDER BY id) FROM b`,
	`DO $$ BEGIN INSERT INTO b (id, size) VALUES (20, 1); INSERT INTO b (id, size) VALUES (1, 1); EXCEPTION WHEN unique_violation THEN INSERT INTO b (id, size) VALUES (21, 1); RAISE NOTICE '%', SQLERRM; END $$`,
	`DO $$ BEGIN INSERT INTO b (id, size) VALUES (22, 1); INSERT INTO b (id, size) VALUES (1, 1); END $$`,
	`DO $$ BEGIN DELETE FROM nosuch; EXCEPTION WHEN undefined_table THEN DELETE FROM b WHERE nosuch = 1; END $$`,
	`DO $$ BEGIN COMMENT ON TABLE b IS 'x'; PERFORM 1 / (size - 1) FROM b; END $$`,
	`DO $$ BEGIN EXECUTE 'INSERT INTO b (id, size) VALUES (30, 1); DELETE FROM b WHERE id = 9 RETURNING id; SELECT * FROM b'; EXECUTE format('UPDATE %I SET size = %L', 'b', 7); END $$`,
	`SELECT string_agg(id || ' ' || size, ',' ORDER BY id) FROM b`,
	`SET statement_timeout = '1s'`,
	`DO $$ BEGIN COMMENT ON TABLE b IS 'x'; PERFORM pg_sleep(60); EXCEPTION WHEN OTHERS THEN NULL; END $$`,
	`RESET statement_timeout`,
	`DO $$ BEGIN TRUNCATE b CASCADE; ALTER TYPE mood ADD VALUE IF NOT EXISTS 'c'; ALTER TYPE mood ADD VALUE IF NOT EXISTS 'c'; END $$`,
}

// TestBlocks runs DO blocks with schema changes through the router and on one PostgreSQL.
func TestBlocks(t *testing.T) {
	for _, simple := range []bool{true, false} {
		t.Run(fmt.Sprintf("simple %v", simple), func(t *testing.T) {
			cl := start(t, config{})
			plain, routed := blockConnect(t, pgtest.Database(t)), blockConnect(t, cl.url(""))
			timed := false // the query of the state may take longer than the timeout
			for _, sql := range blocks {
				timed = strings.HasPrefix(sql, "SET statement_timeout") || timed && !strings.HasPrefix(sql, "RESET")
				as := simple || strings.Contains(strings.TrimSuffix(regexp.MustCompile(`(?s)\$(\w*)\$.*?\$\w*\$`).ReplaceAllString(sql, ""), ";"), ";")
				want, got := plain.run(sql, as), routed.run(sql, as)
				if want != got {
					t.Errorf("%s\nPostgreSQL:\n%s\nrouter:\n%s", sql, want, got)
				}
				if !timed && plain.PgConn().TxStatus() == 'I' {
					if want, got := one[string](t, plain.Conn, blockState), one[string](t, routed.Conn, blockState); want != got {
						t.Fatalf("after %s\nPostgreSQL: %s\nrouter: %s", sql, want, got)
					}
				}
			}
		})
	}
}

// TestBlockCodes are the SQLSTATEs of code that is none, or none that the router carries out.
func TestBlockCodes(t *testing.T) {
	cl, conn, _ := orders(t, config{shards: 1})
	exec(t, conn, "CREATE TABLE kept (a int)")
	exec(t, conn, "SELECT cleave.declare('said', shard_key => 'id')")
	wantCode(t, conn, "42703", "DO $$ BEGIN CREATE TABLE said (a int); EXCEPTION WHEN OTHERS THEN NULL; END $$")
	for sql, want := range map[string]string{
		"DO $$ BEGIN CREATE TABLE x (a int; END $$":                                                                                      "42601",
		"DO $$ BEGIN CREATE TABLE x (a int) END $$":                                                                                      "42601",
		"DO $$ BEGIN CREATE TABLE x (a int); IF true THEN END $$":                                                                        "42601",
		"DO $$ BEGIN CREATE TABLE x (a int)":                                                                                             "42601",
		"DO $$ BEGIN CREATE TABLE x (a text DEFAULT 'b); END $$":                                                                         "42601",
		"DO $$ BEGIN CREATE TABLE x (a int); UPDATE orders SET note = '' RETURNING id; END $$":                                           "0A000",
		"DO $$ BEGIN CREATE TABLE x (a int); SELECT 1; END $$":                                                                           "0A000",
		"DO $$ BEGIN EXECUTE 'SELECT ' || '1 AS a INTO x'; END $$":                                                                       "0A000",
		"DO $$ BEGIN PERFORM pg_advisory_lock(1); CREATE TABLE x (a int); END $$":                                                        "0A000",
		"DO $$ DECLARE n int := 1; BEGIN CREATE TABLE x (a int); END $$":                                                                 "0A000",
		"DO $$ BEGIN CREATE TABLE x (a int); COMMIT; END $$":                                                                             "0A000",
		"DO $$ BEGIN CREATE TEMP TABLE x (a int); END $$":                                                                                "0A000",
		"DO $$ BEGIN IF nextval('s') > 0 THEN CREATE TABLE x (a int); END IF; END $$":                                                    "0A000",
		"DO $$ BEGIN IF 1 THEN CREATE TABLE x (a int); END IF; END $$":                                                                   "0A000",
		"DO $$ BEGIN IF found THEN CREATE TABLE x (a int); END IF; END $$":                                                               "0A000",
		"DO $$ BEGIN CREATE ROLE block_role; EXCEPTION WHEN OTHERS THEN NULL; END $$":                                                    "0A000",
		"DO $$ BEGIN ALTER TABLE orders DROP COLUMN tenant_id; EXCEPTION WHEN OTHERS THEN NULL; END $$":                                  "0A000",
		"DO $$ BEGIN ANALYZE; EXCEPTION WHEN OTHERS THEN NULL; END $$":                                                                   "0A000",
		"DO $$ BEGIN DROP SCHEMA cleave_internal CASCADE; EXCEPTION WHEN insufficient_privilege THEN NULL; END $$":                       "42501",
		"DO $$ BEGIN IF true THEN " + strings.Repeat("BEGIN ", 60) + "DROP TABLE kept;" + strings.Repeat("END;", 60) + " END IF; END $$": "0A000",
		"DO $$ BEGIN IF " + strings.Repeat("NOT ", 5000) + "true THEN DROP TABLE kept; END IF; END $$":                                   "54001",
		"DO $$ BEGIN " + strings.Repeat("IF true THEN ", 100000) + "DROP TABLE kept $$":                                                  "54001",
		"DO LANGUAGE sql $$ DROP TABLE kept $$":                                                                                          "0A000",
	} {
		if got := code(conn, sql); got != want {
			t.Errorf("%.200s: SQLSTATE %q, want %q", sql, got, want)
		}
	}
	_, err := conn.Exec(context.Background(), "DO $$\nBEGIN\n  CREATE TABLE x (a int);\n  FOR i IN 1..3 LOOP\n    NULL;\n  END LOOP;\nEND $$")
	if e, ok := err.(*pgconn.PgError); !ok || !strings.Contains(e.Detail, "line 4: FOR") {
		t.Errorf("the refusal does not name what it is for: %+v", err)
	}
	if got := cl.direct(t, 0, "SELECT string_agg(relname, ',') FROM pg_class WHERE relname IN ('x', 'kept')"); got != "kept" {
		t.Errorf("tables are %s", got)
	}
}

// TestBlockOnAllShards: a schema change of a block is on all shards or on none, beside rows of the transaction.
func TestBlockOnAllShards(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	columns := func(want string) {
		t.Helper()
		for i := range cl.shards {
			if got := cl.direct(t, i, "SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0 AND NOT attisdropped"); got != want {
				t.Errorf("shard %d has columns %s, want %s", i, got, want)
			}
		}
	}
	exec(t, conn, "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_name = 'orders' AND column_name = 'size') THEN ALTER TABLE orders ADD COLUMN size int; END IF; END $$")
	columns("tenant_id,id,note,size")
	exec(t, conn, "DO $$ BEGIN ALTER TABLE orders ADD COLUMN color text; ALTER TABLE orders ADD COLUMN size int; EXCEPTION WHEN duplicate_column THEN NULL; END $$")
	columns("tenant_id,id,note,size")

	// Rows of several shards before it, and between.
	exec(t, conn, "BEGIN")
	for _, k := range keys {
		exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x', 1)", k[0])
	}
	exec(t, conn, "DO $$ BEGIN ALTER TABLE orders ADD COLUMN size int; EXCEPTION WHEN duplicate_column THEN ALTER TABLE orders ADD COLUMN color text DEFAULT 'red'; END $$")
	exec(t, conn, "UPDATE orders SET color = 'blue' WHERE tenant_id = $1", keys[1][0])
	exec(t, conn, "DO $$ BEGIN IF (SELECT count(*) FROM orders WHERE color = 'red') = 2 THEN ALTER TABLE orders ADD COLUMN two int; END IF; END $$")
	exec(t, conn, "COMMIT")
	columns("tenant_id,id,note,size,color,two")
	if got := one[string](t, conn, "SELECT string_agg(color, ',' ORDER BY color) FROM orders"); got != "blue,red,red" {
		t.Error(got)
	}

	// Only the last shard's rows are in the way.
	exec(t, conn, "INSERT INTO orders VALUES ($1, 2, 'same', 1, '', 1), ($1, 3, 'same', 1, '', 1)", keys[2][0])
	exec(t, conn, "DO $$ BEGIN ALTER TABLE orders ADD COLUMN gone int; CREATE UNIQUE INDEX orders_note ON orders (tenant_id, note); EXCEPTION WHEN unique_violation THEN ALTER TABLE orders DROP COLUMN two; END $$")
	columns("tenant_id,id,note,size,color")
	wantCode(t, conn, "23505", "DO $$ BEGIN ALTER TABLE orders ADD COLUMN gone int; CREATE UNIQUE INDEX orders_note ON orders (tenant_id, note); EXCEPTION WHEN duplicate_table THEN NULL; END $$")
	columns("tenant_id,id,note,size,color")

	// A savepoint of the client's, and an error that is not handled.
	exec(t, conn, "BEGIN")
	exec(t, conn, "ALTER TABLE orders ADD COLUMN one int")
	exec(t, conn, "SAVEPOINT s")
	wantCode(t, conn, "42701", "DO $$ BEGIN ALTER TABLE orders ADD COLUMN two int; ALTER TABLE orders ADD COLUMN one int; EXCEPTION WHEN duplicate_table THEN NULL; END $$")
	wantCode(t, conn, "25P02", "SELECT 1")
	exec(t, conn, "ROLLBACK TO s")
	exec(t, conn, "DO $$ BEGIN ALTER TABLE orders ADD COLUMN three int; END $$")
	exec(t, conn, "COMMIT")
	columns("tenant_id,id,note,size,color,one,three")
	if got := one[int](t, conn, "SELECT count(*) FROM orders WHERE three IS NULL"); got != 5 {
		t.Error(got)
	}
}

// TestBoundOfLocksAfterRollback: a ROLLBACK TO a savepoint that is older than the schema change takes its settings back; the
// next statement sets them again, so that none waits for a lock without bound.
func TestBoundOfLocksAfterRollback(t *testing.T) {
	_, conn, _ := orders(t, config{})
	exec(t, conn, "CREATE TABLE plain (a int)")
	exec(t, conn, "BEGIN")
	exec(t, conn, "INSERT INTO plain VALUES (1)")
	exec(t, conn, "SAVEPOINT s")
	exec(t, conn, "ALTER TABLE plain ADD b int")
	exec(t, conn, "ROLLBACK TO s")
	exec(t, conn, "ALTER TABLE plain ADD c int")
	if got := one[string](t, conn, "SELECT current_setting('lock_timeout')"); got != "5s" {
		t.Errorf("lock_timeout is %s", got)
	}
	exec(t, conn, "ROLLBACK")
}

// TestBlockOfRows: rows of several shards in a block, all or nothing.
func TestBlockOfRows(t *testing.T) {
	_, conn, keys := orders(t, config{})
	all := func(want string) {
		t.Helper()
		if got := one[string](t, conn, "SELECT coalesce(string_agg(id || note, ',' ORDER BY id, note), '') FROM orders"); got != want {
			t.Errorf("rows are %s, want %s", got, want)
		}
	}
	insert := func(n int) string {
		var b strings.Builder
		for i, k := range keys {
			fmt.Fprintf(&b, "INSERT INTO orders VALUES (%d, %d, '%d'); ", k[0], n, i)
		}
		return b.String()
	}
	exec(t, conn, "DO $$ BEGIN "+insert(1)+" UPDATE orders SET note = note || 'x'; END $$")
	all("10x,11x,12x")
	wantCode(t, conn, "23505", "DO $$ BEGIN "+insert(2)+insert(1)+" END $$")
	all("10x,11x,12x")
	exec(t, conn, "DO $$ BEGIN "+insert(2)+insert(1)+" EXCEPTION WHEN unique_violation THEN "+insert(3)+" END $$")
	all("10x,11x,12x,30,31,32")
	exec(t, conn, "DO $$ BEGIN IF EXISTS (SELECT FROM orders WHERE note = '1') THEN DELETE FROM orders WHERE id = 3; END IF; END $$")
	all("10x,11x,12x")
	exec(t, conn, "BEGIN")
	exec(t, conn, "DELETE FROM orders")
	exec(t, conn, "DO $$ BEGIN "+insert(5)+insert(5)+" EXCEPTION WHEN unique_violation THEN "+insert(6)+" END $$")
	all("60,61,62")
	exec(t, conn, "ROLLBACK")
	all("10x,11x,12x")
	exec(t, conn, "DO $$ BEGIN "+insert(7)+" ALTER TABLE orders ADD color text; UPDATE orders SET color = 'red'; ALTER TABLE orders ALTER color SET NOT NULL; END $$")
	if got := one[int](t, conn, "SELECT count(*) FROM orders WHERE color = 'red'"); got != 6 {
		t.Errorf("%d rows are red", got)
	}
}

// TestBlockInPipeline: a block among other statements before one Sync is one transaction with them.
func TestBlockInPipeline(t *testing.T) {
	_, conn, keys := orders(t, config{})
	batch := func(last string) error {
		b := &pgx.Batch{}
		b.Queue("SELECT 1")
		b.Queue("DO $$ BEGIN ALTER TABLE orders ADD COLUMN size int; EXCEPTION WHEN duplicate_column THEN UPDATE orders SET note = 'y'; END $$")
		b.Queue("INSERT INTO orders VALUES ($1, 1, 'x')", keys[0][0])
		b.Queue("DO $$ BEGIN INSERT INTO orders VALUES (" + fmt.Sprint(keys[1][0]) + ", 1, 'z'); END $$")
		b.Queue(last)
		return conn.SendBatch(context.Background(), b).Close()
	}
	ctx := context.Background()
	exec(t, conn, "BEGIN")
	if err := batch("SELECT 1/0"); codeOf(err) != "22012" {
		t.Errorf("%v", err)
	}
	exec(t, conn, "ROLLBACK")
	if _, err := conn.Exec(ctx, "SELECT size FROM orders"); codeOf(err) != "42703" {
		t.Errorf("%v", err)
	}
	if err := batch("DELETE FROM orders WHERE id = 2"); err != nil {
		t.Fatal(err)
	}
	if got := one[string](t, conn, "SELECT string_agg(note, ',' ORDER BY note) FROM orders WHERE size IS NULL"); got != "x,z" {
		t.Error(got)
	}
}

// TestBlockAndLostShard: nobody handles the loss of a conversation.
func TestBlockAndLostShard(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "DO $$ BEGIN ALTER TABLE orders ADD COLUMN size int; PERFORM pg_sleep(20); EXCEPTION WHEN OTHERS THEN CREATE TABLE handled (a int); END $$")
		done <- err
	}()
	for cl.direct(t, 0, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%' AND pid <> pg_backend_pid()") == "0" {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	err := <-done
	if codeOf(err) != "40001" {
		t.Errorf("%v", err)
	}
	if got := one[int](t, conn, "SELECT count(*) FROM information_schema.columns WHERE table_name = 'orders' AND column_name = 'size' OR table_name = 'handled'"); got != 0 {
		t.Error("something of it is there")
	}
	exec(t, conn, "DO $$ BEGIN ALTER TABLE orders ADD COLUMN size int; END $$")
}
