package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/gateway/stats"
	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// shardConns are the shards' conversations that the session borrows, and the one that it keeps. It chooses between the primary
// and replicas, makes settings, waits where it must, and runs statements of the router's own.
//
//	           acquire, acquireRead, obtain                Release
//	(pool) ────────────────────────────────▶ (holder) ─────────────────▶ (pool)
//	                                             │ Pin: temporary objects, session advisory locks
//	                                             ▼
//	                                           (pin) ──loosens, unpin──▶ (pool), or closed
type shardConns struct {
	ex         *executor.Executor
	log        *slog.Logger
	gucs       *settings.Session
	interrupts *interrupts
	stats      *stats.Session
	tx         *transaction
	pipe       *link
	client     *lane.Conn    // whose loop takes idle conversations, nil if there is none
	grace      time.Duration // Limits.CancelMax
	session    uint32        // its number

	// nowait: a loop's thread runs the session; what would have to wait for
	// something fails with errWait instead, before it has changed anything.
	nowait bool
	// holder has the shards' connections that the session has borrowed.
	holder executor.Holder
	// at is the name of the last shard, which cleave.sessions shows.
	at atomic.Pointer[string]

	// reads is the router's rule for reads. ruling is that of the settings ruleOf, see rule; hint is what the text at hand asks
	// for; writes are what the session has to see of its own. primary: a replica could not do the unit.
	reads   settings.ReadRule
	ruling  settings.ReadRule
	ruleOf  *executor.Settings
	ruled   bool
	hint    settings.ReadHint
	writes  executor.Writes
	primary bool

	counter *executor.Counter // of the default shard's own sequences

	// pin is the conversation that the session keeps, temps the names of temporary
	// tables and of types in pg_temp that may be in it; see pin.go. pins counts those of all sessions.
	pin           *executor.Conn
	temps         tempNames
	tempFunctions tempFunctions
	pins          *atomic.Int64
	// fleeting: it keeps pin for functions and types alone. dropped: some of them may be gone, or were never made.
	fleeting, dropped bool
}

// Knows implements [executor.Owner].
func (b *shardConns) Knows(c *executor.Conn) bool {
	if c == b.pin || c == b.tx.conn || c == b.pipe.Conn || b.tx.schema != nil {
		return true
	}
	for _, of := range []*executor.Conn{b.tx.conn, b.pipe.Conn} {
		if of == nil {
			continue
		}
		if s, ok := of.Conn.(*several.Conn); ok && s.Holds(c) {
			return true
		}
	}
	return false
}

// takesBack takes back the shards' connections that the session holds without knowing of them any more. There are none, but for
// a defect: each costs the pool a connection for as long as the session lasts.
func (b *shardConns) takesBack() {
	for _, c := range b.holder.Lost(b) {
		b.log.Error("a connection was taken back that a session had lost: please report it", telemetry.KeyShard, c.Shard(), "session", b.session)
		c.Reclaim()
	}
}

// rule returns the rule of the settings in effect.
func (b *shardConns) rule() settings.ReadRule {
	if b.ruleOf != b.gucs.Settings || !b.ruled {
		r := b.reads
		if v, ok := b.gucs.Settings.Get(settings.ReadPolicy); ok {
			r.Policy, _ = settings.ParseReadPolicy(settings.Unquoted(v))
		}
		if v, ok := b.gucs.Settings.Get(settings.MaxReplicaLag); ok {
			r.LagMax, _ = settings.ParseReplicaLag(settings.Unquoted(v))
		}
		b.ruling, b.ruleOf, b.ruled = r, b.gucs.Settings, true
	}
	r := b.ruling
	if b.hint.Given {
		r.Policy = b.hint.Policy
	}
	return r
}

// mayRead reports whether a statement that a replica could answer may go to one
// now, as far as the transaction is concerned.
func (b *shardConns) mayRead() bool {
	if b.primary || b.rule().Policy == executor.ReadPrimary {
		return false
	}
	if b.tx.state == txNone {
		// A replica takes no SERIALIZABLE, and in REPEATABLE READ all messages up to
		// a Sync have one snapshot.
		return !b.gucs.OneSnapshot()
	}
	return b.tx.readOnly() && !b.tx.serializable()
}

