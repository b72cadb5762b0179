package admin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

// TestDoctorNamesStuckMoves: a move whose step fails for longer than a minute is named, with its reason and the command that shows it; one
// that goes on, waits for its window, is paused or has ended is not.
func TestDoctorNamesStuckMoves(t *testing.T) {
	c := newCluster(t, 1)
	ctx := context.Background()
	now := time.Now()
	put := func(id string, ago time.Duration, edit func(*workflow.State)) {
		t.Helper()
		at := now.Add(-ago).UnixMilli()
		s := workflow.New(workflow.Spec{ID: id, Kind: workflow.Move, Keyspace: "bank", Part: shardmap.Part{Low: []string{"0"}}, From: "a", To: "b", Options: workflow.Options{}.WithDefaults()}, at)
		s.Step, s.Changed = workflow.Copying, at
		edit(&s)
		b, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.dir.PutRecord(ctx, workflow.RecordPrefix+id, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	fails := func(s *workflow.State) { s.Tries, s.Error = 3, "shard b: no space left on device" }
	put("full", 2*time.Minute, fails)
	put("fresh", 10*time.Second, fails)
	put("works", time.Hour, func(*workflow.State) {})
	put("rests", time.Hour, func(s *workflow.State) { fails(s); s.Paused = true })
	put("ended", time.Hour, func(s *workflow.State) { fails(s); s.Step = workflow.Failed })
	found, err := c.ops.Doctor(ctx, DoctorRequest{Meta: meta})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, f := range found {
		if strings.Contains(f.What, "has not got further") {
			said = append(said, f.Level+" "+f.What+" | "+f.Next)
		}
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], LevelWarning+" move full has not got further since ") || !strings.Contains(said[0], "it is copying: shard b: no space left on device") || !strings.HasSuffix(said[0], "| cleave moves full") {
		t.Errorf("%q", said)
	}
}
