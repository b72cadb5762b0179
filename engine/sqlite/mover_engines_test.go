package sqlite_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/enginetest"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/engine/sqlite"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

// everyType is a column of each type that a file can store, with random values.
var everyType = []struct {
	typ   string
	value func(r *rand.Rand) string
}{
	{"boolean", func(r *rand.Rand) string { return fmt.Sprint(r.IntN(2) == 0) }},
	{"smallint", func(r *rand.Rand) string { return fmt.Sprint(int16(r.Uint32())) }},
	{"integer", func(r *rand.Rand) string { return fmt.Sprint(int32(r.Uint32())) }},
	{"bigint", func(r *rand.Rand) string { return fmt.Sprintf("'%d'", int64(r.Uint64())) }},
	{"numeric", func(r *rand.Rand) string {
		return pick(r, "'NaN'", "'Infinity'", "'-Infinity'", "0", "0.000", "1.10", "-1e30", fmt.Sprintf("%d.%05d", int64(r.Uint64())/2, r.IntN(100000)))
	}},
	{"numeric(12,3)", func(r *rand.Rand) string { return fmt.Sprintf("%d.%d", r.IntN(1000000), r.IntN(100000)) }},
	{"double precision", func(r *rand.Rand) string {
		f := math.Float64frombits(r.Uint64())
		if math.IsNaN(f) {
			f = 1e23
		}
		return pick(r, fmt.Sprintf("'%v'::double precision", f), "'Infinity'", "'-Infinity'", "'-0'", "'1e15'", "'5e-324'", fmt.Sprintf("'%v'", r.Float64()), fmt.Sprint(r.IntN(1000)))
	}},
	{"text", func(r *rand.Rand) string {
		return pick(r, "''", `'\N'`, `'\.'`, `E'\t\n\r\\'`, "'żółw 🐢'", `E'\x01\x7f'`, quoted(r, 200))
	}},
	{"varchar(12)", func(r *rand.Rand) string { return pick(r, "''", "'  '", quoted(r, 12)) }},
	{"char(7)", func(r *rand.Rand) string { return pick(r, "''", "'a'", "'ab  '", quoted(r, 7)) }},
	{"uuid", func(r *rand.Rand) string {
		return fmt.Sprintf("'%08x-%04x-%04x-%04x-%012x'", r.Uint32(), r.IntN(1<<16), r.IntN(1<<16), r.IntN(1<<16), r.Uint64()>>16)
	}},
	{"bytea", func(r *rand.Rand) string {
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return `'\x` + hex.EncodeToString(b) + `'`
	}},
	{"date", func(r *rand.Rand) string {
		return pick(r, "'infinity'", "'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'", fmt.Sprintf("'%04d-%02d-%02d'", 1+r.IntN(9999), 1+r.IntN(12), 1+r.IntN(28)))
	}},
	{"time", func(r *rand.Rand) string {
		return pick(r, "'24:00:00'", fmt.Sprintf("'%02d:%02d:%02d.%d'", r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000000)))
	}},
	{"timestamp", func(r *rand.Rand) string {
		return pick(r, "'infinity'", "'-infinity'", "'4713-01-01 00:00:00 BC'", "'294276-12-31 23:59:59.999999'", moment(r))
	}},
	{"timestamptz", func(r *rand.Rand) string {
		return pick(r, "'infinity'", "'0044-03-15 12:00:00+00 BC'", "'1891-03-15 12:00:00+00'", moment(r)[:20]+"+05:30'", moment(r)[:20]+"-11'")
	}},
	{"json", func(r *rand.Rand) string {
		return pick(r, "'null'", `'{"b" : 1,  "a":[1.50, "x\\u00e9\\n"], "b": 2}'`, fmt.Sprintf(`'[%d, %v]'`, r.IntN(1000), r.Float64()))
	}},
	{"jsonb", func(r *rand.Rand) string {
		return pick(r, "'null'", `'{"b" : 1,  "a":[1.50, "x\\u00e9\\n", {}], "b": 2, "aa": true}'`, fmt.Sprintf(`'[%d, %v, 1e3, -0.0]'`, r.IntN(1000), r.Float64()))
	}},
}

func pick(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }

