package several

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/cleavedb/cleave/executor/several/explain"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
)

// explain runs EXPLAIN of a statement over several shards. What the shards run by themselves they explain, and with ANALYZE
// they run it so, once. A statement whose parts depend on each other is run as it always is, once, and its steps are told.
func (c *runner) explain(ctx context.Context, e *execution) (job, error) {
	x, planned := e.st.Explained, e.st.Plan
	t := explain.NewAnswer(x, planned.Op.String())
	if x.Analyze && !byThemselves(planned) {
		return c.explainSteps(ctx, e, t)
	}
	for i := range planned.Relations {
		r := &planned.Relations[i]
		if err := c.explainParts(ctx, e, t, r.Name, r.On, &r.Target); err != nil {
			return nil, err
		}
	}
	switch {
	case planned.Op == plan.Scatter:
		if err := c.explainParts(ctx, e, t, "", planned.On, &planned.Target); err != nil {
			return nil, err
		}
	case byThemselves(planned):
		m := &modifying{c: c, e: e, m: planned.Modify, left: c.shared.defaults.Allowance(c.host.Settings()), snap: c.host.Snapshot()}
		m.base = e.parameters()
		write := m.each(&planned.Modify.Write)
		shards, err := c.shardsOf(&planned.Target, m.snap, e.args)
		if err == nil {
			err = c.explainOn(ctx, x, t, "", shards, x.Analyze, write)
		}
		if err != nil {
			return nil, err
		}
	case planned.Op == plan.Gather:
		t.Note("on the relations: " + planned.Text)
	default:
		t.Note(planned.Lines(c.host.Snapshot(), e.args)...)
	}
	return &answer{tag: "EXPLAIN", rows: t.Rows()}, nil
}

// byThemselves reports whether each shard runs the plan by itself: nothing is read before, and nothing depends on what another shard
// answers.
func byThemselves(planned *plan.Plan) bool {
	m := planned.Modify
	return planned.Op == plan.Scatter ||
		planned.Op == plan.Modify && len(planned.Relations) == 0 && len(m.Reads) == 0 && m.Made == nil && m.Split == nil && m.Locks == nil && m.Reference == nil && m.Move == nil
}

// explainParts has the shards of a target explain the text that each would run.
func (c *runner) explainParts(ctx context.Context, e *execution, t *explain.Answer, relation string, text func(string, ...*shardmap.Snapshot) (string, error), target *plan.Target) error {
	snap := c.host.Snapshot()
	shards, err := target.Shards(snap, e.args)
	if err != nil {
		return err
	}
	return c.explainOn(ctx, e.st.Explained, t, relation, shards, e.st.Explained.Analyze && !e.st.ReadOnly, func(p *txn.Participant) (request, error) {
		own, err := text(p.Shard, c.Maps(p, snap)...)
		return e.request(own), err
	})
}

// explainOn has each shard explain the request that it would get.
func (c *runner) explainOn(ctx context.Context, x *plan.Explain, t *explain.Answer, relation string, shards []string, writes bool, request func(*txn.Participant) (request, error)) error {
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
		q.text = x.Prefix + q.text
		if x.Format != "text" {
			q.text = x.JSON + strings.TrimPrefix(q.text, x.Prefix)
		}
		q.results, q.portion, q.named = nil, 0, false
		if streams[i], err = c.send(p, q); err != nil {
			return err
		}
	}
	for i, s := range streams {
		var lines []string
		for {
			row, err := s.Next()
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
		if err := t.Shard(relation, parts[i].Shard, lines); err != nil {
			return err
		}
	}
	return nil
}

// explainSteps runs the statement itself, once.
func (c *runner) explainSteps(ctx context.Context, e *execution, t *explain.Answer) (job, error) {
	st, x := *e.st, e.st.Explained
	st.Explained, st.Text, st.Tag, st.ReturnsRows = nil, x.Query, x.Tag, x.ReturnsRows
	if st.Judged != "" {
		st.Judged = strings.TrimPrefix(st.Judged, x.Prefix)
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
	t     *explain.Answer
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
		j.t.Ran(j.c.Recorded(), j.rows)
		j.out = &answer{tag: "EXPLAIN", rows: j.t.Rows()}
	}
	return j.out.step(out, rows)
}

func (j *explaining) stop() {
	if j.inner != nil {
		j.inner.stop()
		j.c.Recorded()
	}
}
