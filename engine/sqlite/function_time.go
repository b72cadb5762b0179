package sqlite

import (
	"crypto/rand"
	"math"
	"strconv"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/sqlstate"
)

// clock returns the present in microseconds since 2000-01-01.
func clock() int64 { return time.Now().UnixMicro() - epochDays*usecsPerDay }

func defTimes() {
	defVolatile("cleave_now", 0, func(v *env, a []arg) (datum, error) { return intV(v.txTime) })
	defVolatile("cleave_statement_now", 0, func(v *env, a []arg) (datum, error) { return intV(v.stmtTime) })
	defVolatile("cleave_clock", 0, func(v *env, a []arg) (datum, error) { return intV(clock()) })
	defVolatile("cleave_random_uuid", 0, func(v *env, a []arg) (datum, error) {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return failV(err)
		}
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
		return blobV(string(b[:]))
	})
	def("cleave_ts_round", 2, func(v *env, a []arg) (datum, error) {
		return intV(roundTS(a[0].Int64(), int32(a[1].Int64())))
	})
	def("cleave_date_ts", 1, func(v *env, a []arg) (datum, error) {
		switch d := a[0].Int64(); {
		case d == dateInf:
			return intV(tsInf)
		case d == dateMinusInf:
			return intV(tsMinusInf)
		case d >= tsEnd/usecsPerDay || d < tsMin/usecsPerDay:
			return failV(sqlstate.New(sqlstate.DatetimeOverflow, "date out of range for timestamp"))
		default:
			return intV(d * usecsPerDay)
		}
	})
	def("cleave_ts_date", 1, func(v *env, a []arg) (datum, error) {
		switch t := a[0].Int64(); t {
		case tsInf:
			return intV(dateInf)
		case tsMinusInf:
			return intV(dateMinusInf)
		default:
			d, _ := splitTS(t)
			return intV(d)
		}
	})
	def("cleave_ts_time", 1, func(v *env, a []arg) (datum, error) {
		t := a[0].Int64()
		if t == tsInf || t == tsMinusInf {
			return datum{}, nil
		}
		_, us := splitTS(t)
		return intV(us)
	})
	// These four depend on the session's TimeZone.
	zoned := func(name string, fn scalar) {
		defVolatile(name, 1, func(v *env, a []arg) (datum, error) {
			if a[0].Type() == sqlite.TypeNull {
				return datum{}, nil
			}
			return fn(v, a)
		})
	}
	zoned("cleave_ts_tstz", func(v *env, a []arg) (datum, error) { return intV(toInstant(a[0].Int64(), v.loc)) })
	zoned("cleave_tstz_ts", func(v *env, a []arg) (datum, error) { return intV(toLocal(a[0].Int64(), v.loc)) })
	zoned("cleave_tstz_text", func(v *env, a []arg) (datum, error) {
		return textV(string(appendTSTZ(nil, a[0].Int64(), v.loc)))
	})
	zoned("cleave_tstz_in", func(v *env, a []arg) (datum, error) {
		return intOr(timestamptzIn(a[0].Text(), v.loc))
	})
	def("cleave_date_add", 2, func(v *env, a []arg) (datum, error) {
		d, n := a[0].Int64(), a[1].Int64()
		if d == dateInf || d == dateMinusInf {
			return intV(d)
		}
		if d += n; d < dateMin || d >= dateEnd {
			return failV(sqlstate.New(sqlstate.DatetimeOverflow, "date out of range"))
		}
		return intV(d)
	})
	def("cleave_date_diff", 2, func(v *env, a []arg) (datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		if x == dateInf || x == dateMinusInf || y == dateInf || y == dateMinusInf {
			return failV(sqlstate.New(sqlstate.DatetimeOverflow, "cannot subtract infinite dates"))
		}
		return intV(x - y)
	})
	def("cleave_ts_add", 3, func(v *env, a []arg) (datum, error) {
		return intOr(signed(decodeInterval(string(a[1].Blob())), a[2].Int64()).addTo(a[0].Int64()))
	})
	defVolatile("cleave_tstz_add", 3, func(v *env, a []arg) (datum, error) {
		if a[0].Type() == sqlite.TypeNull || a[1].Type() == sqlite.TypeNull {
			return datum{}, nil
		}
		iv, t := signed(decodeInterval(string(a[1].Blob())), a[2].Int64()), a[0].Int64()
		if iv.months != 0 || iv.days != 0 {
			// Months and days count in local time, the rest in elapsed time.
			local, err := interval{months: iv.months, days: iv.days}.addTo(toLocal(t, v.loc))
			if err != nil {
				return failV(err)
			}
			t = toInstant(local, v.loc)
		}
		return intOr(interval{us: iv.us}.addTo(t))
	})
	def("cleave_ts_diff", 2, func(v *env, a []arg) (datum, error) {
		x, y := a[0].Int64(), a[1].Int64()
		if x == tsInf || x == tsMinusInf || y == tsInf || y == tsMinusInf {
			return failV(sqlstate.New(sqlstate.DatetimeOverflow, "cannot subtract infinite timestamps"))
		}
		us := x - y
		// interval_justify_hours: whole days go to the field of days.
		return blobV(interval{us: us % usecsPerDay, days: int32(us / usecsPerDay)}.encode())
	})
	def("cleave_interval_add", 3, func(v *env, a []arg) (datum, error) {
		x, y := decodeInterval(string(a[0].Blob())), signed(decodeInterval(string(a[1].Blob())), a[2].Int64())
		r := interval{us: x.us + y.us, days: x.days + y.days, months: x.months + y.months}
		if int64(r.days) != int64(x.days)+int64(y.days) || int64(r.months) != int64(x.months)+int64(y.months) || (r.us > x.us) != (y.us > 0) && y.us != 0 {
			return failV(sqlstate.New(sqlstate.DatetimeOverflow, "interval out of range"))
		}
		return blobV(r.encode())
	})
	def("cleave_date_trunc", 2, func(v *env, a []arg) (datum, error) {
		return intOr(dateTrunc(a[0].Text(), a[1].Int64(), "timestamp without time zone"))
	})
	for _, n := range []int{2, 3} {
		defVolatile("cleave_date_trunc_tz", n, func(v *env, a []arg) (datum, error) {
			loc := v.loc
			for _, x := range a {
				if x.Type() == sqlite.TypeNull {
					return datum{}, nil
				}
			}
			if len(a) == 3 {
				l, err := zoneArg(a[2].Text())
				if err != nil {
					return failV(err)
				}
				loc = l
			}
			t := a[1].Int64()
			local, err := dateTrunc(a[0].Text(), toLocal(t, loc), "timestamp with time zone")
			if err != nil {
				return failV(err)
			}
			if t == tsInf || t == tsMinusInf {
				return intV(t)
			}
			switch strings.ToLower(a[0].Text()) {
			case "hour", "hours", "minute", "minutes", "second", "seconds", "milliseconds", "microseconds":
				// Below a day the offset stays.
				return intV(local - int64(offsetAt(t, loc))*1000000)
			}
			return intV(toInstant(local, loc))
		})
	}
	def("cleave_extract", 3, func(v *env, a []arg) (datum, error) {
		return extract(strings.ToLower(a[0].Text()), a[1].Int64(), uint32(a[2].Int64()), 0)
	})
	defVolatile("cleave_extract_tz", 2, func(v *env, a []arg) (datum, error) {
		if a[0].Type() == sqlite.TypeNull || a[1].Type() == sqlite.TypeNull {
			return datum{}, nil
		}
		field, t := strings.ToLower(a[0].Text()), a[1].Int64()
		if field == "epoch" {
			return extract(field, t, oidTimestamptz, 0)
		}
		return extract(field, toLocal(t, v.loc), oidTimestamptz, offsetAt(t, v.loc))
	})
	def("cleave_at_zone", 2, func(v *env, a []arg) (datum, error) {
		loc, err := zoneArg(a[0].Text())
		if err != nil {
			return failV(err)
		}
		return intV(toLocal(a[1].Int64(), loc))
	})
	def("cleave_from_zone", 2, func(v *env, a []arg) (datum, error) {
		loc, err := zoneArg(a[0].Text())
		if err != nil {
			return failV(err)
		}
		return intV(toInstant(a[1].Int64(), loc))
	})
	def("cleave_make_date", 3, func(v *env, a []arg) (datum, error) {
		y, m, d := a[0].Int64(), a[1].Int64(), a[2].Int64()
		bad := sqlstate.New(sqlstate.DatetimeOverflow, "date field value out of range: %d-%02d-%02d", y, m, d)
		if y == 0 || m < 1 || m > 12 || d < 1 || y > 6000000 || y < -6000000 {
			return failV(bad)
		}
		if y < 0 {
			y++
		}
		if int(d) > daysIn(y, int(m)) {
			return failV(bad)
		}
		n := dayOf(y, int(m), int(d))
		if n < dateMin || n >= dateEnd {
			return failV(sqlstate.New(sqlstate.DatetimeOverflow, "date out of range: %d-%02d-%02d", a[0].Int64(), m, d))
		}
		return intV(n)
	})
	def("cleave_to_timestamp", 1, func(v *env, a []arg) (datum, error) {
		f := a[0].Float()
		if math.IsInf(f, 1) {
			return intV(tsInf)
		}
		if math.IsInf(f, -1) {
			return intV(tsMinusInf)
		}
		us := math.RoundToEven((f - epochDays*86400) * 1000000)
		if us < float64(tsMin) || us >= float64(tsEnd) {
			return failV(tsOutOfRange())
		}
		return intV(int64(us))
	})
	def("cleave_ts_finite", 1, func(v *env, a []arg) (datum, error) {
		return boolV(a[0].Int64() != tsInf && a[0].Int64() != tsMinusInf)
	})
	def("cleave_dt_combine", 2, func(v *env, a []arg) (datum, error) {
		d := a[0].Int64()
		if d >= tsEnd/usecsPerDay || d < tsMin/usecsPerDay {
			return failV(sqlstate.New(sqlstate.DatetimeOverflow, "date out of range for timestamp"))
		}
		return intV(d*usecsPerDay + a[1].Int64())
	})
}

