package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestCommitInFlight has a COMMIT under way when its shard stops to answer:
// a client that waits is told that the outcome is not known, and never that nothing
// was done; a client that leaves takes nothing with it.
func TestCommitInFlight(t *testing.T) {
	server := pgtest.NewServer(t, nil)
	cl, conn, keys := orders(t, config{
		urls:     []string{pgtest.Database(t), pgtest.DatabaseOn(t, server)},
		limits:   gateway.Limits{CancelMax: time.Second},
		executor: limitsOf(4),
	})
	k := keys[1][0]
	begin := func(id int) *client {
		c := cl.raw(t)
		c.send(&pgproto3.Query{String: fmt.Sprintf("BEGIN; INSERT INTO orders VALUES (%d, %d, 'n')", k, id)})
		c.want("C BEGIN", "C INSERT 0 1", "Z T")
		return c
	}
	cancelled, leaving := begin(1), begin(2)
	thaw := freeze(t, server)
	cancelled.send(&pgproto3.Query{String: "COMMIT"})
	leaving.send(&pgproto3.Query{String: "COMMIT"})
	// Both are with the shard before anything else happens to them.
	for end := time.Now().Add(waitfor.Max); one[int](t, conn, "SELECT count(*) FROM cleave.sessions WHERE state = 'active'") < 3; {
		if time.Now().After(end) {
			t.Fatal("the COMMITs were not sent")
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = leaving.nc.Close()
	cancel := cl.dial(t)
	cancel.send(&pgproto3.CancelRequest{ProcessID: cancelled.key.ProcessID, SecretKey: cancelled.key.SecretKey})
	cancelled.want("E 08007", "Z I")
	thaw()
	// The shard had both COMMITs or had not: each row is there once or not at all,
	// and nothing holds a lock on it.
	ctx, stop := context.WithTimeout(t.Context(), waitfor.Max)
	defer stop()
	for id := 1; id <= 2; id++ {
		for {
			_, err := conn.Exec(ctx, "INSERT INTO orders VALUES ($1, $2, 'again') ON CONFLICT DO NOTHING", k, id)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("row %d: %v", id, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE tenant_id = $1", k); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// TestParameterOfUserType: the number of a type that is not PostgreSQL's own, which
// would mean another type on another shard, is translated.
func TestParameterOfUserType(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	exec(t, conn, "CREATE TYPE mood AS ENUM ('ok', 'bad')")
	exec(t, conn, "CREATE TABLE whole (m mood)")
	oid := one[uint32](t, conn, "SELECT 'mood'::regtype::oid")
	c := cl.raw(t)
	for _, ks := range keys {
		c.send(parse("", "SELECT count($1) FROM orders WHERE tenant_id = "+fmt.Sprint(ks[0]), oid), bind("", "", "ok"), do("", 0), syncMsg)
		c.want("1", "2", "D 0", "C SELECT 1", "Z I")
		c.send(parse("", "SELECT count($1) FROM orders WHERE tenant_id = "+fmt.Sprint(ks[0]), oid), bind("", "", "none"), do("", 0), syncMsg)
		c.want("1", "E 22P02", "Z I")
	}
	c.send(parse("", "INSERT INTO whole VALUES ($1)", oid), bind("", "", "ok"), do("", 0), syncMsg)
	c.want("1", "2", "C INSERT 0 1", "Z I")
	c.send(parse("", fmt.Sprintf("SELECT $1::mood FROM (VALUES (1)) v LEFT JOIN orders ON tenant_id = %d", keys[0][0])), bind("", "", "bad"), do("", 0), syncMsg)
	c.want("1", "2", "D bad", "C SELECT 1", "Z I")
}

// TestPortalOfAnOlderMap: a portal that waits in a transaction while the map
// changes is not run by the old one.
func TestPortalOfAnOlderMap(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	k := fmt.Sprint(keys[0][0])
	c := cl.raw(t)
	c.send(&pgproto3.Query{String: "BEGIN"})
	c.want("C BEGIN", "Z T")
	c.send(parse("s", "UPDATE orders SET note = 'x' WHERE tenant_id = $1"), bind("p", "s", k), bind("q", "s", k), do("q", 0), syncMsg)
	c.want("1", "2", "2", "C UPDATE 0", "Z T")
	exec(t, conn, "CREATE TABLE another (x int)") // any change of the map
	c.send(do("p", 0), syncMsg)
	c.want("E 40001", "Z E")
	c.send(&pgproto3.Query{String: "ROLLBACK"})
	c.want("C ROLLBACK", "Z I")
	// A cursor that was begun goes on: it shows the data of its beginning.
	exec(t, conn, "INSERT INTO orders SELECT $1::bigint, g, 'n' FROM generate_series(1, 3) g WHERE $1::bigint = "+k, keys[0][0])
	c.send(&pgproto3.Query{String: "BEGIN"})
	c.want("C BEGIN", "Z T")
	c.send(parse("r", "SELECT id FROM orders WHERE tenant_id = $1 ORDER BY id"), bind("p", "r", k), do("p", 1), syncMsg)
	c.want("1", "2", "D 1", "s", "Z T")
	exec(t, conn, "CREATE TABLE yet_another (x int)")
	c.send(do("p", 0), syncMsg)
	c.want("D 2", "D 3", "C SELECT 2", "Z T")
}
