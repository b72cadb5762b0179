package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestFieldsOfReports: errors and notices of statements over several shards have the fields that
// one PostgreSQL gives them. A notice about a text comes once.
func TestFieldsOfReports(t *testing.T) {
	cl := start(t, config{})
	var said []string
	connect := func(url string) *pgx.Conn {
		c, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		c.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said = append(said, n.Code+" "+n.Message) }
		c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		conn, err := pgx.ConnectConfig(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	plain, router := connect(pgtest.Database(t)), connect(cl.url(""))
	const long = "a_name_that_is_longer_than_the_sixty_three_bytes_which_a_name_of_postgresql_may_have"
	for _, conn := range []*pgx.Conn{plain, router} {
		exec(t, conn, "CREATE DOMAIN pos AS int CONSTRAINT positive CHECK (value > 0)")
		exec(t, conn, `CREATE FUNCTION fails(n bigint) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN 1 / (n - n)::int; END $$`)
	}
	exec(t, plain, "CREATE TABLE dt (k bigint PRIMARY KEY, a pos, b int CONSTRAINT small CHECK (b < 5))")
	exec(t, router, "CREATE TABLE dt (k bigint PRIMARY KEY, a pos, b int CONSTRAINT small CHECK (b < 5)) WITH (cleave.shard_key = 'k')")
	for _, sql := range []string{
		"INSERT INTO dt SELECT i, 1, 1 FROM generate_series(1, 40) i",
		"INSERT INTO dt SELECT i, -1, 1 FROM generate_series(41, 80) i",
		"UPDATE dt SET a = -a", "UPDATE dt SET a = -a WHERE k = 1", "SELECT count(*) FROM dt WHERE (k - 100)::int::pos > 0",
		"SELECT (count(*) - 100)::int::pos FROM dt", "SELECT max(fails(k)) FROM dt", "SELECT fails(k) FROM dt WHERE k = 1",
		"SELECT 1 WHERE true AND;", "SELECT k FROM dt WHERE k = 1 AND ; ", "SELECT 'x'::int;", "SELECT k FROM dt WHERE k = 'x'",
		"INSERT INTO dt SELECT 3, 1, 1 FROM generate_series(1, 2)",
		"INSERT INTO dt AS " + long + " VALUES (101, 1, 1), (102, 1, 1), (103, 1, 1), (104, 1, 1), (105, 1, 1)",
		"UPDATE dt AS " + long + " SET b = 2", "SELECT count(*) AS " + long + " FROM dt", "SELECT k AS " + long + " FROM dt WHERE k = 1",
	} {
		report := func(conn *pgx.Conn) string {
			said = nil
			_, err := conn.Exec(t.Context(), sql)
			out := fmt.Sprint(said)
			var pe *pgconn.PgError
			if errors.As(err, &pe) {
				out += fmt.Sprintf(" %s %s at %d, %s; schema %q table %q column %q type %q constraint %q query %q at %d", pe.Code, pe.Message, pe.Position, pe.Hint, pe.SchemaName, pe.TableName, pe.ColumnName, pe.DataTypeName, pe.ConstraintName,
					pe.InternalQuery, pe.InternalPosition)
			} else if err != nil {
				out += err.Error()
			}
			return out
		}
		if want, got := report(plain), report(router); want != got {
			t.Errorf("%s\n  PostgreSQL: %s\n  router:     %s", sql, want, got)
		}
	}
}

// besidePlain connects to a PostgreSQL without shards, and to the router.
func besidePlain(t *testing.T, cl *cluster) (plain, router *pgx.Conn) {
	plain, err := pgx.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close(context.Background()) })
	return plain, cl.connect(t)
}

