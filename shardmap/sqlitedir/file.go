package sqlitedir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// applicationID marks a directory file in SQLite's header: "CLVE".
	applicationID = 0x434c5645
	// fileFormat is the version of the tables below, in SQLite's user_version.
	// Format 1 had the map only; opening such a file adds the rest.
	fileFormat = 2

	// checkMax is the size up to which Open checks the whole file, bytes. It
	// takes some milliseconds.
	checkMax = 16 << 20
	// walKeepMax is what the write-ahead log is cut to after a checkpoint, bytes.
	walKeepMax = 16 << 20
)

// tables: the map is the last column, so that reading history does not touch
// its pages.
const tables = `
CREATE TABLE map_version (
	version    INTEGER PRIMARY KEY CHECK (version > 0),
	at_us      INTEGER NOT NULL,
	changed_by TEXT NOT NULL,
	why        TEXT NOT NULL,
	op         TEXT NOT NULL,
	statement  TEXT NOT NULL,
	tables     TEXT NOT NULL,
	all_shards INTEGER NOT NULL,
	change_id  TEXT UNIQUE,
	state      BLOB NOT NULL
) STRICT;
` + newTables

// newTables are those that format 1 does not have. counter holds the last
// revision or token that was given. Moments of leases are readings of the
// machine's monotonic clock, and say nothing after another boot. A row of moved
// is a shardmap.Move.
const newTables = `
CREATE TABLE record (
	key      TEXT PRIMARY KEY,
	value    BLOB NOT NULL,
	revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE counter (last INTEGER NOT NULL) STRICT;
INSERT INTO counter VALUES (0);
CREATE TABLE member (
	id           TEXT PRIMARY KEY,
	node         INTEGER NOT NULL UNIQUE,
	about        TEXT NOT NULL,
	acknowledged INTEGER NOT NULL,
	joined_us    INTEGER NOT NULL,
	boot         TEXT NOT NULL,
	until_ns     INTEGER NOT NULL
) STRICT;
CREATE TABLE election (
	name      TEXT PRIMARY KEY,
	candidate TEXT NOT NULL,
	token     INTEGER NOT NULL UNIQUE,
	boot      TEXT NOT NULL,
	until_ns  INTEGER NOT NULL
) STRICT;
CREATE TABLE moved (mark TEXT NOT NULL) STRICT;
`

// opening serialises Open within the process. When a process closes any
// descriptor of a file, POSIX drops all locks that it holds on the file, also
// those of SQLite's descriptors: so a file that may be open already is never
// touched but through SQLite, and creating one is not done twice at a time.
var opening sync.Mutex

