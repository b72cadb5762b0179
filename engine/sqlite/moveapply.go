package sqlite

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/copytext"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of writing. The write lock of a file is everybody's: it is held for short
// times only.
const (
	loadRows   = 2000    // read and understood before the lock is taken
	loadBytes  = 1 << 20 // their text
	loadHold   = 8 * time.Millisecond
	applyRows  = 1000 // changes that wait for their commit
	applyBytes = 1 << 20
	applyMost  = 16 << 20 // beyond it a transaction is written before its end is known
	applyAge   = 20 * time.Millisecond
	applyLate  = 100 * time.Millisecond
	applyBeat  = time.Second // a position without changes waits so long
)

// Load implements engine.Mover. The rows are committed in several transactions, all
// but the last of which the disk is not waited for: what follows a power failure is
// a copy from the beginning, or behind the parts that are noted: that is done with the last rows. Rows of a part
// that are there from a try before are as they are read now, and stay.
func (m *mover) Load(ctx context.Context, id string, table *engine.MoveTable, part engine.Part, rows io.Reader) (int64, error) {
	c, err := m.conn(ctx)
	if err != nil {
		return 0, err
	}
	defer m.put(c)
	l := &loader{m: m, c: c, id: id, table: table, part: part, in: copytext.NewReader(rows)}
	if err := m.change(ctx, c, l.begin); err != nil {
		return 0, err
	}
	if err := c.exec("PRAGMA synchronous = NORMAL"); err != nil {
		return 0, c.mapError(err)
	}
	defer func() {
		if c.db != nil {
			c.exec("PRAGMA synchronous = " + m.s.synchronous)
		}
	}()
	for !l.last {
		if err := l.read(); err != nil {
			return l.total, err
		}
		if l.last {
			if err := c.exec("PRAGMA synchronous = " + m.s.synchronous); err != nil {
				return l.total, c.mapError(err)
			}
		}
		for begun := false; len(l.values) > 0 || l.last && !begun; begun = true {
			n := 0
			err := m.change(ctx, c, func() (err error) {
				n, err = l.write()
				return err
			})
			if err != nil {
				return l.total, err
			}
			l.total += int64(n)
			l.values = l.values[n*len(l.types):]
		}
	}
	return l.total, nil
}

// loader copies the rows of a table into a file.
type loader struct {
	m      *mover
	c      *Conn
	id     string
	table  *engine.MoveTable
	part   engine.Part
	born   string // the move's birth, which has to stay the same
	to     *movedTable
	types  []uint32
	insert string

	in          *copytext.Reader
	fields      []copytext.Field
	line, total int64
	bytes       int64
	values      []value.Datum // of the rows that are read and not written
	last        bool          // nothing follows them
}

// begin looks at the move and the table.
func (l *loader) begin() (err error) {
	if err := l.c.knowMove(l.id); err != nil {
		return err
	}
	if l.born, err = l.c.born(l.id); err != nil {
		return err
	}
	t, err := l.c.moveTable(l.table, nil)
	if err != nil {
		return err
	}
	l.types, l.insert, l.to = nil, insertInto(t), t
	for _, col := range t.columns {
		l.types = append(l.types, col.Type)
	}
	return nil
}

// read reads as many rows as are written at a time.
func (l *loader) read() error {
	l.values = l.values[:0]
	for size := 0; len(l.values) < loadRows*len(l.types) && size < loadBytes; {
		text, err := l.in.Line()
		if err == io.EOF {
			l.last = true
			return nil
		}
		if err != nil {
			return err
		}
		l.line++
		l.bytes += int64(len(text)) + 1
		size += len(text)
		if err := l.row(text); err != nil {
			return err
		}
	}
	return nil
}

// row reads the values of a row.
func (l *loader) row(text string) (err error) {
	if l.fields, err = copytext.Split(l.fields[:0], text); err != nil {
		return err
	}
	if len(l.fields) != len(l.types) {
		return sqlstate.New(sqlstate.BadFileFormat, "line %d of the rows of table %s has %d columns, not %d", l.line, l.table.Name, len(l.fields), len(l.types))
	}
	for i, f := range l.fields {
		var d value.Datum
		if !f.Null {
			if d, err = value.In(l.types[i], f.Text, time.UTC); err != nil {
				e := *sqlstate.As(err)
				e.Where = fmt.Sprintf("COPY %s, line %d, column %s", l.table.Name, l.line, l.table.Columns[i])
				return &e
			}
		}
		l.values = append(l.values, d)
	}
	return nil
}

