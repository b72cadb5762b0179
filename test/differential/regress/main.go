package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/test/differential/cluster"
	"github.com/cleavedb/cleave/test/differential/compare"
)

func main() {
	dir := flag.String("dir", "", "PostgreSQL's folder src/test/regress")
	shards := flag.Int("shards", 3, "how many")
	list := flag.String("topics", topics, "scripts to run, with commas between them")
	verbose := flag.Bool("v", false, "print each refusal as well")
	flag.Parse()
	if err := run(context.Background(), *dir, *shards, strings.Split(*list, ","), *verbose); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// topics are about what statements give; the others are about PostgreSQL's
// insides, its languages, extensions, privileges and planner.
const topics = "boolean,char,text,varchar,int2,int4,int8,float4,float8,numeric,bit,uuid,enum,money,date,time,timetz,timestamp,timestamptz,interval," +
	"strings,regex,arrays,json,jsonb,rangetypes,multirangetypes,inet,domain,expressions,case,select,select_distinct,select_distinct_on,select_having," +
	"select_implicit,select_into,subselect,union,join,aggregates,groupingsets,window,with,limit,returning,insert,insert_conflict,update,delete,merge," +
	"copyselect,copydml,portals,prepare,transactions,sequence,identity,truncate,rowtypes,tsrf,rangefuncs,namespace,errors,create_view"

type runner struct {
	c        *cluster.Cluster
	router   *compare.Session
	plain    *compare.Session
	skip     bool // a refusal ended a transaction block: to its end
	verbose  bool
	sharded  int
	changing map[string]bool // prepared statements whose values change
	refused  map[string]bool // prepared statements that were refused
	loose    map[string]bool // cursors whose rows have no order
	limited  []string        // tables made of some rows, whichever
}

// count is a topic's.
type count struct {
	same, order, refused, differ, left int
}

func run(ctx context.Context, dir string, shards int, names []string, verbose bool) (err error) {
	tmp, err := os.MkdirTemp("/tmp", "cleave-regress-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	server, err := localpg.Start(ctx, localpg.Options{DataDir: filepath.Join(tmp, "data"), SocketDir: filepath.Join(tmp, "s"),
		Settings: map[string]string{"max_connections": "200", "max_prepared_transactions": "64", "timezone": "America/Los_Angeles", "datestyle": "Postgres, MDY"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(ctx)) }()
	fmt.Printf("PostgreSQL %d, %d shards, %s\n\n", server.Installation().Major, shards, time.Now().UTC().Format(time.DateOnly))
	fmt.Printf("| topic | statements | same | refused | differ |\n|---|---|---|---|---|\n")
	var total count
	for i, name := range names {
		n, differences, err := topic(ctx, server, dir, strings.TrimSpace(name), shards, i, verbose)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		n.print(name)
		for _, d := range differences {
			fmt.Fprintf(os.Stderr, "%s\n", d)
		}
		total.same, total.order, total.refused, total.differ, total.left = total.same+n.same, total.order+n.order, total.refused+n.refused, total.differ+n.differ, total.left+n.left
	}
	total.print("**all**")
	fmt.Printf("\n%d statements were left out; %d gave the same rows in another order, which their ORDER BY leaves open.\n", total.left, total.order)
	if total.differ > 0 {
		return fmt.Errorf("%d statements are answered otherwise than by PostgreSQL", total.differ)
	}
	return nil
}

func (n count) print(name string) {
	all := n.same + n.order + n.refused + n.differ
	percent := func(k int) string { return fmt.Sprintf("%.1f %%", 100*float64(k)/float64(max(all, 1))) }
	fmt.Printf("| %s | %d | %s | %s | %d |\n", name, all, percent(n.same+n.order), percent(n.refused), n.differ)
}

// topic runs a script on a fresh cluster, after the script that makes the tables
// that they all share.
func topic(ctx context.Context, server *localpg.Server, dir, name string, shards, number int, verbose bool) (n count, differences []string, err error) {
	made := 0
	database := func() (string, error) {
		made++
		db := fmt.Sprintf("r%d_%d", number, made)
		return server.URL(db), server.CreateDatabase(ctx, db)
	}
	plain, err := database()
	if err != nil {
		return n, nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Engine: "postgres", Shards: shards, Database: database})
	if err != nil {
		return n, nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	r := &runner{c: c, verbose: verbose, changing: map[string]bool{}, refused: map[string]bool{}, loose: map[string]bool{}}
	if r.plain, err = compare.Open(ctx, plain, compare.Help{}); err != nil {
		return n, nil, err
	}
	defer r.plain.Close()
	if r.router, err = compare.Open(ctx, c.URL(), compare.Help{TypeName: c.TypeName}); err != nil {
		return n, nil, err
	}
	defer r.router.Close()
	for _, file := range []string{"test_setup", name} {
		text, err := os.ReadFile(filepath.Join(dir, "sql", file+".sql"))
		if err != nil {
			return n, nil, err
		}
		for _, st := range read(string(text)) {
			st.sql = strings.ReplaceAll(st.sql, ":abs_srcdir", dir)
			word, what := r.one(ctx, st)
			if file != name {
				continue
			}
			switch word {
			case "same":
				n.same++
			case "order":
				n.order++
			case "refused":
				n.refused++
				if verbose {
					differences = append(differences, fmt.Sprintf("%s.sql:%d: refused: %s", file, st.line, what))
				}
			case "left":
				n.left++
			default:
				n.differ++
				differences = append(differences, fmt.Sprintf("%s.sql:%d:\n%s;\n%s", file, st.line, st.sql, what))
			}
		}
	}
	return n, differences, nil
}

var (
	// leftOut are statements whose outcome is not only the rows' business.
	leftOut     = regexp.MustCompile(`(?i)^\s*(explain|(update|delete\s+from|insert\s+into|merge\s+into)\s+pg_|copy\s.*\sto\s+'|vacuum|analyze|cluster|reindex|checkpoint|create\s+(or\s+replace\s+)?(operator|aggregate|rule|extension|role|user|language|cast|access|policy|server|foreign|publication|subscription|statistics|text|collation|conversion|event)|drop\s+(operator|aggregate|rule|role|user)|grant|revoke|security|comment|load|alter\s+(role|user|system|database)|set\s+(enable_|force_|debug_|min_parallel|max_parallel|work_mem|role|session)|reset\s+(enable_|force_|work_mem|role)|listen|notify|import)`) // of PostgreSQL's insides
	changing    = regexp.MustCompile(`(?i)\b(pg_(class|type|proc|attribute|index|constraint|stat\w*|locks|roles|authid|depend|namespace|operator|am\w*|opclass|input_error\w*|get_\w+|table_\w+|relation_\w+|size\w*|settings|cursors|prepared_\w+|views|tables|indexes|sequences?|sequence_\w+|describe\w*|identify\w*|backend\w*|current\w*|temp\w*|my_\w+|trigger\w*|rewrite|attrdef|collation|database|tablespace|inherits|range|enum|description|cast|language|statistic\w*|column_\w+|char_\w+|ls_\w+|read_\w+|file\w*)|information_schema|ctid|xmin|xmax|cmin|cmax|tableoid|random|clock_timestamp|timeofday|txid_\w+|currval|lastval|nextval|setval|now|current_timestamp|current_time|current_date|localtime\w*|current_catalog|current_database|regclass|regproc\w*|regtype|regoper\w*|oid|tablesample|version)\b|'(now|today|tomorrow|yesterday)`)
	inC         = regexp.MustCompile(`(?is)^\s*create\s.*\b(language\s+'?(c|internal|plperl\w*|plpython\w*)\b|transform)`)
	prepares    = regexp.MustCompile(`(?i)^\s*prepare\s+("[^"]+"|\w+)`)
	declares    = regexp.MustCompile(`(?is)^\s*declare\s+("[^"]+"|\w+)\s.*?\bfor\b(.*)$`)
	fetches     = regexp.MustCompile(`(?i)^\s*(?:fetch|move)\s(?:.*\b(?:from|in)\s+)?("[^"]+"|\w+)\s*$`)
	selectsInto = regexp.MustCompile(`(?is)^\s*create\s+(?:temp\w*\s+|unlogged\s+)?table\s+(\w+)\s+as\s.*\blimit\b`)
	executes    = regexp.MustCompile(`(?i)^\s*execute\s+("[^"]+"|\w+)`)
	// unordered are window functions that may look at the order of rows among equals,
	// which is open: PostgreSQL takes them as they are stored.
	unordered   = regexp.MustCompile(`(?i)\bover\s*\(\s*rows\b|\b(lag|lead|row_number|first_value|last_value|nth_value|ntile)\s*\(`)
	createTable = regexp.MustCompile(`(?is)^\s*create\s+table\s+(?:if\s+not\s+exists\s+)?("[^"]+"|[\w.]+)\s*\((.*)\)\s*$`)
	control     = regexp.MustCompile(`(?i)^\s*(begin|start|commit|rollback|end|abort|prepare\s+transaction|savepoint|release)\b`)
	keyType     = regexp.MustCompile(`(?i)^\s*("?\w+"?)\s+(bigint|int8|integer|int|int4|smallint|int2|text|varchar(?:\s*\(\d+\))?|uuid|date|timestamp(?:\s+without\s+time\s+zone)?|bytea|boolean|bool)\s*(,|$|\s+(not\s+null|primary|unique|check|default|constraint|references|null|generated))`)
	primary     = regexp.MustCompile(`(?i)\bprimary\s+key\s*\(\s*("?\w+"?)\s*\)|("?\w+"?)\s+\w+(?:\s*\(\d+\))?\s+(?:not\s+null\s+)?primary\s+key`)
)

// one runs a statement on both sides; word is "same", "order", "refused", "left",
// or else it differs and what says how.
func (r *runner) one(ctx context.Context, st statement) (word, what string) {
	if leftOut.MatchString(st.sql) || inC.MatchString(st.sql) || strings.Contains(st.sql, ":'") || strings.Contains(st.sql, `\`) && strings.Contains(st.sql, `\gset`) {
		return "left", ""
	}
	if r.skip {
		// The block's end was sent when the refusal came.
		if regexp.MustCompile(`(?i)^\s*(commit|end|abort|rollback\s*($|;|work|transaction|and))`).MatchString(st.sql) {
			r.skip = false
		}
		return "refused", "its transaction was refused"
	}
	sql := st.sql
	if m := createTable.FindStringSubmatch(sql); m != nil && r.router.Conn.TxStatus() == 'I' {
		if r.createSharded(ctx, sql, m[1], m[2]) {
			r.sharded++
			return "same", ""
		}
	}
	s := compare.Statement{SQL: sql, Data: st.data}
	if fromFile := regexp.MustCompile(`(?is)^copy\s+(\S+)\s*(\([^)]*\))?\s+from\s+'([^']+)'(.*)$`).FindStringSubmatch(sql); fromFile != nil {
		data, err := os.ReadFile(fromFile[3])
		if err != nil {
			return "left", ""
		}
		s = compare.Statement{SQL: "COPY " + fromFile[1] + " " + fromFile[2] + " FROM STDIN " + fromFile[4], Data: string(data)}
	}
	inside := r.plain.Conn.TxStatus() != 'I'
	if m := executes.FindStringSubmatch(sql); m != nil && r.refused[m[1]] {
		return "refused", "its PREPARE was refused"
	}
	if m := declares.FindStringSubmatch(sql); m != nil {
		r.loose[m[1]] = !compare.Ordered(m[2])
	}
	if m := selectsInto.FindStringSubmatch(sql); m != nil && !compare.Ordered(sql) {
		r.limited = append(r.limited, m[1])
	}
	got := r.router.Run(ctx, s)
	if m := prepares.FindStringSubmatch(sql); m != nil {
		r.refused[m[1]] = got.Refused()
	}
	if got.Refused() {
		if inside {
			want := r.plain.Run(ctx, s)
			if want.Refused() {
				return "same", ""
			}
			for _, side := range []*compare.Session{r.router, r.plain} {
				side.Run(ctx, compare.Statement{SQL: "ROLLBACK"})
			}
			r.skip = !control.MatchString(sql) || strings.HasPrefix(strings.ToLower(strings.TrimSpace(sql)), "savepoint")
			return "refused", got.Err.Message
		}
		if control.MatchString(sql) {
			return "refused", got.Err.Message
		}
		r.plain.Run(ctx, compare.Statement{SQL: "BEGIN"})
		want := r.plain.Run(ctx, s)
		r.plain.Run(ctx, compare.Statement{SQL: "ROLLBACK"})
		if want.Refused() {
			return "same", ""
		}
		return "refused", got.Err.Message
	}
	want := r.plain.Run(ctx, s)
	if m := prepares.FindStringSubmatch(sql); m != nil && changing.MatchString(sql) {
		r.changing[m[1]] = true
	}
	if m := executes.FindStringSubmatch(sql); changing.MatchString(sql) || m != nil && r.changing[m[1]] {
		if want.Err == nil && got.Err == nil || want.Err != nil && got.Err != nil && want.Err.Code == got.Err.Code {
			return "left", ""
		}
	}
	d := compare.Difference(want, got, compare.Options{Order: compare.Order{Any: !compare.Ordered(sql)}, Loose: true, AnyError: true})
	if d == "" {
		return "same", ""
	}
	if compare.Difference(want, got, compare.Options{Order: compare.Order{Any: true}, Loose: true, AnyError: true}) == "" {
		return "order", ""
	}
	if m := fetches.FindStringSubmatch(sql); m != nil && r.loose[m[1]] && compare.Difference(want, got, compare.Options{Shape: true}) == "" {
		return "order", ""
	}
	if got.Err != nil && got.Err.Message == `schema "pg_temp" does not exist` {
		return "refused", "what was to be in pg_temp was refused"
	}
	of := func(table string) bool { return regexp.MustCompile(`(?i)\b` + table + `\b`).MatchString(sql) }
	if slices.ContainsFunc(r.limited, of) && compare.Difference(want, got, compare.Options{Shape: true}) == "" {
		return "left", ""
	}
	if unordered.MatchString(sql) && compare.Difference(want, got, compare.Options{Shape: true}) == "" {
		return "left", ""
	}
	return "differ", d
}

