package sqlitedir

import (
	"context"
	"encoding/json"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

func (d *directory) Join(ctx context.Context, m shardmap.Member) (*shardmap.Lease, func(context.Context) error, error) {
	if err := m.Validate(); err != nil {
		return nil, nil, err
	}
	return shardmap.Keep(ctx, d.life, d.opts.LeaseTTL, &seat{d, m})
}

func (d *directory) Members(ctx context.Context) ([]shardmap.MemberState, error) {
	boot, now, err := d.clock()
	if err != nil {
		return nil, fileError(err, d.path, "read")
	}
	var list []shardmap.MemberState
	err = d.with(ctx, d.reader, "read", func(conn *sqlite.Conn) error {
		list = nil
		return sqlitex.Execute(conn, `SELECT node, about, acknowledged, joined_us, until_ns FROM member
			WHERE boot = ? AND until_ns > ? ORDER BY node`, &sqlitex.ExecOptions{
			Args: []any{boot, now},
			ResultFunc: func(s *sqlite.Stmt) error {
				m := shardmap.MemberState{
					Node: uint16(s.ColumnInt64(0)), Acknowledged: uint64(s.ColumnInt64(2)),
					Joined: time.UnixMicro(s.ColumnInt64(3)).UTC(), Left: time.Duration(s.ColumnInt64(4) - now),
				}
				if err := json.Unmarshal([]byte(s.ColumnText(1)), &m.Member); err != nil {
					return sqlstate.Wrap(err, sqlstate.DataCorrupted, "member %d cannot be read", m.Node)
				}
				list = append(list, m)
				return nil
			},
		})
	})
	return list, err
}

// seat is a row of member.
type seat struct {
	d *directory
	m shardmap.Member
}

func (s *seat) Take(ctx context.Context, prefer uint16, acknowledged uint64) (node uint16, version uint64, err error) {
	d := s.d
	about, err := json.Marshal(s.m)
	if err != nil {
		return 0, 0, err
	}
	err = d.transact(ctx, d.leases, "member "+s.m.ID, func(conn *sqlite.Conn) error {
		boot, now, err := d.clock()
		if err != nil {
			return err
		}
		err = sqlitex.Execute(conn, "DELETE FROM member WHERE boot <> ? OR until_ns <= ? OR id = ?",
			&sqlitex.ExecOptions{Args: []any{boot, now, s.m.ID}})
		if err != nil {
			return err
		}
		taken := map[uint16]bool{}
		err = sqlitex.Execute(conn, "SELECT node FROM member", &sqlitex.ExecOptions{
			ResultFunc: func(r *sqlite.Stmt) error { taken[uint16(r.ColumnInt64(0))] = true; return nil },
		})
		if err != nil {
			return err
		}
		if node, err = shardmap.FreeNode(prefer, taken); err != nil {
			return err
		}
		if version, err = newestVersion(conn); err != nil {
			return err
		}
		return sqlitex.Execute(conn, `INSERT INTO member (id, node, about, acknowledged, joined_us, boot, until_ns)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, &sqlitex.ExecOptions{
			Args: []any{s.m.ID, int64(node), string(about), int64(acknowledged), d.opts.Now().UnixMicro(), boot, now + int64(d.opts.LeaseTTL)},
		})
	})
	return node, version, err
}

func (s *seat) Renew(ctx context.Context, acknowledged uint64) error {
	d := s.d
	return d.transact(ctx, d.leases, "member "+s.m.ID, func(conn *sqlite.Conn) error {
		boot, now, err := d.clock()
		if err != nil {
			return err
		}
		err = sqlitex.Execute(conn, "UPDATE member SET acknowledged = ?, until_ns = ? WHERE id = ? AND boot = ? AND until_ns > ?",
			&sqlitex.ExecOptions{Args: []any{int64(acknowledged), now + int64(d.opts.LeaseTTL), s.m.ID, boot, now}})
		if err == nil && conn.Changes() == 0 {
			err = shardmap.ErrLeaseLost
		}
		return err
	})
}

func (s *seat) Leave(ctx context.Context) error {
	return s.d.transactRaw(ctx, s.d.leases, "member "+s.m.ID, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, "DELETE FROM member WHERE id = ?", &sqlitex.ExecOptions{Args: []any{s.m.ID}})
	})
}

// campaignPause is between two looks at an election that another leads.
const campaignPause = 10 * time.Millisecond

func (d *directory) Campaign(ctx context.Context, election, candidate string) (*shardmap.Leadership, error) {
	if err := shardmap.CheckElection(election, candidate); err != nil {
		return nil, err
	}
	for {
		led, err := d.led(ctx, election)
		if err != nil {
			return nil, err
		}
		if !led {
			from := time.Now()
			token, err := d.elect(ctx, election, candidate)
			if err != nil {
				return nil, err
			}
			if token != 0 {
				return shardmap.Lead(d.life, d.opts.LeaseTTL, from, token,
					func(ctx context.Context) error { return d.lead(ctx, token) },
					func(ctx context.Context) error { return d.resign(ctx, token) }), nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-d.life.Done():
			return nil, shardmap.Closed()
		case <-time.After(campaignPause):
		}
	}
}

// led reports whether the election has a leader, without the write lock.
func (d *directory) led(ctx context.Context, election string) (led bool, err error) {
	err = d.with(ctx, d.reader, "read", func(conn *sqlite.Conn) error {
		led, err = hasLeader(conn, election, d.clock)
		return err
	})
	return led, err
}

func hasLeader(conn *sqlite.Conn, election string, clock func() (string, int64, error)) (led bool, err error) {
	boot, now, err := clock()
	if err != nil {
		return false, err
	}
	err = sqlitex.Execute(conn, "SELECT 1 FROM election WHERE name = ? AND boot = ? AND until_ns > ?", &sqlitex.ExecOptions{
		Args:       []any{election, boot, now},
		ResultFunc: func(*sqlite.Stmt) error { led = true; return nil },
	})
	return led, err
}

// elect returns the new leader's token, 0 if there is a leader already.
func (d *directory) elect(ctx context.Context, election, candidate string) (token uint64, err error) {
	err = d.transact(ctx, d.writer, "election "+election, func(conn *sqlite.Conn) error {
		token = 0
		if led, err := hasLeader(conn, election, d.clock); err != nil || led {
			return err
		}
		boot, now, err := d.clock()
		if err != nil {
			return err
		}
		if token, err = count(conn); err != nil {
			return err
		}
		return sqlitex.Execute(conn, "INSERT OR REPLACE INTO election (name, candidate, token, boot, until_ns) VALUES (?, ?, ?, ?, ?)",
			&sqlitex.ExecOptions{Args: []any{election, candidate, int64(token), boot, now + int64(d.opts.LeaseTTL)}})
	})
	if err != nil {
		return 0, err
	}
	return token, nil
}

func (d *directory) lead(ctx context.Context, token uint64) error {
	return d.transact(ctx, d.leases, "election", func(conn *sqlite.Conn) error {
		boot, now, err := d.clock()
		if err != nil {
			return err
		}
		err = sqlitex.Execute(conn, "UPDATE election SET until_ns = ? WHERE token = ? AND boot = ? AND until_ns > ?",
			&sqlitex.ExecOptions{Args: []any{now + int64(d.opts.LeaseTTL), int64(token), boot, now}})
		if err == nil && conn.Changes() == 0 {
			err = shardmap.ErrLeaseLost
		}
		return err
	})
}

func (d *directory) resign(ctx context.Context, token uint64) error {
	return d.transactRaw(ctx, d.writer, "election", func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, "DELETE FROM election WHERE token = ?", &sqlitex.ExecOptions{Args: []any{int64(token)}})
	})
}
