package sqlite

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// numeric is PostgreSQL's numeric: n / 10^scale, or NaN, or an infinity.
type numeric struct {
	n     *big.Int
	scale int
	kind  byte // 0 finite, 'N' NaN, '+', '-' infinities
}

const (
	numericScaleMax  = 16383  // digits after the point
	numericWeightMax = 131072 // digits before the point
)

var (
	bigTen = big.NewInt(10)
	pow10s = func() (p [64]*big.Int) {
		p[0] = big.NewInt(1)
		for i := 1; i < len(p); i++ {
			p[i] = new(big.Int).Mul(p[i-1], bigTen)
		}
		return
	}()
)

func pow10(n int) *big.Int {
	if n < len(pow10s) {
		return pow10s[n]
	}
	return new(big.Int).Exp(bigTen, big.NewInt(int64(n)), nil)
}

func intNumeric(i int64) numeric { return numeric{n: big.NewInt(i)} }

func numericOverflow() error {
	return sqlstate.New(sqlstate.NumericOutOfRange, "value overflows numeric format")
}

// parseNumeric reads numeric_in's syntax.
func parseNumeric(text string) (numeric, error) {
	bad := func() (numeric, error) {
		return numeric{}, sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type numeric: \"%s\"", text)
	}
	s := strings.Trim(text, " \t\n\r\f\v")
	if s == "" {
		return bad()
	}
	switch strings.ToLower(s) {
	case "nan":
		return numeric{kind: 'N'}, nil
	case "infinity", "inf", "+infinity", "+inf":
		return numeric{kind: '+'}, nil
	case "-infinity", "-inf":
		return numeric{kind: '-'}, nil
	}
	neg := false
	if s[0] == '-' || s[0] == '+' {
		neg, s = s[0] == '-', s[1:]
	}
	mant, exp := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil || strings.HasPrefix(s[i+1:], "_") {
			return bad()
		}
		if e > numericWeightMax*2 || e < -numericWeightMax*2 {
			return numeric{}, numericOverflow()
		}
		mant, exp = s[:i], e
	}
	whole, frac, _ := strings.Cut(mant, ".")
	digits := whole + frac
	if digits == "" {
		return bad()
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return bad()
		}
	}
	scale := len(frac) - exp
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		return bad()
	}
	if scale < 0 {
		if n.Sign() != 0 {
			n.Mul(n, pow10(-scale))
		}
		scale = 0
	}
	if neg {
		n.Neg(n)
	}
	r := numeric{n: n, scale: scale}
	if scale > numericScaleMax {
		r = r.round(numericScaleMax)
	}
	return r, r.check()
}

// mustNumeric reads what numeric.String printed.
func mustNumeric(s string) (numeric, error) {
	if len(s) < 18 {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return intNumeric(i), nil
		}
	}
	n, err := parseNumeric(s)
	if err != nil {
		return n, sqlstate.New(sqlstate.DataCorrupted, "invalid numeric value in the file")
	}
	return n, nil
}

func (a numeric) check() error {
	if a.kind == 0 && len(a.n.Bits()) > 2000 && a.n.CmpAbs(pow10(numericWeightMax+a.scale)) >= 0 {
		return numericOverflow()
	}
	return nil
}

func (a numeric) String() string {
	switch a.kind {
	case 'N':
		return "NaN"
	case '+':
		return "Infinity"
	case '-':
		return "-Infinity"
	}
	s := a.n.String()
	if a.scale == 0 {
		return s
	}
	neg := s[0] == '-'
	if neg {
		s = s[1:]
	}
	if len(s) <= a.scale {
		s = strings.Repeat("0", a.scale-len(s)+1) + s
	}
	s = s[:len(s)-a.scale] + "." + s[len(s)-a.scale:]
	if neg {
		s = "-" + s
	}
	return s
}

func (a numeric) rescale(scale int) *big.Int {
	if scale == a.scale {
		return a.n
	}
	return new(big.Int).Mul(a.n, pow10(scale-a.scale))
}

