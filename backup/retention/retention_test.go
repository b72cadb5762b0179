package retention_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/backup/retention"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func kept(list []retention.Decision) string {
	var out []string
	for _, d := range list {
		if d.Keep {
			out = append(out, d.ID)
		}
	}
	return strings.Join(out, " ")
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	var all []retention.Backup
	for i := range 10 { // b0 is the oldest, two a day
		all = append(all, retention.Backup{ID: fmt.Sprint("b", i), Ended: now.Add(-time.Duration(9-i) * 12 * time.Hour), Proven: i == 3 || i == 1})
	}
	for _, c := range []struct {
		policy retention.Policy
		want   string
	}{
		{retention.Policy{}, "b9 b8 b7 b6 b5 b4 b3 b2 b1 b0"},
		{retention.Policy{Last: 1}, "b9 b3"},
		{retention.Policy{Last: 3}, "b9 b8 b7 b3"},
		{retention.Policy{Within: 24 * time.Hour}, "b9 b8 b3"},
		{retention.Policy{Daily: 3}, "b9 b7 b5 b3"},
		{retention.Policy{Proven: 2}, "b9 b3 b1"},
		{retention.Policy{Last: 100}, "b9 b8 b7 b6 b5 b4 b3 b2 b1 b0"},
	} {
		if got := kept(retention.Decide(now, all, c.policy)); got != c.want {
			t.Errorf("%+v keeps %s, not %s", c.policy, got, c.want)
		}
	}
	all[7].Base, all[9].Base, all[2].Base = "b4", "b7", "b0"
	if got := kept(retention.Decide(now, all, retention.Policy{Last: 1})); got != "b9 b7 b4 b3" {
		t.Errorf("with those that b9 builds on: %s", got)
	}
}

func drawBackups(t *rapid.T) (all []retention.Backup) {
	for i := range rapid.IntRange(0, 12).Draw(t, "n") {
		b := retention.Backup{ID: fmt.Sprint("b", i), Proven: rapid.Bool().Draw(t, "proven")}
		b.Ended = now.Add(time.Duration(rapid.IntRange(-200, 200).Draw(t, "hours")) * time.Hour)
		if i > 0 && rapid.Bool().Draw(t, "incremental") {
			b.Base = fmt.Sprint("b", rapid.IntRange(0, i-1).Draw(t, "base"))
		}
		all = append(all, b)
	}
	return all
}

// TestNeverLost: for any backups, policy and clock.
func TestNeverLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawBackups(t)
		p := retention.Policy{
			Last: rapid.IntRange(-1, 5).Draw(t, "last"), Daily: rapid.IntRange(-1, 5).Draw(t, "daily"), Proven: rapid.IntRange(-1, 3).Draw(t, "keep proven"),
			Within: time.Duration(rapid.IntRange(-10, 300).Draw(t, "within")) * time.Hour,
		}
		clock := now.Add(time.Duration(rapid.IntRange(-100_000, 100_000).Draw(t, "clock")) * time.Hour)
		list := retention.Decide(clock, all, p)
		if len(list) != len(all) {
			t.Fatalf("%d decisions of %d backups", len(list), len(all))
		}
		keep := map[string]bool{}
		var rest []retention.Backup
		for i, d := range list {
			keep[d.ID] = d.Keep
			if d.Keep {
				rest = append(rest, d.Backup)
			}
			if d.Why == "" || i > 0 && d.Ended.After(list[i-1].Ended) {
				t.Errorf("without a reason, or after an older one: %+v", d)
			}
			young := p.Within > 0 && d.Ended.Add(p.Within).After(clock)
			if !d.Keep && (young || i < max(1, p.Last)) {
				t.Errorf("number %d is removed: %+v", i, d)
			}
		}
		wantProvenAndBases(t, list, keep)
		// What was removed changes nothing about the rest.
		if again := retention.Decide(clock, rest, p); kept(again) != kept(list) {
			t.Errorf("kept are %s, and of these %s", kept(list), kept(again))
		}
	})
}

func wantProvenAndBases(t *rapid.T, list []retention.Decision, keep map[string]bool) {
	if i := slices.IndexFunc(list, func(d retention.Decision) bool { return d.Proven }); i >= 0 && !list[i].Keep {
		t.Errorf("the newest that is proven is removed: %+v", list[i])
	}
	for _, d := range list {
		if d.Keep && d.Base != "" && !keep[d.Base] {
			t.Errorf("%s builds on %s, which is removed", d.ID, d.Base)
		}
	}
}
