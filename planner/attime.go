package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/functions"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Each shard has a transaction of its own, which began at a time of its own. In a
// transaction over several shards a statement of one shard gets the time of the first,
// so that now() is one time from BEGIN to COMMIT.

// AtTime returns the text of a statement of one shard with the time at which the
// transaction began as parameter Params+1, a timestamptz, if clock says so; "" if the statement does not
// depend on that time, and casts no texts that could be words for it. It is for statements inside transactions
// over several shards. Where asks is not nil, the types of literals are to be asked for first ([Planner.With]).
//
// Errors: 0A000 where the time cannot be written into the statement.
func (p *Planner) AtTime(st *plan.Statement, snap *shardmap.Snapshot, searchPath []string) (text string, clock bool, asks *plan.InputQuestion, err error) {
	tree, err := p.parse(st.Text)
	if err != nil || len(tree.Stmts) != 1 {
		return "", false, nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bailout)
			if !ok {
				panic(r)
			}
			text, clock, asks, err = "", false, nil, b.Err
		}
	}()
	a := p.analyzer(st.Text, snap, searchPath)
	a.Statement.Params = st.Params
	n := tree.Stmts[0].Stmt
	a.texts.guard = a.guarding()
	a.asks = asksOf(&a.Text, n)
	a.castingViews(n)
	guards := a.guards(n)
	if guards || datetime.HasSpecialIn(n) {
		p.markCasts(n, st.Text, snap, searchPath)
		if q := inputQuery(n); q != nil && a.readInputs(q) {
			return "", false, a.asks, nil
		}
		guards = a.guards(n) // the types of columns are known
	}
	a.elsewhereTimed(n)
	timedDefaults(&a.Namespace, n)
	a.clocked(n)
	if !a.texts.clock && !guards {
		return "", false, nil, nil
	}
	switch n.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt, *pg.Node_DeclareCursorStmt:
		text, err = a.text(n)
		return text, a.texts.clock, nil, err
	case *pg.Node_ExplainStmt:
		if !explainRuns(n.GetExplainStmt()) {
			return "", false, nil, nil
		}
	}
	if a.texts.clock {
		noTime("the statement")
	}
	fail(sqlstate.Refusal("CLV-0603", "the statement casts texts to times, and in a transaction over several shards each shard could read words among them by its own clock").
		WithHint("Run the statement in a transaction of its own."))
	return "", false, nil, nil
}

// inputQuery is what of a statement reads literals when it runs; nil if nothing does.
func inputQuery(n *pg.Node) *pg.Node {
	switch v := n.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt, *pg.Node_DeclareCursorStmt:
		return n
	case *pg.Node_ExplainStmt:
		if explainRuns(v.ExplainStmt) {
			return v.ExplainStmt.Query
		}
	}
	return nil
}

// markCasts binds a query, so that its casts are marked with what they read.
func (p *Planner) markCasts(n *pg.Node, sql string, snap *shardmap.Snapshot, path []string) {
	if d := n.GetDeclareCursorStmt(); d != nil {
		n = d.Query
	}
	switch n.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
	default:
		return
	}
	a := p.analyzer(sql, snap, path)
	a.OneShard.Several = true
	func() {
		defer func() {
			if r := recover(); r != nil {
				if _, refused := r.(bailout); !refused {
					panic(r)
				}
			}
		}()
		a.query(n)
		a.SettleBounds()
	}()
	a.CheckNow()
}

// castingViews puts the query of a view that casts texts to times in its place. A view that a statement of one shard
// names reads unsharded tables.
func (in *inputWords) castingViews(n *pg.Node) {
	for depth := 0; in.texts.guard && depth < semantics.ExpandMax; depth++ {
		found := false
		sqltree.Replace(n, func(n *pg.Node) *pg.Node {
			v := n.GetRangeVar()
			if v == nil {
				return n
			}
			r := in.Relation(v)
			if r.View == nil {
				return n
			}
			tree, err := in.p.parse(r.View.Definition)
			if err != nil || len(tree.Stmts) != 1 || !in.castsBelow(tree.Stmts[0].Stmt, 0) {
				return n
			}
			found = true
			alias := v.Alias
			if alias == nil {
				alias = &pg.Alias{Aliasname: v.Relname}
			}
			return &pg.Node{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{Subquery: tree.Stmts[0].Stmt, Alias: alias}}}
		})
		if !found {
			return
		}
	}
}

