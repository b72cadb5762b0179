package value

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// Numeric is PostgreSQL's numeric: n / 10^scale, or NaN, or an infinity.
type Numeric struct {
	N     *big.Int
	Scale int
	Kind  byte // 0 finite, 'N' NaN, '+', '-' infinities
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

// Pow10 is ten to the power of n.
func Pow10(n int) *big.Int {
	if n < len(pow10s) {
		return pow10s[n]
	}
	return new(big.Int).Exp(bigTen, big.NewInt(int64(n)), nil)
}

// NumericOf is an integer as numeric.
func NumericOf(i int64) Numeric { return Numeric{N: big.NewInt(i)} }

func numericOverflow() error {
	return sqlstate.New(sqlstate.NumericOutOfRange, "value overflows numeric format")
}

// numericWords are the values of numeric that are no numbers.
var numericWords = map[string]byte{
	"nan": 'N', "infinity": '+', "inf": '+', "+infinity": '+', "+inf": '+', "-infinity": '-', "-inf": '-',
}

// ParseNumeric reads numeric_in's syntax.
func ParseNumeric(text string) (Numeric, error) {
	bad := func() (Numeric, error) {
		return Numeric{}, sqlstate.New(sqlstate.InvalidTextRepresentation, "invalid input syntax for type numeric: \"%s\"", text)
	}
	s := strings.Trim(text, " \t\n\r\f\v")
	if s == "" {
		return bad()
	}
	if kind := numericWords[strings.ToLower(s)]; kind != 0 {
		return Numeric{Kind: kind}, nil
	}
	neg := false
	if s[0] == '-' || s[0] == '+' {
		neg, s = s[0] == '-', s[1:]
	}
	mant, exp, ok := cutExponent(s)
	if !ok {
		return bad()
	}
	if exp > numericWeightMax*2 || exp < -numericWeightMax*2 {
		return Numeric{}, numericOverflow()
	}
	whole, frac, _ := strings.Cut(mant, ".")
	digits := whole + frac
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return bad()
	}
	scale := len(frac) - exp
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		return bad()
	}
	if scale < 0 {
		if n.Sign() != 0 {
			n.Mul(n, Pow10(-scale))
		}
		scale = 0
	}
	if neg {
		n.Neg(n)
	}
	r := Numeric{N: n, Scale: scale}
	if scale > numericScaleMax {
		r = r.Round(numericScaleMax)
	}
	return r, r.Check()
}

// cutExponent takes the exponent off a number, which is 0 without one.
func cutExponent(s string) (mant string, exp int, ok bool) {
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return s, 0, true
	}
	exp, err := strconv.Atoi(s[i+1:])
	return s[:i], exp, err == nil && !strings.HasPrefix(s[i+1:], "_")
}

// NumericOfText reads what numeric.String printed.
func NumericOfText(s string) (Numeric, error) {
	if len(s) < 18 {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return NumericOf(i), nil
		}
	}
	n, err := ParseNumeric(s)
	if err != nil {
		return n, sqlstate.New(sqlstate.DataCorrupted, "invalid numeric value in the file")
	}
	return n, nil
}

// Check fails for a number that PostgreSQL's numeric cannot hold.
func (a Numeric) Check() error {
	if a.Kind == 0 && len(a.N.Bits()) > 2000 && a.N.CmpAbs(Pow10(numericWeightMax+a.Scale)) >= 0 {
		return numericOverflow()
	}
	return nil
}

// String is the output of numeric.
func (a Numeric) String() string {
	switch a.Kind {
	case 'N':
		return "NaN"
	case '+':
		return "Infinity"
	case '-':
		return "-Infinity"
	}
	s := a.N.String()
	if a.Scale == 0 {
		return s
	}
	neg := s[0] == '-'
	if neg {
		s = s[1:]
	}
	if len(s) <= a.Scale {
		s = strings.Repeat("0", a.Scale-len(s)+1) + s
	}
	s = s[:len(s)-a.Scale] + "." + s[len(s)-a.Scale:]
	if neg {
		s = "-" + s
	}
	return s
}

