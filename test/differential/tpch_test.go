package differential

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/test/differential/compare"
	"github.com/cleavedb/cleave/test/differential/corpus"
	"github.com/cleavedb/cleave/test/differential/tpch"
)

// tpchSchema makes TPC-H's tables with rows.
func tpchSchema(orders int) corpus.Schema {
	s := corpus.Schema{Name: "tpch", Engines: []string{"postgres", "sqlite"}}
	rows := tpch.Rows(orders)
	for _, t := range tpch.Tables() {
		s.Steps = append(s.Steps, corpus.Step{SQL: t.Create(true), Router: true}, corpus.Step{SQL: t.Create(false), Plain: true})
		var b strings.Builder
		fmt.Fprintf(&b, "INSERT INTO %s VALUES ", t.Name)
		for i, r := range rows[t.Name] {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("('" + strings.Join(r, "','") + "')")
		}
		s.Steps = append(s.Steps, corpus.Step{SQL: b.String(), Plain: true})
	}
	return s
}

// TestTPCH runs the 22 queries on every configuration. None may differ; on
// PostgreSQL none may be refused.
func TestTPCH(t *testing.T) {
	schemas := []corpus.Schema{tpchSchema(*orders)}
	var mu sync.Mutex
	refusals := map[string][]string{}
	t.Run("on", func(t *testing.T) {
		for _, o := range configurations {
			name := fmt.Sprintf("%s-%d", o.Engine, o.Shards)
			t.Run(name, func(t *testing.T) {
				if o.Shards == 3 {
					testrun.Short(t)
				} else {
					testrun.Long(t, "the short run has three shards of each engine")
				}
				t.Parallel()
				p := newPair(t, o, schemas)
				for q := 1; q <= 22; q++ {
					sql := tpch.Query(q)
					mode := []compare.Mode{compare.Simple, compare.Binary}[(q+o.Shards)%2]
					v, why := p.run(context.Background(), compare.Statement{SQL: sql, Mode: mode}, compare.Options{})
					switch v {
					case refused:
						mu.Lock()
						refusals[name] = append(refusals[name], fmt.Sprintf("Q%d: %s", q, why))
						mu.Unlock()
					case differs:
						t.Errorf("Q%d, %s:\n%s\n%s", q, mode, sql, why)
					}
					if out := p.plain.Run(context.Background(), compare.Statement{SQL: sql}); out.Err != nil || len(out.Results[0].Rows) == 0 || out.Results[0].Rows[0][0] == compare.Null {
						t.Errorf("Q%d finds nothing on one database: %s", q, out)
					}
				}
			})
		}
	})
	for name, list := range refusals {
		t.Logf("%s: %d of 22 are refused\n%s", name, len(list), strings.Join(list, "\n"))
	}
}
