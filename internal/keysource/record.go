package keysource

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// columnsMax bounds the columns of a file.
const columnsMax = 4096

// records reads one format.
type records interface {
	// header reads the names of the columns; next begins after it.
	header() ([]string, error)
	// next returns the values of these columns, valid until the next call; io.EOF at the end.
	next(columns []int) ([][]byte, error)
	// line is the number of the line that was read last, from 1.
	line() int
}

func (f *file) records(r io.Reader) records {
	b := bufio.NewReaderSize(r, 64<<10)
	if mark, err := b.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
		_, _ = b.Discard(len(byteOrderMark)) // it was peeked
	}
	switch f.format {
	case "csv":
		limit := &recordLimit{r: b}
		c := csv.NewReader(limit)
		c.ReuseRecord = true
		return &csvRecords{c: c, limit: limit}
	case "tsv":
		return &lineRecords{r: b, tabs: true}
	case "jsonl":
		return &jsonRecords{lines: lineRecords{r: b}, columns: f.columns}
	}
	return &lineRecords{r: b}
}

// Rows reads all records but the header.
func (f *file) Rows(ctx context.Context, columns []int, visit func(fields [][]byte) error) error {
	r, err := f.reader(ctx)
	if err != nil {
		return err
	}
	rd := f.records(r)
	if f.format == "csv" || f.format == "tsv" {
		if _, err := rd.header(); err != nil {
			return f.at(rd, err)
		}
	}
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		fields, err := rd.next(columns)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return f.at(rd, err)
		}
		if err := visit(fields); err != nil {
			if errors.Is(err, context.Canceled) {
				return err
			}
			return f.at(rd, err)
		}
	}
}

func tooLong() error {
	return sqlstate.New(sqlstate.ProgramLimitExceeded, "a record is longer than %d MiB", recordMax>>20).
		WithHint("a quote that is not closed, or lines that end otherwise than with a newline, make one record of many")
}

func badHeader(why string) error {
	return sqlstate.New(sqlstate.BadFileFormat, "the header %s", why).
		WithHint("the first line names the columns; for a file of one key a line without a header: --format lines")
}

func checkHeader(names []string) ([]string, error) {
	if len(names) > columnsMax {
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "the header has %d columns, more than %d", len(names), columnsMax).WithHint("is it CSV? see --format")
	}
	seen := map[string]bool{}
	out := make([]string, len(names))
	for i, n := range names {
		n = strings.ToValidUTF8(strings.TrimSpace(n), "�")
		if n == "" {
			return nil, badHeader("has a column without a name")
		}
		if seen[n] {
			return nil, badHeader("has the column " + n + " twice")
		}
		seen[n], out[i] = true, n
	}
	return out, nil
}

// recordLimit ends a record that does not end: encoding/csv would hold all of
// it. Its reader takes blocks, so what was given out since the last
// whole record is the length of the next one at most, and a block.
type recordLimit struct {
	r     io.Reader
	since int
}

func (l *recordLimit) Read(p []byte) (int, error) {
	if l.since > recordMax {
		return 0, tooLong()
	}
	n, err := l.r.Read(p)
	l.since += n
	return n, err
}

type csvRecords struct {
	c      *csv.Reader
	limit  *recordLimit
	fields [][]byte
	buf    []byte
	at     int
}

func (r *csvRecords) header() ([]string, error) {
	rec, err := r.c.Read()
	if err != nil {
		return nil, err
	}
	r.at, _ = r.c.FieldPos(0)
	r.limit.since = 0
	return checkHeader(rec)
}

func (r *csvRecords) line() int { return r.at }

func (r *csvRecords) next(columns []int) ([][]byte, error) {
	rec, err := r.c.Read()
	if err != nil {
		return nil, err
	}
	r.limit.since = 0
	r.at, _ = r.c.FieldPos(0)
	r.fields, r.buf = r.fields[:0], r.buf[:0]
	for _, c := range columns {
		from := len(r.buf)
		r.buf = append(r.buf, rec[c]...)
		r.fields = append(r.fields, r.buf[from:len(r.buf):len(r.buf)])
	}
	for i, c := range columns {
		if rec[c] == `\N` {
			r.fields[i] = nil
		}
	}
	return r.fields, nil
}

