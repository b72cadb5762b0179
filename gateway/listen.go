package gateway

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Notifications go through the default shard: NOTIFY runs there, in the session's
// transaction, and each router has one conversation with it that listens to all
// channels of its sessions (the exchange). What arrives goes to the sessions' queues, and
// from there to their clients whenever they are outside of a transaction, also
// while nothing else happens. If that conversation is lost, so may be
// notifications: the sessions that listen end, as with PostgreSQL. They end as well when another shard becomes the default
// shard: other routers may have notified there before this one knew.

// ears are a session's channels and what has arrived on them.
type ears struct {
	channels map[string]bool
	// added are the channels that the open transaction began to listen to, off what
	// it is to leave at its commit ("" for all).
	added, off []string
	barrier    bool // the session notified in this unit, and listens itself
	// asked is the answer to what the exchange was asked when the unit began: what was notified before has come when it is
	// there. late: one was waited for in vain, and has not come since.
	asked chan *sqlstate.Error
	late  bool

	mu    sync.Mutex
	queue []byte // NotificationResponse frames
	lost  string // why some may not have arrived
}

// queueMax bounds the notifications that wait for one client, in bytes.
const queueMax = 4 << 20

// exchange is a router's conversation that listens.
type exchange struct {
	srv *Server

	mu       sync.Mutex
	conn     engine.Conn
	sessions map[string]map[*session]bool
	answers  []chan *sqlstate.Error // of what was sent, in order; nil: nobody waits
	moved    bool                   // the conversation is with a former default shard
}

// listen runs LISTEN and UNLISTEN.
func (x *session) listen(l *planner.Listen) error {
	if l.Off {
		if x.tx.state != txNone {
			x.ears.off = append(x.ears.off, l.Channel)
			if len(x.ears.off) > x.srv.limits.DeferredMax {
				return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has run UNLISTEN %d times", len(x.ears.off))
			}
			return nil
		}
		// PostgreSQL has told an idle session already what was notified before.
		if err := x.deliver(); err != nil {
			return err
		}
		x.unlisten(l.Channel)
		return nil
	}
	if x.tx.state != txNone {
		x.ears.again(l.Channel)
	}
	if x.ears.channels[l.Channel] {
		return nil
	}
	if len(x.ears.channels) >= x.srv.limits.ChannelsMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the session listens to %d channels already", len(x.ears.channels))
	}
	if x.ears.channels == nil {
		x.ears.channels = map[string]bool{}
	}
	ctx, done := x.waiting()
	defer done()
	ctx, stop := context.WithTimeout(ctx, x.srv.limits.CancelMax)
	defer stop()
	if err := x.srv.exchange.listen(ctx, x, l.Channel); err != nil {
		return userCancel(err)
	}
	x.ears.channels[l.Channel] = true
	if x.tx.state != txNone {
		x.ears.added = append(x.ears.added, l.Channel)
	}
	return nil
}

// again takes a channel out of what the transaction has given up before.
func (e *ears) again(channel string) {
	var off []string
	for _, name := range e.off {
		switch {
		case name == "":
			for c := range e.channels {
				if c != channel {
					off = append(off, c)
				}
			}
		case name != channel:
			off = append(off, name)
		}
	}
	e.off = off
}

func (x *session) unlisten(channel string) {
	for name := range x.ears.channels {
		if channel == "" || name == channel {
			delete(x.ears.channels, name)
			x.srv.exchange.leave(x, name)
		}
	}
}

// settleEars is for the end of a transaction.
func (x *session) settleEars(committed bool) {
	if len(x.ears.added)+len(x.ears.off) == 0 {
		return
	}
	if committed {
		for _, name := range x.ears.off {
			x.unlisten(name)
		}
	} else {
		for _, name := range x.ears.added {
			x.unlisten(name)
		}
	}
	x.ears.added, x.ears.off = nil, nil
}

// deafen ends all listening.
func (x *session) deafen() {
	x.unlisten("")
	x.ears.mu.Lock()
	x.ears.queue = nil
	x.ears.mu.Unlock()
}

