package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// consistent takes the snapshots of an atomic read before anything of it is run,
// if the session asks for one. Inside a block all shards get theirs with its first
// statement, but for those that cannot be reached: what needs one of them fails. Outside, those get theirs that the
// statement reads. It may be called again.
func (c *sender) consistent(ctx context.Context, e *execution) error {
	if !txn.Atomic(c.host.Settings()) || c.Proven != nil && c.Block {
		return nil
	}
	var shards []string
	switch {
	case c.Block && !strings.Contains(strings.ToUpper(c.Isolation()), "REPEATABLE"):
		if e == nil || e.st.Kind != planner.Several || !e.st.ReadOnly {
			return nil
		}
		return sqlstate.Refusal("CLV-1004", "an atomic read over several shards in a READ COMMITTED transaction block is not supported: each statement has snapshots of its own on shards where the transaction is open").
			WithHint("BEGIN ISOLATION LEVEL REPEATABLE READ, read outside of a transaction block, or SET cleave.read_consistency = 'shard'")
	case c.Block:
		for _, s := range c.host.Snapshot().Shards() {
			shards = append(shards, s.Name)
		}
	case e == nil || !e.st.ReadOnly:
		return nil // a write; or a description, which reads nothing
	default:
		var err error
		if shards, err = c.reads(e); err != nil || len(shards) < 2 {
			return err
		}
	}
	for _, p := range c.Joined {
		if p.Begun && !c.Proven[p.Shard] {
			return sqlstate.Refusal("CLV-0207", "an atomic read over several shards after another statement of the same transaction is not supported: shard %s has its snapshot already", p.Shard).
				WithHint("SET cleave.read_consistency = 'atomic' before the transaction, and Sync between statements that are not in a transaction block").OnShard(p.Shard)
		}
	}
	if c.Proven != nil && !slices.ContainsFunc(shards, func(s string) bool { return !c.Proven[s] }) {
		return nil // an earlier statement of the unit has them
	}
	if c.Proven != nil {
		return sqlstate.Refusal("CLV-0208", "an atomic read needs snapshots of other shards than the one before it in the same transaction").
			WithHint("Sync between them").OnShard(shards[0])
	}
	parts, err := c.partsOf(ctx, shards, false)
	for c.Block && sqlstate.CodeOf(err) == sqlstate.CannotConnectNow {
		at := slices.Index(shards, sqlstate.As(err).Shard)
		if at < 0 || len(shards) == 1 {
			break
		}
		shards = slices.Delete(shards, at, at+1)
		parts, err = c.partsOf(ctx, shards, false)
	}
	if err != nil {
		return err
	}
	return c.TakeSnapshots(ctx, parts)
}

// reads are the shards that a statement reads, one or none where its own
// snapshot is all that matters.
func (c *sender) reads(e *execution) ([]string, error) {
	snap, st := c.host.Snapshot(), e.st
	if st.Kind == planner.OneShard {
		r, err := st.Route(snap, e.args)
		if err != nil || !r.Several {
			return nil, err
		}
		if st, err = c.Ex.PlanSeveral(c, []byte(st.Text), c.host.Settings(), snap, c.Owner != nil); err != nil {
			return nil, err
		}
	}
	if st.Kind != planner.Several || st.Plan == nil {
		return nil, nil
	}
	targets := []planner.Target{}
	if st.Plan.Op == planner.Scatter {
		targets = append(targets, st.Plan.Target)
	}
	for i := range st.Plan.Relations {
		targets = append(targets, st.Plan.Relations[i].Target)
	}
	var shards []string
	for i := range targets {
		if targets[i].Where == planner.AnyOne && len(targets) > 1 {
			continue
		}
		names, err := targets[i].Shards(snap, e.args)
		if err != nil {
			return nil, err
		}
		shards = append(shards, names...)
	}
	slices.Sort(shards)
	return slices.Compact(shards), nil
}
