package planner

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/virtual"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
)

// The schema cleave is on no shard, so that no shard's catalogue has it. A statement that names it finds it there
// all the same: what stands in place of a relation of the catalogue has the schema's rows too. Other statements see
// nothing of it, as lists of a user's objects show no system schemas: what pg_dump dumps and a migrator compares is
// what users made. docs/design/planner.md says which others were thought of.

// schemaColumns name a schema in a relation of the catalogue, objectColumns an object by its number.
var (
	schemaColumns = wordSet("nspname schemaname schema_name table_schema routine_schema specific_schema")
	objectColumns = wordSet("oid attrelid objoid relnamespace pronamespace")
)

var namesVirtual = regexp.MustCompile(`\b` + virtual.Schema + `\b`)

// positive are the operators of comparisons that hold for what is named.
var positive = wordSet("= ~ ~* ~~ ~~*")

// asksVirtual reports whether a statement asks the catalogue for the schema cleave: it compares a column that names
// a schema with the schema's name or a parameter, or one that names an object with the number of one of the
// schema's objects or a parameter, or it casts the name of one to regclass and its like.
func asksVirtual(n *pg.Node) bool {
	asks := false
	sqltree.Inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.A_Expr:
			if positive[sqltree.Operator(v)] && v.Lexpr != nil {
				asks = asks || comparesVirtual(v.Lexpr, v.Rexpr) || comparesVirtual(v.Rexpr, v.Lexpr)
			}
		case *pg.TypeCast:
			asks = asks || virtualObject(v) != 0
		}
		return !asks
	})
	return asks
}

// comparesVirtual reports whether side has a column that value compares with the schema or an object of it.
func comparesVirtual(side, value *pg.Node) bool {
	schema, object := false, false
	sqltree.Inspect(side, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.ColumnRef:
			if names := sqltree.FieldNames(v); len(names) > 0 {
				schema, object = schema || schemaColumns[names[len(names)-1]], object || objectColumns[names[len(names)-1]]
			}
		case *pg.SubLink:
			return false
		}
		return true
	})
	if !schema && !object {
		return false
	}
	found := false
	sqltree.Inspect(value, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.ParamRef:
			found = true
		case *pg.A_Const:
			text := v.GetSval().GetSval()
			n := int(v.GetIval().GetIval())
			found = found || schema && namesVirtual.MatchString(text) || object && (virtual.Objects(n) || namesObjects(text))
		case *pg.SubLink:
			return false
		}
		return !found
	})
	return found
}

// namesObjects reports whether a text is the OID of an object of the schema, or an array with such a number.
func namesObjects(text string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' }), func(s string) bool {
		n, err := strconv.Atoi(s)
		return err == nil && virtual.Objects(n)
	})
}

// virtualObject is the number of the schema or of an object of it that a cast names: 'cleave.shards'::regclass.
func virtualObject(c *pg.TypeCast) int {
	names := sqltree.Strings(c.TypeName.GetNames())
	if len(names) == 0 {
		return 0
	}
	return virtual.OIDOf(names[len(names)-1], c.Arg.GetAConst().GetSval().GetSval())
}

// templates say which row of a relation has what the schema's have in common with it: the owner, the rights, and
// the columns that a version of PostgreSQL adds.
var templates = map[string]string{
	"pg_catalog.pg_namespace": "cleave_c.nspname = 'pg_catalog'",
	"pg_catalog.pg_class":     "cleave_c.oid = 'pg_catalog.pg_views'::pg_catalog.regclass",
	"pg_catalog.pg_attribute": "cleave_c.attrelid = 'pg_catalog.pg_views'::pg_catalog.regclass AND cleave_c.attname = 'definition'",
	"pg_catalog.pg_proc":      "cleave_c.oid = 'pg_catalog.upper(text)'::pg_catalog.regprocedure",
}

// virtualCatalogs are the columns that name the database in the schema's rows.
var virtualCatalogs = wordSet("table_catalog catalog_name udt_catalog specific_catalog routine_catalog type_udt_catalog")

// virtualSource is what stands for a relation of the catalogue where the schema is asked for: its rows and the
// schema's, with the named system columns before them.
func virtualSource(relation string, system []string) string {
	rows := virtualJSON()[relation]
	// OFFSET keeps it one item of the plan, which is computed once and which an index of the shard's rows can stand beside.
	text, end := "SELECT "+listed(system, "")+"* FROM "+relation+" UNION ALL (SELECT "+ofRelation(system, relation, "")+"cleave_r.* FROM pg_catalog.jsonb_populate_recordset(", ", "+rows+") AS cleave_r OFFSET 0)"
	if t := templates[relation]; t != "" {
		return text + "(SELECT cleave_c FROM " + relation + " AS cleave_c WHERE " + t + ")" + end
	}
	// The keys that a relation has no column for are passed over.
	const database, owner = "pg_catalog.current_database()", "pg_catalog.pg_get_userbyid(10)"
	common := "pg_catalog.jsonb_build_object('viewowner', " + owner + ", 'schema_owner', " + owner
	columns, _ := databaseColumns(relation)
	for _, c := range columns {
		// Those of domains and collations are NULL, and so is udt_catalog of a routine.
		if virtualCatalogs[c] && (c != "udt_catalog" || relation != "information_schema.routines") {
			common += ", '" + c + "', " + database
		}
	}
	return text + "pg_catalog.jsonb_populate_record(NULL::" + relation + ", " + common + "))" + end
}

