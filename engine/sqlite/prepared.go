package sqlite

import (
	"io"
	"strconv"
	"sync"
	"time"

	pg "github.com/pganalyze/pg_query_go/v6"
	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/change"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/systemrows"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// Prepared transactions: docs/design/sqlite-prepared.md. What is prepared is a row
// of cleave_prepared, its changes are rows of cleave_change, and while one of them
// holds the file's write lock, cleave_meta has the key 'prepared'. All three are
// written in the very SQLite transaction that takes the changes back, so that
// nobody writes between.

// preparedPoll bounds the pause between two looks whether a transaction that
// another process prepared has ended.
const preparedPoll = 20 * time.Millisecond

// startSavepoint is the state to which PREPARE TRANSACTION goes back.
const startSavepoint = "SAVEPOINT cleave_tx"

var (
	_ engine.TwoPhase = (*Conn)(nil)
	_ engine.Grouped  = (*Conn)(nil)
)

// CanPrepare implements engine.TwoPhase: every file can.
func (c *transaction) CanPrepare() bool { return c.shard != nil }

// record begins to note what the transaction writes, if it may be prepared.
func (c *transaction) record() error {
	if c.tx.block != txOpen || c.shard == nil {
		return nil
	}
	if err := c.cachedExec(startSavepoint); err != nil {
		return err
	}
	c.touched.Begin()
	return nil
}

// prepareTransaction is PREPARE TRANSACTION in a block that has not failed. The
// block is over afterwards, in any case.
func (c *session) prepareTransaction(gid string) error {
	err := c.prepareTx(gid)
	if err != nil {
		c.abandonTx()
		return err
	}
	c.settings.commitLocal(&c.tx)
	c.resetTx()
	return nil
}

func (c *session) prepareTx(gid string) error {
	if err := c.preparable(gid); err != nil {
		return err
	}
	c.closePortals()
	locks := c.tx.wrote
	changes := &change.Spool{Dir: change.SpoolDir(c.shard.path)}
	defer changes.Close()
	if locks {
		if !c.touched.On {
			return sqlstate.Refusal("CLV-2135", "a transaction that wrote before its BEGIN cannot be prepared on a SQLite shard").
				WithHint("Send BEGIN before the first statement.")
		}
		if err := c.endOfTransaction(); err != nil {
			return err
		}
		if err := change.Write(changes, c.db, c.touched.Tables); err != nil {
			return err
		}
		c.touched.End()
		if err := c.exec("ROLLBACK TO cleave_tx"); err != nil {
			return err
		}
		clear(c.filled)
	} else {
		if c.tx.sqlite != sqliteIdle {
			c.rollbackSQLite()
		}
		c.tx.saves.Clear()
		if err := c.beginWrite(); err != nil {
			return err
		}
		c.touched.End()
	}
	if err := c.savePrepared(gid, locks, changes); err != nil {
		return err
	}
	if err := c.cachedExec("COMMIT"); err != nil {
		return commitFailed(err)
	}
	return nil
}

// preparable refuses to prepare a transaction whose effects cannot be put aside.
func (c *session) preparable(gid string) error {
	switch {
	case c.shard == nil:
		return sqlstate.Refusal("CLV-2132", "a virtual database cannot prepare a transaction").WithHint("Use COMMIT.")
	case len(gid) >= 200:
		return sqlstate.New(sqlstate.InvalidParameterValue, "transaction identifier \"%s\" is too long", gid)
	case c.redefined:
		return sqlstate.Refusal("CLV-2133", "a transaction that changed definitions cannot be prepared on a SQLite shard").
			WithHint("Change definitions in a transaction of their own.")
	case len(c.names.Relations) > 0:
		return sqlstate.Refusal("CLV-2134", "cannot PREPARE a transaction that has operated on temporary objects").
			WithHint("End the use of temporary relations first.")
	}
	for _, k := range c.portals.All() {
		if k.cursor != nil && k.cursor.hold && !k.cursor.kept {
			return sqlstate.New(sqlstate.FeatureNotSupported, "cannot PREPARE a transaction that has created a cursor WITH HOLD")
		}
	}
	return nil
}

func (c *transaction) savePrepared(gid string, locks bool, changes *change.Spool) error {
	args := []value.Datum{value.Text(gid), value.Text(c.names.User), value.Text(c.names.Database), value.Int(value.Now()), value.Int(b2i(locks))}
	err := execArgs(c.db, "INSERT INTO cleave_prepared (gid, owner, database, prepared, locks) VALUES (?, ?, ?, ?, ?)", args...)
	if code := sqlite.ErrCode(err); code == sqlite.ResultConstraintPrimaryKey || code == sqlite.ResultConstraintUnique {
		return sqlstate.New(sqlstate.DuplicateObject, "transaction identifier \"%s\" is already in use", gid)
	}
	if err != nil {
		return err
	}
	if !locks {
		return nil
	}
	src, err := changes.Reader()
	if err != nil {
		return err
	}
	piece := make([]byte, change.ChunkSize)
	for n := int64(0); ; n++ {
		size, err := io.ReadFull(src, piece)
		if err == io.EOF {
			break
		}
		if err != nil && err != io.ErrUnexpectedEOF {
			return err
		}
		if err := execArgs(c.db, "INSERT INTO cleave_change (gid, n, data) VALUES (?, ?, ?)", value.Text(gid), value.Int(n), value.Blob(string(piece[:size]))); err != nil {
			return err
		}
	}
	return execArgs(c.db, "INSERT INTO cleave_meta (key, value) VALUES ('prepared', ?)", value.Text(gid))
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// execArgs runs a statement of Cleave's own with values.
func execArgs(db *sqlite.Conn, sql string, args ...value.Datum) error {
	stmt, _, err := db.PrepareTransient(sql)
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	for i := range args {
		args[i].Bind(stmt, i+1)
	}
	_, err = stmt.Step()
	return err
}

// holder returns the prepared transaction that holds the file's write lock, ""
// if there is none, in the connection's present snapshot.
func (c *database) holder() (string, error) {
	const sql = "SELECT value FROM cleave_meta WHERE key = 'prepared'"
	stmt := c.helpers[sql]
	if stmt == nil {
		var err error
		if stmt, _, err = c.db.PrepareTransient(sql); err != nil {
			return "", err
		}
		c.helpers[sql] = stmt
	}
	row, err := stmt.Step()
	if err != nil {
		return "", err
	}
	gid := ""
	if row {
		gid = stmt.ColumnText(0)
	}
	return gid, stmt.Reset()
}

// awaitPrepared waits, outside of any SQLite transaction, until no prepared
// transaction holds the file's write lock.
func (c *transaction) awaitPrepared(deadline time.Time) error {
	var timer *time.Timer
	for pause := time.Millisecond; ; pause = min(2*pause, preparedPoll) {
		ended := c.writers.preparedEnds()
		gid, err := c.holder()
		if err != nil || gid == "" {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return c.lockExpired(preparedTimeout(gid))
		}
		if timer == nil {
			timer = time.NewTimer(min(pause, left))
			defer timer.Stop()
		} else {
			timer.Reset(min(pause, left))
		}
		select {
		case <-ended:
		case <-timer.C:
		case <-c.interruptChan():
			return sqlite.ResultInterrupt.ToError()
		}
	}
}

func preparedTimeout(gid string) *sqlstate.Error {
	e := sqlstate.New(sqlstate.LockNotAvailable, "the prepared transaction \"%s\" holds the write lock of the SQLite file", gid).
		WithHint("Its router, or another one, ends it within seconds; run this one again. SELECT * FROM pg_prepared_xacts shows what is prepared.")
	e.Retry = sqlstate.RetryTransaction
	return e
}

// preparedEnds returns what is closed when this process ends a prepared transaction.
func (q *writerQueue) preparedEnds() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended == nil {
		q.ended = make(chan struct{})
	}
	return q.ended
}

func (q *writerQueue) preparedEnded() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended != nil {
		close(q.ended)
		q.ended = nil
	}
}

