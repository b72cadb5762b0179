package main

import (
	"os"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/telemetry"
)

const (
	metricsBegin = "<!-- metrics: made by make docs -->\n"
	metricsEnd   = "<!-- end of metrics -->\n"
)

func TestMetricsTable(t *testing.T) {
	const page = "../../docs/metrics.md"
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(old), metricsBegin)
	_, after, ok2 := strings.Cut(rest, metricsEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has lost the marks %q and %q", page, metricsBegin, metricsEnd)
	}
	golden(t, page, []byte(before+metricsBegin+telemetry.Table()+metricsEnd+after))
}
