package planner

import (
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// PostgreSQL reads a literal while it analyses a statement: as a value of the type that the place of the literal has. A
// parameter without a type gets its type by the same rules (parse_param.c). So a shard is asked about the statement's text
// in which the literals that may be special date/time inputs are parameters. docs/design/timeinput.md.

// mayHoldWord reports whether a text may have a literal with a special date/time word.
func mayHoldWord(sql string) bool { return mayQuoteWord(sql) || strings.Contains(sql, `\u00`) }

// asksOf makes the question about a statement; nil if it has no literal to ask for.
func asksOf(src *sourcetext.Text, n *pg.Node) *plan.InputQuestion {
	q := &plan.InputQuestion{Of: src.SQL}
	n = askedQuery(q, n, src)
	if n == nil {
		return nil
	}
	known, again := notAsked(n)
	leader := sharedLiterals(n)
	params := map[*pg.A_Const]int{}
	var list []*pg.A_Const
	sqltree.Inspect(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.A_Const); ok && isInput(c) && !known[c] {
			list = append(list, c)
		}
		return true
	})
	slices.SortFunc(list, func(x, y *pg.A_Const) int { return int(x.Location - y.Location) })
	ts := src.Tokens()
	for i, c := range list {
		if i > 0 && c.Location == list[i-1].Location {
			params[c] = params[list[i-1]] // SET (a, b) = (...) names its source twice
			continue
		}
		at := src.TokenAt(c.Location)
		if at < 0 || !strings.ContainsRune("'eEuUnN$", rune(src.SQL[ts[at].Start])) {
			continue
		}
		of := c
		for leader[of] != nil {
			of = leader[of]
		}
		if params[of] == 0 {
			q.Literals++
			params[of] = q.Literals
		}
		q.Asked = append(q.Asked, plan.InputLiteral{Location: c.Location, Text: c.GetSval().Sval, From: ts[at].Start, To: ts[src.StringEnd(at)].End, Param: params[of], Again: again[c]})
	}
	if len(q.Asked) == 0 {
		return nil
	}
	for _, t := range ts {
		if t.Kind == sqlguard.Param {
			if n, err := strconv.Atoi(src.SQL[t.Start+1 : t.End]); err == nil {
				q.Params = max(q.Params, n)
			}
		}
	}
	return q
}

// askedQuery is what of a statement is asked about; nil if it has no query. COPY is not described: its query is, and of COPY FROM
// its condition, as that of a query of its table.
func askedQuery(q *plan.InputQuestion, n *pg.Node, src *sourcetext.Text) *pg.Node {
	switch v := n.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt, *pg.Node_DeclareCursorStmt, *pg.Node_ExplainStmt:
		return n
	case *pg.Node_CopyStmt:
		ts, depth := src.Top()
		from, to := -1, len(src.SQL)
		for i, t := range ts {
			switch {
			case v.CopyStmt.Query != nil && from < 0 && t.IsPunct(src.SQL, '('):
				from = t.End
			case v.CopyStmt.Query != nil && from >= 0 && to == len(src.SQL) && depth[i] == 0 && t.IsPunct(src.SQL, ')'):
				to = t.Start
			case v.CopyStmt.WhereClause != nil && depth[i] == 0 && t.Is(src.SQL, "where"):
				from = t.Start
			}
		}
		if from < 0 {
			return nil
		}
		before := ""
		if v.CopyStmt.Query == nil {
			before = "SELECT FROM " + sqltext.QuoteName(v.CopyStmt.Relation.Schemaname, v.CopyStmt.Relation.Relname) + " "
		}
		q.Base = []sqltext.Edit{{From: 0, To: from, Text: before}, {From: to, To: len(src.SQL)}}
		return n
	}
	return nil
}

// isInput reports whether a constant is a literal that may be a special date/time input.
func isInput(c *pg.A_Const) bool { return c.GetSval() != nil && datetime.HasSpecial(c.GetSval().Sval) }

