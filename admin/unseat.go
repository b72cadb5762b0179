package admin

import (
	"context"
	"slices"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// unseatTries bounds how often a shard is asked anew because a leader was faster.
const unseatTries = 5

// unseat makes all shards forget the leaders and the moves that they know: a person has decided that the map is right, although it is
// older than the shards. The tokens of its leaders begin below those that the shards have seen, and what its moves believe to be
// theirs to delete may have been written since.
func (o *Ops) unseat(ctx context.Context, snap *shardmap.Snapshot) []Finding {
	shards := snap.Shards()
	found := make([][]Finding, len(shards))
	atOnce(len(shards), checksAtOnce, func(i int) {
		s := &shards[i]
		bound, cancel := context.WithTimeout(ctx, checkMax)
		defer cancel()
		m, err := o.mover(snap, s)
		for range unseatTries {
			if err == nil {
				err = unseatOn(bound, m)
			}
			if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState { // a leader has come to the shard in between
				break
			}
		}
		if err != nil {
			found[i] = []Finding{problem(s.Name, err, "shard "+s.Name+" still knows the leaders and moves of the lost map")}
		}
	})
	return slices.Concat(found...)
}

func unseatOn(ctx context.Context, m engine.Mover) error {
	u, ok := m.(engine.Unseater)
	if !ok {
		return nil
	}
	if err := u.Unseat(ctx); err != nil {
		return err
	}
	ids, err := m.Captures(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if workflow.IsSpare(id) {
			if err := m.Release(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}
