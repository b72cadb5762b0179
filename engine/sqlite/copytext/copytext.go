package copytext

import (
	"bufio"
	"io"
	"strings"

	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// COPY's text format: a row is a line, columns are separated by tabs, NULL is \N,
// and a backslash escapes what would be taken for one of these.

// Null is NULL in COPY's text format.
const Null = `\N`

// AppendEscaped appends dst[from:] escaped, in place of what it was.
func AppendEscaped(dst []byte, from int) []byte {
	i := from
	for i < len(dst) && copyEscape(dst[i]) == 0 {
		i++
	}
	if i == len(dst) {
		return dst
	}
	rest := string(dst[i:])
	dst = dst[:i]
	for i := range len(rest) {
		if e := copyEscape(rest[i]); e != 0 {
			dst = append(dst, '\\', e)
		} else {
			dst = append(dst, rest[i])
		}
	}
	return dst
}

// copyEscape is the letter that stands for the byte after a backslash, 0 if it
// stands for itself.
func copyEscape(b byte) byte {
	if b > '\r' && b != '\\' {
		return 0
	}
	switch b {
	case '\\':
		return '\\'
	case '\b':
		return 'b'
	case '\f':
		return 'f'
	case '\n':
		return 'n'
	case '\r':
		return 'r'
	case '\t':
		return 't'
	case '\v':
		return 'v'
	}
	return 0
}

// Field is a column's value in COPY's text format, unescaped.
type Field struct {
	Text string
	Null bool
}

// Split cuts a line (without its end) into fields, which it appends.
func Split(dst []Field, line string) ([]Field, error) {
	for {
		field, rest, more := strings.Cut(line, "\t")
		if strings.IndexByte(field, '\\') < 0 {
			dst = append(dst, Field{Text: field})
		} else if field == Null {
			dst = append(dst, Field{Null: true})
		} else {
			// An escaped tab is part of the value.
			n, text, err := unescapeCopy(line)
			if err != nil {
				return dst, err
			}
			dst = append(dst, Field{Text: text})
			more = n < len(line)
			if more {
				rest = line[n+1:]
			}
		}
		if !more {
			return dst, nil
		}
		line = rest
	}
}

// unescapeCopy reads one field and returns its length in the line.
func unescapeCopy(line string) (n int, text string, err error) {
	out := make([]byte, 0, len(line))
	for i := 0; i < len(line); {
		b := line[i]
		if b == '\t' {
			return i, string(out), nil
		}
		i++
		if b != '\\' {
			out = append(out, b)
			continue
		}
		if i == len(line) {
			return 0, "", sqlstate.New(sqlstate.BadFileFormat, "a line of COPY's data ends with a backslash")
		}
		b, i = escaped(line, i)
		out = append(out, b)
	}
	return len(line), string(out), nil
}

func hexDigit(c byte) int {
	switch {
	case c <= '9':
		return int(c - '0')
	case c >= 'a':
		return int(c-'a') + 10
	}
	return int(c-'A') + 10
}

// Reader gives the lines of COPY's text format.
type Reader struct {
	r    *bufio.Reader
	long []byte
}

// NewReader reads the lines of a stream in the text form.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 128<<10)} }

// Line returns the next line without its end, io.EOF after the last one or after
// the line "\.".
func (c *Reader) Line() (string, error) {
	c.long = c.long[:0]
	for {
		piece, err := c.r.ReadSlice('\n')
		if err == bufio.ErrBufferFull || len(c.long) > 0 || err != nil {
			c.long = append(c.long, piece...)
			piece = c.long
		}
		if err == bufio.ErrBufferFull {
			if len(c.long) > value.Max+(64<<20) {
				return "", value.TooBig()
			}
			continue
		}
		if err != nil && (err != io.EOF || len(piece) == 0) {
			return "", err
		}
		s := strings.TrimSuffix(string(piece), "\n")
		s = strings.TrimSuffix(s, "\r")
		if s == `\.` {
			return "", io.EOF
		}
		return s, nil
	}
}
