package keyspace

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/sqlstate"
)

// PostgreSQL's limits (datatype/timestamp.h): dates in days, timestamps in
// microseconds, both since 2000-01-01.
const (
	dateInfinity      = math.MaxInt32
	dateMinusInfinity = math.MinInt32
	dateMin           = -2451545   // 4714-11-24 BC, Julian day 0
	dateEnd           = 2145031949 // 5874898-01-01, the first day out of range

	timestampInfinity      = math.MaxInt64
	timestampMinusInfinity = math.MinInt64

	usecPerDay   = 86400 * 1000000
	timestampMin = -211813488000000000 // 4714-11-24 BC
	timestampEnd = 9223371331200000000 // 294277-01-01
)

func rangeName(t Type) string {
	if t == Date {
		return "date"
	}
	return "timestamp"
}

// moment is a date and time as written.
type moment struct {
	year, month, day  int // astronomical year: 0 is 1 BC
	hour, minute, sec int
	usec              int
	hasTime, hasZone  bool
	zone              int // seconds east of UTC
	infinite          int // -1, 0, 1
}

func parseDate(s []byte) (int64, error) {
	m, err := scanMoment(Date, s)
	if err != nil {
		return 0, err
	}
	switch m.infinite {
	case 1:
		return dateInfinity, nil
	case -1:
		return dateMinusInfinity, nil
	}
	d := daysFrom2000(m.year, m.month, m.day)
	if d < dateMin || d >= dateEnd {
		return 0, outOfRange(Date, s)
	}
	return d, nil
}

func parseTimestamp(t Type, s []byte) (int64, error) {
	m, err := scanMoment(t, s)
	if err != nil {
		return 0, err
	}
	switch m.infinite {
	case 1:
		return math.MaxInt64, nil
	case -1:
		return math.MinInt64, nil
	}
	d := daysFrom2000(m.year, m.month, m.day)
	// One day more than the range on both sides, for the zone; then nothing
	// below can overflow.
	if d < timestampMin/usecPerDay-1 || d > timestampEnd/usecPerDay+1 {
		return 0, outOfRange(t, s)
	}
	n := d*usecPerDay + int64(m.hour*3600+m.minute*60+m.sec)*1000000 + int64(m.usec)
	if t == Timestamptz {
		if !m.hasZone {
			return 0, sqlstate.Refusal("CLV-0101", "the timestamptz %s has no time zone, so its meaning depends on the session's TimeZone, which the router does not evaluate", quoteShort(s)).
				WithHint("Add the offset, as in '2000-01-31 12:00:00+00'.")
		}
		n -= int64(m.zone) * 1000000
	}
	if n < timestampMin || n >= timestampEnd {
		return 0, outOfRange(t, s)
	}
	return n, nil
}

func outOfRange(t Type, s []byte) error {
	return sqlstate.New(sqlstate.DatetimeOverflow, "%s out of range: %s", rangeName(t), quoteShort(s)).WithHint("no row can have this key")
}

func fieldOutOfRange(s []byte) error {
	return sqlstate.New(sqlstate.DatetimeOverflow, "date/time field value out of range: %s", quoteShort(s)).WithHint("check month, day and time")
}

// unclear is the refusal of a text that PostgreSQL may well understand.
func unclear(t Type, s []byte) error {
	example := "'2000-01-31'"
	switch t {
	case Timestamp:
		example = "'2000-01-31 12:00:00'"
	case Timestamptz:
		example = "'2000-01-31 12:00:00+00'"
	}
	return sqlstate.Refusal("CLV-0102", "%s as a %s is not in ISO form, so its meaning may depend on the session's settings", quoteShort(s), t).
		WithHint("Write it as %s.", example)
}

