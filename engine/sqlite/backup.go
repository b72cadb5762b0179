package sqlite

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/sqlstate"
)

var (
	_ engine.Markable  = (*Shard)(nil)
	_ engine.Renamable = (*Shard)(nil)
	_ engine.Copier    = (*marker)(nil)
)

// copyPages is how many pages a copy takes at a time.
const copyPages = 256

// marker marks places with SQLite's own snapshots: a place is a read transaction, which no writer waits for.
type marker struct {
	s  *Shard
	db *sqlite.Conn
}

// Marker implements engine.Markable.
func (s *Shard) Marker(ctx context.Context) (engine.Marker, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	db, err := s.openFile(false)
	if err != nil {
		return nil, s.openError(err)
	}
	if err := s.checkIdentity(db, false); err != nil {
		db.Close()
		return nil, err
	}
	return &marker{s, db}, nil
}

// Mark implements engine.Marker. The first read of a transaction takes the snapshot.
func (m *marker) Mark(_ context.Context, _ string) (string, error) {
	if !m.db.AutocommitEnabled() {
		if err := run(m.db, "ROLLBACK"); err != nil {
			return "", m.s.openError(err)
		}
	}
	if err := m.s.patiently(m.db, "BEGIN"); err != nil {
		return "", m.s.openError(err)
	}
	n, err := text1(m.db, `SELECT coalesce(max(xid), 0) FROM "cleave_internal.transaction"`)
	if err != nil {
		return "", m.s.openError(err)
	}
	return "record " + n, nil
}

// Copy implements engine.Copier. SQLite copies through the connection's open transaction, so that it never begins anew.
func (m *marker) Copy(ctx context.Context, to io.Writer, progress func(done, total int64)) (err error) {
	if m.db.AutocommitEnabled() {
		return sqlstate.New(sqlstate.ObjectNotInState, "no place of shard %s is marked", m.s.cfg.Name)
	}
	dir, err := os.MkdirTemp("", "cleave-backup-")
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.IOError, "no temporary folder can be made for a copy of shard %s", m.s.cfg.Name).
			WithHint("set TMPDIR to a folder with room for the largest file")
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "copy.db")
	if err := m.copyTo(ctx, path, progress); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.IOError, "the copy of shard %s cannot be read", m.s.cfg.Name)
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}

func (m *marker) copyTo(ctx context.Context, path string, progress func(done, total int64)) error {
	failed := func(err error) error {
		if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull {
			return sqlstate.Wrap(err, sqlstate.DiskFull, "no space is left for the copy of shard %s in %s", m.s.cfg.Name, filepath.Dir(path)).
				WithHint("set TMPDIR to a folder with room for the largest file")
		}
		return sqlstate.Wrap(err, sqlstate.IOError, "shard %s cannot be copied", m.s.cfg.Name)
	}
	size, err := queryInt(m.db, "PRAGMA page_size")
	if err != nil {
		return failed(err)
	}
	dst, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return failed(err)
	}
	defer dst.Close()
	for _, sql := range []string{"PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF"} {
		if err := run(dst, sql); err != nil {
			return failed(err)
		}
	}
	b, err := sqlite.NewBackup(dst, "main", m.db, "main")
	if err != nil {
		return failed(err)
	}
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			_ = b.Close()
			return err
		}
		if more, err = b.Step(copyPages); err != nil {
			_ = b.Close()
			return failed(err)
		}
		if progress != nil {
			total := int64(b.PageCount())
			progress((total-int64(b.Remaining()))*size, total*size)
		}
	}
	if err := b.Close(); err != nil {
		return failed(err)
	}
	return dst.Close()
}

func queryInt(db *sqlite.Conn, sql string) (int64, error) {
	stmt, _, err := db.PrepareTransient(sql)
	if err != nil {
		return 0, err
	}
	defer stmt.Finalize()
	if _, err := stmt.Step(); err != nil {
		return 0, err
	}
	return stmt.ColumnInt64(0), nil
}

// Close implements engine.Marker.
func (m *marker) Close() error { return m.db.Close() }

// Rename implements engine.Renamable.
func (s *Shard) Rename(ctx context.Context, cluster string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	db, err := s.openFile(false)
	if err != nil {
		return s.openError(err)
	}
	defer db.Close()
	if has, err := hasMeta(db); err != nil {
		return s.openError(err)
	} else if !has {
		return s.checkIdentity(db, false)
	}
	if err := run(db, "UPDATE cleave_meta SET value = "+quote.Text(cluster)+" WHERE key = 'cluster'"); err != nil {
		return s.openError(err)
	}
	return nil
}
