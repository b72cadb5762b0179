package planner

import (
	"regexp"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// timed is the cast of a literal to a type of times that reads it as the time of the transaction; nil if it is none.
func timed(c *pg.A_Const, oid uint32) *pg.Node {
	if datetime.TypeNames[oid] == "" {
		return nil
	}
	cast := sqltree.CastNode(&pg.Node{Node: &pg.Node_AConst{AConst: c}}, datetime.TypeNames[oid], nil)
	if word, _ := sqltree.ClockLiteral(cast.GetTypeCast()); word == "" {
		return nil // 'today' is no time of day
	}
	return cast
}

// inputWords read special date/time inputs ('now') as the types that a shard says, and have the casts of what is bound look
// for others. They may change the tree, of which one shard alone needs nothing then.
type inputWords struct {
	*semantics.Analysis

	p     *Planner
	texts *severalTexts
	asks  *plan.InputQuestion // about the statement's literals, nil if it has none to ask for
}

// A shard said of which type the literals are that may be special date/time inputs (plan.InputQuestion). A text stays. One of a
// type of times is the transaction's time. What is neither, or was not told, is refused: it may be an array, a range or a row of
// times, or be cast by a function.

// With returns a Planner that knows the types of the literals of statements.
func (p *Planner) With(types plan.InputTypes) *Planner {
	own := *p
	own.inputs = types
	return &own
}

// answered are the types that are known of the literals of a statement; ok is false if nobody has said them.
func (p *Planner) answered(q *plan.InputQuestion) (types []plan.InputType, ok bool) {
	if p.inputs.Of != q.Of {
		return nil, false
	}
	return p.inputs.Types, true
}

// readInputs makes casts of the literals that are special date/time inputs. It reports whether nobody has said the types yet; then
// literals that are to be asked for stay as they are.
func (in *inputWords) readInputs(n *pg.Node) (unanswered bool) {
	if !datetime.HasSpecialIn(n) {
		return false
	}
	r := &inputReader{inputWords: in}
	if in.asks != nil {
		var told bool
		r.types, told = in.p.answered(in.asks)
		r.unanswered = !told
	}
	r.message(n.ProtoReflect())
	return r.open
}

type inputReader struct {
	*inputWords
	types      []plan.InputType
	unanswered bool
	open       bool                 // a literal waits for its type
	given      map[*pg.A_Const]bool // to functions of the user's, which may cast them
}

// message looks at a message and all below it.
func (r *inputReader) message(m protoreflect.Message) {
	switch v := m.Interface().(type) {
	case *pg.JsonTablePathSpec: // the grammar takes nothing but a string
		return
	case *pg.TypeCast:
		r.cast(v)
		return
	case *pg.FuncCall:
		if isInput(castCallArg(v)) && timeCall(&r.Typer, v) == datetime.Alone {
			v.Args[0] = sqltree.CastNode(v.Args[0], sqltree.CallName(v), nil)
			r.cast(v.Args[0].GetTypeCast())
			return
		}
		if !builtin.Has(sqltree.CallName(v)) || !r.OnlyBuiltin(v) {
			for _, n := range v.Args {
				r.give(n)
			}
		}
	case *pg.ResTarget:
		if v.Name != "" || v.Val == nil {
			break
		}
		name := outputname.Of(v.Val)
		r.message(v.Val.ProtoReflect())
		if outputname.Of(v.Val) != name {
			v.Name = name
		}
		return
	case *pg.Node:
		if c := v.GetAConst(); c != nil {
			r.literal(v, c)
			return
		}
	case *pg.CollateClause: // a time has no collation
		if c := v.Arg.GetAConst(); isInput(c) {
			if oid, ok := r.typeOf(c); !ok || !r.unanswered && datetime.ReadingOf(oid) != datetime.AsText {
				r.refuse(c.GetSval().Sval)
			}
		}
	}
	sqltree.Below(m, r.message)
}

// TypeOf is the type of a literal, 0 if it may be one of several; ok is false if it was not asked for.
func (r *inputReader) typeOf(c *pg.A_Const) (oid uint32, ok bool) {
	if r.asks == nil {
		return 0, false
	}
	l, t := r.asks.At(c.Location, r.types)
	if l == nil || l.Again && datetime.ReadingOf(t.OID) != datetime.AsText {
		return 0, l != nil
	}
	return t.OID, true
}

// literal reads a literal that stands at a place.
func (r *inputReader) literal(at *pg.Node, c *pg.A_Const) {
	if !isInput(c) || slices.Contains(patterns, c.GetSval().Sval) {
		return
	}
	switch oid, ok := r.typeOf(c); {
	case ok && r.unanswered:
		r.open = true
	case ok && datetime.ReadingOf(oid) == datetime.AsText && !r.given[c]:
	default:
		cast := timed(c, oid)
		if cast == nil {
			r.refuse(c.GetSval().Sval)
		}
		at.Node = cast.Node
	}
}

// castCallArg is the constant that a call which is a cast has as its argument, nil for others.
func castCallArg(f *pg.FuncCall) *pg.A_Const {
	if datetime.CallReads(f) == datetime.None {
		return nil
	}
	return f.Args[0].GetAConst()
}

// give notes the literals among the values that an expression may give.
func (r *inputReader) give(n *pg.Node) {
	switch v := n.GetNode().(type) {
	case *pg.Node_AConst:
		if r.given == nil {
			r.given = map[*pg.A_Const]bool{}
		}
		r.given[v.AConst] = true
	case *pg.Node_NamedArgExpr:
		r.give(v.NamedArgExpr.Arg)
	case *pg.Node_CollateClause:
		r.give(v.CollateClause.Arg)
	case *pg.Node_AArrayExpr:
		r.giveAll(v.AArrayExpr.Elements)
	case *pg.Node_RowExpr:
		r.giveAll(v.RowExpr.Args)
	case *pg.Node_CoalesceExpr:
		r.giveAll(v.CoalesceExpr.Args)
	case *pg.Node_MinMaxExpr:
		r.giveAll(v.MinMaxExpr.Args)
	case *pg.Node_CaseExpr:
		r.give(v.CaseExpr.Defresult)
		for _, w := range v.CaseExpr.Args {
			r.give(w.GetCaseWhen().GetResult())
		}
	case *pg.Node_AExpr:
		if v.AExpr.Kind == pg.A_Expr_Kind_AEXPR_NULLIF {
			r.give(v.AExpr.Lexpr)
		}
	}
}

func (r *inputReader) giveAll(list []*pg.Node) {
	for _, n := range list {
		r.give(n)
	}
}

// cast looks at a cast: of a text to a type of times it is known as the transaction's time.
func (r *inputReader) cast(c *pg.TypeCast) {
	inner := c.Arg
	for inner.GetTypeCast() != nil {
		inner = inner.GetTypeCast().Arg
	}
	s := inner.GetAConst().GetSval()
	if s == nil {
		r.message(c.Arg.ProtoReflect())
		return
	}
	if word, _ := sqltree.ClockLiteral(c); datetime.ReadingOfType(c.TypeName, r.Typer.Hidden()) != datetime.AsText && word == "" && datetime.HasSpecial(s.Sval) {
		r.refuse(s.Sval)
	}
}

func (r *inputReader) refuse(s string) {
	fail(sqlstate.Refusal("CLV-0626", "the text %s has a word for the time, which each shard could read by its own clock", sqltext.QuoteString(s)).
		WithHint("Write now() or current_date; if it is no time, compare it with a text: column::text = %s.", sqltext.QuoteString(s)))
}

// finishInputs says what is to be asked about the statement, with what the router makes in it.
func (a *analyzer) finishInputs() {
	q := a.asks
	if q == nil {
		return
	}
	if _, told := a.p.answered(q); told {
		return
	}
	f := a.madeValues.fill
	switch {
	case len(q.Base) > 0:
	case len(a.judged) > 0:
		q.Base = slices.Clone(a.judged)
	case f != nil:
		q.Base = slices.Clone(f.edits)
		q.Params = max(q.Params, f.base+len(f.values))
		for i := range q.Base {
			_, _, q.Base[i].Text = f.marked(q.Base[i].Text, func(n int) int { return n })
		}
	}
	a.Statement.Asks = q
}

// ReadAlike reports whether the strings in a text certainly mean the same under every DateStyle, IntervalStyle and TimeZone: none of
// them can be a date, a time or an interval, or have one inside.
func ReadAlike(text string) bool {
	res, err := pg.Scan(text)
	if err != nil {
		return false
	}
	for _, t := range res.Tokens {
		switch t.Token {
		case pg.Token_SCONST:
			if !timeless(text[t.Start:t.End]) {
				return false
			}
		case pg.Token_USCONST:
			return false
		}
	}
	return true
}

var (
	uuidString = regexp.MustCompile(`^'[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}'$`)
	fewDigits  = regexp.MustCompile(`^'[0-9]{1,3}'$`)
)

// timeless reports whether a string, with its quotes, can be no date, time or interval, alone or inside of an array, a range or a row. Those
// have digits or are a word. PostgreSQL skips most other signs where it reads them, so that these tell nothing.
func timeless(s string) bool {
	switch {
	case strings.Contains(s, `\`):
		return false
	case !strings.ContainsAny(s, "0123456789"):
		word := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r < 'a' || r > 'z' })
		return !slices.ContainsFunc(word, func(w string) bool { return datetime.IsWord(w) || w == "allballs" })
	}
	return fewDigits.MatchString(s) || uuidString.MatchString(s)
}
