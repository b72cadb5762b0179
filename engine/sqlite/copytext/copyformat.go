package copytext

import (
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// Format is the form of COPY's data.
type Format struct {
	CSV, Binary              bool
	Header, Match            bool
	Delimiter, Quote, Escape byte
	Null                     string
	ForceNull, ForceNotNull  []string
	ForceQuote               []string
	Freeze                   bool
}

// Covers reports whether a list of columns has a name, or a star.
func Covers(list []string, name string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, name)
}

// Options reads and checks the options, as PostgreSQL 15 does (ProcessCopyOptions of copy.c).
func Options(s *pg.CopyStmt) (*Format, error) {
	f := &Format{}
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
func (f *Format) option(d *pg.DefElem, from bool) (err error) {
	switch d.Defname {
	case "format":
		err = f.setForm(copyText(d))
	case "freeze":
		if f.Freeze, err = copyBool(d); err == nil && f.Freeze && !from {
			err = value.Unsupported("COPY TO with FREEZE")
		}
	case "delimiter", "null", "quote", "escape":
	case "header":
		err = f.setHeader(d, from)
	case "force_quote":
		f.ForceQuote, err = copyList(d)
	case "force_not_null":
		f.ForceNotNull, err = copyList(d)
	case "force_null":
		f.ForceNull, err = copyList(d)
	case "encoding":
		if v := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(copyText(d))); v != "utf8" && v != "unicode" {
			err = value.Unsupported("COPY in another encoding than UTF8")
		}
	default:
		err = sqlstate.New(sqlstate.SyntaxError, "option \"%s\" not recognized", d.Defname)
	}
	return err
}

func (f *Format) setForm(name string) error {
	switch name {
	case "text":
	case "csv":
		f.CSV = true
	case "binary":
		f.Binary = true
	default:
		return sqlstate.New(sqlstate.InvalidParameterValue, "COPY format \"%s\" not recognized", name)
	}
	return nil
}

func (f *Format) setHeader(d *pg.DefElem, from bool) (err error) {
	if d.Arg == nil || !strings.EqualFold(copyText(d), "match") {
		f.Header, err = copyBool(d)
		return err
	}
	if !from {
		return sqlstate.New(sqlstate.FeatureNotSupported, "cannot use \"match\" with HEADER in COPY TO")
	}
	f.Header, f.Match = true, true
	return nil
}

