package copytext

import "github.com/cleavedb/cleave/sqlstate"

// LineSplitter finds the rows in COPY's text and csv forms. A row ends as the
// first one did: with a newline, a carriage return, or both.
type LineSplitter struct {
	CSV           bool
	Quote, Escape byte
	eol           eol

	// Where the search goes on when more data has come.
	at      int
	lines   int // newlines inside quotes
	inQuote bool
	escaped bool
}

type eol uint8

const (
	eolUnknown eol = iota
	eolNewline
	eolReturn
	eolBoth
)

// oneLine is a row: its bytes, those without the end of the line, and the lines
// that it has. end: it is the mark of the end of the data.
type oneLine struct {
	Size, Content, Lines int
	End                  bool
}

// Next finds the row at the beginning of the data; ok is false if its end has not
// come. eof says that nothing else comes.
func (s *LineSplitter) Next(data []byte, eof bool) (l oneLine, ok bool, err error) {
	escape := s.Escape
	if escape == s.Quote {
		escape = 0
	}
	i := s.at
	stop := func() (oneLine, bool, error) {
		s.at = i
		return oneLine{}, false, nil
	}
	done := func(size, content int, end bool) (oneLine, bool, error) {
		l := oneLine{Size: size, Content: content, Lines: 1 + s.lines, End: end}
		s.at, s.lines, s.inQuote, s.escaped = 0, 0, false, false
		return l, true, nil
	}
	for ; i < len(data); i++ {
		b := data[i]
		if s.CSV {
			if s.inQuote && escape != 0 && b == escape {
				s.escaped = !s.escaped
			}
			if b == s.Quote && !s.escaped {
				s.inQuote = !s.inQuote
			}
			if b != escape {
				s.escaped = false
			}
			if s.inQuote {
				// As PostgreSQL counts: the first row may have others.
				if b == '\n' && s.eol == eolNewline || b == '\r' && s.eol != eolNewline {
					s.lines++
				}
				continue
			}
		}
		switch {
		case b == '\r':
			switch s.eol {
			case eolNewline:
				return oneLine{}, false, s.literal("carriage return", `\r`)
			case eolReturn:
				return done(i+1, i, false)
			}
			if i+1 >= len(data) && !eof {
				return stop()
			}
			if i+1 < len(data) && data[i+1] == '\n' {
				s.eol = eolBoth
				return done(i+2, i, false)
			}
			if s.eol == eolBoth {
				return oneLine{}, false, s.literal("carriage return", `\r`)
			}
			s.eol = eolReturn
			return done(i+1, i, false)
		case b == '\n':
			if s.eol == eolReturn || s.eol == eolBoth {
				return oneLine{}, false, s.literal("newline", `\n`)
			}
			s.eol = eolNewline
			return done(i+1, i, false)
		case b == '\\' && (!s.CSV || i == 0):
			if i+1 >= len(data) {
				if !eof {
					return stop()
				}
				continue
			}
			if data[i+1] != '.' {
				if !s.CSV {
					i++ // what follows is not the end of anything
				}
				continue
			}
			size, wait, marked := s.mark(data[i+2:], eof)
			switch {
			case wait:
				return stop()
			case marked && i == 0:
				return done(i+2+size, 0, true)
			case s.CSV:
				continue
			case marked:
				// PostgreSQL takes what stands before the mark for a row.
				s.at = 0
				return oneLine{Size: i, Content: i, Lines: 1}, true, nil
			}
			return oneLine{}, false, BadFile("end-of-copy marker corrupt")
		}
	}
	if !eof {
		return stop()
	}
	if len(data) == 0 {
		return oneLine{}, false, nil
	}
	return done(len(data), len(data), false)
}

// mark reports whether a line ends after the two characters of the mark.
func (s *LineSplitter) mark(rest []byte, eof bool) (size int, wait, ok bool) {
	if len(rest) == 0 {
		return 0, !eof, eof
	}
	switch rest[0] {
	case '\n':
		return 1, false, s.eol == eolNewline || s.eol == eolUnknown
	case '\r':
		if len(rest) == 1 && !eof {
			return 0, true, false
		}
		if len(rest) > 1 && rest[1] == '\n' {
			return 2, false, s.eol == eolBoth || s.eol == eolUnknown
		}
		return 1, false, s.eol == eolReturn || s.eol == eolUnknown
	}
	return 0, false, false
}

func (s *LineSplitter) literal(what, escape string) error {
	if s.CSV {
		return BadFile("unquoted %s found in data", what).WithHint("Use quoted CSV field to represent %s.", what)
	}
	return sqlstate.New(sqlstate.BadFileFormat, "literal %s found in data", what).WithHint("Use \"%s\" to represent %s.", escape, what)
}
