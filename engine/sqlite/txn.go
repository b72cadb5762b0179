package sqlite

import (
	"strconv"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/turnstile"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/sqlstate"
)

type blockState uint8

const (
	txNone   blockState = iota // outside a block; a statement is its own transaction
	txOpen                     // inside BEGIN ... COMMIT
	txFailed                   // inside, after an error
)

type sqliteState uint8

const (
	// sqliteIdle: SQLite has no transaction.
	sqliteIdle sqliteState = iota
	// sqliteRead: the statement that read the generation is still open, which
	// keeps SQLite's read transaction open at the least cost.
	sqliteRead
	// sqliteBegun: BEGIN was run.
	sqliteBegun
)

// txState follows PostgreSQL's transaction states on top of SQLite's.
//
// A READ COMMITTED block reads with a new snapshot in each statement until its
// first write, when BEGIN IMMEDIATE takes the write lock: so it never fails for
// having read before. REPEATABLE READ and SERIALIZABLE keep one snapshot from
// their first statement; a write after another commit then gives 40001.
type txState struct {
	block      blockState
	implicit   bool // statements since the last Sync, or of one message
	sqlite     sqliteState
	wrote      bool // holds the write lock
	queued     bool // holds its place in the writers' queue
	repeatable bool
	isolation  string
	readOnly   bool
	saves      pgbackend.Savepoints[constraintModes]
	modes      constraintModes
	wroteKeys  []wroteKeys // in their order
	suspect    bool        // keys may be broken of which SQLite does not know any more, see checksAgain
	lost       bool
	started    bool // TxTime is set
	local      []savedSetting
	captured   []uint32 // captures that have a row of this transaction in the log
	// fresh are the tables that were created or truncated, by schema and name; true: outside of all savepoints. COPY with FREEZE asks.
	fresh map[[2]string]bool
}

// made notes that a table is created or truncated.
func (t *txState) made(d *catalog.Table) {
	if t.fresh == nil {
		t.fresh = map[[2]string]bool{}
	}
	t.fresh[[2]string{d.Schema, d.Name}] = t.saves.Len() == 0 || t.fresh[[2]string{d.Schema, d.Name}]
}

func (t *txState) status() byte {
	switch t.block {
	case txOpen:
		return 'T'
	case txFailed:
		return 'E'
	}
	return 'I'
}

// writerQueue lets the writers of one process wait for each other in order,
// where SQLite alone would have them poll. The first of them is the process's one at the
// turnstile, where the processes wait for each other.
type writerQueue struct {
	path string
	refs int
	slot chan struct{}
	// holder has the turn; it is guarded by turns.
	holder *writer
	gate   turnstile.Turnstile // of who has the slot

	mu    sync.Mutex
	ended chan struct{} // closed when a prepared transaction ends here

	logMu sync.Mutex
	log   chan struct{} // closed when the process has committed a captured change
}

var writerQueues = struct {
	mu sync.Mutex
	m  map[string]*writerQueue
}{m: map[string]*writerQueue{}}

func joinWriters(path string) *writerQueue {
	writerQueues.mu.Lock()
	defer writerQueues.mu.Unlock()
	q := writerQueues.m[path]
	if q == nil {
		q = &writerQueue{path: path, slot: make(chan struct{}, 1)}
		writerQueues.m[path] = q
	}
	q.refs++
	return q
}

func (q *writerQueue) leave() {
	writerQueues.mu.Lock()
	defer writerQueues.mu.Unlock()
	if q.refs--; q.refs == 0 {
		delete(writerQueues.m, q.path)
		q.gate.Close()
	}
}

// logged returns a channel that is closed at the next commit of captured changes
// by this process.
func (q *writerQueue) logged() <-chan struct{} {
	q.logMu.Lock()
	defer q.logMu.Unlock()
	if q.log == nil {
		q.log = make(chan struct{})
	}
	return q.log
}

func (q *writerQueue) tellLog() {
	q.logMu.Lock()
	defer q.logMu.Unlock()
	if q.log != nil {
		close(q.log)
		q.log = nil
	}
}

