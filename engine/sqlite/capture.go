package sqlite

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/function"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// Captures: docs/design/sqlite-move.md. While a set of rows is captured, triggers
// on its tables write each change into cleave_log, in the transaction that makes
// it. SQLite has one writer at a time, so that the order of seq is that of commits.

// moveSchema is what moves need in a file. Rows of cleave_log are read by seq, from
// a position on; cleave_move has a row for each id that has something here, and cleave_loaded
// one for each table whose rows were loaded under an id, cleave_loaded_part for each part of others.
const moveSchema = `CREATE TABLE IF NOT EXISTS cleave_log (seq INTEGER PRIMARY KEY AUTOINCREMENT, capture INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS cleave_move (n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, born TEXT NOT NULL, applied TEXT, owner TEXT, forgotten INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS cleave_loaded (id TEXT NOT NULL, table_schema TEXT NOT NULL, table_name TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY (id, table_schema, table_name));
CREATE TABLE IF NOT EXISTS cleave_loaded_part (id TEXT NOT NULL, table_schema TEXT NOT NULL, table_name TEXT NOT NULL, place TEXT NOT NULL, since TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
	PRIMARY KEY (id, table_schema, table_name, place))`

// changeSchema is the mark of a changed definition in the log, beside engine.ChangeOp.
const changeSchema = 'X'

// columnsMax is the most columns that a moved table may have: the triggers give
// them all, with the old identity and key, to one function.
const columnsMax = lib.SQLITE_MAX_FUNCTION_ARG/3 - 3

// setOf finds a set by its number: a capture's, or one of the conversation's own,
// which are below zero.
func setOf(c *Conn, n int64) (*catalog.Capture, *catalog.RowSet, error) {
	if n < 0 {
		if i := int(-n - 1); i < len(c.sets) {
			return nil, c.sets[i], nil
		}
	} else if c.names.Catalog != nil {
		if d := c.names.Catalog.Captures[uint32(n)]; d != nil {
			return d, d.Rows, nil
		}
	}
	return nil, nil, sqlstate.New(sqlstate.DataCorrupted, "a trigger of capture %d is left in the file, which has no such capture", n).
		WithHint("Restore the file from a backup, or drop the triggers whose names begin with cleave_capture_%d_.", n)
}

// moveFunctions are what the triggers and statements of moves call.
func moveFunctions(c *Conn) []function.Def {
	return []function.Def{
		// cleave_member(set, key columns...): whether the row is in the set. Several keys
		// may be given: whether one of them is.
		function.Volatile("cleave_member", -1, func(v *function.Env, a []function.Arg) (value.Datum, error) {
			_, s, err := setOf(c, a[0].Int64())
			if err != nil {
				return value.Datum{}, err
			}
			for a = a[1:]; len(a) >= len(s.Types) && len(a) > 0; a = a[len(s.Types):] {
				if s.Has(a) {
					return value.Int(1), nil
				}
			}
			return value.Int(0), nil
		}),
		// cleave_pack(values...): the values as one, without loss.
		function.Lax("cleave_pack", -1, func(v *function.Env, a []function.Arg) (value.Datum, error) {
			b := c.scratch[:0]
			for i := range a {
				b = appendPacked(b, a[i])
			}
			c.scratch = b
			return value.Blob(string(b)), nil
		}),
		// cleave_log_row(capture, table, op, old key..., old identity..., new row...):
		// what the log has of a change. Deletes have no new row, inserts nothing old.
		function.Volatile("cleave_log_row", -1, func(v *function.Env, a []function.Arg) (value.Datum, error) {
			d, s, err := setOf(c, a[0].Int64())
			if err != nil {
				return value.Datum{}, err
			}
			n := int(a[1].Int64())
			t := &d.Tables[n]
			op := engine.ChangeOp(a[2].Int64())
			a = a[3:]
			var old, row []function.Arg
			switch op {
			case engine.ChangeInsert:
				row = a
			case engine.ChangeDelete:
				old = a
			default:
				key := a[:len(t.Key)]
				old, row = a[len(t.Key):len(t.Key)+len(t.Identity)], a[len(t.Key)+len(t.Identity):]
				fresh := make([]function.Arg, len(t.Key))
				for i, k := range t.Key {
					fresh[i] = row[k]
				}
				if !s.Has(key) {
					op, old = engine.ChangeInsert, nil
				} else if !s.Has(fresh) {
					op, row = engine.ChangeDelete, nil
				}
			}
			b := c.appendLogHead(c.scratch[:0], d.OID, op, n)
			for i := range old {
				b = appendPacked(b, old[i])
			}
			for i := range row {
				b = appendPacked(b, row[i])
			}
			c.scratch = b
			return value.Blob(string(b)), nil
		}),
	}
}

