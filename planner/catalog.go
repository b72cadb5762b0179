package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// The catalogue of the default shard answers for the cluster. What the router keeps
// there for itself is left out: the schema cleave_internal, the guards' triggers, and
// the calls that stand for nextval() in the defaults of columns. So pg_dump writes,
// psql shows and an ORM finds what the user declared. The statement's text is
// changed, where it names one of these relations; nothing is added to it else.

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

func refuseShared(name string) {
	if what := sharedState[name]; what != "" {
		fail(sqlstate.Refusal("CLV-0916", "%s shows %s of a shard's conversation, which sessions share", name, what).
			WithHint("SELECT * FROM cleave.sessions shows what sessions do"))
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

// catalogRef is a place where a statement names a relation of the catalogue.
type catalogRef struct {
	rel  *pg.RangeVar
	name string // with its schema
}

// relationSpan is where a relation's name, with its schema, stands in the text; it begins at token i. ok is false where it cannot be told.
func (src *sourceText) relationSpan(i int, rel *pg.RangeVar) (from, to int, ok bool) {
	ts := src.tokens()
	if rel.Schemaname == "" {
		return ts[i].Start, ts[i].End, true
	}
	if !src.punct(i+1, '.') || i+2 >= len(ts) {
		return 0, 0, false
	}
	return ts[i].Start, ts[i+2].End, true
}

// catalogRewrite makes of a statement about the catalogue one that a shard answers for the cluster.
type catalogRewrite struct {
	*typer
	*sourceText
	*touched
	*effects
	*madeValues

	st           *Statement
	defaultCalls []defaultCall
}

func (a *analyzer) catalogRewrite() *catalogRewrite {
	return &catalogRewrite{typer: &a.typer, sourceText: &a.sourceText, touched: &a.touched, effects: &a.effects, madeValues: &a.madeValues, st: a.st, defaultCalls: a.defaultCalls}
}

// showCatalog changes the text of a statement that the default shard answers; n is the statement.
func (cr *catalogRewrite) showCatalog(n *pg.Node) {
	st := cr.st
	if st.Kind != DefaultShard || st.Text != cr.sql || cr.lonely() || cr.changes {
		for _, r := range cr.catalogRefs {
			cr.ownSessions(r.name)
		}
		if st.Kind == DefaultShard && st.Text == cr.sql && !cr.changes && !cr.locks && asksVirtual(n) {
			cr.showVirtual(n)
		}
		return
	}
	named, asks := !cr.shardsDatabase(n), !cr.locks && asksVirtual(n)
	var edits []sqltext.Edit
	if asks {
		edits = append(cr.describedCalls(n), cr.castObjects(n)...)
	}
	for _, r := range cr.catalogRefs {
		filter, ok := catalogFilters[r.name]
		databases := named && r.name == "pg_catalog.pg_database"
		shown, _ := databaseColumns(r.name)
		if !ok && (databases || shown != nil && named) {
			filter, ok = "true", true
		}
		system := systemOf(n, r)
		source := r.name
		if asks && virtualJSON()[r.name] != "" {
			source = "(" + virtualSource(r.name, system) + ") AS cleave_v"
			if !ok {
				filter, ok = "true", true
			}
		}
		i := cr.tokenAt(r.rel.Location)
		depends := r.name == "pg_catalog.pg_depend"
		sessions, sess := "", false
		if i >= 0 && !cr.word(i-1, "table") && !cr.word(i-1, "only") {
			sessions, sess = cr.sessionRelation(r.name)
		}
		if !sess {
			cr.ownSessions(r.name)
		}
		if !ok && !depends && !sess || i < 0 || cr.word(i-1, "table") || cr.word(i-1, "only") {
			continue
		}
		from, to, whole := cr.relationSpan(i, r.rel)
		if !whole {
			continue
		}
		if len(system) > 0 && showsWhole(n, r.rel) {
			fail(sqlstate.Refusal("CLV-0917", "the system column %s beside all columns of %s is not supported", system[0], r.name).
				WithHint("name the columns"))
		}
		columns := "*"
		switch {
		case shown != nil && named:
		case r.name == "information_schema.columns":
			columns = strings.Replace(strings.Join(shown, ", "), "column_default", "CAST("+shownDefault("column_default")+" AS information_schema.character_data) AS column_default", 1)
		case source == r.name:
			columns = listed(system, "") + "*"
		}
		text := "(SELECT " + columns + " FROM " + source + " WHERE " + filter + ")"
		if shown != nil && named {
			text = shownRelation(n, r.rel, r.name, source, filter)
		}
		if databases {
			text = "(" + strings.ReplaceAll(databaseRows, "@", listed(system, "cleave_d.")) + ")"
		}
		if sess {
			text = sessions
		}
		if depends {
			text = "(" + strings.NewReplacer("@1", listed(system, "cleave_p."), "@2", ofRelation(system, r.name, "cleave_d.")).Replace(dependRows) + ")"
		}
		if r.rel.Alias == nil {
			text += " AS " + sqltext.QuoteIdent(r.rel.Relname)
		}
		edits = append(edits, sqltext.Edit{From: from, To: to, Text: text})
	}
	for _, f := range cr.defaultCalls {
		from, to := cr.callSpan(f.call)
		text := shownDefault(cr.sql[from:to])
		if f.unnamed {
			text += " AS pg_get_expr"
		}
		edits = append(edits, sqltext.Edit{From: from, To: to, Text: text})
	}
	if len(edits) == 0 {
		return
	}
	st.Reusable = false
	if cr.fill != nil {
		cr.fill.edits = append(cr.fill.edits, edits...)
		return
	}
	st.Text = sqltext.Splice(cr.sql, edits)
}

// defaultCall is a call of pg_get_expr(); unnamed: it is an output column by itself.
type defaultCall struct {
	call    *pg.FuncCall
	unnamed bool
}

// dumpSetting reads the statement with which pg_dump restricts itself to tables, if
// the server knows the setting. It counts for the transaction only: another session
// of the router's may be the next to use the shard's.
func (ss *sessionStatement) dumpSetting(s *pg.SelectStmt) bool {
	const setting = "restrict_nonsystem_relation_kind"
	f := s.TargetList[0].GetResTarget().GetVal().GetFuncCall()
	w := s.WhereClause.GetAExpr()
	if f == nil || w == nil || len(f.Args) != 3 || w.Rexpr.GetAConst().GetSval().GetSval() != setting || s.FromClause[0].GetRangeVar().GetRelname() != "pg_settings" {
		return false
	}
	names, value := sqltree.Strings(f.Funcname), f.Args[1].GetAConst().GetSval()
	if names[len(names)-1] != "set_config" || f.Args[0].GetColumnRef() == nil || value == nil {
		return false
	}
	ss.st.Kind, ss.st.ReadOnly, ss.st.ReturnsRows = DefaultShard, true, true
	ss.st.Text = "SELECT pg_catalog.set_config(name, " + sqltext.QuoteString(value.Sval) + ", true) FROM pg_catalog.pg_settings WHERE name = '" + setting + "'"
	return true
}

func isDefaultCall(f *pg.FuncCall) bool {
	names := sqltree.Strings(f.Funcname)
	return names[len(names)-1] == "pg_get_expr" && (len(names) == 1 || names[0] == "pg_catalog")
}
