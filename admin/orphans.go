package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// orphansFor bounds counting orphans on a shard. Verify takes all the time it needs.
const orphansFor = 5 * time.Second

// examineOrphans counts, on some shards, the rows of keys that the shard does not own, as Verify does.
func (o *Ops) examineOrphans(ctx context.Context, shards []string, most time.Duration) []Finding {
	snap, err := o.load(ctx)
	if err != nil {
		return []Finding{problem("", err, "rows that are where they should not be were not looked for")}
	}
	tables, err := verified(snap, VerifyRequest{})
	if err != nil {
		return []Finding{problem("", err, "the sharded tables")}
	}
	found := make([][]Finding, len(shards))
	atOnce(len(shards), checksAtOnce, func(i int) {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		found[i] = o.orphansOn(ctx, shards[i], tables)
	})
	var out []Finding
	for _, list := range found {
		out = append(out, list...)
	}
	return out
}

// orphansOn is examineOrphans for a shard. It reports tables that there is no time for as left out.
func (o *Ops) orphansOn(ctx context.Context, shard string, tables []*shardmap.Table) []Finding {
	var out []Finding
	for i, t := range tables {
		name := t.QualifiedName()
		n, err := o.countOrphans(ctx, shard, t)
		switch {
		case ctx.Err() != nil:
			return append(out, Finding{Level: LevelOK, Shard: shard, Next: "cleave verify", What: fmt.Sprintf(
				"only %d of %d sharded tables on %s were looked at for rows that are where they should not be, as more would take too long", i, len(tables), shard)})
		case sqlstate.CodeOf(err) == sqlstate.UndefinedTable: // a finding of its own
		case err != nil:
			f := problem(shard, err, "rows of "+name+" that are on "+shard+" and should not be were not looked for")
			f.Table = name
			return append(out, f) // so it is with the next one
		case n > 0:
			out = append(out, Finding{Level: LevelError, Shard: shard, Table: name, Next: "cleave verify '" + name + "' --repair",
				What: fmt.Sprintf("%d rows of %s are on %s, which does not own their keys: statements for one key do not see them, those over several shards do", n, name, shard)})
		}
	}
	return out
}

// countOrphans counts a table's orphans on a shard by a map that was the newest before and after.
func (o *Ops) countOrphans(ctx context.Context, shard string, t *shardmap.Table) (int64, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return 0, err
	}
	conn, release, err := o.connect(ctx, shard)
	if err != nil {
		return 0, err
	}
	defer release(true)
	for range verifyAnew {
		n, err := count(ctx, conn, t, orphanCondition(snap, t, shard))
		if err != nil || n == 0 {
			return 0, err
		}
		now, err := o.load(ctx)
		if err != nil {
			return 0, err
		}
		if sameKeys(snap, now, t.Keyspace, shard) {
			return n, nil
		}
		if is, ok := now.Table(t.Schema, t.Name); !ok || is.Keyspace != t.Keyspace {
			return 0, nil
		}
		snap = now
	}
	return 0, nil // keys come and go: nobody knows
}

// orphanCondition is that of rows of a table that a shard should not have: it does not own their keys, and no move has them there.
func orphanCondition(snap *shardmap.Snapshot, t *shardmap.Table, shard string) string {
	own := snap.Ownership(t.Keyspace, shard)
	where := "NOT coalesce(" + keyspace.Condition(&own, quotedKey(t)) + ", false)"
	if strangers, ok := snap.Strangers(t.Keyspace, shard); ok {
		where += " AND NOT coalesce(" + keyspace.Condition(&strangers, quotedKey(t)) + ", false)"
	}
	return where
}

// quotedKey are the columns of a table's shard key.
func quotedKey(t *shardmap.Table) []string {
	names := make([]string, len(t.ShardKey))
	for i, n := range t.ShardKey {
		names[i] = quoted(n)
	}
	return names
}

func count(ctx context.Context, conn engine.Conn, t *shardmap.Table, where string) (int64, error) {
	res, err := engine.ExecContext(ctx, conn, "SELECT count(*) FROM "+quotedTable(t)+" WHERE "+where)
	if err != nil {
		return 0, err
	}
	if len(res.Rows) == 0 {
		return 0, errors.New("no count was answered")
	}
	var n int64
	_, err = fmt.Sscan(res.Rows[0][0].String, &n)
	return n, err
}

