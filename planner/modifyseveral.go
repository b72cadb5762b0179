package planner

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// planModify plans UPDATE, DELETE and MERGE over several shards.
func (wp *writePlans) planModify(n *pg.Node) (*plan.Plan, error) {
	var rv *pg.RangeVar
	var with *pg.WithClause
	var returning []*pg.Node
	switch v := n.GetNode().(type) {
	case *pg.Node_UpdateStmt:
		rv, with, returning = v.UpdateStmt.Relation, v.UpdateStmt.WithClause, v.UpdateStmt.ReturningList
	case *pg.Node_DeleteStmt:
		rv, with, returning = v.DeleteStmt.Relation, v.DeleteStmt.WithClause, v.DeleteStmt.ReturningList
	case *pg.Node_MergeStmt:
		rv, with, returning = v.MergeStmt.Relation, v.MergeStmt.WithClause, v.MergeStmt.ReturningList
	}
	u := wp.bound.UseAt(rv)
	if u == nil || u.Relation.Table == nil {
		return nil, nil
	}
	t := u.Relation.Table
	if t.Kind != shardmap.Sharded {
		return wp.planWhole(n, rv, t)
	}
	wp.Types = wp.KeyTypes(t.Keyspace)
	m := &plan.ModifyPlan{Table: t, Returning: len(returning) > 0}
	result := &plan.Plan{Op: plan.Modify, Modify: m, Target: wp.targetOf(u), Apart: wp.apart(with, n, t), Why: "rows of several shards change"}
	if up := n.GetUpdateStmt(); result.Apart != nil && (up == nil && n.GetDeleteStmt() == nil || up != nil && setsKey(up.TargetList, t)) {
		onlyReads(with)
	}
	if up := n.GetUpdateStmt(); up != nil {
		clockAssignments(t, up.TargetList)
	}
	if v := n.GetMergeStmt(); v != nil {
		result.Target = plan.Target{Keyspace: t.Keyspace}
		wp.planMerge(m, n, v, u)
		return result, nil
	}
	x := &modifying{writePlans: wp, m: m, target: u, local: func(o *semantics.Use) bool { return o.Everywhere() || linked(o, u) }}
	x.edit(n)
	if up := n.GetUpdateStmt(); up != nil && setsKey(up.TargetList, t) {
		wp.planMove(m, up, u)
		return result, nil
	}
	m.Write = wp.ownTemplate(n, u)
	return result, nil
}

