package several

import (
	"errors"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/sqlstate"
)

// oidUnknown is what stands for a type that the default shard does not have.
const oidUnknown = 705

// number gets a request ready for a part, whose OIDs of types may be others than those
// that clients know; see executor/oids.go.
func (c *transaction) number(p *part, q *request) error {
	if err := numbered(p.conn, q); err != nil {
		return c.failure(p, err)
	}
	return nil
}

func numbered(conn *executor.Conn, q *request) error {
	if _, err := conn.OIDs(q.oids, true); err != nil {
		return unnumbered(conn, err)
	}
	values, err := conn.Values(q.oids, q.formats, q.values, true)
	if err != nil {
		return unnumbered(conn, err)
	}
	q.values = values
	return nil
}

func unnumbered(conn *executor.Conn, err error) error {
	if se := new(sqlstate.Error); errors.As(err, &se) {
		return se
	}
	return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the OIDs of types could not be asked for").OnShard(conn.Shard()).
		WithHint("nothing was done: run it again; `cleave doctor` says which shards answer")
}
