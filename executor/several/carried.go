package several

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/several/sortkey"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Values that go from shard to shard are held by the router as texts, which have to mean the same under all
// settings. PostgreSQL prints some types as the settings say: rounded, in another order, or with the
// abbreviation of a zone, which may be read as another zone's. Those come in binary, and are printed here.

// printer appends the text of a binary value.
type printer func(dst, v []byte) ([]byte, error)

// carried says how columns come that are held as texts: nil printers are for those that come as texts.
type carried struct {
	from  int // the first of them
	oids  []uint32
	print []printer
}

// carriedAs is for columns of these types, after others that it leaves as they are.
func carriedAs(from int, oids []uint32) *carried {
	k := &carried{from: from, oids: oids, print: make([]printer, len(oids))}
	for i, o := range oids {
		k.print[i] = printerOf(o)
	}
	return k
}

// formats are the formats of a Bind: those of the columns before, then its own.
func (k *carried) formats(before []int16) []int16 {
	out := make([]int16, k.from+len(k.print))
	for i := range out[:k.from] {
		out[i] = wire.FormatAt(before, i)
	}
	for i, p := range k.print {
		if p != nil {
			out[k.from+i] = 1
		}
	}
	return out
}

// expects refuses rows whose columns, in the body of a RowDescription, are not of the types that printers are for: a table has been
// altered since the map was read.
func (k *carried) expects(columns []byte) error {
	if k == nil {
		return nil
	}
	fields := wire.ReadFields(columns)
	for i, p := range k.print {
		if at := k.from + i; p != nil && (at >= len(fields) || fields[at].TypeOID != k.oids[i]) {
			return sqlstate.New(sqlstate.SerializationFailure, "the type of a column has changed meanwhile").WithHint("nothing was done: run the transaction again")
		}
	}
	return nil
}

// row gives the body of a DataRow its texts.
func (k *carried) row(body []byte) ([]byte, error) {
	if k == nil || !slices.ContainsFunc(k.print, func(p printer) bool { return p != nil }) {
		return body, nil
	}
	row, err := wire.SplitRow(body, nil)
	if err != nil || len(row) != k.from+len(k.print) {
		return nil, sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
	}
	for i, p := range k.print {
		if v := row[k.from+i]; p != nil && v != nil {
			if row[k.from+i], err = p(nil, v); err != nil {
				return nil, err
			}
		}
	}
	return wire.AppendDataRow(nil, row)[wire.Header:], nil
}

// frames gives the rows among frames their texts.
func (k *carried) frames(frames []byte) ([]byte, error) {
	if k == nil || !slices.ContainsFunc(k.print, func(p printer) bool { return p != nil }) {
		return frames, nil
	}
	out := make([]byte, 0, 2*len(frames))
	for len(frames) >= wire.Header {
		n := 1 + int(binary.BigEndian.Uint32(frames[1:]))
		if frames[0] != wire.DataRow {
			out = append(out, frames[:n]...)
		} else {
			body, err := k.row(frames[wire.Header:n])
			if err != nil {
				return nil, err
			}
			var m int
			out, m = wire.Begin(out, wire.DataRow)
			out = wire.End(append(out, body...), m)
		}
		frames = frames[n:]
	}
	return out, nil
}

// carriage is a job whose rows are held as texts.
type carriage struct {
	job
	as *carried
}

func (j *carriage) step(out []byte, rows int32) ([]byte, bool, string, error) {
	from := len(out)
	out, done, tag, err := j.job.step(out, rows)
	if err != nil {
		return out, done, tag, err
	}
	texts, err := j.as.frames(out[from:])
	return append(out[:from], texts...), done, tag, err
}

const (
	oidPoint        = 600
	oidFloat4s      = 1021
	oidFloat8s      = 1022
	oidTimestamps   = 1115
	oidDates        = 1182
	oidTimestamptzs = 1185
	oidTstzrange    = 3910

	oidJSON  = 114
	oidJSONB = 3802
)