func rank(k byte) int {
	switch k {
	case '-':
		return -1
	case '+':
		return 1
	case 'N':
		return 2
	}
	return 0
}

func (a numeric) cmp(b numeric) int {
	if a.kind != 0 || b.kind != 0 {
		return rank(a.kind) - rank(b.kind)
	}
	s := max(a.scale, b.scale)
	return a.rescale(s).Cmp(b.rescale(s))
}

func (a numeric) sign() int {
	switch a.kind {
	case '+':
		return 1
	case '-':
		return -1
	case 'N':
		return 0
	}
	return a.n.Sign()
}

func (a numeric) neg() numeric {
	switch a.kind {
	case '+':
		return numeric{kind: '-'}
	case '-':
		return numeric{kind: '+'}
	case 'N':
		return a
	}
	return numeric{n: new(big.Int).Neg(a.n), scale: a.scale}
}

func (a numeric) add(b numeric) (numeric, error) {
	if a.kind != 0 || b.kind != 0 {
		switch {
		case a.kind == 'N' || b.kind == 'N', a.kind != 0 && b.kind != 0 && a.kind != b.kind:
			return numeric{kind: 'N'}, nil
		case a.kind != 0:
			return a, nil
		}
		return b, nil
	}
	s := max(a.scale, b.scale)
	r := numeric{n: new(big.Int).Add(a.rescale(s), b.rescale(s)), scale: s}
	return r, r.check()
}

func (a numeric) mul(b numeric) (numeric, error) {
	if a.kind != 0 || b.kind != 0 {
		sg := a.sign() * b.sign()
		switch {
		case a.kind == 'N' || b.kind == 'N' || sg == 0:
			return numeric{kind: 'N'}, nil
		case sg > 0:
			return numeric{kind: '+'}, nil
		}
		return numeric{kind: '-'}, nil
	}
	r := numeric{n: new(big.Int).Mul(a.n, b.n), scale: a.scale + b.scale}
	if r.scale > numericScaleMax {
		r = r.round(numericScaleMax)
	}
	return r, r.check()
}

