package builtin

import (
	"strings"

	"github.com/cleavedb/cleave/internal/pgcatalog"
)

// Catalog is PostgreSQL's catalogue of all supported versions: the planner does not know which ones the shards have.
var Catalog pgcatalog.Catalog

// kinds are the answers of Kind: a bit for each letter.
var kinds = func() (out [1 << 5]string) {
	for bits := range out {
		for i, letter := range "vafpw" {
			if bits&(1<<i) != 0 {
				out[bits] += string(letter)
			}
		}
	}
	return out
}()

// Kind tells what the functions of pg_catalog of a name are: f for a plain one, a for an aggregate, w for a window
// function, p for a procedure; v in front if one of them is volatile in one of the versions. "" if there is none.
func Kind(name string) string {
	bits := 0
	for f := range Catalog.Functions(name) {
		bits |= 1 << strings.IndexByte("vafpw", f.Kind)
		if f.Volatile == 'v' {
			bits |= 1
		}
	}
	return kinds[bits]
}

// Has reports whether pg_catalog has a function of a name.
func Has(name string) bool { return Kind(name) != "" }

// HasRelation reports whether pg_catalog has a relation of a name.
func HasRelation(name string) bool { return Catalog.Relation("pg_catalog", name) != nil }

const signalsOnly = "is carried out by the router, by itself in the list of a SELECT: SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ..."

// largeObjects is why user-defined functions cannot do what a statement can, see IsLargeObject.
const largeObjects = "is about large objects, which are on the default shard"

// Reach says which functions go beyond the rows that a statement names, and why.
var Reach = map[string]string{
	"ts_stat":            "runs a query given as text",
	"set_limit":          "changes what % means in the shard's session, which other clients use next: SET pg_trgm.similarity_threshold does it for this one",
	"pg_export_snapshot": "is carried out by the router, by itself in the list of a SELECT without FROM", "txid_current": "belongs to one shard", "txid_current_if_assigned": "belongs to one shard",
	"txid_current_snapshot": "belongs to one shard", "pg_current_xact_id": "belongs to one shard", "pg_current_xact_id_if_assigned": "belongs to one shard",
	"pg_current_snapshot": "belongs to one shard", "pg_cancel_backend": signalsOnly, "pg_terminate_backend": signalsOnly,
	"pg_reload_conf": "changes a shard's server", "pg_rotate_logfile": "changes a shard's server", "pg_promote": "changes a shard's server",
	"loread": largeObjects, "lowrite": largeObjects, "lo_import": "reads a server's files", "lo_export": "changes a server's files",
	"pg_import_system_collations": "changes a shard's catalogue", "pg_nextoid": "changes a shard's catalogue", "pg_extension_config_dump": "changes a shard's catalogue",
	"pg_stat_file": "reads a server's files", "currtid": "reads a table named in a text", "currtid2": "reads a table named in a text",
	"pg_identify_object_as_address": "", "pg_log_backend_memory_contexts": "acts on a shard's sessions",
	"pg_sync_replication_slots": "changes a shard's server", "gin_clean_pending_list": "acts on an index of one shard",
}

// ReachPrefixes say the same of functions by the beginnings of their names.
var ReachPrefixes = []struct{ Prefix, Why string }{
	{"query_to_xml", "runs a query given as text"}, {"table_to_xml", "reads a table named in a text"}, {"schema_to_xml", "reads the tables of one shard"},
	{"database_to_xml", "reads the tables of one shard"}, {"cursor_to_xml", "reads a cursor named in a text"},
	{"lo_", largeObjects}, {"dblink", "reaches another database"},
	{"pg_read_", "reads a server's files"}, {"pg_ls_", "reads a server's files"}, {"pg_file_", "changes a server's files"},
	{"pg_logical_", "is about one shard's replication"}, {"pg_replication_", "is about one shard's replication"},
	{"pg_create_", "is about one shard's server"}, {"pg_drop_", "is about one shard's server"}, {"pg_copy_", "is about one shard's server"},
	{"pg_wal_", "is about one shard's server"}, {"pg_switch_", "is about one shard's server"}, {"pg_backup_", "is about one shard's server"},
	{"pg_start_", "is about one shard's server"}, {"pg_stop_", "is about one shard's server"}, {"pg_stat_reset", "changes one shard's statistics"},
	{"pg_restore_", "changes one shard's statistics"}, {"pg_clear_", "changes one shard's statistics"}, {"binary_upgrade_", "is for pg_upgrade"},
	{"brin_", "acts on an index of one shard"}, {"pg_event_trigger_", "is for event triggers"},
}

// Anywhere are functions named like those that read the catalogue, which do not.
var Anywhere = map[string]bool{
	"pg_sleep": true, "pg_sleep_for": true, "pg_sleep_until": true, "pg_backend_pid": true, "pg_typeof": true, "pg_column_size": true,
	"pg_column_compression": true, "pg_size_pretty": true, "pg_size_bytes": true, "pg_is_in_recovery": true, "pg_trigger_depth": true,
	"pg_postmaster_start_time": true, "pg_conf_load_time": true, "pg_client_encoding": true, "pg_input_is_valid": true,
}

// IsAdvisory reports whether a function is about advisory locks, or notifies.
func IsAdvisory(name string) bool {
	return name == "pg_notify" || strings.HasPrefix(name, "pg_advisory_") || strings.HasPrefix(name, "pg_try_advisory_")
}

// IsLargeObject reports whether a function of PostgreSQL's is about large objects, and about nothing else.
func IsLargeObject(name string) bool {
	return name == "loread" || name == "lowrite" || strings.HasPrefix(name, "lo_") && name != "lo_import" && name != "lo_export"
}

// ReachesFurther reports whether a function of PostgreSQL's reads more than its
// arguments, or acts on a session or a server.
func ReachesFurther(name string) bool {
	switch name {
	case "nextval", "setval", "currval", "lastval", "setseed", "set_config", "ts_rewrite":
		return true
	}
	if IsAdvisory(name) {
		return true
	}
	if _, denied := Reach[name]; denied {
		return true
	}
	for _, p := range ReachPrefixes {
		if strings.HasPrefix(name, p.Prefix) {
			return true
		}
	}
	return !Anywhere[name] && (strings.HasPrefix(name, "pg_") || strings.HasPrefix(name, "to_reg") || strings.HasPrefix(name, "has_") || strings.HasSuffix(name, "_description"))
}

// ActsOnSession is ReachesFurther for what does not only read.
func ActsOnSession(name string) bool {
	switch name {
	case "nextval", "setval", "setseed", "set_config":
		return true
	}
	if _, denied := Reach[name]; denied || IsAdvisory(name) {
		return true
	}
	for _, p := range ReachPrefixes {
		if strings.HasPrefix(name, p.Prefix) {
			return true
		}
	}
	return false
}

// Field reports whether x.name may be a call of a function of PostgreSQL's, or of an extension's that is refused by name.
func Field(name string) bool {
	own := Has(name)
	_, denied := Reach[name]
	return own || denied
}
