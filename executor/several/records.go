package several

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
)

// table is where the records are. Every part that writes leaves one, inside its
// own transaction: on the deciding shard it is the decision, on all it tells
// readers that ask for atomic reads which shards belong together.
const table = "cleave_internal.transaction"

// records is how one kind of engine keeps the records of transactions over several
// shards, in SQL.
type records interface {
	// create makes the table, where it is missing; several may do so at once. "" if
	// it is always there.
	create() string
	// record notes the transaction on a shard that has to follow a decision.
	record(id txid, shards []string) string
	// decide is the decision to commit; it takes effect with the COMMIT after it.
	// It fails where somebody has decided against it (the id is there), and when it
	// comes so late that such a decision may have been cleaned up.
	decide(id txid, shards []string, until time.Time) string
	// resolve decides against a transaction unless it is decided, and reads what
	// stands there. One message is one transaction, and each statement of it has a
	// snapshot of its own.
	resolve(id txid) string
	// prepared lists what is prepared: global id, age in microseconds, owner.
	prepared() string
	// clock is the shard's, as text, if the table is there.
	clock() string
	// clean removes the records from before a time of the shard's clock that
	// nobody needs: not those of ids, nor those that name a shard which is not known. Those of shards that have gone, which are neither known nor
	// unsure, stay as long as a decision against a transaction.
	clean(run func(sql string) (*engine.Result, error), before string, ids, known, unsure []string) error
	// snapshot is a text that stands for what is committed now.
	snapshot() string
	// recent are the transactions that are seen now, and were not by an earlier
	// snapshot.
	recent(before string) string
	// visible are those of some transactions that are seen now, with their shards
	// separated by commas.
	visible(ids []string) string
}

func recordsOf(engineName string) records {
	if engineName == engineSQLite {
		return sqliteRecords{}
	}
	return postgresRecords{}
}

func (t *Transactions) records(shard string) records { return recordsOf(t.engineOf(shard)) }

type postgresRecords struct{}

// tableLock serializes the creation of the table ("cleavetx" in ASCII, without the sign).
const tableLock = 0x636c656176657478

const tableSQL = `SELECT pg_catalog.pg_advisory_xact_lock(%d);
` + engine.TransactionTable

func (postgresRecords) create() string { return fmt.Sprintf(tableSQL, int64(tableLock)) }

// shardList is an array of shards' names as SQL; names have no characters that
// would have to be quoted.
func shardList(names []string) string { return "{" + strings.Join(names, ",") + "}" }

func (postgresRecords) record(id txid, shards []string) string {
	return "INSERT INTO " + table + " (id, shards) VALUES ('" + id.String() + "', '" + shardList(shards) + "')"
}

// A decision has to be on disk before it is followed, whatever the session's
// synchronous_commit.
func (postgresRecords) decide(id txid, shards []string, until time.Time) string {
	return "INSERT INTO " + table + " (id, shards, decided) VALUES ('" + id.String() + "', '" + shardList(shards) + "', CASE WHEN pg_catalog.clock_timestamp() OPERATOR(pg_catalog.<) '" +
		untilText(until) + "'::timestamptz THEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off' OR " +
		"pg_catalog.set_config('synchronous_commit', 'local', true) OPERATOR(pg_catalog.<>) '' ELSE pg_catalog.clock_timestamp()::text::boolean END)"
}

func untilText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05+00") }

func (postgresRecords) resolve(id txid) string {
	return "SET LOCAL synchronous_commit TO on; INSERT INTO " + table + " (id, decided) VALUES ('" + id.String() + "', false) ON CONFLICT (id) DO NOTHING; " +
		"SELECT decided FROM " + table + " WHERE id OPERATOR(pg_catalog.=) '" + id.String() + "'"
}

func (postgresRecords) prepared() string {
	return "SELECT gid, (EXTRACT(EPOCH FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) prepared) OPERATOR(pg_catalog.*) 1000000)::bigint, owner::text FROM pg_catalog.pg_prepared_xacts " +
		"WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database() AND gid LIKE 'cleave\\_%' ORDER BY prepared"
}

func (postgresRecords) clock() string {
	return "SELECT pg_catalog.clock_timestamp()::text WHERE pg_catalog.to_regclass('" + table + "') IS NOT NULL"
}

func (postgresRecords) clean(run func(sql string) (*engine.Result, error), before string, ids, known, unsure []string) error {
	_, err := run(fmt.Sprintf("DELETE FROM "+table+" WHERE at < '%[1]s'::timestamptz - '%[2]d ms'::interval AND decided IS NOT false AND NOT (id = ANY ('{%[3]s}'::uuid[])) AND "+
		"(shards <@ '%[4]s'::text[] OR at < '%[1]s'::timestamptz - '%[5]d ms'::interval AND NOT shards && '%[6]s'::text[]); "+
		"DELETE FROM "+table+" WHERE at < '%[1]s'::timestamptz - '%[5]d ms'::interval AND decided = false",
		before, prepareMax.Milliseconds(), strings.Join(ids, ","), shardList(known), keepRolledBack.Milliseconds(), shardList(unsure)))
	return err
}

