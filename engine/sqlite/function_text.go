package sqlite

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/sqlstate"
)

// Text functions follow a database with LC_COLLATE C and LC_CTYPE C.UTF-8: text is
// ordered by bytes, letters of every script have case (Go's simple case mappings
// are those of that locale, compared for every code point with PostgreSQL on
// glibc), length counts characters.

func defTexts() {
	runes := utf8.RuneCountInString
	def("cleave_varchar", 2, func(v *env, a []arg) (value.Datum, error) {
		s, n := a[0].Text(), int(a[1].Int64())
		if len(s) <= n || runes(s) <= n {
			return textV(s)
		}
		cut := value.Prefix(s, n)
		if strings.Trim(s[len(cut):], " ") != "" {
			return failV(sqlstate.New("22001", "value too long for type character varying(%d)", n))
		}
		return textV(cut)
	})
	def("cleave_bpchar", 3, func(v *env, a []arg) (value.Datum, error) {
		s, n := a[0].Text(), int(a[1].Int64())
		if c := runes(s); c < n {
			return textV(s + strings.Repeat(" ", n-c))
		}
		cut := value.Prefix(s, n)
		if a[2].Int64() == 0 && strings.Trim(s[len(cut):], " ") != "" {
			return failV(sqlstate.New("22001", "value too long for type character(%d)", n))
		}
		return textV(cut)
	})
	def("cleave_octets", 1, func(v *env, a []arg) (value.Datum, error) { return intV(int64(len(a[0].Text()))) })
	def("cleave_byteacat", 2, func(v *env, a []arg) (value.Datum, error) {
		return blobV(string(a[0].Blob()) + string(a[1].Blob()))
	})
	def("cleave_lower", 1, func(v *env, a []arg) (value.Datum, error) { return textV(strings.Map(unicode.ToLower, a[0].Text())) })
	def("cleave_upper", 1, func(v *env, a []arg) (value.Datum, error) { return textV(strings.Map(unicode.ToUpper, a[0].Text())) })
	def("cleave_initcap", 1, func(v *env, a []arg) (value.Datum, error) {
		var b strings.Builder
		inWord := false
		for _, r := range a[0].Text() {
			switch {
			case unicode.IsUpper(r) || unicode.IsLower(r):
				if inWord {
					r = unicode.ToLower(r)
				} else {
					r = unicode.ToUpper(r)
				}
				inWord = true
			case r >= utf8.RuneSelf:
				// Whether it is part of a word depends on the C library's version.
				return failV(sqlstate.Refuse("initcap of the character '"+string(r)+"' is not supported on a SQLite shard", "Use it on letters that have upper and lower case."))
			default:
				inWord = r >= '0' && r <= '9'
			}
			b.WriteRune(r)
		}
		return textV(b.String())
	})
	substr := func(v *env, a []arg) (value.Datum, error) {
		from, to := a[1].Int64(), int64(1)<<40
		if len(a) == 3 {
			if a[2].Int64() < 0 {
				return failV(sqlstate.New("22011", "negative substring length not allowed"))
			}
			to = from + a[2].Int64()
		}
		from = max(from, 1)
		if to <= from {
			return textV("")
		}
		s := a[0].Text()
		s = s[len(value.Prefix(s, int(from-1))):]
		return textV(value.Prefix(s, int(to-from)))
	}
	subbytes := func(v *env, a []arg) (value.Datum, error) {
		from, to := a[1].Int64(), int64(1)<<40
		if len(a) == 3 {
			if a[2].Int64() < 0 {
				return failV(sqlstate.New("22011", "negative substring length not allowed"))
			}
			to = from + a[2].Int64()
		}
		b := string(a[0].Blob())
		from = max(from, 1) - 1
		to = min(to-1, int64(len(b)))
		if to <= from {
			return blobV("")
		}
		return blobV(b[from:to])
	}
	for _, n := range []int{2, 3} {
		def("cleave_substr", n, substr)
		def("cleave_subbytes", n, subbytes)
	}
	def("cleave_trim", 3, func(v *env, a []arg) (value.Datum, error) {
		s, set, how := a[0].Text(), a[1].Text(), a[2].Int64()
		if how&1 != 0 {
			s = strings.TrimLeft(s, set)
		}
		if how&2 != 0 {
			s = strings.TrimRight(s, set)
		}
		return textV(s)
	})
	def("cleave_replace", 3, func(v *env, a []arg) (value.Datum, error) {
		if a[1].Text() == "" {
			return textV(a[0].Text())
		}
		return textV(strings.ReplaceAll(a[0].Text(), a[1].Text(), a[2].Text()))
	})
	def("cleave_left", 2, func(v *env, a []arg) (value.Datum, error) {
		s, n := a[0].Text(), a[1].Int64()
		if n < 0 {
			n += int64(runes(s))
		}
		return textV(value.Prefix(s, int(max(n, 0))))
	})
	def("cleave_right", 2, func(v *env, a []arg) (value.Datum, error) {
		s, n := a[0].Text(), a[1].Int64()
		count := int64(runes(s))
		skip := count - n
		if n < 0 {
			skip = -n
		}
		return textV(s[len(value.Prefix(s, int(min(max(skip, 0), count)))):])
	})
	def("cleave_pad", 4, func(v *env, a []arg) (value.Datum, error) {
		s, n, fill := a[0].Text(), a[1].Int64(), a[2].Text()
		if n > 1<<26 {
			return failV(sqlstate.New(sqlstate.ProgramLimitExceeded, "requested length too large"))
		}
		n = max(n, 0)
		count := int64(runes(s))
		if count >= n {
			return textV(value.Prefix(s, int(n)))
		}
		if fill == "" {
			return textV(s)
		}
		need := int(n - count)
		pad := value.Prefix(strings.Repeat(fill, need/runes(fill)+1), need)
		if a[3].Int64() == 1 {
			return textV(pad + s)
		}
		return textV(s + pad)
	})
	def("cleave_reverse", 1, func(v *env, a []arg) (value.Datum, error) {
		r := []rune(a[0].Text())
		for i, j := 0, len(r)-1; i < j; i, j = i+1, j-1 {
			r[i], r[j] = r[j], r[i]
		}
		return textV(string(r))
	})
	def("cleave_repeat", 2, func(v *env, a []arg) (value.Datum, error) {
		n := max(a[1].Int64(), 0)
		if n*int64(len(a[0].Text())) > 1<<28 {
			return failV(sqlstate.New(sqlstate.ProgramLimitExceeded, "requested length too large"))
		}
		return textV(strings.Repeat(a[0].Text(), int(n)))
	})
	def("cleave_strpos", 2, func(v *env, a []arg) (value.Datum, error) {
		i := strings.Index(a[0].Text(), a[1].Text())
		if i < 0 {
			return intV(0)
		}
		return intV(int64(runes(a[0].Text()[:i])) + 1)
	})
	def("cleave_split_part", 3, func(v *env, a []arg) (value.Datum, error) {
		s, sep, n := a[0].Text(), a[1].Text(), a[2].Int64()
		if n == 0 {
			return failV(sqlstate.New(sqlstate.InvalidParameterValue, "field position must not be zero"))
		}
		parts := []string{s}
		if sep != "" && s != "" {
			parts = strings.Split(s, sep)
		}
		if n < 0 {
			n += int64(len(parts)) + 1
		}
		if n < 1 || n > int64(len(parts)) {
			return textV("")
		}
		return textV(parts[n-1])
	})
	def("cleave_starts_with", 2, func(v *env, a []arg) (value.Datum, error) {
		return boolV(strings.HasPrefix(a[0].Text(), a[1].Text()))
	})
	def("cleave_translate", 3, func(v *env, a []arg) (value.Datum, error) {
		from, to := []rune(a[1].Text()), []rune(a[2].Text())
		var b strings.Builder
	next:
		for _, r := range a[0].Text() {
			for i, f := range from {
				if f == r {
					if i < len(to) {
						b.WriteRune(to[i])
					}
					continue next
				}
			}
			b.WriteRune(r)
		}
		return textV(b.String())
	})
	def("cleave_chr", 1, func(v *env, a []arg) (value.Datum, error) {
		n := a[0].Int64()
		switch {
		case n == 0:
			return failV(sqlstate.New(sqlstate.ProgramLimitExceeded, "null character not permitted"))
		case n < 0:
			return failV(sqlstate.New(sqlstate.InvalidParameterValue, "character number must be positive"))
		case n > 0x10ffff:
			return failV(sqlstate.New(sqlstate.ProgramLimitExceeded, "requested character too large for encoding: %d", n))
		case n >= 0xd800 && n <= 0xdfff:
			return failV(sqlstate.New(sqlstate.ProgramLimitExceeded, "requested character not valid for encoding: %d", n))
		}
		return textV(string(rune(n)))
	})
	def("cleave_ascii", 1, func(v *env, a []arg) (value.Datum, error) {
		if a[0].Text() == "" {
			return intV(0)
		}
		r, _ := utf8.DecodeRuneInString(a[0].Text())
		return intV(int64(r))
	})
	def("cleave_md5", 1, func(v *env, a []arg) (value.Datum, error) {
		s := md5.Sum(a[0].Blob())
		return textV(hex.EncodeToString(s[:]))
	})
	def("cleave_sha256", 1, func(v *env, a []arg) (value.Datum, error) {
		s := sha256.Sum256(a[0].Blob())
		return blobV(string(s[:]))
	})
	def("cleave_sha512", 1, func(v *env, a []arg) (value.Datum, error) {
		s := sha512.Sum512(a[0].Blob())
		return blobV(string(s[:]))
	})
	def("cleave_encode", 2, func(v *env, a []arg) (value.Datum, error) {
		b := a[0].Blob()
		switch strings.ToLower(a[1].Text()) {
		case "hex":
			return textV(hex.EncodeToString(b))
		case "base64":
			s := base64.StdEncoding.EncodeToString(b)
			var out strings.Builder
			for len(s) > 76 {
				out.WriteString(s[:76] + "\n")
				s = s[76:]
			}
			out.WriteString(s)
			return textV(out.String())
		case "escape":
			return failV(sqlstate.Refuse("encode to 'escape' is not supported on a SQLite shard", "Use 'hex' or 'base64'."))
		}
		return failV(sqlstate.New(sqlstate.InvalidParameterValue, "unrecognized encoding: \"%s\"", a[1].Text()))
	})
	def("cleave_decode", 2, func(v *env, a []arg) (value.Datum, error) {
		s := a[0].Text()
		switch strings.ToLower(a[1].Text()) {
		case "hex":
			b, err := value.ByteaIn(`\x` + s)
			if err != nil {
				return failV(err)
			}
			return blobV(b)
		case "base64":
			b, err := base64.StdEncoding.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "", "\r", "").Replace(s))
			if err != nil {
				return failV(sqlstate.New(sqlstate.InvalidParameterValue, "invalid base64 end sequence"))
			}
			return blobV(string(b))
		case "escape":
			return failV(sqlstate.Refuse("decode from 'escape' is not supported on a SQLite shard", "Use 'hex' or 'base64'."))
		}
		return failV(sqlstate.New(sqlstate.InvalidParameterValue, "unrecognized encoding: \"%s\"", a[1].Text()))
	})
	def("cleave_quote_ident", 1, func(v *env, a []arg) (value.Datum, error) { return textV(quote.PGIdent(a[0].Text())) })
	def("cleave_quote_literal", 1, func(v *env, a []arg) (value.Datum, error) { return textV(quote.PGLiteral(a[0].Text())) })
	def("cleave_overlay", 4, func(v *env, a []arg) (value.Datum, error) {
		s, from, n := a[0].Text(), a[2].Int64(), a[3].Int64()
		if from <= 0 {
			return failV(sqlstate.New("22011", "negative substring length not allowed"))
		}
		head := value.Prefix(s, int(from-1))
		tail := ""
		if start := from + n; start <= 1 {
			tail = s
		} else {
			tail = s[len(value.Prefix(s, int(start-1))):]
		}
		return textV(head + a[1].Text() + tail)
	})
	defLax("cleave_concat", -1, func(v *env, a []arg) (value.Datum, error) {
		var b strings.Builder
		for _, x := range a {
			if x.Type() != sqlite.TypeNull {
				b.WriteString(x.Text())
			}
		}
		return textV(b.String())
	})
	defLax("cleave_concat_ws", -1, func(v *env, a []arg) (value.Datum, error) {
		if a[0].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		var parts []string
		for _, x := range a[1:] {
			if x.Type() != sqlite.TypeNull {
				parts = append(parts, x.Text())
			}
		}
		return textV(strings.Join(parts, a[0].Text()))
	})
	defLax("cleave_format", -1, func(v *env, a []arg) (value.Datum, error) {
		if a[0].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		s, err := formatText(a[0].Text(), a[1:])
		return value.Text(s), err
	})
	def("cleave_like", 2, func(v *env, a []arg) (value.Datum, error) {
		ok, err := likeMatch(a[0].Text(), a[1].Text())
		if err != nil {
			return failV(err)
		}
		return boolV(ok)
	})
	def("cleave_like_escape", 2, func(v *env, a []arg) (value.Datum, error) {
		p, esc := a[0].Text(), a[1].Text()
		if runes(esc) > 1 {
			return failV(sqlstate.New("22025", "invalid escape string").WithHint("Escape string must be empty or one character."))
		}
		if esc == `\` {
			return textV(p)
		}
		var b strings.Builder
		after := false
		for _, r := range p {
			switch {
			case esc != "" && string(r) == esc && !after:
				b.WriteByte('\\')
				after = true
				continue
			case r == '\\':
				b.WriteByte('\\')
				if !after {
					b.WriteByte('\\')
				}
			default:
				b.WriteRune(r)
			}
			after = false
		}
		return textV(b.String())
	})
	def("cleave_regex", 3, func(v *env, a []arg) (value.Datum, error) {
		re, err := v.regexes.get(a[1].Text(), a[2].Int64() == 1)
		if err != nil {
			return failV(err)
		}
		return boolV(re.MatchString(a[0].Text()))
	})
}

// likeMatch is PostgreSQL's LIKE: _ is one character, % any run, \ quotes.
func likeMatch(s, p string) (bool, error) {
	var starP, starS = -1, 0
	i, j := 0, 0
	for i < len(s) {
		if j < len(p) {
			switch p[j] {
			case '%':
				starP, starS = j, i
				j++
				continue
			case '_':
				_, n := utf8.DecodeRuneInString(s[i:])
				i, j = i+n, j+1
				continue
			case '\\':
				if j+1 >= len(p) {
					return false, sqlstate.New("22025", "LIKE pattern must not end with escape character")
				}
				if p[j+1] == s[i] {
					i, j = i+1, j+2
					continue
				}
			default:
				if p[j] == s[i] {
					i, j = i+1, j+1
					continue
				}
			}
		}
		if starP < 0 {
			return false, nil
		}
		_, n := utf8.DecodeRuneInString(s[starS:])
		starS += n
		i, j = starS, starP+1
	}
	for j < len(p) && p[j] == '%' {
		j++
	}
	return j == len(p), nil
}

// regexCache keeps compiled patterns, at most 64.
type regexCache struct{ m map[string]*regexp.Regexp }

// get compiles a PostgreSQL regular expression whose truth value Go's engine
// gives exactly: literals, ., [], (), |, *, +, ?, ^ and $ (without newlines'
// special rules, as PostgreSQL's default has it). Others are refused.
func (c *regexCache) get(p string, fold bool) (*regexp.Regexp, error) {
	key := p
	if fold {
		key = "(?i)" + p
	}
	if re := c.m[key]; re != nil {
		return re, nil
	}
	refuse := sqlstate.Refuse("a SQLite shard does not match the regular expression "+quote.Text(p)+" exactly",
		"Use literals, ., [...], (...), |, *, +, ?, ^ and $ only, or LIKE.")
	if strings.HasPrefix(p, "***") || strings.Contains(p, "(?") || strings.Contains(p, "[[") || strings.Contains(p, "[:") || strings.Contains(p, "*?") || strings.Contains(p, "+?") || strings.Contains(p, "??") {
		return nil, refuse
	}
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
			if i >= len(p) {
				return nil, sqlstate.New("2201B", "invalid regular expression: invalid escape \\ sequence")
			}
			if c := p[i]; c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf {
				return nil, refuse
			}
		case '{', '}':
			return nil, refuse
		default:
			if fold && p[i] >= utf8.RuneSelf {
				return nil, refuse
			}
		}
	}
	src := "(?s)" + p
	if fold {
		// Only ASCII letters have case; Go also folds K and S with signs beyond ASCII.
		if strings.ContainsAny(p, "kKsS") {
			src = "(?s)" + foldASCII(p)
		} else {
			src = "(?si)" + p
		}
	}
	re, err := regexp.Compile(src)
	if err != nil {
		return nil, sqlstate.New("2201B", "invalid regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if c.m == nil || len(c.m) >= 64 {
		c.m = map[string]*regexp.Regexp{}
	}
	c.m[key] = re
	return re, nil
}

// foldASCII writes each letter outside brackets as a class of its two cases.
func foldASCII(p string) string {
	var b strings.Builder
	bracket := false
	for i := 0; i < len(p); i++ {
		c := p[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		switch {
		case c == '\\' && i+1 < len(p):
			b.WriteString(p[i : i+2])
			i++
		case letter && !bracket:
			b.WriteString("[" + string(c|0x20) + string(c&^0x20) + "]")
		case letter && bracket:
			b.WriteString(string(c|0x20) + string(c&^0x20))
		default:
			if c == '[' {
				bracket = true
			} else if c == ']' {
				bracket = false
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}

func itoa(i int64) string { return strconv.FormatInt(i, 10) }

// formatText is format with the conversions %s, %I, %L and %%.
func formatText(f string, a []arg) (string, error) {
	var b strings.Builder
	next := 0
	for i := 0; i < len(f); i++ {
		if f[i] != '%' {
			b.WriteByte(f[i])
			continue
		}
		if i++; i >= len(f) {
			return "", sqlstate.New(sqlstate.InvalidParameterValue, "unterminated format() type specifier").WithHint("For a single \"%%\" use \"%%%%\".")
		}
		if f[i] == '%' {
			b.WriteByte('%')
			continue
		}
		start := i
		for i < len(f) && f[i] >= '0' && f[i] <= '9' {
			i++
		}
		if i > start {
			if i >= len(f) || f[i] != '$' {
				return "", refused("a width in format")
			}
			n, err := strconv.Atoi(f[start:i])
			if err != nil || n == 0 {
				return "", sqlstate.New(sqlstate.InvalidParameterValue, "format specifies argument 0, but arguments are numbered from 1")
			}
			next = n - 1
			i++
		}
		if i >= len(f) {
			return "", sqlstate.New(sqlstate.InvalidParameterValue, "unterminated format() type specifier").WithHint("For a single \"%%\" use \"%%%%\".")
		}
		if f[i] == '-' || f[i] == '*' {
			return "", refused("a width in format")
		}
		if f[i] != 's' && f[i] != 'I' && f[i] != 'L' {
			return "", sqlstate.New(sqlstate.InvalidParameterValue, "unrecognized format() type specifier \"%c\"", f[i]).WithHint("For a single \"%%\" use \"%%%%\".")
		}
		if next >= len(a) {
			return "", sqlstate.New(sqlstate.InvalidParameterValue, "too few arguments for format()")
		}
		x := a[next]
		next++
		null := x.Type() == sqlite.TypeNull
		switch f[i] {
		case 's':
			if !null {
				b.WriteString(x.Text())
			}
		case 'I':
			if null {
				return "", sqlstate.New(sqlstate.NullNotAllowed, "null values cannot be formatted as an SQL identifier")
			}
			b.WriteString(quote.PGIdent(x.Text()))
		case 'L':
			if null {
				b.WriteString("NULL")
			} else {
				b.WriteString(quote.PGLiteral(x.Text()))
			}
		}
	}
	return b.String(), nil
}
