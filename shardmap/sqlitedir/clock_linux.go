package sqlitedir

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
})

// bootClock returns which boot of the machine this is, and its monotonic clock:
// one for all processes, not moved by steps of the wall clock, and the same
// that a Lease goes by (both stand still while the machine sleeps).
func bootClock() (boot string, ns int64, err error) {
	if boot, err = bootID(); err != nil {
		return "", 0, err
	}
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return "", 0, err
	}
	return boot, t.Nano(), nil
}
