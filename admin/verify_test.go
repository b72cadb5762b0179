package admin

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap/memory"
	"github.com/cleavedb/cleave/sqlstate"
)

// newMixedCluster has a PostgreSQL database or a file as each shard.
func newMixedCluster(t *testing.T, engines ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: memory.New(), urls: map[string]string{}}
	c.ops = New(Options{Directory: c.dir, Drivers: []engine.Driver{postgres.Driver{}, sqlite.Driver{}}, Software: "test", LockTimeout: 2 * time.Second})
	t.Cleanup(func() {
		_ = c.ops.Close()
		_ = c.dir.Close()
	})
	req := BootstrapRequest{Meta: meta}
	for i, e := range engines {
		url := "file:" + filepath.Join(t.TempDir(), "shard.db")
		if e == "postgres" {
			url = pgtest.Database(t)
		}
		name := fmt.Sprintf("shard-%d", i)
		c.urls[name] = url
		req.Shards = append(req.Shards, BootstrapShard{Name: name, URL: url})
	}
	if _, err := c.ops.Bootstrap(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) moverOf(shard string) (engine.Mover, error) {
	snap := c.snap()
	s, ok := snap.Shard(shard)
	if !ok {
		return nil, noShard(shard)
	}
	return c.ops.mover(snap, s)
}

// stray puts rows on a shard past its guard.
func (c *cluster) stray(shard, table string, key []string, rows string) {
	c.t.Helper()
	m, err := c.moverOf(shard)
	if err != nil {
		c.t.Fatal(err)
	}
	tables, err := m.Describe(c.t.Context(), []engine.MoveTable{{Schema: "public", Name: table, ShardKey: key}})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := m.Load(c.t.Context(), "stray", &tables[0], engine.Part{}, strings.NewReader(rows)); err != nil {
		c.t.Fatal(err)
	}
	if err := m.Release(c.t.Context(), "stray"); err != nil {
		c.t.Fatal(err)
	}
}

