package several

import (
	"context"
	"slices"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/sqlstate"
)

// Owner is who has the transaction open on the shards and ends it: a schema change (docs/design/schema.md). Its
// conversations are parts that are lent: nothing is begun, committed or given back on them here.
type Owner interface {
	// Conn is its conversation with a shard, in which the transaction is open.
	Conn(ctx context.Context, shard string) (*executor.Conn, error)
	// Savepoint runs SAVEPOINT ("savepoint"), RELEASE or ROLLBACK TO on all its shards.
	Savepoint(ctx context.Context, op, name string) error
}

// lentPart makes a part of an owner's conversation.
func (c *transaction) lentPart(conn *executor.Conn) *part {
	p := &part{shard: conn.Shard(), conn: conn, begun: true, lent: true, since: c.opt.Since, base: conn.Settings()}
	p.pipe.Conn, p.pipe.Inner = conn, true
	for range c.saves.Len() {
		p.saves = append(p.saves, p.base)
	}
	c.mu.Lock()
	c.live[conn] = struct{}{}
	c.mu.Unlock()
	c.parts = append(c.parts, p)
	return p
}

// borrowLent is part for a shard on which the owner is asked for its conversation.
func (c *transaction) borrowLent(ctx context.Context, shard string, write bool) (*part, error) {
	conn, err := c.opt.Owner.Conn(ctx, shard)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			return nil, cause
		}
		return nil, err
	}
	p := c.lentPart(conn)
	if deadline := c.deadlineNow(); !deadline.IsZero() && conn.SetDeadline(deadline) != nil {
		conn.Break()
	}
	if err := c.joins(ctx, p, write); err != nil {
		return nil, err
	}
	c.host.Joined(p.shard)
	c.mayWrite(p, write)
	return p, nil
}

// canWriteLent is asked before rows are written on a second shard of an owner's transaction: all of its shards have to
// be able to prepare it, with the definitions that it has made.
func (c *transaction) canWriteLent(ctx context.Context) error {
	var all []*txn.Participant
	for _, s := range c.host.Snapshot().Shards() {
		if !s.Can().PreparesDefinitions {
			return sqlstate.Refusal("CLV-0213", "writes on several shards in a transaction with a schema change need shards that can prepare both, and %s is a SQLite file", s.Name).
				WithHint("commit the schema change first").OnShard(s.Name)
		}
		p, err := c.part(ctx, s.Name, false)
		if err != nil {
			return err
		}
		all = append(all, &txn.Participant{Shard: p.shard, Conn: p.conn})
	}
	return c.shared.transactions.CanWrite(ctx, all)
}

// Lend makes the transaction owner's: it ends it from now on, on the conversations that are returned, in the order in
// which it began on them. Those on which nothing is open are given back.
func (c *transaction) Lend(owner Owner) (lent []*executor.Conn, err error) {
	if err := c.Idle(); err != nil {
		return nil, err
	}
	for _, conn := range c.loose() {
		c.giveBack(conn)
	}
	for _, p := range c.parts {
		if !p.begun {
			return nil, sqlstate.New(sqlstate.InternalError, "the transaction is not open on shard %s", p.shard).OnShard(p.shard)
		}
	}
	for _, p := range c.parts {
		p.lent = true
		lent = append(lent, p.conn)
	}
	c.opt.Owner = owner
	return lent, nil
}

// Idle is an error while a part answers something, so that its conversation cannot be used by others. What settings the parts
// have is noted by then: a schema change may give them others.
func (c *transaction) Idle() error {
	for _, p := range c.parts {
		c.known(p)
		if p.busy != nil {
			return sqlstate.Refusal("CLV-0214", "a schema change while rows of a statement over several shards are still to be fetched is not supported").
				WithHint("fetch them all, or close the cursor").OnShard(p.shard)
		}
	}
	return nil
}

// Detach ends the use of the owner's conversations, before it ends the transaction. It returns the shards on which rows
// may have been written.
func (c *Conn) Detach() (wrote []string) {
	c.closePortals()
	c.stopAll()
	c.calm()
	for _, p := range c.parts {
		if p.busy != nil {
			p.conn.Break()
			p.busy.reading, p.busy = false, nil
		}
		if p.wrote {
			wrote = append(wrote, p.shard)
		}
		c.forget(p.conn)
		if !c.deadlineNow().IsZero() && !p.conn.Broken() && p.conn.SetDeadline(time.Time{}) != nil {
			p.conn.Break()
		}
	}
	c.parts = nil
	slices.Sort(wrote)
	return wrote
}
