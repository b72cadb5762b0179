package sqlguard

import "strings"

// Kind is the class of a token.
type Kind uint8

// The token kinds.
const (
	EOF      Kind = iota
	Ident         // unquoted identifier or keyword
	Quoted        // "identifier", U&"identifier"
	Integer       // decimal digits only
	Number        // any other number: 1.5, 1e3, 0x1F, 1_000, and malformed ones
	String        // 'plain string'
	Escape        // E'..', B'..', X'..', N'..', U&'..'
	Dollar        // $tag$..$tag$
	Param         // $1
	Operator      // a run of operator characters, may be several operators ("+-")
	Punct         // one of ( ) [ ] , ; . :
	Other         // a byte that starts no token
)

// Token is a piece of a statement: s[Start:End].
type Token struct {
	Kind       Kind
	Start, End int
	// Open is true for a string, quoted identifier or dollar quote without its end.
	Open bool
}

// Lexer cuts a text into tokens; white space and comments are skipped. It reads
// strings as with standard_conforming_strings = on.
type Lexer struct {
	Text string
	Pos  int
	// OpenComment is set when the text ends inside a /* comment.
	OpenComment bool
	// Newline is set when a line end was skipped before the last token.
	Newline bool
	// Skipped is set when white space or comments came before the last token.
	Skipped bool
	// Reread counts the bytes that PostgreSQL's scanner reads again: where an
	// operator or the opening of a comment stands, it matches all operator
	// characters that follow, and puts back what it does not take (scan.l,
	// xcstart and operator).
	Reread int

	opEnd int // where the run of operator characters around Pos ends
}

// reread notes that the scanner matches a run of operator characters at i.
func (l *Lexer) reread(i int) {
	if i >= l.opEnd {
		l.opEnd = i
		for l.opEnd < len(l.Text) && class[l.Text[l.opEnd]]&cOp != 0 {
			l.opEnd++
		}
	}
	l.Reread += l.opEnd - i
}

const (
	cSpace = 1 << iota
	cIdentStart
	cDigit
	cOp
	cIdent // part of an identifier
	cPunct
)

var class = func() (t [256]uint8) {
	for _, c := range " \t\n\r\f\v" {
		t[c] |= cSpace
	}
	for c := range 256 {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80 {
			t[c] |= cIdentStart | cIdent
		}
		if c >= '0' && c <= '9' {
			t[c] |= cDigit | cIdent
		}
	}
	t['$'] |= cIdent
	for _, c := range "~!@#^&|`?+-*/%<>=" {
		t[c] |= cOp
	}
	for _, c := range "()[],;.:" {
		t[c] |= cPunct
	}
	return t
}()

// skip passes white space and comments.
func (l *Lexer) skip() {
	s := l.Text
	i := l.Pos
	l.Newline, l.Skipped = false, false
	for i < len(s) {
		c := s[i]
		switch {
		case class[c]&cSpace != 0:
			if c == '\n' || c == '\r' {
				l.Newline = true
			}
			l.Skipped = true
			i++
		case c == '-' && i+1 < len(s) && s[i+1] == '-':
			l.Skipped = true
			n := strings.IndexAny(s[i:], "\r\n")
			if n < 0 {
				i = len(s)
			} else {
				i += n
			}
		case c == '/' && i+1 < len(s) && s[i+1] == '*':
			l.Skipped = true
			end, ok := l.blockComment(i)
			if !ok {
				l.OpenComment = true
			}
			i = end
		default:
			l.Pos = i
			return
		}
	}
	l.Pos = i
}

// blockComment returns the end of the comment that starts at i; comments nest.
func (l *Lexer) blockComment(i int) (int, bool) {
	s, depth := l.Text, 0
	for i < len(s) {
		switch {
		case s[i] == '/' && i+1 < len(s) && s[i+1] == '*':
			l.reread(i)
			depth++
			i += 2
		case s[i] == '*' && i+1 < len(s) && s[i+1] == '/':
			depth--
			i += 2
			if depth == 0 {
				return i, true
			}
		default:
			i++
		}
	}
	return len(s), false
}

// Next returns the next token; its Kind is EOF at the end. Every other token has
// at least one byte, so a loop over Next ends.
func (l *Lexer) Next() Token {
	l.skip()
	s, i := l.Text, l.Pos
	if i >= len(s) {
		return Token{Kind: EOF, Start: len(s), End: len(s)}
	}
	t := Token{Start: i}
	c := s[i]
	k := class[c]
	switch {
	case k&cIdentStart != 0:
		if i+1 < len(s) && s[i+1] == '\'' {
			switch c {
			case 'e', 'E':
				t.Kind = Escape
				t.End, t.Open = escapeString(s, i+1)
				l.Pos = t.End
				return t
			case 'b', 'B', 'x', 'X', 'n', 'N':
				t.Kind = Escape
				t.End, t.Open = quoted(s, i+1, '\'')
				l.Pos = t.End
				return t
			}
		}
		if (c == 'u' || c == 'U') && i+2 < len(s) && s[i+1] == '&' && (s[i+2] == '\'' || s[i+2] == '"') {
			t.Kind = Escape
			if s[i+2] == '"' {
				t.Kind = Quoted
			}
			t.End, t.Open = quoted(s, i+2, s[i+2])
			l.Pos = t.End
			return t
		}
		j := i + 1
		for j < len(s) && class[s[j]]&cIdent != 0 {
			j++
		}
		t.Kind, t.End = Ident, j
	case k&cDigit != 0 || c == '.' && i+1 < len(s) && class[s[i+1]]&cDigit != 0:
		t.Kind, t.End = number(s, i)
	case k&cPunct != 0:
		t.Kind, t.End = Punct, i+1
	case c == '\'':
		t.Kind = String
		t.End, t.Open = quoted(s, i, '\'')
	case c == '"':
		t.Kind = Quoted
		t.End, t.Open = quoted(s, i, '"')
	case c == '$':
		t.Kind, t.End, t.Open = dollar(s, i)
	case k&cOp != 0:
		j := i + 1
		for j < len(s) && class[s[j]]&cOp != 0 {
			if j+1 < len(s) && (s[j] == '-' && s[j+1] == '-' || s[j] == '/' && s[j+1] == '*') {
				break
			}
			j++
		}
		t.Kind, t.End = Operator, j
		if j-i > 1 || j < len(s) && class[s[j]]&cOp != 0 {
			l.reread(i)
		}
	default:
		t.Kind, t.End = Other, i+1
	}
	l.Pos = t.End
	return t
}

