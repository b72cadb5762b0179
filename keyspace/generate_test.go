package keyspace_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	. "github.com/cleavedb/cleave/keyspace"
)

const (
	day          = int64(86400) * 1000000
	timestampMin = int64(-211813488000000000)
	timestampEnd = int64(9223371331200000000)
	dateMin      = int64(-2451545)
	dateEnd      = int64(2145031949)
)

// edgeValues are always in the set of a comparison.
func edgeValues(t Type) []Value {
	var vs []Value
	ints := func(ns ...int64) {
		for _, n := range ns {
			if InRange(t, n) {
				vs = append(vs, Int(t, n))
			}
		}
	}
	strs := func(ss ...string) {
		for _, s := range ss {
			vs = append(vs, Str(t, s))
		}
	}
	switch t {
	case Int2, Int4, Int8:
		ints(0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 32767, -32768, 32768, -32769, 65535, 65536,
			math.MaxInt32, math.MinInt32, math.MaxInt32+1, math.MinInt32-1, math.MaxUint32, math.MaxUint32+1, -math.MaxUint32, -math.MaxUint32-1,
			math.MaxInt64, math.MinInt64, math.MaxInt64-1, math.MinInt64+1)
	case Bool:
		ints(0, 1)
	case Date:
		ints(0, 1, -1, dateMin, dateMin+1, dateEnd-1, math.MaxInt32, math.MinInt32, 59, 60, -730119, -730120, -730485, -730486, -36525, 2921939)
	case Timestamp, Timestamptz:
		ints(0, 1, -1, 999999, 1000000, -1000000, -999999, day, day-1, -day, -day-1, timestampMin, timestampMin+1, timestampEnd-1,
			math.MaxInt64, math.MinInt64, 500000, -500000, 499999, -63082281600000000, -63082281600000001, 1<<32, 1<<32-1, -1<<32)
	case Text, Varchar:
		strs("", " ", "a", "A", "ab", "abc", "abcd", "abcdefghijk", "abcdefghijkl", "abcdefghijklm", strings.Repeat("x", 24), strings.Repeat("y", 1000),
			"a ", " a", "a\x01", "\x01", "\x7f", "é", "e\u0301", "ß", "€", "😀", "\U0010ffff", "\ufffd", "\u0080", "'", "''", `\`, `\\`, `\'`, `a\b'c"d`, "\n", "\t", "NULL", "null", "{}", "{a,b}", `"`, `E'x'`, `\x41`, "$$", "--", "/*", "infinity", "0", "-1")
	case Bytea:
		strs("", "\x00", "\x00\x00", "\x00\x01", "\x01", "\xff", "\x00\xff", "a", "a\x00", "a\x00b", "a\x01", "\\", "'", "\\x41", "abcdefghijkl", "abcdefghijklm", strings.Repeat("\x00", 13), strings.Repeat("\xff", 100), "é")
	case UUID:
		strs(strings.Repeat("\x00", 16), strings.Repeat("\xff", 16), "\x80"+strings.Repeat("\x00", 15), strings.Repeat("\x00", 15)+"\x01", "\x7f"+strings.Repeat("\xff", 15), "0123456789abcdef")
	}
	return vs
}

func randomValue(r *rand.Rand, t Type) Value {
	switch t {
	case Int2, Int4, Int8:
		for {
			n := int64(r.Uint64()) >> r.IntN(64)
			if InRange(t, n) {
				return Int(t, n)
			}
		}
	case Bool:
		return Int(t, int64(r.IntN(2)))
	case Date:
		if r.IntN(2) == 0 {
			return Int(t, int64(r.IntN(100000)-50000))
		}
		return Int(t, dateMin+r.Int64N(dateEnd-dateMin))
	case Timestamp, Timestamptz:
		if r.IntN(2) == 0 {
			return Int(t, r.Int64N(2e15)-1e15)
		}
		for {
			if n := int64(r.Uint64()); n >= timestampMin && n < timestampEnd {
				return Int(t, n)
			}
		}
	case UUID:
		b := make([]byte, 16)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return Str(t, string(b))
	case Bytea:
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = byte(r.Uint32())
			if r.IntN(4) == 0 {
				b[i] = [...]byte{0, 1, 255}[r.IntN(3)]
			}
		}
		return Str(t, string(b))
	default:
		var b []byte
		for range r.IntN(30) {
			switch r.IntN(4) {
			case 0:
				b = append(b, `\'" ,{}`[r.IntN(7)])
			case 1:
				c := rune(1 + r.IntN(utf8.MaxRune))
				if utf8.ValidRune(c) {
					b = utf8.AppendRune(b, c)
				}
			default:
				b = append(b, byte(1+r.IntN(127)))
			}
		}
		return Str(t, string(b))
	}
}

