package several

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// part is one shard's part in the conversation.
type part struct {
	shard string
	conn  *executor.Conn
	pipe  executor.Pipeline
	// begun: a transaction block is open on it. It is sent with the first text.
	begun bool
	// since is the map by which the transaction began on it, nil: as now.
	since *shardmap.Snapshot
	// begin is what the transaction begins with outside of a block; "" is BEGIN.
	begin string
	// wrote: something in it may have written.
	wrote bool
	// busy is the answer that is being read; nothing else can be run until its end.
	busy *stream
	// base are the settings that it has when the transaction has ended; those at
	// each savepoint are in saves.
	base  *executor.Settings
	saves []*executor.Settings
	// adopted: the transaction began on it alone; keep are its settings after a COMMIT.
	adopted bool
	keep    *executor.Settings
	// stale: a SET ran on it, of which the session has not taken note yet.
	stale bool
	// decides: something ran on it that cannot be prepared, but can be committed.
	decides bool
	// sets: a statement changed its settings in a way that is not known here.
	sets bool
}

// open reports whether a transaction is open on the part, as far as is known.
func (p *part) open() bool { return p.begun || p.conn.Status() != 'I' }

// find returns the part of a shard, nil if it has none.
func (c *Conn) find(shard string) *part {
	for _, p := range c.parts {
		if p.shard == shard {
			return p
		}
	}
	return nil
}

// part returns the part of a shard; it borrows a conversation for it if there is
// none. shard "" is any one, best one that takes part already. write says that
// what will run there may write: the part then takes part in the commit. The
// transaction begins on it with the first text (send). Errors: those of
// Executor.Acquire; 57014 if the statement was cancelled.
func (c *Conn) part(ctx context.Context, shard string, write bool) (*part, error) {
	if shard == "" {
		if len(c.parts) > 0 {
			shard = c.parts[0].shard
		} else {
			shard = c.ex.Any()
		}
	}
	p := c.find(shard)
	if p == nil {
		conn, err := c.borrow(ctx, shard)
		if err != nil {
			return nil, err
		}
		p = &part{shard: shard, conn: conn, base: conn.Settings()}
		p.pipe.Conn = conn
		if err := c.joins(ctx, p, write); err != nil {
			c.giveBack(conn)
			return nil, err
		}
		c.parts = append(c.parts, p)
		c.host.Joined(shard)
	} else if write && !p.wrote {
		if err := c.joins(ctx, p, write); err != nil {
			return nil, err
		}
	}
	if write && !p.wrote {
		p.wrote = true
		c.host.Wrote(p.conn)
	}
	return p, nil
}

