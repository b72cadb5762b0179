package workflow

import (
	"strings"
	"testing"
	"time"
)

func TestParseWindows(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		" Mon-Fri 22:00-06:00 Europe/Zurich ":  "Mon-Fri 22:00-06:00 Europe/Zurich",
		"22:00-06:00":                          "22:00-06:00 UTC",
		"sat,SUN 00:00-24:00 UTC":              "Sat,Sun 00:00-24:00 UTC",
		"Fri-Mon 01:30-02:30 America/New_York": "Mon,Fri-Sun 01:30-02:30 America/New_York",
		"Mon-Sun 01:00-01:00":                  "01:00-01:00 UTC",
		"Mon 01:00-02:00; Tue,Wed,Thu 03:00-04:00 Asia/Kathmandu": "Mon 01:00-02:00 UTC; Tue-Thu 03:00-04:00 Asia/Kathmandu",
	} {
		ws, err := ParseWindows(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if ws.String() != want {
			t.Errorf("%q is %q, not %q", text, ws, want)
		}
		if again, err := ParseWindows(ws.String()); err != nil || again.String() != want {
			t.Errorf("%q again: %q, %v", text, again, err)
		}
	}
	for _, text := range []string{"Mon", "Mon-Fri", "25:00-01:00", "1:00-02:00", "01:00", "01:00-02:60", "24:00-01:00", "Mon 01:00-02:00 Mars/Base", "01:00-02:00 Local",
		"Mon- 01:00-02:00", "Foo 01:00-02:00", "01:00-02:00 UTC x", ";", "01:00-02:00;", strings.Repeat("01:00-02:00;", 17) + "01:00-02:00", strings.Repeat(" ", 2000)} {
		if ws, err := ParseWindows(text); err == nil {
			t.Errorf("%q is %v", text, ws)
		}
	}
}

func TestWindowsOpen(t *testing.T) {
	const always = ""
	for _, c := range []struct {
		windows, at string
		open        bool
		next        string
	}{
		{"", "2026-11-22T12:00:00Z", true, always},
		{"00:00-24:00", "2026-11-22T12:00:00Z", true, always},
		{"12:00-12:00", "2026-11-22T12:00:00Z", true, always},
		{"Mon-Wed 00:00-24:00; Thu-Sun 00:00-24:00", "2026-11-22T12:00:00Z", true, always},
		// Across midnight, in a zone: Friday's window ends on Saturday.
		{"Mon-Fri 22:00-06:00 Europe/Zurich", "2026-11-20T20:59:59Z", false, "2026-11-20T21:00:00Z"},
		{"Mon-Fri 22:00-06:00 Europe/Zurich", "2026-11-20T21:00:00Z", true, "2026-11-21T05:00:00Z"},
		{"Mon-Fri 22:00-06:00 Europe/Zurich", "2026-11-21T04:59:59Z", true, "2026-11-21T05:00:00Z"},
		{"Mon-Fri 22:00-06:00 Europe/Zurich", "2026-11-21T05:00:00Z", false, "2026-11-23T21:00:00Z"},
		// Windows that follow at once are one.
		{"Sat 20:00-24:00; Sun 00:00-04:00", "2026-11-21T21:00:00Z", true, "2026-11-22T04:00:00Z"},
		{"10:00-12:00; 11:00-13:00", "2026-11-22T10:30:00Z", true, "2026-11-22T13:00:00Z"},
		// Summer time begins: 02:00 to 03:00 is left out on 2026-03-29 in Zurich.
		{"02:15-02:45 Europe/Zurich", "2026-03-28T12:00:00Z", false, "2026-03-30T00:15:00Z"},
		{"02:30-04:00 Europe/Zurich", "2026-03-29T00:30:00Z", false, "2026-03-29T01:00:00Z"},
		{"02:30-04:00 Europe/Zurich", "2026-03-29T01:00:00Z", true, "2026-03-29T02:00:00Z"},
		{"01:00-02:30 Europe/Zurich", "2026-03-29T00:30:00Z", true, "2026-03-29T01:00:00Z"},
		{"Sun 02:15-02:45 Europe/Zurich", "2026-03-25T00:00:00Z", false, "2026-04-05T00:15:00Z"},
		// It ends: 02:00 to 03:00 comes twice on 2026-10-25.
		{"02:15-02:45 Europe/Zurich", "2026-10-25T00:00:00Z", false, "2026-10-25T00:15:00Z"},
		{"02:15-02:45 Europe/Zurich", "2026-10-25T00:50:00Z", true, "2026-10-25T01:45:00Z"},
		{"22:00-06:00 Europe/Zurich", "2026-10-24T20:00:00Z", true, "2026-10-25T05:00:00Z"},
		// A day that Samoa left out.
		{"Fri 10:00-11:00 Pacific/Apia", "2011-12-29T21:00:00Z", false, "2012-01-05T20:00:00Z"},
	} {
		ws, err := ParseWindows(c.windows)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		open, next := ws.Open(at)
		got := ""
		if !next.IsZero() {
			got = next.UTC().Format(time.RFC3339)
		}
		if open != c.open || got != c.next {
			t.Errorf("%q at %s: open %v until %q, not %v until %q", c.windows, c.at, open, got, c.open, c.next)
		}
	}
}

// FuzzWindows: what is read can be printed and read again. What a window says of the future
// is true: it stays as it is until next, and is different then.
func FuzzWindows(f *testing.F) {
	f.Add("Mon-Fri 22:00-06:00 Europe/Zurich", int64(1774746000))
	f.Add("02:15-02:45 America/New_York; Sat,Sun 00:00-24:00", int64(1772953200))
	f.Add("Fri 10:00-11:00 Pacific/Apia", int64(1325192400))
	f.Fuzz(func(t *testing.T, text string, at int64) {
		ws, err := ParseWindows(text)
		if err != nil || len(ws) == 0 {
			return
		}
		again, err := ParseWindows(ws.String())
		if err != nil || again.String() != ws.String() {
			t.Fatalf("%q: %q, %v", ws, again, err)
		}
		now := time.Unix(at%(1<<32), 0)
		open, next := ws.Open(now)
		if next.IsZero() {
			return
		}
		if !next.After(now) {
			t.Fatalf("%q at %s: next is %s", ws, now.UTC(), next.UTC())
		}
		if is, _ := again.Open(next); is == open {
			t.Fatalf("%q at %s: still %v at %s", ws, now.UTC(), open, next.UTC())
		}
		if is, then := again.Open(next.Add(-time.Second)); is != open || !then.Equal(next) {
			t.Fatalf("%q at %s: %v a second before %s, until %s", ws, now.UTC(), is, next.UTC(), then.UTC())
		}
	})
}