// planWhole plans a write to a table that is in one place, or in every place, with
// rows of sharded tables.
func (wp *writePlans) planWhole(n *pg.Node, rv *pg.RangeVar, t *shardmap.Table) (*plan.Plan, error) {
	u := wp.bound.UseAt(rv)
	m := &plan.ModifyPlan{Table: t}
	result := &plan.Plan{Op: plan.Modify, Modify: m, Target: plan.Target{Where: plan.Default}, Why: "rows of other shards are read first"}
	x := &modifying{writePlans: wp, m: m, target: u, local: func(o *semantics.Use) bool { return !o.Sharded() }}
	if up := n.GetUpdateStmt(); up != nil && t.Kind == shardmap.Reference {
		clockAssignments(t, up.TargetList)
	}
	var with *pg.WithClause
	var returning *[]*pg.Node
	ins := n.GetInsertStmt()
	switch v := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		with, returning = v.InsertStmt.WithClause, &v.InsertStmt.ReturningList
	case *pg.Node_UpdateStmt:
		with, returning = v.UpdateStmt.WithClause, &v.UpdateStmt.ReturningList
	case *pg.Node_DeleteStmt:
		with, returning = v.DeleteStmt.WithClause, &v.DeleteStmt.ReturningList
	case *pg.Node_MergeStmt:
		with, returning = v.MergeStmt.WithClause, &v.MergeStmt.ReturningList
	}
	m.Returning = len(*returning) > 0
	if t.Kind == shardmap.Reference {
		if n.GetMergeStmt() != nil {
			fail(sqlstate.Refusal("CLV-0333", "MERGE into the reference table %s is not supported", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Use INSERT ... ON CONFLICT, UPDATE and DELETE."))
		}
		result.Target, result.Why = plan.Target{Where: plan.Every}, "every shard has the table's rows"
		x.local = (*semantics.Use).Everywhere
	}
	result.Apart = wp.apart(with, n, t)
	if ins != nil && t.Kind == shardmap.Reference {
		x.make(ins, t)
	}
	if len(semantics.GeneratedColumns(t)) > 0 && ins != nil {
		ins.Override = pg.OverridingKind_OVERRIDING_NOT_SET
	}
	if ins != nil && ins.WithClause == nil && m.Made == nil {
		// The query of an INSERT stands for itself: it is read as a whole, or runs
		// where the table is.
		if sel := ins.SelectStmt.GetSelectStmt(); sel != nil && !semantics.PlainValues(sel) && x.once(sel) {
			ins.SelectStmt = x.read(sel)
		}
	}
	x.edit(n)
	if t.Kind == shardmap.Reference {
		wp.planReference(m, n, returning, t)
	}
	m.Write = plan.NewTemplate(wp.written(n))
	return result, nil
}

// make has the rows of an INSERT ... SELECT read first, if the router makes values for them.
func (x *modifying) make(s *pg.InsertStmt, t *shardmap.Table) {
	sel := s.SelectStmt.GetSelectStmt()
	if sel == nil || semantics.PlainValues(sel) {
		return
	}
	cols := semantics.ColumnNames(t)
	if len(s.Cols) > 0 {
		cols = nil
		for _, c := range s.Cols {
			cols = append(cols, c.GetResTarget().GetName())
		}
	}
	q := x.bound.QueryOf(sel)
	open := q == nil || q.Open
	if len(s.Cols) == 0 && !open && len(q.Columns) < len(cols) {
		cols = cols[:len(q.Columns)]
	}
	p := &plan.MadePlan{}
	for _, name := range cols {
		p.Columns = append(p.Columns, keyColumnOrUnknown(t, name))
	}
	for _, c := range semantics.GeneratedColumns(t) {
		given := slices.Contains(cols, c.Name)
		if given && c.Identity != "" && s.Override == pg.OverridingKind_OVERRIDING_USER_VALUE {
			fail(sqlstate.Refusal("CLV-0319", "OVERRIDING USER VALUE ignores the values selected for column %s", sqltext.QuoteIdent(c.Name)).
				WithHint("Leave the column out."))
		}
		if _, selected := x.made.selected[c.Name]; !given && !selected {
			p.Columns, p.Values = append(p.Columns, c), append(p.Values, madeFor(&x.Namespace, t, c))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.made.selected)) {
		p.Columns, p.Values = append(p.Columns, keyColumnOrUnknown(t, name)), append(p.Values, x.made.selected[name])
	}
	if len(p.Values) == 0 {
		return
	}
	if slices.ContainsFunc(s.Cols, func(c *pg.Node) bool { return len(c.GetResTarget().GetIndirection()) > 0 }) {
		fail(sqlstate.Refusal("CLV-0334", "INSERT ... SELECT into a part of a column is not supported where the router makes values for the rows").
			WithHint("Insert the whole value."))
	}
	if s.WithClause != nil {
		if sel.WithClause != nil {
			fail(sqlstate.Refusal("CLV-0335", "INSERT ... SELECT with WITH before both is not supported where the router makes values for the rows").
				WithHint("Write one WITH."))
		}
		onlyReads(s.WithClause)
		sel.WithClause, s.WithClause = s.WithClause, nil
	}
	s.SelectStmt = x.read(sel)
	p.Read, s.Cols = len(x.m.Reads)-1, nil
	for _, c := range p.Columns {
		s.Cols = append(s.Cols, resTarget(c.Name))
	}
	x.m.Made = p
}

// planReference makes the copies of a reference table change alike.
func (wp *writePlans) planReference(m *plan.ModifyPlan, n *pg.Node, returning *[]*pg.Node, t *shardmap.Table) {
	m.Reference = &plan.ReferencePlan{}
	ins := n.GetInsertStmt()
	if ins == nil && wp.IsVolatile(n) {
		fail(sqlstate.Refusal("CLV-0336", "a volatile function in a statement that changes the reference table %s could give another value on each shard", sqltext.QuoteName(t.Schema, t.Name)).
			WithHint("Compute the value first and pass it as a parameter."))
	}
	del := n.GetDeleteStmt()
	if del != nil && !leavesOpen(n) {
		return // which rows go is certain, and the tags are compared
	}
	rv := n.GetUpdateStmt().GetRelation()
	switch {
	case ins != nil:
		rv = ins.Relation
	case del != nil:
		rv = del.Relation
	}
	name := rv.Relname
	if rv.Alias != nil {
		name = rv.Alias.Aliasname
	}
	m.Reference.Whole = true
	for i := range t.Columns {
		if c := &t.Columns[i]; !c.Computed {
			m.Reference.Columns = append(m.Reference.Columns, c)
			*returning = append(*returning, sqltree.TargetNode(sqltree.ColumnNode(name, c.Name), ""))
		}
	}
	if ins == nil {
		return
	}
	w := &pg.InsertStmt{Relation: ins.Relation, Override: pg.OverridingKind_OVERRIDING_SYSTEM_VALUE,
		SelectStmt: &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: allOf(relationName(0), "")}}}
	for _, c := range m.Reference.Columns {
		w.Cols = append(w.Cols, resTarget(c.Name))
		w.ReturningList = append(w.ReturningList, sqltree.TargetNode(sqltree.ColumnNode(name, c.Name), "")) // to see what triggers made of them
	}
	if c := ins.OnConflictClause; c != nil && c.Action == pg.OnConflictAction_ONCONFLICT_UPDATE {
		w.OnConflictClause = overwrite(c, t, m.Reference.Columns)
	}
	m.Reference.Replay = plan.NewTemplate(wp.written(&pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: w}}))
}