// fixedTexts are spellings that were thought of; the rest is made from them.
var fixedTexts = map[string][]string{
	"int": {"0", "-0", "+0", "1", "-1", "+1", " 1", "1 ", "\t1\n", "\v1\f", "\r1", "- 1", "+ 1", "--1", "+-1", "", " ", "-", "+", "1.0", "1e3", "1a", "a", "0x1F", "0X1f", "0o17", "0b11", "0x", "0o", "0b", "0o8", "0b2", "0xg",
		"1_000", "1__000", "_1", "1_", "0x_1", "0x1_", "-0x1", "-1_0", "00", "007", "0000000000000000000000000000001", "32767", "32768", "-32768", "-32769", "2147483647", "2147483648", "-2147483648", "-2147483649",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "99999999999999999999", "18446744073709551615", "18446744073709551616", "99999999999999999999999a", "32768a", "2147483648x", "１", "٣", "1\u00a0", "\u00a01", "1 2", "NaN", "infinity", "null", "true", "'1'", "0x7fffffff", "1,000"},
	"bool": {"t", "f", "T", "F", "true", "false", "TRUE", "False", "tr", "tru", "truee", "fa", "fal", "fals", "y", "ye", "yes", "yess", "Y", "n", "no", "noo", "on", "On", "o", "of", "off", "offf", "oN", "1", "0", "2", "10", "01", "00", "", " ", " t ", "\ttrue\n", "tt", "-1", "+1", "yes no", "ｔ", "İ", "enable", "\u00a0t"},
	"uuid": {"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11", "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
		"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-", "-a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0-eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 ", "", "{}", "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111", "urn:uuid:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}}", "00000000-0000-0000-0000-000000000000"},
	"bytea": {"", `\x`, `\x00`, `\xDEADbeef`, `\x de ad`, `\xde ad `, `\xd e`, `\xde` + "\n" + `ad`, `\xde` + "\t\r" + `ad`, `\xde` + "\v" + `ad`, `\x1`, `\xzz`, `\xag`, `\x1z`, `\x é`, `\X41`, "abc", `a\\b`, `\000`, `\377`, `\400`, `\38`, `\12`, `\`, `a\`, `\\\`, `\001\002`, `é`, `\a`, ` \x41`, `\\x41`, `\x41\x42`, "😀", `\x'`, `0x41`, `\0`, `\08`, `\477`, `\1234`},
	"text":  {"", " ", "a", `\`, "'", "é", "e\u0301", "\u0001", "\U0010ffff", "NULL", "a\nb"},
	"date": {"2000-01-01", "1999-12-31", " 2000-01-01 ", "\t2000-01-01\n", "2000-02-29", "1900-02-29", "2100-02-29", "2001-02-29", "2000-02-30", "2000-04-31", "2000-13-01", "2000-00-01", "2000-01-00", "2000-01-32", "0001-01-01", "0000-01-01", "0001-01-01 BC", "0001-02-29 BC", "0005-02-29 BC", "0004-02-29 BC", "0000-01-01 BC", "4714-11-24 BC", "4714-11-23 BC", "4713-01-01 BC", "9999-12-31", "10000-01-01", "294276-12-31", "294277-01-01", "5874897-12-31", "5874898-01-01", "9999999-01-01", "99999999-01-01",
		"infinity", "-infinity", "Infinity", "-INFINITY", "+infinity", "inf", "-inf", " infinity ", "epoch", "now", "today", "tomorrow", "yesterday", "allballs", "", " ", "2000-1-1", "2000-01-1", "200-01-01", "99-01-01", "01-02-03", "01/02/2000", "2000/01/02", "2000.01.02", "20000101", "2000-001", "J2451545", "Jan 1 2000", "2000-Jan-01", "1 January 2000", "2000-01-01BC", "2000-01-01 bc", "2000-01-01 AD", "2000-01-01 ad", "2000-01-01 BC AD", "BC 2000-01-01", "-2000-01-01", "+2000-01-01", "2000-01-01-", "2000-01-01+05", "2000-01-01Z", "2000-01-01 Z", "2000-01-01 UTC",
		"2000-01-01 12:34:56", "2000-01-01 12:34", "2000-01-01T12:34:56", "2000-01-01t12:34:56Z", "2000-01-01 12:34:56+05", "2000-01-01 23:59:59.9999999", "2000-01-01 24:00:00", "2000-01-01 24:00:01", "2000-01-01 25:00:00", "2000-01-01 12:60:00", "2000-01-01 12:00:60", "2000-01-01 12:00:61", "2000-01-01 23:59:60", "2000-01-01 23:59:60.5", "2000-01-01 12", "2000-01-01T", "2000-01-01 12:", "2000-01-01 12:34:", "2000-01-01 12:34:56.", "2000-01-01 12:34:56 BC", "0044-03-15 12:00:00+00 BC", "2000-01-01  12:34:56", "2000-01-01T 12:34:56", "2000-01-01 T12:34:56", "2000-01-01 12:34:56 PM", "2000-01-01 garbage", "garbage"},
	"timestamp": {"2000-01-01 00:00:00.1", "2000-01-01 00:00:00.123456", "2000-01-01 00:00:00.1234565", "2000-01-01 00:00:00.1234575", "2000-01-01 00:00:00.0000005", "2000-01-01 00:00:00.0000015", "2000-01-01 00:00:00.0000004999999", "2000-01-01 00:00:00.9999995", "2000-01-01 00:00:00.99999949999", "2000-12-31 23:59:59.9999999", "2000-01-01 00:00:00.1234567890123456789012345678901234567890", "1999-12-31 23:59:59.999999", "2000-01-01 00:00:00,5",
		"2000-01-01 00:00:00+00", "2000-01-01 00:00:00-00", "2000-01-01 00:00:00+05:30", "2000-01-01 00:00:00-0530", "2000-01-01 00:00:00+5", "2000-01-01 00:00:00+530", "2000-01-01 00:00:00+05:30:15", "2000-01-01 00:00:00-05:30:15", "2000-01-01 00:00:00+15", "2000-01-01 00:00:00+15:59:59", "2000-01-01 00:00:00+16", "2000-01-01 00:00:00-15:59", "2000-01-01 00:00:00+14:60", "2000-01-01 00:00:00+05:", "2000-01-01 00:00:00 +05", "2000-01-01 00:00:00 + 05", "2000-01-01 00:00:00+ 05", "2000-01-01 00:00:00 -05:00", "2000-01-01T00:00:00Z", "2000-01-01T00:00:00z", "2000-01-01 00:00:00 Z", "2000-01-01 00:00:00UTC", "2000-01-01 00:00:00 UTC", "2000-01-01 00:00:00 utc", "2000-01-01 00:00:00 UTC+3", "2000-01-01 00:00:00 Z5", "2000-01-01 00:00:00ZULU", "2000-01-01 00:00:00UTCX", "2000-01-01 00:00:00 GMT", "2000-01-01 00:00:00 EST", "2000-01-01 00:00:00 Europe/Paris", "2000-01-01 00:00:00+05 BC", "2000-01-01 00:00:00Z BC", "2000-01-01 00:00:00ZBC", "2000-01-01 00:00:00+05BC", "2000-01-01 00:00Z", "2000-01-01 00:00+02", "2000-01-01 00:00:00.5+02", "2000-01-01 00:00:00.5Z", "2000-01-01 00:00:00+0000", "2000-01-01 00:00:00 +00:00 AD", "2000-01-01 00:00:00+00:00:00.5",
		"294276-12-31 23:59:59.999999", "294276-12-31 23:59:59.999999+00", "294276-12-31 23:59:59.9999999+00", "294277-01-01 00:00:00", "294277-01-01 00:00:00+00", "294277-01-01 00:00:00+01", "294276-12-31 23:00:00-01", "294277-01-09 00:00:00+00", "294277-06-09 00:00:00+00", "294278-01-01 00:00:00+00", "4714-11-24 00:00:00 BC", "4714-11-24 00:00:00+00 BC", "4714-11-24 00:00:00+01 BC", "4714-11-23 23:00:00-01 BC", "4714-11-23 22:59:59-01 BC", "4714-11-23 23:59:59 BC", "4715-01-01 00:00:00+00 BC", "5874897-12-31 00:00:00+00", "infinity+00", "1582-10-04 00:00:00+00", "1582-10-10 00:00:00+00", "2016-12-31 23:59:60Z", "2016-12-31 23:59:60.0Z", "2000-01-01 00:00:00.000000Z"},
}

func fixedFor(t Type) []string {
	switch t {
	case Int2, Int4, Int8:
		return fixedTexts["int"]
	case Bool:
		return fixedTexts["bool"]
	case UUID:
		return fixedTexts["uuid"]
	case Bytea:
		return fixedTexts["bytea"]
	case Text, Varchar:
		return fixedTexts["text"]
	case Date, Timestamp, Timestamptz:
		all := append([]string(nil), fixedTexts["date"]...)
		all = append(all, fixedTexts["timestamp"]...)
		for _, s := range fixedTexts["date"] {
			all = append(all, s+" 10:20:30", s+" 10:20:30+02", s+" 00:00:00Z")
		}
		return all
	}
	return nil
}

// probeTexts returns the fixed spellings and n made from them, and from printed
// values, by small changes.
func probeTexts(r *rand.Rand, t Type, n int) []string {
	texts := append([]string(nil), fixedFor(t)...)
	base := len(texts)
	const alphabet = "0123456789-+:. TZtzBCadbc_xXoO{}\\'\tefinuty,/"
	for range n {
		var s []byte
		if r.IntN(2) == 0 {
			s = []byte(texts[r.IntN(base)])
		} else {
			s = []byte(randomText(r, t))
		}
		for range r.IntN(3) {
			c := alphabet[r.IntN(len(alphabet))]
			i := r.IntN(len(s) + 1)
			switch {
			case r.IntN(3) == 0 || i == len(s):
				s = append(s[:i], append([]byte{c}, s[i:]...)...)
			case r.IntN(2) == 0:
				s[i] = c
			default:
				s = append(s[:i], s[i+1:]...)
			}
		}
		if utf8.Valid(s) {
			texts = append(texts, string(s))
		}
	}
	return texts
}

// randomText is a value printed in one of its other spellings.
func randomText(r *rand.Rand, t Type) string {
	v := randomValue(r, t)
	s := v.Text()
	switch t {
	case Timestamptz, Timestamp:
		s = strings.TrimSuffix(s, "+00")
		if r.IntN(3) == 0 {
			s = strings.Replace(s, " ", "T", 1)
		}
		if !strings.HasSuffix(s, "BC") && r.IntN(4) != 0 {
			s += []string{"Z", "+00", fmt.Sprintf("%+03d", r.IntN(31)-15), fmt.Sprintf("%+03d:%02d", r.IntN(31)-15, r.IntN(60)), fmt.Sprintf("+%02d%02d", r.IntN(16), r.IntN(60)), fmt.Sprintf("-%02d:%02d:%02d", r.IntN(16), r.IntN(60), r.IntN(60)), " UTC"}[r.IntN(7)]
		}
	case UUID:
		if r.IntN(2) == 0 {
			s = "{" + strings.ToUpper(s) + "}"
		}
	case Bool:
		s = []string{"t", "f", "true", "false", "on", "off", "yes", "no", "1", "0"}[r.IntN(10)]
	}
	return s
}
