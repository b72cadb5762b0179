package sqltext

import (
	"strings"
	"unsafe"

	"github.com/cleavedb/cleave/internal/sqlguard"
)

// Literal is a literal's place in a text.
type Literal struct {
	Start, End int32
	// Class is 'i' for decimal digits, 'n' for another number, 's' for a plain
	// string, 'e' for every other form of string.
	Class byte
}

// Shaper fingerprints statements. Its buffers are used again at each call, so
// that nothing is allocated. The zero value is ready. Not for concurrent use.
type Shaper struct {
	shape []byte
	lits  []Literal
}

// Normalize returns a statement's shape: its text with every literal replaced by
// $i, $n, $s or $e (see Literal.Class), and with white space and comments
// collapsed. NULL, TRUE and FALSE stay. Two texts with equal shapes differ in
// nothing but the values of these literals. exact is false where that is not
// certain (strings that go on after a line end, numbers like 0x1F, unfinished
// texts): such a shape serves logs only.
//
// shape and literals are valid until the next call.
func (s *Shaper) Normalize(sql string) (shape string, literals []Literal, exact bool) {
	dst, lits := s.shape[:0], s.lits[:0]
	exact = true
	lex := sqlguard.Lexer{Text: sql}
	lastString := false
	i := 0
	for i < len(sql) && sql[i] == ' ' {
		i++
	}
	from := i // start of the bytes that are not copied yet
	for i < len(sql) {
		// Most bytes are copied as they are, in runs.
		switch c := sql[i]; shapeClass[c] {
		case shapeIdent:
			j := i + 1
			for j < len(sql) && identByte[sql[j]] {
				j++
			}
			if j != i+1 || j == len(sql) || sql[j] != '\'' && sql[j] != '&' {
				i, lastString = j, false
				continue
			}
		case shapeMark:
			i++
			lastString = false
			continue
		case shapeBlank:
			if i+1 < len(sql) && shapeClass[sql[i+1]] <= shapeMark {
				i++
				continue
			}
		case shapeMaybe: // - / . may begin a comment or a number
			if i+1 < len(sql) && shapeClass[sql[i+1]] <= shapeMark && sql[i+1] != '*' {
				i++
				lastString = false
				continue
			}
		}
		at := i
		lex.Pos = i
		t := lex.Next()
		if t.Kind == sqlguard.EOF {
			dst = append(dst, sql[from:at]...)
			from = len(sql)
			break
		}
		if lex.Skipped {
			// One blank stands for white space and comments.
			dst = append(dst, sql[from:at]...)
			if len(dst) > 0 {
				dst = append(dst, ' ')
			}
			from = t.Start
		}
		i = t.End
		class := byte(0)
		switch t.Kind {
		case sqlguard.Integer:
			class = 'i'
		case sqlguard.Number:
			class = 'n'
			for i := t.Start; i < t.End; i++ {
				if c := sql[i]; (c < '0' || c > '9') && c != '.' {
					exact = exact && (c == 'e' || c == 'E' || c == '+' || c == '-') && i > t.Start
				}
			}
		case sqlguard.String:
			class = 's'
		case sqlguard.Escape, sqlguard.Dollar:
			class = 'e'
		case sqlguard.Other:
			exact = false
		}
		exact = exact && !t.Open
		if class == 's' || class == 'e' {
			exact = exact && !lastString
			lastString = true
		} else {
			lastString = false
		}
		if class != 0 {
			dst = append(dst, sql[from:t.Start]...)
			if n := len(dst); n > 0 && identByte[dst[n-1]] {
				dst = append(dst, ' ')
			}
			dst = append(dst, '$', class)
			lits = append(lits, Literal{Start: int32(t.Start), End: int32(t.End), Class: class})
			from = t.End
			// An identifier that follows at once would join the mark.
			if t.End < len(sql) && identByte[sql[t.End]] {
				dst = append(dst, ' ')
			}
		}
	}
	dst = append(dst, sql[from:]...)
	if lex.OpenComment {
		exact = false
	}
	for n := len(dst); n > 0 && (dst[n-1] == ';' || dst[n-1] == ' '); n-- {
		dst = dst[:n-1]
	}
	s.shape, s.lits = dst, lits
	return unsafe.String(unsafe.SliceData(dst), len(dst)), lits, exact
}

// The classes of bytes for Normalize, those that are copied first.
const (
	shapeIdent = iota // begins an identifier
	shapeMark         // operators and punctuation that stand for themselves
	shapeBlank
	shapeMaybe
	shapeOther
)

var shapeClass, identByte = func() (class [256]uint8, ident [256]bool) {
	for c := range 256 {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
		ident[c] = letter || c == '$' || c >= '0' && c <= '9'
		class[c] = shapeOther
		if letter {
			class[c] = shapeIdent
		}
	}
	for _, c := range "()[],;:~!@#^&|`?+*%<>=" {
		class[c] = shapeMark
	}
	class[' '], class['-'], class['/'], class['.'] = shapeBlank, shapeMaybe, shapeMaybe, shapeMaybe
	return class, ident
}()

// Normalize is [Shaper.Normalize] with results that stay valid.
func Normalize(sql string) (shape string, literals []Literal, exact bool) {
	var s Shaper
	shape, literals, exact = s.Normalize(sql)
	return strings.Clone(shape), literals, exact
}
