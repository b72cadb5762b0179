package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A column's default now() is the time of the transaction, one for all rows of a
// statement. Each shard has a transaction of its own, so that a statement over several
// shards writes the default out, with the time that all its texts share.

// DependsOnTime reports whether the text of a column's default, as a shard prints it,
// depends on the time at which the transaction began.
func DependsOnTime(text string) bool { return text != "" && usesClockText(text) != nil }

// usesClockText parses an expression; nil if it does not depend on the time.
func usesClockText(text string) *pg.Node {
	tree, err := New(Limits{}).parse("SELECT " + text)
	if err != nil || len(tree.Stmts) != 1 {
		return nil
	}
	s := tree.Stmts[0].Stmt.GetSelectStmt()
	if s == nil || len(s.TargetList) != 1 || len(s.FromClause) > 0 {
		return nil
	}
	e := s.TargetList[0].GetResTarget().GetVal()
	if e == nil || !sqltree.UsesClock(e) {
		return nil
	}
	return e
}

// clockColumns are the columns of a table whose defaults depend on the time.
func clockColumns(t *shardmap.Table) []*shardmap.Column {
	var out []*shardmap.Column
	for i := range t.Columns {
		if t.Columns[i].Clocked != "" {
			out = append(out, &t.Columns[i])
		}
	}
	return out
}

// leftOut are those of them that a list of columns does not have.
func leftOut(t *shardmap.Table, cols []string) []*shardmap.Column {
	return slices.DeleteFunc(clockColumns(t), func(c *shardmap.Column) bool { return slices.Contains(cols, c.Name) })
}

// clockDefault is a column's default; the caller replaces its time.
func clockDefault(c *shardmap.Column) *pg.Node {
	e := usesClockText(c.Clocked)
	if e == nil {
		fail(sqlstate.Refusal("CLV-0613", "the default of column %s is not known well enough to be given on several shards at once", sqltext.QuoteIdent(c.Name)).
			WithHint("Give the column's value."))
	}
	return e
}

// clockDefaultText is the default with the shared time in it.
func (wp *writePlans) clockDefaultText(c *shardmap.Column) string {
	return strings.TrimPrefix(wp.written(sqltree.SelectOf([]*pg.Node{wp.clocked(clockDefault(c))}, nil, nil)), "SELECT ")
}

// clockRows adds the columns to the text of an INSERT with VALUES, of which the
// column list or the table's name ends at token at, and the brackets of the rows are
// rows. It returns the edits, which come after those of other values.
func (wp *writePlans) clockRows(t *shardmap.Table, cols []string, lists []*pg.Node, at int, named bool, rows [][2]int) []sqltext.Edit {
	if len(clockColumns(t)) == 0 {
		return nil
	}
	ts := wp.Tokens()
	width := len(lists[0].GetList().GetItems())
	given := cols[:min(width, len(cols))]
	missing := leftOut(t, given)
	texts := map[string]string{}
	text := func(c *shardmap.Column) string {
		if texts[c.Name] == "" {
			texts[c.Name] = wp.clockDefaultText(c)
		}
		return texts[c.Name]
	}
	var edits []sqltext.Edit
	x := &inserting{madeValues: wp.made}
	for r, l := range lists {
		var places [][2]int
		for i, item := range l.GetList().GetItems() {
			if item.GetSetToDefault() == nil || i >= len(cols) {
				continue
			}
			c := keyColumnOrUnknown(t, cols[i])
			if c.Clocked == "" {
				continue
			}
			if places == nil {
				places = x.items(rows[r][0], rows[r][1])
			}
			if i >= len(places) {
				sourcetext.LostPlace()
			}
			edits = append(edits, sqltext.Edit{From: places[i][0], To: places[i][1], Text: text(c)})
		}
		tail := ""
		for _, c := range missing {
			tail += ", " + text(c)
		}
		if tail != "" {
			end := ts[rows[r][1]].Start
			edits = append(edits, sqltext.Edit{From: end, To: end, Text: tail})
		}
	}
	if len(missing) == 0 {
		return edits
	}
	names := ""
	for _, c := range missing {
		names += ", " + sqltext.QuoteAlways(c.Name)
	}
	if named {
		end := ts[at].Start
		return append(edits, sqltext.Edit{From: end, To: end, Text: names})
	}
	end := ts[at].End
	if wp.made.fill != nil {
		// The list that names the columns of the router's values.
		for i := range wp.made.fill.edits {
			if e := &wp.made.fill.edits[i]; e.From == end && e.To == end && strings.HasPrefix(e.Text, " (") {
				e.Text = strings.TrimSuffix(e.Text, ")") + names + ")"
				return edits
			}
		}
	}
	list := ""
	for _, c := range given {
		list += ", " + sqltext.QuoteAlways(c)
	}
	return append(edits, sqltext.Edit{From: end, To: end, Text: " (" + (list + names)[2:] + ")"})
}

