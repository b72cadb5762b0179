package several

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
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
	// decides: something may have run on it that cannot be prepared, but can be committed. What the session keeps
	// there (temporary objects, a lock that it takes once more) is that: PostgreSQL, PREPARE TRANSACTION.
	decides bool
	// lent: the conversation is the owner's, see Owner.
	lent bool
}

// open reports whether a transaction is open on the part, as far as is known.
func (p *part) open() bool { return p.begun || p.conn.Status() != 'I' }

// find returns the part of a shard, nil if it has none.
func (c *transaction) find(shard string) *part {
	for _, p := range c.parts {
		if p.shard == shard {
			return p
		}
	}
	return nil
}

// TakesPart reports whether a transaction's conversation is with, or has it as a part.
func TakesPart(tx, with *executor.Conn) bool {
	if c, ok := tx.Conn.(*Conn); ok {
		return slices.ContainsFunc(c.parts, func(p *part) bool { return p.conn == with })
	}
	return tx == with
}

// part returns the part of a shard; it borrows a conversation for it if there is
// none. shard "" is any one, best one that takes part already. write says that
// what will run there may write: the part then takes part in the commit. The
// transaction begins on it with the first text (send). Errors: those of
// Executor.Acquire; 57014 if the statement was cancelled.
func (c *transaction) part(ctx context.Context, shard string, write bool) (*part, error) {
	if shard == "" {
		if len(c.parts) > 0 {
			shard = c.parts[0].shard
		} else if c.opt.Owner != nil {
			shard = c.host.Snapshot().State().DefaultShard
		} else {
			shard = c.ex.Any()
		}
	}
	if write {
		if err := c.ex.Refusal(shard, true); err != nil {
			return nil, err
		}
	}
	p := c.find(shard)
	if p == nil && c.opt.Owner != nil {
		return c.borrowLent(ctx, shard, write)
	}
	if p == nil {
		conn, err := c.reader(ctx, shard)
		if err != nil {
			return nil, err
		}
		if conn == nil {
			if conn, err = c.atHand(shard, c.base()); err != nil {
				return nil, err
			}
		}
		if conn == nil {
			for _, loose := range c.loose() {
				c.giveBack(loose)
			}
			conn, err = c.borrow(ctx, shard)
		} else {
			conn, err = c.borrowed(conn)
		}
		if err != nil {
			return nil, err
		}
		return c.takePart(ctx, conn, write)
	}
	if write && !p.wrote {
		if err := c.joins(ctx, p, write); err != nil {
			return nil, err
		}
	}
	c.mayWrite(p, write)
	return p, nil
}

// takePart makes a part of a borrowed conversation. Where the session keeps one with that shard, that is the part.
func (c *transaction) takePart(ctx context.Context, conn *executor.Conn, write bool) (*part, error) {
	if kept := c.host.Kept(conn.Shard()); kept != nil && kept != conn && !conn.OnReplica() {
		c.giveBack(conn)
		if err := applied(kept, c.base()); err != nil {
			return nil, err
		}
		var err error
		if conn, err = c.borrowed(kept); err != nil {
			return nil, err
		}
	}
	p := &part{shard: conn.Shard(), conn: conn, base: conn.Settings(), decides: conn.Pinned()}
	p.pipe.Conn, p.pipe.Inner = conn, true
	if err := c.joins(ctx, p, write); err != nil {
		c.giveBack(conn)
		return nil, err
	}
	c.parts = append(c.parts, p)
	c.host.Joined(p.shard)
	c.mayWrite(p, write)
	return p, nil
}

// keptPart makes the shard's part one whose conversation the session is about to keep.
func (c *transaction) keptPart(shard string) (*executor.Conn, error) {
	p, err := c.part(c.ctx, shard, true)
	if err != nil {
		return nil, err
	}
	p.decides = true
	return p.conn, nil
}

