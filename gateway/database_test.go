package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// shown are the results of a simple query: of each statement its columns with their types, its rows, its tag, or its SQLSTATE.
func shown(t testing.TB, conn *pgx.Conn, sql string) string {
	t.Helper()
	var b strings.Builder
	rr := conn.PgConn().Exec(context.Background(), sql)
	for rr.NextResult() {
		r := rr.ResultReader()
		for _, f := range r.FieldDescriptions() {
			fmt.Fprintf(&b, "%s:%d ", f.Name, f.DataTypeOID)
		}
		for r.NextRow() {
			fmt.Fprintf(&b, "%q ", r.Values())
		}
		tag, _ := r.Close() // told by rr.Close
		b.WriteString(tag.String() + "\n")
	}
	if err := rr.Close(); err != nil {
		b.WriteString(codeOf(err) + "\n")
		conn.PgConn().Exec(context.Background(), "ROLLBACK").Close() //nolint:errcheck // it ends the block, if there is one
	}
	return b.String()
}

// sameAsPlain compares what the router and PostgreSQL show of statements, with the name of PostgreSQL's database as the cluster's.
func sameAsPlain(t *testing.T, cl *cluster, conn, pg *pgx.Conn, list ...string) {
	t.Helper()
	name := pg.Config().Database
	for _, sql := range list {
		want := strings.ReplaceAll(shown(t, pg, strings.ReplaceAll(sql, "'cleave'", "'"+name+"'")), name, "cleave")
		if got := shown(t, conn, sql); got != want {
			t.Errorf("%s:\n  router:     %s  PostgreSQL: %s", sql, got, want)
		}
	}
}

// TestDatabaseName: clients read the name of the database that they connected to, wherever they look.
func TestDatabaseName(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	pg := plainConn(t)
	exec(t, pg, strings.Replace(ordersTable, " WITH (cleave.shard_key = 'tenant_id')", "", 1))
	for _, c := range []*pgx.Conn{conn, pg} {
		exec(t, c, `CREATE TABLE dated (id int PRIMARY KEY, d name DEFAULT current_database())`)
	}
	sameAsPlain(t, cl, conn, pg,
		`SELECT current_database(), current_catalog, current_database()::text, current_database() || '', coalesce(current_catalog, ''), pg_catalog.current_database() AS x`,
		`SELECT * FROM current_database()`, `SELECT x FROM current_database() x`, `SELECT z FROM current_catalog y(z)`, `SELECT 1 FROM current_database() WHERE current_database = 'cleave'`,
		`SELECT CURRENT_DATABASE ( ) COLLATE "C", 'current_database()', "current_database"()`,
		`SELECT count(*) FROM orders WHERE note = current_database()`, `SELECT tenant_id, current_catalog FROM orders WHERE tenant_id = 1`,
		`INSERT INTO dated (id) VALUES (1); INSERT INTO dated VALUES (2, current_catalog) RETURNING d; SELECT * FROM dated ORDER BY id`,
		`WITH c AS (SELECT current_database()) SELECT * FROM c GROUP BY current_database`,
		`SELECT datname FROM pg_database WHERE datname = current_database()`, `SELECT datname, tableoid::regclass FROM pg_catalog.pg_database d WHERE d.datname = 'cleave' OR datistemplate ORDER BY datistemplate, 1`,
		`SELECT pg_database_size(current_database()) > 0, pg_database_size('cleave') > 0, has_database_privilege('cleave', 'create'), has_database_privilege(current_user, current_catalog, 'connect')`,
		`SELECT d.datname, pg_database_size(d.datname) > 0, has_database_privilege(d.datname, 'CONNECT') FROM pg_database d WHERE datname = current_database()`,
		`SELECT table_catalog, table_name FROM information_schema.tables WHERE table_catalog = current_database() AND table_schema = 'public' ORDER BY 2`,
		`SELECT table_catalog, udt_catalog, domain_catalog, column_name FROM information_schema.columns WHERE table_catalog = current_catalog AND table_name = 'orders' ORDER BY ordinal_position`,
		`SELECT * FROM information_schema.information_schema_catalog_name`,
		`SELECT catalog_name FROM information_schema.schemata WHERE catalog_name = 'cleave' AND schema_name = 'public'`,
		`SELECT col_description(('"' || table_catalog || '"."' || table_schema || '"."' || table_name || '"')::regclass::oid, ordinal_position) FROM information_schema.columns WHERE table_catalog = current_database() AND table_name = 'orders'`,
		`SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()`,
		`PREPARE p AS SELECT current_database() = $1; EXECUTE p('cleave'); EXECUTE p(current_catalog)`,
	)
	// Every relation of information_schema has PostgreSQL's columns.
	rows, err := pg.Query(context.Background(), `SELECT viewname FROM pg_views WHERE schemaname = 'information_schema' AND has_table_privilege(format('%I.%I', schemaname, viewname), 'SELECT')`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		sameAsPlain(t, cl, conn, pg, `SELECT * FROM information_schema.`+n+` LIMIT 0`)
		res, err := conn.PgConn().Exec(context.Background(), `SELECT * FROM information_schema.`+n).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range res[0].FieldDescriptions {
			if name := f.Name; name != "catalog_name" && !strings.HasSuffix(name, "_catalog") {
				continue
			}
			for _, r := range res[0].Rows {
				if v := r[i]; v != nil && string(v) != "cleave" {
					t.Errorf("information_schema.%s.%s is %q", n, f.Name, v)
				}
			}
		}
	}
}

