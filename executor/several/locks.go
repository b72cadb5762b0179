package several

import (
	"context"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/sqlstate"
)

// watched is the transaction as the watch of its locks sees it.
type watched transaction

var _ txn.Statement = (*watched)(nil)

// watchLocks begins to watch a statement that begins now; End has to follow.
func (c *transaction) watchLocks(readOnly bool) *txn.LockWatch {
	t := c.shared.transactions
	if c.waitID == "" {
		c.waitID = t.WaitID()
	}
	c.passed.Store(false)
	return t.WatchLocks((*watched)(c), c.waitID, c.shared.defaults.deadlockTimeout(c.host.Settings()), readOnly && c.host.Repeats())
}

// EachConn implements [txn.Statement].
func (w *watched) EachConn(f func(c *executor.Conn)) { w.eachLive(f) }

// Passed implements [txn.Statement].
func (w *watched) Passed() bool { return w.passed.Load() }

// Interrupt implements [txn.Statement].
func (w *watched) Interrupt(ctx context.Context, reason *sqlstate.Error) error {
	return w.interrupt(ctx, reason)
}
