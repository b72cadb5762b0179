package sqlite

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

// array is a one-dimensional PostgreSQL array with lower bound 1 (int2vector and
// oidvector: 0), its elements in text form.
type array []arrayElem

type arrayElem struct {
	null bool
	text string
}

func refuseArray() error {
	return sqlstate.Refuse("a SQLite shard takes arrays of one dimension only", "Use one row per element.")
}

func parseArray(text string, oid uint32) (array, error) {
	bad := func() (array, error) {
		return nil, sqlstate.New(sqlstate.InvalidTextRepresentation, "malformed array literal: \"%s\"", text)
	}
	if oid == oidInt2Vector || oid == oidOIDVector {
		var a array
		for _, f := range strings.Fields(text) {
			a = append(a, arrayElem{text: f})
		}
		return a, nil
	}
	s := strings.Trim(text, blanks)
	if len(s) > 0 && s[0] == '[' {
		return nil, refuseArray()
	}
	if len(s) < 2 || s[0] != '{' || s[len(s)-1] != '}' {
		return bad()
	}
	s = s[1 : len(s)-1]
	if strings.Trim(s, blanks) == "" {
		return array{}, nil
	}
	a := array{}
	for {
		s = strings.TrimLeft(s, blanks)
		var e arrayElem
		if strings.HasPrefix(s, "{") {
			return nil, refuseArray()
		}
		if strings.HasPrefix(s, `"`) {
			var b strings.Builder
			i := 1
			for ; ; i++ {
				if i >= len(s) {
					return bad()
				}
				if s[i] == '\\' && i+1 < len(s) {
					i++
				} else if s[i] == '"' {
					break
				}
				b.WriteByte(s[i])
			}
			e.text, s = b.String(), strings.TrimLeft(s[i+1:], blanks)
		} else {
			var b strings.Builder
			i, escaped := 0, false
			for ; i < len(s) && s[i] != ','; i++ {
				switch s[i] {
				case '"', '{', '}':
					return bad()
				case '\\':
					if i+1 >= len(s) {
						return bad()
					}
					i, escaped = i+1, true
				}
				b.WriteByte(s[i])
			}
			e.text, s = b.String(), s[i:]
			if !escaped {
				e.text = strings.TrimRight(e.text, blanks)
				e.null = strings.EqualFold(e.text, "null")
			}
			if e.text == "" {
				return bad()
			}
		}
		a = append(a, e)
		if s == "" {
			return a, nil
		}
		if s[0] != ',' {
			return bad()
		}
		s = s[1:]
	}
}

// normal checks the elements and prints the array as array_out does.
func (a array) normal(elem uint32, loc *time.Location) (string, error) {
	for i := range a {
		if a[i].null {
			continue
		}
		d, err := datumIn(elem, a[i].text, loc)
		if err != nil {
			return "", err
		}
		b, err := appendDatum(nil, elem, d, loc)
		if err != nil {
			return "", err
		}
		a[i].text = string(b)
	}
	return a.String(), nil
}

// fit gives the elements a modifier, as an explicit cast does: longer texts are cut.
func (a array) fit(elem uint32, mod int32, loc *time.Location) (string, error) {
	for i := range a {
		if a[i].null {
			continue
		}
		switch n := int(mod) - 4; elem {
		case oidVarchar:
			a[i].text = prefix(a[i].text, n)
		case oidBpchar:
			a[i].text = prefix(a[i].text, n)
			a[i].text += strings.Repeat(" ", n-utf8.RuneCountInString(a[i].text))
		case oidNumeric:
			x, err := parseNumeric(a[i].text)
			if err == nil {
				x, err = x.applyTypmod(mod)
			}
			if err != nil {
				return "", err
			}
			a[i].text = x.String()
		case oidTimestamp, oidTimestamptz, oidTime:
			d, err := datumIn(elem, a[i].text, loc)
			if err != nil {
				return "", err
			}
			d.i = roundTS(d.i, mod)
			b, err := appendDatum(nil, elem, d, loc)
			if err != nil {
				return "", err
			}
			a[i].text = string(b)
		default:
			return "", sqlstate.Refuse("a modifier of an array of "+typeName(elem)+" is not supported on a SQLite shard", "Leave the modifier out.")
		}
	}
	return a.String(), nil
}

func (a array) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, e := range a {
		if i > 0 {
			b.WriteByte(',')
		}
		switch {
		case e.null:
			b.WriteString("NULL")
		case e.text == "" || strings.EqualFold(e.text, "null") || strings.ContainsAny(e.text, "{}\",\\ \t\n\r\f\v"):
			b.WriteByte('"')
			for k := range len(e.text) {
				if e.text[k] == '"' || e.text[k] == '\\' {
					b.WriteByte('\\')
				}
				b.WriteByte(e.text[k])
			}
			b.WriteByte('"')
		default:
			b.WriteString(e.text)
		}
	}
	b.WriteByte('}')
	return b.String()
}

