package sortkey

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// Keys encodes the sort keys of a text's rows.
type Keys struct {
	columns int // of a row
	order   []sortColumn
}

// sortColumn is one column to sort by.
type sortColumn struct {
	at               int // index of the column
	encode           encoder
	desc, nullsFirst bool
	collated         bool // a text: its order depends on a collation
}

// encoder appends the encoding of a value that is not NULL.
type encoder func(dst, v []byte) ([]byte, error)

// New returns the keys of a plan whose text gives columns of these types.
// false: the order of one of them is not known here.
func New(order []plan.OrderKey, fields []wire.Field, formats []int16) (*Keys, bool) {
	k := &Keys{columns: len(fields)}
	for _, o := range order {
		at := o.Column
		if at < 0 {
			at += len(fields)
		}
		if at < 0 || at >= len(fields) {
			return nil, false
		}
		c := sortColumn{at: at, desc: o.Desc, nullsFirst: o.NullsFirst}
		switch fields[at].TypeOID {
		case pgoid.Text, pgoid.Varchar, pgoid.Bpchar, pgoid.Name:
			c.collated = true
		}
		if c.encode = encoderOf(fields[at].TypeOID, wire.FormatAt(formats, at)); c.encode == nil {
			return nil, false
		}
		k.order = append(k.order, c)
	}
	return k, true
}

// At are the indexes of the columns that are sorted by.
func (k *Keys) At() []int {
	at := make([]int, len(k.order))
	for i := range k.order {
		at[i] = k.order[i].at
	}
	return at
}

// Collated are the indexes of the columns that are sorted by and whose order depends on a collation.
func (k *Keys) Collated() (at []int) {
	for i := range k.order {
		if k.order[i].collated {
			at = append(at, k.order[i].at)
		}
	}
	return at
}

// Encode appends a row's key. cut is where the encodings of the first unique
// columns end.
func (k *Keys) Encode(dst, row []byte, unique int) (key []byte, cut int, err error) {
	if len(row) < 2 || int(binary.BigEndian.Uint16(row)) != k.columns {
		return dst, 0, sqlstate.ChangedResult()
	}
	for i := range k.order {
		c := &k.order[i]
		v, isNull := Column(row, c.at)
		from := len(dst)
		switch {
		case isNull == c.nullsFirst:
			// What stands first has the smaller mark.
			dst = append(dst, 1)
		default:
			dst = append(dst, 2)
		}
		if !isNull {
			if dst, err = c.encode(dst, v); err != nil {
				return dst, 0, err
			}
			if c.desc {
				for j := from + 1; j < len(dst); j++ {
					dst[j] = ^dst[j]
				}
			}
		}
		if i+1 == unique {
			cut = len(dst)
		}
	}
	return dst, cut, nil
}

// Column returns column i of a DataRow's body.
func Column(row []byte, i int) (v []byte, isNull bool) {
	at := 2
	for {
		n := int32(binary.BigEndian.Uint32(row[at:]))
		at += 4
		if i == 0 {
			if n < 0 {
				return nil, true
			}
			return row[at : at+int(n)], false
		}
		i--
		if n > 0 {
			at += int(n)
		}
	}
}

// encoderOf returns the encoder of a type in a format, nil if there is none.
func encoderOf(oid uint32, format int16) encoder {
	if format == 1 {
		switch oid {
		case pgoid.Bool, pgoid.Char:
			return raw(1)
		case pgoid.Int2:
			return signed(2)
		case pgoid.Int4, pgoid.Date:
			return signed(4)
		case pgoid.Int8, pgoid.Money, pgoid.Time, pgoid.Timestamp, pgoid.Timestamptz:
			return signed(8)
		case pgoid.OID:
			return raw(4)
		case pgoid.UUID:
			return raw(16)
		case pgoid.Float4, pgoid.Float8:
			return binaryFloat
		case pgoid.Numeric:
			return binaryNumeric
		case pgoid.Interval:
			return binaryInterval
		case pgoid.Timetz:
			return binaryTimetz
		case pgoid.Bytea:
			return escaped
		case pgoid.Text, pgoid.Varchar, pgoid.Name:
			return terminated
		case pgoid.Bpchar:
			return padded
		}
		return nil
	}
	switch oid {
	case pgoid.Bool, pgoid.UUID:
		return terminated // f < t; a UUID is printed in lower case
	case pgoid.Int2, pgoid.Int4, pgoid.Int8, pgoid.OID:
		return textInt
	case pgoid.Float4, pgoid.Float8:
		return textFloat
	case pgoid.Numeric:
		return textNumeric
	case pgoid.Date:
		return textTime("")
	case pgoid.Timestamp, pgoid.Timestamptz:
		return textTime(" ")
	case pgoid.Time:
		return terminated // 24 hours, the fraction without zeros at its end
	case pgoid.Bytea:
		return textBytea
	case pgoid.Text, pgoid.Varchar, pgoid.Name:
		return terminated
	case pgoid.Bpchar:
		return padded
	}
	return nil
}