// TestHeaderMatch: the errors of HEADER MATCH name PostgreSQL's fields, whatever columns the router fills.
func TestHeaderMatch(t *testing.T) {
	cl := start(t, config{})
	plain, router := besidePlain(t, cl)
	const table = `CREATE TABLE hm (k bigint PRIMARY KEY, a int, "B c" text, d date DEFAULT now())`
	exec(t, plain, table)
	exec(t, router, table+" WITH (cleave.shard_key = 'k')")
	for _, c := range []struct{ columns, options, data string }{
		{"", "", "k,a,B c,d\n1,1,1,2020-01-01\n"}, {"", "", "k,a,B c\n"}, {"", "", "k,a,B c,d,e\n"}, {"", "", "k,x,B c,d\n"}, {"", "", "K,a,B c,d\n"}, {"", "", ""}, {"", "", "\n"},
		{"(k, a)", "", "a,k\n2,2\n"}, {"(a, k)", "", "a,z\n"}, {"(a, k)", ", NULL 'a'", "a,k\n"}, {"(a, k)", ", NULL 'a'", "\"a\",k\n2,2\n"}, {"(a, k)", "", ",k\n"}, {"(a, k)", "", ""},
		{"(a, k)", "", "\n"}, {"(k)", "", ""}, {"(k)", "", "x\n"}, {"(a, k)", ", DELIMITER '|', QUOTE ''''", "'a'|'k''x'\n"}, {"(a, k)", "", "a," + strings.Repeat("kü", 70) + "\n"},
		{"(a, k)", ", FORCE_NULL (a)", "\"\",k\n"},
	} {
		report := func(conn *pgx.Conn) string {
			tag, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(c.data), "COPY hm "+c.columns+" FROM STDIN (FORMAT csv, HEADER match"+c.options+")")
			var pe *pgconn.PgError
			if errors.As(err, &pe) {
				return fmt.Sprint(pe.Code, " ", pe.Message, " / ", pe.Where)
			}
			return fmt.Sprint(tag, err)
		}
		if want, got := report(plain), report(router); want != got {
			t.Errorf("%q %q %q\n  PostgreSQL: %s\n  router:     %s", c.columns, c.options, c.data, want, got)
		}
	}
}

// TestExplainExecute: EXPLAIN EXECUTE is EXPLAIN of what was prepared with the arguments, on one shard and on several.
func TestExplainExecute(t *testing.T) {
	cl := start(t, config{})
	plain, router := besidePlain(t, cl)
	exec(t, plain, "CREATE TABLE ex (k bigint PRIMARY KEY, a int, b text)")
	exec(t, router, "CREATE TABLE ex (k bigint PRIMARY KEY, a int, b text) WITH (cleave.shard_key = 'k')")
	exec(t, plain, "SET plan_cache_mode = force_custom_plan")
	lines := func(conn *pgx.Conn, sql string, mode pgx.QueryExecMode) string {
		rows, err := conn.Query(t.Context(), sql, mode)
		if err != nil {
			return err.Error()
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		return strings.Join(all, "\n") + fmt.Sprint(" ", rows.CommandTag(), " ", err)
	}
	for _, conn := range []*pgx.Conn{plain, router} {
		exec(t, conn, "PREPARE one (bigint) AS SELECT * FROM ex WHERE k = $1")
		exec(t, conn, "PREPARE change AS UPDATE ex SET a = a + 1 WHERE k = $1 AND b = $2")
		exec(t, conn, `PREPARE "all (" (int) AS SELECT k FROM ex WHERE a < $1`)
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeDescribeExec} {
		for _, sql := range []string{
			"EXPLAIN (COSTS OFF) EXECUTE one (3)", "EXPLAIN (COSTS OFF, VERBOSE) EXECUTE one(1 + 2);", "EXPLAIN (COSTS OFF) EXECUTE change(3, 'x')", "EXPLAIN (COSTS OFF, ANALYZE, TIMING OFF, SUMMARY OFF) EXECUTE one (3)",
			"EXPLAIN EXECUTE one", "EXPLAIN EXECUTE one (1, 2)", "EXPLAIN EXECUTE nosuch (1)", "EXPLAIN EXECUTE one ('x')",
		} {
			if mode == pgx.QueryExecModeDescribeExec {
				break // some errors come at Describe already
			}
			if want, got := lines(plain, sql, mode), lines(router, sql, mode); want != got {
				t.Errorf("%v: %s\n  PostgreSQL: %s\n  router:     %s", mode, sql, want, got)
			}
		}
		got := lines(router, `EXPLAIN (COSTS OFF) EXECUTE "all (" (3)`, mode)
		if !strings.HasPrefix(got, "Several shards: scatter") || strings.Count(got, "(a < 3)") != len(cl.shards) {
			t.Errorf("%v: %s", mode, got)
		}
		if got := lines(router, "EXPLAIN (ROUTE) EXECUTE one (3)", mode); !strings.Contains(got, "plan: one shard") || !strings.Contains(got, "shard: shard-") {
			t.Errorf("%v: %s", mode, got)
		}
		if got := lines(router, `EXPLAIN ANALYZE EXECUTE "all (" (3)`, mode); !strings.Contains(got, "shard shard-") || !strings.Contains(got, "actual time=") {
			t.Errorf("%v: %s", mode, got)
		}
	}
}