func signed(v interval, sign int64) interval {
	if sign < 0 {
		return interval{us: -v.us, days: -v.days, months: -v.months}
	}
	return v
}

func zoneArg(name string) (*time.Location, error) {
	loc, _, err := loadZone(name)
	if err == nil {
		return loc, nil
	}
	if e := sqlstate.As(err); e.Code == sqlstate.FeatureNotSupported {
		return nil, err
	}
	return nil, sqlstate.New(sqlstate.InvalidParameterValue, "time zone \"%s\" not recognized", name)
}

func dateTrunc(field string, t int64, typ string) (int64, error) {
	if t == tsInf || t == tsMinusInf {
		return t, nil
	}
	days, us := splitTS(t)
	y, m, _ := civil(days)
	floorTo := func(n int64) (int64, error) { return days*usecsPerDay + us/n*n, nil }
	// Years count without a year 0: 1 BC is year 0 here.
	switch strings.ToLower(field) {
	case "microseconds", "microsecond", "us":
		return t, nil
	case "milliseconds", "millisecond", "ms":
		return floorTo(1000)
	case "second", "seconds", "sec", "s":
		return floorTo(1000000)
	case "minute", "minutes", "min", "m":
		return floorTo(60000000)
	case "hour", "hours", "hr", "h":
		return floorTo(3600000000)
	case "day", "days", "d":
		return days * usecsPerDay, nil
	case "week", "weeks", "w":
		// 2000-01-03 was a Monday.
		wd := (days - 2) % 7
		if wd < 0 {
			wd += 7
		}
		return (days - wd) * usecsPerDay, nil
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
		return 0, sqlstate.Refuse("date_trunc to '"+field+"' is not supported on a SQLite shard", "Truncate to a year.")
	default:
		return 0, sqlstate.New(sqlstate.InvalidParameterValue, "unit \"%s\" not recognized for type %s", strings.ToLower(field), typ)
	}
	return dayOf(y, m, 1) * usecsPerDay, nil
}

