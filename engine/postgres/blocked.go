package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
)

var _ engine.Blocked = (*mover)(nil)

// blockersSQL are the sessions and prepared transactions that these processes of ours wait for: a slot waits for every
// transaction of the server, of whatever database, that has written.
const blockersSQL = `WITH w AS MATERIALIZED (SELECT pid FROM pg_catalog.pg_stat_activity
	WHERE datname = pg_catalog.current_database() AND wait_event_type = 'Lock' AND application_name IN (%s)),
b AS MATERIALIZED (SELECT DISTINCT pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.pid)) AS pid FROM w)
SELECT a.pid::pg_catalog.text, a.usename, a.datname, a.application_name, a.xact_start AS since, NULL::pg_catalog.text AS gid
FROM b JOIN pg_catalog.pg_stat_activity AS a ON a.pid = b.pid WHERE a.pid NOT IN (SELECT pid FROM w)
UNION ALL SELECT NULL, p.owner, p.database, '', p.prepared, p.gid
FROM w JOIN pg_catalog.pg_locks AS l ON l.pid = w.pid AND NOT l.granted AND l.locktype = 'transactionid'
JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction::pg_catalog.text = l.transactionid::pg_catalog.text`

// holdersSQL are those that hold a lock on one of these tables that a fence waits for.
const holdersSQL = `SELECT DISTINCT a.pid::pg_catalog.text, COALESCE(a.usename, p.owner), COALESCE(a.datname, p.database), COALESCE(a.application_name, ''), COALESCE(a.xact_start, p.prepared) AS since, p.gid
FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON l.pid IS NULL AND l.virtualtransaction LIKE '%%/' || p.transaction::pg_catalog.text
WHERE l.locktype = 'relation' AND l.granted AND l.mode NOT IN ('AccessShareLock', 'SIReadLock') AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
	AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
	AND l.relation IN (%s) AND COALESCE(a.pid::pg_catalog.text, p.gid) IS NOT NULL`

// Blockers implements engine.Blocked.
func (v *mover) Blockers(ctx context.Context, ids ...string) ([]engine.Blocker, error) {
	const op = "look who is waited for"
	names := []string{}
	for _, id := range append(slices.Clone(ids), "") {
		for _, what := range []string{forCapture, forChanges, forLoad, forApply, forOther} {
			names = append(names, literal(strings.TrimSpace(appName(what, id))))
		}
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return nil, err
	}
	defer v.done(c)
	out, err := blockers(ctx, c, fmt.Sprintf(blockersSQL, strings.Join(names, ", ")))
	return out, v.failed(ctx, op, err)
}

// holders says who keeps guards from being set.
func holders(ctx context.Context, c *conn, guards []engine.Guard) ([]engine.Blocker, error) {
	tables := make([]string, len(guards))
	for i, g := range guards {
		tables[i] = literal(ident(g.Schema)+"."+ident(g.Table)) + "::pg_catalog.regclass"
	}
	return blockers(ctx, c, fmt.Sprintf(holdersSQL, strings.Join(tables, ", ")))
}

func blockers(ctx context.Context, c *conn, sql string) ([]engine.Blocker, error) {
	res, err := c.exec(ctx, `SELECT pid, usename, datname, application_name, pg_catalog.to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'), gid FROM (`+sql+`) AS x (pid, usename, datname, application_name, since, gid) ORDER BY since LIMIT 20`)
	if err != nil {
		return nil, err
	}
	var out []engine.Blocker
	for _, row := range res.Rows {
		pid, user, database, name, since, gid := row[0].String, row[1].String, row[2].String, row[3].String, row[4].String, row[5]
		b := engine.Blocker{Who: "session " + pid, Command: "SELECT pg_terminate_backend(" + pid + ")"}
		if !gid.Null {
			b = engine.Blocker{Who: "the prepared transaction " + literal(gid.String), Command: "ROLLBACK PREPARED " + literal(gid.String)}
		}
		if user != "" {
			b.Who += " of user " + user
		}
		if database != "" {
			b.Who += " in database " + database
		}
		if name != "" {
			b.Who += " (" + name + ")"
		}
		if since != "" {
			b.Who += ", with a transaction since " + since + " UTC"
		}
		if strings.HasPrefix(name, "cleave ") || strings.HasPrefix(gid.String, "cleave") {
			b.Command = ""
		}
		out = append(out, b)
	}
	return out, nil
}
