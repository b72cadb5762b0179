package several

import (
	"context"
	"encoding/binary"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// explain runs a plain EXPLAIN of a statement over several shards: each shard's
// plan of what it would run.
func (c *Conn) explain(ctx context.Context, e *execution) (job, error) {
	x, plan := e.st.Explained, e.st.Plan
	switch {
	case x.Analyze:
		return nil, sqlstate.Refuse("EXPLAIN ANALYZE of a statement over several shards is not supported", "EXPLAIN (ROUTE, ANALYZE) runs it and shows each shard's part")
	case !x.Plain:
		return nil, sqlstate.Refuse("EXPLAIN of a statement over several shards answers in text only", "leave FORMAT out")
	}
	j := &answer{tag: "EXPLAIN"}
	line := func(s string) { j.rows = append(j.rows, wire.AppendDataRow(nil, [][]byte{[]byte(s)})) }
	line("Several shards: " + plan.Op.String())
	snap := c.host.Snapshot()
	on := func(what string, text func(string, ...*shardmap.Snapshot) (string, error), target *planner.Target) error {
		shards, err := target.Shards(snap, e.args)
		if err != nil {
			return err
		}
		parts, err := c.partsOf(ctx, shards, false)
		if err != nil {
			return err
		}
		streams := make([]*stream, len(parts))
		for i, p := range parts {
			own, err := text(p.shard, c.maps(p, snap)...)
			if err != nil {
				return err
			}
			q := e.request(x.Prefix + own)
			q.results, q.portion = nil, 0
			if streams[i], err = c.send(p, q); err != nil {
				return err
			}
		}
		for i, s := range streams {
			line("  ->  " + what + "shard " + parts[i].shard)
			for {
				row, err := s.next()
				if err != nil {
					return err
				}
				if row == nil {
					break
				}
				if len(row) > 6 {
					line("        " + string(row[6:6+binary.BigEndian.Uint32(row[2:])]))
				}
			}
		}
		return nil
	}
	for i := range plan.Relations {
		r := &plan.Relations[i]
		if err := on("relation "+r.Name+" from ", r.On, &r.Target); err != nil {
			return nil, err
		}
	}
	switch plan.Op {
	case planner.Scatter:
		if err := on("", plan.On, &plan.Target); err != nil {
			return nil, err
		}
	case planner.Gather:
		line("  ->  on the relations: " + plan.Text)
	default:
		for _, s := range plan.Lines(c.host.Snapshot(), e.args) {
			line("  ->  " + s)
		}
	}
	return j, nil
}
