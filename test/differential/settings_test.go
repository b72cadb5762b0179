package differential

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/test/differential/cluster"
	"github.com/cleavedb/cleave/test/differential/compare"
	"github.com/cleavedb/cleave/test/differential/corpus"
)

// setting is one session setting.
type setting struct{ name, value string }

// unusual is a set of settings, and the way in which a session gets them.
type unusual struct {
	name string
	way  string // "SET", "parameters", "options" or "database"
	list []setting
}

// varied are the values that the sets take in turn. Neighbours have numbers of values without a common
// divisor where that matters, so that the sets combine them differently.
var varied = []struct {
	name   string
	values []string
}{
	{"DateStyle", []string{"SQL, DMY", "German, YMD", "Postgres, MDY", "ISO, DMY", "SQL, MDY", "German, DMY", "Postgres, YMD", "ISO, YMD", "SQL, YMD", "German, MDY", "Postgres, DMY", "ISO, MDY"}},
	{"IntervalStyle", []string{"iso_8601", "sql_standard", "postgres_verbose", "postgres", "sql_standard"}},
	{"TimeZone", []string{"Asia/Shanghai", "America/St_Johns", "Europe/Dublin", "<+0330>-03:30", "Australia/Lord_Howe", "Asia/Kathmandu", "-7"}},
	{"extra_float_digits", []string{"0", "-3", "3", "-15", "1"}},
	{"bytea_output", []string{"escape", "escape", "hex"}},
	{"search_path", []string{`public, pg_catalog`, `"$user", public, nowhere`, `"public", nowhere`, `public`}},
	{"plan_cache_mode", []string{"force_generic_plan", "force_custom_plan", "auto"}},
	{"timezone_abbreviations", []string{"Australia", "Default", "India"}},
	{"array_nulls", []string{"off", "on", "on"}},
	{"transform_null_equals", []string{"on", "off", "off", "off"}},
	{"backslash_quote", []string{"off", "on", "safe_encoding"}},
	{"quote_all_identifiers", []string{"on", "off"}},
	{"xmlbinary", []string{"hex", "base64"}},
	{"xmloption", []string{"document", "content"}},
	{"default_transaction_isolation", []string{"read committed", "repeatable read", "read committed"}},
	{"default_transaction_read_only", []string{"off"}},
	{"row_security", []string{"off", "on"}},
	{"client_min_messages", []string{"warning", "notice", "error"}},
	{"work_mem", []string{"64kB", "4MB"}},
	{"jit", []string{"off"}}, // sessions without a set have it; what the others forbid costs so much that each statement would be compiled
	{"enable_hashjoin", []string{"off", "on"}},
	{"enable_hashagg", []string{"on", "off"}},
	{"enable_nestloop", []string{"on", "off", "on"}},
	{"enable_mergejoin", []string{"off", "on", "on"}},
	{"enable_sort", []string{"on", "on", "off"}},
	{"enable_indexscan", []string{"off", "on"}},
	{"enable_seqscan", []string{"on", "on", "off"}},
	{"lc_monetary", []string{"de_DE.UTF-8", "C", "fr_FR.UTF-8"}},
	{"lc_numeric", []string{"C", "de_DE.UTF-8"}},
	{"lc_time", []string{"de_DE.UTF-8", "C", "ja_JP.UTF-8"}},
	{"statement_timeout", []string{"80s", "0"}},
	{"gin_fuzzy_search_limit", []string{"0"}},
	{"default_text_search_config", []string{"pg_catalog.german", "pg_catalog.simple", "pg_catalog.english"}},
	{"default_transaction_deferrable", []string{"off", "on"}},
	{"standard_conforming_strings", []string{"on"}},
	{"escape_string_warning", []string{"off", "on"}},
	{"synchronous_commit", []string{"off", "on"}},
	{"constraint_exclusion", []string{"on", "off"}},
	{"from_collapse_limit", []string{"1", "8"}},
	{"geqo_threshold", []string{"2", "12"}},
	{"max_parallel_workers_per_gather", []string{"0", "2"}},
}

// unusuals are the sets; each value is in some of them.
func unusuals() (out []unusual) {
	ways := []string{"SET", "parameters", "options"}
	for i := range 24 {
		u := unusual{name: fmt.Sprint(i + 1), way: ways[i%3]}
		for _, v := range varied {
			// The second half meets every value with other neighbours.
			u.list = append(u.list, setting{v.name, v.values[(i+i/12*len(v.values)/2)%len(v.values)]})
		}
		out = append(out, u)
	}
	return out
}

// under gives both sides new sessions with a set of settings. What the one database does not take (a locale
// that its machine lacks), and what the router refuses, neither gets.
func (p *pair) under(u unusual) (without []string) {
	p.t.Helper()
	ctx := context.Background()
	var taken []setting
	for _, s := range u.list {
		set := compare.Statement{SQL: fmt.Sprintf("SET %s TO %s", s.name, s.text())}
		want := p.aside.Run(ctx, set)
		p.mustAside("RESET " + s.name)
		if want.Err != nil {
			without = append(without, s.name+" (the one database)")
			continue
		}
		if got := p.router.Run(ctx, set); got.Refused() || got.Err != nil && p.cluster.Engine == "sqlite" {
			without = append(without, s.name)
			continue
		} else if got.Err != nil || got.Lost != nil {
			p.t.Fatalf("%s: %s", set.SQL, got)
		}
		taken = append(taken, s)
	}
	way := u.way
	if p.cluster.Engine == "sqlite" {
		way = "SET"
	}
	sessions := []*compare.Session{p.router, p.plain, p.encoder}
	for _, s := range sessions {
		if err := s.Close(); err != nil {
			p.t.Fatal(err)
		}
	}
	switch {
	case way == "database":
		p.alter(taken)
	case p.altered:
		p.alter(nil)
	}
	for _, s := range sessions {
		if err := s.Again(ctx, settingsURL(s.Home(), way, taken), settingsSQL(way, taken)); err != nil {
			p.t.Fatalf("set %s: %v", u.name, err)
		}
	}
	return without
}

