package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

const cluster = "11111111-2222-3333-4444-555555555555"

func open(t testing.TB, url string) engine.Shard {
	t.Helper()
	s, err := postgres.Driver{}.Open(engine.Config{Cluster: cluster, Name: "shard-0", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func installed(t testing.TB, url string) engine.Shard {
	t.Helper()
	s := open(t, url)
	if err := s.Install(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

func connect(t testing.TB, s engine.Shard, params ...string) engine.Conn {
	t.Helper()
	p := map[string]string{}
	for i := 0; i < len(params); i += 2 {
		p[params[i]] = params[i+1]
	}
	c, err := s.Connect(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// do runs statements and returns the first value of the last result.
func do(t testing.TB, c engine.Conn, sqls ...string) string {
	t.Helper()
	first := ""
	for _, sql := range sqls {
		res, err := engine.Exec(c, sql)
		if err != nil {
			t.Fatalf("%.300s: %v", sql, err)
		}
		first = ""
		if len(res.Rows) > 0 {
			first = res.Rows[0][0].String
		}
	}
	return first
}

func refused(t testing.TB, c engine.Conn, code sqlstate.Code, sql string) *sqlstate.Error {
	t.Helper()
	_, err := engine.Exec(c, sql)
	if err == nil || sqlstate.CodeOf(err) != code {
		t.Fatalf("%s: got %v, want %s", sql, err, code)
	}
	return sqlstate.As(err)
}

func setGuard(t testing.TB, c engine.Conn, g engine.Guard) {
	t.Helper()
	if err := c.SetGuard(context.Background(), g); err != nil {
		t.Fatal(err)
	}
}

// listGuard lets through the keys given.
func listGuard(table string, column string, keys ...keyspace.Value) engine.Guard {
	o := keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.List, Types: []keyspace.Type{keys[0].Type()}, Epoch: 1}
	for _, k := range keys {
		o.Listed = append(o.Listed, keyspace.Key{k})
	}
	return engine.Guard{Schema: "public", Table: table, ShardKey: []string{column}, Owned: o}
}

func ints(from, to int64) []keyspace.Value {
	var out []keyspace.Value
	for n := from; n < to; n++ {
		out = append(out, keyspace.Int(keyspace.Int8, n))
	}
	return out
}

// TestGuardInAnySession: settings of the session that sets the guard, and of
// the one that writes, change nothing.
func TestGuardInAnySession(t *testing.T) {
	s := installed(t, pgtest.Database(t))
	odd := []string{"a", `back\slash`, `it's`, "żółw", "$body$", `"`, "a = b", "100%s"}
	var owned []keyspace.Value
	for _, v := range odd {
		owned = append(owned, keyspace.Str(keyspace.Text, v))
	}
	setters := map[string]engine.Conn{
		"plain":  connect(t, s),
		"latin1": connect(t, s, "client_encoding", "LATIN1", "DateStyle", "German"),
		"escape": connect(t, s, "standard_conforming_strings", "off", "escape_string_warning", "off", "quote_all_identifiers", "on"),
		"path":   connect(t, s, "search_path", "hostile, pg_catalog"),
	}
	admin := connect(t, s)
	do(t, admin, `CREATE SCHEMA hostile`,
		`CREATE FUNCTION hostile.yes(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'`,
		`CREATE OPERATOR hostile.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.yes)`,
		`CREATE FUNCTION hostile.yes(int4, int4) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'`,
		`CREATE OPERATOR hostile.= (LEFTARG = int4, RIGHTARG = int4, FUNCTION = hostile.yes)`,
		`CREATE FUNCTION hostile.width_bucket(text, text[]) RETURNS int4 LANGUAGE sql IMMUTABLE AS 'SELECT 1'`)
	writers := []engine.Conn{
		connect(t, s), connect(t, s, "standard_conforming_strings", "off", "escape_string_warning", "off"),
		connect(t, s, "search_path", "hostile, pg_catalog, public"), connect(t, s, "client_encoding", "LATIN2"),
	}
	for name, setter := range setters {
		t.Run(name, func(t *testing.T) {
			table, column := "t "+name+` "ż$\`, `kł"uc$z`
			q := `public."` + strings.ReplaceAll(table, `"`, `""`) + `"`
			do(t, admin, `CREATE TABLE `+q+` ("`+strings.ReplaceAll(column, `"`, `""`)+`" text, v int)`)
			for _, strategy := range []string{"list", "range"} {
				g := listGuard(table, column, owned...)
				if strategy == "range" {
					g.Owned.Strategy, g.Owned.Listed = keyspace.Range, nil
					for _, v := range owned {
						k := keyspace.Key{v}
						iv := keyspace.Interval{LowKey: string(keyspace.AppendOrdered(nil, k)), LowValues: k}
						iv.HighValues = keyspace.Key{keyspace.Str(keyspace.Text, v.Bytes()+"\x01")}
						iv.HighKey = string(keyspace.AppendOrdered(nil, iv.HighValues))
						g.Owned.Intervals = append(g.Owned.Intervals, iv)
					}
					g.Owned.Intervals = keyspace.MergeIntervals(keyspace.Range, g.Owned.Intervals)
				}
				setGuard(t, setter, g)
				for _, w := range writers {
					for _, v := range odd {
						if strings.Contains(v, "ż") {
							continue // sent in the writer's own encoding
						}
						lit := keyspace.Str(keyspace.Text, v).Literal()
						// The table's name is not ASCII: its own encoding too.
						do(t, w, `DO $x$BEGIN EXECUTE pg_catalog.format('INSERT INTO %s VALUES (%L, 1)', (SELECT oid::pg_catalog.regclass FROM pg_catalog.pg_class WHERE pg_catalog.starts_with(relname::pg_catalog.text, 't `+name+`')), `+lit+`); END$x$`)
						refused(t, w, sqlstate.NotOwner, `DO $x$BEGIN EXECUTE pg_catalog.format('INSERT INTO %s VALUES (%L, 1)', (SELECT oid::pg_catalog.regclass FROM pg_catalog.pg_class WHERE pg_catalog.starts_with(relname::pg_catalog.text, 't `+name+`')), `+lit+` OPERATOR(pg_catalog.||) 'x'); END$x$`)
					}
				}
				do(t, admin, `INSERT INTO `+q+` VALUES ('żółw', 1)`)
				refused(t, admin, sqlstate.NotOwner, `INSERT INTO `+q+` VALUES ('zółw', 1)`)
				tab, err := setter.DescribeTable(t.Context(), "public", table)
				if err != nil {
					t.Fatal(err)
				}
				if tab.Columns[0].Name != column || tab.Guard == nil || !tab.HasRows {
					t.Fatalf("%+v", tab)
				}
			}
			if err := setter.DropGuard(t.Context(), "public", table); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestGuardAndUsersTriggers(t *testing.T) {
	s := installed(t, pgtest.Database(t))
	c := connect(t, s)
	do(t, c, `CREATE TABLE t (k bigint, v int)`,
		`CREATE FUNCTION shift() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.k := NEW.k + 1; RETURN NEW; END'`,
		`CREATE TRIGGER zzz_shift BEFORE INSERT OR UPDATE OF v ON t FOR EACH ROW EXECUTE FUNCTION shift()`)
	g := listGuard("t", "k", ints(0, 10)...)
	setGuard(t, c, g)
	do(t, c, `INSERT INTO t VALUES (-1, 0), (8, 0)`)
	refused(t, c, sqlstate.NotOwner, `INSERT INTO t VALUES (9, 0)`)
	do(t, c, `INSERT INTO t VALUES (8, 0)`)
	refused(t, c, sqlstate.NotOwner, `UPDATE t SET v = 1 WHERE k = 9`)
	do(t, c, `CREATE TRIGGER "~~later" BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION shift()`)
	if err := c.SetGuard(t.Context(), g); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Fatalf("got %v", err)
	}
}

func TestGuardRefusesTables(t *testing.T) {
	s := installed(t, pgtest.Database(t))
	c := connect(t, s)
	do(t, c, `CREATE TABLE gen (a bigint, k bigint GENERATED ALWAYS AS (a + 1) STORED)`,
		`CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
		`CREATE TABLE coll (k text COLLATE ci)`,
		`CREATE TABLE part (k bigint) PARTITION BY HASH (k)`,
		`CREATE VIEW view AS SELECT 1::bigint AS k`)
	text := keyspace.Str(keyspace.Text, "a")
	for table, want := range map[string]sqlstate.Code{"gen": sqlstate.FeatureNotSupported, "coll": sqlstate.FeatureNotSupported, "part": sqlstate.FeatureNotSupported} {
		g := listGuard(table, "k", ints(0, 1)...)
		if table == "coll" {
			g = listGuard(table, "k", text)
		}
		if err := c.SetGuard(t.Context(), g); sqlstate.CodeOf(err) != want || sqlstate.As(err).Hint == "" {
			t.Errorf("%s: got %v", table, err)
		}
	}
	if _, err := c.DescribeTable(t.Context(), "public", "view"); sqlstate.CodeOf(err) != sqlstate.WrongObjectType {
		t.Errorf("got %v", err)
	}
	// Intervals out of order would make a guard that lies.
	bad := keyspace.Ownership{Keyspace: "ks", Strategy: keyspace.Hash, Types: []keyspace.Type{keyspace.Int8}, Intervals: []keyspace.Interval{{Low: 5, High: 9}, {Low: 1, High: 3}}}
	do(t, c, `CREATE TABLE t (k bigint)`)
	if err := c.SetGuard(t.Context(), engine.Guard{Schema: "public", Table: "t", ShardKey: []string{"k"}, Owned: bad}); err == nil {
		t.Error("unsorted intervals were taken")
	}
}

// TestGuardFollowsItsTable: renames of tables and columns.
func TestGuardFollowsItsTable(t *testing.T) {
	s := installed(t, pgtest.Database(t))
	c := connect(t, s)
	do(t, c, `CREATE TABLE t (k bigint)`)
	setGuard(t, c, listGuard("t", "k", ints(0, 5)...))
	do(t, c, `ALTER TABLE t RENAME TO old`, `CREATE SCHEMA other`, `ALTER TABLE old SET SCHEMA other`, `CREATE TABLE t (k bigint)`)
	setGuard(t, c, listGuard("t", "k", ints(10, 15)...))
	do(t, c, `INSERT INTO other.old VALUES (1)`, `INSERT INTO t VALUES (11)`)
	refused(t, c, sqlstate.NotOwner, `INSERT INTO other.old VALUES (11)`)
	refused(t, c, sqlstate.NotOwner, `INSERT INTO t VALUES (1)`)

	// A column renamed behind Cleave's back closes the table until the guard is set again.
	do(t, c, `ALTER TABLE t RENAME COLUMN k TO key`)
	refused(t, c, sqlstate.UndefinedColumn, `INSERT INTO t VALUES (11)`)
	setGuard(t, c, listGuard("t", "key", ints(10, 15)...))
	do(t, c, `INSERT INTO t VALUES (12)`)
	refused(t, c, sqlstate.NotOwner, `INSERT INTO t VALUES (1)`)

	// A function that another table uses, as after a restore that gave out
	// the same number again, is left to it.
	do(t, c, `CREATE TABLE copy (k bigint)`)
	function := do(t, c, `SELECT tgfoid::regproc FROM pg_trigger WHERE tgrelid = 'other.old'::regclass AND tgname = '~cleave_guard'`)
	do(t, c, `CREATE TRIGGER "~cleave_guard" BEFORE INSERT ON copy FOR EACH ROW EXECUTE FUNCTION `+function+`()`)
	setGuard(t, c, listGuard("copy", "k", ints(20, 25)...))
	do(t, c, `INSERT INTO copy VALUES (20)`, `INSERT INTO other.old VALUES (1)`)
	refused(t, c, sqlstate.NotOwner, `INSERT INTO copy VALUES (1)`)
	refused(t, c, sqlstate.NotOwner, `DELETE FROM copy; INSERT INTO other.old VALUES (20)`)

	// A disabled or replaced trigger is repaired; a good one is left alone.
	trigger := func() string {
		return do(t, c, `SELECT xmin::text || oid::text FROM pg_trigger WHERE tgrelid = 'copy'::regclass AND tgname = '~cleave_guard'`)
	}
	before := trigger()
	setGuard(t, c, listGuard("copy", "k", ints(20, 26)...))
	if trigger() != before {
		t.Error("an unchanged trigger was made again")
	}
	do(t, c, `ALTER TABLE copy DISABLE TRIGGER ALL`, `INSERT INTO copy VALUES (1)`)
	setGuard(t, c, listGuard("copy", "k", ints(20, 27)...))
	refused(t, c, sqlstate.NotOwner, `INSERT INTO copy VALUES (1)`)

	functions := `SELECT count(*) FROM pg_proc WHERE pronamespace = 'cleave_internal'::regnamespace`
	n := do(t, c, functions)
	for _, table := range [][2]string{{"other", "old"}, {"public", "t"}, {"public", "copy"}} {
		if err := c.DropGuard(t.Context(), table[0], table[1]); err != nil {
			t.Fatal(err)
		}
	}
	if left := do(t, c, functions); n != "6" || left != "0" {
		t.Errorf("%s functions, %s after dropping the guards", n, left)
	}
}

// TestGuardSeesEveryKindOfWrite: statements that are not plain INSERT, UPDATE
// or DELETE.
func TestGuardSeesEveryKindOfWrite(t *testing.T) {
	url := pgtest.Database(t)
	c := connect(t, installed(t, url))
	do(t, c, `CREATE TABLE p (k bigint PRIMARY KEY, v int)`,
		`CREATE TABLE child (k bigint REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE)`,
		`INSERT INTO p SELECT i, 0 FROM generate_series(1, 20) i`, `INSERT INTO child SELECT k FROM p`)
	setGuard(t, c, listGuard("p", "k", ints(0, 100)...))
	setGuard(t, c, listGuard("child", "k", ints(0, 10)...))
	do(t, c, `INSERT INTO p VALUES (1, 5) ON CONFLICT (k) DO UPDATE SET v = excluded.v`)
	refused(t, c, sqlstate.NotOwner, `INSERT INTO p VALUES (1, 5) ON CONFLICT (k) DO UPDATE SET k = 1000`)
	refused(t, c, sqlstate.NotOwner, `INSERT INTO p VALUES (1000, 5) ON CONFLICT DO NOTHING`)
	do(t, c, `DELETE FROM p WHERE k = 2`)
	refused(t, c, sqlstate.NotOwner, `DELETE FROM p WHERE k = 15`) // the cascade reaches a row that is not owned
	refused(t, c, sqlstate.NotOwner, `WITH x AS (INSERT INTO child VALUES (15) RETURNING k) SELECT * FROM x`)
	refused(t, c, sqlstate.NotOwner, `MERGE INTO child USING (SELECT 15 AS n) AS s ON k = n AND false WHEN NOT MATCHED THEN INSERT VALUES (n)`)
	refused(t, c, sqlstate.NotOwner, `TRUNCATE p CASCADE`)
	refused(t, c, sqlstate.NotOwner, `DO $$BEGIN INSERT INTO child VALUES (15); END$$`)
	refused(t, c, sqlstate.InsufficientPrivilege, `SET session_replication_role = replica`)
	// The mover writes as a replica does. Nobody else passes in that way, a superuser neither.
	mover, super := connect(t, open(t, strings.Replace(url, "cleave@", "cleave_mover@", 1))), connect(t, open(t, pgtest.Super(url)))
	refused(t, mover, sqlstate.NotOwner, `INSERT INTO child VALUES (15)`)
	do(t, mover, `BEGIN`, `SET LOCAL session_replication_role = replica`, `INSERT INTO child VALUES (15)`, `COMMIT`)
	refused(t, c, sqlstate.NotOwner, `DELETE FROM child WHERE k = 15`)
	do(t, super, `SET session_replication_role = replica`)
	for _, as := range []string{``, `SET ROLE cleave; `, `SET ROLE cleave_mover; `} {
		refused(t, super, sqlstate.NotOwner, as+`DELETE FROM child WHERE k = 15`)
		refused(t, super, sqlstate.NotOwner, as+`TRUNCATE child`)
	}
	// COPY.
	do(t, super, `RESET ROLE`, `COPY child FROM PROGRAM 'printf "5\n6\n"'`)
	refused(t, super, sqlstate.NotOwner, `COPY child FROM PROGRAM 'printf "5\n60\n"'`)
}

// TestGuardsOfBeforeTheMover fire for ordinary writes only, and say so until they are set again: so do those that let another's mover pass.
func TestGuardsOfBeforeTheMover(t *testing.T) {
	server := pgtest.NewServer(t, nil)
	url := pgtest.DatabaseOn(t, server)
	super := pgtest.Super(url)
	pgtest.Ask(t, super, `CREATE ROLE app LOGIN`)
	pgtest.Ask(t, super, `ALTER DATABASE `+url[strings.LastIndexByte(url, '/')+1:strings.IndexByte(url, '?')]+` OWNER TO app`)
	url = strings.Replace(url, "cleave@", "app@", 1)
	c := connect(t, installed(t, url))
	do(t, c, `CREATE TABLE t (k bigint PRIMARY KEY)`)
	loose := func(want bool, fires string) {
		t.Helper()
		tab, err := c.DescribeTable(t.Context(), "public", "t")
		if err != nil || tab.Guard == nil || tab.Guard.Loose != want {
			t.Errorf("%+v, %v", tab.Guard, err)
		}
		if got := do(t, c, `SELECT string_agg(DISTINCT tgenabled::text, '') FROM pg_trigger WHERE tgrelid = 't'::regclass`); got != fires {
			t.Errorf("it fires %s", got)
		}
	}
	setGuard(t, c, listGuard("t", "k", ints(0, 10)...))
	loose(false, "O")
	pgtest.Ask(t, super, `CREATE ROLE app_mover LOGIN`) // no member
	loose(false, "O")
	pgtest.Ask(t, super, `GRANT app TO app_mover`)
	loose(true, "O")
	setGuard(t, c, listGuard("t", "k", ints(0, 10)...))
	loose(false, "A")
	// Another role of the URL, with its own mover.
	pgtest.Ask(t, super, `CREATE ROLE next LOGIN IN ROLE app; CREATE ROLE next_mover LOGIN IN ROLE next; GRANT app TO next_mover`)
	c = connect(t, open(t, strings.Replace(url, "app@", "next@", 1)))
	loose(true, "A")
	setGuard(t, c, listGuard("t", "k", ints(0, 10)...))
	loose(false, "A")
	pgtest.Ask(t, super, `ALTER ROLE next_mover NOLOGIN`)
	loose(true, "A")
	setGuard(t, c, listGuard("t", "k", ints(0, 10)...))
	loose(false, "O")
}

func TestGuardForOtherRoles(t *testing.T) {
	url := pgtest.Database(t)
	s := installed(t, url)
	c := connect(t, s)
	role := fmt.Sprintf("writer_%d", time.Now().UnixNano())
	do(t, connect(t, open(t, pgtest.Super(url))), `CREATE ROLE `+role, `GRANT `+role+` TO cleave`)
	do(t, c, `CREATE TABLE t (k bigint)`, `GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON t TO `+role)
	t.Cleanup(func() { do(t, connect(t, open(t, pgtest.Super(url))), `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	setGuard(t, c, listGuard("t", "k", ints(0, 5)...))
	w := connect(t, s)
	do(t, w, `SET ROLE `+role, `INSERT INTO t VALUES (1)`, `UPDATE t SET k = 2`, `DELETE FROM t`)
	refused(t, w, sqlstate.NotOwner, `INSERT INTO t VALUES (9)`)
	refused(t, w, sqlstate.NotOwner, `TRUNCATE t`)
	if err := w.SetGuard(t.Context(), listGuard("t", "k", ints(0, 50)...)); sqlstate.CodeOf(err) != sqlstate.InsufficientPrivilege {
		t.Errorf("got %v", err)
	}
}

// TestSetGuardKeepsSettings: the session's lock_timeout is as before.
func TestSetGuardKeepsSettings(t *testing.T) {
	s := installed(t, pgtest.Database(t))
	c := connect(t, s)
	do(t, c, `CREATE TABLE t (k bigint)`, `SET lock_timeout = '7s'`, `BEGIN`)
	ctx, cancel := context.WithTimeout(t.Context(), waitfor.Max)
	defer cancel()
	if err := c.SetGuard(ctx, listGuard("t", "k", ints(0, 5)...)); err != nil {
		t.Fatal(err)
	}
	if v := do(t, c, `SHOW lock_timeout`); v != "7s" {
		t.Errorf("in the transaction: %s", v)
	}
	do(t, c, `COMMIT`)
	if v := do(t, c, `SHOW lock_timeout`); v != "7s" {
		t.Errorf("after it: %s", v)
	}
	if err := c.SetGuard(ctx, listGuard("t", "k", ints(0, 6)...)); err != nil {
		t.Fatal(err)
	}
	past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := c.SetGuard(past, listGuard("t", "k", ints(0, 6)...)); sqlstate.CodeOf(err) != sqlstate.LockNotAvailable {
		t.Errorf("got %v", err)
	}
}