// copyText is defGetString of PostgreSQL's define.c.
func copyText(d *pg.DefElem) string {
	switch v := d.Arg.GetNode().(type) {
	case *pg.Node_String_:
		return v.String_.GetSval()
	case *pg.Node_Integer:
		return strconv.Itoa(int(v.Integer.GetIval()))
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
func (f *Format) binaryWith(given map[string]*pg.DefElem) error {
	switch {
	case !f.Binary:
	case given["delimiter"] != nil:
		return sqlstate.New(sqlstate.SyntaxError, "cannot specify DELIMITER in BINARY mode")
	case given["null"] != nil:
		return sqlstate.New(sqlstate.SyntaxError, "cannot specify NULL in BINARY mode")
	case f.Header:
		return sqlstate.New(sqlstate.FeatureNotSupported, "cannot specify HEADER in BINARY mode")
	}
	return nil
}

// separators sets what stands between columns and for NULL.
func (f *Format) separators(given map[string]*pg.DefElem) error {
	f.Delimiter, f.Null = '\t', `\N`
	if f.CSV {
		f.Delimiter, f.Null, f.Quote, f.Escape = ',', "", '"', '"'
	}
	if d := given["delimiter"]; d != nil {
		v := copyText(d)
		if len(v) != 1 {
			return sqlstate.New(sqlstate.FeatureNotSupported, "COPY delimiter must be a single one-byte character")
		}
		f.Delimiter = v[0]
	}
	if f.Delimiter == '\n' || f.Delimiter == '\r' {
		return sqlstate.New(sqlstate.InvalidParameterValue, "COPY delimiter cannot be newline or carriage return")
	}
	if d := given["null"]; d != nil {
		f.Null = copyText(d)
	}
	if strings.ContainsAny(f.Null, "\r\n") {
		return sqlstate.New(sqlstate.InvalidParameterValue, "COPY null representation cannot use newline or carriage return")
	}
	if !f.CSV && !f.Binary && strings.IndexByte("\\.abcdefghijklmnopqrstuvwxyz0123456789", f.Delimiter) >= 0 {
		return sqlstate.New(sqlstate.InvalidParameterValue, "COPY delimiter cannot be \"%c\"", f.Delimiter)
	}
	return nil
}

// quotes sets what quotes a value of CSV, and a quote in it.
func (f *Format) quotes(given map[string]*pg.DefElem) error {
	if d := given["quote"]; d != nil {
		v, err := f.quoteOf(d)
		if err != nil {
			return err
		}
		f.Quote, f.Escape = v, v
	}
	if f.CSV && f.Delimiter == f.Quote {
		return sqlstate.New(sqlstate.InvalidParameterValue, "COPY delimiter and quote must be different")
	}
	if d := given["escape"]; d != nil {
		v, err := f.quoteOf(d)
		if err != nil {
			return err
		}
		f.Escape = v
	}
	return nil
}

func (f *Format) quoteOf(d *pg.DefElem) (byte, error) {
	v := copyText(d)
	switch {
	case !f.CSV:
		return 0, sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s available only in CSV mode", d.Defname)
	case len(v) != 1:
		return 0, sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s must be a single one-byte character", d.Defname)
	}
	return v[0], nil
}

// conflicts reports options that do not go together.
func (f *Format) conflicts(from bool) error {
	for _, o := range []struct {
		list []string
		name string
		from bool // of COPY FROM, else of COPY TO
	}{{f.ForceQuote, "force quote", false}, {f.ForceNotNull, "force not null", true}, {f.ForceNull, "force null", true}} {
		switch {
		case len(o.list) == 0:
		case !f.CSV:
			return sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s available only in CSV mode", o.name)
		case o.from && !from:
			return sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s only available using COPY FROM", o.name)
		case !o.from && from:
			return sqlstate.New(sqlstate.FeatureNotSupported, "COPY %s only available using COPY TO", o.name)
		}
	}
	switch {
	case !f.Binary && strings.IndexByte(f.Null, f.Delimiter) >= 0:
		return sqlstate.New(sqlstate.FeatureNotSupported, "COPY delimiter must not appear in the NULL specification")
	case f.CSV && strings.IndexByte(f.Null, f.Quote) >= 0:
		return sqlstate.New(sqlstate.FeatureNotSupported, "CSV quote character must not appear in the NULL specification")
	}
	return nil
}

var textEscapes = [256]byte{'\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't', '\v': 'v', '\\': '\\'}

// AppendText appends a field of the text form.
func AppendText(dst, v []byte, delimiter byte) []byte {
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

// AppendCSV appends a field of the CSV form.
func AppendCSV(dst, v []byte, f *Format, single, force bool) []byte {
	if !force {
		force = string(v) == f.Null || single && string(v) == `\.`
		for i := 0; i < len(v) && !force; i++ {
			force = v[i] == f.Delimiter || v[i] == f.Quote || v[i] == '\n' || v[i] == '\r'
		}
	}
	if !force {
		return append(dst, v...)
	}
	dst = append(dst, f.Quote)
	for _, b := range v {
		if b == f.Quote || b == f.Escape {
			dst = append(dst, f.Escape)
		}
		dst = append(dst, b)
	}
	return append(dst, f.Quote)
}

// BadFile is the error of data that is not what COPY's form says.
func BadFile(format string, args ...any) *sqlstate.Error {
	return sqlstate.New(sqlstate.BadFileFormat, format, args...)
}

// Unescape reads a value of the text form.
func Unescape(v []byte) []byte {
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); {
		b := v[i]
		i++
		if b == '\\' && i < len(v) {
			b, i = escaped(v, i)
		}
		out = append(out, b)
	}
	return out
}

// control are the control characters that have a letter.
var control = map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

// escaped reads what stands at i, after a backslash: a letter for a control character, octal or hexadecimal digits, or itself.
func escaped[T string | []byte](text T, i int) (b byte, next int) {
	switch b = text[i]; {
	case b >= '0' && b <= '7':
		return number(text, i, 8, 3)
	case b == 'x' && i+1 < len(text) && value.IsHex(text[i+1]):
		return number(text, i+1, 16, 2)
	case control[b] != 0:
		b = control[b]
	}
	return b, i + 1
}

// number reads the digits at i, at most so many.
func number[T string | []byte](text T, i, base, most int) (n byte, next int) {
	for end := min(i+most, len(text)); i < end && value.IsHex(text[i]) && hexDigit(text[i]) < base; i++ {
		n = n*byte(base) + byte(hexDigit(text[i]))
	}
	return n, i
}
