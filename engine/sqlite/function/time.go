package function

import (
	"crypto/rand"
	"math"
	"strconv"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

// zoned is a function of one argument that depends on the session's time zone.
func zoned(name string, fn Func) Def {
	return Volatile(name, 1, func(v *Env, a []Arg) (value.Datum, error) {
		if a[0].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		return fn(v, a)
	})
}

// timeFunctions are the functions of dates, times and intervals.
var timeFunctions = []Def{
	Volatile("cleave_now", 0, func(v *Env, a []Arg) (value.Datum, error) { return value.Int(v.TxTime), nil }),
	Volatile("cleave_statement_now", 0, func(v *Env, a []Arg) (value.Datum, error) { return value.Int(v.StmtTime), nil }),
	Volatile("cleave_clock", 0, func(v *Env, a []Arg) (value.Datum, error) { return value.Int(value.Now()), nil }),
	Volatile("cleave_random_uuid", 0, func(v *Env, a []Arg) (value.Datum, error) {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return value.Datum{}, err
		}
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
		return value.Blob(string(b[:])), nil
	}),
	Strict("cleave_ts_round", 2, func(v *Env, a []Arg) (value.Datum, error) {
		return value.Int(value.RoundTimestamp(a[0].Int64(), int32(a[1].Int64()))), nil
	}),
	Strict("cleave_date_ts", 1, func(v *Env, a []Arg) (value.Datum, error) {
		switch d := a[0].Int64(); {
		case d == value.DateInf:
			return value.Int(value.TimestampInf), nil
		case d == value.DateMinusInf:
			return value.Int(value.TimestampMinusInf), nil
		case d >= value.TimestampEnd/value.MicrosPerDay || d < value.TimestampMin/value.MicrosPerDay:
			return value.Datum{}, sqlstate.New(sqlstate.DatetimeOverflow, "date out of range for timestamp")
		default:
			return value.Int(d * value.MicrosPerDay), nil
		}
	}),
	Strict("cleave_ts_date", 1, func(v *Env, a []Arg) (value.Datum, error) {
		switch t := a[0].Int64(); t {
		case value.TimestampInf:
			return value.Int(value.DateInf), nil
		case value.TimestampMinusInf:
			return value.Int(value.DateMinusInf), nil
		default:
			d, _ := value.SplitTimestamp(t)
			return value.Int(d), nil
		}
	}),
	Strict("cleave_ts_time", 1, func(v *Env, a []Arg) (value.Datum, error) {
		t := a[0].Int64()
		if t == value.TimestampInf || t == value.TimestampMinusInf {
			return value.Datum{}, nil
		}
		_, us := value.SplitTimestamp(t)
		return value.Int(us), nil
	}),
	zoned("cleave_ts_tstz", func(v *Env, a []Arg) (value.Datum, error) {
		return value.Int(value.ToInstant(a[0].Int64(), v.Loc)), nil
	}),
	zoned("cleave_tstz_ts", func(v *Env, a []Arg) (value.Datum, error) { return value.Int(value.ToLocal(a[0].Int64(), v.Loc)), nil }),
	zoned("cleave_tstz_text", func(v *Env, a []Arg) (value.Datum, error) {
		return value.Text(string(value.AppendTimestamptz(nil, a[0].Int64(), v.Loc))), nil
	}),
	zoned("cleave_tstz_in", func(v *Env, a []Arg) (value.Datum, error) {
		return IntOr(value.TimestamptzIn(a[0].Text(), v.Loc))
	}),
	Strict("cleave_date_add", 2, func(v *Env, a []Arg) (value.Datum, error) {
		d, n := a[0].Int64(), a[1].Int64()
		if d == value.DateInf || d == value.DateMinusInf {
			return value.Int(d), nil
		}
		if d += n; d < value.DateMin || d >= value.DateEnd {
			return value.Datum{}, sqlstate.New(sqlstate.DatetimeOverflow, "date out of range")
		}
		return value.Int(d), nil
	}),
	Strict("cleave_date_diff", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		if x == value.DateInf || x == value.DateMinusInf || y == value.DateInf || y == value.DateMinusInf {
			return value.Datum{}, sqlstate.New(sqlstate.DatetimeOverflow, "cannot subtract infinite dates")
		}
		return value.Int(x - y), nil
	}),
	Strict("cleave_ts_add", 3, func(v *Env, a []Arg) (value.Datum, error) {
		return IntOr(signed(value.DecodeInterval(string(a[1].Blob())), a[2].Int64()).AddTo(a[0].Int64()))
	}),
	Volatile("cleave_tstz_add", 3, func(v *Env, a []Arg) (value.Datum, error) {
		if a[0].Type() == sqlite.TypeNull || a[1].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		iv, t := signed(value.DecodeInterval(string(a[1].Blob())), a[2].Int64()), a[0].Int64()
		if iv.Months != 0 || iv.Days != 0 {
			// Months and days count in local time, the rest in elapsed time.
			local, err := value.Interval{Months: iv.Months, Days: iv.Days}.AddTo(value.ToLocal(t, v.Loc))
			if err != nil {
				return value.Datum{}, err
			}
			t = value.ToInstant(local, v.Loc)
		}
		return IntOr(value.Interval{Micros: iv.Micros}.AddTo(t))
	}),
	Strict("cleave_ts_diff", 2, func(v *Env, a []Arg) (value.Datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		if x == value.TimestampInf || x == value.TimestampMinusInf || y == value.TimestampInf || y == value.TimestampMinusInf {
			return value.Datum{}, sqlstate.New(sqlstate.DatetimeOverflow, "cannot subtract infinite timestamps")
		}
		us := x - y
		// interval_justify_hours: whole days go to the field of days.
		return value.Blob(value.Interval{Micros: us % value.MicrosPerDay, Days: int32(us / value.MicrosPerDay)}.Encode()), nil
	}),
	Strict("cleave_interval_add", 3, func(v *Env, a []Arg) (value.Datum, error) {
		x, y := value.DecodeInterval(string(a[0].Blob())), signed(value.DecodeInterval(string(a[1].Blob())), a[2].Int64())
		r := value.Interval{Micros: x.Micros + y.Micros, Days: x.Days + y.Days, Months: x.Months + y.Months}
		if int64(r.Days) != int64(x.Days)+int64(y.Days) || int64(r.Months) != int64(x.Months)+int64(y.Months) || (r.Micros > x.Micros) != (y.Micros > 0) && y.Micros != 0 {
			return value.Datum{}, sqlstate.New(sqlstate.DatetimeOverflow, "interval out of range")
		}
		return value.Blob(r.Encode()), nil
	}),
	Strict("cleave_date_trunc", 2, func(v *Env, a []Arg) (value.Datum, error) {
		return IntOr(dateTrunc(a[0].Text(), a[1].Int64(), "timestamp without time zone"))
	}),
	Volatile("cleave_date_trunc_tz", 2, dateTruncTZ),
	Volatile("cleave_date_trunc_tz", 3, dateTruncTZ),
	Strict("cleave_extract", 3, func(v *Env, a []Arg) (value.Datum, error) {
		return extract(strings.ToLower(a[0].Text()), a[1].Int64(), uint32(a[2].Int64()), 0)
	}),
	Volatile("cleave_extract_tz", 2, func(v *Env, a []Arg) (value.Datum, error) {
		if a[0].Type() == sqlite.TypeNull || a[1].Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
		field, t := strings.ToLower(a[0].Text()), a[1].Int64()
		if field == "epoch" {
			return extract(field, t, pgoid.Timestamptz, 0)
		}
		return extract(field, value.ToLocal(t, v.Loc), pgoid.Timestamptz, value.OffsetAt(t, v.Loc))
	}),
	Strict("cleave_at_zone", 2, func(v *Env, a []Arg) (value.Datum, error) {
		loc, err := zoneArg(a[0].Text())
		if err != nil {
			return value.Datum{}, err
		}
		return value.Int(value.ToLocal(a[1].Int64(), loc)), nil
	}),
	Strict("cleave_from_zone", 2, func(v *Env, a []Arg) (value.Datum, error) {
		loc, err := zoneArg(a[0].Text())
		if err != nil {
			return value.Datum{}, err
		}
		return value.Int(value.ToInstant(a[1].Int64(), loc)), nil
	}),
	Strict("cleave_make_date", 3, func(v *Env, a []Arg) (value.Datum, error) {
		y, m, d := a[0].Int64(), a[1].Int64(), a[2].Int64()
		bad := sqlstate.New(sqlstate.DatetimeOverflow, "date field value out of range: %d-%02d-%02d", y, m, d)
		if y == 0 || m < 1 || m > 12 || d < 1 || y > 6000000 || y < -6000000 {
			return value.Datum{}, bad
		}
		if y < 0 {
			y++
		}
		if int(d) > value.DaysIn(y, int(m)) {
			return value.Datum{}, bad
		}
		n := value.DayOf(y, int(m), int(d))
		if n < value.DateMin || n >= value.DateEnd {
			return value.Datum{}, sqlstate.New(sqlstate.DatetimeOverflow, "date out of range: %d-%02d-%02d", a[0].Int64(), m, d)
		}
		return value.Int(n), nil
	}),
	Strict("cleave_to_timestamp", 1, func(v *Env, a []Arg) (value.Datum, error) {
		f := a[0].Float()
		if math.IsInf(f, 1) {
			return value.Int(value.TimestampInf), nil
		}
		if math.IsInf(f, -1) {
			return value.Int(value.TimestampMinusInf), nil
		}
		us := math.RoundToEven((f - value.EpochDays*86400) * 1000000)
		if us < float64(value.TimestampMin) || us >= float64(value.TimestampEnd) {
			return value.Datum{}, value.TimestampOutOfRange()
		}
		return value.Int(int64(us)), nil
	}),
	Strict("cleave_ts_finite", 1, func(v *Env, a []Arg) (value.Datum, error) {
		return value.Bool(a[0].Int64() != value.TimestampInf && a[0].Int64() != value.TimestampMinusInf), nil
	}),
	Strict("cleave_dt_combine", 2, func(v *Env, a []Arg) (value.Datum, error) {
		d := a[0].Int64()
		if d >= value.TimestampEnd/value.MicrosPerDay || d < value.TimestampMin/value.MicrosPerDay {
			return value.Datum{}, sqlstate.New(sqlstate.DatetimeOverflow, "date out of range for timestamp")
		}
		return value.Int(d*value.MicrosPerDay + a[1].Int64()), nil
	}),
}

