package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/ownership"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sourcetext"
)

// ownershipOf confines a text, which its tree has become, to the rows that a shard owns of some tables.
func ownershipOf(tree *pg.Node, text string, uses ...*use) *ownership.Filter {
	tables := make([]ownership.NamedTable, len(uses))
	for i, u := range uses {
		tables[i] = ownership.NamedTable{Ref: u.ref, Table: u.rel.table}
	}
	o, ok := ownership.Sites(tree, text, tables...)
	if !ok {
		sourcetext.LostPlace()
	}
	return o
}

// ownTemplate is the template of a tree, confined by the uses.
func (wp *writePlans) ownTemplate(tree *pg.Node, uses ...*use) plan.Template {
	text := wp.written(tree)
	t := plan.NewTemplate(text)
	t.Ownership = ownershipOf(tree, text, uses...)
	return t
}
