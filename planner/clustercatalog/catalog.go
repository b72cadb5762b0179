package clustercatalog

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
	"github.com/cleavedb/cleave/planner/bail"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// The catalogue of the default shard answers for the cluster. What the router keeps
// there for itself is left out: the schema cleave_internal, the guards' triggers, and
// the calls that stand for nextval() in the defaults of columns. So pg_dump writes,
// psql shows and an ORM finds what the user declared. The statement's text is
// changed, where it names one of these relations; nothing is added to it else.

// internalSchema is where the router keeps its own objects on a shard.
const internalSchema = "cleave_internal"

// internalSpace is the schema's object id on the shard that answers.
const internalSpace = "(SELECT cleave_n.oid FROM pg_catalog.pg_namespace AS cleave_n WHERE cleave_n.nspname = 'cleave_internal')"

// catalogFilters say which rows of a relation are the user's.
var catalogFilters = map[string]string{
	"pg_catalog.pg_namespace":  "nspname <> 'cleave_internal'",
	"pg_catalog.pg_class":      "relnamespace IS DISTINCT FROM " + internalSpace,
	"pg_catalog.pg_proc":       "pronamespace IS DISTINCT FROM " + internalSpace,
	"pg_catalog.pg_type":       "typnamespace IS DISTINCT FROM " + internalSpace,
	"pg_catalog.pg_trigger":    "tgname NOT IN ('~cleave_guard', '~cleave_guard_truncate')",
	"pg_catalog.pg_constraint": "connamespace IS DISTINCT FROM " + internalSpace,

	"information_schema.triggers":                 userTriggers,
	"information_schema.triggered_update_columns": userTriggers,
}

const userTriggers = "trigger_name NOT IN ('~cleave_guard', '~cleave_guard_truncate')"

// The relations of the catalogue with a column that names a schema, by this column.
func init() {
	for column, relations := range map[string]string{
		"schemaname": "pg_catalog: pg_tables pg_indexes pg_views pg_matviews pg_sequences pg_policies pg_rules pg_stats pg_stats_ext pg_stats_ext_exprs pg_stat_all_tables pg_stat_user_tables " +
			"pg_stat_xact_all_tables pg_stat_xact_user_tables pg_stat_all_indexes pg_stat_user_indexes pg_statio_all_tables pg_statio_user_tables pg_statio_all_indexes pg_statio_user_indexes " +
			"pg_statio_all_sequences pg_statio_user_sequences pg_stat_user_functions pg_stat_xact_user_functions",
		"schema_name": "information_schema: schemata",
		"table_schema": "information_schema: tables columns table_constraints key_column_usage column_privileges column_udt_usage column_domain_usage column_column_usage column_options constraint_column_usage " +
			"constraint_table_usage role_column_grants role_table_grants table_privileges views view_column_usage view_table_usage view_routine_usage",
		"constraint_schema":        "information_schema: check_constraints referential_constraints domain_constraints check_constraint_routine_usage",
		"object_schema":            "information_schema: data_type_privileges element_types usage_privileges role_usage_grants",
		"specific_schema":          "information_schema: parameters routine_column_usage routine_privileges routine_routine_usage routine_sequence_usage routine_table_usage role_routine_grants",
		"routine_schema":           "information_schema: routines",
		"sequence_schema":          "information_schema: sequences",
		"udt_schema":               "information_schema: attributes role_udt_grants udt_privileges",
		"user_defined_type_schema": "information_schema: user_defined_types",
		"domain_schema":            "information_schema: domains domain_udt_usage",
	} {
		schema, names, _ := strings.Cut(relations, ":")
		for _, name := range strings.Fields(names) {
			catalogFilters[schema+"."+name] = column + " IS DISTINCT FROM 'cleave_internal'"
		}
	}
}

// sharedState are the relations, and the functions behind them, that show what is prepared and open in the
// shard's conversation, by other names than the client's, and with what other clients left there.
var sharedState = map[string]string{
	"pg_prepared_statement": "the statements",
	"pg_cursors":            "the cursors", "pg_cursor": "the cursors",
}

// RefuseShared refuses a relation or function about what sessions share in a shard's conversation.
func RefuseShared(name string) {
	if what := sharedState[name]; what != "" {
		bail.With(sqlstate.Refusal("CLV-0916", "%s shows %s of a shard's conversation, which sessions share", name, what).
			WithHint("SELECT * FROM cleave.sessions shows what sessions do."))
	}
}

