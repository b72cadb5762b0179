package several

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// What a statement that writes has to read first is held by the router, in text,
// and goes to the shards as array parameters: a transaction that has touched a
// temporary table cannot be prepared, so that none can be made on a shard that
// writes.

// rowset are the rows of a read, in text. The values share memory with what came
// from the shards.
type rowset struct {
	fields []wire.Field
	types  []string // of the columns, as SQL spells them
	rows   [][][]byte
	bytes  int64
}

// firstUserOID: types from here on are a database's own. Here they have the
// numbers that clients know, those of the default shard.
const firstUserOID = executor.FirstUserOID

// parameters are those of an execution's texts: the client's, then the time of the
// transaction. The slices are the caller's.
func (e *execution) parameters() (q request) {
	n := len(e.args.Values)
	q = request{oids: make([]uint32, n, n+8), formats: make([]int16, n, n+8), values: make([][]byte, n, n+8)}
	copy(q.oids, e.desc.params)
	copy(q.values, e.args.Values)
	for i := range q.formats {
		switch f := e.args.Formats; {
		case len(f) == 1:
			q.formats[i] = f[0]
		case i < len(f):
			q.formats[i] = f[i]
		}
	}
	if p := e.st.Plan; p == nil || !p.Clock {
		q.add(pgoid.Timestamptz, 0, nil) // the time's place stays free
	}
	return q
}

// add adds a parameter and returns its number.
func (q *request) add(oid uint32, format int16, value []byte) int {
	q.oids = append(q.oids, oid)
	q.formats = append(q.formats, format)
	q.values = append(q.values, value)
	return len(q.values)
}

// clone returns a request whose parameters can be added to.
func (q *request) clone() request {
	o := *q
	o.oids = append([]uint32(nil), q.oids...)
	o.formats = append([]int16(nil), q.formats...)
	o.values = append([][]byte(nil), q.values...)
	return o
}

// only leaves out the values of parameters that the text does not name: each shard
// gets its own rows' values.
func (q *request) only(text string) {
	used := make([]bool, len(q.values)+1)
	for i := strings.IndexByte(text, '$'); i >= 0 && i < len(text); {
		n, at := 0, i+1
		for at < len(text) && text[at] >= '0' && text[at] <= '9' && n <= len(q.values) {
			n = 10*n + int(text[at]-'0')
			at++
		}
		if n < len(used) {
			used[n] = true
		}
		next := strings.IndexByte(text[at:], '$')
		if next < 0 {
			break
		}
		i = at + next
	}
	for i := range q.values {
		if !used[i+1] {
			q.oids[i], q.formats[i], q.values[i] = pgoid.Text, 0, nil
		}
	}
}

// collect runs a read that is a part of execution e, in the same transaction, and
// returns its rows.
func (c *runner) collect(ctx context.Context, e *execution, st *plan.Statement, left *limits.Allowance) (*rowset, error) {
	set, j, err := c.read(ctx, e, st)
	if err != nil {
		return nil, err
	}
	err = c.each(j, func(body []byte) error { return set.add(body, left) })
	if err != nil {
		return nil, err
	}
	return set, nil
}

// read begins a read that is a part of execution e, in the same transaction. The rowset
// has its columns, and no rows yet.
func (c *runner) read(ctx context.Context, e *execution, st *plan.Statement) (*rowset, job, error) {
	n := min(st.Params, len(e.args.Values))
	args := &plan.Args{Values: e.args.Values[:n], Formats: e.args.Formats, OIDs: e.args.OIDs}
	if len(args.Formats) > n && len(args.Formats) > 1 {
		args.Formats = args.Formats[:n]
	}
	if len(args.OIDs) > n {
		args.OIDs = args.OIDs[:n]
	}
	desc, err := c.describe(ctx, st, args.OIDs)
	if err != nil {
		// The whole statement was understood by a shard, so that it is the cut that is wrong.
		if se := sqlstate.As(err); se.Code == sqlstate.UndefinedColumn || se.Code == sqlstate.UndefinedTable {
			return nil, nil, sqlstate.Refusal("CLV-0215", "a subquery of this statement cannot be answered by itself: %s", se.Message).
				WithHint("Qualify its columns with their tables' names, or run it first.")
		}
		return nil, nil, err
	}
	set := &rowset{fields: desc.fields}
	if set.types, err = c.typesOf(ctx, st, set); err != nil {
		return nil, nil, err
	}
	as := carriedAs(0, oidsOf(set.fields))
	j, err := c.begins(ctx, &execution{st: st, args: args, desc: desc, results: as.formats(nil)})
	if err != nil {
		return nil, nil, err
	}
	return set, &carriage{j, as}, nil
}

