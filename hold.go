package cleave

import (
	"context"
	"errors"
	"time"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// This file is what Owners do while a part of their keyspace moves: see
// docs/design/moving.md.

// release waits until a key is not held, and returns its assignment then.
func (c *Cluster) release(ctx context.Context, ks string, k keyspace.Key) (*keyspaceOwners, shardmap.Assignment, error) {
	ex := c.rooms.Executor
	waited := ex.HoldTimeout()
	ctx, stop := context.WithTimeout(ctx, waited)
	defer stop()
	defer context.AfterFunc(c.life, stop)()
	began := time.Now()
	for waiting := false; ; waiting = true {
		t := c.owners.current()
		ko := t.keyspaces[ks]
		if ko == nil {
			return nil, shardmap.Assignment{}, c.noKeyspace(ks)
		}
		held := ko.index.Held(k)
		if held == nil {
			a, err := ko.index.Locate(k)
			return ko, a, err
		}
		if !waiting {
			defer ex.Metrics().HoldBegan(ks).EndedSince(began)
		}
		if err := ex.AwaitNewer(ctx, t.snap.Version()); err != nil {
			return nil, shardmap.Assignment{}, c.notReleased(ks, held, waited, err)
		}
	}
}

// notReleased is the error of a wait that has ended before the hold.
func (c *Cluster) notReleased(ks string, t *shardmap.Transit, waited time.Duration, err error) error {
	if c.life.Err() != nil {
		return errClosed()
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return held(ks, t, waited)
}

func held(ks string, t *shardmap.Transit, waited time.Duration) *sqlstate.Error {
	e := sqlstate.New(sqlstate.SerializationFailure, "%s of keyspace %q is moving from shard %s to shard %s (move %s), and was not released within %s",
		t.Text(), ks, t.From, t.To, t.ID, waited).
		WithHint("nothing was done: call ForKey again; `cleave moves %s` shows the move", t.ID)
	e.Keyspace, e.Range, e.Epoch, e.Retry = ks, t.Text(), t.Epoch, sqlstate.RetrySafe
	return e
}

// held waits while a part of the keyspace that the Owner's shard owns is held: which
// keys a statement on a direct connection needs is not known. It returns why the
// statement is refused, nil if it is not.
func (d *direct) held() *sqlstate.Error {
	ex := d.o.c.rooms.Executor
	mine := func() (*shardmap.Transit, *shardmap.Snapshot) {
		snap := ex.Snapshot()
		if !snap.Holding() {
			return nil, snap
		}
		ix, ok := snap.Keyspace(d.o.keyspace)
		if !ok {
			return nil, snap
		}
		for _, t := range ix.Holds() {
			if owner, _ := ix.Sides(t); owner == d.o.shard {
				return t, snap
			}
		}
		return nil, snap
	}
	t, snap := mine()
	if t == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(d.o.c.life, ex.HoldTimeout())
	defer stop()
	d.mu.Lock()
	d.stop = stop
	d.mu.Unlock()
	began := time.Now()
	defer ex.Metrics().HoldBegan(d.o.keyspace).EndedSince(began)
	d.turn.Pause()
	defer func() {
		d.turn.Resume()
		d.version = ex.Snapshot().Version()
		d.mu.Lock()
		d.stop = nil
		d.mu.Unlock()
	}()
	for ; t != nil; t, snap = mine() {
		if err := ex.AwaitNewer(ctx, snap.Version()); err != nil {
			switch {
			case d.o.c.life.Err() != nil:
				return errClosed()
			case errors.Is(err, context.Canceled):
				return sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
			}
			return held(d.o.keyspace, t, ex.HoldTimeout())
		}
	}
	return nil
}
