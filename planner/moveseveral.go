package planner

import (
	"strconv"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// planMove plans an UPDATE of shard key columns: rows are locked first, and their
// new keys read; those that stay are updated, those that leave are deleted where
// they are and inserted where they belong.
func (wp *writePlans) planMove(m *plan.ModifyPlan, up *pg.UpdateStmt, u *semantics.Use) {
	t := u.Relation.Table
	name := up.Relation.Relname
	if up.Relation.Alias != nil {
		name = up.Relation.Alias.Aliasname
	}
	set := map[string]*pg.Node{}
	for _, n := range up.TargetList {
		r := n.GetResTarget()
		val := semantics.AssignedExpr(r.Val)
		if val.GetMultiAssignRef() != nil {
			fail(sqlstate.Refusal("CLV-0345", "SET (...) = (SELECT ...) of shard key columns of table %s is not supported", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Assign each column by itself."))
		}
		if len(r.Indirection) > 0 {
			fail(sqlstate.Refusal("CLV-0346", "assigning a part of a column beside the shard key of table %s is not supported", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Assign the whole column, or use two statements."))
		}
		set[r.Name] = val
	}
	for _, k := range t.ShardKey {
		switch v := set[k]; {
		case v == nil:
		case v.GetSetToDefault() != nil:
			fail(sqlstate.Refusal("CLV-0347", "SET %s = DEFAULT gives a shard key that a shard would choose", sqltext.QuoteIdent(k)).
				WithHint("Give the value."))
		case wp.IsVolatile(v):
			fail(sqlstate.Refusal("CLV-0348", "the new value of the shard key column %s is computed by a volatile function", sqltext.QuoteIdent(k)).
				WithHint("Compute the value first and pass it as a parameter."))
		}
	}
	mv := &plan.MovePlan{Types: wp.KeyTypes(t.Keyspace), Tuples: wp.afterClock() + 1, Joined: len(up.FromClause) > 0 && len(up.ReturningList) > 0}
	m.Move = mv
	node := func(s any) *pg.Node {
		switch v := s.(type) {
		case *pg.UpdateStmt:
			return &pg.Node{Node: &pg.Node_UpdateStmt{UpdateStmt: v}}
		case *pg.DeleteStmt:
			return &pg.Node{Node: &pg.Node_DeleteStmt{DeleteStmt: v}}
		case *pg.InsertStmt:
			return &pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: v}}
		}
		return &pg.Node{Node: &pg.Node_RangeVar{RangeVar: s.(*pg.RangeVar)}}
	}
	// Lock.
	lock := sqltree.EmptySelect()
	var keys []*pg.Node
	lock.TargetList = []*pg.Node{sqltree.TargetNode(sqltree.CastNode(sqltree.ColumnNode(name, "ctid"), "text", nil), "")}
	for i, k := range t.ShardKey {
		val := set[k]
		if val == nil {
			val = sqltree.ColumnNode(name, k)
		}
		keys = append(keys, sqltree.TargetNode(&pg.Node{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{Arg: sqltree.Clone(val), TypeName: keyTypeName(mv.Types[i]), Location: -1}}}, ""))
	}
	mv.Keys = storedKeys(&wp.Namespace, t)
	lock.TargetList = append(lock.TargetList, keys...)
	for i, k := range t.ShardKey {
		lock.TargetList = append(lock.TargetList, sqltree.TargetNode(&pg.Node{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{Arg: sqltree.ColumnNode(name, k), TypeName: keyTypeName(mv.Types[i]), Location: -1}}}, ""))
	}
	lock.FromClause = append([]*pg.Node{node(up.Relation)}, up.FromClause...)
	lock.WhereClause, lock.WithClause = up.WhereClause, up.WithClause
	lock.LockingClause = []*pg.Node{{Node: &pg.Node_LockingClause{LockingClause: &pg.LockingClause{
		LockedRels: []*pg.Node{node(&pg.RangeVar{Relname: name, Inh: true, Relpersistence: "p"})},
		Strength:   pg.LockClauseStrength_LCS_FORUPDATE, WaitPolicy: pg.LockWaitPolicy_LockWaitBlock}}}}
	mv.Lock = wp.ownTemplate(wp.clocked(sqltree.Clone(sqltree.SelectNode(lock))), u) // the other texts name its rows
	// The rows that are meant.
	array := sqltree.CastNode(&pg.Node{Node: &pg.Node_ParamRef{ParamRef: &pg.ParamRef{Number: int32(mv.Tuples)}}}, "tid", nil)
	array.GetTypeCast().TypeName.ArrayBounds = []*pg.Node{{Node: &pg.Node_Integer{Integer: &pg.Integer{Ival: -1}}}}
	cond := &pg.Node{Node: &pg.Node_AExpr{AExpr: &pg.A_Expr{Kind: pg.A_Expr_Kind_AEXPR_OP_ANY, Name: []*pg.Node{sqltree.StringNode("=")}, Lexpr: sqltree.ColumnNode(name, "ctid"), Rexpr: array}}}
	if up.WhereClause != nil {
		cond = &pg.Node{Node: &pg.Node_BoolExpr{BoolExpr: &pg.BoolExpr{Boolop: pg.BoolExprType_AND_EXPR, Args: []*pg.Node{cond, up.WhereClause}}}}
		if b := up.WhereClause.GetBoolExpr(); b != nil && b.Boolop == pg.BoolExprType_AND_EXPR {
			cond.GetBoolExpr().Args = append(cond.GetBoolExpr().Args[:1:1], b.Args...) // the parser makes one list of it
		}
	}
	take := &pg.DeleteStmt{Relation: up.Relation, UsingClause: up.FromClause, WhereClause: cond, WithClause: up.WithClause}
	put := &pg.InsertStmt{Relation: up.Relation, Override: pg.OverridingKind_OVERRIDING_SYSTEM_VALUE, ReturningList: up.ReturningList,
		SelectStmt: sqltree.SelectNode(allOf(relationName(len(m.Reads)), ""))}
	for i := range t.Columns {
		c := &t.Columns[i]
		val := set[c.Name]
		if c.Computed || val.GetSetToDefault() != nil {
			continue
		}
		if val == nil {
			val = sqltree.ColumnNode(name, c.Name)
		}
		mv.Columns = append(mv.Columns, c)
		take.ReturningList = append(take.ReturningList, sqltree.TargetNode(sqltree.Clone(val), ""))
		put.Cols = append(put.Cols, resTarget(c.Name))
	}
	for _, k := range keys {
		take.ReturningList = append(take.ReturningList, sqltree.Clone(k))
	}
	look := sqltree.EmptySelect()
	look.TargetList, look.FromClause = take.ReturningList, lock.FromClause
	look.WhereClause, look.WithClause = cond, up.WithClause
	mv.Look = plan.NewTemplate(wp.written(wp.clocked(sqltree.Clone(sqltree.SelectNode(look)))))
	probe := sqltree.Clone(node(put)).GetInsertStmt()
	probe.ReturningList, probe.OnConflictClause = nil, &pg.OnConflictClause{Action: pg.OnConflictAction_ONCONFLICT_NOTHING}
	mv.Probe = plan.NewTemplate(wp.written(wp.clocked(node(probe))))
	stay := sqltree.Clone(node(up)).GetUpdateStmt()
	stay.WhereClause = cond
	mv.Stay = plan.NewTemplate(wp.written(wp.clocked(sqltree.Clone(node(stay)))))
	mv.Take = plan.NewTemplate(wp.written(wp.clocked(sqltree.Clone(node(take)))))
	if mv.Joined {
		put.ReturningList = nil
	}
	mv.Put = plan.NewTemplate(wp.written(wp.clocked(sqltree.Clone(node(put)))))
}

// afterClock is the number of the parameter Plan.Clock, whether the plan uses it or not.
func (wp *writePlans) afterClock() int {
	n := wp.st.Params + 1
	if wp.made.fill != nil {
		n += len(wp.made.fill.values)
	}
	return n
}

// clockIn replaces the transaction's time in a part of the statement's text by the
// parameter of Plan.Clock.
func (wp *writePlans) clockIn(n *pg.Node) {
	if n == nil {
		return
	}
	put := func(from, to int, text string) {
		wp.texts.edits = append(wp.texts.edits, sqltext.Edit{From: from, To: to, Text: text})
	}
	param := func() string {
		wp.texts.clock = true
		return sqltext.Dollar(wp.afterClock()) + "::timestamptz"
	}
	sqltree.Descend(n.ProtoReflect(), func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.FuncCall:
			switch {
			case sqltree.IsClock(v):
				wp.Native(v)
				from, to := wp.CallSpan(v)
				put(from, to, param())
				return false
			case sqltree.IsAge(v):
				wp.Native(v)
				fail(sqlstate.Refusal("CLV-0627", "age() of one value depends on the shard's own time").
					WithHint("Write age(current_date, value)."))
			}
		case *pg.SQLValueFunction:
			typ := sqltree.ClockOps[v.Op]
			if typ == "" {
				return true
			}
			i := wp.TokenAt(v.Location)
			if i < 0 {
				sourcetext.LostPlace()
			}
			from, to := wp.Tokens()[i].Start, wp.Tokens()[i].End
			if v.Typmod >= 0 {
				if !wp.Punct(i+1, '(') {
					sourcetext.LostPlace()
				}
				to = wp.Tokens()[wp.Closing(i+1)].End
				typ += "(" + strconv.Itoa(int(v.Typmod)) + ")"
			}
			put(from, to, param()+"::"+typ)
		case *pg.TypeCast:
			word, typ := sqltree.ClockLiteral(v)
			if word == "" {
				return true
			}
			at, from, to := wp.ClockSpan(v.Arg)
			text := "(" + param() + map[string]string{"today": "::date", "tomorrow": "::date + 1", "yesterday": "::date - 1"}[word] + ")"
			switch of := v.TypeName.Location; {
			case of <= 0: // it is the column's
				text += "::" + typ
			case of < at: // timestamp 'now'
				i := wp.TokenAt(of)
				if i < 0 || len(v.TypeName.Typmods) > 0 {
					sourcetext.LostPlace()
				}
				from, text = wp.Tokens()[i].Start, text+"::"+typ
			}
			put(from, to, text)
			return false
		}
		return true
	})
}
