package planner

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/shardmap"
)

// TestFunctionsHideTypes: a call that may be of a user's function has no certain type, so that its sums are not cast to one.
func TestFunctionsHideTypes(t *testing.T) {
	state := testState(t)
	state.Functions = append(state.Functions, shardmap.Function{Schema: "app", Name: "length", Kind: "f"})
	snap, err := shardmap.NewSnapshot(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		call string
		int4 bool
	}{
		{"pg_catalog.length(note)", true}, {"length(note)", false}, {"app.length(note)", false}, {"strpos(note, 'a')", true},
		// PostgreSQL gives the length of a line segment as a float.
		{"pg_catalog.length(CAST(note AS lseg))", false},
	} {
		st, err := New(Limits{}).Several("SELECT sum("+c.call+") FROM orders", snap, []string{"public"})
		if err != nil {
			if c.int4 {
				t.Errorf("%s: %v", c.call, err)
			}
			continue
		}
		if got := strings.Contains(st.Plan.Text, "::bigint"); got != c.int4 {
			t.Errorf("%s is taken for an integer: %v: %s", c.call, got, st.Plan.Text)
		}
	}
}
