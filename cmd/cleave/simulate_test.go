package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/cmd/cleave/internal/simulation"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/placement/simulate"
	"github.com/cleavedb/cleave/shardmap"
)

// zipfCommand is the command of docs/simulate.md that draws the picture there.
const zipfCommand = "cleave simulate --from zipf:1.1:1000000 --shards 8 --add 1 --remove 1 --svg docs/images/simulate-zipf.svg"

// TestSimulatePage runs the page's commands on generated keys: the picture and
// the output on the page are what the program makes.
func TestSimulatePage(t *testing.T) {
	const path, picture = "../../docs/simulate.md", "../../docs/images/simulate-zipf.svg"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), "$ "+zipfCommand+"\n")
	_, after, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatalf("%s does not show %q and its output", path, zipfCommand)
	}
	drawn := filepath.Join(t.TempDir(), "zipf.svg")
	words := strings.Fields(zipfCommand)[1:]
	words[len(words)-1] = drawn
	code, stdout, stderr := cli(t, nil, words...)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	svg, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	if len(svg) > 100<<10 {
		t.Errorf("the picture has %d bytes", len(svg))
	}
	golden(t, picture, svg)
	golden(t, path, []byte(before+"$ "+zipfCommand+"\n"+stdout+"```"+after))
}

func TestSimulateUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(file, []byte("a,b\n1,x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"", "--from is missing", exitUsage},
		{"--from postgres://h/d", "--table is missing", exitUsage},
		{"--from " + file + " --table t", "--from table:t", exitUsage},
		{"--from " + file + " --weights 1,x", "--weights x is not a number", exitUsage},
		{"--from " + file + " --column a --weights 1,2", "2 weights are too few for 8 shards", exitUsage},
		{"--from " + file + " --column a --remove 8", "8 of 8 shards cannot be removed", exitUsage},
		{"--from " + file + " --column a --shards 0", "0 is not a number of shards", exitUsage},
		{"--from " + file + " --column a --strategies best", `no strategy "best"`, exitUsage},
		{"--from " + file + " --column a --type bigint,text", "2 types are given for 1 columns", exitUsage},
		{"--from " + file + " --column a --advise --svg x", "draws no picture", exitUsage},
		{"--from " + file + " --column c", `no column "c"`, exitFailed},
		{"--from " + file, "2 columns, so --column has to say", exitFailed},
		{"--from " + file + " --column a --type float8", "cannot be a shard key", exitFailed},
		{"--from " + file + " --column b --type bigint", "invalid input syntax for type bigint", exitFailed},
		{"--from " + file + " --column a --svg /does/not/exist.svg", "picture could not be written", exitFailed},
		{"--from nowhere.csv", "nowhere.csv cannot be read", exitFailed},
		{"--from zipf:1:5", "exponent", exitFailed},
		{"--from postgres://127.0.0.1:1/x --table t", "cannot be reached", exitFailed},
		{"--from table:t --admin 127.0.0.1:1", "cleave up", exitFailed},
	} {
		code, stdout, stderr := cli(t, nil, append([]string{"simulate"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %d and %q", c.args, code, stdout, stderr, c.code, c.want)
		}
	}
}

// TestSimulateInput: the same keys in each form of input give the same report.
func TestSimulateInput(t *testing.T) {
	var csv, lines, jsonl strings.Builder
	csv.WriteString("id,tenant\n")
	for i := range 500 {
		fmt.Fprintf(&csv, "%d,t%d\n", i, i*i%37)
		fmt.Fprintf(&lines, "t%d\n", i*i%37)
		fmt.Fprintf(&jsonl, `{"id": %d, "tenant": "t%d"}`+"\n", i, i*i%37)
	}
	dir := t.TempDir()
	reports := map[string]simulate.Report{}
	for name, text := range map[string]string{"a.csv": csv.String(), "a.txt": lines.String(), "a.jsonl": jsonl.String(), "-": lines.String()} {
		from := name
		if name != "-" {
			from = filepath.Join(dir, name)
			if err := os.WriteFile(from, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), &process{stdin: strings.NewReader(text), stdout: &out, stderr: &errs},
			[]string{"simulate", "--from", from, "--column", "tenant", "--remove", "1", "--json", "--png", filepath.Join(dir, "x.png")})
		var r simulate.Report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil || code != exitOK {
			t.Fatalf("%s: exit code %d, %v, %s", name, code, err, errs.String())
		}
		if r.Key.Rows != 500 || len(r.Strategies) != 6 || r.Types[0] != "text" || !r.Guessed || r.Columns[0] != "tenant" || r.Interrupted {
			t.Errorf("%s: %+v", name, r)
		}
		r.Source = ""
		reports[name] = r
		pic, err := os.Open(filepath.Join(dir, "x.png"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := png.Decode(pic); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		pic.Close()
	}
	for name, r := range reports {
		if a, b := fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", reports["a.csv"]); a != b {
			t.Errorf("%s: %s\nwant %s", name, a, b)
		}
	}
	// Columns compared, without any that can be the key for so many shards.
	code, stdout, stderr := cli(t, nil, "simulate", "--from", filepath.Join(dir, "a.csv"), "--advise", "--shards", "1000")
	if code != exitOK || !strings.Contains(stdout, "tenant  text    no") || !strings.Contains(stdout, "no column is a good key by itself") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, _ := cli(t, nil, "simulate", "--from", filepath.Join(dir, "a.csv"), "--advise", "--shards", "2"); code != exitOK || !strings.Contains(stdout, "is the best by what can be measured") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}

// TestSimulateNothing: files without keys say so.
func TestSimulateNothing(t *testing.T) {
	for text, want := range map[string]string{"a,b\n": "has no rows", "a,b\n,1\n,2\n": "none of the 2 rows", "": "is empty", "\x00\x01": "not a text file"} {
		var out, errs bytes.Buffer
		code := run(t.Context(), &process{stdin: strings.NewReader(text), stdout: &out, stderr: &errs},
			[]string{"simulate", "--from", "-", "--format", "csv", "--column", "a"})
		if code != exitFailed || !strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%q: exit code %d, %s%s", text, code, out.String(), errs.String())
		}
	}
}

// TestSimulateInterrupted sends Ctrl-C while standard input says nothing more.
func TestSimulateInterrupted(t *testing.T) {
	for _, types := range []string{"", "text"} {
		r, w := io.Pipe()
		signals := make(chan os.Signal, 1)
		go func() {
			_, _ = io.WriteString(w, strings.Repeat("a\nb\n", 100_000))
			signals <- syscall.SIGINT
		}()
		var out, errs bytes.Buffer
		args := []string{"simulate", "--from", "-", "--format", "lines", "--json"}
		if types != "" {
			args = append(args, "--type", types)
		}
		code := run(t.Context(), &process{stdin: r, stdout: &out, stderr: &errs, signals: signals}, args)
		var rep simulate.Report
		if err := json.Unmarshal(out.Bytes(), &rep); err != nil || code != exitFailed || !rep.Interrupted || !strings.Contains(errs.String(), "interrupted") {
			t.Fatalf("exit code %d, %v, %s%s", code, err, out.String(), errs.String())
		}
		if rep.Key.Rows == 0 || rep.Key.Rows > 200_000 || len(rep.Strategies) != 5 || rep.Strategies[0].Rows != rep.Key.Rows {
			t.Errorf("%+v", rep)
		}
		w.Close() // lets the reader of standard input end
	}
}

// TestSimulateIsTrue loads keys into a real cluster and counts its rows: they are
// on the shards where balanced said they would be, with equal ranges.
func TestSimulateIsTrue(t *testing.T) {
	c := start(t, "up", "--data", filepath.Join(t.TempDir(), "data"), "--shards", "4")
	s := c.session()
	execAll(t, s, `CREATE TABLE packages (maintainer text, name text, PRIMARY KEY (maintainer, name)) WITH (cleave.shard_key = 'maintainer')`)
	var text strings.Builder
	for i := range 800 {
		m := fmt.Sprintf("Maintainer %d <m@example.org>", i*i%211)
		fmt.Fprintf(&text, "%s\n", m)
		if _, err := s.Exec(t.Context(), "INSERT INTO packages VALUES ($1, $2)", m, fmt.Sprint("p", i)); err != nil {
			t.Fatal(err)
		}
	}
	var want []uint64
	for i := range 4 {
		var shards []struct{ Name, URL string }
		c.into(&shards, "shard", "list")
		var state struct{ Cluster string }
		c.into(&state, "map", "show")
		// A map in which this shard has the table to itself.
		alone := &shardmap.State{Cluster: state.Cluster, DefaultShard: shards[i].Name, Shards: []shardmap.Shard{shardDef("sqlite", shards[i].Name, shards[i].URL)},
			Tables: []shardmap.Table{{Schema: "public", Name: "packages", Columns: []shardmap.Column{{Name: "maintainer", Type: "text"}}}}}
		table, err := simulation.OpenTable(t.Context(), alone, "packages")
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		if err := table.Rows(t.Context(), []int{0}, func([][]byte) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		want = append(want, n)
		if err := table.Close(); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "keys.txt")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--from", file, "--shards", "4"}, {"--from", "table:packages"}, {"--from", "table:public.packages", "--column", "maintainer"}} {
		var r simulate.Report
		c.into(&r, append([]string{"simulate", "--strategies", "balanced,range"}, args...)...)
		if r.Shards != 4 || r.Key.Rows != 800 || !slices.Equal(r.Strategies[0].PerShard, want) {
			t.Errorf("%q: %d rows, %v on shards, the cluster has %v", args, r.Key.Rows, r.Strategies[0].PerShard, want)
		}
	}
	var compared simulation.Comparison
	c.into(&compared, "simulate", "--from", "table:packages", "--advise")
	if len(compared.Candidates) != 2 || compared.Rows != 800 {
		t.Errorf("%+v", compared)
	}
	if code, _, stderr := cli(t, nil, "simulate", "--from", "table:nothing", "--admin", c.Admin); code != exitFailed || !strings.Contains(stderr, "no table nothing") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// TestSimulateOnPostgresShards reads a table on PostgreSQL shards, and looks at
// the router as at a database.
func TestSimulateOnPostgresShards(t *testing.T) {
	pgtest.PSQL(t) // installs PostgreSQL where it is missing
	c := start(t, "up", "--engine", "postgres", "--data", filepath.Join(pgtest.Dir(t), "data"), "--shards", "2")
	s := c.session()
	execAll(t, s, createOrders, "CREATE TABLE whole (id bigint PRIMARY KEY, region text NOT NULL)", "INSERT INTO whole SELECT i, 'r' || i % 100 FROM generate_series(1, 1000) i")
	insert(t, s, 60)
	var r simulate.Report
	c.into(&r, "simulate", "--from", "table:orders", "--strategies", "balanced")
	if r.Shards != 2 || r.Key.Rows != 60 || r.Types[0] != "bigint" || r.Columns[0] != "tenant_id" || r.Guessed {
		t.Errorf("%+v", r)
	}
	c.into(&r, "simulate", "--from", "table:whole", "--column", "region")
	if r.Key.Rows != 1000 || r.Key.Distinct != 100 || !slices.ContainsFunc(r.Advice, func(a simulate.Advice) bool { return a.Code == "unique" }) {
		t.Errorf("%+v", r)
	}
	router := "postgres://" + c.Listen + "/cleave?sslmode=disable"
	code, stdout, stderr := cli(t, nil, "simulate", "--from", router, "--table", "whole", "--column", "region", "--json")
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitOK || r.Key.Rows != 1000 {
		t.Errorf("exit code %d, %v, %s", code, err, stderr)
	}
	// A router reads the rows of all shards.
	code, stdout, stderr = cli(t, nil, "simulate", "--from", router, "--table", "orders", "--column", "tenant_id", "--json")
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitOK || r.Key.Rows != 60 {
		t.Errorf("exit code %d, %v, %s", code, err, stderr)
	}
}

const shopSchema = `CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE tenants (id bigint PRIMARY KEY);
INSERT INTO tenants SELECT generate_series(1, 500);
CREATE TABLE "Orders" (
  id bigint PRIMARY KEY, tenant_id bigint NOT NULL REFERENCES tenants ON UPDATE CASCADE, customer bigint NOT NULL REFERENCES tenants,
  status text NOT NULL CHECK (status IN ('new', 'paid', 'sent')), mood mood NOT NULL, price numeric, note text, updated_at timestamptz NOT NULL,
  upper_note text GENERATED ALWAYS AS (upper(note)) STORED, label text COLLATE "und-x" , UNIQUE (customer, id));
CREATE INDEX ON "Orders" (customer);
INSERT INTO "Orders" (id, tenant_id, customer, status, mood, price, note, updated_at)
  SELECT i, 1 + i * 7919::bigint % 491, 1 + i * 104729::bigint % 499, (ARRAY['new', 'paid', 'sent'])[1 + i % 3], 'ok', i * 0.5, nullif('n' || i % 40, 'n0'),
    '2026-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 4000) i;
CREATE FUNCTION nop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER sees BEFORE UPDATE OF note ON "Orders" FOR EACH ROW EXECUTE FUNCTION nop();
ANALYZE "Orders";`

// TestSimulateDatabase reads a database that knows nothing of Cleave.
func TestSimulateDatabase(t *testing.T) {
	url := pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{`CREATE COLLATION "und-x" (provider = icu, locale = 'und', deterministic = false)`, shopSchema} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), `CREATE TABLE nothing (a bigint)`); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := cli(t, nil, "simulate", "--from", url, "--table", "nothing", "--column", "a"); code != exitFailed || !strings.Contains(stderr, "load rows first") {
		t.Errorf("an empty table: exit code %d, %s", code, stderr)
	}
	report := func(columns ...string) (r simulate.Report) {
		t.Helper()
		code, stdout, stderr := cli(t, nil, "simulate", "--from", url, "--table", `"Orders"`, "--column", strings.Join(columns, ","), "--json")
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitOK {
			t.Fatalf("%v: exit code %d, %v, %s", columns, code, err, stderr)
		}
		return r
	}
	has := func(r simulate.Report, level, code, text string) {
		t.Helper()
		for _, a := range r.Advice {
			if string(a.Level) == level && a.Code == code && strings.Contains(a.What+a.Measured, text) {
				return
			}
		}
		t.Errorf("%v: no %s %s %q in %+v", r.Columns, level, code, text, r.Advice)
	}
	r := report("tenant_id")
	if r.Key.Rows != 4000 || r.Key.Distinct != 491 || r.Types[0] != "bigint" || r.Guessed || r.Source != "table public.Orders" {
		t.Errorf("%+v", r.Key)
	}
	has(r, "warning", "mutable", "Orders_tenant_id_fkey")
	has(r, "warning", "unique", "PRIMARY KEY")
	has(r, "warning", "unique", "UNIQUE")
	has(r, "warning", "low-cardinality", "491")
	r = report("status")
	has(r, "problem", "low-cardinality", "can never have more than 3 values")
	if r = report("updated_at"); r.Key.Rising != 1 || r.Types[0] != "timestamp with time zone" {
		t.Errorf("%+v", r.Key)
	}
	has(r, "warning", "rising", "updated_at")
	r = report("note")
	has(r, "problem", "null", "100 rows")
	has(r, "warning", "mutable", "sees")
	if r = report("tenant_id", "customer"); len(r.Types) != 2 || r.Key.Distinct < 3000 {
		t.Errorf("%+v", r.Key)
	}
	for column, want := range map[string]string{"price": "numeric", "label": "nondeterministic", "mood": "cannot be a shard key", "nope": "tenant_id"} {
		if code, _, stderr := cli(t, nil, "simulate", "--from", url, "--table", `"Orders"`, "--column", column); code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", column, code, stderr)
		}
	}
	if code, _, stderr := cli(t, nil, "simulate", "--from", url, "--table", "orders"); code != exitFailed || !strings.Contains(stderr, "no table orders") {
		t.Errorf("exit code %d, %s", code, stderr)
	}

	code, stdout, stderr := cli(t, nil, "simulate", "--from", url, "--table", `"Orders"`, "--advise", "--shards", "4", "--json")
	var c simulation.Comparison
	if err := json.Unmarshal([]byte(stdout), &c); err != nil || code != exitOK || c.Rows != 4000 || len(c.Candidates) != 10 {
		t.Fatalf("exit code %d, %v, %s%s", code, err, stdout, stderr)
	}
	verdicts := map[string]simulate.Verdict{}
	for _, x := range c.Candidates {
		verdicts[x.Column] = x.Verdict
	}
	if c.Candidates[0].Column != "customer" || verdicts["customer"] != simulate.Good || verdicts["tenant_id"] != simulate.Possible || verdicts["id"] != simulate.Good ||
		verdicts["status"] != simulate.Poor || verdicts["price"] != simulate.Poor || verdicts["mood"] != simulate.Poor || verdicts["label"] != simulate.Poor {
		t.Errorf("first %s, %v", c.Candidates[0].Column, verdicts)
	}
	code, stdout, _ = cli(t, nil, "simulate", "--from", url, "--table", `"Orders"`, "--advise", "--shards", "4")
	if code != exitOK || !strings.Contains(stdout, "customer is the best") {
		t.Errorf("%s", stdout)
	}
}

func shardDef(engine, name, url string) shardmap.Shard {
	return shardmap.Shard{Name: name, Engine: engine, URL: url}
}
