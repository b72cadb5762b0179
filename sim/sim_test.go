package sim_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sim"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed of TestSeed")
	brk   = flag.String("break", "", "the safeguard that TestSeed leaves out")
	forth = flag.Duration("for", 0, "how long TestClusters goes on; 0: 15s, in a short run 5s")
)

// TestClusters runs clusters of ever new seeds.
func TestClusters(t *testing.T) {
	var all sim.Report
	first := rand.Uint64() >> 16
	n := uint64(0)
	length := *forth
	if length == 0 {
		length = testrun.Pick(5*time.Second, 15*time.Second)
	}
	for end := time.Now().Add(length); time.Now().Before(end); n++ {
		r, err := sim.Run(sim.Options{Seed: first + n})
		if err != nil {
			t.Fatal(err)
		}
		all.Ticks += r.Ticks
		all.Writes += r.Writes
		all.Reads += r.Reads
		all.Scans += r.Scans
		all.Moved += r.Moved
		all.RolledBack += r.RolledBack
		all.Cancelled += r.Cancelled
		all.Failed += r.Failed
		all.Crashes += r.Crashes
	}
	t.Logf("%d clusters from seed %d: %+v", n, first, all)
	if all.Moved == 0 || all.RolledBack == 0 || all.Cancelled == 0 || all.Scans == 0 || all.Writes == 0 || all.Crashes == 0 {
		t.Errorf("not everything happened: %+v", all)
	}
}

// TestBreaks: each safeguard that is left out is missed within a minute.
func TestBreaks(t *testing.T) {
	testrun.Short(t)
	for _, b := range sim.Breaks {
		t.Run(string(b), func(t *testing.T) {
			began := time.Now()
			for s := uint64(1); time.Since(began) < time.Minute; s++ {
				_, err := sim.Run(sim.Options{Seed: s, Break: b})
				if v := new(sim.Violation); errors.As(err, &v) {
					t.Logf("found after %d clusters, %s: %v", s, time.Since(began).Round(time.Millisecond), v)
					return
				}
			}
			t.Error("nothing was found in a minute")
		})
	}
}

// TestSeed shows one run step by step.
func TestSeed(t *testing.T) {
	o := sim.Options{Seed: *seed, Break: sim.Break(*brk)}
	if *seed != 0 {
		o.Trace = func(line string) { t.Log(line) }
	}
	if _, err := sim.Run(o); err != nil {
		t.Error(err)
	}
}