// put inserts a row, unless it is there already (see isThere).
func (l *loader) put(q *sqlite.Stmt, row []value.Datum) error {
	for i, v := range row {
		v.Bind(q, i+1)
	}
	_, err := q.Step()
	if e := q.Reset(); err == nil {
		err = e
	}
	if err == nil {
		return nil
	}
	there, e := l.isThere(row, err)
	if e != nil || there {
		return e
	}
	return loadError(l.table, err)
}

// write inserts the first rows that are read, for as long as the file may be held, and counts them.
func (l *loader) write() (n int, err error) {
	if err := l.c.stillBorn(l.id, l.born); err != nil {
		return 0, err
	}
	q, err := l.c.helper(l.insert)
	if err != nil {
		return 0, err
	}
	for start := time.Now(); n*len(l.types) < len(l.values) && (n%64 != 63 || time.Since(start) < loadHold); n++ {
		if err := l.put(q, l.values[n*len(l.types):][:len(l.types)]); err != nil {
			return n, err
		}
	}
	if l.last && n*len(l.types) == len(l.values) && l.part.Since != "" {
		return n, l.notePart(l.total + int64(n))
	}
	if l.last && n == 0 {
		// A commit that writes, so that what went before is on the disk.
		return 0, execArgs1(l.c, "UPDATE cleave_move SET born = born WHERE id = ?", value.Text(l.id))
	}
	return n, nil
}

// SetLoaded implements engine.Mover.
func (m *mover) SetLoaded(ctx context.Context, id string, t engine.LoadedTable) error {
	return m.with(ctx, true, func(c *Conn) error {
		if err := forgetParts(c, id, t.Schema, t.Name); err != nil {
			return err
		}
		return execArgs1(c, "INSERT OR REPLACE INTO cleave_loaded (id, table_schema, table_name, rows, bytes) VALUES (?, ?, ?, ?, ?)",
			value.Text(id), value.Text(t.Schema), value.Text(t.Name), value.Int(t.Rows), value.Int(t.Bytes))
	})
}

// Loaded implements engine.Mover. A Load that is under way finds another nonce at its next batch.
func (m *mover) Loaded(ctx context.Context, id string) (out []engine.LoadedTable, err error) {
	err = m.with(ctx, true, func(c *Conn) error {
		out = nil
		if err := execArgs1(c, "UPDATE cleave_move SET born = ? WHERE id = ?", value.Text(nonce()), value.Text(id)); err != nil {
			return err
		}
		q, _, err := c.db.PrepareTransient(`SELECT table_schema, table_name, rows, bytes, '', '' FROM cleave_loaded WHERE id = ?1
			UNION ALL SELECT table_schema, table_name, rows, bytes, place, since FROM cleave_loaded_part WHERE id = ?1`)
		if err != nil {
			return err
		}
		defer q.Finalize()
		q.BindText(1, id)
		for {
			row, err := q.Step()
			if err != nil || !row {
				return err
			}
			out = engine.AddLoaded(out, engine.LoadedTable{Schema: q.ColumnText(0), Name: q.ColumnText(1), Rows: q.ColumnInt64(2), Bytes: q.ColumnInt64(3)},
				engine.Part{Place: q.ColumnText(4), Since: q.ColumnText(5)})
		}
	})
	return out, err
}

// ForgetParts implements engine.Mover.
func (m *mover) ForgetParts(ctx context.Context, id string, t *engine.MoveTable) error {
	return m.with(ctx, true, func(c *Conn) error { return forgetParts(c, id, t.Schema, t.Name) })
}

func forgetParts(c *Conn, id, schema, table string) error {
	return execArgs1(c, "DELETE FROM cleave_loaded_part WHERE id = ? AND table_schema = ? AND table_name = ?", value.Text(id), value.Text(schema), value.Text(table))
}

// notePart notes a part that was loaded; more of its rows may have been before.
func (l *loader) notePart(rows int64) error {
	return execArgs1(l.c, `INSERT INTO cleave_loaded_part (id, table_schema, table_name, place, since, rows, bytes) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id, table_schema, table_name, place) DO UPDATE SET since = excluded.since, rows = rows + excluded.rows, bytes = bytes + excluded.bytes`,
		value.Text(l.id), value.Text(l.table.Schema), value.Text(l.table.Name), value.Text(l.part.Place), value.Text(l.part.Since), value.Int(rows), value.Int(l.bytes))
}