// deliverMax bounds the wait for notifications that other sessions were told are sent. They come later then.
const deliverMax = time.Second

// askEars begins to learn, beside the unit's statements, whether all has arrived that was notified before them.
func (x *session) askEars() {
	e := &x.ears
	if len(e.channels) == 0 {
		return
	}
	if e.late {
		select {
		case <-e.asked:
		default:
			return
		}
	}
	e.late, e.asked = false, x.srv.exchange.begin("")
}

// awaitEars waits for the answer to askEars.
func (e *ears) awaitEars() {
	if e.asked == nil || e.late {
		return
	}
	select {
	case <-e.asked:
	default:
		timer := time.NewTimer(deliverMax)
		defer timer.Stop()
		select {
		case <-e.asked:
		case <-timer.C:
			e.late = true
			return
		}
	}
	e.asked = nil
}

// deliver hands over what has arrived, outside of a transaction.
func (x *session) deliver() error {
	if len(x.ears.channels) == 0 || x.tx.state == txOpen {
		return nil
	}
	x.ears.awaitEars()
	if x.ears.barrier {
		// Its own notifications come before the end of the statement, as with PostgreSQL.
		x.ears.barrier = false
		ctx, stop := context.WithTimeout(context.Background(), deliverMax)
		_ = x.srv.exchange.ask(ctx, "") // they come later then
		stop()
	}
	x.ears.mu.Lock()
	queue, lost := x.ears.queue, x.ears.lost
	x.ears.queue = nil
	x.ears.mu.Unlock()
	for len(queue) > 0 {
		f, rest, ok, err := wire.Cut(queue)
		if err != nil || !ok {
			break
		}
		queue = rest
		if x.ears.channels[channelOf(f.Body())] {
			if err := x.w.put(f); err != nil {
				return err
			}
		}
	}
	if lost != "" {
		return sqlstate.New(sqlstate.AdminShutdown, "notifications were lost: %s", lost).
			WithHint("connect again, and look at what the notifications are about")
	}
	return nil
}

// hear delivers while the client is idle. An error ends the session.
func (x *session) hear() error {
	if x.tx.state != txNone || x.unit.open {
		return nil
	}
	err := x.deliver()
	if err == nil && len(x.w.buf) > 0 {
		err = x.w.flush()
	}
	if err != nil {
		return x.broken(err)
	}
	return nil
}

// channelOf reads the channel of a NotificationResponse.
func channelOf(body []byte) string {
	if len(body) < 4 {
		return ""
	}
	name, _, _ := wire.CutString(body[4:])
	return name
}

func (e *ears) put(frame []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue)+len(frame) > queueMax {
		e.lost = "too many waited for this client"
		return
	}
	e.queue = append(e.queue, frame...)
}

