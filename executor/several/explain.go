package several

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
)

// explain runs EXPLAIN of a statement over several shards. What the shards run by themselves they explain, and with ANALYZE
// they run it so, once. A statement whose parts depend on each other is run as it always is, once, and its steps are told.
func (c *runner) explain(ctx context.Context, e *execution) (job, error) {
	x, plan := e.st.Explained, e.st.Plan
	t := &explained{x: x, op: plan.Op.String(), began: time.Now()}
	if x.Analyze && !byThemselves(plan) {
		return c.explainSteps(ctx, e, t)
	}
	for i := range plan.Relations {
		r := &plan.Relations[i]
		if err := c.explainParts(ctx, e, t, r.Name, r.On, &r.Target); err != nil {
			return nil, err
		}
	}
	switch {
	case plan.Op == planner.Scatter:
		if err := c.explainParts(ctx, e, t, "", plan.On, &plan.Target); err != nil {
			return nil, err
		}
	case byThemselves(plan):
		m := &modifying{c: c, e: e, m: plan.Modify, left: c.shared.defaults.allowance(c.host.Settings()), snap: c.host.Snapshot()}
		m.base = e.parameters()
		write := m.each(&plan.Modify.Write)
		shards, err := c.shardsOf(&plan.Target, m.snap, e.args)
		if err == nil {
			err = c.explainOn(ctx, t, "", shards, x.Analyze, write)
		}
		if err != nil {
			return nil, err
		}
	case plan.Op == planner.Gather:
		t.notes = append(t.notes, "on the relations: "+plan.Text)
	default:
		t.notes = append(t.notes, plan.Lines(c.host.Snapshot(), e.args)...)
	}
	return t.answer(), nil
}

// byThemselves reports whether each shard runs the plan by itself: nothing is read before, and nothing depends on what another shard
// answers.
func byThemselves(plan *planner.Plan) bool {
	m := plan.Modify
	return plan.Op == planner.Scatter ||
		plan.Op == planner.Modify && len(plan.Relations) == 0 && len(m.Reads) == 0 && m.Made == nil && m.Split == nil && m.Locks == nil && m.Reference == nil && m.Move == nil
}

// explainParts has the shards of a target explain the text that each would run.
func (c *runner) explainParts(ctx context.Context, e *execution, t *explained, relation string, text func(string, ...*shardmap.Snapshot) (string, error), target *planner.Target) error {
	snap := c.host.Snapshot()
	shards, err := target.Shards(snap, e.args)
	if err != nil {
		return err
	}
	return c.explainOn(ctx, t, relation, shards, t.x.Analyze && !e.st.ReadOnly, func(p *part) (request, error) {
		own, err := text(p.shard, c.maps(p, snap)...)
		return e.request(own), err
	})
}

// explainOn has each shard explain the request that it would get.
func (c *runner) explainOn(ctx context.Context, t *explained, relation string, shards []string, writes bool, request func(*part) (request, error)) error {
	parts, err := c.partsOf(ctx, shards, writes)
	if err != nil {
		return err
	}
	streams := make([]*stream, len(parts))
	for i, p := range parts {
		q, err := request(p)
		if err != nil {
			return err
		}
		q.text = t.x.Prefix + q.text
		if t.x.Format != "text" {
			q.text = t.x.JSON + strings.TrimPrefix(q.text, t.x.Prefix)
		}
		q.results, q.portion, q.named = nil, 0, false
		if streams[i], err = c.send(p, q); err != nil {
			return err
		}
	}
	for i, s := range streams {
		var lines []string
		for {
			row, err := s.next()
			if err != nil {
				return err
			}
			if row == nil {
				break
			}
			if len(row) > 6 {
				lines = append(lines, string(row[6:6+binary.BigEndian.Uint32(row[2:])]))
			}
		}
		if err := t.shard(relation, parts[i].shard, lines); err != nil {
			return err
		}
	}
	return nil
}

