package planner

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// give lets shards work out a subquery that aggregates, where a cheaper plan than
// bringing its tables together is known for it: partial groups, or all of it shard by
// shard. The subquery then reads that plan's relations. In FROM and WITH it can refer
// to nothing around it; inside an expression that has to be seen, and that it cannot
// fail, since it may never be run. false: it is read like any other.
func (g *gatherer) give(s *pg.SelectStmt, sc *gatherScope) bool {
	was := g.selects[s]
	r := g.plans.second
	if g.whole || was == nil || g.depth > 0 && !g.alone(was) || r == nil || r.queries[was] == nil || !r.queries[was].aggregates || g.refersOut(s, sc) {
		return false
	}
	p := g.planOf(was)
	if p == nil {
		return false
	}
	switch p.Op {
	case Gather:
		tree, err := g.plans.p.parse(p.Text)
		if err != nil || len(tree.Stmts) != 1 || tree.Stmts[0].Stmt.GetSelectStmt() == nil {
			return false
		}
		proto.Reset(s)
		proto.Merge(s, tree.Stmts[0].Stmt.GetSelectStmt())
		g.given = append(g.given, p.Relations...)
	case Scatter:
		c := &p.Combine
		names := outputname.OfQuery(was)
		if len(c.Order) > 0 || c.Hidden > 0 || c.Unique > 0 || c.Limit != nil || c.Offset != nil || names == nil || len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
			return false
		}
		name := g.plans.second.fresh()
		all := sqltree.EmptySelect()
		all.FromClause = []*pg.Node{sqltree.TableNode(name, "")}
		all.TargetList = []*pg.Node{sqltree.TargetNode(&pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: &pg.ColumnRef{Fields: []*pg.Node{{Node: &pg.Node_AStar{AStar: &pg.A_Star{}}}}}}}, "")}
		proto.Reset(s)
		proto.Merge(s, all)
		g.given = append(g.given, Relation{Name: name, Text: p.Text, Target: p.Target, own: p.own})
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
				u := g.plans.second.byRef[v]
				if u == nil || u.rel.table == nil || len(v.Alias.GetColnames()) > 0 {
					ok = false
					return
				}
				for _, c := range columnNames(u.rel.table) {
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
			ok = ok && g.plans.isAggregate(v)
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
func (g *gatherer) planOf(s *pg.SelectStmt) (p *Plan) {
	r := g.plans.second
	root, names := r.root, r.names
	r.root = r.queries[s]
	defer func() {
		r.root = root
		if v := recover(); v != nil {
			if _, refused := v.(bailout); !refused {
				panic(v)
			}
			p = nil
		}
		if p == nil {
			r.names = names
		}
	}()
	for _, plan := range []func(*pg.Node) (*Plan, error){g.plans.planScatter, g.plans.planAggregate} {
		if p, err := plan(sqltree.SelectNode(s)); p != nil && err == nil {
			return p
		}
	}
	return nil
}
