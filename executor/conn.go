package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// Conn is a pooled conversation with a shard. One goroutine uses it, between
// Acquire and Release; Cancel may come from another.
type Conn struct {
	engine.Conn
	async    engine.Async // Conn, if it can do without a waiting goroutine
	shard    string
	pool     *pool // nil: not from a pool; Release closes it
	baseline *baseline
	login    *Login // whose it is; nil: the one of the shard's URL

	born      time.Time
	bornAt    engine.LSN // the server's place in the log then, of a shard with several
	idleSince time.Time

	settings *Settings
	prepared preparedSet
	numbers  *numbers // nil: OIDs are as clients know them
	using    *oids    // of the OIDs that were asked for last
	// turn counts Acquires.
	turn uint64
	// unnamed is the owner of the unnamed prepared statement, nil if there is none.
	unnamed any

	// counter is whose values of sequences its session has; nil: nobody's. sweep: it
	// has others as well, which have to be discarded first. saved: the counter's
	// session has not used it since lastval() was saved.
	counter *Counter
	sweep   uint8
	saved   bool
	// restored is closed when pool.restore has ended, which takes restoreMax at most.
	restored atomic.Pointer[chan struct{}]

	pinned  bool // see Pin
	gone    bool // it does not count among its pool's any more; under the pool's mutex
	soiled  bool // see Soil
	grouped bool // see Group

	// holder is who has borrowed it, nil for the router's own uses; reclaimed: it was taken back.
	holder    *Holder
	reclaimed atomic.Bool

	status byte // of the last ReadyForQuery
	broken bool
	heard  bool // it answered since it was acquired
	// asked is when something was sent whose answer is outstanding, Unix
	// nanoseconds; 0 if nothing is.
	asked atomic.Int64
	// limited: a deadline is set.
	limited atomic.Bool
}

// NewConn wraps a conversation that does not come from a pool (the virtual
// database), so that a Pipeline can use it. Release closes it.
func NewConn(name string, c engine.Conn) *Conn {
	return &Conn{Conn: c, shard: name, status: 'I', prepared: preparedSet{max: 16}, born: time.Now()}
}

// Shard returns the shard's name.
func (c *Conn) Shard() string { return c.shard }

// ShardName is a lasting pointer to the shard's name, for code that shows it later.
func (c *Conn) ShardName() *string {
	if c.pool != nil {
		return &c.pool.name
	}
	return &c.shard
}

// Metrics are the shard's, nil for a conversation that is not pooled.
func (c *Conn) Metrics() *telemetry.Shard {
	if c.pool == nil {
		return nil
	}
	return c.pool.metrics
}

// Status is the transaction status of the last ReadyForQuery: 'I', 'T' or 'E'.
func (c *Conn) Status() byte { return c.status }

// Broken reports whether the conversation is over.
func (c *Conn) Broken() bool { return c.broken }

// Break marks the conversation as not to be used again; Release closes it.
func (c *Conn) Break() { c.broken = true }

// Settings returns the settings that are applied.
func (c *Conn) Settings() *Settings { return c.settings }

// SetSettings notes that a statement relayed to the shard has changed the
// applied settings to s.
func (c *Conn) SetSettings(s *Settings) { c.settings = s }

// Apply makes s the applied settings; one round trip if they differ. An error of
// the shard leaves the settings unknown, so the Conn is broken then.
func (c *Conn) Apply(s *Settings) error {
	said, err := c.apply(s, nil)
	if said == nil {
		return err
	}
	said.Message = fmt.Sprintf("the session's settings cannot be applied: %s", said.Message)
	if said.Hint == "" {
		said.Hint = "RESET the setting, or give it in a form that every shard accepts"
	}
	return said
}

// ApplyReport is Apply that tells report of each ParameterStatus. What the shard says is left as it is.
func (c *Conn) ApplyReport(s *Settings, report func(name, value string)) error {
	said, err := c.apply(s, report)
	if said != nil {
		return said
	}
	return err
}

// apply is Apply; said is an error that the shard answered.
func (c *Conn) apply(s *Settings, report func(name, value string)) (said *sqlstate.Error, err error) {
	if c.settings.Equal(s) {
		return nil, nil
	}
	changes := s.changes(c.settings)
	if len(changes) == 0 {
		c.settings = s
		return nil, nil
	}
	p := Pipeline{Conn: c}
	p.Query(strings.Join(changes, ";"))
	o, err := p.Run(None, reports(report))
	if err != nil {
		return nil, err
	}
	if o.Err != nil {
		c.broken = true
		e := *o.Err
		e.Position, e.Shard, e.Severity = 0, c.shard, ""
		return &e, nil
	}
	c.settings = s
	return nil, nil
}

// reports is a Sink for the router's own statements: answers are dropped.
type reports func(name, value string)

// Frames drops b.
func (reports) Frames(b []byte) error { return nil }

// Parameter tells the function, if there is one.
func (r reports) Parameter(name, value string) {
	if r != nil {
		r(name, value)
	}
}

