package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Answer is what a participant is busy with.
type Answer interface {
	// Drain reads what is left of it.
	Drain()
	// Abandon forgets it: the conversation is broken.
	Abandon()
}

// stopMax is how long a participant may take to stop.
const stopMax = 5 * time.Second

// Participant is one shard's part in the conversation.
type Participant struct {
	Shard string
	Conn  *executor.Conn
	Pipe  executor.Pipeline
	// Begun: a transaction block is open on it. It is sent with the first text.
	Begun bool
	// since is the map by which the transaction began on it, nil: as now.
	since *shardmap.Snapshot
	// Begin is what the transaction begins with outside of a block; "" is BEGIN.
	Begin string
	// Wrote: something in it may have written.
	Wrote bool
	// Busy is the answer that is being read; nothing else can be run until its end.
	Busy Answer
	// base are the settings that it has when the transaction has ended; those at
	// each savepoint are in saves.
	base  *executor.Settings
	saves []*executor.Settings
	// Direct: the session has talked on it itself; keep are its settings after a COMMIT.
	Direct bool
	keep   *executor.Settings
	// Stale: a SET ran on it, of which the session has not taken note yet.
	Stale bool
	// Unpreparable: something may have run on it that cannot be prepared, but can be committed. What the session keeps
	// there (temporary objects, a lock that it takes once more) is that: PostgreSQL, PREPARE TRANSACTION.
	Unpreparable bool
	// opened: the conversation is the schema change's, which gives it back.
	opened bool
}

// open reports whether a transaction is open on the part, as far as is known.
func (p *Participant) open() bool { return p.Begun || p.Conn.Status() != 'I' }

// savepoint notes the settings that it has after SAVEPOINT, RELEASE or ROLLBACK TO.
func (p *Participant) savepoint(op string, at int) {
	switch op {
	case "savepoint":
		p.saves = append(p.saves, p.Conn.Settings())
	case "release":
		p.saves = p.saves[:min(at, len(p.saves))]
	case "rollback to":
		if p.Stale = false; at < len(p.saves) {
			p.Conn.SetSettings(p.saves[at])
			p.saves = p.saves[:at+1]
		}
	}
}

// Find returns the part of a shard, nil if it has none.
func (c *Transaction) Find(shard string) *Participant {
	for _, p := range c.Joined {
		if p.Shard == shard {
			return p
		}
	}
	return nil
}

// Participant returns the part of a shard; it borrows a conversation for it if there is
// none. shard "" is any one, best one that takes part already. write says that
// what will run there may write: the part then takes part in the commit. The
// transaction begins on it with the first text (send). Errors: those of
// Executor.Acquire; 57014 if the statement was cancelled.
func (c *Transaction) Participant(ctx context.Context, shard string, write bool) (*Participant, error) {
	if shard == "" {
		if len(c.Joined) > 0 {
			shard = c.Joined[0].Shard
		} else if c.Change != nil {
			shard = c.host.Snapshot().State().DefaultShard
		} else {
			shard = c.Ex.Any()
		}
	}
	if write {
		if err := c.Ex.Refusal(shard, true); err != nil {
			return nil, err
		}
	}
	p := c.Find(shard)
	if p == nil && c.Change != nil {
		return c.open(ctx, shard, write)
	}
	if p == nil {
		conn, err := c.Reader(ctx, shard)
		if err != nil {
			return nil, err
		}
		if conn == nil {
			if conn, err = c.atHand(shard, c.Base()); err != nil {
				return nil, err
			}
		}
		if conn == nil {
			for _, loose := range c.loose() {
				c.GiveBack(loose)
			}
			conn, err = c.Borrow(ctx, shard)
		} else {
			conn, err = c.Borrowed(conn)
		}
		if err != nil {
			return nil, err
		}
		return c.Join(ctx, conn, write)
	}
	if write && !p.Wrote {
		if err := c.joins(ctx, p, write); err != nil {
			return nil, err
		}
	}
	c.mayWrite(p, write)
	return p, nil
}

