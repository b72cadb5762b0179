package planner

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/shardmap"
)

// A shard's session serves many sessions of the router. What a statement leaves in it, and the router does not follow, is put back
// before another session gets it. So it has to be proved which statements leave nothing. The proof is a list of what is known to do so: kinds
// of statements, PostgreSQL's functions that are not volatile and some that are, and functions of users that call no others. What is
// not on the list costs time, not safety.

// traceless are volatile functions of PostgreSQL's that leave nothing in their session that the router does not follow. Those of advisory locks until the transaction's end, and of
// notifications, end with it, as do descriptors of large objects.
var traceless = wordSet(`array_sample array_shuffle bernoulli clock_timestamp current_query currval gen_random_uuid lastval nextval setval pg_advisory_xact_lock
	pg_advisory_xact_lock_shared pg_blocking_pids pg_collation_actual_version pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_current_wal_lsn
	pg_database_size pg_get_wal_replay_pause_state pg_indexes_size pg_is_in_backup pg_is_in_recovery pg_is_wal_replay_paused pg_jit_available
	pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_last_xact_replay_timestamp pg_lock_status pg_notification_queue_usage pg_notify
	pg_partition_ancestors pg_partition_tree pg_prepared_xact pg_relation_size pg_safe_snapshot_blocking_pids pg_sequence_last_value pg_sleep
	pg_sleep_for pg_sleep_until pg_table_size pg_tablespace_size pg_total_relation_size pg_try_advisory_xact_lock
	pg_try_advisory_xact_lock_shared pg_xact_commit_timestamp random random_normal system timeofday timezone txid_status uuidv4 uuidv7`)

// tracing notes a call of a function of a kind, see kindOf.
func (fx *effects) tracing(name, kind string) {
	fx.traces = fx.traces || strings.HasPrefix(kind, "v") && !(builtin.Kind(name) == kind && (traceless[name] || builtin.IsLargeObject(name)))
}

// leaves reports whether the statement may leave something in the session of a shard that runs it.
func (a *analyzer) leaves(n *pg.Node) bool {
	switch a.st.Kind {
	case OneShard, DefaultShard, AnyShard, Several:
	default:
		return false // the router carries it out
	}
	switch n.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt, *pg.Node_CopyStmt, *pg.Node_ExplainStmt,
		*pg.Node_DeclareCursorStmt, *pg.Node_FetchStmt, *pg.Node_ClosePortalStmt, *pg.Node_LockStmt, *pg.Node_NotifyStmt:
	default:
		return true
	}
	if a.traces {
		return true
	}
	// Tables of the default shard alone may have triggers, rules and the like that the router did not make.
	state := a.snap.State()
	return (state.Acting || state.FunctionsRead != FunctionRules) && (a.unknown != "" || a.whole != "" || a.mayType ||
		slices.ContainsFunc(a.st.Tables, func(t *shardmap.Table) bool { return t.Kind == shardmap.Whole }))
}

// ActingFunctions returns, of all functions of a database, the schemas and names of those that are not known to leave their session
// alone: they are in a language that the router does not read, call what acts on a session, or run texts.
func ActingFunctions(all []FunctionSource) [][2]string {
	read := make([]function, len(all))
	acting := map[string]bool{}
	for i, f := range all {
		read[i] = readFunction(f)
	}
	for again := true; again; {
		again = false
		for i, f := range all {
			r := &read[i]
			if acting[f.Name] || !(r.acts || r.does != nil && (!readable(f.Language) || r.does.callsAny(acting)) || f.Trigger && f.Extension != "" && !plainExtensions[f.Extension]) {
				continue
			}
			acting[f.Name], again = true, true
		}
	}
	var out [][2]string
	for _, f := range all {
		if acting[f.Name] {
			out = append(out, [2]string{f.Schema, f.Name})
		}
	}
	return out
}

// callsAny reports whether a body calls one of the names.
func (b *body) callsAny(names map[string]bool) bool {
	for call := range b.calls {
		if names[call] {
			return true
		}
	}
	for name := range b.fields { // x.f is f(x)
		if names[name] {
			return true
		}
	}
	return false
}
