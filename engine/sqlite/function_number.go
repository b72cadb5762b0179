package sqlite

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

func defInts() {
	def("cleave_int", 2, func(v *env, a []arg) (value.Datum, error) {
		return intOr(value.CheckInt(a[0].Int64(), uint32(a[1].Int64())))
	})
	def("cleave_add", 2, func(v *env, a []arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		r := x + y
		if (r > x) != (y > 0) && y != 0 {
			return failV(value.OutOfRange(pgoid.Int8))
		}
		return intV(r)
	})
	def("cleave_sub", 2, func(v *env, a []arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		r := x - y
		if (r < x) != (y > 0) && y != 0 {
			return failV(value.OutOfRange(pgoid.Int8))
		}
		return intV(r)
	})
	def("cleave_mul", 2, func(v *env, a []arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		r := x * y
		if x != 0 && (r/x != y || x == -1 && y == math.MinInt64) {
			return failV(value.OutOfRange(pgoid.Int8))
		}
		return intV(r)
	})
	def("cleave_div", 3, func(v *env, a []arg) (value.Datum, error) {
		x, y, oid := a[0].Int64(), a[1].Int64(), uint32(a[2].Int64())
		if y == 0 {
			return failV(value.DivisionByZero())
		}
		if y == -1 && x == math.MinInt64 {
			return failV(value.OutOfRange(oid))
		}
		return intOr(value.CheckInt(x/y, oid))
	})
	def("cleave_mod", 2, func(v *env, a []arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		if y == 0 {
			return failV(value.DivisionByZero())
		}
		if y == -1 {
			return intV(0)
		}
		return intV(x % y)
	})
	def("cleave_neg", 2, func(v *env, a []arg) (value.Datum, error) {
		x, oid := a[0].Int64(), uint32(a[1].Int64())
		if x == math.MinInt64 {
			return failV(value.OutOfRange(oid))
		}
		return intOr(value.CheckInt(-x, oid))
	})
	def("cleave_abs", 2, func(v *env, a []arg) (value.Datum, error) {
		x, oid := a[0].Int64(), uint32(a[1].Int64())
		if x == math.MinInt64 {
			return failV(value.OutOfRange(oid))
		}
		if x < 0 {
			x = -x
		}
		return intOr(value.CheckInt(x, oid))
	})
	def("cleave_xor", 2, func(v *env, a []arg) (value.Datum, error) { return intV(a[0].Int64() ^ a[1].Int64()) })
	def("cleave_gcd", 3, func(v *env, a []arg) (value.Datum, error) {
		g := new(big.Int).GCD(nil, nil, new(big.Int).Abs(big.NewInt(a[0].Int64())), new(big.Int).Abs(big.NewInt(a[1].Int64())))
		if !g.IsInt64() {
			return failV(value.OutOfRange(uint32(a[2].Int64())))
		}
		return intOr(value.CheckInt(g.Int64(), uint32(a[2].Int64())))
	})
	def("cleave_to_hex", 2, func(v *env, a []arg) (value.Datum, error) {
		if a[1].Int64() == 32 {
			return textV(strconv.FormatUint(uint64(uint32(a[0].Int64())), 16))
		}
		return textV(strconv.FormatUint(uint64(a[0].Int64()), 16))
	})
	def("cleave_oid", 2, func(v *env, a []arg) (value.Datum, error) {
		x, from := a[0].Int64(), uint32(a[1].Int64())
		if from == pgoid.Int8 {
			return intOr(value.CheckInt(x, pgoid.OID))
		}
		return intV(int64(uint32(x)))
	})
	def("cleave_oid_int4", 1, func(v *env, a []arg) (value.Datum, error) { return intV(int64(int32(uint32(a[0].Int64())))) })
	def("cleave_hash_extended", 3, func(v *env, a []arg) (value.Datum, error) {
		val, err := keyValue(uint32(a[2].Int64()), valueDatum(a[0]))
		if err != nil {
			return failV(err)
		}
		return intV(keyspace.HashKey(a[1].Int64(), keyspace.Key{val}))
	})
	defVolatile("cleave_random", 0, func(v *env, a []arg) (value.Datum, error) { return floatV(rand.Float64()) })
}

func checkFloat(r float64, infIn, zeroOK bool) (value.Datum, error) {
	if math.IsNaN(r) {
		return failV(value.RefuseNaN())
	}
	if math.IsInf(r, 0) && !infIn {
		return failV(sqlstate.New(sqlstate.NumericOutOfRange, "value out of range: overflow"))
	}
	if r == 0 && !zeroOK {
		return failV(sqlstate.New(sqlstate.NumericOutOfRange, "value out of range: underflow"))
	}
	return floatV(r)
}