// Rescale returns the digits as an integer, for a scale that is not smaller.
func (a Numeric) Rescale(scale int) *big.Int {
	if scale == a.Scale {
		return a.N
	}
	return new(big.Int).Mul(a.N, Pow10(scale-a.Scale))
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

// Cmp compares as PostgreSQL does: NaN is above all.
func (a Numeric) Cmp(b Numeric) int {
	if a.Kind != 0 || b.Kind != 0 {
		return rank(a.Kind) - rank(b.Kind)
	}
	s := max(a.Scale, b.Scale)
	return a.Rescale(s).Cmp(b.Rescale(s))
}

// Sign is -1, 0 or 1.
func (a Numeric) Sign() int {
	switch a.Kind {
	case '+':
		return 1
	case '-':
		return -1
	case 'N':
		return 0
	}
	return a.N.Sign()
}

// Neg is the number with the other sign.
func (a Numeric) Neg() Numeric {
	switch a.Kind {
	case '+':
		return Numeric{Kind: '-'}
	case '-':
		return Numeric{Kind: '+'}
	case 'N':
		return a
	}
	return Numeric{N: new(big.Int).Neg(a.N), Scale: a.Scale}
}

// Add is the sum.
func (a Numeric) Add(b Numeric) (Numeric, error) {
	if a.Kind != 0 || b.Kind != 0 {
		switch {
		case a.Kind == 'N' || b.Kind == 'N', a.Kind != 0 && b.Kind != 0 && a.Kind != b.Kind:
			return Numeric{Kind: 'N'}, nil
		case a.Kind != 0:
			return a, nil
		}
		return b, nil
	}
	s := max(a.Scale, b.Scale)
	r := Numeric{N: new(big.Int).Add(a.Rescale(s), b.Rescale(s)), Scale: s}
	return r, r.Check()
}

// Mul is the product.
func (a Numeric) Mul(b Numeric) (Numeric, error) {
	if a.Kind != 0 || b.Kind != 0 {
		sg := a.Sign() * b.Sign()
		switch {
		case a.Kind == 'N' || b.Kind == 'N' || sg == 0:
			return Numeric{Kind: 'N'}, nil
		case sg > 0:
			return Numeric{Kind: '+'}, nil
		}
		return Numeric{Kind: '-'}, nil
	}
	r := Numeric{N: new(big.Int).Mul(a.N, b.N), Scale: a.Scale + b.Scale}
	if r.Scale > numericScaleMax {
		r = r.Round(numericScaleMax)
	}
	return r, r.Check()
}

// weight returns PostgreSQL's weight and first digit in base 10000.
func (a Numeric) weight() (weight, first int) {
	s := new(big.Int).Abs(a.N).String()
	if s == "0" {
		return 0, 0
	}
	// The point is before digit p of s.
	p := len(s) - a.Scale
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

// DivisionByZero is PostgreSQL's error.
func DivisionByZero() error { return sqlstate.New("22012", "division by zero") }

// divScale is select_div_scale of PostgreSQL's numeric.c: at least 16
// significant digits, and no fewer digits than either operand.
func divScale(a, b Numeric) int {
	w1, f1 := a.weight()
	w2, f2 := b.weight()
	q := w1 - w2
	if f1 <= f2 {
		q--
	}
	return min(max(16-q*4, a.Scale, b.Scale, 0), 1000)
}

// Div is the quotient, with as many digits as PostgreSQL shows.
func (a Numeric) Div(b Numeric) (Numeric, error) {
	if a.Kind != 0 || b.Kind != 0 {
		switch {
		case a.Kind == 'N' || b.Kind == 'N':
			return Numeric{Kind: 'N'}, nil
		case a.Kind != 0 && b.Kind != 0:
			return Numeric{Kind: 'N'}, nil
		case a.Kind != 0:
			switch b.Sign() {
			case 0:
				return Numeric{}, DivisionByZero()
			case -1:
				return a.Neg(), nil
			}
			return a, nil
		}
		return NumericOf(0), nil
	}
	if b.N.Sign() == 0 {
		return Numeric{}, DivisionByZero()
	}
	return a.divAt(b, divScale(a, b)), nil
}

// divAt divides with the given scale, rounding half away from zero.
func (a Numeric) divAt(b Numeric, scale int) Numeric {
	// a/b * 10^scale = a.n * 10^(scale - a.scale + b.scale) / b.n
	num, den := new(big.Int).Set(a.N), new(big.Int).Set(b.N)
	if e := scale - a.Scale + b.Scale; e >= 0 {
		num.Mul(num, Pow10(e))
	} else {
		den.Mul(den, Pow10(-e))
	}
	return Numeric{N: roundedQuo(num, den), Scale: scale}
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

// Mod is the remainder.
func (a Numeric) Mod(b Numeric) (Numeric, error) {
	if a.Kind != 0 || b.Kind != 0 {
		switch {
		case a.Kind == 'N' || b.Kind == 'N':
			return Numeric{Kind: 'N'}, nil
		case a.Kind != 0:
			if b.Kind == 0 && b.N.Sign() == 0 {
				return Numeric{}, DivisionByZero()
			}
			return Numeric{Kind: 'N'}, nil
		}
		return a, nil
	}
	if b.N.Sign() == 0 {
		return Numeric{}, DivisionByZero()
	}
	s := max(a.Scale, b.Scale)
	return Numeric{N: new(big.Int).Rem(a.Rescale(s), b.Rescale(s)), Scale: s}, nil
}

// Round rounds half away from zero to scale digits, which may be negative.
func (a Numeric) Round(scale int) Numeric {
	if a.Kind != 0 {
		return a
	}
	if scale >= a.Scale {
		return Numeric{N: a.Rescale(scale), Scale: scale}
	}
	q := roundedQuo(a.N, Pow10(a.Scale-scale))
	if scale < 0 {
		return Numeric{N: q.Mul(q, Pow10(-scale))}
	}
	return Numeric{N: q, Scale: scale}
}

// Trunc cuts to a scale.
func (a Numeric) Trunc(scale int) Numeric {
	if a.Kind != 0 {
		return a
	}
	if scale >= a.Scale {
		return Numeric{N: a.Rescale(scale), Scale: scale}
	}
	q := new(big.Int).Quo(a.N, Pow10(a.Scale-scale))
	if scale < 0 {
		return Numeric{N: q.Mul(q, Pow10(-scale))}
	}
	return Numeric{N: q, Scale: scale}
}

// Floor is the largest integer that is not above the number.
func (a Numeric) Floor() Numeric {
	if a.Kind != 0 {
		return a
	}
	q, m := new(big.Int).QuoRem(a.N, Pow10(a.Scale), new(big.Int))
	if m.Sign() < 0 {
		q.Sub(q, pow10s[0])
	}
	return Numeric{N: q}
}

// Ceil is the smallest integer that is not below the number.
func (a Numeric) Ceil() Numeric { return a.Neg().Floor().Neg() }

// ApplyTypmod rounds to numeric(p, s) and checks the precision.
func (a Numeric) ApplyTypmod(mod int32) (Numeric, error) {
	if mod < 0 {
		return a, nil
	}
	p, s := NumericTypmod(mod)
	overflow := func(inf bool) error {
		e := sqlstate.New(sqlstate.NumericOutOfRange, "numeric field overflow")
		if inf {
			return e.WithDetail("A field with precision %d, scale %d cannot hold an infinite value.", p, s)
		}
		return e.WithDetail("A field with precision %d, scale %d must round to an absolute value less than %s%s.", p, s,
			map[bool]string{true: "10^", false: ""}[p != s], map[bool]string{true: strconv.Itoa(p - s), false: "1"}[p != s])
	}
	switch a.Kind {
	case 'N':
		return a, nil
	case '+', '-':
		return a, overflow(true)
	}
	r := a.Round(s)
	limit := Pow10(max(p-s, 0))
	if s > p {
		// |r| < 10^(p-s) with a negative exponent.
		if new(big.Int).Abs(r.N).Cmp(Pow10(p)) >= 0 {
			return r, overflow(false)
		}
		return r, nil
	}
	if new(big.Int).Abs(r.N).Cmp(new(big.Int).Mul(limit, Pow10(max(s, 0)))) >= 0 {
		return r, overflow(false)
	}
	return r, nil
}

// ToInt rounds half away from zero into an integer type's range.
func (a Numeric) ToInt(oid uint32) (int64, error) {
	name := TypeName(oid)
	switch a.Kind {
	case 'N':
		return 0, sqlstate.New(sqlstate.FeatureNotSupported, "cannot convert NaN to %s", name)
	case '+', '-':
		return 0, sqlstate.New(sqlstate.FeatureNotSupported, "cannot convert infinity to %s", name)
	}
	n := a.Round(0).N
	if !n.IsInt64() {
		return 0, OutOfRange(oid)
	}
	return CheckInt(n.Int64(), oid)
}

// ToFloat converts to double precision.
func (a Numeric) ToFloat() (float64, error) {
	s := a.String()
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "\"%s\" is out of range for type double precision", s)
	}
	if f == 0 && a.Kind == 0 && a.N.Sign() != 0 {
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "\"%s\" is out of range for type double precision", s)
	}
	return f, nil
}

