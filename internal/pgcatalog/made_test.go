package pgcatalog

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

var update = flag.Bool("update", false, "make the folder data again from the servers")

func TestMain(m *testing.M) { pgtest.Main(m) }

// sources are the files of the folder data: what is asked of each version. The fields come
// in the order in which rows are sorted.
var sources = []struct{ file, embedded, fields, query string }{
	{"types.tsv", typesText, "oid name size kind category preferred elem array in out collation align storage byvalue subtype multirange",
		`SELECT t.oid, typname, typlen, typtype, typcategory, typispreferred, typelem, typarray, typinput::oid, typoutput::oid, typcollation, typalign, typstorage, typbyval,
			coalesce(r.rngsubtype, m.rngtypid, 0), coalesce(r.rngmultitypid, 0)
		FROM pg_type t LEFT JOIN pg_range r ON r.rngtypid = t.oid LEFT JOIN pg_range m ON m.rngmultitypid = t.oid
		WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype <> 'c' AND NOT EXISTS (SELECT FROM pg_type e WHERE e.oid = t.typelem AND e.typtype = 'c')`},
	{"functions.tsv", functionsText, "name args oid kind volatile strict set result variadic defaults",
		`SELECT proname, proargtypes::text, CASE WHEN oid < 12000 THEN oid ELSE 0 END, prokind, provolatile, proisstrict, proretset, prorettype, provariadic, pronargdefaults
		FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace`},
	{"operators.tsv", operatorsText, "name left right oid result function commutes negates",
		`SELECT oprname, oprleft, oprright, oid, oprresult, oprcode::oid, oprcom, oprnegate FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace`},
	{"casts.tsv", castsText, "source target function context method",
		`SELECT castsource, casttarget, castfunc, castcontext, castmethod FROM pg_cast`},
	{"relations.tsv", relationsText, "schema name oid kind columns (name:type:modifier:not null)",
		`SELECT nspname, relname, CASE WHEN c.oid < 12000 THEN c.oid ELSE 0 END, relkind, (
			SELECT string_agg(format('%s:%s:%s:%s', attname, CASE WHEN t.typtype = 'd' THEN t.typbasetype WHEN t.oid < 12000 THEN t.oid ELSE 0 END, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE atttypmod END, attnotnull), ' ' ORDER BY attnum)
			FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE attrelid = c.oid AND attnum > 0)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname IN ('pg_catalog', 'information_schema') AND relkind IN ('r', 'v', 'm', 'f', 'p')`},
}

// TestMatchesServers compares the folder data with the catalogue of every supported version; -update makes it.
func TestMatchesServers(t *testing.T) {
	if !*update {
		testrun.Long(t, "a server of each major version starts; TestResolver asks two of them in the short run")
	}
	ctx := context.Background()
	rows := make([]map[string][]int, len(sources)) // the versions of each row
	for i := range rows {
		rows[i] = map[string][]int{}
	}
	for _, install := range pgtest.Versions(t) {
		conn, err := pgx.Connect(ctx, pgtest.DatabaseOn(t, pgtest.NewServerOf(t, install, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range sources {
			found, err := conn.PgConn().Exec(ctx, s.query).ReadAll()
			if err != nil {
				t.Fatalf("%s on %d: %v", s.file, install.Major, err)
			}
			for _, fields := range found[0].Rows {
				r := string(bytes.Join(fields, []byte("\t")))
				rows[i][r] = append(rows[i][r], install.Major)
			}
		}
		if err := conn.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range sources {
		want := "# Made by: go test ./internal/pgcatalog -run TestMatchesServers -update\n# versions " + s.fields + "\n" + written(rows[i])
		if *update {
			if err := os.WriteFile(filepath.Join("data", s.file), []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if want != s.embedded {
			t.Errorf("data/%s is not what the servers have: go test ./internal/pgcatalog -run TestMatchesServers -update\n%s", s.file, firstDifference(s.embedded, want))
		}
	}
}

// written makes a line of each row and run of versions that have it.
func written(rows map[string][]int) string {
	type made struct {
		row      string
		from, to int
	}
	var all []made
	for row, versions := range rows {
		for len(versions) > 0 {
			n := 1
			for n < len(versions) && versions[n] == versions[n-1]+1 {
				n++
			}
			all = append(all, made{row, versions[0], versions[n-1]})
			versions = versions[n:]
		}
	}
	slices.SortFunc(all, func(a, b made) int {
		x, y := strings.Split(a.row, "\t"), strings.Split(b.row, "\t")
		if c := slices.CompareFunc(x, y, compareField); c != 0 {
			return c
		}
		return cmp.Compare(a.from, b.from)
	})
	var b strings.Builder
	for _, m := range all {
		b.WriteString(strconv.Itoa(m.from) + "-" + strconv.Itoa(m.to) + "\t" + m.row + "\n")
	}
	return b.String()
}

// compareField compares lists of numbers, as the parameters of functions are, by their numbers.
func compareField(a, b string) int {
	return slices.CompareFunc(strings.Split(a, " "), strings.Split(b, " "), func(a, b string) int {
		n, err := strconv.Atoi(a)
		m, err2 := strconv.Atoi(b)
		if err == nil && err2 == nil {
			return cmp.Compare(n, m)
		}
		return strings.Compare(a, b)
	})
}

func firstDifference(have, want string) string {
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range min(len(h), len(w)) {
		if h[i] != w[i] {
			return "have " + h[i] + "\nwant " + w[i]
		}
	}
	return "one of them is longer"
}
