package function

import (
	"math"
	"math/big"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/value"
)

var aggregateDefs = []aggregateDef{
	{name: "cleave_sum_num", args: 1, make: func(v *Env) aggregator { return &numericSum{} }},
	{name: "cleave_avg_num", args: 1, make: func(v *Env) aggregator { return &numericSum{avg: true} }},
	{name: "cleave_sum_float", args: 1, make: func(v *Env) aggregator { return &floatSum{} }},
	{name: "cleave_avg_float", args: 1, make: func(v *Env) aggregator { return &floatSum{avg: true} }},
	{name: "cleave_string_agg", args: 2, make: func(v *Env) aggregator { return &stringAgg{} }},
	{name: "cleave_array_agg", args: 2, make: func(v *Env) aggregator { return &arrayAgg{env: v} }},
}

// numericSum is sum and avg of integers (as numeric) and numeric.
type numericSum struct {
	avg bool
	n   int64
	// Integers are summed in a machine word while they fit.
	small   int64
	sum     *big.Int
	scale   int
	special [3]int64 // NaN, +infinity, -infinity
	scales  map[int]int64
}

func (s *numericSum) Step(a []Arg) error { return s.step(a[0], 1) }

func (s *numericSum) Inverse(a []Arg) error { return s.step(a[0], -1) }

func (s *numericSum) step(v Arg, sign int64) error {
	if v.Type() == sqlite.TypeNull {
		return nil
	}
	s.n += sign
	if v.Type() == sqlite.TypeInteger {
		x := v.Int64()
		if sign > 0 {
			if r := s.small + x; (r > s.small) == (x > 0) || x == 0 {
				s.small = r
				return nil
			}
		}
		s.addBig(big.NewInt(x), 0, sign)
		return nil
	}
	x, err := value.NumericOfText(v.Text())
	if err != nil {
		return err
	}
	switch x.Kind {
	case 'N':
		s.special[0] += sign
	case '+':
		s.special[1] += sign
	case '-':
		s.special[2] += sign
	default:
		if s.scales == nil {
			s.scales = map[int]int64{}
		}
		s.scales[x.Scale] += sign
		s.addBig(x.N, x.Scale, sign)
	}
	return nil
}

func (s *numericSum) addBig(n *big.Int, scale int, sign int64) {
	if s.sum == nil {
		s.sum = new(big.Int)
	}
	if scale > s.scale {
		s.sum.Mul(s.sum, value.Pow10(scale-s.scale))
		s.scale = scale
	} else if scale < s.scale {
		n = new(big.Int).Mul(n, value.Pow10(s.scale-scale))
	}
	if sign > 0 {
		s.sum.Add(s.sum, n)
	} else {
		s.sum.Sub(s.sum, n)
	}
}

func (s *numericSum) Value() (value.Datum, error) {
	if s.n == 0 {
		return value.Datum{}, nil
	}
	switch {
	case s.special[0] > 0 || s.special[1] > 0 && s.special[2] > 0:
		return value.Text("NaN"), nil
	case s.special[1] > 0:
		return value.Text("Infinity"), nil
	case s.special[2] > 0:
		return value.Text("-Infinity"), nil
	}
	total := value.Numeric{N: big.NewInt(s.small)}
	if s.sum != nil {
		// The scale shown is the largest of the values still in the frame.
		shown := 0
		for sc, n := range s.scales {
			if n > 0 {
				shown = max(shown, sc)
			}
		}
		t, err := total.Add(value.Numeric{N: s.sum, Scale: s.scale})
		if err != nil {
			return value.Datum{}, err
		}
		total = t.Trunc(shown)
	}
	if !s.avg {
		return numV(total, total.Check())
	}
	r, err := total.Div(value.NumericOf(s.n))
	if err != nil {
		return value.Datum{}, err
	}
	return numV(r, nil)
}

// floatSum adds in the order of the rows, as PostgreSQL does.
type floatSum struct {
	avg bool
	n   int64
	sum float64
	sxx float64 // squared differences: PostgreSQL's avg fails when they overflow
}

func (s *floatSum) Step(a []Arg) error {
	if a[0].Type() == sqlite.TypeNull {
		return nil
	}
	x := a[0].Float()
	r := s.sum + x
	if s.n == 0 {
		r = x
	}
	if math.IsNaN(r) || math.IsInf(r, 0) && !math.IsInf(x, 0) && !math.IsInf(s.sum, 0) {
		_, err := checkFloat(r, false, true)
		return err
	}
	if s.avg && s.n > 0 {
		n := float64(s.n)
		d := x*(n+1) - r
		s.sxx += d * d / ((n + 1) * n)
		if math.IsInf(s.sxx, 0) && !math.IsInf(x, 0) && !math.IsInf(s.sum, 0) {
			_, err := checkFloat(s.sxx, false, true)
			return err
		}
	}
	s.n, s.sum = s.n+1, r
	return nil
}

func (s *floatSum) Inverse(a []Arg) error {
	return value.Unsupported("a moving window frame over double precision")
}

func (s *floatSum) Value() (value.Datum, error) {
	if s.n == 0 {
		return value.Datum{}, nil
	}
	if s.avg {
		return value.Float(s.sum / float64(s.n)), nil
	}
	return value.Float(s.sum), nil
}

// stringAgg is string_agg: the first separator is not used, a NULL one is empty.
type stringAgg struct {
	b     strings.Builder
	begun bool
}

func (s *stringAgg) Step(a []Arg) error {
	if a[0].Type() == sqlite.TypeNull {
		return nil
	}
	if s.begun && a[1].Type() != sqlite.TypeNull {
		s.b.WriteString(a[1].Text())
	}
	s.begun = true
	s.b.WriteString(a[0].Text())
	if s.b.Len() > value.Max {
		return value.TooBig()
	}
	return nil
}

func (s *stringAgg) Inverse(a []Arg) error {
	return value.Unsupported("string_agg over a moving window frame")
}

func (s *stringAgg) Value() (value.Datum, error) {
	if !s.begun {
		return value.Datum{}, nil
	}
	return value.Text(s.b.String()), nil
}

type arrayAgg struct {
	env  *Env
	arr  value.Array
	size int
}

func (s *arrayAgg) Step(a []Arg) error {
	if a[1].Type() == sqlite.TypeNull {
		s.arr = append(s.arr, value.Elem{Null: true})
		return nil
	}
	b, err := value.Append(nil, uint32(a[0].Int64()), a[1].Datum(), s.env.Loc)
	if err == nil {
		if s.size += len(b) + 16; s.size > value.Max {
			err = value.TooBig()
		}
	}
	if err != nil {
		return err
	}
	s.arr = append(s.arr, value.Elem{Text: string(b)})
	return nil
}

func (s *arrayAgg) Inverse(a []Arg) error {
	return value.Unsupported("array_agg over a moving window frame")
}

func (s *arrayAgg) Value() (value.Datum, error) {
	if s.arr == nil {
		return value.Datum{}, nil
	}
	return value.Text(s.arr.String()), nil
}