// dateTruncTZ is date_trunc of timestamptz, in the session's time zone or in the one that is given.
func dateTruncTZ(v *Env, a []Arg) (value.Datum, error) {
	loc := v.Loc
	for _, x := range a {
		if x.Type() == sqlite.TypeNull {
			return value.Datum{}, nil
		}
	}
	if len(a) == 3 {
		l, err := zoneArg(a[2].Text())
		if err != nil {
			return value.Datum{}, err
		}
		loc = l
	}
	t := a[1].Int64()
	local, err := dateTrunc(a[0].Text(), value.ToLocal(t, loc), "timestamp with time zone")
	if err != nil {
		return value.Datum{}, err
	}
	if t == value.TimestampInf || t == value.TimestampMinusInf {
		return value.Int(t), nil
	}
	switch strings.ToLower(a[0].Text()) {
	case "hour", "hours", "minute", "minutes", "second", "seconds", "milliseconds", "microseconds":
		// Below a day the offset stays.
		return value.Int(local - int64(value.OffsetAt(t, loc))*1000000), nil
	}
	return value.Int(value.ToInstant(local, loc)), nil
}

func signed(v value.Interval, sign int64) value.Interval {
	if sign < 0 {
		return value.Interval{Micros: -v.Micros, Days: -v.Days, Months: -v.Months}
	}
	return v
}

