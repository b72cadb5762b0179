package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

var _ engine.Movable = (*Shard)(nil)

// Bounds of moves.
const (
	moverIdle  = 4                    // conversations kept for the next call
	moverCache = -8000                // their page cache while they work, KiB
	logPoll    = 5 * time.Millisecond // between two looks for changes of other processes
	sweepRows  = 2000                 // of the log, deleted in one transaction
)

// mover is a Shard with a leader's token.
type mover struct {
	s     *Shard
	token uint64
}

var _ engine.Mover = (*mover)(nil)

// Mover implements engine.Movable.
func (s *Shard) Mover(token uint64) engine.Mover { return &mover{s: s, token: token} }

// moverPool keeps idle conversations of movers, and tells readers of the log that
// there is something new.
type moverPool struct {
	mu   sync.Mutex
	idle []*Conn
	// places are where Purge goes on, by set.
	places map[string]purgePlace
}

// conn returns a conversation on which no triggers fire and no foreign keys are
// looked at: what it writes was checked elsewhere.
func (m *mover) conn(ctx context.Context) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := &m.s.movers
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	m.s.mu.Lock()
	down := m.s.isDown
	m.s.mu.Unlock()
	if down {
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "shard %s is closed", m.s.cfg.Name)
	}
	c, err := m.s.connect(map[string]string{"user": "cleave", "application_name": "cleave mover"})
	if err != nil {
		return nil, err
	}
	if err := c.startMover(); err != nil {
		err = c.mapError(err)
		c.Close()
		return nil, err
	}
	m.s.mu.Lock()
	down = m.s.isDown
	if !down {
		m.s.conns[c] = false
	}
	m.s.mu.Unlock()
	if down {
		c.Close()
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "shard %s is closed", m.s.cfg.Name)
	}
	return c, nil
}

// put gives a conversation back. One with an open transaction is closed.
func (m *mover) put(c *Conn) {
	if c.db == nil {
		return
	}
	c.sets = c.sets[:0]
	if c.tx.sqlite == sqliteIdle {
		_ = c.exec("PRAGMA shrink_memory") // it may not be used again for long
	}
	p := &m.s.movers
	p.mu.Lock()
	keep := len(p.idle) < moverIdle && c.tx.sqlite == sqliteIdle
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.Close()
	}
}

func (c *Conn) startMover() error {
	for _, p := range []string{"PRAGMA foreign_keys = OFF", "PRAGMA cache_size = " + strconv.Itoa(moverCache)} {
		if err := c.exec(p); err != nil {
			return err
		}
	}
	tls, db, err := function.Handle(c.db)
	if err != nil {
		return err
	}
	va := libc.NewVaList(int32(0), uintptr(0))
	if va == 0 {
		return fmt.Errorf("sqlite: out of memory")
	}
	defer libc.Xfree(tls, va)
	if rc := lib.Xsqlite3_db_config(tls, db, lib.SQLITE_DBCONFIG_ENABLE_TRIGGER, va); rc != lib.SQLITE_OK {
		return fmt.Errorf("sqlite: triggers cannot be turned off: code %d", rc)
	}
	n, err := c.queryInt("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('cleave_log', 'cleave_move', 'cleave_loaded', 'cleave_loaded_part')")
	if err != nil || n == 4 {
		return err
	}
	// A file of an earlier version.
	if err := c.begin(true); err != nil {
		return err
	}
	for _, q := range strings.Split(moveSchema, ";\n") {
		if err := c.exec(q); err != nil {
			c.abandonTx()
			return err
		}
	}
	return c.commitTx()
}

// working runs fn as what the conversation does, which ends with ctx.
func (c *Conn) working(ctx context.Context, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.lost(true, errClosed)
	}
	c.running = true
	c.mu.Unlock()
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.fire(sqlstate.New(sqlstate.QueryCanceled, "the move's step was ended"))
		close(fired)
	})
	err := fault.Guard(fn)
	if !stop() {
		<-fired
	}
	if c.leave() {
		return c.lost(true, errClosed)
	}
	return err
}