// virtualJSON are the schema's rows of each relation, as literals of type jsonb.
var virtualJSON = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for _, name := range virtual.Relations() {
		out[name] = jsonLiteral(virtual.Rows(name))
	}
	return out
})

func jsonLiteral(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is data of texts and numbers
	}
	return "CAST(" + sqltext.QuoteString(string(b)) + " AS pg_catalog.jsonb)"
}

// describedCalls has functions of the catalogue that take an object's OID say of the schema's objects what there
// is to say. The argument stays where it is, since other changes may be in it.
func (cr *catalogRewrite) describedCalls(n *pg.Node) (edits []sqltext.Edit) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		if _, ok := m.(*pg.RangeFunction); ok {
			return false // not an expression
		}
		f, ok := m.(*pg.FuncCall)
		if !ok || len(f.Args) == 0 || len(f.Args) > 2 {
			return true
		}
		name := nativeCall(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: f}})
		texts, ok := virtual.Described(name)
		if !ok || len(f.Funcname) == 1 && cr.hasFunction(name) {
			return true
		}
		from, to := cr.callSpan(f)
		open := cr.tokenAt(f.Location)
		for ; !cr.punct(open, '('); open++ {
		}
		arguments, as := "cleave_a.o", " AS pg_catalog.oid) AS o"
		if len(f.Args) == 2 {
			comma := cr.tokens()[cr.comma(open)]
			edits = append(edits, sqltext.Edit{From: comma.Start, To: comma.End, Text: as + ", CAST("})
			arguments, as = "cleave_a.o, cleave_a.c", " AS pg_catalog.name) AS c"
		}
		edits = append(edits,
			sqltext.Edit{From: from, To: cr.tokens()[open].End, Text: "(SELECT COALESCE(pg_catalog." + name + "(" + arguments + "), " + jsonLiteral(texts) +
				" OPERATOR(pg_catalog.->>) CAST(cleave_a.o AS pg_catalog.text)) AS " + name + " FROM (SELECT CAST("},
			sqltext.Edit{From: to - 1, To: to, Text: as + ") AS cleave_a)"})
		return true
	})
	return edits
}

// hasFunction reports whether the user has a function of a name.
func (ns *namespace) hasFunction(name string) bool {
	return slices.ContainsFunc(ns.snap.State().Functions, func(f shardmap.Function) bool { return f.Name == name })
}

// castObjects puts the numbers of the schema's objects in the place of their names in casts to regclass and its like.
func (src *sourceText) castObjects(n *pg.Node) (edits []sqltext.Edit) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.TypeCast); ok {
			if oid := virtualObject(c); oid != 0 {
				if i := src.tokenAt(c.Arg.GetAConst().Location); i >= 0 {
					edits = append(edits, sqltext.Edit{From: src.tokens()[i].Start, To: src.tokens()[i].End, Text: "'" + strconv.Itoa(oid) + "'"})
				}
			}
		}
		return true
	})
	return edits
}

// showVirtual is for a default shard that is a SQLite file: the engine has the schema's rows in relations of its own,
// each under the name of the one that it adds to.
func (cr *catalogRewrite) showVirtual(n *pg.Node) {
	edits := cr.castObjects(n)
	for _, r := range cr.catalogRefs {
		i := cr.tokenAt(r.rel.Location)
		if virtualJSON()[r.name] == "" || i < 0 {
			continue
		}
		from, to, ok := cr.relationSpan(i, r.rel)
		if !ok {
			continue
		}
		text := InternalSchema + "." + sqltext.QuoteAlways(r.name)
		if r.rel.Alias == nil {
			text += " AS " + sqltext.QuoteIdent(r.rel.Relname)
		}
		edits = append(edits, sqltext.Edit{From: from, To: to, Text: text})
	}
	if len(edits) == 0 {
		return
	}
	cr.st.Reusable = false
	if cr.fill != nil {
		cr.fill.edits = append(cr.fill.edits, edits...)
		return
	}
	cr.st.Text = sqltext.Splice(cr.sql, edits)
}
