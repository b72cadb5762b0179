package txn

import (
	"context"
	"slices"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner/plan"
)

// A read outside of transactions may be answered by replicas, as one of one shard
// (executor.AcquireRead has the rules, docs/replicas.md what they promise). Each
// shard's rows then come from one server, whichever is fit. What is not such a read
// gives the replicas' conversations back first.

// OnReplicas reports whether a statement since the last one that could not has read on a replica.
func (c *Transaction) OnReplicas() bool { return c.onReplicas }

// MayRead says whether a statement of the client's may read on replicas.
func (c *Transaction) MayRead(st *plan.Statement, portion int32) {
	c.replicas = !c.Block && portion == 0 && st.Kind == plan.Several && st.Plan != nil && (st.Plan.Op == plan.Scatter || st.Plan.Op == plan.Gather) &&
		st.Stable && !st.Numbers && st.Explained == nil && !Insists(c.host.Settings()) && c.host.Spreads() &&
		!slices.ContainsFunc(c.Joined, func(p *Participant) bool { return p.open() && !p.Conn.OnReplica() })
	if c.replicas {
		return
	}
	c.onReplicas = false
	c.Joined = slices.DeleteFunc(c.Joined, func(p *Participant) bool {
		if !p.Conn.OnReplica() || p.Direct || p.Busy != nil {
			return false
		}
		if p.open() {
			if _, err := p.Conn.Exec("ROLLBACK"); err != nil { // it only read
				p.Conn.Break()
			}
		}
		c.GiveBack(p.Conn)
		return true
	})
}

// ReadsReplicas reports whether the statement may read on replicas: see MayRead.
func ReadsReplicas(c *Transaction) bool { return c.replicas }

// Reader borrows a conversation with a replica of a shard, nil if the primary is to be read.
func (c *Transaction) Reader(ctx context.Context, shard string) (*executor.Conn, error) {
	if !c.replicas {
		return nil, nil
	}
	conn, err := c.host.Reader(ctx, shard, c.Base())
	if conn == nil || err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	if conn, err = c.Borrowed(conn); err == nil {
		c.onReplicas = true
	}
	return conn, err
}
