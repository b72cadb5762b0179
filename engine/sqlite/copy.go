package sqlite

import (
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// copyFormat is the form of COPY's data.
type copyFormat struct {
	csv, binary              bool
	header, match            bool
	delimiter, quote, escape byte
	null                     string
	forceNull, forceNotNull  []string
	forceQuote               []string
	freeze                   bool
}

func hasColumn(list []string, name string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, name)
}

// planCopy plans COPY FROM STDIN and COPY TO STDOUT.
func (c *transaction) planCopy(raw *pg.RawStmt, s *pg.CopyStmt, text string) (*plan, error) {
	write := s.IsFrom
	if q := s.Query; q != nil && q.GetSelectStmt() == nil {
		write = true
	}
	return &plan{Statement: translate.Statement{Tag: "COPY", Write: write}, text: text, kind: utilityPlan, generation: c.names.Catalog.Generation, settings: c.settings.version, util: func(c *Conn, p *portal) (err error) {
		defer fault.Catch(&err)
		if s.IsProgram || s.Filename != "" {
			return sqlstate.New(sqlstate.InsufficientPrivilege, "must be superuser or have privileges of the pg_read_server_files role to COPY from a file").
				WithHint("Anyone can COPY to stdout or from stdin. psql's \\copy command also works for anyone.")
		}
		f, err := copyOptions(s)
		if err != nil {
			return err
		}
		if s.IsFrom {
			return c.startCopyIn(s, f, p, text)
		}
		return c.startCopyOut(s, f, p, text)
	}}, nil
}

// copyOptions reads and checks the options, as PostgreSQL 15 does (ProcessCopyOptions of copy.c).
func copyOptions(s *pg.CopyStmt) (*copyFormat, error) {
	f := &copyFormat{}
	given := map[string]*pg.DefElem{}
	for _, n := range s.Options {
		d := n.GetDefElem()
		if given[d.Defname] != nil {
			return nil, sqlstate.New(sqlstate.SyntaxError, "conflicting or redundant options")
		}
		given[d.Defname] = d
		if err := f.option(d, s.IsFrom); err != nil {
			return nil, err
		}
	}
	if err := f.binaryWith(given); err != nil {
		return nil, err
	}
	if err := f.separators(given); err != nil {
		return nil, err
	}
	if err := f.quotes(given); err != nil {
		return nil, err
	}
	return f, f.conflicts(s.IsFrom)
}

// option reads one option. Characters are read when the format is known.
func (f *copyFormat) option(d *pg.DefElem, from bool) (err error) {
	switch d.Defname {
	case "format":
		switch copyText(d) {
		case "text":
		case "csv":
			f.csv = true
		case "binary":
			f.binary = true
		default:
			err = sqlstate.New(sqlstate.InvalidParameterValue, "COPY format \"%s\" not recognized", copyText(d))
		}
	case "freeze":
		if f.freeze, err = copyBool(d); err == nil && f.freeze && !from {
			err = value.Unsupported("COPY TO with FREEZE")
		}
	case "delimiter", "null", "quote", "escape":
	case "header":
		if d.Arg == nil || !strings.EqualFold(copyText(d), "match") {
			f.header, err = copyBool(d)
			break
		}
		if !from {
			return sqlstate.New(sqlstate.FeatureNotSupported, "cannot use \"match\" with HEADER in COPY TO")
		}
		f.header, f.match = true, true
	case "force_quote":
		f.forceQuote, err = copyList(d)
	case "force_not_null":
		f.forceNotNull, err = copyList(d)
	case "force_null":
		f.forceNull, err = copyList(d)
	case "encoding":
		if v := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(copyText(d))); v != "utf8" && v != "unicode" {
			err = value.Unsupported("COPY in another encoding than UTF8")
		}
	default:
		err = sqlstate.New(sqlstate.SyntaxError, "option \"%s\" not recognized", d.Defname)
	}
	return err
}

// copyText is defGetString of PostgreSQL's define.c.
func copyText(d *pg.DefElem) string {
	switch v := d.Arg.GetNode().(type) {
	case *pg.Node_String_:
		return v.String_.GetSval()
	case *pg.Node_Integer:
		return itoa(int64(v.Integer.GetIval()))
	case *pg.Node_Float:
		return v.Float.GetFval()
	case *pg.Node_Boolean:
		return strconv.FormatBool(v.Boolean.GetBoolval())
	case *pg.Node_AStar:
		return "*"
	}
	return ""
}

