package several

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

// splitter finds the records of COPY's text and csv forms, as PostgreSQL's
// CopyReadLineText does. It looks at a record again only where it stopped.
type splitter struct {
	csv, csvMark  bool // csvMark: \. alone on a line ends csv data too (before PostgreSQL 18)
	quote, escape byte
	eol           int

	pos     int // how much of the record at hand was looked at
	inQuote bool
	escaped bool // the last byte was an escape inside quotes
	nl, cr  int  // line ends inside quotes
	// fresh: no record was read yet.
	started bool
}

// record is one record in the data.
type record struct {
	size    int  // with its line end
	content int  // without it, and without an end mark
	lines   int  // how many lines PostgreSQL counts for it
	first   int  // how many a reader counts that begins with it
	last    bool // the data ends with it: \. was met
}

func badFile(message, hint string) error {
	e := sqlstate.New(sqlstate.BadFileFormat, "%s", message)
	e.Hint = hint
	return e
}

func (s *splitter) strayCR() error {
	if s.csv {
		return badFile("unquoted carriage return found in data", "Use quoted CSV field to represent carriage return.")
	}
	return badFile("literal carriage return found in data", `Use "\r" to represent carriage return.`)
}

func (s *splitter) strayNL() error {
	if s.csv {
		return badFile("unquoted newline found in data", "Use quoted CSV field to represent newline.")
	}
	return badFile("literal newline found in data", `Use "\n" to represent newline.`)
}

// next finds the record at the beginning of b; ok is false if b does not hold all
// of it. eof says that nothing follows b.
func (s *splitter) next(b []byte, eof bool) (r record, ok bool, err error) {
	if s.eol == eolNL && !s.inQuote {
		if r, ok, decided := s.quick(b); decided {
			return r, ok, nil
		}
	}
	for s.pos < len(b) {
		c := b[s.pos]
		switch {
		case s.csv && (c == s.quote || s.inQuote):
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
		case c == '\\' && !s.csv:
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
func (s *splitter) quoted(c byte) {
	escape := s.escape
	if escape == s.quote {
		escape = 0
	}
	if s.inQuote && c == escape && escape != 0 {
		s.escaped = !s.escaped
	}
	if c == s.quote && !s.escaped {
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
func (s *splitter) mark(b []byte, eof bool) (n int, whole bool, err error) {
	corrupt := badFile("end-of-copy marker corrupt", "")
	style := badFile("end-of-copy marker does not match previous newline style", "")
	if len(b) < 2 && !eof && (len(b) == 0 || b[0] == '\r') {
		return 0, false, nil
	}
	switch {
	case len(b) == 0:
		return 0, true, nil
	case b[0] == '\n':
		if s.eol == eolCR || s.eol == eolCRNL {
			return 0, false, style
		}
		return 1, true, nil
	case b[0] != '\r':
		return 0, false, corrupt
	case len(b) > 1 && b[1] == '\n':
		if s.eol == eolNL || s.eol == eolCR {
			return 0, false, style
		}
		return 2, true, nil
	}
	if s.eol == eolNL || s.eol == eolCRNL {
		return 0, false, style
	}
	return 1, true, nil
}

// quick finds the end of a record without anything unusual.
func (s *splitter) quick(b []byte) (r record, ok, decided bool) {
	i := bytes.IndexByte(b[s.pos:], '\n')
	if i < 0 {
		return r, false, false
	}
	rec := b[:s.pos+i]
	if bytes.IndexByte(rec, '\r') >= 0 {
		return r, false, false
	}
	if s.csv {
		if bytes.IndexByte(rec, s.quote) >= 0 {
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
func (s *splitter) found(b []byte, content, end int, last bool) record {
	r := record{size: content + end, content: content, lines: 1 + s.nl, first: 1 + s.cr, last: last}
	if s.eol == eolCR || s.eol == eolCRNL {
		r.lines = 1 + s.cr
	}
	if !s.started {
		r.lines = r.first // its line end was not known when the line ends inside were met
		s.started = true
	}
	if s.csv && s.csvMark && content == 2 && b[0] == '\\' && b[1] == '.' {
		r.last, r.content = true, 0
	}
	s.pos, s.inQuote, s.escaped, s.nl, s.cr = 0, false, false, 0, 0
	return r
}

// copySignature begins COPY's binary form.
const copySignature = "PGCOPY\n\xff\r\n\x00"

// copyHeadSize is the size of the binary form's header with its extension, 0 if b
// does not hold all of it.
func copyHeadSize(b []byte) (int, error) {
	if n := min(len(b), len(copySignature)); string(b[:n]) != copySignature[:n] {
		return 0, badFile("COPY file signature not recognized", "")
	}
	if len(b) < 19 {
		return 0, nil
	}
	more := int32(binary.BigEndian.Uint32(b[15:]))
	if more < 0 {
		return 0, badFile("invalid COPY file header (wrong length)", "")
	}
	if len(b) < 19+int(more) {
		return 0, nil
	}
	return 19 + int(more), nil
}

// tuple is the size of the tuple at the beginning of b, 0 if b does not hold all
// of it. end: it is the trailer.
func tuple(b []byte) (size int, end bool, err error) {
	if len(b) < 2 {
		return 0, false, nil
	}
	n := int16(binary.BigEndian.Uint16(b))
	if n == -1 {
		return 2, true, nil
	}
	if n < 0 {
		return 0, false, badFile("row field count is negative", "")
	}
	at := 2
	for range n {
		if len(b) < at+4 {
			return 0, false, nil
		}
		size := int32(binary.BigEndian.Uint32(b[at:]))
		if size < -1 {
			return 0, false, badFile("invalid field size", "")
		}
		at += 4 + max(0, int(size))
		if at > len(b) {
			return 0, false, nil
		}
	}
	return at, false, nil
}
