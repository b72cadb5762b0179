package shardmap_test

import (
	"testing"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// TestHeldTransitCanArrive: while a transit is on hold nothing gets into the map that would refuse its arrival, be it a
// constraint, a label, or another transit on hold.
func TestHeldTransitCanArrive(t *testing.T) {
	s := ruled(t)
	step := func(what, transit string, ok bool, edit func(*shardmap.State) error) {
		t.Helper()
		next := s.State().Clone()
		if err := edit(&next); err != nil {
			t.Fatal(err)
		}
		n, err := shardmap.Advance(s, shardmap.Change{Expect: s.Version(), By: "t", Op: "test", Transit: transit}, next)
		if (err == nil) != ok || err != nil && (sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || sqlstate.As(err).Hint == "") {
			t.Fatalf("%s: %v", what, err)
		}
		if ok {
			s = n
		}
	}
	put := func(id, key, from, to string, hold shardmap.Hold) func(*shardmap.State) error {
		return func(n *shardmap.State) error {
			n.PutTransit("tenants", shardmap.Transit{ID: id, Part: shardmap.Part{Key: []string{key}}, From: from, To: to, Hold: hold})
			return nil
		}
	}
	owner := func(key string) string {
		o, err := s.OwnerOf("tenants", shardmap.Part{Key: []string{key}})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	constraint := func(name string, kind placement.Kind, keys ...string) func(*shardmap.State) error {
		return func(n *shardmap.State) error {
			c := shardmap.Constraint{Name: name, Kind: kind, Keyspace: "tenants"}
			for _, k := range keys {
				c.Keys = append(c.Keys, []string{k})
			}
			n.PutConstraint(c)
			return nil
		}
	}
	step("a key is by itself", "", true, func(n *shardmap.State) error { return n.PutPin("tenants", []string{"42"}, "us2") })
	step("another one is on its way there", "m", true, put("m", "7", owner("7"), "us2", shardmap.NoHold))
	step("and is held", "m", true, put("m", "7", owner("7"), "us2", shardmap.HoldNew))
	step("the key is isolated meanwhile", "", false, constraint("alone", placement.Isolation, "42"))
	step("the two are to be apart", "", false, constraint("apart", placement.AntiAffinity, "7", "42"))
	step("others are to be apart", "", true, constraint("others", placement.AntiAffinity, "8", "42"))
	step("one of these is on its way too", "o", true, put("o", "8", owner("8"), "us2", shardmap.NoHold))
	step("its hold would be for nothing", "o", false, put("o", "8", owner("8"), "us2", shardmap.HoldNew))
	step("it is given up", "o", true, func(n *shardmap.State) error { n.DropTransit("tenants", "o"); return nil })
	step("two that must not meet", "", true, constraint("pair", placement.AntiAffinity, "7", "9"))
	step("the second is on its way", "p", true, put("p", "9", owner("9"), "us2", shardmap.NoHold))
	step("and is not held beside the first", "p", false, put("p", "9", owner("9"), "us2", shardmap.HoldNew))
	step("the first arrives", "m", true, func(n *shardmap.State) error {
		if err := put("m", "7", owner("7"), "us2", shardmap.NoHold)(n); err != nil {
			return err
		}
		return n.SetOwner("tenants", shardmap.Part{Key: []string{"7"}}, "us2")
	})
	step("then nobody is in the way of the rule", "", true, constraint("apart", placement.AntiAffinity, "7", "42"))
}