func TestVerify(t *testing.T) {
	for _, engines := range [][]string{{"sqlite", "sqlite", "sqlite"}, {"postgres", "postgres", "postgres"}, {"sqlite", "postgres", "sqlite"}} {
		t.Run(strings.Join(engines, " "), func(t *testing.T) {
			c := newMixedCluster(t, engines...)
			ctx := t.Context()
			c.ddl("CREATE TABLE orders (k bigint, id bigint, total numeric(9,2), at timestamptz, note text, PRIMARY KEY (k, id)) WITH (cleave.shard_key = 'k')")
			c.ddl("CREATE TABLE notes (k bigint NOT NULL, body text) WITH (cleave.shard_key = 'k')")
			ix, _ := c.snap().Keyspace("hash_bigint")
			owner := func(k int64) string {
				at, err := ix.Locate(keyspace.Key{keyspace.Int(keyspace.Int8, k)})
				if err != nil {
					t.Fatal(err)
				}
				return at.Shard
			}
			other := func(k int64) string {
				if owner(k) == "shard-1" {
					return "shard-2"
				}
				return "shard-1"
			}
			for k := int64(1); k <= 40; k++ {
				c.on(owner(k), fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 12.50, '2026-11-22 07:30:00+02', 'x'), (%d, 2, NULL, NULL, E'a\\tb''')", k, k))
				c.on(owner(k), fmt.Sprintf("INSERT INTO notes VALUES (%d, 'twice'), (%d, 'twice')", k, k))
			}
			verify := func(req VerifyRequest) map[string]VerifyResult {
				t.Helper()
				list, err := c.ops.Verify(ctx, req)
				if err != nil {
					t.Fatal(err)
				}
				out := map[string]VerifyResult{}
				var sum VerifyResult
				for _, v := range list {
					out[v.Table+" "+v.Shard] = v
					sum.Rows, sum.Orphans, sum.Copies, sum.Misplaced = sum.Rows+v.Rows, sum.Orphans+v.Orphans, sum.Copies+v.Copies, sum.Misplaced+v.Misplaced
					sum.Differing, sum.Repaired = sum.Differing+v.Differing, sum.Repaired+v.Repaired
				}
				out["all"] = sum
				return out
			}
			want := func(what string, rows, orphans, copies, misplaced, differing, repaired int64, v VerifyResult) {
				t.Helper()
				if is := fmt.Sprint(v.Rows, v.Orphans, v.Copies, v.Misplaced, v.Differing, v.Repaired); is != fmt.Sprint(rows, orphans, copies, misplaced, differing, repaired) {
					t.Errorf("%s: rows, orphans, copies, misplaced, differing, repaired are %s, want %d %d %d %d %d %d", what, is, rows, orphans, copies, misplaced, differing, repaired)
				}
			}
			want("at first", 160, 0, 0, 0, 0, 0, verify(VerifyRequest{})["all"])
			// Copies of keys 1 and 2 (one of the latter has no equal), key 3 differs, 50 is misplaced.
			c.stray(other(1), "orders", []string{"k"}, "1\t1\t12.50\t2026-11-22 05:30:00+00\tx\n1\t2\t\\N\t\\N\ta\\tb'\n")
			c.stray(other(2), "orders", []string{"k"}, "2\t2\t\\N\t\\N\ta\\tb'\n2\t3\t1.00\t\\N\tonly here\n")
			c.stray(other(3), "orders", []string{"k"}, "3\t1\t99.50\t\\N\tx\n3\t2\t\\N\t\\N\ta\\tb'\n")
			c.stray(other(50), "orders", []string{"k"}, "50\t1\t7.00\t\\N\t\\\\ back\n")
			c.stray(other(4), "notes", []string{"k"}, "4\ttwice\n4\ttwice\n4\ttwice\n")
			found := verify(VerifyRequest{})
			want("strays", 160, 10, 6, 3, 1, 0, found["all"])
			// Piece by piece, each call as if by another process.
			calls, bytes, pieces := 0, int64(0), map[string]VerifyResult{}
			for req := (VerifyRequest{ID: "nightly", ForMS: 1, PieceBytes: 1}); ; calls++ {
				so, err := c.ops.VerifyPieces(ctx, req)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range so.Found {
					pieces[v.Table+" "+v.Shard] = v
				}
				if so.Ended {
					if is := fmt.Sprint(so.Rows, so.Orphans, so.Tables, so.TablesAll, so.Errors); is != "160 10 2 2 0" {
						t.Errorf("rows, orphans, tables, of, errors: %s", is)
					}
					break
				}
				if so.Bytes < bytes || so.BytesAll == 0 || so.RowsAll == 0 || so.Table != "" && so.Piece > so.Pieces {
					t.Errorf("progress: %+v", so)
				}
				bytes = so.Bytes
				if _, err := c.ops.VerifyPieces(ctx, VerifyRequest{ID: "nightly", Table: "notes"}); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
					t.Errorf("the id of another verification is taken: %v", err)
				}
			}
			if calls < 4 {
				t.Errorf("it ended after %d calls", calls)
			}
			for name, v := range pieces {
				if is, whole := fmt.Sprintf("%+v", v), fmt.Sprintf("%+v", found[name]); is != whole {
					t.Errorf("in pieces\n%s, whole\n%s", is, whole)
				}
			}
			if len(pieces) != len(found)-1 { // and "all"
				t.Errorf("%d results, not %d", len(pieces), len(found)-1)
			}
			if list, err := c.dir.Records(ctx, verifyPrefix, "", 10); err != nil || len(list) > 0 {
				t.Errorf("records are left: %v, %v", list, err)
			}
			want("a dry run", 160, 10, 6, 3, 1, 0, verify(VerifyRequest{Repair: true, Meta: Meta{DryRun: true}})["all"])
			if v := found["public.orders "+other(50)]; len(v.Sample) == 0 {
				t.Errorf("no sample: %+v", found)
			}
			want("one table", 80, 3, 2, 1, 0, 0, verify(VerifyRequest{Table: "notes"})["all"])
			want("tables after one", 80, 7, 4, 2, 1, 0, verify(VerifyRequest{After: "notes"})["all"])
			repaired := verify(VerifyRequest{Repair: true})["all"]
			repaired.Rows = 0 // of shards that are looked at and repaired at the same time
			want("repair", 0, 10, 6, 3, 1, 8, repaired)
			left := verify(VerifyRequest{})["all"]
			want("afterwards", 163, 2, 1, 0, 1, 0, left)
			for k, note := range map[int64]string{50: `\ back`, 2: "only here"} {
				if got := c.on(owner(k), fmt.Sprintf("SELECT note FROM orders WHERE k = %d ORDER BY id DESC", k)).Rows[0][0].String; got != note {
					t.Errorf("key %d has the note %q on its owner, want %q", k, got, note)
				}
			}
			if got := c.on(owner(3), "SELECT total FROM orders WHERE k = 3 AND id = 1").Rows[0][0].String; got != "12.50" {
				t.Errorf("the owner's row is %s", got)
			}
			if got := c.on(other(3), "SELECT count(*) FROM orders WHERE k = 3").Rows[0][0].String; got != "2" {
				t.Errorf("%s rows of the key that differs are left", got)
			}
			// Rows of one key on two shards that do not own it: what both have is brought home once, and what the
			// second has with the same primary key stays where it is, with all of the key there.
			strays := func(k int64) (a, b string) {
				for _, s := range []string{"shard-0", "shard-1", "shard-2"} {
					if s != owner(k) && a == "" {
						a = s
					} else if s != owner(k) {
						b = s
					}
				}
				return a, b
			}
			a, b := strays(60)
			c.stray(a, "orders", []string{"k"}, "60\t1\t1.00\t\\N\tx\n60\t2\t2.00\t\\N\tx\n")
			c.stray(b, "orders", []string{"k"}, "60\t1\t1.00\t\\N\tx\n60\t3\t3.00\t\\N\tx\n")
			if v := verify(VerifyRequest{Repair: true})["all"]; v.Repaired != 4 {
				t.Errorf("rows of one key on two shards: %+v", v)
			}
			if got := c.on(owner(60), "SELECT count(*) FROM orders WHERE k = 60").Rows[0][0].String; got != "3" {
				t.Errorf("%s rows of key 60 on its owner", got)
			}
			a, b = strays(61)
			c.stray(a, "orders", []string{"k"}, "61\t1\t1.00\t\\N\tx\n61\t2\t2.00\t\\N\tx\n")
			c.stray(b, "orders", []string{"k"}, "61\t1\t9.00\t\\N\tx\n61\t3\t3.00\t\\N\tx\n")
			repair := verify(VerifyRequest{Repair: true})
			home := c.on(owner(61), "SELECT count(*) FROM orders WHERE k = 61").Rows[0][0].String
			left61 := c.on(a, "SELECT count(*) FROM orders WHERE k = 61").Rows[0][0].String + c.on(b, "SELECT count(*) FROM orders WHERE k = 61").Rows[0][0].String
			if problem := repair["public.orders "+a].Problem + repair["public.orders "+b].Problem; home != "2" || left61 != "02" && left61 != "20" || !strings.Contains(problem, "the rows of key") || !strings.Contains(problem, "same primary key") {
				t.Errorf("%s rows of key 61 are on its owner, %s on the others: %q", home, left61, problem)
			}
			for _, req := range []VerifyRequest{{Table: "nosuch"}, {Keyspace: "nosuch"}} {
				if _, err := c.ops.Verify(ctx, req); err == nil {
					t.Errorf("%+v is taken", req)
				}
			}
		})
	}
}

