package differential

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/test/differential/compare"
	"github.com/cleavedb/cleave/test/differential/corpus"
)

// tally counts what became of a topic's statements on one configuration.
type tally struct {
	run, refused, differ int
	whys                 map[string]int // refusals by their reason
}

// findings are the differences, each told once, with all configurations that
// show it.
type findings struct {
	mu    sync.Mutex
	order []string
	first map[string]string
	where map[string][]string
}

func (f *findings) add(statement, configuration, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first[statement] == "" {
		f.order = append(f.order, statement)
		f.first[statement] = text
	}
	f.where[statement] = append(f.where[statement], configuration)
}

func (f *findings) report(t *testing.T) {
	slices.Sort(f.order)
	for _, st := range f.order {
		t.Errorf("%s\non %s:\n%s", st, strings.Join(f.where[st], ", "), f.first[st])
	}
}

// TestCorpus runs every statement of the corpus on every configuration. None may
// differ, and no topic may be refused more than its ceiling says.
func TestCorpus(t *testing.T) {
	topics, err := corpus.Topics()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := corpus.Schemas()
	if err != nil {
		t.Fatal(err)
	}
	found := &findings{first: map[string]string{}, where: map[string][]string{}}
	var mu sync.Mutex
	tallies := map[string]map[string]*tally{} // by topic, by configuration
	t.Run("on", func(t *testing.T) {
		for i, o := range configurations {
			t.Run(fmt.Sprintf("%s-%d", o.Engine, o.Shards), func(t *testing.T) {
				t.Parallel()
				p := newPair(t, o, schemas)
				for at, topic := range topics {
					// Each topic on one number of shards of each engine, unless all are asked for.
					if !*everywhere && !*rewrite && *oneTopic == "" && at%3 != i%3 {
						continue
					}
					if !slices.Contains(topic.Engines, o.Engine) || *oneTopic != "" && *oneTopic != topic.Name {
						continue
					}
					// The short run has each topic on one engine, in turn.
					if *oneTopic == "" && !testrun.Wants((at%2 == 0) == (o.Engine == "postgres")) {
						continue
					}
					got := runTopic(t, p, topic, i, found)
					mu.Lock()
					if tallies[topic.Name] == nil {
						tallies[topic.Name] = map[string]*tally{}
					}
					tallies[topic.Name][p.cluster.Name()] = got
					mu.Unlock()
				}
			})
		}
	})
	found.report(t)
	judge(t, topics, tallies)
}

