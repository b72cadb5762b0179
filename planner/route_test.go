package planner

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func analyze(tb testing.TB, snap *shardmap.Snapshot, sql string) *plan.Statement {
	tb.Helper()
	st, err := New(Limits{}).Analyze(sql, snap, []string{"public"})
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return st
}

func ownerOf(tb testing.TB, snap *shardmap.Snapshot, ks string, key ...keyspace.Value) string {
	tb.Helper()
	index, ok := snap.Keyspace(ks)
	if !ok {
		tb.Fatal(ks)
	}
	at, err := index.Locate(key)
	if err != nil {
		tb.Fatal(err)
	}
	return at.Shard
}

func bin(n int64, size int) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(n))
	return b[8-size:]
}

func TestRouteParameters(t *testing.T) {
	snap := testSnapshot(t)
	five := ownerOf(t, snap, "hash_bigint", keyspace.Int(keyspace.Int8, 5))
	one := ownerOf(t, snap, "hash_bigint", keyspace.Int(keyspace.Int8, 2))
	bob := ownerOf(t, snap, "hash_text", keyspace.Str(keyspace.Text, "bob"))
	none := snap.State().DefaultShard
	for _, c := range []struct {
		sql  string
		args plan.Args
		want string // a shard, or an SQLSTATE
	}{
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{[]byte("5")}}, five},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{[]byte(" 2 ")}}, one},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{bin(5, 8)}, Formats: []int16{1}}, five},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{bin(5, 4)}, Formats: []int16{1}}, five},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{bin(5, 4)}, Formats: []int16{1}, OIDs: []uint32{23}}, five},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{bin(5, 2)}, Formats: []int16{1}, OIDs: []uint32{21}}, five},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{bin(5, 4)}, Formats: []int16{1}, OIDs: []uint32{20}}, "22P03"},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{[]byte("5.0")}, OIDs: []uint32{1700}}, five},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{[]byte("5.5")}, OIDs: []uint32{1700}}, none},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{[]byte("5.0")}}, "22P02"},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{[]byte("5")}, OIDs: []uint32{701}}, "0A000"},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{[]byte("5")}, OIDs: []uint32{25}}, "0A000"},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{nil}}, none},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{}, "42P02"},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{[]byte("x")}}, "22P02"},
		{"SELECT * FROM orders WHERE tenant_id = $1::bigint", plan.Args{Values: [][]byte{[]byte("5")}, OIDs: []uint32{25}}, five},
		{"SELECT * FROM orders WHERE tenant_id = $1::int", plan.Args{Values: [][]byte{bin(1<<40, 8)}, Formats: []int16{1}, OIDs: []uint32{20}}, "22003"},
		{"SELECT * FROM orders WHERE tenant_id IN ($1, $2)", plan.Args{Values: [][]byte{[]byte("5"), []byte("5")}}, five},
		{"SELECT * FROM orders WHERE tenant_id IN ($1, $2)", plan.Args{Values: [][]byte{[]byte("5"), nil}}, five},
		{"SELECT * FROM orders WHERE tenant_id IN ($1, $2)", plan.Args{Values: [][]byte{[]byte("5"), []byte("2")}}, "several"},
		{"INSERT INTO orders (tenant_id) VALUES ($1)", plan.Args{Values: [][]byte{nil}}, "23502"},
		{"INSERT INTO orders (tenant_id) VALUES ($1), ($2)", plan.Args{Values: [][]byte{[]byte("5"), nil}}, "23502"},
		{"INSERT INTO orders (tenant_id, id) VALUES (5, (SELECT max(id) FROM items WHERE tenant_id = $1))", plan.Args{Values: [][]byte{nil}}, five},
		{"INSERT INTO orders (tenant_id) VALUES ($1)", plan.Args{Values: [][]byte{[]byte("5.0")}, OIDs: []uint32{1700}}, "0A000"},
		{"SELECT * FROM people WHERE name = $1", plan.Args{Values: [][]byte{[]byte("bob")}}, bob},
		{"SELECT * FROM people WHERE name = $1", plan.Args{Values: [][]byte{[]byte("bob")}, OIDs: []uint32{1043}, Formats: []int16{1}}, bob},
		{"SELECT * FROM people WHERE name = $1", plan.Args{Values: [][]byte{[]byte("bob")}, OIDs: []uint32{1042}}, "0A000"},
		{"SELECT * FROM orders WHERE note = $1 AND tenant_id = $1", plan.Args{Values: [][]byte{[]byte("5")}}, "0A000"},
		{"SELECT * FROM orders WHERE note = $1 AND tenant_id = $1", plan.Args{Values: [][]byte{[]byte("5")}, OIDs: []uint32{20}}, five},
		{"SELECT * FROM visits WHERE region = $2 AND visitor = $1", plan.Args{Values: [][]byte{bin(5, 4), []byte("eu")}, Formats: []int16{1, 0}},
			ownerOf(t, snap, "hash_text_integer", keyspace.Str(keyspace.Text, "eu"), keyspace.Int(keyspace.Int4, 5))},
		{"SELECT * FROM visits WHERE region = 'eu' AND visitor = $1", plan.Args{Values: [][]byte{bin(1<<40, 8)}, Formats: []int16{1}, OIDs: []uint32{20}}, none},
	} {
		r, err := analyze(t, snap, c.sql).Route(snap, &c.args)
		got := r.Shard
		if err != nil {
			got = string(sqlstate.CodeOf(err))
		}
		if r.Several {
			got = "several"
		}
		if got != c.want {
			t.Errorf("%s with %q %v: %s (%v), want %s", c.sql, c.args.Values, c.args.OIDs, got, err, c.want)
		}
	}
	if five == one {
		t.Error("keys 5 and 2 are on one shard, so these tests say little")
	}
}

