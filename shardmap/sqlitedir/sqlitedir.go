package sqlitedir

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Options change what Open does by default.
type Options struct {
	// Now is the clock of the history; nil is time.Now.
	Now func() time.Time
	// Poll is the time between two looks for changes that others made, while
	// somebody watches; 0 is 5 milliseconds.
	Poll time.Duration
	// LeaseTTL is for how long a lease runs without renewal, at least
	// shardmap.MinLeaseTTL; 0 is shardmap.DefaultLeaseTTL.
	LeaseTTL time.Duration
	// BusyMax bounds the wait for other processes' locks; 0 is 10 seconds. A
	// context that ends earlier is obeyed.
	BusyMax time.Duration
}

// pollBackoffMax bounds the pause after polls that failed.
const pollBackoffMax = time.Second

// Open opens the directory file, and creates an empty one (readable by its
// owner alone, since the map may hold passwords) where there is none. The
// folder must exist.
//
// Errors: 55000 for a file of another format or of another program, XX001 for a
// damaged one, 42501 and 58030 for what the file system refuses, 55P03 when
// another process keeps it locked.
func Open(path string) (shardmap.Directory, error) { return OpenWith(path, Options{}) }

// OpenWith is Open with options.
func OpenWith(path string, o Options) (shardmap.Directory, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Poll <= 0 {
		o.Poll = 20 * time.Millisecond
	}
	if o.BusyMax <= 0 {
		o.BusyMax = 10 * time.Second
	}
	ttl, err := shardmap.LeaseTTL(o.LeaseTTL)
	if err != nil {
		return nil, err
	}
	o.LeaseTTL = ttl
	d := &directory{
		opts:   o,
		clock:  bootClock,
		reader: make(chan *sqlite.Conn, 1),
		writer: make(chan *sqlite.Conn, 1),
		leases: make(chan *sqlite.Conn, 1),
	}
	conns, err := d.open(path)
	if err != nil {
		return nil, err
	}
	d.reader <- conns[0]
	d.writer <- conns[1]
	d.poller = conns[2]
	d.leases <- conns[3]
	d.life, d.end = context.WithCancel(context.Background())
	d.poller.SetInterrupt(d.life.Done())
	return d, nil
}

// directory is a handle on the file. Reads and changes have a connection each,
// so that a look-up does not wait for another's fsync; a connection serves one
// call at a time and waits in its channel otherwise.
type directory struct {
	path string
	file os.FileInfo // of the file that the connections have open
	opts Options

	reader, writer, leases chan *sqlite.Conn
	poller                 *sqlite.Conn // the polling goroutine's own
	clock                  func() (boot string, ns int64, err error)

	// newest is the highest version that this handle has decoded.
	newest atomic.Pointer[shardmap.Snapshot]
	feed   shardmap.FollowedFeed

	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
}

// with runs fn with the connection that waits in conns, interrupted when ctx
// ends, the directory closes, or locks are held for too long.
func (d *directory) with(ctx context.Context, conns chan *sqlite.Conn, what string, fn func(*sqlite.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.life.Err() != nil {
		return shardmap.Closed()
	}
	var conn *sqlite.Conn
	select {
	case conn = <-conns:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.life.Done():
		return shardmap.Closed()
	}
	defer func() { conns <- conn }()
	if d.life.Err() != nil {
		return shardmap.Closed()
	}
	if err := d.checkFile(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, d.opts.BusyMax)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	conn.SetInterrupt(limited.Done())
	err := fn(conn)
	conn.SetInterrupt(nil)
	if err == nil {
		return nil
	}
	if !conn.AutocommitEnabled() {
		// SQLite undoes the transaction with the connection if this fails too.
		err = errors.Join(err, sqlitex.ExecuteTransient(conn, "ROLLBACK", nil))
	}
	var decided *sqlstate.Error
	if code := sqlite.ErrCode(err).ToPrimary(); !errors.As(err, &decided) && (code == sqlite.ResultInterrupt || code == sqlite.ResultBusy) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case d.life.Err() != nil:
			return shardmap.Closed()
		}
	}
	return fileError(err, d.path, what)
}

// checkFile refuses to go on with a file that is no longer the one at the path:
// a cluster whose data folder was deleted or swapped must not go on serving
// from a file that nobody else can see.
func (d *directory) checkFile() error {
	now, err := os.Stat(d.path)
	if err == nil && os.SameFile(now, d.file) {
		return nil
	}
	return sqlstate.Wrap(err, sqlstate.IOError, "the directory file %s was removed or replaced while it was in use", d.path).
		WithHint("put it back, then restart the process")
}

