package drivers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/clustertest"
	"github.com/cleavedb/cleave/internal/pgtest"
)

// suiteMax bounds one run of a suite.
const suiteMax = 20 * time.Minute

// suite is something that other people wrote, with tests that have names.
type suite struct {
	name string // also of its list in the folder known
	what string // for the page
	// quick: it is run without -all too.
	quick bool
	// before are the statements that make a database ready.
	before []string
	// run runs it once.
	run func(t *testing.T, c target) results
}

// results are what tests said by name; why keeps what the failed ones printed.
type results struct {
	passed, failed map[string]bool
	why            map[string]string
}

func newResults() results {
	return results{map[string]bool{}, map[string]bool{}, map[string]string{}}
}

var suites = []suite{
	{name: "pq", what: "lib/pq 1.12.3, its own tests", quick: true, run: module("github.com/lib/pq@v1.12.3")},
	{
		name: "pgx", what: "pgx 5.12.0, its own tests", run: module("github.com/jackc/pgx/v5@v5.12.0"),
		before: []string{"CREATE EXTENSION hstore", "CREATE EXTENSION ltree", "CREATE DOMAIN uint64 AS numeric(20,0)"},
	},
	{name: "psycopg", what: "psycopg 3 of Debian (python3-psycopg)", quick: true, run: script("py_psycopg.py", python("python3-psycopg"))},
	{name: "asyncpg", what: "asyncpg of Debian (python3-asyncpg)", quick: true, run: script("py_asyncpg.py", python("python3-asyncpg"))},
	{name: "django", what: "Django of Debian (python3-django, python3-psycopg2) with its migrator", run: script("py_django.py", python("python3-django", "python3-psycopg2"))},
	{name: "perl", what: "DBD::Pg of Debian (libdbd-pg-perl)", run: script("dbd.pl", debian("/usr/bin/perl", "libdbd-pg-perl"))},
	{name: "php", what: "PDO of PHP, of Debian (php-pgsql)", run: script("pdo.php", debian("/usr/bin/php", "php-cli", "php-pgsql"))},
	{name: "sqlalchemy", what: "SQLAlchemy and Alembic of Debian (python3-sqlalchemy, python3-alembic)", run: script("py_sqlalchemy.py", python("python3-sqlalchemy", "python3-alembic", "python3-psycopg2", "python3-asyncpg"))},
	{name: "jdbc", what: "pgjdbc of Debian (libpostgresql-jdbc-java)", run: script("Jdbc.java", java("libpostgresql-jdbc-java", "/usr/share/java/postgresql.jar"))},
	{name: "activerecord", what: "ActiveRecord of Debian (ruby-activerecord, ruby-pg) with its migrator", run: script("active_record.rb", debian("/usr/bin/ruby", "ruby-activerecord", "ruby-pg"))},
	{name: "doctrine", what: "Doctrine's DBAL and ORM of Debian (php-doctrine-orm)", run: script("doctrine.php", debian("/usr/bin/php", "php-cli", "php-pgsql", "php-doctrine-dbal", "php-doctrine-orm", "php-symfony-cache"))},
	{name: "dbic", what: "DBIx::Class of Debian (libdbix-class-perl)", run: script("dbic.pl", debian("/usr/bin/perl", "libdbd-pg-perl", "libdbix-class-perl", "libdbix-class-schema-loader-perl"))},
	{name: "golang", what: "GORM, Bun, xorm, go-pg, squirrel, sqlx, golang-migrate and goose", run: golang},
	{name: "node-pg", what: "node-postgres with a cursor, by npm", run: node("pg.mjs")},
	{name: "sequelize", what: "Sequelize by npm", run: node("sequelize.mjs")},
	{name: "typeorm", what: "TypeORM with its migrator, by npm", run: node("typeorm.mjs")},
	{name: "knex", what: "Knex with its migrator, by npm", run: node("knex.mjs")},
	{name: "kysely", what: "Kysely with its migrator, by npm", run: node("kysely.mjs")},
	{name: "drizzle", what: "Drizzle with its migrator, by npm", run: node("drizzle.mjs")},
	{name: "postgresjs", what: "postgres.js by npm", run: node("postgresjs.mjs")},
	{name: "pgpromise", what: "pg-promise by npm", run: node("pgpromise.mjs")},
	{name: "mikroorm", what: "MikroORM with its migrator, by npm", run: node("mikroorm.mjs")},
	{name: "objection", what: "Objection by npm", run: node("objection.mjs")},
	{name: "pgmigrate", what: "node-pg-migrate and Umzug by npm", run: node("pgmigrate.mjs")},
}

