package planner

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// testState is the map of the golden files: three shards; orders and items
// sharded by tenant_id, people by name, visits by (region, visitor); small is a
// reference table, notes an unsharded one.
func testState(tb testing.TB) shardmap.State {
	tb.Helper()
	hash := func(name string, types ...keyspace.Type) shardmap.Keyspace {
		ks := shardmap.Keyspace{Name: name, Strategy: keyspace.Hash, Types: types}
		low := []string(nil)
		bounds := keyspace.EvenRanges(6)
		for i := range 6 {
			var high []string
			if i < 5 {
				high = []string{fmt.Sprint(bounds[i])}
			}
			ks.Ranges = append(ks.Ranges, shardmap.Range{Low: low, High: high, Shard: fmt.Sprintf("shard-%d", i/2), Epoch: uint64(i + 1)})
			low = high
		}
		return ks
	}
	col := func(name string, oid uint32, typ string) shardmap.Column {
		return shardmap.Column{Name: name, OID: oid, Type: typ}
	}
	big := func(name string) shardmap.Column { return col(name, 20, "bigint") }
	text := func(name string) shardmap.Column { return col(name, 25, "text") }
	made := func(c shardmap.Column, by, identity string) shardmap.Column {
		c.Generated, c.Identity = by, identity
		return c
	}
	s := shardmap.State{
		Format: shardmap.Format, Cluster: "5b0e0c9e-8a3e-4a52-9d1b-0f6f3c2a1d10", Version: 7, SchemaVersion: 7, DefaultShard: "shard-0",
		Keyspaces: []shardmap.Keyspace{
			hash("hash_bigint", keyspace.Int8), hash("hash_text", keyspace.Text), hash("hash_text_integer", keyspace.Text, keyspace.Int4),
			hash("hash_uuid", keyspace.UUID), hash("hash_timestamp", keyspace.Timestamp), hash("hash_varchar", keyspace.Varchar),
			{Name: "regions", Strategy: keyspace.List, Types: []keyspace.Type{keyspace.Text}, Values: []shardmap.ListValue{
				{Key: []string{"eu"}, Shard: "shard-1", Epoch: 3}, {Key: []string{"us"}, Shard: "shard-2", Epoch: 4}}},
		},
		Tables: []shardmap.Table{
			{Schema: "public", Name: "orders", Kind: shardmap.Sharded, Keyspace: "hash_bigint", ShardKey: []string{"tenant_id"},
				Columns: []shardmap.Column{big("tenant_id"), big("id"), text("note"), col("qty", 23, "integer"), col("price", 1700, "numeric")}},
			{Schema: "public", Name: "items", Kind: shardmap.Sharded, Keyspace: "hash_bigint", ShardKey: []string{"tenant_id"},
				Columns: []shardmap.Column{big("tenant_id"), big("order_id"), big("id"), text("name"), col("n", 23, "integer")}},
			{Schema: "public", Name: "people", Kind: shardmap.Sharded, Keyspace: "hash_text", ShardKey: []string{"name"},
				Columns: []shardmap.Column{text("name"), text("nick"), col("age", 23, "integer")}},
			{Schema: "public", Name: "visits", Kind: shardmap.Sharded, Keyspace: "hash_text_integer", ShardKey: []string{"region", "visitor"},
				Columns: []shardmap.Column{text("region"), col("visitor", 23, "integer"), text("page")}},
			{Schema: "public", Name: "docs", Kind: shardmap.Sharded, Keyspace: "hash_uuid", ShardKey: []string{"id"},
				Columns: []shardmap.Column{col("id", 2950, "uuid"), text("body")}},
			{Schema: "public", Name: "events", Kind: shardmap.Sharded, Keyspace: "hash_timestamp", ShardKey: []string{"at"},
				Columns: []shardmap.Column{col("at", 1114, "timestamp without time zone"), col("day", 1082, "date"), text("what")}},
			{Schema: "public", Name: "tags", Kind: shardmap.Sharded, Keyspace: "hash_varchar", ShardKey: []string{"tag"},
				Columns: []shardmap.Column{col("tag", 1043, "character varying(5)"), big("n")}},
			{Schema: "public", Name: "offices", Kind: shardmap.Sharded, Keyspace: "regions", ShardKey: []string{"region"},
				Columns: []shardmap.Column{text("region"), text("city")}},
			{Schema: "public", Name: "small", Kind: shardmap.Reference, Columns: []shardmap.Column{big("id"), text("label"), col("tenant", 23, "integer")}},
			{Schema: "public", Name: "kinds", Kind: shardmap.Reference, Columns: []shardmap.Column{made(big("id"), shardmap.SequenceValue("public.kinds_id_seq"), ""), text("label")}},
			{Schema: "public", Name: "notes", Kind: shardmap.Whole, Columns: []shardmap.Column{big("id"), text("body")}},
			{Schema: "public", Name: "bills", Kind: shardmap.Sharded, Keyspace: "hash_bigint", ShardKey: []string{"tenant"},
				Columns: []shardmap.Column{big("tenant"), made(big("id"), shardmap.SequenceValue("public.bills_id_seq"), ""), text("note"), made(big("nr"), shardmap.NextID, "")}},
			{Schema: "public", Name: "users", Kind: shardmap.Sharded, Keyspace: "hash_bigint", ShardKey: []string{"id"},
				Columns: []shardmap.Column{made(big("id"), shardmap.SequenceValue("public.users_id_seq"), shardmap.IdentityAlways), text("name"), col("key", 2950, "uuid")}},
			{Schema: "public", Name: "tickets", Kind: shardmap.Sharded, Keyspace: "hash_bigint", ShardKey: []string{"id"},
				Columns: []shardmap.Column{made(big("id"), shardmap.SequenceValue("public.tickets_id_seq"), shardmap.IdentityByDefault), text("name")}},
			{Schema: "public", Name: "files", Kind: shardmap.Sharded, Keyspace: "hash_uuid", ShardKey: []string{"id"},
				Columns: []shardmap.Column{made(col("id", 2950, "uuid"), shardmap.UUIDv7, ""), text("path")}},
			{Schema: "app", Name: "orders", Kind: shardmap.Whole, Columns: []shardmap.Column{big("tenant_id"), text("x")}},
		},
	}
	for i, name := range []string{"bills_id_seq", "users_id_seq", "tickets_id_seq", "free_seq", "kinds_id_seq"} {
		s.Sequences = append(s.Sequences, shardmap.Sequence{ID: fmt.Sprintf("%d", i), Schema: "public", Name: name, Type: "bigint",
			First: 1, Start: 1, Increment: 1, Min: 1, Max: math.MaxInt64, Identity: i == 1 || i == 2})
	}
	for i, owner := range [][2]string{{"bills", "id"}, {"users", "id"}, {"tickets", "id"}} {
		s.Sequences[i].Owner = &shardmap.SequenceOwner{Schema: "public", Table: owner[0], Column: owner[1]}
	}
	s.Views = []shardmap.View{
		{Schema: "public", Name: "big_orders", Definition: "SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)"},
		{Schema: "public", Name: "bigger", Definition: "SELECT big_orders.tenant_id AS t, big_orders.id\n   FROM public.big_orders"},
		{Schema: "public", Name: "note_bodies", Definition: "SELECT notes.body\n   FROM public.notes"},
	}
	s.FunctionsRead = semantics.FunctionRules
	s.Functions = []shardmap.Function{{Schema: "public", Name: "shout", Kind: "f"}, {Schema: "public", Name: "touch", Kind: "t", Volatile: true}}
	for i := range 3 {
		s.Shards = append(s.Shards, shardmap.Shard{Name: fmt.Sprintf("shard-%d", i), Engine: "postgres", URL: fmt.Sprintf("postgres://shard-%d/db", i), Weight: 1})
	}
	return s
}

