package gateway_test

import (
	"context"
	"fmt"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
	own "github.com/cleavedb/cleave/internal/virtual"
)

// cleaveSchema makes the schema's objects on a PostgreSQL, as views without rows and functions without effect.
func cleaveSchema() string {
	var b strings.Builder
	b.WriteString("CREATE SCHEMA cleave; GRANT USAGE ON SCHEMA cleave TO PUBLIC; COMMENT ON SCHEMA cleave IS 'the router''s own views and functions';\n")
	for _, t := range own.Tables {
		var cols []string
		for _, c := range t.Columns {
			cols = append(cols, fmt.Sprintf("NULL::%s AS %q", own.TypeName(c.Type), c.Name))
		}
		fmt.Fprintf(&b, "CREATE VIEW cleave.%s AS SELECT %s; GRANT SELECT ON cleave.%[1]s TO PUBLIC; COMMENT ON VIEW cleave.%[1]s IS '%[3]s';\n", t.Name, strings.Join(cols, ", "), strings.ReplaceAll(t.About, "'", "''"))
	}
	for _, f := range own.Functions {
		language, body := "plpgsql", "BEGIN RETURN NULL; END"
		if strings.Contains(f.Arguments(true), `"any"`) {
			language, body = "internal", "text_concat" // no other language takes it
		}
		fmt.Fprintf(&b, "CREATE FUNCTION cleave.%s(%s) RETURNS %s LANGUAGE %s VOLATILE AS '%s'; COMMENT ON FUNCTION cleave.%[1]s IS '%[6]s';\n",
			f.Name, f.Arguments(false), own.TypeName(f.Result), language, body, strings.ReplaceAll(f.About, "'", "''"))
	}
	return b.String()
}

