package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/shardmap"
)

// update changes the map as the move does, and waits until the router has it.
func (c *cluster) update(t *testing.T, transit string, edit func(*shardmap.State)) {
	t.Helper()
	ctx := context.Background()
	snap, err := c.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := snap.State().Clone()
	edit(&next)
	if snap, err = c.dir.Update(ctx, shardmap.Change{Expect: snap.Version(), By: "test", Op: "move", Transit: transit}, next); err != nil {
		t.Fatal(err)
	}
	for c.ex.Snapshot().Version() < snap.Version() {
		if _, err := c.ex.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// moving is a cluster of which all that shard-0 has goes to shard-1.
type moving struct {
	*cluster
	t     *testing.T
	parts []shardmap.Part
	keys  [][]int64
}

// startMoving has ten rows on each of two shards, and no transit yet.
func startMoving(t *testing.T) (*moving, *pgx.Conn) {
	cl, conn, keys := orders(t, config{shards: 2})
	for _, list := range keys {
		for _, k := range list {
			exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'own')", k)
		}
	}
	m := &moving{cluster: cl, t: t, keys: keys}
	ix, _ := cl.ex.Snapshot().Keyspace("hash_bigint")
	for _, r := range ix.Def().Ranges {
		if r.Shard == "shard-0" {
			m.parts = append(m.parts, shardmap.Part{Low: r.Low, High: r.High})
		}
	}
	return m, conn
}

func (m *moving) begin() {
	m.t.Helper()
	for i, part := range m.parts {
		id := fmt.Sprint("m", i)
		m.update(m.t, id, func(s *shardmap.State) {
			s.PutTransit("hash_bigint", shardmap.Transit{ID: id, Part: part, From: "shard-0", To: "shard-1"})
		})
	}
}

// copied gives shard-1 the rows of shard-0, with another note.
func (m *moving) copied() {
	m.t.Helper()
	var rows []string
	for _, k := range m.keys[0] {
		rows = append(rows, fmt.Sprintf("(%d, 1, 'stranger')", k))
	}
	m.past(m.t, 1, "INSERT INTO orders VALUES "+strings.Join(rows, ", "))
}

func (m *moving) purged() {
	m.t.Helper()
	m.past(m.t, 1, "DELETE FROM orders WHERE note = 'stranger'")
	for i := range m.parts {
		id := fmt.Sprint("m", i)
		m.update(m.t, id, func(s *shardmap.State) { s.DropTransit("hash_bigint", id) })
	}
}

// TestStrangersAppear: rows that come to a shard while sessions are at work are
// seen by none of them, whatever they had prepared or begun before.
func TestStrangersAppear(t *testing.T) {
	ctx := context.Background()
	m, conn := startMoving(t)
	other := m.connect(t)
	const count = "SELECT count(*) FROM orders"
	const list = "SELECT tenant_id, note FROM orders ORDER BY tenant_id"
	const change = "UPDATE orders SET id = id WHERE note <> $1"
	for name, sql := range map[string]string{"count": count, "list": list, "change": change} {
		if _, err := conn.Prepare(ctx, name, sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, conn, "PREPARE by_name AS "+list)
	check := func(when string) {
		t.Helper()
		for what, sql := range map[string]string{"count": "count", "text": count, "subquery": "SELECT (SELECT count(*) FROM orders) + 0", "join": "SELECT count(*) FROM orders a JOIN orders b USING (tenant_id)"} {
			if n := one[int](t, conn, sql); n != 20 {
				t.Errorf("%s, %s: %d rows, want 20", when, what, n)
			}
		}
		for _, sql := range []string{"list", list, "EXECUTE by_name"} {
			rows, err := conn.Query(ctx, sql)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for rows.Next() {
				if n++; string(rows.RawValues()[1]) != "own" {
					t.Errorf("%s, %s: a row %q", when, sql, rows.RawValues()[1])
				}
			}
			if rows.Err() != nil || n != 20 {
				t.Errorf("%s, %s: %d rows, %v", when, sql, n, rows.Err())
			}
		}
		if tag := exec(t, conn, "change", "none"); tag.RowsAffected() != 20 {
			t.Errorf("%s: %s", when, tag)
		}
		var out strings.Builder
		if _, err := conn.PgConn().CopyTo(ctx, &out, "COPY orders TO STDOUT"); err != nil || strings.Count(out.String(), "own\n") != 20 || strings.Contains(out.String(), "stranger") {
			t.Errorf("%s: COPY gives %q, %v", when, out.String(), err)
		}
	}
	check("before")

	// A cursor that is half read.
	exec(t, other, "BEGIN")
	exec(t, other, "DECLARE c CURSOR FOR "+list)
	seen := exec(t, other, "FETCH 5 FROM c").RowsAffected()

	m.begin()
	check("with the transit, without a row")
	m.copied()
	check("with strangers")
	seen += exec(t, other, "FETCH 100 FROM c").RowsAffected()
	if seen != 20 {
		t.Errorf("the cursor gave %d rows", seen)
	}
	if n := one[int](t, other, count); n != 20 {
		t.Errorf("in the transaction: %d rows", n)
	}
	exec(t, other, "COMMIT")
	if plan := one[string](t, conn, "EXPLAIN "+list); plan == "" {
		t.Error("no plan")
	}
	m.purged()
	check("afterwards")
}

// TestStrangersGoWhileTheyAreSeen: a transaction that sees rows as they were goes
// on without those that were no shard's own when it began, although the map does
// not know of them any more.
func TestStrangersGoWhileTheyAreSeen(t *testing.T) {
	const count = "SELECT count(*) FROM orders"
	for _, first := range []string{count, "one key"} {
		for _, begin := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN"} {
			t.Run(first+", "+begin, func(t *testing.T) {
				m, conn := startMoving(t)
				m.begin()
				m.copied()
				exec(t, conn, begin)
				sql := first
				if first == "one key" {
					sql = fmt.Sprintf("SELECT count(*) + 19 FROM orders WHERE tenant_id = %d", m.keys[1][0])
				}
				if n := one[int](t, conn, sql); n != 20 {
					t.Fatalf("%d rows at first", n)
				}
				m.purged()
				if n := one[int](t, conn, count); n != 20 {
					t.Errorf("%d rows, want 20", n)
				}
				exec(t, conn, "COMMIT")
				if n := one[int](t, conn, count); n != 20 {
					t.Errorf("%d rows in the end", n)
				}
			})
		}
	}
}