// copyBool is defGetBoolean of PostgreSQL's define.c.
func copyBool(d *pg.DefElem) (bool, error) {
	if d.Arg == nil {
		return true, nil
	}
	switch strings.ToLower(copyText(d)) {
	case "1", "true", "on":
		return true, nil
	case "0", "false", "off":
		return false, nil
	}
	return false, sqlstate.New(sqlstate.SyntaxError, "%s requires a Boolean value", d.Defname)
}

func copyList(d *pg.DefElem) ([]string, error) {
	if d.Arg.GetAStar() != nil {
		return []string{"*"}, nil
	}
	l := d.Arg.GetList()
	if l == nil {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "argument to option \"%s\" must be a list of column names", d.Defname)
	}
	var out []string
	for _, n := range l.Items {
		out = append(out, n.GetString_().GetSval())
	}
	return out, nil
}

// binaryWith reports an option that binary format has not.
func (f *copyFormat) binaryWith(given map[string]*pg.DefElem) error {
	switch {
	case !f.binary:
	case given["delimiter"] != nil:
		return sqlstate.New(sqlstate.SyntaxError, "cannot specify DELIMITER in BINARY mode")
	case given["null"] != nil:
		return sqlstate.New(sqlstate.SyntaxError, "cannot specify NULL in BINARY mode")
	case f.header:
		return sqlstate.New(sqlstate.FeatureNotSupported, "cannot specify HEADER in BINARY mode")
	}
	return nil
}

// separators sets what stands between columns and for NULL.
func (f *copyFormat) separators(given map[string]*pg.DefElem) error {
	f.delimiter, f.null = '\t', `\N`
	if f.csv {
		f.delimiter, f.null, f.quote, f.escape = ',', "", '"', '"'
	}
	if d := given["delimiter"]; d != nil {
		v := copyText(d)
		if len(v) != 1 {
			return sqlstate.New(sqlstate.FeatureNotSupported, "COPY delimiter must be a single one-byte character")
		}
		f.delimiter = v[0]
	}
	if f.delimiter == '\n' || f.delimiter == '\r' {
		return sqlstate.New(sqlstate.InvalidParameterValue, "COPY delimiter cannot be newline or carriage return")
	}
	if d := given["null"]; d != nil {
		f.null = copyText(d)
	}
	if strings.ContainsAny(f.null, "\r\n") {
		return sqlstate.New(sqlstate.InvalidParameterValue, "COPY null representation cannot use newline or carriage return")
	}
	if !f.csv && !f.binary && strings.IndexByte("\\.abcdefghijklmnopqrstuvwxyz0123456789", f.delimiter) >= 0 {
		return sqlstate.New(sqlstate.InvalidParameterValue, "COPY delimiter cannot be \"%c\"", f.delimiter)
	}
	return nil
}

// quotes sets what quotes a value of CSV, and a quote in it.
func (f *copyFormat) quotes(given map[string]*pg.DefElem) error {
	if d := given["quote"]; d != nil {
		v, err := f.quoteOf(d)
		if err != nil {
			return err
		}
		f.quote, f.escape = v, v
	}
	if f.csv && f.delimiter == f.quote {
		return sqlstate.New(sqlstate.InvalidParameterValue, "COPY delimiter and quote must be different")
	}
	if d := given["escape"]; d != nil {
		v, err := f.quoteOf(d)
		if err != nil {
			return err
		}
		f.escape = v
	}
	return nil
}

func (f *copyFormat) quoteOf(d *pg.DefElem) (byte, error) {
	v := copyText(d)
	switch {
	case !f.csv:
		return 0, sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s available only in CSV mode", d.Defname)
	case len(v) != 1:
		return 0, sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s must be a single one-byte character", d.Defname)
	}
	return v[0], nil
}

