package shardmap_test

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// ruled is a map with shards in two regions: customers is by (region, id), tenants by a hash.
func ruled(t *testing.T, constraints ...shardmap.Constraint) *shardmap.Snapshot {
	t.Helper()
	var shards []shardmap.Shard
	for _, n := range []string{"eu1", "eu2", "us1", "us2"} {
		shards = append(shards, shardmap.Shard{Name: n, Engine: "sqlite", Weight: 1, Labels: map[string]string{"region": n[:2]}})
	}
	h, err := shardmap.NewHashKeyspace("tenants", []keyspace.Type{keyspace.Int8}, shards[:3], 3)
	if err != nil {
		t.Fatal(err)
	}
	r, err := shardmap.NewRangeKeyspace("customers", []keyspace.Type{keyspace.Text, keyspace.Int8}, [][]string{{"eu"}, {"eu", "100"}, {"ev"}}, []string{"us1", "eu1", "eu2", "us1"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := shardmap.NewListKeyspace("regions", []keyspace.Type{keyspace.Text}, [][]string{{"eu"}, {"us"}}, []string{"eu1", "us1"})
	if err != nil {
		t.Fatal(err)
	}
	st := shardmap.State{Format: shardmap.Format, Cluster: "7", Version: 1, SchemaVersion: 1, DefaultShard: "us1", Shards: shards, Keyspaces: []shardmap.Keyspace{h, r, l}, Constraints: constraints}
	return snapshotOf(t, st)
}

var eu = map[string]string{"region": "eu"}

func TestConstraintsAreEnforced(t *testing.T) {
	residency := shardmap.Constraint{Name: "eu-only", Kind: placement.Residency, Keyspace: "customers", Low: []string{"eu"}, High: []string{"ev"}, Shards: eu}
	listed := shardmap.Constraint{Name: "eu-list", Kind: placement.Residency, Keyspace: "regions", Keys: [][]string{{"eu"}}, Shards: eu}
	apart := shardmap.Constraint{Name: "apart", Kind: placement.AntiAffinity, Keyspace: "regions", Keys: [][]string{{"eu"}, {"us"}}}
	all := shardmap.Constraint{Name: "all", Kind: placement.Residency, Shards: map[string]string{"region": "eu"}}
	move := func(ks, shard string, p shardmap.Part) func(*shardmap.State) error {
		return func(s *shardmap.State) error { return s.SetOwner(ks, p, shard) }
	}
	transit := func(ks, to string, p shardmap.Part) func(*shardmap.State) error {
		return func(s *shardmap.State) error {
			ix, err := shardmap.NewSnapshot(*s)
			if err != nil {
				return err
			}
			from, err := ix.OwnerOf(ks, p)
			if err != nil {
				return err
			}
			s.PutTransit(ks, shardmap.Transit{ID: "m", Part: p, From: from, To: to})
			return nil
		}
	}
	range1 := shardmap.Part{Low: []string{"eu"}, High: []string{"eu", "100"}}
	for _, c := range []struct {
		name  string
		rules []shardmap.Constraint
		edit  func(*shardmap.State) error
		want  string // "" is allowed
	}{
		{"range to another shard with the label", []shardmap.Constraint{residency}, move("customers", "eu2", range1), ""},
		{"range away", []shardmap.Constraint{residency}, move("customers", "us2", range1), "eu-only"},
		{"part of it away", []shardmap.Constraint{residency}, move("customers", "us2", shardmap.Part{Low: []string{"eu", "5"}, High: []string{"eu", "6"}}), "eu-only"},
		{"what is beside it away", []shardmap.Constraint{residency}, move("customers", "us2", shardmap.Part{Low: []string{"ev"}}), ""},
		{"one key of it pinned away", []shardmap.Constraint{residency}, move("customers", "us2", shardmap.Part{Key: []string{"eu", "7"}}), "eu-only"},
		{"one key of it pinned within", []shardmap.Constraint{residency}, move("customers", "eu2", shardmap.Part{Key: []string{"eu", "7"}}), ""},
		{"rows copied away", []shardmap.Constraint{residency}, transit("customers", "us2", range1), "eu-only"},
		{"rows copied within", []shardmap.Constraint{residency}, transit("customers", "eu2", range1), ""},
		{"listed value", []shardmap.Constraint{listed}, move("regions", "us1", shardmap.Part{Key: []string{"eu"}}), "eu-list"},
		{"another value", []shardmap.Constraint{listed}, move("regions", "us2", shardmap.Part{Key: []string{"us"}}), ""},
		{"two apart", []shardmap.Constraint{apart}, move("regions", "eu1", shardmap.Part{Key: []string{"us"}}), "apart"},
		{"label taken away", []shardmap.Constraint{residency}, func(s *shardmap.State) error {
			sh := s.Shards[0]
			sh.Labels = map[string]string{"region": "us"}
			s.PutShard(sh)
			return nil
		}, "eu-only"},
		{"broken before, and moved within what is broken", []shardmap.Constraint{all}, func(s *shardmap.State) error { return s.Split("tenants", []string{"7"}) }, ""},
		{"broken before, and moved on to another wrong shard", []shardmap.Constraint{all}, move("regions", "us2", shardmap.Part{Key: []string{"us"}}), "all"},
		{"broken before, and repaired in part", []shardmap.Constraint{all}, move("regions", "eu2", shardmap.Part{Key: []string{"us"}}), ""},
		{"keyspace dropped", []shardmap.Constraint{residency}, func(s *shardmap.State) error { s.DropKeyspace("customers"); return nil }, "eu-only"},
		{"constraint and change together", nil, func(s *shardmap.State) error {
			s.PutConstraint(residency)
			return s.SetOwner("customers", range1, "us2")
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			prev := ruled(t, c.rules...)
			next := prev.State().Clone()
			if err := c.edit(&next); err != nil {
				t.Fatal(err)
			}
			got, err := shardmap.Advance(prev, shardmap.Change{Expect: 1, By: "t", Op: "test", Transit: "m"}, next)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), "constraint "+c.want)):
				t.Errorf("%v, %v", got, err)
			}
			if c.want != "" && err != nil && c.name != "keyspace dropped" && (sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || sqlstate.As(err).Hint == "") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestIsolation(t *testing.T) {
	alone := shardmap.Constraint{Name: "alone", Kind: placement.Isolation, Keyspace: "tenants", Keys: [][]string{{"42"}}}
	s := ruled(t, alone)
	if len(s.Violations()) == 0 {
		t.Fatal("a key within a range is alone")
	}
	step := func(what string, edit func(*shardmap.State) error, ok bool) {
		t.Helper()
		next := s.State().Clone()
		if err := edit(&next); err != nil {
			t.Fatal(err)
		}
		n, err := shardmap.Advance(s, shardmap.Change{Expect: s.Version(), By: "t", Op: "test"}, next)
		if (err == nil) != ok {
			t.Fatalf("%s: %v", what, err)
		}
		if ok {
			s = n
		}
	}
	step("it gets a shard of its own", func(n *shardmap.State) error { return n.PutPin("tenants", []string{"42"}, "us2") }, true)
	if v := s.Violations(); len(v) != 0 {
		t.Fatalf("%+v", v)
	}
	if c := s.Closed("other"); !c["us2"] || len(c) != 1 || len(s.OpenShards("other")) != 3 {
		t.Errorf("closed: %v", c)
	}
	step("others come", func(n *shardmap.State) error { return n.SetOwner("regions", shardmap.Part{Key: []string{"us"}}, "us2") }, false)
	step("it goes to others", func(n *shardmap.State) error { return n.PutPin("tenants", []string{"42"}, "us1") }, false)
	step("it is not alone any more", func(n *shardmap.State) error { _, err := n.DropPin("tenants", []string{"42"}); return err }, false)
	step("others change places", func(n *shardmap.State) error { return n.SetOwner("regions", shardmap.Part{Key: []string{"us"}}, "eu2") }, true)
	step("the rule goes", func(n *shardmap.State) error { n.DropConstraint("alone"); return nil }, true)
	step("then it may", func(n *shardmap.State) error { return n.PutPin("tenants", []string{"42"}, "us1") }, true)
}

func TestConstraintsThatAreNone(t *testing.T) {
	for _, c := range []shardmap.Constraint{
		{Kind: placement.Residency, Shards: eu},
		{Name: "x", Kind: "near", Keyspace: "tenants"},
		{Name: "x", Kind: placement.Residency, Keyspace: "tenants"},
		{Name: "x", Kind: placement.Isolation, Keyspace: "tenants", Shards: eu},
		{Name: "x", Kind: placement.Isolation},
		{Name: "x", Kind: placement.AntiAffinity, Keyspace: "tenants", Keys: [][]string{{"1"}}},
		{Name: "x", Kind: placement.AntiAffinity, Keyspace: "tenants", Keys: [][]string{{"1"}, {"01"}}},
		{Name: "x", Kind: placement.Residency, Keyspace: "nothing", Shards: eu},
		{Name: "x", Kind: placement.Residency, Keyspace: "tenants", Keys: [][]string{{"a"}}, Shards: eu},
		{Name: "x", Kind: placement.Residency, Keyspace: "tenants", Keys: [][]string{{"1"}}, Low: []string{"5"}, Shards: eu},
		{Name: "x", Kind: placement.Residency, Keyspace: "customers", Low: []string{"b"}, High: []string{"a"}, Shards: eu},
	} {
		st := ruled(t).State().Clone()
		st.PutConstraint(c)
		if _, err := shardmap.NewSnapshot(st); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}
