package txnrecord

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
)

// sqlite: a file has one writer at a time, and a prepared transaction keeps
// all others out, so that records are numbered (xid) in the order in which they are
// committed. The record with the greatest number is never removed.
type sqlite struct{}

// Create makes nothing: the engine makes the table with the file.
func (sqlite) Create() string { return "" }

func (sqlite) insert(id string, shards []string, decided string) string {
	return "INSERT INTO " + Table + " (id, shards, decided, xid, at) VALUES ('" + id + "', '" + strings.Join(shards, ",") + "', " + decided +
		", (SELECT coalesce(max(xid), 0) + 1 FROM " + Table + "), clock_timestamp())"
}

func (r sqlite) Record(id string, shards []string) string { return r.insert(id, shards, "NULL") }

func (r sqlite) Decide(id string, shards []string, until time.Time) string {
	return r.insert(id, shards, "CASE WHEN clock_timestamp() < '"+untilText(until)+"'::timestamptz THEN true ELSE clock_timestamp()::text::boolean END")
}

func (r sqlite) Resolve(id string) string {
	return r.insert(id, nil, "false") + " ON CONFLICT (id) DO NOTHING; " + r.Read(id)
}

// Read does not wait for the file's writer.
func (sqlite) Read(id string) string {
	return "SELECT decided FROM " + Table + " WHERE id = '" + id + "'"
}

func (sqlite) Prepared() string {
	return "SELECT gid, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - (extract(epoch FROM prepared) * 1000000)::bigint, owner::text FROM pg_catalog.pg_prepared_xacts " +
		"WHERE gid LIKE 'cleave\\_%' ORDER BY prepared"
}

func (sqlite) Clock() string {
	return "SELECT clock_timestamp()::text"
}

// Clean deletes by id: there are no arrays to compare the shards with.
func (sqlite) Clean(run func(sql string) (*engine.Result, error), c Cleaning) error {
	old := func(age time.Duration) string {
		return fmt.Sprintf(" FROM "+Table+" WHERE at < '%s'::timestamptz - '%d s'::interval AND xid < (SELECT max(xid) FROM "+Table+") AND ", c.Before, int(age.Seconds()))
	}
	res, err := run("SELECT id, shards, at < '" + c.Before + "'::timestamptz - '" + strconv.Itoa(int(c.Against.Seconds())) + " s'::interval" + old(c.Decided) + "decided IS NOT false")
	if err != nil {
		return err
	}
	var gone []string
	for _, row := range res.Rows {
		id := strings.ReplaceAll(row[0].String, "-", "")
		_, err := hex.DecodeString(id)
		long := row[2].String == "t"
		doubt := func(shard string) bool {
			return !slices.Contains(c.Known, shard) && (!long || slices.Contains(c.Unsure, shard))
		}
		if err == nil && !slices.Contains(c.IDs, id) && !slices.ContainsFunc(strings.Split(row[1].String, ","), doubt) {
			gone = append(gone, id)
		}
	}
	for part := range slices.Chunk(gone, 500) {
		if _, err := run("DELETE FROM " + Table + " WHERE id IN ('" + strings.Join(part, "', '") + "')"); err != nil {
			return err
		}
	}
	res, err = run("SELECT count(*)" + old(c.Against) + "decided = false")
	if err != nil || len(res.Rows) != 1 || res.Rows[0][0].String == "0" {
		return err // nothing is written, and nobody waited for
	}
	_, err = run("DELETE" + old(c.Against) + "decided = false")
	return err
}

func (sqlite) Snapshot() string { return "SELECT coalesce(max(xid), 0) FROM " + Table }

func (sqlite) Recent(before string) string {
	return "SELECT id FROM " + Table + " WHERE xid > " + before + " AND decided IS NOT false"
}

// Point has no run: what an older copy of the file gives anew are numbers below those that were seen.
func (sqlite) Point() string { return "SELECT coalesce(max(xid), 0), '' FROM " + Table }

// Look: a number is of what is committed, also in a transaction that has written: its record is the last that it writes.
func (sqlite) Look() string {
	return "SELECT coalesce(max(xid), 0), '', (SELECT string_agg(concat(r.id, ':', r.shards), ' ') FROM (SELECT id, shards FROM " + Table +
		" WHERE xid > $1::bigint AND decided IS NOT false LIMIT " + strconv.Itoa(LookMax+1) + ") AS r), false FROM " + Table
}

func (sqlite) Visible(ids []string) string {
	return "SELECT id, shards FROM " + Table + " WHERE id IN ('" + strings.Join(ids, "', '") + "') AND decided IS NOT false"
}
