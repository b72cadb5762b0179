package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A WITH query that changes rows over several shards is a statement of its own: it is
// run before the rest, and what it returns is a relation of the rest. PostgreSQL runs
// all of them on one snapshot, so that none sees what another has changed. That is the
// same if no table that one of them changes is named by the others, and if no foreign
// key ties what they change together: those are checked when the whole statement ends
// (Plan.Apart).

// changeOf is what a statement changes.
func changeOf(n *pg.Node, t *shardmap.Table) plan.Change {
	c := plan.Change{Table: t, Op: "INSERT"}
	switch v := n.GetNode().(type) {
	case *pg.Node_UpdateStmt:
		c.Op = "UPDATE"
		for _, r := range v.UpdateStmt.TargetList {
			c.Set = append(c.Set, r.GetResTarget().GetName())
		}
	case *pg.Node_DeleteStmt:
		c.Op = "DELETE"
	case *pg.Node_InsertStmt:
		if o := v.InsertStmt.OnConflictClause; o != nil && len(o.TargetList) > 0 {
			c.Op = "UPDATE"
			c.Set = semantics.ColumnNames(t)
		}
	}
	return c
}

// apart looks whether the WITH queries that change rows can be run one by one, and
// returns all that the statement changes, in the order in which it is run; nil if no WITH
// query changes rows. top is the statement around them, target the table that it changes itself.
func (wp *writePlans) apart(w *pg.WithClause, top *pg.Node, target *shardmap.Table) []plan.Change {
	written := map[*shardmap.Table]bool{}
	var out []plan.Change
	for i, n := range w.GetCtes() {
		c := n.GetCommonTableExpr()
		if c.GetCtequery().GetSelectStmt() != nil {
			continue
		}
		rv := changedBy(c.Ctequery)
		u := wp.bound.UseAt(rv)
		if u == nil || u.Relation.Table == nil {
			fail(sqlstate.Refusal("CLV-0349", "a WITH query that changes rows of a table that the router does not know is not supported in a statement over several shards").
				WithHint("Run it as a statement of its own, in one transaction."))
		}
		t := u.Relation.Table
		if w.Recursive {
			fail(sqlstate.Refusal("CLV-0350", "WITH RECURSIVE with a query that changes rows is not supported in a statement over several shards").
				WithHint("Run it as a statement of its own, in one transaction."))
		}
		inside := map[*pg.RangeVar]bool{}
		sqltree.EachRangeVar(c.Ctequery.ProtoReflect(), func(v *pg.RangeVar) { inside[v] = true })
		for _, o := range wp.bound.Uses {
			if o.Relation.Table == t && !inside[o.Ref] {
				fail(sqlstate.Refusal("CLV-0351", "table %s is changed by a WITH query and named again in a statement over several shards, where the rest could see the change", sqltext.QuoteName(t.Schema, t.Name)).
					WithHint("Run the WITH query as a statement of its own, in one transaction."))
			}
		}
		for _, before := range w.Ctes[:i] {
			b := before.GetCommonTableExpr()
			sqltree.EachRangeVar(c.Ctequery.ProtoReflect(), func(v *pg.RangeVar) {
				if v.Schemaname == "" && v.Relname == b.Ctename && b.GetCtequery().GetSelectStmt() == nil {
					fail(sqlstate.Refusal("CLV-0352", "a WITH query that changes rows reads what another one returned, in a statement over several shards").
						WithHint("Run the first one as a statement of its own, in one transaction."))
				}
			})
		}
		if written[t] {
			fail(sqlstate.Refusal("CLV-0353", "two WITH queries change table %s in a statement over several shards", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Use two statements."))
		}
		written[t] = true
		out = append(out, changeOf(c.Ctequery, t))
	}
	if len(written) == 0 {
		return nil
	}
	if target != nil {
		out = append(out, changeOf(top, target))
	}
	return out
}

// changedBy is the table that a statement changes.
func changedBy(n *pg.Node) *pg.RangeVar {
	switch v := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		return v.InsertStmt.Relation
	case *pg.Node_UpdateStmt:
		return v.UpdateStmt.Relation
	case *pg.Node_DeleteStmt:
		return v.DeleteStmt.Relation
	case *pg.Node_MergeStmt:
		return v.MergeStmt.Relation
	}
	return nil
}

// planChanging plans a SELECT whose WITH queries change rows.
func (wp *writePlans) planChanging(n *pg.Node) (*plan.Plan, error) {
	s := n.GetSelectStmt()
	changes := wp.apart(s.WithClause, n, nil)
	if changes == nil {
		return nil, nil
	}
	wp.Types = wp.KeyTypes(wp.st.Keyspace)
	m := &plan.ModifyPlan{Table: changes[0].Table, Returning: true}
	x := &modifying{writePlans: wp, m: m, alone: true, local: (*semantics.Use).Everywhere}
	x.edit(n)
	m.Write = plan.NewTemplate(wp.written(n))
	return &plan.Plan{Op: plan.Modify, Modify: m, Target: plan.Target{Where: plan.AnyOne}, Apart: changes, Why: "WITH queries change rows first"}, nil
}

// write makes a WITH query that changes rows a statement that is run first, and
// returns what stands in its place.
func (x *modifying) write(n *pg.Node) *pg.Node {
	n = sqltree.Clone(n)
	if ins := n.GetInsertStmt(); ins != nil {
		if t := x.Relation(ins.Relation).Table; len(semantics.GeneratedColumns(t)) > 0 && ins.Override == pg.OverridingKind_OVERRIDING_NOT_SET {
			ins.Override = pg.OverridingKind_OVERRIDING_SYSTEM_VALUE // the router's values stand in it
		}
	}
	names := false
	sqltree.EachRangeVar(n.ProtoReflect(), func(v *pg.RangeVar) {
		for _, c := range x.ctes {
			names = names || v.Schemaname == "" && v.Relname == c.GetCommonTableExpr().Ctename
		}
	})
	if names {
		var with **pg.WithClause
		switch v := n.GetNode().(type) {
		case *pg.Node_InsertStmt:
			with = &v.InsertStmt.WithClause
		case *pg.Node_UpdateStmt:
			with = &v.UpdateStmt.WithClause
		case *pg.Node_DeleteStmt:
			with = &v.DeleteStmt.WithClause
		}
		if with == nil || *with != nil {
			fail(sqlstate.Refusal("CLV-0354", "a WITH query that changes rows and reads another one is not supported in this form over several shards").
				WithHint("Run it as a statement of its own, in one transaction."))
		}
		*with = &pg.WithClause{}
		for _, c := range x.ctes {
			q := c.GetCommonTableExpr().Ctequery
			if q.GetSelectStmt() == nil {
				continue // it is not named, see apart
			}
			if unstable(&x.Namespace, q.ProtoReflect()) {
				fail(sqlstate.Refusal("CLV-0344", "a WITH query whose rows are not certain is read in several places of a statement over several shards").
					WithHint("Run the query first."))
			}
			(*with).Ctes = append((*with).Ctes, sqltree.Clone(c))
		}
	}
	x.m.Reads = append(x.m.Reads, x.nestedNode(n))
	return sqltree.SelectNode(allOf(relationName(len(x.m.Reads)-1), ""))
}