// appendBinary appends numeric_send's form.
func (a Numeric) appendBinary(dst []byte) []byte {
	put := func(v uint16) { dst = append(dst, byte(v>>8), byte(v)) }
	switch a.Kind {
	case 'N':
		put(0)
		put(0)
		put(0xC000)
		put(0)
		return dst
	case '+', '-':
		put(0)
		put(0)
		if a.Kind == '+' {
			put(0xD000)
		} else {
			put(0xF000)
		}
		put(0x20)
		return dst
	}
	s := new(big.Int).Abs(a.N).String()
	// Align to groups of four around the point.
	frac := a.Scale
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
	if a.N.Sign() < 0 {
		put(0x4000)
	} else {
		put(0)
	}
	put(uint16(a.Scale))
	for _, g := range groups {
		put(g)
	}
	return dst
}

func numericFromBinary(b []byte) (Numeric, error) {
	bad := func() (Numeric, error) {
		return Numeric{}, sqlstate.New(sqlstate.InvalidBinary, "invalid binary numeric value")
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
		return Numeric{Kind: 'N'}, nil
	case 0xD000:
		return Numeric{Kind: '+'}, nil
	case 0xF000:
		return Numeric{Kind: '-'}, nil
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
		v.Mul(v, Pow10(-have))
		have = 0
	}
	r := Numeric{N: v, Scale: have}
	if sign == 0x4000 {
		v.Neg(v)
	}
	// numeric_recv truncates digits below the display scale.
	return r.Trunc(scale), nil
}
