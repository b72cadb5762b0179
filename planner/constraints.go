package planner

import pg "github.com/pganalyze/pg_query_go/v6"

// Constraint is a constraint's name in SET CONSTRAINTS; Schema is "" if the search_path finds it.
type Constraint struct{ Schema, Name string }

// NamedConstraints reads SET CONSTRAINTS, as [Statement.Text] has it. none: it is
// SET CONSTRAINTS ALL, or another statement.
func NamedConstraints(text string) (names []Constraint, deferred bool) {
	tree, err := pg.Parse(text)
	if err != nil || len(tree.Stmts) != 1 {
		return nil, false
	}
	set := tree.Stmts[0].Stmt.GetConstraintsSetStmt()
	for _, n := range set.GetConstraints() {
		names = append(names, Constraint{n.GetRangeVar().GetSchemaname(), n.GetRangeVar().GetRelname()})
	}
	return names, set.GetDeferred()
}