func loadError(t *engine.MoveTable, err error) error {
	if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultConstraint {
		return err
	}
	code := sqlstate.CheckViolation
	switch sqlite.ErrCode(err) {
	case sqlite.ResultConstraintUnique, sqlite.ResultConstraintPrimaryKey:
		code = sqlstate.UniqueViolation
	case sqlite.ResultConstraintNotNull:
		code = sqlstate.NotNullViolation
	}
	e := sqlstate.Wrap(err, code, "a row that is copied into table %s does not fit its constraints", t.Name).
		WithHint("Look at the table on both shards: cleave doctor. The target must hold no row of the part when a copy begins.")
	e.Schema, e.Table = t.Schema, t.Name
	return e
}

func insertInto(t *movedTable) string {
	names := make([]string, len(t.columns))
	for i, col := range t.columns {
		names[i] = quote.Ident(col.Name)
	}
	return "INSERT INTO main." + quote.Ident(t.def.SQLName()) + " (" + strings.Join(names, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(names)-1) + ")"
}

// born is the nonce of an id's row: another one after a Release.
func (c *database) born(id string) (string, error) {
	return text1(c.db, "SELECT born FROM cleave_move WHERE id = "+quote.Text(id))
}

func (c *database) stillBorn(id, born string) error {
	now, err := c.born(id)
	if err == nil && now != born {
		err = sqlstate.New(sqlstate.ObjectNotInState, "the move %s was released here while rows of it were being loaded", id).
			WithHint("Look at the moves with: cleave moves.")
	}
	return err
}

// applier applies changes to the file.
type applier struct {
	m     *mover
	c     *Conn
	id    string
	owner string
	set   engine.Set
	num   int64 // the set's number for cleave_member
	types [][]uint32
	ident [][]int
	// tables are as the catalogue's generation gen has them.
	tables []appliedTable
	gen    int64

	waiting []waitingChange // given, not written
	size    int
	since   time.Time
	whole   int             // of waiting: those of ended transactions
	at      engine.Position // where the last of them ended
	done    engine.Position // committed
	begun   bool            // the file's transaction is open
	failed  error
	beat    time.Time

	mu    sync.Mutex  // of all the above
	timer *time.Timer // commits what has waited long enough
	ctx   context.Context
	stop  context.CancelFunc
}

// appliedTable is a table of the set with its usual statements.
type appliedTable struct {
	*movedTable
	insert, update, delete string
	leave                  string // delete, if the row is one of the set
	others                 []int  // columns that are not of the identity
}

type waitingChange struct {
	op       engine.ChangeOp
	table    int
	old, row []value.Datum
	same     []bool
}

var _ engine.Applier = (*applier)(nil)

// Apply implements engine.Mover.
func (m *mover) Apply(ctx context.Context, id string, set engine.Set) (engine.Applier, error) {
	c, err := m.conn(ctx)
	if err != nil {
		return nil, err
	}
	a := &applier{m: m, c: c, id: id, owner: nonce(), set: set, beat: time.Now()}
	a.num = c.openSet(&a.set)
	err = m.change(ctx, c, func() error {
		a.types, a.ident = nil, nil
		for i := range set.Tables {
			t, err := c.moveTable(&set.Tables[i], &set.Keys)
			if err != nil {
				return err
			}
			types := make([]uint32, len(t.columns))
			for k, col := range t.columns {
				types[k] = col.Type
			}
			a.types, a.ident = append(a.types, types), append(a.ident, t.identity)
		}
		if err := c.knowMove(id); err != nil {
			return err
		}
		at, err := text1(c.db, "SELECT applied FROM cleave_move WHERE id = "+quote.Text(id))
		if err != nil {
			return err
		}
		a.at, a.done = engine.Position(at), engine.Position(at)
		return execArgs1(c, "UPDATE cleave_move SET owner = ? WHERE id = ?", value.Text(a.owner), value.Text(id))
	})
	if err != nil {
		m.put(c)
		return nil, err
	}
	a.ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	return a, nil
}

// late commits what no later call has committed. An error waits for the next call.
func (a *applier) late() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil && a.whole > 0 && !a.begun {
		_ = a.write(a.ctx)
	}
}