// newestVersion returns the highest version, 0 if there is none.
func newestVersion(conn *sqlite.Conn) (uint64, error) {
	var version int64
	err := sqlitex.Execute(conn, "SELECT coalesce(max(version), 0) FROM map_version", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			version = s.ColumnInt64(0)
			return nil
		},
	})
	return uint64(version), err
}

// snapshotAt decodes one version; nil if it does not exist.
func snapshotAt(conn *sqlite.Conn, version uint64) (*shardmap.Snapshot, error) {
	var packed []byte
	err := sqlitex.Execute(conn, "SELECT state FROM map_version WHERE version = ?", &sqlitex.ExecOptions{
		Args: []any{int64(version)},
		ResultFunc: func(s *sqlite.Stmt) error {
			packed = make([]byte, s.ColumnLen(0))
			s.ColumnBytes(0, packed)
			return nil
		},
	})
	if err != nil || packed == nil {
		return nil, err
	}
	snap, err := shardmap.Unpack(packed)
	if err != nil {
		return nil, err
	}
	if snap.Version() != version {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "version %d of the shard map is stored as version %d", snap.Version(), version)
	}
	return snap, nil
}

// current returns the newest snapshot, nil if there is none, from memory while
// nothing has changed.
func (d *directory) current(conn *sqlite.Conn) (*shardmap.Snapshot, error) {
	version, err := newestVersion(conn)
	if err != nil || version == 0 {
		return nil, err
	}
	if s := d.newest.Load(); s != nil && s.Version() == version {
		return s, nil
	}
	snap, err := snapshotAt(conn, version)
	if err != nil {
		return nil, err
	}
	d.keep(snap)
	return snap, nil
}

// keep remembers a snapshot unless a newer one is known.
func (d *directory) keep(snap *shardmap.Snapshot) {
	for {
		old := d.newest.Load()
		if old != nil && old.Version() >= snap.Version() || d.newest.CompareAndSwap(old, snap) {
			return
		}
	}
}

func (d *directory) Load(ctx context.Context) (*shardmap.Snapshot, error) {
	var snap *shardmap.Snapshot
	err := d.with(ctx, d.reader, "read", func(conn *sqlite.Conn) (err error) {
		snap, err = d.current(conn)
		return err
	})
	if err != nil {
		return nil, err
	}
	if snap == nil {
		return nil, shardmap.NoMap()
	}
	return snap, nil
}

func (d *directory) At(ctx context.Context, version uint64) (*shardmap.Snapshot, error) {
	var snap *shardmap.Snapshot
	var newest uint64
	err := d.with(ctx, d.reader, "read", func(conn *sqlite.Conn) (err error) {
		if newest, err = newestVersion(conn); err != nil || version == 0 || version > newest {
			return err
		}
		snap, err = snapshotAt(conn, version)
		return err
	})
	if err != nil {
		return nil, err
	}
	if snap == nil {
		return nil, shardmap.NotFound("version %d of the shard map does not exist; the current one is %d", version, newest)
	}
	return snap, nil
}

