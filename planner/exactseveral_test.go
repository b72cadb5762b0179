package planner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
)

// The claim behind plans over several shards that only read: what the shards give,
// put together as the plan says, is what one database would give. The test makes
// statements at random and carries their plans out by hand.

// severally carries out a plan that reads. Scatters with an order are carried out
// in the form of a gather (Plan.Sorted), which the executor's merge has to equal.
func (db *exactDB) severally(snap *shardmap.Snapshot, p *plan.Plan, width int) string {
	db.t.Helper()
	if p.Op == plan.Scatter {
		if len(p.Combine.Order) > 0 || p.Combine.Limit != nil || p.Combine.Offset != nil {
			return db.severally(snap, p.Sorted(width+p.Combine.Hidden), width)
		}
		shards, err := p.Target.Shards(snap, nil)
		if err != nil {
			db.t.Fatal(err)
		}
		var rows []string
		for _, name := range shards {
			got := db.run(db.shards[name], p.Text)
			if strings.HasPrefix(got, "error ") {
				return got
			}
			all := strings.Split(got, "\n")
			rows = append(rows, all[:len(all)-1]...)
		}
		slices.Sort(rows)
		return strings.Join(append(rows, fmt.Sprintf("SELECT %d", len(rows))), "\n")
	}
	scratch := db.scratch
	db.must(scratch, "BEGIN")
	defer db.must(scratch, "ROLLBACK")
	ctx := context.Background()
	for i := range p.Relations {
		r := &p.Relations[i]
		if got := db.run(scratch, "CREATE TEMP TABLE "+r.Name+" AS "+r.Text+" WITH NO DATA"); strings.HasPrefix(got, "error ") {
			return got
		}
		shards, err := r.Target.Shards(snap, nil)
		if err != nil {
			db.t.Fatal(err)
		}
		for _, name := range shards {
			var buf bytes.Buffer
			if _, err := db.shards[name].CopyTo(ctx, &buf, "COPY ("+r.Text+") TO STDOUT"); err != nil {
				var pe *pgconn.PgError
				if !errors.As(err, &pe) {
					db.t.Fatalf("%s: %v", r.Text, err)
				}
				return "error " + pe.Code
			}
			if _, err := scratch.CopyFrom(ctx, &buf, "COPY "+r.Name+" FROM STDIN"); err != nil {
				db.t.Fatalf("%s: %v", r.Text, err)
			}
		}
	}
	return db.run(scratch, p.Text)
}

func TestExactSeveral(t *testing.T) {
	r := seeded(t)
	snap := testSnapshot(t)
	db := newExactDB(t, snap, r)
	p := New(Limits{})
	g := &generator{r: r}
	end := time.Now().Add(testrun.Pick(3*time.Second, 10*time.Second)) // of other statements each time
	count := map[string]int{}
	few := func() bool { return count["scatter"] < 20 || count["aggregate"] < 20 || count["gather"] < 20 }
	for late := end.Add(2 * time.Minute); time.Now().Before(end) || few() && time.Now().Before(late); {
		q, width := g.several()
		st, err := p.Analyze(q, snap, []string{"public"})
		if err != nil {
			count["refused"]++
			continue
		}
		if st.Kind == plan.OneShard {
			if route, err := st.Route(snap, nil); err != nil || !route.Several {
				count["one shard"]++
				continue
			}
			if st, err = p.Several(q, snap, []string{"public"}); err != nil {
				count["refused"]++
				continue
			}
		}
		if st.Kind != plan.Several || st.Plan.Op != plan.Scatter && st.Plan.Op != plan.Gather {
			continue
		}
		want := db.run(db.whole, q)
		if strings.HasPrefix(want, "error 42") {
			count["not accepted"]++
			continue
		}
		kind := st.Plan.Op.String()
		if st.Plan.Op == plan.Gather && strings.HasPrefix(st.Plan.Why, "its groups") {
			kind = "aggregate"
		}
		count[kind]++
		if got := db.severally(snap, st.Plan, width); got != want {
			t.Fatalf("%s\n%s\ngives:\n%s\none database:\n%s", q, strings.Join(st.Plan.Lines(snap, nil), "\n"), got, want)
		}
	}
	t.Logf("%v", count)
	if few() || count["refused"] > count["scatter"]+count["aggregate"]+count["gather"] {
		t.Errorf("too few: %v", count)
	}
}

// several makes a query that most often needs several shards, and tells its columns.
func (g *generator) several() (sql string, width int) {
	if g.maybe(30) {
		return g.query(1+g.r.Intn(3), nil)
	}
	f, fs := g.from(g.r.Intn(3), nil)
	where := ""
	if g.maybe(60) {
		where = " WHERE " + g.qual(g.r.Intn(2), fs, nil)
	}
	key, c, d := fs[0].name+"."+fs[0].cols[0], g.column(fs), g.column(fs)
	aggregate := g.pick("count(*)", "count("+d+")", "sum("+d+")", "avg("+d+")", "max("+d+")", "min("+d+")", "count(DISTINCT "+d+")", "sum("+d+") FILTER (WHERE "+c+" > 1)",
		"string_agg("+d+"::text, ',' ORDER BY "+d+")", "stddev("+d+")", "array_agg(DISTINCT "+d+")", "bool_or("+d+" > 2)", "sum("+d+" + 1) / count(*)", "bit_or("+d+")")
	group := g.pick(c, key, c+" % 2", key+", "+c)
	having := ""
	if g.maybe(30) {
		having = " HAVING count(*) > " + g.pick("1", "2")
	}
	all := g.pick("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
	switch g.r.Intn(12) {
	case 0:
		return "SELECT " + aggregate + " FROM " + f + where + having, 1
	case 1, 2:
		return "SELECT " + g.pick("", "DISTINCT ") + aggregate + " FROM " + f + where + " GROUP BY " + group + having, 1
	case 3:
		return "SELECT " + c + " AS a, " + aggregate + " FROM " + f + where + " GROUP BY " + g.pick("a", "1", c) + having + " ORDER BY 1, 2 LIMIT 3", 2
	case 4:
		return "SELECT " + c + ", " + d + ", count(*) FROM " + f + where + " GROUP BY " + g.pick("ROLLUP", "CUBE") + " (" + c + ", " + d + ")" + having, 3
	case 5:
		return "SELECT DISTINCT " + c + ", " + d + " FROM " + f + where + " ORDER BY 2" + all + ", 1 LIMIT 4 OFFSET 1", 2
	case 6:
		return "SELECT DISTINCT ON (" + c + ") " + c + ", " + d + " FROM " + f + where + " ORDER BY " + c + all + ", " + d, 2
	case 7:
		return "SELECT " + c + ", " + d + " FROM " + f + where + " ORDER BY " + c + all + ", " + d + " LIMIT 5", 2
	case 8:
		return "SELECT " + c + ", rank() OVER (PARTITION BY " + key + " ORDER BY " + d + ") FROM " + f + where, 2
	case 9:
		return "SELECT s.x, count(*) FROM (SELECT " + key + " AS y, " + c + " AS x FROM " + f + where + ") s GROUP BY s.x", 2
	case 10:
		return "SELECT " + key + ", " + c + ", " + aggregate + " OVER (PARTITION BY " + key + ") FROM " + f + where, 3
	}
	return "SELECT " + key + ", " + c + " FROM " + f + where, 2
}
