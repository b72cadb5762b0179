package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/shardmap"
)

// TestInformationSchema: what stands for the relations of information_schema has their columns, on every version.
func TestInformationSchema(t *testing.T) {
	snap, err := shardmap.NewSnapshot(testState(t))
	if err != nil {
		t.Fatal(err)
	}
	p := New(Limits{})
	text := func(sql string) string {
		st, err := p.Analyze(sql, snap, []string{"public"})
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return st.Text
	}
	ctx := context.Background()
	for _, install := range pgtest.VersionsOfRun(t) {
		conn, err := pgx.Connect(ctx, pgtest.DatabaseOn(t, pgtest.NewServerOf(t, install, nil)))
		if err != nil {
			t.Fatal(err)
		}
		columns := func(sql string) (out []string) {
			d, err := conn.PgConn().Prepare(ctx, "", sql, nil)
			if err != nil {
				t.Errorf("PostgreSQL %d: %s: %v", install.Major, sql, err)
				return nil
			}
			for _, f := range d.Fields {
				out = append(out, f.Name)
			}
			return out
		}
		rows, err := conn.Query(ctx, "SELECT relname::text FROM pg_class WHERE relnamespace = 'information_schema'::regnamespace AND relkind IN ('r', 'v') AND relname !~ '^_'")
		if err != nil {
			t.Fatal(err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			all := "SELECT * FROM information_schema." + name
			want := columns(all)
			if got := columns(text(all)); !slices.Equal(got, want) {
				t.Errorf("PostgreSQL %d: %s has the columns %v, PostgreSQL's are %v", install.Major, name, got, want)
			}
			listed := "SELECT " + strings.Join(want, ", ") + " FROM information_schema." + name + " AS x"
			if got := columns(text(listed)); !slices.Equal(got, want) {
				t.Errorf("PostgreSQL %d: %s", install.Major, listed)
			}
			columns(text("SELECT count(*) FROM information_schema." + name))
			var given []string
			for i := range want {
				given = append(given, fmt.Sprint("c", i))
			}
			for _, sql := range []string{
				"SELECT " + strings.Join(given, ", ") + " FROM information_schema." + name + " AS x(" + strings.Join(given, ", ") + ")",
				"SELECT j.* FROM (information_schema." + name + " AS x CROSS JOIN (VALUES (1)) AS v (one)) AS j",
				"SELECT j FROM (information_schema." + name + " AS x CROSS JOIN (VALUES (1)) AS v (one)) AS j",
				"SELECT d.domain_default, x.* FROM information_schema.domains d CROSS JOIN (SELECT " + want[0] + " FROM information_schema." + name + ") x",
				"SELECT d.domain_default, x." + want[0] + " FROM information_schema.domains d CROSS JOIN information_schema." + name + " x",
			} {
				if got, of := rowsOf(t, conn, text(sql)), rowsOf(t, conn, sql); !slices.Equal(got, of) {
					t.Errorf("PostgreSQL %d: %s has %d rows that are others than PostgreSQL's %d", install.Major, sql, len(got), len(of))
				}
			}
		}
		// Where each row is changed as a whole, the names of databases are the client's, and NULL where they were.
		if _, err := conn.Exec(ctx, "CREATE TABLE pg_temp.t (id int PRIMARY KEY, a int[])"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"table_constraints", "element_types"} {
			var total, named, others int
			column := map[string]string{"table_constraints": "table_catalog", "element_types": "object_catalog"}[name]
			empty := map[string]string{"table_constraints": "NULL", "element_types": "scope_catalog"}[name]
			sql := text("SELECT * FROM information_schema." + name)
			if err := conn.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE "+column+" = 'cleave'), count("+empty+") FROM ("+sql+") AS x").Scan(&total, &named, &others); err != nil {
				t.Fatalf("PostgreSQL %d: %s: %v", install.Major, sql, err)
			}
			if total == 0 || named != total || others != 0 {
				t.Errorf("PostgreSQL %d: of %d rows of %s %d have the name, %d another", install.Major, total, name, named, others)
			}
		}
		if err := conn.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBuiltinKind: the kinds are those of all functions of a name.
func TestBuiltinKind(t *testing.T) {
	for name, want := range map[string]string{"abs": "f", "now": "f", "random": "vf", "count": "a", "rank": "aw", "lag": "w", "nothing": "", "array_sample": "vf"} {
		if got := builtin.Kind(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if builtin.HasRelation("nothing") || !builtin.HasRelation("pg_class") || builtin.Has("pg_class") {
		t.Error("relations and functions are mixed up")
	}
}

// rowsOf are the rows of a query as texts, in order, with the client's name of the database.
func rowsOf(t *testing.T, conn *pgx.Conn, sql string) (out []string) {
	t.Helper()
	results, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return []string{pg.Code + " " + pg.Message} // information_schema.transforms cannot be read
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range results[0].Rows {
		var b strings.Builder
		for _, v := range row {
			fmt.Fprintf(&b, "%t %s|", v == nil, v)
		}
		out = append(out, strings.ReplaceAll(b.String(), conn.Config().Database, clustercatalog.Database))
	}
	slices.Sort(out)
	return out
}
