package sqlite

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/copytext"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// copyRecordMax bounds one row of COPY, as PostgreSQL does.
const copyRecordMax = 1 << 30

// copyIn is COPY ... FROM STDIN: each row is bound to an INSERT that was
// translated once. Data is run when it is sent, so that it does not pile up.
type copyIn struct {
	p      *portal // of the COPY
	f      *copytext.Format
	d      *catalog.Table
	cols   []*catalog.Column
	row    *portal // of the INSERT
	simple bool
	err    error // told as soon as somebody listens

	lines   copytext.LineSplitter
	rest    []byte
	begun   bool // past the header
	ended   bool // past the mark of the end
	line    int64
	rows    int64
	fields  []copyCell
	buf     []byte
	notNull []bool
	isNull  []bool
}

// copyCell is a value of a row as it was written.
type copyCell struct {
	text []byte
	null bool
}

func (c *Conn) startCopyIn(s *pg.CopyStmt, f *copytext.Format, p *portal, text string) error {
	if s.WhereClause != nil {
		return value.Unsupported("COPY FROM with WHERE")
	}
	d := copyTable(c.translator(text), s.Relation, true)
	if d.Viewed != nil {
		return sqlstate.New(sqlstate.WrongObjectType, "cannot copy to view \"%s\"", d.Name)
	}
	switch fresh, known := c.tx.fresh[[2]string{d.Schema, d.Name}]; {
	case !f.Freeze || fresh && c.tx.saves.Len() == 0: // rows are never older than their transaction here: there is nothing to freeze
	case known || c.tx.saves.Len() > 0:
		return value.Unsupported("COPY with FREEZE after a savepoint")
	default:
		return sqlstate.New(sqlstate.ObjectNotInState, "cannot perform COPY FREEZE because the table was not created or truncated in the current subtransaction")
	}
	cols, err := copyColumns(d, s.Attlist, f)
	if err != nil {
		return err
	}
	if len(cols) == 0 {
		return value.Unsupported("COPY FROM into a table without columns")
	}
	plan, err := c.planCopyRow(d, cols)
	if err != nil {
		return err
	}
	in := &copyIn{p: p, f: f, d: d, cols: cols, row: &portal{plan: plan, args: make([]value.Datum, len(cols))}, lines: copytext.LineSplitter{CSV: f.CSV, Quote: f.Quote, Escape: f.Escape}}
	for _, col := range cols {
		in.notNull, in.isNull = append(in.notNull, copytext.Covers(f.ForceNotNull, col.Name)), append(in.isNull, copytext.Covers(f.ForceNull, col.Name))
	}
	if in.row.stmt, err = c.stmtOf(plan); err != nil {
		return err
	}
	p.copyIn = in
	return nil
}