// obtain is acquire, or, for what any shard can answer, the acquisition of a
// conversation with one that does.
func (b *shardConns) obtain(shard string, u use, s *executor.Settings) (*executor.Conn, error) {
	if b.pin != nil && b.pin.Shard() == shard {
		return b.pinned(s)
	}
	if u.on != nil && u.on.Sequenced && u.on.ReadOnly {
		if b.nowait {
			return nil, errWait
		}
		b.ex.KeepCounters()
	}
	if u.reroutable == anchored {
		if u.replica && b.mayRead() {
			if b.nowait {
				return nil, errWait
			}
			if c, err := b.acquireRead(shard, s); c != nil || err != nil {
				return c, err
			}
		}
		return b.acquire(shard, s)
	}
	if b.nowait {
		return nil, errWait
	}
	if c := b.ex.Recount(b.counter, shard, s); c != nil {
		return b.mine(c)
	}
	defer b.stats.Waited(time.Now())
	ctx, done := b.interrupts.waiting()
	defer done()
	c, err := b.ex.AcquireAny(ctx, shard, s)
	if err != nil {
		return nil, userCancel(err)
	}
	return b.mine(c)
}

func (b *shardConns) acquire(shard string, s *executor.Settings) (*executor.Conn, error) {
	if c := b.counter.Conn(); b.nowait && c != nil && c.Shard() == shard && b.ex.CountersKept() {
		return nil, errWait
	} else if !b.nowait {
		if c = b.ex.Recount(b.counter, shard, s); c != nil {
			return b.mine(c)
		}
	}
	if b.nowait {
		c := b.ex.TryAcquireIn(b.client.Loop(), shard, s)
		if c == nil {
			return nil, errWait
		}
		return b.mine(c)
	}
	c := b.ex.TryAcquire(shard, s)
	if c == nil {
		defer b.stats.Waited(time.Now())
		ctx, done := b.interrupts.waiting()
		defer done()
		var err error
		if c, err = b.ex.Acquire(ctx, shard, s); err != nil {
			return nil, userCancel(err)
		}
	}
	return b.mine(c)
}

// acquireRead borrows a conversation with a replica; nil: with the primary.
func (b *shardConns) acquireRead(shard string, s *executor.Settings) (*executor.Conn, error) {
	ctx, done := b.interrupts.waiting()
	defer done()
	r := b.rule()
	c, err := b.ex.AcquireRead(ctx, shard, s, r.Policy, r.LagMax, &b.writes)
	if err != nil {
		return nil, userCancel(err)
	}
	if c == nil {
		return nil, nil
	}
	return b.mine(c)
}

// mine takes a conversation that was borrowed. One of another user is never used.
func (b *shardConns) mine(c *executor.Conn) (*executor.Conn, error) {
	if err := c.Belongs(b.gucs.Settings); err != nil {
		c.Release()
		return nil, err
	}
	c.HeldBy(&b.holder)
	b.at.Store(c.ShardName())
	return c, nil
}

// pinned is the kept conversation, with the settings.
func (b *shardConns) pinned(s *executor.Settings) (*executor.Conn, error) {
	if b.nowait {
		return nil, errWait
	}
	if b.pin.Broken() {
		return nil, b.lostPin()
	}
	if err := b.pin.Apply(s); err != nil {
		return nil, b.shardSaid(b.pin, err)
	}
	return b.pin, nil
}

func (b *shardConns) lostPin() *sqlstate.Error {
	return sqlstate.New(sqlstate.AdminShutdown, "the connection to shard %s that had this session's temporary tables and advisory locks is gone", b.pin.Shard()).
		OnShard(b.pin.Shard()).WithHint("connect again")
}

// exec runs a statement of the router's own on a conversation, cancellable.
func (b *shardConns) exec(c *executor.Conn, sql string) (*engine.Result, error) {
	if b.nowait {
		return nil, errWait
	}
	b.setRunning(c)
	defer b.setRunning(nil)
	return c.Exec(sql)
}

// shardSaid is the error of a statement of the router's own.
func (b *shardConns) shardSaid(c *executor.Conn, err error) error {
	var se *sqlstate.Error
	if errors.As(err, &se) {
		return se
	}
	if stopped := b.interrupts.stopped(); stopped != nil {
		return stopped.OnShard(c.Shard())
	}
	b.ex.Shun(c.Shard())
	return c.Lost(err, false)
}

// setRunning tells cancel requests what runs. With nil it waits for a cancel that is under way.
func (b *shardConns) setRunning(c *executor.Conn) {
	b.interrupts.setRunning(c, b.gucs.Settings, b.pipe.Statements())
}

// Planning implements [executor.Waiter]: a cancel request and statement_timeout end the wait for a plan.
func (b *shardConns) Planning() (ctx context.Context, done func()) {
	return b.interrupts.planning(b.gucs.Settings)
}

// endOn rolls back on c and gives it back with the settings that it had before.
func (b *shardConns) endOn(c *executor.Conn, before *executor.Settings) {
	if !c.Broken() {
		if _, err := b.exec(c, "ROLLBACK"); err != nil {
			c.Break()
		}
	}
	c.SetSettings(before)
	c.Release()
}

