package sqlstate

import (
	"fmt"
	"strconv"
	"strings"
)

// ID is the number of a refusal, "CLV-" and four digits. It never gets another meaning.
type ID string

// Refusal returns the 0A000 error of a statement that cannot be answered exactly.
// The id is a literal: docs/refusals.md is collected from these calls, and from the
// WithHint behind them.
func Refusal(id ID, format string, args ...any) *Error {
	return &Error{ID: id, Code: FeatureNotSupported, Message: fmt.Sprintf(format, args...)}
}

// Number returns the number of an id, and false for a text that is none.
func (id ID) Number() (n int, ok bool) {
	digits, ok := strings.CutPrefix(string(id), "CLV-")
	if !ok || len(digits) != 4 {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n > 0
}

// Section is a chapter of refusals. It has the ids above From, up to the next section's.
type Section struct {
	From  int
	Title string
}

// Sections are the chapters of docs/refusals.md, in order of their numbers.
func Sections() []Section { return append([]Section(nil), sections...) }

// SectionOf returns the section of an id.
func SectionOf(id ID) (s Section, ok bool) {
	n, ok := id.Number()
	if !ok {
		return s, false
	}
	for _, next := range sections {
		if next.From >= n {
			break
		}
		s = next
	}
	return s, s.From > 0
}

var sections = []Section{
	{100, "Shard keys"},
	{200, "Reads over several shards"},
	{300, "Writes over several shards"},
	{400, "COPY"},
	{500, "Sequences and ids"},
	{600, "Dates and times"},
	{700, "Views, functions, triggers and types"},
	{800, "Temporary objects"},
	{900, "Schema changes"},
	{1000, "Transactions, cursors and locks"},
	{1100, "Prepared statements"},
	{1200, "Sessions, settings and users"},
	{1300, "DO"},
	{1400, "The cluster"},
	{1500, "Backups"},
	{2000, "SQLite shards"},
}

// Withdrawn are ids of refusals that are made no more. They are not used again.
var Withdrawn = []ID{"CLV-0511", "CLV-1004", "CLV-1237"}

// Advice is the hint as a person reads it, with the id behind.
func (e *Error) Advice() string {
	switch {
	case e.ID == "":
		return e.Hint
	case e.Hint == "":
		return "See docs/refusals.md. (" + string(e.ID) + ")"
	}
	return e.Hint + " (" + string(e.ID) + ")"
}

// Received takes the id out of an error that came over a connection: Advice made its
// hint, and its routine is the id.
func (e *Error) Received() *Error {
	id := ID(e.Routine)
	if _, ok := id.Number(); !ok {
		return e
	}
	e.ID, e.Routine = id, ""
	e.Hint = strings.TrimSuffix(e.Hint, " ("+string(id)+")")
	return e
}