// planCopyRow plans the INSERT of one row of COPY.
func (c *Conn) planCopyRow(d *catalog.Table, cols []*catalog.Column) (*plan, error) {
	names, marks, oids := make([]string, len(cols)), make([]string, len(cols)), make([]uint32, len(cols))
	for i, col := range cols {
		names[i], marks[i], oids[i] = quote.Ident(col.Name), "$"+itoa(int64(i+1)), col.Type
	}
	insert := "INSERT INTO " + quote.Ident(d.Schema) + "." + quote.Ident(d.Name) + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ")"
	tree, err := syntax.Tree(insert)
	if err != nil {
		return nil, err
	}
	plan, err := c.translateStatement(tree.Stmts[0], insert, oids, false)
	if err != nil {
		return nil, err
	}
	plan.evicted = true
	for _, sys := range plan.Systems {
		if err := c.fillSystem(sys); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// awaitCopy asks the client for the data.
func (c *Conn) awaitCopy(p *portal) {
	in := p.copyIn
	c.out = appendCopyResponse(c.out, wire.CopyInResponse, len(in.cols), in.f.Binary)
	in.simple = c.simple
	c.active, c.copying = nil, in
}

// copyFrame handles a frame while data is awaited.
func (c *Conn) copyFrame(f wire.Frame) {
	in := c.copying
	var err error
	switch f.Type() {
	case wire.CopyDataF:
		c.takeCopy(f.Body())
		err = in.err
	case wire.Sync, wire.Flush:
		return // ignored in this state, as PostgreSQL does
	case wire.CopyDoneF:
		if err = fault.Guard(func() error { return in.run(c, true) }); err == nil {
			in.row.end()
			c.copying, c.active, c.simple = nil, in.p, in.simple
			in.p.copyIn, in.p.tag = nil, "COPY "+itoa(in.rows)
			return // the portal is finished by its next step
		}
	case wire.CopyFail:
		reason, _, _ := wire.CutString(f.Body())
		err = in.at(sqlstate.New(sqlstate.QueryCanceled, "COPY from stdin failed: %s", reason))
	case wire.TerminateFE:
		c.mu.Lock()
		if !c.closed {
			c.closed = true
			close(c.wake)
		}
		c.mu.Unlock()
		return
	default:
		err = sqlstate.New(sqlstate.ProtocolViolation, "unexpected message type 0x%02X during COPY from stdin", f.Type())
	}
	if err != nil {
		c.copyFailed(err)
	}
}

// copyFailed ends the COPY with an error.
func (c *Conn) copyFailed(err error) {
	in := c.copying
	c.copying = nil
	c.stopTimer()
	in.row.end()
	in.p.copyIn, in.p.done = nil, true
	c.simple = in.simple
	c.statementFailed(in.p, err)
}

// takeCopy runs data; what goes wrong is kept in the COPY's err.
func (c *Conn) takeCopy(data []byte) {
	in := c.copying
	if in.err != nil || in.ended && !in.f.Binary {
		return
	}
	if len(data) > 0 {
		in.rest = append(in.rest, data...)
	}
	in.err = fault.Guard(func() error { return in.run(c, false) })
}

// sendCopy takes the frames of data at the beginning, while data is awaited.
func (c *Conn) sendCopy(frames []byte) []byte {
	c.mu.Lock()
	c.running = true
	c.mu.Unlock()
	defer c.leave()
	for len(frames) > 0 {
		f, rest, ok, err := wire.Cut(frames)
		if err != nil || !ok || f.Type() != wire.CopyDataF {
			break
		}
		c.takeCopy(f.Body())
		frames = rest
	}
	return frames
}

// run inserts the whole rows at the beginning of the data.
func (in *copyIn) run(c *Conn, eof bool) error {
	data := in.rest
	for !in.ended && len(data) > 0 {
		used, err := 0, error(nil)
		if in.f.Binary {
			used, err = in.binaryRow(c, data, eof)
		} else {
			used, err = in.textRow(c, data, eof)
		}
		if err != nil {
			return err
		}
		if used == 0 {
			break
		}
		data = data[used:]
		if err := c.interruptedNow(); err != nil {
			return err
		}
	}
	if in.ended {
		if in.f.Binary && len(data) > 0 {
			return copytext.BadFile("received copy data after EOF marker")
		}
		data = nil
	}
	if err := in.keep(data); err != nil {
		return err
	}
	if eof && in.f.Binary && !in.ended {
		if !in.begun {
			return copytext.BadFile("COPY file signature not recognized")
		}
		return in.at(copytext.BadFile("unexpected EOF in COPY data"))
	}
	return nil
}

// keep keeps the beginning of a row until the rest of it comes.
func (in *copyIn) keep(data []byte) error {
	if len(data) > copyRecordMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "a row of COPY is over %d bytes", copyRecordMax)
	}
	in.rest = in.rest[:copy(in.rest, data)]
	if cap(in.rest) > 1<<20 && len(in.rest) < 64<<10 {
		in.rest = slices.Clone(in.rest)
	}
	return nil
}

// interruptedNow is the error of a statement that was asked to stop.
func (c *interruption) interruptedNow() error {
	select {
	case <-c.interruptChan():
		return sqlite.ResultInterrupt.ToError()
	default:
		return nil
	}
}

func (in *copyIn) at(err error) error {
	return where(err, "COPY %s, line %d", in.d.Name, in.line)
}

