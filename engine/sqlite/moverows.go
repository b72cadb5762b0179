package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/copytext"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of reading.
const (
	rowChunk   = 64 << 10 // bytes of rows handed over at a time
	viewsMost  = 4        // conversations that read one view
	listedMost = 100      // keys that are looked up one by one rather than in all rows
)

// openSet makes a set known to the conversation and returns its number for
// cleave_member. It is good until the conversation is given back.
func (c *Conn) openSet(set *engine.Set) int64 {
	c.sets = append(c.sets, catalog.NewRowSet(set))
	return -int64(len(c.sets))
}

// inSet is the condition that a row of the table is in a set of the conversation.
// Where few rows can be, it says so in a way that an index may serve.
func inSet(n int64, set *engine.Set, t *movedTable) string {
	var cols []string
	for _, k := range t.key {
		cols = append(cols, quote.Ident(t.columns[k].Name))
	}
	cond := fmt.Sprintf("cleave_member(%d, %s)", n, strings.Join(cols, ", "))
	if near := nearSet(set, cols); near != "" && !set.Except {
		return "(" + near + ") AND " + cond
	}
	return cond
}

// nearSet is a condition that is true for all rows of the set, "" if there is none
// that helps.
func nearSet(set *engine.Set, cols []string) string {
	keys := &set.Keys
	equal := func(list []keyspace.Key) string {
		var or []string
		for _, k := range list {
			var and []string
			for i := range k {
				and = append(and, cols[i]+" = "+keyDatum(k[i]).Literal())
			}
			or = append(or, "("+strings.Join(and, " AND ")+")")
		}
		return strings.Join(or, " OR ")
	}
	named := append(append([]keyspace.Key(nil), keys.Pinned...), keys.Listed...)
	switch {
	case keys.Strategy == keyspace.List || len(keys.Intervals) == 0:
		if len(named) > 0 && len(named) <= listedMost {
			return equal(named)
		}
		return ""
	case keys.Strategy != keyspace.Range || len(keys.Pinned) > 0:
		return ""
	}
	var and []string
	if low := keys.Intervals[0].LowValues; len(low) > 0 {
		and = append(and, cols[0]+" >= "+keyDatum(low[0]).Literal())
	}
	if last := keys.Intervals[len(keys.Intervals)-1]; !last.Last && len(last.HighValues) > 0 {
		and = append(and, cols[0]+" <= "+keyDatum(last.HighValues[0]).Literal())
	}
	return strings.Join(and, " AND ")
}

// keyDatum is a shard key value as the file holds it.
func keyDatum(v keyspace.Value) value.Datum {
	switch t := v.Type(); {
	case t.IsText():
		return value.Text(v.Bytes())
	case t == keyspace.UUID || t == keyspace.Bytea:
		return value.Blob(v.Bytes())
	}
	return value.Int(v.Int())
}

// view is one snapshot of a set, seen by several conversations.
type view struct {
	m       *mover
	id      string // of the capture, "" if it is none's
	set     engine.Set
	at      int64
	readers chan *Conn
	all     []*Conn
	ready   bool // all are in readers
	done    chan struct{}
	once    sync.Once
}

var (
	_ engine.RowSource = (*view)(nil)
	_ engine.View      = (*view)(nil)
)