// TestDrivers compares what passes with one PostgreSQL and with the router.
func TestDrivers(t *testing.T) {
	var page []string
	for _, s := range suites {
		if !*all && !s.quick {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			known := readKnown(t, s.name)
			got := tried(t, s.name, known, func() (r [2]results) {
				for i, c := range []target{postgres(t), router(t)} {
					c.exec(t, s.before...)
					r[i] = s.run(t, c)
				}
				return r
			})
			line := row(s, got, known)
			t.Log(line)
			page = append(page, line)
		})
	}
	if *update && len(page) == len(suites) && !t.Failed() {
		writePage(t, page)
	}
}

// tries bounds how often a suite runs whose results are not as they should be. Suites have bounds of time of their own, which a busy
// machine does not keep, with PostgreSQL itself as little as with the router.
const tries = 3

// tried runs a suite until its results are as they should be, and fails the test if they never are. A test of the suite passes that
// passed once.
func tried(t *testing.T, list string, known map[string]string, run func() [2]results) (got [2]results) {
	t.Helper()
	got = [2]results{newResults(), newResults()}
	for n := range tries {
		for i, r := range run() {
			got[i].add(r)
		}
		faults := judge(list, got, known)
		switch {
		case len(faults) == 0:
			return got
		case n+1 < tries:
			t.Logf("try %d:\n%s", n+1, strings.Join(faults, "\n"))
		default:
			t.Error(strings.Join(faults, "\n"))
		}
	}
	return got
}

// add takes over the results of another run.
func (r results) add(more results) {
	maps.Copy(r.passed, more.passed)
	maps.Copy(r.failed, more.failed)
	maps.Copy(r.why, more.why)
	maps.DeleteFunc(r.failed, func(name string, _ bool) bool { return r.passed[name] })
}

// judge compares what passes with PostgreSQL and with the router, where the list of that name has what is known not to.
func judge(list string, got [2]results, known map[string]string) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if len(got[0].passed) == 0 {
		add("nothing passes with PostgreSQL: %v", got[0].why)
	}
	for _, name := range sorted(got[0].passed) {
		switch passes, listed := got[1].passed[name], known[name] != ""; {
		case !passes && !listed:
			add("%s passes with PostgreSQL, not with the router:\n%s", name, got[1].why[name])
		case passes && listed && !strings.HasPrefix(known[name], sometimes):
			add("%s passes with the router: take it off known/%s.txt", name, list)
		}
	}
	for _, name := range sorted(known) {
		if !got[0].passed[name] {
			add("known/%s.txt lists %s, which does not pass with PostgreSQL", list, name)
		}
	}
	return faults
}

// TestDriversOnFiles runs ORMs on a cluster of SQLite files, with lists of their own of what differs.
func TestDriversOnFiles(t *testing.T) {
	for _, s := range suites {
		if !*all || !slices.Contains([]string{"django", "sequelize", "typeorm"}, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			list := s.name + "-sqlite"
			tried(t, list, readKnown(t, list), func() (r [2]results) {
				for i, c := range []target{postgres(t), routerOf(t, clustertest.Files(t))} {
					c.plain = true
					r[i] = s.run(t, c)
				}
				return r
			})
		})
	}
}