// textRow takes one line, or several that are one row.
func (in *copyIn) textRow(c *Conn, data []byte, eof bool) (used int, err error) {
	l, ok, err := in.lines.Next(data, eof)
	if err != nil {
		in.line++
		return 0, in.at(err)
	}
	if !ok {
		return 0, nil
	}
	in.line += int64(l.Lines)
	if l.End {
		in.ended = true
		return l.Size, nil
	}
	line := data[:l.Content]
	atLine := func(err error) error { return where(err, "COPY %s, line %d: \"%s\"", in.d.Name, in.line, shown(line)) }
	if !in.begun && in.f.Header {
		in.begun = true
		if in.f.Match {
			return l.Size, in.matches(line)
		}
		return l.Size, nil
	}
	in.begun = true
	if err := in.split(line); err != nil {
		return 0, atLine(err)
	}
	if len(in.fields) > len(in.cols) {
		return 0, atLine(copytext.BadFile("extra data after last expected column"))
	}
	for i, col := range in.cols {
		if i >= len(in.fields) {
			return 0, atLine(copytext.BadFile("missing data for column \"%s\"", col.Name))
		}
		v := in.forced(i)
		in.row.args[i] = value.Datum{}
		if v.null {
			continue
		}
		text := string(v.text)
		if err := value.CheckText(text); err != nil {
			return 0, in.at(err)
		}
		if in.row.args[i], err = c.textParam(col.Type, text); err != nil {
			return 0, where(err, "COPY %s, line %d, column %s: \"%s\"", in.d.Name, in.line, col.Name, shown(v.text))
		}
	}
	if err := in.insert(c); err != nil {
		return 0, atLine(err)
	}
	return l.Size, nil
}

// forced is field i as FORCE_NOT_NULL and FORCE_NULL want it.
func (in *copyIn) forced(i int) copyCell {
	v := in.fields[i]
	switch {
	case !in.f.CSV:
	case v.null && in.notNull[i]:
		return copyCell{text: []byte(in.f.Null)}
	case !v.null && in.isNull[i] && string(v.text) == in.f.Null:
		v.null = true
	}
	return v
}

// insert writes the row whose values are bound.
func (in *copyIn) insert(c *Conn) error {
	stmt := in.row.stmt
	for i := range in.row.args {
		if i < stmt.BindParamCount() {
			in.row.args[i].Bind(stmt, i+1)
		}
	}
	_, err := stmt.Step()
	if err == nil {
		err = stmt.Reset()
	}
	if err != nil {
		if c.env.Err != nil {
			err, c.env.Err = c.env.Err, nil
		}
		return c.mapError(c.explained(in.row, err))
	}
	in.rows++
	return nil
}

// matches compares the header with the columns.
func (in *copyIn) matches(line []byte) error {
	if err := in.split(line); err != nil {
		return in.at(err)
	}
	if len(in.fields) != len(in.cols) {
		return in.at(copytext.BadFile("wrong number of fields in header line: field count is %d, expected %d", len(in.fields), len(in.cols)))
	}
	for i, v := range in.fields {
		if v.null {
			return in.at(copytext.BadFile("column name mismatch in header line field %d: got null value (\"%s\"), expected \"%s\"", i+1, in.f.Null, in.cols[i].Name))
		}
		if string(v.text) != in.cols[i].Name {
			return in.at(copytext.BadFile("column name mismatch in header line field %d: got \"%s\", expected \"%s\"", i+1, v.text, in.cols[i].Name))
		}
	}
	return nil
}

// split cuts a line into its values.
func (in *copyIn) split(line []byte) error {
	in.fields, in.buf = in.fields[:0], in.buf[:0]
	if in.f.CSV {
		return in.splitCSV(line)
	}
	// Values without a backslash are parts of the line.
	for {
		end := 0
		escaped := false
		for end < len(line) && line[end] != in.f.Delimiter {
			if line[end] == '\\' {
				escaped = true
				end++
			}
			end++
		}
		end = min(end, len(line))
		v := line[:end]
		switch {
		case string(v) == in.f.Null:
			in.fields = append(in.fields, copyCell{null: true})
		case escaped:
			in.fields = append(in.fields, copyCell{text: copytext.Unescape(v)})
		default:
			in.fields = append(in.fields, copyCell{text: v})
		}
		if end >= len(line) {
			return nil
		}
		line = line[end+1:]
	}
}

