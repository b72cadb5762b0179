package sqltext

import (
	"sort"
	"strings"
)

// Edit replaces text[from:to].
type Edit struct {
	From, To int
	Text     string
}

// Splice makes edits in a text. Of two that overlap, the first one counts.
func Splice(text string, edits []Edit) string {
	if len(edits) == 0 {
		return text
	}
	sort.Slice(edits, func(i, j int) bool { return edits[i].From < edits[j].From })
	var b strings.Builder
	at := 0
	for _, e := range edits {
		if e.From < at {
			continue
		}
		b.WriteString(text[at:e.From])
		b.WriteString(e.Text)
		at = e.To
	}
	b.WriteString(text[at:])
	return b.String()
}