// printerOf returns the printer of a type, nil if its text is good under all settings, or its binary form is
// not known here.
func printerOf(oid uint32) printer {
	switch oid {
	case pgoid.Float4, pgoid.Float8:
		return printFloat
	case pgoid.Date, pgoid.Timestamp, pgoid.Timestamptz:
		t, _ := keyspace.TypeByOID(oid)
		return func(dst, v []byte) ([]byte, error) {
			k, err := keyspace.ParseBinary(t, v)
			if err != nil {
				return dst, err
			}
			return k.AppendText(dst), nil
		}
	case oidPoint:
		return printPoint
	case oidFloat4s, oidFloat8s:
		return printArray(printFloat)
	case oidDates:
		return printArray(printerOf(pgoid.Date))
	case oidTimestamps:
		return printArray(printerOf(pgoid.Timestamp))
	case oidTimestamptzs:
		return printArray(printerOf(pgoid.Timestamptz))
	case oidTstzrange:
		return printRange(printerOf(pgoid.Timestamptz))
	}
	return nil
}

func printFloat(dst, v []byte) ([]byte, error) {
	var f float64
	bits := 8 * len(v)
	switch len(v) {
	case 4:
		f = float64(math.Float32frombits(binary.BigEndian.Uint32(v)))
	case 8:
		f = math.Float64frombits(binary.BigEndian.Uint64(v))
	default:
		return dst, sortkey.ErrValue
	}
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...), nil
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...), nil
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...), nil
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits), nil
}

func printPoint(dst, v []byte) ([]byte, error) {
	if len(v) != 16 {
		return dst, sortkey.ErrValue
	}
	dst, _ = printFloat(append(dst, '('), v[:8])
	dst, _ = printFloat(append(dst, ','), v[8:])
	return append(dst, ')'), nil
}

// printArray prints arrays of elements whose texts need no escapes.
func printArray(element printer) printer {
	return func(dst, v []byte) ([]byte, error) {
		if len(v) < 12 {
			return dst, sortkey.ErrValue
		}
		n := int(binary.BigEndian.Uint32(v))
		if n == 0 {
			return append(dst, "{}"...), nil
		}
		if n > 6 || len(v) < 12+8*n {
			return dst, sortkey.ErrValue
		}
		dims, bounds, err := arrayShape(v[12 : 12+8*n])
		if err != nil {
			return dst, err
		}
		dst = append(dst, bounds...)
		rest := v[12+8*n:]
		var level func(depth int) error
		level = func(depth int) error {
			dst = append(dst, '{')
			for i := range dims[depth] {
				if i > 0 {
					dst = append(dst, ',')
				}
				if depth+1 < n {
					if err := level(depth + 1); err != nil {
						return err
					}
					continue
				}
				e, isNull, err := sized(&rest)
				switch {
				case err != nil:
					return err
				case isNull:
					dst = append(dst, "NULL"...)
				default:
					dst = append(dst, '"')
					if dst, err = element(dst, e); err != nil {
						return err
					}
					dst = append(dst, '"')
				}
			}
			dst = append(dst, '}')
			return nil
		}
		err = level(0)
		if err == nil && len(rest) > 0 {
			err = sortkey.ErrValue
		}
		return dst, err
	}
}

// arrayShape reads the lengths of an array's dimensions. bounds is what its text begins with if one does not begin at 1.
func arrayShape(v []byte) (dims []int, bounds string, err error) {
	var b strings.Builder
	plain := true
	for ; len(v) > 0; v = v[8:] {
		length, low := int(int32(binary.BigEndian.Uint32(v))), int(int32(binary.BigEndian.Uint32(v[4:])))
		if length <= 0 {
			return nil, "", sortkey.ErrValue
		}
		dims = append(dims, length)
		plain = plain && low == 1
		fmt.Fprintf(&b, "[%d:%d]", low, low+length-1)
	}
	if plain {
		return dims, "", nil
	}
	return dims, b.String() + "=", nil
}

