package sqlite

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	pg "github.com/pganalyze/pg_query_go/v6"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// plan is a statement ready to run. It is valid for one generation of the
// catalogue and one version of the settings that it read.
type plan struct {
	text string
	translate.Statement
	generation int64
	settings   int
	util       func(c *Conn, p *portal) error
	kind       planKind
	empty      bool
	fetch      *pg.FetchStmt // FETCH or MOVE: its columns are the cursor's

	idle    []*sqlite.Stmt
	pins    int
	evicted bool
	key     string
	prev    *plan
	next    *plan
}

type planKind uint8

const (
	queryPlan   planKind = iota
	utilityPlan          // DDL and the like: runs inside a transaction
	controlPlan          // BEGIN, COMMIT, SET, ...: decides itself
)

// translateStatement builds the plan of one statement of a SELECT, INSERT,
// UPDATE or DELETE kind.
func (c *transaction) translateStatement(raw *pg.RawStmt, text string, oids []uint32, fixed bool) (*plan, error) {
	s, err := c.translator(text).Statement(raw, oids, fixed)
	if err != nil {
		return nil, err
	}
	return &plan{text: text, Statement: *s, generation: c.names.Catalog.Generation, settings: c.settings.version}, nil
}

func (c *definitions) translator(text string) *translate.Translator {
	return translate.New(&c.names, c.env.Loc, text)
}

func itoa(i int64) string { return strconv.FormatInt(i, 10) }

// planCache keeps plans by text and parameter types, the least used leave first.
type planCache struct {
	m    map[string]*plan
	head *plan // most recently used
	tail *plan
}

func (k *planCache) get(key string) *plan {
	p := k.m[key]
	if p != nil && p != k.head {
		k.unlink(p)
		k.push(p)
	}
	return p
}

func (k *planCache) push(p *plan) {
	p.prev, p.next = nil, k.head
	if k.head != nil {
		k.head.prev = p
	}
	k.head = p
	if k.tail == nil {
		k.tail = p
	}
}

func (k *planCache) unlink(p *plan) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		k.head = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		k.tail = p.prev
	}
	p.prev, p.next = nil, nil
}

func (k *planCache) put(key string, p *plan) {
	if k.m == nil {
		k.m = map[string]*plan{}
	}
	k.remove(key)
	p.key = key
	k.m[key] = p
	k.push(p)
	if len(k.m) > planMax {
		k.remove(k.tail.key)
	}
}

func (k *planCache) remove(key string) {
	if p := k.m[key]; p != nil {
		k.unlink(p)
		delete(k.m, key)
		p.evicted = true
		if p.pins == 0 {
			p.finalize()
		}
	}
}

func (k *planCache) clear() {
	for _, p := range k.m {
		p.finalize()
	}
	*k = planCache{}
}

func (p *plan) finalize() {
	for _, s := range p.idle {
		s.Finalize()
	}
	p.idle = nil
}

func (p *plan) unpin() {
	if p.pins--; p.pins == 0 && p.evicted {
		p.finalize()
	}
}

// stmtOf takes a SQLite statement for the plan.
func (c *database) stmtOf(p *plan) (*sqlite.Stmt, error) {
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return s, nil
	}
	s, _, err := c.db.PrepareTransient(p.SQL)
	return s, err
}

// end gives the portal's SQLite statement back.
func (p *portal) end() {
	if p.stmt == nil {
		return
	}
	s := p.stmt
	p.stmt = nil
	p.row = false
	s.Reset()
	if len(p.plan.idle) < stmtsPerPlan && (!p.plan.evicted || p.plan.pins > 0) {
		p.plan.idle = append(p.plan.idle, s)
	} else {
		s.Finalize()
	}
}

// closePortals closes the portals of the transaction, which ends. Cursors WITH
// HOLD that an earlier one left stay.
func (c *session) closePortals() {
	c.portals.Ended(func(p *portal) bool { return p.cursor != nil && p.cursor.kept })
}

