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
	// fenceWaits, and fenceEach for each table, bound all locks of a try together.
	fenceWait  = 50 * time.Millisecond
	fenceWaits = 150 * time.Millisecond
	fenceEach  = 4 * time.Millisecond
	// fencePause is the pause between tries, at least; at most it is three times that.
	fencePause = 20 * time.Millisecond
	// fenceAsks is after how long it is looked who is in the way.
	fenceAsks = 200 * time.Millisecond
)

var _ engine.Opener = (*mover)(nil)

// Fence locks the tables in EXCLUSIVE MODE: it conflicts with the locks of writers and of
// row locks, that a transaction keeps to its end (and a prepared one until it is
// finished), and not with those of readers. Who waits for it is waited for by the
// writers that come later, so it waits for a short time only, and tries again.
func (v *mover) Fence(ctx context.Context, guards []engine.Guard) (engine.Position, error) {
	const op = "fence"
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return "", err
	}
	defer v.done(c)
	names := make([]string, len(guards))
	for i, g := range guards {
		names[i] = "ONLY " + ident(g.Schema) + "." + ident(g.Table)
	}
	slices.Sort(names)
	lock := "LOCK TABLE " + strings.Join(slices.Compact(names), ", ") + " IN EXCLUSIVE MODE"
	// The check for deadlocks is what makes autovacuum leave a table: it has to come
	// before the wait ends. Without the privilege, autovacuum is waited for.
	may := "(SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)"
	if serverVersion(c) >= 150000 {
		may = "pg_catalog.has_parameter_privilege('deadlock_timeout', 'SET')"
	}
	if _, err := c.exec(ctx, "SELECT pg_catalog.set_config('deadlock_timeout', '10ms', false) WHERE "+may); err != nil {
		return "", v.failed(ctx, op, err)
	}
	began, held := time.Now(), []engine.Blocker(nil)
	for {
		at, err := v.fence(ctx, c, lock, guards)
		if err == nil {
			return at, nil
		}
		busy := sqlstate.CodeOf(err)
		var own *sqlstate.Error
		if engine.Lost(err) != nil || !errors.As(err, &own) {
			if ctx.Err() != nil && engine.Lost(err) == nil {
				return "", notLocked(ctx, v.s.cfg.Name, held)
			}
			return "", v.failed(ctx, op, err)
		}
		if busy != sqlstate.LockNotAvailable && busy != sqlstate.DeadlockDetected && busy != sqlstate.QueryCanceled {
			return "", v.failed(ctx, op, err)
		}
		if time.Since(began) >= fenceAsks {
			if by, err := holders(ctx, c, guards); err == nil && len(by) > 0 {
				held = by
			}
		}
		if ctx.Err() != nil || pause(ctx, fencePause+rand.N(2*fencePause)) != nil {
			return "", notLocked(ctx, v.s.cfg.Name, held)
		}
	}
}

// fence is one try. Few messages: statements of the tables wait from the lock on, and
// those of what moves for all of it.
func (v *mover) fence(ctx context.Context, c *conn, lock string, guards []engine.Guard) (at engine.Position, err error) {
	defer func() {
		if err != nil && engine.Lost(err) == nil {
			_, _ = c.exec(context.WithoutCancel(ctx), "ROLLBACK") // if it fails the conversation is closed next
		}
	}()
	if len(guards) == 0 {
		if err := v.transact(ctx, c, func() error { return nil }); err != nil {
			return "", err
		}
		return v.here(ctx, c)
	}
	_, err = c.exec(ctx, "BEGIN; SET LOCAL check_function_bodies = off; SET LOCAL lock_timeout = '"+fenceWait.String()+"'; SET LOCAL statement_timeout = '"+(fenceWaits+time.Duration(len(guards))*fenceEach).String()+"'; "+
		lock+"; SET LOCAL statement_timeout = 0")
	if err != nil {
		return "", err
	}
	// Nobody changes the tables' triggers while they are locked.
	rest, err := c.replaceGuards(ctx, guards, inOrder)
	if err != nil {
		return "", err
	}
	if len(rest) > 0 && c.mover {
		// Who changes the guards later has to own their functions.
		if _, err := c.exec(ctx, "SET LOCAL ROLE "+quoteName(v.s.base.User)); err != nil {
			return "", err
		}
	}
	for _, g := range rest {
		if err := c.SetGuard(ctx, g); err != nil {
			return "", err
		}
	}
	if len(rest) > 0 && c.mover {
		if _, err := c.exec(ctx, "SET LOCAL ROLE NONE"); err != nil {
			return "", err
		}
	}
	if err := v.obey(ctx, c); err != nil {
		return "", err
	}
	// The COMMIT waits for the disk, as it has written: what came before it is there too,
	// and decoding comes past the position without waiting for others.
	res, err := c.exec(ctx, "COMMIT; SELECT pg_catalog.pg_current_wal_flush_lsn()::pg_catalog.text")
	if err != nil {
		return "", err
	}
	return engine.Position(res.Rows[0][0].String), nil
}

// notLocked is the error after the last try; held are those who were in the way when it was last looked.
func notLocked(ctx context.Context, shard string, held []engine.Blocker) error {
	e := &sqlstate.Error{
		Code: sqlstate.LockNotAvailable, Op: "fence", Shard: shard, Err: ctx.Err(), Retry: sqlstate.RetrySafe,
		Message: "the tables could not be locked against writers in time",
		Hint:    "nothing was changed; a transaction that writes to the tables, holds row locks in them or is prepared is still open: see pg_stat_activity and pg_prepared_xacts",
	}
	if len(held) > 0 {
		e.Detail = "In the way: " + engine.Blockers(held) + "."
		if end := held[0].Command; end != "" {
			e.Hint = "it is waited for; to end it, run on the server of shard " + shard + ": " + end
		}
	}
	return e
}

// Open replaces functions: that takes no lock on the tables, and every session's next
// statement sees it. Who is in a statement then may still be refused by the old one.
func (v *mover) Open(ctx context.Context, guards []engine.Guard) error {
	const op = "open guards"
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	defer v.done(c)
	return v.failed(ctx, op, v.transact(ctx, c, func() error {
		without, err := c.replaceGuards(ctx, guards, "")
		if err == nil && len(without) > 0 {
			e := sqlstate.New(sqlstate.ObjectNotInState, "the table has no guard").WithHint("run cleave doctor --repair")
			err = onTable(e, &engine.MoveTable{Schema: without[0].Schema, Name: without[0].Table})
		}
		return err
	}))
}