// scanMoment reads YYYY-MM-DD, optionally a time HH:MM[:SS[.fraction]] after
// spaces or T, optionally a zone, optionally BC or AD; or infinity. Whatever
// else PostgreSQL would read (datetime.c) is refused.
func scanMoment(t Type, s []byte) (moment, error) {
	var m moment
	p := trimSpace(s)
	switch {
	case len(p) == 0:
		return m, sqlstate.New(sqlstate.InvalidDatetimeFormat, "invalid input syntax for type %s: %s", t, quoteShort(s)).WithHint("give a date")
	case bytes.EqualFold(p, []byte("infinity")):
		m.infinite = 1
		return m, nil
	case bytes.EqualFold(p, []byte("-infinity")):
		m.infinite = -1
		return m, nil
	case len(p) > 100: // PostgreSQL has a bound of 128 with spaces
		return m, unclear(t, s)
	}
	sc := scanner{rest: p}
	year, yearLen := sc.digits(7)
	ok := yearLen >= 4 && sc.skip('-')
	var n1, n2 int
	m.month, n1 = sc.digits(2)
	ok = ok && n1 == 2 && sc.skip('-')
	m.day, n2 = sc.digits(2)
	if !ok || n2 != 2 {
		return m, unclear(t, s)
	}
	if !scanTime(&sc, &m) || !scanZone(&sc, &m) {
		return m, unclear(t, s)
	}
	bc := false
	if len(sc.rest) > 0 {
		if !sc.spaces() {
			return m, unclear(t, s)
		}
		switch {
		case bytes.EqualFold(sc.rest, []byte("BC")):
			bc = true
		case bytes.EqualFold(sc.rest, []byte("AD")):
		default:
			return m, unclear(t, s)
		}
	}
	// The checks of ValidateDate and of the fields of the time.
	if year == 0 || m.month < 1 || m.month > 12 {
		return m, fieldOutOfRange(s)
	}
	m.year = year
	if bc {
		m.year = 1 - year
	}
	if m.day < 1 || m.day > daysIn(m.year, m.month) || m.hour > 24 || m.minute > 59 || m.sec > 60 {
		return m, fieldOutOfRange(s)
	}
	// 24:00:00 and 23:59:60 are the end of the day, and nothing is after it.
	if int64(m.hour*3600+m.minute*60+m.sec)*1000000+int64(m.usec) > usecPerDay {
		return m, fieldOutOfRange(s)
	}
	return m, nil
}

func scanTime(sc *scanner, m *moment) bool {
	if len(sc.rest) == 0 {
		return true
	}
	at := sc.rest
	if sc.skip('T') || sc.skip('t') {
		// a time must follow
	} else if !sc.spaces() || len(sc.rest) == 0 || sc.rest[0] < '0' || sc.rest[0] > '9' {
		sc.rest = at // BC, or a zone without a time, which is refused
		return true
	}
	var n1, n2, n3 int
	m.hour, n1 = sc.digits(2)
	if n1 != 2 || !sc.skip(':') {
		return false
	}
	m.minute, n2 = sc.digits(2)
	if n2 != 2 {
		return false
	}
	m.hasTime = true
	if !sc.skip(':') {
		return true
	}
	m.sec, n3 = sc.digits(2)
	if n3 != 2 {
		return false
	}
	if !sc.skip('.') {
		return true
	}
	return sc.fraction(&m.usec)
}

// fraction reads the digits after the point of a second. As PostgreSQL does: the fraction as a double, times a million, rounded to even
// (ParseFractionalSecond). 1,000,000 carries into the seconds.
func (sc *scanner) fraction(usec *int) bool {
	i := 0
	for i < len(sc.rest) && sc.rest[i] >= '0' && sc.rest[i] <= '9' {
		i++
	}
	if i == 0 {
		return false
	}
	f, err := strconv.ParseFloat("."+string(sc.rest[:i]), 64)
	if err != nil {
		return false
	}
	*usec = int(math.RoundToEven(f * 1000000))
	sc.rest = sc.rest[i:]
	return true
}