// Capture implements engine.Mover.
func (m *mover) Capture(ctx context.Context, id string, set engine.Set) (engine.RowSource, error) {
	c, err := m.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer m.put(c)
	var oid uint32
	err = m.change(ctx, c, func() error {
		d, err := c.startCapture(id, set)
		if err == nil {
			oid = d.OID
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	m.s.writers.tellLog()
	if err := m.sweep(ctx, c, id); err != nil {
		return nil, err
	}
	v, err := m.openView(ctx, set, min(viewsMost, max(1, runtime.GOMAXPROCS(0))))
	if err != nil {
		return nil, err
	}
	for _, r := range v.all {
		if r.names.Catalog.Captures[oid] == nil {
			v.Close()
			return nil, noCapture(id)
		}
	}
	v.id = id
	return v, nil
}

// CaptureRows implements engine.Mover.
func (m *mover) CaptureRows(ctx context.Context, id string, set engine.Set) (engine.RowSource, error) {
	v, err := m.openView(ctx, set, min(viewsMost, max(1, runtime.GOMAXPROCS(0))))
	if err != nil {
		return nil, err
	}
	for _, r := range v.all {
		d := r.names.Catalog.Capture(id)
		if d == nil {
			err = noCapture(id)
		} else if _, ok := d.PlacesOf(&set); !ok {
			err = otherSet(id)
		}
	}
	if err != nil {
		v.Close()
		return nil, err
	}
	v.id = id
	return v, nil
}

// View implements engine.Mover.
func (m *mover) View(ctx context.Context, set engine.Set) (engine.View, error) {
	return m.openView(ctx, set, 1)
}

// openView begins a read transaction in each of n conversations. While they begin,
// nobody can commit, so that all see the same.
func (m *mover) openView(ctx context.Context, set engine.Set, n int) (v *view, err error) {
	v = &view{m: m, set: set, readers: make(chan *Conn, n), done: make(chan struct{})}
	defer func() {
		if err != nil {
			v.Close()
		}
	}()
	for range n {
		c, err := m.conn(ctx)
		if err != nil {
			return v, err
		}
		v.all = append(v.all, c)
	}
	begin := func() error {
		for _, c := range v.all {
			if err := c.working(ctx, func() (err error) {
				if err = c.beginSnapshot(); err != nil {
					return err
				}
				v.at, err = c.logEnd()
				return err
			}); err != nil {
				return c.mapError(err)
			}
		}
		return nil
	}
	if n == 1 {
		err = begin()
	} else {
		err = m.with(ctx, true, func(*Conn) error { return begin() })
	}
	if err != nil {
		return v, err
	}
	for _, c := range v.all {
		for i := range set.Tables {
			if _, err := c.moveTable(&set.Tables[i], &set.Keys); err != nil {
				return v, err
			}
		}
		c.openSet(&v.set)
	}
	for _, c := range v.all {
		v.readers <- c
	}
	v.ready = true
	return v, nil
}

// beginSnapshot begins a transaction that keeps the snapshot of now.
func (c *transaction) beginSnapshot() error {
	if err := c.cachedExec("BEGIN"); err != nil {
		return err
	}
	c.tx.sqlite, c.tx.started = sqliteBegun, true
	return c.checkGeneration()
}

// Position implements engine.RowSource and engine.View.
func (v *view) Position() engine.Position { return position(v.at) }

// Close implements engine.RowSource and engine.View. It waits for the readers.
func (v *view) Close() error {
	v.once.Do(func() {
		close(v.done)
		for range v.all {
			if v.ready {
				<-v.readers
			}
		}
		for _, c := range v.all {
			if c.db != nil {
				c.abandonTx()
			}
			v.m.put(c)
		}
	})
	return nil
}

// with runs fn in one of the view's conversations.
func (v *view) with(ctx context.Context, fn func(c *Conn) error) error {
	select {
	case c := <-v.readers:
		defer func() { v.readers <- c }()
		err := c.working(ctx, func() error { return fn(c) })
		if err != nil && c.db != nil {
			err = c.mapError(err)
			if ctx.Err() != nil {
				err = ctx.Err()
			}
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-v.done:
		return errClosed
	}
}

// rowWriter writes rows in COPY's text form, in chunks.
type rowWriter struct {
	to   io.Writer
	out  []byte
	turn turn
}

func (w *rowWriter) row(ctx context.Context, row *rowReader, columns int) (err error) {
	for i := range columns {
		if i > 0 {
			w.out = append(w.out, '\t')
		}
		if w.out, err = row.appendCopy(w.out, i); err != nil {
			return err
		}
	}
	w.out = append(w.out, '\n')
	if len(w.out) < rowChunk {
		return nil
	}
	if _, err := w.to.Write(w.out); err != nil {
		return err
	}
	if err := w.turn.read(ctx, len(w.out)); err != nil {
		return err
	}
	w.out = w.out[:0]
	return nil
}

// turn counts what is read of a piece.
type turn struct {
	pace    engine.Pace // may be nil
	n, most int64
}

// read says that so many bytes have been read, and waits for the next piece at the end of one.
func (t *turn) read(ctx context.Context, bytes int) (err error) {
	if t.n += int64(bytes); t.pace != nil && t.n >= max(t.most, rowChunk) {
		t.most, err = t.pace(ctx, t.n)
		t.n = 0
	}
	return err
}

// Sums implements engine.View.
func (v *view) Sums(ctx context.Context, pace engine.Pace) ([]engine.Sum, error) {
	sums := make([]engine.Sum, len(v.set.Tables))
	for i := range v.set.Tables {
		if err := v.with(ctx, func(c *Conn) error {
			t, err := c.moveTable(&v.set.Tables[i], &v.set.Keys)
			if err != nil {
				return err
			}
			var line, text []byte
			var failed error
			turn := turn{pace: pace}
			sum := &sums[i]
			err = c.eachRow(t, inSet(-1, &v.set, t), func(row *rowReader) bool {
				line = line[:0]
				for k := range t.columns {
					if line, text, failed = row.appendSummed(line, text, k); failed != nil {
						return false
					}
				}
				if failed = turn.read(ctx, len(line)); failed != nil {
					return false
				}
				sum.Rows++
				sum.Checksum += uint64(keyspace.Str(keyspace.Text, string(line)).Hash(0))
				return true
			})
			if failed != nil {
				return failed
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// Sums implements engine.Mover.
func (m *mover) Sums(ctx context.Context, set engine.Set, pace engine.Pace) ([]engine.Sum, error) {
	v, err := m.View(ctx, set)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Sums(ctx, pace)
}

// eachRow calls fn for the rows of a table that meet a condition, until it returns
// false.
func (c *database) eachRow(t *movedTable, cond string, fn func(*rowReader) bool) error {
	q, row, err := c.rowQuery(t, " WHERE "+cond)
	if err != nil {
		return err
	}
	defer q.Finalize()
	for {
		ok, err := q.Step()
		if err != nil || !ok || !fn(row) {
			return err
		}
	}
}

func partStart(least, most int64, part, parts int) int64 {
	span := uint64(most-least) + 1
	return least + int64(span/uint64(parts)*uint64(part)+span%uint64(parts)*uint64(part)/uint64(parts))
}

// rowReader prints the values of the row that a statement is on.
type rowReader struct {
	stmt    *sqlite.Stmt
	columns []*catalog.Column
	classes []value.Class
}

// appendText appends a column's text form; null is true for NULL.
func (r *rowReader) appendText(dst []byte, i int) (out []byte, null bool, err error) {
	d, _, err := value.OfColumn(r.stmt, i, r.classes[i], nil)
	if err != nil {
		return dst, false, err
	}
	if d.Kind == 0 {
		return dst, true, nil
	}
	out, err = value.Append(dst, r.columns[i].Type, d, time.UTC)
	return out, false, err
}

// appendCopy appends a column as COPY's text format has it.
func (r *rowReader) appendCopy(dst []byte, i int) ([]byte, error) {
	from := len(dst)
	dst, null, err := r.appendText(dst, i)
	if null {
		return append(dst, copytext.Null...), nil
	}
	return copytext.AppendEscaped(dst, from), err
}

// appendSummed appends a column as engine.Sum defines it. text is scratch.
func (r *rowReader) appendSummed(line, text []byte, i int) ([]byte, []byte, error) {
	text, null, err := r.appendText(text[:0], i)
	if err != nil {
		return line, text, err
	}
	if null {
		return append(line, 'N'), text, nil
	}
	return append(appendLength(line, len(text)), text...), text, nil
}

func appendLength(b []byte, n int) []byte {
	b = fmt.Appendf(b, "%d:", n)
	return b
}

// purgePlace is where Purge goes on: rows of earlier tables, and those of this one
// up to the rowid, were looked at.
type purgePlace struct {
	table int
	rowid int64
	again bool // rows were found in this pass: another one follows
}

// Purge implements engine.Mover. It looks for the rows without the write lock. A
// file does not say where a set's rows lie, so that looking from the beginning
// each time would read the table for each batch: the shard remembers where it
// was. The last answer, fewer rows than limit, comes from looking at all again.
func (m *mover) Purge(ctx context.Context, set engine.Set, limit int) (int, error) {
	if limit < 1 {
		return 0, sqlstate.New(sqlstate.InvalidParameterValue, "the limit of rows to purge is %d", limit)
	}
	c, err := m.conn(ctx)
	if err != nil {
		return 0, err
	}
	defer m.put(c)
	n := c.openSet(&set)
	what := catalog.Encode(set)
	p := &m.s.movers
	p.mu.Lock()
	at := p.places[what]
	p.mu.Unlock()
	total := 0
	for total < limit {
		if at.table >= len(set.Tables) {
			if !at.again {
				break
			}
			at = purgePlace{}
		}
		var ids []int64
		var cond, table string
		err := c.moveTx(ctx, false, func() error {
			if err := m.checkToken(c); err != nil {
				return err
			}
			t, err := c.moveTable(&set.Tables[at.table], &set.Keys)
			if err != nil {
				return err
			}
			cond, table = inSet(n, &set, t), "main."+quote.Ident(t.def.SQLName())
			ids, err = c.rowIDs(table, cond, at.rowid, limit-total)
			return err
		})
		if err != nil {
			return total, err
		}
		if len(ids) == 0 {
			at = purgePlace{table: at.table + 1, again: at.again}
			continue
		}
		deleted := 0
		if err := m.change(ctx, c, func() (err error) {
			deleted, err = c.deleteRows(table, cond, ids)
			return err
		}); err != nil {
			return total, err
		}
		total += deleted
		at.rowid, at.again = ids[len(ids)-1], true
	}
	p.mu.Lock()
	if p.places == nil || len(p.places) > 64 {
		p.places = map[string]purgePlace{}
	}
	if total < limit {
		delete(p.places, what)
	} else {
		p.places[what] = at
	}
	p.mu.Unlock()
	return total, nil
}

// rowIDs finds rows that fulfil a condition, in order, from the one after a row on.
func (c *transaction) rowIDs(table, cond string, after int64, limit int) (ids []int64, err error) {
	start := ""
	if after != 0 {
		start = fmt.Sprintf(" AND rowid > (%d)", after)
	}
	q, _, err := c.db.PrepareTransient(fmt.Sprintf("SELECT rowid FROM %s WHERE %s%s ORDER BY rowid LIMIT %d", table, cond, start, limit))
	if err != nil {
		return nil, err
	}
	defer q.Finalize()
	for {
		row, err := q.Step()
		if err != nil || !row {
			return ids, err
		}
		ids = append(ids, q.ColumnInt64(0))
	}
}

// deleteRows deletes those of the rows that still fulfil a condition, and counts them.
func (c *transaction) deleteRows(table, cond string, ids []int64) (deleted int, err error) {
	q, _, err := c.db.PrepareTransient("DELETE FROM " + table + " WHERE rowid = ? AND " + cond)
	if err != nil {
		return 0, err
	}
	defer q.Finalize()
	for _, id := range ids {
		q.BindInt64(1, id)
		if _, err := q.Step(); err != nil {
			return deleted, err
		}
		deleted += c.db.Changes()
		if err := q.Reset(); err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// Sizes implements engine.Mover: a table's rows are counted at places spread over
// its rowids.
func (m *mover) Sizes(ctx context.Context, set engine.Set) (rows, bytes int64, err error) {
	c, err := m.conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer m.put(c)
	n := c.openSet(&set)
	err = c.moveTx(ctx, false, func() error {
		rows, bytes = 0, 0
		for i := range set.Tables {
			t, err := c.moveTable(&set.Tables[i], &set.Keys)
			if err != nil {
				return err
			}
			r, b, err := c.sampleSize(t, inSet(n, &set, t))
			if err != nil {
				return err
			}
			rows, bytes = rows+r, bytes+b
		}
		return nil
	})
	return rows, bytes, err
}

func (c *database) sampleSize(t *movedTable, cond string) (rows, bytes int64, err error) {
	const (
		places  = 64
		perHead = 32 // rows read at a place
	)
	table := "main." + quote.Ident(t.def.SQLName())
	var lens []string
	for _, col := range t.columns {
		lens = append(lens, "coalesce(octet_length("+quote.Ident(col.Name)+"), 0)")
	}
	count := func(from string) (n, in, size, last int64, err error) {
		q, _, err := c.db.PrepareTransient("SELECT count(*), coalesce(sum(w), 0), coalesce(sum(CASE WHEN w THEN b END), 0), coalesce(max(rowid), 0) FROM (SELECT rowid, " +
			cond + " AS w, " + strings.Join(lens, " + ") + " AS b FROM " + table + from + ")")
		if err != nil {
			return 0, 0, 0, 0, err
		}
		defer q.Finalize()
		if _, err := q.Step(); err != nil {
			return 0, 0, 0, 0, err
		}
		return q.ColumnInt64(0), q.ColumnInt64(1), q.ColumnInt64(2), q.ColumnInt64(3), nil
	}
	least, err := c.queryInt("SELECT coalesce(min(rowid), 0) FROM " + table)
	if err != nil {
		return 0, 0, err
	}
	most, err := c.queryInt("SELECT coalesce(max(rowid), 0) FROM " + table)
	if err != nil {
		return 0, 0, err
	}
	if most-least >= 0 && most-least < 2*places*perHead {
		_, rows, bytes, _, err = count("")
		return rows, bytes, err
	}
	var seen, in, size int64
	var span float64
	for i := range places {
		from := partStart(least, most, i, places)
		n, w, b, last, err := count(fmt.Sprintf(" WHERE rowid >= (%d) ORDER BY rowid LIMIT %d", from, perHead))
		if err != nil {
			return 0, 0, err
		}
		if n == 0 {
			continue
		}
		seen, in, size = seen+n, in+w, size+b
		if n < perHead {
			last = most
		}
		span += float64(last-from) + 1
	}
	if seen == 0 {
		return 0, 0, nil
	}
	all := float64(seen) / span * (float64(most-least) + 1)
	return int64(all * float64(in) / float64(seen)), int64(all * float64(size) / float64(seen)), nil
}

// Parts implements engine.RowSource. Only those of a table with a key can be noted.
func (v *view) Parts(ctx context.Context, table int, bytes int64, there []engine.Part) (list []engine.Part, err error) {
	if table < 0 || table >= len(v.set.Tables) {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "there is no table %d", table)
	}
	err = v.with(ctx, func(c *Conn) error {
		t, err := c.moveTable(&v.set.Tables[table], &v.set.Keys)
		if err != nil {
			return err
		}
		_, size, err := c.sampleSize(t, inSet(-1, &v.set, t))
		if err != nil {
			return err
		}
		file, err := c.queryInt("PRAGMA main.schema_version")
		if err != nil {
			return err
		}
		least, most, err := c.rowids(t)
		if err != nil {
			return err
		}
		n := min(max(size/max(bytes, 1), 1), partsMost)
		span := max(uint64(most-least)/uint64(n)+1, 1)
		list, err = v.divide(t, rowRun{file, least, max(most, most+1)}, span, there)
		return err
	})
	return list, err
}

// divide returns noted parts, whose changed rows are missing, and the others.
func (v *view) divide(t *movedTable, all rowRun, span uint64, there []engine.Part) (list []engine.Part, err error) {
	var loaded []rowRun
	var again []engine.Part
	for _, p := range there {
		r, err := runOf(p.Place)
		if err != nil {
			return nil, err
		}
		if r.file != all.file || !t.unique {
			return nil, sqlstate.New(sqlstate.ObjectNotInState, "the rows of table %s may lie elsewhere than when its copy began", t.def.Name)
		}
		loaded = append(loaded, r)
		again = append(again, engine.Part{Place: p.Place, Since: string(v.Position()), Changed: p.Since})
	}
	for _, gap := range missing(all, loaded) {
		for _, r := range gap.divide(span) {
			list = append(list, engine.Part{Place: r.String(), Since: string(v.Position())})
		}
	}
	list = append(list, again...) // should it be interrupted again, more of the table is noted
	if len(there) == 0 && len(list) == 1 || !t.unique {
		for i := range list {
			list[i].Since = ""
		}
	}
	return list, nil
}

// rowids returns the least and the greatest of a table.
func (c *database) rowids(t *movedTable) (least, most int64, err error) {
	table := "main." + quote.Ident(t.def.SQLName())
	if least, err = c.queryInt("SELECT coalesce(min(rowid), 0) FROM " + table); err == nil {
		most, err = c.queryInt("SELECT coalesce(max(rowid), 0) FROM " + table)
	}
	return least, most, err
}

// rowQuery prepares a query of a table's rows, with a condition that begins with WHERE.
func (c *database) rowQuery(t *movedTable, where string) (*sqlite.Stmt, *rowReader, error) {
	names := make([]string, len(t.columns))
	for i, col := range t.columns {
		names[i] = quote.Ident(col.Name)
	}
	q, _, err := c.db.PrepareTransient("SELECT " + strings.Join(names, ", ") + " FROM main." + quote.Ident(t.def.SQLName()) + where)
	if err != nil {
		return nil, nil, err
	}
	row := &rowReader{stmt: q, columns: t.columns}
	row.classes = make([]value.Class, len(t.columns))
	for i, col := range t.columns {
		row.classes[i] = value.ClassOf(col.Type)
	}
	return q, row, nil
}

// Rows implements engine.RowSource.
func (v *view) Rows(ctx context.Context, table int, part engine.Part, pace engine.Pace, to io.Writer) error {
	if table < 0 || table >= len(v.set.Tables) {
		return sqlstate.New(sqlstate.InvalidParameterValue, "there is no table %d", table)
	}
	r := rowRun{low: math.MinInt64, high: math.MaxInt64}
	if part.Place != "" {
		var err error
		if r, err = runOf(part.Place); err != nil {
			return err
		}
	}
	w := &rowWriter{to: to, out: make([]byte, 0, rowChunk+4096), turn: turn{pace: pace}}
	var err error
	if part.Changed != "" {
		err = v.changedRows(ctx, table, r, part.Changed, func(t *movedTable, row *rowReader) error { return w.row(ctx, row, len(t.columns)) })
	} else {
		err = v.with(ctx, func(c *Conn) error {
			t, err := c.moveTable(&v.set.Tables[table], &v.set.Keys)
			if err != nil {
				return err
			}
			var failed error
			err = c.eachRow(t, inSet(-1, &v.set, t)+r.cond(), func(row *rowReader) bool {
				failed = w.row(ctx, row, len(t.columns))
				return failed == nil
			})
			return cmp.Or(failed, err)
		})
	}
	if err == nil && len(w.out) > 0 {
		_, err = to.Write(w.out)
	}
	return err
}
