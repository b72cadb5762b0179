package virtual

// Tables are the tables of the schema; their rows come from the map and from the router that answers.
// A new one goes to the end: a number that a client has read names the same object at every router.
var Tables = tables([][3]string{
	{"shards", "the shards, and their health as this router found it last", "name text, engine text, url text, labels text, weight float, is_default bool, state text, state_why text, health text, reason text, connections bigint, idle bigint"},
	{"keyspaces", "the keyspaces", "keyspace text, strategy text, key_types text, seed bigint, ranges bigint, pins bigint, tables bigint"},
	{"ranges", "the key ranges and listed values, and the shard that owns each", "keyspace text, position bigint, low text, high text, shard text, epoch bigint, transit text"},
	{"transits", "the parts of keyspaces that are being moved", "id text, keyspace text, part text, from_shard text, to_shard text, owner text, hold text, epoch bigint"},
	{"tables", "the tables of the map", "schema text, name text, kind text, keyspace text, shard_key text"},
	{"pins", "the keys that are pinned to a shard", "keyspace text, key text, shard text, epoch bigint"},
	{"history", "the changes of the map, the newest 1000", "version bigint, at timestamptz, by text, why text, op text, statement text"},
	{"routers", "the routers and coordinators of the cluster", "id text, role text, address text, host text, software text, node bigint, version bigint, lag bigint, joined timestamptz, lease_left float"},
	{"endpoints", "the servers of each shard, and their roles", "shard text, url text, role text, serves text, health text, reason text, timeline bigint, lag_bytes bigint, lag_seconds float, latency_ms float, local_socket bool, connections bigint, idle bigint"},
	{"sessions", "the clients' sessions at all routers", "pid bigint, username text, application text, client text, state text, shard text, started timestamptz, since timestamptz, rows_read bigint, bytes_read bigint, router text"},
	{"sequences", "the sequences whose values the routers give", "schema text, name text, type text, start bigint, increment bigint, min bigint, max bigint, block bigint, cycle bool, owner text, identity bool, taken bigint"},
	{"transactions", "the transactions over several shards that are not finished", "id text, router text, age float, shards text, decided_on text, state text"},
	{"workflows", "the moves, splits, merges, drains, spreads and plans", "id text, kind text, keyspace text, part text, from_shard text, to_shard text, step text, paused bool, note text, error text, rows bigint, bytes bigint, rows_all bigint, bytes_all bigint, " +
		"rows_per_second float, lag_bytes bigint, eta float, held_ms bigint, kept_until timestamptz, parent text, by text, created timestamptz, changed timestamptz"},
	{"heat", "the load of the last minutes by part of the map", "keyspace text, part text, kind text, shard text, statements float, busy float, share float"},
	{"hot_keys", "the keys with most of the load", "keyspace text, key text, shard text, pinned bool, statements float, share float"},
	{"constraints", "the rules that the map keeps", "name text, kind text, keyspace text, rule text, kept bool, broken text"},
	{"policy", "the policy of balancing, the one in force first", "at timestamptz, by text, why text, mode text, policy text, found text"},
	{"users", "the users of the cluster (for administrators)", "name text, role text"},
})

func tables(list [][3]string) []Table {
	out := make([]Table, len(list))
	for i, t := range list {
		out[i] = table(i, t[0], t[1], t[2])
	}
	return out
}

// bounds are the parameters of functions that begin moves.
const bounds = ", keep text?, unverified bool?, rows_per_second bigint?, bytes_per_second bigint?, time_window text?, max_latency text?, max_lag text?, max_lag_bytes bigint?"

