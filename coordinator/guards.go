package coordinator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// guards are the guards of the shards' tables, as one leader sets them.
type guards struct {
	directory shardmap.Directory
	shard     func(name string) (engine.Shard, error)
	mover     func(ctx context.Context, name string) (engine.Mover, error)

	mu    sync.Mutex
	locks map[string]chan struct{} // has an element while a shard's are locked
	open  map[string]bool          // the transits whose parts are held and not fenced, see unfenced
	sets  map[string]uint64        // how often the guards of a shard were set, by lock's holders
}

// timesSet counts the times at which a shard's guards were set in this term, from 1.
func (g *guards) timesSet(shard string) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sets[shard] + 1
}

// noteSet is called for each.
func (g *guards) noteSet(shard string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sets[shard]++
}

// lock keeps others of this leadership from setting the guards of the shards.
//
// Who has the lock may hold statements, and the others wait for it. So it is not kept while somebody's transaction is waited for,
// for longer than guardTry: see inTurns. Errors: those of ctx, when it is over before the lock was free.
func (g *guards) lock(ctx context.Context, shards ...string) (unlock func(), err error) {
	slices.Sort(shards)
	shards = slices.Compact(shards)
	var held []chan struct{}
	unlock = func() {
		for _, m := range held {
			<-m
		}
	}
	for _, name := range shards {
		g.mu.Lock()
		m, ok := g.locks[name]
		if !ok {
			m = make(chan struct{}, 1)
			g.locks[name] = m
		}
		g.mu.Unlock()
		select {
		case m <- struct{}{}:
			held = append(held, m)
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		}
	}
	return unlock, nil
}

// unfenced are the transits of which this leadership knows that their parts, if they are held, are not fenced: the source's guards
// let through what they did before the hold. They are read before the map is.
func (g *guards) unfenced() map[string]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.open)
}

// fences notes whether the guards of a transit's source may be those with the hold. Who changes them has them locked.
func (g *guards) fences(id string, fenced bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if fenced {
		delete(g.open, id)
	} else {
		g.open[id] = true
	}
}

// asGuarded is a map as guards that are set now should say it: without the holds of parts that are not fenced yet. One move must not
// fence for another: that one lets transactions pass which used the part before, and may give its hold up.
func asGuarded(snap *shardmap.Snapshot, ks string, unfenced map[string]bool) (*shardmap.Snapshot, error) {
	ix, ok := snap.Keyspace(ks)
	if !ok {
		return snap, nil
	}
	var next *shardmap.State
	for _, t := range ix.Holds() {
		if !unfenced[t.ID] {
			continue
		}
		if next == nil {
			c := snap.State().Clone()
			next = &c
		}
		setHold(snap, next, t.ID, shardmap.NoHold)
	}
	if next == nil {
		return snap, nil
	}
	return shardmap.NewSnapshot(*next)
}

// guardTry bounds how long the tables' locks are waited for at first with the guards locked, guardTryMax later, and guardPause
// is the pause between tries.
const (
	guardTry    = 300 * time.Millisecond
	guardTryMax = fenceMax * 3 / 4 // a cutover gets its turn
	guardPause  = 30 * time.Millisecond
)

// inTurns lets set lock the tables of a shard, to set its guards, while nobody else of this leadership does; for limit in all.
// Between tries it is another's turn: a transaction that is in the way here may wait for what another move holds.
// What waits for the locks is to end after try.
//
// Errors: those of set, 55P03 among them if the locks were not to be had.
func (g *guards) inTurns(ctx context.Context, shard string, limit time.Duration, set func(ctx context.Context, try time.Duration) error) error {
	whole, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for try := guardTry; ; try = min(try*3/2, guardTryMax) {
		unlock, err := g.lock(whole, shard)
		if err != nil {
			return err
		}
		err = set(whole, try)
		unlock()
		late := errors.Is(err, context.DeadlineExceeded) || sqlstate.CodeOf(err) == sqlstate.LockNotAvailable
		if err == nil || !late || whole.Err() != nil {
			return err
		}
		pause(whole, guardPause)
	}
}

