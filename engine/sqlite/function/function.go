package function

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// Env is what the functions registered on one SQLite connection share with the
// conversation that uses it.
type Env struct {
	Loc      *time.Location
	TxTime   int64 // now(), microseconds since 2000-01-01
	StmtTime int64
	Err      error // the error that a function raised in the current statement
	regexes  regexCache
	scratch  []byte
}

// Func is the body of a function.
type Func func(v *Env, a []Arg) (value.Datum, error)

// Def is a function to register. Strict functions give NULL for any NULL.
type Def struct {
	name     string
	args     int
	volatile bool // not deterministic
	lax      bool // called with NULL arguments
	fn       Func
}

type aggregateDef struct {
	name string
	args int
	make func(v *Env) aggregator
}

// Strict is a function that gives NULL for any NULL.
func Strict(name string, args int, fn Func) Def {
	return Def{name: name, args: args, fn: fn}
}

// Lax is a function that is called with NULL arguments, too.
func Lax(name string, args int, fn Func) Def {
	return Def{name: name, args: args, fn: fn, lax: true}
}

// Volatile is a function whose value the arguments alone do not say. It is called with NULL arguments, too.
func Volatile(name string, args int, fn Func) Def {
	return Def{name: name, args: args, fn: fn, lax: true, volatile: true}
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

// IntOr is an integer, or the error.
func IntOr(i int64, err error) (value.Datum, error) {
	if err != nil {
		return value.Datum{}, err
	}
	return value.Int(i), nil
}

func numV(n value.Numeric, err error) (value.Datum, error) {
	if err != nil {
		return value.Datum{}, err
	}
	return value.Text(n.String()), nil
}

func numericArg(a Arg) (value.Numeric, error) {
	if a.Type() == sqlite.TypeInteger {
		return value.NumericOf(a.Int64()), nil
	}
	return value.NumericOfText(a.Text())
}

// miscFunctions are the functions of all types, and of arrays and JSON.
var miscFunctions = []Def{
	Lax("cleave_second", 2, func(v *Env, a []Arg) (value.Datum, error) { return a[1].Datum(), nil }),
	Strict("cleave_true", 1, func(v *Env, a []Arg) (value.Datum, error) { return value.Int(1), nil }),
	Strict("cleave_size_pretty", 1, func(v *Env, a []Arg) (value.Datum, error) { return value.Text(sizePretty(a[0].Int64())), nil }),
	Lax("cleave_format_type", 2, func(v *Env, a []Arg) (value.Datum, error) {
		if a[0].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		mod := int32(value.NoModifier)
		if a[1].Type() != sqlite.TypeNull {
			mod = int32(a[1].Int64())
		}
		return value.Text(value.FormatType(uint32(a[0].Int64()), mod)), nil
	}),
	Strict("cleave_in", 2, func(v *Env, a []Arg) (value.Datum, error) {
		d, err := value.In(uint32(a[0].Int64()), a[1].Text(), v.Loc)
		if err != nil {
			return value.Datum{}, err
		}
		return d, nil
	}),
	Strict("cleave_out", 2, func(v *Env, a []Arg) (value.Datum, error) {
		b, err := value.Append(nil, uint32(a[0].Int64()), a[1].Datum(), v.Loc)
		if err != nil {
			return value.Datum{}, err
		}
		return value.Text(string(b)), nil
	}),
	Volatile("cleave_one_row", 0, func(v *Env, a []Arg) (value.Datum, error) {
		return value.Datum{}, sqlstate.New("21000", "more than one row returned by a subquery used as an expression")
	}),
	Lax("cleave_least", -1, func(v *Env, a []Arg) (value.Datum, error) { return extreme(a, -1) }),
	Lax("cleave_greatest", -1, func(v *Env, a []Arg) (value.Datum, error) { return extreme(a, 1) }),
	Lax("cleave_limit", 2, func(v *Env, a []Arg) (value.Datum, error) {
		limit := a[1].Int64() == 1
		if a[0].Type() == sqlite.TypeNull {
			if limit {
				return value.Int(-1), nil
			}
			return value.Int(0), nil
		}
		n := a[0].Int64()
		if n < 0 {
			if limit {
				return value.Datum{}, sqlstate.New("2201W", "LIMIT must not be negative")
			}
			return value.Datum{}, sqlstate.New("2201X", "OFFSET must not be negative")
		}
		return value.Int(n), nil
	}),
	Strict("cleave_step", 1, func(v *Env, a []Arg) (value.Datum, error) {
		if a[0].Int64() == 0 {
			return value.Datum{}, sqlstate.New(sqlstate.InvalidParameterValue, "step size cannot equal zero")
		}
		return value.Int(a[0].Int64()), nil
	}),
	Strict("cleave_series", 3, func(v *Env, a []Arg) (value.Datum, error) {
		x, s, end := a[0].Int64(), a[1].Int64(), a[2].Int64()
		n := x + s
		if (n > x) != (s > 0) || s > 0 && n > end || s < 0 && n < end {
			return value.Datum{}, nil
		}
		return value.Int(n), nil
	}),
	Lax("cleave_array", -1, func(v *Env, a []Arg) (value.Datum, error) {
		elem := uint32(a[0].Int64())
		arr := value.Array{}
		for _, x := range a[1:] {
			if x.Type() == sqlite.TypeNull {
				arr = append(arr, value.Elem{Null: true})
				continue
			}
			b, err := value.Append(nil, elem, x.Datum(), v.Loc)
			if err != nil {
				return value.Datum{}, err
			}
			arr = append(arr, value.Elem{Text: string(b)})
		}
		return value.Text(arr.String()), nil
	}),
	Strict("cleave_array_json", 2, func(v *Env, a []Arg) (value.Datum, error) {
		s, err := value.ArrayJSON(a[1].Text(), uint32(a[0].Int64()), v.Loc)
		if err != nil {
			return value.Datum{}, err
		}
		return value.Text(s), nil
	}),
	// cleave_array_zip(types, arrays...): the JSON of rows of one element each.
	Lax("cleave_array_zip", -1, func(v *Env, a []Arg) (value.Datum, error) {
		arrays := make([]value.Array, len(a)-1)
		types, rows := strings.Split(a[0].Text(), ","), 0
		for i := range arrays {
			if a[i+1].Type() == sqlite.TypeNull {
				continue
			}
			arr, err := value.ParseArray(a[i+1].Text(), value.ParseOID(types[i]))
			if err != nil {
				return value.Datum{}, err
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
				if out, err = e.AppendJSON(out, value.Builtin.Element(value.ParseOID(types[i])), v.Loc); err != nil {
					return value.Datum{}, err
				}
			}
			out = append(out, ']')
		}
		return value.Text(string(append(out, ']'))), nil
	}),
	Strict("cleave_array_fit", 3, func(v *Env, a []Arg) (value.Datum, error) {
		oid := uint32(a[0].Int64())
		x, err := value.ParseArray(a[1].Text(), oid)
		if err != nil {
			return value.Datum{}, err
		}
		s, err := x.Fit(value.Builtin.Element(oid), int32(a[2].Int64()), v.Loc)
		if err != nil {
			return value.Datum{}, err
		}
		return value.Text(s), nil
	}),
	Strict("cleave_array_cast", 3, func(v *Env, a []Arg) (value.Datum, error) {
		arr, err := value.ParseArray(a[0].Text(), uint32(a[1].Int64()))
		if err != nil {
			return value.Datum{}, err
		}
		s, err := arr.Normal(value.Builtin.Element(uint32(a[2].Int64())), v.Loc)
		if err != nil {
			return value.Datum{}, err
		}
		return value.Text(s), nil
	}),
	Strict("cleave_array_get", 3, func(v *Env, a []Arg) (value.Datum, error) {
		typ := uint32(a[0].Int64())
		arr, err := value.ParseArray(a[1].Text(), typ)
		if err != nil {
			return value.Datum{}, err
		}
		i := a[2].Int64()
		if typ != pgoid.Int2Vector && typ != pgoid.OIDVector {
			i--
		}
		if i < 0 || i >= int64(len(arr)) || arr[i].Null {
			return value.Datum{}, nil
		}
		d, err := value.In(value.Builtin.Element(typ), arr[i].Text, v.Loc)
		if err != nil {
			return value.Datum{}, err
		}
		return d, nil
	}),
	Lax("cleave_array_cat", 4, func(v *Env, a []Arg) (value.Datum, error) {
		oid, how := uint32(a[0].Int64()), a[1].Int64()
		list := func(x Arg, single bool) (value.Array, error) {
			if single {
				if x.Type() == sqlite.TypeNull {
					return value.Array{{Null: true}}, nil
				}
				b, err := value.Append(nil, value.Builtin.Element(oid), x.Datum(), v.Loc)
				return value.Array{{Text: string(b)}}, err
			}
			if x.Type() == sqlite.TypeNull {
				return nil, nil
			}
			return value.ParseArray(x.Text(), oid)
		}
		x, err := list(a[2], how == 2)
		if err != nil {
			return value.Datum{}, err
		}
		y, err := list(a[3], how == 1)
		if err != nil {
			return value.Datum{}, err
		}
		if x == nil && y == nil {
			return value.Datum{}, nil
		}
		return value.Text(append(x, y...).String()), nil
	}),
	Strict("cleave_array_length", 3, func(v *Env, a []Arg) (value.Datum, error) {
		arr, err := value.ParseArray(a[1].Text(), uint32(a[0].Int64()))
		if err != nil {
			return value.Datum{}, err
		}
		if a[2].Int64() != 1 || len(arr) == 0 {
			return value.Datum{}, nil
		}
		return value.Int(int64(len(arr))), nil
	}),
	Strict("cleave_array_card", 2, func(v *Env, a []Arg) (value.Datum, error) {
		arr, err := value.ParseArray(a[1].Text(), uint32(a[0].Int64()))
		return IntOr(int64(len(arr)), err)
	}),
	Lax("cleave_array_to_string", -1, func(v *Env, a []Arg) (value.Datum, error) {
		if a[1].Type() == sqlite.TypeNull || a[2].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		arr, err := value.ParseArray(a[1].Text(), uint32(a[0].Int64()))
		if err != nil {
			return value.Datum{}, err
		}
		var parts []string
		for _, e := range arr {
			if !e.Null {
				parts = append(parts, e.Text)
			} else if len(a) > 3 && a[3].Type() != sqlite.TypeNull {
				parts = append(parts, a[3].Text())
			}
		}
		return value.Text(strings.Join(parts, a[2].Text())), nil
	}),
	Strict("cleave_json_get", 3, func(v *Env, a []Arg) (value.Datum, error) {
		s, ok, err := value.JsonField(a[0].Text(), a[1].Text(), 0, false, a[2].Int64() == 1)
		if err != nil {
			return value.Datum{}, err
		}
		if !ok {
			return value.Datum{}, nil
		}
		return value.Text(s), nil
	}),
	Strict("cleave_json_at", 3, func(v *Env, a []Arg) (value.Datum, error) {
		s, ok, err := value.JsonField(a[0].Text(), "", a[1].Int64(), true, a[2].Int64() == 1)
		if err != nil {
			return value.Datum{}, err
		}
		if !ok {
			return value.Datum{}, nil
		}
		return value.Text(s), nil
	}),
}

// extreme is least and greatest: the value that compares as sign to all others. The first argument is the class.
func extreme(a []Arg, sign int) (value.Datum, error) {
	c := value.Class(a[0].Int64())
	best := -1
	for i := 1; i < len(a); i++ {
		if a[i].Type() == sqlite.TypeNull {
			continue
		}
		if best < 0 || compareValues(c, a[i], a[best])*sign > 0 {
			best = i
		}
	}
	if best < 0 {
		return value.Datum{}, nil
	}
	return a[best].Datum(), nil
}

func compareValues(c value.Class, a, b Arg) int {
	switch c {
	case value.ClassInt:
		return cmp.Compare(a.Int64(), b.Int64())
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

// sizePretty is pg_size_pretty.
func sizePretty(n int64) string {
	units := []string{"bytes", "kB", "MB", "GB", "TB", "PB"}
	limits := []int64{10 * 1024, 20*1024 - 1, 20*1024 - 1, 20*1024 - 1, 20*1024 - 1, 1 << 62}
	abs := func(v int64) int64 {
		if v < 0 {
			return -v
		}
		return v
	}
	rounds := []bool{false, true, true, true, true, true}
	bits := []int{0, 9, 19, 29, 39, 49}
	v := n
	for i := range units {
		if abs(v) < limits[i] || i == len(units)-1 {
			if rounds[i] {
				if v >= 0 {
					v = (v + 1) / 2
				} else {
					v = (v - 1) / 2
				}
			}
			return strconv.FormatInt(v, 10) + " " + units[i]
		}
		if i+1 < len(units) {
			shift := bits[i+1] - bits[i]
			v /= 1 << shift
		}
	}
	return ""
}