func scanZone(sc *scanner, m *moment) bool {
	if !m.hasTime || len(sc.rest) == 0 {
		return true
	}
	at := sc.rest
	sc.spaces()
	for _, name := range []string{"UTC", "Z"} {
		if strings.EqualFold(string(sc.rest[:min(len(name), len(sc.rest))]), name) {
			sc.rest = sc.rest[len(name):]
			m.hasZone = true
			return true
		}
	}
	sign := 0
	if sc.skip('+') {
		sign = 1
	} else if sc.skip('-') {
		sign = -1
	} else {
		sc.rest = at
		return true
	}
	hour, n := sc.digits(4)
	minute, sec := 0, 0
	switch n {
	case 4:
		hour, minute = hour/100, hour%100
	case 2:
		for _, part := range []*int{&minute, &sec} {
			if !sc.skip(':') {
				break
			}
			if *part, n = sc.digits(2); n != 2 {
				return false
			}
		}
	default:
		return false
	}
	// MAX_TZDISP_HOUR is 15.
	if hour > 15 || minute > 59 || sec > 59 {
		return false
	}
	m.hasZone = true
	m.zone = sign * (hour*3600 + minute*60 + sec)
	return true
}

// scanner reads from the front of a text.
type scanner struct{ rest []byte }

// digits reads all digits that follow; n is 0 if there are none or more than most.
func (sc *scanner) digits(most int) (v, n int) {
	for n < len(sc.rest) && sc.rest[n] >= '0' && sc.rest[n] <= '9' {
		if n == most {
			return 0, 0
		}
		v = v*10 + int(sc.rest[n]-'0')
		n++
	}
	sc.rest = sc.rest[n:]
	return v, n
}

func (sc *scanner) skip(c byte) bool {
	if len(sc.rest) > 0 && sc.rest[0] == c {
		sc.rest = sc.rest[1:]
		return true
	}
	return false
}

func (sc *scanner) spaces() bool {
	n := 0
	for n < len(sc.rest) && isSpace(sc.rest[n]) {
		n++
	}
	sc.rest = sc.rest[n:]
	return n > 0
}

func isLeap(year int) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if isLeap(year) {
			return 29
		}
		return 28
	}
	return 31
}

// daysFrom2000 counts days in the proleptic Gregorian calendar; years count
// from March, in eras of 400 years.
func daysFrom2000(year, month, day int) int64 {
	y := int64(year)
	if month <= 2 {
		y--
	}
	era := floorDiv(y, 400)
	yearOfEra := y - era*400
	dayOfYear := int64((153*((month+9)%12)+2)/5 + day - 1)
	return era*146097 + yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear - 730425
}

// civil is the inverse of daysFrom2000.
func civil(days int64) (year int64, month, day int) {
	days += 730425
	era := floorDiv(days, 146097)
	doe := days - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = int(doy-(153*mp+2)/5) + 1
	month = int(mp) + 3
	year = yoe + era*400
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func appendDate(dst []byte, n int64) []byte {
	switch n {
	case dateInfinity:
		return append(dst, "infinity"...)
	case dateMinusInfinity:
		return append(dst, "-infinity"...)
	}
	year, month, day := civil(n)
	dst, bc := appendDay(dst, year, month, day)
	return append(dst, bc...)
}

func appendDay(dst []byte, year int64, month, day int) (out []byte, bc string) {
	if year <= 0 {
		year, bc = 1-year, " BC"
	}
	dst = appendPadded(dst, year, 4)
	dst = appendPadded(append(dst, '-'), int64(month), 2)
	return appendPadded(append(dst, '-'), int64(day), 2), bc
}

func appendTimestamp(dst []byte, n int64, zone bool) []byte {
	switch n {
	case math.MaxInt64:
		return append(dst, "infinity"...)
	case math.MinInt64:
		return append(dst, "-infinity"...)
	}
	days := floorDiv(n, usecPerDay)
	usec := n - days*usecPerDay
	year, month, day := civil(days)
	dst, bc := appendDay(dst, year, month, day)
	sec := usec / 1000000
	dst = appendPadded(append(dst, ' '), sec/3600, 2)
	dst = appendPadded(append(dst, ':'), sec/60%60, 2)
	dst = appendPadded(append(dst, ':'), sec%60, 2)
	if usec %= 1000000; usec != 0 {
		dst = appendPadded(append(dst, '.'), usec, 6)
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	if zone {
		dst = append(dst, "+00"...)
	}
	return append(dst, bc...)
}

func appendPadded(dst []byte, n int64, width int) []byte {
	var b [20]byte
	s := strconv.AppendInt(b[:0], n, 10)
	for i := len(s); i < width; i++ {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}
