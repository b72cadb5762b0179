package shardmap_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/shardmap"
)

func replicated(replicas ...string) shardmap.State {
	return shardmap.State{Format: shardmap.Format, Cluster: "c", DefaultShard: "s", Shards: []shardmap.Shard{
		{Name: "s", Engine: "postgres", URL: "postgres://u:secret@a/d", Weight: 1, Replicas: replicas, System: "7312345678901234567"}}}
}

func TestReplicasAreValidated(t *testing.T) {
	many := make([]string, shardmap.MaxReplicas+1)
	for i := range many {
		many[i] = fmt.Sprint("postgres://h", i, "/d")
	}
	for name, bad := range map[string][]string{
		"empty": {""}, "the URL itself": {"postgres://u:secret@a/d"}, "twice": {"postgres://b/d", "postgres://b/d"}, "control": {"postgres://b/\n"}, "many": many,
	} {
		_, err := shardmap.NewSnapshot(replicated(bad...))
		if !errors.Is(err, shardmap.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	nameless := replicated("postgres://b/d")
	nameless.Shards[0].System = ""
	if _, err := shardmap.NewSnapshot(nameless); !errors.Is(err, shardmap.ErrInvalid) {
		t.Errorf("without a system identifier: %v", err)
	}
}

func TestReplicasInDiffsAndCopies(t *testing.T) {
	st := replicated("postgres://u:hidden@b/d")
	a, err := shardmap.NewSnapshot(replicated())
	if err != nil {
		t.Fatal(err)
	}
	b, err := shardmap.NewSnapshot(st)
	if err != nil {
		t.Fatal(err)
	}
	diff := shardmap.Diff(a, b)
	if len(diff) != 1 || !strings.Contains(diff[0].String(), "replica postgres://u:xxxxx@b/d") || strings.Contains(diff[0].String(), "hidden") {
		t.Errorf("%v", diff)
	}
	sh := b.State().Shards[0]
	if got := sh.Endpoints(); len(got) != 2 || got[0] != sh.URL || got[1] != sh.Replicas[0] {
		t.Errorf("%v", got)
	}
	c := b.State().Clone()
	c.Shards[0].Replicas[0] = "changed"
	if b.State().Shards[0].Replicas[0] == "changed" {
		t.Error("a copy shares the list")
	}
	if text := fmt.Sprint(sh); strings.Contains(text, "hidden") || strings.Contains(text, "secret") {
		t.Errorf("%s", text)
	}
}