// conflicts reports options that do not go together.
func (f *copyFormat) conflicts(from bool) error {
	for _, o := range []struct {
		list []string
		name string
		from bool // of COPY FROM, else of COPY TO
	}{{f.forceQuote, "force quote", false}, {f.forceNotNull, "force not null", true}, {f.forceNull, "force null", true}} {
		switch {
		case len(o.list) == 0:
		case !f.csv:
			return sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s available only in CSV mode", o.name)
		case o.from && !from:
			return sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s only available using COPY FROM", o.name)
		case !o.from && from:
			return sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s only available using COPY TO", o.name)
		}
	}
	switch {
	case !f.binary && strings.IndexByte(f.null, f.delimiter) >= 0:
		return sqlstate.New(sqlstate.FeatureNotSupported, "COPY delimiter must not appear in the NULL specification")
	case f.csv && strings.IndexByte(f.null, f.quote) >= 0:
		return sqlstate.New(sqlstate.FeatureNotSupported, "CSV quote character must not appear in the NULL specification")
	}
	return nil
}

// copyColumns are the columns that COPY names, all if it names none.
func copyColumns(d *catalog.Table, names []*pg.Node, f *copyFormat) ([]*catalog.Column, error) {
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
	for what, list := range map[string][]string{"FORCE_QUOTE": f.forceQuote, "FORCE_NOT_NULL": f.forceNotNull, "FORCE_NULL": f.forceNull} {
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
	f     *copyFormat
	force []bool // quoted in any case, by column
	said  bool
	row   []byte
	cells [][]byte
	line  []byte
}

// startCopyOut makes the portal that of the query whose rows are copied.
func (c *Conn) startCopyOut(s *pg.CopyStmt, f *copyFormat, p *portal, text string) error {
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
	if f.binary {
		p.formats = []int16{1}
	} else {
		p.formats = nil
	}
	for i := range inner.Columns {
		p.copy.force = append(p.copy.force, f.csv && hasColumn(f.forceQuote, inner.Columns[i].Name))
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
	dst = appendCopyResponse(dst, wire.CopyOutResponse, len(cols), o.f.binary)
	if o.f.binary {
		return appendCopyData(dst, append([]byte(copySignature), 0, 0, 0, 0, 0, 0, 0, 0))
	}
	if !o.f.header {
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
		o.line = append(o.line, f.delimiter)
	}
	if f.csv {
		o.line = appendCSVField(o.line, v, f, single, force)
	} else {
		o.line = appendTextField(o.line, v, f.delimiter)
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
	if o.f.binary {
		return appendCopyData(dst, body), nil
	}
	if o.cells, err = wire.SplitRow(body, o.cells[:0]); err != nil {
		return dst, err
	}
	o.line = o.line[:0]
	for i, v := range o.cells {
		if v == nil {
			if i > 0 {
				o.line = append(o.line, o.f.delimiter)
			}
			o.line = append(o.line, o.f.null...)
			continue
		}
		o.field(i, v, len(o.cells) == 1, o.force[i])
	}
	return appendCopyData(dst, append(o.line, '\n')), nil
}

// end says that there is no more data.
func (o *copyOut) end(dst []byte) []byte {
	if o.f.binary {
		dst = appendCopyData(dst, []byte{0xff, 0xff})
	}
	return wire.AppendEmpty(dst, wire.CopyDone)
}

var textEscapes = [256]byte{'\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't', '\v': 'v', '\\': '\\'}

func appendTextField(dst, v []byte, delimiter byte) []byte {
	for _, b := range v {
		switch e := textEscapes[b]; {
		case e != 0:
			dst = append(dst, '\\', e)
		case b == delimiter:
			dst = append(dst, '\\', b)
		default:
			dst = append(dst, b)
		}
	}
	return dst
}

func appendCSVField(dst, v []byte, f *copyFormat, single, force bool) []byte {
	if !force {
		force = string(v) == f.null || single && string(v) == `\.`
		for i := 0; i < len(v) && !force; i++ {
			force = v[i] == f.delimiter || v[i] == f.quote || v[i] == '\n' || v[i] == '\r'
		}
	}
	if !force {
		return append(dst, v...)
	}
	dst = append(dst, f.quote)
	for _, b := range v {
		if b == f.quote || b == f.escape {
			dst = append(dst, f.escape)
		}
		dst = append(dst, b)
	}
	return append(dst, f.quote)
}
