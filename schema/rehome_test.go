package schema

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestRehomeCrash stops the change of the default shard at each step in turn, recovers, and asks that one shard
// takes writes of the unsharded tables, with all rows; run again, it is done. There and back, so that each shard is both.
func TestRehomeCrash(t *testing.T) {
	testrun.Long(t, "a change of the default shard is stopped at each of its many steps; TestRehomeLargeObjects makes one")
	c := newCluster(t, pgtest.Server(t), 2)
	ctx := context.Background()
	c.query("shard-0", "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent, note text DEFAULT 'x'); CREATE INDEX child_note ON child (note)")
	if _, err := Recover(ctx, RecoverOptions{Directory: c.dir, Connect: c.connect, Adopt: true}); err != nil {
		t.Fatal(err)
	}
	c.query("shard-0", "INSERT INTO parent SELECT n FROM generate_series(1, 10) AS n; INSERT INTO child SELECT n, n FROM generate_series(1, 10) AS n")
	rows, stood := 10, 0
	rehome := func(o Options, to string) error {
		o.Connect = func(ctx context.Context, shard string) (engine.Conn, func(bool), error) {
			if shard != to {
				return c.connect(ctx, shard)
			}
			conn, err := c.shards[to].(engine.Carrier).ConnectCarrier(ctx, map[string]string{"application_name": "cleave"})
			return conn, func(bool) { _ = conn.Close() }, err
		}
		home := c.snap().State().DefaultShard
		return Rehome(ctx, o, to, func(_ context.Context, from, to engine.Conn, table *shardmap.Table, ahead bool) error {
			if there, err := engine.Exec(to, "SELECT count(*) FROM "+table.QualifiedName()); err != nil {
				return err
			} else if !ahead && there.Rows[0][0].String != "0" {
				stood++
			}
			if err := to.(engine.Triggered).PastTriggers(ctx); err != nil {
				return err
			}
			if _, err := engine.Exec(to, "DELETE FROM "+table.QualifiedName()); err != nil {
				return err
			}
			if ahead && table.Name == "child" { // afterwards, so that not all rows are there
				defer func() {
					rows++
					c.query(home, fmt.Sprintf("INSERT INTO child VALUES (%d, 1)", rows))
				}()
			}
			res, err := engine.Exec(from, "SELECT * FROM "+table.QualifiedName())
			if err != nil {
				return err
			}
			for _, row := range res.Rows {
				sql := "INSERT INTO " + table.QualifiedName() + " VALUES ("
				for i, v := range row {
					if i > 0 {
						sql += ", "
					}
					sql += quote(v.String)
				}
				if _, err := engine.Exec(to, sql+")"); err != nil {
					return err
				}
			}
			return nil
		}, func(context.Context, uint64) error { return nil })
	}
	look := func(at string) string {
		t.Helper()
		c.agreeButTables()
		home := c.snap().State().DefaultShard
		for name := range c.shards {
			rows++
			_, err := c.try(name, fmt.Sprintf("INSERT INTO child VALUES (%d, 1)", rows))
			if name == home && err != nil {
				t.Fatalf("stopped at %q: the default shard %s takes no row: %v", at, name, err)
			}
			if name != home {
				rows--
				if err == nil {
					t.Fatalf("stopped at %q: %s takes a row, and the default shard is %s", at, name, home)
				}
			}
		}
		if n := c.query(home, "SELECT count(*) FROM child").Rows[0][0].String; n != fmt.Sprint(rows) {
			t.Fatalf("stopped at %q: %s of %d rows", at, n, rows)
		}
		return home
	}
	stops := 0
	for at := "?"; at != ""; stops++ {
		n, steps := stops+1, 0
		at = ""
		to := "shard-1"
		if c.snap().State().DefaultShard == to {
			to = "shard-0"
		}
		o := c.options()
		o.step = func(step, shard string) error {
			if steps++; steps == n {
				at = step + " " + shard
				return errStop
			}
			return nil
		}
		err := rehome(o, to)
		if (err == nil) != (at == "") || err != nil && !errors.Is(err, errCrash) {
			t.Fatalf("stopped at %q: %v", at, err)
		}
		c.waitIdle()
		c.recover()
		look(at)
		if err := rehome(c.options(), to); err != nil {
			t.Fatalf("stopped at %q, and again: %v", at, err)
		}
		if home := look(at); home != to {
			t.Fatalf("stopped at %q: the default shard is %s", at, home)
		}
	}
	if stood == 0 {
		t.Error("no rows were copied ahead")
	}
	if stops < 6 {
		t.Fatalf("only %d steps", stops)
	}
}

// agreeButTables is agree, but for tables that are not in the map: those of the former default shard.
func (c *cluster) agreeButTables() {
	c.t.Helper()
	found, err := Recover(context.Background(), RecoverOptions{Directory: c.dir, Connect: c.connect, DryRun: true})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range found {
		if f.Level == levelError {
			c.t.Errorf("not as the map says: %+v", f)
		}
	}
}

// TestRehomeLargeObjects: a default shard that has large objects stays it, and those that are made while another becomes it are told.
func TestRehomeLargeObjects(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	rehome := func(during string) error {
		o := Options{Directory: c.dir, Connect: c.connect}
		return Rehome(t.Context(), o, "shard-1", func(context.Context, engine.Conn, engine.Conn, *shardmap.Table, bool) error { return nil },
			func(context.Context, uint64) error {
				c.query("shard-0", during)
				return nil
			})
	}
	c.query("shard-0", "SELECT lo_create(4711)")
	if err := rehome("SELECT 1"); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported || c.snap().State().DefaultShard != "shard-0" {
		t.Fatalf("with a large object: %v, the default shard is %s", err, c.snap().State().DefaultShard)
	}
	c.query("shard-0", "SELECT lo_unlink(4711)")
	if err := rehome("SELECT lo_create(4712)"); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || sqlstate.As(err).Shard != "shard-0" {
		t.Fatalf("one was made meanwhile: %v", err)
	}
}
