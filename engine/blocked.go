package engine

import (
	"context"
	"fmt"
)

// Blocked is implemented by Movers that can tell for whom they wait.
type Blocked interface {
	// Blockers returns who keeps what is under way here under the ids, or without one, waiting for a lock or for the
	// end of a transaction, the longest first.
	Blockers(ctx context.Context, ids ...string) ([]Blocker, error)
}

// Blocker is somebody for whom a shard's work waits.
type Blocker struct {
	// Who says in words who it is and since when, Command what ends it, run on the shard's server; "": nothing that
	// a person should do.
	Who, Command string
}

// Blockers names the first of them, and says how many there are besides.
func Blockers(list []Blocker) string {
	switch len(list) {
	case 0:
		return ""
	case 1:
		return list[0].Who
	}
	return fmt.Sprintf("%s, and %d more", list[0].Who, len(list)-1)
}
