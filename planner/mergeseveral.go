package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A MERGE over several shards falls apart by shard if ON joins the whole shard key of the target
// with columns of the source, and rows are inserted under these: a row of the source can
// then meet, and insert, rows of one shard only. Where the source is a table of which
// each shard has the rows in question, the shards run the text by themselves; any
// other source is read first, and each shard gets the rows that it owns. If no rows are
// inserted, it does not matter where a row of the source meets none: then each shard may have them all.

// planMerge plans a MERGE into a sharded table, t.
func (wp *writePlans) planMerge(m *plan.ModifyPlan, n *pg.Node, v *pg.MergeStmt, t *semantics.Use) {
	src, why := wp.mergeLocal(v, t)
	if src == nil {
		wp.mergeSplit(m, v, t, why)
	}
	for _, w := range v.MergeWhenClauses {
		c := w.GetMergeWhenClause()
		if c.CommandType == pg.CmdType_CMD_INSERT {
			clockMerge(t.Relation.Table, c)
		} else {
			clockAssignments(t.Relation.Table, c.TargetList)
		}
	}
	if src != nil {
		wp.clocked(n)
		m.Write = wp.ownTemplate(n, src, t)
		return
	}
	x := &modifying{writePlans: wp, m: m, target: t, local: (*semantics.Use).Everywhere}
	x.edit(n)
	m.Write = wp.ownTemplate(n, t)
}

// mergeLocal proves that each shard can run a MERGE by itself: its source is a sharded
// table, its target is joined on the shard key, and rows are inserted under it. why is set
// if that is not so.
func (wp *writePlans) mergeLocal(v *pg.MergeStmt, t *semantics.Use) (src *semantics.Use, why string) {
	src = wp.bound.UseAt(v.SourceRelation.GetRangeVar())
	if v.WithClause != nil || src == nil || !src.Sharded() {
		return nil, "ON does not join the shard key with columns of the source"
	}
	if !linked(t, src) {
		return nil, "ON does not join the shard keys"
	}
	if serverdependent.UsesShardState(v) || wp.answersOnce(v.ProtoReflect()) {
		return nil, "it has a subquery, or a function, of which each shard would have an answer of its own"
	}
	for _, u := range wp.bound.Uses {
		if u != t && u != src && !u.Everywhere() && !linked(u, src) && !linked(u, t) {
			return nil, "it reads " + sqltext.QuoteName(u.Relation.Schema, u.Relation.Name)
		}
	}
	if why := mergeInserts(v, t.Relation.Table, func(i int, names []string) bool {
		to, own := semantics.KeyColumn(t.Relation.Table, t.Relation.Table.ShardKey[i]), semantics.KeyColumn(src.Relation.Table, src.Relation.Table.ShardKey[i])
		return len(names) == 2 && names[0] == src.Node.Name && names[1] == own.Name && (!strings.Contains(to.Type, "(") || to.Type == own.Type)
	}); why != "" {
		return nil, why
	}
	return src, ""
}

// mergeInserts says why the rows that a MERGE changes or inserts may have another shard key
// than the source's row, "" if they have not. same reports whether a column's name is what
// ON equates with column i of the shard key.
func mergeInserts(v *pg.MergeStmt, t *shardmap.Table, same func(i int, names []string) bool) (why string) {
	for _, n := range v.MergeWhenClauses {
		c := n.GetMergeWhenClause()
		switch c.CommandType {
		case pg.CmdType_CMD_UPDATE:
			if setsKey(c.TargetList, t) {
				return "it changes the shard key"
			}
		case pg.CmdType_CMD_INSERT:
			cols := semantics.ColumnNames(t)
			if len(c.TargetList) > 0 {
				cols = cols[:0:0]
				for _, r := range c.TargetList {
					cols = append(cols, r.GetResTarget().GetName())
				}
			}
			for i, p := range semantics.KeyPlaces(t, cols) {
				if p >= len(c.Values) {
					return "it inserts rows without a shard key"
				}
				if c.Values[p].GetColumnRef() == nil || !same(i, sqltree.FieldNames(c.Values[p].GetColumnRef())) {
					return "it inserts rows whose shard key is not that of the source's row"
				}
			}
		}
	}
	return ""
}

