package shardmap

import (
	"errors"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// ErrMoved is returned by every write, and by Join and Campaign, of a directory
// whose cluster goes on in another one.
var ErrMoved = errors.New("shardmap: the cluster has moved to another directory")

// Move says where the cluster of a directory went.
type Move struct {
	Target string    `json:"target"` // the other directory, without passwords
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// Moved returns the error of a directory whose cluster has moved, wrapping ErrMoved.
func Moved(m Move) error {
	return sqlstate.Wrap(ErrMoved, sqlstate.ObjectNotInState, "the cluster of this directory has moved to %s (%s, %s)",
		Redacted(m.Target), m.By, m.At.UTC().Format(time.RFC3339)).
		WithHint("start the process with --directory '%s'", Redacted(m.Target))
}
