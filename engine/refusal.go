package engine

import (
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// Texts of the errors that guards raise, the same on every engine.
const (
	// RefusalMessage is the message of a guard's error about a row.
	RefusalMessage = "this shard does not own the row's shard key"
	// RefusalTruncate is the message of a guard's error about TRUNCATE.
	RefusalTruncate = "TRUNCATE of a guarded table must come from the router"
	// RefusalReadOnly is the message of a guard without a shard key.
	RefusalReadOnly = "this shard must not change the rows of this table"
	// RefusalHint is the hint of all of them.
	RefusalHint = "write through the router, which sends each row to its owner"
)

// Refusal is what a guard's error says in its detail, for the router that
// compares it with its map.
type Refusal struct {
	Keyspace string
	Epoch    uint64 // of the guard, not of the row's range
	// Position is the row's place: a decimal hash, or the key's texts for range
	// and list keyspaces. Empty for TRUNCATE and for guards without a shard key.
	Position string
}

// Detail formats r as guards do: "keyspace K, epoch N, position P".
func (r Refusal) Detail() string {
	s := "keyspace " + r.Keyspace + ", epoch " + strconv.FormatUint(r.Epoch, 10)
	if r.Position != "" {
		s += ", position " + r.Position
	}
	return s
}

// ParseRefusal reads the detail of a guard's error. ok is false for any other error.
func ParseRefusal(e *sqlstate.Error) (r Refusal, ok bool) {
	if e == nil || e.Code != sqlstate.NotOwner {
		return r, false
	}
	s, found := strings.CutPrefix(e.Detail, "keyspace ")
	if !found {
		return r, false
	}
	name, s, found := strings.Cut(s, ", epoch ")
	if !found {
		return r, false
	}
	epoch, position, _ := strings.Cut(s, ", position ")
	n, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil {
		return r, false
	}
	return Refusal{Keyspace: name, Epoch: n, Position: position}, true
}