// moveTx runs fn in one transaction. A writing one waits for its turn until ctx
// ends: then it fails with 55P03 if ctx had a deadline.
func (c *Conn) moveTx(ctx context.Context, write bool, fn func() error) error {
	c.verb = "a move"
	for {
		begun := false
		err := c.working(ctx, func() error {
			if err := c.begin(write); err != nil {
				return err
			}
			begun = true
			if err := fn(); err != nil {
				return err
			}
			return c.commitTx()
		})
		if err == nil {
			return nil
		}
		if c.db == nil {
			return err
		}
		err = c.mapError(err)
		c.abandonTx()
		if !begun && (sqlstate.CodeOf(err) == sqlstate.LockNotAvailable || sqlstate.CodeOf(err) == sqlstate.QueryCanceled) {
			if ctx.Err() == nil {
				continue
			}
			if context.Cause(ctx) == context.DeadlineExceeded {
				return lockTimeout()
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
}

// with runs fn in a transaction of a conversation of its own.
func (m *mover) with(ctx context.Context, write bool, fn func(c *Conn) error) error {
	c, err := m.conn(ctx)
	if err != nil {
		return err
	}
	defer m.put(c)
	if write {
		return m.change(ctx, c, func() error { return fn(c) })
	}
	return c.moveTx(ctx, false, func() error { return fn(c) })
}

// change runs fn in a writing transaction, if no later leader has seized the shard.
func (m *mover) change(ctx context.Context, c *Conn, fn func() error) error {
	return c.moveTx(ctx, true, func() error {
		if err := m.checkToken(c); err != nil {
			return err
		}
		return fn()
	})
}

func (m *mover) checkToken(c *Conn) error {
	seen, err := c.token()
	if err == nil && seen > m.token {
		err = sqlstate.New(sqlstate.ObjectNotInState, "the leadership has ended: a leader with token %d has seized shard %s, this one has %d", seen, m.s.cfg.Name, m.token).
			WithHint("The new leader goes on with the move: cleave moves shows it. If the directory was put back to an older state: cleave doctor --repair --set-back-guards").OnShard(m.s.cfg.Name)
	}
	return err
}

// token is the greatest token that the file has seen.
func (c *database) token() (uint64, error) {
	text, err := text1(c.db, "SELECT value FROM cleave_meta WHERE key = 'mover_token'")
	if err != nil || text == "" {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

// Seize implements engine.Mover. A leader of a version that knows no parts leaves their notes, and may purge the rows: so they are deleted
// if the last leader was not one that knew them.
func (m *mover) Seize(ctx context.Context) error {
	return m.with(ctx, true, func(c *Conn) error {
		return cmp.Or(
			c.exec("DELETE FROM cleave_loaded_part WHERE (SELECT value FROM cleave_meta WHERE key = 'mover_token') IS NOT (SELECT value FROM cleave_meta WHERE key = 'mover_token_of_parts')"),
			c.exec(fmt.Sprintf("INSERT INTO cleave_meta (key, value) VALUES ('mover_token', '%[1]d'), ('mover_token_of_parts', '%[1]d') ON CONFLICT (key) DO UPDATE SET value = excluded.value", m.token)))
	})
}

// Unseat implements engine.Unseater.
func (m *mover) Unseat(ctx context.Context) error {
	c, err := m.conn(ctx)
	if err != nil {
		return err
	}
	defer m.put(c)
	return c.moveTx(ctx, true, func() error { return c.exec("DELETE FROM cleave_meta WHERE key = 'mover_token'") })
}

// Describe implements engine.Mover.
func (m *mover) Describe(ctx context.Context, tables []engine.MoveTable) ([]engine.MoveTable, error) {
	out := append([]engine.MoveTable(nil), tables...)
	err := m.with(ctx, false, func(c *Conn) error {
		for i := range out {
			t := &out[i]
			d := c.names.Catalog.Table(t.Schema, t.Name)
			if d == nil {
				return sqlstate.New(sqlstate.UndefinedTable, "relation \"%s.%s\" does not exist", t.Schema, t.Name)
			}
			t.Columns, t.Types, t.Identity = nil, nil, nil
			for _, col := range d.Live() {
				t.Columns = append(t.Columns, col.Name)
				t.Types = append(t.Types, value.FormatType(col.Type, col.Mod))
			}
			if pk := d.PrimaryKey(); pk != nil {
				t.Identity = d.Names(pk.Columns)
			} else {
				t.Identity = append(t.Identity, t.Columns...)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// CheckMove implements engine.Mover.
func (m *mover) CheckMove(ctx context.Context, tables []engine.MoveTable) ([]engine.Finding, error) {
	var out []engine.Finding
	err := m.with(ctx, false, func(c *Conn) error {
		for _, t := range tables {
			f := engine.Finding{Name: "table " + t.Schema + "." + t.Name, Level: "ok", Is: "can be moved"}
			d := c.names.Catalog.Table(t.Schema, t.Name)
			switch {
			case d == nil:
				f.Level, f.Is, f.Want, f.Fix = "error", "missing", "as on the other shard", "cleave doctor --repair"
			case len(d.Live()) > columnsMax:
				f.Level, f.Is, f.Want = "error", fmt.Sprintf("%d columns", len(d.Live())), fmt.Sprintf("at most %d", columnsMax)
				f.Fix = "move it between PostgreSQL shards only"
			case d.PrimaryKey() == nil:
				f.Level, f.Is, f.Want = "warning", "no primary key: each change of a row is found by all its columns, reading the whole table", "a primary key"
				f.Fix = "ALTER TABLE " + quote.Ident(t.Schema) + "." + quote.Ident(t.Name) + " ADD PRIMARY KEY (...)"
			}
			out = append(out, f)
		}
		return nil
	})
	return out, err
}

func position(n int64) engine.Position { return engine.Position(strconv.FormatInt(n, 10)) }

// parsePosition reads a position of this engine; "" is 0.
func parsePosition(p engine.Position) (int64, error) {
	if p == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(p), 10, 64)
	if err != nil || n < 0 {
		return 0, sqlstate.New(sqlstate.InvalidParameterValue, "%q is not a position of a SQLite shard", string(p))
	}
	return n, nil
}

// Reached implements engine.Mover.
func (m *mover) Reached(at, goal engine.Position) bool {
	a, err := parsePosition(at)
	g, err2 := parsePosition(goal)
	return err == nil && err2 == nil && a >= g && (at != "" || goal == "")
}

// Here implements engine.Mover.
func (m *mover) Here(ctx context.Context) (engine.Position, error) {
	var n int64
	err := m.with(ctx, false, func(c *Conn) (err error) {
		n, err = c.logEnd()
		return err
	})
	return position(n), err
}

// Fence implements engine.Mover: the transaction that sets the guards is the only
// writer, and no row is locked without being the writer.
func (m *mover) Fence(ctx context.Context, guards []engine.Guard) (engine.Position, error) {
	var n int64
	err := m.with(ctx, true, func(c *Conn) (err error) {
		if err := c.setGuards(guards); err != nil {
			return err
		}
		n, err = c.logEnd()
		return err
	})
	if err != nil {
		return "", err
	}
	m.s.writers.tellLog() // readers are to say that they are there
	return position(n), nil
}

// CaptureChanges implements engine.Mover.
func (m *mover) CaptureChanges(ctx context.Context, id string, set engine.Set) (engine.Position, error) {
	var at int64
	err := m.with(ctx, true, func(c *Conn) error {
		if d := c.names.Catalog.Capture(id); d != nil {
			if !d.SameSet(&set) {
				return otherSet(id)
			}
			at = d.Begin
			return nil
		}
		d, err := c.startCapture(id, set)
		if err == nil {
			at = d.Begin
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return position(at), nil
}

func otherSet(id string) error {
	return sqlstate.New(sqlstate.ObjectNotInState, "capture %s is that of another set of rows", id).
		WithHint("Cancel the move, then move again.")
}

// startCapture makes a capture in the current transaction, after what is left of an
// earlier one of that id.
func (c *definitions) startCapture(id string, set engine.Set) (*catalog.Capture, error) {
	if err := c.endCapture(id); err != nil {
		return nil, err
	}
	return c.makeCapture(id, set)
}

// endCapture takes a capture's triggers away and marks it, under no id, as one
// whose rows can go.
func (c *definitions) endCapture(id string) error {
	d := c.names.Catalog.Capture(id)
	if d == nil {
		return nil
	}
	for _, t := range d.Tables {
		if err := c.dropCaptureTriggers(d.OID, t.OID); err != nil {
			return err
		}
	}
	n := *d
	n.Released = true
	return c.saveObject(n.OID, "capture", &n)
}

// Release implements engine.Mover.
func (m *mover) Release(ctx context.Context, id string) error {
	c, err := m.conn(ctx)
	if err != nil {
		return err
	}
	defer m.put(c)
	err = m.change(ctx, c, func() error {
		if err := c.endCapture(id); err != nil {
			return err
		}
		if err := execArgs1(c, "DELETE FROM cleave_loaded WHERE id = ?", value.Text(id)); err != nil {
			return err
		}
		if err := execArgs1(c, "DELETE FROM cleave_loaded_part WHERE id = ?", value.Text(id)); err != nil {
			return err
		}
		return execArgs1(c, "DELETE FROM cleave_move WHERE id = ?", value.Text(id))
	})
	if err != nil {
		return err
	}
	m.s.writers.tellLog()
	return m.sweep(ctx, c, id)
}

// sweep deletes what the log has of released captures of an id, and then the
// captures.
func (m *mover) sweep(ctx context.Context, c *Conn, id string) error {
	for {
		var oid uint32
		err := c.moveTx(ctx, false, func() error {
			for _, d := range c.names.Catalog.Captures {
				if d.ID == id && d.Released {
					oid = d.OID
				}
			}
			return nil
		})
		if err != nil || oid == 0 {
			return err
		}
		if err := m.sweepLog(ctx, c, oid, 1<<62); err != nil {
			return err
		}
		if err := m.change(ctx, c, func() error {
			if c.names.Catalog.Captures[oid] == nil {
				return nil
			}
			return c.dropObject(oid)
		}); err != nil {
			return err
		}
	}
}

// sweepLog deletes a capture's rows of the log up to a seq, some at a time, so that
// nobody waits for long.
func (m *mover) sweepLog(ctx context.Context, c *Conn, capture uint32, upTo int64) error {
	for {
		var last, n int64
		err := c.moveTx(ctx, false, func() error {
			q, _, err := c.db.PrepareTransient("SELECT max(seq), count(*) FROM (SELECT seq FROM cleave_log WHERE capture = ? AND seq <= ? ORDER BY seq LIMIT ?)")
			if err != nil {
				return err
			}
			defer q.Finalize()
			q.BindInt64(1, int64(capture))
			q.BindInt64(2, upTo)
			q.BindInt64(3, sweepRows)
			if _, err := q.Step(); err != nil {
				return err
			}
			last, n = q.ColumnInt64(0), q.ColumnInt64(1)
			return nil
		})
		if err != nil || n == 0 {
			return err
		}
		if err := m.change(ctx, c, func() error {
			return execArgs1(c, "DELETE FROM cleave_log WHERE capture = ? AND seq <= ?", value.Int(int64(capture)), value.Int(last))
		}); err != nil {
			return err
		}
		if n < sweepRows {
			return nil
		}
	}
}

// Captures implements engine.Mover.
func (m *mover) Captures(ctx context.Context) ([]string, error) {
	ids := map[string]bool{}
	err := m.with(ctx, false, func(c *Conn) error {
		for _, d := range c.names.Catalog.Captures {
			ids[d.ID] = true
		}
		q, _, err := c.db.PrepareTransient("SELECT id FROM cleave_move")
		if err != nil {
			return err
		}
		defer q.Finalize()
		for {
			row, err := q.Step()
			if err != nil || !row {
				return err
			}
			ids[q.ColumnText(0)] = true
		}
	})
	if err != nil {
		return nil, err
	}
	var out []string
	for id := range ids {
		out = append(out, id)
	}
	sort.Strings(out)
	return out, nil
}

// Forget implements engine.Mover.
func (m *mover) Forget(ctx context.Context, id string, upTo engine.Position) error {
	at, err := parsePosition(upTo)
	if err != nil {
		return err
	}
	c, err := m.conn(ctx)
	if err != nil {
		return err
	}
	defer m.put(c)
	var capture uint32
	err = m.change(ctx, c, func() error {
		d := c.names.Catalog.Capture(id)
		if d == nil {
			return noCapture(id)
		}
		capture = d.OID
		if err := c.knowMove(id); err != nil {
			return err
		}
		return execArgs1(c, "UPDATE cleave_move SET forgotten = max(forgotten, ?) WHERE id = ?", value.Int(at), value.Text(id))
	})
	if err != nil {
		return err
	}
	return m.sweepLog(ctx, c, capture, at)
}

func noCapture(id string) error {
	return sqlstate.New(sqlstate.ObjectNotInState, "nothing is captured here under the id %s", id).
		WithHint("It was released. Look at the moves with: cleave moves.")
}

// knowMove makes the row of an id.
func (c *Conn) knowMove(id string) error {
	return execArgs1(c, "INSERT INTO cleave_move (id, born) VALUES (?, ?) ON CONFLICT (id) DO NOTHING", value.Text(id), value.Text(nonce()))
}

func nonce() string {
	var b [12]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Lag implements engine.Mover. Where the log is long, what its rows have is
// estimated from the first of them.
func (m *mover) Lag(ctx context.Context, id string, at engine.Position) (int64, error) {
	from, err := parsePosition(at)
	if err != nil {
		return 0, err
	}
	var lag int64
	err = m.with(ctx, false, func(c *Conn) error {
		d := c.names.Catalog.Capture(id)
		if d == nil {
			return noCapture(id)
		}
		end, err := c.logEnd()
		if err != nil {
			return err
		}
		const sample = 2000
		q, _, err := c.db.PrepareTransient(fmt.Sprintf("SELECT count(*), coalesce(max(seq), 0), coalesce(sum(CASE WHEN capture = %d THEN length(body) + 16 ELSE 0 END), 0) FROM (SELECT * FROM cleave_log WHERE seq > ? ORDER BY seq LIMIT %d)", d.OID, sample))
		if err != nil {
			return err
		}
		defer q.Finalize()
		q.BindInt64(1, from)
		if _, err := q.Step(); err != nil {
			return err
		}
		n, last, bytes := q.ColumnInt64(0), q.ColumnInt64(1), q.ColumnInt64(2)
		lag = bytes
		if n == sample && end > last {
			lag += int64(float64(bytes) / float64(sample) * float64(end-last))
		}
		return nil
	})
	return lag, err
}

// Applied implements engine.Mover.
func (m *mover) Applied(ctx context.Context, id string) (engine.Position, error) {
	var at string
	err := m.with(ctx, false, func(c *Conn) (err error) {
		at, err = text1(c.db, "SELECT applied FROM cleave_move WHERE id = "+quote.Text(id))
		return err
	})
	return engine.Position(at), err
}

// SetApplied implements engine.Mover.
func (m *mover) SetApplied(ctx context.Context, id string, at engine.Position) error {
	return m.with(ctx, true, func(c *Conn) error {
		if err := c.knowMove(id); err != nil {
			return err
		}
		return execArgs1(c, "UPDATE cleave_move SET applied = ?, owner = NULL WHERE id = ?", value.Text(string(at)), value.Text(id))
	})
}

// execArgs1 runs a statement with values.
func execArgs1(c *Conn, sql string, values ...value.Datum) error {
	q, _, err := c.db.PrepareTransient(sql)
	if err != nil {
		return err
	}
	defer q.Finalize()
	for i, v := range values {
		v.Bind(q, i+1)
	}
	_, err = q.Step()
	return err
}

var _ engine.Evictor = (*mover)(nil)

// Evict implements engine.Evictor.
func (m *mover) Evict(ctx context.Context, set engine.Set, want int64, sure func(context.Context) error) error {
	c, err := m.conn(ctx)
	if err != nil {
		return err
	}
	defer m.put(c)
	n := c.openSet(&set)
	return c.moveTx(ctx, true, func() error {
		var gone int64
		for i := range set.Tables {
			t, err := c.moveTable(&set.Tables[i], &set.Keys)
			if err != nil {
				return err
			}
			if err := c.exec("DELETE FROM main." + quote.Ident(t.def.SQLName()) + " WHERE " + inSet(n, &set, t)); err != nil {
				return err
			}
			gone += int64(c.db.Changes())
		}
		if gone != want {
			return sqlstate.New(sqlstate.SerializationFailure, "the rows to delete are %d, not %d: somebody has changed them", gone, want).OnShard(m.s.cfg.Name)
		}
		return sure(ctx)
	})
}

var _ engine.Watchable = (*mover)(nil)

// watcher is a mover's engine.Watcher.
type watcher struct{ m *mover }

// Watch implements engine.Watchable.
func (m *mover) Watch(context.Context) (engine.Watcher, error) { return watcher{m}, nil }

// Delay takes the file's write lock and gives it back: that is what writes wait for.
func (w watcher) Delay(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := w.m.with(ctx, true, func(*Conn) error { return nil })
	return time.Since(began), err
}

// Vitals implements engine.Watcher: a file has no replicas and does not count transactions.
func (watcher) Vitals(context.Context) (engine.Vitals, error) {
	return engine.Vitals{Transactions: -1}, nil
}

// Close implements engine.Watcher.
func (watcher) Close() error { return nil }
