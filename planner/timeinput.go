package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// PostgreSQL reads a literal while it analyses a statement. A special date/time input ('now', 'today', 'tomorrow',
// 'yesterday') is then the time of the transaction, and each shard has a transaction of its own. Only PostgreSQL knows
// which literals are read as times. A literal and a parameter without a type get their types by the same rules, so that
// a shard is asked about a text in which such literals are parameters. docs/design/parse-analysis.md.

// TimeInputs are the literals of a statement that may be special date/time inputs.
type TimeInputs struct {
	// Ask is a statement in which the literals are parameters: its analysis gives them types. It is empty if the statement
	// cannot be printed.
	Ask string
	// Params is the number of the statement's own parameters. Those of the literals follow.
	Params   int
	Literals []TimeLiteral
}

// TimeLiteral is one of them.
type TimeLiteral struct {
	From, To int    // its place in the text
	Text     string // what it says
	Param    int    // of TimeInputs.Ask
}

// TimeInputs finds the literals of a statement that may be special date/time inputs; nil if there are none.
func (p *Planner) TimeInputs(sql string) *TimeInputs {
	if !mayQuoteWord(sql) {
		return nil
	}
	tree, err := p.parse(sql)
	if err != nil || len(tree.Stmts) != 1 {
		return nil
	}
	n := queryOf(tree.Stmts[0].Stmt)
	if n == nil {
		return nil
	}
	t := &TimeInputs{}
	a := p.analyzer(sql, nil, nil)
	leader := sharedLiterals(n)
	params, paths := map[*pg.A_Const]int{}, map[*pg.A_Const]bool{}
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.ParamRef:
			t.Params = max(t.Params, int(v.Number))
		case *pg.JsonTablePathSpec:
			if c := v.String_.GetAConst(); c != nil {
				paths[c] = true // the grammar takes nothing but a string
			}
		}
		return true
	})
	last := t.Params
	param := func(c *pg.A_Const) *pg.Node {
		if c.GetSval() == nil || paths[c] || !MayBeTimeInput(c.GetSval().Sval) {
			return nil
		}
		i := a.tokenAt(c.Location)
		if i < 0 {
			return nil
		}
		at := c
		if l := leader[c]; l != nil {
			at = l
		}
		if params[at] == 0 {
			last++
			params[at] = last
		}
		to := a.tokens()[i].End
		if a.word(i+1, "uescape") {
			to = a.tokens()[i+2].End
		}
		t.Literals = append(t.Literals, TimeLiteral{From: a.tokens()[i].Start, To: to, Text: c.GetSval().Sval, Param: params[at]})
		return paramRef(params[at])
	}
	sqltree.Replace(n, func(n *pg.Node) *pg.Node {
		// timestamptz('now') is a cast, but timestamptz($1) is a call of one of several functions.
		if f := n.GetFuncCall(); f != nil && castCall(f) == wordsAlone {
			if p := param(f.Args[0].GetAConst()); p != nil {
				return sqltree.CastNode(p, sqltree.CallName(f), nil)
			}
		}
		if p := param(n.GetAConst()); p != nil {
			return p
		}
		return n
	})
	if len(t.Literals) == 0 {
		return nil
	}
	t.Ask, _ = sqltree.Restate(n)
	return t
}

// queryOf is the query, or the statement that changes rows, that another one runs; nil if there is none.
func queryOf(n *pg.Node) *pg.Node {
	switch v := n.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
		return n
	case *pg.Node_DeclareCursorStmt:
		return queryOf(v.DeclareCursorStmt.Query)
	case *pg.Node_ExplainStmt:
		return queryOf(v.ExplainStmt.Query)
	case *pg.Node_CopyStmt:
		return queryOf(v.CopyStmt.Query)
	case *pg.Node_CreateTableAsStmt:
		return queryOf(v.CreateTableAsStmt.Query)
	}
	return nil
}

