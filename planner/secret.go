package planner

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
