package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/sqlstate"
)

// commitSeveral commits the parts that wrote, all or none. After an error other
// than 08007 nothing is committed; the caller ends what is open on other parts.
func (c *Conn) commitSeveral(ctx context.Context, writers []*part) error {
	// The first one decides.
	slices.SortStableFunc(writers, func(a, b *part) int {
		switch {
		case a.decides == b.decides:
			return 0
		case a.decides:
			return -1
		}
		return 1
	})
	parts := make([]txn.Participant, len(writers))
	for i, p := range writers {
		parts[i] = txn.Participant{Shard: p.shard, Conn: p.conn, Wrote: true}
	}
	committed, frames, err := c.shared.transactions.Commit(ctx, parts)
	deadline := c.deadlineNow()
	for _, p := range writers {
		if !deadline.IsZero() && !p.conn.Broken() && p.conn.SetDeadline(deadline) != nil {
			p.conn.Break()
		}
		p.ended(committed)
	}
	c.notice(frames)
	c.told()
	if err == nil && !committed {
		err = sqlstate.New(sqlstate.InFailedTransaction, "the transaction had failed on shard %s: it was rolled back", writers[0].shard).OnShard(writers[0].shard)
	}
	return err
}

// joins is asked before a shard takes part in the transaction, or before one
// that takes part writes: whether the session's settings allow a second one, and
// whether both could be committed together.
func (c *Conn) joins(ctx context.Context, p *part, write bool) error {
	first := p
	for _, q := range c.parts {
		if q != p {
			first = q
			break
		}
	}
	if first == p {
		return nil
	}
	if c.block || write {
		if err := txn.CheckMode(c.host.Settings(), first.shard, p.shard); err != nil {
			return err
		}
	}
	if err := txn.CheckIsolation(c.isolation(), first.shard, p.shard); err != nil {
		return err
	}
	if !write || p.wrote {
		return nil
	}
	for _, q := range c.parts {
		if q != p && q.wrote && c.opt.Owner != nil {
			return c.canWriteLent(ctx)
		}
		if q != p && q.wrote {
			return c.shared.transactions.CanWrite(ctx, []txn.Participant{{Shard: q.shard, Conn: q.conn}, {Shard: p.shard, Conn: p.conn}})
		}
	}
	return nil
}

// isolation is what was said of the transaction's isolation: the words of BEGIN
// and SET TRANSACTION, or the session's default.
func (c *Conn) isolation() string {
	if c.block {
		said := strings.Join(append([]string{c.opt.Begin}, c.modes...), " ")
		if strings.Contains(strings.ToUpper(said), "ISOLATION") {
			return said
		}
	}
	return c.host.Settings().Text("default_transaction_isolation")
}