func testSnapshot(tb testing.TB) *shardmap.Snapshot {
	tb.Helper()
	snap, err := shardmap.NewSnapshot(testState(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return snap
}

// TestGolden reads testdata/*.sql: statements that end with a semicolon at the
// end of a line, each followed by what the planner makes of it in "--> " lines.
func TestGolden(t *testing.T) {
	golden(t, "testdata/*.sql", testSnapshot(t), 8, 300)
}

// literalTypes are types by their OIDs.
func literalTypes(oids ...string) (types []plan.InputType) {
	for _, oid := range oids {
		n, err := strconv.ParseUint(oid, 10, 32)
		if err != nil {
			panic(err)
		}
		types = append(types, plan.InputType{OID: uint32(n)})
	}
	return types
}

func golden(t *testing.T, pattern string, snap *shardmap.Snapshot, least, statements int) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < least {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	p := New(Limits{})
	total := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		var sql []string
		path := []string{"public"}
		var types []plan.InputType
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\n")
			switch {
			case strings.HasPrefix(line, "--> "):
				continue
			case len(sql) == 0 && strings.HasPrefix(line, "--types "): // what a shard says of the literals of the next statement
				types = literalTypes(strings.Fields(line)[1:]...)
				out.WriteString(line + "\n")
			case len(sql) == 0 && strings.HasPrefix(line, "--path "):
				path = strings.Fields(line)[1:]
				out.WriteString(line + "\n")
			case len(sql) == 0 && (strings.HasPrefix(line, "--") || line == ""):
				out.WriteString(line + "\n")
			default:
				out.WriteString(line + "\n")
				sql = append(sql, line)
				if strings.HasSuffix(line, ";") {
					total++
					text := strings.TrimSuffix(strings.Join(sql, "\n"), ";")
					by := p
					if types != nil {
						by = p.With(plan.InputTypes{Of: text, Types: types})
					}
					for _, l := range describe(by, snap, text, path) {
						out.WriteString("--> " + l + "\n")
					}
					sql, types = nil, nil
				}
			}
		}
		if len(sql) > 0 {
			t.Errorf("%s: the last statement has no semicolon at the end of a line", file)
		}
		if *rewrite {
			if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, want := out.String(), string(data); got != want {
			t.Errorf("%s differs; go test ./planner -run %s -rewrite shows how\n%s", file, t.Name(), firstDifference(got, want))
		}
	}
	if total < statements {
		t.Errorf("only %d statements", total)
	}
}

func sequenceText(q shardmap.Sequence) string {
	s := fmt.Sprintf("%s %s first %d start %d by %d in %d..%d cache %d cycle %v", q.QualifiedName(), q.Type, q.First, q.Start, q.Increment, q.Min, q.Max, q.Cache, q.Cycle)
	if q.Owner != nil {
		s += fmt.Sprintf(" of %s.%s", q.Owner.Table, q.Owner.Column)
	}
	if q.Identity {
		s += " identity"
	}
	return s
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s\n(after %s)", i+1, g[i], w[i], g[max(0, i-1)])
		}
	}
	return "one is longer"
}