// Join makes a part of a borrowed conversation. Where the session keeps one with that shard, that is the part.
func (c *Transaction) Join(ctx context.Context, conn *executor.Conn, write bool) (*Participant, error) {
	if kept := c.host.Kept(conn.Shard()); kept != nil && kept != conn && !conn.OnReplica() {
		c.GiveBack(conn)
		if err := applied(kept, c.Base()); err != nil {
			return nil, err
		}
		var err error
		if conn, err = c.Borrowed(kept); err != nil {
			return nil, err
		}
	}
	p := &Participant{Shard: conn.Shard(), Conn: conn, base: conn.Settings(), Unpreparable: conn.Pinned()}
	p.Pipe.Conn, p.Pipe.Inner = conn, true
	if err := c.joins(ctx, p, write); err != nil {
		c.GiveBack(conn)
		return nil, err
	}
	c.Joined = append(c.Joined, p)
	c.host.Joined(p.Shard)
	c.mayWrite(p, write)
	return p, nil
}

// KeepParticipant makes the shard's part one whose conversation the session is about to keep.
func (c *Transaction) KeepParticipant(shard string) (*executor.Conn, error) {
	p, err := c.Participant(c.Ctx, shard, true)
	if err != nil {
		return nil, err
	}
	p.Unpreparable = true
	return p.Conn, nil
}

func (c *Transaction) mayWrite(p *Participant, write bool) {
	// What may write in a READ ONLY transaction (a lock, a notification) has nothing to be prepared, but for temporary tables.
	if write && !p.Wrote && (!c.ReadOnly || p.Unpreparable) {
		p.Wrote = true
		c.host.Wrote(p.Conn)
	}
	if write && c.Counts && p.Shard == c.host.Snapshot().State().DefaultShard {
		p.Conn.Count(c.host.Counter())
	}
}

