package change

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// The changes of a transaction as a stream: for each table its name, its columns
// and the name of its rowid; the runs of rows that were touched; then what stands
// in them at the end. To apply it is to delete the runs and to insert the rows. So
// the order of the changes, and what stood there between, does not matter.
//
//	T table, rowid's name, number of columns, columns
//	D low, high
//	R rowid, values
//
// Strings have their length before them; a value is a letter for its storage
// class and, but for NULL, the value.

// spoolMemory is how much of a stream stays in memory, bytes; more goes to a
// temporary file beside the shard's.
const spoolMemory = 16 << 20

// ChunkSize is the size of the pieces in which a stream is kept in the file.
const ChunkSize = 1 << 20

// Spool holds a stream while the transaction that it describes is taken back.
type Spool struct {
	Dir  string
	mem  bytes.Buffer
	file *os.File
	w    *bufio.Writer
}

// Write appends to the stream.
func (s *Spool) Write(b []byte) (int, error) {
	if s.file == nil && s.mem.Len()+len(b) > spoolMemory {
		f, err := os.CreateTemp(s.Dir, ".cleave-prepare-*")
		if err != nil {
			return 0, err
		}
		os.Remove(f.Name()) // it goes away with this process, however that ends
		s.file, s.w = f, bufio.NewWriterSize(f, 256<<10)
		if _, err := s.w.Write(s.mem.Bytes()); err != nil {
			return 0, err
		}
		s.mem = bytes.Buffer{}
	}
	if s.file != nil {
		return s.w.Write(b)
	}
	return s.mem.Write(b)
}