// ErrValue is the error of a value that is not one of its type.
var ErrValue = sqlstate.New(sqlstate.ProtocolViolation, "a shard sent a value that is not one of its type")

// raw is for values whose bytes are in order already.
func raw(size int) encoder {
	return func(dst, v []byte) ([]byte, error) {
		if len(v) != size {
			return dst, ErrValue
		}
		return append(dst, v...), nil
	}
}

// signed is for integers in two's complement.
func signed(size int) encoder {
	return func(dst, v []byte) ([]byte, error) {
		if len(v) != size {
			return dst, ErrValue
		}
		at := len(dst)
		dst = append(dst, v...)
		dst[at] ^= 0x80
		return dst, nil
	}
}

func appendInt(dst []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(n)^(1<<63))
}

// ParseInt reads a whole number as the type bigint does.
func ParseInt(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 0, sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type bigint: %q", s)
	}
	return n, nil
}

func textInt(dst, v []byte) ([]byte, error) {
	n, err := ParseInt(string(v))
	return appendInt(dst, n), err
}

// appendFloat: NaN is above all, and -0 is 0.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return binary.BigEndian.AppendUint64(dst, math.MaxUint64)
	case f == 0:
		f = math.Copysign(0, 1)
	}
	u := math.Float64bits(f)
	if u>>63 == 1 {
		u = ^u
	} else {
		u |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, u)
}

func binaryFloat(dst, v []byte) ([]byte, error) {
	switch len(v) {
	case 4:
		return appendFloat(dst, float64(math.Float32frombits(binary.BigEndian.Uint32(v)))), nil
	case 8:
		return appendFloat(dst, math.Float64frombits(binary.BigEndian.Uint64(v))), nil
	}
	return dst, ErrValue
}

func textFloat(dst, v []byte) ([]byte, error) {
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return dst, ErrValue
	}
	return appendFloat(dst, f), nil
}

// terminated is for bytes without zeros.
func terminated(dst, v []byte) ([]byte, error) {
	if bytes.IndexByte(v, 0) >= 0 {
		return dst, ErrValue
	}
	return append(append(dst, v...), 0), nil
}

// padded is terminated for character(n), whose blanks at the end mean nothing.
func padded(dst, v []byte) ([]byte, error) { return terminated(dst, bytes.TrimRight(v, " ")) }

// escaped is for any bytes: a zero becomes 0 255, and 0 0 ends.
func escaped(dst, v []byte) ([]byte, error) {
	for _, c := range v {
		if dst = append(dst, c); c == 0 {
			dst = append(dst, 255)
		}
	}
	return append(dst, 0, 0), nil
}

func textBytea(dst, v []byte) ([]byte, error) {
	if len(v) < 2 || v[0] != '\\' || v[1] != 'x' {
		return dst, errEscape
	}
	b, err := hex.DecodeString(string(v[2:]))
	if err != nil {
		return dst, ErrValue
	}
	return escaped(dst, b)
}

var errEscape = sqlstate.Refusal("CLV-0203", "rows over several shards cannot be sorted by a bytea in the old output format").
	WithHint("Run SET bytea_output = 'hex'.")

// appendNumeric appends a number of base-10000 digits: sign class, then for what
// is not zero the weight and the digits, each one more than it is, 0 at the end.
func appendNumeric(dst []byte, negative bool, weight int, digits []uint16) []byte {
	for len(digits) > 0 && digits[0] == 0 {
		digits = digits[1:]
		weight--
	}
	for len(digits) > 0 && digits[len(digits)-1] == 0 {
		digits = digits[:len(digits)-1]
	}
	switch {
	case len(digits) == 0:
		return append(dst, 3)
	case negative:
		dst = append(dst, 2)
	default:
		dst = append(dst, 4)
	}
	from := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(int32(weight))^(1<<31))
	for _, d := range digits {
		dst = binary.BigEndian.AppendUint16(dst, d+1)
	}
	dst = append(dst, 0, 0)
	if negative {
		for i := from; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	return dst
}

func binaryNumeric(dst, v []byte) ([]byte, error) {
	if len(v) < 8 {
		return dst, ErrValue
	}
	n := int(binary.BigEndian.Uint16(v))
	switch sign := binary.BigEndian.Uint16(v[4:]); {
	case sign == 0xC000:
		return append(dst, 6), nil // NaN
	case sign == 0xD000:
		return append(dst, 5), nil // Infinity
	case sign == 0xF000:
		return append(dst, 1), nil
	case len(v) != 8+2*n || sign != 0 && sign != 0x4000:
		return dst, ErrValue
	default:
		var stack [32]uint16
		digits := stack[:0]
		for i := range n {
			digits = append(digits, binary.BigEndian.Uint16(v[8+2*i:]))
		}
		return appendNumeric(dst, sign != 0, int(int16(binary.BigEndian.Uint16(v[2:]))), digits), nil
	}
}