// begin opens what a statement needs and brings the catalogue up to date.
func (c *session) begin(write bool) error {
	if c.db == nil {
		return errClosed
	}
	now := value.Now()
	c.env.StmtTime = now
	if !c.tx.started {
		c.tx.started, c.env.TxTime = true, now
		if c.tx.block == txNone {
			c.tx.repeatable = c.settings.defaultRepeatable()
			c.tx.readOnly = c.settings.get("default_transaction_read_only") == "on"
			c.tx.isolation = c.settings.get("default_transaction_isolation")
		}
	}
	if c.tx.block == txNone {
		c.tx.implicit = true
	}
	if write {
		if c.readonly {
			return sqlstate.New(sqlstate.InsufficientPrivilege, "the schema \"cleave\" is read only").
				WithHint("Change it with Cleave's functions, such as SELECT cleave.pin(...).")
		}
		if c.tx.readOnly {
			return sqlstate.New(sqlstate.ReadOnlyTransaction, "cannot execute %s in a read-only transaction", c.verb)
		}
		if err := c.holdPortals(); err != nil {
			return err
		}
		if err := c.beginWrite(); err != nil {
			return err
		}
	} else if c.tx.sqlite == sqliteIdle && c.tx.block != txNone && c.tx.repeatable {
		if err := c.beginRepeatable(); err != nil {
			return err
		}
	}
	return c.checkGeneration()
}

// beginRepeatable begins SQLite's transaction before its first read, which takes the snapshot.
func (c *session) beginRepeatable() error {
	if err := c.cachedExec("BEGIN"); err != nil {
		return err
	}
	c.tx.sqlite = sqliteBegun
	if err := c.record(); err != nil {
		return err
	}
	return c.replaySavepoints()
}

func (c *transaction) beginWrite() error {
	if c.tx.wrote {
		return nil
	}
	err := c.takeLock()
	c.waited(err == nil)
	return err
}

// takeLock makes the transaction the file's writer, for which it waits at most the lock timeout.
func (c *transaction) takeLock() error {
	deadline := time.Now().Add(c.busyTimeout())
	if !c.tx.queued && c.writers != nil {
		if err := c.waitTurn(deadline); err != nil {
			return err
		}
		c.tx.queued = true
	}
	if c.writers != nil {
		if err := c.passGate(deadline); err != nil {
			return err
		}
		defer c.writers.gate.Leave()
	}
	if c.tx.sqlite == sqliteBegun {
		return c.lockSnapshot(deadline)
	}
	if c.tx.sqlite == sqliteRead {
		c.genStmt.Reset()
		c.tx.sqlite = sqliteIdle
	}
	if err := c.beginImmediate(deadline); err != nil {
		return err
	}
	c.tx.sqlite, c.tx.wrote = sqliteBegun, true
	if err := c.record(); err != nil {
		return err
	}
	return c.replaySavepoints()
}

// beginImmediate begins SQLite's transaction that writes, when no prepared one holds the file.
func (c *transaction) beginImmediate(deadline time.Time) error {
	for {
		if err := c.lockFile(func() error { return c.cachedExec("BEGIN IMMEDIATE") }, deadline); err != nil {
			return err
		}
		gid, err := c.holder()
		if err == nil && gid == "" {
			return nil
		}
		if e := c.cachedExec("ROLLBACK"); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		if c.writers == nil {
			return c.lockExpired(preparedTimeout(gid))
		}
		c.waitsNow()
		if err := c.awaitPrepared(deadline); err != nil {
			return err
		}
	}
}

// lockSnapshot makes a transaction that has read the file's writer.
func (c *transaction) lockSnapshot(deadline time.Time) error {
	// The snapshot is kept: SQLite itself refuses if it is not the latest.
	c.tx.wrote = true
	if err := c.lockFile(func() error { return c.cachedExec("UPDATE cleave_meta SET value = value WHERE key = 'lock'") }, deadline); err != nil {
		return err
	}
	if gid, err := c.holder(); err != nil || gid == "" {
		return err
	}
	// What is prepared will have changed the file when it has ended.
	return sqlite.ResultBusySnapshot.ToError()
}

// lockPoll bounds the pause between two tries to take a file's write lock. Few try at a time: the one
// at the turnstile, and those that end prepared transactions.
const lockPoll = 4 * time.Millisecond

// lockFile takes the file's write lock with begin, for which it tries again until the deadline.
func (c *transaction) lockFile(begin func() error, deadline time.Time) error {
	for wait := 250 * time.Microsecond; ; wait = min(2*wait, lockPoll) {
		err := begin()
		if err == nil {
			return nil
		}
		if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultBusy || sqlite.ErrCode(err) == sqlite.ResultBusySnapshot || time.Now().After(deadline) {
			return err
		}
		c.waitsNow()
		select {
		case <-c.interruptChan():
			return sqlite.ResultInterrupt.ToError()
		case <-time.After(wait):
		}
	}
}