// castsBelow reports whether a query, or a view that it reads, casts what could be a word for the time.
func (in *inputWords) castsBelow(n *pg.Node, depth int) bool {
	found := in.guards(n)
	sqltree.Inspect(n, func(m proto.Message) bool {
		if v, ok := m.(*pg.RangeVar); ok && !found && depth < semantics.ExpandMax {
			if r := in.Relation(v); r.View != nil {
				tree, err := in.p.parse(r.View.Definition)
				found = err == nil && len(tree.Stmts) == 1 && in.castsBelow(tree.Stmts[0].Stmt, depth+1)
			}
		}
		return !found
	})
	return found
}

// explainRuns reports whether an EXPLAIN runs its statement.
func explainRuns(e *pg.ExplainStmt) bool {
	for _, o := range e.Options {
		if d := o.GetDefElem(); strings.EqualFold(d.GetDefname(), "analyze") {
			return sqltree.OptionOn(d)
		}
	}
	return false
}

// noTime refuses what would see another time than the transaction's.
func noTime(what string) {
	fail(sqlstate.Refusal("CLV-0604", "%s depends on the time at which the transaction began, and in a transaction over several shards each shard's own began at another", what).
		WithHint("Pass the time as a parameter, or run the statement in a transaction of its own."))
}

// elsewhereTimed refuses functions and views that take the time where the text does not show it.
func (in *inputWords) elsewhereTimed(n *pg.Node) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.FuncCall:
			if own := timedFunction(&in.Namespace, v); own != nil {
				noTime("function " + own.QualifiedName() + "()")
			}
		case *pg.RangeVar:
			if r := in.Relation(v); r.View != nil && in.p.timedView(r.View, in.Snapshot, 0) {
				noTime("the view " + r.View.QualifiedName())
			}
		}
		return true
	})
}

// timedFunction returns the function of the user's that a call means, if it uses the
// transaction's time.
func timedFunction(ns *semantics.Namespace, f *pg.FuncCall) *shardmap.Function {
	names := sqltree.Strings(f.Funcname)
	if len(names) == 0 || (len(names) == 1 && ns.Hides(names) == nil || len(names) > 1 && names[len(names)-2] == "pg_catalog") && builtin.Has(names[len(names)-1]) {
		return nil
	}
	if own := ns.UserFunction(names); own != nil && (own.Clocked || len(f.Args) < own.ClockedBelow) {
		return own
	}
	return nil
}

// timedView reports whether a view, or one that it reads, depends on the time.
func (p *Planner) timedView(v *shardmap.View, snap *shardmap.Snapshot, depth int) bool {
	tree, err := p.parse(v.Definition)
	if err != nil || len(tree.Stmts) != 1 || depth >= semantics.ExpandMax {
		return true
	}
	found := sqltree.UsesClock(tree.Stmts[0].Stmt)
	inside := p.analyzer(v.Definition, snap, nil)
	sqltree.Inspect(tree.Stmts[0].Stmt, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.FuncCall:
			found = found || timedFunction(&inside.Namespace, v) != nil
		case *pg.RangeVar:
			if r := inside.Relation(v); r.View != nil {
				found = found || p.timedView(r.View, snap, depth+1)
			}
		}
		return !found
	})
	return found
}

// timedDefaults writes out the defaults of columns that depend on the time.
func timedDefaults(ns *semantics.Namespace, n *pg.Node) {
	target := func(v *pg.RangeVar) *shardmap.Table {
		r := ns.Relation(v)
		if r.Table == nil && !isTemp(v) {
			fail(sqlstate.Refusal("CLV-0605", "the table %s is not in the shard map: the router does not know whether a default depends on the time at which the transaction began, which is another on each shard", sqltext.QuoteName(r.Schema, r.Name)).
				WithHint("Write to it in a transaction of its own."))
		}
		return r.Table
	}
	sqltree.Descend(n.ProtoReflect(), func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.InsertStmt:
			if t := target(v.Relation); t != nil {
				timedInsert(v, t)
			}
		case *pg.UpdateStmt:
			if t := ns.Relation(v.Relation).Table; t != nil {
				clockAssignments(t, v.TargetList)
			}
		case *pg.MergeStmt:
			t := target(v.Relation)
			for _, w := range v.MergeWhenClauses {
				if c := w.GetMergeWhenClause(); t != nil && c.CommandType == pg.CmdType_CMD_INSERT {
					clockMerge(t, c)
				} else if t != nil {
					clockAssignments(t, c.TargetList)
				}
			}
		case *pg.CopyStmt:
			if v.IsFrom && v.Relation != nil {
				if t := target(v.Relation); t != nil && len(v.Attlist) > 0 && len(leftOut(t, sqltree.Strings(v.Attlist))) > 0 {
					noTime("the default of column " + sqltext.QuoteIdent(leftOut(t, sqltree.Strings(v.Attlist))[0].Name))
				}
			}
		}
		return true
	})
}

