package enginetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
)

// checkCondition compares [keyspace.Condition] on the shard with Owns.
func checkCondition(t *testing.T, c *talk, table string, columns []string, oids []uint32, o keyspace.Ownership, try []keyspace.Key) {
	t.Helper()
	all := o
	all.Pinned, all.PinnedElsewhere = try, nil
	setGuard(t, c, engine.Guard{Schema: "public", Table: table, ShardKey: columns, Owned: all})
	defer setGuard(t, c, engine.Guard{Schema: "public", Table: table, ShardKey: columns, Owned: o})
	c.do(`BEGIN`)
	defer c.do(`ROLLBACK`)
	params := make([]string, len(columns))
	named := make([]string, len(columns))
	for i := range columns {
		params[i], named[i] = fmt.Sprintf("$%d", i+1), "t."+columns[i]
	}
	owned := map[string]bool{}
	for _, k := range try {
		if r := c.prepared(`INSERT INTO `+table+` VALUES (`+strings.Join(params, ", ")+`)`, oids, k.Texts()...); r.err() != nil {
			t.Fatalf("insert %v: %v", k, r.err())
		}
		owned[strings.Join(k.Texts(), "|")] = o.Owns(k)
	}
	condition := keyspace.Condition(&o, named)
	for _, q := range []struct {
		where string
		want  bool
	}{{condition, true}, {"NOT " + condition, false}} {
		seen := 0
		for _, row := range c.do(`SELECT ` + strings.Join(named, ", ") + ` FROM ` + table + ` AS t WHERE ` + q.where).rows() {
			if own, known := owned[strings.TrimSuffix(row, "|")]; known && own != q.want {
				t.Fatalf("%v key %s: Owns says %v, the shard the contrary; %s\n%+v", o.Strategy, row, own, condition, o)
			}
			seen++
		}
		want := 0
		for _, k := range try {
			if o.Owns(k) == q.want {
				want++
			}
		}
		if seen != want {
			t.Fatalf("%v %v: %d rows of %d are found by %s\n%+v", o.Strategy, o.Types, seen, want, q.where, o)
		}
	}
}
