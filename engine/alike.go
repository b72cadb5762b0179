package engine

// Alike asks a PostgreSQL shard for the values of the settings that change answers, and that the role may set: names and values.
// A connection that just began has what the server, its database and its role say. Where rows lie, how much memory a
// statement takes and what is logged may differ, and so may default_transaction_read_only, which protects a shard.
const Alike = `SELECT name, setting FROM pg_catalog.pg_settings
	WHERE (context OPERATOR(pg_catalog.=) 'user' OR context OPERATOR(pg_catalog.=) 'superuser' AND pg_catalog.current_setting('is_superuser') OPERATOR(pg_catalog.=) 'on')
	AND (category OPERATOR(pg_catalog.~~) 'Client Connection Defaults%' OR category OPERATOR(pg_catalog.~~) 'Version and Platform Compatibility%')
	AND category OPERATOR(pg_catalog.!~~) '%Preloading'
	AND name OPERATOR(pg_catalog.!~) '^(transaction_(isolation|read_only|deferrable)|default_transaction_read_only|vacuum_.*|.*tablespaces?|session_replication_role|dynamic_library_path|extension_control_path|client_encoding)$'`

// AlikeRows are the values in the answer to Alike.
func AlikeRows(res *Result) map[string]string {
	values := make(map[string]string, len(res.Rows))
	for _, row := range res.Rows {
		if len(row) == 2 {
			values[row[0].String] = row[1].String
		}
	}
	return values
}