// LocalChanges returns the statements that give a conversation inside a
// transaction the settings s until the transaction ends.
func (c *Conn) LocalChanges(s *Settings) []string {
	return locally(s.changes(c.settings))
}

// LastingChanges returns the statements that give a conversation inside a transaction the settings s, also after its COMMIT, which would
// have left was and is to leave keep. A role that stays is left alone: it may be one of SET LOCAL, which ends.
func (c *Conn) LastingChanges(s, was, keep *Settings) []string {
	from := c.settings
	for _, l := range [][]Setting{was.list(), keep.list()} {
		for _, e := range l { // what SET LOCAL has made the same already is set for good as well
			before, had := was.Get(e.Name)
			if after, has := keep.Get(e.Name); before != after || had != has {
				from = from.With(e.Name, "\x00") // which none is
			}
		}
	}
	if was, ok := from.Get("role"); ok {
		if now, still := s.Get("role"); still && now == was {
			from, s = from.Without("role"), s.Without("role")
		}
	}
	return s.changes(from)
}

// Alike returns the statements that give conversations the settings s for the rest of the transaction, whichever of those in
// seen each of them has.
func (s *Settings) Alike(seen ...*Settings) []string {
	var from *Settings
	for _, l := range append(seen, s) {
		for _, e := range l.list() {
			from = from.With(e.Name, "\x00") // which none is
		}
	}
	return locally(s.changes(from))
}

func locally(changes []string) []string {
	var local []string
	for _, sql := range changes {
		local = append(local, forTransaction(sql))
	}
	return local
}

// Exec runs one simple-protocol message of the router's own and decodes its
// result. A shard's error is a *sqlstate.Error and leaves the Conn usable.
func (c *Conn) Exec(sql string) (*engine.Result, error) {
	if err := c.Ask(sql); err != nil {
		return nil, err
	}
	return c.Answer(nil)
}

// Ask is the first half of Exec: it sends the message. If it returns nil, Answer
// must follow; after an error the Conn is broken.
func (c *Conn) Ask(sql string) error {
	c.unnamed = nil
	c.asked.Store(time.Now().UnixNano())
	err := engine.Ask(c.Conn, sql)
	if err != nil {
		c.asked.Store(0)
		c.broken = true
	}
	return err
}

// AskAll is Ask for several messages at once; Answers must follow.
func (c *Conn) AskAll(texts ...string) error {
	c.unnamed = nil
	var frames []byte
	for _, sql := range texts {
		frames = wire.AppendQuery(frames, sql)
	}
	c.asked.Store(time.Now().UnixNano())
	err := c.Send(frames)
	if err != nil {
		c.asked.Store(0)
		c.broken = true
	}
	return err
}

// Answer is the second half of Exec. aside, if it is not nil, is given the whole
// frames of notices and reported parameters, valid during the call.
func (c *Conn) Answer(aside func(frame []byte)) (*engine.Result, error) {
	all, err := c.Answers(1, aside)
	if len(all) == 0 {
		return nil, err
	}
	return all[0], err
}

// Answers reads the answers to n messages. An error of the shard's is the first
// message's that failed, and leaves the Conn usable.
func (c *Conn) Answers(n int, aside func(frame []byte)) ([]*engine.Result, error) {
	all, err := engine.Answers(c.Conn, n, aside)
	c.asked.Store(0)
	c.heard = c.heard || len(all) > 0
	if len(all) > 0 && all[len(all)-1].Status != 0 {
		c.status = all[len(all)-1].Status
	}
	if len(all) < n {
		c.broken = true
	}
	return all, err
}

// PID is the number of the conversation's process on the shard's server, 0 if
// it has none. Safe to call from another goroutine.
func (c *Conn) PID() uint32 {
	if b, ok := c.Conn.(engine.Backend); ok {
		return b.PID()
	}
	return 0
}

// Group says which transaction over several shards the conversation takes part in,
// until it is released: see engine.Grouped.
func (c *Conn) Group(id uint64) {
	if g, ok := c.Conn.(engine.Grouped); ok {
		g.SetGroup(id)
		c.grouped = id != 0
	}
}

// WriteLock is that of engine.Grouped, nothing for other engines.
func (c *Conn) WriteLock() (has bool, waits time.Time) {
	if g, ok := c.Conn.(engine.Grouped); ok {
		return g.WriteLock()
	}
	return false, time.Time{}
}

// Asked reports whether an answer is outstanding. Safe to call from another goroutine.
func (c *Conn) Asked() bool { return c.asked.Load() != 0 }

// CanPrepare reports whether the shard can prepare transactions durably.
func (c *Conn) CanPrepare() bool {
	tp, ok := c.Conn.(engine.TwoPhase)
	return ok && tp.CanPrepare()
}

// Settle learns the transaction status of a conversation that others used.
func (c *Conn) Settle() {
	c.unnamed = nil
	res, err := engine.Exec(c.Conn, "")
	if err != nil || res.Status == 0 {
		c.broken = true
		return
	}
	c.status = res.Status
}