// each gives the rows of a read, one DataRow's body after the other, which is good
// during the call. It stops the read at the first error.
func (c *runner) each(j job, row func(body []byte) error) error {
	var buf []byte
	for {
		frames, done, _, err := j.step(buf[:0], 0)
		if err == nil {
			err = context.Cause(c.Ctx)
		}
		for rest := frames; err == nil && len(rest) >= wire.Header; {
			n := 1 + int(binary.BigEndian.Uint32(rest[1:]))
			if rest[0] == wire.DataRow {
				err = row(rest[wire.Header:n])
			}
			rest = rest[n:]
		}
		if err != nil {
			j.stop()
			return err
		}
		if done {
			return nil
		}
		buf = frames
	}
}

// add keeps a copy of a DataRow's body.
func (s *rowset) add(body []byte, left *limits.Allowance) error {
	if err := left.Take(len(body)); err != nil {
		return err
	}
	s.bytes += int64(len(body))
	row, err := wire.SplitRow(append([]byte(nil), body...), nil)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
	}
	s.rows = append(s.rows, row)
	return nil
}

// typesOf returns the names of a read's column types.
func (c *runner) typesOf(ctx context.Context, st *plan.Statement, set *rowset) ([]string, error) {
	p, err := c.Participant(ctx, c.describerOf(st), false)
	if err != nil {
		return nil, err
	}
	types, err := c.typeNames(p, set.fields)
	if err == nil {
		err = c.faithful(p, set.fields, carriedAs(0, oidsOf(set.fields)))
	}
	return types, err
}

// typeNames asks a part for the names of types.
func (c *runner) typeNames(p *txn.Participant, fields []wire.Field) ([]string, error) {
	types := make([]string, len(fields))
	own := make([]uint32, len(fields))
	for i, f := range fields {
		own[i] = f.TypeOID
	}
	own, err := p.Conn.OIDs(own, true)
	if err != nil {
		return nil, c.Failure(p, unnumbered(p.Conn, err))
	}
	var ask []string
	for i, f := range fields {
		if f.TypeOID == pgoid.Record {
			return nil, sqlstate.Refusal("CLV-0216", "column %q is a record, which has no type that the router could name to another shard", f.Name).
				WithHint("Select its fields one by one.")
		}
		if name := builtinTypes[f.TypeOID]; name != "" && f.TypeMod < 0 {
			types[i] = name
			continue
		}
		ask = append(ask, fmt.Sprintf("pg_catalog.format_type(%d, %d)", own[i], f.TypeMod))
	}
	if len(ask) == 0 {
		return types, nil
	}
	res, err := c.Exec(p, "SELECT "+strings.Join(ask, ", "))
	if err != nil {
		return nil, err
	}
	names, err := res.OneRow(len(ask), p.Shard)
	if err != nil {
		return nil, err
	}
	for i := range types {
		if types[i] == "" {
			types[i], names = names[0].String, names[1:]
		}
	}
	return types, nil
}

// builtinTypes are the names of types that need no question.
var builtinTypes = map[uint32]string{
	16: "boolean", 17: "bytea", 19: "name", 20: "bigint", 21: "smallint", 23: "integer", 25: "text", 114: "json", 700: "real", 701: "double precision",
	1043: "character varying", 1082: "date", 1083: "time without time zone", 1114: "timestamp without time zone", 1184: "timestamp with time zone",
	1186: "interval", 1266: "time with time zone", 1700: "numeric", 2950: "uuid", 3802: "jsonb", 1007: "integer[]", 1009: "text[]", 1016: "bigint[]",
}

// relation adds the rows to a request's parameters and returns what stands for
// them in FROM. Without names columns have the names that they were read with.
func (s *rowset) relation(q *request) string {
	return unnested(q, s.rows, len(s.fields), func(i int) (name, typ string) { return s.fields[i].Name, s.types[i] })
}

func unnested(q *request, rows [][][]byte, width int, column func(i int) (name, typ string)) string {
	if width == 0 {
		// Rows without columns: their number is all that there is.
		return fmt.Sprintf("(SELECT FROM pg_catalog.generate_series(1, %d))", len(rows))
	}
	var b, args, names strings.Builder
	b.WriteString("(SELECT ")
	for i := range width {
		n := q.add(pgoid.TextArray, 1, textArray(rows, i))
		name, typ := column(i)
		if i > 0 {
			b.WriteString(", ")
			args.WriteString(", ")
			names.WriteString(", ")
		}
		fmt.Fprintf(&b, "v.c%d::%s AS %s", i, typ, quote(name))
		fmt.Fprintf(&args, "pg_catalog.unnest($%d::text[])", n)
		fmt.Fprintf(&names, "c%d", i)
	}
	fmt.Fprintf(&b, " FROM ROWS FROM (%s) AS v(%s))", args.String(), names.String())
	return b.String()
}