// lineRecords are lines, or lines of values with tabs between them, as
// PostgreSQL's COPY writes them: \N is NULL, and a backslash escapes.
type lineRecords struct {
	r      *bufio.Reader
	tabs   bool
	width  int
	long   []byte
	all    [][]byte
	fields [][]byte
	at     int
}

func (r *lineRecords) line() int { return r.at }

// read returns a line without its end.
func (r *lineRecords) read() ([]byte, error) {
	r.at++
	line, err := r.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		r.long = r.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			if r.long = append(r.long, line...); len(r.long) > recordMax {
				return nil, tooLong()
			}
			line, err = r.r.ReadSlice('\n')
		}
		r.long = append(r.long, line...)
		line = r.long
	}
	if err == io.EOF && len(line) > 0 {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

func (r *lineRecords) header() ([]string, error) {
	line, err := r.read()
	if err != nil {
		return nil, err
	}
	names, err := checkHeader(strings.Split(string(line), "\t"))
	r.width = len(names)
	return names, err
}

func (r *lineRecords) next(columns []int) ([][]byte, error) {
	line, err := r.read()
	if err != nil {
		return nil, err
	}
	r.fields = r.fields[:0]
	if !r.tabs {
		if string(line) == `\N` {
			return append(r.fields, nil), nil
		}
		return append(r.fields, line), nil
	}
	r.all = r.all[:0]
	for {
		i := bytes.IndexByte(line, '\t')
		if i < 0 {
			r.all = append(r.all, line)
			break
		}
		r.all = append(r.all, line[:i])
		line = line[i+1:]
	}
	if len(r.all) != r.width {
		return nil, sqlstate.New(sqlstate.BadFileFormat, "%d values for %d columns", len(r.all), r.width).
			WithHint("each line has the header's number of tabs")
	}
	for _, c := range columns {
		r.fields = append(r.fields, unescape(r.all[c]))
	}
	return r.fields, nil
}

// unescape undoes the escapes of COPY's text format.
func unescape(v []byte) []byte {
	if bytes.IndexByte(v, '\\') < 0 {
		return v
	}
	if string(v) == `\N` {
		return nil
	}
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		c := v[i]
		if c == '\\' && i+1 < len(v) {
			i++
			if c = v[i]; strings.IndexByte("bfnrtv", c) >= 0 {
				c = map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}[c]
			}
		}
		out = append(out, c)
	}
	return out
}

// jsonRecords are JSON objects, one a line. The first one's members are the columns.
type jsonRecords struct {
	lines   lineRecords
	columns []string
	fields  [][]byte
}

func (r *jsonRecords) line() int { return r.lines.at }

func (r *jsonRecords) header() ([]string, error) {
	line, err := r.lines.read()
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, notJSON()
	}
	var names []string
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, notJSON()
		}
		names = append(names, name.(string))
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, notJSON()
		}
	}
	return checkHeader(names)
}

func notJSON() error {
	return sqlstate.New(sqlstate.BadFileFormat, "is not a JSON object").WithHint(`write one object a line: {"tenant": 7}`)
}

func (r *jsonRecords) next(columns []int) ([][]byte, error) {
	line, err := r.lines.read()
	for err == nil && len(bytes.TrimSpace(line)) == 0 {
		line, err = r.lines.read()
	}
	if err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return nil, notJSON()
	}
	r.fields = r.fields[:0]
	for _, c := range columns {
		v := object[r.columns[c]]
		switch {
		case v == nil || string(v) == "null":
			r.fields = append(r.fields, nil)
		case v[0] == '"':
			var s string
			if err := json.Unmarshal(v, &s); err != nil {
				return nil, notJSON()
			}
			r.fields = append(r.fields, []byte(s))
		case v[0] == '{' || v[0] == '[':
			return nil, sqlstate.New(sqlstate.BadFileFormat, "%s is not a single value", r.columns[c]).WithHint("choose a member that is a text, a number or a boolean")
		default:
			r.fields = append(r.fields, v)
		}
	}
	return r.fields, nil
}