// Participants returns the parts of several shards, in their order. Conversations are
// waited for in the same order by everybody, so that two statements do not wait for
// each other's (see borrowAll).
func (c *Transaction) Participants(ctx context.Context, shards []string, write bool) ([]*Participant, error) {
	for _, s := range shards {
		if err := c.Ex.Refusal(s, write); err != nil {
			return nil, err // before anything is begun on others
		}
	}
	var missing []string
	for _, s := range shards {
		if c.Find(s) == nil {
			missing = append(missing, s)
		}
	}
	var fresh []*executor.Conn
	if len(missing) > 0 && c.Change == nil {
		have := c.loose()
		missing = missing[:0]
		for _, s := range shards {
			if c.Find(s) == nil {
				missing = append(missing, s)
			}
		}
		var err error
		if fresh, err = c.fresh(ctx, missing, have); err != nil {
			return nil, err
		}
	}
	parts := make([]*Participant, 0, len(shards))
	for _, s := range shards {
		var p *Participant
		var err error
		if len(fresh) > 0 && fresh[0].Shard() == s {
			p, err = c.Join(ctx, fresh[0], write)
			fresh = fresh[1:]
		} else {
			p, err = c.Participant(ctx, s, write)
		}
		if err != nil {
			for _, conn := range fresh {
				c.GiveBack(conn)
			}
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// fresh borrows conversations with several shards, in their order: with replicas where
// these may be read, else by borrowAll.
func (c *Transaction) fresh(ctx context.Context, shards []string, have []*executor.Conn) ([]*executor.Conn, error) {
	if !c.replicas {
		return c.borrowAll(ctx, shards, c.Base(), have)
	}
	readers := make([]*executor.Conn, len(shards))
	fail := func(err error) ([]*executor.Conn, error) {
		for _, conn := range append(readers, have...) {
			if conn != nil {
				c.GiveBack(conn)
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
			if readers[i], err = c.Reader(ctx, s); err != nil {
				return fail(err)
			}
		}
		if readers[i] == nil {
			rest = append(rest, s)
		}
	}
	others, err := c.borrowAll(ctx, rest, c.Base(), have)
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
func (c *Transaction) loose() (conns []*executor.Conn) {
	if c.Change != nil {
		return nil
	}
	c.Joined = slices.DeleteFunc(c.Joined, func(p *Participant) bool {
		if p.Begun || p.Direct || p.Busy != nil || p.Stale || p.Wrote || p.Conn.Broken() || p.Conn.Status() != 'I' {
			return false
		}
		conns = append(conns, p.Conn)
		return true
	})
	return conns
}

// base are the settings of the transaction's beginning.
func (c *Transaction) Base() *executor.Settings {
	if c.based {
		return c.base
	}
	return c.host.Settings()
}

// Borrow acquires a conversation with a shard that is cancelled with all others.
// It has the settings of the transaction's beginning. GiveBack has to follow,
// unless it becomes a part's.
func (c *Transaction) Borrow(ctx context.Context, shard string) (*executor.Conn, error) {
	return c.borrowWith(ctx, shard, c.Base())
}

// Begin opens the transaction on the part, unless that can go with the text that
// follows; then it returns true.
func (c *Transaction) Begin(p *Participant) (batched bool, err error) {
	if p.Begun {
		return false, nil
	}
	if c.Block && c.Proven != nil && !c.Proven[p.Shard] {
		e := sqlstate.New(sqlstate.CannotConnectNow, "shard %s could not be reached when the transaction took its snapshots", p.Shard).
			WithHint("nothing was committed: run the transaction again when cleave doctor finds the shard").OnShard(p.Shard)
		e.Retry = sqlstate.RetryTransaction
		return false, e
	}
	p.since = c.host.Snapshot()
	begin := c.BeginText
	if begin == "" || !c.Block {
		begin = p.BeginText()
	}
	changes := p.Conn.LocalChanges(c.host.Settings())
	if len(c.Modes) == 0 && c.Saves.Len() == 0 && len(changes) == 0 && (plain(begin) || !c.Block) {
		p.Begun = true
		return true, nil
	}
	all := append([]string{begin}, c.Modes...)
	if c.HasNamed() {
		// Which of them the shard has is asked first.
		p.Begun = true
		if _, err := p.Conn.Exec(begin); err != nil {
			return false, c.Failure(p, err)
		}
		for _, m := range c.Modes {
			if err := c.setsNamed(p, m); err != nil {
				return false, err
			}
		}
		all = nil
	}
	p.saves = p.saves[:0]
	for s := range c.Saves.All() {
		all = append(all, "SAVEPOINT "+executor.QuoteIdentifier(s))
		p.saves = append(p.saves, p.base)
	}
	all = append(all, changes...)
	p.Begun = true // whatever comes of it, it has to be ended
	if len(all) > 0 {
		if _, err := p.Conn.Exec(strings.Join(all, ";")); err != nil {
			return false, c.Failure(p, err)
		}
	}
	p.Conn.SetSettings(c.host.Settings())
	return false, nil
}

// Maps are the maps by which a part leaves out rows that it does not own: snap,
// and, if its transaction sees rows as they were when it began, that of then.
func (c *Transaction) Maps(p *Participant, snap *shardmap.Snapshot) []*shardmap.Snapshot {
	if p.since == nil || p.since == snap || !c.Lasting(p) {
		return []*shardmap.Snapshot{snap}
	}
	return []*shardmap.Snapshot{snap, p.since}
}

// Lasting reports whether all statements on a part have one snapshot of its rows.
func (c *Transaction) Lasting(p *Participant) bool {
	if p.Begin != "" || c.Proven[p.Shard] {
		return true
	}
	level := strings.ToUpper(c.Isolation())
	return strings.Contains(level, "REPEATABLE") || strings.Contains(level, "SERIALIZABLE")
}

// BeginText begins a transaction outside of a block.
func (p *Participant) BeginText() string {
	if p.Begin != "" {
		return p.Begin
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

// known notes the settings of a part on which a SET ran.
func (c *Transaction) known(p *Participant) {
	if p.Stale {
		p.Stale = false
		p.Conn.SetSettings(c.host.Settings())
	}
}

// Settle gives a part that is in the transaction the session's settings, until
// the transaction ends.
func (c *Transaction) Settle(p *Participant) error {
	c.known(p)
	want := c.host.Settings()
	if p.Conn.Settings().Equal(want) {
		return nil
	}
	if changes := p.Conn.LocalChanges(want); len(changes) > 0 {
		if _, err := p.Conn.Exec(strings.Join(changes, ";")); err != nil {
			return c.Failure(p, err)
		}
	}
	p.Conn.SetSettings(want)
	return nil
}

// Exec runs a message of the router's own on a part and decodes its result.
func (c *Transaction) Exec(p *Participant, sql string) (*engine.Result, error) {
	if p.Busy != nil {
		return nil, p.Unread()
	}
	if batched, err := c.Begin(p); err != nil {
		return nil, err
	} else if batched {
		if _, err := p.Conn.Exec(p.BeginText()); err != nil {
			return nil, c.Failure(p, err)
		}
	}
	if err := c.Settle(p); err != nil {
		return nil, err
	}
	res, err := p.Conn.Exec(sql)
	if err != nil {
		return nil, c.Failure(p, err)
	}
	return res, nil
}

// Unread is the error of a text for a part that still answers another one.
func (p *Participant) Unread() error {
	return sqlstate.New(sqlstate.InternalError, "the conversation with shard %s still answers another statement", p.Shard).OnShard(p.Shard)
}

// Failure is the error of a statement that failed on a part. A part that is lost
// takes the transaction with it: nothing of it is committed.
func (c *Transaction) Failure(p *Participant, err error) error {
	c.culprit = p.Shard
	var se *sqlstate.Error
	if errors.As(err, &se) && engine.Lost(err) == nil && se.Severity != "FATAL" && se.Severity != "PANIC" {
		if se.Code == sqlstate.QueryCanceled {
			if cause := context.Cause(c.Ctx); cause != nil {
				return cause
			}
		}
		if executor.Roleless(se.Code) {
			p.Conn.Doubt()
		}
		if refusal := c.refine(se); refusal != nil {
			return refusal.OnShard(p.Shard)
		}
		e := *se
		if e.Shard == "" {
			e.Shard = p.Shard
		}
		return &e
	}
	p.Conn.Break()
	c.Lost, c.Aborted = true, true
	if cause := context.Cause(c.Ctx); cause != nil {
		return cause
	}
	if c.Block || p.Wrote {
		return &sqlstate.Error{
			Code: sqlstate.SerializationFailure, Shard: p.Shard, Err: err, Retry: sqlstate.RetryTransaction,
			Message: fmt.Sprintf("the connection to shard %s was lost: the transaction was rolled back", p.Shard),
			Hint:    "nothing was committed: run the transaction again",
		}
	}
	e := p.Conn.Lost(err, false)
	return e
}

// StopAll stops what is still running on parts, so that the transaction can be
// ended on them.
func (c *Transaction) StopAll() {
	var busy []*Participant
	for _, p := range c.Joined {
		if p.Busy != nil {
			busy = append(busy, p)
		}
	}
	if len(busy) == 0 {
		return
	}
	for _, p := range busy {
		if p.Conn.SetDeadline(time.Now().Add(stopMax)) != nil {
			p.Conn.Break()
		}
	}
	c.mu.Lock()
	ctx, cancel := context.WithTimeout(context.Background(), cancelMax)
	_ = c.cancelLive(ctx, true) // it is asked again
	cancel()
	c.insist()
	c.mu.Unlock()
	for _, p := range busy {
		p.Busy.Drain()
	}
	c.Calm()
	for _, p := range busy {
		if !p.Conn.Broken() && p.Conn.SetDeadline(c.DeadlineNow()) != nil {
			p.Conn.Break()
		}
	}
}
