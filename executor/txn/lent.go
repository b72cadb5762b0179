package txn

import (
	"context"
	"slices"
	"time"

	"github.com/cleavedb/cleave/executor"
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

// JoinLent makes a part of an owner's conversation.
func (c *Transaction) JoinLent(conn *executor.Conn) *Participant {
	p := &Participant{Shard: conn.Shard(), Conn: conn, Begun: true, lent: true, since: c.Since, base: conn.Settings()}
	p.Pipe.Conn, p.Pipe.Inner = conn, true
	for range c.Saves.Len() {
		p.saves = append(p.saves, p.base)
	}
	c.adds(conn)
	c.Joined = append(c.Joined, p)
	return p
}

// borrowLent is part for a shard on which the owner is asked for its conversation.
func (c *Transaction) borrowLent(ctx context.Context, shard string, write bool) (*Participant, error) {
	conn, err := c.Owner.Conn(ctx, shard)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			return nil, cause
		}
		return nil, err
	}
	p := c.JoinLent(conn)
	if err := c.joins(ctx, p, write); err != nil {
		return nil, err
	}
	c.host.Joined(p.Shard)
	c.mayWrite(p, write)
	return p, nil
}

// canWriteLent is asked before rows are written on a second shard of an owner's transaction: all of its shards have to
// be able to prepare it, with the definitions that it has made.
func (c *Transaction) canWriteLent(ctx context.Context) error {
	var all []*Participant
	for _, s := range c.host.Snapshot().Shards() {
		if !s.Can().PreparesDefinitions {
			return sqlstate.Refusal("CLV-0213", "writes on several shards in a transaction with a schema change need shards that can prepare both, and %s is a SQLite file", s.Name).
				WithHint("Commit the schema change first.").OnShard(s.Name)
		}
		p, err := c.Participant(ctx, s.Name, false)
		if err != nil {
			return err
		}
		all = append(all, &Participant{Shard: p.Shard, Conn: p.Conn})
	}
	return c.txns.CanWrite(ctx, all)
}

// Lend makes the transaction owner's: it ends it from now on, on the conversations that are returned, in the order in
// which it began on them. Those on which nothing is open are given back.
func (c *Transaction) Lend(owner Owner) (lent []*executor.Conn, err error) {
	if err := c.Idle(); err != nil {
		return nil, err
	}
	for _, conn := range c.loose() {
		c.GiveBack(conn)
	}
	for _, p := range c.Joined {
		if !p.Begun {
			return nil, sqlstate.New(sqlstate.InternalError, "the transaction is not open on shard %s", p.Shard).OnShard(p.Shard)
		}
	}
	for _, p := range c.Joined {
		p.lent = true
		lent = append(lent, p.Conn)
	}
	c.Owner = owner
	return lent, nil
}

// Idle is an error while a part answers something, so that its conversation cannot be used by others. What settings the parts
// have is noted by then: a schema change may give them others.
func (c *Transaction) Idle() error {
	for _, p := range c.Joined {
		c.known(p)
		if p.Busy != nil {
			return sqlstate.Refusal("CLV-0214", "a schema change while rows of a statement over several shards are still to be fetched is not supported").
				WithHint("Fetch them all, or close the cursor.").OnShard(p.Shard)
		}
	}
	return nil
}

// Abandon breaks the conversations that are still busy.
func (c *Transaction) Abandon() {
	for _, p := range c.Joined {
		if p.Busy != nil {
			p.Conn.Break()
			p.Busy.Abandon()
		}
	}
}

// Detach ends the use of an owner's conversations. It returns the shards on which rows may have been written.
func (c *Transaction) Detach() (wrote []string) {
	c.StopAll()
	c.Calm()
	c.Abandon()
	for _, p := range c.Joined {
		if p.Wrote {
			wrote = append(wrote, p.Shard)
		}
		c.forget(p.Conn)
		if !c.DeadlineNow().IsZero() && !p.Conn.Broken() && p.Conn.SetDeadline(time.Time{}) != nil {
			p.Conn.Break()
		}
	}
	c.Joined = nil
	slices.Sort(wrote)
	return wrote
}

// Release gives all conversations back. What still runs on them is stopped by their pools: nothing is waited for.
func (c *Transaction) Release() {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	for _, p := range c.Joined {
		c.forget(p.Conn)
		if p.lent {
			continue
		}
		if p.open() || cut {
			p.Conn.Break()
		}
		if c.Soils {
			p.Conn.Soil()
		}
		p.Conn.Release()
	}
	c.Joined, c.Soils = nil, false
}
