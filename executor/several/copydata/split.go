package copydata

import (
	"bytes"
	"encoding/binary"

	"github.com/cleavedb/cleave/sqlstate"
)

// How lines end, which the first one decides (copyfromparse.c: EolType).
const (
	eolUnknown = iota
	eolNL
	eolCR
	eolCRNL
)

// Splitter finds the records of COPY's text and csv forms, as PostgreSQL's
// CopyReadLineText does. It looks at a record again only where it stopped.
type Splitter struct {
	CSV, EndMark  bool // EndMark: \. alone on a line ends csv data too (before PostgreSQL 18)
	Quote, Escape byte
	eol           int

	pos     int // how much of the record at hand was looked at
	inQuote bool
	escaped bool // the last byte was an escape inside quotes
	nl, cr  int  // line ends inside quotes
	// fresh: no record was read yet.
	started bool
}

// Record is one record in the data.
type Record struct {
	Size    int  // with its line end
	Content int  // without it, and without an end mark
	Lines   int  // how many lines PostgreSQL counts for it
	First   int  // how many a reader counts that begins with it
	Last    bool // the data ends with it: \. was met
}

// BadFile is the error of data that are malformed.
func BadFile(message, hint string) error {
	e := sqlstate.New(sqlstate.BadFileFormat, "%s", message)
	e.Hint = hint
	return e
}

func (s *Splitter) strayCR() error {
	if s.CSV {
		return BadFile("unquoted carriage return found in data", "Use quoted CSV field to represent carriage return.")
	}
	return BadFile("literal carriage return found in data", `Use "\r" to represent carriage return.`)
}

func (s *Splitter) strayNL() error {
	if s.CSV {
		return BadFile("unquoted newline found in data", "Use quoted CSV field to represent newline.")
	}
	return BadFile("literal newline found in data", `Use "\n" to represent newline.`)
}

// Next finds the record at the beginning of b; ok is false if b does not hold all
// of it. eof says that nothing follows b.
func (s *Splitter) Next(b []byte, eof bool) (r Record, ok bool, err error) {
	if s.eol == eolNL && !s.inQuote {
		if r, ok, decided := s.quick(b); decided {
			return r, ok, nil
		}
	}
	for s.pos < len(b) {
		c := b[s.pos]
		switch {
		case s.CSV && (c == s.Quote || s.inQuote):
			s.quoted(c)
			s.pos++
		case c == '\r' && s.eol == eolNL, c == '\n' && (s.eol == eolCR || s.eol == eolCRNL):
			if c == '\r' {
				return r, false, s.strayCR()
			}
			return r, false, s.strayNL()
		case c == '\n':
			s.eol = eolNL
			return s.found(b, s.pos, 1, false), true, nil
		case c == '\r' && s.eol == eolCR:
			return s.found(b, s.pos, 1, false), true, nil
		case c == '\r':
			if s.pos+1 == len(b) && !eof {
				return r, false, nil
			}
			if s.pos+1 < len(b) && b[s.pos+1] == '\n' {
				s.eol = eolCRNL
				return s.found(b, s.pos, 2, false), true, nil
			}
			if s.eol == eolCRNL {
				return r, false, s.strayCR()
			}
			s.eol = eolCR
			return s.found(b, s.pos, 1, false), true, nil
		case c == '\\' && !s.CSV:
			if s.pos+1 == len(b) {
				if !eof {
					return r, false, nil
				}
				s.pos++
				continue
			}
			if b[s.pos+1] != '.' {
				s.pos += 2 // the next byte stands for itself, a line end too
				continue
			}
			n, whole, err := s.mark(b[s.pos+2:], eof)
			if err != nil || !whole {
				return r, false, err
			}
			return s.found(b, s.pos, 2+n, true), true, nil
		default:
			s.pos++
		}
	}
	if eof && len(b) > 0 {
		return s.found(b, len(b), 0, false), true, nil
	}
	return r, false, nil
}

// quoted takes a byte of csv that is a quote, or inside quotes.
func (s *Splitter) quoted(c byte) {
	escape := s.Escape
	if escape == s.Quote {
		escape = 0
	}
	if s.inQuote && c == escape && escape != 0 {
		s.escaped = !s.escaped
	}
	if c == s.Quote && !s.escaped {
		s.inQuote = !s.inQuote
	}
	if c != escape || escape == 0 {
		s.escaped = false
	}
	if s.inQuote {
		switch c {
		case '\n':
			s.nl++
		case '\r':
			s.cr++
		}
	}
}