// runTopic runs a topic's items; the mode of each changes from configuration to
// configuration.
func runTopic(t *testing.T, p *pair, topic corpus.Topic, configuration int, found *findings) *tally {
	got := &tally{whys: map[string]int{}}
	p.router.Forget()
	p.plain.Forget()
	for i, it := range topic.Items {
		if it.Only != "" && it.Only != p.cluster.Engine {
			continue
		}
		mode := []compare.Mode{compare.Simple, compare.Binary, compare.Text}[(i+configuration)%3]
		got.run++
		v, why := p.check(context.Background(), it, mode)
		switch v {
		case refused:
			got.refused++
			got.whys[why]++
			if testing.Verbose() && *oneTopic != "" {
				t.Logf("%s.sql:%d: refused:\n%s", topic.Name, it.Line, describe(it, why))
			}
			if len(it.Statements) > 1 { // what would have put its settings back did not run
				for _, side := range []*compare.Session{p.router, p.plain} {
					side.Forget()
					if err := side.Settle(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
			}
		case differs:
			got.differ++
			found.add(fmt.Sprintf("%s.sql:%03d: %s", topic.Name, it.Line, describe(it, "")), strings.TrimSpace(p.cluster.Name()+" "+p.set)+" "+mode.String(), why)
			p.reset() // else everything after it would differ
		}
		// Reading the pools takes as long as the statement itself: under settings it is for some together.
		if p.set == "" || i%20 == 0 {
			p.leftovers(topic, it, mode, found)
		}
	}
	if p.set != "" {
		p.leftovers(topic, topic.Items[len(topic.Items)-1], compare.Simple, found)
	}
	p.reset()
	return got
}

// leftovers adds what the item, or under settings one of the items before it, has left in pooled connections.
func (p *pair) leftovers(topic corpus.Topic, it corpus.Item, mode compare.Mode, found *findings) {
	p.t.Helper()
	left, err := p.cluster.Leftovers(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	if left != "" {
		found.add(fmt.Sprintf("%s.sql:%03d: %s", topic.Name, it.Line, describe(it, "")), strings.TrimSpace(p.cluster.Name()+" "+p.set)+" "+mode.String(), "left in a pooled connection: "+left)
	}
}

func describe(it corpus.Item, why string) string {
	var b strings.Builder
	for _, st := range it.Statements {
		b.WriteString(st.SQL + ";")
		for i, v := range st.Params {
			text := "NULL"
			if v != nil {
				text = *v
			}
			fmt.Fprintf(&b, " $%d = %s", i+1, text)
		}
		b.WriteByte('\n')
	}
	return b.String() + why
}

// ceilingFile says for each topic and engine how many of its statements may be
// refused, at most, on any of the engine's configurations.
const ceilingFile = "corpus/refusals.txt"

func readCeilings(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	b, err := os.ReadFile(ceilingFile)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	s := bufio.NewScanner(strings.NewReader(string(b)))
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) < 3 || f[0] == "#" {
			continue
		}
		var n int
		if _, err := fmt.Sscan(f[2], &n); err != nil {
			t.Fatalf("%s: %q: %v", ceilingFile, s.Text(), err)
		}
		out[f[0]+" "+f[1]] = n
	}
	return out
}

// judge prints the shares and holds them against the ceilings.
func judge(t *testing.T, topics []corpus.Topic, tallies map[string]map[string]*tally) {
	ceilings := readCeilings(t)
	var table, file strings.Builder
	file.WriteString("# How many statements of each topic may be refused on each engine; made by: go test ./test/differential -run TestCorpus -rewrite\n")
	totals := map[string]*tally{}
	for _, topic := range topics {
		for _, engine := range []string{"postgres", "sqlite"} {
			var most *tally
			for _, o := range configurations {
				got := tallies[topic.Name][fmt.Sprintf("%s-%d", o.Engine, o.Shards)]
				if o.Engine == engine && got != nil && (most == nil || got.refused > most.refused) {
					most = got
				}
			}
			key := topic.Name + " " + engine
			ceiling, known := ceilings[key]
			if most == nil {
				if known && *oneTopic != "" && *rewrite {
					fmt.Fprintf(&file, "%s %d\n", key, ceiling)
				}
				continue
			}
			if totals[engine] == nil {
				totals[engine] = &tally{whys: map[string]int{}}
			}
			totals[engine].run += most.run
			totals[engine].refused += most.refused
			for why, n := range most.whys {
				totals[engine].whys[why] += n
			}
			fmt.Fprintf(&table, "%-20s %-9s %5d statements, %4d refused (%5.1f %%), %d differ\n", topic.Name, engine, most.run, most.refused, share(most), most.differ)
			switch {
			case *rewrite && (!known || most.refused < ceiling):
				ceiling = most.refused
			case most.refused > ceiling:
				t.Errorf("%s on %s: %d statements are refused, at most %d may be (%s):\n%s", topic.Name, engine, most.refused, ceiling, ceilingFile, reasons(most, 12))
			}
			fmt.Fprintf(&file, "%s %d\n", key, ceiling)
		}
	}
	for _, engine := range []string{"postgres", "sqlite"} {
		if all := totals[engine]; all != nil {
			fmt.Fprintf(&table, "%-20s %-9s %5d statements, %4d refused (%5.1f %%)\n%s", "all", engine, all.run, all.refused, share(all), reasons(all, 15))
		}
	}
	t.Logf("refusals, on the configuration with most of them:\n%s", table.String())
	if *rewrite {
		if err := os.WriteFile(ceilingFile, []byte(file.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func share(c *tally) float64 { return 100 * float64(c.refused) / float64(max(c.run, 1)) }

// reasons lists the most frequent refusals.
func reasons(c *tally, most int) string {
	keys := make([]string, 0, len(c.whys))
	for k := range c.whys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if c.whys[a] != c.whys[b] {
			return c.whys[b] - c.whys[a]
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for i, k := range keys {
		if i == most {
			break
		}
		fmt.Fprintf(&b, "    %4d  %s\n", c.whys[k], k)
	}
	return b.String()
}