// guardBound bounds the waiting for locks outside of a cutover.
const guardBound = 10 * time.Second

// set sets a shard's guards, trying again while there is time.
func (g *guards) set(ctx context.Context, list []engine.Guard, shard string) (engine.Position, error) {
	m, err := g.mover(ctx, shard)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return m.Here(ctx)
	}
	for {
		at, err := m.Fence(ctx, list)
		locked := sqlstate.CodeOf(err) != sqlstate.LockNotAvailable // else nothing was done
		if locked {
			g.noteSet(shard)
		}
		if locked || ctx.Err() != nil {
			return at, err
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// widen sets guards that let more through than those that are there. Writers may wait for us:
// where the engine can do it, none of them is waited for.
func (g *guards) widen(ctx context.Context, list []engine.Guard, shard string) error {
	m, err := g.mover(ctx, shard)
	if err != nil {
		return err
	}
	if o, ok := m.(engine.Opener); ok && len(list) > 0 {
		g.noteSet(shard)
		return o.Open(ctx, list)
	}
	_, err = g.set(ctx, list, shard)
	return err
}

// unfence sets the guards of a held part's owner as if it were not held.
func (g *guards) unfence(ctx context.Context, ks, shard, transit string) error {
	unlock, err := g.lock(ctx, shard)
	if err != nil {
		return err
	}
	defer unlock()
	unfenced := g.unfenced()
	unfenced[transit] = true
	snap, err := g.directory.Load(ctx)
	if err != nil {
		return err
	}
	if snap, err = asGuarded(snap, ks, unfenced); err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, guardBound)
	defer cancel()
	if err := g.widen(bound, schema.GuardsOf(snap, ks, shard), shard); err != nil {
		return err
	}
	g.fences(transit, false)
	return nil
}

// settle sets the guards of a shard as the map says, if they are others. The map is read
// under the lock, so that guards of an older one are never set after those of a newer one.
func (g *guards) settle(ctx context.Context, ks, shard string) error {
	return g.inTurns(ctx, shard, guardBound, func(ctx context.Context, try time.Duration) error {
		unfenced := g.unfenced()
		snap, err := g.directory.Load(ctx)
		if err != nil {
			return err
		}
		if _, ok := snap.Shard(shard); !ok {
			return nil
		}
		if snap, err = asGuarded(snap, ks, unfenced); err != nil {
			return err
		}
		want := schema.GuardsOf(snap, ks, shard)
		if len(want) == 0 {
			return nil
		}
		if is, err := g.are(ctx, want, shard); err != nil || is {
			return err
		}
		if _, err := g.fit(ctx, ks, shard); err != nil {
			return err
		}
		bound, cancel := context.WithTimeout(ctx, try)
		defer cancel()
		_, err = g.set(bound, want, shard)
		return err
	})
}

// converse opens a conversation with a shard.
func (g *guards) converse(ctx context.Context, shard string) (engine.Conn, error) {
	sh, err := g.shard(shard)
	if err != nil {
		return nil, err
	}
	return converse(ctx, sh)
}

// are reports whether a shard's tables carry these guards.
func (g *guards) are(ctx context.Context, want []engine.Guard, shard string) (bool, error) {
	conn, err := g.converse(ctx, shard)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	for _, g := range want {
		is, err := conn.Guard(ctx, g.Schema, g.Table)
		if err != nil {
			return false, err
		}
		if is == nil || is.Keyspace != g.Owned.Keyspace || is.Epoch != g.Owned.Epoch || is.Owns != "" && is.Owns != g.Owned.Encode() {
			return false, nil
		}
	}
	return true, nil
}

// fit is schema.GuardsFit; what that refuses will never go well as things are.
func (g *guards) fit(ctx context.Context, ks, shard string) (moving bool, err error) {
	conn, err := g.converse(ctx, shard)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	moving, err = schema.GuardsFit(ctx, g.directory, conn, ks, shard)
	if sqlstate.CodeOf(err) == sqlstate.ObjectNotInState {
		err = classed(workflow.Refused, err)
	}
	return moving, err
}
