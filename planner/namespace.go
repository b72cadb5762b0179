package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// namespace says what a name without a schema means, as PostgreSQL's namespace.c does: by the search path, in the shard
// map and in PostgreSQL's catalogue.
type namespace struct {
	snap *shardmap.Snapshot
	path []string // search_path
	// privileged is the last thing named that takes an administrator, "" if nothing does: see Statement.Secret.
	privileged string
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

// secret notes that a statement reads what takes an administrator.
func (ns *namespace) secret(name string) { ns.privileged = name }

// keepsSecret looks at a relation that a statement names. The list of users is the cluster's own secret.
func (ns *namespace) keepsSecret(r relation) relation {
	switch {
	case r.catalog && secretRelations[r.name]:
		ns.secret("table " + r.name)
	case r.virtual && r.name == "users":
		ns.secret("table cleave.users")
	}
	return r
}

// readsSequence is the query of cleave.sequences for a query of a sequence of the cluster as a table, which pg_dump makes; "" for
// any other statement. The routers take values in blocks, so that last_value is the last one of the newest block: what
// PostgreSQL has for a sequence with that CACHE (sequence.c).
func (ns *namespace) readsSequence(tree *pg.ParseResult) string {
	s := tree.Stmts[0].Stmt.GetSelectStmt()
	if s == nil || len(s.FromClause) != 1 || s.Op != pg.SetOperation_SETOP_NONE || s.WhereClause != nil || s.WithClause != nil || s.IntoClause != nil || s.DistinctClause != nil || s.GroupClause != nil ||
		s.HavingClause != nil || s.WindowClause != nil || s.SortClause != nil || s.LimitCount != nil || s.LimitOffset != nil || s.LockingClause != nil {
		return ""
	}
	from := s.FromClause[0].GetRangeVar()
	if from == nil || from.Alias != nil || from.Catalogname != "" {
		return ""
	}
	q := ns.clusterSequence(from)
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
func (ns *namespace) field(m proto.Message, sc *scope) {
	names, alone := sqltree.FieldOf(m)
	for _, name := range names {
		if !ns.calledByPoint(name) || alone && sc.resolve(sqltree.FieldNames(m.(*pg.ColumnRef))).name != "" {
			continue
		}
		fail(sqlstate.Refusal("CLV-0238", ".%s may be a call of the function %s(), which is not let through in this form", name, name).
			WithHint("Call it as %s(...), or give the column another name.", name))
	}
}

// calledByPoint reports whether a function of a name goes beyond its arguments, or is not known to do so.
func (ns *namespace) calledByPoint(name string) bool {
	return builtin.Field(name) && builtin.ReachesFurther(name) || ns.snap.Unpromised(name)
}
