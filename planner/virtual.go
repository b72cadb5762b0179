package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// maySpecial reports whether selectSpecial may know a SELECT: most need no look of it.
func maySpecial(s *pg.SelectStmt) bool {
	return len(s.FromClause) == 0 || len(s.FromClause) == 1 && (s.FromClause[0].GetRangeFunction() != nil || s.FromClause[0].GetRangeVar().GetRelname() == "pg_settings")
}

// selectSpecial handles the SELECTs that are the router's business: calls of
// set_config() alone, and a call of one function of the schema cleave.
func (ss *sessionStatement) selectSpecial(s *pg.SelectStmt) bool {
	if s.Op != pg.SetOperation_SETOP_NONE || len(s.ValuesLists) > 0 || s.WithClause != nil || s.IntoClause != nil {
		return false
	}
	bare := s.WhereClause == nil && s.GroupClause == nil && s.HavingClause == nil && s.SortClause == nil &&
		s.LimitCount == nil && s.LimitOffset == nil && s.DistinctClause == nil && s.WindowClause == nil
	if bare && len(s.TargetList) == 1 && len(s.FromClause) == 0 {
		t := s.TargetList[0].GetResTarget()
		if f := t.GetVal().GetFuncCall(); f != nil {
			if names := sqltree.Strings(f.Funcname); len(names) == 2 && names[0] == VirtualSchema && !fillOwn[names[1]] {
				ss.call(f, names[1], t.Name)
				return true
			}
		}
	}
	if bare && len(s.FromClause) == 0 {
		return len(s.LockingClause) == 0 && ss.onlySets(s)
	}
	if len(s.FromClause) == 1 && len(s.TargetList) == 1 && s.WhereClause != nil && ss.dumpSetting(s) {
		return true
	}
	if bare && len(s.FromClause) == 1 && len(s.TargetList) == 1 {
		r := s.FromClause[0].GetRangeFunction()
		if r == nil || len(r.Functions) != 1 || r.Ordinality || r.Coldeflist != nil {
			return false
		}
		items := r.Functions[0].GetList().GetItems()
		c := s.TargetList[0].GetResTarget().GetVal().GetColumnRef()
		if len(items) == 0 || c == nil || len(c.Fields) != 1 || c.Fields[0].GetAStar() == nil {
			return false
		}
		if f := items[0].GetFuncCall(); f != nil {
			if names := sqltree.Strings(f.Funcname); len(names) == 2 && names[0] == VirtualSchema && !fillOwn[names[1]] {
				column := r.Alias.GetAliasname()
				if cols := sqltree.Strings(r.Alias.GetColnames()); len(cols) > 0 {
					column = cols[0]
				}
				ss.call(f, names[1], column)
				return true
			}
		}
	}
	return false
}

func (ss *sessionStatement) call(f *pg.FuncCall, name, column string) {
	if f.AggStar || f.AggDistinct || f.Over != nil || f.FuncVariadic || f.AggFilter != nil || f.AggOrder != nil {
		fail(sqlstate.Refusal("CLV-1249", "cleave.%s() takes plain arguments only", name))
	}
	if column == "" {
		column = name
	}
	c := &CallExpr{Function: name, Column: column}
	for _, n := range f.Args {
		c.Args = append(c.Args, ss.callArg(n, name))
	}
	st := ss.st
	st.Kind, st.ReturnsRows, st.Call = Call, true, c
	st.Shape = "SELECT cleave." + name + "(...)"
}

func (ss *sessionStatement) callArg(n *pg.Node, fn string) CallArg {
	switch v := n.GetNode().(type) {
	case *pg.Node_NamedArgExpr:
		arg := ss.callArg(v.NamedArgExpr.Arg, fn)
		arg.Name = v.NamedArgExpr.Name
		return arg
	case *pg.Node_ParamRef:
		p := int(v.ParamRef.Number)
		ss.param(p).total++
		return CallArg{Param: p}
	case *pg.Node_AConst:
		if v.AConst.Isnull {
			return CallArg{Null: true}
		}
		if v.AConst.GetBsval() == nil {
			return CallArg{Text: sqltree.DefText(n)}
		}
	case *pg.Node_TypeCast:
		return ss.callArg(v.TypeCast.Arg, fn)
	case *pg.Node_AExpr:
		if v.AExpr.Lexpr == nil && sqltree.Operator(v.AExpr) == "-" {
			arg := ss.callArg(v.AExpr.Rexpr, fn)
			if arg.Param == 0 && !arg.Null && arg.Array == nil && arg.Text != "" && arg.Text[0] >= '0' && arg.Text[0] <= '9' {
				arg.Text = "-" + arg.Text
				return arg
			}
		}
	case *pg.Node_AArrayExpr:
		arg := CallArg{Array: []CallArg{}}
		for _, e := range v.AArrayExpr.Elements {
			arg.Array = append(arg.Array, ss.callArg(e, fn))
		}
		return arg
	}
	fail(sqlstate.Refusal("CLV-1250", "cleave.%s() takes literals, parameters and ARRAY[...] of them only", fn).
		WithHint("compute the value first"))
	return CallArg{}
}
