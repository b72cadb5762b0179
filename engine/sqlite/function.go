package sqlite

import (
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// env is what the functions registered on one SQLite connection share with the
// conversation that uses it.
type env struct {
	loc       *time.Location
	txTime    int64 // now(), microseconds since 2000-01-01
	stmtTime  int64
	err       error // the error that a function raised in the current statement
	reg       func(oid uint32, text string) (int64, error)
	regOut    func(oid uint32, v int64) string
	conn      *Conn
	capture   []value.Datum // see constraint.go
	regexes   regexCache
	guardKeys guardScratch
}

type scalar func(v *env, a []arg) (value.Datum, error)

// funcDef is a function to register. Strict functions give NULL for any NULL.
type funcDef struct {
	name     string
	args     int
	volatile bool // not deterministic
	lax      bool // called with NULL arguments
	fn       scalar
}

type aggregateDef struct {
	name string
	args int
	make func(v *env, a int) aggregator
}

var (
	funcDefs      []funcDef
	aggregateDefs []aggregateDef
)

func def(name string, args int, fn scalar) {
	funcDefs = append(funcDefs, funcDef{name: name, args: args, fn: fn})
}

func defLax(name string, args int, fn scalar) {
	funcDefs = append(funcDefs, funcDef{name: name, args: args, fn: fn, lax: true})
}

func defVolatile(name string, args int, fn scalar) {
	funcDefs = append(funcDefs, funcDef{name: name, args: args, fn: fn, lax: true, volatile: true})
}

func compareNumericText(a, b string) int {
	if a == b {
		return 0
	}
	x, err := value.NumericOfText(a)
	if err != nil {
		return strings.Compare(a, b)
	}
	y, err := value.NumericOfText(b)
	if err != nil {
		return strings.Compare(a, b)
	}
	return x.Cmp(y)
}

func intV(i int64) (value.Datum, error)     { return value.Int(i), nil }
func textV(s string) (value.Datum, error)   { return value.Text(s), nil }
func blobV(s string) (value.Datum, error)   { return value.Blob(s), nil }
func floatV(f float64) (value.Datum, error) { return value.Datum{Kind: 'f', Float: f}, nil }
func failV(err error) (value.Datum, error)  { return value.Datum{}, err }
func boolV(b bool) (value.Datum, error)     { return value.Bool(b), nil }

func intOr(i int64, err error) (value.Datum, error) {
	if err != nil {
		return failV(err)
	}
	return intV(i)
}

func numV(n value.Numeric, err error) (value.Datum, error) {
	if err != nil {
		return failV(err)
	}
	return textV(n.String())
}

func numericArg(a arg) (value.Numeric, error) {
	if a.Type() == sqlite.TypeInteger {
		return value.NumericOf(a.Int64()), nil
	}
	return value.NumericOfText(a.Text())
}

func init() {
	defInts()
	defFloats()
	defNumerics()
	defTexts()
	defTimes()
	defMisc()
	defAggregates()
	defSystem()
	defGuards()
	defMoves()
}

func defMisc() {
	def("cleave_in", 2, func(v *env, a []arg) (value.Datum, error) {
		d, err := value.In(uint32(a[0].Int64()), a[1].Text(), v.loc)
		if err != nil {
			return failV(err)
		}
		return d, nil
	})
	def("cleave_out", 2, func(v *env, a []arg) (value.Datum, error) {
		b, err := value.Append(nil, uint32(a[0].Int64()), valueDatum(a[1]), v.loc)
		if err != nil {
			return failV(err)
		}
		return textV(string(b))
	})
	defVolatile("cleave_one_row", 0, func(v *env, a []arg) (value.Datum, error) {
		return failV(sqlstate.New("21000", "more than one row returned by a subquery used as an expression"))
	})
	for _, greatest := range []bool{true, false} {
		name := "cleave_least"
		if greatest {
			name = "cleave_greatest"
		}
		defLax(name, -1, func(v *env, a []arg) (value.Datum, error) {
			c := value.Class(a[0].Int64())
			best := -1
			for i := 1; i < len(a); i++ {
				if a[i].Type() == sqlite.TypeNull {
					continue
				}
				if best < 0 {
					best = i
				} else if n := compareValues(c, a[i], a[best]); greatest && n > 0 || !greatest && n < 0 {
					best = i
				}
			}
			if best < 0 {
				return value.Datum{}, nil
			}
			return valueDatum(a[best]), nil
		})
	}
	defLax("cleave_limit", 2, func(v *env, a []arg) (value.Datum, error) {
		limit := a[1].Int64() == 1
		if a[0].Type() == sqlite.TypeNull {
			if limit {
				return intV(-1)
			}
			return intV(0)
		}
		n := a[0].Int64()
		if n < 0 {
			if limit {
				return failV(sqlstate.New("2201W", "LIMIT must not be negative"))
			}
			return failV(sqlstate.New("2201X", "OFFSET must not be negative"))
		}
		return intV(n)
	})
	def("cleave_step", 1, func(v *env, a []arg) (value.Datum, error) {
		if a[0].Int64() == 0 {
			return failV(sqlstate.New(sqlstate.InvalidParameterValue, "step size cannot equal zero"))
		}
		return intV(a[0].Int64())
	})
	def("cleave_series", 3, func(v *env, a []arg) (value.Datum, error) {
		x, s, end := a[0].Int64(), a[1].Int64(), a[2].Int64()
		n := x + s
		if (n > x) != (s > 0) || s > 0 && n > end || s < 0 && n < end {
			return value.Datum{}, nil
		}
		return intV(n)
	})
	defLax("cleave_array", -1, func(v *env, a []arg) (value.Datum, error) {
		elem := uint32(a[0].Int64())
		arr := value.Array{}
		for _, x := range a[1:] {
			if x.Type() == sqlite.TypeNull {
				arr = append(arr, value.Elem{Null: true})
				continue
			}
			b, err := value.Append(nil, elem, valueDatum(x), v.loc)
			if err != nil {
				return failV(err)
			}
			arr = append(arr, value.Elem{Text: string(b)})
		}
		return textV(arr.String())
	})
	def("cleave_array_json", 2, func(v *env, a []arg) (value.Datum, error) {
		s, err := value.ArrayJSON(a[1].Text(), uint32(a[0].Int64()), v.loc)
		if err != nil {
			return failV(err)
		}
		return textV(s)
	})
	// cleave_array_zip(types, arrays...): the JSON of rows of one element each.
	defLax("cleave_array_zip", -1, func(v *env, a []arg) (value.Datum, error) {
		arrays := make([]value.Array, len(a)-1)
		types, rows := strings.Split(a[0].Text(), ","), 0
		for i := range arrays {
			if a[i+1].Type() == sqlite.TypeNull {
				continue
			}
			arr, err := value.ParseArray(a[i+1].Text(), value.ParseOID(types[i]))
			if err != nil {
				return failV(err)
			}
			arrays[i], rows = arr, max(rows, len(arr))
		}
		out := []byte{'['}
		for n := range rows {
			if n > 0 {
				out = append(out, ',')
			}
			out = append(out, '[')
			for i, arr := range arrays {
				if i > 0 {
					out = append(out, ',')
				}
				e := value.Elem{Null: true}
				if n < len(arr) {
					e = arr[n]
				}
				var err error
				if out, err = e.AppendJSON(out, value.Builtin.Element(value.ParseOID(types[i])), v.loc); err != nil {
					return failV(err)
				}
			}
			out = append(out, ']')
		}
		return textV(string(append(out, ']')))
	})
	def("cleave_array_fit", 3, func(v *env, a []arg) (value.Datum, error) {
		oid := uint32(a[0].Int64())
		x, err := value.ParseArray(a[1].Text(), oid)
		if err != nil {
			return failV(err)
		}
		s, err := x.Fit(value.Builtin.Element(oid), int32(a[2].Int64()), v.loc)
		if err != nil {
			return failV(err)
		}
		return textV(s)
	})
	def("cleave_array_cast", 3, func(v *env, a []arg) (value.Datum, error) {
		arr, err := value.ParseArray(a[0].Text(), uint32(a[1].Int64()))
		if err != nil {
			return failV(err)
		}
		s, err := arr.Normal(value.Builtin.Element(uint32(a[2].Int64())), v.loc)
		if err != nil {
			return failV(err)
		}
		return textV(s)
	})
	def("cleave_array_get", 3, func(v *env, a []arg) (value.Datum, error) {
		typ := uint32(a[0].Int64())
		arr, err := value.ParseArray(a[1].Text(), typ)
		if err != nil {
			return failV(err)
		}
		i := a[2].Int64()
		if typ != pgoid.Int2Vector && typ != pgoid.OIDVector {
			i--
		}
		if i < 0 || i >= int64(len(arr)) || arr[i].Null {
			return value.Datum{}, nil
		}
		d, err := value.In(value.Builtin.Element(typ), arr[i].Text, v.loc)
		if err != nil {
			return failV(err)
		}
		return d, nil
	})
	defLax("cleave_array_cat", 4, func(v *env, a []arg) (value.Datum, error) {
		oid, how := uint32(a[0].Int64()), a[1].Int64()
		list := func(x arg, single bool) (value.Array, error) {
			if single {
				if x.Type() == sqlite.TypeNull {
					return value.Array{{Null: true}}, nil
				}
				b, err := value.Append(nil, value.Builtin.Element(oid), valueDatum(x), v.loc)
				return value.Array{{Text: string(b)}}, err
			}
			if x.Type() == sqlite.TypeNull {
				return nil, nil
			}
			return value.ParseArray(x.Text(), oid)
		}
		x, err := list(a[2], how == 2)
		if err != nil {
			return failV(err)
		}
		y, err := list(a[3], how == 1)
		if err != nil {
			return failV(err)
		}
		if x == nil && y == nil {
			return value.Datum{}, nil
		}
		return textV(append(x, y...).String())
	})
	def("cleave_array_length", 3, func(v *env, a []arg) (value.Datum, error) {
		arr, err := value.ParseArray(a[1].Text(), uint32(a[0].Int64()))
		if err != nil {
			return failV(err)
		}
		if a[2].Int64() != 1 || len(arr) == 0 {
			return value.Datum{}, nil
		}
		return intV(int64(len(arr)))
	})
	def("cleave_array_card", 2, func(v *env, a []arg) (value.Datum, error) {
		arr, err := value.ParseArray(a[1].Text(), uint32(a[0].Int64()))
		return intOr(int64(len(arr)), err)
	})
	defLax("cleave_array_to_string", -1, func(v *env, a []arg) (value.Datum, error) {
		if a[1].Type() == sqlite.TypeNull || a[2].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		arr, err := value.ParseArray(a[1].Text(), uint32(a[0].Int64()))
		if err != nil {
			return failV(err)
		}
		var parts []string
		for _, e := range arr {
			if !e.Null {
				parts = append(parts, e.Text)
			} else if len(a) > 3 && a[3].Type() != sqlite.TypeNull {
				parts = append(parts, a[3].Text())
			}
		}
		return textV(strings.Join(parts, a[2].Text()))
	})
	def("cleave_json_get", 3, func(v *env, a []arg) (value.Datum, error) {
		s, ok, err := value.JsonField(a[0].Text(), a[1].Text(), 0, false, a[2].Int64() == 1)
		if err != nil {
			return failV(err)
		}
		if !ok {
			return value.Datum{}, nil
		}
		return textV(s)
	})
	def("cleave_json_at", 3, func(v *env, a []arg) (value.Datum, error) {
		s, ok, err := value.JsonField(a[0].Text(), "", a[1].Int64(), true, a[2].Int64() == 1)
		if err != nil {
			return failV(err)
		}
		if !ok {
			return value.Datum{}, nil
		}
		return textV(s)
	})
}

func compareValues(c value.Class, a, b arg) int {
	switch c {
	case value.ClassInt:
		x, y := a.Int64(), b.Int64()
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	case value.ClassFloat:
		x, y := a.Float(), b.Float()
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	case value.ClassNumeric:
		return compareNumericText(a.Text(), b.Text())
	case value.ClassBlob:
		return strings.Compare(string(a.Blob()), string(b.Blob()))
	}
	return strings.Compare(a.Text(), b.Text())
}
