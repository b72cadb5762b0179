package function

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"

	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// intFunctions are the functions of integers.
var intFunctions = []Def{
	Strict("cleave_int", 2, func(v *Env, a []Arg) (value.Datum, error) {
		return IntOr(value.CheckInt(a[0].Int64(), uint32(a[1].Int64())))
	}),
	Strict("cleave_add", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		r := x + y
		if (r > x) != (y > 0) && y != 0 {
			return value.Datum{}, value.OutOfRange(pgoid.Int8)
		}
		return value.Int(r), nil
	}),
	Strict("cleave_sub", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		r := x - y
		if (r < x) != (y > 0) && y != 0 {
			return value.Datum{}, value.OutOfRange(pgoid.Int8)
		}
		return value.Int(r), nil
	}),
	Strict("cleave_mul", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		r := x * y
		if x != 0 && (r/x != y || x == -1 && y == math.MinInt64) {
			return value.Datum{}, value.OutOfRange(pgoid.Int8)
		}
		return value.Int(r), nil
	}),
	Strict("cleave_div", 3, func(v *Env, a []Arg) (value.Datum, error) {
		x, y, oid := a[0].Int64(), a[1].Int64(), uint32(a[2].Int64())
		if y == 0 {
			return value.Datum{}, value.DivisionByZero()
		}
		if y == -1 && x == math.MinInt64 {
			return value.Datum{}, value.OutOfRange(oid)
		}
		return IntOr(value.CheckInt(x/y, oid))
	}),
	Strict("cleave_mod", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		if y == 0 {
			return value.Datum{}, value.DivisionByZero()
		}
		if y == -1 {
			return value.Int(0), nil
		}
		return value.Int(x % y), nil
	}),
	Strict("cleave_neg", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, oid := a[0].Int64(), uint32(a[1].Int64())
		if x == math.MinInt64 {
			return value.Datum{}, value.OutOfRange(oid)
		}
		return IntOr(value.CheckInt(-x, oid))
	}),
	Strict("cleave_abs", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, oid := a[0].Int64(), uint32(a[1].Int64())
		if x == math.MinInt64 {
			return value.Datum{}, value.OutOfRange(oid)
		}
		if x < 0 {
			x = -x
		}
		return IntOr(value.CheckInt(x, oid))
	}),
	Strict("cleave_xor", 2, func(v *Env, a []Arg) (value.Datum, error) { return value.Int(a[0].Int64() ^ a[1].Int64()), nil }),
	Strict("cleave_gcd", 3, func(v *Env, a []Arg) (value.Datum, error) {
		g := new(big.Int).GCD(nil, nil, new(big.Int).Abs(big.NewInt(a[0].Int64())), new(big.Int).Abs(big.NewInt(a[1].Int64())))
		if !g.IsInt64() {
			return value.Datum{}, value.OutOfRange(uint32(a[2].Int64()))
		}
		return IntOr(value.CheckInt(g.Int64(), uint32(a[2].Int64())))
	}),
	Strict("cleave_to_hex", 2, func(v *Env, a []Arg) (value.Datum, error) {
		if a[1].Int64() == 32 {
			return value.Text(strconv.FormatUint(uint64(uint32(a[0].Int64())), 16)), nil
		}
		return value.Text(strconv.FormatUint(uint64(a[0].Int64()), 16)), nil
	}),
	Strict("cleave_oid", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, from := a[0].Int64(), uint32(a[1].Int64())
		if from == pgoid.Int8 {
			return IntOr(value.CheckInt(x, pgoid.OID))
		}
		return value.Int(int64(uint32(x))), nil
	}),
	Strict("cleave_oid_int4", 1, func(v *Env, a []Arg) (value.Datum, error) { return value.Int(int64(int32(uint32(a[0].Int64())))), nil }),
	Strict("cleave_hash_extended", 3, func(v *Env, a []Arg) (value.Datum, error) {
		val, err := keyValue(uint32(a[2].Int64()), a[0].Datum())
		if err != nil {
			return value.Datum{}, err
		}
		return value.Int(keyspace.HashKey(a[1].Int64(), keyspace.Key{val})), nil
	}),
	Volatile("cleave_random", 0, func(v *Env, a []Arg) (value.Datum, error) { return value.Float(rand.Float64()), nil }),
}