// weight returns PostgreSQL's weight and first digit in base 10000.
func (a numeric) weight() (weight, first int) {
	s := new(big.Int).Abs(a.n).String()
	if s == "0" {
		return 0, 0
	}
	// The point is before digit p of s.
	p := len(s) - a.scale
	// Groups of four are aligned to the point.
	weight = floorDiv(p-1, 4)
	end := p - weight*4
	if end > len(s) {
		s += strings.Repeat("0", end-len(s))
	}
	first, _ = strconv.Atoi(s[:end])
	return weight, first
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func divisionByZero() error { return sqlstate.New("22012", "division by zero") }

// divScale is select_div_scale of PostgreSQL's numeric.c: at least 16
// significant digits, and no fewer digits than either operand.
func divScale(a, b numeric) int {
	w1, f1 := a.weight()
	w2, f2 := b.weight()
	q := w1 - w2
	if f1 <= f2 {
		q--
	}
	return min(max(16-q*4, a.scale, b.scale, 0), 1000)
}

func (a numeric) div(b numeric) (numeric, error) {
	if a.kind != 0 || b.kind != 0 {
		switch {
		case a.kind == 'N' || b.kind == 'N':
			return numeric{kind: 'N'}, nil
		case a.kind != 0 && b.kind != 0:
			return numeric{kind: 'N'}, nil
		case a.kind != 0:
			switch b.sign() {
			case 0:
				return numeric{}, divisionByZero()
			case -1:
				return a.neg(), nil
			}
			return a, nil
		}
		return intNumeric(0), nil
	}
	if b.n.Sign() == 0 {
		return numeric{}, divisionByZero()
	}
	return a.divAt(b, divScale(a, b)), nil
}

// divAt divides with the given scale, rounding half away from zero.
func (a numeric) divAt(b numeric, scale int) numeric {
	// a/b * 10^scale = a.n * 10^(scale - a.scale + b.scale) / b.n
	num, den := new(big.Int).Set(a.n), new(big.Int).Set(b.n)
	if e := scale - a.scale + b.scale; e >= 0 {
		num.Mul(num, pow10(e))
	} else {
		den.Mul(den, pow10(-e))
	}
	return numeric{n: roundedQuo(num, den), scale: scale}
}

func roundedQuo(num, den *big.Int) *big.Int {
	sign := num.Sign() * den.Sign()
	q, r := new(big.Int).QuoRem(num, den, new(big.Int))
	r.Abs(r).Lsh(r, 1)
	if r.CmpAbs(den) >= 0 {
		q.Add(q, big.NewInt(int64(sign)))
	}
	return q
}

func (a numeric) mod(b numeric) (numeric, error) {
	if a.kind != 0 || b.kind != 0 {
		switch {
		case a.kind == 'N' || b.kind == 'N':
			return numeric{kind: 'N'}, nil
		case a.kind != 0:
			if b.kind == 0 && b.n.Sign() == 0 {
				return numeric{}, divisionByZero()
			}
			return numeric{kind: 'N'}, nil
		}
		return a, nil
	}
	if b.n.Sign() == 0 {
		return numeric{}, divisionByZero()
	}
	s := max(a.scale, b.scale)
	return numeric{n: new(big.Int).Rem(a.rescale(s), b.rescale(s)), scale: s}, nil
}

// round rounds half away from zero to scale digits, which may be negative.
func (a numeric) round(scale int) numeric {
	if a.kind != 0 {
		return a
	}
	if scale >= a.scale {
		return numeric{n: a.rescale(scale), scale: scale}
	}
	q := roundedQuo(a.n, pow10(a.scale-scale))
	if scale < 0 {
		return numeric{n: q.Mul(q, pow10(-scale))}
	}
	return numeric{n: q, scale: scale}
}

func (a numeric) trunc(scale int) numeric {
	if a.kind != 0 {
		return a
	}
	if scale >= a.scale {
		return numeric{n: a.rescale(scale), scale: scale}
	}
	q := new(big.Int).Quo(a.n, pow10(a.scale-scale))
	if scale < 0 {
		return numeric{n: q.Mul(q, pow10(-scale))}
	}
	return numeric{n: q, scale: scale}
}

func (a numeric) floor() numeric {
	if a.kind != 0 {
		return a
	}
	q, m := new(big.Int).QuoRem(a.n, pow10(a.scale), new(big.Int))
	if m.Sign() < 0 {
		q.Sub(q, pow10s[0])
	}
	return numeric{n: q}
}

func (a numeric) ceil() numeric { return a.neg().floor().neg() }

// applyTypmod rounds to numeric(p, s) and checks the precision.
func (a numeric) applyTypmod(mod int32) (numeric, error) {
	if mod < 0 {
		return a, nil
	}
	p, s := numericTypmod(mod)
	overflow := func(inf bool) error {
		e := sqlstate.New(sqlstate.NumericOutOfRange, "numeric field overflow")
		if inf {
			return e.WithDetail("A field with precision %d, scale %d cannot hold an infinite value.", p, s)
		}
		return e.WithDetail("A field with precision %d, scale %d must round to an absolute value less than %s%s.", p, s,
			map[bool]string{true: "10^", false: ""}[p != s], map[bool]string{true: strconv.Itoa(p - s), false: "1"}[p != s])
	}
	switch a.kind {
	case 'N':
		return a, nil
	case '+', '-':
		return a, overflow(true)
	}
	r := a.round(s)
	limit := pow10(max(p-s, 0))
	if s > p {
		// |r| < 10^(p-s) with a negative exponent.
		if new(big.Int).Abs(r.n).Cmp(pow10(p)) >= 0 {
			return r, overflow(false)
		}
		return r, nil
	}
	if new(big.Int).Abs(r.n).Cmp(new(big.Int).Mul(limit, pow10(max(s, 0)))) >= 0 {
		return r, overflow(false)
	}
	return r, nil
}

// toInt rounds half away from zero into an integer type's range.
func (a numeric) toInt(oid uint32) (int64, error) {
	name := typeName(oid)
	switch a.kind {
	case 'N':
		return 0, sqlstate.New(sqlstate.FeatureNotSupported, "cannot convert NaN to %s", name)
	case '+', '-':
		return 0, sqlstate.New(sqlstate.FeatureNotSupported, "cannot convert infinity to %s", name)
	}
	n := a.round(0).n
	if !n.IsInt64() {
		return 0, outOfRange(oid)
	}
	return checkInt(n.Int64(), oid)
}

func (a numeric) toFloat() (float64, error) {
	s := a.String()
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "\"%s\" is out of range for type double precision", s)
	}
	if f == 0 && a.kind == 0 && a.n.Sign() != 0 {
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "\"%s\" is out of range for type double precision", s)
	}
	return f, nil
}

