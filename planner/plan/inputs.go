package plan

import (
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/planner/sqltext"
)

// InputQuestion is what a shard is asked to describe: a statement in which the literals that may be special date/time inputs are
// parameters. docs/design/timeinput.md.
type InputQuestion struct {
	Of string // the statement
	// Params is the number of its own parameters, Literals that of the literals', which follow.
	Params, Literals int
	// Base are the edits of what a shard does not know in the statement, and of what no Describe takes.
	Base  []sqltext.Edit
	Asked []InputLiteral // by their places
}

// InputLiteral is a literal of the text.
type InputLiteral struct {
	Location int32
	From, To int
	Text     string // what it says
	Param    int    // from 1: of the literals' parameters
	// Again: PostgreSQL reads it once for each value beside it, so that it may be of several types.
	Again bool
}

// InputType is the type that a literal has, as a shard said.
type InputType struct {
	OID  uint32 // 0: not known
	Name string // in SQL, of a type that is made of others or is a user's
}

// InputTypes are the types of a statement's literals, in the order of their parameters.
type InputTypes struct {
	Of    string // InputQuestion.Of
	Types []InputType
}

// Text is what a shard is asked to describe. The literals whose parameters are in texts stay literals; nil: none.
func (q *InputQuestion) Text(texts map[int]bool) string {
	edits := slices.Clone(q.Base)
	for _, l := range q.Asked {
		if n := q.Params + l.Param; !texts[n] {
			edits = append(edits, sqltext.Edit{From: l.From, To: l.To, Text: " $" + strconv.Itoa(n) + " "})
		}
	}
	return sqltext.Splice(q.Of, edits)
}

// At is the literal at a place, nil if it was not asked for, and its type.
func (q *InputQuestion) At(location int32, types []InputType) (l *InputLiteral, t InputType) {
	i, ok := slices.BinarySearchFunc(q.Asked, location, func(l InputLiteral, at int32) int { return int(l.Location) - int(at) })
	if !ok {
		return nil, t
	}
	if l = &q.Asked[i]; l.Param <= len(types) {
		t = types[l.Param-1]
	}
	return l, t
}