// sized takes a value with its length in front.
func sized(rest *[]byte) (v []byte, isNull bool, err error) {
	if len(*rest) < 4 {
		return nil, false, sortkey.ErrValue
	}
	n := int(int32(binary.BigEndian.Uint32(*rest)))
	*rest = (*rest)[4:]
	switch {
	case n == -1:
		return nil, true, nil
	case n < 0 || n > len(*rest):
		return nil, false, sortkey.ErrValue
	}
	v, *rest = (*rest)[:n], (*rest)[n:]
	return v, false, nil
}

// printRange prints ranges of elements whose texts need no escapes.
func printRange(element printer) printer {
	const empty, lowClosed, highClosed, lowInfinite, highInfinite = 1, 2, 4, 8, 16
	return func(dst, v []byte) ([]byte, error) {
		if len(v) == 0 {
			return dst, sortkey.ErrValue
		}
		flags, rest := v[0], v[1:]
		if flags&empty != 0 {
			return append(dst, "empty"...), nil
		}
		bound := func(infinite byte) error {
			if flags&infinite != 0 {
				return nil
			}
			e, isNull, err := sized(&rest)
			if err != nil || isNull {
				return sortkey.ErrValue
			}
			dst = append(dst, '"')
			dst, err = element(dst, e)
			dst = append(dst, '"')
			return err
		}
		dst = append(dst, "(["[flags&lowClosed/lowClosed])
		if err := bound(lowInfinite); err != nil {
			return dst, err
		}
		dst = append(dst, ',')
		if err := bound(highInfinite); err != nil {
			return dst, err
		}
		return append(dst, ")]"[flags&highClosed/highClosed]), nil
	}
}

// oidsOf are the types of columns.
func oidsOf(fields []wire.Field) []uint32 {
	out := make([]uint32, len(fields))
	for i := range fields {
		out[i] = fields[i].TypeOID
	}
	return out
}

// columnOIDs are the types of a table's columns, then those of keys.
func columnOIDs(columns []*shardmap.Column, keys []keyspace.Type) []uint32 {
	var out []uint32
	for _, c := range columns {
		out = append(out, c.OID)
	}
	for _, t := range keys {
		out = append(out, t.OID())
	}
	return out
}

// unfaithful are the settings of a session, set by it or begun with, under which a text may not give a value back.
type unfaithful struct {
	rounded, zones, nulls, documents bool
	days                             bool // the order in which dates are read is not that in which they are written
}

func unfaithfulIn(s *executor.Settings) (u unfaithful) {
	if v := s.Text("extra_float_digits"); v != "" {
		n, ok := limits.Number(v, false)
		u.rounded = !ok || n < 1
	}
	style, order := dateStyle(s)
	u.zones, u.days = style != "iso", disordered(style, order)
	if v := s.Text("array_nulls"); v != "" {
		u.nulls = !isTrue(v)
	}
	u.documents = strings.EqualFold(s.Text("xmloption"), "document")
	return u
}

// dateStyle is the style in which dates are written, and the order in which they are read. A session that has set one of them has the
// other one as it began with it, or as PostgreSQL has it.
func dateStyle(s *executor.Settings) (style, order string) {
	began := executor.MergeDateStyle("iso, mdy", s.Began("datestyle"), "")
	style, order, _ = executor.ReadDateStyle(executor.MergeDateStyle(began, s.Text("datestyle"), ""))
	return style, order
}

// disordered reports whether PostgreSQL reads a date otherwise than it has written it under a DateStyle: German writes the day first,
// SQL and Postgres the day or the month, whatever order it reads (EncodeDateOnly in src/backend/utils/adt/datetime.c).
func disordered(style, order string) bool {
	switch style {
	case "german":
		return order != "dmy"
	case "sql", "postgres":
		return order == "ymd"
	}
	return false
}

