package gateway

import (
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
)

// listen runs LISTEN and UNLISTEN.
func (x *session) listen(l *planner.Listen) error {
	inTx := x.tx.state != txNone
	switch {
	case !l.Off:
		ctx, done := x.interrupts.waiting()
		defer done()
		return userCancel(x.listener.Listen(ctx, l.Channel, inTx))
	case inTx:
		return x.listener.UnlistenAtCommit(l.Channel)
	}
	// PostgreSQL has told an idle session already what was notified before.
	if err := x.deliver(); err != nil {
		return err
	}
	x.listener.Unlisten(l.Channel)
	return nil
}

// deliver hands over the notifications that have arrived, outside of a transaction.
func (x *session) deliver() error {
	if x.tx.state == txOpen || !x.listener.Listens() {
		return nil
	}
	return x.listener.Deliver(func(f wire.Frame) error { return x.w.put(f) })
}

// deliverIdle delivers while the client is idle. An error ends the session.
func (x *session) deliverIdle() error {
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
