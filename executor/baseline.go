package executor

import (
	"context"
	"maps"
)

// baseline is what the default shard's connections report when they begin. The
// settings among them that change how values are read and printed are given to
// the connections of every other shard, so that a session gets the same answers
// from all of them.
type baseline struct {
	reported map[string]string
	start    map[string]string
}

var pinned = []string{"TimeZone", "DateStyle", "IntervalStyle"}

var plainStart = map[string]string{"client_encoding": "UTF8"}

func (b *baseline) startup() map[string]string {
	if b == nil {
		return plainStart
	}
	return b.start
}

// learn sets the baseline from the first connection to the default shard and
// returns the one that c has. Connections made before it are closed when they
// are released.
func (e *Executor) learn(shard string, c *Conn) *baseline {
	if e.Snapshot().State().DefaultShard != shard {
		return c.baseline
	}
	if c.baseline != nil {
		return c.baseline
	}
	b := &baseline{reported: maps.Clone(c.Parameters()), start: maps.Clone(plainStart)}
	for _, name := range pinned {
		if v := c.Parameter(name); v != "" {
			b.start[name] = v
		}
	}
	if e.baseline.CompareAndSwap(nil, b) {
		return b
	}
	return c.baseline
}

// Parameters returns what a new session reports to its client (server_version,
// TimeZone, ...): the default shard's, or, while that has not been reached yet,
// any live shard's. Fails with the reason when no shard can be reached.
func (e *Executor) Parameters(ctx context.Context) (map[string]string, error) {
	if b := e.baseline.Load(); b != nil {
		return b.reported, nil
	}
	c, err := e.AcquireAny(ctx, e.Snapshot().State().DefaultShard, nil)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return maps.Clone(c.Parameters()), nil
}
