package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/shardmap/shardmaptest"
)

func TestConformance(t *testing.T) {
	shardmaptest.Run(t, func(*testing.T) shardmap.Directory {
		return memory.NewWith(memory.Options{LeaseTTL: shardmaptest.LeaseTTL})
	})
}

func TestClock(t *testing.T) {
	at := time.Date(2026, 11, 21, 1, 2, 3, 4567, time.FixedZone("x", 3600))
	d := memory.NewWith(memory.Options{Now: func() time.Time { return at }})
	defer d.Close()
	if _, err := d.Update(context.Background(), shardmap.Change{By: "t", Op: "test"}, shardmaptest.State(t)); err != nil {
		t.Fatal(err)
	}
	list, err := d.History(context.Background(), 0, 1)
	if err != nil || len(list) != 1 {
		t.Fatalf("History: %v, %v", list, err)
	}
	if want := at.UTC().Truncate(time.Microsecond); list[0].At != want {
		t.Fatalf("the change was made at %v, want %v", list[0].At, want)
	}
}
