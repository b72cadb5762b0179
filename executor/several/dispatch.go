package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/sqlstate"
)

// runner runs statements in a transaction: it describes them, makes their jobs, and has the statements, portals and
// cursors that they leave.
type runner struct {
	sender

	prepared pgbackend.Statements[*prepared]
	portals  pgbackend.Portals[*portal]
	cursors  pgbackend.Portals[*cursor]
}

// begins makes the job of an execution.
func (c *runner) begins(ctx context.Context, e *execution) (job, error) {
	snap := c.host.Snapshot()
	c.Soils = c.Soils || e.st.Traces
	c.Counts = e.st.Counts()
	if k := e.st.Cursor; k != nil && k.Op != "declare" {
		return c.startCursor(ctx, e)
	} else if k != nil && c.host.Held().Has(k.Name) {
		return nil, pgbackend.Exists(k.Name)
	} else if k != nil && k.Hold && e.st.Kind != plan.Several {
		return c.declare(ctx, e)
	}
	if err := c.timeWords(ctx, e); err != nil {
		return nil, err
	}
	var err error
	if e.st, err = typed(ctx, c, e.st, e.st.Text, false, e.desc.params); err != nil {
		return nil, err
	}
	switch st := e.st; st.Kind {
	case plan.OneShard:
		r, err := st.Route(snap, e.args)
		switch {
		case err != nil:
			return nil, err
		case r.Several:
			if e.st, err = planSeveral(ctx, c, st.Text, e.desc.params); err != nil {
				return nil, err
			}
			return c.begins(ctx, e)
		}
		return c.startRelay(ctx, e, r.Shard)
	case plan.DefaultShard:
		return c.startRelay(ctx, e, snap.State().DefaultShard)
	case plan.AnyShard, plan.SetKind:
		return c.startRelay(ctx, e, c.describer())
	case plan.Several:
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
		case plan.Scatter:
			return proved(ctx, c, e, c.startScatter)
		case plan.Gather:
			return proved(ctx, c, e, c.startGather)
		case plan.Modify:
			return c.startModify(ctx, e)
		case plan.Insert:
			return c.startInsert(ctx, e)
		case plan.CopyIn:
			return c.startCopyIn(ctx, e)
		case plan.CopyOut:
			return c.startCopyOut(ctx, e)
		}
	}
	return nil, sqlstate.Refusal("CLV-0209", "%s is not supported in a transaction over several shards", e.st.Tag).
		WithHint("Run it in a transaction of its own.")
}

// relay runs a statement on one part as it is.
type relay struct {
	s *stream
	// sets: it calls set_config(), of which the client is told.
	sets bool
}

func (c *runner) startRelay(ctx context.Context, e *execution, shard string) (job, error) {
	k := e.st.Cursor
	declares := k != nil && k.Op == "declare"
	if declares {
		if err := c.free([]byte(k.Name)); err != nil { // it may be over several shards, or on another one
			return nil, err
		}
	}
	p, err := c.Participant(ctx, shard, !e.st.ReadOnly)
	if err != nil {
		return nil, err
	}
	if c.Counts && shard == c.host.Snapshot().State().DefaultShard {
		p.Conn.Count(c.host.Counter())
	}
	if declares {
		c.cursors.Put(k.Name, &cursor{shard: p.Shard}, c.Saves.Len())
	}
	if e.st.Tag == "NOTIFY" {
		p.Unpreparable = true
	}
	r := &relay{sets: len(e.st.Sets) > 0}
	e, text, err := c.atTime(ctx, e, p)
	if err != nil {
		return nil, err
	}
	q := e.request(text)
	if q.copied, err = c.columnsOf(p, e.st.CopyRows); err != nil {
		return nil, err
	}
	if r.sets {
		if err := holdsForTransaction(e.st, &q); err != nil {
			return nil, err
		}
		c.setter = p.Shard
	}
	if r.s, err = c.send(p, q); err != nil {
		return nil, err
	}
	p.Stale = p.Stale || r.sets
	return r, nil
}

// holdsForTransaction gives set_config() true as its third argument: what it sets holds until the end of the transaction, as with set.
func holdsForTransaction(st *plan.Statement, q *request) error {
	var changes []plan.SetArg
	values := slices.Clone(q.values)
	for _, call := range st.Sets {
		a := call.Local
		if a.Param > 0 && a.Param <= len(values) {
			values[a.Param-1] = []byte("true")
			if len(q.formats) == 1 && q.formats[0] == 1 || a.Param <= len(q.formats) && len(q.formats) > 1 && q.formats[a.Param-1] == 1 {
				values[a.Param-1] = []byte{1}
			}
			continue
		}
		if on, ok := utility.ParseBool(a.Text); ok && on {
			continue
		}
		if a.To == 0 || q.text != st.Text {
			return sqlstate.Refusal("CLV-0210", "set_config() for the session in such a statement is not supported in a transaction over several shards").
				WithHint("Run SELECT set_config('name', 'value', false) by itself, or SET.")
		}
		changes = append(changes, a)
	}
	slices.SortFunc(changes, func(a, b plan.SetArg) int { return b.From - a.From })
	for _, a := range changes { // the last one first
		q.text = q.text[:a.From] + "true" + q.text[a.To:]
	}
	q.values = values
	return nil
}

// Keep returns the shard's part, whose conversation the session is about to keep when the transaction has ended; nil if
// a schema change ends the transaction.
func (c *Conn) Keep(shard string) (kept *executor.Conn, err error) {
	if c.Change != nil {
		return nil, nil
	}
	err = c.within(func() error {
		kept, err = c.KeepParticipant(shard)
		return err
	})
	return kept, err
}

// AskSetter runs a query on the shard that ran the last statement with set_config().
func (c *Conn) AskSetter(sql string) (res *engine.Result, err error) {
	err = c.within(func() error {
		res, err = c.askSetter(sql)
		return err
	})
	return res, err
}

// within runs what is no frame as frames are run: it can be cancelled, and Close leaves to it what it holds.
func (c *Conn) within(run func() error) error {
	if err := c.enters(); err != nil {
		return err
	}
	defer c.faults()
	err := run()
	if left := c.leaves(); err == nil {
		err = left
	}
	return err
}

func (c *sender) askSetter(sql string) (*engine.Result, error) {
	p := c.Find(c.setter)
	switch {
	case p == nil:
		return nil, sqlstate.New(sqlstate.InternalError, "no shard has run set_config()")
	case p.Busy != nil:
		return nil, p.Unread()
	}
	res, err := p.Conn.Exec(sql)
	if err != nil {
		return nil, c.Failure(p, err)
	}
	return res, nil
}

// step implements job.
func (r *relay) step(out []byte, rows int32) ([]byte, bool, string, error) {
	if r.sets {
		r.s.c.aside.setting = true
		defer func() { r.s.c.aside.setting = false }()
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
	if err := r.s.p.Pipe.Copy(frame); err != nil {
		return r.s.broken(err)
	}
	return nil
}

// end implements copyJob.
func (r *relay) end() (string, error) {
	if err := r.s.endCopy(wire.AppendEmpty(nil, wire.CopyDoneF)); err != nil {
		return "", err
	}
	if _, err := r.s.Next(); err != nil {
		return "", err
	}
	return r.s.tag, nil
}