func (d *directory) Update(ctx context.Context, change shardmap.Change, next shardmap.State) (*shardmap.Snapshot, error) {
	var snap *shardmap.Snapshot
	err := d.with(ctx, d.writer, "write", func(conn *sqlite.Conn) error {
		// Validated and packed before the write lock is taken, so that others
		// wait for the insert alone.
		prev, err := d.current(conn)
		if err != nil {
			return err
		}
		made, err := shardmap.Advance(prev, change, next)
		if err != nil {
			return err
		}
		packed, err := shardmap.Pack(made)
		if err != nil {
			return err
		}
		entry := change.Entry(made.Version(), d.opts.Now())
		if err := insert(conn, change, entry, packed, d.clock); err != nil {
			return err
		}
		// From here on the outcome must not depend on a context.
		conn.SetInterrupt(nil)
		if err := sqlitex.Execute(conn, "COMMIT", nil); err != nil {
			return commitError(err, d.path, entry)
		}
		snap = made
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.keep(snap)
	d.feed.Publish(snap)
	return snap, nil
}

// insert begins a transaction with the write lock and inserts the version. The
// caller commits, or rolls back after an error.
func insert(conn *sqlite.Conn, change shardmap.Change, e shardmap.Entry, packed []byte, clock func() (string, int64, error)) error {
	if err := begin(conn); err != nil {
		return err
	}
	if err := fence(conn, change.Token, clock); err != nil {
		return err
	}
	// Looked at again: another process may have been faster.
	version, err := newestVersion(conn)
	if err != nil {
		return err
	}
	if version != change.Expect {
		return shardmap.Conflict(change.Expect, version)
	}
	if e.ID != "" {
		made, err := entries(conn, "WHERE change_id = ?", e.ID)
		if err != nil {
			return err
		}
		if len(made) > 0 {
			return shardmap.DuplicateID(e.ID, made[0].Version)
		}
	}
	return addVersion(conn, e, packed)
}

// addVersion inserts a version that was checked.
func addVersion(conn *sqlite.Conn, e shardmap.Entry, packed []byte) error {
	var id any // NULL, so that changes without an ID do not collide
	if e.ID != "" {
		id = e.ID
	}
	tables, err := json.Marshal(e.Tables)
	if err != nil {
		return err
	}
	return sqlitex.Execute(conn, `INSERT INTO map_version
		(version, at_us, changed_by, why, op, statement, tables, all_shards, change_id, state)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, &sqlitex.ExecOptions{
		Args: []any{int64(e.Version), e.At.UnixMicro(), e.By, e.Why, e.Op, e.Statement, string(tables), e.AllShards, id, packed},
	})
}

// entries reads lines of history; where is a constant of this file.
func entries(conn *sqlite.Conn, where string, args ...any) ([]shardmap.Entry, error) {
	var list []shardmap.Entry
	err := sqlitex.Execute(conn, `SELECT version, at_us, changed_by, why, op, statement, tables, all_shards, coalesce(change_id, '')
		FROM map_version `+where, &sqlitex.ExecOptions{
		Args: args,
		ResultFunc: func(s *sqlite.Stmt) error {
			e := shardmap.Entry{
				Version:   uint64(s.ColumnInt64(0)),
				At:        time.UnixMicro(s.ColumnInt64(1)).UTC(),
				By:        s.ColumnText(2),
				Why:       s.ColumnText(3),
				Op:        s.ColumnText(4),
				Statement: s.ColumnText(5),
				AllShards: s.ColumnBool(7),
				ID:        s.ColumnText(8),
			}
			if err := json.Unmarshal([]byte(s.ColumnText(6)), &e.Tables); err != nil {
				return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the history of version %d cannot be read", e.Version)
			}
			list = append(list, e)
			return nil
		},
	})
	return list, err
}

func (d *directory) History(ctx context.Context, after uint64, limit int) ([]shardmap.Entry, error) {
	if limit <= 0 || after > 1<<62 {
		limit, after = 0, 0
	}
	var list []shardmap.Entry
	err := d.with(ctx, d.reader, "read", func(conn *sqlite.Conn) (err error) {
		list, err = entries(conn, "WHERE version > ? ORDER BY version LIMIT ?", int64(after), int64(limit))
		return err
	})
	return list, err
}

func (d *directory) Find(ctx context.Context, id string) (shardmap.Entry, error) {
	var list []shardmap.Entry
	err := d.with(ctx, d.reader, "read", func(conn *sqlite.Conn) (err error) {
		list, err = entries(conn, "WHERE change_id = ?", id)
		return err
	})
	if err != nil {
		return shardmap.Entry{}, err
	}
	if len(list) == 0 {
		return shardmap.Entry{}, shardmap.NotFound("no change of the shard map has the ID %q", id)
	}
	return list[0], nil
}

func (d *directory) Watch(ctx context.Context) (<-chan *shardmap.Snapshot, error) {
	return d.feed.WatchAndFollow(ctx, d.Load, d.poll)
}

// poll publishes what other handles change, while somebody watches.
func (d *directory) poll() {
	pause := d.opts.Poll
	timer := time.NewTimer(pause)
	defer timer.Stop()
	// The first look is unconditional: a change may have slipped in between
	// Watch's Load and now.
	seen := int64(-1)
	for {
		dataVersion, err := d.look(seen)
		if err == nil {
			seen, pause = dataVersion, d.opts.Poll
		} else {
			// A locked or failing file is tried again, more and more slowly;
			// Load reports the error to those who ask.
			pause = min(2*pause, pollBackoffMax)
		}
		timer.Reset(pause)
		select {
		case <-d.life.Done():
			return
		case <-timer.C:
		}
		if d.feed.Idle() {
			return
		}
	}
}

// look publishes the newest snapshot if the file has changed since the
// data_version seen, and returns the one of now.
func (d *directory) look(seen int64) (int64, error) {
	var now int64
	err := sqlitex.Execute(d.poller, "PRAGMA data_version", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			now = s.ColumnInt64(0)
			return nil
		},
	})
	if err != nil || now == seen {
		return now, err
	}
	snap, err := d.current(d.poller)
	if err != nil {
		return 0, err
	}
	if snap != nil {
		d.feed.Publish(snap)
	}
	return now, nil
}

func (d *directory) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.feed.Stop()
	// Calls under way are interrupted, and give their connections back.
	reader, writer, leases := <-d.reader, <-d.writer, <-d.leases
	return errors.Join(d.poller.Close(), reader.Close(), writer.Close(), leases.Close())
}