// appendLogHead appends the head of a row of the log: what it is, whether it is the
// first of its transaction, and the table.
func (c *transaction) appendLogHead(b []byte, capture uint32, op engine.ChangeOp, table int) []byte {
	first := byte(1)
	for _, n := range c.tx.captured {
		if n == capture {
			first = 0
		}
	}
	if first == 1 {
		c.tx.captured = append(c.tx.captured, capture)
	}
	return binary.AppendUvarint(append(b, byte(op), first), uint64(table))
}

// Packed values: a byte for the storage class, then the value.
const (
	packedNull = iota
	packedInt
	packedFloat
	packedText
	packedBlob
)

func appendPacked(b []byte, a function.Arg) []byte {
	switch a.Type() {
	case sqlite.TypeInteger:
		return binary.AppendVarint(append(b, packedInt), a.Int64())
	case sqlite.TypeFloat:
		return binary.BigEndian.AppendUint64(append(b, packedFloat), math.Float64bits(a.Float()))
	case sqlite.TypeText:
		return appendPackedBytes(append(b, packedText), a.View())
	case sqlite.TypeBlob:
		return appendPackedBytes(append(b, packedBlob), a.View())
	}
	return append(b, packedNull)
}

func appendPackedBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// packDatum packs a value as cleave_pack does.
func packDatum(b []byte, d value.Datum) []byte {
	switch d.Kind {
	case 'i':
		return binary.AppendVarint(append(b, packedInt), d.Int)
	case 'f':
		return binary.BigEndian.AppendUint64(append(b, packedFloat), math.Float64bits(d.Float))
	case 't':
		return append(binary.AppendUvarint(append(b, packedText), uint64(len(d.Str))), d.Str...)
	case 'b':
		return append(binary.AppendUvarint(append(b, packedBlob), uint64(len(d.Str))), d.Str...)
	}
	return append(b, packedNull)
}

func badLog() error {
	return sqlstate.New(sqlstate.DataCorrupted, "a row of the log of changes cannot be read").
		WithHint("Cancel the move, check the file with: sqlite3 FILE 'PRAGMA integrity_check', then move again.")
}

// unpackDatum reads one value.
func unpackDatum(b []byte) (value.Datum, []byte, error) {
	if len(b) == 0 {
		return value.Datum{}, nil, badLog()
	}
	class := b[0]
	b = b[1:]
	switch class {
	case packedNull:
		return value.Datum{}, b, nil
	case packedInt:
		if v, n := binary.Varint(b); n > 0 {
			return value.Int(v), b[n:], nil
		}
	case packedFloat:
		if len(b) >= 8 {
			return value.Datum{Kind: 'f', Float: math.Float64frombits(binary.BigEndian.Uint64(b))}, b[8:], nil
		}
	case packedText, packedBlob:
		if v, n := binary.Uvarint(b); n > 0 && uint64(len(b)-n) >= v {
			s := string(b[n : n+int(v)])
			if class == packedText {
				return value.Text(s), b[n+int(v):], nil
			}
			return value.Blob(s), b[n+int(v):], nil
		}
	}
	return value.Datum{}, nil, badLog()
}

// captureOps are the triggers of a capture on a table.
var captureOps = []string{"insert", "update", "delete"}

func captureTrigger(capture, table uint32, op string) string {
	return fmt.Sprintf("cleave_capture_%d_%d_%s", capture, table, op)
}

// makeCapture makes the triggers of a capture, in the current transaction.
func (c *definitions) makeCapture(id string, set engine.Set) (*catalog.Capture, error) {
	if set.Except {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "a set with Except cannot be captured")
	}
	oid, err := c.newOID()
	if err != nil {
		return nil, err
	}
	d := &catalog.Capture{OID: oid, ID: id, Set: set}
	for i := range set.Tables {
		t, err := c.moveTable(&set.Tables[i], &set.Keys)
		if err != nil {
			return nil, err
		}
		x := catalog.CapturedTable{OID: t.def.OID, Key: t.key, Identity: t.identity}
		for _, col := range t.columns {
			x.Types = append(x.Types, col.Type)
		}
		d.Tables = append(d.Tables, x)
		if err := c.makeCaptureTriggers(d, i, t); err != nil {
			return nil, err
		}
	}
	if d.Begin, err = c.logEnd(); err != nil {
		return nil, err
	}
	return d, c.saveObject(oid, "capture", d)
}

