package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
)

func codes(advice []Advice) string {
	var out []string
	for _, a := range advice {
		if a.What == "" || a.Why == "" || a.Measured == "" || a.Do == "" {
			return fmt.Sprintf("incomplete: %+v", a)
		}
		out = append(out, string(a.Level)+" "+a.Code)
	}
	return strings.Join(out, ", ")
}

func repeated(n int, key func(i int) uint64) func(yield func(keyspace.Key) bool) {
	return func(yield func(keyspace.Key) bool) {
		for i := range n {
			if !yield(bigint(key(i))) {
				return
			}
		}
	}
}

func TestAdvice(t *testing.T) {
	spread := func(i int) uint64 { return mix(uint64(i)) >> 1 }
	for name, c := range map[string]struct {
		rows   int
		key    func(i int) uint64
		shards int
		want   string
	}{
		"good":         {100_000, func(i int) uint64 { return spread(i * 7919 % 5000) }, 8, ""},
		"one row each": {5000, spread, 8, "note one-row-keys"},
		"five values":  {5000, func(i int) uint64 { return mix(uint64(i)) % 5 }, 8, "problem low-cardinality"},
		"fifty values": {50_000, func(i int) uint64 { return mix(uint64(i)) % 50 }, 8, "warning low-cardinality"},
		"one giant":    {50_000, func(i int) uint64 { return spread(i) % 2000 * (spread(i) >> 40 % 3) }, 8, "problem skewed"},
		"one large":    {50_000, func(i int) uint64 { return spread(i) % 2000 * min(spread(i)>>40%11, 1) }, 8, "warning skewed"},
		"some heavy": {50_000, func(i int) uint64 {
			if spread(i)%10 < 6 {
				return 1e6 + spread(i)>>40%20
			}
			return spread(i) % 2000
		}, 8, "warning skewed"},
		"serial":    {5000, func(i int) uint64 { return uint64(i) }, 8, "warning rising, note one-row-keys"},
		"one shard": {5000, func(i int) uint64 { return spread(i) % 3 }, 1, ""},
	} {
		r, _ := simulateKeys(t, Spec{Shards: c.shards, Strategies: []string{"ring", Range}}, []keyspace.Type{keyspace.Int8}, repeated(c.rows, c.key))
		if got := codes(r.Advice); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	// A shard of twice the weight may hold twice as large a key.
	half := repeated(30_000, func(i int) uint64 { return spread(i) % 2000 * min(spread(i)>>40%5, 1) })
	for weights, want := range map[string]string{"": "problem skewed", "w": "warning skewed"} {
		s := Spec{Shards: 8, Strategies: []string{"ring"}}
		if weights != "" {
			s.Weights = []float64{4, 1, 1, 1, 1, 1, 1, 1}
		}
		if r, _ := simulateKeys(t, s, []keyspace.Type{keyspace.Int8}, half); codes(r.Advice) != want {
			t.Errorf("weights %v: %q", s.Weights, codes(r.Advice))
		}
	}
	p := NewProfile([]keyspace.Type{keyspace.Text})
	p.AddNull()
	p.AddEmpty()
	r := NewReport(&Spec{Shards: 4}, p, nil, 5)
	if got := codes(Advise(r, nil)); got != "problem null, warning empty" {
		t.Errorf("no keys: %q", got)
	}
}

func TestColumnAdvice(t *testing.T) {
	good := Column{Name: "tenant_id", Type: "bigint", NotNull: true, InPrimaryKey: true, Indexed: true, Updates: -1}
	with := func(change func(*Column)) Column { c := good; change(&c); return c }
	r, _ := simulateKeys(t, Spec{Shards: 8, Strategies: []string{"ring"}}, []keyspace.Type{keyspace.Int8}, uniform(3, 50_000, 3000))
	r.Columns = []string{"tenant_id"}
	for name, c := range map[string]struct {
		column Column
		want   string
	}{
		"good":                             {good, ""},
		"type":                             {with(func(c *Column) { c.Refused = "equal numbers have several forms" }), "problem type"},
		"nullable":                         {with(func(c *Column) { c.NotNull = false }), "note null"},
		"enum":                             {with(func(c *Column) { c.Values = 4 }), "problem low-cardinality"},
		"large enum":                       {with(func(c *Column) { c.Values = 40 }), ""},
		"generated":                        {with(func(c *Column) { c.Generated = true }), "warning mutable"},
		"trigger":                          {with(func(c *Column) { c.UpdateTriggers = []string{"audit"} }), "warning mutable"},
		"cascade":                          {with(func(c *Column) { c.Cascades = []string{"fk"} }), "warning mutable"},
		"by name":                          {with(func(c *Column) { c.Name = "order_status" }), "note mutable"},
		"name, no update":                  {with(func(c *Column) { c.Name, c.Updates = "status", 0 }), ""},
		"name, all heap-only, indexed":     {with(func(c *Column) { c.Name, c.Updates, c.HeapOnly = "status", 10, 10 }), ""},
		"name, not all heap-only":          {with(func(c *Column) { c.Name, c.Updates, c.HeapOnly = "status", 10, 9 }), "note mutable"},
		"name, all heap-only, not indexed": {with(func(c *Column) { c.Name, c.Updates, c.HeapOnly, c.Indexed = "status", 10, 10, false }), "note mutable"},
		"states is not state":              {with(func(c *Column) { c.Name = "united_states_id" }), ""},
		"unique":                           {with(func(c *Column) { c.UniqueWithout = []string{"PRIMARY KEY t_pkey"} }), "warning unique"},
	} {
		if got := codes(Advise(r, []Column{c.column})); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRank(t *testing.T) {
	profile := func(rows int, key func(i int) uint64) *Profile {
		p := NewColumnProfile(keyspace.Int8)
		for k := range repeated(rows, key) {
			p.Add(k, p.Locate(k))
		}
		return p
	}
	column := func(name string) Column { return Column{Name: name, Type: "bigint", NotNull: true, Updates: -1} }
	tenant := column("tenant_id")
	tenant.References = []string{"tenants"}
	float := column("price")
	float.Refused = "equal numbers have several forms"
	cs := []Candidate{
		NewCandidate(float, true, nil, 4),
		NewCandidate(column("country"), true, profile(5000, func(i int) uint64 { return mix(uint64(i)) % 3 }), 4),
		NewCandidate(column("id"), true, profile(5000, func(i int) uint64 { return uint64(i) }), 4),
		NewCandidate(column("device"), true, profile(5000, func(i int) uint64 { return mix(uint64(i)) % 900 }), 4),
		NewCandidate(tenant, true, profile(5000, func(i int) uint64 { return mix(uint64(i)) % 900 }), 4),
		NewCandidate(column("nothing"), true, NewColumnProfile(keyspace.Int8), 4),
	}
	Rank(cs)
	var order []string
	for _, c := range cs {
		order = append(order, c.Column+" "+string(c.Verdict))
		if len(c.Reasons) == 0 || c.Advice == nil {
			t.Errorf("%s: no reason", c.Column)
		}
	}
	want := []string{"tenant_id good", "device good", "id good", "country no", "nothing no", "price no"}
	if !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
}
