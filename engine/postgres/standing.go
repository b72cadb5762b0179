package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

var (
	_ engine.Replicated = (*conn)(nil)
	_ engine.Located    = (*conn)(nil)
)

// standingSQL is one row: replica or not, system identifier, timeline, place in
// the log, version, block size.
//
// The primary's timeline is that of the file it writes now; its control file
// says it only after the checkpoint that follows a promotion. A replica's is the
// newest of which it is sure: what its control file says, which lags by a
// restart point, or, where the role may see it (pg_monitor), what it receives.
const standingSQL = `SELECT r.replica,
	(SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()),
	CASE WHEN r.replica THEN (SELECT GREATEST(c.timeline_id, (SELECT w.received_tli FROM pg_catalog.pg_stat_wal_receiver w)) FROM pg_catalog.pg_control_checkpoint() c)
		ELSE ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::pg_catalog.bit(32)::pg_catalog.int4 END,
	(CASE WHEN r.replica THEN COALESCE(pg_catalog.pg_last_wal_replay_lsn(), '0/0') ELSE pg_catalog.pg_current_wal_insert_lsn() END - '0/0'::pg_catalog.pg_lsn)::pg_catalog.text,
	pg_catalog.current_setting('server_version_num'), pg_catalog.current_setting('wal_block_size')
FROM (SELECT pg_catalog.pg_is_in_recovery() AS replica OFFSET 0) r`

// Standing asks the server for its role and its place in the log.
func (c *conn) Standing(ctx context.Context) (engine.Standing, error) {
	var s engine.Standing
	res, err := c.exec(ctx, standingSQL)
	if err != nil {
		return s, c.shard.failed("probe", err)
	}
	if len(res.Rows) != 1 || len(res.Rows[0]) != 6 {
		return s, sqlstate.New(sqlstate.InternalError, "the server's standing is not one row").OnShard(c.shard.cfg.Name)
	}
	row := res.Rows[0]
	s.Role, s.System, s.Local = engine.Primary, row[1].String, c.network() == "unix"
	if row[0].String == "t" {
		s.Role = engine.Replica
	}
	timeline, err := strconv.ParseUint(row[2].String, 10, 32)
	if err != nil {
		return s, fmt.Errorf("timeline %q of shard %s: %w", row[2].String, c.shard.cfg.Name, err)
	}
	at, err := strconv.ParseUint(row[3].String, 10, 64)
	if err != nil {
		return s, fmt.Errorf("log position %q of shard %s: %w", row[3].String, c.shard.cfg.Name, err)
	}
	version, _ := strconv.Atoi(row[4].String)
	block, _ := strconv.ParseUint(row[5].String, 10, 32)
	s.Timeline, s.At, s.Version = uint32(timeline), engine.LSN(at), version
	if s.Role == engine.Primary {
		s.At = endOfRecord(s.At, block)
	}
	return s, nil
}

// pageHeaderMax is the size of the header of the first page of a log file; other
// pages have a shorter one.
const pageHeaderMax = 40

// endOfRecord undoes what the server adds to its insert position at the end of
// a page: the next page's header, in which no record ends. A replica that has
// replayed everything says the page's end, and would seem to lag for ever.
func endOfRecord(at engine.LSN, block uint64) engine.LSN {
	if block > 0 && uint64(at)%block <= pageHeaderMax {
		at -= engine.LSN(uint64(at) % block)
	}
	return at
}

// network is "unix" or "tcp": how the server is reached.
func (c *conn) network() string {
	if a := c.net.RemoteAddr(); a != nil {
		return a.Network()
	}
	return ""
}
