package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// A subquery that stands for a table of the catalogue has no system columns (xmin, tableoid, ...). Those that a
// statement names are among its columns, before the others.

// frozen are the system columns of a row that has always been there.
var frozen = map[string]string{"xmin": "'2'::pg_catalog.xid", "xmax": "'0'::pg_catalog.xid", "cmin": "'0'::pg_catalog.cid", "cmax": "'0'::pg_catalog.cid", "ctid": "'(0,0)'::pg_catalog.tid"}

// subqueried are the tables of the catalogue for which a subquery may stand; the other relations are views.
var subqueried = wordSet("pg_attribute pg_class pg_constraint pg_database pg_depend pg_description pg_namespace pg_proc pg_trigger pg_type")

// refName is the name by which a statement refers to an item of FROM.
func refName(v *pg.RangeVar) string {
	if v.Alias != nil {
		return v.Alias.Aliasname
	}
	return v.Relname
}

// systemOf are the system columns that a statement may name of a relation of the catalogue.
func systemOf(n *pg.Node, r catalogRef) (system []string) {
	if schema, name, _ := strings.Cut(r.name, "."); schema != "pg_catalog" || !subqueried[name] {
		return nil
	}
	sqltree.Inspect(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.ColumnRef); ok {
			names := sqltree.FieldNames(c)
			if k := len(names) - 1; k >= 0 && sqltree.SystemColumns[names[k]] && (k == 0 || names[k-1] == refName(r.rel)) && !slices.Contains(system, names[k]) {
				system = append(system, names[k])
			}
		}
		return true
	})
	return system
}

// listed are columns at the beginning of a SELECT's list, each behind a prefix.
func listed(columns []string, prefix string) string {
	var b strings.Builder
	for _, c := range columns {
		b.WriteString(prefix + c + ", ")
	}
	return b.String()
}

// ofRelation is listed for rows that are made up: tableoid is the relation's, the others are those of a row of
// another relation, or those of a row that has always been there.
func ofRelation(columns []string, relation, prefix string) string {
	var b strings.Builder
	for _, c := range columns {
		switch {
		case c == "tableoid":
			b.WriteString(sqltext.QuoteString(relation) + "::pg_catalog.regclass::pg_catalog.oid, ")
		case prefix == "":
			b.WriteString(frozen[c] + ", ")
		default:
			b.WriteString(prefix + c + ", ")
		}
	}
	return b.String()
}

// showsWhole reports whether a statement may show all columns of an item of FROM: by *, or by its name as a value. Then
// the system columns would be among them.
func showsWhole(n *pg.Node, v *pg.RangeVar) bool {
	found := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch x := m.(type) {
		case *pg.SelectStmt:
			for _, t := range x.TargetList {
				if c := t.GetResTarget().GetVal().GetColumnRef(); c != nil && len(c.Fields) == 1 && c.Fields[0].GetAStar() != nil {
					found = found || inFrom(x.FromClause, v)
				}
			}
		case *pg.ColumnRef:
			names := sqltree.Strings(x.Fields)
			star := len(names) < len(x.Fields)
			found = found || len(names) > 0 && names[len(names)-1] == refName(v) && (star || len(names) == 1)
		}
		return !found
	})
	return found
}

// inFrom reports whether an item is one of FROM's, or of a join there.
func inFrom(from []*pg.Node, v *pg.RangeVar) bool {
	for _, n := range from {
		if n.GetRangeVar() == v {
			return true
		}
		if j := n.GetJoinExpr(); j != nil && inFrom([]*pg.Node{j.Larg, j.Rarg}, v) {
			return true
		}
	}
	return false
}
