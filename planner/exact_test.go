package planner

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
)

// The claim behind every one-shard plan: the shard alone gives what one database
// with all rows would give. This test makes statements at random, and runs each
// one that Analyze routes on the shard and on a database that holds everything:
// rows, tag, error code and, for writes, the tables afterwards have to be equal.

const exactSchema = `
	CREATE TABLE orders (tenant_id bigint NOT NULL, id bigint NOT NULL, note text, qty integer, price numeric, PRIMARY KEY (tenant_id, id));
	CREATE TABLE items (tenant_id bigint NOT NULL, order_id bigint, id bigint NOT NULL, name text, n integer, PRIMARY KEY (tenant_id, id));
	CREATE TABLE small (id bigint PRIMARY KEY, label text, tenant integer);`

type exactDB struct {
	t      *testing.T
	whole  *pgconn.PgConn
	shards map[string]*pgconn.PgConn
	// scratch is a second conversation with one of the shards.
	scratch *pgconn.PgConn
}

func newExactDB(t *testing.T, snap *shardmap.Snapshot, r *rand.Rand) *exactDB {
	ctx := context.Background()
	open := func() *pgconn.PgConn {
		c, err := pgconn.Connect(ctx, pgtest.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	db := &exactDB{t: t, whole: open(), shards: map[string]*pgconn.PgConn{}}
	for _, s := range snap.Shards() {
		db.shards[s.Name] = open()
	}
	db.scratch = open()
	all := append([]*pgconn.PgConn{db.whole, db.scratch}, values(db.shards)...)
	for _, c := range all {
		db.must(c, exactSchema)
	}
	index, _ := snap.Keyspace("hash_bigint")
	insert := func(table string, tenant int64, rest string) {
		at, err := index.Locate(keyspace.Key{keyspace.Int(keyspace.Int8, tenant)})
		if err != nil {
			t.Fatal(err)
		}
		sql := fmt.Sprintf("INSERT INTO %s VALUES (%d, %s)", table, tenant, rest)
		db.must(db.whole, sql)
		db.must(db.shards[at.Shard], sql)
	}
	for tenant := int64(0); tenant < 9; tenant++ {
		for id := range 1 + r.Intn(4) {
			insert("orders", tenant, fmt.Sprintf("%d, '%c', %d, %d.5", id, 'a'+r.Intn(3), r.Intn(4), r.Intn(3)))
		}
		for id := range r.Intn(5) {
			order := strconv.Itoa(r.Intn(5))
			if r.Intn(5) == 0 {
				order = "NULL"
			}
			insert("items", tenant, fmt.Sprintf("%s, %d, '%c', %d", order, id, 'a'+r.Intn(3), r.Intn(4)))
		}
	}
	for id := range 6 {
		sql := fmt.Sprintf("INSERT INTO small VALUES (%d, '%c', %d)", id, 'a'+id%3, r.Intn(9))
		for _, c := range all {
			db.must(c, sql)
		}
	}
	return db
}

func values[K comparable, V any](m map[K]V) (out []V) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

func (db *exactDB) must(c *pgconn.PgConn, sql string) {
	db.t.Helper()
	if _, err := c.Exec(context.Background(), sql).ReadAll(); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
}

// run returns tag, sorted rows and SQLSTATE.
func (db *exactDB) run(c *pgconn.PgConn, sql string) string {
	db.t.Helper()
	results, err := c.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		var pe *pgconn.PgError
		if !errors.As(err, &pe) {
			db.t.Fatalf("%s: %v", sql, err)
		}
		return "error " + pe.Code
	}
	var out []string
	for _, r := range results {
		for _, row := range r.Rows {
			cells := make([]string, len(row))
			for i, v := range row {
				cells[i] = string(v)
				if v == nil {
					cells[i] = "NULL"
				}
			}
			out = append(out, strings.Join(cells, "|"))
		}
		slices.Sort(out)
		out = append(out, r.CommandTag.String())
	}
	return strings.Join(out, "\n")
}

func (db *exactDB) state(conns ...*pgconn.PgConn) string {
	var all []string
	for _, c := range conns {
		for _, table := range []string{"orders", "items"} {
			rows := strings.Split(db.run(c, "SELECT '"+table+"', * FROM "+table), "\n")
			all = append(all, rows[:len(rows)-1]...)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// seeded is a source of random numbers that CLEAVE_SEED chooses.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := time.Now().UnixNano()
	if s := os.Getenv("CLEAVE_SEED"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("run again with CLEAVE_SEED=%d", seed)
	return rand.New(rand.NewSource(seed))
}

func TestExact(t *testing.T) {
	r := seeded(t)
	snap := testSnapshot(t)
	db := newExactDB(t, snap, r)
	p := New(Limits{})
	g := &generator{r: r}
	end := time.Now().Add(testrun.Pick(3*time.Second, 10*time.Second)) // of other statements each time
	made, routed, writes, several, mistaken := 0, 0, 0, 0, 0
	templates := map[string]*plan.Statement{}
	var shaper sqltext.Shaper
	few := func() bool { return routed < 300 || writes < 30 }
	for late := end.Add(2 * time.Minute); time.Now().Before(end) || few() && time.Now().Before(late); {
		made++
		sql := g.statement()
		st, err := p.Analyze(sql, snap, []string{"public"})
		if err != nil || st.Kind != plan.OneShard {
			continue
		}
		route, err := st.Route(snap, nil)
		if err != nil || route.Several {
			several++
			continue
		}
		// A text that shares its shape with an earlier one has to go the same way.
		shape, lits, exact := shaper.Normalize(sql)
		if tpl := templates[shape]; tpl != nil && exact {
			got, ok, err := tpl.RouteText(snap, sql, lits)
			if ok && err == nil && got.Shard != route.Shard && len(st.Keys) > 0 {
				t.Fatalf("%s\nrouted to %s, as another text of the same shape (%s) to %s", sql, route.Shard, tpl.Text, got.Shard)
			}
		} else if st.Reusable && len(templates) < 10_000 {
			templates[strings.Clone(shape)] = st
		}
		routed++
		shard := db.shards[route.Shard]
		if len(st.Writes) == 0 {
			want, got := db.run(db.whole, sql), db.run(shard, sql)
			if strings.HasPrefix(want, "error 42") {
				mistaken++ // the generator made a statement that PostgreSQL refuses
			}
			if got != want {
				t.Fatalf("%s\non %s:\n%s\non one database:\n%s", sql, route.Shard, got, want)
			}
			continue
		}
		writes++
		db.must(db.whole, "BEGIN")
		db.must(shard, "BEGIN")
		want, got := db.run(db.whole, sql), db.run(shard, sql)
		if got != want {
			t.Fatalf("%s\non %s:\n%s\non one database:\n%s", sql, route.Shard, got, want)
		}
		if strings.HasPrefix(want, "error 42") {
			mistaken++
		}
		if !strings.HasPrefix(want, "error") {
			if got, want := db.state(values(db.shards)...), db.state(db.whole); got != want {
				t.Fatalf("%s\nthe shards afterwards:\n%s\none database:\n%s", sql, got, want)
			}
		}
		db.must(db.whole, "ROLLBACK")
		db.must(shard, "ROLLBACK")
	}
	t.Logf("%d statements, %d routed (%d writes, %d not accepted by PostgreSQL), %d on several shards", made, routed, writes, mistaken, several)
	if few() || mistaken*4 > routed {
		t.Errorf("too few: %d routed, %d writes, %d mistaken", routed, writes, mistaken)
	}
}

// generator makes statements over orders, items and small.
type generator struct {
	r     *rand.Rand
	alias int
}

type source struct {
	name string
	cols []string
}

func (g *generator) pick(list ...string) string { return list[g.r.Intn(len(list))] }

func (g *generator) maybe(percent int) bool { return g.r.Intn(100) < percent }

func (g *generator) key() string {
	return g.pick("2", "2", "2", "3", "'2'", "5", "2.0", "7", "NULL", "2::bigint", "99", "2.5")
}

func (g *generator) newAlias() string {
	g.alias++
	return "x" + strconv.Itoa(g.alias%1000)
}

// from makes a FROM item and tells which names it brings.
func (g *generator) from(depth int, outer []source) (string, []source) {
	switch {
	case depth > 0 && g.maybe(45):
		l, ls := g.from(depth-1, outer)
		r, rs := g.from(depth-1, outer)
		both := append(append([]source(nil), ls...), rs...)
		kind := g.pick("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
		on := g.join(ls, rs)
		if kind != "FULL JOIN" && g.maybe(40) {
			on += " AND " + g.qual(depth-1, both, outer)
		}
		if kind == "FULL JOIN" && g.maybe(50) {
			on += " AND " + g.column(both) + " = " + g.key()
		}
		return "(" + l + " " + kind + " " + r + " ON " + on + ")", both
	case depth > 0 && g.maybe(35):
		a := g.newAlias()
		lateral := ""
		q, n := g.query(depth-1, outer)
		cols := []string{"tenant_id", "id", "n"}[:n]
		return lateral + "(" + q + ") AS " + a + "(" + strings.Join(cols, ", ") + ")", []source{{a, cols}}
	}
	a := g.newAlias()
	switch g.r.Intn(10) {
	case 0:
		return "small " + a, []source{{a, []string{"id", "tenant"}}}
	case 1:
		return "(VALUES (" + g.pick("2", "3") + ", 1), (2, 0)) AS " + a + "(tenant_id, id)", []source{{a, []string{"tenant_id", "id"}}}
	case 2, 3, 4, 5:
		return "items " + a, []source{{a, []string{"tenant_id", "order_id", "id", "n"}}}
	}
	return "orders " + a, []source{{a, []string{"tenant_id", "id", "qty"}}}
}

func (g *generator) column(list []source) string {
	s := list[g.r.Intn(len(list))]
	if g.maybe(60) {
		return s.name + "." + s.cols[0]
	}
	return s.name + "." + s.cols[g.r.Intn(len(s.cols))]
}

func (g *generator) join(l, r []source) string {
	if g.maybe(70) {
		return l[0].name + "." + l[0].cols[0] + " = " + r[len(r)-1].name + "." + r[len(r)-1].cols[0]
	}
	return g.column(l) + g.pick(" = ", " = ", " < ", " <> ") + g.column(r)
}

// qual makes one condition.
func (g *generator) qual(depth int, here, outer []source) string {
	c := g.column(here)
	all := append(append([]source(nil), here...), outer...)
	switch g.r.Intn(16) {
	case 0, 1, 2, 3, 4:
		s := here[g.r.Intn(len(here))]
		return s.name + "." + s.cols[0] + " = " + g.key()
	case 5, 6:
		return c + " = " + g.column(all)
	case 7:
		return c + " IN (" + g.key() + ", " + g.pick("2", "3", "NULL") + ")"
	case 8:
		return c + g.pick(" > ", " <> ", " <= ") + g.pick("1", "2", "3")
	case 9:
		return "(" + g.qual(depth-1, here, outer) + g.pick(" OR ", " AND ") + g.qual(depth-1, here, outer) + ")"
	case 10:
		if g.maybe(50) {
			return "NOT (" + g.qual(depth-1, here, outer) + ")"
		}
		return "(" + g.qual(depth-1, here, outer) + ") IS TRUE"
	case 11:
		return c + g.pick(" IS NULL", " IS NOT NULL", " IS NOT DISTINCT FROM 2")
	case 12, 13:
		if depth > 0 {
			f, fs := g.from(depth-1, all)
			sql := "SELECT 1 FROM " + f + " WHERE " + g.join(fs, all)
			if g.maybe(50) {
				sql += " AND " + g.qual(depth-1, fs, all)
			}
			return g.pick("EXISTS (", "NOT EXISTS (") + sql + ")"
		}
	case 14:
		if depth > 0 {
			f, fs := g.from(0, all)
			return c + g.pick(" IN (", " NOT IN (") + "SELECT " + g.column(fs) + " FROM " + f + " WHERE " + g.qual(depth-1, fs, all) + ")"
		}
	case 15:
		return c + " = ANY (ARRAY[" + g.pick("2", "3", "2, 3") + "])"
	}
	return c + " = " + g.key()
}

func (g *generator) where(depth int, here, outer []source) string {
	if g.maybe(20) {
		return ""
	}
	quals := []string{g.qual(depth, here, outer)}
	for _, s := range here {
		if g.maybe(55) {
			quals = append(quals, s.name+"."+s.cols[0]+" = "+g.key())
		}
	}
	for g.maybe(40) {
		quals = append(quals, g.qual(depth, here, outer))
	}
	return " WHERE " + strings.Join(quals, " AND ")
}

// query makes a SELECT with one to three integer columns.
func (g *generator) query(depth int, outer []source) (string, int) {
	if depth > 0 && g.maybe(12) {
		for {
			l, n := g.query(depth-1, outer)
			r, m := g.query(depth-1, outer)
			if n == m && !strings.Contains(l, "LIMIT") && !strings.Contains(r, "LIMIT") && !strings.Contains(l, "ORDER") {
				return "(" + l + ")" + g.pick(" UNION ALL ", " UNION ", " EXCEPT ", " INTERSECT ") + "(" + r + ")", n
			}
		}
	}
	f, fs := g.from(depth, outer)
	with := ""
	if depth > 0 && g.maybe(15) {
		name := g.newAlias()
		q, n := g.query(depth-1, nil)
		cols := []string{"tenant_id", "id", "n"}[:n]
		with = "WITH " + name + "(" + strings.Join(cols, ", ") + ") AS (" + q + ") "
		l, ls := f, fs
		kind := g.pick("JOIN", "LEFT JOIN", "RIGHT JOIN")
		ws := []source{{name, cols}}
		f = l + " " + kind + " " + name + " ON " + g.join(ls, ws)
		fs = append(append([]source(nil), ls...), ws...)
	}
	where := g.where(depth, fs, outer)
	key := fs[0].name + "." + fs[0].cols[0]
	switch g.r.Intn(9) {
	case 0:
		return with + "SELECT count(*), max(" + g.column(fs) + ") FROM " + f + where, 2
	case 1:
		return with + "SELECT " + key + ", count(*) FROM " + f + where + " GROUP BY " + key, 2
	case 2:
		return with + "SELECT " + key + ", count(*) FROM " + f + where + " GROUP BY 1 HAVING count(*) > 1", 2
	case 3:
		return with + "SELECT DISTINCT " + key + ", " + g.column(fs) + " FROM " + f + where, 2
	case 4:
		c := g.column(fs)
		return with + "SELECT " + c + ", count(*) OVER (), rank() OVER (PARTITION BY " + g.column(fs) + " ORDER BY " + c + ") FROM " + f + where, 3
	case 5:
		c := g.column(fs)
		return with + "SELECT DISTINCT " + c + " FROM " + f + where + " ORDER BY 1 LIMIT 2", 1
	case 6:
		if depth > 0 {
			all := append(append([]source(nil), fs...), outer...)
			s, ss := g.from(0, all)
			return with + "SELECT " + key + ", (SELECT count(*) FROM " + s + " WHERE " + g.join(ss, all) + ") FROM " + f + where, 2
		}
	case 7:
		if depth > 0 {
			a := g.newAlias()
			s, ss := g.from(0, fs)
			lat := "LATERAL (SELECT " + g.pick("count(*)", "max(", "min(")
			if !strings.HasSuffix(lat, "*)") {
				lat += g.column(ss) + ")"
			}
			lat += " AS c FROM " + s + " WHERE " + g.join(ss, fs)
			if g.maybe(40) {
				lat += " AND " + g.qual(0, ss, fs)
			}
			return with + "SELECT " + key + ", " + a + ".c FROM " + f + " CROSS JOIN " + lat + ") " + a + where, 2
		}
	}
	return with + "SELECT " + key + ", " + g.column(fs) + " FROM " + f + where, 2
}

func (g *generator) statement() string {
	if g.maybe(75) {
		q, _ := g.query(1+g.r.Intn(3), nil)
		return q
	}
	target := []source{{"t", []string{"tenant_id", "id"}}}
	switch g.r.Intn(7) {
	case 0:
		return "UPDATE orders t SET note = 'z', qty = qty + 1" + g.where(1, target, nil) + " RETURNING t.*"
	case 1:
		f, fs := g.from(1, nil)
		return "UPDATE orders t SET note = note || '!' FROM " + f + " WHERE " + g.join(target, fs) + " AND " + g.qual(1, append(target, fs...), nil) + " AND " + g.qual(1, append(target, fs...), nil)
	case 2:
		return "DELETE FROM items t" + g.where(1, target, nil) + " RETURNING *"
	case 3:
		f, fs := g.from(1, nil)
		return "DELETE FROM items t USING " + f + " WHERE " + g.join(target, fs) + " AND " + g.qual(1, append(target, fs...), nil)
	case 4:
		return "INSERT INTO orders (tenant_id, id, note) VALUES (" + g.key() + ", 100, 'n'), (" + g.key() + ", 101, 'n') ON CONFLICT (tenant_id, id) DO UPDATE SET note = 'c' RETURNING *"
	case 5:
		q, n := g.query(1, nil)
		if n < 2 {
			return q
		}
		return "INSERT INTO orders (tenant_id, id) SELECT s.a, s.b + 1000 FROM (" + q + ") s(a, b" + strings.Repeat(", c", n-2) + ") WHERE s.b IS NOT NULL ON CONFLICT DO NOTHING"
	}
	f, fs := g.from(1, nil)
	return "WITH d AS (DELETE FROM items t" + g.where(0, target, nil) + " RETURNING t.tenant_id, t.id) SELECT d.*, " + g.column(fs) + " FROM d, " + f + g.where(1, fs, nil)
}

func newGenerator(seed int64) *generator { return &generator{r: rand.New(rand.NewSource(seed))} }
