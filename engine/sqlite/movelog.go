package sqlite

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of reading the log.
const (
	logChunk      = 2000    // rows read in one transaction
	logChunkBytes = 4 << 20 // their bytes, or one row
)

// logRow is a row of the log.
type logRow struct {
	seq  int64
	body []byte
}

// logReader sends a capture's changes from a position on.
type logReader struct {
	m     *mover
	c     *Conn
	id    string
	set   *engine.Set
	until int64 // -1: none
	to    engine.ChangeSink

	def     *catalog.Capture
	places  []int // of the capture's tables in the set
	rows    []logRow
	partial bool  // there may be more rows than were read
	top     int64 // else: all up to it were read
	pos     int64 // of the last row sent
	open    bool  // changes were sent after the last Commit
	idle    bool  // the sink knows that there is nothing more for now
	change  engine.Change
	texts   []byte
	known   []bool // all false
}

// Changes implements engine.Mover. It reads some rows at a time, each time with a
// new snapshot, so that a slow sink keeps no snapshot open. A snapshot never ends
// within a transaction.
func (m *mover) Changes(ctx context.Context, id string, set engine.Set, after, until engine.Position, to engine.ChangeSink) error {
	from, err := parsePosition(after)
	if err != nil {
		return err
	}
	end, err := parsePosition(until)
	if err != nil {
		return err
	}
	if until == "" {
		end = -1
	}
	if after == "" {
		from = -1
	}
	c, err := m.conn(ctx)
	if err != nil {
		return err
	}
	defer m.put(c)
	r := &logReader{m: m, c: c, id: id, set: &set, until: end, to: to, pos: from}
	for {
		more := m.s.writers.logged()
		if err := r.read(ctx); err != nil {
			return err
		}
		if err := r.send(ctx); err != nil {
			return err
		}
		if end >= 0 && r.pos >= end && !r.partial {
			return nil
		}
		if r.partial || !r.idle {
			continue
		}
		if err := awaitLog(ctx, more); err != nil {
			return err
		}
	}
}

// awaitLog waits until this process has written more of the log, or until another one may have.
func awaitLog(ctx context.Context, more <-chan struct{}) error {
	timer := time.NewTimer(logPoll)
	select {
	case <-ctx.Done():
	case <-more:
	case <-timer.C:
	}
	timer.Stop()
	return ctx.Err()
}

// read reads the next rows. What they are changes of is looked at each time: the
// capture may have been released.
func (r *logReader) read(ctx context.Context) error {
	return r.c.moveTx(ctx, false, func() error {
		r.rows = r.rows[:0]
		d, err := r.capture()
		if err != nil {
			return err
		}
		forgotten, err := r.c.queryInt("SELECT coalesce(max(forgotten), 0) FROM cleave_move WHERE id = " + quote.Text(r.id))
		if err != nil {
			return err
		}
		if r.pos < max(forgotten, d.Begin) {
			return sqlstate.New(sqlstate.ObjectNotInState, "the changes after position %d of capture %s are not here any more: they begin at %d", r.pos, r.id, max(forgotten, d.Begin)).
				WithHint("Cancel the move, then move again.")
		}
		if r.top, err = r.c.logEnd(); err != nil {
			return err
		}
		if r.until >= 0 {
			if r.top < r.until {
				return sqlstate.New(sqlstate.InvalidParameterValue, "position %d is not one of this file yet: its changes end at %d", r.until, r.top)
			}
			r.top = r.until
		}
		q, err := r.c.helper("SELECT seq, body FROM cleave_log WHERE seq > ? AND seq <= ? AND capture = ? ORDER BY seq")
		if err != nil {
			return err
		}
		defer q.Reset()
		q.BindInt64(1, r.pos)
		q.BindInt64(2, r.top)
		q.BindInt64(3, int64(d.OID))
		for size := 0; ; {
			r.partial = len(r.rows) >= logChunk || size >= logChunkBytes
			if r.partial {
				return nil
			}
			row, err := q.Step()
			if err != nil || !row {
				return err
			}
			body := make([]byte, q.ColumnLen(1))
			q.ColumnBytes(1, body)
			size += len(body)
			r.rows = append(r.rows, logRow{q.ColumnInt64(0), body})
		}
	})
}