func TestRouteOfSeveralShards(t *testing.T) {
	snap := testSnapshot(t)
	r, err := analyze(t, snap, "SELECT * FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6)").Route(snap, nil)
	if err != nil || !r.Several || r.Shard != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRouteDoesNotAllocate(t *testing.T) {
	snap := testSnapshot(t)
	for _, c := range []struct {
		sql  string
		args plan.Args
	}{
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{[]byte("12345")}}},
		{"SELECT * FROM orders WHERE tenant_id = $1", plan.Args{Values: [][]byte{bin(12345, 8)}, Formats: []int16{1}, OIDs: []uint32{20}}},
		{"SELECT * FROM orders WHERE tenant_id = 5", plan.Args{}},
	} {
		st := analyze(t, snap, c.sql)
		if n := testing.AllocsPerRun(200, func() {
			if _, err := st.Route(snap, &c.args); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.sql, n)
		}
	}
}

func TestRouteText(t *testing.T) {
	snap := testSnapshot(t)
	var s sqltext.Shaper
	p := New(Limits{})
	for _, c := range []struct {
		first, second string
		ok            bool
	}{
		{"SELECT * FROM orders WHERE tenant_id = 5", "SELECT * FROM orders WHERE tenant_id = 2", true},
		{"SELECT * FROM orders WHERE tenant_id = 5 AND note = 'a'", "SELECT * FROM  orders /* x */ WHERE tenant_id = 2 AND note = 'it''s';", true},
		{"SELECT * FROM orders WHERE tenant_id IN (5, 5)", "SELECT * FROM orders WHERE tenant_id IN (2, 2)", true},
		{"SELECT * FROM orders WHERE tenant_id = '5'", "SELECT * FROM orders WHERE tenant_id = '2'", true},
		{"SELECT * FROM orders WHERE tenant_id = 5", "SELECT * FROM orders WHERE tenant_id = 99999999999999999999", false},
		{"SELECT * FROM orders WHERE tenant_id = '5'", "SELECT * FROM orders WHERE tenant_id = 'x'", false},
		{"SELECT * FROM orders WHERE tenant_id = -5", "SELECT * FROM orders WHERE tenant_id = -2", false},
		{"SELECT * FROM orders WHERE tenant_id = 5.0", "SELECT * FROM orders WHERE tenant_id = 2.5", false},
		{"SELECT * FROM people WHERE name = 'bob'", "SELECT * FROM people WHERE name = 'alice'", true},
		{"SELECT * FROM people WHERE name = 'bob'", "SELECT * FROM people WHERE name = 'it''s'", false},
		{"SELECT * FROM visits WHERE region = 'eu' AND visitor = 5", "SELECT * FROM visits WHERE region = 'us' AND visitor = 9", true},
		{"SELECT * FROM visits WHERE region = 'eu' AND visitor = 5", "SELECT * FROM visits WHERE region = 'us' AND visitor = 3000000000", false},
		{"SELECT * FROM visits WHERE region = 'eu' AND visitor IN (5, 3000000000) AND visitor IN (5, 6, 7)", "SELECT * FROM visits WHERE region = 'eu' AND visitor IN (5, 6) AND visitor IN (5, 6, 7)", false},
		{"INSERT INTO orders VALUES (5, 1, 'a'), (5, 2, 'b')", "INSERT INTO orders VALUES (2, 1, 'a'), (2, 2, 'b')", true},
		{"INSERT INTO tags VALUES ('abc', 1)", "INSERT INTO tags VALUES ('abcde   ', 1)", true},
		{"INSERT INTO tags VALUES ('abc', 1)", "INSERT INTO tags VALUES ('abcdefg', 1)", false},
		{"UPDATE orders SET qty = 5 WHERE tenant_id = 5", "UPDATE orders SET qty = 7 WHERE tenant_id = 2", true},
		{"SELECT * FROM notes WHERE id = 5", "SELECT * FROM notes WHERE id = 6", true},
	} {
		st := analyze(t, snap, c.first)
		shape, lits, exact := s.Normalize(c.second)
		if shape != st.Shape {
			t.Errorf("%q and %q have shapes %q and %q", c.first, c.second, st.Shape, shape)
			continue
		}
		got, ok, err := st.RouteText(snap, c.second, lits)
		if ok = ok && exact; ok != c.ok {
			t.Errorf("%q after %q: %v %v, want %v", c.second, c.first, ok, err, c.ok)
			continue
		}
		if !ok {
			continue
		}
		direct, err := p.Analyze(c.second, snap, []string{"public"})
		if err != nil {
			t.Fatal(err)
		}
		want, err := direct.Route(snap, nil)
		if err != nil || want != got {
			t.Errorf("%q: %+v, analysed by itself %+v %v", c.second, got, want, err)
		}
	}
}