// mark judges what follows \. in text: the end of the line, which is the end of
// the data.
func (s *Splitter) mark(b []byte, eof bool) (n int, whole bool, err error) {
	corrupt := BadFile("end-of-copy marker corrupt", "")
	style := BadFile("end-of-copy marker does not match previous newline style", "")
	if len(b) < 2 && !eof && (len(b) == 0 || b[0] == '\r') {
		return 0, false, nil
	}
	eol := eolCR
	switch n = 1; {
	case len(b) == 0:
		return 0, true, nil
	case b[0] == '\n':
		eol = eolNL
	case b[0] != '\r':
		return 0, false, corrupt
	case len(b) > 1 && b[1] == '\n':
		n, eol = 2, eolCRNL
	}
	if s.eol != eolUnknown && s.eol != eol {
		return 0, false, style
	}
	return n, true, nil
}

// quick finds the end of a record without anything unusual.
func (s *Splitter) quick(b []byte) (r Record, ok, decided bool) {
	i := bytes.IndexByte(b[s.pos:], '\n')
	if i < 0 {
		return r, false, false
	}
	rec := b[:s.pos+i]
	if bytes.IndexByte(rec, '\r') >= 0 {
		return r, false, false
	}
	if s.CSV {
		if bytes.IndexByte(rec, s.Quote) >= 0 {
			return r, false, false
		}
	} else if at := bytes.IndexByte(rec, '\\'); at >= 0 {
		for ; at >= 0; at = indexFrom(rec, at, '\\') {
			if at+1 >= len(rec) || rec[at+1] == '.' {
				return r, false, false // an escaped line end, or an end mark
			}
			at += 2
		}
	}
	return s.found(b, len(rec), 1, false), true, true
}

func indexFrom(b []byte, from int, c byte) int {
	if from >= len(b) {
		return -1
	}
	if i := bytes.IndexByte(b[from:], c); i >= 0 {
		return from + i
	}
	return -1
}

// found ends a record.
func (s *Splitter) found(b []byte, content, end int, last bool) Record {
	r := Record{Size: content + end, Content: content, Lines: 1 + s.nl, First: 1 + s.cr, Last: last}
	if s.eol == eolCR || s.eol == eolCRNL {
		r.Lines = 1 + s.cr
	}
	if !s.started {
		r.Lines = r.First // its line end was not known when the line ends inside were met
		s.started = true
	}
	if s.CSV && s.EndMark && content == 2 && b[0] == '\\' && b[1] == '.' {
		r.Last, r.Content = true, 0
	}
	s.pos, s.inQuote, s.escaped, s.nl, s.cr = 0, false, false, 0, 0
	return r
}

// signature begins COPY's binary form.
const signature = "PGCOPY\n\xff\r\n\x00"

// HeadSize is the size of the binary form's header with its extension, 0 if b
// does not hold all of it.
func HeadSize(b []byte) (int, error) {
	if n := min(len(b), len(signature)); string(b[:n]) != signature[:n] {
		return 0, BadFile("COPY file signature not recognized", "")
	}
	if len(b) < 19 {
		return 0, nil
	}
	more := int32(binary.BigEndian.Uint32(b[15:]))
	if more < 0 {
		return 0, BadFile("invalid COPY file header (wrong length)", "")
	}
	if len(b) < 19+int(more) {
		return 0, nil
	}
	return 19 + int(more), nil
}

// Tuple is the size of the tuple at the beginning of b, 0 if b does not hold all
// of it. end: it is the trailer.
func Tuple(b []byte) (size int, end bool, err error) {
	if len(b) < 2 {
		return 0, false, nil
	}
	n := int16(binary.BigEndian.Uint16(b))
	if n == -1 {
		return 2, true, nil
	}
	if n < 0 {
		return 0, false, BadFile("row field count is negative", "")
	}
	at := 2
	for range n {
		if len(b) < at+4 {
			return 0, false, nil
		}
		size := int32(binary.BigEndian.Uint32(b[at:]))
		if size < -1 {
			return 0, false, BadFile("invalid field size", "")
		}
		at += 4 + max(0, int(size))
		if at > len(b) {
			return 0, false, nil
		}
	}
	return at, false, nil
}