// dependRows are those of pg_depend, and one for each default that takes its values
// from a sequence of the cluster: pg_dump writes the sequence first then.
const dependRows = `SELECT @1classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype FROM pg_catalog.pg_depend AS cleave_p UNION ALL ` +
	`SELECT @2'pg_catalog.pg_attrdef'::pg_catalog.regclass::pg_catalog.oid, cleave_d.oid, 0, 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid, cleave_s.oid, 0, 'n'::pg_catalog."char" ` +
	`FROM pg_catalog.pg_attrdef AS cleave_d CROSS JOIN LATERAL (SELECT pg_catalog.to_regclass(pg_catalog.replace(pg_catalog.substring(pg_catalog.pg_get_expr(cleave_d.adbin, cleave_d.adrelid), ` +
	`'^cleave_internal\.nextval\(''((?:[^'']|'''')*)''::text'), '''''', ''''))::pg_catalog.oid AS oid) AS cleave_s WHERE cleave_s.oid IS NOT NULL`

// shownDefault makes of a default's text on a shard what was declared.
func shownDefault(expr string) string {
	return `pg_catalog.regexp_replace(pg_catalog.regexp_replace(` + expr +
		`, 'cleave_internal\.nextval\((''([^'']|'''')*'')::text(, ''(always|by default)''::text)?\)', 'nextval(\1::regclass)', 'g')` +
		`, 'cleave_internal\.(next_id|uuidv7)\(\)', 'cleave.\1()', 'g')`
}

// Ref is a place where a statement names a relation of the catalogue.
type Ref struct {
	Rel  *pg.RangeVar
	Name string // with its schema
}

// Analysis is what a statement about the catalogue needs of its analysis.
type Analysis interface {
	// Lonely reports whether the default shard has no sequences of its own: a SQLite file.
	Lonely() bool
	// HasFunction reports whether the user has a function of a name.
	HasFunction(name string) bool
	// SessionRelation is what stands in place of a relation about sessions; ok is false if the shard's own is meant.
	SessionRelation(name string) (text string, ok bool)
	// OwnSessions refuses a relation about one's own session.
	OwnSessions(name string)
	// Filled gives changes of the text to the values that the router makes; false if it makes none.
	Filled(edits []sqltext.Edit) bool
}

// Rewrite makes of a statement about the catalogue one that a shard answers for the cluster.
type Rewrite struct {
	*sourcetext.Text
	Analysis

	snap *shardmap.Snapshot
	st   *plan.Statement
	// Changes and Locks: the statement changes or locks rows.
	Changes, Locks bool
	// Refs are the places where it names relations of the catalogue, DefaultCalls its calls of pg_get_expr().
	Refs         []Ref
	DefaultCalls []DefaultCall
}

// New is the rewrite of a statement.
func New(src *sourcetext.Text, snap *shardmap.Snapshot, st *plan.Statement, analysis Analysis) *Rewrite {
	return &Rewrite{Text: src, Analysis: analysis, snap: snap, st: st}
}