func TestSplit(t *testing.T) {
	p := New(Limits{})
	for _, c := range []struct {
		sql  string
		want []string
	}{
		{"SELECT 1", []string{"SELECT 1"}},
		{"SELECT 1;", []string{"SELECT 1"}},
		{" SELECT 1 ; ; SELECT ';' /* ; */ ;-- ;\n", []string{"SELECT 1", "SELECT ';' /* ; */"}},
		{"", nil}, {";;", nil}, {"-- x", nil},
		{"INSERT INTO é VALUES ('ü;'); SELECT $$;$$", []string{"INSERT INTO é VALUES ('ü;')", "SELECT $$;$$"}},
	} {
		got, err := p.Split(c.sql)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q: %q %v, want %q", c.sql, got, err, c.want)
		}
	}
	_, err := p.Split("SELECT 1; SELEC 2")
	if e := sqlstate.As(err); e.Code != sqlstate.SyntaxError || e.Position != 11 || e.Message != `syntax error at or near "SELEC"` {
		t.Errorf("%+v", e)
	}
	if _, err := p.Split("SELECT 1" + strings.Repeat("+1", 100_000)); sqlstate.CodeOf(err) != sqlstate.StatementTooComplex {
		t.Error(err)
	}
}

func TestNormalize(t *testing.T) {
	for _, c := range []struct {
		sql, shape string
		exact      bool
	}{
		{"SELECT 1", "SELECT $i", true},
		{"SELECT  a\t,b -- x\nFROM t", "SELECT a ,b FROM t", true},
		{"SELECT 'a', E'b', 1.5, .5, 1e3, $$x$$", "SELECT $s, $e, $n, $n, $n, $e", true},
		{"SELECT a1, t.x5, $1", "SELECT a1, t.x5, $1", true},
		{"SELECT t.5", "SELECT t $n", true},
		{"SELECT 'a'\n'b'", "SELECT $s $s", false},
		{"SELECT 0x1F", "SELECT $n", false},
		{"SELECT 1_000", "SELECT $n", false},
		{"SELECT 'a", "SELECT $s", false},
		{"SELECT 1 /* x", "SELECT $i", false},
		{"SELECT NULL, true", "SELECT NULL, true", true},
		{"SELECT -1", "SELECT -$i", true},
		{"SELECT 1;;", "SELECT $i", true},
	} {
		shape, _, exact := sqltext.Normalize(c.sql)
		if shape != c.shape || exact != c.exact {
			t.Errorf("%q: %q %v, want %q %v", c.sql, shape, exact, c.shape, c.exact)
		}
	}
}

// FuzzAnalyze: no statement ends the process, and what is accepted is routed or
// explained without a panic.
func FuzzAnalyze(f *testing.F) {
	snap := testSnapshot(f)
	p := New(Limits{})
	g := newGenerator(1)
	for range 50 {
		f.Add(g.statement())
	}
	f.Fuzz(func(t *testing.T, sql string) {
		texts, err := p.Split(sql)
		if err != nil {
			return
		}
		for _, text := range texts {
			st, err := p.Analyze(text, snap, []string{"public"})
			if err != nil {
				continue
			}
			if _, err := st.Explain(snap, nil); err != nil {
				t.Fatal(err)
			}
			if st.Reusable {
				shape, lits, exact := sqltext.Normalize(text)
				if !exact || shape != st.Shape {
					t.Fatalf("%q: shape %q, statement's %q", text, shape, st.Shape)
				}
				direct, e1 := st.Route(snap, nil)
				again, ok, e2 := st.RouteText(snap, text, lits)
				if ok && (e1 != nil || e2 != nil || direct.Shard != again.Shard) {
					t.Fatalf("%q: %v %v, %v %v", text, direct, e1, again, e2)
				}
			}
		}
	})
}

