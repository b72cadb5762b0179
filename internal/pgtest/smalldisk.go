package pgtest

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// SmallDisk returns a folder on a file system of its own with room for so many bytes, which root alone can make. Its owner is that of
// another folder.
func SmallDisk(tb testing.TB, bytes int64, like string) string {
	tb.Helper()
	dir, err := makeDir()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		tb.Fatalf("pgtest: a small file system cannot be mounted: %v", err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(dir, 2); err != nil { // MNT_DETACH: somebody may have it open
			tb.Errorf("pgtest: %v", err)
		}
	})
	own(tb, dir, like)
	return dir
}