// capture is the definition of the capture, which is the same at each look.
func (r *logReader) capture() (*catalog.Capture, error) {
	d := r.c.names.Catalog.Capture(r.id)
	switch {
	case d == nil || r.def != nil && r.def.OID != d.OID:
		return nil, noCapture(r.id)
	case r.def == nil:
		var ok bool
		if r.places, ok = d.PlacesOf(r.set); !ok {
			return nil, otherSet(r.id)
		}
		if r.pos < 0 {
			r.pos = d.Begin
		}
	}
	r.def = d
	return d, nil
}

// send gives the sink what was read.
func (r *logReader) send(ctx context.Context) error {
	for _, row := range r.rows {
		if len(row.body) < 3 {
			return badLog()
		}
		if row.body[1] == 1 && r.open {
			if err := r.commit(ctx, r.pos); err != nil {
				return err
			}
		}
		if err := r.decode(row.body); err != nil {
			return err
		}
		if r.change.Op == changeSchema {
			t := &r.def.Set.Tables[r.change.Table]
			e := sqlstate.New(sqlstate.ObjectNotInState, "the definition of table %s was changed while its rows are being moved", t.Name).
				WithHint("See that all shards have the change: cleave doctor. Before the cutover the copy begins anew by itself; afterwards it cannot be reversed.")
			e.Schema, e.Table = t.Schema, t.Name
			return e.OnShard(r.m.s.cfg.Name)
		}
		if r.change.Table = r.places[r.change.Table]; r.change.Table < 0 {
			r.pos = row.seq
			continue
		}
		if err := r.to.Change(ctx, &r.change); err != nil {
			return err
		}
		r.open, r.idle, r.pos = true, false, row.seq
	}
	if r.partial {
		return nil // the last transaction may go on
	}
	r.pos = max(r.pos, r.top)
	r.idle = !r.open
	return r.commit(ctx, r.pos)
}

func (r *logReader) commit(ctx context.Context, at int64) error {
	r.open = false
	return r.to.Commit(ctx, position(at))
}

// decode reads a row of the log into r.change.
func (r *logReader) decode(body []byte) error {
	n, size := binary.Uvarint(body[2:])
	if size <= 0 || n >= uint64(len(r.def.Tables)) {
		return badLog()
	}
	t := &r.def.Tables[n]
	x := &r.change
	*x = engine.Change{Op: engine.ChangeOp(body[0]), Table: int(n), Old: x.Old[:0], New: x.New[:0]}
	body = body[2+size:]
	next := func(oid uint32) (engine.Text, error) {
		d, rest, err := unpackDatum(body)
		if err != nil {
			return engine.Text{}, err
		}
		body = rest
		if d.Kind == 0 {
			return engine.Text{Null: true}, nil
		}
		r.texts, err = value.Append(r.texts[:0], oid, d, time.UTC)
		return engine.Text{String: string(r.texts)}, err
	}
	if x.Op == engine.ChangeUpdate || x.Op == engine.ChangeDelete {
		for _, i := range t.Identity {
			v, err := next(t.Types[i])
			if err != nil {
				return err
			}
			x.Old = append(x.Old, v)
		}
	}
	if x.Op == engine.ChangeInsert || x.Op == engine.ChangeUpdate {
		for _, oid := range t.Types {
			v, err := next(oid)
			if err != nil {
				return err
			}
			x.New = append(x.New, v)
		}
		if x.Op == engine.ChangeUpdate { // all values are known
			x.Same = r.allKnown(len(t.Types))
		}
	}
	if len(body) != 0 {
		return badLog()
	}
	return nil
}

// allKnown says of so many values that none is left out.
func (r *logReader) allKnown(n int) []bool {
	if len(r.known) < n {
		r.known = make([]bool, n)
	}
	return r.known[:n]
}