func (c *transaction) mayWrite(p *part, write bool) {
	if write && !p.wrote {
		p.wrote = true
		c.host.Wrote(p.conn)
	}
	if write && c.counts && p.shard == c.host.Snapshot().State().DefaultShard {
		p.conn.Count(c.host.Counter())
	}
}

// shardsOf returns the shards of a target that is about to be read or changed, and counts it for the load
// of the ranges that it touches.
func (c *transaction) shardsOf(t *planner.Target, snap *shardmap.Snapshot, args *planner.Args) ([]string, error) {
	units := c.units[:0]
	shards, err := t.Touch(snap, args, &units)
	if err == nil {
		c.ex.CountSeveral(snap, units, len(shards))
	}
	return shards, err
}

// partsOf returns the parts of several shards, in their order. Conversations are
// waited for in the same order by everybody, so that two statements do not wait for
// each other's (see borrowAll). The session's bound of shards holds here.
func (c *transaction) partsOf(ctx context.Context, shards []string, write bool) ([]*part, error) {
	if err := c.bounds.Touches(shards...); err != nil {
		return nil, err
	}
	for _, s := range shards {
		if err := c.ex.Refusal(s, write); err != nil {
			return nil, err // before anything is begun on others
		}
	}
	var missing []string
	for _, s := range shards {
		if c.find(s) == nil {
			missing = append(missing, s)
		}
	}
	var fresh []*executor.Conn
	if len(missing) > 0 && c.opt.Owner == nil {
		have := c.loose()
		missing = missing[:0]
		for _, s := range shards {
			if c.find(s) == nil {
				missing = append(missing, s)
			}
		}
		var err error
		if fresh, err = c.fresh(ctx, missing, have); err != nil {
			return nil, err
		}
	}
	parts := make([]*part, 0, len(shards))
	for _, s := range shards {
		var p *part
		var err error
		if len(fresh) > 0 && fresh[0].Shard() == s {
			p, err = c.takePart(ctx, fresh[0], write)
			fresh = fresh[1:]
		} else {
			p, err = c.part(ctx, s, write)
		}
		if err != nil {
			for _, conn := range fresh {
				c.giveBack(conn)
			}
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// fresh borrows conversations with several shards, in their order: with replicas where
// these may be read, else by borrowAll.
func (c *transaction) fresh(ctx context.Context, shards []string, have []*executor.Conn) ([]*executor.Conn, error) {
	if !c.replicas {
		return c.borrowAll(ctx, shards, c.base(), have)
	}
	readers := make([]*executor.Conn, len(shards))
	fail := func(err error) ([]*executor.Conn, error) {
		for _, conn := range append(readers, have...) {
			if conn != nil {
				c.giveBack(conn)
			}
		}
		return nil, err
	}
	have = slices.DeleteFunc(have, func(conn *executor.Conn) bool {
		i := slices.Index(shards, conn.Shard())
		if i < 0 || !conn.OnReplica() {
			return false
		}
		readers[i] = conn
		return true
	})
	var rest []string
	for i, s := range shards {
		if readers[i] == nil {
			var err error
			if readers[i], err = c.reader(ctx, s); err != nil {
				return fail(err)
			}
		}
		if readers[i] == nil {
			rest = append(rest, s)
		}
	}
	others, err := c.borrowAll(ctx, rest, c.base(), have)
	if err != nil {
		have = nil
		return fail(err)
	}
	for i := range readers {
		if readers[i] == nil {
			readers[i], others = others[0], others[1:]
		}
	}
	return readers, nil
}

// loose takes away the parts on which nothing is open: descriptions ran there.
// Who holds them must not wait for others.
func (c *transaction) loose() (conns []*executor.Conn) {
	c.parts = slices.DeleteFunc(c.parts, func(p *part) bool {
		if p.begun || p.adopted || p.lent || p.busy != nil || p.stale || p.wrote || p.conn.Broken() || p.conn.Status() != 'I' {
			return false
		}
		conns = append(conns, p.conn)
		return true
	})
	return conns
}

// base are the settings of the transaction's beginning.
func (c *transaction) base() *executor.Settings {
	if c.opt.Block {
		return c.opt.Base
	}
	return c.host.Settings()
}

// borrow acquires a conversation with a shard that is cancelled with all others.
// It has the settings of the transaction's beginning. giveBack has to follow,
// unless it becomes a part's.
func (c *transaction) borrow(ctx context.Context, shard string) (*executor.Conn, error) {
	return c.borrowWith(ctx, shard, c.base())
}

// begin opens the transaction on the part, unless that can go with the text that
// follows; then it returns true.
func (c *transaction) begin(p *part) (batched bool, err error) {
	if p.begun {
		return false, nil
	}
	if c.block && c.proven != nil && !c.proven[p.shard] {
		e := sqlstate.New(sqlstate.CannotConnectNow, "shard %s could not be reached when the transaction took its snapshots", p.shard).
			WithHint("nothing was committed: run the transaction again when cleave doctor finds the shard").OnShard(p.shard)
		e.Retry = sqlstate.RetryTransaction
		return false, e
	}
	p.since = c.host.Snapshot()
	begin := c.opt.Begin
	if begin == "" || !c.block {
		begin = p.beginText()
	}
	changes := p.conn.LocalChanges(c.host.Settings())
	if len(c.modes) == 0 && c.saves.Len() == 0 && len(changes) == 0 && (plain(begin) || !c.block) {
		p.begun = true
		return true, nil
	}
	all := append([]string{begin}, c.modes...)
	if c.hasNamed() {
		// Which of them the shard has is asked first.
		p.begun = true
		if _, err := p.conn.Exec(begin); err != nil {
			return false, c.failure(p, err)
		}
		for _, m := range c.modes {
			if err := c.setsNamed(p, m); err != nil {
				return false, err
			}
		}
		all = nil
	}
	p.saves = p.saves[:0]
	for s := range c.saves.All() {
		all = append(all, "SAVEPOINT "+quote(s))
		p.saves = append(p.saves, p.base)
	}
	all = append(all, changes...)
	p.begun = true // whatever comes of it, it has to be ended
	if len(all) > 0 {
		if _, err := p.conn.Exec(strings.Join(all, ";")); err != nil {
			return false, c.failure(p, err)
		}
	}
	p.conn.SetSettings(c.host.Settings())
	return false, nil
}

// maps are the maps by which a part leaves out rows that it does not own: snap,
// and, if its transaction sees rows as they were when it began, that of then.
func (c *transaction) maps(p *part, snap *shardmap.Snapshot) []*shardmap.Snapshot {
	if p.since == nil || p.since == snap || !c.lasting(p) {
		return []*shardmap.Snapshot{snap}
	}
	return []*shardmap.Snapshot{snap, p.since}
}

// lasting reports whether all statements on a part have one snapshot of its rows.
func (c *transaction) lasting(p *part) bool {
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
func (c *transaction) known(p *part) {
	if p.stale {
		p.stale = false
		p.conn.SetSettings(c.host.Settings())
	}
}

// settle gives a part that is in the transaction the session's settings, until
// the transaction ends.
func (c *transaction) settle(p *part) error {
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
func (c *transaction) exec(p *part, sql string) (*engine.Result, error) {
	if p.busy != nil {
		return nil, p.unread()
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

// unread is the error of a text for a part that still answers another one.
func (p *part) unread() error {
	return sqlstate.New(sqlstate.InternalError, "the conversation with shard %s still answers another statement", p.shard).OnShard(p.shard)
}

// failure is the error of a statement that failed on a part. A part that is lost
// takes the transaction with it: nothing of it is committed.
func (c *transaction) failure(p *part, err error) error {
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
		if refusal := castWord(se); refusal != nil {
			return refusal.OnShard(p.shard)
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
func (c *transaction) stopAll() {
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
