package cleave_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
)

// TestGuardsAreMendedBesideChanges: a shard's guards refuse what the map gives it, as when who changed both died between the two.
// They are set by themselves, although the map changes all the time for other reasons.
func TestGuardsAreMendedBesideChanges(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := postgresURL(t, 2)
	c := open(t, url)
	run(t, c.DB(), createOrders)
	o, err := c.ForKey(ctx, "hash_bigint", 7)
	if err != nil {
		t.Fatal(err)
	}
	to := another(c, o.Shard())
	dir, err := wiring.OpenDirectory(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	edit := func(change func(*shardmap.State)) {
		snap, err := dir.Load(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		next := snap.State().Clone()
		change(&next)
		// A conflict is another change of the map.
		_, _ = dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Op: "test", Why: "test"}, next)
	}
	stop := make(chan struct{})
	var changes sync.WaitGroup
	defer changes.Wait()
	defer close(stop)
	changes.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
				edit(func(s *shardmap.State) { s.Shards[0].Labels = map[string]string{"n": fmt.Sprint(n)} })
			}
		}
	})
	waitfor.True(t, "the map gives the key to another shard", func() bool {
		edit(func(s *shardmap.State) { _ = s.PutPin("hash_bigint", []string{"7"}, to) })
		ix, _ := c.Snapshot().Keyspace("hash_bigint")
		return len(ix.Def().Pins) == 1
	})
	waitfor.True(t, "the shard takes the key", func() bool {
		_, err := c.DB().Exec("INSERT INTO orders VALUES (7, 1, 'tea')")
		if err != nil && codeOf(err) != "40001" {
			t.Fatal(err)
		}
		return err == nil
	})
}