// helper returns a kept statement. The caller resets it.
func (c *database) helper(sql string) (*sqlite.Stmt, error) {
	q := c.helpers[sql]
	if q == nil {
		var err error
		if q, _, err = c.db.PrepareTransient(sql); err != nil {
			return nil, err
		}
		c.helpers[sql] = q
	}
	return q, nil
}

// changedKeys are the identities that rows of a table got since a position, as a sink of the log.
type changedKeys struct {
	t    *movedTable
	seen map[string]bool
	keys [][]value.Datum
}

// Change implements engine.ChangeSink.
func (k *changedKeys) Change(_ context.Context, x *engine.Change) error {
	if x.Op != engine.ChangeInsert && x.Op != engine.ChangeUpdate {
		return nil
	}
	name := ""
	for _, i := range k.t.identity {
		name += fmt.Sprintf("%d:%v:%s", len(x.New[i].String), x.New[i].Null, x.New[i].String)
	}
	if k.seen[name] {
		return nil
	}
	k.seen[name] = true
	key := make([]value.Datum, len(k.t.identity))
	for n, i := range k.t.identity {
		if x.New[i].Null {
			continue
		}
		var err error
		if key[n], err = value.In(k.t.columns[i].Type, x.New[i].String, time.UTC); err != nil {
			return err
		}
	}
	k.keys = append(k.keys, key)
	return nil
}

// Commit implements engine.ChangeSink.
func (k *changedKeys) Commit(context.Context, engine.Position) error { return nil }

// changedRows calls fn for the rows of a run that the view sees, and that were changed since a position.
func (v *view) changedRows(ctx context.Context, table int, r rowRun, since string, fn func(*movedTable, *rowReader) error) error {
	var t *movedTable
	err := v.with(ctx, func(c *Conn) (err error) {
		t, err = c.moveTable(&v.set.Tables[table], &v.set.Keys)
		return err
	})
	if err != nil {
		return err
	}
	one := v.set
	one.Tables = v.set.Tables[table : table+1]
	changed := &changedKeys{t: t, seen: map[string]bool{}}
	if err := v.m.Changes(ctx, v.id, one, engine.Position(since), v.Position(), changed); err != nil {
		return err
	}
	return v.with(ctx, func(c *Conn) error {
		q, row, err := c.rowQuery(t, findRow(t)+" AND "+inSet(-1, &v.set, t)+r.cond())
		if err != nil {
			return err
		}
		defer q.Finalize()
		for _, key := range changed.keys {
			for i, d := range key {
				d.Bind(q, i+1)
			}
			there, err := q.Step()
			if err == nil && there {
				err = fn(t, row)
			}
			if err = cmp.Or(err, q.Reset()); err != nil {
				return err
			}
		}
		return nil
	})
}

// isThere reports whether a row that could not be inserted is there, alike in all columns, from a try of its part that was interrupted.
// One that has only its key, or another of its unique values, is not that row.
func (l *loader) isThere(row []value.Datum, err error) (bool, error) {
	code := sqlite.ErrCode(err)
	if l.part.Since == "" || !l.to.unique || code != sqlite.ResultConstraintUnique && code != sqlite.ResultConstraintPrimaryKey {
		return false, nil
	}
	var names []string
	var key []value.Datum
	var packed []byte
	for i, col := range l.to.columns {
		names, packed = append(names, quote.Ident(col.Name)), packDatum(packed, row[i])
	}
	for _, k := range l.to.identity {
		key = append(key, row[k])
	}
	q, err := l.c.helper("SELECT 1 FROM main." + quote.Ident(l.to.def.SQLName()) + findRow(l.to) + " AND cleave_pack(" + strings.Join(names, ", ") + ") = ?")
	if err != nil {
		return false, err
	}
	for i, v := range append(key, value.Blob(string(packed))) {
		v.Bind(q, i+1)
	}
	there, err := q.Step()
	return there, errors.Join(err, q.Reset())
}
