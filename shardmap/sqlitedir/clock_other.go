//go:build !linux

package sqlitedir

import "time"

// bootClock is the wall clock where the boot's own is not at hand: a step of it
// can end leases early or let them run on.
func bootClock() (boot string, ns int64, err error) { return "wall", time.Now().UnixNano(), nil }