// timedInsert adds the columns that an INSERT leaves out and whose defaults depend on
// the time.
func timedInsert(s *pg.InsertStmt, t *shardmap.Table) {
	if s.OnConflictClause != nil {
		clockAssignments(t, s.OnConflictClause.TargetList)
	}
	if len(clockColumns(t)) == 0 {
		return
	}
	var cols []string
	for _, c := range s.Cols {
		cols = append(cols, c.GetResTarget().GetName())
	}
	sel := s.SelectStmt.GetSelectStmt()
	if sel == nil { // DEFAULT VALUES
		row := &pg.List{}
		for _, c := range clockColumns(t) {
			s.Cols = append(s.Cols, resTarget(c.Name))
			row.Items = append(row.Items, clockDefault(c))
		}
		values := sqltree.EmptySelect()
		values.ValuesLists = []*pg.Node{{Node: &pg.Node_List{List: row}}}
		s.SelectStmt = sqltree.SelectNode(values)
		return
	}
	if len(cols) == 0 {
		width := widthOf(sel)
		if width < 0 {
			fail(sqlstate.Refusal("CLV-0606", "an INSERT of SELECT * without a list of columns into %s may leave out columns whose defaults depend on the time at which the transaction began, which is another on each shard", sqltext.QuoteName(t.Schema, t.Name)).
				WithHint("Name the columns."))
		}
		cols = semantics.ColumnNames(t)
		cols = cols[:min(len(cols), width)]
		for _, c := range cols {
			s.Cols = append(s.Cols, resTarget(c))
		}
	}
	missing := leftOut(t, cols)
	for _, c := range missing {
		s.Cols = append(s.Cols, resTarget(c.Name))
	}
	addOutputs(sel, missing, t, cols)
}

// widthOf is the number of columns that a query gives, -1 if a star hides it.
func widthOf(s *pg.SelectStmt) int {
	for s.Op != pg.SetOperation_SETOP_NONE {
		s = s.Larg
	}
	switch {
	case len(s.ValuesLists) > 0:
		return len(s.ValuesLists[0].GetList().GetItems())
	case sqltree.AnyStar(s.TargetList):
		return -1
	}
	return len(s.TargetList)
}

// addOutputs gives the rows of an INSERT the defaults of more columns, and those that
// stand as DEFAULT in VALUES.
func addOutputs(s *pg.SelectStmt, missing []*shardmap.Column, t *shardmap.Table, cols []string) {
	if s.Op != pg.SetOperation_SETOP_NONE {
		addOutputs(s.Larg, missing, t, cols)
		addOutputs(s.Rarg, missing, t, cols)
		return
	}
	for _, l := range s.ValuesLists {
		row := l.GetList()
		for i, item := range row.Items {
			if item.GetSetToDefault() == nil || i >= len(cols) {
				continue
			}
			if c := keyColumnOrUnknown(t, cols[i]); c.Clocked != "" {
				row.Items[i] = clockDefault(c)
			}
		}
		for _, c := range missing {
			row.Items = append(row.Items, clockDefault(c))
		}
	}
	if len(s.ValuesLists) == 0 {
		for _, c := range missing {
			s.TargetList = append(s.TargetList, sqltree.TargetNode(clockDefault(c), "cleave_default_"+c.Name))
		}
	}
}

// timedCall refuses, in a statement over several shards, a function of the user's that
// takes the time by itself.
func timedCall(ns *semantics.Namespace, n *pg.Node) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		if f, ok := m.(*pg.FuncCall); ok {
			if own := timedFunction(ns, f); own != nil {
				fail(functions.TimedCallError(own))
			}
		}
		return true
	})
}

// differsByRow reports whether a default that depends on the time is volatile besides.
// PostgreSQL calls timezone() so, for the sake of times without a date; it is not.
func differsByRow(ns *semantics.Namespace, n *pg.Node) bool {
	found := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		if f, ok := m.(*pg.FuncCall); ok && sqltree.CallName(f) != "timezone" {
			kind := ns.KindOf(f)
			found = found || kind == "" || strings.HasPrefix(kind, "v")
		}
		return !found
	})
	return found
}