// ShowCatalog changes the text of a statement that the default shard answers; n is the statement.
func (cr *Rewrite) ShowCatalog(n *pg.Node) {
	st := cr.st
	if st.Kind != plan.DefaultShard || st.Text != cr.SQL || cr.Lonely() || cr.Changes {
		for _, r := range cr.Refs {
			cr.OwnSessions(r.Name)
		}
		if st.Kind == plan.DefaultShard && st.Text == cr.SQL && !cr.Changes && !cr.Locks && asksVirtual(n) {
			cr.showVirtual(n)
		}
		return
	}
	named, asks := !cr.shardsDatabase(n), !cr.Locks && asksVirtual(n)
	var edits []sqltext.Edit
	if asks {
		edits = append(cr.describedCalls(n), castObjects(cr.Text, n)...)
	}
	for _, r := range cr.Refs {
		filter, ok := catalogFilters[r.Name]
		databases := named && r.Name == "pg_catalog.pg_database"
		shown, _ := databaseColumns(r.Name)
		if !ok && (databases || shown != nil && named) {
			filter, ok = "true", true
		}
		system := systemOf(n, r)
		source := r.Name
		if asks && virtualJSON()[r.Name] != "" {
			source = "(" + virtualSource(r.Name, system) + ") AS cleave_v"
			if !ok {
				filter, ok = "true", true
			}
		}
		i := cr.TokenAt(r.Rel.Location)
		depends := r.Name == "pg_catalog.pg_depend"
		sessions, sess := "", false
		if i >= 0 && !cr.Word(i-1, "table") && !cr.Word(i-1, "only") {
			sessions, sess = cr.SessionRelation(r.Name)
		}
		if !sess {
			cr.OwnSessions(r.Name)
		}
		if !ok && !depends && !sess || i < 0 || cr.Word(i-1, "table") || cr.Word(i-1, "only") {
			continue
		}
		from, to, whole := cr.RelationSpan(i, r.Rel)
		if !whole {
			continue
		}
		if len(system) > 0 && showsWhole(n, r.Rel) {
			bail.With(sqlstate.Refusal("CLV-0917", "the system column %s beside all columns of %s is not supported", system[0], r.Name).
				WithHint("Name the columns."))
		}
		columns := "*"
		switch {
		case shown != nil && named:
		case r.Name == "information_schema.columns":
			columns = strings.Replace(strings.Join(shown, ", "), "column_default", "CAST("+shownDefault("column_default")+" AS information_schema.character_data) AS column_default", 1)
		case source == r.Name:
			columns = listed(system, "") + "*"
		}
		text := "(SELECT " + columns + " FROM " + source + " WHERE " + filter + ")"
		if shown != nil && named {
			text = shownRelation(n, r.Rel, r.Name, source, filter)
		}
		if databases {
			text = "(" + strings.ReplaceAll(databaseRows, "@", listed(system, "cleave_d.")) + ")"
		}
		if sess {
			text = sessions
		}
		if depends {
			text = "(" + strings.NewReplacer("@1", listed(system, "cleave_p."), "@2", ofRelation(system, r.Name, "cleave_d.")).Replace(dependRows) + ")"
		}
		if r.Rel.Alias == nil {
			text += " AS " + sqltext.QuoteIdent(r.Rel.Relname)
		}
		edits = append(edits, sqltext.Edit{From: from, To: to, Text: text})
	}
	for _, f := range cr.DefaultCalls {
		from, to := cr.CallSpan(f.Call)
		text := shownDefault(cr.SQL[from:to])
		if f.Unnamed {
			text += " AS pg_get_expr"
		}
		edits = append(edits, sqltext.Edit{From: from, To: to, Text: text})
	}
	if len(edits) == 0 {
		return
	}
	st.Reusable = false
	if cr.Filled(edits) {
		return
	}
	st.Text, st.Shown = sqltext.Splice(cr.SQL, edits), true
}

// DefaultCall is a call of pg_get_expr(); unnamed: it is an output column by itself.
type DefaultCall struct {
	Call    *pg.FuncCall
	Unnamed bool
}

// IsDefaultCall reports whether a call is one of pg_get_expr().
func IsDefaultCall(f *pg.FuncCall) bool {
	names := sqltree.Strings(f.Funcname)
	return names[len(names)-1] == "pg_get_expr" && (len(names) == 1 || names[0] == "pg_catalog")
}

// A subquery that stands for a table of the catalogue has no system columns (xmin, tableoid, ...). Those that a
// statement names are among its columns, before the others.

// frozen are the system columns of a row that has always been there.
var frozen = map[string]string{"xmin": "'2'::pg_catalog.xid", "xmax": "'0'::pg_catalog.xid", "cmin": "'0'::pg_catalog.cid", "cmax": "'0'::pg_catalog.cid", "ctid": "'(0,0)'::pg_catalog.tid"}

// subqueried are the tables of the catalogue for which a subquery may stand; the other relations are views.
var subqueried = set("pg_attribute pg_class pg_constraint pg_database pg_depend pg_description pg_namespace pg_proc pg_trigger pg_type")

// refName is the name by which a statement refers to an item of FROM.
func refName(v *pg.RangeVar) string {
	if v.Alias != nil {
		return v.Alias.Aliasname
	}
	return v.Relname
}

