package coordinator

import (
	"context"
	"errors"

	"github.com/cleavedb/cleave/schema"
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

// errPutBack is why a cutover is neither finished nor taken back: the shards have seen more of this move than its record says, so the
// directory was put back to an older state. Nobody knows who owns the part; its statements stay held, which ends them with an error.
var errPutBack = errors.New("the directory was put back to an older state")

func putBack(format string, args ...any) error {
	return classed(workflow.Again, sqlstate.Wrap(errPutBack, sqlstate.ObjectNotInState, format+": the directory was put back to an older state", args...).
		WithHint("keep clients out, then: cleave doctor"))
}

// unseen refuses to take a cutover back whose target shows more than the record of the move knows: a guard that lets the part through
// although no opening was begun, or no note of the copy. A target that does not answer shows nothing, and is not waited for.
func (n *notes) unseen(ctx context.Context, s *workflow.State, snap *shardmap.Snapshot) error {
	if s.MayBeOpen {
		if err := n.copied(ctx, s, workflow.Effect{Source: s.Source(), Target: s.Target()}); errors.Is(err, errPutBack) {
			return err
		}
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, openMax)
	defer cancel()
	conn, err := n.t.guards.converse(bound, s.Target())
	if err != nil {
		return nil
	}
	defer conn.Close()
	if epoch, lets := schema.LetsThrough(bound, conn, snap, s.Spec.Keyspace, s.Target(), s.Spec.Part); lets {
		return putBack("shard %s lets through (epoch %d) what this move has not opened there", s.Target(), epoch)
	}
	return nil
}