// passGate waits at the turnstile.
func (c *transaction) passGate(deadline time.Time) error {
	for wait := 250 * time.Microsecond; !c.writers.gate.Enter(c.writers.path); wait = min(2*wait, lockPoll) {
		if time.Now().After(deadline) {
			return c.lockExpired(lockTimeout())
		}
		c.waitsNow()
		select {
		case <-c.interruptChan():
			return sqlite.ResultInterrupt.ToError()
		case <-time.After(wait):
		}
	}
	return nil
}

// waitsNow notes that the conversation waits for the write lock, if it has not been noted.
func (c *writer) waitsNow() {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if c.waits.IsZero() {
		c.waits = time.Now()
	}
}

// waited notes that the conversation waits no more, and whether it is the file's writer now.
func (c *writer) waited(locks bool) {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	c.locks, c.waits = locks, time.Time{}
}

// WriteLock implements engine.Grouped.
func (c *writer) WriteLock() (has bool, waits time.Time) {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	return c.locks, c.waits
}

func (c *interruption) interruptChan() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupt
}

// waitTurn takes the process's turn to write, until the deadline.
func (c *transaction) waitTurn(deadline time.Time) error {
	q := c.writers
	select {
	case q.slot <- struct{}{}:
		c.tookTurn()
		return nil
	default:
	}
	if err := c.awaits(q); err != nil {
		return err
	}
	defer c.awaits(nil)
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case q.slot <- struct{}{}:
		c.tookTurn()
		return nil
	case <-timer.C:
		return c.lockExpired(lockTimeout())
	case <-c.interruptChan():
		return sqlite.ResultInterrupt.ToError()
	}
}

// turns are who has and who awaits a turn to write, in this process.
var turns = struct {
	mu      sync.Mutex
	waiting map[*writer]*writerQueue
}{waiting: map[*writer]*writerQueue{}}

func (c *writer) tookTurn() {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	c.writers.holder = c
	delete(turns.waiting, c)
}

// SetGroup implements engine.Grouped.
func (c *writer) SetGroup(id uint64) {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	c.group = id
}

// awaits notes what the conversation waits for, nil for nothing. A conversation that
// closes a ring of transactions over several files, each of which waits for the next
// one's, gets 40P01: nobody in it could go on.
func (c *writer) awaits(q *writerQueue) error {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if q == nil {
		delete(turns.waiting, c)
		return nil
	}
	seen := map[*writerQueue]bool{}
	var ring func(q *writerQueue) bool
	ring = func(q *writerQueue) bool {
		h := q.holder
		if h == nil || h.group == 0 || seen[q] {
			return false
		}
		if h.group == c.group {
			return true
		}
		seen[q] = true
		for w, next := range turns.waiting {
			if w.group == h.group && ring(next) {
				return true
			}
		}
		return false
	}
	if c.group != 0 && ring(q) {
		e := sqlstate.New(sqlstate.DeadlockDetected, "deadlock detected").
			WithDetail("This transaction waits for the write lock of a SQLite file, and its holder, or whom that one waits for, for a file that this one has written to.").
			WithHint("Run the transaction again. Transactions that write to several shards in the same order do not wait for each other in a ring.")
		e.Retry = sqlstate.RetryTransaction
		return e
	}
	turns.waiting[c] = q
	if c.waits.IsZero() {
		c.waits = time.Now()
	}
	return nil
}

// lockExpired is the error of a transaction that waited for the write lock up to its bound, where
// timeout is what the lock's holder makes of it. PostgreSQL gives 55P03 for a bound that the client set,
// and so do we. The file's own bound is none of PostgreSQL's: under REPEATABLE READ and SERIALIZABLE the
// holder's commit would end the wait with 40001, which clients of these levels know to run again.
func (c *transaction) lockExpired(timeout *sqlstate.Error) error {
	if !c.tx.repeatable || c.settings.duration("lock_timeout") > 0 {
		return timeout
	}
	e := serializationFailure()
	e.Detail, e.Hint = "This transaction waited as long as the file allows: "+timeout.Message+".", timeout.Hint
	return e
}

