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
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

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

// leftovers are what moves left behind: captures on shards and transits in the map without a
// workflow that is at work on them.
func (o *Ops) leftovers(ctx context.Context, snap *shardmap.Snapshot) []Finding {
	var out []Finding
	atWork := func(id string) (bool, error) {
		r, err := o.opts.Directory.Record(ctx, workflow.RecordPrefix+id)
		if errors.Is(err, shardmap.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		s, err := workflow.Decode(r.Value)
		return err == nil && !s.Step.Ended(), err
	}
	for _, k := range snap.State().Keyspaces {
		for _, t := range k.Transits {
			if ok, err := atWork(t.ID); err == nil && !ok {
				out = append(out, Finding{Level: LevelError, What: fmt.Sprintf("%s of keyspace %s is in transit from %s to %s, but there is no workflow %s", t.Text(), k.Name, t.From, t.To, t.ID),
					Next: "ask for the same move again with --id " + t.ID + ", then cancel it"})
			}
		}
	}
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
			if busy, err := atWork(id); err == nil && !busy {
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
