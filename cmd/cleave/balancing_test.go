package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBalancingPage runs the commands of docs/balancing.md, in their order.
func TestBalancingPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/balancing.md")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, "up", "--data", filepath.Join(t.TempDir(), "data"), "--shards", "4")
	r.ok("keyspace", "create", "hash_bigint", "--type", "bigint", "--ranges", "16")
	r.ok("sql", "CREATE TABLE orders (tenant_id bigint, id int, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')", "INSERT INTO orders VALUES (42, 1), (43, 1), (44, 1)")
	ran := 0
	for block := range strings.SplitSeq(string(page), "```sh\n") {
		text, _, ok := strings.Cut(block, "```")
		if !ok || !strings.HasPrefix(text, "cleave ") {
			continue
		}
		for line := range strings.Lines(text) {
			ran++
			out := r.ok(shellWords(strings.TrimSpace(line))[1:]...)
			if strings.HasPrefix(line, "cleave constraint list") && (!strings.Contains(out, "apart") || strings.Contains(out, "alone")) {
				t.Errorf("%s:\n%s", line, out)
			}
		}
	}
	if ran < 13 {
		t.Errorf("%d commands ran", ran)
	}
	var p struct {
		Policy  struct{ Mode string }
		History []struct{ By string }
	}
	r.into(&p, "policy")
	if p.Policy.Mode != "manual" || len(p.History) != 2 {
		t.Errorf("%+v", p)
	}
	if code, _, stderr := r.cleave("", "policy", "set", "--min-skew", "1.01"); code != exitFailed || !strings.Contains(stderr, "22023") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if code, _, stderr := r.cleave("", "constraint", "add", "x", "--kind", "residency", "--label", "region=mars"); code != exitFailed || !strings.Contains(stderr, "no shard") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
