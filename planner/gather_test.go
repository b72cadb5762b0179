package planner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// gatherOf plans a text as a gather, whatever cheaper plan there may be.
func gatherOf(p *Planner, snap *shardmap.Snapshot, sql string, path []string) (plan *plan.Plan, err error) {
	tree, err := p.parse(sql)
	if err != nil {
		return nil, err
	}
	a := p.analyzer(sql, snap, path)
	a.OneShard.Several = true
	if _, err := a.run(tree); err != nil && a.Bound.Top == nil {
		return nil, err
	}
	a.texts.names = 0
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			plan, err = nil, b.Err
		}
	}()
	return a.readPlans().planGather(a.Bound.Top)
}

func targetText(t plan.Target) string {
	switch t.Where {
	case plan.AnyOne:
		return "any shard"
	case plan.Default:
		return "the default shard"
	case plan.Every:
		return "every shard"
	}
	s := t.Keyspace
	if t.Keys == nil && t.Spans == nil {
		return s + ", all"
	}
	for _, k := range t.Keys {
		s += " ("
		for i := range k {
			s += " " + k[i].String()
		}
		s += " )"
	}
	if t.Spans != nil {
		s += fmt.Sprintf(" spans %d", len(t.Spans))
	}
	return s
}

// TestGatherGolden shows what a gather would fetch and run for the statements of
// testdata/gather.
func TestGatherGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/gather/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	snap, p := testSnapshot(t), New(Limits{})
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out, sql strings.Builder
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, "--> ") {
				continue
			}
			out.WriteString(line)
			if strings.HasPrefix(line, "--") || line == "\n" {
				continue
			}
			sql.WriteString(line)
			if !strings.HasSuffix(line, ";\n") {
				continue
			}
			plan, err := gatherOf(p, snap, strings.TrimSuffix(sql.String(), ";\n"), []string{"public"})
			sql.Reset()
			if err != nil {
				e := sqlstate.As(err)
				fmt.Fprintf(&out, "--> refused %s: %s\n", e.Code, e.Message)
				continue
			}
			for _, r := range plan.Relations {
				fmt.Fprintf(&out, "--> %s (%s): %s", r.Name, targetText(r.Target), r.Text)
				if len(r.Index) > 0 {
					fmt.Fprintf(&out, " index %v", r.Index)
				}
				if r.Keyed {
					out.WriteString(" keyed")
				}
				if r.Exact {
					out.WriteString(" exact")
				}
				out.WriteString("\n")
			}
			fmt.Fprintf(&out, "--> %s\n", plan.Text)
		}
		if *rewrite {
			if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if got, want := out.String(), string(data); got != want {
			t.Errorf("%s differs; go test ./planner -run TestGatherGolden -rewrite shows how\n%s", file, firstDifference(got, want))
		}
	}
}