// leavesOpen reports whether a subquery for each row takes some rows of several, which
// may be others on each copy.
func leavesOpen(n *pg.Node) bool {
	found := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.SelectStmt:
			found = found || v.LimitCount != nil || v.LimitOffset != nil || len(v.DistinctClause) > 0 && v.DistinctClause[0].GetNode() != nil
		case *pg.FuncCall:
			found = found || v.Over != nil
		}
		return !found
	})
	return found
}

// overwrite is the conflict clause that makes a row what it became on the first shard.
func overwrite(c *pg.OnConflictClause, t *shardmap.Table, columns []*shardmap.Column) *pg.OnConflictClause {
	var arbiter []string
	for _, n := range c.Infer.GetIndexElems() {
		e := n.GetIndexElem()
		if e.GetName() == "" {
			arbiter = nil
			break
		}
		arbiter = append(arbiter, e.Name)
	}
	for _, r := range c.TargetList {
		if slices.Contains(arbiter, r.GetResTarget().GetName()) && !semantics.Restates(c, r.GetResTarget()) {
			arbiter = nil
		}
	}
	if len(arbiter) == 0 {
		fail(sqlstate.Refusal("CLV-1311", "ON CONFLICT DO UPDATE of the reference table %s needs the columns of the conflict, unchanged, to find the same row on every shard", sqltext.QuoteName(t.Schema, t.Name)).
			WithHint("Name the columns: ON CONFLICT (column, ...) DO UPDATE."))
	}
	out := &pg.OnConflictClause{Action: c.Action, Infer: c.Infer}
	for _, col := range columns {
		name := col.Name
		if !slices.Contains(arbiter, name) {
			r := resTarget(name)
			r.GetResTarget().Val = sqltree.ColumnNode("excluded", name)
			out.TargetList = append(out.TargetList, r)
		}
	}
	if len(out.TargetList) == 0 {
		out.Action = pg.OnConflictAction_ONCONFLICT_NOTHING
	}
	return out
}

// linked reports whether only rows of o with the shard key of the target's row can
// matter for that row.
func linked(o, target *semantics.Use) bool {
	if !o.Sharded() || o.Facts == nil || o.Relation.Table.Keyspace != target.Relation.Table.Keyspace || len(o.Node.Key) != len(target.Node.Key) {
		return false
	}
	for i, t := range o.Node.Key {
		if t == semantics.NoTerm || target.Node.Key[i] == semantics.NoTerm || !slices.Contains(o.Facts.Class(t), target.Node.Key[i]) {
			return false
		}
	}
	return true
}

