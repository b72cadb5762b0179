// Package notify is LISTEN and NOTIFY over a cluster.
//
// Notifications go through the default shard: NOTIFY runs there, in the session's
// transaction, and each router has one conversation with it that listens to all
// channels of its sessions (the Exchange). What arrives goes to the sessions' queues
// (a Listener each), and from there to their clients whenever they are outside of a
// transaction, also while nothing else happens. If that conversation is lost, so may be
// notifications: the sessions that listen end, as with PostgreSQL. They end as well when
// another shard becomes the default shard: other routers may have notified there before
// this one knew.
//
//	           first LISTEN                    last UNLISTEN
//	(closed) ───────────────▶ (listening) ────────────────────▶ (closed)
//	    ▲                          │
//	    └── sessions are told ◀────┘ the connection breaks, or another default shard
package notify

import (
	"context"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Exchange is a router's conversation that listens.
type Exchange struct {
	ex    *executor.Executor
	spawn func(func()) // runs a goroutine that the server waits for

	mu        sync.Mutex
	conn      engine.Conn
	listeners map[string]map[*Listener]bool
	answers   []chan *sqlstate.Error // of what was sent, in order; nil: nobody waits
	moved     bool                   // the conversation is with a former default shard
}

// NewExchange makes one without a conversation.
func NewExchange(ex *executor.Executor, spawn func(func())) *Exchange {
	return &Exchange{ex: ex, spawn: spawn}
}

func quoteChannel(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// listen makes the exchange listen to a channel for a session.
func (e *Exchange) listen(ctx context.Context, l *Listener, channel string) error {
	e.mu.Lock()
	if e.conn == nil {
		e.mu.Unlock()
		snap := e.ex.Snapshot()
		conn, release, err := e.ex.Connect(ctx, snap.State().DefaultShard)
		if err != nil {
			return err
		}
		e.mu.Lock()
		if e.conn == nil {
			e.conn, e.moved = conn, false
			open, end := context.WithCancel(context.Background())
			e.spawn(func() { e.follow(open, conn, snap) })
			e.spawn(func() {
				defer end()
				e.receive(conn, release)
			})
		} else {
			defer release(false)
		}
	}
	first := len(e.listeners[channel]) == 0
	if first {
		if e.listeners == nil {
			e.listeners = map[string]map[*Listener]bool{}
		}
		e.listeners[channel] = map[*Listener]bool{}
	}
	e.listeners[channel][l] = true
	e.mu.Unlock()
	// Not only the first one asks: the answer says that the first one's is in force.
	if err := e.ask(ctx, "LISTEN "+quoteChannel(channel)); err != nil {
		e.leave(l, channel)
		return err
	}
	return nil
}

// ask sends a statement and waits for its end.
func (e *Exchange) ask(ctx context.Context, sql string) error {
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
func (e *Exchange) begin(sql string) chan *sqlstate.Error {
	answer := make(chan *sqlstate.Error, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.send(sql, answer) != nil {
		return nil
	}
	return answer
}

// send is called with mu held.
func (e *Exchange) send(sql string, answer chan *sqlstate.Error) error {
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
func (e *Exchange) leave(l *Listener, channel string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.listeners[channel][l] {
		return
	}
	delete(e.listeners[channel], l)
	if len(e.listeners[channel]) > 0 {
		return
	}
	delete(e.listeners, channel)
	if len(e.listeners) > 0 {
		_ = e.send("UNLISTEN "+quoteChannel(channel), nil) // receive sees a broken conversation
		return
	}
	if e.conn != nil {
		_ = e.conn.Close() // receive ends by it
		e.end()
	}
}

// end forgets the conversation: the next LISTEN begins another one. It is called with mu held.
func (e *Exchange) end() {
	for _, a := range e.answers {
		if a != nil {
			a <- sqlstate.New(sqlstate.CannotConnectNow, "the connection that notifications come by was lost").WithHint("run the statement again")
		}
	}
	e.conn, e.answers, e.listeners = nil, nil, nil
}

// follow ends the conversation when its shard is the default shard no more, or with ctx.
func (e *Exchange) follow(ctx context.Context, conn engine.Conn, snap *shardmap.Snapshot) {
	shard := snap.State().DefaultShard
	for e.ex.AwaitNewer(ctx, snap.Version()) == nil {
		if snap = e.ex.Snapshot(); snap.State().DefaultShard != shard {
			e.mu.Lock()
			e.moved = e.moved || e.conn == conn
			e.mu.Unlock()
			_ = conn.Close() // receive ends by it
			return
		}
	}
}

// receive reads the conversation until it ends.
func (e *Exchange) receive(conn engine.Conn, release func(bool)) {
	for {
		b, err := conn.Receive()
		if err != nil {
			break
		}
		e.frames(conn, b)
	}
	heard := map[*Listener]bool{}
	e.mu.Lock()
	why := "the connection that they come by broke"
	if e.moved {
		why = "they come by another shard now"
	}
	if e.conn == conn { // else nobody listened any more
		for _, list := range e.listeners {
			for l := range list {
				heard[l] = true
			}
		}
		e.end()
	}
	e.mu.Unlock()
	release(true)
	for l := range heard {
		l.mu.Lock()
		l.lost = why
		l.mu.Unlock()
		l.wake()
	}
}

func (e *Exchange) frames(conn engine.Conn, b []byte) {
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
			for l := range e.listeners[channelOf(f.Body())] {
				l.enqueue(f)
				l.wake()
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
