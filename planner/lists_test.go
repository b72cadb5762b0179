package planner

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestCatalogLists compares functions.txt and relations.txt with the catalogues
// of every PostgreSQL that tests can have; -rewrite makes them from these.
func TestCatalogLists(t *testing.T) {
	ctx := context.Background()
	functions, relations := map[string]string{}, map[string]bool{}
	for _, install := range pgtest.Versions(t) {
		server := pgtest.NewServerOf(t, install, nil)
		conn, err := pgx.Connect(ctx, pgtest.DatabaseOn(t, server))
		if err != nil {
			t.Fatal(err)
		}
		rows, err := conn.Query(ctx, `SELECT proname::text, bool_or(provolatile = 'v'), string_agg(DISTINCT prokind::text, '' ORDER BY prokind::text)
			FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace GROUP BY 1`)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var name, kinds string
			var volatile bool
			if err := rows.Scan(&name, &volatile, &kinds); err != nil {
				t.Fatal(err)
			}
			if volatile {
				kinds = "v" + kinds
			}
			for _, k := range kinds {
				if !strings.ContainsRune(functions[name], k) {
					functions[name] += string(k)
				}
			}
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
		rows, err = conn.Query(ctx, `SELECT relname::text FROM pg_catalog.pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v', 'm', 'f', 'p')`)
		if err != nil {
			t.Fatal(err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			relations[n] = true
		}
		if err := conn.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for name, k := range functions {
		if strings.Contains(k, "v") {
			functions[name] = "v" + strings.ReplaceAll(k, "v", "")
		}
	}
	if *rewrite {
		head := "# Made by: go test -run ^TestCatalogLists$ -rewrite ./planner\n"
		var f, r strings.Builder
		f.WriteString(head + "# Functions of pg_catalog: name, v if volatile, f function, a aggregate, w window, p procedure.\n")
		for _, name := range sortedKeys(functions) {
			f.WriteString(name + " " + functions[name] + "\n")
		}
		r.WriteString(head + "# Tables and views of pg_catalog.\n")
		for _, name := range sortedKeys(relations) {
			r.WriteString(name + "\n")
		}
		for file, text := range map[string]string{"functions.txt": f.String(), "relations.txt": r.String()} {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for name, kinds := range functions {
		have, ok := catalogFunctions[name]
		if !ok {
			t.Errorf("function %s is missing: go generate ./planner", name)
		}
		for _, k := range kinds {
			if ok && !strings.ContainsRune(have, k) {
				t.Errorf("function %s is %q in the list, %q in a server", name, have, kinds)
			}
		}
	}
	for name := range relations {
		if !isCatalogTable(name) {
			t.Errorf("relation %s is missing: go generate ./planner", name)
		}
	}
	if len(functions) < 2000 || len(relations) < 100 {
		t.Errorf("only %d functions and %d relations", len(functions), len(relations))
	}
}