// alter gives the settings to the plain database and to the default shard's. The harness's own sessions keep what they have; the
// router is begun anew.
func (p *pair) alter(list []setting) {
	p.t.Helper()
	for _, s := range append([]setting{{}}, list...) {
		sql := "RESET ALL"
		if s.name != "" {
			sql = fmt.Sprintf("SET %s TO %s", s.name, s.text())
		}
		alter := "DO $x$ BEGIN EXECUTE pg_catalog.format('ALTER DATABASE %I " + strings.ReplaceAll(sql, "'", "''") + "', pg_catalog.current_database()); END $x$"
		p.mustAside(alter)
		if _, err := p.cluster.On(p.cluster.Snapshot().State().DefaultShard, alter); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.cluster.Restart(context.Background()); err != nil {
		p.t.Fatal(err)
	}
	p.router.Move(p.cluster.URL())
	p.altered = len(list) > 0
}

// text is the value as SET takes it.
func (s setting) text() string {
	if s.name == "search_path" || s.name == "DateStyle" {
		return s.value
	}
	return "'" + s.value + "'"
}

func settingsURL(home, way string, list []setting) string {
	u, err := url.Parse(home)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	var options []string
	for _, s := range list {
		switch way {
		case "parameters":
			q.Set(s.name, s.value)
		case "options":
			options = append(options, "-c "+s.name+"="+strings.ReplaceAll(strings.ReplaceAll(s.value, `\`, `\\`), " ", `\ `))
		}
	}
	if len(options) > 0 {
		q.Set("options", strings.Join(options, " "))
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String()
}

func settingsSQL(way string, list []setting) (sql []string) {
	if way != "SET" {
		return nil
	}
	for _, s := range list {
		sql = append(sql, fmt.Sprintf("SET %s TO %s", s.name, s.text()))
	}
	return sql
}

// TestCorpusUnderSettings runs the corpus in sessions with unusual settings. Nothing may differ; what is refused
// beyond the ceilings is logged. Each topic is run under one set on one engine; -settings names a set, or all, and with -begun
// the default shard's database has them.
func TestCorpusUnderSettings(t *testing.T) {
	testrun.Long(t, "the corpus once more, under sets of settings; TestCorpus has it under the usual ones")
	topics, err := corpus.Topics()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := corpus.Schemas()
	if err != nil {
		t.Fatal(err)
	}
	ceilings := readCeilings(t)
	found := &findings{first: map[string]string{}, where: map[string][]string{}}
	all := unusuals()
	var mu sync.Mutex
	ran, refusedMore := map[string]int{}, 0
	t.Run("on", func(t *testing.T) {
		for i, o := range []cluster.Options{{Engine: "postgres", Shards: 3}, {Engine: "sqlite", Shards: 2}, {Engine: "postgres", Shards: 2}, {Engine: "postgres", Shards: 5}} {
			if i >= 2 && !*everywhere {
				break
			}
			t.Run(fmt.Sprintf("%s-%d", o.Engine, o.Shards), func(t *testing.T) {
				t.Parallel()
				p := newPair(t, o, schemas)
				for n, u := range all {
					if *settings != "" && *settings != "all" && *settings != u.name {
						continue
					}
					var without []string
					begun, sum := false, tally{}
					for at, topic := range topics {
						if !slices.Contains(topic.Engines, o.Engine) || *oneTopic != "" && *oneTopic != topic.Name {
							continue
						}
						if *settings == "" && (at%len(all) != n || at%2 != i%2) {
							continue // a share
						}
						if !begun {
							if *begunWith || *settings == "" && n%8 == 2 {
								u.way = "database"
							}
							without, begun = p.under(u), true
						}
						p.set = "settings " + u.name
						got := runTopic(t, p, topic, n+n/3+i, found)
						sum.run, sum.refused, sum.differ = sum.run+got.run, sum.refused+got.refused, sum.differ+got.differ
						mu.Lock()
						ran[p.cluster.Name()] += got.run
						if most, known := ceilings[topic.Name+" "+o.Engine]; known && got.refused > most {
							refusedMore += got.refused - most
							t.Logf("%s on %s, settings %s: %d statements are refused, %d without the settings:\n%s", topic.Name, p.cluster.Name(), u.name, got.refused, most, reasons(got, 12))
						}
						mu.Unlock()
					}
					if begun {
						t.Logf("%s, settings %s: %d statements, %d refused, %d differ; not set: %s", p.cluster.Name(), u.name, sum.run, sum.refused, sum.differ, strings.Join(without, ", "))
					}
				}
			})
		}
	})
	t.Logf("statements run: %v; refused more than without settings: %d", ran, refusedMore)
	found.report(t)
}
