package move

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgtest"
)

var report = flag.String("report", "", "a file to which a soak's curve of memory, goroutines and open files is written")

// sample is what the router that is never killed has in use, between two rounds.
type sample struct {
	round      int
	operations int
	resident   float64 // MiB
	heap       float64 // MiB
	goal       float64 // MiB: the heap at which memory is collected next, about twice what is alive
	plans      float64 // MiB of the plan cache, which has a bound
	goroutines float64
	files      float64
}

// curve is a soak's samples.
type curve struct {
	h       *histories
	of      *router
	first   sample // before anybody worked
	samples []sample
}

// take asks the router for its metrics.
func (c *curve) take(round, operations int) (sample, error) {
	one := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := one.Get("http://" + c.of.admin + "/metrics")
	if err != nil {
		return sample{}, err
	}
	defer res.Body.Close()
	s := sample{round: round, operations: operations}
	want := map[string]*float64{
		"process_resident_memory_bytes": &s.resident, "go_memstats_heap_inuse_bytes": &s.heap,
		"go_memstats_next_gc_bytes": &s.goal, "cleave_plan_cache_bytes": &s.plans,
		"go_goroutines": &s.goroutines, "process_open_fds": &s.files,
	}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if to := want[name]; to != nil {
			if *to, err = strconv.ParseFloat(value, 64); err != nil {
				return sample{}, fmt.Errorf("%s: %w", name, err)
			}
			delete(want, name)
		}
	}
	for _, of := range []*float64{&s.resident, &s.heap, &s.goal, &s.plans} {
		*of /= 1 << 20
	}
	if len(want) > 0 {
		return sample{}, fmt.Errorf("the router has no metrics %v", want)
	}
	return s, nil
}

func (c *curve) add(round, operations int) {
	s, err := c.take(round, operations)
	if err != nil {
		_ = c.h.wrong("the router that is never killed: %v", err)
		return
	}
	c.samples = append(c.samples, s)
}

// flatAfter is how many samples are needed to speak of a curve: caches fill first.
const flatAfter = 24

// flat compares the middle of the soak with its end. What leaks grows in proportion
// to what was done, and by then that is half as much again.
func (c *curve) flat() {
	n := len(c.samples)
	if n < flatAfter {
		c.h.t.Logf("%d rounds are too few to say whether memory grows", n)
		return
	}
	for _, of := range []struct {
		name  string
		value func(sample) float64
		slack float64
	}{
		{"resident memory in MiB", func(s sample) float64 { return s.resident }, 24},
		{"heap in MiB", func(s sample) float64 { return s.heap }, 16},
		{"goroutines", func(s sample) float64 { return s.goroutines }, 40},
		{"open files", func(s sample) float64 { return s.files }, 40},
	} {
		middle, end := median(c.samples[n/3:n*2/3], of.value), median(c.samples[n*2/3:], of.value)
		if end > 1.15*middle+of.slack {
			_ = c.h.wrong("%s of the router that is never killed: %.0f in the middle of the soak, %.0f at its end", of.name, middle, end)
		}
	}
}

func median(of []sample, value func(sample) float64) float64 {
	values := make([]float64, len(of))
	for i, s := range of {
		values[i] = value(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// left waits until the router has no more goroutines and files than before anybody worked, but
// for what it keeps for the next client: connections to the shards.
func (c *curve) left() {
	const kept = 100
	var s sample
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if s, err = c.take(0, 0); err == nil && s.goroutines <= c.first.goroutines+kept && s.files <= c.first.files+kept {
			return
		}
		if time.Now().After(end) {
			_ = c.h.wrong("when nobody works any more %.0f goroutines and %.0f open files are left; there were %.0f and %.0f before (%v)", s.goroutines, s.files, c.first.goroutines, c.first.files, err)
			return
		}
	}
}

// write adds a table of the curve to the report.
func (c *curve) write(command string) {
	if *report == "" || len(c.samples) == 0 {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## %s, %s\n\n`%s`\n\n%s\n\n", c.h.kind, time.Now().UTC().Format("2006-01-02"), command, strings.ReplaceAll(strings.TrimSpace(c.h.figures()), "\n", "\n\n"))
	b.WriteString("| round | operations recorded | resident, MiB | heap in use, MiB | heap that is collected, MiB | plan cache, MiB | goroutines | open files |\n|---|---|---|---|---|---|---|---|\n")
	step := max(1, len(c.samples)/40)
	for i, s := range c.samples {
		if i%step == 0 || i == len(c.samples)-1 {
			fmt.Fprintf(&b, "| %d | %d | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", s.round, s.operations, s.resident, s.heap, s.goal, s.plans, s.goroutines, s.files)
		}
	}
	b.WriteString("\n")
	f, err := os.OpenFile(*report, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.h.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(b.String()); err != nil {
		c.h.t.Fatal(err)
	}
}

// residue is what is left on the shards' servers when nobody works any more.
var residue = map[string]string{
	"prepared transactions":          "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()",
	"replication slots":              "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()",
	"advisory locks":                 "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
	"open transactions":              "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()",
	"temporary tables":               "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'",
	"temporary files of this server": "SELECT count(*) FROM pg_ls_tmpdir()",
}

// nothingLeft waits until the shards have nothing of the clients any more.
func (h *histories) nothingLeft() {
	if h.kind != "postgres" {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), 2*patience)
	defer stop()
	snap, err := h.dir.Load(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, s := range snap.Shards() {
		conn, err := h.dial(ctx, pgtest.Super(s.URL))
		if err != nil {
			h.t.Fatal(err)
		}
		for what, sql := range residue {
			var n string
			for end := time.Now().Add(patience); n != "0" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				res, err := conn.Exec(ctx, sql).ReadAll()
				if err != nil {
					h.t.Fatal(err)
				}
				if n = string(res[0].Rows[0][0]); n == "0" {
					break
				}
			}
			if n != "0" {
				_ = h.wrong("%s left on %s: %s", what, s.Name, n)
			}
		}
		_ = conn.Close(ctx)
	}
}