// MayBeTimeInput reports whether a text has one of the words for itself. Around it other letters may stand (a zone), and
// the punctuation of arrays, ranges and rows, whose quotes and backslashes may also stand inside of the word.
func MayBeTimeInput(s string) bool {
	return hasWord(s) || strings.ContainsAny(s, `"\`) && hasWord(unquoted.Replace(s))
}

func hasWord(s string) bool {
	latin := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
	for i := 0; i < len(s); i++ {
		if !latin(s[i]) {
			continue
		}
		from := i
		for i < len(s) && latin(s[i]) {
			i++
		}
		if timeWord(s[from:i]) {
			return true
		}
	}
	return false
}

// sharedLiterals finds the literals for which the analysis has to see one parameter: those of expressions by which a
// query groups or sorts, and of the same expressions in its output, which PostgreSQL compares as wholes.
func sharedLiterals(n *pg.Node) map[*pg.A_Const]*pg.A_Const {
	leader := map[*pg.A_Const]*pg.A_Const{}
	sqltree.Inspect(n, func(m proto.Message) bool {
		s, ok := m.(*pg.SelectStmt)
		if !ok || len(s.GroupClause)+len(s.SortClause)+len(s.DistinctClause) == 0 {
			return true
		}
		keys := append(append(groupKeys(s.GroupClause), s.DistinctClause...), sortKeys(s.SortClause)...)
		for _, key := range keys {
			of := inputLiterals(key)
			if len(of) == 0 || key.GetAConst() != nil {
				continue
			}
			same := func(m proto.Message) bool {
				n, ok := m.(*pg.Node)
				if !ok || n == key || !sqltree.SameNode(n, key) {
					return true
				}
				for i, c := range inputLiterals(n) {
					if leader[c] == nil && leader[of[i]] == nil {
						leader[c] = of[i]
					}
				}
				return false
			}
			for _, list := range [][]*pg.Node{s.TargetList, s.GroupClause, s.DistinctClause, s.SortClause, {s.HavingClause}} {
				sqltree.InspectAll(list, same)
			}
		}
		return true
	})
	return leader
}

// inputLiterals are the literals below a node that may be special inputs.
func inputLiterals(n *pg.Node) (list []*pg.A_Const) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.A_Const); ok && c.GetSval() != nil && MayBeTimeInput(c.GetSval().Sval) {
			list = append(list, c)
		}
		return true
	})
	return list
}

// groupKeys are the expressions of a GROUP BY.
func groupKeys(list []*pg.Node) (keys []*pg.Node) {
	for _, n := range list {
		if g := n.GetGroupingSet(); g != nil {
			keys = append(keys, groupKeys(g.Content)...)
			continue
		}
		keys = append(keys, n)
	}
	return keys
}

// sortKeys are the expressions of an ORDER BY.
func sortKeys(list []*pg.Node) (keys []*pg.Node) {
	for _, n := range list {
		keys = append(keys, n.GetSortBy().GetNode())
	}
	return keys
}

// TimeInput is a text that is read as a value of a type of times, or of one that has times inside.
type TimeInput struct {
	Text string
	Type string // in SQL
}

// Inputs are the literals that have such types, each parameter's once, and the place of each in the list, from 1, by its
// number in Ask. types are those of the literals' parameters, "" for a type that reads no times.
func (t *TimeInputs) Inputs(types []string) (list []TimeInput, at map[int]int) {
	at = map[int]int{}
	for _, l := range t.Literals {
		i := l.Param - t.Params - 1
		if i < len(types) && types[i] != "" && at[l.Param] == 0 {
			list = append(list, TimeInput{Text: l.Text, Type: types[i]})
			at[l.Param] = len(list)
		}
	}
	return list, at
}

// With is the text with values in the places of the literals. One without a value, "", stays as it is.
func (t *TimeInputs) With(sql string, at map[int]int, values []string) string {
	var edits []sqltext.Edit
	for _, l := range t.Literals {
		if i := at[l.Param]; i > 0 && values[i-1] != "" {
			edits = append(edits, sqltext.Edit{From: l.From, To: l.To, Text: sqltext.QuoteString(values[i-1])})
		}
	}
	return sqltext.Splice(sql, edits)
}

func paramRef(n int) *pg.Node {
	return &pg.Node{Node: &pg.Node_ParamRef{ParamRef: &pg.ParamRef{Number: int32(n)}}}
}
