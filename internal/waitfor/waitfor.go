// Package waitfor lets tests wait for states rather than for times.
//
// A wait has one bound, Max. The bound only matters when a test fails, so that
// it is long: a machine that is busy with something else must not look like a
// defect. A test that needs a shorter bound asserts a time, and says why.
package waitfor

import (
	"context"
	"testing"
	"time"
)

// Max bounds each wait of a test for what has to come to pass. It is shorter
// than the time that go test has for a package, so that the test itself can
// tell what did not happen.
const Max = 3 * time.Minute

// every is how long True rests between two looks.
const every = 5 * time.Millisecond

// True returns when cond holds. After Max it fails the test with what, which
// names the awaited state.
func True(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(Max); !cond(); time.Sleep(every) {
		if time.Now().After(end) {
			tb.Fatalf("it did not come to this within %v: %s", Max, what)
		}
	}
}

// Context returns a context that ends after Max, or with the test.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, stop := context.WithTimeout(context.Background(), Max)
	tb.Cleanup(stop)
	return ctx
}