func extract(field string, t int64, typ uint32, offset int) (datum, error) {
	if typ == oidDate {
		if t == dateInf || t == dateMinusInf {
			return failV(sqlstate.Refuse("extract of an infinite date is not supported on a SQLite shard", "Test isfinite first."))
		}
	} else if t == tsInf || t == tsMinusInf {
		return failV(sqlstate.Refuse("extract of an infinite timestamp is not supported on a SQLite shard", "Test isfinite first."))
	}
	dateOnly := typ == oidDate
	if dateOnly {
		t *= usecsPerDay
	}
	days, us := splitTS(t)
	y, m, d := civil(days)
	scaled := func(n int64, scale int) (datum, error) {
		x := intNumeric(n)
		x.scale = scale
		return textV(x.String())
	}
	whole := func(n int64) (datum, error) { return textV(strconv.FormatInt(n, 10)) }
	if dateOnly {
		switch field {
		case "hour", "minute", "second", "milliseconds", "microseconds", "timezone", "timezone_hour", "timezone_minute":
			return failV(sqlstate.New(sqlstate.FeatureNotSupported, "unit \"%s\" not supported for type date", field))
		}
	}
	switch field {
	case "year":
		if y <= 0 {
			y--
		}
		return whole(y)
	case "month":
		return whole(int64(m))
	case "day":
		return whole(int64(d))
	case "hour":
		return whole(us / 3600000000)
	case "minute":
		return whole(us / 60000000 % 60)
	case "second":
		return scaled(us%60000000, 6)
	case "milliseconds":
		return scaled(us%60000000, 3)
	case "microseconds":
		return whole(us % 60000000)
	case "quarter":
		return whole(int64((m-1)/3 + 1))
	case "dow", "isodow":
		wd := (days + 6) % 7 // 2000-01-01 was a Saturday
		if wd < 0 {
			wd += 7
		}
		if field == "isodow" && wd == 0 {
			wd = 7
		}
		return whole(wd)
	case "doy":
		return whole(days - dayOf(y, 1, 1) + 1)
	case "week", "isoyear":
		wd := (days - 2) % 7
		if wd < 0 {
			wd += 7
		}
		thursday := days - wd + 3
		iy, _, _ := civil(thursday)
		if field == "week" {
			return whole((thursday-dayOf(iy, 1, 1))/7 + 1)
		}
		if iy <= 0 {
			iy--
		}
		return whole(iy)
	case "epoch":
		if dateOnly {
			return whole((days + epochDays) * 86400)
		}
		if t > math.MaxInt64-epochDays*usecsPerDay {
			return failV(tsOutOfRange())
		}
		return scaled(t+epochDays*usecsPerDay, 6)
	case "timezone":
		if typ == oidTimestamptz {
			return whole(int64(offset))
		}
	}
	return failV(sqlstate.Refuse("extract of '"+field+"' is not supported on a SQLite shard",
		"Use year, quarter, month, week, day, dow, doy, hour, minute, second or epoch."))
}
