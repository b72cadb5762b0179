package function

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

// textFunctions are the functions of text and bytea.
var textFunctions = []Def{
	Strict("cleave_varchar", 2, func(v *Env, a []Arg) (value.Datum, error) {
		s, n := a[0].Text(), int(a[1].Int64())
		if len(s) <= n || utf8.RuneCountInString(s) <= n {
			return value.Text(s), nil
		}
		cut := value.Prefix(s, n)
		if strings.Trim(s[len(cut):], " ") != "" {
			return value.Datum{}, sqlstate.New("22001", "value too long for type character varying(%d)", n)
		}
		return value.Text(cut), nil
	}),
	Strict("cleave_bpchar", 3, func(v *Env, a []Arg) (value.Datum, error) {
		s, n := a[0].Text(), int(a[1].Int64())
		if c := utf8.RuneCountInString(s); c < n {
			return value.Text(s + strings.Repeat(" ", n-c)), nil
		}
		cut := value.Prefix(s, n)
		if a[2].Int64() == 0 && strings.Trim(s[len(cut):], " ") != "" {
			return value.Datum{}, sqlstate.New("22001", "value too long for type character(%d)", n)
		}
		return value.Text(cut), nil
	}),
	Strict("cleave_octets", 1, func(v *Env, a []Arg) (value.Datum, error) { return value.Int(int64(len(a[0].Text()))), nil }),
	Strict("cleave_byteacat", 2, func(v *Env, a []Arg) (value.Datum, error) {
		return value.Blob(string(a[0].Blob()) + string(a[1].Blob())), nil
	}),
	Strict("cleave_lower", 1, func(v *Env, a []Arg) (value.Datum, error) {
		return value.Text(strings.Map(unicode.ToLower, a[0].Text())), nil
	}),
	Strict("cleave_upper", 1, func(v *Env, a []Arg) (value.Datum, error) {
		return value.Text(strings.Map(unicode.ToUpper, a[0].Text())), nil
	}),
	Strict("cleave_initcap", 1, func(v *Env, a []Arg) (value.Datum, error) {
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
				return value.Datum{}, sqlstate.Refusal("CLV-2101", "initcap of the character '%s' is not supported on a SQLite shard", string(r)).
					WithHint("Use it on letters that have upper and lower case.")
			default:
				inWord = r >= '0' && r <= '9'
			}
			b.WriteRune(r)
		}
		return value.Text(b.String()), nil
	}),
	Strict("cleave_substr", 2, substr),
	Strict("cleave_substr", 3, substr),
	Strict("cleave_subbytes", 2, subbytes),
	Strict("cleave_subbytes", 3, subbytes),
	Strict("cleave_trim", 3, func(v *Env, a []Arg) (value.Datum, error) {
		s, set, how := a[0].Text(), a[1].Text(), a[2].Int64()
		if how&1 != 0 {
			s = strings.TrimLeft(s, set)
		}
		if how&2 != 0 {
			s = strings.TrimRight(s, set)
		}
		return value.Text(s), nil
	}),
	Strict("cleave_replace", 3, func(v *Env, a []Arg) (value.Datum, error) {
		if a[1].Text() == "" {
			return value.Text(a[0].Text()), nil
		}
		return value.Text(strings.ReplaceAll(a[0].Text(), a[1].Text(), a[2].Text())), nil
	}),
	Strict("cleave_left", 2, func(v *Env, a []Arg) (value.Datum, error) {
		s, n := a[0].Text(), a[1].Int64()
		if n < 0 {
			n += int64(utf8.RuneCountInString(s))
		}
		return value.Text(value.Prefix(s, int(max(n, 0)))), nil
	}),
	Strict("cleave_right", 2, func(v *Env, a []Arg) (value.Datum, error) {
		s, n := a[0].Text(), a[1].Int64()
		count := int64(utf8.RuneCountInString(s))
		skip := count - n
		if n < 0 {
			skip = -n
		}
		return value.Text(s[len(value.Prefix(s, int(min(max(skip, 0), count)))):]), nil
	}),
	Strict("cleave_pad", 4, func(v *Env, a []Arg) (value.Datum, error) {
		s, n, fill := a[0].Text(), a[1].Int64(), a[2].Text()
		if n > 1<<26 {
			return value.Datum{}, sqlstate.New(sqlstate.ProgramLimitExceeded, "requested length too large")
		}
		n = max(n, 0)
		count := int64(utf8.RuneCountInString(s))
		if count >= n {
			return value.Text(value.Prefix(s, int(n))), nil
		}
		if fill == "" {
			return value.Text(s), nil
		}
		need := int(n - count)
		pad := value.Prefix(strings.Repeat(fill, need/utf8.RuneCountInString(fill)+1), need)
		if a[3].Int64() == 1 {
			return value.Text(pad + s), nil
		}
		return value.Text(s + pad), nil
	}),
	Strict("cleave_reverse", 1, func(v *Env, a []Arg) (value.Datum, error) {
		r := []rune(a[0].Text())
		for i, j := 0, len(r)-1; i < j; i, j = i+1, j-1 {
			r[i], r[j] = r[j], r[i]
		}
		return value.Text(string(r)), nil
	}),
	Strict("cleave_repeat", 2, func(v *Env, a []Arg) (value.Datum, error) {
		n := max(a[1].Int64(), 0)
		if n*int64(len(a[0].Text())) > 1<<28 {
			return value.Datum{}, sqlstate.New(sqlstate.ProgramLimitExceeded, "requested length too large")
		}
		return value.Text(strings.Repeat(a[0].Text(), int(n))), nil
	}),
	Strict("cleave_strpos", 2, func(v *Env, a []Arg) (value.Datum, error) {
		i := strings.Index(a[0].Text(), a[1].Text())
		if i < 0 {
			return value.Int(0), nil
		}
		return value.Int(int64(utf8.RuneCountInString(a[0].Text()[:i])) + 1), nil
	}),
	Strict("cleave_split_part", 3, func(v *Env, a []Arg) (value.Datum, error) {
		s, sep, n := a[0].Text(), a[1].Text(), a[2].Int64()
		if n == 0 {
			return value.Datum{}, sqlstate.New(sqlstate.InvalidParameterValue, "field position must not be zero")
		}
		parts := []string{s}
		if sep != "" && s != "" {
			parts = strings.Split(s, sep)
		}
		if n < 0 {
			n += int64(len(parts)) + 1
		}
		if n < 1 || n > int64(len(parts)) {
			return value.Text(""), nil
		}
		return value.Text(parts[n-1]), nil
	}),
	Strict("cleave_starts_with", 2, func(v *Env, a []Arg) (value.Datum, error) {
		return value.Bool(strings.HasPrefix(a[0].Text(), a[1].Text())), nil
	}),
	Strict("cleave_translate", 3, func(v *Env, a []Arg) (value.Datum, error) {
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
		return value.Text(b.String()), nil
	}),
	Strict("cleave_chr", 1, func(v *Env, a []Arg) (value.Datum, error) {
		n := a[0].Int64()
		switch {
		case n == 0:
			return value.Datum{}, sqlstate.New(sqlstate.ProgramLimitExceeded, "null character not permitted")
		case n < 0:
			return value.Datum{}, sqlstate.New(sqlstate.InvalidParameterValue, "character number must be positive")
		case n > 0x10ffff:
			return value.Datum{}, sqlstate.New(sqlstate.ProgramLimitExceeded, "requested character too large for encoding: %d", n)
		case n >= 0xd800 && n <= 0xdfff:
			return value.Datum{}, sqlstate.New(sqlstate.ProgramLimitExceeded, "requested character not valid for encoding: %d", n)
		}
		return value.Text(string(rune(n))), nil
	}),
	Strict("cleave_ascii", 1, func(v *Env, a []Arg) (value.Datum, error) {
		if a[0].Text() == "" {
			return value.Int(0), nil
		}
		r, _ := utf8.DecodeRuneInString(a[0].Text())
		return value.Int(int64(r)), nil
	}),
	Strict("cleave_md5", 1, func(v *Env, a []Arg) (value.Datum, error) {
		s := md5.Sum(a[0].Blob())
		return value.Text(hex.EncodeToString(s[:])), nil
	}),
	Strict("cleave_sha256", 1, func(v *Env, a []Arg) (value.Datum, error) {
		s := sha256.Sum256(a[0].Blob())
		return value.Blob(string(s[:])), nil
	}),
	Strict("cleave_sha512", 1, func(v *Env, a []Arg) (value.Datum, error) {
		s := sha512.Sum512(a[0].Blob())
		return value.Blob(string(s[:])), nil
	}),
	Strict("cleave_encode", 2, func(v *Env, a []Arg) (value.Datum, error) {
		b := a[0].Blob()
		switch strings.ToLower(a[1].Text()) {
		case "hex":
			return value.Text(hex.EncodeToString(b)), nil
		case "base64":
			s := base64.StdEncoding.EncodeToString(b)
			var out strings.Builder
			for len(s) > 76 {
				out.WriteString(s[:76] + "\n")
				s = s[76:]
			}
			out.WriteString(s)
			return value.Text(out.String()), nil
		case "escape":
			return value.Datum{}, sqlstate.Refusal("CLV-2102", "encode to 'escape' is not supported on a SQLite shard").
				WithHint("Use 'hex' or 'base64'.")
		}
		return value.Datum{}, sqlstate.New(sqlstate.InvalidParameterValue, "unrecognized encoding: \"%s\"", a[1].Text())
	}),
	Strict("cleave_decode", 2, func(v *Env, a []Arg) (value.Datum, error) {
		s := a[0].Text()
		switch strings.ToLower(a[1].Text()) {
		case "hex":
			b, err := value.ByteaIn(`\x` + s)
			if err != nil {
				return value.Datum{}, err
			}
			return value.Blob(b), nil
		case "base64":
			b, err := base64.StdEncoding.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "", "\r", "").Replace(s))
			if err != nil {
				return value.Datum{}, sqlstate.New(sqlstate.InvalidParameterValue, "invalid base64 end sequence")
			}
			return value.Blob(string(b)), nil
		case "escape":
			return value.Datum{}, sqlstate.Refusal("CLV-2103", "decode from 'escape' is not supported on a SQLite shard").
				WithHint("Use 'hex' or 'base64'.")
		}
		return value.Datum{}, sqlstate.New(sqlstate.InvalidParameterValue, "unrecognized encoding: \"%s\"", a[1].Text())
	}),
	Strict("cleave_quote_ident", 1, func(v *Env, a []Arg) (value.Datum, error) { return value.Text(quote.PGIdent(a[0].Text())), nil }),
	Strict("cleave_quote_literal", 1, func(v *Env, a []Arg) (value.Datum, error) { return value.Text(quote.PGLiteral(a[0].Text())), nil }),
	Strict("cleave_overlay", 4, func(v *Env, a []Arg) (value.Datum, error) {
		s, from, n := a[0].Text(), a[2].Int64(), a[3].Int64()
		if from <= 0 {
			return value.Datum{}, sqlstate.New("22011", "negative substring length not allowed")
		}
		head := value.Prefix(s, int(from-1))
		tail := ""
		if start := from + n; start <= 1 {
			tail = s
		} else {
			tail = s[len(value.Prefix(s, int(start-1))):]
		}
		return value.Text(head + a[1].Text() + tail), nil
	}),
	Lax("cleave_concat", -1, func(v *Env, a []Arg) (value.Datum, error) {
		var b strings.Builder
		for _, x := range a {
			if x.Type() != sqlite.TypeNull {
				b.WriteString(x.Text())
			}
		}
		return value.Text(b.String()), nil
	}),
	Lax("cleave_concat_ws", -1, func(v *Env, a []Arg) (value.Datum, error) {
		if a[0].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		var parts []string
		for _, x := range a[1:] {
			if x.Type() != sqlite.TypeNull {
				parts = append(parts, x.Text())
			}
		}
		return value.Text(strings.Join(parts, a[0].Text())), nil
	}),
	Lax("cleave_format", -1, func(v *Env, a []Arg) (value.Datum, error) {
		if a[0].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		s, err := formatText(a[0].Text(), a[1:])
		return value.Text(s), err
	}),
	Strict("cleave_like", 2, func(v *Env, a []Arg) (value.Datum, error) {
		ok, err := likeMatch(a[0].Text(), a[1].Text())
		if err != nil {
			return value.Datum{}, err
		}
		return value.Bool(ok), nil
	}),
	Strict("cleave_like_escape", 2, func(v *Env, a []Arg) (value.Datum, error) {
		p, esc := a[0].Text(), a[1].Text()
		if utf8.RuneCountInString(esc) > 1 {
			return value.Datum{}, sqlstate.New("22025", "invalid escape string").WithHint("Escape string must be empty or one character.")
		}
		if esc == `\` {
			return value.Text(p), nil
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
		return value.Text(b.String()), nil
	}),
	Strict("cleave_regex", 3, func(v *Env, a []Arg) (value.Datum, error) {
		re, err := v.regexes.get(a[1].Text(), a[2].Int64() == 1)
		if err != nil {
			return value.Datum{}, err
		}
		return value.Bool(re.MatchString(a[0].Text())), nil
	}),
}

// substr is substring of text.
func substr(v *Env, a []Arg) (value.Datum, error) {
	from, to := a[1].Int64(), int64(1)<<40
	if len(a) == 3 {
		if a[2].Int64() < 0 {
			return value.Datum{}, sqlstate.New("22011", "negative substring length not allowed")
		}
		to = from + a[2].Int64()
	}
	from = max(from, 1)
	if to <= from {
		return value.Text(""), nil
	}
	s := a[0].Text()
	s = s[len(value.Prefix(s, int(from-1))):]
	return value.Text(value.Prefix(s, int(to-from))), nil
}

// subbytes is substring of bytea.
func subbytes(v *Env, a []Arg) (value.Datum, error) {
	from, to := a[1].Int64(), int64(1)<<40
	if len(a) == 3 {
		if a[2].Int64() < 0 {
			return value.Datum{}, sqlstate.New("22011", "negative substring length not allowed")
		}
		to = from + a[2].Int64()
	}
	b := string(a[0].Blob())
	from = max(from, 1) - 1
	to = min(to-1, int64(len(b)))
	if to <= from {
		return value.Blob(""), nil
	}
	return value.Blob(b[from:to]), nil
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
	if err := checkRegexp(p, fold); err != nil {
		return nil, err
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

// checkRegexp refuses a regular expression that Go's engine does not match as PostgreSQL's does.
func checkRegexp(p string, fold bool) error {
	refuse := sqlstate.Refusal("CLV-2104", "a SQLite shard does not match the regular expression %s exactly", quote.Text(p)).
		WithHint("Use literals, ., [...], (...), |, *, +, ?, ^ and $ only, or LIKE.")
	if strings.HasPrefix(p, "***") {
		return refuse
	}
	for _, s := range []string{"(?", "[[", "[:", "*?", "+?", "??"} {
		if strings.Contains(p, s) {
			return refuse
		}
	}
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
			if i >= len(p) {
				return sqlstate.New("2201B", "invalid regular expression: invalid escape \\ sequence")
			}
			if letterOrDigit(p[i]) || p[i] >= utf8.RuneSelf {
				return refuse
			}
		case '{', '}':
			return refuse
		default:
			if fold && p[i] >= utf8.RuneSelf {
				return refuse
			}
		}
	}
	return nil
}

func letterOrDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
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

// formatText is format with the conversions %s, %I, %L and %%.
func formatText(f string, a []Arg) (string, error) {
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
		n, size, err := formatPosition(f[i:])
		if err != nil {
			return "", err
		}
		if size > 0 {
			next, i = n-1, i+size
		}
		if err := checkConversion(f[i:]); err != nil {
			return "", err
		}
		if next >= len(a) {
			return "", sqlstate.New(sqlstate.InvalidParameterValue, "too few arguments for format()")
		}
		text, err := converted(f[i], a[next])
		if err != nil {
			return "", err
		}
		b.WriteString(text)
		next++
	}
	return b.String(), nil
}

// formatPosition reads the number of an argument and its $, which a conversion of format() may begin with.
func formatPosition(f string) (n, size int, err error) {
	digits := len(f) - len(strings.TrimLeft(f, "0123456789"))
	if digits == 0 {
		return 0, 0, nil
	}
	if digits == len(f) || f[digits] != '$' {
		return 0, 0, value.Unsupported("a width in format")
	}
	n, err = strconv.Atoi(f[:digits])
	if err != nil || n == 0 {
		return 0, 0, sqlstate.New(sqlstate.InvalidParameterValue, "format specifies argument 0, but arguments are numbered from 1")
	}
	return n, digits + 1, nil
}

// checkConversion refuses what is not a conversion of format().
func checkConversion(f string) error {
	switch {
	case f == "":
		return sqlstate.New(sqlstate.InvalidParameterValue, "unterminated format() type specifier").WithHint("For a single \"%%\" use \"%%%%\".")
	case f[0] == '-' || f[0] == '*':
		return value.Unsupported("a width in format")
	case f[0] != 's' && f[0] != 'I' && f[0] != 'L':
		return sqlstate.New(sqlstate.InvalidParameterValue, "unrecognized format() type specifier \"%c\"", f[0]).WithHint("For a single \"%%\" use \"%%%%\".")
	}
	return nil
}

// converted is an argument of format() as a conversion shows it.
func converted(conversion byte, x Arg) (string, error) {
	null := x.Type() == sqlite.TypeNull
	switch {
	case null && conversion == 'I':
		return "", sqlstate.New(sqlstate.NullNotAllowed, "null values cannot be formatted as an SQL identifier")
	case null && conversion == 'L':
		return "NULL", nil
	case null:
		return "", nil
	case conversion == 'I':
		return quote.PGIdent(x.Text()), nil
	case conversion == 'L':
		return quote.PGLiteral(x.Text()), nil
	}
	return x.Text(), nil
}
