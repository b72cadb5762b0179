package coordinator

import (
	"context"

	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// current refuses a move between shards whose guards are newer than the map: the directory was put back to an older state, so
// nobody knows who owns what.
func (j *job) current(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	for _, shard := range []string{e.Source, e.Target} {
		epoch, err := j.guardEpoch(ctx, s.Spec.Keyspace, shard)
		if err != nil {
			return err
		}
		// The map is read after the guards: another move may have set them just now.
		snap, err := j.t.c.opts.Directory.Load(ctx)
		if err != nil {
			return err
		}
		if epoch <= snap.Version() {
			continue
		}
		newer := sqlstate.New(sqlstate.ObjectNotInState, "shard %s has a guard of epoch %d, but the newest version of the map is %d", shard, epoch, snap.Version()).
			WithHint("the directory was put back to an older state: cleave doctor")
		switch {
		case schema.Moving(snap, s.Spec.Keyspace, shard):
			return classed(workflow.Again, newer) // another move is about to store that version
		case schema.NewerGuard(epoch, snap):
			return classed(workflow.Refused, newer)
		}
	}
	return nil
}

// guardEpoch is the greatest epoch of the guards of a keyspace on a shard, 0 if there are none.
func (j *job) guardEpoch(ctx context.Context, ks, shard string) (epoch uint64, err error) {
	snap, err := j.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return 0, err
	}
	sh, err := j.t.c.opts.Shard(shard)
	if err != nil {
		return 0, err
	}
	conn, err := sh.Connect(ctx, map[string]string{"application_name": "cleave", "client_encoding": "UTF8"})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	for _, g := range schema.GuardsOf(snap, ks, shard) {
		t, err := conn.DescribeTable(ctx, g.Schema, g.Table)
		if err != nil {
			return 0, err
		}
		if t.Guard != nil {
			epoch = max(epoch, t.Guard.Epoch)
		}
	}
	return epoch, nil
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
