package coordinator

import (
	"context"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// current refuses a move between shards with guards that no version of the map has made: the directory was put back to an older state, so
// nobody knows who owns what.
func (j *job) current(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	for _, shard := range []string{e.Source, e.Target} {
		moving, err := j.t.guards.fit(ctx, s.Spec.Keyspace, shard)
		if err == nil && moving {
			err = classed(workflow.Again, sqlstate.New(sqlstate.ObjectNotInState, "another move is changing the owner of a part of keyspace %s on shard %s", s.Spec.Keyspace, shard))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// vacant refuses a move to a shard that has rows of the part already: this workflow has copied none yet, so they are
// somebody's, perhaps the only ones, and the purge before the copy would delete them. A transit of this
// workflow says that it was at work before.
func (j *job) vacant(ctx context.Context, s *workflow.State, e workflow.Effect, snap *shardmap.Snapshot) error {
	if _, t := snap.Transit(j.id); t != nil {
		return nil
	}
	set, m, err := j.onTarget(ctx, s, e)
	if err != nil {
		return err
	}
	sums, err := m.Sums(ctx, set.set, nil)
	if err != nil {
		return err
	}
	for i, sum := range sums {
		if sum.Rows > 0 {
			t := set.set.Tables[i]
			return classed(workflow.Refused, sqlstate.New(sqlstate.ObjectNotInState, "shard %s has %d rows of table %s.%s in the part already, which no move has copied there", e.Target, sum.Rows, t.Schema, t.Name).
				WithHint("to bring home what shard %s lacks and delete what it has as well: cleave verify --repair", e.Source))
		}
	}
	return nil
}
