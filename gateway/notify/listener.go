package notify

import (
	"context"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// Listener is a session's channels and what has arrived on them. Its session's goroutine alone calls it, but for what is under mu.
type Listener struct {
	exchange *Exchange
	wake     func() // the session's loop: something has arrived
	limits   Limits

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

// Limits bound a listener.
type Limits struct {
	Channels int           // at once
	Deferred int           // UNLISTENs of a transaction
	Wait     time.Duration // for the shard, at LISTEN
}

// queueMax bounds the notifications that wait for one client, in bytes.
const queueMax = 4 << 20

// deliverMax bounds the wait for notifications that other sessions were told are sent. They come later then.
const deliverMax = time.Second

// Listener makes one that listens to nothing. wake is called by the exchange's goroutine.
func (e *Exchange) Listener(limits Limits, wake func()) Listener {
	return Listener{exchange: e, wake: wake, limits: limits}
}

// Listens reports whether the session listens to any channel.
func (l *Listener) Listens() bool { return len(l.channels) > 0 }

// Listen begins to listen to a channel; inTx: until a rollback of the transaction that is open.
func (l *Listener) Listen(ctx context.Context, channel string, inTx bool) error {
	if inTx {
		l.again(channel)
	}
	if l.channels[channel] {
		return nil
	}
	if len(l.channels) >= l.limits.Channels {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the session listens to %d channels already", len(l.channels))
	}
	if l.channels == nil {
		l.channels = map[string]bool{}
	}
	ctx, stop := context.WithTimeout(ctx, l.limits.Wait)
	defer stop()
	if err := l.exchange.listen(ctx, l, channel); err != nil {
		return err
	}
	l.channels[channel] = true
	if inTx {
		l.added = append(l.added, channel)
	}
	return nil
}

// again takes a channel out of what the transaction has given up before.
func (l *Listener) again(channel string) {
	var off []string
	for _, name := range l.off {
		switch {
		case name == "":
			for c := range l.channels {
				if c != channel {
					off = append(off, c)
				}
			}
		case name != channel:
			off = append(off, name)
		}
	}
	l.off = off
}

// UnlistenAtCommit leaves a channel, "" for all, when the open transaction is committed.
func (l *Listener) UnlistenAtCommit(channel string) error {
	l.off = append(l.off, channel)
	if len(l.off) > l.limits.Deferred {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has run UNLISTEN %d times", len(l.off))
	}
	return nil
}

// Unlisten leaves a channel, "" for all.
func (l *Listener) Unlisten(channel string) {
	for name := range l.channels {
		if channel == "" || name == channel {
			delete(l.channels, name)
			l.exchange.leave(l, name)
		}
	}
}

// UnlistenAll ends all listening, and forgets what has arrived.
func (l *Listener) UnlistenAll() {
	l.Unlisten("")
	l.mu.Lock()
	l.queue = nil
	l.mu.Unlock()
}

// EndTransaction keeps what the transaction changed, or takes it back.
func (l *Listener) EndTransaction(committed bool) {
	if len(l.added)+len(l.off) == 0 {
		return
	}
	if committed {
		for _, name := range l.off {
			l.Unlisten(name)
		}
	} else {
		for _, name := range l.added {
			l.Unlisten(name)
		}
	}
	l.added, l.off = nil, nil
}

// Notifies says that the session itself notifies.
func (l *Listener) Notifies() { l.barrier = l.barrier || l.Listens() }

// Ask begins to learn, beside the unit's statements, whether all has arrived that was notified before them.
func (l *Listener) Ask() {
	if len(l.channels) == 0 {
		return
	}
	if l.late {
		select {
		case <-l.asked:
		default:
			return
		}
	}
	l.late, l.asked = false, l.exchange.begin("")
}

// await waits for the answer to Ask.
func (l *Listener) await() {
	if l.asked == nil || l.late {
		return
	}
	select {
	case <-l.asked:
	default:
		timer := time.NewTimer(deliverMax)
		defer timer.Stop()
		select {
		case <-l.asked:
		case <-timer.C:
			l.late = true
			return
		}
	}
	l.asked = nil
}

// Deliver hands over the frames that have arrived. It fails where some may be lost, or with put's error.
func (l *Listener) Deliver(put func(wire.Frame) error) error {
	if !l.Listens() {
		return nil
	}
	l.await()
	if l.barrier {
		// Its own notifications come before the end of the statement, as with PostgreSQL.
		l.barrier = false
		ctx, stop := context.WithTimeout(context.Background(), deliverMax)
		_ = l.exchange.ask(ctx, "") // they come later then
		stop()
	}
	l.mu.Lock()
	queue, lost := l.queue, l.lost
	l.queue = nil
	l.mu.Unlock()
	for len(queue) > 0 {
		f, rest, ok, err := wire.Cut(queue)
		if err != nil || !ok {
			break
		}
		queue = rest
		if l.channels[channelOf(f.Body())] {
			if err := put(f); err != nil {
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

// channelOf reads the channel of a NotificationResponse.
func channelOf(body []byte) string {
	if len(body) < 4 {
		return ""
	}
	name, _, _ := wire.CutString(body[4:])
	return name
}

// enqueue is called by the exchange.
func (l *Listener) enqueue(frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue)+len(frame) > queueMax {
		l.lost = "too many waited for this client"
		return
	}
	l.queue = append(l.queue, frame...)
}
