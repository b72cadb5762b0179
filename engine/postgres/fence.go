package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// fenceWait is how long a try waits for one lock, and others' writes behind it;
	// fenceWaits bounds all locks of a try together.
	fenceWait  = 50 * time.Millisecond
	fenceWaits = 150 * time.Millisecond
	// fencePause is the pause between tries, at least; at most it is three times that.
	fencePause = 20 * time.Millisecond
)

// Fence locks the tables in EXCLUSIVE MODE: it conflicts with the locks of writers and of
// row locks, that a transaction keeps to its end (and a prepared one until it is
// finished), and not with those of readers. Who waits for it is waited for by the
// writers that come later, so it waits for a short time only, and tries again.
func (v *mover) Fence(ctx context.Context, guards []engine.Guard) (engine.Position, error) {
	const op = "fence"
	c, err := v.housekeeping(ctx, op, "", true)
	if err != nil {
		return "", err
	}
	defer c.Close()
	names := make([]string, len(guards))
	for i, g := range guards {
		names[i] = "ONLY " + ident(g.Schema) + "." + ident(g.Table)
	}
	slices.Sort(names)
	lock := "LOCK TABLE " + strings.Join(slices.Compact(names), ", ") + " IN EXCLUSIVE MODE"
	// The check for deadlocks is what makes autovacuum leave a table: it has to come
	// before the wait ends. Without the privilege, autovacuum is waited for.
	if _, err := c.exec(ctx, "SET deadlock_timeout = '10ms'"); err != nil && engine.Lost(err) != nil {
		return "", v.failed(ctx, op, err)
	}
	for {
		err := v.transact(ctx, c, func() error {
			if len(guards) > 0 {
				if err := v.lockShortly(ctx, c, lock); err != nil {
					return err
				}
			}
			for _, g := range guards {
				if err := c.SetGuard(ctx, g); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			at, err := v.here(ctx, c)
			return at, v.failed(ctx, op, err)
		}
		busy := sqlstate.CodeOf(err)
		var own *sqlstate.Error
		if engine.Lost(err) != nil || !errors.As(err, &own) {
			if ctx.Err() != nil && engine.Lost(err) == nil {
				return "", notLocked(ctx, v.s.cfg.Name)
			}
			return "", v.failed(ctx, op, err)
		}
		if busy != sqlstate.LockNotAvailable && busy != sqlstate.DeadlockDetected && busy != sqlstate.QueryCanceled {
			return "", v.failed(ctx, op, err)
		}
		if ctx.Err() != nil || pause(ctx, fencePause+rand.N(2*fencePause)) != nil {
			return "", notLocked(ctx, v.s.cfg.Name)
		}
	}
}

func (v *mover) lockShortly(ctx context.Context, c *conn, lock string) error {
	_, err := c.exec(ctx, "SET LOCAL lock_timeout = '"+millis(fenceWait)+"'; SET LOCAL statement_timeout = '"+millis(fenceWaits)+"'")
	if err != nil {
		return err
	}
	if _, err = c.exec(ctx, lock); err != nil {
		return err
	}
	_, err = c.exec(ctx, "SET LOCAL statement_timeout = 0")
	return err
}

func millis(d time.Duration) string { return d.String() }

// notLocked is the error after the last try.
func notLocked(ctx context.Context, shard string) error {
	return &sqlstate.Error{
		Code: sqlstate.LockNotAvailable, Op: "fence", Shard: shard, Err: ctx.Err(), Retry: sqlstate.RetrySafe,
		Message: "the tables could not be locked against writers in time",
		Hint:    "nothing was changed; a transaction that writes to the tables, holds row locks in them or is prepared is still open: see pg_stat_activity and pg_prepared_xacts",
	}
}
