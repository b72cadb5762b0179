package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

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

// called checks the functions that a definition calls where no statement is analysed: partition keys and bounds, and
// exclusion constraints. A shard runs them for every row.
func (a *analyzer) called(m proto.Message) {
	inspect(m, func(m proto.Message) bool {
		if f, ok := m.(*pg.FuncCall); ok {
			a.function(f)
		}
		return true
	})
}

// rangeType checks the functions that a range type is made with: a shard calls them when rows and indexes are made.
func (a *analyzer) rangeType(r *pg.CreateRangeStmt) {
	for _, n := range r.Params {
		d := n.GetDefElem()
		if d.GetDefname() != "subtype_diff" && d.GetDefname() != "canonical" {
			continue
		}
		names := strings.Split(defText(d.Arg), ".")
		if own := a.userFunction(names); a.hides(names) == nil && catalogFunctions[names[len(names)-1]] != "" && (len(names) == 1 || names[0] == "pg_catalog") || own != nil && own.Kind == "f" {
			continue
		}
		refuse("a range type with the function "+strings.Join(names, ".")+"() is not supported: it is not known to read no table", "create the function through the router, with a body that names no table, and without EXECUTE, set_config() and the like")
	}
}

// secret notes that a statement reads what takes an administrator.
func (a *analyzer) secret(name string) { a.st.Secret = name }

// keepsSecret looks at a relation that a statement names. The list of users is the cluster's own secret.
func (a *analyzer) keepsSecret(r relation) relation {
	switch {
	case r.catalog && secretRelations[r.name]:
		a.secret("table " + r.name)
	case r.virtual && r.name == "users":
		a.secret("table cleave.users")
	}
	return r
}
