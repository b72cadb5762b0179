package shardmap

import (
	"context"
	"errors"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// ErrMoved is returned by every write, and by Join and Campaign, of a directory
// whose cluster goes on in another one. Leases in it are not renewed.
var ErrMoved = errors.New("shardmap: the cluster has moved to another directory")

// ErrTakenBack is why a lease ends for good whose directory was put back to an older state than its holder has seen: only a process
// that starts anew may serve by it.
var ErrTakenBack = errors.New("shardmap: the directory was put back to an older state")

// Move marks a directory whose cluster is not here: it went to Target, or, if
// From is set, a copy from there is not finished. Addresses are without passwords.
type Move struct {
	Target string    `json:"target,omitempty"`
	From   string    `json:"from,omitempty"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// Mover is what a [Directory] can do beyond its contract so that a cluster can
// move to another one. The mark fences: a directory with one takes no writes but
// those of a copy into it, and lets no process join or keep a lease. So there is
// one place at any time where the map can change.
type Mover interface {
	// Moved returns the mark, nil if there is none.
	Moved(ctx context.Context) (*Move, error)
	// SetMoved sets, replaces or (next nil) removes the mark, if the mark is
	// expect and the newest version is version; else ErrConflict.
	SetMoved(ctx context.Context, expect, next *Move, version uint64) error
	// Restore stores a version as it was in another directory, if it is the next
	// one and the mark says that a copy is going on.
	Restore(ctx context.Context, e Entry, snap *Snapshot) error
	// RestoreRecord writes a record, or deletes it (value nil), whatever its
	// revision, if the mark says that a copy is going on.
	RestoreRecord(ctx context.Context, key string, value []byte) error
}

// Same reports whether two marks are the same.
func (m *Move) Same(o *Move) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.Target == o.Target && m.From == o.From && m.By == o.By && m.At.Equal(o.At)
}

// Moved returns the error of a directory with a mark, wrapping ErrMoved.
func Moved(m Move) error {
	if m.From != "" {
		return sqlstate.Wrap(ErrMoved, sqlstate.ObjectNotInState, "a copy from %s into this directory was begun (%s, %s) and is not finished",
			Redacted(m.From), m.By, m.At.UTC().Format(time.RFC3339)).
			WithHint("run the same command again: cleave directory copy --from '%s' --to THIS", Redacted(m.From))
	}
	return sqlstate.Wrap(ErrMoved, sqlstate.ObjectNotInState, "the cluster of this directory has moved to %s (%s, %s)",
		Redacted(m.Target), m.By, m.At.UTC().Format(time.RFC3339)).
		WithHint("start the process with --directory '%s'", Redacted(m.Target))
}

// NotCopying returns the error of Restore on a directory into which no copy goes on.
func NotCopying() error {
	return sqlstate.New(sqlstate.ObjectNotInState, "no copy into this directory is going on").
		WithHint("run cleave directory copy")
}
