package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/coordinator"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// VerifyRequest asks whether rows are where the map says.
type VerifyRequest struct {
	Keyspace string `json:"keyspace,omitempty"` // "": all
	Shard    string `json:"shard,omitempty"`    // "": all
}

// VerifyResult is what was counted on a shard for a table.
type VerifyResult struct {
	Keyspace string `json:"keyspace"`
	Shard    string `json:"shard"`
	Table    string `json:"table"`
	Rows     int64  `json:"rows"` // of keys that the shard owns
	Checksum string `json:"checksum"`
	// Strangers are rows of the other copy of a move that is under way or can be rolled back.
	Strangers int64 `json:"strangers"`
	// Orphans are rows of keys that the shard does not own: nobody sees them.
	Orphans int64  `json:"orphans"`
	Error   string `json:"error,omitempty"`
}

// Verify counts every shard's rows, those of keys that it owns and those that should not be there. It reads
// every table wholly. A shard that cannot be asked has the reason in its lines.
func (o *Ops) Verify(ctx context.Context, req VerifyRequest) ([]VerifyResult, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := snap.Keyspace(req.Keyspace); !ok && req.Keyspace != "" {
		return nil, noKeyspace(req.Keyspace)
	}
	if _, ok := snap.Shard(req.Shard); !ok && req.Shard != "" {
		return nil, noShard(req.Shard)
	}
	var shards []shardmap.Shard
	for _, s := range snap.Shards() {
		if req.Shard == "" || s.Name == req.Shard {
			shards = append(shards, s)
		}
	}
	found := make([][]VerifyResult, len(shards))
	shardmap.Each(shards, checksAtOnce, func(i int, s *shardmap.Shard) {
		for _, k := range snap.State().Keyspaces {
			if req.Keyspace == "" || k.Name == req.Keyspace {
				found[i] = append(found[i], o.verifyShard(ctx, snap, k.Name, s)...)
			}
		}
	})
	return slices.Concat(found...), nil
}

func (o *Ops) verifyShard(ctx context.Context, snap *shardmap.Snapshot, ks string, s *shardmap.Shard) []VerifyResult {
	tables, _ := coordinator.Tables(snap, ks)
	if len(tables) == 0 {
		return nil
	}
	out := make([]VerifyResult, len(tables))
	for i, t := range tables {
		out[i] = VerifyResult{Keyspace: ks, Shard: s.Name, Table: t.Schema + "." + t.Name}
	}
	err := func() error {
		m, err := o.mover(snap, s)
		if err != nil {
			return err
		}
		full, err := m.Describe(ctx, tables)
		if err != nil {
			return err
		}
		own := snap.Ownership(ks, s.Name)
		mine, err := m.Sums(ctx, engine.Set{Tables: full, Keys: own})
		if err != nil {
			return err
		}
		rest, err := m.Sums(ctx, engine.Set{Tables: full, Keys: own, Except: true})
		if err != nil {
			return err
		}
		strangers := make([]engine.Sum, len(tables))
		if keys, ok := snap.Strangers(ks, s.Name); ok {
			if strangers, err = m.Sums(ctx, engine.Set{Tables: full, Keys: keys}); err != nil {
				return err
			}
		}
		for i := range out {
			out[i].Rows, out[i].Checksum = mine[i].Rows, fmt.Sprintf("%016x", mine[i].Checksum)
			out[i].Strangers, out[i].Orphans = strangers[i].Rows, max(0, rest[i].Rows-strangers[i].Rows)
		}
		return nil
	}()
	if err != nil {
		for i := range out {
			out[i].Error = sqlstate.As(err).Message
		}
	}
	return out
}

// mover is a shard's mover, to look only.
func (o *Ops) mover(snap *shardmap.Snapshot, s *shardmap.Shard) (engine.Mover, error) {
	sh, err := o.open(snap.State().Cluster, s)
	if err != nil {
		return nil, err
	}
	m, ok := sh.(engine.Movable)
	if !ok {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "shard %s is of an engine whose rows cannot be counted", s.Name)
	}
	return m.Mover(0), nil
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
			return // that a shard does not answer is said elsewhere
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
