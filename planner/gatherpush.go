package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// push gives the tables below an element of FROM the conditions that hold for
// each of their rows that can matter. Of an outer join's nullable side only its
// own condition says something: a row that fails it is joined to nothing.
func (g *gatherer) push(n *pg.Node, conds []*pg.Node, lv *gatherLevel) {
	switch v := n.GetNode().(type) {
	case *pg.Node_RangeVar:
		o := lv.at[v.RangeVar]
		if o == nil {
			return
		}
		for _, c := range conds {
			g.joined(o, c, lv)
			if own := g.ownCondition(o, c, lv); own != nil {
				o.conds = append(o.conds, own)
			}
		}
	case *pg.Node_JoinExpr:
		j := v.JoinExpr
		if len(j.Alias.GetColnames()) > 0 {
			conds = nil
		}
		quals := sqltree.SplitAnd(j.Quals, nil)
		both := append(append([]*pg.Node(nil), conds...), quals...)
		switch j.Jointype {
		case pg.JoinType_JOIN_INNER:
			g.push(j.Larg, both, lv)
			g.push(j.Rarg, both, lv)
		case pg.JoinType_JOIN_LEFT:
			g.push(j.Larg, conds, lv)
			g.push(j.Rarg, quals, lv)
		case pg.JoinType_JOIN_RIGHT:
			g.push(j.Larg, quals, lv)
			g.push(j.Rarg, conds, lv)
		}
	}
}

// shardDependent are stable functions whose values may differ between two
// sessions that have the same settings.
func shardDependent(f *pg.FuncCall) bool {
	names := sqltree.Strings(f.Funcname)
	name := names[len(names)-1]
	switch name {
	case "now", "transaction_timestamp", "statement_timestamp", "current_setting", "current_schema", "current_schemas", "version",
		"getdatabaseencoding", "format_type", "col_description", "obj_description", "shobj_description", "row_security_active":
		return true
	case "age":
		return len(f.Args) == 1
	}
	for _, prefix := range []string{"pg_", "inet_", "txid_", "has_", "to_reg", "current_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// ownCondition returns a condition as one on an occurrence's table alone, nil if
// it is not certain to be that.
func (g *gatherer) ownCondition(o *occurrence, cond *pg.Node, lv *gatherLevel) *pg.Node {
	if len(o.v.Alias.GetColnames()) > 0 {
		return nil
	}
	out := sqltree.Clone(cond)
	ok := true
	sqltree.EachMessage(out.ProtoReflect(), func(m protoreflect.Message) {
		switch v := m.Interface().(type) {
		case *pg.ColumnRef:
			name, mine := lv.resolve(o, v)
			if !mine {
				ok = false
				return
			}
			v.Fields = []*pg.Node{sqltree.StringNode(relationAlias), sqltree.StringNode(name)}
		case *pg.FuncCall:
			names := sqltree.Strings(v.Funcname)
			kind := builtin.Kind(names[len(names)-1])
			if g.depth > 0 || kind == "" || strings.HasPrefix(kind, "v") || strings.Contains(kind, "a") || strings.Contains(kind, "w") || v.Over != nil || shardDependent(v) {
				ok = false
			}
		case *pg.A_Expr:
			switch sqltree.Operator(v) {
			case "/", "%":
				// A subquery may never be run, or never see the row.
				ok = ok && g.depth == 0
			}
		case *pg.TypeCast:
			ok = ok && (g.depth == 0 || v.Arg.GetColumnRef() == nil)
		case *pg.A_Const:
			switch strings.ToLower(strings.TrimSpace(v.GetSval().GetSval())) {
			case "now", "today", "tomorrow", "yesterday":
				ok = false // it may become a date
			}
		case *pg.SubLink, *pg.SQLValueFunction, *pg.GroupingFunc, *pg.CurrentOfExpr, *pg.SetToDefault, *pg.SelectStmt:
			ok = false
		}
	})
	if !ok {
		return nil
	}
	return out
}

// resolve reports whether a reference is certainly a column of o.
func (lv *gatherLevel) resolve(o *occurrence, c *pg.ColumnRef) (name string, ok bool) {
	names := sqltree.FieldNames(c)
	switch len(names) {
	case 1:
		return names[0], !lv.open && lv.count[names[0]] == 1 && keyColumnNamed(o.table, names[0])
	case 2, 3:
		own := o.v.Relname
		if o.v.Alias != nil {
			own = o.v.Alias.Aliasname
		}
		rel, col := names[len(names)-2], names[len(names)-1]
		if rel != own || len(names) == 3 && (!o.lone || names[0] != o.table.Schema) || !keyColumnNamed(o.table, col) {
			return "", false
		}
		// Two items of one name would be an error or two schemas' tables.
		n := 0
		for _, other := range lv.occ {
			for _, called := range other.names {
				if called == rel {
					n++
				}
			}
		}
		return col, n == 1
	}
	return "", false
}

// joined notes columns on which an index pays: those that a subquery compares
// with columns of the query around it.
func (g *gatherer) joined(o *occurrence, cond *pg.Node, lv *gatherLevel) {
	e := cond.GetAExpr()
	if g.depth == 0 || e == nil || e.Kind != pg.A_Expr_Kind_AEXPR_OP || sqltree.Operator(e) != "=" {
		return
	}
	for _, side := range [2][2]*pg.Node{{e.Lexpr, e.Rexpr}, {e.Rexpr, e.Lexpr}} {
		c, other := side[0].GetColumnRef(), side[1].GetColumnRef()
		if c == nil || other == nil {
			continue
		}
		if name, mine := lv.resolve(o, c); mine {
			o.index = append(o.index, []string{name})
		}
	}
}