func psqlOut(t *testing.T, url, command string) string {
	t.Helper()
	out, err := osexec.Command(pgtest.PSQL(t), "-X", "-q", url, "-c", command).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

// lineDiff are the lines that only one of two texts has.
func lineDiff(ours, theirs string) string {
	var out []string
	a, b := strings.Split(ours, "\n"), strings.Split(theirs, "\n")
	for _, line := range a {
		if !slices.Contains(b, line) {
			out = append(out, "cluster:    "+line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			out = append(out, "PostgreSQL: "+line)
		}
	}
	return strings.Join(out, "\n")
}

// TestCatalogShowsVirtualSchema: the catalogue says of the schema cleave what a PostgreSQL with its objects would.
func TestCatalogShowsVirtualSchema(t *testing.T) {
	cl, _, _ := orders(t, config{})
	beside := pgtest.Super(pgtest.Database(t))
	if out := psqlOut(t, beside, cleaveSchema()); out != "" {
		t.Fatal(out)
	}
	for _, command := range []string{`\d cleave.shards`, `\d cleave.*`, `\d cleave.workflows`, `\d cleave.nothing`, `\df cleave.*`, `\df cleave.move`, `\dt cleave.*`, `\dv cleave.*`,
		`\dv cleave.sh*`, `\dn cleave`, `\dn+ cleave`, `\df`, `\dv`, `\dp cleave.shards`} {
		ours, theirs := psqlOut(t, cl.url(""), command), psqlOut(t, beside, command)
		if ours != theirs {
			t.Errorf("%s\n%s", command, lineDiff(ours, theirs))
		}
	}
}

// virtualQueries ask the catalogue for the schema cleave; what depends on the server alone (numbers, definitions) is left out.
var virtualQueries = []string{
	"SELECT * FROM information_schema.schemata WHERE schema_name = 'cleave'",
	"SELECT * FROM information_schema.tables WHERE table_schema = 'cleave' ORDER BY table_name",
	"SELECT table_name, check_option, is_updatable, is_insertable_into, is_trigger_updatable, is_trigger_deletable, is_trigger_insertable_into FROM information_schema.views WHERE table_schema = $1 ORDER BY 1",
	"SELECT * FROM information_schema.columns WHERE table_schema = 'cleave' ORDER BY table_name, ordinal_position",
	"SELECT to_jsonb(r) - ARRAY['specific_name', 'routine_body', 'routine_definition', 'external_language', 'external_name'] FROM information_schema.routines AS r WHERE routine_schema LIKE 'cleave' ORDER BY routine_name",
	"SELECT to_jsonb(p) - 'specific_name' FROM information_schema.parameters AS p WHERE specific_schema IN ('cleave') ORDER BY split_part(specific_name, '_', 1), specific_name COLLATE \"C\", ordinal_position",
	"SELECT schemaname, viewname, viewowner FROM pg_views WHERE schemaname = 'cleave' ORDER BY viewname",
	"SELECT nspname, nspowner FROM pg_namespace WHERE nspname = ANY ($1)",
	"SELECT relname, relowner, relam, reltablespace, relpages, relhasindex, relisshared, relpersistence, relkind, relnatts, relchecks, relhasrules, relhastriggers, relrowsecurity, relispopulated, relreplident, relispartition, relfilenode, reloptions FROM pg_class WHERE relnamespace = 'cleave'::regnamespace ORDER BY relname",
	"SELECT relname, to_jsonb(a) - 'attrelid' FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname = 'cleave' ORDER BY relname, attnum",
	"SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'cleave.workflows'::regclass AND attnum > 0 ORDER BY attnum",
	"SELECT proname, prokind, prosecdef, proretset, provolatile, proparallel, pronargs, pronargdefaults, prorettype::regtype, proargtypes, proargnames, proargmodes, proallargtypes, provariadic, proisstrict, proacl, pg_get_function_identity_arguments(p.oid) FROM pg_proc AS p WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cleave') ORDER BY proname",
	"SELECT relname, obj_description(c.oid, 'pg_class'), obj_description(c.oid), d.description FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace LEFT JOIN pg_description AS d ON objoid = c.oid AND classoid = 'pg_class'::regclass AND objsubid = 0 WHERE nspname = 'cleave' ORDER BY relname",
	"SELECT proname FROM pg_proc WHERE oid = 'cleave.move'::regproc",
	columnsByJDBC,
	"SELECT n.tableoid::regclass, d.tableoid::regclass, c.tableoid::regclass, relname FROM pg_namespace AS n, pg_description AS d, pg_class AS c WHERE nspname = 'cleave' AND c.relnamespace = n.oid AND objoid = c.oid ORDER BY 4",
	"SELECT proname, obj_description(p.oid, 'pg_proc'), description FROM pg_proc AS p JOIN pg_description ON objoid = p.oid JOIN pg_namespace AS n ON n.oid = pronamespace WHERE nspname = 'cleave' ORDER BY proname",
}

// columnsByJDBC is pgjdbc's DatabaseMetaData.getColumns.
const columnsByJDBC = `SELECT * FROM (SELECT current_database() AS current_database, n.nspname,c.relname,a.attname,a.atttypid,a.attnotnull OR (t.typtype = 'd' AND t.typnotnull) AS attnotnull,a.atttypmod,a.attlen,t.typtypmod,
	row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum) AS attnum, nullif(a.attidentity, '') as attidentity,nullif(a.attgenerated, '') as attgenerated,
	pg_catalog.pg_get_expr(def.adbin, def.adrelid) AS adsrc,dsc.description,t.typbasetype,t.typtype FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_class c ON (c.relnamespace = n.oid)
	JOIN pg_catalog.pg_attribute a ON (a.attrelid=c.oid) JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid) LEFT JOIN pg_catalog.pg_attrdef def ON (a.attrelid=def.adrelid AND a.attnum = def.adnum)
	LEFT JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) LEFT JOIN pg_catalog.pg_class dc ON (dc.oid=dsc.classoid AND dc.relname='pg_class')
	LEFT JOIN pg_catalog.pg_namespace dn ON (dc.relnamespace=dn.oid AND dn.nspname='pg_catalog') WHERE c.relkind in ('r','p','v','f','m') and a.attnum > 0 AND NOT a.attisdropped
	AND n.nspname LIKE 'cleave' AND c.relname LIKE 'sh%') c WHERE true ORDER BY nspname,c.relname,attnum `

// TestVirtualSchemaInQueries is TestCatalogShowsVirtualSchema for the queries of drivers and tools.
func TestVirtualSchemaInQueries(t *testing.T) {
	_, conn, _ := orders(t, config{})
	beside := pgtest.Super(pgtest.Database(t))
	if out := psqlOut(t, beside, cleaveSchema()); out != "" {
		t.Fatal(out)
	}
	theirs, err := pgx.Connect(t.Context(), beside)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close(context.Background())
	database := one[string](t, theirs, "SELECT current_database()")
	for _, sql := range virtualQueries {
		var args []any
		if strings.Contains(sql, "ANY ($1)") {
			args = append(args, []string{"cleave"})
		} else if strings.Contains(sql, "$1") {
			args = append(args, "cleave")
		}
		a, b := allRows(t, conn, sql, args...), strings.ReplaceAll(allRows(t, theirs, sql, args...), database, "cleave")
		if a != b || a == "" {
			t.Errorf("%s\n%s", sql, lineDiff(a, b))
		}
	}
}

func allRows(t *testing.T, conn *pgx.Conn, sql string, args ...any) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		for _, v := range rows.RawValues() {
			if v == nil {
				v = []byte("NULL")
			}
			fmt.Fprintf(&b, "%s|", v)
		}
		b.WriteByte('\n')
	}
	if rows.Err() != nil {
		t.Errorf("%s: %v", sql, rows.Err())
	}
	return b.String()
}

