package value

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// Array is a one-dimensional PostgreSQL array with lower bound 1 (int2vector and
// oidvector: 0), its elements in text form.
type Array []Elem

// Elem is one element, as array_out prints it.
type Elem struct {
	Null bool
	Text string
}

func refuseArray() error {
	return sqlstate.Refusal("CLV-2186", "a SQLite shard takes arrays of one dimension only").
		WithHint("Use one row per element.")
}

// ParseArray is the input of an array type.
func ParseArray(text string, oid uint32) (Array, error) {
	bad := func() (Array, error) {
		return nil, sqlstate.New(sqlstate.InvalidTextRepresentation, "malformed array literal: \"%s\"", text)
	}
	if oid == pgoid.Int2Vector || oid == pgoid.OIDVector {
		var a Array
		for _, f := range strings.Fields(text) {
			a = append(a, Elem{Text: f})
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
		return Array{}, nil
	}
	a := Array{}
	for {
		s = strings.TrimLeft(s, blanks)
		var e Elem
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
			e.Text, s = b.String(), strings.TrimLeft(s[i+1:], blanks)
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
			e.Text, s = b.String(), s[i:]
			if !escaped {
				e.Text = strings.TrimRight(e.Text, blanks)
				e.Null = strings.EqualFold(e.Text, "null")
			}
			if e.Text == "" {
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

// Normal checks the elements and prints the array as array_out does.
func (a Array) Normal(elem uint32, loc *time.Location) (string, error) {
	for i := range a {
		if a[i].Null {
			continue
		}
		d, err := In(elem, a[i].Text, loc)
		if err != nil {
			return "", err
		}
		b, err := Append(nil, elem, d, loc)
		if err != nil {
			return "", err
		}
		a[i].Text = string(b)
	}
	return a.String(), nil
}

// Fit gives the elements a modifier, as an explicit cast does: longer texts are cut.
func (a Array) Fit(elem uint32, mod int32, loc *time.Location) (string, error) {
	for i := range a {
		if a[i].Null {
			continue
		}
		switch n := int(mod) - 4; elem {
		case pgoid.Varchar:
			a[i].Text = Prefix(a[i].Text, n)
		case pgoid.Bpchar:
			a[i].Text = Prefix(a[i].Text, n)
			a[i].Text += strings.Repeat(" ", n-utf8.RuneCountInString(a[i].Text))
		case pgoid.Numeric:
			x, err := ParseNumeric(a[i].Text)
			if err == nil {
				x, err = x.ApplyTypmod(mod)
			}
			if err != nil {
				return "", err
			}
			a[i].Text = x.String()
		case pgoid.Timestamp, pgoid.Timestamptz, pgoid.Time:
			d, err := In(elem, a[i].Text, loc)
			if err != nil {
				return "", err
			}
			d.Int = RoundTimestamp(d.Int, mod)
			b, err := Append(nil, elem, d, loc)
			if err != nil {
				return "", err
			}
			a[i].Text = string(b)
		default:
			return "", sqlstate.Refusal("CLV-2187", "a modifier of an array of %s is not supported on a SQLite shard", TypeName(elem)).
				WithHint("Leave the modifier out.")
		}
	}
	return a.String(), nil
}

// String is the output of an array.
func (a Array) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, e := range a {
		if i > 0 {
			b.WriteByte(',')
		}
		switch {
		case e.Null:
			b.WriteString("NULL")
		case e.Text == "" || strings.EqualFold(e.Text, "null") || strings.ContainsAny(e.Text, "{}\",\\ \t\n\r\f\v"):
			b.WriteByte('"')
			for k := range len(e.Text) {
				if e.Text[k] == '"' || e.Text[k] == '\\' {
					b.WriteByte('\\')
				}
				b.WriteByte(e.Text[k])
			}
			b.WriteByte('"')
		default:
			b.WriteString(e.Text)
		}
	}
	b.WriteByte('}')
	return b.String()
}

// ArrayJSON turns an array into the JSON that json_each unnests; elements that
// JSON cannot carry exactly are strings that ElemFromJSON's SQL reads back.
func ArrayJSON(text string, oid uint32, loc *time.Location) (string, error) {
	elem := Builtin.Element(oid)
	a, err := ParseArray(text, oid)
	if err != nil {
		return "", err
	}
	out := []byte{'['}
	for i, e := range a {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = e.AppendJSON(out, elem, loc); err != nil {
			return "", err
		}
	}
	return string(append(out, ']')), nil
}

// AppendJSON appends an element as ElemFromJSON's SQL reads it back.
func (e Elem) AppendJSON(out []byte, elem uint32, loc *time.Location) ([]byte, error) {
	if e.Null {
		return append(out, "null"...), nil
	}
	d, err := In(elem, e.Text, loc)
	if err != nil {
		return out, err
	}
	switch d.Kind {
	case 'i':
		return strconv.AppendInt(out, d.Int, 10), nil
	case 'f':
		out = append(out, '"')
		return append(appendFloat(out, d.Float, 64), '"'), nil
	case 'b':
		out = append(out, '"')
		return append(hex.AppendEncode(out, []byte(d.Str)), '"'), nil
	}
	s, err := json.Marshal(d.Str)
	return append(out, s...), err
}

// ElemFromJSON is the SQL that turns an element of ArrayJSON into a value.
func ElemFromJSON(elem uint32, value string) string {
	switch ClassOf(elem) {
	case ClassBlob:
		return "unhex(" + value + ")"
	case ClassFloat:
		return "cleave_float(" + value + ")"
	case ClassNumeric:
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
			got, TypeName(got), elem, TypeName(elem))
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
	a := make(Array, 0, n)
	for range n {
		size, ok := get()
		if !ok {
			return "", bad
		}
		if int32(size) == -1 {
			a = append(a, Elem{Null: true})
			continue
		}
		if int64(size) > int64(len(b)) {
			return "", bad
		}
		d, err := FromBinary(elem, b[:size])
		if err != nil {
			return "", err
		}
		b = b[size:]
		t, err := Append(nil, elem, d, time.UTC)
		if err != nil {
			return "", err
		}
		a = append(a, Elem{Text: string(t)})
	}
	return a.String(), nil
}

func appendArrayBinary(dst []byte, text string, oid uint32, loc *time.Location) ([]byte, error) {
	elem := Builtin.Element(oid)
	a, err := ParseArray(text, oid)
	if err != nil {
		return dst, err
	}
	lower := uint32(1)
	if oid == pgoid.Int2Vector || oid == pgoid.OIDVector {
		lower = 0
	}
	nulls := uint32(0)
	for _, e := range a {
		if e.Null {
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
		if e.Null {
			put(0xffffffff)
			continue
		}
		d, err := In(elem, e.Text, loc)
		if err != nil {
			return dst, err
		}
		mark := len(dst)
		put(0)
		if dst, err = AppendBinary(dst, elem, d, loc); err != nil {
			return dst, err
		}
		binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark-4))
	}
	return dst, nil
}

// Prefix returns the first n characters.
func Prefix(s string, n int) string {
	if n >= len(s) {
		return s
	}
	if n <= 0 {
		return ""
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