// senders are the functions that give the binary form of the types that have printers.
var senders = map[uint32]string{
	pgoid.Float4: "float4send", pgoid.Float8: "float8send", pgoid.Date: "date_send", pgoid.Timestamp: "timestamp_send", pgoid.Timestamptz: "timestamptz_send", oidPoint: "point_send",
	oidFloat4s: "array_send", oidFloat8s: "array_send", oidDates: "array_send", oidTimestamps: "array_send", oidTimestamptzs: "array_send", oidTstzrange: "range_send",
}

// Printed is SQL for a value of a type whose result [PrintedText] makes the value's text, as every session reads it.
func Printed(oid uint32, value string) string {
	if send := senders[oid]; send != "" {
		return "pg_catalog.encode(pg_catalog." + send + "(" + value + "), 'hex')"
	}
	return value
}

// PrintedText is the text of a value of a type that came as [Printed]. XX000 if it is no such result.
func PrintedText(oid uint32, v string) ([]byte, error) {
	if senders[oid] == "" {
		return []byte(v), nil
	}
	b, err := hex.DecodeString(v)
	if err == nil {
		b, err = printerOf(oid)(nil, b)
	}
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "a shard gave an unreadable value")
	}
	return b, nil
}

// Lossy looks for a value whose text might change under the settings, among values of types of which some came as [Printed], and asks the shard
// of those types about what is inside them. n is -1 if there is none, setting and want the setting that does it and a value that does not.
func Lossy(s *executor.Settings, oids []uint32, ask func(sql string) (*engine.Result, error)) (n int, setting, want string, err error) {
	printed := make([]bool, len(oids))
	for i, o := range oids {
		printed[i] = senders[o] != ""
	}
	return unfaithfulIn(s).among(oids, printed, ask)
}

func (u unfaithful) among(oids []uint32, printed []bool, ask func(sql string) (*engine.Result, error)) (n int, setting, want string, err error) {
	list, styled := make([]string, len(oids)), false
	for i, o := range oids {
		list[i] = strconv.FormatUint(uint64(o), 10)
		styled = styled || !unstyled[o]
	}
	if u == (unfaithful{}) || !styled {
		return -1, "", "", nil
	}
	res, err := ask(fmt.Sprintf(inside, "{"+strings.Join(list, ",")+"}"))
	if err != nil {
		return -1, "", "", err
	}
	for _, r := range res.Rows {
		n, err := strconv.Atoi(r[0].String)
		if err != nil || n < 1 || n > len(oids) {
			return -1, "", "", sqlstate.New(sqlstate.ProtocolViolation, "a shard answered for a type that it was not asked of")
		}
		if setting, want := u.differs(r[1].String, printed[n-1]); setting != "" {
			return n - 1, setting, want, nil
		}
	}
	return -1, "", "", nil
}

// differs is the setting under which a shard prints or reads values of a kind otherwise, and what it should be.
func (u unfaithful) differs(kind string, printed bool) (setting, want string) {
	switch {
	case kind == "f" && u.rounded && !printed:
		return "extra_float_digits", "1"
	case kind == "z" && u.zones && !printed, kind == "d" && u.days && !printed:
		return "DateStyle", "ISO"
	case kind == "a" && u.nulls:
		return "array_nulls", "on"
	case kind == "x" && u.documents:
		return "xmloption", "content"
	}
	return "", ""
}