// mergeSplit makes the source of a MERGE a read whose rows go to the shards that own them.
func (wp *writePlans) mergeSplit(m *plan.ModifyPlan, v *pg.MergeStmt, t *semantics.Use, why string) {
	table := t.Relation.Table
	no := func(why string) {
		fail(sqlstate.Refusal("CLV-0321", "MERGE into %s concerns several shards, and %s", sqltext.QuoteName(t.Relation.Schema, t.Relation.Name), why).
			WithHint("Use INSERT ... ON CONFLICT, UPDATE and DELETE, or join the source on the shard key."))
	}
	name, source := "", &pg.SelectStmt{LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE, FromClause: []*pg.Node{sqltree.Clone(v.SourceRelation)}}
	switch f := v.SourceRelation.GetNode().(type) {
	case *pg.Node_RangeVar:
		if name = f.RangeVar.Relname; f.RangeVar.Alias != nil {
			name = f.RangeVar.Alias.Aliasname
		}
	case *pg.Node_RangeSubselect:
		if name = f.RangeSubselect.Alias.GetAliasname(); name == "" || f.RangeSubselect.Lateral {
			no(why)
		}
	case *pg.Node_RangeFunction:
		if name = f.RangeFunction.Alias.GetAliasname(); name == "" {
			no(why)
		}
	default:
		no(why)
	}
	split := &plan.SplitPlan{Types: wp.KeyTypes(table.Keyspace)}
	own := t.Node.Name
	for _, n := range v.MergeWhenClauses {
		c := n.GetMergeWhenClause()
		split.Inserts = split.Inserts || c.CommandType == pg.CmdType_CMD_INSERT
		split.All = split.All || c.MatchKind == pg.MergeMatchKind_MERGE_WHEN_NOT_MATCHED_BY_SOURCE
	}
	for _, k := range table.ShardKey {
		from := joinedWith(v.JoinCondition, own, name, k, semantics.ColumnNames(table))
		if from == "" && split.Inserts {
			no(why)
		}
		if from != "" {
			split.Columns = append(split.Columns, from)
		}
	}
	if other := mergeInserts(v, table, func(i int, names []string) bool {
		switch {
		case strings.Contains(semantics.KeyColumn(table, table.ShardKey[i]).Type, "("):
			return false // it could be cut, or rounded
		case len(names) == 2 && names[0] != name:
			return false
		}
		return len(names) > 0 && len(names) < 3 && names[len(names)-1] == split.Columns[i]
	}); other != "" {
		no(other)
	}
	if v.WithClause != nil {
		onlyReads(v.WithClause)
		with := map[*pg.RangeVar]bool{}
		sqltree.EachRangeVar(v.WithClause.ProtoReflect(), func(r *pg.RangeVar) { with[r] = true })
		sqltree.EachRangeVar(v.SourceRelation.ProtoReflect(), func(r *pg.RangeVar) { with[r] = true })
		sqltree.EachRangeVar(v.ProtoReflect(), func(r *pg.RangeVar) {
			if !with[r] && r.Schemaname == "" && slices.ContainsFunc(v.WithClause.Ctes, func(c *pg.Node) bool { return c.GetCommonTableExpr().Ctename == r.Relname }) && r != v.Relation {
				no("a WITH query is read beside its source")
			}
		})
		source.WithClause, v.WithClause = v.WithClause, nil
	}
	source.TargetList = []*pg.Node{sqltree.TargetNode(&pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: &pg.ColumnRef{Fields: []*pg.Node{{Node: &pg.Node_AStar{AStar: &pg.A_Star{}}}}}}}, "")}
	split.Read = len(m.Reads)
	m.Reads = append(m.Reads, wp.nested(source))
	if len(split.Columns) == len(table.ShardKey) {
		m.Split = split
	}
	v.SourceRelation = sqltree.TableNode(relationName(split.Read), name)
}

// joinedWith is the column of the source that a condition requires to be equal to column k of the
// target, "" if there is none. columns are the target's: a name alone of one of them is not the source's.
func joinedWith(on *pg.Node, target, source, k string, columns []string) string {
	if b := on.GetBoolExpr(); b != nil && b.Boolop == pg.BoolExprType_AND_EXPR {
		for _, arg := range b.Args {
			if c := joinedWith(arg, target, source, k, columns); c != "" {
				return c
			}
		}
		return ""
	}
	e := on.GetAExpr()
	if e == nil || e.Kind != pg.A_Expr_Kind_AEXPR_OP || sqltree.Operator(e) != "=" {
		return ""
	}
	for _, side := range [][2]*pg.Node{{e.Lexpr, e.Rexpr}, {e.Rexpr, e.Lexpr}} {
		l, r := sqltree.FieldNames(side[0].GetColumnRef()), sqltree.FieldNames(side[1].GetColumnRef())
		key := len(l) == 1 && l[0] == k || len(l) == 2 && l[0] == target && l[1] == k
		switch {
		case !key:
		case len(r) == 2 && r[0] == source:
			return r[1]
		case len(r) == 1 && !slices.Contains(columns, r[0]):
			return r[0]
		}
	}
	return ""
}
