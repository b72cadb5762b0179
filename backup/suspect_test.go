package backup

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/shardmap"
)

const (
	txID  = "0195a1b2-0000-7000-8000-000000000001"
	gidOf = "cleave_c_" + txID + "_1_d"
)

// TestSuspect gives both looks at the decider d and at a participant j.
func TestSuspect(t *testing.T) {
	type look struct{ prepared, after, recent string }
	for _, c := range []struct {
		name string
		d, j look
		want bool
	}{
		{"nothing happened", look{}, look{}, false},
		{"prepared all the time", look{}, look{gidOf, gidOf, ""}, false},
		{"decided since, and committed", look{recent: txID}, look{gidOf, "", txID}, true},
		{"decided since; its commit is in the log and not seen", look{recent: txID}, look{gidOf, gidOf, ""}, true},
		{"decided before, committed since", look{}, look{gidOf, "", txID}, false},
		{"decided before, being committed", look{}, look{gidOf, gidOf, txID}, false},
		{"prepared since", look{}, look{after: gidOf}, true},
		{"prepared and committed since", look{}, look{recent: txID}, true},
	} {
		at := func(name string, l look) *place {
			return &place{shard: shardmap.Shard{Name: name}, prepared: strings.Fields(l.prepared), after: strings.Fields(l.after), recent: strings.Fields(l.recent)}
		}
		cutter := &Cutter{places: []*place{at("d", c.d), at("j", c.j)}}
		if got := cutter.suspect(); (got != "") != c.want {
			t.Errorf("%s: suspect is %q", c.name, got)
		}
	}
}