// localSettings gives a conversation of a schema change the session's settings, if they were changed after it began, or
// another statement was a schema change.
func (b *shardConns) localSettings(c *executor.Conn) error {
	if b.tx.schema == nil || c == b.tx.conn || c.Settings().Equal(b.gucs.OnShards()) {
		return nil
	}
	if changes := c.LocalChanges(b.gucs.OnShards()); len(changes) > 0 {
		if _, err := b.exec(c, strings.Join(changes, ";")); err != nil {
			return b.shardSaid(c, err)
		}
	}
	c.SetSettings(b.gucs.OnShards())
	return nil
}

// askBeside runs a SELECT on a connection of its own, with the client's parameters and after them the router's values, and
// returns its rows as text.
func (b *shardConns) askBeside(text string, ofDefault bool, args *plan.Args, values [][]byte) ([][][]byte, error) {
	shard := b.ex.Any()
	if ofDefault {
		shard = b.ex.Snapshot().State().DefaultShard
	}
	c, err := b.acquire(shard, b.gucs.Settings)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	var oids []uint32
	var body []byte
	own := 0
	if args != nil {
		oids, own = args.OIDs, len(args.Values)
	}
	body = wire.AppendInt16(body, int16(uint16(own+len(values))))
	for i := range own + len(values) {
		format := int16(0)
		if i < own {
			format = wire.FormatAt(args.Formats, i)
		}
		body = wire.AppendInt16(body, format)
	}
	body = wire.AppendInt16(body, int16(uint16(own+len(values))))
	for i := range own + len(values) {
		if i < own {
			body = wire.AppendValue(body, args.Values[i])
		} else {
			body = wire.AppendValue(body, values[i-own])
		}
	}
	body = wire.AppendInt16(body, 0) // all columns as text
	var p executor.Pipeline
	p.Conn = c
	p.Unnamed(new(byte), text, oids, c.Settings(), false)
	p.Bind("", "", body, false)
	p.Execute("", 0, nil)
	rows := &textRows{}
	if err := b.runBeside(&p, rows); err != nil {
		return nil, err
	}
	return rows.rows, nil
}

// runBeside sends what is queued for a connection of its own, which a cancel reaches meanwhile, and reads the answers.
func (b *shardConns) runBeside(p *executor.Pipeline, rows *textRows) error {
	c := p.Conn
	b.setRunning(c)
	o, err := p.Run(executor.Sync, rows)
	b.setRunning(nil)
	switch {
	case err != nil:
		c.Break()
		return c.Lost(err, false)
	case o.Err != nil:
		return &shardError{said: o.Err, frame: slices.Clone(p.ErrorFrame())}
	}
	return nil
}

// typesBeside returns the types of a statement's parameters; a shard that has not said them yet is asked on a connection of its own.
func (b *shardConns) typesBeside(s *statement) ([]uint32, error) {
	n := s.plan.Params
	for _, known := range [][]uint32{s.params, s.types, s.oids} {
		if len(known) >= n && !slices.Contains(known[:n], 0) {
			return known[:n], nil
		}
	}
	text, shard := s.plan.Text, b.ex.Any()
	if s.plan.Judged != "" {
		text = s.plan.Judged
	}
	if s.plan.Kind != plan.OneShard && s.plan.Kind != plan.AnyShard {
		shard = b.ex.Snapshot().State().DefaultShard
	}
	c, err := b.acquire(shard, b.gucs.Settings)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	var p executor.Pipeline
	p.Conn = c
	var said typesOf
	p.Unnamed(new(byte), text, s.oids, c.Settings(), false)
	p.CheckColumns("", &said)
	if err := b.runBeside(&p, &textRows{}); err != nil {
		return nil, err
	}
	if len(said.oids) < n {
		return nil, sqlstate.New(sqlstate.InternalError, "the shard did not say the types of %d parameters", n)
	}
	return said.oids[:n], nil
}

// textRows is a Sink that keeps the rows.
type textRows struct {
	rows [][][]byte
	err  error
}

// Frames keeps the rows in b.
func (r *textRows) Frames(b []byte) error {
	frames(b, func(typ byte, body []byte) {
		if typ == wire.DataRow {
			row, err := wire.SplitRow(slices.Clone(body), nil)
			r.rows, r.err = append(r.rows, row), errors.Join(r.err, err)
		}
	})
	return r.err
}

// Parameter is for a change of the connection's settings, which the statement cannot make.
func (r *textRows) Parameter(string, string) {}

// typesOf is told the types of a statement's parameters (executor.Watch, executor.TypeWatch).
type typesOf struct{ oids []uint32 }

// Described is for the columns, which are of no interest here.
func (t *typesOf) Described([]byte) *sqlstate.Error { return nil }

// Typed notes the types.
func (t *typesOf) Typed(oids []uint32) { t.oids = slices.Clone(oids) }