// modifying edits the tree of a statement that changes rows: what a shard does not
// have becomes a relation.
type modifying struct {
	*writePlans
	m      *plan.ModifyPlan
	target *semantics.Use
	local  func(*semantics.Use) bool
	ctes   []*pg.Node // WITH queries of the statement, as they were
	// columns are the names of all columns in the statement; every is set with a star.
	columns map[string]bool
	every   bool
	deep    bool // a name with a schema in front of a column
	alone   bool // the rest is run once, on one shard
}

func (x *modifying) edit(n *pg.Node) {
	x.columns = map[string]bool{}
	switch what := serverdependent.ShardState(n); {
	case what == "":
	case strings.HasSuffix(what, "()"):
		hint := "Take its value first, in a statement of its own: SELECT " + what + "."
		if what == "statement_timestamp()" {
			hint = "Use now() or clock_timestamp()."
		}
		fail(sqlstate.Refusal("CLV-0337", "%s is another one on each shard", what).WithHint("%s", hint))
	default:
		fail(sqlstate.Refusal("CLV-0252", "the system column %s has no meaning for rows of several shards", what).
			WithHint("Name the rows by their key."))
	}
	x.names(n.ProtoReflect())
	x.visit(n.ProtoReflect())
	if len(x.m.Reads) > 0 && x.deep {
		fail(sqlstate.Refusal("CLV-0338", "a column with a schema's name in front is not supported in this statement over several shards").
			WithHint("Give the table an alias."))
	}
	x.clocked(n)
}

// names collects the names of columns and of tables as values.
func (x *modifying) names(m protoreflect.Message) {
	sqltree.Descend(m, func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.ColumnRef:
			names := sqltree.Strings(v.Fields)
			x.every = x.every || len(names) != len(v.Fields)
			x.deep = x.deep || len(v.Fields) > 2
			for _, n := range names {
				x.columns[n] = true
			}
			if len(v.Fields) == 1 && len(names) == 1 {
				x.columns["\x00"+names[0]] = true // it may be a table's name
			}
		case *pg.JoinExpr:
			x.every = x.every || v.IsNatural
			for _, n := range sqltree.Strings(v.UsingClause) {
				x.columns[n] = true
			}
		}
		return true
	})
}

func (x *modifying) visit(m protoreflect.Message) {
	sqltree.Descend(m, func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.SubLink:
			if sel := v.Subselect.GetSelectStmt(); sel != nil && x.once(sel) {
				v.Subselect = x.read(sel)
				if v.Testexpr != nil {
					x.visit(v.Testexpr.ProtoReflect())
				}
				return false
			}
		case *pg.RangeSubselect:
			if sel := v.Subquery.GetSelectStmt(); sel != nil && x.once(sel) {
				v.Subquery = x.read(sel)
				return false
			}
		case *pg.CommonTableExpr:
			before := sqltree.Clone(&pg.Node{Node: &pg.Node_CommonTableExpr{CommonTableExpr: v}})
			if v.Ctequery.GetSelectStmt() == nil {
				v.Ctequery = x.write(v.Ctequery)
			} else if sel := v.Ctequery.GetSelectStmt(); x.once(sel) {
				if v.SearchClause != nil || v.CycleClause != nil {
					fail(sqlstate.Refusal("CLV-0339", "SEARCH and CYCLE are not supported in a statement that changes rows on several shards").
						WithHint("Run the query first."))
				}
				v.Ctequery = x.read(sel)
			} else {
				x.visit(v.Ctequery.ProtoReflect())
			}
			x.ctes = append(x.ctes, before)
			return false
		case *pg.WithClause:
			if v.Recursive {
				sqltree.EachRangeVar(m, func(r *pg.RangeVar) {
					if u := x.bound.UseAt(r); u != nil && !x.local(u) {
						fail(sqlstate.Refusal("CLV-0340", "WITH RECURSIVE over sharded tables is not supported in a statement that changes rows on several shards").
							WithHint("Run the query first."))
					}
				})
			}
		case *pg.RangeTableSample:
			if u := x.bound.UseAt(v.Relation.GetRangeVar()); u != nil && !x.local(u) {
				fail(sqlstate.Refusal("CLV-0341", "TABLESAMPLE is not supported in a statement that changes rows on several shards").
					WithHint("Run the query first."))
			}
		case *pg.RangeFunction:
			if x.IsVolatile(m.Interface()) {
				fail(sqlstate.Refusal("CLV-0342", "a volatile function in FROM would give other rows on each shard").
					WithHint("Run the query first."))
			}
		case *pg.SelectStmt:
			if len(v.LockingClause) > 0 {
				sqltree.EachRangeVar(m, func(r *pg.RangeVar) {
					if u := x.bound.UseAt(r); u != nil && !x.local(u) {
						fail(sqlstate.Refusal("CLV-1031", "rows of other shards cannot be locked inside this statement").
							WithHint("Lock them in a statement of its own: SELECT ... FOR UPDATE."))
					}
				})
			}
		case *pg.RangeVar:
			x.table(v)
		}
		return true
	})
}

