package engine

import (
	"fmt"
	"net/url"
	"slices"
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

// EpochSetting is the setting of a session with which it shows guards that it knows who owns what: see SayEpochs.
const EpochSetting = "cleave.guard_epoch"

// Saying is what a session says of one guard, or of all guards of a keyspace on a shard. Keyspace is "" for
// tables whose rows are the same on every shard.
type Saying struct {
	Keyspace string
	Epoch    uint64
}

// entry is the saying among others; no entry is a part of another one.
func (s Saying) entry() string {
	return ";" + url.QueryEscape(s.Keyspace) + ":" + strconv.FormatUint(s.Epoch, 10) + ";"
}

// SayEpochs is the value of EpochSetting for several guards: one number if all have the same epoch, else an
// entry for each keyspace. "" for none.
func SayEpochs(all []Saying) string {
	if len(all) == 0 {
		return ""
	}
	if !slices.ContainsFunc(all, func(s Saying) bool { return s.Epoch != all[0].Epoch }) {
		return strconv.FormatUint(all[0].Epoch, 10)
	}
	var b strings.Builder
	for _, s := range all {
		if e := s.entry(); !strings.Contains(b.String(), e) {
			b.WriteString(e)
		}
	}
	return b.String()
}

// Said returns what EpochSetting is, or has in it, if the session has said s.
func Said(s Saying) (is, has string) { return strconv.FormatUint(s.Epoch, 10), s.entry() }

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

// HintNotTheShard says what to do when the database behind a shard's URL, or its file, is not that shard's.
func HintNotTheShard(name string) string {
	return fmt.Sprintf("Correct the URL with `cleave shard set %[1]s --url URL`, or restore the database from a backup. `cleave shard remove %[1]s` lets go of a shard whose rows nobody needs.", name)
}
