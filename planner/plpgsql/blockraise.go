package plpgsql

import (
	"strings"

	"github.com/cleavedb/cleave/planner/sqltext"
)

// Raise is RAISE, "" where an error is raised again. Words is its text in pieces; SQLSTATE and
// SQLERRM of the error that is handled stand between them.
type Raise struct{ Words []string }

// The variables of a handler, as words of a Raise.
const (
	raiseState   = "\x00sqlstate"
	raiseMessage = "\x00sqlerrm"
)

// Text is the statement, for an error.
func (r *Raise) Text(state, message string) string {
	var b strings.Builder
	for _, w := range r.Words {
		switch w {
		case raiseState:
			w = sqltext.QuoteString(state)
		case raiseMessage:
			w = sqltext.QuoteString(message)
		}
		b.WriteString(w)
	}
	return b.String()
}

// raiseLevels are PL/pgSQL's, as its parser numbers them.
var raiseLevels = map[int]string{14: "DEBUG", 15: "LOG", 17: "INFO", 18: "NOTICE", 19: "WARNING", 21: "EXCEPTION"}

// raiseOptions are in the order of the parser's numbers.
var raiseOptions = []string{"ERRCODE", "MESSAGE", "DETAIL", "HINT", "COLUMN", "CONSTRAINT", "DATATYPE", "TABLE", "SCHEMA"}

// raise writes a RAISE whose arguments are literals, or SQLSTATE and SQLERRM.
func (r *reader) raise(m map[string]any) (*Raise, error) {
	out := &Raise{}
	level := raiseLevels[number(m["elog_level"])]
	name, named := m["condname"].(string)
	message, says := m["message"].(string)
	params, _ := m["params"].([]any)
	options, _ := m["options"].([]any)
	if level == "" {
		return nil, r.refuse("RAISE")
	}
	if !named && !says && options == nil {
		return out, nil // the error again
	}
	word := func(w ...string) { out.Words = append(out.Words, w...) }
	argument := func(v any) error {
		text := expr(v)
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "sqlstate":
			word(raiseState)
			return nil
		case "sqlerrm":
			word(raiseMessage)
			return nil
		}
		if readConstant(r.p, text) == nil {
			return r.refuse("RAISE with another argument than a literal, SQLERRM and SQLSTATE")
		}
		word("(", text, "\n)") // it may end with a comment
		return nil
	}
	word("RAISE ", level)
	switch {
	case says:
		word(" ", sqltext.QuoteString(message))
	case named && isState(name):
		word(" SQLSTATE ", sqltext.QuoteString(name))
	case named:
		word(" ", sqltext.QuoteName("", name))
	}
	for _, p := range params {
		word(", ")
		if err := argument(p); err != nil {
			return nil, err
		}
	}
	for i, o := range options {
		o, _ := o.(map[string]any)
		o, _ = o["PLpgSQL_raise_option"].(map[string]any)
		n := number(o["opt_type"])
		if n < 0 || n >= len(raiseOptions) {
			return nil, r.refuse("RAISE")
		}
		word([]string{" USING ", ", "}[min(i, 1)], raiseOptions[n], " = ")
		if err := argument(o["expr"]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
