package sqlitedir

import (
	"context"
	"encoding/json"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// moved returns the mark of a directory that the cluster has left, nil if there is none.
func moved(conn *sqlite.Conn) (m *shardmap.Move, err error) {
	err = sqlitex.Execute(conn, "SELECT mark FROM moved", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			m = &shardmap.Move{}
			if err := json.Unmarshal([]byte(s.ColumnText(0)), m); err != nil {
				return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the mark of a moved cluster cannot be read")
			}
			return nil
		},
	})
	return m, err
}

func (d *directory) Moved(ctx context.Context) (m *shardmap.Move, err error) {
	err = d.with(ctx, d.reader, "read", func(conn *sqlite.Conn) error {
		m, err = moved(conn)
		return err
	})
	return m, err
}

func (d *directory) SetMoved(ctx context.Context, expect, next *shardmap.Move, version uint64) error {
	return d.transactRaw(ctx, d.writer, "the mark of a moved cluster", func(conn *sqlite.Conn) error {
		now, err := moved(conn)
		if err != nil {
			return err
		}
		newest, err := newestVersion(conn)
		if err != nil {
			return err
		}
		if !now.Same(expect) || newest != version {
			return shardmap.Conflict(version, newest)
		}
		if err := sqlitex.Execute(conn, "DELETE FROM moved", nil); err != nil || next == nil {
			return err
		}
		mark, err := json.Marshal(next)
		if err != nil {
			return err
		}
		return sqlitex.Execute(conn, "INSERT INTO moved (mark) VALUES (?)", &sqlitex.ExecOptions{Args: []any{string(mark)}})
	})
}

// copying runs fn in a transaction while a copy into the directory goes on.
func (d *directory) copying(ctx context.Context, what string, fn func(*sqlite.Conn) error) error {
	return d.transactRaw(ctx, d.writer, what, func(conn *sqlite.Conn) error {
		m, err := moved(conn)
		if err != nil {
			return err
		}
		if m == nil || m.From == "" {
			return shardmap.NotCopying()
		}
		return fn(conn)
	})
}

func (d *directory) Restore(ctx context.Context, e shardmap.Entry, snap *shardmap.Snapshot) error {
	packed, err := shardmap.Pack(snap)
	if err != nil {
		return err
	}
	return d.copying(ctx, "a version of the shard map", func(conn *sqlite.Conn) error {
		newest, err := newestVersion(conn)
		if err != nil {
			return err
		}
		if newest+1 != e.Version {
			return shardmap.Conflict(e.Version-1, newest)
		}
		return addVersion(conn, e, packed)
	})
}

func (d *directory) RestoreRecord(ctx context.Context, key string, value []byte) error {
	if err := shardmap.CheckRecord(key, value); err != nil {
		return err
	}
	return d.copying(ctx, "record "+key, func(conn *sqlite.Conn) error {
		if value == nil {
			return sqlitex.Execute(conn, "DELETE FROM record WHERE key = ?", &sqlitex.ExecOptions{Args: []any{key}})
		}
		revision, err := count(conn)
		if err != nil {
			return err
		}
		return sqlitex.Execute(conn, "INSERT OR REPLACE INTO record (key, value, revision) VALUES (?, ?, ?)",
			&sqlitex.ExecOptions{Args: []any{key, value, int64(revision)}})
	})
}

var _ shardmap.Mover = (*directory)(nil)
