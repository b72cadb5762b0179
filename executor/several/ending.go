package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/sqlstate"
)

// commit ends the transaction on all shards: on those that wrote it is committed, on all or none. After an error nothing is
// left of it, unless the error says otherwise (08007).
func (c *transaction) commit() error {
	c.calm() // from here on Transactions say what can be stopped
	open, first := c.ends()
	if first != nil {
		if err := c.host.Holds(); err != nil {
			c.rollBack()
			return err
		}
	}
	list := make([]*txn.Participant, len(open))
	for i, p := range open {
		list[i] = &txn.Participant{Shard: p.shard, Conn: p.conn, Wrote: p.wrote}
	}
	committed, frames, err := c.shared.transactions.Commit(c.ctx, list)
	if err == nil && !committed && first != nil {
		err = sqlstate.New(sqlstate.InFailedTransaction, "the transaction had failed on shard %s: it was rolled back", first.shard).OnShard(first.shard)
	}
	if err != nil {
		if p := c.find(sqlstate.As(err).Shard); p != nil && !p.conn.Broken() {
			err = c.failure(p, err)
		}
	}
	deadline := c.deadlineNow()
	for _, p := range open {
		if !deadline.IsZero() && !p.conn.Broken() && p.conn.SetDeadline(deadline) != nil {
			p.conn.Break()
		}
		p.ended(committed || first == nil)
	}
	c.aside.notice(frames)
	c.dropBroken()
	return err
}

// ends are the parts on which the transaction is to be ended; first is the first one that wrote, which decides, nil if none did.
func (c *transaction) ends() (open []*part, first *part) {
	for _, p := range c.parts {
		if p.busy != nil {
			p.conn.Break()
		}
		if p.wrote && p.open() || p.begun && !p.conn.Broken() {
			open = append(open, p)
		}
	}
	slices.SortStableFunc(open, func(a, b *part) int {
		switch {
		case a.decides == b.decides:
			return 0
		case a.decides:
			return -1
		}
		return 1
	})
	if at := slices.IndexFunc(open, func(p *part) bool { return p.wrote }); at >= 0 {
		first = open[at]
	}
	return open, first
}

// ended notes that no transaction is open on the part any more.
func (p *part) ended(committed bool) {
	p.begun, p.since, p.begin, p.wrote, p.stale, p.decides, p.saves = false, nil, "", false, false, p.conn.Pinned(), nil
	settings := p.base
	if p.adopted && committed {
		settings = p.keep
	}
	p.conn.SetSettings(settings)
	p.base = settings
}

// rollBack rolls the transaction back on all shards on which it is open, at once.
func (c *transaction) rollBack() {
	c.calm()
	var open []*executor.Conn
	for _, p := range c.parts {
		switch {
		case !p.begun || p.conn.Broken():
		case p.busy != nil:
			p.conn.Break()
		default:
			open = append(open, p.conn)
		}
	}
	txn.RollBack(open)
	for _, p := range c.parts {
		if p.begun && !p.conn.Broken() {
			p.ended(false)
		}
	}
	c.dropBroken()
}

// dropBroken gives back the conversations that are broken: their shards roll back.
func (c *transaction) dropBroken() {
	c.parts = slices.DeleteFunc(c.parts, func(p *part) bool {
		if p.conn.Broken() {
			c.giveBack(p.conn)
			return true
		}
		return false
	})
}

// joins is asked before a shard takes part in the transaction, or before one
// that takes part writes: whether the session's settings allow a second one, and
// whether both could be committed together.
func (c *transaction) joins(ctx context.Context, p *part, write bool) error {
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
			return c.shared.transactions.CanWrite(ctx, []*txn.Participant{{Shard: q.shard, Conn: q.conn}, {Shard: p.shard, Conn: p.conn}})
		}
	}
	return nil
}

// isolation is what was said of the transaction's isolation: the words of BEGIN
// and SET TRANSACTION, or the session's default.
func (c *transaction) isolation() string {
	if c.block {
		said := strings.Join(append([]string{c.opt.Begin}, c.modes...), " ")
		if strings.Contains(strings.ToUpper(said), "ISOLATION") {
			return said
		}
	}
	return c.host.Settings().Text("default_transaction_isolation")
}
