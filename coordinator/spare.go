package coordinator

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/workflow"
)

// A purge is bound to the move that made the rows spare, by a note on the shard itself: the map and the record may be older than
// the shards. The target notes the move while it has no rows of the part, the source when it has given the part away. The
// note ends with the move, and with a person's decision for an older map (doctor --set-back-guards). Beside the note, a shard whose guards
// let writes of the part through owns it, whatever the map says.

// notes are those of one move on its shards.
type notes struct {
	t   *term
	id  string
	log *slog.Logger
}

// noteSpare notes on a shard that its rows of the part are this move's.
func (n *notes) noteSpare(ctx context.Context, s *workflow.State, shard string) error {
	if !s.Notes {
		return nil
	}
	m, err := n.t.mover(ctx, shard)
	if err != nil {
		return err
	}
	return m.SetApplied(ctx, workflow.Spare(n.id), "spare")
}

// spare reports whether the rows of the part on the target of a purge are this move's. Before a copy a shard without rows is noted;
// rows that nobody has noted are left, with a note in the result if the move ends with that.
//
// Errors: 55000, refused before a copy, if there are rows of others; likewise if the shard's guards let writes of them through.
func (n *notes) spare(ctx context.Context, s *workflow.State, e workflow.Effect, set *moveSet, m engine.Mover, r *workflow.Result) (bool, error) {
	if err := n.unowned(ctx, e.Target, set); err != nil {
		return false, err
	}
	if !s.Notes {
		return true, nil // begun by an earlier version
	}
	note, err := m.Applied(ctx, workflow.Spare(n.id))
	if err != nil || note != "" {
		return err == nil, err
	}
	sums, err := m.Sums(ctx, set.set, nil)
	if err != nil {
		return false, err
	}
	var rows int64
	for _, sum := range sums {
		rows += sum.Rows
	}
	switch {
	case rows == 0 && s.Step == workflow.Copying:
		return true, n.noteSpare(ctx, s, e.Target)
	case rows == 0:
		return false, nil
	case s.Step == workflow.Copying:
		return false, classed(workflow.Refused, sqlstate.New(sqlstate.ObjectNotInState, "shard %s has %d rows of the part that this move has not copied there", e.Target, rows).
			WithHint("to bring home what shard %s lacks and delete what it has as well: cleave verify --repair", e.Source))
	}
	r.Note = fmt.Sprintf("%d rows that this move has not copied are left on shard %s: cleave verify --repair", rows, e.Target)
	n.log.Warn("rows that this move has not copied are left", telemetry.KeyShard, e.Target, "rows", rows)
	return false, nil
}

// unowned fails if a guard of the shard lets writes of the part through: its rows are then the only ones, whatever the map says.
func (n *notes) unowned(ctx context.Context, shard string, set *moveSet) error {
	sh, err := n.t.c.opts.Shard(shard)
	if err != nil {
		return err
	}
	conn, err := converse(ctx, sh)
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := range set.set.Tables {
		t := &set.set.Tables[i]
		is, err := conn.Guard(ctx, t.Schema, t.Name)
		if err != nil {
			return err
		}
		if is == nil || is.Owns == "" {
			continue
		}
		own, err := keyspace.DecodeOwned(is.Owns)
		if err != nil {
			return err
		}
		if own.Meets(&set.set.Keys) {
			return refuse("the guard of %s.%s on shard %s lets writes of the part through (epoch %d): its rows are not deleted; cleave doctor says which map is right", t.Schema, t.Name, shard, is.Epoch)
		}
	}
	return nil
}

// copied makes sure, of an opening that this job has not prepared itself, that the target has this move's copy. Else the record is older
// than the shards: errPutBack.
func (n *notes) copied(ctx context.Context, s *workflow.State, e workflow.Effect) error {
	if !s.Notes {
		return nil
	}
	m, err := n.t.mover(ctx, e.Target)
	if err != nil {
		return err
	}
	note, err := m.Applied(ctx, workflow.Spare(n.id))
	if err == nil && note == "" {
		err = putBack("shard %s does not know of this move's copy", e.Target)
	}
	return err
}

// drop takes the notes of a move off its shards. What cannot be reached is swept later.
func (n *notes) drop(ctx context.Context, s *workflow.State) {
	for _, shard := range []string{s.Spec.From, s.Spec.To} {
		m, err := n.t.mover(ctx, shard)
		if err == nil {
			err = m.Release(ctx, workflow.Spare(n.id))
		}
		if err != nil {
			n.log.Debug("the note of a move is left for the sweep", telemetry.KeyShard, shard, telemetry.KeyError, err)
		}
	}
}
