package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/engine"
)

var _ engine.Watchable = (*mover)(nil)

// watcher is a mover's engine.Watcher.
type watcher struct {
	v *mover
	c *conn
	// own counts the transactions of this conversation.
	own int64
}

// Watch implements engine.Watchable.
func (v *mover) Watch(ctx context.Context) (engine.Watcher, error) {
	c, err := v.dial(ctx, forOther, "", false)
	if err != nil {
		return nil, err
	}
	return &watcher{v: v, c: c, own: 2}, nil
}

// Delay commits a message in the log: it waits for the processor and the disk as every small write does.
func (w *watcher) Delay(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	w.own++
	_, err := w.c.exec(ctx, `BEGIN; SET LOCAL synchronous_commit = local; SELECT pg_catalog.pg_logical_emit_message(true, 'cleave', ''); COMMIT`)
	return time.Since(began), w.v.failed(ctx, "look how the shard fares", err)
}

// vitalsSQL leaves out decoders of the log: they have no rows that somebody reads. What other
// roles' processes do is shown to superusers and pg_read_all_stats only.
const vitalsSQL = `SELECT (xact_commit + xact_rollback)::pg_catalog.text, pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), '0/0')::pg_catalog.int8::pg_catalog.text,
	COALESCE(r.replayed, 0)::pg_catalog.text, COALESCE(r.name, '')
FROM pg_catalog.pg_stat_database d LEFT JOIN (
	SELECT pg_catalog.pg_wal_lsn_diff(replay_lsn, '0/0')::pg_catalog.int8 AS replayed, pg_catalog.concat_ws(' at ', NULLIF(application_name, ''), client_addr::pg_catalog.text) || ' ' AS name
	FROM pg_catalog.pg_stat_replication s
	WHERE replay_lsn IS NOT NULL AND NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots l WHERE l.active_pid = s.pid AND l.slot_type = 'logical')
	ORDER BY replay_lsn LIMIT 1) r ON true
WHERE d.datname = pg_catalog.current_database()`

// Vitals implements engine.Watcher.
func (w *watcher) Vitals(ctx context.Context) (engine.Vitals, error) {
	out := engine.Vitals{Transactions: -1}
	w.own++
	res, err := w.c.exec(ctx, vitalsSQL)
	if err != nil || len(res.Rows) == 0 {
		return out, w.v.failed(ctx, "look how the shard fares", err)
	}
	row := res.Rows[0]
	for i, into := range []*int64{&out.Transactions, &out.Log, &out.Replayed} {
		if *into, err = strconv.ParseInt(row[i].String, 10, 64); err != nil {
			return out, err
		}
	}
	out.Transactions -= w.own
	if name := row[3].String; name != "" {
		out.Replica = name[:len(name)-1] // one without a name and address is one too
		if out.Replica == "" {
			out.Replica = "without a name"
		}
	}
	return out, nil
}

// Close implements engine.Watcher.
func (w *watcher) Close() error { return w.c.Close() }