func zoneArg(name string) (*time.Location, error) {
	loc, _, err := value.LoadZone(name)
	if err == nil {
		return loc, nil
	}
	if e := sqlstate.As(err); e.Code == sqlstate.FeatureNotSupported {
		return nil, err
	}
	return nil, sqlstate.New(sqlstate.InvalidParameterValue, "time zone \"%s\" not recognized", name)
}

// withinDay are the units that divide a day, in microseconds.
var withinDay = map[string]int64{
	"microseconds": 1, "microsecond": 1, "us": 1,
	"milliseconds": 1000, "millisecond": 1000, "ms": 1000,
	"second": 1000000, "seconds": 1000000, "sec": 1000000, "s": 1000000,
	"minute": 60000000, "minutes": 60000000, "min": 60000000, "m": 60000000,
	"hour": 3600000000, "hours": 3600000000, "hr": 3600000000, "h": 3600000000,
}

func dateTrunc(field string, t int64, typ string) (int64, error) {
	if t == value.TimestampInf || t == value.TimestampMinusInf {
		return t, nil
	}
	days, us := value.SplitTimestamp(t)
	y, m, _ := value.Civil(days)
	if n := withinDay[strings.ToLower(field)]; n != 0 {
		return days*value.MicrosPerDay + us/n*n, nil
	}
	// Years count without a year 0: 1 BC is year 0 here.
	switch strings.ToLower(field) {
	case "day", "days", "d":
		return days * value.MicrosPerDay, nil
	case "week", "weeks", "w":
		// 2000-01-03 was a Monday.
		wd := (days - 2) % 7
		if wd < 0 {
			wd += 7
		}
		return (days - wd) * value.MicrosPerDay, nil
	case "month", "months", "mon":
	case "quarter", "qtr":
		m = (m-1)/3*3 + 1
	case "year", "years", "y":
		m = 1
	case "decade", "decades", "dec":
		if y < 0 {
			y -= 9
		}
		y, m = y/10*10, 1
	case "century", "centuries", "c", "millennium", "millennia", "mil":
		return 0, sqlstate.Refusal("CLV-2105", "date_trunc to '%s' is not supported on a SQLite shard", field).
			WithHint("Truncate to a year.")
	default:
		return 0, sqlstate.New(sqlstate.InvalidParameterValue, "unit \"%s\" not recognized for type %s", strings.ToLower(field), typ)
	}
	return value.DayOf(y, m, 1) * value.MicrosPerDay, nil
}

