package workflow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones must not depend on the machine

	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of the text of windows.
const (
	windowsMax      = 16
	windowTextBytes = 1 << 10
)

// dayMinutes are the minutes of a day of 24 hours.
const dayMinutes = 24 * 60

// lookDays is for how many days windows are looked ahead: a change to summer time can leave
// out a window that is there once a week.
const lookDays = 16

// Window is a span of time that comes back each week on some days, in a time zone.
type Window struct {
	// Days are the days on which it begins, Days[time.Sunday] first.
	Days [7]bool
	// From and To are minutes after midnight, by the clock of the zone; To may be 24:00.
	// If To is not after From the window ends on the next day. A time that the clock leaves
	// out is the moment at which it is put forward; of one that comes twice, From is the first and To the second.
	From, To int
	// Zone is where the clock is.
	Zone *time.Location
}

// Windows are the spans of time in which something may be done; none: always.
type Windows []Window

var dayNames = [7]string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// ParseWindows reads windows, separated by ";", each "[DAYS] HH:MM-HH:MM [ZONE]": DAYS are days
// (Mon) and runs of days (Mon-Fri) with commas between them, every day if there are none; ZONE is a name of
// the time zone database, UTC if there is none. "" is no window at all. Errors: 22023.
func ParseWindows(text string) (Windows, error) {
	if len(text) > windowTextBytes {
		return nil, windowError(text, "it has more than %d bytes", windowTextBytes)
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var out Windows
	for one := range strings.SplitSeq(text, ";") {
		w, err := parseWindow(one)
		if err != nil {
			return nil, err
		}
		if out = append(out, w); len(out) > windowsMax {
			return nil, windowError(text, "it has more than %d windows", windowsMax)
		}
	}
	return out, nil
}

func windowError(text, format string, args ...any) error {
	return sqlstate.New(sqlstate.InvalidParameterValue, "%q is no window of time: %s", shorten(text), fmt.Sprintf(format, args...)).
		WithHint(`write it like "Mon-Fri 22:00-06:00 Europe/Zurich", several with ";" between them`)
}

func parseWindow(text string) (Window, error) {
	w := Window{Days: [7]bool{true, true, true, true, true, true, true}, Zone: time.UTC}
	words := strings.Fields(text)
	if len(words) > 0 && (words[0][0] < '0' || words[0][0] > '9') {
		var err error
		if w.Days, err = parseDays(text, words[0]); err != nil {
			return w, err
		}
		words = words[1:]
	}
	if len(words) == 0 || len(words) > 2 {
		return w, windowError(text, "it needs a time to begin and one to end")
	}
	from, to, ok := strings.Cut(words[0], "-")
	if w.From, w.To = parseClock(from), parseClock(to); !ok || w.From < 0 || w.To < 0 || w.From == dayMinutes {
		return w, windowError(text, "%q is not HH:MM-HH:MM", shorten(words[0]))
	}
	if len(words) == 2 {
		// "Local" would be another zone on each machine.
		zone, err := time.LoadLocation(words[1])
		if err != nil || words[1] == "Local" {
			return w, windowError(text, "nobody knows the time zone %q", shorten(words[1]))
		}
		w.Zone = zone
	}
	return w, nil
}

// parseClock reads HH:MM, to 24:00; -1 if it is none.
func parseClock(text string) int {
	if len(text) != 5 || text[2] != ':' {
		return -1
	}
	hours, err := strconv.ParseUint(text[:2], 10, 8)
	minutes, err2 := strconv.ParseUint(text[3:], 10, 8)
	if err != nil || err2 != nil || minutes > 59 || hours*60+minutes > dayMinutes {
		return -1
	}
	return int(hours*60 + minutes)
}

func parseDays(text, days string) (out [7]bool, err error) {
	for part := range strings.SplitSeq(days, ",") {
		first, last, run := strings.Cut(part, "-")
		if !run {
			last = first
		}
		a, b := dayOf(first), dayOf(last)
		if a < 0 || b < 0 {
			return out, windowError(text, "%q are no days", shorten(part))
		}
		for out[a] = true; a != b; out[a] = true {
			a = (a + 1) % 7
		}
	}
	return out, nil
}

func dayOf(name string) int {
	return slices.IndexFunc(dayNames[:], func(d string) bool { return strings.EqualFold(d, name) })
}

// String is the text that ParseWindows reads.
func (w *Window) String() string {
	var b strings.Builder
	if days := w.days(); days != "" {
		b.WriteString(days + " ")
	}
	fmt.Fprintf(&b, "%02d:%02d-%02d:%02d %s", w.From/60, w.From%60, w.To/60, w.To%60, w.zone())
	return b.String()
}

func (w *Window) zone() *time.Location {
	if w.Zone == nil {
		return time.UTC
	}
	return w.Zone
}

// days prints days from Monday on, runs of more than two with a hyphen; "" for all.
func (w *Window) days() string {
	if w.Days == [7]bool{true, true, true, true, true, true, true} {
		return ""
	}
	var parts []string
	for i := 1; i <= 7; {
		n := 0
		for i+n <= 7 && w.Days[(i+n)%7] {
			n++
		}
		switch {
		case n == 0:
			i++
			continue
		case n < 3:
			for d := range n {
				parts = append(parts, dayNames[(i+d)%7])
			}
		default:
			parts = append(parts, dayNames[i%7]+"-"+dayNames[(i+n-1)%7])
		}
		i += n
	}
	return strings.Join(parts, ",")
}

// String is the text that ParseWindows reads.
func (ws Windows) String() string {
	texts := make([]string, len(ws))
	for i, w := range ws {
		texts[i] = w.String()
	}
	return strings.Join(texts, "; ")
}

// Open reports whether a moment is in one of the windows, and when that will be different: if it
// is, the end of the window (of all that overlap or follow at once), else the next one's
// beginning. next is the zero time if it stays as it is: there are no windows, they cover all
// of the time, or none begins in the next two weeks.
func (ws Windows) Open(t time.Time) (open bool, next time.Time) {
	if len(ws) == 0 {
		return true, time.Time{}
	}
	end := t
	// Each turn goes on to the end of a later window: a week's windows end at most 7 times each.
	for range 7*len(ws) + 2 {
		later := end
		for i := range ws {
			ws[i].spans(end, -2, 1, func(a, b time.Time) {
				if !a.After(end) && b.After(later) {
					later = b
				}
			})
		}
		if !later.After(end) {
			break
		}
		open, end = true, later
	}
	if open {
		if end.Sub(t) > 7*24*time.Hour {
			return true, time.Time{}
		}
		return true, end
	}
	for i := range ws {
		ws[i].spans(t, -1, lookDays, func(a, _ time.Time) {
			if a.After(t) && (next.IsZero() || a.Before(next)) {
				next = a
			}
		})
	}
	return false, next
}

// Wait says in words for what something waits at a moment at which no window is open; "" if one is.
func (ws Windows) Wait(t time.Time) string {
	switch open, next := ws.Open(t); {
	case open:
		return ""
	case next.IsZero():
		return "waits for a window, of which none begins in the next two weeks"
	default:
		return "waits for the window that begins at " + next.In(ws[0].zone()).Format("2006-01-02 15:04 MST")
	}
}

// spans calls f for the windows that begin on the days around a moment's.
func (w *Window) spans(t time.Time, first, last int, f func(from, to time.Time)) {
	year, month, day := t.In(w.zone()).Date()
	for n := first; n <= last; n++ {
		// The day of the week of a date does not depend on the zone.
		if !w.Days[time.Date(year, month, day+n, 12, 0, 0, 0, time.UTC).Weekday()] {
			continue
		}
		end := day + n
		if w.To <= w.From {
			end++
		}
		a, b := moment(w.zone(), year, month, day+n, w.From, false), moment(w.zone(), year, month, end, w.To, true)
		if a.Before(b) {
			f(a, b)
		}
	}
}

// moment is when the clock of a zone shows so many minutes after midnight: the first time or
// the second, if it does so twice; if it never does, when it is put forward.
func moment(zone *time.Location, year int, month time.Month, day, minutes int, second bool) time.Time {
	// As if the zone were UTC; the real moment is less than a day from it.
	wall := time.Date(year, month, day, 0, minutes, 0, 0, time.UTC)
	_, before := wall.Add(-24 * time.Hour).In(zone).Zone()
	_, after := wall.Add(24 * time.Hour).In(zone).Zone()
	a, b := wall.Add(-time.Duration(before)*time.Second), wall.Add(-time.Duration(after)*time.Second)
	shows := func(t time.Time) bool {
		_, offset := t.In(zone).Zone()
		return t.Add(time.Duration(offset) * time.Second).Equal(wall)
	}
	switch inA, inB := shows(a), shows(b); {
	case inA && inB:
		if a.After(b) != second {
			return b
		}
		return a
	case inA:
		return a
	case inB:
		return b
	}
	if start, _ := a.In(zone).ZoneBounds(); !start.IsZero() {
		return start
	}
	return a
}
