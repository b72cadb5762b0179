package txn

import (
	"context"
	"slices"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

// Change is the schema change that a transaction has become (docs/design/schema.md). It opens the transaction on shards, and
// ends it: nothing is begun or committed by the transaction itself.
type Change interface {
	// Open opens it on a shard, with Opened.
	Open(ctx context.Context, shard string) error
	// Savepoint runs SAVEPOINT ("savepoint"), RELEASE or ROLLBACK TO on all its shards.
	Savepoint(ctx context.Context, op, name string) error
}

// Opened makes a participant of a conversation of the schema change, in which the transaction is open.
func (c *Transaction) Opened(conn *executor.Conn) {
	p := &Participant{Shard: conn.Shard(), Conn: conn, Begun: true, opened: true, since: c.since, base: conn.Settings()}
	p.Pipe.Conn, p.Pipe.Inner = conn, true
	for range c.Saves.Len() {
		p.saves = append(p.saves, p.base)
	}
	c.adds(conn)
	c.Joined = append(c.Joined, p)
}

// open makes sure that the schema change has opened the transaction on a shard.
func (c *Transaction) open(ctx context.Context, shard string, write bool) (*Participant, error) {
	if err := c.Change.Open(ctx, shard); err != nil {
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			return nil, cause
		}
		return nil, err
	}
	p := c.Find(shard)
	if err := c.joins(ctx, p, write); err != nil {
		return nil, err
	}
	c.host.Joined(p.Shard)
	c.mayWrite(p, write)
	return p, nil
}

// canWriteInChange is asked before rows are written on a second shard of a schema change's transaction: all of its shards have to
// be able to prepare it, with the definitions that it has made.
func (c *Transaction) canWriteInChange(ctx context.Context) error {
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

// Settled makes sure that a schema change can have the transaction: it is open on all participants, and none is busy.
func (c *Transaction) Settled() error {
	if err := c.Idle(); err != nil {
		return err
	}
	for _, conn := range c.loose() {
		c.GiveBack(conn)
	}
	for _, p := range c.Joined {
		if !p.Begun {
			return sqlstate.New(sqlstate.InternalError, "the transaction is not open on shard %s", p.Shard).OnShard(p.Shard)
		}
	}
	return nil
}

// Becomes makes the transaction the schema change's.
func (c *Transaction) Becomes(change Change) {
	if c.since = c.host.Snapshot(); len(c.Joined) > 0 && c.Joined[0].since != nil {
		c.since = c.Joined[0].since
	}
	c.Change = change
}

// First makes the shard's participant the one whose time is the transaction's, and whose cursors a name may mean; "" is the
// first one.
func (c *Transaction) First(shard string) {
	if len(c.Joined) == 0 {
		return
	}
	at := max(slices.IndexFunc(c.Joined, func(p *Participant) bool { return p.Shard == shard }), 0)
	p := c.Joined[at]
	p.Direct = true
	c.Joined = slices.Insert(slices.Delete(c.Joined, at, at+1), 0, p)
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

// Rest stops what runs on the participants, before a schema change ends the transaction on them.
func (c *Transaction) Rest() {
	c.StopAll()
	c.Calm()
	c.Abandon()
	for _, p := range c.Joined {
		c.forget(p.Conn)
		if !c.DeadlineNow().IsZero() && !p.Conn.Broken() && p.Conn.SetDeadline(time.Time{}) != nil {
			p.Conn.Break()
		}
	}
}

// Release gives all conversations back, but for those that a schema change has opened. What still runs on them is stopped by
// their pools: nothing is waited for.
func (c *Transaction) Release() {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	for _, p := range c.Joined {
		c.forget(p.Conn)
		switch {
		case p.opened:
			continue
		case c.Change != nil:
			// It talked on it, and so did SETs whose end nobody followed.
			if p.Conn.Soil(); !p.Conn.Broken() {
				p.Conn.Settle()
			}
		case p.open() || cut:
			p.Conn.Break()
		}
		if c.Soils {
			p.Conn.Soil()
		}
		p.Conn.Release()
	}
	c.Joined, c.Soils = nil, false
}