func quoteChannel(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// listen makes the exchange listen to a channel for a session.
func (e *exchange) listen(ctx context.Context, x *session, channel string) error {
	e.mu.Lock()
	if e.conn == nil {
		e.mu.Unlock()
		snap := e.srv.ex.Snapshot()
		conn, release, err := e.srv.ex.Connect(ctx, snap.State().DefaultShard)
		if err != nil {
			return err
		}
		e.mu.Lock()
		if e.conn == nil {
			e.conn, e.moved = conn, false
			open, end := context.WithCancel(context.Background())
			e.srv.wg.Go(func() { e.follow(open, conn, snap) })
			e.srv.wg.Go(func() {
				defer end()
				e.receive(conn, release)
			})
		} else {
			defer release(false)
		}
	}
	first := len(e.sessions[channel]) == 0
	if first {
		if e.sessions == nil {
			e.sessions = map[string]map[*session]bool{}
		}
		e.sessions[channel] = map[*session]bool{}
	}
	e.sessions[channel][x] = true
	e.mu.Unlock()
	// Not only the first one asks: the answer says that the first one's is in force.
	if err := e.ask(ctx, "LISTEN "+quoteChannel(channel)); err != nil {
		e.leave(x, channel)
		return err
	}
	return nil
}

// ask sends a statement and waits for its end.
func (e *exchange) ask(ctx context.Context, sql string) error {
	answer := make(chan *sqlstate.Error, 1)
	e.mu.Lock()
	err := e.send(sql, answer)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case said := <-answer:
		if said != nil {
			return said
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin is ask that does not wait: the channel is told the answer, nil is returned if there will be none.
func (e *exchange) begin(sql string) chan *sqlstate.Error {
	answer := make(chan *sqlstate.Error, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.send(sql, answer) != nil {
		return nil
	}
	return answer
}

// send is called with mu held.
func (e *exchange) send(sql string, answer chan *sqlstate.Error) error {
	if e.conn == nil {
		return sqlstate.New(sqlstate.CannotConnectNow, "the connection that notifications come by was lost")
	}
	if err := e.conn.Send(wire.AppendQuery(nil, sql)); err != nil {
		return err
	}
	e.answers = append(e.answers, answer)
	return nil
}

// leave ends a session's listening to a channel.
func (e *exchange) leave(x *session, channel string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.sessions[channel][x] {
		return
	}
	delete(e.sessions[channel], x)
	if len(e.sessions[channel]) > 0 {
		return
	}
	delete(e.sessions, channel)
	if len(e.sessions) > 0 {
		_ = e.send("UNLISTEN "+quoteChannel(channel), nil) // receive sees a broken conversation
		return
	}
	if e.conn != nil {
		_ = e.conn.Close() // receive ends by it
		e.end()
	}
}

// end forgets the conversation: the next LISTEN begins another one. It is called with mu held.
func (e *exchange) end() {
	for _, a := range e.answers {
		if a != nil {
			a <- sqlstate.New(sqlstate.CannotConnectNow, "the connection that notifications come by was lost").WithHint("run the statement again")
		}
	}
	e.conn, e.answers, e.sessions = nil, nil, nil
}

// follow ends the conversation when its shard is the default shard no more, or with ctx.
func (e *exchange) follow(ctx context.Context, conn engine.Conn, snap *shardmap.Snapshot) {
	shard := snap.State().DefaultShard
	for e.srv.ex.AwaitNewer(ctx, snap.Version()) == nil {
		if snap = e.srv.ex.Snapshot(); snap.State().DefaultShard != shard {
			e.mu.Lock()
			e.moved = e.moved || e.conn == conn
			e.mu.Unlock()
			_ = conn.Close() // receive ends by it
			return
		}
	}
}

// receive reads the conversation until it ends.
func (e *exchange) receive(conn engine.Conn, release func(bool)) {
	for {
		b, err := conn.Receive()
		if err != nil {
			break
		}
		e.frames(conn, b)
	}
	heard := map[*session]bool{}
	e.mu.Lock()
	why := "the connection that they come by broke"
	if e.moved {
		why = "they come by another shard now"
	}
	if e.conn == conn { // else nobody listened any more
		for _, list := range e.sessions {
			for x := range list {
				heard[x] = true
			}
		}
		e.end()
	}
	e.mu.Unlock()
	release(true)
	for x := range heard {
		x.ears.mu.Lock()
		x.ears.lost = why
		x.ears.mu.Unlock()
		x.wakeUp()
	}
}

func (e *exchange) frames(conn engine.Conn, b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(b) > 0 && e.conn == conn {
		f, rest, ok, err := wire.Cut(b)
		if err != nil || !ok {
			return
		}
		b = rest
		switch f.Type() {
		case wire.NotificationResponse:
			for x := range e.sessions[channelOf(f.Body())] {
				x.ears.put(f)
				x.wakeUp()
			}
		case wire.ErrorResponse:
			if len(e.answers) > 0 && e.answers[0] != nil {
				e.answers[0] <- wire.ParseReport(f.Body())
				e.answers[0] = nil
			}
		case wire.ReadyForQuery:
			if len(e.answers) > 0 {
				if e.answers[0] != nil {
					e.answers[0] <- nil
				}
				e.answers = e.answers[1:]
			}
		}
	}
}