// explained is the answer of an EXPLAIN as it is made.
type explained struct {
	x     *planner.Explain
	op    string
	began time.Time
	lines []string // the text, without its head
	plans list
	notes []string // what no shard explains
	own   group    // what the router knows of the whole: rows, time
}

// shard adds a shard's plan.
func (t *explained) shard(relation, shard string, lines []string) error {
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

// answer is the finished one.
func (t *explained) answer() job {
	j := &answer{tag: "EXPLAIN"}
	line := func(s string) { j.rows = append(j.rows, wire.AppendDataRow(nil, [][]byte{[]byte(s)})) }
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
		return j
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
	return j
}

// explainSteps runs the statement itself, once.
func (c *runner) explainSteps(ctx context.Context, e *execution, t *explained) (job, error) {
	st := *e.st
	st.Explained, st.Text, st.Tag, st.ReturnsRows = nil, t.x.Query, t.x.Tag, t.x.ReturnsRows
	if st.Judged != "" {
		st.Judged = strings.TrimPrefix(st.Judged, t.x.Prefix)
	}
	desc, err := c.describe(ctx, &st, e.desc.params)
	if err != nil {
		return nil, err
	}
	own := *desc
	own.params = e.desc.params // those that the router made are among them
	inner := *e
	inner.st, inner.desc, inner.results, inner.portion, inner.named = &st, &own, nil, 0, false
	c.Record()
	run, err := c.begins(ctx, &inner)
	if err != nil {
		c.Recorded()
		return nil, err
	}
	return &explaining{c: c, t: t, inner: run}, nil
}

// explaining is a statement that runs for EXPLAIN ANALYZE: its rows are counted and dropped.
type explaining struct {
	c     *runner
	t     *explained
	inner job // nil when it has ended
	out   job
	rows  int64
	buf   []byte
}

func (j *explaining) step(out []byte, rows int32) ([]byte, bool, string, error) {
	if j.out == nil {
		frames, done, _, err := j.inner.step(j.buf[:0], 0)
		j.buf = frames
		for b := frames; len(b) >= wire.Header; b = b[1+binary.BigEndian.Uint32(b[1:]):] {
			if b[0] == wire.DataRow {
				j.rows++
			}
		}
		if err != nil || !done {
			return out, false, "", err
		}
		j.inner = nil
		j.out = j.told()
	}
	return j.out.step(out, rows)
}

// told is the answer: the steps with their rows and times.
func (j *explaining) told() job {
	t := j.t
	took := float64(time.Since(t.began).Microseconds()) / 1000
	actual := func(ms float64, rows int64) (g group, text string) {
		if t.x.Timing {
			g = append(g, millis("Actual Startup Time", 0), millis("Actual Total Time", ms))
			text = fmt.Sprintf("time=0.000..%.3f ", ms)
		}
		return append(g, say("Actual Rows", rows), say("Actual Loops", 1)), fmt.Sprintf("(actual %srows=%d loops=1)", text, rows)
	}
	for _, s := range j.c.Recorded() {
		g, text := actual(float64(s.Took.Microseconds())/1000, s.Rows)
		t.lines = append(t.lines, "  ->  "+s.Name+" on shard "+s.Shard+" "+text, fmt.Sprintf("        Bytes: %d", s.Bytes))
		node := group{say("Node Type", "Custom Scan"), say("Parent Relationship", "Member"), say("Custom Plan Provider", "Cleave"), say("Operation", s.Name), say("Shard", s.Shard)}
		t.plans = append(t.plans, append(append(node, g...), say("Bytes", s.Bytes)))
	}
	var text string
	t.own, text = actual(took, j.rows)
	t.op = strings.TrimSpace(t.op)
	if t.x.Format == "text" {
		t.op += " " + text
	}
	return t.answer()
}

func (j *explaining) stop() {
	if j.inner != nil {
		j.inner.stop()
		j.c.Recorded()
	}
}
