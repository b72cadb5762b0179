package planner

import (
	"testing"

	"github.com/cleavedb/cleave/planner/datetime"
)

// TestHasTimeWord: texts that a type of times, or one made of such types, would read as the time.
func TestHasTimeWord(t *testing.T) {
	for _, s := range []string{"now", " NOW ", "today", "Tomorrow", "yesterday 04:05", "today 12:00 America/New_York", "tomorrow EST", "{now}", "{2020-01-01,now}", "[now,)", "(now,1)", `{"today"}`,
		`{"a":"now"}`, "[yesterday,tomorrow]", "now12:00", "{NULL,yesterday}", "today allballs", `("today 10:00",5)`, "now ad", "j today", `{n\ow}`, `["tod"ay,)`, `{"a":"n\u006fW"}`, `{"a":"\u0074oday"}`, "_now", "now_utc", "{_now_}", "now_", "today vlat", "today foo+3", "today xyz-3:30", "{today xyz3}"} {
		if !datetime.HasSpecial(s) {
			t.Errorf("%q has no word", s)
		}
	}
	for _, s := range []string{"", "no", "do it now", "nowhere", "know", "{nowhere}", "today's news", "yesterdays", "now or never", "right_now", "now_or_never", "today or so: 3", "call me now: 5", "snow", "2020-01-01", "{right now please}", "ünow", "nowü", `{"a":"n\u00fcow"}`} {
		if datetime.HasSpecial(s) {
			t.Errorf("%q has a word", s)
		}
	}
}
