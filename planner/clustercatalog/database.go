package clustercatalog

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
)

// Clients connect to one database, and shards' databases have names of their own. Clients compare what they
// read with what they connected to, so that a statement says the former name: current_database() and
// current_catalog become constants, and relations of the catalogue show it (ShowCatalog). Where a statement needs
// the shard's own name, it sees that everywhere, so that comparisons inside of it hold: see shardsDatabase.

// Database is the name of the cluster's database for clients.
const Database = "cleave"

const databaseName = "CAST('" + Database + "' AS pg_catalog.name)"

// databaseRows are those of pg_database: the cluster is one database beside the templates.
const databaseRows = `SELECT @cleave_r.* FROM pg_catalog.pg_database AS cleave_d CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(cleave_d, '{"datname": "` + Database + `"}') AS cleave_r ` +
	`WHERE cleave_d.datname = pg_catalog.current_database() UNION ALL SELECT @cleave_d.* FROM pg_catalog.pg_database AS cleave_d WHERE cleave_d.datistemplate`

func isDatabaseColumn(name string) bool {
	return name == "catalog_name" || strings.HasSuffix(name, "_catalog")
}

// shownColumns is the list of a relation's columns with the client's name of the database.
func shownColumns(relation string, columns []string) string {
	var out []string
	for _, c := range columns {
		switch {
		case isDatabaseColumn(c):
			c = "CAST(CASE WHEN " + c + " IS NOT NULL THEN '" + Database + "' END AS information_schema.sql_identifier) AS " + c
		case relation == "information_schema.columns" && c == "column_default":
			c = "CAST(" + shownDefault(c) + " AS information_schema.character_data) AS " + c
		}
		out = append(out, c)
	}
	return strings.Join(out, ", ")
}

// databaseColumns are the columns of a relation of information_schema that names the database, nil for others. Those
// that are not in every version are apart, as varying.
func databaseColumns(relation string) (columns, varying []string) {
	schema, name, _ := strings.Cut(relation, ".")
	if schema != "information_schema" {
		return nil, nil
	}
	forms := map[string]int{}
	n, names := 0, false
	for r := range builtin.Catalog.RelationForms(schema, name) {
		n++
		for c := range r.Columns() {
			names = names || isDatabaseColumn(c.Name)
			if forms[c.Name]++; forms[c.Name] == 1 {
				columns = append(columns, c.Name)
			}
		}
	}
	if !names {
		return nil, nil
	}
	varies := func(c string) bool { return forms[c] < n }
	for _, c := range columns {
		if varies(c) {
			varying = append(varying, c)
		}
	}
	return slices.DeleteFunc(columns, varies), varying
}

// shownRelation is the subquery for a relation that names the database, in a statement: the same rows with the client's
// name of the database. The columns are listed, so that conditions reach the relation. Where columns that not every
// version has may be read, or all in their order, each row is changed as a whole: the shard's version says what it has.
func shownRelation(n *pg.Node, rel *pg.RangeVar, relation, source, filter string) string {
	columns, varying := databaseColumns(relation)
	named := func(c string) bool { return namesColumn(n, c) }
	if len(varying) > 0 && (wholeShown(n, rel) || slices.ContainsFunc(varying, named)) {
		return "(SELECT * FROM (SELECT cleave_r.* FROM " + source + " AS cleave_d CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(cleave_d, pg_catalog.jsonb_build_object(" +
			replacedNames(columns) + ")) AS cleave_r) AS cleave_w WHERE " + filter + ")"
	}
	return "(SELECT " + shownColumns(relation, columns) + " FROM " + source + " WHERE " + filter + ")"
}

// replacedNames are the keys and values of the columns that name the database, where they name one.
func replacedNames(columns []string) string {
	var out []string
	for _, c := range columns {
		if isDatabaseColumn(c) {
			out = append(out, "'"+c+"', CASE WHEN cleave_d."+c+" IS NOT NULL THEN '"+Database+"' END")
		}
	}
	return strings.Join(out, ", ")
}