// partsOf returns the parts of several shards, in their order. Conversations are
// borrowed in the same order by everybody, so that two statements do not wait for
// each other's. The session's bound of shards holds here.
func (c *Conn) partsOf(ctx context.Context, shards []string, write bool) ([]*part, error) {
	if err := c.bounds.touches(shards...); err != nil {
		return nil, err
	}
	parts := make([]*part, 0, len(shards))
	for _, s := range shards {
		p, err := c.part(ctx, s, write)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// borrow acquires a conversation with a shard that is cancelled with all others.
// It has the settings of the transaction's beginning. giveBack has to follow,
// unless it becomes a part's.
func (c *Conn) borrow(ctx context.Context, shard string) (*executor.Conn, error) {
	base := c.opt.Base
	if !c.opt.Block {
		base = c.host.Settings()
	}
	conn := c.ex.TryAcquire(shard, base)
	if conn == nil {
		var err error
		if conn, err = c.ex.Acquire(ctx, shard, base); err != nil {
			if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
				return nil, cause
			}
			return nil, err
		}
	}
	c.mu.Lock()
	c.live[conn] = struct{}{}
	deadline, over := c.deadline, c.ctx.Err() != nil
	c.mu.Unlock()
	if !deadline.IsZero() && conn.SetDeadline(deadline) != nil {
		conn.Break()
	}
	if over {
		c.giveBack(conn)
		return nil, context.Cause(c.ctx)
	}
	return conn, nil
}

// giveBack ends the use of a borrowed conversation.
func (c *Conn) giveBack(conn *executor.Conn) {
	c.forget(conn) // waits for a cancel that is under way
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	if !deadline.IsZero() && conn.SetDeadline(time.Time{}) != nil {
		conn.Break()
	}
	conn.Release()
}

// begin opens the transaction on the part, unless that can go with the text that
// follows; then it returns true.
func (c *Conn) begin(p *part) (batched bool, err error) {
	if p.begun {
		return false, nil
	}
	p.since = c.host.Snapshot()
	begin := c.opt.Begin
	if begin == "" || !c.block {
		begin = p.beginText()
	}
	changes := p.conn.LocalChanges(c.host.Settings())
	if len(c.modes) == 0 && len(c.saves) == 0 && len(changes) == 0 && (plain(begin) || !c.block) {
		p.begun = true
		return true, nil
	}
	all := append([]string{begin}, c.modes...)
	p.saves = p.saves[:0]
	for _, s := range c.saves {
		all = append(all, "SAVEPOINT "+quote(s))
		p.saves = append(p.saves, p.base)
	}
	all = append(all, changes...)
	p.begun = true // whatever comes of it, it has to be ended
	if _, err := p.conn.Exec(strings.Join(all, ";")); err != nil {
		return false, c.failure(p, err)
	}
	p.conn.SetSettings(c.host.Settings())
	return false, nil
}

// maps are the maps by which a part leaves out rows that it does not own: snap,
// and, if its transaction sees rows as they were when it began, that of then.
func (c *Conn) maps(p *part, snap *shardmap.Snapshot) []*shardmap.Snapshot {
	if p.since == nil || p.since == snap || !c.lasting(p) {
		return []*shardmap.Snapshot{snap}
	}
	return []*shardmap.Snapshot{snap, p.since}
}

// lasting reports whether all statements on a part have one snapshot of its rows.
func (c *Conn) lasting(p *part) bool {
	if p.begin != "" || c.proven[p.shard] {
		return true
	}
	level := strings.ToUpper(c.isolation())
	return strings.Contains(level, "REPEATABLE") || strings.Contains(level, "SERIALIZABLE")
}

// beginText begins a transaction outside of a block.
func (p *part) beginText() string {
	if p.begin != "" {
		return p.begin
	}
	return "BEGIN"
}

// plain reports whether a BEGIN has no options.
func plain(begin string) bool {
	switch strings.ToUpper(strings.TrimSpace(begin)) {
	case "BEGIN", "BEGIN TRANSACTION", "BEGIN WORK", "START TRANSACTION":
		return true
	}
	return false
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// known notes the settings of a part on which a SET ran.
func (c *Conn) known(p *part) {
	if p.stale {
		p.stale = false
		p.conn.SetSettings(c.host.Settings())
	}
}

// settle gives a part that is in the transaction the session's settings, until
// the transaction ends.
func (c *Conn) settle(p *part) error {
	c.known(p)
	want := c.host.Settings()
	if p.conn.Settings().Equal(want) {
		return nil
	}
	if changes := p.conn.LocalChanges(want); len(changes) > 0 {
		if _, err := p.conn.Exec(strings.Join(changes, ";")); err != nil {
			return c.failure(p, err)
		}
	}
	p.conn.SetSettings(want)
	return nil
}

// exec runs a message of the router's own on a part and decodes its result.
func (c *Conn) exec(p *part, sql string) (*engine.Result, error) {
	if p.busy != nil {
		return nil, c.busy(p)
	}
	if batched, err := c.begin(p); err != nil {
		return nil, err
	} else if batched {
		if _, err := p.conn.Exec(p.beginText()); err != nil {
			return nil, c.failure(p, err)
		}
	}
	if err := c.settle(p); err != nil {
		return nil, err
	}
	res, err := p.conn.Exec(sql)
	if err != nil {
		return nil, c.failure(p, err)
	}
	return res, nil
}

func (c *Conn) busy(p *part) error {
	return sqlstate.New(sqlstate.InternalError, "the conversation with shard %s still answers another statement", p.shard).OnShard(p.shard)
}

// failure is the error of a statement that failed on a part. A part that is lost
// takes the transaction with it: nothing of it is committed.
func (c *Conn) failure(p *part, err error) error {
	c.culprit = p.shard
	var se *sqlstate.Error
	if errors.As(err, &se) && engine.Lost(err) == nil && se.Severity != "FATAL" && se.Severity != "PANIC" {
		if se.Code == sqlstate.QueryCanceled {
			if cause := context.Cause(c.ctx); cause != nil {
				return cause
			}
		}
		if executor.Roleless(se.Code) {
			p.conn.Doubt()
		}
		e := *se
		if e.Shard == "" {
			e.Shard = p.shard
		}
		return &e
	}
	p.conn.Break()
	c.lost, c.failed = true, true
	if cause := context.Cause(c.ctx); cause != nil {
		return cause
	}
	if c.block || p.wrote {
		return &sqlstate.Error{
			Code: sqlstate.SerializationFailure, Shard: p.shard, Err: err, Retry: sqlstate.RetryTransaction,
			Message: fmt.Sprintf("the connection to shard %s was lost: the transaction was rolled back", p.shard),
			Hint:    "nothing was committed: run the transaction again",
		}
	}
	e := p.conn.Lost(err, false)
	return e
}

// stopAll stops what is still running on parts, so that the transaction can be
// ended on them.
func (c *Conn) stopAll() {
	var busy []*part
	for _, p := range c.parts {
		if p.busy != nil {
			busy = append(busy, p)
		}
	}
	if len(busy) == 0 {
		return
	}
	for _, p := range busy {
		if p.conn.SetDeadline(time.Now().Add(stopMax)) != nil {
			p.conn.Break()
		}
	}
	c.mu.Lock()
	ctx, cancel := context.WithTimeout(context.Background(), cancelMax)
	_ = c.cancelLive(ctx, true) // it is asked again
	cancel()
	c.insist()
	c.mu.Unlock()
	for _, p := range busy {
		p.busy.drain()
	}
	c.calm()
	for _, p := range busy {
		if !p.conn.Broken() && p.conn.SetDeadline(c.deadlineNow()) != nil {
			p.conn.Break()
		}
	}
}

func (c *Conn) deadlineNow() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline
}