// systemOf are the system columns that a statement may name of a relation of the catalogue.
func systemOf(n *pg.Node, r Ref) (system []string) {
	if schema, name, _ := strings.Cut(r.Name, "."); schema != "pg_catalog" || !subqueried[name] {
		return nil
	}
	sqltree.Inspect(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.ColumnRef); ok {
			names := sqltree.FieldNames(c)
			if k := len(names) - 1; k >= 0 && sqltree.SystemColumns[names[k]] && (k == 0 || names[k-1] == refName(r.Rel)) && !slices.Contains(system, names[k]) {
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

// The schema cleave is on no shard, so that no shard's catalogue has it. A statement that names it finds it there
// all the same: what stands in place of a relation of the catalogue has the schema's rows too. Other statements see
// nothing of it, as lists of a user's objects show no system schemas: what pg_dump dumps and a migrator compares is
// what users made. docs/design/planner.md says which others were thought of.

// schemaColumns name a schema in a relation of the catalogue, objectColumns an object by its number.
var (
	schemaColumns = set("nspname schemaname schema_name table_schema routine_schema specific_schema")
	objectColumns = set("oid attrelid objoid relnamespace pronamespace")
)

var namesVirtual = regexp.MustCompile(`\b` + virtual.Schema + `\b`)

// positive are the operators of comparisons that hold for what is named.
var positive = set("= ~ ~* ~~ ~~*")

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
var virtualCatalogs = set("table_catalog catalog_name udt_catalog specific_catalog routine_catalog type_udt_catalog")

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
func (cr *Rewrite) describedCalls(n *pg.Node) (edits []sqltext.Edit) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		if _, ok := m.(*pg.RangeFunction); ok {
			return false // not an expression
		}
		f, ok := m.(*pg.FuncCall)
		if !ok || len(f.Args) == 0 || len(f.Args) > 2 {
			return true
		}
		name := sqltree.NativeCall(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: f}})
		texts, ok := virtual.Described(name)
		if !ok || len(f.Funcname) == 1 && cr.HasFunction(name) {
			return true
		}
		from, to := cr.CallSpan(f)
		open := cr.TokenAt(f.Location)
		for ; !cr.Punct(open, '('); open++ {
		}
		arguments, as := "cleave_a.o", " AS pg_catalog.oid) AS o"
		if len(f.Args) == 2 {
			comma := cr.Tokens()[cr.Comma(open)]
			edits = append(edits, sqltext.Edit{From: comma.Start, To: comma.End, Text: as + ", CAST("})
			arguments, as = "cleave_a.o, cleave_a.c", " AS pg_catalog.name) AS c"
		}
		edits = append(edits,
			sqltext.Edit{From: from, To: cr.Tokens()[open].End, Text: "(SELECT COALESCE(pg_catalog." + name + "(" + arguments + "), " + jsonLiteral(texts) +
				" OPERATOR(pg_catalog.->>) CAST(cleave_a.o AS pg_catalog.text)) AS " + name + " FROM (SELECT CAST("},
			sqltext.Edit{From: to - 1, To: to, Text: as + ") AS cleave_a)"})
		return true
	})
	return edits
}

// showVirtual is for a default shard that is a SQLite file: the engine has the schema's rows in relations of its own,
// each under the name of the one that it adds to.
func (cr *Rewrite) showVirtual(n *pg.Node) {
	edits := castObjects(cr.Text, n)
	for _, r := range cr.Refs {
		i := cr.TokenAt(r.Rel.Location)
		if virtualJSON()[r.Name] == "" || i < 0 {
			continue
		}
		from, to, ok := cr.RelationSpan(i, r.Rel)
		if !ok {
			continue
		}
		text := internalSchema + "." + sqltext.QuoteAlways(r.Name)
		if r.Rel.Alias == nil {
			text += " AS " + sqltext.QuoteIdent(r.Rel.Relname)
		}
		edits = append(edits, sqltext.Edit{From: from, To: to, Text: text})
	}
	if len(edits) == 0 {
		return
	}
	cr.st.Reusable = false
	if cr.Filled(edits) {
		return
	}
	cr.st.Text = sqltext.Splice(cr.SQL, edits)
}

// castObjects puts the numbers of the schema's objects in the place of their names in casts to regclass and its like.
func castObjects(src *sourcetext.Text, n *pg.Node) (edits []sqltext.Edit) {
	sqltree.Inspect(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.TypeCast); ok {
			if oid := virtualObject(c); oid != 0 {
				if i := src.TokenAt(c.Arg.GetAConst().Location); i >= 0 {
					edits = append(edits, sqltext.Edit{From: src.Tokens()[i].Start, To: src.Tokens()[i].End, Text: "'" + strconv.Itoa(oid) + "'"})
				}
			}
		}
		return true
	})
	return edits
}