func defFloats() {
	inf := math.IsInf
	two := func(name string, f func(x, y float64) (value.Datum, error)) {
		def(name, 2, func(v *env, a []arg) (value.Datum, error) { return f(a[0].Float(), a[1].Float()) })
	}
	two("cleave_fadd", func(x, y float64) (value.Datum, error) { return checkFloat(x+y, inf(x, 0) || inf(y, 0), true) })
	two("cleave_fsub", func(x, y float64) (value.Datum, error) { return checkFloat(x-y, inf(x, 0) || inf(y, 0), true) })
	two("cleave_fmul", func(x, y float64) (value.Datum, error) {
		return checkFloat(x*y, inf(x, 0) || inf(y, 0), x == 0 || y == 0)
	})
	two("cleave_fdiv", func(x, y float64) (value.Datum, error) {
		if y == 0 {
			return failV(value.DivisionByZero())
		}
		return checkFloat(x/y, inf(x, 0), x == 0 || inf(y, 0))
	})
	one := func(name string, f func(x float64) float64) {
		def(name, 1, func(v *env, a []arg) (value.Datum, error) { return floatV(f(a[0].Float())) })
	}
	one("cleave_fneg", func(x float64) float64 { return -x })
	one("cleave_fabs", math.Abs)
	one("cleave_fround", math.RoundToEven)
	one("cleave_ffloor", math.Floor)
	one("cleave_fceil", math.Ceil)
	one("cleave_ftrunc", math.Trunc)
	one("cleave_fsign", func(x float64) float64 {
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return 0
	})
	def("cleave_fsqrt", 1, func(v *env, a []arg) (value.Datum, error) {
		x := a[0].Float()
		if x < 0 {
			return failV(sqlstate.New("2201F", "cannot take square root of a negative number"))
		}
		return floatV(math.Sqrt(x))
	})
	def("cleave_minus_zero", 0, func(v *env, a []arg) (value.Datum, error) { return floatV(math.Copysign(0, -1)) })
	def("cleave_float", 1, func(v *env, a []arg) (value.Datum, error) {
		f, err := value.FloatIn(a[0].Text())
		if err != nil {
			return failV(err)
		}
		return floatV(f)
	})
	def("cleave_float_int", 2, func(v *env, a []arg) (value.Datum, error) {
		oid := uint32(a[1].Int64())
		f := math.RoundToEven(a[0].Float())
		if !(f >= -9223372036854775808 && f < 9223372036854775808) {
			return failV(value.OutOfRange(oid))
		}
		return intOr(value.CheckInt(int64(f), oid))
	})
	def("cleave_float_num", 1, func(v *env, a []arg) (value.Datum, error) {
		f := a[0].Float()
		if inf(f, 1) {
			return textV("Infinity")
		}
		if inf(f, -1) {
			return textV("-Infinity")
		}
		n, err := value.ParseNumeric(strconv.FormatFloat(f, 'g', 15, 64))
		return numV(trimFloatNumeric(n, f), err)
	})
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

func defNumerics() {
	def("cleave_num", 3, func(v *env, a []arg) (value.Datum, error) {
		x, err := numericArg(a[1])
		if err != nil {
			return failV(err)
		}
		y, err := numericArg(a[2])
		if err != nil {
			return failV(err)
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
			return failV(sqlstate.Refuse("div of NaN or infinities is not supported on a SQLite shard", "Use the operator /."))
		}
		if y.N.Sign() == 0 {
			return failV(value.DivisionByZero())
		}
		s := max(x.Scale, y.Scale)
		return textV(new(big.Int).Quo(x.Rescale(s), y.Rescale(s)).String())
	})
	def("cleave_num1", 2, func(v *env, a []arg) (value.Datum, error) {
		x, err := numericArg(a[1])
		if err != nil {
			return failV(err)
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
			return textV("NaN")
		}
		return textV(strconv.Itoa(x.Sign()))
	})
	clampScale := func(s int64) int { return int(min(max(s, -2000), 2000)) }
	def("cleave_num_round", 2, func(v *env, a []arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return failV(err)
		}
		return numV(x.Round(clampScale(a[1].Int64())), nil)
	})
	def("cleave_num_trunc", 2, func(v *env, a []arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return failV(err)
		}
		return numV(x.Trunc(clampScale(a[1].Int64())), nil)
	})
	def("cleave_num_scale", 1, func(v *env, a []arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil || x.Kind != 0 {
			return value.Datum{}, err
		}
		return intV(int64(x.Scale))
	})
	def("cleave_num_typmod", 2, func(v *env, a []arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return failV(err)
		}
		return numV(x.ApplyTypmod(int32(a[1].Int64())))
	})
	def("cleave_num_int", 2, func(v *env, a []arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return failV(err)
		}
		return intOr(x.ToInt(uint32(a[1].Int64())))
	})
	def("cleave_num_float", 1, func(v *env, a []arg) (value.Datum, error) {
		x, err := numericArg(a[0])
		if err != nil {
			return failV(err)
		}
		if x.Kind == 'N' {
			return failV(value.RefuseNaN())
		}
		f, err := x.ToFloat()
		if err != nil {
			return failV(err)
		}
		return floatV(f)
	})
}
