package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// format is the version of what Install creates. A shard of a newer format is
// refused: this binary does not know what guards are there.
const format = 1

// installLock serializes Installs on one database ("cleave" in ASCII).
const installLock = 0x636c65617665

// installSQL is idempotent. Everyone may read who the database belongs to, for
// a router that logs in as another role than the one that installed it.
const installSQL = `BEGIN;
SELECT pg_catalog.pg_advisory_xact_lock(%d);
CREATE SCHEMA IF NOT EXISTS cleave_internal;
GRANT USAGE ON SCHEMA cleave_internal TO PUBLIC;
COMMENT ON SCHEMA cleave_internal IS 'Cleave: which shard this database is, and the guards of its tables';
CREATE TABLE IF NOT EXISTS cleave_internal.shard (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	cluster text NOT NULL,
	name text NOT NULL,
	format integer NOT NULL,
	installed_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
GRANT SELECT ON cleave_internal.shard TO PUBLIC;
INSERT INTO cleave_internal.shard (cluster, name, format) VALUES (%s, %s, %d) ON CONFLICT DO NOTHING;
` + identitySQL

const identitySQL = `SELECT cluster, name, format, pg_catalog.current_setting('max_prepared_transactions') FROM cleave_internal.shard`

// Install creates schema cleave_internal and writes the cluster's and the
// shard's names. A database that belongs to another shard is left as it is (55000).
func (s *shard) Install(ctx context.Context) error {
	if s.cfg.Cluster == "" || s.cfg.Name == "" {
		return sqlstate.New(sqlstate.InvalidParameterValue, "a shard is installed with its cluster's and its own name")
	}
	c, err := s.dial(ctx, plainParams)
	if err != nil {
		return err
	}
	defer c.Close()
	// An existing installation is only read: Install then works for roles that
	// may not create schemas, and on a full disk.
	if err := s.verify(ctx, c); err == nil {
		return s.keepIfPossible(ctx)
	} else if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !errors.Is(err, errNotInstalled) {
		return err
	}
	res, err := c.exec(ctx, fmt.Sprintf(installSQL, int64(installLock), literal(s.cfg.Cluster), literal(s.cfg.Name), format))
	if err != nil {
		return s.failed("install", err)
	}
	if err := s.identify(res); err != nil {
		return err
	}
	if _, err := c.exec(ctx, "COMMIT"); err != nil {
		return s.failed("install", err)
	}
	return s.keepIfPossible(ctx)
}

// plainParams are the startup parameters of housekeeping conversations.
var plainParams = map[string]string{
	"application_name": "cleave", "client_encoding": "UTF8", "DateStyle": "ISO", "default_transaction_isolation": "read committed",
}

var errNotInstalled = errors.New("the table cleave_internal.shard does not exist")

// verify asks whose database this is. It must run outside a transaction.
func (s *shard) verify(ctx context.Context, c *conn) error {
	res, err := c.exec(ctx, identitySQL)
	switch sqlstate.CodeOf(err) {
	case "":
	case sqlstate.UndefinedTable, sqlstate.InvalidSchemaName:
		return (&sqlstate.Error{
			Code: sqlstate.ObjectNotInState, Op: "verify", Shard: s.cfg.Name, Err: errNotInstalled,
			Message: "the database has not been set up as a shard",
		}).WithHint("%s", engine.HintNotTheShard(s.cfg.Name))
	default:
		return s.failed("verify", err)
	}
	return s.identify(res)
}

// identify compares the row of cleave_internal.shard with the configuration.
func (s *shard) identify(res *engine.Result) error {
	if len(res.Rows) != 1 || len(res.Rows[0]) != 4 {
		return (&sqlstate.Error{
			Code: sqlstate.ObjectNotInState, Op: "verify", Shard: s.cfg.Name,
			Message: "cleave_internal.shard does not hold exactly one row",
		}).WithHint("restore the database from a backup, or use an empty one")
	}
	row := res.Rows[0]
	cluster, name, version := row[0].String, row[1].String, row[2].String
	switch {
	case cluster != s.cfg.Cluster:
		return (&sqlstate.Error{
			Code: sqlstate.ObjectNotInState, Op: "verify", Shard: s.cfg.Name,
			Message: "the database belongs to another cluster",
			Detail:  fmt.Sprintf("It is shard %s of cluster %s; this is cluster %s.", name, cluster, s.cfg.Cluster),
		}).WithHint("correct the shard's URL, or give the shard an empty database of its own")
	case name != s.cfg.Name:
		return (&sqlstate.Error{
			Code: sqlstate.ObjectNotInState, Op: "verify", Shard: s.cfg.Name,
			Message: fmt.Sprintf("the database is shard %s, not %s", name, s.cfg.Name),
			Detail:  fmt.Sprintf("Both URLs lead to the same database of cluster %s.", cluster),
		}).WithHint("correct the shard's URL: every shard has a database of its own")
	case version != fmt.Sprint(format):
		return (&sqlstate.Error{
			Code: sqlstate.ObjectNotInState, Op: "verify", Shard: s.cfg.Name,
			Message: fmt.Sprintf("the shard was set up in format %s, this program knows format %d", version, format),
		}).WithHint("run the version of cleave that set it up, or a newer one")
	}
	s.learnPrepared(row[3].String)
	s.verified.Store(true)
	return nil
}

// failed adds operation and shard to an error of the shard.
func (s *shard) failed(op string, err error) error {
	if lost := engine.Lost(err); lost != nil {
		e := lost.State(false)
		e.Op = op
		return e
	}
	var e *sqlstate.Error
	if errors.As(err, &e) {
		if e.Op == "" {
			e.Op = op
		}
		if e.Shard == "" {
			e.Shard = s.cfg.Name
		}
		return err
	}
	return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "%s on shard %s did not end in time", op, s.cfg.Name).OnShard(s.cfg.Name)
}
