package explain

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestPlanFormats prints plans that PostgreSQL gave as JSON in every format, as PostgreSQL prints them.
func TestPlanFormats(t *testing.T) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	explain := func(format, sql string) string {
		t.Helper()
		rows, err := conn.Query(ctx, strings.Replace(sql, "EXPLAIN (", "EXPLAIN (FORMAT "+format+", ", 1), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) { return string(r.RawValues()[0]), nil })
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return strings.Join(lines, "\n")
	}
	if _, err := conn.Exec(ctx, `CREATE TABLE a (id int PRIMARY KEY, "n <&> 'x' ""y""" text, b int REFERENCES a); CREATE INDEX ON a (b); SET search_path = public; SET enable_seqscan = off`); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"EXPLAIN (VERBOSE off) SELECT 1", "EXPLAIN (VERBOSE) SELECT * FROM a", "EXPLAIN (COSTS OFF) SELECT * FROM a WHERE id < 3 ORDER BY b DESC LIMIT 3",
		`EXPLAIN (VERBOSE, SETTINGS) SELECT a.*, (SELECT max(id) FROM a x WHERE x.b = a.b) FROM a JOIN a c USING (id) WHERE a."n <&> 'x' ""y""" ~ '<&>"\\'`,
		"EXPLAIN (VERBOSE) SELECT b, count(*) FROM a GROUP BY GROUPING SETS ((b), (id), ())", "EXPLAIN (VERBOSE off) WITH u AS (UPDATE a SET b = 1 RETURNING *) SELECT * FROM u",
		"EXPLAIN (VERBOSE off) DELETE FROM a WHERE id = 1", "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) INSERT INTO a VALUES (1, 'x', NULL) ON CONFLICT (id) DO UPDATE SET b = 1",
		"EXPLAIN (VERBOSE) SELECT * FROM (VALUES (1), (2)) v (x), generate_series(1, 3) UNION ALL SELECT 1, 2",
	} {
		explain("JSON", sql) // one that writes does the same from the third time on
		explain("JSON", sql)
		tree, err := parsePlan([]byte(explain("JSON", sql)))
		if err != nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		for _, format := range []string{"json", "yaml", "xml"} {
			if got, want := printPlan(format, tree), explain(format, sql); got != want {
				t.Errorf("%s as %s:\n%s\nPostgreSQL:\n%s", sql, format, got, want)
			}
		}
	}
	for _, wrong := range []string{"", "{}", "[]", "[1]", "[{}, {}]", "[{}] x", "[{"} {
		if _, err := parsePlan([]byte(wrong)); err == nil {
			t.Errorf("%q is a plan", wrong)
		}
	}
}