// arrayJSON turns an array into the JSON that json_each unnests; elements that
// JSON cannot carry exactly are strings that elemFromJSON's SQL reads back.
func arrayJSON(text string, oid uint32, loc *time.Location) (string, error) {
	elem := builtin.Element(oid)
	a, err := parseArray(text, oid)
	if err != nil {
		return "", err
	}
	out := []byte{'['}
	for i, e := range a {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = e.appendJSON(out, elem, loc); err != nil {
			return "", err
		}
	}
	return string(append(out, ']')), nil
}

// appendJSON appends an element as elemFromJSON's SQL reads it back.
func (e arrayElem) appendJSON(out []byte, elem uint32, loc *time.Location) ([]byte, error) {
	if e.null {
		return append(out, "null"...), nil
	}
	d, err := datumIn(elem, e.text, loc)
	if err != nil {
		return out, err
	}
	switch d.kind {
	case 'i':
		return strconv.AppendInt(out, d.i, 10), nil
	case 'f':
		out = append(out, '"')
		return append(appendFloat(out, d.f, 64), '"'), nil
	case 'b':
		out = append(out, '"')
		return append(hex.AppendEncode(out, []byte(d.s)), '"'), nil
	}
	s, err := json.Marshal(d.s)
	return append(out, s...), err
}

// elemFromJSON is the SQL that turns an element of arrayJSON into a value.
func elemFromJSON(elem uint32, value string) string {
	switch classOf(elem) {
	case classBlob:
		return "unhex(" + value + ")"
	case classFloat:
		return "cleave_float(" + value + ")"
	case classNumeric:
		return "(" + value + " COLLATE cleave_numeric)"
	}
	return value
}

func arrayFromBinary(b []byte, elem uint32) (string, error) {
	bad := sqlstate.New(sqlstate.InvalidBinary, "incorrect binary data format")
	get := func() (uint32, bool) {
		if len(b) < 4 {
			return 0, false
		}
		v := binary.BigEndian.Uint32(b)
		b = b[4:]
		return v, true
	}
	dims, ok := get()
	if !ok || dims > 6 {
		return "", bad
	}
	if _, ok = get(); !ok {
		return "", bad
	}
	got, ok := get()
	if !ok {
		return "", bad
	}
	if got != elem {
		return "", sqlstate.New(sqlstate.DatatypeMismatch, "binary data has array element type %d (%s) instead of expected %d (%s)",
			got, typeName(got), elem, typeName(elem))
	}
	if dims == 0 {
		return "{}", nil
	}
	if dims > 1 {
		return "", refuseArray()
	}
	n, ok := get()
	lower, ok2 := get()
	if !ok || !ok2 || int(n) > len(b)/4 {
		return "", bad
	}
	if lower != 1 {
		return "", refuseArray()
	}
	a := make(array, 0, n)
	for range n {
		size, ok := get()
		if !ok {
			return "", bad
		}
		if int32(size) == -1 {
			a = append(a, arrayElem{null: true})
			continue
		}
		if int64(size) > int64(len(b)) {
			return "", bad
		}
		d, err := datumFromBinary(elem, b[:size])
		if err != nil {
			return "", err
		}
		b = b[size:]
		t, err := appendDatum(nil, elem, d, time.UTC)
		if err != nil {
			return "", err
		}
		a = append(a, arrayElem{text: string(t)})
	}
	return a.String(), nil
}

func appendArrayBinary(dst []byte, text string, oid uint32, loc *time.Location) ([]byte, error) {
	elem := builtin.Element(oid)
	a, err := parseArray(text, oid)
	if err != nil {
		return dst, err
	}
	lower := uint32(1)
	if oid == oidInt2Vector || oid == oidOIDVector {
		lower = 0
	}
	nulls := uint32(0)
	for _, e := range a {
		if e.null {
			nulls = 1
		}
	}
	put := func(v uint32) { dst = binary.BigEndian.AppendUint32(dst, v) }
	if len(a) == 0 && lower == 1 {
		put(0)
		put(0)
		put(elem)
		return dst, nil
	}
	put(1)
	put(nulls)
	put(elem)
	put(uint32(len(a)))
	put(lower)
	for _, e := range a {
		if e.null {
			put(0xffffffff)
			continue
		}
		d, err := datumIn(elem, e.text, loc)
		if err != nil {
			return dst, err
		}
		mark := len(dst)
		put(0)
		if dst, err = appendBinaryDatum(dst, elem, d, loc); err != nil {
			return dst, err
		}
		binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark-4))
	}
	return dst, nil
}