// clockSelect adds the columns to an INSERT whose SELECT is on every shard its own. It
// reports whether it could.
func clockSelect(s *pg.InsertStmt, sel *pg.SelectStmt, t *shardmap.Table, cols []string, q *semantics.Query) bool {
	width := len(q.Columns)
	if q.Open || width > len(cols) {
		return len(clockColumns(t)) == 0
	}
	missing := leftOut(t, cols[:width])
	if len(missing) == 0 {
		return true
	}
	const name = "cleave_rows"
	star := &pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: &pg.ColumnRef{Fields: []*pg.Node{sqltree.StringNode(name), {Node: &pg.Node_AStar{AStar: &pg.A_Star{}}}}}}}
	outputs := []*pg.Node{star}
	s.Cols = nil
	for _, c := range cols[:width] {
		s.Cols = append(s.Cols, resTarget(c))
	}
	for _, c := range missing {
		outputs = append(outputs, clockDefault(c))
		s.Cols = append(s.Cols, resTarget(c.Name))
	}
	from := &pg.Node{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{Subquery: sqltree.SelectNode(sel), Alias: &pg.Alias{Aliasname: name}}}}
	s.SelectStmt = sqltree.SelectOf(outputs, []*pg.Node{from}, nil)
	return true
}

// clockAssignments writes out SET column = DEFAULT.
func clockAssignments(t *shardmap.Table, list []*pg.Node) {
	found := false
	for _, n := range list {
		r := n.GetResTarget()
		c := keyColumnOrUnknown(t, r.GetName())
		found = found || c.Clocked != "" && semantics.AssignedExpr(r.GetVal()).GetSetToDefault() != nil
	}
	if !found {
		return
	}
	for _, n := range list {
		r := n.GetResTarget()
		r.Val = semantics.AssignedExpr(r.Val) // SET (a, b) = (x, y) is SET a = x, b = y
		if c := keyColumnOrUnknown(t, r.Name); c.Clocked != "" && r.Val.GetSetToDefault() != nil {
			r.Val = clockDefault(c)
		}
	}
}

// clockMerge adds the columns to the rows that a MERGE inserts.
func clockMerge(t *shardmap.Table, c *pg.MergeWhenClause) {
	if len(clockColumns(t)) == 0 {
		return
	}
	var cols []string
	for _, n := range c.TargetList {
		cols = append(cols, n.GetResTarget().GetName())
	}
	if len(cols) == 0 {
		cols = semantics.ColumnNames(t)
		cols = cols[:min(len(cols), len(c.Values))]
		for _, name := range cols {
			c.TargetList = append(c.TargetList, resTarget(name))
		}
	}
	for i := range c.Values {
		if i < len(cols) && c.Values[i].GetSetToDefault() != nil {
			if col := keyColumnOrUnknown(t, cols[i]); col.Clocked != "" {
				c.Values[i] = clockDefault(col)
			}
		}
	}
	for _, col := range leftOut(t, cols) {
		c.TargetList = append(c.TargetList, resTarget(col.Name))
		c.Values = append(c.Values, clockDefault(col))
	}
}
