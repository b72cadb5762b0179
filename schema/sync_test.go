package schema

import (
	"context"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestGuardsAreSetBetweenWrites: a transaction has written one table, so that the guards of a keyspace cannot be set. Writes of the
// other tables go on meanwhile: a process that locks one table and waits for the next would be in a ring with clients, or stand in their way.
func TestGuardsAreSetBetweenWrites(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	c.must(create("a", orders, "tenant_id"))
	c.must(create("b", orders, "tenant_id"))
	c.query("shard-1", "BEGIN")
	c.query("shard-1", "LOCK TABLE b IN ROW EXCLUSIVE MODE")
	opts := c.options() // waits for 2 s
	set := make(chan error, 1)
	go func() {
		_, err := SyncGuards(context.Background(), opts, c.snap().State().Tables[0].Keyspace, "shard-1", nil, nil)
		set <- err
	}()
	writer, release, err := c.connect(context.Background(), "shard-1")
	if err != nil {
		t.Fatal(err)
	}
	defer release(true)
	for n := range 20 {
		if !good(writer, "SET lock_timeout = '1s'; LOCK TABLE a IN ROW EXCLUSIVE MODE") {
			t.Fatalf("write %d of a table that nobody writes has waited for a second", n)
		}
		pgtest.Ask(t, c.urls["shard-1"], "SELECT pg_sleep(0.05)")
	}
	c.query("shard-1", "COMMIT")
	if err := <-set; err != nil {
		t.Fatal(err)
	}
}