// open opens the file's connections: to read, to write, to poll, and for leases.
func (d *directory) open(path string) ([4]*sqlite.Conn, error) {
	opening.Lock()
	defer opening.Unlock()
	var conns [4]*sqlite.Conn
	full, err := filepath.Abs(path)
	if err != nil {
		return conns, sqlstate.Wrap(err, sqlstate.IOError, "the path %q has no absolute form", path)
	}
	d.path = full
	if err := create(full); err != nil {
		return conns, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.opts.BusyMax)
	defer cancel()
	for i := range conns {
		if conns[i], err = connect(ctx, full); err != nil {
			break
		}
		if i > 0 {
			continue
		}
		if err = prepare(ctx, conns[0]); err != nil {
			break
		}
	}
	if err == nil {
		// A lease need not survive a loss of power, since its process does not:
		// no renewal waits for the disk.
		err = sqlitex.ExecuteTransient(conns[3], "PRAGMA synchronous = NORMAL", nil)
	}
	if err == nil {
		d.file, err = os.Stat(full)
	}
	if err == nil {
		// A newest version that cannot be read is better found now.
		_, err = d.current(conns[0])
	}
	for _, c := range conns {
		if c == nil {
			continue
		}
		c.SetInterrupt(nil)
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if err != nil {
		return conns, fileError(err, full, "open")
	}
	return conns, nil
}

// create makes an empty file, durable in its folder, if there is none.
func create(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return sqlstate.New(sqlstate.ObjectNotInState, "%s is not a regular file", path).
			WithHint("choose another data folder: cleave up --data FOLDER")
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fileError(err, path, "open")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	if err != nil {
		return fileError(err, path, "create")
	}
	if err := f.Close(); err != nil {
		return fileError(err, path, "create")
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fileError(err, path, "create")
	}
	err = errors.Join(folder.Sync(), folder.Close())
	if err != nil {
		return fileError(err, path, "create")
	}
	return nil
}

// connect opens one connection. It changes nothing in the file.
func connect(ctx context.Context, path string) (*sqlite.Conn, error) {
	// An absolute path is never taken for a URI, whatever its characters.
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	conn.SetInterrupt(ctx.Done())
	// FULL: a commit is acknowledged only after the log is on stable storage.
	for _, pragma := range []string{
		"PRAGMA synchronous = FULL",
		fmt.Sprintf("PRAGMA journal_size_limit = %d", walKeepMax),
		"PRAGMA trusted_schema = OFF",
		"PRAGMA cell_size_check = ON",
	} {
		if err := sqlitex.ExecuteTransient(conn, pragma, nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// prepare checks that the file is a directory of the known format, or makes an
// empty file one. A file of anybody else is left as it is.
func prepare(ctx context.Context, conn *sqlite.Conn) error {
	format, err := inspect(conn)
	if err != nil {
		return err
	}
	if err := useLog(ctx, conn); err != nil {
		return err
	}
	if format != 0 {
		if err := quickCheck(conn); err != nil || format == fileFormat {
			return err
		}
	}
	if err := sqlitex.ExecuteTransient(conn, "BEGIN IMMEDIATE", nil); err != nil {
		return err
	}
	// Another process may have done it in the meantime.
	format, err = inspect(conn)
	if err == nil && format != fileFormat {
		err = makeTables(conn, format)
	}
	if err == nil {
		err = sqlitex.ExecuteTransient(conn, "COMMIT", nil)
	}
	if err != nil && !conn.AutocommitEnabled() {
		err = errors.Join(err, sqlitex.ExecuteTransient(conn, "ROLLBACK", nil))
	}
	return err
}

// makeTables makes a directory of an empty file, or of one of an earlier format.
func makeTables(conn *sqlite.Conn, format int64) error {
	script := tables
	if format == 1 {
		script = newTables
	}
	statements := append(strings.SplitAfter(script, ";\n"),
		fmt.Sprintf("PRAGMA application_id = %d", applicationID), fmt.Sprintf("PRAGMA user_version = %d", fileFormat))
	for _, statement := range statements {
		if statement = strings.TrimSpace(statement); statement == "" {
			continue
		}
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return err
		}
	}
	return nil
}

// inspect returns the file's format, 0 if it is empty, and refuses one that is
// neither empty nor a directory of a known format.
func inspect(conn *sqlite.Conn) (format int64, err error) {
	var application, objects, known int64
	for _, q := range []struct {
		sql  string
		into *int64
	}{
		{"SELECT count(*) FROM sqlite_schema", &objects},
		{"PRAGMA application_id", &application},
		{"PRAGMA user_version", &format},
		{"SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'map_version'", &known},
	} {
		err := sqlitex.ExecuteTransient(conn, q.sql, &sqlitex.ExecOptions{
			ResultFunc: func(s *sqlite.Stmt) error {
				*q.into = s.ColumnInt64(0)
				return nil
			},
		})
		if err != nil {
			return 0, err
		}
	}
	switch {
	case objects == 0 && application == 0 && format == 0:
		return 0, nil
	case application != applicationID:
		return 0, sqlstate.New(sqlstate.ObjectNotInState, "this SQLite file belongs to another program").
			WithHint("choose another data folder: cleave up --data FOLDER")
	case format > fileFormat:
		return 0, sqlstate.New(sqlstate.ObjectNotInState, "the directory file has format %d, this program knows format %d", format, fileFormat).
			WithHint("run the newer release that wrote it (cleave version prints this one), or start an empty cluster: cleave up --data NEW_FOLDER")
	case format < 1:
		return 0, sqlstate.New(sqlstate.ObjectNotInState, "the directory file has format %d, this program knows format %d", format, fileFormat).
			WithHint("start an empty cluster: cleave up --data NEW_FOLDER")
	case known == 0:
		return 0, sqlstate.New(sqlstate.DataCorrupted, "the directory file has lost its table")
	}
	return format, nil
}

// useLog switches to the write-ahead log. While another process does the same,
// SQLite reports the lock without waiting for it.
func useLog(ctx context.Context, conn *sqlite.Conn) error {
	for {
		mode := ""
		err := sqlitex.ExecuteTransient(conn, "PRAGMA journal_mode = WAL", &sqlitex.ExecOptions{
			ResultFunc: func(s *sqlite.Stmt) error {
				mode = s.ColumnText(0)
				return nil
			},
		})
		if err == nil && mode == "wal" {
			return nil
		}
		if err == nil {
			return sqlstate.New(sqlstate.IOError, "the file system cannot hold SQLite's write-ahead log").
				WithHint("choose a folder on a local disk: cleave up --data FOLDER")
		}
		if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultBusy {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// quickCheck looks for damage in files that are small enough for it.
func quickCheck(conn *sqlite.Conn) error {
	size := int64(0)
	err := sqlitex.ExecuteTransient(conn, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			size = s.ColumnInt64(0)
			return nil
		},
	})
	if err != nil || size > checkMax {
		return err
	}
	found := ""
	err = sqlitex.ExecuteTransient(conn, "PRAGMA quick_check(1)", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			found = s.ColumnText(0)
			return nil
		},
	})
	if err == nil && found != "ok" {
		err = sqlstate.New(sqlstate.DataCorrupted, "the directory file is damaged").WithDetail("%s", found)
	}
	return err
}

const restoreHint = "bring the file back from a backup, or start an empty cluster: cleave up --data NEW_FOLDER"

// fileError makes SQLite's and the file system's errors ones that people can
// act on. Errors that are sqlstate's or a context's already stay as they are,
// but those about the file itself get its path.
func fileError(err error, path, what string) error {
	var known *sqlstate.Error
	if errors.As(err, &known) {
		if what == "open" || known.Code == sqlstate.DataCorrupted {
			known.Detail, known.Hint = cmp.Or(known.Detail, "file "+path), cmp.Or(known.Hint, restoreHint)
		}
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	fail := func(code sqlstate.Code, hint, format string, args ...any) error {
		e := sqlstate.Wrap(err, code, format, args...)
		e.Hint = hint
		return e
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fail(sqlstate.InsufficientPrivilege, "run it as the user who owns the data folder, or choose another: cleave up --data FOLDER",
			"the directory file %s cannot be used by this user", path)
	case errors.Is(err, fs.ErrNotExist):
		return fail(sqlstate.IOError, "make the folder first: mkdir -p "+filepath.Dir(path), "the folder of the directory file %s does not exist", path)
	}
	switch code := sqlite.ErrCode(err).ToPrimary(); code {
	case sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultInterrupt:
		return fail(sqlstate.LockNotAvailable, "find who holds it: fuser "+path, "another process keeps the directory file %s locked", path)
	case sqlite.ResultFull:
		return fail(sqlstate.DiskFull, "free space on its disk, then run it again", "no space is left to %s the directory file %s; nothing was changed", what, path)
	case sqlite.ResultNotADB:
		return fail(sqlstate.ObjectNotInState, "choose another data folder: cleave up --data FOLDER", "%s is not a directory file", path)
	case sqlite.ResultCorrupt:
		return fail(sqlstate.DataCorrupted, restoreHint, "the directory file %s is damaged", path)
	case sqlite.ResultPerm, sqlite.ResultReadOnly, sqlite.ResultAuth, sqlite.ResultCantOpen:
		return fail(sqlstate.InsufficientPrivilege, "run it as the user who owns the data folder, or choose another: cleave up --data FOLDER",
			"the directory file %s cannot be opened for writing", path)
	case sqlite.ResultNoMem:
		return fail(sqlstate.OutOfMemory, "", "no memory is left to %s the directory file %s", what, path)
	}
	return fail(sqlstate.IOError, "look at the disk and the system's log", "cannot %s the directory file %s", what, path)
}

// commitError says what a failed COMMIT means. Only a full disk is sure to have
// stored nothing: after another failure the log may or may not hold the change
// when it is read next.
func commitError(err error, path string, e shardmap.Entry) error {
	return unknownCommit(err, path, fmt.Sprintf("version %d of the shard map", e.Version))
}

func unknownCommit(err error, path, what string) error {
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull {
		return err
	}
	unknown := sqlstate.Wrap(err, sqlstate.TransactionUnknown, "it is not known whether %s was stored in %s", what, path).
		WithHint("look with \"cleave map history\" before running it again")
	unknown.Retry = sqlstate.RetryUnknown
	return unknown
}