func (in *copyIn) splitCSV(line []byte) error {
	f := in.f
	for {
		text, end, quoted := csvField(f, line)
		if end < 0 {
			return copytext.BadFile("unterminated CSV quoted field")
		}
		in.fields = append(in.fields, copyCell{text: text, null: !quoted && string(line[:end]) == f.Null})
		if end >= len(line) {
			return nil
		}
		line = line[end+1:]
	}
}

// csvField reads the field at the beginning of a line, which ends at end; negative if its quotes do not.
func csvField(f *copytext.Format, line []byte) (text []byte, end int, quoted bool) {
	inside, plain := false, true // plain: text is the beginning of the line so far
	for ; end < len(line); end++ {
		b := line[end]
		switch {
		case !inside && b == f.Delimiter:
			if plain {
				text = line[:end]
			}
			return text, end, quoted
		case !inside && b == f.Quote:
			if plain {
				text, plain = append(text, line[:end]...), false
			}
			quoted, inside = true, true
		case inside && b == f.Escape && end+1 < len(line) && (line[end+1] == f.Escape || line[end+1] == f.Quote):
			end++
			text = append(text, line[end])
		case inside && b == f.Quote:
			inside = false
		case !plain:
			text = append(text, b)
		}
	}
	if inside {
		return nil, -1, true
	}
	if plain {
		text = line
	}
	return text, end, quoted
}

// binaryHeader takes the header, whose end begins the rows.
func (in *copyIn) binaryHeader(data []byte, eof bool) (used int, err error) {
	n := len(copySignature)
	if !bytes.HasPrefix([]byte(copySignature), data[:min(n, len(data))]) {
		return 0, copytext.BadFile("COPY file signature not recognized")
	}
	if len(data) < n+8 {
		if eof {
			return 0, copytext.BadFile("invalid COPY file header (missing flags)")
		}
		return 0, nil
	}
	flags := binary.BigEndian.Uint32(data[n:])
	if flags&(1<<16) != 0 {
		return 0, copytext.BadFile("invalid COPY file header (WITH OIDS)")
	}
	if flags>>16 != 0 {
		return 0, copytext.BadFile("unrecognized critical flags in COPY file header")
	}
	more := int(binary.BigEndian.Uint32(data[n+4:]))
	if more < 0 || more > copyRecordMax {
		return 0, copytext.BadFile("invalid COPY file header (missing length)")
	}
	if len(data) < n+8+more {
		return 0, nil
	}
	in.begun = true
	return n + 8 + more, nil
}

// binaryRow takes the header, a tuple or the trailer.
func (in *copyIn) binaryRow(c *Conn, data []byte, eof bool) (used int, err error) {
	if !in.begun {
		return in.binaryHeader(data, eof)
	}
	if len(data) < 2 {
		return 0, nil
	}
	count := int(int16(binary.BigEndian.Uint16(data)))
	in.line++
	again := func() (int, error) { in.line--; return 0, nil }
	if count == -1 {
		in.ended = true
		return 2, nil
	}
	if count != len(in.cols) {
		return 0, in.at(copytext.BadFile("row field count is %d, expected %d", count, len(in.cols)))
	}
	at := 2
	for i, col := range in.cols {
		if len(data) < at+4 {
			return again()
		}
		n := int(int32(binary.BigEndian.Uint32(data[at:])))
		at += 4
		in.row.args[i] = value.Datum{}
		if n == -1 {
			continue
		}
		if n < 0 {
			return 0, where(copytext.BadFile("invalid field size"), "COPY %s, line %d, column %s", in.d.Name, in.line, col.Name)
		}
		if len(data) < at+n {
			return again()
		}
		if in.row.args[i], err = value.FromBinary(col.Type, data[at:at+n]); err != nil {
			return 0, where(err, "COPY %s, line %d, column %s", in.d.Name, in.line, col.Name)
		}
		at += n
	}
	if err := in.insert(c); err != nil {
		return 0, in.at(err)
	}
	return at, nil
}

// where adds a place to an error that has none.
func where(err error, format string, args ...any) error {
	if isInterrupt(err) {
		return err
	}
	e := *sqlstate.As(err)
	if e.Where == "" {
		e.Where = fmt.Sprintf(format, args...)
	}
	return &e
}

// shown is a text as a message shows it.
func shown(text []byte) string {
	const most = 100
	if len(text) <= most {
		return string(text)
	}
	return value.Prefix(string(text), most) + "..."
}
