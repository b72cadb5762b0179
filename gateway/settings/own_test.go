package settings

import (
	"testing"

	"github.com/cleavedb/cleave/planner/utility"
)

func TestOwnSettingsAreKnownToThePlanner(t *testing.T) {
	for name, s := range ownSettings {
		if !utility.OwnSetting(name) {
			t.Errorf("the planner does not know %s", name)
		}
		if s.ok == nil || s.want == "" {
			t.Errorf("%s takes anything", name)
		}
		if s.otherwise != "" && !s.ok(s.otherwise) {
			t.Errorf("%s does not take its own default %q", name, s.otherwise)
		}
		if s.ok("no such value") {
			t.Errorf("%s takes nonsense", name)
		}
	}
	if utility.OwnSetting("cleave.nonsense") {
		t.Error("the planner knows cleave.nonsense")
	}
}
