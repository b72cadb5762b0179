package schema

import (
	"context"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// guard is what the guard of a table on a shard says.
func (c *cluster) guard(shard, table string) engine.GuardState {
	c.t.Helper()
	conn, release, err := c.connect(context.Background(), shard)
	if err != nil {
		c.t.Fatal(err)
	}
	defer release(false)
	is, err := conn.Guard(context.Background(), "public", table)
	if err != nil {
		c.t.Fatal(err)
	}
	if is == nil {
		return engine.GuardState{}
	}
	return *is
}

// gaveAway sets the guard of a table as a move does of which the map knows nothing any more: the shard has given all its keys away.
func (c *cluster) gaveAway(shard, table string) {
	c.t.Helper()
	ctx := context.Background()
	snap := c.snap()
	t, ok := snap.Table("public", table)
	if !ok {
		c.t.Fatalf("no table %s", table)
	}
	g, _ := GuardOf(snap, t, shard)
	g.Owned.Intervals, g.Owned.Pinned, g.Owned.PinnedElsewhere = nil, nil, nil
	g.Owned.Epoch = snap.Version() + 10
	conn, release, err := c.connect(ctx, shard)
	if err != nil {
		c.t.Fatal(err)
	}
	defer release(false)
	if _, err := engine.Exec(conn, "BEGIN"); err != nil {
		c.t.Fatal(err)
	}
	if err := conn.SetGuard(ctx, g); err != nil {
		c.t.Fatal(err)
	}
	if _, err := engine.Exec(conn, "COMMIT"); err != nil {
		c.t.Fatal(err)
	}
}

// TestMapPutBackSetsNoGuards has a directory that was put back to an older state, and every schema change that sets guards: it is
// refused, and the guards stay as they are. A guard of the older map would take rows again that belong to another shard by now.
func TestMapPutBackSetsNoGuards(t *testing.T) {
	server := pgtest.Server(t)
	key := rename(true, "orders", "orders")
	key.Text, key.DDL.Renamed = "ALTER TABLE orders RENAME COLUMN tenant_id TO customer", nil
	for _, tc := range []struct {
		name string
		run  func(c *cluster) error
	}{
		{"a new table", func(c *cluster) error { return c.one(c.options(), create("bills", orders, "tenant_id")) }},
		{"a new name", func(c *cluster) error { return c.one(c.options(), rename(true, "orders", "old_orders")) }},
		{"a new name, and back", func(c *cluster) error {
			return c.one(c.options(), rename(true, "orders", "old_orders"), rename(true, "old_orders", "orders"))
		}},
		{"a new name of the key", func(c *cluster) error { return c.one(c.options(), key) }},
		{"a table that is distributed", func(c *cluster) error {
			return c.distribute(c.options(), Becomes{TableName: public("plain"), ShardKey: []string{"tenant_id"}}, "")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, server, 2)
			c.must(create("orders", orders, "tenant_id"))
			c.must(create("plain", orders))
			c.gaveAway("shard-1", "orders")
			was := c.guard("shard-1", "orders")
			own, err := keyspace.DecodeOwned(was.Owns)
			if err != nil || !own.Empty() || was.Epoch <= c.snap().Version() {
				t.Fatalf("the guard is %+v: %v", was, err)
			}
			refusal := code(t, tc.run(c), sqlstate.ObjectNotInState)
			if !strings.Contains(refusal.Message, "newest version of the map") || refusal.Shard != "shard-1" || refusal.Hint == "" {
				t.Errorf("%s: %s; shard %q, hint %q", refusal.Code, refusal.Message, refusal.Shard, refusal.Hint)
			}
			if is := c.guard("shard-1", "orders"); is != was {
				t.Errorf("the guard was %+v, is %+v", was, is)
			}
			// What sets no guard goes on.
			c.must(alter(true, "orders", "ADD COLUMN more text"))
		})
	}
}

// TestGuardIsReadWithoutLock has a table that is locked: one beside it, whose guard is compared with that table's, is made nevertheless.
func TestGuardIsReadWithoutLock(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	c.must(create("orders", orders, "tenant_id"))
	c.query("shard-1", "BEGIN")
	c.query("shard-1", "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
	c.must(create("bills", orders, "tenant_id"))
	c.query("shard-1", "COMMIT")
	c.must(rename(true, "bills", "invoices"))
	if is, other := c.guard("shard-1", "invoices"), c.guard("shard-1", "orders"); is.Owns == "" || is.Owns != other.Owns {
		t.Errorf("%+v, %+v", is, other)
	}
}
