package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
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

// give lets shards work out a subquery that aggregates, where a cheaper plan than
// bringing its tables together is known for it: partial groups, or all of it shard by
// shard. The subquery then reads that plan's relations. In FROM and WITH it can refer
// to nothing around it; inside an expression that has to be seen, and that it cannot
// fail, since it may never be run. false: it is read like any other.
func (g *gatherer) give(s *pg.SelectStmt, sc *gatherScope) bool {
	was := g.selects[s]
	r := g.plans.bound
	if g.whole || was == nil || g.depth > 0 && !g.alone(was) || r.QueryOf(was) == nil || !r.QueryOf(was).Aggregates || g.refersOut(s, sc) {
		return false
	}
	p := g.planOf(was)
	if p == nil {
		return false
	}
	switch p.Op {
	case plan.Gather:
		tree, err := g.plans.p.parse(p.Text)
		if err != nil || len(tree.Stmts) != 1 || tree.Stmts[0].Stmt.GetSelectStmt() == nil {
			return false
		}
		proto.Reset(s)
		proto.Merge(s, tree.Stmts[0].Stmt.GetSelectStmt())
		g.given = append(g.given, p.Relations...)
	case plan.Scatter:
		c := &p.Combine
		names := outputname.OfQuery(was)
		if len(c.Order) > 0 || c.Hidden > 0 || c.Unique > 0 || c.Limit != nil || c.Offset != nil || names == nil || len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
			return false
		}
		name := g.plans.texts.fresh()
		all := sqltree.EmptySelect()
		all.FromClause = []*pg.Node{sqltree.TableNode(name, "")}
		all.TargetList = []*pg.Node{sqltree.TargetNode(&pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: &pg.ColumnRef{Fields: []*pg.Node{{Node: &pg.Node_AStar{AStar: &pg.A_Star{}}}}}}}, "")}
		proto.Reset(s)
		proto.Merge(s, all)
		g.given = append(g.given, plan.Relation{Name: name, Text: p.Text, Target: p.Target, Ownership: p.Ownership})
	default:
		return false
	}
	return true
}

// refersOut reports whether a subquery names a WITH query of those around it.
func (g *gatherer) refersOut(s *pg.SelectStmt, sc *gatherScope) bool {
	out := false
	sqltree.EachMessage(s.ProtoReflect(), func(m protoreflect.Message) {
		if v, ok := m.Interface().(*pg.RangeVar); ok && v.Schemaname == "" {
			_, named := sc.find(v.Relname)
			out = out || named
		}
	})
	return out
}

// alone reports whether a subquery certainly refers to its own tables only, and
// does nothing that could fail.
func (g *gatherer) alone(s *pg.SelectStmt) bool {
	if s.WithClause != nil || s.Op != pg.SetOperation_SETOP_NONE || len(s.ValuesLists) > 0 {
		return false
	}
	columns, names, ok := map[string]bool{}, map[string]bool{}, true
	for _, n := range s.FromClause {
		sqltree.EachMessage(n.ProtoReflect(), func(m protoreflect.Message) {
			switch v := m.Interface().(type) {
			case *pg.RangeVar:
				u := g.plans.bound.UseAt(v)
				if u == nil || u.Relation.Table == nil || len(v.Alias.GetColnames()) > 0 {
					ok = false
					return
				}
				for _, c := range semantics.ColumnNames(u.Relation.Table) {
					columns[c] = true
				}
				if v.Alias != nil {
					names[v.Alias.Aliasname] = true
				} else {
					names[v.Relname] = true
				}
			case *pg.RangeSubselect, *pg.RangeFunction, *pg.RangeTableFunc, *pg.JsonTable, *pg.RangeTableSample:
				ok = false
			case *pg.JoinExpr:
				ok = ok && v.Alias == nil && v.JoinUsingAlias == nil
			}
		})
	}
	for _, t := range s.TargetList {
		if name := t.GetResTarget().GetName(); name != "" {
			columns[name] = true
		}
	}
	first := true
	sqltree.EachMessage(s.ProtoReflect(), func(m protoreflect.Message) {
		switch v := m.Interface().(type) {
		case *pg.SelectStmt:
			ok, first = ok && first, false
		case *pg.ColumnRef:
			switch f := sqltree.FieldNames(v); len(f) {
			case 1:
				ok = ok && columns[f[0]]
			case 2:
				ok = ok && names[f[0]]
			default:
				ok = false
			}
		case *pg.FuncCall:
			ok = ok && g.plans.IsAggregate(v)
		case *pg.TypeCast:
			ok = ok && v.Arg.GetColumnRef() == nil
		case *pg.A_Expr:
			switch sqltree.Operator(v) {
			case "/", "%", "":
				ok = false
			}
		}
	})
	return ok
}

// planOf plans a subquery as if it were a statement, nil if no cheaper plan fits.
func (g *gatherer) planOf(s *pg.SelectStmt) (p *plan.Plan) {
	r := g.plans.bound
	root, names := r.Root, g.plans.texts.names
	r.Root = r.QueryOf(s)
	defer func() {
		r.Root = root
		if v := recover(); v != nil {
			if _, refused := v.(bailout); !refused {
				panic(v)
			}
			p = nil
		}
		if p == nil {
			g.plans.texts.names = names
		}
	}()
	for _, plan := range []func(*pg.Node) (*plan.Plan, error){g.plans.planScatter, g.plans.planAggregate} {
		if p, err := plan(sqltree.SelectNode(s)); p != nil && err == nil {
			return p
		}
	}
	return nil
}