func textNumeric(dst, v []byte) ([]byte, error) {
	switch s := string(v); s {
	case "NaN":
		return append(dst, 6), nil
	case "Infinity":
		return append(dst, 5), nil
	case "-Infinity":
		return append(dst, 1), nil
	case "":
		return dst, ErrValue
	}
	negative := v[0] == '-'
	if negative {
		v = v[1:]
	}
	whole, fraction := v, []byte(nil)
	if i := bytes.IndexByte(v, '.'); i >= 0 {
		whole, fraction = v[:i], v[i+1:]
	}
	var stack [32]uint16
	digits := stack[:0]
	group := func(b []byte, scale int) bool {
		n := 0
		for _, c := range b {
			if c < '0' || c > '9' {
				return false
			}
			n = n*10 + int(c-'0')
		}
		for range scale {
			n *= 10
		}
		digits = append(digits, uint16(n))
		return true
	}
	weight := (len(whole)+3)/4 - 1
	for at := 0; at < len(whole); {
		to := len(whole) - (len(whole)-at-1)/4*4
		if !group(whole[at:to], 0) {
			return dst, ErrValue
		}
		at = to
	}
	for at := 0; at < len(fraction); at += 4 {
		to := min(at+4, len(fraction))
		if !group(fraction[at:to], 4-(to-at)) {
			return dst, ErrValue
		}
	}
	return appendNumeric(dst, negative, weight, digits), nil
}

// binaryInterval: PostgreSQL compares the length with months of 30 days, in 128 bits.
func binaryInterval(dst, v []byte) ([]byte, error) {
	if len(v) != 16 {
		return dst, ErrValue
	}
	us := int64(binary.BigEndian.Uint64(v))
	days := int64(int32(binary.BigEndian.Uint32(v[8:]))) + 30*int64(int32(binary.BigEndian.Uint32(v[12:])))
	const day = 24 * 60 * 60 * 1_000_000
	// Whole days of the microseconds go to the days, so that the rest is positive.
	carry := us / day
	if us %= day; us < 0 {
		us += day
		carry--
	}
	return appendInt(appendInt(dst, days+carry), us), nil
}

// binaryTimetz: by the moment, then by the zone (seconds west of Greenwich).
func binaryTimetz(dst, v []byte) ([]byte, error) {
	if len(v) != 12 {
		return dst, ErrValue
	}
	zone := int64(int32(binary.BigEndian.Uint32(v[8:])))
	return appendInt(appendInt(dst, int64(binary.BigEndian.Uint64(v))+zone*1_000_000), zone), nil
}

// textTime reads dates and timestamps as DateStyle ISO prints them.
func textTime(sep string) encoder {
	return func(dst, v []byte) ([]byte, error) {
		s := string(v)
		switch s {
		case "infinity":
			return appendInt(dst, math.MaxInt64), nil
		case "-infinity":
			return appendInt(dst, math.MinInt64), nil
		}
		s, bc := strings.CutSuffix(s, " BC")
		date, clock := s, ""
		if sep != "" {
			var ok bool
			if date, clock, ok = strings.Cut(s, sep); !ok {
				return dst, errStyle
			}
		}
		p := strings.Split(date, "-")
		if len(p) != 3 || len(p[0]) < 4 || len(p[1]) != 2 || len(p[2]) != 2 {
			return dst, errStyle
		}
		var n [3]int
		for i := range p {
			var err error
			if n[i], err = strconv.Atoi(p[i]); err != nil {
				return dst, errStyle
			}
		}
		if bc {
			n[0] = 1 - n[0]
		}
		us := time.Date(n[0], time.Month(n[1]), n[2], 0, 0, 0, 0, time.UTC).Unix() * 1_000_000
		if clock == "" {
			return appendInt(dst, us), nil
		}
		ofDay, ok := clockMicros(clock)
		if !ok {
			return dst, errStyle
		}
		return appendInt(dst, us+ofDay), nil
	}
}

// clockMicros reads a time of day, less the offset of the zone that may follow it.
func clockMicros(clock string) (us int64, ok bool) {
	var zone int64
	if i := strings.LastIndexAny(clock, "+-"); i >= 0 {
		sign := int64(1)
		if clock[i] == '-' {
			sign = -1
		}
		unit := int64(3600)
		for part := range strings.SplitSeq(clock[i+1:], ":") {
			x, err := strconv.Atoi(part)
			if err != nil {
				return 0, false
			}
			zone += sign * int64(x) * unit
			unit /= 60
		}
		clock = clock[:i]
	}
	h := strings.Split(clock, ":")
	if len(h) != 3 {
		return 0, false
	}
	whole, fraction, _ := strings.Cut(h[2], ".")
	hour, err1 := strconv.Atoi(h[0])
	minute, err2 := strconv.Atoi(h[1])
	second, err3 := strconv.Atoi(whole)
	micro, err4 := strconv.Atoi((fraction + "000000")[:6])
	us = (int64(hour*3600+minute*60+second)-zone)*1_000_000 + int64(micro)
	return us, errors.Join(err1, err2, err3, err4) == nil
}

var errStyle = sqlstate.Refusal("CLV-0204", "rows over several shards cannot be sorted by a date that is not printed in the ISO style").
	WithHint("Run SET datestyle = 'ISO', or ask for binary results.")