// TestVirtualSchemaIsNotListed: who asks for everything gets what users made. These are the questions of pg_dump and of tools that compare schemas.
func TestVirtualSchemaIsNotListed(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	for _, sql := range []string{
		"SELECT nspname FROM pg_namespace",
		"SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_.*' AND nspname NOT IN ('information_schema') ORDER by nspname",                          // Rails
		"SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE $1 AND nspname <> ALL ($2) AND $3::text IS NULL",                                        // SQLAlchemy with asyncpg
		"SELECT relname FROM pg_class WHERE relname = 'workflows'",                                                                                       // no schema
		"SELECT table_schema FROM information_schema.tables WHERE table_catalog = 'cleave' AND table_schema NOT IN ('pg_catalog', 'information_schema')", // the database is called so too
		"SELECT proname FROM pg_proc WHERE proname IN ('move', 'drain', 'next_id')",
		"SELECT table_name FROM information_schema.views WHERE table_schema <> 'cleave_internal' AND table_schema NOT LIKE 'pg%' AND table_schema <> 'information_schema'",
	} {
		var args []any
		if strings.Contains(sql, "$1") {
			args = []any{"pg_%", []string{"information_schema"}, nil}
		}
		if out := allRows(t, conn, sql, args...); strings.Contains(out, "cleave") || strings.Contains(out, "workflows") || strings.Contains(out, "move") {
			t.Errorf("%s\n%s", sql, out)
		}
	}
	for _, args := range [][]string{nil, {"--schema-only"}, {"-n", "pub*"}, {"-n", "cleave", "-n", "public"}} {
		out, err := osexec.Command(pgtest.PGDump(t), append(args, cl.url(""))...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "CREATE TABLE public.orders") || strings.Contains(string(out), "workflows") || strings.Contains(string(out), "SCHEMA cleave") {
			t.Errorf("pg_dump %q: %v\n%s", args, err, out)
		}
	}
}

// TestVirtualSchemaOnSearchPath: every table of the schema is found by its bare name.
func TestVirtualSchemaOnSearchPath(t *testing.T) {
	_, conn, _ := orders(t, config{})
	exec(t, conn, "SET search_path = cleave, public")
	for _, table := range own.Tables {
		exec(t, conn, "SELECT count(*) FROM "+table.Name)
	}
}