// createSharded makes a table sharded, with the same key NOT NULL on the plain
// side; false if it cannot be.
func (r *runner) createSharded(ctx context.Context, sql, name, body string) bool {
	var keys []string
	if m := primary.FindStringSubmatch(body); m != nil {
		keys = append(keys, m[1]+m[2])
	}
	depth, start := 0, 0
	for i := 0; i <= len(body); i++ {
		switch {
		case i == len(body) || body[i] == ',' && depth == 0:
			if m := keyType.FindStringSubmatch(strings.TrimSpace(body[start:i])); m != nil && !slices.Contains(keys, m[1]) {
				keys = append(keys, m[1])
			}
			start = i + 1
		case body[i] == '(':
			depth++
		case body[i] == ')':
			depth--
		}
	}
	for _, key := range keys[:min(len(keys), 2)] {
		plainKey := strings.ToLower(key)
		if strings.HasPrefix(key, `"`) {
			plainKey = strings.Trim(key, `"`)
		}
		got := r.router.Run(ctx, compare.Statement{SQL: sql + " WITH (cleave.shard_key = '" + plainKey + "')"})
		if got.Err != nil || got.Lost != nil {
			continue
		}
		want := r.plain.Run(ctx, compare.Statement{SQL: sql})
		if want.Err == nil {
			r.plain.Run(ctx, compare.Statement{SQL: "ALTER TABLE " + name + " ALTER COLUMN " + key + " SET NOT NULL"})
		}
		return want.Err == nil
	}
	return false
}