// table makes a table that the shard does not have a relation.
func (x *modifying) table(v *pg.RangeVar) {
	u := x.bound.UseAt(v)
	if u == nil || u == x.target || x.local(u) {
		return
	}
	if u.Relation.Virtual {
		fail(sqlstate.Refusal("CLV-0343", "table %s is answered by the router and cannot be read by this statement", sqltext.QuoteName(u.Relation.Schema, u.Relation.Name)).
			WithHint("Read it first."))
	}
	from := sqltree.Clone(&pg.Node{Node: &pg.Node_RangeVar{RangeVar: v}}).GetRangeVar()
	from.Alias = nil
	sel := &pg.SelectStmt{LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE,
		FromClause: []*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: from}}}}
	name := v.Relname
	if v.Alias != nil {
		name = v.Alias.Aliasname
	}
	all := u.Relation.Table == nil || x.every || x.columns["\x00"+name] || v.Alias != nil && len(v.Alias.Colnames) > 0
	if !all {
		for i := range u.Relation.Table.Columns {
			if c := u.Relation.Table.Columns[i].Name; x.columns[c] {
				sel.TargetList = append(sel.TargetList, sqltree.TargetNode(sqltree.ColumnNode(c), ""))
			}
		}
	}
	if len(sel.TargetList) == 0 {
		sel.TargetList = []*pg.Node{sqltree.TargetNode(&pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: &pg.ColumnRef{Fields: []*pg.Node{{Node: &pg.Node_AStar{AStar: &pg.A_Star{}}}}}}}, "")}
	}
	x.m.Reads = append(x.m.Reads, x.nested(sel))
	if v.Alias == nil {
		v.Alias = &pg.Alias{Aliasname: v.Relname}
	}
	v.Catalogname, v.Schemaname, v.Relname, v.Inh = "", "", relationName(len(x.m.Reads)-1), true
}

// read makes a query one that is answered once, and returns what stands in its place.
func (x *modifying) read(sel *pg.SelectStmt) *pg.Node {
	sel = sqltree.Clone(&pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: sel}}).GetSelectStmt()
	if x.namesCTE(sel) {
		for _, c := range x.ctes {
			if s := c.GetCommonTableExpr().Ctequery.GetSelectStmt(); s == nil || unstable(&x.Namespace, s.ProtoReflect()) {
				fail(sqlstate.Refusal("CLV-0344", "a WITH query whose rows are not certain is read in several places of a statement over several shards").
					WithHint("Run the query first."))
			}
		}
		if sel.WithClause == nil {
			sel.WithClause = &pg.WithClause{}
		}
		var all []*pg.Node
		for _, c := range x.ctes {
			all = append(all, sqltree.Clone(c))
		}
		sel.WithClause.Ctes = append(all, sel.WithClause.Ctes...)
	}
	x.m.Reads = append(x.m.Reads, x.nested(sel))
	return &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: allOf(relationName(len(x.m.Reads)-1), "")}}
}

// namesCTE reports whether a query reads a WITH query of the statement around it.
func (x *modifying) namesCTE(sel *pg.SelectStmt) bool {
	found := false
	sqltree.EachRangeVar(sel.ProtoReflect(), func(v *pg.RangeVar) {
		for _, c := range x.ctes {
			found = found || v.Schemaname == "" && v.Relname == c.GetCommonTableExpr().Ctename
		}
	})
	return found
}

