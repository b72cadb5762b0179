package several

import (
	"context"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// begins makes the job of an execution.
func (c *Conn) begins(ctx context.Context, e *execution) (job, error) {
	snap := c.host.Snapshot()
	c.soils = c.soils || e.st.Traces
	c.counts = e.st.Counts()
	if k := e.st.Cursor; k != nil && k.Op != "declare" {
		return c.startCursor(ctx, e)
	} else if k != nil && c.host.Held().Has(k.Name) {
		return nil, cursorExists(k.Name)
	} else if k != nil && k.Hold && e.st.Kind != planner.Several {
		return c.declare(ctx, e)
	}
	if err := c.timeWords(ctx, e); err != nil {
		return nil, err
	}
	switch st := e.st; st.Kind {
	case planner.OneShard:
		r, err := st.Route(snap, e.args)
		switch {
		case err != nil:
			return nil, err
		case r.Several:
			if e.st, err = c.ex.PlanSeveral(c, []byte(st.Text), c.host.Settings(), snap, c.opt.Owner != nil); err != nil {
				return nil, err
			}
			return c.begins(ctx, e)
		}
		return c.startRelay(ctx, e, r.Shard)
	case planner.DefaultShard:
		return c.startRelay(ctx, e, snap.State().DefaultShard)
	case planner.AnyShard, planner.SetKind:
		return c.startRelay(ctx, e, c.describer())
	case planner.Several:
		if st.Cursor != nil {
			return c.declare(ctx, e)
		}
		if st.Plan.Clock {
			var err error
			if e, err = c.clocked(ctx, e); err != nil {
				return nil, err
			}
		}
		if st.Explained != nil {
			return c.explain(ctx, e)
		}
		if err := c.apart(ctx, st.Plan.Apart); err != nil {
			return nil, err
		}
		switch st.Plan.Op {
		case planner.Scatter:
			return c.startScatter(ctx, e)
		case planner.Gather:
			return c.startGather(ctx, e)
		case planner.Modify:
			return c.startModify(ctx, e)
		case planner.Insert:
			return c.startInsert(ctx, e)
		case planner.CopyIn:
			return c.startCopyIn(ctx, e)
		case planner.CopyOut:
			return c.startCopyOut(ctx, e)
		}
	}
	return nil, sqlstate.Refuse(e.st.Tag+" is not supported in a transaction over several shards", "run it in a transaction of its own")
}

// relay runs a statement on one part as it is.
type relay struct {
	s *stream
	// sets: it is a set_config(), whose parameters are told.
	sets bool
}

func (c *Conn) startRelay(ctx context.Context, e *execution, shard string) (job, error) {
	if k := e.st.Cursor; k != nil && k.Op == "declare" && c.cursors[k.Name] != nil {
		return nil, cursorExists(k.Name) // it may be over several shards, or on another one
	}
	p, err := c.part(ctx, shard, !e.st.ReadOnly)
	if err != nil {
		return nil, err
	}
	if c.counts && shard == c.host.Snapshot().State().DefaultShard {
		p.conn.Count(c.host.Counter())
	}
	if k := e.st.Cursor; k != nil && k.Op == "declare" {
		c.keepCursor(k.Name, &cursor{shard: p.shard})
	}
	if e.st.Tag == "NOTIFY" {
		p.decides = true
	}
	r := &relay{sets: e.st.Set != nil && e.st.Set.Op == "set_config"}
	e, text, err := c.atTime(ctx, e, p)
	if err != nil {
		return nil, err
	}
	q := e.request(text)
	if q.copied, err = c.columnsOf(p, e.st.CopyRows); err != nil {
		return nil, err
	}
	if r.sets { // until the end of the transaction, as with set
		set := e.st.Set
		q.text = "SELECT pg_catalog.set_config(" + executor.QuoteLiteral(set.Name) + ", " + set.Value + ", true) AS " + quote(set.Column)
	}
	if r.s, err = c.send(p, q); err != nil {
		return nil, err
	}
	p.stale = p.stale || r.sets
	return r, nil
}

// step implements job.
func (r *relay) step(out []byte, rows int32) ([]byte, bool, string, error) {
	if r.sets {
		r.s.c.setting = true
		defer func() { r.s.c.setting = false }()
	}
	b, err := r.s.chunk(rows)
	if err != nil {
		return out, false, "", err
	}
	if b != nil {
		return append(out, b...), false, "", nil
	}
	if r.s.copyIn {
		return out, false, "", nil
	}
	tag := r.s.tag
	if strings.HasPrefix(tag, "SELECT ") {
		tag = "SELECT"
	}
	return out, true, tag, nil
}

// stop implements job.
func (r *relay) stop() { r.s.stop() }

// take implements copyJob.
func (r *relay) take(data []byte) error {
	frame, m := wire.Begin(nil, wire.CopyDataF)
	return r.copied(wire.End(append(frame, data...), m))
}

func (r *relay) copied(frame []byte) error {
	if err := r.s.p.pipe.Copy(frame); err != nil {
		return r.s.broken(err)
	}
	return nil
}

// end implements copyJob.
func (r *relay) end() (string, error) {
	if err := r.s.endCopy(wire.AppendEmpty(nil, wire.CopyDoneF)); err != nil {
		return "", err
	}
	if _, err := r.s.next(); err != nil {
		return "", err
	}
	return r.s.tag, nil
}