// wholeShown is showsWhole, with what counts or compares all columns: names given to them, a join with a name of its
// own, a natural join.
func wholeShown(n *pg.Node, rel *pg.RangeVar) bool {
	whole := len(rel.Alias.GetColnames()) > 0
	sqltree.Inspect(n, func(m proto.Message) bool {
		j, ok := m.(*pg.JoinExpr)
		whole = whole || ok && (j.IsNatural || j.Alias != nil)
		return !whole
	})
	return whole || showsWhole(n, rel)
}

// namesColumn reports whether a statement may name a column.
func namesColumn(n *pg.Node, column string) bool {
	found := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.ColumnRef:
			names := sqltree.Strings(v.Fields)
			found = found || len(names) > 0 && names[len(names)-1] == column
		case *pg.JoinExpr:
			found = found || slices.Contains(sqltree.Strings(v.UsingClause), column)
		}
		return !found
	})
	return found
}

// databaseRelations show the names of databases beside pg_database.
var databaseRelations = set(`pg_prepared_xacts pg_replication_slots pg_stat_activity pg_stat_database pg_stat_database_conflicts pg_stat_progress_analyze pg_stat_progress_cluster
	pg_stat_progress_copy pg_stat_progress_create_index pg_stat_progress_vacuum`)

// shardsDatabase reports whether a statement sees the name of the shard's database: it reads what a server says of its
// databases, it looks relations up by names with the database's (TypeORM: (table_catalog || '.' || ..)::regclass), or it
// stores what the catalogue says.
func (cr *Rewrite) shardsDatabase(n *pg.Node) bool {
	if sh, ok := cr.snap.Shard(cr.snap.State().DefaultShard); !ok || !sh.Can().Servers {
		return true
	}
	own, catalog := false, false
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.RangeVar:
			plain := v.Schemaname == "" || v.Schemaname == "pg_catalog"
			catalog = catalog || v.Schemaname == "information_schema" || plain && v.Relname == "pg_database"
			own = own || plain && databaseRelations[v.Relname] && (v.Relname != "pg_stat_activity" || cr.OfProcesses())
		case *pg.TypeCast:
			own = own || serverdependent.IsObjectType(v.TypeName) && namesDatabase(v.Arg)
		case *pg.FuncCall:
			own = own || strings.HasPrefix(sqltree.CallName(v), "to_reg") && len(v.Args) > 0 && namesDatabase(v.Args[0])
		}
		return !own
	})
	s := n.GetSelectStmt()
	return own || catalog && (s == nil || s.IntoClause != nil)
}

// namesDatabase reports whether an expression names the database.
func namesDatabase(n *pg.Node) bool {
	found := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.ColumnRef); ok {
			names := sqltree.FieldNames(c)
			found = found || len(names) > 0 && isDatabaseColumn(names[len(names)-1])
		}
		found = found || databaseCall(m) != ""
		return !found
	})
	return found
}

// databaseCall is the name of a call that gives the database's name, "" for anything else.
func databaseCall(m proto.Message) string {
	switch v := m.(type) {
	case *pg.SQLValueFunction:
		if v.Op == pg.SQLValueFunctionOp_SVFOP_CURRENT_CATALOG {
			return "current_catalog"
		}
	case *pg.FuncCall:
		names := sqltree.Strings(v.Funcname)
		if len(v.Args) == 0 && v.Over == nil && !v.AggStar && sqltree.CallName(v) == "current_database" && (len(names) == 1 || len(names) == 2 && names[0] == "pg_catalog") {
			return "current_database"
		}
	}
	return ""
}

// databaseArgument is the argument of a function that takes the name of a database, nil for another call.
func databaseArgument(f *pg.FuncCall) *pg.Node {
	switch name := sqltree.CallName(f); {
	case name == "pg_database_size" && len(f.Args) == 1, name == "has_database_privilege" && len(f.Args) == 2:
		return f.Args[0]
	case name == "has_database_privilege" && len(f.Args) == 3:
		return f.Args[1]
	}
	return nil
}