func sorted[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// sometimes begins the reason of a test that passes on some runs: what it meets is chance.
const sometimes = "sometimes: "

// readKnown reads a list: a name, a tab, the reason.
func readKnown(t *testing.T, name string) map[string]string {
	t.Helper()
	known := map[string]string{}
	b, err := os.ReadFile(filepath.Join("known", name+".txt"))
	if os.IsNotExist(err) {
		return known
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		test, reason, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || reason == "" {
			t.Fatalf("known/%s.txt: %q has no reason", name, line)
		}
		known[test] = reason
	}
	return known
}

// module runs the tests of a Go module, copied out of the module cache.
func module(version string) func(*testing.T, target) results {
	return func(t *testing.T, c target) results {
		t.Helper()
		out, err := exec.Command("go", "mod", "download", "-json", version).Output()
		var m struct{ Dir string }
		if err == nil {
			err = json.Unmarshal(out, &m)
		}
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		dir := t.TempDir()
		copyModule(t, dir, m.Dir)
		return goTests(t, dir, c)
	}
}

// golang runs the module of the folder golang.
func golang(t *testing.T, c target) results {
	t.Helper()
	dir := t.TempDir()
	copyModule(t, dir, "golang")
	return goTests(t, dir, c)
}

func copyModule(t *testing.T, dir, from string) {
	t.Helper()
	err := os.CopyFS(dir, os.DirFS(from))
	if err == nil {
		err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(path, 0o755)
			}
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// folders are the temporary ones that names of tests have in them.
var folders = regexp.MustCompile(`/tmp/[A-Za-z]+[0-9]+`)

// goTests takes the tests without subtests: others pass when these do.
func goTests(t *testing.T, dir string, c target) results {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), suiteMax)
	defer stop()
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-p", "1", "-timeout", "4m", "-json", "./...")
	cmd.Dir, cmd.Env = dir, append(c.env(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		t.Fatalf("go test of %s: %v", dir, err)
	}
	r, said := newResults(), map[string]string{}
	lines := bufio.NewReader(bytes.NewReader(out))
	for {
		line, err := lines.ReadBytes('\n')
		var e struct{ Action, Package, Test, Output string }
		if json.Unmarshal(line, &e) == nil && e.Test != "" {
			_, pkg, _ := strings.Cut(e.Package, "/")
			name := folders.ReplaceAllString(pkg[strings.LastIndex(pkg, "/")+1:]+"."+e.Test, "TMP")
			switch e.Action {
			case "output":
				said[name] += e.Output
			case "pass":
				r.passed[name] = true
			case "fail":
				r.failed[name], r.why[name] = true, said[name]
			}
		}
		if err == io.EOF {
			break
		}
	}
	for _, set := range []map[string]bool{r.passed, r.failed} {
		for name := range set {
			for at := strings.LastIndexByte(name, '/'); at > 0; at = strings.LastIndexByte(name[:at], '/') {
				delete(r.passed, name[:at])
				delete(r.failed, name[:at])
			}
		}
	}
	return r
}

// script runs a script of the folder scripts, whose lines are "ok NAME" and "not ok NAME: reason".
func script(file string, interpreter func(*testing.T) []string) func(*testing.T, target) results {
	return func(t *testing.T, c target) results {
		t.Helper()
		path, err := filepath.Abs(filepath.Join("scripts", file))
		if err != nil {
			t.Fatal(err)
		}
		return told(t, c, t.TempDir(), append(interpreter(t), path)...)
	}
}

func told(t *testing.T, c target, dir string, command ...string) results {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), suiteMax)
	defer stop()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, c.env()
	out, err := cmd.CombinedOutput()
	r := newResults()
	ended := false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "end":
			ended = true
		case strings.HasPrefix(line, "ok "):
			r.passed[line[3:]] = true
		case strings.HasPrefix(line, "not ok "):
			name, why, _ := strings.Cut(line[7:], ": ")
			r.failed[name], r.why[name] = true, why
		}
	}
	if !ended {
		t.Errorf("%v did not come to its end: %v\n%s", command, err, out)
	}
	return r
}

