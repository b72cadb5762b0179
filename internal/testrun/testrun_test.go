package testrun

import (
	"flag"
	"testing"
)

// TestRuns: the short run and the rest together are the whole, and have nothing in common.
func TestRuns(t *testing.T) {
	was := flag.Lookup("test.short").Value.String()
	t.Cleanup(func() { _ = flag.Set("test.short", was) })
	ran := func(t *testing.T, test func(tb testing.TB)) bool {
		done := false
		t.Run("part", func(t *testing.T) {
			test(t)
			done = true
		})
		return done
	}
	for _, c := range []struct {
		name, short, rest string
		long, quick       bool
		pick              int
	}{
		{"whole", "false", "", true, true, 2},
		{"short", "true", "", false, true, 1},
		{"short, whatever the variable", "true", "rest", false, true, 1},
		{"rest", "false", "rest", true, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := flag.Set("test.short", c.short); err != nil {
				t.Fatal(err)
			}
			t.Setenv(Variable, c.rest)
			if got := ran(t, func(tb testing.TB) { Long(tb, "it is this test's") }); got != c.long {
				t.Errorf("Long runs: %v", got)
			}
			if got := ran(t, Short); got != c.quick {
				t.Errorf("Short runs: %v", got)
			}
			if Wants(true) != c.quick || Wants(false) != c.long {
				t.Errorf("wants %v and %v", Wants(true), Wants(false))
			}
			if got := Pick(1, 2); got != c.pick || InShort() != (c.pick == 1) {
				t.Errorf("picks %d", got)
			}
			if Count(0, 1, 2) != c.pick || Count(7, 1, 2) != 7 {
				t.Errorf("counts %d and %d", Count(0, 1, 2), Count(7, 1, 2))
			}
		})
	}
}