// Reader reads the stream from its beginning.
func (s *Spool) Reader() (io.Reader, error) {
	if s.file == nil {
		return bytes.NewReader(s.mem.Bytes()), nil
	}
	if err := s.w.Flush(); err != nil {
		return nil, err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return s.file, nil
}

// Close lets go of the stream.
func (s *Spool) Close() {
	if s.file != nil {
		s.file.Close()
	}
}

// tableShape is what SQLite says of a table.
type tableShape struct {
	columns []string // that are stored, but for one that is the rowid
	rowid   string   // a name of the rowid that no column hides
}

// shapeOf reads a table's shape. Errors: 0A000 for a table whose rows cannot be
// named by a rowid.
func shapeOf(db *sqlite.Conn, table string) (tableShape, error) {
	var t tableShape
	stmt, _, err := db.PrepareTransient("SELECT name, type, pk, hidden, (SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?1) FROM pragma_table_xinfo(?1) ORDER BY cid")
	if err != nil {
		return t, err
	}
	defer stmt.Finalize()
	stmt.BindText(1, table)
	hidden := map[string]bool{}
	keys, alias := 0, ""
	for {
		row, err := stmt.Step()
		if err != nil {
			return t, err
		}
		if !row {
			break
		}
		if stmt.ColumnInt64(4) != 0 {
			return t, value.Unsupported("a prepared transaction that writes to the table \"" + table + "\", which has no rowid,")
		}
		name := stmt.ColumnText(0)
		hidden[strings.ToLower(name)] = true
		if stmt.ColumnInt64(2) > 0 {
			keys++
			if strings.EqualFold(stmt.ColumnText(1), "INTEGER") {
				alias = name
			}
		}
		if stmt.ColumnInt64(3) == 0 {
			t.columns = append(t.columns, name)
		}
	}
	if alias != "" && keys == 1 {
		t.rowid = alias
		t.columns = slices.DeleteFunc(t.columns, func(n string) bool { return n == alias })
		return t, nil
	}
	for _, name := range []string{"rowid", "_rowid_", "oid"} {
		if !hidden[name] {
			t.rowid = name
			return t, nil
		}
	}
	return t, value.Unsupported("a prepared transaction that writes to the table \"" + table + "\", whose columns are named rowid, _rowid_ and oid,")
}

// Write writes the stream of what the transaction has done so far.
func Write(w io.Writer, db *sqlite.Conn, tables map[string]*rowRuns) error {
	out := bufio.NewWriterSize(w, 64<<10)
	names := make([]string, 0, len(tables))
	for name := range tables {
		if name != "cleave_meta" && !strings.HasPrefix(name, "sqlite_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var buf []byte
	for _, name := range names {
		shape, err := shapeOf(db, name)
		if err != nil {
			return err
		}
		runs := tables[name]
		runs.order()
		buf = appendText(append(buf[:0], 'T'), name)
		buf = appendText(buf, shape.rowid)
		buf = binary.AppendUvarint(buf, uint64(len(shape.columns)))
		for _, c := range shape.columns {
			buf = appendText(buf, c)
		}
		for _, r := range runs.runs {
			buf = binary.AppendVarint(append(buf, 'D'), r.low)
			buf = binary.AppendVarint(buf, r.high)
			if len(buf) > 32<<10 {
				if _, err := out.Write(buf); err != nil {
					return err
				}
				buf = buf[:0]
			}
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
		if err := writeRows(out, db, name, shape, runs); err != nil {
			return err
		}
	}
	return out.Flush()
}

func writeRows(out *bufio.Writer, db *sqlite.Conn, name string, shape tableShape, runs *rowRuns) error {
	id := quote.Ident(shape.rowid)
	list := append([]string{id}, quoted(shape.columns)...)
	stmt, _, err := db.PrepareTransient("SELECT " + strings.Join(list, ", ") + " FROM main." + quote.Ident(name) + " WHERE " + id + " BETWEEN ?1 AND ?2 ORDER BY " + id)
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	var buf []byte
	for _, r := range runs.runs {
		stmt.BindInt64(1, r.low)
		stmt.BindInt64(2, r.high)
		for {
			row, err := stmt.Step()
			if err != nil {
				return err
			}
			if !row {
				break
			}
			buf = binary.AppendVarint(append(buf[:0], 'R'), stmt.ColumnInt64(0))
			for i := range shape.columns {
				buf = appendColumn(buf, stmt, i+1)
			}
			if _, err := out.Write(buf); err != nil {
				return err
			}
		}
		if err := stmt.Reset(); err != nil {
			return err
		}
	}
	return nil
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = quote.Ident(n)
	}
	return out
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendColumn appends a value as it is stored.
func appendColumn(b []byte, stmt *sqlite.Stmt, i int) []byte {
	switch stmt.ColumnType(i) {
	case sqlite.TypeInteger:
		return binary.AppendVarint(append(b, 'i'), stmt.ColumnInt64(i))
	case sqlite.TypeFloat:
		return binary.BigEndian.AppendUint64(append(b, 'f'), math.Float64bits(stmt.ColumnFloat(i)))
	case sqlite.TypeText:
		b = append(b, 't')
	case sqlite.TypeBlob:
		b = append(b, 'b')
	default:
		return append(b, 'n')
	}
	n := stmt.ColumnLen(i)
	b = binary.AppendUvarint(b, uint64(n))
	b = slices.Grow(b, n)[:len(b)+n]
	stmt.ColumnBytes(i, b[len(b)-n:])
	return b
}

// changeReader reads a stream of changes.
type changeReader struct {
	r   *bufio.Reader
	buf []byte
}

func (r *changeReader) text() (string, error) {
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		return "", err
	}
	if n > 2*value.Max {
		return "", fmt.Errorf("a value of %d bytes", n)
	}
	if uint64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	if _, err := io.ReadFull(r.r, r.buf[:n]); err != nil {
		return "", err
	}
	return string(r.buf[:n]), nil
}

func (r *changeReader) value() (value.Datum, error) {
	kind, err := r.r.ReadByte()
	if err != nil {
		return value.Datum{}, err
	}
	switch kind {
	case 'n':
		return value.Datum{}, nil
	case 'i':
		i, err := binary.ReadVarint(r.r)
		return value.Int(i), err
	case 'f':
		var b [8]byte
		_, err := io.ReadFull(r.r, b[:])
		return value.Datum{Kind: 'f', Float: math.Float64frombits(binary.BigEndian.Uint64(b[:]))}, err
	case 't', 'b':
		s, err := r.text()
		return value.Datum{Kind: kind, Str: s}, err
	}
	return value.Datum{}, fmt.Errorf("unknown kind of value %q", kind)
}

// Apply carries a stream out. The connection runs no triggers and checks
// no foreign keys: what they did is in the stream.
func Apply(db *sqlite.Conn, src io.Reader) error {
	a := &changeApplier{changeReader: changeReader{r: bufio.NewReaderSize(src, 64<<10)}, db: db}
	defer a.finalize()
	for {
		what, err := a.r.ReadByte()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.apply(what); err != nil {
			return err
		}
	}
}

// changeApplier carries a stream out: what it removes and inserts is of the table that came last.
type changeApplier struct {
	changeReader
	db             *sqlite.Conn
	remove, insert *sqlite.Stmt
	columns        int
}

func (a *changeApplier) finalize() {
	if a.remove != nil {
		a.remove.Finalize()
		a.insert.Finalize()
		a.remove, a.insert = nil, nil
	}
}

func (a *changeApplier) apply(what byte) error {
	switch {
	case what == 'T':
		return a.table()
	case a.remove == nil:
		return fmt.Errorf("a change without a table")
	case what == 'D':
		return a.removeRange()
	case what == 'R':
		return a.insertRow()
	}
	return fmt.Errorf("unknown change %q", what)
}

// table prepares the statements of a table.
func (a *changeApplier) table() error {
	a.finalize()
	table, err := a.text()
	if err != nil {
		return err
	}
	id, err := a.text()
	if err != nil {
		return err
	}
	n, err := binary.ReadUvarint(a.r)
	if err != nil {
		return err
	}
	a.columns = int(n)
	names, marks := []string{quote.Ident(id)}, []string{"?"}
	for range a.columns {
		name, err := a.text()
		if err != nil {
			return err
		}
		names, marks = append(names, quote.Ident(name)), append(marks, "?")
	}
	remove, _, err := a.db.PrepareTransient("DELETE FROM main." + quote.Ident(table) + " WHERE " + quote.Ident(id) + " BETWEEN ? AND ?")
	if err != nil {
		return err
	}
	insert, _, err := a.db.PrepareTransient("INSERT INTO main." + quote.Ident(table) + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ")")
	if err != nil {
		remove.Finalize()
		return err
	}
	a.remove, a.insert = remove, insert
	return nil
}

func (a *changeApplier) removeRange() error {
	low, err := binary.ReadVarint(a.r)
	if err != nil {
		return err
	}
	high, err := binary.ReadVarint(a.r)
	if err != nil {
		return err
	}
	a.remove.BindInt64(1, low)
	a.remove.BindInt64(2, high)
	return run(a.remove)
}

func (a *changeApplier) insertRow() error {
	id, err := binary.ReadVarint(a.r)
	if err != nil {
		return err
	}
	a.insert.BindInt64(1, id)
	for i := range a.columns {
		d, err := a.value()
		if err != nil {
			return err
		}
		d.Bind(a.insert, i+2)
	}
	return run(a.insert)
}

// run runs a statement that is used again.
func run(s *sqlite.Stmt) error {
	if _, err := s.Step(); err != nil {
		return err
	}
	return s.Reset()
}

// Damaged is the error of a prepared transaction that cannot be carried out.
func Damaged(gid string, err error) error {
	return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the prepared transaction \"%s\" cannot be carried out on the file", gid).
		WithHint("It is kept, and keeps its lock. The file was written without Cleave since: look at both with sqlite3 (SELECT * FROM cleave_prepared), or end it with ROLLBACK PREPARED.")
}

// SpoolDir is where the streams of a file's transactions are kept.
func SpoolDir(path string) string { return filepath.Dir(path) }
