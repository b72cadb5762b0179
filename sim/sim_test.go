package sim_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sim"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed of TestSeed")
	brk   = flag.String("break", "", "the safeguard that TestSeed leaves out")
	aim   = flag.String("aim", "", "the safeguard whose situation TestSeed makes likely")
	forth = flag.Duration("for", 0, "how long TestClusters goes on; 0: 15s, in a short run 5s")
)

// TestMain: one thing happens at a time, so that more than one processor only makes them wait for each other.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	goleak.VerifyTestMain(m)
}

// TestClusters runs clusters of ever new seeds, until the time is over and everything has happened.
func TestClusters(t *testing.T) {
	var all sim.Report
	first := rand.Uint64() >> 16
	n := uint64(0)
	length := *forth
	if length == 0 {
		length = testrun.Pick(5*time.Second, 15*time.Second)
	}
	everything := func() bool {
		return all.Moved > 0 && all.RolledBack > 0 && all.Cancelled > 0 && all.Scans > 0 && all.Writes > 0 && all.Crashes > 0
	}
	for end := time.Now().Add(length); time.Now().Before(end) || !everything() && n < enough; n++ {
		r, err := run(t, sim.Options{Seed: first + n, Aim: []sim.Break{sim.Whole, sim.Whole, sim.Whole, sim.NoTransaction, sim.Whole, sim.Whole, sim.Whole, sim.BlindBack}[n%8]})
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
	if !everything() {
		t.Errorf("not everything happened: %+v", all)
	}
}

// enough is among how many clusters everything happens, missed among how many a safeguard that is left out is: most of them
// among ten, those of leases among some hundred.
const (
	enough = 500
	missed = 3000
	aimed  = 60 // clusters with an aim: one in five and one in three have it
)

// aims are the breaks for which a run needs an aim, and what it is.
var aims = map[sim.Break]sim.Break{sim.NoTransaction: sim.NoTransaction, sim.BlindBack: sim.BlindBack}

// TestBreaks: each safeguard that is left out is missed. With it nothing is wrong in the same cluster.
func TestBreaks(t *testing.T) {
	testrun.Short(t)
	for _, b := range sim.Breaks {
		t.Run(string(b), func(t *testing.T) {
			clusters := uint64(missed)
			if aims[b] != sim.Whole {
				clusters = aimed
			}
			for s := uint64(1); s <= clusters; s++ {
				_, err := run(t, sim.Options{Seed: s, Break: b, Aim: aims[b]})
				if v := new(sim.Violation); errors.As(err, &v) {
					if _, err := run(t, sim.Options{Seed: s, Aim: aims[b]}); err != nil {
						t.Fatalf("it is no break that is found: %v", err)
					}
					t.Logf("found after %d clusters: %v", s, v)
					return
				}
			}
			t.Errorf("nothing was found in %d clusters", clusters)
		})
	}
}

// TestSameRun: a seed gives the same run, step by step.
func TestSameRun(t *testing.T) {
	for seed := range uint64(testrun.Pick(3, 20)) {
		trace := func() (lines []string) {
			_, err := run(t, sim.Options{Seed: seed, Trace: func(line string) { lines = append(lines, line) }})
			if err != nil {
				t.Fatal(err)
			}
			return lines
		}
		first, second := trace(), trace()
		for i := range min(len(first), len(second)) {
			if first[i] != second[i] {
				t.Fatalf("seed %d: %q is %q the second time, after %q", seed, first[i], second[i], first[max(i-1, 0)])
			}
		}
		if len(first) != len(second) {
			t.Fatalf("seed %d: %d steps, and %d", seed, len(first), len(second))
		}
	}
}

// TestSeed shows one run step by step.
func TestSeed(t *testing.T) {
	o := sim.Options{Seed: *seed, Break: sim.Break(*brk), Aim: sim.Break(*aim)}
	if *seed != 0 {
		o.Trace = func(line string) { t.Log(line) }
	}
	if _, err := run(t, o); err != nil {
		t.Error(err)
	}
}

// run is sim.Run in a bubble.
func run(t *testing.T, o sim.Options) (r sim.Report, err error) {
	synctest.Test(t, func(*testing.T) { r, err = sim.Run(o) })
	return r, err
}
