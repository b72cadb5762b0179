package plan

import (
	"encoding/binary"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// column = ANY ($1): one parameter holds many alternatives of a shard key.

// arrayOIDs maps the array types of pg_type.dat to their elements' types.
var arrayOIDs = map[uint32]uint32{
	1000: pgoid.Bool, 1001: pgoid.Bytea, 1005: pgoid.Int2, 1007: pgoid.Int4, 1016: pgoid.Int8, 1009: pgoid.Text, 1015: pgoid.Varchar, 1182: pgoid.Date, 1115: pgoid.Timestamp, 1185: pgoid.Timestamptz,
	2951: pgoid.UUID, 1231: pgoid.Numeric,
}

// expandKeys writes out the alternatives of array parameters. Without any it
// returns keys.
func expandKeys(keys [][]KeyExpr, args *Args) ([][]KeyExpr, error) {
	var out [][]KeyExpr
	for at, key := range keys {
		arrays := false
		for i := range key {
			arrays = arrays || key[i].Array
		}
		if !arrays {
			if out != nil {
				out = append(out, key)
			}
			continue
		}
		if out == nil {
			out = append(make([][]KeyExpr, 0, len(keys)+16), keys[:at]...)
		}
		alternatives := [][]KeyExpr{append([]KeyExpr(nil), key...)}
		for i := range key {
			if !key[i].Array {
				continue
			}
			elements, err := key[i].elements(args)
			if err != nil {
				return nil, err
			}
			if len(alternatives)*len(elements)+len(out) > arrayMax {
				return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "the arrays of this statement name more than %d shard keys", arrayMax).WithHint("send it in several statements")
			}
			var next [][]KeyExpr
			for _, a := range alternatives {
				for _, e := range elements {
					k := append([]KeyExpr(nil), a...)
					k[i] = e
					next = append(next, k)
				}
			}
			alternatives = next
		}
		out = append(out, alternatives...)
	}
	if out == nil {
		return keys, nil
	}
	return out, nil
}

// arrayMax bounds the alternatives that arrays give one execution.
const arrayMax = 200_000

// elements evaluates an array parameter: an expression without parameter for each
// element that is not NULL.
func (e *KeyExpr) elements(args *Args) ([]KeyExpr, error) {
	raw, oid, format, err := e.bound(args)
	if err != nil || raw == nil {
		return nil, err
	}
	one := *e
	one.Array, one.Param, one.Cast = false, 0, 0
	element := uint32(0)
	switch {
	case oid == 0 || oid == pgoid.Unknown:
	case e.Cast != 0 && (oid == pgoid.Text || oid == pgoid.Varchar):
		format = 0
	default:
		known := false
		if element, known = arrayOIDs[oid]; !known {
			return nil, typeRefusal(e)
		}
	}
	var values [][]byte
	if format == 1 {
		if values, element, err = binaryArray(raw); err != nil {
			return nil, err
		}
	} else if values, err = ArrayElements(raw); err != nil {
		return nil, err
	}
	typed := *e
	typed.Array, typed.Cast = false, 0
	out := make([]KeyExpr, 0, len(values))
	for _, v := range values {
		if v == nil {
			continue
		}
		val, never, err := typed.value(v, element, format)
		if err != nil {
			return nil, err
		}
		if never {
			continue
		}
		x := one
		x.Value = val
		out = append(out, x)
	}
	return out, nil
}

// binaryArray reads an array in binary format: all elements, whatever its dimensions.
func binaryArray(b []byte) (values [][]byte, element uint32, err error) {
	bad := sqlstate.New(sqlstate.InvalidBinary, "incorrect binary data format in an array parameter")
	if len(b) < 12 {
		return nil, 0, bad
	}
	dims, element := int(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[8:])
	if b = b[12:]; dims < 0 || dims > 6 || len(b) < 8*dims {
		return nil, 0, bad
	}
	n := 0
	for i := range dims {
		size := int(int32(binary.BigEndian.Uint32(b[8*i:])))
		if i == 0 {
			n = 1
		}
		if n *= size; size < 0 || n > len(b) {
			return nil, 0, bad
		}
	}
	b = b[8*dims:]
	for range n {
		if len(b) < 4 {
			return nil, 0, bad
		}
		size := int(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
		if size < 0 {
			values = append(values, nil)
			continue
		}
		if size > len(b) {
			return nil, 0, bad
		}
		values = append(values, b[:size:size])
		b = b[size:]
	}
	return values, element, nil
}

// ArrayElements reads an array in text format: {1,NULL,"a b"}, nested ones too. The
// elements keep what PostgreSQL would give to the element type's input.
func ArrayElements(b []byte) ([][]byte, error) {
	values, _, err := textElements(b)
	return values, err
}

// textElements is ArrayElements, and where the elements stand.
func textElements(b []byte) (values [][]byte, spans [][2]int, err error) {
	bad := func() error {
		return sqlstate.New(sqlstate.InvalidTextRepresentation, "malformed array literal: %q", b)
	}
	blank := func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f' }
	i := 0
	skip := func() {
		for i < len(b) && blank(b[i]) {
			i++
		}
	}
	skip()
	if i == len(b) || b[i] != '{' {
		// Bounds in front ([2:3]={1,2}) are not read here: the server says what it is.
		return nil, nil, sqlstate.Refusal("CLV-0106", "an array parameter of the shard key is written in a form that the router does not read").
			WithHint("Write it as {1,2,3}.")
	}
	depth := 0
	for {
		skip()
		if i == len(b) {
			return nil, nil, bad()
		}
		switch c := b[i]; {
		case c == '{':
			depth++
			i++
			continue
		case c == '}':
			i++
			if depth--; depth > 0 {
				skip()
				if i < len(b) && b[i] == ',' {
					i++
				}
				continue
			}
			if skip(); depth < 0 || i != len(b) {
				return nil, nil, bad()
			}
			return values, spans, nil
		case c == '"':
			v, from := []byte{}, i
			for i++; ; i++ {
				if i == len(b) {
					return nil, nil, bad()
				}
				if b[i] == '"' {
					break
				}
				if b[i] == '\\' {
					if i++; i == len(b) {
						return nil, nil, bad()
					}
				}
				v = append(v, b[i])
			}
			i++
			values, spans = append(values, v), append(spans, [2]int{from, i})
		default:
			v, from := []byte(nil), i
			last := i // after the last byte that is no blank
			quoted := false
			for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != '{' && b[i] != '"' {
				if b[i] == '\\' {
					quoted = true
					if i++; i == len(b) {
						return nil, nil, bad()
					}
				}
				v = append(v, b[i])
				i++
				if quoted || !blank(b[i-1]) {
					last = i
				}
			}
			if i == from {
				return nil, nil, bad()
			}
			if !quoted {
				v = b[from:last]
			}
			if len(v) == 4 && !quoted && equalFold(v, "null") {
				v = nil
			}
			values, spans = append(values, v), append(spans, [2]int{from, i})
		}
		skip()
		switch {
		case i == len(b):
			return nil, nil, bad()
		case b[i] == ',':
			i++
		case b[i] != '}':
			return nil, nil, bad()
		}
	}
}

func equalFold(b []byte, s string) bool {
	for i := range b {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != s[i] {
			return false
		}
	}
	return true
}
