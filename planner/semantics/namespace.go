package semantics

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// RangeVar is a relation's name as a node, from the parts of the name.
func RangeVar(names []string) *pg.RangeVar {
	v := &pg.RangeVar{Inh: true}
	if len(names) > 0 {
		v.Relname = names[len(names)-1]
	}
	if len(names) > 1 {
		v.Schemaname = names[len(names)-2]
	}
	return v
}

// KeyTypes are the types of a keyspace's shard key.
func (ns *Namespace) KeyTypes(name string) []keyspace.Type {
	ks, ok := ns.Snapshot.Keyspace(name)
	if !ok {
		return nil
	}
	return ks.Def().Types
}

// Namespace says what a name without a schema means, as PostgreSQL's namespace.c does: by the search path, in the shard
// map and in PostgreSQL's catalogue.
type Namespace struct {
	Snapshot *shardmap.Snapshot
	Path     []string // search_path
	// Privileged is the last thing named that takes an administrator, "" if nothing does: see Statement.Secret.
	Privileged string
	// steady are calls that are not volatile, though others of the name are: see noteSteady.
	steady map[*pg.FuncCall]bool
}

// The shards' role may read what PostgreSQL shows to superusers only, so the router has to keep it from its own users.

// secretRelations are the relations of pg_catalog that PostgreSQL gives nobody a right to read.
var secretRelations = map[string]bool{
	"pg_authid": true, "pg_shadow": true, "pg_user_mapping": true, "pg_statistic": true, "pg_statistic_ext_data": true,
	"pg_hba_file_rules": true, "pg_ident_file_mappings": true, "pg_file_settings": true, "pg_config": true,
}

// secretFunctions are the functions behind them.
var secretFunctions = map[string]bool{
	"pg_hba_file_rules": true, "pg_ident_file_mappings": true, "pg_show_all_file_settings": true, "pg_config": true,
}

// Secret notes that a statement reads what takes an administrator.
func (ns *Namespace) Secret(name string) { ns.Privileged = name }

// keepsSecret looks at a relation that a statement names. The list of users is the cluster's own secret.
func (ns *Namespace) keepsSecret(r Relation) Relation {
	switch {
	case r.Catalog && secretRelations[r.Name]:
		ns.Secret("table " + r.Name)
	case r.Virtual && r.Name == "users":
		ns.Secret("table cleave.users")
	}
	return r
}

// ReadsSequence is the query of cleave.sequences for a query of a sequence of the cluster as a table, which pg_dump makes; "" for
// any other statement. The routers take values in blocks, so that last_value is the last one of the newest block: what
// PostgreSQL has for a sequence with that CACHE (sequence.c).
func (ns *Namespace) ReadsSequence(tree *pg.ParseResult) string {
	s := tree.Stmts[0].Stmt.GetSelectStmt()
	if s == nil || len(s.FromClause) != 1 || s.Op != pg.SetOperation_SETOP_NONE || s.WhereClause != nil || s.WithClause != nil || s.IntoClause != nil || s.DistinctClause != nil || s.GroupClause != nil ||
		s.HavingClause != nil || s.WindowClause != nil || s.SortClause != nil || s.LimitCount != nil || s.LimitOffset != nil || s.LockingClause != nil {
		return ""
	}
	from := s.FromClause[0].GetRangeVar()
	if from == nil || from.Alias != nil || from.Catalogname != "" {
		return ""
	}
	q := ns.ClusterSequence(from)
	if q == nil {
		return ""
	}
	texts := map[string]string{"last_value": "COALESCE(taken, start)", "log_cnt": "CAST(0 AS bigint)", "is_called": "taken IS NOT NULL"}
	var out []string
	add := func(name string) { out = append(out, texts[name]+" AS "+name) }
	for _, n := range s.TargetList {
		t := n.GetResTarget()
		c := t.GetVal().GetColumnRef()
		switch {
		case c == nil || t.Name != "" || len(c.Fields) != 1:
			return ""
		case c.Fields[0].GetAStar() != nil:
			add("last_value")
			add("log_cnt")
			add("is_called")
		case texts[c.Fields[0].GetString_().GetSval()] != "":
			add(c.Fields[0].GetString_().GetSval())
		default:
			return ""
		}
	}
	return "SELECT " + strings.Join(out, ", ") + " FROM cleave.sequences WHERE schema = " + sqltext.QuoteString(q.Schema) + " AND name = " + sqltext.QuoteString(q.Name)
}

// field refuses a name behind a point that may be a call which is not let through.
func (ns *Namespace) field(m proto.Message, sc *Scope) {
	names, alone := sqltree.FieldOf(m)
	for _, name := range names {
		if !ns.calledByPoint(name) || alone && sc.resolve(sqltree.FieldNames(m.(*pg.ColumnRef))).Name != "" {
			continue
		}
		fail(sqlstate.Refusal("CLV-0238", ".%s may be a call of the function %s(), which is not let through in this form", name, name).
			WithHint("Call it as %s(...), or give the column another name.", name))
	}
}