// finisher is a connection that carries out what was prepared: it runs no triggers
// and checks no constraints, since all that was done before.
type finisher struct {
	mu   sync.Mutex
	conn *Conn
}

func (s *Shard) openFinisher() (*Conn, error) {
	c, err := s.connect(nil)
	if err != nil {
		return nil, err
	}
	c.shard = nil // it is not one of the conversations
	for _, op := range []int32{lib.SQLITE_DBCONFIG_ENABLE_TRIGGER, lib.SQLITE_DBCONFIG_ENABLE_FKEY} {
		if err := configure(c.db, op, 0); err != nil {
			c.release()
			return nil, err
		}
	}
	if err := run(c.db, "PRAGMA ignore_check_constraints = ON"); err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

// configure sets one of SQLite's options of a connection and looks whether it took.
func configure(conn *sqlite.Conn, op, value int32) error {
	tls, db, err := function.Handle(conn)
	if err != nil {
		return err
	}
	is := libc.Xmalloc(tls, 4)
	if is == 0 {
		return sqlite.ResultNoMem.ToError()
	}
	defer libc.Xfree(tls, is)
	list := libc.NewVaList(value, is)
	if list == 0 {
		return sqlite.ResultNoMem.ToError()
	}
	defer libc.Xfree(tls, list)
	if err := sqlite.ResultCode(lib.Xsqlite3_db_config(tls, db, op, list)).ToError(); err != nil {
		return err
	}
	if b := libc.GoBytes(is, 4); b[0] != byte(value) {
		return sqlite.ResultError.ToError()
	}
	return nil
}

// endPrepared is COMMIT PREPARED and ROLLBACK PREPARED, outside of a block.
func (c *transaction) endPrepared(gid string, commit bool) error {
	if c.shard == nil {
		return sqlstate.Refusal("CLV-2136", "a virtual database has no prepared transactions").WithHint("Ask a shard.")
	}
	if c.tx.sqlite == sqliteRead {
		c.genStmt.Reset()
		c.tx.sqlite = sqliteIdle
	}
	a := &c.shard.finisher
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn == nil {
		var err error
		if a.conn, err = c.shard.openFinisher(); err != nil {
			return err
		}
	}
	db := a.conn.db
	db.SetInterrupt(c.interruptChan())
	err := c.endPreparedOn(db, gid, commit)
	db.SetInterrupt(nil)
	if err != nil {
		if a.conn.env.Err != nil {
			err, a.conn.env.Err = a.conn.env.Err, nil
		}
		if !db.AutocommitEnabled() && run(db, "ROLLBACK") != nil {
			a.conn.release()
			a.conn = nil
		}
		return err
	}
	c.writers.preparedEnded()
	if commit {
		c.writers.tellLog() // perhaps what was captured is in it
	}
	return nil
}

func noPrepared(gid string) error {
	return sqlstate.New(sqlstate.UndefinedObject, "prepared transaction with identifier \"%s\" does not exist", gid)
}

// endPreparedOn does not queue with the writers: they wait for it.
func (c *transaction) endPreparedOn(db *sqlite.Conn, gid string, commit bool) error {
	defer c.waited(false)
	if err := c.lockFile(func() error { return run(db, "BEGIN IMMEDIATE") }, time.Now().Add(c.busyTimeout())); err != nil {
		return err
	}
	locks, err := text1(db, "SELECT locks FROM cleave_prepared WHERE gid = "+quote.Text(gid))
	if err != nil {
		return err
	}
	if locks == "" {
		return noPrepared(gid)
	}
	if commit && locks == "1" {
		src := &chunkReader{db: db, gid: gid}
		err := change.Apply(db, src)
		src.close()
		if err != nil {
			switch sqlite.ErrCode(err).ToPrimary() {
			case sqlite.ResultInterrupt, sqlite.ResultIOErr, sqlite.ResultFull, sqlite.ResultNoMem, sqlite.ResultBusy:
				return err
			}
			return change.Damaged(gid, err)
		}
	}
	for _, sql := range []string{"DELETE FROM cleave_change WHERE gid = ?", "DELETE FROM cleave_prepared WHERE gid = ?", "DELETE FROM cleave_meta WHERE key = 'prepared' AND value = ?"} {
		if err := execArgs(db, sql, value.Text(gid)); err != nil {
			return err
		}
	}
	if err := run(db, "COMMIT"); err != nil {
		return commitFailed(err)
	}
	return nil
}

// chunkReader reads the pieces of a stream of changes one after the other.
type chunkReader struct {
	db   *sqlite.Conn
	gid  string
	stmt *sqlite.Stmt
	rest []byte
}

func (r *chunkReader) Read(b []byte) (int, error) {
	if r.stmt == nil {
		var err error
		if r.stmt, _, err = r.db.PrepareTransient("SELECT data FROM cleave_change WHERE gid = ? ORDER BY n"); err != nil {
			return 0, err
		}
		r.stmt.BindText(1, r.gid)
	}
	if len(r.rest) == 0 {
		row, err := r.stmt.Step()
		if err != nil {
			return 0, err
		}
		if !row {
			return 0, io.EOF
		}
		r.rest = make([]byte, r.stmt.ColumnLen(0))
		r.stmt.ColumnBytes(0, r.rest)
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *chunkReader) close() {
	if r.stmt != nil {
		r.stmt.Finalize()
	}
}

// preparedRows are those of pg_prepared_xacts.
func preparedRows(c *Conn) [][]value.Datum {
	m := systemrows.New("pg_catalog", "pg_prepared_xacts")
	if c.shard == nil {
		return m.Rows
	}
	stmt, _, err := c.db.PrepareTransient("SELECT gid, owner, database, prepared, rowid FROM cleave_prepared ORDER BY prepared, gid")
	if err != nil {
		return m.Rows
	}
	defer stmt.Finalize()
	for {
		row, err := stmt.Step()
		if err != nil || !row {
			return m.Rows
		}
		m.Add(systemrows.Fields{"transaction": strconv.FormatInt(stmt.ColumnInt64(4), 10), "gid": stmt.ColumnText(0), "prepared": stmt.ColumnInt64(3), "owner": stmt.ColumnText(1), "database": stmt.ColumnText(2)})
	}
}

// planTwoPhase plans the statements of two-phase commit.
func planTwoPhase(s *pg.TransactionStmt, control controlFn) (*plan, error) {
	gid := s.Gid
	switch s.Kind {
	case pg.TransactionStmtKind_TRANS_STMT_PREPARE:
		return control("PREPARE TRANSACTION", func(c *Conn, p *portal) error {
			switch c.tx.block {
			case txNone:
				c.warning(sqlstate.NoActiveTransaction, "there is no transaction in progress")
				p.tag = "ROLLBACK"
				return c.commitTx()
			case txFailed:
				p.tag = "ROLLBACK"
				c.abandonTx()
				return nil
			}
			return c.prepareTransaction(gid)
		})
	case pg.TransactionStmtKind_TRANS_STMT_COMMIT_PREPARED, pg.TransactionStmtKind_TRANS_STMT_ROLLBACK_PREPARED:
		commit := s.Kind == pg.TransactionStmtKind_TRANS_STMT_COMMIT_PREPARED
		tag := "ROLLBACK PREPARED"
		if commit {
			tag = "COMMIT PREPARED"
		}
		return control(tag, func(c *Conn, p *portal) error {
			if c.tx.block != txNone || c.tx.implicit {
				return sqlstate.New(sqlstate.ActiveTransaction, "%s cannot run inside a transaction block", tag)
			}
			return c.endPrepared(gid, commit)
		})
	}
	return nil, value.Unsupported("this transaction statement")
}