// textArray is a text[] of one column, in binary.
func textArray(rows [][][]byte, column int) []byte {
	size := 20
	for _, r := range rows {
		size += 4 + len(r[column])
	}
	out := make([]byte, 0, size)
	if len(rows) == 0 {
		return append(out, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(pgoid.Text))
	}
	out = wire.AppendInt32(out, 1)
	out = wire.AppendInt32(out, 1) // there may be NULLs
	out = wire.AppendInt32(out, int32(pgoid.Text))
	out = wire.AppendInt32(out, int32(len(rows)))
	out = wire.AppendInt32(out, 1)
	for _, r := range rows {
		out = wire.AppendValue(out, r[column])
	}
	return out
}

// assigned is the type that a value of a column is sent with, so that the
// assignment to a table's column does what it does in an INSERT ... SELECT: the
// type that it was read with, but that of the table's column for a literal
// without type, which a SELECT by itself calls text.
func assigned(f wire.Field, typ string, to *shardmap.Column) string {
	if f.TypeOID != pgoid.Text || to.Type == "" {
		return typ
	}
	base, _, _ := strings.Cut(to.Type, "(")
	switch base {
	case "text", "character varying", "character", "name", `"char"`:
		return typ
	case "bit":
		base = `pg_catalog."bit"` // bit alone is bit(1)
		return base + strings.TrimPrefix(to.Type[3:], modifier(to.Type[3:]))
	}
	return base + strings.TrimPrefix(to.Type[len(base):], modifier(to.Type[len(base):]))
}

// modifier is the part of a type's name in brackets, at its beginning.
func modifier(s string) string {
	if i := strings.IndexByte(s, ')'); strings.HasPrefix(s, "(") && i > 0 {
		return s[:i+1]
	}
	return ""
}

// results are the formats of the client's columns, and text for hidden ones after them.
func (e *execution) columnFormats(hidden int) []int16 {
	if hidden == 0 {
		return e.results
	}
	n := len(e.desc.fields)
	out := make([]int16, n+hidden)
	for i := range n {
		switch {
		case len(e.results) == 1:
			out[i] = e.results[0]
		case i < len(e.results):
			out[i] = e.results[i]
		}
	}
	return out
}

// answer is a job whose rows are all there.
type answer struct {
	rows [][]byte // DataRow frames
	at   int
	tag  string
}

func (j *answer) step(out []byte, rows int32) ([]byte, bool, string, error) {
	from, n := len(out), int32(0)
	for j.at < len(j.rows) && len(out)-from < outputChunk && (rows <= 0 || n < rows) {
		out = append(out, j.rows[j.at]...)
		j.rows[j.at] = nil
		j.at++
		n++
	}
	return out, j.at == len(j.rows), j.tag, nil
}

func (j *answer) stop() { j.rows = nil }

// dataRow makes a frame of a DataRow's body, without its last columns.
func dataRow(body []byte, hidden int) ([]byte, error) {
	if hidden == 0 {
		out := make([]byte, 0, wire.Header+len(body))
		out = append(out, wire.DataRow)
		out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
		return append(out, body...), nil
	}
	vals, err := wire.SplitRow(body, nil)
	if err != nil || len(vals) < hidden {
		return nil, sqlstate.Wrap(err, sqlstate.ProtocolViolation, "a shard sent a malformed row")
	}
	return wire.AppendDataRow(nil, vals[:len(vals)-hidden]), nil
}

// counted is a tag's number of rows.
func counted(tag string) int64 {
	n, _ := strconv.ParseInt(tag[strings.LastIndexByte(tag, ' ')+1:], 10, 64)
	return n
}

// finished is the tag of a statement that changed n rows.
func finished(st *plan.Statement, n int64) string {
	if st.Tag == "INSERT" {
		return "INSERT 0 " + strconv.FormatInt(n, 10)
	}
	return st.Tag + " " + strconv.FormatInt(n, 10)
}

// literalOf is a value in the text of a statement.
func literalOf(v []byte, typ string) string {
	out := "NULL"
	if v != nil {
		out = executor.QuoteLiteral(string(v))
	}
	if typ != "" {
		out += "::" + typ
	}
	return out
}