func checkFloat(r float64, infIn, zeroOK bool) (value.Datum, error) {
	if math.IsNaN(r) {
		return value.Datum{}, value.RefuseNaN()
	}
	if math.IsInf(r, 0) && !infIn {
		return value.Datum{}, sqlstate.New(sqlstate.NumericOutOfRange, "value out of range: overflow")
	}
	if r == 0 && !zeroOK {
		return value.Datum{}, sqlstate.New(sqlstate.NumericOutOfRange, "value out of range: underflow")
	}
	return value.Float(r), nil
}

// float1 is a function of one double precision that cannot fail.
func float1(name string, f func(x float64) float64) Def {
	return Strict(name, 1, func(v *Env, a []Arg) (value.Datum, error) { return value.Float(f(a[0].Float())), nil })
}

// float2 is a function of two double precisions.
func float2(name string, f func(x, y float64) (value.Datum, error)) Def {
	return Strict(name, 2, func(v *Env, a []Arg) (value.Datum, error) { return f(a[0].Float(), a[1].Float()) })
}

// floatFunctions are the functions of double precision.
var floatFunctions = []Def{
	float2("cleave_fadd", func(x, y float64) (value.Datum, error) {
		return checkFloat(x+y, math.IsInf(x, 0) || math.IsInf(y, 0), true)
	}),
	float2("cleave_fsub", func(x, y float64) (value.Datum, error) {
		return checkFloat(x-y, math.IsInf(x, 0) || math.IsInf(y, 0), true)
	}),
	float2("cleave_fmul", func(x, y float64) (value.Datum, error) {
		return checkFloat(x*y, math.IsInf(x, 0) || math.IsInf(y, 0), x == 0 || y == 0)
	}),
	float2("cleave_fdiv", func(x, y float64) (value.Datum, error) {
		if y == 0 {
			return value.Datum{}, value.DivisionByZero()
		}
		return checkFloat(x/y, math.IsInf(x, 0), x == 0 || math.IsInf(y, 0))
	}),
	float1("cleave_fneg", func(x float64) float64 { return -x }),
	float1("cleave_fabs", math.Abs),
	float1("cleave_fround", math.RoundToEven),
	float1("cleave_ffloor", math.Floor),
	float1("cleave_fceil", math.Ceil),
	float1("cleave_ftrunc", math.Trunc),
	float1("cleave_fsign", func(x float64) float64 {
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return 0
	}),
	Strict("cleave_fsqrt", 1, func(v *Env, a []Arg) (value.Datum, error) {
		x := a[0].Float()
		if x < 0 {
			return value.Datum{}, sqlstate.New("2201F", "cannot take square root of a negative number")
		}
		return value.Float(math.Sqrt(x)), nil
	}),
	Strict("cleave_minus_zero", 0, func(v *Env, a []Arg) (value.Datum, error) { return value.Float(math.Copysign(0, -1)), nil }),
	Strict("cleave_float", 1, func(v *Env, a []Arg) (value.Datum, error) {
		f, err := value.FloatIn(a[0].Text())
		if err != nil {
			return value.Datum{}, err
		}
		return value.Float(f), nil
	}),
	Strict("cleave_float_int", 2, func(v *Env, a []Arg) (value.Datum, error) {
		oid := uint32(a[1].Int64())
		f := math.RoundToEven(a[0].Float())
		if !(f >= -9223372036854775808 && f < 9223372036854775808) {
			return value.Datum{}, value.OutOfRange(oid)
		}
		return IntOr(value.CheckInt(int64(f), oid))
	}),
	Strict("cleave_float_num", 1, func(v *Env, a []Arg) (value.Datum, error) {
		f := a[0].Float()
		if math.IsInf(f, 1) {
			return value.Text("Infinity"), nil
		}
		if math.IsInf(f, -1) {
			return value.Text("-Infinity"), nil
		}
		n, err := value.ParseNumeric(strconv.FormatFloat(f, 'g', 15, 64))
		return numV(trimFloatNumeric(n, f), err)
	}),
}