func (c *database) makeCaptureTriggers(d *catalog.Capture, n int, t *movedTable) error {
	list := func(row string, places []int) string {
		s := ""
		for _, i := range places {
			s += ", " + row + "." + quote.Ident(t.columns[i].Name)
		}
		return s
	}
	all := make([]int, len(t.columns))
	for i := range all {
		all[i] = i
	}
	oldKey, newKey := list("OLD", t.key), list("NEW", t.key)
	for op, x := range map[string]struct {
		op         engine.ChangeOp
		keys, args string
	}{
		"insert": {engine.ChangeInsert, newKey, list("NEW", all)},
		"update": {engine.ChangeUpdate, oldKey + newKey, oldKey + list("OLD", t.identity) + list("NEW", all)},
		"delete": {engine.ChangeDelete, oldKey, list("OLD", t.identity)},
	} {
		err := c.exec(fmt.Sprintf("CREATE TRIGGER main.%s AFTER %s ON %s WHEN cleave_member(%d%s) BEGIN INSERT INTO cleave_log (capture, body) VALUES (%d, cleave_log_row(%d, %d, %d%s)); END",
			quote.Ident(captureTrigger(d.OID, t.def.OID, op)), strings.ToUpper(op), quote.Ident(t.def.SQLName()), d.OID, x.keys, d.OID, d.OID, n, x.op, x.args))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *database) dropCaptureTriggers(capture, table uint32) error {
	for _, op := range captureOps {
		if err := c.exec("DROP TRIGGER IF EXISTS main." + quote.Ident(captureTrigger(capture, table, op))); err != nil {
			return err
		}
	}
	return nil
}

// logMark writes a row without values into the log of each capture that has the
// table, and calls each for it.
func (c *transaction) logMark(d *catalog.Table, op engine.ChangeOp, each func(capture uint32) error) error {
	for _, k := range c.names.Catalog.Captures {
		for i := range k.Tables {
			if k.Released || k.Tables[i].OID != d.OID {
				continue
			}
			body := c.appendLogHead(nil, k.OID, op, i)
			if err := c.exec(fmt.Sprintf("INSERT INTO cleave_log (capture, body) VALUES (%d, %s)", k.OID, value.Blob(string(body)).Literal())); err != nil {
				return err
			}
			if err := each(k.OID); err != nil {
				return err
			}
		}
	}
	return nil
}

// endCaptures is called before a table's columns or name change, or it goes: its
// rows could not be told any more to who applies them.
func (c *transaction) endCaptures(d *catalog.Table) {
	must(c.logMark(d, changeSchema, func(capture uint32) error { return c.dropCaptureTriggers(capture, d.OID) }))
}

// captureTruncate notes that all rows of tables go. fn deletes them, while the
// triggers are away that would note each, and what foreign keys do among them.
func (c *transaction) captureTruncate(list []*catalog.Table, fn func()) {
	var away []string
	for _, d := range list {
		must(c.logMark(d, engine.ChangeTruncate, func(capture uint32) error {
			for _, op := range captureOps {
				sql, err := text1(c.db, "SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND name = "+quote.Text(captureTrigger(capture, d.OID, op)))
				if err != nil {
					return err
				}
				away = append(away, sql)
			}
			return c.dropCaptureTriggers(capture, d.OID)
		}))
	}
	fn()
	for _, sql := range away {
		if sql != "" {
			must(c.exec(sql))
		}
	}
}

// logEnd is the position of now: the seq of the last change, whether or not it is
// still there.
func (c *database) logEnd() (int64, error) {
	return c.queryInt("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'cleave_log'), 0)")
}

// movedTable is a table of a set as the file has it.
type movedTable struct {
	def      *catalog.Table
	columns  []*catalog.Column
	key      []int // shard key, as places in columns
	identity []int // likewise
	// unique: the identity's columns are unique here.
	unique bool
}

// moveTable finds a table of a set. What is not as the set says is 55000. keys may
// be nil, if nobody asks for the shard key.
func (c *definitions) moveTable(t *engine.MoveTable, keys *keyspace.Ownership) (*movedTable, error) {
	d := c.names.Catalog.Table(t.Schema, t.Name)
	if d == nil {
		return nil, sqlstate.New(sqlstate.UndefinedTable, "relation \"%s.%s\" does not exist", t.Schema, t.Name)
	}
	differs := func(format string, a ...any) error { return notAsMoved(d, format, a...) }
	m := &movedTable{def: d}
	place := map[string]int{}
	live := d.Live()
	if len(t.Columns) > columnsMax {
		return nil, sqlstate.Refusal("CLV-2015", "a SQLite shard cannot move table %s: it has more than %d columns", d.Name, columnsMax).
			WithHint("Move it between PostgreSQL shards only.")
	}
	for i, name := range t.Columns {
		col := d.Column(name)
		if col == nil {
			return nil, differs("column %s is missing", name)
		}
		if i < len(t.Types) && value.FormatType(col.Type, col.Mod) != t.Types[i] {
			return nil, differs("column %s is %s, not %s", name, value.FormatType(col.Type, col.Mod), t.Types[i])
		}
		place[name] = len(m.columns)
		m.columns = append(m.columns, col)
	}
	if len(live) != len(t.Columns) {
		return nil, differs("it has %d columns, not %d", len(live), len(t.Columns))
	}
	if err := m.findKey(t.ShardKey, place, keys); err != nil {
		return nil, err
	}
	for _, name := range t.Identity {
		p, ok := place[name]
		if !ok {
			return nil, differs("column %s is missing", name)
		}
		m.identity = append(m.identity, p)
	}
	if len(m.identity) == 0 {
		return nil, differs("the move knows no columns by which its rows are found")
	}
	m.unique = d.UniqueOn(t.Identity)
	return m, nil
}

// findKey finds the columns of the shard key, which have the keyspace's types. place has the place of each column.
func (m *movedTable) findKey(names []string, place map[string]int, keys *keyspace.Ownership) error {
	for i, name := range names {
		p, ok := place[name]
		if !ok {
			return notAsMoved(m.def, "shard key column %s is missing", name)
		}
		if keys != nil && i < len(keys.Types) && keys.Types[i].OID() != m.columns[p].Type {
			return notAsMoved(m.def, "shard key column %s is %s, keyspace %s has %s", name, value.TypeName(m.columns[p].Type), keys.Keyspace, keys.Types[i])
		}
		m.key = append(m.key, p)
	}
	if keys != nil && len(m.key) != len(keys.Types) {
		return notAsMoved(m.def, "its shard key has %d columns, keyspace %s has %d", len(m.key), keys.Keyspace, len(keys.Types))
	}
	return nil
}

// notAsMoved is the error of a table that is not as the move's set says.
func notAsMoved(d *catalog.Table, format string, a ...any) error {
	e := sqlstate.New(sqlstate.ObjectNotInState, "table %s is not as the move knows it: %s", d.Name, fmt.Sprintf(format, a...)).
		WithHint("Look at it on both shards: cleave doctor. Make them equal, then move again.")
	e.Schema, e.Table = d.Schema, d.Name
	return e
}

// A part of a table is a run of its rowids: docs/design/sqlite-move.md, "Parts".

// partsMost bounds the parts of a table: each that is loaded again reads the log.
const partsMost = 64

// rowRun is what engine.Part.Place says: rowids from low to high, which is not one of them. The least and the
// greatest number are no bounds. file is the file's schema version: VACUUM gives rows other
// rowids, and makes another one.
type rowRun struct{ file, low, high int64 }

func (r rowRun) String() string { return fmt.Sprintf("%d:%d:%d", r.file, r.low, r.high) }

func runOf(place string) (r rowRun, err error) {
	if n, err := fmt.Sscanf(place, "%d:%d:%d", &r.file, &r.low, &r.high); n < 3 || err != nil {
		return r, sqlstate.New(sqlstate.InvalidParameterValue, "%q is no part of a table", place)
	}
	return r, nil
}

// cond is the condition for the rows of a part, to be added to others.
func (r rowRun) cond() (cond string) {
	if r.low != math.MinInt64 {
		cond = fmt.Sprintf(" AND rowid >= (%d)", r.low)
	}
	if r.high != math.MaxInt64 {
		cond += fmt.Sprintf(" AND rowid < (%d)", r.high)
	}
	return cond
}

// divide cuts a run into pieces of a span.
func (r rowRun) divide(span uint64) (out []rowRun) {
	for from := r.low; ; {
		if uint64(r.high-from) <= span {
			return append(out, rowRun{r.file, from, r.high})
		}
		out = append(out, rowRun{r.file, from, from + int64(span)})
		from += int64(span)
	}
}

// missing are the runs of the table's rows between others, before and after them: rows may have been added there.
func missing(table rowRun, there []rowRun) (out []rowRun) {
	slices.SortFunc(there, func(a, b rowRun) int { return cmp.Compare(a.low, b.low) })
	at := table.low
	for _, r := range append(there, rowRun{table.file, table.high, table.high}) {
		if high := min(r.low, table.high); high > at {
			out = append(out, rowRun{table.file, at, high})
		}
		at = max(at, r.high)
	}
	return out
}