// TestTablelessStatementsAreDeterministic: what a transaction can do next does not depend on the shard that answered a
// statement without a table, and the row types of tables are found.
func TestTablelessStatementsAreDeterministic(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	pg := plainConn(t)
	exec(t, pg, strings.Replace(ordersTable, " WITH (cleave.shard_key = 'tenant_id')", "", 1))
	for _, c := range []*pgx.Conn{conn, pg} {
		exec(t, c, `CREATE TABLE whole (id int PRIMARY KEY, note text)`)
		exec(t, c, fmt.Sprintf(`INSERT INTO orders VALUES (%d, 1, 'a'), (%d, 2, 'now'), (%d, 3, 'c')`, keys[0][0], keys[1][0], keys[2][0]))
	}
	const typeORM = `SELECT columns.table_name, pg_catalog.col_description(('"' || table_catalog || '"."' || table_schema || '"."' || table_name || '"')::regclass::oid, ordinal_position),
('"' || "udt_schema" || '"."' || "udt_name" || '"')::"regtype"::text AS "regtype" FROM "information_schema"."columns" WHERE table_schema = 'public' AND table_name = 'now'`
	for _, sql := range []string{
		`BEGIN; SELECT * FROM current_schema(); ` + typeORM + `; COMMIT`,
		`BEGIN; SELECT now() IS NULL; ` + typeORM + `; COMMIT`,
		`BEGIN; SELECT current_timestamp IS NULL; SELECT count(*) FROM pg_class WHERE relname = 'now'; SELECT 'now'::date = current_date; COMMIT`,
		`SELECT '(1,x)'::whole::text`, `SELECT (ROW(1, 'x')::whole).note`, `SELECT ARRAY[ROW(1, 'x')::whole]::text`, `SELECT (NULL::whole).id`,
		`SELECT id FROM orders t WHERE t = ROW(t.*)::orders ORDER BY 1`, `SELECT ROW(t.*)::orders::text FROM orders t ORDER BY 1`,
	} {
		for range 6 {
			sameAsPlain(t, cl, conn, pg, sql)
		}
	}
	// A parameter of such a type.
	for range 6 {
		c := cl.connect(t)
		typ, err := c.LoadType(context.Background(), "whole")
		if err != nil {
			t.Fatal(err)
		}
		c.TypeMap().RegisterType(typ)
		for _, format := range []int16{0, 1} {
			r := c.PgConn().ExecParams(context.Background(), `SELECT $1`, [][]byte{[]byte("(1,x)")}, []uint32{typ.OID}, nil, []int16{format})
			if res := r.Read(); res.Err != nil || len(res.Rows) != 1 {
				t.Fatalf("a row as a parameter: %v", res.Err)
			}
		}
	}
}