// describe is a plan as a golden file shows it.
func describe(p *Planner, snap *shardmap.Snapshot, sql string, path []string) []string {
	st, err := p.Analyze(sql, snap, path)
	if err != nil {
		e := sqlstate.As(err)
		out := []string{"refused " + string(e.Code) + ": " + e.Message}
		if e.Position > 0 {
			out[0] += fmt.Sprintf(" at %d", e.Position)
		}
		if e.Hint != "" {
			out = append(out, "  hint: "+e.Hint)
		}
		return out
	}
	head := st.Kind.String()
	switch st.Kind {
	case plan.OneShard:
		if !st.UsesParams() {
			r, err := st.Route(snap, nil)
			if err != nil {
				return []string{"one shard, but " + err.Error()}
			}
			head += " " + r.Shard
			if r.Several {
				if st, err = p.Several(sql, snap, path); err != nil {
					return []string{"several keys, but " + err.Error()}
				}
				head = st.Kind.String()
				break
			}
		}
		head += ", key " + st.KeyText()
	case plan.TxKind:
		head += fmt.Sprintf(" %+v", *st.Tx)
	case plan.SetKind:
		head += fmt.Sprintf(" %+v", *st.Set)
	case plan.PrepareKind, plan.ExecuteKind, plan.DeallocateKind:
		head += fmt.Sprintf(" %+v", *st.Prepared)
	case plan.Call:
		head += fmt.Sprintf(" %+v", *st.Call)
	case plan.DDLKind:
		d := st.DDL
		head += " " + d.Op
		if d.AllShards {
			head += ", all shards"
		}
		if d.Create != nil {
			head += fmt.Sprintf(", creates %+v", *d.Create)
		}
		for what, names := range map[string][]plan.TableName{"alters": d.Altered} {
			if len(names) > 0 {
				head += fmt.Sprintf(", %s %v", what, names)
			}
		}
		if len(d.Dropped) > 0 {
			head += fmt.Sprintf(", drops %v", d.Dropped)
		}
		if len(d.DropsSchema) > 0 {
			head += fmt.Sprintf(", drops schemas %v", d.DropsSchema)
		}
		if len(d.Truncated) > 0 {
			head += fmt.Sprintf(", truncates %v", d.Truncated)
		}
		if len(d.Cascades) > 0 {
			head += ", and what refers to them"
		}
		if d.Renamed != nil {
			head += fmt.Sprintf(", was %v", *d.Renamed)
		}
		if d.RenamedColumn[0] != "" {
			head += fmt.Sprintf(", column %s becomes %s", d.RenamedColumn[0], d.RenamedColumn[1])
		}
		if d.RenamedSchema[0] != "" {
			head += fmt.Sprintf(", schema %s becomes %s", d.RenamedSchema[0], d.RenamedSchema[1])
		}
		if d.Concurrent {
			head += ", concurrently"
		}
		for _, c := range d.Sequences {
			head += fmt.Sprintf(", %s %s", c.Op, sequenceText(c.Sequence))
		}
		if d.MapOnly {
			head += ", on the map only"
		}
	}
	var marks []string
	if st.ReadOnly {
		marks = append(marks, "read only")
	}
	if st.ReturnsRows {
		marks = append(marks, "rows")
	}
	if st.Copy {
		marks = append(marks, "copy")
	}
	for _, k := range st.Keys {
		for _, e := range k {
			if e.Strict {
				marks = append(marks, "strict "+e.String())
			}
		}
	}
	head = strings.ReplaceAll(head, "\n", `\n`)
	out := []string{head + " [" + strings.Join(append([]string{st.Tag}, marks...), ", ") + "]"}
	if st.Text != sql {
		out = append(out, "  text: "+strings.ReplaceAll(st.Text, "\n", `\n`))
	}
	for _, c := range st.Sets {
		out = append(out, "  sets "+setArgText(c.Name)+" to "+setArgText(c.Value)+", local "+setArgText(c.Local))
	}
	if st.Fill != nil {
		var values [][]byte
		for i, v := range st.Fill.Values {
			made := fmt.Sprintf("  $%d = %s", st.Params+1+i, v.Source)
			if v.Sequence != nil {
				made += " " + v.Sequence.QualifiedName()
			}
			if v.Source == "setval" {
				made += fmt.Sprintf(" %d $%d %v", v.Value, v.ValueParam, v.Called)
			}
			out = append(out, made)
			values = append(values, []byte(fmt.Sprint(100+i)))
		}
		out = append(out, "  simple: "+strings.ReplaceAll(st.Fill.Literals(values), "\n", `\n`))
	}
	if st.DDL != nil && st.DDL.Elsewhere != "" {
		out = append(out, "  elsewhere: "+st.DDL.Elsewhere)
	}
	if st.Plan != nil {
		for _, l := range st.Plan.Lines(snap, nil) {
			out = append(out, "  "+l)
		}
	}
	if st.Kind == plan.ExplainRoute {
		lines, _ := st.Explain(snap, nil)
		for _, l := range lines {
			out = append(out, "  | "+l)
		}
	}
	if st.Asks != nil {
		out = append(out, "  asks: "+st.Asks.Text(nil))
	}
	return out
}

func setArgText(a plan.SetArg) string {
	switch {
	case a.Computed:
		return "what a shard computes"
	case a.Null:
		return "NULL"
	case a.Param > 0:
		return fmt.Sprintf("$%d", a.Param)
	}
	return fmt.Sprintf("%q", a.Text)
}
