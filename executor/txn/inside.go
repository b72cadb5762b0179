package txn

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine/txnrecord"
	"github.com/cleavedb/cleave/sqlstate"
)

// insidePause is between two looks at what is still prepared.
const insidePause = 5 * time.Millisecond

// Unprovable says that a read cannot be proved: its conversations are not free to be asked, and why there are no others.
type Unprovable struct{ Why error }

// Error implements error.
func (u *Unprovable) Error() string { return u.Why.Error() }

// Unwrap gives the reason.
func (u *Unprovable) Unwrap() error { return u.Why }

// proofInside begins a proof from snapshots of the read's own conversations, because there is no connection for others. without is
// why there is none, and the error if what was prepared is not committed in time. Other errors: Unprovable.
func proofInside(ctx context.Context, c *Transaction, a Attempt, until time.Time, without error) (*Proof, error) {
	shards, err := a.shards()
	if err != nil {
		return nil, err
	}
	parts, err := c.Participants(ctx, shards, false)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if p.Busy != nil || p.Conn.Broken() || p.Begun && c.Lasting(p) {
			return nil, &Unprovable{without}
		}
		if there, err := recorded(c, p); err != nil || !there {
			return nil, cmp.Or[error](err, &Unprovable{without})
		}
	}
	began := time.Now()
	points, err := pointsInside(c, parts)
	if err != nil {
		return nil, err
	}
	if err := unprepared(ctx, c, parts, until, without); err != nil {
		return nil, err
	}
	pr := c.txns.proofFrom(cut{points: points}, true)
	pr.began = began
	return pr, nil
}

// pointsInside are a snapshot of each shard, taken in the conversations of the read. They need not fit each other.
func pointsInside(c *Transaction, parts []*Participant) (map[string]point, error) {
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
	return points, nil
}

// unprepared waits until all that is prepared now has ended. What is prepared later was not decided when the points were taken, and
// none of them sees it. What one has and another lacks was prepared there, or is committed. docs/design/atomicreads.md has the proof.
func unprepared(ctx context.Context, c *Transaction, parts []*Participant, until time.Time, late error) error {
	waits := make([]map[string]bool, len(parts))
	for i, p := range parts {
		var err error
		if waits[i], err = preparedOn(c, p); err != nil {
			return err
		}
	}
	for i, p := range parts {
		for len(waits[i]) > 0 {
			if time.Now().After(until) {
				return late
			}
			if !sleep(ctx, insidePause) {
				return context.Cause(ctx)
			}
			now, err := preparedOn(c, p)
			if err != nil {
				return err
			}
			maps.DeleteFunc(waits[i], func(gid string, _ bool) bool { return !now[gid] })
		}
	}
	return nil
}

// preparedOn are the global ids of what is prepared on a participant's shard.
func preparedOn(c *Transaction, p *Participant) (map[string]bool, error) {
	res, err := p.Conn.Exec(c.txns.records(p.Shard).Prepared())
	if err != nil {
		return nil, c.Failure(p, err)
	}
	gids := map[string]bool{}
	for _, row := range res.Rows {
		gids[row[0].String] = true
	}
	return gids, nil
}

// recorded reports whether a participant's shard has the table of records, which a look needs.
func recorded(c *Transaction, p *Participant) (bool, error) {
	if c.txns.records(p.Shard).Create() == "" {
		return true, nil
	}
	res, err := p.Conn.Exec("SELECT pg_catalog.to_regclass('" + txnrecord.Table + "') IS NULL")
	if err != nil {
		return false, c.Failure(p, err)
	}
	return len(res.Rows) == 1 && res.Rows[0][0].String == "f", nil
}

// unconnected reports whether a shard could not be reached by a connection of its own.
func unconnected(err error) bool {
	code := string(sqlstate.CodeOf(err))
	return code == string(sqlstate.CannotConnectNow) || strings.HasPrefix(code, "53") || strings.HasPrefix(code, "08")
}
