package several

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor/several/copydata"
	"github.com/cleavedb/cleave/sqlstate"
)

// headed takes the header, for all shards.
func (j *copyIn) headed(head []byte, lines int) error {
	j.head, j.begun, j.headLines = bytes.Clone(head), true, int64(lines)
	j.line += int64(lines)
	for _, t := range j.parts {
		t.buf = append(t.buf, j.head...)
		if lines > 0 {
			t.lines.Add(j.line, lines, len(head))
		}
	}
	return nil
}

// header is the line of names with those of the columns that the router fills.
func (j *copyIn) header(line []byte) []byte {
	if len(j.p.MadeFor) == 0 {
		return line
	}
	var out []byte
	for _, col := range j.p.MadeFor {
		if j.p.CSV {
			out = copydata.AppendCSV(out, []byte(col.Name), &j.p.CopyFormat, true)
		} else {
			out = copydata.AppendText(out, []byte(col.Name), j.p.Delimiter)
		}
		out = append(out, j.p.Delimiter)
	}
	return append(out, line...)
}

// matches compares the line of names with the columns, for HEADER MATCH: the shards would count the columns that
// the router fills (NextCopyFromRawFields of copyfromparse.c). What it cannot read is theirs to refuse.
func (j *copyIn) matches(line []byte) error {
	if !j.p.Match {
		return nil
	}
	names := j.p.Columns
	if len(names) == 0 {
		for i := range j.p.Table.Columns {
			if c := &j.p.Table.Columns[i]; !c.Computed {
				names = append(names, c.Name)
			}
		}
	}
	plain := j.p.CopyFormat
	plain.ForceNull, plain.ForceNotNull = nil, nil
	k := &copydata.Fields{Format: &plain, ForceNull: []bool{false}, ForceNotNull: []bool{false}}
	var got [][]byte
	for at := 0; at >= 0; {
		var value []byte
		var ok bool
		value, at, ok = k.Value(line, at, 0)
		if !ok {
			return nil
		}
		got = append(got, value)
	}
	what := ""
	if len(got) != len(names) {
		what = fmt.Sprintf("wrong number of fields in header line: got %d, expected %d", len(got), len(names))
	}
	for i := 0; i < len(names) && what == ""; i++ {
		switch {
		case got[i] == nil:
			what = fmt.Sprintf("column name mismatch in header line field %d: got null value (\"%s\"), expected \"%s\"", i+1, plain.Null, names[i])
		case string(got[i]) != names[i]:
			what = fmt.Sprintf("column name mismatch in header line field %d: got \"%s\", expected \"%s\"", i+1, got[i], names[i])
		}
	}
	if what == "" {
		return nil
	}
	e := sqlstate.New(sqlstate.BadFileFormat, "%s", what)
	e.Where = fmt.Sprintf("COPY %s, line 1: \"%s\"", j.p.Table.Name, clipped(line))
	return e
}

// clipped is a line of the data as errors show it: its first 100 bytes.
func clipped(line []byte) string {
	const most = 100
	if len(line) <= most {
		return string(line)
	}
	n := most
	for n > 0 && !utf8.RuneStart(line[n]) {
		n--
	}
	return string(line[:n]) + "..."
}
