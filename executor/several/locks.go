package several

import (
	"context"
	"slices"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/sqlstate"
)

// watched is the conversation as the watch of its locks sees it.
type watched Conn

var _ txn.Statement = (*watched)(nil)

// watchLocks begins to watch a statement that begins now; End has to follow.
func (c *Conn) watchLocks(readOnly bool) *txn.LockWatch {
	t := c.shared.transactions
	if c.waitID == "" {
		c.waitID = t.WaitID()
	}
	c.passed.Store(false)
	return t.WatchLocks((*watched)(c), c.waitID, c.shared.defaults.deadlockTimeout(c.host.Settings()), readOnly && c.host.Repeats())
}

// EachConn implements [txn.Statement].
func (w *watched) EachConn(f func(c *executor.Conn)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.live {
		f(conn)
	}
}

// Passed implements [txn.Statement].
func (w *watched) Passed() bool { return w.passed.Load() }

// Interrupt implements [txn.Statement].
func (w *watched) Interrupt(ctx context.Context, reason *sqlstate.Error) error {
	return (*Conn)(w).interrupt(ctx, reason)
}

// WriteLocks are the SQLite shards whose writer the transaction is.
func (c *Conn) WriteLocks() (has []string) {
	(*watched)(c).EachConn(func(conn *executor.Conn) {
		if writes, _ := conn.WriteLock(); writes {
			has = append(has, conn.Shard())
		}
	})
	slices.Sort(has)
	return has
}