// notAsked are the constants that have their type by a cast, or that the grammar takes as nothing but strings; again are those that
// PostgreSQL reads once for each value beside them: 'now' IN (a, b), 'now' BETWEEN a AND b.
func notAsked(n *pg.Node) (known, again map[*pg.A_Const]bool) {
	known, again = map[*pg.A_Const]bool{}, map[*pg.A_Const]bool{}
	var repeated func(n *pg.Node)
	repeated = func(n *pg.Node) {
		switch v := n.GetNode().(type) {
		case *pg.Node_AConst:
			again[v.AConst] = true
		case *pg.Node_CollateClause:
			repeated(v.CollateClause.Arg)
		case *pg.Node_RowExpr:
			for _, n := range v.RowExpr.Args {
				repeated(n)
			}
		}
	}
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.TypeCast:
			if c := v.Arg.GetAConst(); c != nil {
				known[c] = true
			}
		case *pg.JsonTablePathSpec:
			if c := v.String_.GetAConst(); c != nil {
				known[c] = true
			}
		case *pg.FuncCall:
			// timestamptz('now') is a cast, but timestamptz($1) is a call of one of several functions.
			if datetime.CallReads(v) != datetime.None && v.Args[0].GetAConst() != nil {
				known[v.Args[0].GetAConst()] = true
			}
		case *pg.A_Expr:
			switch v.Kind {
			case pg.A_Expr_Kind_AEXPR_IN, pg.A_Expr_Kind_AEXPR_BETWEEN, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN, pg.A_Expr_Kind_AEXPR_BETWEEN_SYM, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM:
				repeated(v.Lexpr)
			}
		}
		return true
	})
	return known, again
}

// sharedLiterals finds the literals for which the analysis has to see one parameter: those of expressions by which a query
// groups, sorts or tells rows apart, and of the same expressions in its output, which PostgreSQL compares as wholes; and those
// of one column of VALUES, which has one type.
func sharedLiterals(n *pg.Node) map[*pg.A_Const]*pg.A_Const {
	leader := map[*pg.A_Const]*pg.A_Const{}
	sqltree.Inspect(n, func(m proto.Message) bool {
		s, ok := m.(*pg.SelectStmt)
		if !ok {
			return true
		}
		shareColumns(s, leader)
		keys := append(groupKeys(s.GroupClause), s.DistinctClause...)
		for _, n := range s.SortClause {
			keys = append(keys, n.GetSortBy().GetNode())
		}
		for _, key := range keys {
			of := levelInputs(key)
			if len(of) == 0 || key.GetAConst() != nil {
				continue
			}
			for _, list := range [][]*pg.Node{s.TargetList, s.GroupClause, s.DistinctClause, s.SortClause, {s.HavingClause}} {
				sqltree.InspectAll(list, func(m proto.Message) bool {
					if n, ok := m.(*pg.Node); ok && n != key && sqltree.SameNode(n, key) {
						for i, c := range levelInputs(n) {
							if leader[c] == nil && leader[of[i]] == nil && c != of[i] {
								leader[c] = of[i]
							}
						}
						return false
					}
					_, below := m.(*pg.SelectStmt)
					return !below
				})
			}
		}
		return true
	})
	return leader
}

// shareColumns is sharedLiterals of the rows of VALUES.
func shareColumns(s *pg.SelectStmt, leader map[*pg.A_Const]*pg.A_Const) {
	var first []*pg.A_Const
	for _, row := range s.ValuesLists {
		for i, n := range row.GetList().GetItems() {
			c := n.GetAConst()
			if c == nil || !isInput(c) {
				continue
			}
			for len(first) <= i {
				first = append(first, nil)
			}
			if first[i] == nil {
				first[i] = c
			} else {
				leader[c] = first[i]
			}
		}
	}
}

// levelInputs are the literals of an expression that may be special inputs; none if it has a subquery, whose names mean something else.
func levelInputs(n *pg.Node) (list []*pg.A_Const) {
	below := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.SelectStmt:
			below = true
		case *pg.A_Const:
			if isInput(v) {
				list = append(list, v)
			}
		}
		return !below
	})
	if below {
		return nil
	}
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