func extract(field string, t int64, typ uint32, offset int) (value.Datum, error) {
	if err := checkFinite(t, typ); err != nil {
		return value.Datum{}, err
	}
	dateOnly := typ == pgoid.Date
	if dateOnly {
		t *= value.MicrosPerDay
	}
	days, us := value.SplitTimestamp(t)
	scaled := func(n int64, scale int) (value.Datum, error) {
		x := value.NumericOf(n)
		x.Scale = scale
		return value.Text(x.String()), nil
	}
	whole := func(n int64) (value.Datum, error) { return value.Text(strconv.FormatInt(n, 10)), nil }
	if n, ok := dateField(field, days); ok {
		return whole(n)
	}
	switch field {
	case "hour", "minute", "second", "milliseconds", "microseconds", "timezone", "timezone_hour", "timezone_minute":
		if dateOnly {
			return value.Datum{}, sqlstate.New(sqlstate.FeatureNotSupported, "unit \"%s\" not supported for type date", field)
		}
	}
	switch field {
	case "hour", "minute":
		n := us / withinDay[field]
		if field == "minute" {
			n %= 60
		}
		return whole(n)
	case "second":
		return scaled(us%60000000, 6)
	case "milliseconds":
		return scaled(us%60000000, 3)
	case "microseconds":
		return whole(us % 60000000)
	case "epoch":
		if dateOnly {
			return whole((days + value.EpochDays) * 86400)
		}
		if t > math.MaxInt64-value.EpochDays*value.MicrosPerDay {
			return value.Datum{}, value.TimestampOutOfRange()
		}
		return scaled(t+value.EpochDays*value.MicrosPerDay, 6)
	case "timezone":
		if typ == pgoid.Timestamptz {
			return whole(int64(offset))
		}
	}
	return value.Datum{}, sqlstate.Refusal("CLV-2108", "extract of '%s' is not supported on a SQLite shard", field).
		WithHint("Use year, quarter, month, week, day, dow, doy, hour, minute, second or epoch.")
}

// checkFinite refuses to take a field of infinity.
func checkFinite(t int64, typ uint32) error {
	switch {
	case typ == pgoid.Date && (t == value.DateInf || t == value.DateMinusInf):
		return sqlstate.Refusal("CLV-2106", "extract of an infinite date is not supported on a SQLite shard").
			WithHint("Test isfinite first.")
	case typ != pgoid.Date && (t == value.TimestampInf || t == value.TimestampMinusInf):
		return sqlstate.Refusal("CLV-2107", "extract of an infinite timestamp is not supported on a SQLite shard").
			WithHint("Test isfinite first.")
	}
	return nil
}

// dateField is a field that a day has, false for another one.
func dateField(field string, days int64) (int64, bool) {
	y, m, d := value.Civil(days)
	monday := days - floorMod(days-2, 7) // of its week: 2000-01-03 was one
	thursday := monday + 3
	iy, _, _ := value.Civil(thursday)
	switch field {
	case "year":
		return withoutZero(y), true
	case "month":
		return int64(m), true
	case "day":
		return int64(d), true
	case "quarter":
		return int64((m-1)/3 + 1), true
	case "dow":
		return floorMod(days+6, 7), true // 2000-01-01 was a Saturday
	case "isodow":
		return days - monday + 1, true
	case "doy":
		return days - value.DayOf(y, 1, 1) + 1, true
	case "week":
		return (thursday-value.DayOf(iy, 1, 1))/7 + 1, true
	case "isoyear":
		return withoutZero(iy), true
	}
	return 0, false
}

// withoutZero counts years without a year 0, as PostgreSQL shows them: 1 BC is -1.
func withoutZero(year int64) int64 {
	if year <= 0 {
		return year - 1
	}
	return year
}

func floorMod(a, n int64) int64 {
	return (a%n + n) % n
}