// calledByPoint reports whether a function of a name goes beyond its arguments, or is not known to do so.
func (ns *Namespace) calledByPoint(name string) bool {
	return builtin.Field(name) && builtin.ReachesFurther(name) || ns.Snapshot.Unpromised(name)
}

// ClusterSequence returns the sequence of the cluster that a name means, nil if it
// is none.
func (ns *Namespace) ClusterSequence(v *pg.RangeVar) *shardmap.Sequence {
	if v.GetSchemaname() != "" {
		q, _ := ns.Snapshot.Sequence(v.Schemaname, v.Relname)
		return q
	}
	for _, s := range ns.Path {
		if q, ok := ns.Snapshot.Sequence(s, v.GetRelname()); ok {
			return q
		}
	}
	return nil
}

// TempSchema is the name by which a session's own temporary schema is meant. Others (pg_temp_3) may be another session's.
const TempSchema = "pg_temp"

// InTemp reports whether a name is of an object in the session's temporary schema.
func InTemp(names []string) bool { return len(names) == 2 && names[0] == TempSchema }

// A function of the user's is let into statements on sharded tables when it is
// known to read no table, so that it gives the same on every shard: it is declared
// IMMUTABLE (which forbids reading tables; PostgreSQL takes the declaration at its
// word, and so does the router), or its body in SQL or PL/pgSQL calls nothing but
// such functions and names no table. Bodies in other languages are not read. The
// defaults of parameters are read whatever is declared: they are evaluated where the
// call stands. And no function may act on its session, which other clients use as well.

// FunctionRules is the version of these rules: what a map says of functions by others does not count.
const FunctionRules = 3

// NoChange is a schema change that has functions read again, and changes nothing else, on every engine.
const NoChange = "CREATE SCHEMA IF NOT EXISTS public"

// UserFunction returns what the map knows of the functions that a call may mean,
// nil if one of them may read a table.
func (ns *Namespace) UserFunction(names []string) *shardmap.Function {
	name := names[len(names)-1]
	if ns.Snapshot.State().FunctionsRead != FunctionRules {
		return nil
	}
	if len(names) > 1 {
		f, ok := ns.Snapshot.Function(names[len(names)-2], name)
		if !ok || f.Kind == "u" && !builtin.Has(name) {
			return nil
		}
		return f
	}
	// Which of several schemas' functions is meant depends on the arguments: all of
	// the name are known to be pure, see PureFunctions.
	for _, s := range ns.Path {
		if f, ok := ns.Snapshot.Function(s, name); ok && (f.Kind != "u" || builtin.Has(name)) {
			return f
		}
	}
	return nil
}

// Hides returns the function of the user's that a name without a schema may mean in place of
// PostgreSQL's own, because its schema comes before pg_catalog in the search path; nil if none.
func (ns *Namespace) Hides(names []string) *shardmap.Function {
	if len(names) != 1 || !ns.Hidden() {
		return nil
	}
	for _, s := range ns.Path {
		if s == "pg_catalog" {
			break
		}
		if f, ok := ns.Snapshot.Function(s, names[0]); ok {
			return f
		}
	}
	return nil
}

// Native refuses a call that the router would take for one of PostgreSQL's own, and that may be of the user's.
func (ns *Namespace) Native(f *pg.FuncCall) {
	names := sqltree.Strings(f.Funcname)
	if own := ns.Hides(names); own != nil {
		fail(sqlstate.Refusal("CLV-0711", "function %s() may be %s(), which comes before PostgreSQL's own in search_path", names[0], own.QualifiedName()).
			WithHint("Write the schema: pg_catalog.%s() or %s().", names[0], own.QualifiedName()))
	}
}

// KindOf returns what Kind says of a call's function, or the same of a
// function of the user's: f, a, w, with v in front of a volatile one; "" if the
// call is of a function that is not let through.
func (ns *Namespace) KindOf(f *pg.FuncCall) string {
	names := sqltree.Strings(f.Funcname)
	if InTemp(names) {
		return "vf" // see tempCall
	}
	if len(names) == 1 || names[len(names)-2] == "pg_catalog" {
		if kind := builtin.Kind(names[len(names)-1]); kind != "" {
			if own := ns.Hides(names); own != nil && own.Kind == "u" {
				return ""
			} else if own != nil && own.Volatile {
				return "v" + strings.TrimPrefix(kind, "v")
			}
			return kind
		}
	}
	own := ns.UserFunction(names)
	switch {
	case own == nil || own.Kind == "t" || own.Kind == "p" || own.Kind == "u":
		return ""
	case own.Volatile:
		return "v" + own.Kind
	}
	return own.Kind
}
