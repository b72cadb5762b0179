package txnrecord

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
)

type postgres struct{}

// tableLock serializes the creation of the table ("cleavetx" in ASCII, without the sign).
const tableLock = 0x636c656176657478

const tableSQL = `SELECT pg_catalog.pg_advisory_xact_lock(%d);
` + engine.TransactionTable

func (postgres) Create() string { return fmt.Sprintf(tableSQL, int64(tableLock)) }

// shardList is an array of shards' names as SQL; names have no characters that
// would have to be quoted.
func shardList(names []string) string { return "{" + strings.Join(names, ",") + "}" }

func (postgres) Record(id string, shards []string) string {
	return "INSERT INTO " + Table + " (id, shards) VALUES ('" + id + "', '" + shardList(shards) + "')"
}

// A decision has to be on disk before it is followed, whatever the session's
// synchronous_commit.
func (postgres) Decide(id string, shards []string, until time.Time) string {
	return "INSERT INTO " + Table + " (id, shards, decided) VALUES ('" + id + "', '" + shardList(shards) + "', CASE WHEN pg_catalog.clock_timestamp() OPERATOR(pg_catalog.<) '" +
		untilText(until) + "'::timestamptz THEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off' OR " +
		"pg_catalog.set_config('synchronous_commit', 'local', true) OPERATOR(pg_catalog.<>) '' ELSE pg_catalog.clock_timestamp()::text::boolean END)"
}

func untilText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05+00") }

func (postgres) Resolve(id string) string {
	return "SET LOCAL synchronous_commit TO on; INSERT INTO " + Table + " (id, decided) VALUES ('" + id + "', false) ON CONFLICT (id) DO NOTHING; " +
		"SELECT decided FROM " + Table + " WHERE id OPERATOR(pg_catalog.=) '" + id + "'"
}

func (postgres) Prepared() string {
	return "SELECT gid, (EXTRACT(EPOCH FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) prepared) OPERATOR(pg_catalog.*) 1000000)::bigint, owner::text FROM pg_catalog.pg_prepared_xacts " +
		"WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database() AND gid LIKE 'cleave\\_%' ORDER BY prepared"
}

func (postgres) Clock() string {
	return "SELECT pg_catalog.clock_timestamp()::text WHERE pg_catalog.to_regclass('" + Table + "') IS NOT NULL"
}

func (postgres) Clean(run func(sql string) (*engine.Result, error), c Cleaning) error {
	_, err := run(fmt.Sprintf("DELETE FROM "+Table+" WHERE at < '%[1]s'::timestamptz - '%[2]d ms'::interval AND decided IS NOT false AND NOT (id = ANY ('{%[3]s}'::uuid[])) AND "+
		"(shards <@ '%[4]s'::text[] OR at < '%[1]s'::timestamptz - '%[5]d ms'::interval AND NOT shards && '%[6]s'::text[]); "+
		"DELETE FROM "+Table+" WHERE at < '%[1]s'::timestamptz - '%[5]d ms'::interval AND decided = false",
		c.Before, c.Decided.Milliseconds(), strings.Join(c.IDs, ","), shardList(c.Known), c.Against.Milliseconds(), shardList(c.Unsure)))
	return err
}

func (postgres) Snapshot() string { return "SELECT pg_catalog.pg_current_snapshot()" }

func (postgres) Recent(before string) string {
	return "SELECT id FROM " + Table + " WHERE xid >= pg_catalog.pg_snapshot_xmin('" + before + "') AND NOT pg_catalog.pg_visible_in_snapshot(xid, '" + before + "') AND decided IS NOT false"
}

// run tells one run of a server from all others, as an expression: when the server was started, and when its statistics were
// reset, which a recovery after a crash of one of its processes does as well (pgstat_discard_stats of pgstat.c). No setting
// prints the numbers in another way.
const run = "pg_catalog.concat(EXTRACT(EPOCH FROM pg_catalog.pg_postmaster_start_time()), ' ', EXTRACT(EPOCH FROM pg_catalog.pg_stat_get_bgwriter_stat_reset_time()))"

func (r postgres) Point() string { return r.Snapshot() + ", " + run }

func (r postgres) Look() string {
	return r.Point() + ", (SELECT pg_catalog.string_agg(" +
		"pg_catalog.concat(r.id, ':', pg_catalog.array_to_string(r.shards, ',')), ' ') FROM (SELECT id, shards FROM " + Table + " WHERE xid OPERATOR(pg_catalog.>=) pg_catalog.pg_snapshot_xmin($1) " +
		"AND NOT pg_catalog.pg_visible_in_snapshot(xid, $1) AND decided IS NOT false LIMIT " + strconv.Itoa(LookMax+1) + ") AS r), pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL"
}

func (postgres) Visible(ids []string) string {
	return "SELECT id, pg_catalog.array_to_string(shards, ',') FROM " + Table + " WHERE id = ANY ('{" + strings.Join(ids, ",") + "}'::uuid[]) AND decided IS NOT false"
}

func (postgres) Read(string) string { return "" }
