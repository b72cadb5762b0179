package gateway_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestSystemColumnsOfTheCatalogue: the system columns of the catalogue's tables are there, as DataGrip reads them, and add nothing to *.
func TestSystemColumnsOfTheCatalogue(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	exec(t, conn, "CREATE TABLE whole (id bigserial PRIMARY KEY)")
	exec(t, conn, "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'")
	exec(t, conn, "COMMENT ON TABLE whole IS 'a comment'")
	direct, err := pgx.Connect(t.Context(), cl.shards[0])
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close(t.Context())
	for _, sql := range []string{
		"SELECT c.relname, c.xmin, c.cmin, c.ctid, c.tableoid::regclass FROM pg_class AS c WHERE relname = 'whole'",
		"SELECT xmin, proname FROM pg_proc WHERE proname = 'f'",
		"SELECT n.xmin, n.tableoid, t.typname, t.xmin, t.ctid FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = typnamespace WHERE typname = 'whole'",
		"SELECT conname, pg_constraint.xmin FROM pg_constraint WHERE conrelid = 'whole'::regclass",
		"SELECT a.attname, a.xmin, a.tableoid::regclass FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid WHERE c.relname = 'whole' ORDER BY attnum",
		"SELECT attname, xmin FROM pg_attribute WHERE attrelid = $1 ORDER BY attnum",
		"SELECT d.classid, d.xmin, d.tableoid::regclass FROM pg_depend AS d WHERE refobjid = 'whole'::regclass ORDER BY 1, objid, objsubid",
		"SELECT description, xmin FROM pg_description WHERE objoid = $1",
		"SELECT datname, xmin, tableoid FROM pg_database WHERE datname = 'template1'",
		"SELECT c.tableoid::regclass, v.tablename FROM pg_class AS c JOIN pg_tables AS v ON v.tablename = c.relname WHERE relname = 'whole'",
		"SELECT x.* FROM (SELECT c.xmin, c.relname FROM pg_class AS c WHERE relname = 'whole') AS x",
		"SELECT count(*) FROM pg_class AS c WHERE c.xmin::text::bigint >= 0 AND relname = 'whole'",
	} {
		var args []any
		if strings.Contains(sql, "$1") {
			args = append(args, one[uint32](t, direct, "SELECT 'whole'::regclass::oid"))
		}
		if a, b := allRows(t, conn, sql, args...), allRows(t, direct, sql, args...); a != b || a == "" {
			t.Errorf("%s\n%s\n%s", sql, a, b)
		}
	}
	for _, sql := range []string{"SELECT tableoid, * FROM pg_namespace", "SELECT n.* FROM pg_namespace AS n WHERE n.xmin IS NOT NULL", "SELECT to_jsonb(c), c.xmin FROM pg_class AS c"} {
		wantCode(t, conn, "0A000", sql)
	}
	if out := allRows(t, conn, "SELECT xmin, xmax, cmin, ctid, tableoid::regclass, relname FROM pg_class WHERE oid = 'cleave.pins'::regclass"); out != "2|0|0|(0,0)|pg_class|pins|\n" {
		t.Error(out)
	}
	// Those of another table add nothing.
	if out := allRows(t, conn, "SELECT o.xmin IS NULL AS gone, n.* FROM pg_namespace AS n LEFT JOIN whole AS o ON o.id = 1 WHERE nspname = 'public'"); strings.Count(out, "|") != 5 {
		t.Error(out)
	}
}