// quiet reports whether a loop watches the socket and nothing happened on it, so
// that there is no need to probe it.
func (c *Conn) quiet() bool {
	l := c.Lane()
	return l != nil && l.Quiet()
}

// alive looks whether an idle conversation is still good.
func (c *Conn) alive() bool {
	if p, ok := c.Conn.(engine.Prober); ok {
		return p.Probe() == nil
	}
	if c.SetDeadline(time.Now().Add(2*time.Second)) != nil {
		return false
	}
	c.Settle()
	return !c.broken && c.status == 'I' && c.SetDeadline(time.Time{}) == nil
}

// Failed reports whether the shard has said an error that was not received yet, while it takes a COPY's data.
func (c *Conn) Failed() bool {
	o, ok := c.Conn.(engine.Overhearer)
	return ok && o.Failed()
}

// Pin makes Release do nothing while the Conn works: its session keeps it, because
// something of the session's is in it (temporary tables, advisory locks). It still
// counts among the pool's.
func (c *Conn) Pin() { c.pinned = true }

// Soil says that what the conversation's session holds is not known: settings, a
// role, locks, channels. Nobody gets the Conn before that is put back.
func (c *Conn) Soil() { c.soiled = true }

// Reset gives the session its own settings and role back; what else it has it keeps.
func (c *Conn) Reset() error {
	sql := "RESET ALL"
	if c.pool.relays() {
		sql = "RESET SESSION AUTHORIZATION; RESET ALL" // a SQLite file has no roles
	}
	_, err := c.Exec(sql)
	c.settings, c.soiled = nil, false
	return err
}

// Unpin ends Pin. What is in the Conn's session ends with it, so it is closed
// when it is released.
func (c *Conn) Unpin() { c.pinned, c.broken = false, true }

// Loosen ends Pin where what was kept is gone. The Conn is put back before anybody gets it.
func (c *Conn) Loosen() {
	c.pinned = false
	c.Soil()
}

// Pinned reports whether a session keeps the Conn.
func (c *Conn) Pinned() bool { return c.pinned }

// SetDeadline implements engine.Conn. Release takes the deadline off, so that no other use is bounded by it.
func (c *Conn) SetDeadline(t time.Time) error {
	c.limited.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

// Release gives the Conn back to its pool, or closes it if it is broken or not
// outside a transaction. It must not be used afterwards, unless it is pinned.
func (c *Conn) Release() {
	if c.limited.Load() && !c.broken && c.SetDeadline(time.Time{}) != nil {
		c.broken = true
	}
	if c.grouped {
		c.Group(0)
	}
	if c.pinned && !c.broken {
		return
	}
	if c.pool == nil {
		c.hangUp()
		return
	}
	if c.reclaimed.Load() {
		return
	}
	c.leaves()
	c.pool.release(c)
}

const (
	// hangUpFirst and hangUpTries say how often and how long hangUp insists: for
	// about 600 ms. cancelMax bounds one Cancel, which may have to dial.
	hangUpFirst = 20 * time.Millisecond
	hangUpTries = 5
	cancelMax   = time.Second
)

// hangUp closes the conversation. What still runs in it is cancelled first: a
// server that computes, or waits for a lock, does not notice a closed socket. A
// cancel that overtakes its statement is ignored, hence several.
func (c *Conn) hangUp() {
	if c.asked.Load() != 0 {
		pause := hangUpFirst
		for range hangUpTries {
			ctx, stop := context.WithTimeout(context.Background(), cancelMax)
			err := c.Conn.Cancel(ctx)
			stop()
			if err != nil || c.ends(pause) {
				break
			}
			pause *= 2
		}
	}
	c.counter.left(c)
	_ = c.Conn.Close() // whatever is wrong with it, it is gone
}

// ends waits for the end of what runs, for so long at most.
func (c *Conn) ends(within time.Duration) bool {
	until := time.Now().Add(within)
	if c.SetDeadline(until) == nil {
		for {
			b, err := c.Conn.Receive()
			for err == nil && len(b) > 0 {
				var f wire.Frame
				var ok bool
				if f, b, ok, err = wire.Cut(b); !ok {
					break
				}
				if f.Type() == wire.ReadyForQuery {
					return true
				}
			}
			if err != nil {
				break
			}
		}
	}
	time.Sleep(time.Until(until)) // closed at this end: nothing can be heard
	return false
}

// Lost turns a failed Send or Receive into the error for a client: 08007 if a
// write or a COMMIT was in flight, else 57P03 (nothing was done). cause may be a
// *sqlstate.Error already, which is returned as it is.
func (c *Conn) Lost(cause error, inFlight bool) *sqlstate.Error {
	var se *sqlstate.Error
	if l := engine.Lost(cause); l != nil {
		if l.Shard == "" {
			l.Shard = c.shard
		}
		return l.State(inFlight)
	}
	if errors.As(cause, &se) {
		return se
	}
	return (&engine.LostError{Shard: c.shard, Sent: true, Err: cause}).State(inFlight)
}