// TestVerifyManyOrphans: orphans of more keys than are asked for at a time are all looked at, and
// brought home.
func TestVerifyManyOrphans(t *testing.T) {
	for _, engines := range [][]string{{"sqlite", "sqlite"}, {"postgres", "postgres"}} {
		t.Run(engines[0], func(t *testing.T) {
			c := newMixedCluster(t, engines...)
			c.ddl("CREATE TABLE pairs (k bigint, name text, PRIMARY KEY (k, name)) WITH (cleave.shard_key = 'k, name')")
			table := c.snap().State().Tables[0]
			ix, _ := c.snap().Keyspace(table.Keyspace)
			var rows strings.Builder
			n := int64(0)
			for k := range int64(3 * verifyPage) {
				key, err := keyspace.ParseKey(ix.Def().Types, []string{fmt.Sprint(k / 3), fmt.Sprintf("it's %d", k%3)})
				if err != nil {
					t.Fatal(err)
				}
				if at, err := ix.Locate(key); err == nil && at.Shard == "shard-1" {
					n++
					fmt.Fprintf(&rows, "%d\tit's %d\n", k/3, k%3)
				}
			}
			if n <= verifyPage {
				t.Fatalf("%d keys", n)
			}
			c.stray("shard-0", "pairs", []string{"k", "name"}, rows.String())
			list, err := c.ops.Verify(t.Context(), VerifyRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range list {
				if v.Shard == "shard-0" && (v.Orphans != n || v.Misplaced != n || v.Problem != "" || v.Error != "") {
					t.Errorf("%+v, of %d", v, n)
				}
			}
		})
	}
}