func debian(program string, packages ...string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		pgtest.Debian(t, packages...)
		return []string{program}
	}
}

// java compiles and runs one file.
func java(driver, jar string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		program, err := exec.LookPath("java")
		if err != nil {
			pgtest.Debian(t, "openjdk-17-jdk-headless")
			program = "/usr/bin/java"
		}
		pgtest.Debian(t, driver)
		return []string{program, "-XX:TieredStopAtLevel=1", "-cp", jar}
	}
}

// python is Debian's, which finds Debian's packages.
func python(packages ...string) func(*testing.T) []string {
	return debian("/usr/bin/python3", packages...)
}

// node runs a script of the folder node with the packages of its lock.
func node(file string) func(*testing.T, target) results {
	return func(t *testing.T, c target) results {
		t.Helper()
		program, modules := pgtest.Node(t, "node")
		dir := t.TempDir()
		files, err := filepath.Glob("node/*.mjs")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		return told(t, c, dir, program, file)
	}
}

// row is a suite's part of the page.
func row(s suite, got [2]results, known map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", s.what, len(got[0].passed)+len(got[0].failed), len(got[0].passed), len(got[0].passed)-len(known))
	return b.String()
}

// writePage writes docs/drivers.md.
func writePage(t *testing.T, rows []string) {
	t.Helper()
	const path = "../../docs/drivers.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(b), "<!-- made by make drivers -->\n")
	if !ok {
		t.Fatalf("%s has no mark", path)
	}
	head += "<!-- made by make drivers -->\n\nOf " + time.Now().Format("2006-01-02") + ".\n\n| what | tests | pass with PostgreSQL | pass with the router |\n|---|---|---|---|\n" + strings.Join(rows, "")
	head += "\n## What differs\n"
	for _, s := range suites {
		known := readKnown(t, s.name)
		if len(known) == 0 {
			continue
		}
		head += "\n" + s.what + ":\n\n"
		reasons := map[string][]string{}
		for name, why := range known {
			reasons[why] = append(reasons[why], "`"+name+"`")
		}
		for _, why := range sorted(reasons) {
			slices.Sort(reasons[why])
			head += folded("- " + why + ": " + strings.Join(reasons[why], ", ") + ".")
		}
	}
	if err := os.WriteFile(path, []byte(head), 0o644); err != nil {
		t.Fatal(err)
	}
}

// folded is an item of a list in lines of at most 120 characters.
func folded(item string) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Split(item, " ") {
		switch {
		case i == 0:
		case at+1+len(word) > 120:
			b.WriteString("\n ")
			at = 1
			fallthrough
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String() + "\n"
}

// TestASuiteIsTriedAgain: what passes in one of the tries passes, and each try's results are compared with the list.
func TestASuiteIsTriedAgain(t *testing.T) {
	of := func(passed, failed string) results {
		r := newResults()
		for name := range strings.FieldsSeq(passed) {
			r.passed[name] = true
		}
		for name := range strings.FieldsSeq(failed) {
			r.failed[name] = true
		}
		return r
	}
	runs := [][2]results{{of("a", "b"), of("b", "a")}, {of("a b", ""), of("a b", "")}}
	n := 0
	got := tried(t, "none", nil, func() [2]results { n++; return runs[n-1] })
	if n != 2 || len(got[1].passed) != 2 || len(got[1].failed) != 0 {
		t.Errorf("%d tries, %v", n, got)
	}
	if faults := judge("none", [2]results{of("a b", ""), of("a", "b")}, nil); len(faults) != 1 {
		t.Errorf("a test that does not pass with the router gives %q", faults)
	}
	if faults := judge("none", [2]results{of("a", "b"), of("a", "")}, map[string]string{"a": "why", "b": "why"}); len(faults) != 2 {
		t.Errorf("a list that is not true gives %q", faults)
	}
}
