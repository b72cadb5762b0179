package several

import (
	"context"
	"slices"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/planner"
)

// A read outside of transactions may be answered by replicas, as one of one shard
// (executor.AcquireRead has the rules, docs/replicas.md what they promise). Each
// shard's rows then come from one server, whichever is fit. What is not such a read
// gives the replicas' conversations back first.

// OnReplicas reports whether a statement since the last one that could not has read on a replica.
func (c *transaction) OnReplicas() bool { return c.onReplicas }

// mayRead says whether a statement of the client's may read on replicas.
func (c *transaction) mayRead(st *planner.Statement, portion int32) {
	c.replicas = !c.block && portion == 0 && st.Kind == planner.Several && st.Plan != nil && (st.Plan.Op == planner.Scatter || st.Plan.Op == planner.Gather) &&
		st.Stable && !st.Numbers && st.Explained == nil && !txn.Atomic(c.host.Settings()) &&
		!slices.ContainsFunc(c.parts, func(p *part) bool { return p.open() && !p.conn.OnReplica() })
	if c.replicas {
		return
	}
	c.onReplicas = false
	c.parts = slices.DeleteFunc(c.parts, func(p *part) bool {
		if !p.conn.OnReplica() || p.adopted || p.busy != nil {
			return false
		}
		if p.open() {
			if _, err := p.conn.Exec("ROLLBACK"); err != nil { // it only read
				p.conn.Break()
			}
		}
		c.giveBack(p.conn)
		return true
	})
}

// reader borrows a conversation with a replica of a shard, nil if the primary is to be read.
func (c *transaction) reader(ctx context.Context, shard string) (*executor.Conn, error) {
	if !c.replicas {
		return nil, nil
	}
	conn, err := c.host.Reader(ctx, shard, c.base())
	if conn == nil || err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	if conn, err = c.borrowed(conn); err == nil {
		c.onReplicas = true
	}
	return conn, err
}
