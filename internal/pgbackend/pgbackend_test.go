package pgbackend

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/sqlstate"
)

func names[P any](t *Portals[P]) string {
	return strings.Join(slices.Sorted(t.Names()), " ")
}

func fails(t *testing.T, err error, code sqlstate.Code, text string) {
	t.Helper()
	if err == nil || sqlstate.CodeOf(err) != code || sqlstate.As(err).Message != text {
		t.Errorf("%v, want %s %s", err, code, text)
	}
}

func TestStatements(t *testing.T) {
	var gone []string
	s := Statements[string]{Max: 3, MaxBytes: 10, Gone: func(s string) { gone = append(gone, s) }}
	_, err := s.Get(nil)
	fails(t, err, "26000", "unnamed prepared statement does not exist")
	_, err = s.Get([]byte(`a"b`))
	fails(t, err, "26000", `prepared statement "a"b" does not exist`)
	for _, name := range []string{"", "a", ""} {
		s.Replace(name)
		if err := s.Add(name, name+"!", 3); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(gone, []string{"!"}) {
		t.Fatal("the unnamed statement ends with the next Parse", gone)
	}
	fails(t, s.Add("a", "b", 1), "42P05", `prepared statement "a" already exists`)
	fails(t, s.Add("b", "b", 5), "54000", "too many prepared statements (2, 6 bytes)")
	if err := s.Add("b", "b!", 4); err != nil {
		t.Fatal(err)
	}
	fails(t, s.Add("c", "c", 0), "54000", "too many prepared statements (3, 10 bytes)")
	s.DropOnly("b", "other")
	if s.Drop("none") || !s.Has("b") {
		t.Fatal("another statement ended")
	}
	s.DropOnly("b", "b!")
	s.Clear()
	if s.Len() != 0 || s.bytes != 0 || len(gone) != 4 {
		t.Fatal(s.Len(), s.bytes, gone)
	}
}

func TestPortals(t *testing.T) {
	var gone []string
	p := Portals[string]{Max: 4, Gone: func(s string) { gone = append(gone, s) }}
	var saves Savepoints[int]
	put := func(name string) {
		t.Helper()
		if err := p.Free([]byte(name)); err != nil {
			t.Fatal(err)
		}
		p.Put(name, name+"!", saves.Len())
	}
	put("outer")
	saves.Set("a", 1)
	put("of a")
	put("")
	put("") // it is replaced
	fails(t, p.Free([]byte("outer")), "42P03", `cursor "outer" already exists`)
	saves.Set("b", 2)
	put("of b")
	fails(t, p.Free([]byte("more")), "54000", "4 portals are open")

	// RELEASE of b: its portals are a's.
	at, err := saves.Find("b")
	if err != nil || saves.At(at) != 2 {
		t.Fatal(at, err)
	}
	saves.Release(at)
	p.Released(at)
	saves.Set("b", 3)
	p.RolledBack(1)
	if names(&p) != " of a of b outer" {
		t.Fatal(names(&p))
	}
	// The innermost a is meant, and stays.
	saves.Set("a", 4)
	if at, _ = saves.Find("a"); at != 2 {
		t.Fatal(at)
	}
	saves.RollBack(0)
	p.RolledBack(0)
	if names(&p) != "outer" || saves.Len() != 1 || !slices.Equal(slices.Sorted(slices.Values(gone)), []string{"!", "!", "of a!", "of b!"}) {
		t.Fatal(names(&p), saves.Len(), gone)
	}
	_, err = saves.Find("b")
	fails(t, err, "3B001", `savepoint "b" does not exist`)
	if got := maps.Collect(saves.All()); len(got) != 1 || got["a"] != 1 {
		t.Fatal(got)
	}

	put("held")
	p.Ended(func(s string) bool { return s == "held!" })
	if names(&p) != "held" {
		t.Fatal(names(&p))
	}
	p.RolledBack(0) // of another transaction
	if s, ok := p.Find("held"); !ok || s != "held!" {
		t.Fatal("a held portal is of no transaction")
	}
	if s, ok := p.Take("held"); !ok || s != "held!" || slices.Contains(gone, "held!") {
		t.Fatal("what is taken goes on", gone)
	}
	fails(t, NoPortal("x"), "34000", `portal "x" does not exist`)
}

// TestNames finds by bytes without an allocation, however long the name is.
func TestNames(t *testing.T) {
	name := []byte(strings.Repeat("n", 63))
	var p Portals[int]
	p.Put(string(name), 1, 0)
	s := Statements[int]{}
	s.Put(string(name), 1, 0)
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := p.Named(name); !ok {
			t.Fatal("not found")
		}
		if _, err := s.Get(name); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}