// quoted returns the end of a quoted text that starts at i with q, where a
// doubled q stands for itself.
func quoted(s string, i int, q byte) (end int, open bool) {
	i++
	for {
		n := strings.IndexByte(s[i:], q)
		if n < 0 {
			return len(s), true
		}
		i += n + 1
		if i >= len(s) || s[i] != q {
			return i, false
		}
		i++
	}
}

// escapeString returns the end of an E” string whose quote is at i, with the
// pieces that continue it on later lines, since these are read with escapes too.
func escapeString(s string, i int) (end int, open bool) {
	for {
		i++
	piece:
		for {
			if i >= len(s) {
				return len(s), true
			}
			switch s[i] {
			case '\\':
				i += 2
			case '\'':
				i++
				if i < len(s) && s[i] == '\'' {
					i++
					continue
				}
				break piece
			default:
				i++
			}
		}
		next, ok := continued(s, i)
		if !ok {
			return i, false
		}
		i = next
	}
}

// continued reports whether a string that ended before i goes on at a quote,
// which it does after white space with at least one line end (scan.l, quotecontinue).
func continued(s string, i int) (quote int, ok bool) {
	newline := false
	for i < len(s) {
		c := s[i]
		switch {
		case c == '\n' || c == '\r':
			newline = true
			i++
		case class[c]&cSpace != 0:
			i++
		case c == '-' && i+1 < len(s) && s[i+1] == '-':
			n := strings.IndexAny(s[i:], "\r\n")
			if n < 0 {
				return 0, false
			}
			i += n
		case c == '\'' && newline:
			return i, true
		default:
			return 0, false
		}
	}
	return 0, false
}

func number(s string, i int) (Kind, int) {
	j := i
	for j < len(s) && class[s[j]]&cDigit != 0 {
		j++
	}
	kind := Integer
	if j < len(s) && s[j] == '.' && !(j+1 < len(s) && s[j+1] == '.') {
		kind = Number
		j++
		for j < len(s) && class[s[j]]&cDigit != 0 {
			j++
		}
	}
	if j < len(s) && (s[j] == 'e' || s[j] == 'E') {
		k := j + 1
		if k < len(s) && (s[k] == '+' || s[k] == '-') {
			k++
		}
		if k < len(s) && class[s[k]]&cDigit != 0 {
			kind = Number
			for k < len(s) && class[s[k]]&cDigit != 0 {
				k++
			}
			j = k
		}
	}
	if j < len(s) && class[s[j]]&cIdent != 0 {
		kind = Number // 0x1F, 1_000, or junk that the parser refuses
		for j < len(s) && class[s[j]]&cIdent != 0 {
			j++
		}
	}
	return kind, j
}

func dollar(s string, i int) (Kind, int, bool) {
	j := i + 1
	if j < len(s) && class[s[j]]&cDigit != 0 {
		for j < len(s) && class[s[j]]&cDigit != 0 {
			j++
		}
		return Param, j, false
	}
	if j < len(s) && class[s[j]]&cIdentStart != 0 {
		j++
		for j < len(s) && class[s[j]]&(cIdentStart|cDigit) != 0 {
			j++
		}
	}
	if j >= len(s) || s[j] != '$' {
		return Other, i + 1, false
	}
	tag := s[i : j+1]
	n := strings.Index(s[j+1:], tag)
	if n < 0 {
		return Dollar, len(s), true
	}
	return Dollar, j + 1 + n + len(tag), false
}

// Is reports whether an unquoted identifier token is the word, given in lower case.
func (t Token) Is(text, word string) bool {
	return t.Kind == Ident && t.End-t.Start == len(word) && equalLower(text[t.Start:t.End], word)
}

// IsPunct reports whether the token is the punctuation character c.
func (t Token) IsPunct(text string, c byte) bool { return t.Kind == Punct && text[t.Start] == c }

func equalLower(s, lower string) bool {
	for i := 0; i < len(lower); i++ {
		if s[i]|0x20 != lower[i] || s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Tokens returns all tokens of a text, without the EOF.
func Tokens(text string) []Token {
	l := Lexer{Text: text}
	ts := make([]Token, 0, len(text)/4+4)
	for {
		t := l.Next()
		if t.Kind == EOF {
			return ts
		}
		ts = append(ts, t)
	}
}
