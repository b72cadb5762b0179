package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
)

// Answer is the answer of an EXPLAIN as it is made.
type Answer struct {
	x     *plan.Explain
	op    string
	began time.Time
	lines []string // the text, without its head
	plans list
	notes []string // what no shard explains
	own   group    // what the router knows of the whole: rows, time
}

// NewAnswer begins the answer of an EXPLAIN of what is called op.
func NewAnswer(x *plan.Explain, op string) *Answer {
	return &Answer{x: x, op: op, began: time.Now()}
}

// Note adds what no shard explains.
func (t *Answer) Note(notes ...string) { t.notes = append(t.notes, notes...) }

// Shard adds a shard's plan.
func (t *Answer) Shard(relation, shard string, lines []string) error {
	if t.x.Format == "text" {
		what := ""
		if relation != "" {
			what = "relation " + relation + " from "
		}
		t.lines = append(t.lines, "  ->  "+what+"shard "+shard)
		for _, l := range lines {
			t.lines = append(t.lines, "        "+l)
		}
		return nil
	}
	doc, err := parsePlan([]byte(strings.Join(lines, "\n")))
	if err != nil {
		return err
	}
	var node group
	plan, _ := doc.get("Plan").(group)
	for _, p := range plan {
		if p.name == "Parent Relationship" {
			continue
		}
		if node = append(node, p); p.name != "Node Type" {
			continue
		}
		node = append(node, say("Parent Relationship", "Member"), say("Shard", shard))
		if relation != "" {
			node = append(node, say("Relation", relation))
		}
	}
	for _, p := range doc {
		if p.name != "Plan" {
			node = append(node, p)
		}
	}
	t.plans = append(t.plans, node)
	return nil
}

// Rows are the finished answer's, as frames of DataRow.
func (t *Answer) Rows() (rows [][]byte) {
	line := func(s string) { rows = append(rows, wire.AppendDataRow(nil, [][]byte{[]byte(s)})) }
	took := float64(time.Since(t.began).Microseconds()) / 1000
	if t.x.Format == "text" {
		line("Several shards: " + t.op)
		for _, l := range t.lines {
			line(l)
		}
		for _, n := range t.notes {
			line("  ->  " + n)
		}
		if t.x.Analyze && t.x.Summary {
			line(fmt.Sprintf("Execution Time: %.3f ms", took))
		}
		return rows
	}
	node := group{say("Node Type", "Custom Scan"), say("Custom Plan Provider", "Cleave"), say("Operation", t.op), say("Parallel Aware", false), say("Async Capable", false)}
	node = append(node, t.own...)
	if t.x.Analyze && t.own == nil {
		if t.x.Timing {
			node = append(node, millis("Actual Startup Time", 0), millis("Actual Total Time", took))
		}
		node = append(node, say("Actual Loops", 1))
	}
	node = sumPlans(node, t.plans)
	if len(t.notes) > 0 {
		notes := list{}
		for _, n := range t.notes {
			notes = append(notes, say("", n).value)
		}
		node = append(node, property{"Steps", notes})
	}
	if len(t.plans) > 0 {
		node = append(node, property{"Plans", t.plans})
	}
	tree := group{{"Plan", node}}
	if t.x.Analyze && t.x.Summary {
		tree = append(tree, millis("Execution Time", took))
	}
	line(printPlan(t.x.Format, tree))
	return rows
}

// Ran says what a statement did that the router ran: its steps, and how many rows it gave.
func (t *Answer) Ran(steps []Step, rows int64) {
	took := float64(time.Since(t.began).Microseconds()) / 1000
	actual := func(ms float64, rows int64) (g group, text string) {
		if t.x.Timing {
			g = append(g, millis("Actual Startup Time", 0), millis("Actual Total Time", ms))
			text = fmt.Sprintf("time=0.000..%.3f ", ms)
		}
		return append(g, say("Actual Rows", rows), say("Actual Loops", 1)), fmt.Sprintf("(actual %srows=%d loops=1)", text, rows)
	}
	for _, s := range steps {
		g, text := actual(float64(s.Took.Microseconds())/1000, s.Rows)
		t.lines = append(t.lines, "  ->  "+s.Name+" on shard "+s.Shard+" "+text, fmt.Sprintf("        Bytes: %d", s.Bytes))
		node := group{say("Node Type", "Custom Scan"), say("Parent Relationship", "Member"), say("Custom Plan Provider", "Cleave"), say("Operation", s.Name), say("Shard", s.Shard)}
		t.plans = append(t.plans, append(append(node, g...), say("Bytes", s.Bytes)))
	}
	var text string
	t.own, text = actual(took, rows)
	t.op = strings.TrimSpace(t.op)
	if t.x.Format == "text" {
		t.op += " " + text
	}
}
