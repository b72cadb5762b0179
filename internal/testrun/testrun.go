// Package testrun divides the tests over two runs, so that each thing is proved once.
//
// `make test` is the short run (go test -short). `make test-long` has what the short one left out: the rest
// (CLEAVE_TESTS=rest), and again with the race detector the packages that share memory. `go test` without either is
// whole: everything.
//
// A test that calls nothing of this package is in every run. One that takes long calls [Long], which wants the reason; or
// it takes fewer of its seeds, versions or engines in the short run, by [Wants] or [Pick], and still proves something. [Short]
// keeps what the short run has had out of the rest.
package testrun

import (
	"os"
	"testing"
)

// Variable is the environment variable that, when it is "rest", asks for what a short run leaves out.
const Variable = "CLEAVE_TESTS"

// run is one of the three.
type run int

const (
	whole run = iota
	short
	rest
)

func current() run {
	switch {
	case testing.Short():
		return short
	case os.Getenv(Variable) == "rest":
		return rest
	}
	return whole
}

// Long leaves a test, or a part of one, out of the short run. why says what makes it long, and what the short run has instead.
func Long(tb testing.TB, why string) {
	tb.Helper()
	if current() == short {
		tb.Skip("make test-long has it: " + why)
	}
}

// Short leaves a test, or a part of one, out of the rest, since the short run has it.
func Short(tb testing.TB) {
	tb.Helper()
	if current() == rest {
		tb.Skip("the short run (make test) has it")
	}
}

// Wants reports whether this run has a part that is, or is not, in the short run.
func Wants(inShort bool) bool {
	switch current() {
	case short:
		return inShort
	case rest:
		return !inShort
	}
	return true
}

// InShort reports whether this is the short run, for what it has less of.
func InShort() bool { return current() == short }

// Pick is fewer in the short run, and all elsewhere.
func Pick[T any](fewer, all T) T {
	if current() == short {
		return fewer
	}
	return all
}

// Count is how many of something a test takes: n, if a flag asks for that many, else fewer in the short run and all elsewhere.
func Count(n, fewer, all int) int {
	if n > 0 {
		return n
	}
	return Pick(fewer, all)
}