func BenchmarkRoute(b *testing.B) {
	snap := testSnapshot(b)
	st := analyze(b, snap, "SELECT * FROM orders WHERE tenant_id = $1")
	args := &plan.Args{Values: [][]byte{[]byte("12345")}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := st.Route(snap, args); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNormalize(b *testing.B) {
	var s sqltext.Shaper
	b.ReportAllocs()
	for b.Loop() {
		s.Normalize("SELECT abalance FROM pgbench_accounts WHERE aid = 12345;")
	}
}

func BenchmarkRouteText(b *testing.B) {
	snap := testSnapshot(b)
	st := analyze(b, snap, "SELECT * FROM orders WHERE tenant_id = 5")
	var s sqltext.Shaper
	b.ReportAllocs()
	for b.Loop() {
		sql := "SELECT * FROM orders WHERE tenant_id = 12345"
		_, lits, _ := s.Normalize(sql)
		if _, ok, err := st.RouteText(snap, sql, lits); !ok {
			b.Fatal(err)
		}
	}
}

func BenchmarkAnalyze(b *testing.B) {
	snap := testSnapshot(b)
	p := New(Limits{})
	for b.Loop() {
		if _, err := p.Analyze("SELECT * FROM orders WHERE tenant_id = 12345", snap, []string{"public"}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDeepStatementsEnd: what nests as deep as the guard allows is analysed or
// refused in a bounded time.
func TestDeepStatementsEnd(t *testing.T) {
	snap := testSnapshot(t)
	p := New(Limits{})
	nest := func(n int, open, inner, end string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	for name, shape := range map[string]func(n int) string{
		"from": func(n int) string {
			return nest(n, "SELECT * FROM (", "SELECT tenant_id FROM orders WHERE tenant_id = 5", ") x")
		},
		"union": func(n int) string {
			return nest(n, "SELECT 5 AS a, 6 AS b UNION SELECT a, b FROM (", "SELECT 5 AS a, 6 AS b", ") x")
		},
		"both": func(n int) string {
			return nest(n, "SELECT * FROM (SELECT 1 AS a) y UNION ALL SELECT * FROM (", "SELECT 1 AS a", ") x")
		},
		"recursive": func(n int) string {
			return nest(n, "WITH RECURSIVE r(a, b, c) AS (SELECT 1, 2, 3 UNION ALL (", "SELECT 1, 2, 3", ")) SELECT b, c, a FROM r")
		},
		"exists":  func(n int) string { return "SELECT 1" + nest(n, " WHERE EXISTS (SELECT 1 FROM orders", "", ")") },
		"lateral": func(n int) string { return nest(n, "SELECT * FROM orders o, LATERAL (", "SELECT 1", ") x") },
		"left": func(n int) string {
			return "SELECT * FROM orders o" + strings.Repeat(" LEFT JOIN items i USING (tenant_id)", n) + " WHERE o.tenant_id = 5"
		},
		"or": func(n int) string {
			return "SELECT * FROM orders WHERE tenant_id = 5" + strings.Repeat(" OR tenant_id = 5 AND id = 1", 100*n)
		},
		"in": func(n int) string {
			return "SELECT * FROM orders WHERE (tenant_id, id) IN ((5, 1)" + strings.Repeat(", (5, 1)", 100*n) + ")"
		},
		"insert": func(n int) string { return "INSERT INTO orders VALUES (5, 1)" + strings.Repeat(", (5, 1)", 100*n) },
		"and": func(n int) string {
			return "SELECT * FROM orders WHERE tenant_id = 5" + strings.Repeat(" AND tenant_id = id", 20*n)
		},
	} {
		for _, n := range []int{5, 20, 100} {
			start := time.Now()
			_, err := p.Analyze(shape(n), snap, []string{"public"})
			took := time.Since(start)
			if took > 30*time.Second {
				t.Errorf("%s %d took %v (%v)", name, n, took, err)
			}
			if code := sqlstate.CodeOf(err); err != nil && code != sqlstate.StatementTooComplex && code != sqlstate.FeatureNotSupported {
				t.Errorf("%s %d: %v", name, n, err)
			}
		}
	}
}

// What stands where a function is expected need not be one.
func TestNoFunctionInFrom(t *testing.T) {
	for _, sql := range []string{
		"SELECT * FROM orders, coalesce(row(1)) AS (a int, b int)",
		"SELECT * FROM orders, greatest(1, 2) AS g",
		"SELECT * FROM orders, ROWS FROM (coalesce(row(1)) AS (a int), jsonb_to_record('{}') AS (d date)) AS g",
	} {
		if st := analyze(t, testSnapshot(t), sql); st.Kind != plan.Several {
			t.Errorf("%s: %v", sql, st.Kind)
		}
	}
}