// once reports whether a subquery has to be answered once and before the write: it
// does not depend on the row, and reads what the shard does not have, or could
// give other rows each time that it runs.
func (x *modifying) once(sel *pg.SelectStmt) bool {
	if correlated(x.bound, sel) {
		return false
	}
	away := false
	sqltree.EachRangeVar(sel.ProtoReflect(), func(v *pg.RangeVar) {
		if u := x.bound.UseAt(v); u != nil && !x.local(u) {
			away = true
		} else if u != nil && u.Sharded() {
			away = true // bound to the target by nothing, since it is not correlated
		}
	})
	return away || unstable(&x.Namespace, sel.ProtoReflect()) && !x.alone && x.m.Table.Kind != shardmap.Whole
}

// unstable reports whether a query has something whose answer PostgreSQL leaves
// open, or a volatile function.
func unstable(ns *semantics.Namespace, m protoreflect.Message) bool {
	found := ns.IsVolatile(m.Interface())
	sqltree.Descend(m, func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.SelectStmt:
			found = found || v.LimitCount != nil || v.LimitOffset != nil || len(v.WindowClause) > 0 ||
				len(v.DistinctClause) > 0 && v.DistinctClause[0].GetNode() != nil || len(v.LockingClause) > 0
		case *pg.FuncCall:
			found = found || v.Over != nil || strings.Contains(ns.KindOf(v), "a")
		case *pg.JsonArrayAgg, *pg.JsonObjectAgg, *pg.RangeTableSample:
			found = true
		}
		return !found
	})
	return found
}

// correlated reports whether a query names columns of the queries around it.
func correlated(bs *semantics.BoundStatement, sel *pg.SelectStmt) bool { return reaches(bs, sel, nil) }

// reaches looks for columns that neither sel nor the scopes around it have.
func reaches(bs *semantics.BoundStatement, sel *pg.SelectStmt, around []*semantics.Scope) bool {
	var outputs []string
	if q := bs.QueryOf(sel); q != nil {
		around = append(around[:len(around):len(around)], q.Scope)
		for _, c := range q.Columns {
			outputs = append(outputs, c.Name)
		}
	}
	known := func(names []string) bool {
		if len(names) == 1 && slices.Contains(outputs, names[0]) {
			return true
		}
		for _, sc := range around {
			for _, it := range sc.Items {
				switch {
				case len(names) == 1:
					if it.Bare && (it.Open || slices.ContainsFunc(it.Columns, func(c semantics.Column) bool { return c.Name == names[0] })) || it.Qualified && it.Name == names[0] {
						return true
					}
				case it.Qualified && it.Name == names[len(names)-2], it.Qualified && it.Name == names[0]:
					return true
				}
			}
		}
		return false
	}
	found := false
	m := sel.ProtoReflect()
	sqltree.Descend(m, func(at protoreflect.Message) bool {
		switch v := at.Interface().(type) {
		case *pg.SelectStmt:
			if v != sel {
				found = found || reaches(bs, v, around)
				return false
			}
		case *pg.ColumnRef:
			names := sqltree.Strings(v.Fields)
			if len(names) > 0 {
				if len(names) < len(v.Fields) {
					names = append(names, "")
				}
				found = found || !known(names)
			}
		}
		return !found
	})
	return found
}

// setsKey reports whether a list of assignments has a shard key column.
func setsKey(list []*pg.Node, t *shardmap.Table) bool {
	return slices.ContainsFunc(list, func(n *pg.Node) bool { return slices.Contains(t.ShardKey, n.GetResTarget().GetName()) })
}

func relationName(n int) string { return plan.RelationPrefix + strconv.Itoa(n) }

// allOf is SELECT * FROM a relation.
func allOf(name, alias string) *pg.SelectStmt {
	if alias == "" {
		alias = name
	}
	return &pg.SelectStmt{
		TargetList:  []*pg.Node{sqltree.TargetNode(&pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: &pg.ColumnRef{Fields: []*pg.Node{{Node: &pg.Node_AStar{AStar: &pg.A_Star{}}}}}}}, "")},
		FromClause:  []*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: &pg.RangeVar{Relname: name, Inh: true, Relpersistence: "p", Alias: &pg.Alias{Aliasname: alias + "_"}}}}},
		LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE,
	}
}