func quoted(r *rand.Rand, most int) string {
	var b strings.Builder
	for range r.IntN(most + 1) {
		b.WriteString(pick(r, "a", "Z", " ", "''", "é", "🐢", `\`, "\t"))
	}
	return "'" + b.String() + "'"
}

func moment(r *rand.Rand) string {
	return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d.%06d'", 1900+r.IntN(200), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000000))
}

// stop is a shard on the way of the rows.
type stop struct {
	name string
	m    engine.Mover
	c    engine.Conn
}

// TestMoverAcrossEngines moves rows of every type from a file to a server, on to
// another file and back to the server, with writes in between. What each shard
// computes of its rows is the same.
func TestMoverAcrossEngines(t *testing.T) {
	testrun.Long(t, "random changes go through three shards; TestMover has one of each kind")
	const seed = 20261122
	r := rand.New(rand.NewPCG(seed, 7))
	t.Logf("seed %d", seed)
	h := harness()
	var stops []*stop
	for i, x := range []struct {
		driver engine.Driver
		url    string
	}{{sqlite.Driver{}, h.URL(t)}, {postgres.Driver{}, pgtest.Database(t)}, {sqlite.Driver{}, h.URL(t)}} {
		s, err := x.driver.Open(engine.Config{Cluster: enginetest.Cluster, Name: fmt.Sprintf("shard-%d", i), URL: x.url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if err := s.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
		stops = append(stops, &stop{fmt.Sprintf("%s %d", s.Engine(), i), s.(engine.Movable).Mover(1), open(t, s)})
	}
	ddl := "CREATE TABLE t (k bigint NOT NULL, id integer NOT NULL"
	for i, c := range everyType {
		ddl += fmt.Sprintf(", c%d %s", i, c.typ)
	}
	for _, s := range stops {
		mustExec(t, s.c, ddl+", big text, PRIMARY KEY (k, id))")
	}
	value := func(i int) string {
		if r.IntN(6) == 0 {
			return "NULL"
		}
		return everyType[i].value(r)
	}
	big := strings.Repeat("0123456789abcdef", 40)
	write := func(c engine.Conn, n int) {
		for range n {
			k, id := r.IntN(60), r.IntN(10)
			mustExec(t, c, fmt.Sprintf("DELETE FROM t WHERE k = %d AND id = %d", r.IntN(60), r.IntN(10)))
			values := make([]string, len(everyType))
			for i := range values {
				values[i] = value(i)
			}
			text := "NULL"
			if r.IntN(5) == 0 { // out of line, and not compressible
				text = "'" + big
				for range 500 {
					text += fmt.Sprintf("%016x", r.Uint64())
				}
				text += "'"
			}
			mustExec(t, c, fmt.Sprintf("INSERT INTO t VALUES (%d, %d, %s, %s) ON CONFLICT DO NOTHING", k, id, strings.Join(values, ", "), text))
			i := r.IntN(len(everyType))
			mustExec(t, c, fmt.Sprintf("UPDATE t SET c%d = %s WHERE k = %d", i, value(i), r.IntN(60)))
			if r.IntN(10) == 0 {
				mustExec(t, c, fmt.Sprintf("UPDATE t SET k = 59 - k WHERE id = %d AND NOT EXISTS (SELECT 1 FROM t x WHERE x.id = %d AND x.k > 29)", id, id))
			}
		}
	}
	set := movedSet(t, stops[0].m)
	for _, s := range stops {
		if got := movedSet(t, s.m); fmt.Sprint(got) != fmt.Sprint(set) {
			t.Fatalf("%s describes %+v, not %+v", s.name, got, set)
		}
		findings, err := s.m.CheckMove(t.Context(), set.Tables)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if f.Level == "error" {
				t.Fatalf("%s: %+v", s.name, f)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write(stops[0].c, 150)
	for i, way := range [][2]*stop{{stops[0], stops[1]}, {stops[1], stops[2]}, {stops[2], stops[1]}} {
		from, to := way[0], way[1]
		ctx, id := t.Context(), fmt.Sprintf("way-%d", i)
		for n := 100; n == 100; {
			var err error
			n, err = to.m.Purge(ctx, set, 100)
			must(err)
		}
		view, err := from.m.Capture(ctx, id, set)
		must(err)
		write(from.c, 40)
		pipe, w := io.Pipe()
		go func() { w.CloseWithError(view.Rows(ctx, 0, engine.Part{}, nil, w)) }()
		_, err = to.m.Load(ctx, id, &set.Tables[0], engine.Part{}, pipe)
		must(err)
		must(view.Close())
		must(to.m.SetApplied(ctx, id, view.Position()))
		for range 2 {
			write(from.c, 40)
			end, err := from.m.Here(ctx)
			must(err)
			a, err := to.m.Apply(ctx, id, set)
			must(err)
			at, err := a.Flush(ctx)
			must(err)
			must(from.m.Changes(ctx, id, set, at, end, a))
			_, err = a.Flush(ctx)
			must(err)
			must(a.Close())
			x, err := from.m.Sums(ctx, set, nil)
			must(err)
			y, err := to.m.Sums(ctx, set, nil)
			must(err)
			if x[0] != y[0] || x[0].Rows < 100 {
				difference(t, from, to)
				t.Fatalf("%s has %+v, %s has %+v", from.name, x, to.name, y)
			}
		}
		must(from.m.Release(ctx, id))
		must(to.m.Release(ctx, id))
	}
}

// difference shows rows that one stop has and the other does not.
func difference(t *testing.T, a, b *stop) {
	t.Helper()
	const all = "SELECT * FROM t WHERE k < 50 ORDER BY k, id"
	mustExec(t, b.c, "SET TimeZone = 'UTC'")
	mustExec(t, a.c, "SET TimeZone = 'UTC'")
	have := map[string]string{}
	for _, row := range mustExec(t, a.c, all).Rows {
		have[row[0].String+","+row[1].String] = fmt.Sprintf("%.1500v", row)
	}
	for _, row := range mustExec(t, b.c, all).Rows {
		key := row[0].String + "," + row[1].String
		if is := fmt.Sprintf("%.1500v", row); have[key] != is {
			t.Errorf("row %s\n%s: %s\n%s: %s", key, a.name, have[key], b.name, is)
		}
		delete(have, key)
	}
	for key, is := range have {
		t.Errorf("row %s\n%s: %s\n%s: none", key, a.name, is, b.name)
	}
}
