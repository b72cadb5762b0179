package sqlite

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/copytext"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// planCopy plans COPY FROM STDIN and COPY TO STDOUT.
func (c *transaction) planCopy(raw *pg.RawStmt, s *pg.CopyStmt, text string) (*plan, error) {
	write := s.IsFrom
	if q := s.Query; q != nil && q.GetSelectStmt() == nil {
		write = true
	}
	return c.utility("COPY", write, text, func(c *Conn, p *portal) (err error) {
		defer fault.Catch(&err)
		if s.IsProgram || s.Filename != "" {
			return sqlstate.New(sqlstate.InsufficientPrivilege, "must be superuser or have privileges of the pg_read_server_files role to COPY from a file").
				WithHint("Anyone can COPY to stdout or from stdin. psql's \\copy command also works for anyone.")
		}
		f, err := copytext.Options(s)
		if err != nil {
			return err
		}
		if s.IsFrom {
			return c.startCopyIn(s, f, p, text)
		}
		return c.startCopyOut(s, f, p, text)
	}), nil
}

// copyColumns are the columns that COPY names, all if it names none.
func copyColumns(d *catalog.Table, names []*pg.Node, f *copytext.Format) ([]*catalog.Column, error) {
	cols := d.Live()
	if len(names) > 0 {
		cols = nil
		for _, n := range names {
			name := n.GetString_().GetSval()
			col := d.Column(name)
			if col == nil {
				return nil, sqlstate.New(sqlstate.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", name, d.Name)
			}
			if slices.Contains(cols, col) {
				return nil, sqlstate.New(sqlstate.DuplicateColumn, "column \"%s\" specified more than once", name)
			}
			cols = append(cols, col)
		}
	}
	for what, list := range map[string][]string{"FORCE_QUOTE": f.ForceQuote, "FORCE_NOT_NULL": f.ForceNotNull, "FORCE_NULL": f.ForceNull} {
		for _, name := range list {
			if name != "*" && !slices.ContainsFunc(cols, func(col *catalog.Column) bool { return col.Name == name }) {
				if d.Column(name) == nil {
					return nil, sqlstate.New(sqlstate.UndefinedColumn, "column \"%s\" of relation \"%s\" does not exist", name, d.Name)
				}
				return nil, sqlstate.New("42P10", "%s column \"%s\" not referenced by COPY", what, name)
			}
		}
	}
	return cols, nil
}

// copyTable finds the table of a COPY.
func copyTable(t *translate.Translator, v *pg.RangeVar, from bool) *catalog.Table {
	d := t.FindRelation(v)
	if from && (d.System != nil || d.Static || d.Relation) {
		fault.Raise(sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied for table %s", d.Name))
	}
	return d
}

// appendCopyResponse announces the data of a COPY.
func appendCopyResponse(dst []byte, typ byte, columns int, binary bool) []byte {
	format := byte(0)
	if binary {
		format = 1
	}
	dst, m := wire.Begin(dst, typ)
	dst = append(dst, format)
	dst = wire.AppendInt16(dst, int16(columns))
	for range columns {
		dst = wire.AppendInt16(dst, int16(format))
	}
	return wire.End(dst, m)
}

// The binary form's signature, flags and the length of its extension.
const copySignature = "PGCOPY\n\xff\r\n\x00"

// copyOut writes a portal's rows as COPY's data.
type copyOut struct {
	f     *copytext.Format
	force []bool // quoted in any case, by column
	said  bool
	row   []byte
	cells [][]byte
	line  []byte
}

// startCopyOut makes the portal that of the query whose rows are copied.
func (c *Conn) startCopyOut(s *pg.CopyStmt, f *copytext.Format, p *portal, text string) error {
	query := s.Query
	if query == nil {
		d := copyTable(c.translator(text), s.Relation, false)
		if d.Viewed != nil {
			return sqlstate.New(sqlstate.WrongObjectType, "cannot copy from view \"%s\"", d.Name).WithHint("Try the COPY (SELECT ...) TO variant.")
		}
		cols, err := copyColumns(d, s.Attlist, f)
		if err != nil {
			return err
		}
		names := make([]string, len(cols))
		for i, col := range cols {
			names[i] = quote.Ident(col.Name)
		}
		text = "SELECT " + strings.Join(names, ", ") + " FROM " + quote.Ident(d.Schema) + "." + quote.Ident(d.Name)
		tree, err := syntax.Tree(text)
		if err != nil {
			return err
		}
		query = tree.Stmts[0].Stmt
	}
	inner, err := c.translateStatement(&pg.RawStmt{Stmt: query}, text, nil, true)
	if err != nil {
		return err
	}
	if !inner.Returns {
		return sqlstate.New(sqlstate.FeatureNotSupported, "COPY query must have a RETURNING clause")
	}
	inner.evicted = true // its statements are kept for nobody
	p.plan, p.copy = inner, &copyOut{f: f}
	if f.Binary {
		p.formats = []int16{1}
	} else {
		p.formats = nil
	}
	for i := range inner.Columns {
		p.copy.force = append(p.copy.force, f.CSV && copytext.Covers(f.ForceQuote, inner.Columns[i].Name))
	}
	return c.run(p)
}

func appendCopyData(dst, data []byte) []byte {
	dst, m := wire.Begin(dst, wire.CopyData)
	return wire.End(append(dst, data...), m)
}

// begin says that data follows, with what comes before the rows.
func (o *copyOut) begin(dst []byte, cols []translate.Column) []byte {
	o.said = true
	dst = appendCopyResponse(dst, wire.CopyOutResponse, len(cols), o.f.Binary)
	if o.f.Binary {
		return appendCopyData(dst, append([]byte(copySignature), 0, 0, 0, 0, 0, 0, 0, 0))
	}
	if !o.f.Header {
		return dst
	}
	o.line = o.line[:0]
	for i := range cols {
		o.field(i, []byte(cols[i].Name), len(cols) == 1, false)
	}
	return appendCopyData(dst, append(o.line, '\n'))
}

// field adds a value to the line.
func (o *copyOut) field(i int, v []byte, single, force bool) {
	f := o.f
	if i > 0 {
		o.line = append(o.line, f.Delimiter)
	}
	if f.CSV {
		o.line = copytext.AppendCSV(o.line, v, f, single, force)
	} else {
		o.line = copytext.AppendText(o.line, v, f.Delimiter)
	}
}

// appendCopyRow appends one row of the portal.
func (p *portal) appendCopyRow(dst []byte, c *definitions) ([]byte, error) {
	o := p.copy
	var err error
	if o.row, err = p.appendRow(o.row[:0], c); err != nil {
		return dst, err
	}
	body := o.row[wire.Header:]
	if o.f.Binary {
		return appendCopyData(dst, body), nil
	}
	if o.cells, err = wire.SplitRow(body, o.cells[:0]); err != nil {
		return dst, err
	}
	o.line = o.line[:0]
	for i, v := range o.cells {
		if v == nil {
			if i > 0 {
				o.line = append(o.line, o.f.Delimiter)
			}
			o.line = append(o.line, o.f.Null...)
			continue
		}
		o.field(i, v, len(o.cells) == 1, o.force[i])
	}
	return appendCopyData(dst, append(o.line, '\n')), nil
}

// end says that there is no more data.
func (o *copyOut) end(dst []byte) []byte {
	if o.f.Binary {
		dst = appendCopyData(dst, []byte{0xff, 0xff})
	}
	return wire.AppendEmpty(dst, wire.CopyDone)
}
