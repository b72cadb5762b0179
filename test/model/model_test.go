// Package model_test checks the models in docs/model with SPIN: each protocol as it is
// holds what it claims, and each way of breaking it is found.
package model_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
)

var routers = flag.Int("routers", 1, "routers in TestCutover: 1 or 2")

var errorsLine = regexp.MustCompile(`errors: (\d+)`)

// verify checks a model with a macro set and reports whether SPIN found an error.
func verify(t *testing.T, name, macro string, routers int) (found bool, out string) {
	t.Helper()
	model, err := filepath.Abs("../../docs/model/" + name + ".pml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	run(pgtest.Spin(t), "-D"+macro, fmt.Sprintf("-DROUTERS=%d", routers), "-a", model)
	memory := "-DCOLLAPSE"
	if routers > 1 {
		memory = "-DHC4" // states as hashes of 64 bits
	}
	run("cc", "-w", "-O1", "-DSAFETY", memory, fmt.Sprintf("-DMEMLIM=%d", 2000*routers*routers*routers), "-o", "pan", "pan.c")
	out = run(filepath.Join(dir, "pan"), "-m400000", fmt.Sprintf("-w%d", 19+3*routers))
	m := errorsLine.FindStringSubmatch(out)
	if m == nil || strings.Contains(out, "max search depth too small") || strings.Contains(out, "memory limit") {
		t.Fatalf("the search was not complete:\n%s", out)
	}
	return m[1] != "0", out
}

func TestCutover(t *testing.T) { holds(t, "cutover", *routers) }

func TestBrokenCutovers(t *testing.T) { breaks(t, "cutover", 6) }

func TestSchemaChange(t *testing.T) { holds(t, "schema", 1) }

func TestBrokenSchemaChanges(t *testing.T) { breaks(t, "schema", 5) }

func holds(t *testing.T, model string, routers int) {
	t.Helper()
	if found, out := verify(t, model, "WHOLE", routers); found {
		t.Errorf("the model breaks its claims (run `spin -a`, then `pan`, then `spin -t -p -g` for the steps):\n%s", out)
	}
}

// breaks shows that the model can fail: every macro that its head names takes
// one safeguard away.
func breaks(t *testing.T, model string, ways int) {
	t.Helper()
	text, err := os.ReadFile("../../docs/model/" + model + ".pml")
	if err != nil {
		t.Fatal(err)
	}
	macros := regexp.MustCompile(`-D([A-Z_]+) \(`).FindAllStringSubmatch(string(text), -1)
	if len(macros) < ways {
		t.Fatalf("the model's head names %d ways of breaking it", len(macros))
	}
	for _, m := range macros {
		if found, out := verify(t, model, m[1], 1); !found {
			t.Errorf("with %s nothing is found:\n%s", m[1], out)
		} else if !strings.Contains(out, "assertion violated") {
			t.Errorf("with %s something else than a claim fails:\n%s", m[1], out)
		}
	}
}