// run prepares and starts the portal's statement: parameters bound, the
// transaction open, no row stepped yet.
func (c *Conn) run(p *portal) error {
	c.verb, _, _ = strings.Cut(p.plan.Tag, " ")
	if p.plan.Locks {
		c.verb = "SELECT FOR UPDATE"
	}
	if err := c.begin(p.plan.Write || p.plan.Locks); err != nil {
		return err
	}
	if err := c.refresh(p); err != nil {
		return err
	}
	for _, s := range p.plan.Systems {
		if err := c.fillSystem(s); err != nil {
			return err
		}
	}
	stmt, err := c.stmtOf(p.plan)
	if err != nil {
		return err
	}
	p.stmt = stmt
	for i := range p.args {
		if i < stmt.BindParamCount() {
			p.args[i].Bind(stmt, i+1)
		}
	}
	p.started = true
	if p.plan.OnceEach {
		p.seen = map[int64]bool{}
		if err := c.cachedExec("SAVEPOINT cleave_once"); err != nil {
			return err
		}
	}
	return nil
}

// refresh translates the plan again if the catalogue or the settings changed
// since.
func (c *Conn) refresh(p *portal) error {
	if p.plan.generation == c.names.Catalog.Generation && p.plan.settings == c.settings.version {
		return nil
	}
	if p.source == nil {
		// A simple statement was translated in this transaction.
		if p.plan.generation == c.names.Catalog.Generation {
			return nil
		}
		n, err := c.planFor(p.plan.text, p.plan.Params, false)
		if err != nil {
			return err
		}
		p.plan = n
		return nil
	}
	n, err := c.planFor(p.source.text, p.source.oids, false)
	if err != nil {
		return err
	}
	if !sameColumns(n.Columns, p.plan.Columns) {
		return sqlstate.ChangedResult()
	}
	if len(n.Params) != len(p.plan.Params) {
		return sqlstate.New(sqlstate.FeatureNotSupported, "cached plan must not change parameter types")
	}
	for i := range n.Params {
		if n.Params[i] != p.plan.Params[i] {
			return sqlstate.New(sqlstate.FeatureNotSupported, "cached plan must not change parameter types")
		}
	}
	n.pins++
	if p.source.plan != nil {
		p.source.plan.unpin()
	}
	p.source.plan, p.plan = n, n
	return nil
}

func sameColumns(a, b []translate.Column) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Type != b[i].Type || a[i].Mod != b[i].Mod {
			return false
		}
	}
	return true
}