// Faithful refuses columns, in the body of a RowDescription, whose texts may not give their values back under the
// settings: 0A000.
func Faithful(s *executor.Settings, columns []byte) error {
	u := unfaithfulIn(s)
	if u == (unfaithful{}) {
		return nil
	}
	for _, f := range wire.ReadFields(columns) {
		ok := unstyled[f.TypeOID] || readBack[f.TypeOID]
		switch f.TypeOID {
		case pgoid.Float4, pgoid.Float8:
			ok = !u.rounded
		case pgoid.Timestamptz:
			ok = !u.zones
		case pgoid.Date, pgoid.Timestamp:
			ok = !u.days
		}
		if !ok {
			return sqlstate.Refusal("CLV-0205", "the values of column %q have to go from shard to shard, and the session's settings might change them on the way", f.Name).
				WithHint("Run SET extra_float_digits TO 1, DateStyle TO ISO, array_nulls TO on and xmloption TO content first.")
		}
	}
	return nil
}

// readBack are types, besides unstyled, whose texts are read back as what they are under the settings that printed them; dates are
// where [disordered] does not hold.
var readBack = map[uint32]bool{
	pgoid.Bytea: true, pgoid.Date: true, pgoid.Timestamp: true, pgoid.Interval: true, pgoid.Money: true, oidJSON: true, oidJSONB: true,
}

// isTrue reports whether a value is certainly one that PostgreSQL takes for on.
func isTrue(v string) bool {
	switch strings.ToLower(v) {
	case "on", "true", "yes", "1", "t", "y":
		return true
	}
	return false
}

// geometric are types that hold floating-point numbers, of which pg_type does not tell.
const geometric = "600, 601, 602, 603, 604, 628, 718"

// inside asks, for types numbered by $1, which leaves of what kind are inside: f of numbers that are rounded,
// z of moments, d of dates and times without a zone, a of arrays, x of XML.
const inside = `WITH RECURSIVE t(n, o) AS (
SELECT n::int, o FROM pg_catalog.unnest('%s'::pg_catalog.oid[]) WITH ORDINALITY AS u(o, n)
UNION SELECT t.n, x.o FROM t JOIN pg_catalog.pg_type y ON y.oid = t.o CROSS JOIN LATERAL (
SELECT y.typelem UNION ALL SELECT y.typbasetype
UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = y.oid OR pg_catalog.to_jsonb(r)->>'rngmultitypid' = y.oid::text
UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE y.typrelid <> 0 AND a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS x(o) WHERE x.o <> 0)
SELECT DISTINCT n::text, CASE WHEN o IN (700, 701, ` + geometric + `) OR o >= 16384 AND typtype = 'b' AND typelem = 0 AND typoutput >= 16384 THEN 'f'
WHEN o = 1184 THEN 'z' WHEN o IN (1082, 1114) THEN 'd' WHEN typcategory = 'A' THEN 'a' WHEN o = 142 THEN 'x' END
FROM t JOIN pg_catalog.pg_type y ON y.oid = t.o ORDER BY 1, 2`

// faithful refuses to carry columns in texts that may not give their values back. as says which of them came in binary; a domain's values,
// which the router does not know by its number, come as texts.
func (c *runner) faithful(p *txn.Participant, fields []wire.Field, as *carried) error {
	u := unfaithfulIn(c.host.Settings())
	if u == (unfaithful{}) || !c.Can(p.Shard).Styles {
		return nil
	}
	var of []wire.Field
	var printed []bool
	for i, f := range fields {
		if !unstyled[f.TypeOID] {
			of, printed = append(of, f), append(printed, as != nil && i < len(as.print) && as.print[i] != nil)
		}
	}
	if len(of) == 0 {
		return nil
	}
	own, err := p.Conn.OIDs(oidsOf(of), true)
	if err != nil {
		return c.Failure(p, unnumbered(p.Conn, err))
	}
	n, setting, want, err := u.among(own, printed, func(sql string) (*engine.Result, error) { return c.Exec(p, sql) })
	if err != nil || n < 0 {
		return err
	}
	return sqlstate.Refusal("CLV-0206", "the values of column %q have to go from shard to shard, and the setting %s might change them on the way", of[n].Name, setting).
		WithHint("Run SET %s = %s.", setting, want)
}
