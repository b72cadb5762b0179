package sourcetext

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/planner/bail"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/sqlstate"
)

// RelationSpan is where a relation's name, with its schema, stands in the text; it begins at token i. ok is false where it cannot be told.
func (src *Text) RelationSpan(i int, rel *pg.RangeVar) (from, to int, ok bool) {
	ts := src.Tokens()
	if rel.Schemaname == "" {
		return ts[i].Start, ts[i].End, true
	}
	if !src.Punct(i+1, '.') || i+2 >= len(ts) {
		return 0, 0, false
	}
	return ts[i].Start, ts[i+2].End, true
}

// CutOptions cuts the options that begin at the offsets out of WITH (...), and
// WITH () altogether if none is left.
func (src *Text) CutOptions(at []int32) []sqltext.Edit {
	if len(at) == 0 {
		return nil
	}
	ts, depth := src.Top()
	mine := map[int]bool{}
	for _, o := range at {
		mine[int(o)] = true
	}
	// The bracket that the first option is in.
	open := -1
	for i, t := range ts {
		if t.IsPunct(src.SQL, '(') && depth[i] == 0 {
			open = i
		}
		if mine[t.Start] {
			break
		}
	}
	if open < 1 || !ts[open-1].Is(src.SQL, "with") {
		bail.With(sqlstate.New(sqlstate.InternalError, "the options of the table were not found in the text"))
	}
	type span struct{ from, to int }
	var kept []span
	start := open + 1
	i := open + 1
	for ; i < len(ts); i++ {
		last := depth[i] == 0 && ts[i].IsPunct(src.SQL, ')')
		if last || depth[i] == 1 && ts[i].IsPunct(src.SQL, ',') {
			if start < i && !mine[ts[start].Start] {
				kept = append(kept, span{ts[start].Start, ts[i-1].End})
			}
			start = i + 1
		}
		if last {
			break
		}
	}
	if i >= len(ts) {
		bail.With(sqlstate.New(sqlstate.InternalError, "the options of the table were not found in the text"))
	}
	if len(kept) == 0 {
		from := ts[open-1].Start
		for from > 0 && (src.SQL[from-1] == ' ' || src.SQL[from-1] == '\t') {
			from--
		}
		return []sqltext.Edit{{From: from, To: ts[i].End}}
	}
	parts := make([]string, len(kept))
	for j, k := range kept {
		parts[j] = src.SQL[k.from:k.to]
	}
	return []sqltext.Edit{{From: ts[open].End, To: ts[i].Start, Text: strings.Join(parts, ", ")}}
}

// NotNullEdit adds NOT NULL at the end of a column's definition.
func (src *Text) NotNullEdit(c *pg.ColumnDef) sqltext.Edit {
	ts, depth := src.Top()
	for i, t := range ts {
		if t.Start != int(c.Location) {
			continue
		}
		d := depth[i]
		for j := i + 1; j < len(ts); j++ {
			if depth[j] == d && ts[j].IsPunct(src.SQL, ',') || depth[j] < d {
				return sqltext.Edit{From: ts[j-1].End, To: ts[j-1].End, Text: " NOT NULL"}
			}
		}
	}
	bail.With(sqlstate.New(sqlstate.InternalError, "column %q was not found in the text", c.Colname))
	return sqltext.Edit{}
}

// DatabaseSpan is where a databaseCall stands.
func (src *Text) DatabaseSpan(m proto.Message) (e sqltext.Edit, ok bool) {
	ts := src.Tokens()
	if v, is := m.(*pg.SQLValueFunction); is {
		i := src.TokenAt(v.Location)
		if i < 0 {
			return e, false
		}
		return sqltext.Edit{From: ts[i].Start, To: ts[i].End}, true
	}
	i := src.TokenAt(m.(*pg.FuncCall).Location)
	for j := i; j >= 0 && j < min(i+4, len(ts)-1); j++ {
		if src.Punct(j, '(') && src.Punct(j+1, ')') {
			return sqltext.Edit{From: ts[i].Start, To: ts[j+1].End}, true
		}
	}
	return e, false
}

// CallSpan is where a call is in the text.
func (src *Text) CallSpan(f *pg.FuncCall) (from, to int) {
	i := src.TokenAt(f.Location)
	if i < 0 {
		LostPlace()
	}
	ts := src.Tokens()
	from = ts[i].Start
	for ; i < len(ts); i++ {
		if src.Punct(i, '(') {
			return from, ts[src.Closing(i)].End
		}
	}
	LostPlace()
	return 0, 0
}

// TargetEnd is where the expression of a SELECT's output column ends.
func (src *Text) TargetEnd(r *pg.ResTarget) int {
	i := src.TokenAt(r.Location)
	if i < 0 {
		LostPlace()
	}
	ts := src.Tokens()
	for first := i; i < len(ts); i++ {
		switch {
		case src.Punct(i, '(') || src.Punct(i, '['):
			i = src.Closing(i)
		case i > first && (src.Punct(i, ',') || src.Punct(i, ';') || src.Punct(i, ')')):
			return ts[i-1].End
		}
	}
	return ts[len(ts)-1].End
}

