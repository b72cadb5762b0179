package keyspace

import (
	"unicode/utf8"

	"github.com/cleavedb/cleave/sqlstate"
)

// Coerce returns the value as a column with the modifier stores it (assignment
// cast): varchar(n) drops spaces over its length and fails with 22001 for other
// characters, timestamp(p) and timestamptz(p) round. A router must place a row by this
// value; a comparison with the column uses the value as it is.
func (m Modifier) Coerce(v Value) (Value, error) {
	if m == NoModifier {
		return v, nil
	}
	switch v.typ {
	case Varchar:
		cut, n := 0, 0
		for cut < len(v.str) && n < int(m) {
			_, size := utf8.DecodeRuneInString(v.str[cut:])
			cut, n = cut+size, n+1
		}
		for i := cut; i < len(v.str); i++ {
			if v.str[i] != ' ' {
				return Value{}, sqlstate.New("22001", "value too long for type character varying(%d)", int(m)).
					WithHint("use a shorter key, or a column of type text")
			}
		}
		return Value{typ: v.typ, str: v.str[:cut]}, nil
	case Timestamp, Timestamptz:
		if !InRange(v.typ, v.num) || m > 6 {
			return v, nil
		}
		// AdjustTimestampForTypmod (timestamp.c): half away from zero, where
		// zero is 2000-01-01.
		scale := int64(1)
		for range 6 - int(m) {
			scale *= 10
		}
		if v.num == timestampInfinity || v.num == timestampMinusInfinity || scale == 1 {
			return v, nil
		}
		n := v.num
		if n >= 0 {
			n = (n + scale/2) / scale * scale
		} else {
			n = -((-n + scale/2) / scale * scale)
		}
		return Value{typ: v.typ, num: n}, nil
	default:
		return v, nil
	}
}