// Change implements engine.ChangeSink.
func (a *applier) Change(ctx context.Context, x *engine.Change) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed != nil {
		return a.failed
	}
	if x.Table < 0 || x.Table >= len(a.types) {
		return a.fail(sqlstate.New(sqlstate.InvalidParameterValue, "a change is of table %d, the set has %d", x.Table, len(a.types)))
	}
	w, err := a.read(x)
	if err != nil {
		return a.fail(err)
	}
	if len(a.waiting) == 0 {
		a.since = time.Now()
	}
	a.waiting = append(a.waiting, w)
	if a.size < applyMost {
		return nil
	}
	// A transaction that is too large to wait for its end.
	if a.whole > 0 {
		return a.write(ctx)
	}
	return a.spill(ctx)
}

// read reads the values of a change, whose size counts.
func (a *applier) read(x *engine.Change) (w waitingChange, err error) {
	w = waitingChange{op: x.Op, table: x.Table}
	types := a.types[x.Table]
	a.size += 64
	read := func(oid uint32, v engine.Text) (value.Datum, error) {
		if v.Null {
			return value.Datum{}, nil
		}
		a.size += len(v.String) + 48
		return value.In(oid, v.String, time.UTC)
	}
	if x.Op.HasOld() {
		ident := a.ident[x.Table]
		if len(x.Old) != len(ident) {
			return w, sqlstate.New(sqlstate.InvalidParameterValue, "a change of table %s has %d values of its identity, not %d", a.set.Tables[x.Table].Name, len(x.Old), len(ident))
		}
		w.old = make([]value.Datum, len(x.Old))
		for i, v := range x.Old {
			if w.old[i], err = read(types[ident[i]], v); err != nil {
				return w, err
			}
		}
	}
	if x.Op == engine.ChangeInsert || x.Op == engine.ChangeUpdate {
		if len(x.New) != len(types) {
			return w, sqlstate.New(sqlstate.InvalidParameterValue, "a change of table %s has %d values, not %d", a.set.Tables[x.Table].Name, len(x.New), len(types))
		}
		w.row = make([]value.Datum, len(types))
		for i, v := range x.New {
			if len(x.Same) > 0 && x.Same[i] {
				continue
			}
			if w.row[i], err = read(types[i], v); err != nil {
				return w, err
			}
		}
		if slices.Contains(x.Same, true) {
			w.same = slices.Clone(x.Same)
		}
	}
	return w, nil
}

// Commit implements engine.ChangeSink. A Commit without a change before it means
// that the stream rests: then nothing waits for more.
func (a *applier) Commit(ctx context.Context, at engine.Position) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed != nil {
		return a.failed
	}
	rests := a.whole == len(a.waiting) && !a.begun
	a.at, a.whole = at, len(a.waiting)
	if a.begun || len(a.waiting) >= applyRows || a.size >= applyBytes || len(a.waiting) > 0 && (rests || time.Since(a.since) >= applyAge) ||
		rests && at != a.done && time.Since(a.beat) >= applyBeat {
		return a.write(ctx)
	}
	if len(a.waiting) > 0 {
		if a.timer == nil {
			a.timer = time.AfterFunc(applyLate, a.late)
		} else {
			a.timer.Reset(applyLate)
		}
	}
	return nil
}

// Flush implements engine.Applier.
func (a *applier) Flush(ctx context.Context) (engine.Position, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed != nil {
		return a.done, a.failed
	}
	if a.whole == 0 && (a.begun || a.at == a.done) {
		return a.done, nil
	}
	err := a.write(ctx)
	return a.done, err
}

// Close implements engine.Applier.
func (a *applier) Close() error {
	a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.c == nil {
		return nil
	}
	if a.begun && a.c.db != nil {
		a.c.abandonTx()
	}
	a.m.put(a.c)
	a.c = nil
	if a.failed == nil {
		a.failed = errClosed
	}
	return nil
}

// fail ends the applier: what follows a change that was not applied cannot be.
func (a *applier) fail(err error) error {
	if a.begun && a.c.db != nil {
		a.c.abandonTx()
	}
	a.begun, a.waiting, a.failed = false, nil, err
	return err
}