// appendBinary appends numeric_send's form.
func (a numeric) appendBinary(dst []byte) []byte {
	put := func(v uint16) { dst = append(dst, byte(v>>8), byte(v)) }
	switch a.kind {
	case 'N':
		put(0)
		put(0)
		put(0xC000)
		put(0)
		return dst
	case '+', '-':
		put(0)
		put(0)
		if a.kind == '+' {
			put(0xD000)
		} else {
			put(0xF000)
		}
		put(0x20)
		return dst
	}
	s := new(big.Int).Abs(a.n).String()
	// Align to groups of four around the point.
	frac := a.scale
	if r := frac % 4; r != 0 {
		s += strings.Repeat("0", 4-r)
		frac += 4 - r
	}
	if r := len(s) % 4; r != 0 {
		s = strings.Repeat("0", 4-r) + s
	}
	weight := (len(s)-frac)/4 - 1
	var groups []uint16
	for i := 0; i < len(s); i += 4 {
		g, _ := strconv.Atoi(s[i : i+4])
		groups = append(groups, uint16(g))
	}
	for len(groups) > 0 && groups[0] == 0 {
		groups, weight = groups[1:], weight-1
	}
	for len(groups) > 0 && groups[len(groups)-1] == 0 {
		groups = groups[:len(groups)-1]
	}
	if len(groups) == 0 {
		weight = 0
	}
	put(uint16(len(groups)))
	put(uint16(int16(weight)))
	if a.n.Sign() < 0 {
		put(0x4000)
	} else {
		put(0)
	}
	put(uint16(a.scale))
	for _, g := range groups {
		put(g)
	}
	return dst
}

func numericFromBinary(b []byte) (numeric, error) {
	bad := func() (numeric, error) {
		return numeric{}, sqlstate.New(sqlstate.InvalidBinary, "invalid binary numeric value")
	}
	get := func(i int) uint16 { return uint16(b[i])<<8 | uint16(b[i+1]) }
	if len(b) < 8 {
		return bad()
	}
	n, weight, sign, scale := int(get(0)), int(int16(get(2))), get(4), int(get(6))
	if len(b) != 8+2*n {
		return bad()
	}
	switch sign {
	case 0xC000:
		return numeric{kind: 'N'}, nil
	case 0xD000:
		return numeric{kind: '+'}, nil
	case 0xF000:
		return numeric{kind: '-'}, nil
	case 0, 0x4000:
	default:
		return bad()
	}
	if scale > numericScaleMax || weight*4 > numericWeightMax {
		return bad()
	}
	v := new(big.Int)
	for i := range n {
		g := get(8 + 2*i)
		if g > 9999 {
			return bad()
		}
		v.Mul(v, big.NewInt(10000)).Add(v, big.NewInt(int64(g)))
	}
	// v is scaled by 10000^(n-1-weight).
	have := 4 * (n - 1 - weight)
	if have < 0 {
		v.Mul(v, pow10(-have))
		have = 0
	}
	r := numeric{n: v, scale: have}
	if sign == 0x4000 {
		v.Neg(v)
	}
	// numeric_recv truncates digits below the display scale.
	return r.trunc(scale), nil
}