// trimFloatNumeric: printf's %g drops trailing zeros, so that a double becomes a
// numeric with as few decimals as its 15 digits need.
func trimFloatNumeric(n value.Numeric, f float64) value.Numeric {
	if n.Kind != 0 || n.N == nil {
		return n
	}
	s := fmt.Sprintf("%.15g", f)
	if r, err := value.ParseNumeric(s); err == nil {
		return r
	}
	return n
}

func clampScale(s int64) int { return int(min(max(s, -2000), 2000)) }

// numericFunctions are the functions of numeric.
var numericFunctions = []Def{
	Strict("cleave_num", 3, func(v *Env, a []Arg) (value.Datum, error) {
		x, err := numericArg(a[1])
		if err != nil {
			return value.Datum{}, err
		}
		y, err := numericArg(a[2])
		if err != nil {
			return value.Datum{}, err
		}
		switch a[0].Int64() {
		case 1:
			return numV(x.Add(y))
		case 2:
			return numV(x.Add(y.Neg()))
		case 3:
			return numV(x.Mul(y))
		case 4:
			return numV(x.Div(y))
		case 5:
			return numV(x.Mod(y))
		}
		if x.Kind != 0 || y.Kind != 0 {
			return value.Datum{}, sqlstate.Refusal("CLV-2100", "div of NaN or infinities is not supported on a SQLite shard").
				WithHint("Use the operator /.")
		}
		if y.N.Sign() == 0 {
			return value.Datum{}, value.DivisionByZero()
		}
		s := max(x.Scale, y.Scale)
		return value.Text(new(big.Int).Quo(x.Rescale(s), y.Rescale(s)).String()), nil
	}),
	Strict("cleave_num1", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, err := numericArg(a[1])
		if err != nil {
			return value.Datum{}, err
		}
		switch a[0].Int64() {
		case 1:
			return numV(x.Neg(), nil)
		case 2:
			if x.Sign() < 0 {
				x = x.Neg()
			}
			return numV(x, nil)
		case 3:
			return numV(x.Floor(), nil)
		case 4:
			return numV(x.Ceil(), nil)
		}
		if x.Kind == 'N' {
			return value.Text("NaN"), nil
		}
		return value.Text(strconv.Itoa(x.Sign())), nil
	}),
	Strict("cleave_num_round", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return value.Datum{}, err
		}
		return numV(x.Round(clampScale(a[1].Int64())), nil)
	}),
	Strict("cleave_num_trunc", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return value.Datum{}, err
		}
		return numV(x.Trunc(clampScale(a[1].Int64())), nil)
	}),
	Strict("cleave_num_scale", 1, func(v *Env, a []Arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil || x.Kind != 0 {
			return value.Datum{}, err
		}
		return value.Int(int64(x.Scale)), nil
	}),
	Strict("cleave_num_typmod", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return value.Datum{}, err
		}
		return numV(x.ApplyTypmod(int32(a[1].Int64())))
	}),
	Strict("cleave_num_int", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return value.Datum{}, err
		}
		return IntOr(x.ToInt(uint32(a[1].Int64())))
	}),
	Strict("cleave_num_float", 1, func(v *Env, a []Arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return value.Datum{}, err
		}
		if x.Kind == 'N' {
			return value.Datum{}, value.RefuseNaN()
		}
		f, err := x.ToFloat()
		if err != nil {
			return value.Datum{}, err
		}
		return value.Float(f), nil
	}),
}