// write commits the whole transactions that wait.
func (a *applier) write(ctx context.Context) error {
	do := func() error {
		if err := a.own(); err != nil {
			return err
		}
		for i := range a.waiting[:a.whole] {
			if err := a.apply(&a.waiting[i]); err != nil {
				return err
			}
		}
		return execArgs1(a.c, "UPDATE cleave_move SET applied = ? WHERE id = ?", value.Text(string(a.at)), value.Text(a.id))
	}
	var err error
	if a.begun {
		err = a.c.working(ctx, func() error {
			if err := do(); err != nil {
				return err
			}
			return a.c.commitTx()
		})
		if err != nil && a.c.db != nil {
			err = a.c.mapError(err)
		}
	} else {
		err = a.m.change(ctx, a.c, do)
	}
	if err != nil {
		return a.fail(err)
	}
	a.begun, a.done, a.beat = false, a.at, time.Now()
	rest := copy(a.waiting, a.waiting[a.whole:])
	clear(a.waiting[rest:])
	a.waiting, a.whole, a.size = a.waiting[:rest], 0, a.size*rest/max(1, rest+a.whole)
	if rest == 0 {
		a.size = 0
	}
	return nil
}

// spill writes what waits of a transaction whose end is not known yet.
func (a *applier) spill(ctx context.Context) error {
	do := func() error {
		for i := range a.waiting {
			if err := a.apply(&a.waiting[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for !a.begun {
		err := a.c.working(ctx, func() error {
			if err := a.c.begin(true); err != nil {
				return err
			}
			a.begun = true
			if err := a.m.checkToken(a.c); err != nil {
				return err
			}
			return a.own()
		})
		if err == nil {
			break
		}
		if a.c.db != nil {
			err = a.c.mapError(err)
		}
		if !a.begun && sqlstate.CodeOf(err) == sqlstate.LockNotAvailable && ctx.Err() == nil {
			a.c.abandonTx()
			continue
		}
		return a.fail(err)
	}
	if err := a.c.working(ctx, do); err != nil {
		if a.c.db != nil {
			err = a.c.mapError(err)
		}
		return a.fail(err)
	}
	clear(a.waiting)
	a.waiting, a.whole, a.size = a.waiting[:0], 0, 0
	return nil
}

// own checks that no later Apply, SetApplied or Release has taken over.
func (a *applier) own() error {
	owner, err := text1(a.c.db, "SELECT owner FROM cleave_move WHERE id = "+quote.Text(a.id))
	if err == nil && owner != a.owner {
		err = sqlstate.New(sqlstate.ObjectNotInState, "somebody else applies the changes of %s now, or it was released", a.id).
			WithHint("Look at the moves with: cleave moves.")
	}
	return err
}

// table returns a table of the set as the current transaction sees it.
func (a *applier) table(n int) (*appliedTable, error) {
	if a.tables != nil && a.gen == a.c.names.Catalog.Generation {
		return &a.tables[n], nil
	}
	a.tables = nil
	for i := range a.set.Tables {
		m, err := a.c.moveTable(&a.set.Tables[i], &a.set.Keys)
		if err != nil {
			return nil, err
		}
		where := findRow(m)
		x := appliedTable{movedTable: m, insert: insertInto(m), delete: "DELETE FROM main." + quote.Ident(m.def.SQLName()) + where}
		x.leave = x.delete + " AND " + inSet(a.num, &a.set, m)
		identity := map[int]bool{}
		for _, k := range m.identity {
			identity[k] = true
		}
		for k := range m.columns {
			if !identity[k] {
				x.others = append(x.others, k)
			}
		}
		x.update = updateOf(m, x.others) + where
		a.tables = append(a.tables, x)
	}
	a.gen = a.c.names.Catalog.Generation
	return &a.tables[n], nil
}

func updateOf(m *movedTable, places []int) string {
	sets := make([]string, len(places))
	for i, k := range places {
		sets[i] = quote.Ident(m.columns[k].Name) + " = ?"
	}
	return "UPDATE main." + quote.Ident(m.def.SQLName()) + " SET " + strings.Join(sets, ", ")
}

// apply applies one change in the current transaction.
func (a *applier) apply(w *waitingChange) error {
	c := a.c
	m, err := a.table(w.table)
	if err != nil {
		return err
	}
	var sql string
	var values []value.Datum
	switch w.op {
	case engine.ChangeInsert:
		sql, values = m.insert, w.row
	case engine.ChangeDelete:
		sql, values = m.delete, identityArgs(m.movedTable, w.old)
	case engine.ChangeLeave:
		sql, values = m.leave, identityArgs(m.movedTable, w.old)
	case engine.ChangeTruncate:
		return c.exec("DELETE FROM main." + quote.Ident(m.def.SQLName()) + " WHERE " + inSet(a.num, &a.set, m.movedTable))
	case engine.ChangeUpdate:
		sql, values = a.update(m, w)
	default:
		return sqlstate.New(sqlstate.InvalidParameterValue, "a change of table %s has the unknown kind %q", m.def.Name, w.op)
	}
	q, err := c.helper(sql)
	if err != nil {
		return err
	}
	for i, v := range values {
		v.Bind(q, i+1)
	}
	_, err = q.Step()
	if e := q.Reset(); err == nil {
		err = e
	}
	if err == nil && c.db.Changes() != 1 && w.op != engine.ChangeLeave {
		return a.misfit(m.movedTable, w, "the row is not there", nil)
	}
	if err != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
		return a.misfit(m.movedTable, w, "the row does not fit: "+err.Error(), err)
	}
	return err
}

// update is the statement of an update: columns that stay as they are are left out,
// so that their indexes are left alone.
func (a *applier) update(m *appliedTable, w *waitingChange) (string, []value.Datum) {
	places := m.others
	same := w.same != nil
	for i, k := range m.identity {
		same = same || w.old[i] != w.row[k]
	}
	if same || len(places) == 0 {
		places = nil
		for k := range m.columns {
			if w.same == nil || !w.same[k] {
				places = append(places, k)
			}
		}
	}
	values := make([]value.Datum, 0, len(places)+len(w.old)+1)
	for _, k := range places {
		values = append(values, w.row[k])
	}
	if len(places) == 0 { // all as it was: still, the row must be there
		places, values = m.identity[:1], append(values, w.old[0])
	}
	sql := m.update
	if same || len(m.others) == 0 {
		sql = updateOf(m.movedTable, places) + findRow(m.movedTable)
	}
	return sql, append(values, identityArgs(m.movedTable, w.old)...)
}

// findRow is the condition for the one row with an identity. Rows that are equal in
// all columns are as good as each other, but equal means stored alike: 1.0 and 1.00
// are not.
func findRow(m *movedTable) string {
	var and, names []string
	for _, k := range m.identity {
		col := m.columns[k]
		expr, mark := col.Indexed(), "?"
		if expr != quote.Ident(col.Name) {
			mark = "rtrim(?, ' ')"
		}
		and, names = append(and, expr+" IS "+mark), append(names, quote.Ident(col.Name))
	}
	if m.unique {
		return " WHERE " + strings.Join(and, " AND ")
	}
	return " WHERE rowid = (SELECT rowid FROM main." + quote.Ident(m.def.SQLName()) + " WHERE " + strings.Join(and, " AND ") +
		" AND cleave_pack(" + strings.Join(names, ", ") + ") = ? LIMIT 1)"
}

// identityArgs are the values for findRow.
func identityArgs(m *movedTable, old []value.Datum) []value.Datum {
	if m.unique {
		return old
	}
	var packed []byte
	for _, v := range old {
		packed = packDatum(packed, v)
	}
	return append(append([]value.Datum(nil), old...), value.Blob(string(packed)))
}

func (a *applier) misfit(m *movedTable, w *waitingChange, why string, cause error) error {
	what := map[engine.ChangeOp]string{engine.ChangeInsert: "an insert into", engine.ChangeUpdate: "an update of", engine.ChangeDelete: "a delete from", engine.ChangeLeave: "a delete from"}[w.op]
	e := sqlstate.Wrap(cause, sqlstate.DataCorrupted, "%s table %s cannot be applied on shard %s: %s", what, m.def.Name, a.m.s.cfg.Name, why).
		WithHint("The copy is not what it should be: cancel the move, then move again.").OnShard(a.m.s.cfg.Name)
	e.Schema, e.Table = m.def.Schema, m.def.Name
	var names, texts []string
	for i, k := range m.identity {
		v := value.Datum{}
		if w.old != nil {
			v = w.old[i]
		} else if w.row != nil {
			v = w.row[k]
		}
		text := "null"
		if v.Kind != 0 {
			if b, err := value.Append(nil, m.columns[k].Type, v, time.UTC); err == nil {
				text = string(b)
			}
		}
		names, texts = append(names, m.columns[k].Name), append(texts, text)
	}
	return e.WithDetail("Key (%s)=(%s).", strings.Join(names, ", "), strings.Join(texts, ", "))
}
