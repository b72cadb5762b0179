package several

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/executor/several/copydata"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

func itoa(n int) string { return strconv.Itoa(n) }

// fetched is a plan.Relation while it is fetched.
type fetched struct {
	r      *plan.Relation
	shards []string
	// format is that of its rows: 1 binary, 0 text.
	format int16
	as     *carried     // of text, where the settings may print what does not give the values back
	fields []wire.Field // nil until the first shard has said
	kept   []byte       // DataRow frames, as long as they are few
	loaded bool         // it is a temporary table
	rows   int64
	bytes  int64
	frames []byte // for the text format
}

// formatFor is the format in which a relation's rows are fetched: text as soon as
// a type is a database's own.
func (r *fetched) known() int16 {
	if t := r.r.Table; t != nil {
		for i := range t.Columns {
			if t.Columns[i].OID >= firstUserOID {
				return 0
			}
		}
	}
	return 1
}

// readable reports whether its rows mean the same on every shard in the format
// that they come in.
func (r *fetched) readable() bool {
	if r.format == 0 {
		return true
	}
	for i := range r.fields {
		if r.fields[i].TypeOID >= firstUserOID {
			return false
		}
	}
	return true
}

// legible refuses values that nothing can hold.
func (r *fetched) legible() error {
	for i := range r.fields {
		if o := r.fields[i].TypeOID; o == pgoid.Record || o == pgoid.RecordArray {
			return sqlstate.Refusal("CLV-0201", "rows without a type of their own, ROW(...), cannot be brought together from several shards").
				WithHint("Name a type: ROW(...)::name, or use the columns.")
		}
	}
	return nil
}

// names are its columns' names, quoted.
func (r *fetched) names() string {
	var b strings.Builder
	for i := range r.fields {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(r.fields[i].Name))
	}
	return b.String()
}

// has reports whether it has all of the columns.
func (r *fetched) has(cols []string) bool {
	for _, c := range cols {
		found := false
		for i := range r.fields {
			found = found || r.fields[i].Name == c
		}
		if !found {
			return false
		}
	}
	return len(cols) > 0
}

// inline returns the relation as a WITH query of the few rows that it has, which
// become parameters. Types are those of the parameters; collations are those of
// the relation's own text, of which no row is read.
func (r *fetched) inline(in *inputs) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s(%s) AS (SELECT * FROM (%s) AS cleave_t WHERE false", r.r.Name, r.names(), r.r.Text)
	var cells [][]byte
	for first, rows := true, r.kept; len(rows) > 0; {
		n := 1 + int(binary.BigEndian.Uint32(rows[1:]))
		var err error
		if cells, err = wire.SplitRow(rows[wire.Header:n], cells[:0]); err != nil || len(cells) != len(r.fields) {
			return "", sqlstate.New(sqlstate.InternalError, "a shard sent a row with %d columns in place of %d", len(cells), len(r.fields))
		}
		rows = rows[n:]
		if first {
			b.WriteString(" UNION ALL VALUES (")
		} else {
			b.WriteString(", (")
		}
		first = false
		for i, v := range cells {
			if i > 0 {
				b.WriteString(", ")
			}
			in.add(r.fields[i].TypeOID, r.format, v)
			b.WriteString("$" + itoa(len(in.values)))
		}
		b.WriteByte(')')
	}
	b.WriteByte(')')
	return b.String(), nil
}

func copyFrame(data []byte) []byte {
	frame, m := wire.Begin(nil, wire.CopyDataF)
	return wire.End(append(frame, data...), m)
}

// copied turns DataRow frames into CopyData frames. In binary the bodies are the
// same, so that only the frames' types change, in place.
func (r *fetched) copied(frames []byte) ([]byte, error) {
	if r.format == 1 {
		for at := 0; at < len(frames); {
			n := 1 + int(binary.BigEndian.Uint32(frames[at+1:]))
			frames[at] = wire.CopyDataF
			at += n
		}
		return frames, nil
	}
	out := r.frames[:0]
	var cells [][]byte
	for at := 0; at < len(frames); {
		n := 1 + int(binary.BigEndian.Uint32(frames[at+1:]))
		var err error
		if cells, err = wire.SplitRow(frames[at+wire.Header:at+n], cells[:0]); err != nil {
			return nil, err
		}
		at += n
		var m int
		out, m = wire.Begin(out, wire.CopyDataF)
		for i, v := range cells {
			if i > 0 {
				out = append(out, '\t')
			}
			out = appendCopyText(out, v)
		}
		out = wire.End(append(out, '\n'), m)
	}
	r.frames = out
	return out, nil
}

// appendCopyText writes a value as COPY's text format has it.
func appendCopyText(out, v []byte) []byte {
	if v == nil {
		return append(out, '\\', 'N')
	}
	return copydata.AppendText(out, v, '\t')
}
