package pgcatalog

import (
	"runtime"
	"slices"
	"testing"
)

// TestLoad holds what the catalogue may take of every process that uses it.
func TestLoad(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f, o, k, r, y := functions(), operators(), casts(), relations(), types()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int(after.HeapAlloc) - int(before.HeapAlloc); kept > 600<<10 {
		t.Errorf("the catalogue keeps %d KiB", kept>>10)
	} else {
		t.Logf("%d KiB for %d functions, %d operators, %d casts, %d relations, %d types", kept>>10, len(f.rows), len(o), len(k), len(r), len(y.rows))
	}
}

// TestLookups: one of each.
func TestLookups(t *testing.T) {
	c := Of(15)
	if f := c.Function(1397); f == nil || f.Signature() != "abs(int4)" || f.Volatile != 'i' || !f.Strict {
		t.Errorf("function 1397: %+v", f)
	}
	if n := len(slices.Collect(c.Functions("abs"))); n != 6 {
		t.Errorf("%d functions abs", n)
	}
	if n := len(slices.Collect(c.Functions("random_normal"))); n != 0 || first(Of(16).Functions("random_normal")) == nil || first(Catalog{}.Functions("random_normal")) == nil {
		t.Error("random_normal is there since 16")
	}
	if y := c.TypeNamed("_int4"); y == nil || y.Elem != 23 || c.Array(23) != y.OID || c.Element(y.OID) != 23 {
		t.Errorf("int4[]: %+v", y)
	}
	if k := c.Cast(23, 20); k == nil || !k.Allows(Implicit) || c.Cast(20, 23).Allows(Implicit) {
		t.Errorf("int4 to int8: %+v", k)
	}
	r := c.Relation("pg_catalog", "pg_class")
	if r == nil || r.OID != 1259 || r.Kind != 'r' {
		t.Fatalf("pg_class: %+v", r)
	}
	if cols := slices.Collect(r.Columns()); len(cols) != 33 || cols[1] != (Column{"relname", 19, -1, true}) {
		t.Errorf("columns of pg_class: %v", cols)
	}
	if c.Relation("pg_catalog", "nothing") != nil || c.Type(1) != nil || c.Function(0) != nil || c.TypeNamed("") != nil {
		t.Error("what is not there is found")
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		loadTypes()
		loadFunctions()
		loadOperators()
		loadCasts()
		loadRelations()
	}
}

func BenchmarkFunctions(b *testing.B) {
	for b.Loop() {
		for f := range (Catalog{}).Functions("substring") {
			_ = f
		}
	}
}

func BenchmarkCall(b *testing.B) {
	in := []uint32{25, 23, 23}
	for b.Loop() {
		if k, _ := Of(15).Call("substring", in, false); k == nil {
			b.Fatal("no match")
		}
	}
}
