package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// existing makes a table with rows past the router, and takes it in.
func (c *cluster) existing(name, columns string) {
	c.t.Helper()
	c.query("shard-0", "CREATE TABLE "+name+" ("+columns+")")
	c.query("shard-0", "INSERT INTO "+name+" (v) SELECT n FROM generate_series(1, 20) AS n")
	if _, err := Recover(context.Background(), RecoverOptions{Directory: c.dir, Connect: c.connect, Adopt: true}); err != nil {
		c.t.Fatal(err)
	}
}

// distribute plans, and runs both changes, as admin does.
func (c *cluster) distribute(o Options, b Becomes, ks string) error {
	ctx := context.Background()
	for _, f := range []func(*Tx) (bool, error){
		func(tx *Tx) (bool, error) {
			_, err := tx.PlanDistribute(ctx, []Becomes{b}, ks)
			return false, err
		},
		func(tx *Tx) (bool, error) {
			n, err := tx.TakeSequences(ctx, []plan.TableName{b.TableName})
			return n > 0, err
		},
		func(tx *Tx) (bool, error) {
			_, err := tx.Distribute(ctx, []Becomes{b}, ks, nil)
			return true, err
		},
	} {
		tx := c.begin(o)
		commit, err := f(tx)
		if err == nil && commit {
			err = tx.Commit(ctx)
		}
		if errors.Is(err, errCrash) {
			return tx.crash(err)
		}
		tx.Rollback(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// TestDistributeRowsCrash stops the sharding of a table with rows at each step in turn, recovers, and runs it
// again: it is finished then, with all rows, and values that come after those given before.
func TestDistributeRowsCrash(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	stops := 0
	for at := "?"; at != ""; stops++ {
		n, steps := stops+1, 0
		at = ""
		b := Becomes{TableName: public(fmt.Sprintf("p%d", n)), ShardKey: []string{"id"}}
		c.existing(b.Name, "id bigserial PRIMARY KEY, v int NOT NULL, w int GENERATED ALWAYS AS IDENTITY")
		o := c.options()
		o.step = func(step, shard string) error {
			if steps++; steps == n {
				at = step + " " + shard
				return errStop
			}
			return nil
		}
		stopped := c.distribute(o, b, "")
		c.waitIdle()
		c.recover()
		if is, _ := c.snap().Table("public", b.Name); is.Kind == shardmap.Whole {
			if stopped == nil {
				t.Fatal("it is whole after all")
			}
			// The shard goes on by itself until then.
			c.query("shard-0", "INSERT INTO "+b.Name+" (v) VALUES (0)")
			if err := c.distribute(c.options(), b, ""); err != nil {
				t.Fatalf("stopped at %q, and again: %v", at, err)
			}
			c.query("shard-0", "DELETE FROM "+b.Name+" WHERE v = 0")
		} else if at == "" && stopped != nil {
			t.Fatal(stopped)
		}
		c.agree()
		is, _ := c.snap().Table("public", b.Name)
		for i, want := range []string{shardmap.SequenceValue("public." + b.Name + "_id_seq"), "", shardmap.SequenceValue("public." + b.Name + "_w_seq")} {
			if is.Columns[i].Generated != want {
				t.Fatalf("stopped at %q: %+v", at, is)
			}
		}
		for _, q := range c.snap().State().Sequences {
			if q.Owner.Table == b.Name && q.First <= 21 {
				t.Fatalf("stopped at %q: %+v", at, q)
			}
		}
		if n := c.query("shard-0", "SELECT count(*) FROM "+b.Name).Rows[0][0].String; n != "20" {
			t.Fatalf("stopped at %q: %s rows", at, n)
		}
		if _, err := c.try("shard-1", "INSERT INTO "+b.Name+" (id, v, w) VALUES (1, 1, 1)"); err == nil {
			t.Fatalf("stopped at %q: shard-1 takes a row", at)
		}
		if _, err := c.try("shard-0", "INSERT INTO "+b.Name+" (v) VALUES (1)"); err == nil {
			t.Fatalf("stopped at %q: the shard makes a value", at)
		}
		c.must(drop(true, b.Name))
	}
	if stops < 15 {
		t.Fatalf("only %d steps", stops)
	}
}

// TestDistributeRefuses: what a table on several shards cannot have, before anything is changed.
func TestDistributeRefuses(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	c.must(create("elsewhere", "k bigint PRIMARY KEY", "k")) // hash_bigint has ranges on both shards
	c.query("shard-0", "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM elsewhere; RETURN NEW; END'")
	for i, s := range []struct {
		columns, after string
		code           sqlstate.Code
	}{
		{"k bigserial PRIMARY KEY, v int", "SELECT 1", "55000"}, // not all of the keyspace is here
		{"k int DEFAULT 1, v int", "SELECT 1", "55000"},         // it may be NULL
		{"k serial PRIMARY KEY, v int UNIQUE", "SELECT 1", "0A000"},
		{"k serial PRIMARY KEY, v int", "ALTER TABLE %s ENABLE ROW LEVEL SECURITY", "0A000"},
		{"k serial PRIMARY KEY, v int", "ALTER TABLE %s SET UNLOGGED", "0A000"},
		{"k serial PRIMARY KEY, v int", "CREATE RULE r AS ON DELETE TO %s DO INSTEAD NOTHING", "0A000"},
		{"k serial PRIMARY KEY, v int", "CREATE TRIGGER a BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION look()", "0A000"},
		{"k serial PRIMARY KEY, v int", "ALTER SEQUENCE %s_k_seq CYCLE", "0A000"},
		{"k smallserial PRIMARY KEY, v int", "SELECT setval('%s_k_seq', 32767)", "2200H"},
		{"k serial PRIMARY KEY, v int", "CREATE TABLE other (a int DEFAULT nextval('%s_k_seq'))", "0A000"},
		{"k serial PRIMARY KEY, v int, w int DEFAULT 1", "CREATE TABLE refers (a int REFERENCES %s)", "0A000"},
	} {
		name := fmt.Sprintf("e%d", i)
		t.Run(s.columns+", "+s.after, func(t *testing.T) {
			c.existing(name, s.columns)
			c.query("shard-0", strings.ReplaceAll(s.after, "%s", name))
			if _, err := Recover(context.Background(), RecoverOptions{Directory: c.dir, Connect: c.connect, Adopt: true}); err != nil {
				t.Fatal(err)
			}
			err := c.distribute(c.options(), Becomes{TableName: public(name), ShardKey: []string{"k"}}, "")
			if e := code(t, err, s.code); e.Hint == "" {
				t.Error("no hint")
			}
			if is, _ := c.snap().Table("public", name); is.Kind != shardmap.Whole {
				t.Errorf("it is %s", is.Kind)
			}
		})
	}
}
