package pgtest

import "testing"

// CacheDir returns the folder in which test harnesses keep programs that they
// fetched or built.
func CacheDir(tb testing.TB) string {
	tb.Helper()
	return cacheDir(tb)
}

// LockCache keeps other test binaries out of a folder of CacheDir until unlock.
func LockCache(tb testing.TB, dir string) (unlock func()) {
	tb.Helper()
	return lockCache(tb, dir)
}
