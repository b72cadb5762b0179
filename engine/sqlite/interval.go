package sqlite

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/sqlstate"
)

// interval is PostgreSQL's interval. Two different intervals can be equal (1 mon
// and 30 days), so they are values of expressions only: not stored, not compared.
type interval struct {
	us     int64
	days   int32
	months int32
}

func (v interval) encode() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(v.us))
	b = binary.BigEndian.AppendUint32(b, uint32(v.days))
	return string(binary.BigEndian.AppendUint32(b, uint32(v.months)))
}

func decodeInterval(s string) interval {
	if len(s) != 16 {
		return interval{}
	}
	b := []byte(s)
	return interval{us: int64(binary.BigEndian.Uint64(b)), days: int32(binary.BigEndian.Uint32(b[8:])), months: int32(binary.BigEndian.Uint32(b[12:]))}
}

// String prints in the style "postgres".
func (v interval) String() string {
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
	part(int64(v.months/12), "year")
	part(int64(v.months%12), "mon")
	part(int64(v.days), "day")
	if v.us != 0 || b.Len() == 0 {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		us := v.us
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
func intervalIn(text string) (interval, error) {
	var v interval
	refuse := sqlstate.Refuse("a SQLite shard does not read the interval \""+text+"\"",
		"Write it as whole numbers of units, such as '1 year 2 months 3 days 04:05:06'.")
	fields := strings.Fields(strings.ToLower(text))
	if len(fields) == 0 {
		return v, sqlstate.New(sqlstate.InvalidDatetimeFormat, "invalid input syntax for type interval: \"%s\"", text)
	}
	ago := false
	if fields[len(fields)-1] == "ago" {
		ago, fields = true, fields[:len(fields)-1]
	}
	big := func(n, unit int64) (int64, bool) {
		if n != 0 && (n*unit/unit != n || n > math.MaxInt64/unit/2 || n < math.MinInt64/unit/2) {
			return 0, false
		}
		return n * unit, true
	}
	for i := 0; i < len(fields); i++ {
		f := fields[i]
		if strings.Contains(f, ":") {
			neg := strings.HasPrefix(f, "-")
			r, err := parseTime(strings.TrimLeft(f, "+-"), "time")
			if err != nil || !r.hasTime || r.hasZone {
				return v, refuse
			}
			if neg {
				r.us = -r.us
			}
			v.us += r.us
			continue
		}
		end := 0
		for end < len(f) && (f[end] >= '0' && f[end] <= '9' || end == 0 && (f[end] == '-' || f[end] == '+')) {
			end++
		}
		n, err := strconv.ParseInt(f[:end], 10, 64)
		if err != nil {
			return v, refuse
		}
		unit := f[end:]
		if unit == "" {
			if i++; i == len(fields) {
				unit = "s" // a bare number is seconds
			} else {
				unit = fields[i]
			}
		}
		var add int64
		ok := true
		switch unit {
		case "us", "usec", "usecs", "microsecond", "microseconds":
			add = n
		case "ms", "msec", "msecs", "millisecond", "milliseconds":
			add, ok = big(n, 1000)
		case "s", "sec", "secs", "second", "seconds":
			add, ok = big(n, 1000000)
		case "m", "min", "mins", "minute", "minutes":
			add, ok = big(n, 60000000)
		case "h", "hr", "hrs", "hour", "hours":
			add, ok = big(n, 3600000000)
		case "d", "day", "days":
			n += int64(v.days)
			if ok = n == int64(int32(n)); ok {
				v.days = int32(n)
			}
		case "w", "week", "weeks":
			n = n*7 + int64(v.days)
			if ok = n == int64(int32(n)); ok {
				v.days = int32(n)
			}
		case "mon", "mons", "month", "months":
			n += int64(v.months)
			if ok = n == int64(int32(n)); ok {
				v.months = int32(n)
			}
		case "y", "yr", "yrs", "year", "years":
			n = n*12 + int64(v.months)
			if ok = n == int64(int32(n)); ok {
				v.months = int32(n)
			}
		default:
			return v, refuse
		}
		if !ok {
			return v, sqlstate.New(sqlstate.DatetimeOverflow, "interval field value out of range: \"%s\"", text)
		}
		v.us += add
	}
	if ago {
		v = interval{us: -v.us, days: -v.days, months: -v.months}
	}
	return v, nil
}

// addTo adds the interval to a timestamp: months first, the day clipped to the
// month's last, then days, then the time.
func (v interval) addTo(ts int64) (int64, error) {
	if ts == tsInf || ts == tsMinusInf {
		return ts, nil
	}
	days, us := splitTS(ts)
	if v.months != 0 {
		y, m, d := civil(days)
		n := y*12 + int64(m-1) + int64(v.months)
		y, m = n/12, int(n%12)
		if m < 0 {
			y, m = y-1, m+12
		}
		m++
		d = min(d, daysIn(y, m))
		days = dayOf(y, m, d)
	}
	days += int64(v.days)
	if days < -120000000 || days > 120000000 {
		return 0, tsOutOfRange()
	}
	r := days*usecsPerDay + us
	if s := r + v.us; (s > r) == (v.us > 0) || v.us == 0 {
		r = s
	} else {
		return 0, tsOutOfRange()
	}
	if r < tsMin || r >= tsEnd {
		return 0, tsOutOfRange()
	}
	return r, nil
}

// unitOfMask names the fields of INTERVAL '1' DAY by PostgreSQL's masks.
var unitOfMask = map[int32]string{4: "year", 2: "month", 8: "day", 1024: "hour", 2048: "minute"}

// intervalOfUnit makes INTERVAL '90' DAY into INTERVAL '90 day', with the type
// modifier that the first has; false for everything else.
func intervalOfUnit(c *pg.TypeCast) (*pg.TypeCast, int32, bool) {
	n := c.TypeName
	if n == nil || len(n.Typmods) != 1 || len(n.Names) == 0 || n.Names[len(n.Names)-1].GetString_().GetSval() != "interval" {
		return nil, 0, false
	}
	mask := n.Typmods[0].GetAConst().GetIval().GetIval()
	text := c.Arg.GetAConst().GetSval()
	unit, ok := unitOfMask[mask]
	if !ok || text == nil {
		return nil, 0, false
	}
	if _, err := strconv.ParseInt(text.Sval, 10, 32); err != nil {
		return nil, 0, false
	}
	literal := pg.MakeAConstStrNode(text.Sval+" "+unit, c.Arg.GetAConst().GetLocation())
	return &pg.TypeCast{Arg: literal, TypeName: &pg.TypeName{Names: n.Names, Typemod: -1, Location: n.Location}, Location: c.Location}, mask<<16 | 0xffff, true
}