// serializationFailure is what a transaction gets whose snapshot may not be the latest at its first write.
func serializationFailure() *sqlstate.Error {
	e := sqlstate.New(sqlstate.SerializationFailure, "could not serialize access due to concurrent update").
		WithHint("The transaction read before another one committed. Run it again.")
	e.Retry = sqlstate.RetryTransaction
	return e
}

func lockTimeout() *sqlstate.Error {
	e := sqlstate.New(sqlstate.LockNotAvailable, "another transaction holds the write lock of the SQLite file").
		WithHint("A SQLite shard has one writer at a time: keep transactions short, and run this one again.")
	e.Retry = sqlstate.RetryTransaction
	return e
}

func (c *transaction) busyTimeout() time.Duration {
	if d := c.settings.duration("lock_timeout"); d > 0 {
		return d
	}
	if c.shard != nil {
		return c.shard.busy
	}
	return 5 * time.Second
}

func (c *transaction) replaySavepoints() error {
	for i := range c.tx.saves.Len() {
		if err := c.exec("SAVEPOINT s" + strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

// checkGeneration reads the catalogue's generation inside the transaction and
// loads the catalogue if it changed.
func (c *transaction) checkGeneration() error {
	if c.readonly {
		return nil
	}
	if c.tx.sqlite == sqliteRead {
		return nil // the statement that holds the snapshot has read it
	}
	row, err := c.genStmt.Step()
	if err != nil {
		return err
	}
	if !row {
		return sqlstate.New(sqlstate.DataCorrupted, "the file has no catalogue generation")
	}
	gen := c.genStmt.ColumnInt64(0)
	if c.tx.sqlite == sqliteIdle {
		c.tx.sqlite = sqliteRead
	} else if err := c.genStmt.Reset(); err != nil {
		return err
	}
	if c.names.Catalog == nil || c.names.Catalog.Generation != gen {
		return c.loadCatalog(gen)
	}
	return nil
}

// endStatement lets go of the snapshot where the next statement takes a new one.
func (c *session) endStatement() {
	if c.tx.sqlite == sqliteRead && c.tx.block != txNone && !c.portalsOpen() {
		c.genStmt.Reset()
		c.tx.sqlite = sqliteIdle
	}
}

func (c *session) portalsOpen() bool {
	for _, p := range c.portals.All() {
		if p.stmt != nil && p.started && !p.done || p.holds && !p.started {
			return true
		}
	}
	return false
}

// endImplicit commits the statements since the last Sync.
func (c *session) endImplicit() error {
	if c.tx.block != txNone {
		return nil
	}
	c.keepCursors()
	c.closePortals()
	return c.commitTx()
}

// commitTx ends the transaction, whatever its kind, and makes it durable.
func (c *session) commitTx() error {
	var err error
	switch c.tx.sqlite {
	case sqliteRead:
		err = c.genStmt.Reset()
	case sqliteBegun:
		if err = c.endOfTransaction(); err == nil {
			if err = c.cachedExec("COMMIT"); err != nil {
				err = commitFailed(err)
			}
		}
	}
	if err != nil {
		c.abandonTx()
		return err
	}
	told := len(c.tx.captured) > 0 && c.writers != nil
	c.settings.commitLocal(&c.tx)
	for _, k := range c.portals.All() {
		if k.cursor != nil {
			k.cursor.fresh = false
		}
	}
	c.resetTx()
	if told {
		c.writers.tellLog()
	}
	return nil
}

// commitFailed tells a transaction that is certainly not committed from one
// whose outcome only the file knows.
func commitFailed(err error) error {
	switch code := sqlite.ErrCode(err); code.ToPrimary() {
	case sqlite.ResultIOErr:
		e := sqlstate.Wrap(err, sqlstate.TransactionUnknown, "the disk failed while the transaction was being committed")
		e.Hint = "Look whether its rows are there before running it again; check the disk."
		e.Retry = sqlstate.RetryUnknown
		return e
	case sqlite.ResultConstraint:
		return sqlstate.New(sqlstate.ForeignKeyViolation, "the transaction violates a foreign key constraint")
	}
	return err
}

// abandonTx rolls everything back and leaves the block.
func (c *session) abandonTx() {
	c.rollbackSQLite()
	for _, k := range c.portals.All() {
		if k.cursor != nil && k.cursor.fresh {
			k.cursor.kept = false
		}
	}
	c.closePortals()
	c.settings.rollbackLocal(&c.tx, 0)
	c.resetTx()
}

func (c *session) rollbackSQLite() {
	if c.db == nil {
		return
	}
	for _, p := range c.portals.All() {
		if p.stmt != nil {
			p.end()
		}
	}
	if c.tx.sqlite == sqliteRead {
		c.genStmt.Reset()
	}
	c.genStmt.Reset()
	if !c.db.AutocommitEnabled() {
		c.db.SetInterrupt(nil) // a cancel that comes now is not to keep the transaction, and the file's lock
		c.cachedExec("ROLLBACK")
		c.db.SetInterrupt(c.interruptChan())
	}
	c.tx.sqlite, c.tx.wrote = sqliteIdle, false
	c.touched.End()
	if c.redefined {
		c.names.Catalog = nil
	}
	clear(c.filled)
	c.releaseTurn()
}

func (c *transaction) releaseTurn() {
	if c.tx.queued {
		turns.mu.Lock()
		c.writers.holder, c.locks = nil, false
		turns.mu.Unlock()
		<-c.writers.slot
		c.tx.queued = false
	}
}

func (c *transaction) resetTx() {
	c.releaseTurn()
	c.touched.End()
	c.redefined = false
	c.tx = txState{isolation: c.settings.get("default_transaction_isolation")}
}

// failTx is what an error does to the transaction.
func (c *session) failTx() {
	switch c.tx.block {
	case txNone:
		c.closePortals()
		c.abandonTx()
	case txOpen:
		c.tx.block = txFailed
		if c.tx.saves.Len() == 0 {
			c.rollbackSQLite()
		} else if c.tx.sqlite == sqliteBegun && c.db.AutocommitEnabled() {
			// SQLite rolled the whole transaction back by itself.
			c.tx.lost = true
			c.rollbackSQLite()
		} else {
			for _, p := range c.portals.All() {
				if p.stmt != nil {
					p.end()
				}
			}
			if c.tx.sqlite == sqliteRead {
				c.genStmt.Reset()
				c.tx.sqlite = sqliteIdle
			}
		}
	}
}

// startBlock is BEGIN.
func (c *transaction) startBlock() {
	if c.tx.block == txNone && !c.tx.implicit {
		c.resetTx()
	}
	now := value.Now()
	if !c.tx.started {
		c.tx.started, c.env.TxTime = true, now
	}
	c.env.StmtTime = now
	c.tx.block, c.tx.implicit = txOpen, false
	c.tx.repeatable = c.settings.defaultRepeatable()
	c.tx.readOnly = c.settings.get("default_transaction_read_only") == "on"
	c.tx.isolation = c.settings.get("default_transaction_isolation")
}

func (c *session) savepoint(name string) error {
	if c.tx.saves.Len() >= savepointMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "more than %d savepoints", savepointMax)
	}
	if err := c.holdPortals(); err != nil {
		return err
	}
	if c.tx.sqlite == sqliteBegun {
		if err := c.exec("SAVEPOINT s" + strconv.Itoa(c.tx.saves.Len())); err != nil {
			return err
		}
	}
	c.tx.saves.Set(name, c.tx.modes)
	return nil
}

func (c *session) releaseSavepoint(name string) error {
	i, err := c.tx.saves.Find(name)
	if err != nil {
		return err
	}
	if c.tx.sqlite == sqliteBegun {
		if err := c.exec("RELEASE s" + strconv.Itoa(i)); err != nil {
			return err
		}
	}
	c.tx.saves.Release(i)
	c.portals.Released(i)
	return nil
}

func (c *session) rollbackTo(name string) error {
	i, err := c.tx.saves.Find(name)
	if err != nil {
		return err
	}
	if c.tx.lost {
		return sqlstate.New(sqlstate.InFailedTransaction, "the whole transaction was rolled back, so that its savepoints are gone").
			WithHint("Run ROLLBACK, then the transaction again.")
	}
	c.portals.RolledBack(i)
	if c.tx.sqlite == sqliteBegun {
		if err := c.exec("ROLLBACK TO s" + strconv.Itoa(i)); err != nil {
			return err
		}
		if c.redefined {
			c.names.Catalog = nil
		}
		clear(c.filled)
	}
	c.settings.rollbackLocal(&c.tx, i+1)
	c.tx.modes = c.tx.saves.At(i)
	c.tx.saves.RollBack(i)
	c.tx.block = txOpen
	return nil
}