func (postgresRecords) snapshot() string { return "SELECT pg_catalog.pg_current_snapshot()" }

func (postgresRecords) recent(before string) string {
	return "SELECT id FROM " + table + " WHERE xid >= pg_catalog.pg_snapshot_xmin('" + before + "') AND NOT pg_catalog.pg_visible_in_snapshot(xid, '" + before + "') AND decided IS NOT false"
}

func (postgresRecords) visible(ids []string) string {
	return "SELECT id, pg_catalog.array_to_string(shards, ',') FROM " + table + " WHERE id = ANY ('{" + strings.Join(ids, ",") + "}'::uuid[]) AND decided IS NOT false"
}

// sqliteRecords: a file has one writer at a time, and a prepared transaction keeps
// all others out, so that records are numbered (xid) in the order in which they are
// committed. The record with the greatest number is never removed.
type sqliteRecords struct{}

// create makes nothing: the engine makes the table with the file.
func (sqliteRecords) create() string { return "" }

func (sqliteRecords) insert(id txid, shards []string, decided string) string {
	return "INSERT INTO " + table + " (id, shards, decided, xid, at) VALUES ('" + id.String() + "', '" + strings.Join(shards, ",") + "', " + decided +
		", (SELECT coalesce(max(xid), 0) + 1 FROM " + table + "), clock_timestamp())"
}

func (r sqliteRecords) record(id txid, shards []string) string { return r.insert(id, shards, "NULL") }

func (r sqliteRecords) decide(id txid, shards []string, until time.Time) string {
	return r.insert(id, shards, "CASE WHEN clock_timestamp() < '"+untilText(until)+"'::timestamptz THEN true ELSE clock_timestamp()::text::boolean END")
}

func (r sqliteRecords) resolve(id txid) string {
	return r.insert(id, nil, "false") + " ON CONFLICT (id) DO NOTHING; " + r.read(id)
}

// read reads a decision without waiting for the file's writer.
func (sqliteRecords) read(id txid) string {
	return "SELECT decided FROM " + table + " WHERE id = '" + id.String() + "'"
}

func (sqliteRecords) prepared() string {
	return "SELECT gid, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - (extract(epoch FROM prepared) * 1000000)::bigint, owner::text FROM pg_catalog.pg_prepared_xacts " +
		"WHERE gid LIKE 'cleave\\_%' ORDER BY prepared"
}

func (sqliteRecords) clock() string {
	return "SELECT clock_timestamp()::text"
}

// clean deletes by id: there are no arrays to compare the shards with.
func (sqliteRecords) clean(run func(sql string) (*engine.Result, error), before string, ids, known, unsure []string) error {
	old := func(age time.Duration) string {
		return fmt.Sprintf(" FROM "+table+" WHERE at < '%s'::timestamptz - '%d s'::interval AND xid < (SELECT max(xid) FROM "+table+") AND ", before, int(age.Seconds()))
	}
	res, err := run("SELECT id, shards, at < '" + before + "'::timestamptz - '" + strconv.Itoa(int(keepRolledBack.Seconds())) + " s'::interval" + old(prepareMax) + "decided IS NOT false")
	if err != nil {
		return err
	}
	var gone []string
	for _, row := range res.Rows {
		id, ok := parseUUID(row[0].String)
		long := row[2].String == "t"
		doubt := func(shard string) bool {
			return !slices.Contains(known, shard) && (!long || slices.Contains(unsure, shard))
		}
		if ok && !slices.Contains(ids, id.String()) && !slices.ContainsFunc(strings.Split(row[1].String, ","), doubt) {
			gone = append(gone, id.String())
		}
	}
	for part := range slices.Chunk(gone, 500) {
		if _, err := run("DELETE FROM " + table + " WHERE id IN ('" + strings.Join(part, "', '") + "')"); err != nil {
			return err
		}
	}
	res, err = run("SELECT count(*)" + old(keepRolledBack) + "decided = false")
	if err != nil || len(res.Rows) != 1 || res.Rows[0][0].String == "0" {
		return err // nothing is written, and nobody waited for
	}
	_, err = run("DELETE" + old(keepRolledBack) + "decided = false")
	return err
}

func (sqliteRecords) snapshot() string { return "SELECT coalesce(max(xid), 0) FROM " + table }

func (sqliteRecords) recent(before string) string {
	return "SELECT id FROM " + table + " WHERE xid > " + before + " AND decided IS NOT false"
}

func (sqliteRecords) visible(ids []string) string {
	return "SELECT id, shards FROM " + table + " WHERE id IN ('" + strings.Join(ids, "', '") + "') AND decided IS NOT false"
}

// makeTable makes the table of records where it is missing.
func makeTable(ctx context.Context, conn engine.Conn, r records) error {
	if r.create() == "" {
		return nil
	}
	res, err := engine.ExecContext(ctx, conn, "SELECT pg_catalog.to_regclass('"+table+"') IS NULL")
	if err != nil {
		return err
	}
	if len(res.Rows) == 1 && res.Rows[0][0].String == "f" {
		return nil
	}
	_, err = engine.ExecContext(ctx, conn, r.create())
	return err
}
