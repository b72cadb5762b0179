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
		return parseVector(text), nil
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
		ok := false
		switch {
		case strings.HasPrefix(s, "{"):
			return nil, refuseArray()
		case strings.HasPrefix(s, `"`):
			e, s, ok = quotedElem(s)
		default:
			e, s, ok = plainElem(s)
		}
		if !ok {
			return bad()
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

// parseVector reads int2vector and oidvector: values between blanks.
func parseVector(text string) (a Array) {
	for _, f := range strings.Fields(text) {
		a = append(a, Elem{Text: f})
	}
	return a
}

// quotedElem reads an element between double quotes, and the blanks after it.
func quotedElem(s string) (e Elem, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] == '"' {
			return Elem{Text: b.String()}, strings.TrimLeft(s[i+1:], blanks), true
		}
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return e, "", false
}

// plainElem reads an element without quotes, up to the comma or the end.
func plainElem(s string) (e Elem, rest string, ok bool) {
	var b strings.Builder
	i, escaped := 0, false
	for ; i < len(s) && s[i] != ','; i++ {
		switch s[i] {
		case '"', '{', '}':
			return e, "", false
		case '\\':
			if i+1 >= len(s) {
				return e, "", false
			}
			i, escaped = i+1, true
		}
		b.WriteByte(s[i])
	}
	e.Text = b.String()
	if !escaped {
		e.Text = strings.TrimRight(e.Text, blanks)
		e.Null = strings.EqualFold(e.Text, "null")
	}
	return e, s[i:], e.Text != ""
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
	dims, _ := get()
	_, _ = get() // whether there are nulls
	got, ok := get()
	if !ok || dims > 6 {
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
	a, err := elemsFromBinary(b, int(n), elem)
	return a.String(), err
}

// elemsFromBinary reads the elements of an array, each with its size before it.
func elemsFromBinary(b []byte, n int, elem uint32) (Array, error) {
	bad := sqlstate.New(sqlstate.InvalidBinary, "incorrect binary data format")
	a := make(Array, 0, n)
	for range n {
		if len(b) < 4 {
			return nil, bad
		}
		size := int32(binary.BigEndian.Uint32(b))
		b = b[4:]
		if size == -1 {
			a = append(a, Elem{Null: true})
			continue
		}
		if int64(uint32(size)) > int64(len(b)) {
			return nil, bad
		}
		t, err := textOfBinary(elem, b[:size])
		if err != nil {
			return nil, err
		}
		b = b[size:]
		a = append(a, Elem{Text: t})
	}
	return a, nil
}

// textOfBinary is the text form of a binary value.
func textOfBinary(oid uint32, b []byte) (string, error) {
	d, err := FromBinary(oid, b)
	if err != nil {
		return "", err
	}
	t, err := Append(nil, oid, d, time.UTC)
	return string(t), err
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