// ColumnEnd is where a column's definition ends in the text.
func (src *Text) ColumnEnd(c *pg.ColumnDef) int {
	i := src.TokenAt(c.Location)
	if i < 0 {
		LostPlace()
	}
	ts := src.Tokens()
	for i++; i < len(ts); i++ {
		switch {
		case src.Punct(i, '(') || src.Punct(i, '['):
			i = src.Closing(i)
		case src.Punct(i, ',') || src.Punct(i, ')') || src.Punct(i, ';'):
			return ts[i-1].End
		}
	}
	return ts[len(ts)-1].End
}

// IdentitySpan is where GENERATED ... AS IDENTITY (...) is in the text.
func (src *Text) IdentitySpan(x *pg.Constraint) (from, to int) {
	i := src.TokenAt(x.Location)
	ts := src.Tokens()
	if i < 0 {
		LostPlace()
	}
	for from = ts[i].Start; i < len(ts); i++ {
		if src.Word(i, "identity") {
			if src.Punct(i+1, '(') {
				i = src.Closing(i + 1)
			}
			return from, ts[i].End
		}
	}
	LostPlace()
	return 0, 0
}

// IntervalFields returns what stands after the string of an interval literal.
func (src *Text) IntervalFields() string {
	ts := sqlguard.Tokens(src.SQL)
	for i := len(ts) - 1; i >= 0; i-- {
		if ts[i].Kind == sqlguard.String {
			var out []string
			for _, t := range ts[i+1:] {
				if t.Kind == sqlguard.Ident {
					out = append(out, strings.ToUpper(src.SQL[t.Start:t.End]))
				}
			}
			if len(out) > 0 {
				return " " + strings.Join(out, " ")
			}
			break
		}
	}
	return ""
}

// AfterExplain returns the text of the statement that EXPLAIN explains.
func (src *Text) AfterExplain() string {
	ts, depth := src.Top()
	i := 1
	if i < len(ts) && ts[i].IsPunct(src.SQL, '(') {
		// (options), unless it is EXPLAIN (SELECT ...)
		if i+1 < len(ts) && !ts[i+1].Is(src.SQL, "select") && !ts[i+1].Is(src.SQL, "with") && !ts[i+1].Is(src.SQL, "values") && !ts[i+1].IsPunct(src.SQL, '(') {
			for i++; i < len(ts) && depth[i] > 0; i++ {
			}
			i++
		}
	} else {
		for i < len(ts) && (ts[i].Is(src.SQL, "analyze") || ts[i].Is(src.SQL, "analyse") || ts[i].Is(src.SQL, "verbose")) {
			i++
		}
	}
	return src.After(ts, i)
}

// ExecuteArgs returns the texts of EXECUTE name (a, b), and where each begins; a string,
// however it is written, as a plain one.
func (src *Text) ExecuteArgs(params []*pg.Node) (args []string, at []int) {
	args, at = src.argTexts(len(params))
	for i, p := range params {
		if c, ok := p.GetAConst().GetVal().(*pg.A_Const_Sval); ok && i < len(args) {
			args[i] = "'" + strings.ReplaceAll(c.Sval.GetSval(), "'", "''") + "'"
		}
	}
	return args, at
}

func (src *Text) argTexts(n int) (args []string, at []int) {
	if n == 0 {
		return nil, nil
	}
	ts, depth := src.Top()
	start := -1
	take := func(end int) {
		arg := src.SQL[start:end]
		at = append(at, src.Position(int32(start+len(arg)-len(strings.TrimLeft(arg, " \t\n\r\f\v")))))
		args = append(args, strings.TrimSpace(arg))
	}
	name := 1 // behind EXECUTE
	for name < len(ts) && !(depth[name-1] == 0 && ts[name-1].Is(src.SQL, "execute")) {
		name++
	}
	for i, t := range ts {
		if i <= name {
			continue
		}
		switch {
		case start < 0 && t.IsPunct(src.SQL, '('):
			start = t.End
		case start >= 0 && depth[i] == 1 && t.IsPunct(src.SQL, ','):
			take(t.Start)
			start = t.End
		case start >= 0 && depth[i] == 0 && t.IsPunct(src.SQL, ')'):
			take(t.Start)
			return args, at
		}
	}
	return args, at
}

// ClockSpan is the place of a literal in the text, with a cast to a text behind it ('now'::text): at is where the literal begins in it.
func (src *Text) ClockSpan(n *pg.Node) (at int32, from, to int) {
	inner := n.GetTypeCast()
	if inner != nil {
		n = inner.Arg
	}
	for n.GetTypeCast() != nil { // several casts to a text
		if n = n.GetTypeCast().Arg; n.GetAConst() != nil {
			bail.With(castTwice(n))
		}
	}
	at = n.GetAConst().GetLocation()
	i, ts := src.TokenAt(at), src.Tokens()
	if n.GetAConst() == nil || i < 0 {
		LostPlace()
	}
	from = ts[i].Start
	i = src.StringEnd(i)
	switch of := i + 3; { // 'now', :, :, text
	case inner == nil:
		return at, from, ts[i].End
	case src.TokenAt(inner.TypeName.Location) == of && (of+1 == len(ts) || src.Punct(of+1, ')') || src.Punct(of+1, ':') || src.Word(of+1, "as")):
		return at, from, ts[of].End
	}
	bail.With(castTwice(n))
	return at, from, to
}

func castTwice(literal *pg.Node) error {
	return sqlstate.Refusal("CLV-0630", "the text %s is cast to a text, and then to a time", sqltext.QuoteString(literal.GetAConst().GetSval().GetSval())).
		WithHint("Leave out the cast to a text.")
}
