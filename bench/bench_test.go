package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
)

// TestBench runs every part of the benchmark once, small: the figures say nothing, but each of them is made.
func TestBench(t *testing.T) {
	testrun.Long(t, "it takes a minute; the short run compiles the benchmark")
	folder := t.TempDir()
	cleave, bench := filepath.Join(folder, "cleave"), filepath.Join(folder, "bench")
	for what, into := range map[string]string{"../cmd/cleave": cleave, ".": bench} {
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", into, what).CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", what, err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), bench, "-cleave", cleave, "-seconds", "1", "-rounds", "1", "-clients", "2", "-rows", "200", "-texts", "200", "-spread", "500", "-targets", "direct,cleave")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, said.String(), out.String())
	}
	for _, part := range []string{"select prepared | cleave", "COPY FROM", "two updates on two shards", "rows moved from", "statements of distinct text", "SQLite shards"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("there is no %q in\n%s", part, out.String())
		}
	}
}