// mover is a shard's mover, to look only.
func (o *backend) mover(snap *shardmap.Snapshot, s *shardmap.Shard) (engine.Mover, error) {
	sh, err := o.primary(snap.State().Cluster, s)
	if err != nil {
		return nil, err
	}
	m, ok := sh.(engine.Movable)
	if !ok {
		return nil, sqlstate.Refusal("CLV-1405", "shard %s is of an engine whose rows cannot be counted", s.Name)
	}
	return m.Mover(0), nil
}

const (
	// stuckAfter is for how long a workflow has to get no further before doctor says so, unless its step has failed stuckTries times
	// in a row: what passes by itself has passed.
	stuckAfter = time.Minute
	stuckTries = 4
)

// stuck are the workflows that do not get further.
func (o *Ops) stuck(ctx context.Context, now time.Time) []Finding {
	all, err := coordinator.Unended(ctx, o.opts.Directory)
	if err != nil {
		return []Finding{problem("", directoryError(err), "the moves")}
	}
	var out []Finding
	for i := range all {
		s := &all[i]
		since := s.FailsSince()
		if since == 0 || now.UnixMilli()-since < stuckAfter.Milliseconds() && s.Tries < stuckTries {
			continue
		}
		what := fmt.Sprintf("%s %s has not got further since %s, it is %s", s.Spec.Kind, s.Spec.ID, time.UnixMilli(since).UTC().Format(time.DateTime+" UTC"), s.Step)
		if s.Error != "" {
			what += ": " + s.Error
		}
		out = append(out, Finding{Level: LevelWarning, What: what, Next: "cleave moves " + s.Spec.ID})
	}
	return out
}

// stillInTransit reports whether the map has a transit now: its move may have ended since the map was read.
func (o *backend) stillInTransit(ctx context.Context, ks, id string) bool {
	snap, err := o.load(ctx)
	if err != nil {
		return false // said elsewhere
	}
	k, ok := snap.Keyspace(ks)
	return ok && slices.ContainsFunc(k.Def().Transits, func(t shardmap.Transit) bool { return t.ID == id })
}

// transitsLeft are the transits of the map without a workflow that is at work on them.
func (o *backend) transitsLeft(ctx context.Context, snap *shardmap.Snapshot) (out []Finding) {
	for _, k := range snap.State().Keyspaces {
		for _, t := range k.Transits {
			if over, err := o.isOver(ctx, t.ID); err == nil && over && o.stillInTransit(ctx, k.Name, t.ID) {
				out = append(out, Finding{Level: LevelError, What: fmt.Sprintf("%s of keyspace %s is in transit from %s to %s, but there is no workflow %s", t.Text(), k.Name, t.From, t.To, t.ID),
					Next: "ask for the same move again with --id " + t.ID + ", then cancel it"})
			}
		}
	}
	return out
}

// leftovers are what moves left behind: captures on shards and transits in the map without a
// workflow that is at work on them.
func (o *Ops) leftovers(ctx context.Context, snap *shardmap.Snapshot) []Finding {
	var out []Finding
	out = append(out, o.transitsLeft(ctx, snap)...)
	shards := snap.Shards()
	found := make([][]Finding, len(shards))
	atOnce(len(shards), checksAtOnce, func(i int) {
		s := &shards[i]
		m, err := o.mover(snap, s)
		if err != nil {
			return // said elsewhere
		}
		bound, cancel := context.WithTimeout(ctx, checkMax)
		defer cancel()
		streams, err := m.Captures(bound)
		if err != nil {
			return // another check reports a shard that does not answer
		}
		var lost []string
		for _, stream := range streams {
			id, ok := workflow.StreamOf(stream)
			if !ok {
				continue
			}
			if over, err := o.isOver(ctx, id); err == nil && over {
				lost = append(lost, stream)
			}
		}
		if len(lost) > 0 {
			// It takes a leader's token to remove them.
			found[i] = append(found[i], Finding{Level: LevelWarning, Shard: s.Name, What: fmt.Sprintf("shard %s keeps changes for moves that are over: %s", s.Name, strings.Join(lost, ", ")),
				Next: "the coordinator that leads removes them within a minute; look again: cleave doctor"})
		}
	})
	return append(out, slices.Concat(found...)...)
}
