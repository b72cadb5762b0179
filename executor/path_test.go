package executor_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

var (
	pathSeed  = flag.Uint64("path-seed", 1, "TestPathsAsPostgres: the seed")
	pathCount = flag.Int("path-count", 0, "TestPathsAsPostgres: how many paths; 0: 2000, in a short run 400")
)

// pathNames are schemas. Some of them are what others become when they are cut.
var pathNames = []string{
	"a", "b", "B c", "1", "x'y", `q"q`, "ä", "Ä", "e'b'", "back\\slash", "a,b", strings.Repeat("n", 63), strings.Repeat("ä", 31), "x" + strings.Repeat("ä", 31), "xx" + strings.Repeat("€", 20), strings.Repeat("😀", 15), "t\tb",
}

// pathPieces are what paths are made of besides.
var pathPieces = []string{
	"a", "A", "b", "1", "Ä", "ä", "nowhere", `""`, `"B c"`, `"a"`, `"A"`, "x'y", `q"q`, `"q""q"`, "e'b'", "back\\slash", `"back\\slash"`, `"a,b"`, "a,b", "$user", `"$user"`,
	strings.Repeat("n", 63), strings.Repeat("N", 70), `"` + strings.Repeat("n", 90) + `"`, strings.Repeat("ä", 31), strings.Repeat("ä", 32), "x" + strings.Repeat("ä", 40), "xx" + strings.Repeat("€", 21),
	`"xx` + strings.Repeat("€", 40) + `"`, strings.Repeat("😀", 16), `"t\tb"`, `"` + strings.Repeat(`""`, 70) + `"`,
}

// TestPathsAsPostgres compares how a search_path that is given as one text is split with what a PostgreSQL finds by it.
func TestPathsAsPostgres(t *testing.T) {
	paths := testrun.Count(*pathCount, 400, 2000)
	t.Parallel()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, name := range pathNames {
		if _, err := conn.Exec(ctx, "CREATE SCHEMA "+pgx.Identifier{name}.Sanitize()); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(*pathSeed, 0))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	taken := 0
	for range paths {
		path := ""
		for n := range r.IntN(5) {
			if n > 0 {
				path += pick(",", ", ", " ,", "\f,\n", ",\t", ",\r\f", " ")
			}
			path += pick("", "", " ", "\f", "\n") + pick(pathPieces...) + pick("", "", " ", "\f")
		}
		var want []string
		_, err := conn.Exec(ctx, "SELECT set_config('search_path', $1, false)", path)
		if err == nil {
			err = conn.QueryRow(ctx, "SELECT current_schemas(false)").Scan(&want)
			taken++
		} else if strings.Contains(err.Error(), "SQLSTATE 22023") {
			continue // no list
		}
		if err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		got := []string{}
		for _, name := range executor.SplitPath(executor.Text(path)) {
			if slices.Contains(pathNames, name) && !slices.Contains(got, name) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %q: %q, want %q", *pathSeed, path, got, want)
		}
	}
	if taken < paths/2 {
		t.Errorf("only %d of %d are lists", taken, paths)
	}
}

// FuzzSplitPath: whatever the text, names are no longer than PostgreSQL's, and a list of them is read back as it is.
func FuzzSplitPath(f *testing.F) {
	for _, path := range append(pathPieces, `a, "B c", 'D'`, `E'x\'y', Z`, "\x01\fcleave_internal", "'", `E'\`) {
		f.Add(path)
		f.Add(executor.Text(path))
	}
	f.Fuzz(func(t *testing.T, path string) {
		names := executor.SplitPath(path)
		var text, literals []string
		for _, name := range names {
			if len(name) > 63 || utf8.ValidString(path) && !utf8.ValidString(name) {
				t.Fatalf("%q: the name %q", path, name)
			}
			text, literals = append(text, pgx.Identifier{name}.Sanitize()), append(literals, executor.QuoteLiteral(name))
			if got, ok := executor.Literal(executor.QuoteLiteral(name)); !ok || got != name {
				t.Fatalf("the literal of %q is read as %q", name, got)
			}
		}
		if slices.ContainsFunc(names, func(n string) bool { return strings.ContainsRune(n, 0) }) {
			return // which no text of a client has, and pgx leaves out
		}
		for _, again := range []string{executor.Text(strings.Join(text, ",")), strings.Join(literals, ", ")} {
			if got := executor.SplitPath(again); fmt.Sprint(got) != fmt.Sprint(names) {
				t.Fatalf("%q: %q, read back from %q as %q", path, names, again, got)
			}
		}
	})
}
