package sqlitedir

import (
	"context"
	"errors"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// begin starts a transaction with the write lock, unless the cluster has moved.
func begin(conn *sqlite.Conn) error {
	if err := sqlitex.Execute(conn, "BEGIN IMMEDIATE", nil); err != nil {
		return err
	}
	return checkMoved(conn)
}

// checkMoved refuses writes to a directory whose cluster goes on elsewhere.
func checkMoved(conn *sqlite.Conn) error {
	m, err := moved(conn)
	if err != nil || m == nil {
		return err
	}
	return shardmap.Moved(*m)
}

// transact runs fn in a transaction with the write lock, unless the cluster has moved.
func (d *directory) transact(ctx context.Context, conns chan *sqlite.Conn, what string, fn func(*sqlite.Conn) error) error {
	return d.transactRaw(ctx, conns, what, func(conn *sqlite.Conn) error {
		if err := checkMoved(conn); err != nil {
			return err
		}
		return fn(conn)
	})
}

// transactRaw is transact also for a cluster that has moved.
func (d *directory) transactRaw(ctx context.Context, conns chan *sqlite.Conn, what string, fn func(*sqlite.Conn) error) error {
	return d.with(ctx, conns, "write", func(conn *sqlite.Conn) error {
		if err := sqlitex.Execute(conn, "BEGIN IMMEDIATE", nil); err != nil {
			return err
		}
		if err := fn(conn); err != nil {
			return err
		}
		// From here on the outcome must not depend on a context.
		conn.SetInterrupt(nil)
		if err := sqlitex.Execute(conn, "COMMIT", nil); err != nil {
			return unknownCommit(err, d.path, what)
		}
		return nil
	})
}

// fence refuses a token whose leadership has ended; 0 is no token.
func fence(conn *sqlite.Conn, token uint64, clock func() (string, int64, error)) error {
	if token == 0 {
		return nil
	}
	boot, now, err := clock()
	if err != nil {
		return err
	}
	valid := false
	err = sqlitex.Execute(conn, "SELECT 1 FROM election WHERE token = ? AND boot = ? AND until_ns > ?", &sqlitex.ExecOptions{
		Args:       []any{int64(token), boot, now},
		ResultFunc: func(*sqlite.Stmt) error { valid = true; return nil },
	})
	if err == nil && !valid {
		err = shardmap.Deposed(token)
	}
	return err
}

// count returns the next revision or token.
func count(conn *sqlite.Conn) (uint64, error) {
	var n int64
	err := sqlitex.Execute(conn, "UPDATE counter SET last = last + 1 RETURNING last", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			n = s.ColumnInt64(0)
			return nil
		},
	})
	if err == nil && n == 0 {
		err = sqlstate.New(sqlstate.DataCorrupted, "the directory file has lost its counter")
	}
	return uint64(n), err
}

// fenced is the directory's records under a leadership's token.
type fenced struct {
	*directory
	token uint64
}

func (d *directory) Fenced(token uint64) shardmap.Records { return fenced{d, token} }

func (f fenced) PutRecord(ctx context.Context, key string, value []byte, expect uint64) (uint64, error) {
	return f.put(ctx, f.token, key, value, expect)
}

func (f fenced) DeleteRecord(ctx context.Context, key string, expect uint64) error {
	return f.drop(ctx, f.token, key, expect)
}

func readRecord(s *sqlite.Stmt) shardmap.Record {
	value := make([]byte, s.ColumnLen(1))
	s.ColumnBytes(1, value)
	return shardmap.Record{Key: s.ColumnText(0), Value: value, Revision: uint64(s.ColumnInt64(2))}
}

func (d *directory) Record(ctx context.Context, key string) (shardmap.Record, error) {
	var r shardmap.Record
	err := d.with(ctx, d.reader, "read", func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, "SELECT key, value, revision FROM record WHERE key = ?", &sqlitex.ExecOptions{
			Args:       []any{key},
			ResultFunc: func(s *sqlite.Stmt) error { r = readRecord(s); return nil },
		})
	})
	if err == nil && r.Revision == 0 {
		err = shardmap.NoRecord(key)
	}
	return r, err
}

// revisionOf returns a record's revision, 0 if there is none.
func revisionOf(conn *sqlite.Conn, key string) (uint64, error) {
	var n int64
	err := sqlitex.Execute(conn, "SELECT revision FROM record WHERE key = ?", &sqlitex.ExecOptions{
		Args:       []any{key},
		ResultFunc: func(s *sqlite.Stmt) error { n = s.ColumnInt64(0); return nil },
	})
	return uint64(n), err
}

func (d *directory) PutRecord(ctx context.Context, key string, value []byte, expect uint64) (uint64, error) {
	return d.put(ctx, 0, key, value, expect)
}

func (d *directory) put(ctx context.Context, token uint64, key string, value []byte, expect uint64) (revision uint64, err error) {
	if err := shardmap.CheckRecord(key, value); err != nil {
		return 0, err
	}
	if value == nil {
		value = []byte{} // not NULL
	}
	err = d.transact(ctx, d.writer, "record "+key, func(conn *sqlite.Conn) error {
		if err := fence(conn, token, d.clock); err != nil {
			return err
		}
		now, err := revisionOf(conn, key)
		if err != nil {
			return err
		}
		if now != expect {
			return shardmap.RecordConflict(key, expect)
		}
		if revision, err = count(conn); err != nil {
			return err
		}
		return sqlitex.Execute(conn, "INSERT OR REPLACE INTO record (key, value, revision) VALUES (?, ?, ?)",
			&sqlitex.ExecOptions{Args: []any{key, value, int64(revision)}})
	})
	if err != nil {
		return 0, err
	}
	return revision, nil
}

func (d *directory) DeleteRecord(ctx context.Context, key string, expect uint64) error {
	return d.drop(ctx, 0, key, expect)
}

func (d *directory) drop(ctx context.Context, token uint64, key string, expect uint64) error {
	return d.transact(ctx, d.writer, "record "+key, func(conn *sqlite.Conn) error {
		if err := fence(conn, token, d.clock); err != nil {
			return err
		}
		now, err := revisionOf(conn, key)
		if err != nil {
			return err
		}
		if now != expect || now == 0 {
			return shardmap.RecordConflict(key, expect)
		}
		return sqlitex.Execute(conn, "DELETE FROM record WHERE key = ?", &sqlitex.ExecOptions{Args: []any{key}})
	})
}

// errEnough ends a query early.
var errEnough = errors.New("sqlitedir: enough")

func (d *directory) Records(ctx context.Context, prefix, after string, limit int) ([]shardmap.Record, error) {
	var list []shardmap.Record
	err := d.with(ctx, d.reader, "read", func(conn *sqlite.Conn) error {
		list = nil
		err := sqlitex.Execute(conn, "SELECT key, value, revision FROM record WHERE key >= ? AND key > ? ORDER BY key LIMIT ?", &sqlitex.ExecOptions{
			Args: []any{prefix, after, int64(max(limit, 0))},
			ResultFunc: func(s *sqlite.Stmt) error {
				r := readRecord(s)
				if !strings.HasPrefix(r.Key, prefix) {
					return errEnough // and so are all that follow
				}
				list = append(list, r)
				return nil
			},
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
	return list, err
}