// Functions are the functions of the schema. Those that give a value stand in any statement, the others by
// themselves in a SELECT. A key may be of any type; one of several columns is an array.
// A new one goes to the end, as with Tables.
var Functions = functions([][4]string{
	{"next_id", "bigint", "", "a number that is unique over the cluster"},
	{"uuidv7", "uuid", "", "a UUID that sorts by time"},
	{"create_keyspace", "text", "name text, strategy text, key_types text[], ranges int?, bounds anyarray?, listed anyarray?, shards text[]?", "makes a keyspace"},
	{"drop_keyspace", "text", "name text", "drops a keyspace that has no tables"},
	{"distribute", "text", "table text, shard_key anyelement?, keyspace text?, related bool?, reference bool?", "makes an existing table sharded or a reference table"},
	{"declare", "text", "table text, shard_key anyelement?, keyspace text?, reference bool?", "says what a table will be that is created later"},
	{"undeclare", "text", "table text", "takes back cleave.declare"},
	{"pin", "text", "keyspace text, key anyelement, shard text", "pins a key to a shard"},
	{"unpin", "text", "keyspace text, key anyelement", "removes a pin"},
	{"shard_of", "text", "keyspace text, key any...", "the shard that owns a key"},
	{"add_shard", "text", "name text, url text, weight float?, labels json?", "adds a shard"},
	{"add_replica", "text", "shard text, url text", "adds a server to a shard"},
	{"remove_replica", "text", "shard text, url text", "removes a server of a shard"},
	{"set_shard", "text", "name text, state text?, why text?, url text?, weight float?, labels json?", "changes a shard: its state, URL, weight, labels"},
	{"cancel_session", "text", "pid bigint, dry_run bool?", "cancels the statement of a session at any router"},
	{"terminate_session", "text", "pid bigint, wait float?, dry_run bool?", "ends a session at any router"},
	{"remove_shard", "text", "name text", "removes a shard that owns nothing"},
	{"add_constraint", "text", "name text, kind text, keyspace text?, key anyelement?, keys anyarray?, range text?, labels json?, why text?, dry_run bool?", "adds a rule that the map keeps"},
	{"remove_constraint", "text", "name text, why text?, dry_run bool?", "removes a rule"},
	{"set_policy", "text", "mode text?, keyspace text?, measure text?, min_skew float?, tolerance float?, split_bytes bigint?, split_load float?, alone_load float?, every text?, hold text?, cool text?, " +
		"at_once int?, bytes_per_day bigint?, bytes_per_second bigint?, time_window text?, why text?, dry_run bool?", "changes the policy of balancing"},
	{"move", "text", "keyspace text, range text?, to_shard text?, key anyelement?, id text?, why text?" + bounds, "moves a key range or a key to another shard"},
	{"split", "text", "keyspace text, at anyelement?, range text?, half text?, id text?, why text?", "splits a key range"},
	{"merge", "text", "keyspace text, at anyelement, to_shard text?, id text?, why text?" + bounds, "merges the two key ranges that meet at a key"},
	{"drain", "text", "shard text, to_shard text?, id text?, why text?, complete bool?" + bounds, "moves everything off a shard"},
	{"spread", "text", "keyspace text?, shards text[]?, id text?, why text?" + bounds, "spreads keyspaces evenly over shards"},
	{"verify", "text", "table_name text?, keyspace text?, repair bool?, dry_run bool?", "compares where rows are with where the map says"},
	{"plan", "text", "keyspace text?, measure text?, tolerance float?, split_bytes bigint?, merge_bytes bigint?, split_load float?, merge_load float?, alone_load float?, moved_bytes_max bigint?, at_once int?, " +
		"approve bool?, id text?, why text?" + bounds, "plans moves that balance the shards"},
	{"pause", "text", "id text, why text?", "pauses a workflow"},
	{"resume", "text", "id text, why text?, rows_per_second bigint?, bytes_per_second bigint?, max_latency text?, max_lag text?, max_lag_bytes bigint?", "resumes a workflow, or changes its bounds"},
	{"cancel", "text", "id text, why text?", "cancels a workflow"},
	{"reverse", "text", "id text, why text?", "makes the old owner of a move the owner again"},
	{"complete", "text", "id text, why text?", "deletes the source rows of a finished move"},
	{"approve", "text", "id text, why text?", "lets a plan begin"},
})

func functions(list [][4]string) []Function {
	out := make([]Function, len(list))
	for i, f := range list {
		out[i] = function(i, f[0], f[1], f[2], f[3])
	}
	return out
}