// startExecute makes a portal the active one, for at most max rows.
func (c *Conn) startExecute(p *portal, max int32, simple bool) error {
	if p.done {
		c.active, c.activeN, c.simple = nil, 0, simple
		if p.plan.Returns {
			c.out = wire.AppendCommandComplete(c.out, p.commandTag(0))
			return nil
		}
		return sqlstate.New(sqlstate.ObjectNotInState, "portal \"%s\" cannot be run", p.name)
	}
	if c.tx.block == txFailed && !p.plan.exitsFailed() {
		return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	if !p.started {
		if p.plan.kind != queryPlan {
			if err := c.runUtility(p); err != nil {
				return err
			}
		} else if err := c.run(p); err != nil {
			return err
		}
	}
	p.count = 0
	c.active, c.activeN, c.simple = p, max, simple
	c.startTimer()
	return nil
}

func (p *portal) commandTag(n int64) string {
	if p.tag != "" {
		return p.tag
	}
	if p.plan.kind != queryPlan && !p.plan.Returns {
		return p.plan.Tag
	}
	return p.plan.Tag + " " + strconv.FormatInt(n, 10)
}

// stepActive steps the active portal until its end, its row limit, or until a
// chunk of output is ready.
func (c *Conn) stepActive() {
	p := c.active
	err := fault.Guard(func() error { return c.stepRows(p) })
	if err != nil {
		c.stopTimer()
		c.statementFailed(p, err)
	}
}

func (c *Conn) statementFailed(p *portal, err error) {
	if c.env.Err != nil {
		err, c.env.Err = c.env.Err, nil
	}
	err = c.explained(p, err)
	c.fail(err)
	if c.simple {
		c.script = nil
		c.ready()
	} else {
		c.skipping = true
	}
}

func (c *Conn) stepRows(p *portal) error {
	if p.copyIn != nil {
		c.awaitCopy(p)
		return nil
	}
	if p.copy != nil && !p.copy.said {
		c.out = p.copy.begin(c.out, p.plan.Columns)
	}
	if p.plan.kind != queryPlan || p.held {
		return c.stepComputed(p)
	}
	for {
		if !p.row {
			row, err := p.stmt.Step()
			if err != nil {
				return err
			}
			if !row {
				return c.finish(p, true)
			}
			p.row = true
		}
		if p.copy == nil && p.reached(c.activeN) {
			return c.suspend()
		}
		if err := p.onceEach(); err != nil {
			return err
		}
		if p.plan.Returns {
			var err error
			if c.out, err = p.appendNext(c.out, &c.definitions); err != nil {
				return err
			}
		}
		p.row = false
		p.count++
		if len(c.out) >= outputChunk {
			return nil
		}
	}
}

// appendNext appends SQLite's row in the form that the client wants.
func (p *portal) appendNext(dst []byte, c *definitions) ([]byte, error) {
	if p.copy != nil {
		return p.appendCopyRow(dst, c)
	}
	return p.appendRow(dst, c)
}

// stepComputed sends the rows of a portal that has them, or a function that gives one after the other.
func (c *Conn) stepComputed(p *portal) (err error) {
	for {
		if p.pull != nil && p.rowPos >= len(p.rows) {
			row, ok, err := p.pull()
			if err != nil {
				return err
			}
			if p.rows, p.rowPos = p.rows[:0], 0; ok {
				p.rows = append(p.rows, row)
			}
		}
		if p.rowPos >= len(p.rows) {
			return c.finish(p, false)
		}
		if p.reached(c.activeN) {
			return c.suspend()
		}
		if c.out, err = p.appendStaticRow(c.out, &c.definitions, p.rows[p.rowPos]); err != nil {
			return err
		}
		p.rows[p.rowPos] = nil
		p.rowPos++
		p.count++
		if len(c.out) >= outputChunk {
			return nil
		}
	}
}

// reached reports whether a limit of rows is reached, if there is one.
func (p *portal) reached(limit int32) bool { return limit > 0 && p.count >= int64(limit) }

// onceEach fails if ON CONFLICT DO UPDATE writes a row a second time.
func (p *portal) onceEach() error {
	if p.seen == nil {
		return nil
	}
	id := p.stmt.ColumnInt64(len(p.plan.Columns))
	if p.seen[id] {
		return sqlstate.New("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time").
			WithHint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values.")
	}
	p.seen[id] = true
	return nil
}

func (c *Conn) suspend() error {
	c.stopTimer()
	c.out = wire.AppendEmpty(c.out, wire.PortalSuspended)
	c.active = nil
	return nil
}

// finish completes the active portal.
func (c *Conn) finish(p *portal, sqlStmt bool) error {
	c.stopTimer()
	n := p.count
	if sqlStmt && p.plan.Write && p.plan.Table != nil {
		n = int64(c.db.Changes())
	}
	if c.env.Err != nil {
		c.env.Err = nil
	}
	p.done = true
	p.end()
	if p.seen != nil {
		if err := c.cachedExec("RELEASE cleave_once"); err != nil {
			return err
		}
	}
	c.noteKeys(p, n)
	if err := c.endOfStatement(); err != nil {
		return err
	}
	c.active = nil
	c.endStatement()
	if p.copy != nil {
		c.out = p.copy.end(c.out)
		p.tag = "COPY " + strconv.FormatInt(p.count, 10)
	}
	if p.plan.empty {
		c.out = wire.AppendEmpty(c.out, wire.EmptyQueryResponse)
	} else {
		c.out = wire.AppendCommandComplete(c.out, p.commandTag(n))
	}
	return nil
}

func (c *transaction) startTimer() {
	d := c.settings.duration("statement_timeout")
	if d <= 0 || c.tx.block == txFailed {
		return
	}
	c.settings.timer = time.AfterFunc(d, func() {
		c.fire(sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to statement timeout"))
	})
}

func (c *transaction) stopTimer() {
	if c.settings.timer != nil {
		c.settings.timer.Stop()
		c.settings.timer = nil
	}
}

// appendRow appends a DataRow from SQLite's row.
func (p *portal) appendRow(dst []byte, c *definitions) ([]byte, error) {
	dst, mark := wire.Begin(dst, wire.DataRow)
	dst = wire.AppendInt16(dst, int16(len(p.plan.Columns)))
	for i := range p.plan.Columns {
		col := &p.plan.Columns[i]
		ty := p.stmt.ColumnType(i)
		if ty == sqlite.TypeNull {
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		binaryFormat := wire.FormatAt(p.formats, i) == 1
		var err error
		switch {
		case ty == sqlite.TypeInteger && col.Class == value.ClassInt && !binaryFormat && (col.Type == pgoid.Int8 || col.Type == pgoid.Int4 || col.Type == pgoid.Int2):
			dst = strconv.AppendInt(dst, p.stmt.ColumnInt64(i), 10)
		case ty == sqlite.TypeText && sentAsStored(col, binaryFormat):
			n := p.stmt.ColumnLen(i)
			if n > value.Max {
				return dst, value.TooBig()
			}
			dst = grow(dst, n)
			p.stmt.ColumnBytes(i, dst[at+4:])
		default:
			var d value.Datum
			d, _, err = value.OfColumn(p.stmt, i, col.Class, nil)
			if err == nil {
				dst, err = c.appendValue(dst, col.Type, d, binaryFormat)
			}
		}
		if err != nil {
			return dst[:mark-1], err
		}
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return wire.End(dst, mark), nil
}

// sentAsStored reports whether a stored text is the value that is sent.
func sentAsStored(col *translate.Column, binaryFormat bool) bool {
	switch col.Class {
	case value.ClassText, value.ClassBpchar, value.ClassVoid:
		return true
	case value.ClassInt, value.ClassFloat, value.ClassBlob, value.ClassInterval:
		return false
	case value.ClassJSON:
		if col.Type == pgoid.JSON {
			return true
		}
	}
	return !binaryFormat && !translate.IsReg(col.Type)
}

func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) < n {
		bigger := make([]byte, len(dst), 2*cap(dst)+n)
		copy(bigger, dst)
		dst = bigger
	}
	return dst[:len(dst)+n]
}

func (c *definitions) appendValue(dst []byte, typ uint32, d value.Datum, binaryFormat bool) ([]byte, error) {
	if binaryFormat {
		return value.AppendBinary(dst, typ, d, c.env.Loc)
	}
	if translate.IsReg(typ) {
		return append(dst, c.names.RegOut(typ, d.Int)...), nil
	}
	return value.Append(dst, typ, d, c.env.Loc)
}

func (p *portal) appendStaticRow(dst []byte, c *definitions, row []value.Datum) ([]byte, error) {
	dst, mark := wire.Begin(dst, wire.DataRow)
	dst = wire.AppendInt16(dst, int16(len(row)))
	for i, d := range row {
		if d.Kind == 0 {
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		var err error
		if dst, err = c.appendValue(dst, p.plan.Columns[i].Type, d, wire.FormatAt(p.formats, i) == 1); err != nil {
			return dst[:mark-1], err
		}
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return wire.End(dst, mark), nil
}

// appendRowDescription describes a plan's columns, with the formats of a Bind.
func appendRowDescription(dst []byte, cols []translate.Column, formats []int16) []byte {
	dst, mark := wire.Begin(dst, wire.RowDescription)
	dst = wire.AppendInt16(dst, int16(len(cols)))
	for i, col := range cols {
		dst = wire.AppendString(dst, col.Name)
		dst = wire.AppendInt32(dst, int32(col.Table))
		dst = wire.AppendInt16(dst, col.Attnum)
		dst = wire.AppendInt32(dst, int32(col.Type))
		size := int16(-1)
		if t := value.Builtin.Type(col.Type); t != nil {
			size = t.Size
		}
		dst = wire.AppendInt16(dst, size)
		dst = wire.AppendInt32(dst, col.Mod)
		dst = wire.AppendInt16(dst, wire.FormatAt(formats, i))
	}
	return wire.End(dst, mark)
}
