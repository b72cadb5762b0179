package txn

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine/txnrecord"
	"github.com/cleavedb/cleave/sqlstate"
)

// insidePause is between two looks whether something is still prepared.
const insidePause = 5 * time.Millisecond

var (
	errPrepared = errors.New("txn: something is prepared")
	errOutside  = errors.New("txn: the conversations of the read are not free to be asked")
)

// proofInside begins a proof from snapshots of the read's own conversations, because there is no connection for others. It waits
// until nothing is prepared on the shards. without is why there is none, and the error if that does not come in time.
func proofInside(ctx context.Context, c *Transaction, a Attempt, until time.Time, without error) (*Proof, error) {
	shards, err := a.shards()
	if err != nil {
		return nil, err
	}
	for {
		began := time.Now()
		points, err := pointsInside(ctx, c, shards)
		switch {
		case err == nil:
			pr := c.txns.proofFrom(cut{points: points}, true)
			pr.began = began
			return pr, nil
		case errors.Is(err, errOutside), errors.Is(err, errPrepared) && began.After(until):
			return nil, without
		case !errors.Is(err, errPrepared):
			return nil, err
		case !sleep(ctx, insidePause):
			return nil, context.Cause(ctx)
		}
	}
}

// pointsInside are a snapshot of each shard, taken in the conversations of the read. They need not fit each other. But after all of
// them nothing was prepared on any of the shards: what one has and another lacks was committed there before the statement.
// docs/design/atomicreads.md has the proof.
func pointsInside(ctx context.Context, c *Transaction, shards []string) (map[string]point, error) {
	parts, err := c.Participants(ctx, shards, false)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if p.Busy != nil || p.Conn.Broken() || p.Begun && c.Lasting(p) {
			return nil, errOutside
		}
	}
	points := map[string]point{}
	for _, p := range parts {
		res, err := p.Conn.Exec(c.txns.records(p.Shard).Point())
		if err != nil {
			return nil, c.Failure(p, err)
		}
		row, err := res.OneRow(2, p.Shard)
		if err != nil {
			return nil, err
		}
		points[p.Shard] = point{row[0].String, row[1].String}
	}
	for _, p := range parts {
		if err := unprepared(c, p); err != nil {
			return nil, err
		}
	}
	return points, nil
}

// unprepared fails if something is prepared on a participant's shard, or if it has no table of records, which a look needs.
func unprepared(c *Transaction, p *Participant) error {
	r := c.txns.records(p.Shard)
	res, err := p.Conn.Exec(r.Prepared())
	switch {
	case err != nil:
		return c.Failure(p, err)
	case len(res.Rows) > 0:
		return errPrepared
	case r.Create() == "":
		return nil
	}
	res, err = p.Conn.Exec("SELECT pg_catalog.to_regclass('" + txnrecord.Table + "') IS NULL")
	switch {
	case err != nil:
		return c.Failure(p, err)
	case len(res.Rows) != 1 || res.Rows[0][0].String != "f":
		return errOutside
	}
	return nil
}

// unconnected reports whether a shard could not be reached by a connection of its own.
func unconnected(err error) bool {
	code := string(sqlstate.CodeOf(err))
	return code == string(sqlstate.CannotConnectNow) || strings.HasPrefix(code, "53") || strings.HasPrefix(code, "08")
}