// SaysDatabase reports whether a text may have something that OwnDatabase changes.
func SaysDatabase(sql string) bool {
	text := strings.ToLower(sql)
	for _, w := range []string{"current_database", "current_catalog", "pg_database_size", "has_database_privilege"} {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// OwnDatabase is the text of a statement that names the cluster's database, with that name in it; "" if it is the
// statement's already.
func (cr *Rewrite) OwnDatabase(tree *pg.ParseResult) string {
	root := tree.Stmts[0].Stmt
	if cr.shardsDatabase(root) {
		return ""
	}
	for i := range cr.snap.State().Functions {
		if cr.snap.State().Functions[i].Name == "current_database" {
			return ""
		}
	}
	kept, shown, from := map[proto.Message]bool{}, map[proto.Message]bool{}, map[proto.Message]*pg.RangeFunction{}
	var edits []sqltext.Edit
	sqltree.Inspect(root, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.FuncCall:
			arg := databaseArgument(v)
			if arg == nil {
				break
			}
			sqltree.Inspect(arg, func(m proto.Message) bool {
				kept[m] = databaseCall(m) != ""
				return true
			})
			if c := arg.GetAConst(); c.GetSval().GetSval() == Database {
				if i := cr.TokenAt(c.Location); i >= 0 {
					edits = append(edits, sqltext.Edit{From: cr.Tokens()[i].Start, To: cr.Tokens()[i].End, Text: "pg_catalog.current_database()"})
				}
			}
			if c := arg.GetColumnRef(); c != nil {
				names := sqltree.FieldNames(c)
				i := cr.TokenAt(c.Location)
				last := i + 2*(len(names)-1)
				if ts := cr.Tokens(); i >= 0 && len(names) > 0 && names[len(names)-1] == "datname" && last < len(ts) {
					name := cr.SQL[ts[i].Start:ts[last].End]
					edits = append(edits, sqltext.Edit{From: ts[i].Start, To: ts[last].End, Text: "CASE " + name + " WHEN '" + Database + "' THEN pg_catalog.current_database() ELSE " + name + " END"})
				}
			}
		case *pg.ResTarget:
			val := v.Val
			for val.GetTypeCast() != nil || val.GetCollateClause() != nil {
				if c := val.GetTypeCast(); c != nil {
					val = c.Arg
				} else {
					val = val.GetCollateClause().Arg
				}
			}
			if v.Name == "" && val.GetFuncCall() != nil {
				shown[val.GetFuncCall()] = true
			} else if v.Name == "" && val.GetSqlvalueFunction() != nil {
				shown[val.GetSqlvalueFunction()] = true
			}
		case *pg.RangeFunction:
			if len(v.Functions) == 1 && !v.Ordinality && !v.IsRowsfrom && len(v.Coldeflist) == 0 {
				if items := v.Functions[0].GetList().GetItems(); len(items) > 0 && items[0].GetFuncCall() != nil {
					from[items[0].GetFuncCall()] = v
				} else if len(items) > 0 && items[0].GetSqlvalueFunction() != nil {
					from[items[0].GetSqlvalueFunction()] = v
				}
			}
		}
		return true
	})
	lost := false
	sqltree.Inspect(root, func(m proto.Message) bool {
		name := databaseCall(m)
		if name == "" || kept[m] {
			return true
		}
		e, ok := cr.DatabaseSpan(m)
		lost = lost || !ok
		switch f := from[m]; {
		case f != nil && f.Alias == nil:
			e.Text = "(SELECT " + databaseName + " AS " + name + ") AS " + name
		case f != nil && len(f.Alias.Colnames) == 0:
			e.Text = "(SELECT " + databaseName + " AS " + sqltext.QuoteAlways(f.Alias.Aliasname) + ")"
		case f != nil:
			e.Text = "(SELECT " + databaseName + ")"
		case shown[m]:
			e.Text = "(SELECT " + databaseName + " AS " + name + ")"
		default:
			e.Text = databaseName
		}
		edits = append(edits, e)
		return true
	})
	if lost || len(edits) == 0 {
		return ""
	}
	return sqltext.Splice(cr.SQL, edits)
}

// set is the set of the words of a text.
func set(text string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		out[w] = true
	}
	return out
}
