package txn

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

// Commit ends the transaction on all shards: on those that wrote it is committed, on all or none. After an error nothing is
// left of it, unless the error says otherwise (08007).
func (c *Transaction) Commit() (notices []byte, err error) {
	c.Calm() // from here on Transactions say what can be stopped
	open, first := c.ends()
	if first != nil {
		if err := c.host.Holds(); err != nil {
			c.RollBack()
			return nil, err
		}
	}
	list := make([]*Participant, len(open))
	for i, p := range open {
		list[i] = &Participant{Shard: p.Shard, Conn: p.Conn, Wrote: p.Wrote}
	}
	committed, frames, err := c.txns.Commit(c.Ctx, list)
	if err == nil && !committed && first != nil {
		err = sqlstate.New(sqlstate.InFailedTransaction, "the transaction had failed on shard %s: it was rolled back", first.Shard).OnShard(first.Shard)
	}
	if err != nil {
		if p := c.Find(sqlstate.As(err).Shard); p != nil && !p.Conn.Broken() {
			err = c.Failure(p, err)
		}
	}
	deadline := c.DeadlineNow()
	for _, p := range open {
		if !deadline.IsZero() && !p.Conn.Broken() && p.Conn.SetDeadline(deadline) != nil {
			p.Conn.Break()
		}
		p.ended(committed || first == nil)
	}
	c.dropBroken()
	return frames, err
}

// ends are the parts on which the transaction is to be ended; first is the first one that wrote, which decides, nil if none did.
func (c *Transaction) ends() (open []*Participant, first *Participant) {
	for _, p := range c.Joined {
		if p.Busy != nil {
			p.Conn.Break()
		}
		if p.Wrote && p.open() || p.Begun && !p.Conn.Broken() {
			open = append(open, p)
		}
	}
	slices.SortStableFunc(open, func(a, b *Participant) int {
		switch {
		case a.Unpreparable == b.Unpreparable:
			return 0
		case a.Unpreparable:
			return -1
		}
		return 1
	})
	if at := slices.IndexFunc(open, func(p *Participant) bool { return p.Wrote }); at >= 0 {
		first = open[at]
	}
	return open, first
}

// ended notes that no transaction is open on the part any more.
func (p *Participant) ended(committed bool) {
	p.Begun, p.since, p.Begin, p.Wrote, p.Stale, p.Unpreparable, p.saves = false, nil, "", false, false, p.Conn.Pinned(), nil
	settings := p.base
	if p.Direct && committed {
		settings = p.keep
	}
	p.Conn.SetSettings(settings)
	p.base = settings
}

// RollBack rolls the transaction back on all shards on which it is open, at once.
func (c *Transaction) RollBack() {
	c.Calm()
	var open []*executor.Conn
	for _, p := range c.Joined {
		switch {
		case !p.Begun || p.Conn.Broken():
		case p.Busy != nil:
			p.Conn.Break()
		default:
			open = append(open, p.Conn)
		}
	}
	RollBack(open)
	for _, p := range c.Joined {
		if p.Begun && !p.Conn.Broken() {
			p.ended(false)
		}
	}
	c.dropBroken()
}

// dropBroken gives back the conversations that are broken: their shards roll back.
func (c *Transaction) dropBroken() {
	c.Joined = slices.DeleteFunc(c.Joined, func(p *Participant) bool {
		if p.Conn.Broken() {
			c.GiveBack(p.Conn)
			return true
		}
		return false
	})
}

// joins is asked before a shard takes part in the transaction, or before one
// that takes part writes: whether the session's settings allow a second one, and
// whether both could be committed together.
func (c *Transaction) joins(ctx context.Context, p *Participant, write bool) error {
	first := p
	for _, q := range c.Joined {
		if q != p {
			first = q
			break
		}
	}
	if first == p {
		return nil
	}
	if c.Block || write {
		if err := CheckMode(c.host.Settings(), first.Shard, p.Shard); err != nil {
			return err
		}
	}
	if err := CheckIsolation(c.Isolation(), first.Shard, p.Shard); err != nil {
		return err
	}
	if !write || p.Wrote {
		return nil
	}
	for _, q := range c.Joined {
		if q != p && q.Wrote && c.Change != nil {
			return c.canWriteInChange(ctx)
		}
		if q != p && q.Wrote {
			return c.txns.CanWrite(ctx, []*Participant{{Shard: q.Shard, Conn: q.Conn}, {Shard: p.Shard, Conn: p.Conn}})
		}
	}
	return nil
}

// Isolation is what was said of the transaction's isolation: the words of BEGIN
// and SET TRANSACTION, or the session's default.
func (c *Transaction) Isolation() string {
	if c.Block {
		said := strings.Join(c.Beginning(), " ")
		if strings.Contains(strings.ToUpper(said), "ISOLATION") {
			return said
		}
	}
	return c.host.Settings().Text("default_transaction_isolation")
}

// TakeSnapshots begins the transaction on participants on which it has not begun, with snapshots that fit each other.
func (c *Transaction) TakeSnapshots(ctx context.Context, parts []*Participant) error {
	begin, list := "BEGIN ISOLATION LEVEL REPEATABLE READ", make([]*Participant, len(parts))
	for i, p := range parts {
		if p.Busy != nil {
			return p.Unread()
		}
		list[i] = &Participant{Shard: p.Shard, Conn: p.Conn}
	}
	if c.Block {
		var err error
		if begin, err = c.beginning(); err != nil {
			return err
		}
	}
	since := c.host.Snapshot()
	take := c.txns.Snapshots
	if c.Block {
		take = c.txns.Moment
	}
	if err := take(ctx, list, begin); err != nil {
		return err
	}
	proven(c, parts, since)
	// Settings that differ follow with each part's next text (settle).
	return nil
}
