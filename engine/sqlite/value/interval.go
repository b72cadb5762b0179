package value

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// Interval is PostgreSQL's interval. Two different intervals can be equal (1 mon
// and 30 days), so they are values of expressions only: not stored, not compared.
type Interval struct {
	Micros int64
	Days   int32
	Months int32
}

// Encode is the interval as SQLite holds it.
func (v Interval) Encode() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(v.Micros))
	b = binary.BigEndian.AppendUint32(b, uint32(v.Days))
	return string(binary.BigEndian.AppendUint32(b, uint32(v.Months)))
}

// DecodeInterval reads what Encode made.
func DecodeInterval(s string) Interval {
	if len(s) != 16 {
		return Interval{}
	}
	b := []byte(s)
	return Interval{Micros: int64(binary.BigEndian.Uint64(b)), Days: int32(binary.BigEndian.Uint32(b[8:])), Months: int32(binary.BigEndian.Uint32(b[12:]))}
}

// String prints in the style "postgres".
func (v Interval) String() string {
	var b strings.Builder
	before := false // an earlier part was negative
	part := func(n int64, unit string) {
		if n == 0 {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if before && n > 0 {
			b.WriteByte('+')
		}
		b.WriteString(strconv.FormatInt(n, 10) + " " + unit)
		if n != 1 {
			b.WriteByte('s')
		}
		before = n < 0
	}
	part(int64(v.Months/12), "year")
	part(int64(v.Months%12), "mon")
	part(int64(v.Days), "day")
	if v.Micros != 0 || b.Len() == 0 {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		us := v.Micros
		if us < 0 {
			b.WriteByte('-')
			us = -us
		} else if before {
			b.WriteByte('+')
		}
		b.Write(appendTime(nil, us))
	}
	return b.String()
}

// intervalIn reads sums of whole quantities of units, and HH:MM[:SS[.ffffff]].
func intervalIn(text string) (Interval, error) {
	var v Interval
	refuse := sqlstate.Refusal("CLV-2190", `a SQLite shard does not read the interval "%s"`, text).
		WithHint("Write it as whole numbers of units, such as '1 year 2 months 3 days 04:05:06'.")
	fields := strings.Fields(strings.ToLower(text))
	if len(fields) == 0 {
		return v, sqlstate.New(sqlstate.InvalidDatetimeFormat, "invalid input syntax for type interval: \"%s\"", text)
	}
	ago := false
	if fields[len(fields)-1] == "ago" {
		ago, fields = true, fields[:len(fields)-1]
	}
	for i := 0; i < len(fields); i++ {
		f := fields[i]
		if strings.Contains(f, ":") {
			us, ok := clockIn(f)
			if !ok {
				return v, refuse
			}
			v.Micros += us
			continue
		}
		digits := len(f) - len(strings.TrimLeft(strings.TrimLeft(f[:1], "+-")+f[1:], "0123456789")) // with the sign
		n, err := strconv.ParseInt(f[:digits], 10, 64)
		if err != nil {
			return v, refuse
		}
		unit := f[digits:]
		if unit == "" {
			if i++; i == len(fields) {
				unit = "s" // a bare number is seconds
			} else {
				unit = fields[i]
			}
		}
		q, ok := intervalUnits[unit]
		if !ok {
			return v, refuse
		}
		if !v.add(q, n) {
			return v, sqlstate.New(sqlstate.DatetimeOverflow, "interval field value out of range: \"%s\"", text)
		}
	}
	if ago {
		v = Interval{Micros: -v.Micros, Days: -v.Days, Months: -v.Months}
	}
	return v, nil
}

// clockIn reads a time of day, which may have a sign.
func clockIn(text string) (us int64, ok bool) {
	r, err := parseTime(strings.TrimLeft(text, "+-"), "time")
	if err != nil || !r.hasTime || r.hasZone {
		return 0, false
	}
	if strings.HasPrefix(text, "-") {
		r.us = -r.us
	}
	return r.us, true
}

// intervalUnits are the units of an interval: what one of each is.
var intervalUnits = func() map[string]Interval {
	units := map[string]Interval{}
	for names, one := range map[string]Interval{
		"us usec usecs microsecond microseconds": {Micros: 1},
		"ms msec msecs millisecond milliseconds": {Micros: 1000},
		"s sec secs second seconds":              {Micros: 1000000},
		"m min mins minute minutes":              {Micros: 60000000},
		"h hr hrs hour hours":                    {Micros: 3600000000},
		"d day days":                             {Days: 1},
		"w week weeks":                           {Days: 7},
		"mon mons month months":                  {Months: 1},
		"y yr yrs year years":                    {Months: 12},
	} {
		for _, name := range strings.Fields(names) {
			units[name] = one
		}
	}
	return units
}()

// add adds n of a unit, and reports whether the result is in range.
func (v *Interval) add(unit Interval, n int64) bool {
	days, months, us := int64(v.Days)+n*int64(unit.Days), int64(v.Months)+n*int64(unit.Months), n*unit.Micros
	if unit.Days != 0 && days != int64(int32(days)) || unit.Months != 0 && months != int64(int32(months)) {
		return false
	}
	if m := unit.Micros; m > 1 && n != 0 && (us/m != n || n > math.MaxInt64/m/2 || n < math.MinInt64/m/2) {
		return false
	}
	v.Days, v.Months, v.Micros = int32(days), int32(months), v.Micros+us
	return true
}

// AddTo adds the interval to a timestamp: months first, the day clipped to the
// month's last, then days, then the time.
func (v Interval) AddTo(ts int64) (int64, error) {
	if ts == TimestampInf || ts == TimestampMinusInf {
		return ts, nil
	}
	days, us := SplitTimestamp(ts)
	if v.Months != 0 {
		y, m, d := Civil(days)
		n := y*12 + int64(m-1) + int64(v.Months)
		y, m = n/12, int(n%12)
		if m < 0 {
			y, m = y-1, m+12
		}
		m++
		d = min(d, DaysIn(y, m))
		days = DayOf(y, m, d)
	}
	days += int64(v.Days)
	if days < -120000000 || days > 120000000 {
		return 0, TimestampOutOfRange()
	}
	r := days*MicrosPerDay + us
	if s := r + v.Micros; (s > r) == (v.Micros > 0) || v.Micros == 0 {
		r = s
	} else {
		return 0, TimestampOutOfRange()
	}
	if r < TimestampMin || r >= TimestampEnd {
		return 0, TimestampOutOfRange()
	}
	return r, nil
}
