package value

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/sqlstate"
)

// Dates are days, timestamps microseconds since 2000-01-01; the ends of the
// integer ranges are the infinities, as in PostgreSQL.
const (
	DateMinusInf            = math.MinInt32
	DateInf                 = math.MaxInt32
	TimestampMinusInf       = math.MinInt64
	TimestampInf            = math.MaxInt64
	MicrosPerDay      int64 = 86400 * 1000000
	// EpochDays is the number of days from 1970-01-01 to 2000-01-01.
	EpochDays = 10957
	// PostgreSQL's bounds: 4713-11-24 BC (Julian day 0) to 5874897-12-31, and
	// to 294276-12-31 for timestamps.
	DateMin            = -2451545
	DateEnd            = 2145031949
	TimestampMin int64 = -211813488000000000
	TimestampEnd int64 = 9223371331200000000
)

// Now returns the present in microseconds since 2000-01-01.
func Now() int64 { return time.Now().UnixMicro() - EpochDays*MicrosPerDay }

// Civil returns the proleptic Gregorian date of a day since 2000-01-01.
func Civil(days int64) (y int64, m, d int) {
	z := days + EpochDays + 719468
	era := z / 146097
	if z < 0 {
		era = (z - 146096) / 146097
	}
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	y = yoe + era*400
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d = int(doy - (153*mp+2)/5 + 1)
	if mp < 10 {
		m = int(mp + 3)
	} else {
		m = int(mp - 9)
	}
	if m <= 2 {
		y++
	}
	return y, m, d
}

// DayOf is the inverse of civil.
func DayOf(y int64, m, d int) int64 {
	if m <= 2 {
		y--
	}
	era := y / 400
	if y < 0 {
		era = (y - 399) / 400
	}
	yoe := y - era*400
	mp := int64(m+9) % 12
	doy := (153*mp+2)/5 + int64(d) - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468 - EpochDays
}

// DaysIn counts the days of a month.
func DaysIn(y int64, m int) int {
	switch m {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

func pad(dst []byte, n int64, width int) []byte {
	s := strconv.FormatInt(n, 10)
	for i := len(s); i < width; i++ {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}

func appendDate(dst []byte, v int64) []byte {
	switch v {
	case DateMinusInf:
		return append(dst, "-infinity"...)
	case DateInf:
		return append(dst, "infinity"...)
	}
	dst, bc := appendCivil(dst, v)
	if bc {
		dst = append(dst, " BC"...)
	}
	return dst
}

// appendCivil prints the date of a day without its era; bc: that is BC, which follows the time.
func appendCivil(dst []byte, day int64) (out []byte, bc bool) {
	y, m, d := Civil(day)
	bc = y <= 0
	if bc {
		y = 1 - y
	}
	dst = pad(dst, y, 4)
	dst = append(dst, '-')
	dst = pad(dst, int64(m), 2)
	dst = append(dst, '-')
	dst = pad(dst, int64(d), 2)
	return dst, bc
}

func appendTime(dst []byte, us int64) []byte {
	dst = pad(dst, us/3600000000, 2)
	dst = append(dst, ':')
	dst = pad(dst, us/60000000%60, 2)
	dst = append(dst, ':')
	dst = pad(dst, us/1000000%60, 2)
	if f := us % 1000000; f != 0 {
		dst = append(dst, '.')
		dst = pad(dst, f, 6)
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	return dst
}

// SplitTimestamp splits a timestamp into days since 2000-01-01 and microseconds of the day.
func SplitTimestamp(v int64) (days, us int64) {
	days = v / MicrosPerDay
	if us = v % MicrosPerDay; us < 0 {
		days, us = days-1, us+MicrosPerDay
	}
	return days, us
}

// appendTimestamp prints in ISO style; with zone it adds the offset (seconds
// east of UTC), which the caller has added to v already.
func appendTimestamp(dst []byte, v int64, zone bool, offset int) []byte {
	days, us := SplitTimestamp(v)
	dst, bc := appendCivil(dst, days)
	dst = append(dst, ' ')
	dst = appendTime(dst, us)
	if zone {
		sign := byte('+')
		if offset < 0 {
			sign, offset = '-', -offset
		}
		dst = append(dst, sign)
		dst = pad(dst, int64(offset/3600), 2)
		if offset%3600 != 0 {
			dst = append(dst, ':')
			dst = pad(dst, int64(offset/60%60), 2)
			if offset%60 != 0 {
				dst = append(dst, ':')
				dst = pad(dst, int64(offset%60), 2)
			}
		}
	}
	if bc {
		dst = append(dst, " BC"...)
	}
	return dst
}

func appendTS(dst []byte, v int64) []byte {
	switch v {
	case TimestampMinusInf:
		return append(dst, "-infinity"...)
	case TimestampInf:
		return append(dst, "infinity"...)
	}
	return appendTimestamp(dst, v, false, 0)
}

// AppendTimestamptz is the output of timestamptz in a time zone.
func AppendTimestamptz(dst []byte, v int64, loc *time.Location) []byte {
	switch v {
	case TimestampMinusInf:
		return append(dst, "-infinity"...)
	case TimestampInf:
		return append(dst, "infinity"...)
	}
	off := OffsetAt(v, loc)
	return appendTimestamp(dst, v+int64(off)*1000000, true, off)
}

func unixOf(v int64) (sec, usec int64) {
	sec = v / 1000000
	if usec = v % 1000000; usec < 0 {
		sec, usec = sec-1, usec+1000000
	}
	return sec + EpochDays*86400, usec
}

// OffsetAt returns the zone's offset at an instant, seconds east of UTC.
func OffsetAt(v int64, loc *time.Location) int {
	if loc == time.UTC {
		return 0
	}
	sec, _ := unixOf(v)
	_, off := time.Unix(sec, 0).In(loc).Zone()
	return off
}

// ToInstant turns a local timestamp into an instant. In a gap the offset before
// the change counts, in an overlap the one after it, as PostgreSQL has it.
func ToInstant(local int64, loc *time.Location) int64 {
	if loc == time.UTC || local == TimestampInf || local == TimestampMinusInf {
		return local
	}
	before, after := OffsetAt(local-MicrosPerDay, loc), OffsetAt(local+MicrosPerDay, loc)
	ub, ua := local-int64(before)*1000000, local-int64(after)*1000000
	if before == after {
		return ub
	}
	okBefore, okAfter := OffsetAt(ub, loc) == before, OffsetAt(ua, loc) == after
	switch {
	case okAfter:
		return ua
	case okBefore:
		return ub
	}
	return ub
}

// ToLocal is the local time of an instant.
func ToLocal(v int64, loc *time.Location) int64 {
	if v == TimestampInf || v == TimestampMinusInf {
		return v
	}
	return v + int64(OffsetAt(v, loc))*1000000
}

// LoadZone finds a time zone by the name that PostgreSQL would accept.
func LoadZone(name string) (*time.Location, string, error) {
	bad := func() (*time.Location, string, error) {
		return nil, "", sqlstate.New(sqlstate.InvalidParameterValue, "invalid value for parameter \"TimeZone\": \"%s\"", name)
	}
	switch strings.ToLower(name) {
	case "utc":
		return time.UTC, "UTC", nil
	case "gmt":
		return time.FixedZone("GMT", 0), "GMT", nil
	case "local", "":
		return bad()
	}
	if strings.HasPrefix(name, "/") || strings.Contains(name, "..") {
		return bad()
	}
	if offset, ok := offsetZone(name); ok {
		return time.FixedZone(name, offset), name, nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		if c := name[0]; c == '+' || c == '-' || c >= '0' && c <= '9' || strings.ContainsAny(name, "<+-") {
			return nil, "", sqlstate.Refusal("CLV-2188", "a SQLite shard does not take the time zone %s", quote.Text(name)).
				WithHint("Use a name of the IANA database, such as 'Europe/Berlin' or 'Etc/GMT-1'.")
		}
		return bad()
	}
	return loc, name, nil
}

var (
	intervalOffset = regexp.MustCompile(`^([+-]?)(\d{1,2}):(\d{2})$`)
	zoneOffset     = regexp.MustCompile(`^<([+-])(\d{2})(?::(\d{2}))?>([+-])(\d{2})(?::(\d{2}))?$`)
)

// ZoneOfInterval is the name that PostgreSQL gives the zone of SET TIME ZONE INTERVAL '+02:30' HOUR TO MINUTE
// (pg_tzset_offset of pgtz.c). Other intervals are not read.
func ZoneOfInterval(text string) (string, bool) {
	m := intervalOffset.FindStringSubmatch(text)
	if m == nil || m[3] >= "60" {
		return "", false
	}
	east, west := "+", "-"
	if m[1] == "-" && strings.Trim(m[2]+m[3], "0") != "" {
		east, west = "-", "+"
	}
	at := fmt.Sprintf("%02s", m[2])
	if m[3] != "00" {
		at += ":" + m[3]
	}
	return "<" + east + at + ">" + west + at, true
}

// offsetZone reads such a name: seconds east of Greenwich.
func offsetZone(name string) (int, bool) {
	m := zoneOffset.FindStringSubmatch(name)
	if m == nil || m[1] == m[4] || m[2] != m[5] || m[3] != m[6] || m[3] >= "60" {
		return 0, false
	}
	hours, _ := strconv.Atoi(m[2]) // digits
	minutes, _ := strconv.Atoi("0" + m[3])
	seconds := hours*3600 + minutes*60
	if m[1] == "-" {
		seconds = -seconds
	}
	return seconds, true
}

// dateParser reads the ISO 8601 forms that PostgreSQL's own output uses, and
// their usual variants. Forms that depend on DateStyle, and words, are refused.
type dateParser struct {
	s         string // what is read; an era is cut off
	pos       int
	text, typ string // for errors
}

type parsedTime struct {
	special  string // "infinity", "-infinity", "epoch"
	hasDate  bool
	days     int64
	hasTime  bool
	us       int64
	hasZone  bool
	zone     int // seconds east
	location *time.Location
}

func (p *dateParser) number(minDigits, maxDigits int) (int64, bool) {
	start := p.pos
	for p.pos < len(p.s) && p.s[p.pos] >= '0' && p.s[p.pos] <= '9' {
		p.pos++
	}
	if n := p.pos - start; n < minDigits || n > maxDigits {
		p.pos = start
		return 0, false
	}
	n, err := strconv.ParseInt(p.s[start:p.pos], 10, 64)
	return n, err == nil
}

func (p *dateParser) at(c byte) bool { return p.pos < len(p.s) && p.s[p.pos] == c }

func (p *dateParser) eat(c byte) bool {
	if p.at(c) {
		p.pos++
		return true
	}
	return false
}

func (p *dateParser) spaces() {
	for p.pos < len(p.s) && (p.s[p.pos] == ' ' || p.s[p.pos] == '\t' || p.s[p.pos] == '\n') {
		p.pos++
	}
}

func (p *dateParser) digit() bool {
	return p.pos < len(p.s) && p.s[p.pos] >= '0' && p.s[p.pos] <= '9'
}

func (p *dateParser) outOfRange() error {
	return sqlstate.New(sqlstate.DatetimeOverflow, "date/time field value out of range: \"%s\"", p.text)
}

func (p *dateParser) invalid() error {
	return sqlstate.New(sqlstate.InvalidDatetimeFormat, "invalid input syntax for type %s: \"%s\"", p.typ, p.text)
}

func (p *dateParser) unread() error {
	return sqlstate.Refusal("CLV-2189", `a SQLite shard does not read the date or time "%s"`, p.text).
		WithHint("Write it as YYYY-MM-DD HH:MI:SS[.ffffff][+HH[:MI]].")
}

func (p *dateParser) letters() bool {
	return strings.ContainsFunc(p.s, func(c rune) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' })
}

// other is the error of what has none of the forms above. PostgreSQL reads many more; only what cannot be one of
// them is an error of the client's.
func (p *dateParser) other() error {
	if p.letters() || strings.ContainsAny(p.s, "/,.-") || p.s != "" && p.s[0] >= '0' && p.s[0] <= '9' {
		return p.unread()
	}
	return p.invalid()
}

// parseTime reads text as the named type's input.
func parseTime(text, typ string) (r parsedTime, err error) {
	p := &dateParser{s: strings.Trim(text, " \t\n\r\f\v"), text: text, typ: typ}
	switch word := strings.ToLower(p.s); word {
	case "infinity", "-infinity", "epoch":
		r.special = word
		return r, nil
	case "+infinity":
		r.special = "infinity"
		return r, nil
	case "now", "today", "tomorrow", "yesterday", "allballs":
		return r, p.unread()
	case "":
		return r, p.invalid()
	}
	if p.letters() && !strings.ContainsAny(p.s, "0123456789") {
		return r, p.invalid()
	}
	if typ != "time" {
		if err := p.date(&r); err != nil {
			return r, err
		}
	}
	if p.digit() {
		if err := p.clock(&r); err != nil {
			return r, err
		}
		p.spaces()
		if err := p.zone(&r); err != nil {
			return r, err
		}
	}
	if p.pos != len(p.s) {
		return r, p.other()
	}
	return r, nil
}

// date reads YYYY-MM-DD, an era at the end of the whole text, and what stands before a time of day.
func (p *dateParser) date(r *parsedTime) error {
	y, ok := p.number(4, 7)
	if !ok || !p.eat('-') {
		return p.other()
	}
	m, ok := p.number(1, 2)
	if !ok || !p.eat('-') {
		return p.other()
	}
	d, ok := p.number(1, 2)
	if !ok {
		return p.other()
	}
	if y == 0 {
		return p.outOfRange()
	}
	if p.eatEra() {
		y = 1 - y
	}
	if m < 1 || m > 12 || d < 1 || int(d) > DaysIn(y, int(m)) {
		return p.outOfRange()
	}
	r.hasDate, r.days = true, DayOf(y, int(m), int(d))
	if !p.eat('T') && !p.eat('t') && p.at(' ') {
		p.spaces()
	}
	return nil
}

// eatEra takes an era off the end of the text, and reports whether it is BC.
func (p *dateParser) eatEra() (bc bool) {
	i := len(p.s) - 2
	if i <= p.pos {
		return false
	}
	bc = strings.EqualFold(p.s[i:], "bc")
	if bc || strings.EqualFold(p.s[i:], "ad") {
		p.s = strings.TrimRight(p.s[:i], " ")
	}
	return bc
}

// clock reads HH:MI[:SS[.ffffff]].
func (p *dateParser) clock(r *parsedTime) error {
	h, ok := p.number(1, 2)
	if !ok || !p.eat(':') {
		return p.other()
	}
	mi, ok := p.number(1, 2)
	if !ok {
		return p.other()
	}
	sec, frac := int64(0), int64(0)
	if p.eat(':') {
		if sec, ok = p.number(1, 2); !ok {
			return p.other()
		}
		frac = p.fraction()
	}
	if h > 24 || mi > 59 || sec > 60 || h == 24 && (mi > 0 || sec > 0 || frac > 0) {
		return p.outOfRange()
	}
	r.hasTime, r.us = true, ((h*60+mi)*60+sec)*1000000+frac
	return nil
}

// fraction reads the microseconds behind a point. PostgreSQL reads them as a double and rounds it.
func (p *dateParser) fraction() int64 {
	if !p.eat('.') {
		return 0
	}
	start := p.pos
	for p.digit() {
		p.pos++
	}
	if p.pos == start {
		return 0
	}
	f, _ := strconv.ParseFloat("0."+p.s[start:p.pos], 64)
	return int64(math.RoundToEven(f * 1000000))
}

// zone reads what stands behind a time of day: Z, an offset, or the name of a time zone.
func (p *dateParser) zone(r *parsedTime) error {
	if p.pos == len(p.s) {
		return nil
	}
	rest := p.s[p.pos:]
	switch {
	case rest[0] == '+' || rest[0] == '-':
		return p.offset(r)
	case strings.EqualFold(rest, "z"), strings.EqualFold(rest, "utc"):
		r.hasZone, p.pos = true, len(p.s)
	case strings.Contains(rest, "/"):
		loc, _, err := LoadZone(rest)
		if err != nil {
			return sqlstate.New(sqlstate.InvalidParameterValue, "time zone \"%s\" not recognized", strings.ToLower(rest))
		}
		r.hasZone, r.location, p.pos = true, loc, len(p.s)
	}
	return nil
}

// offset reads +HH, +HHMM and +HH:MM[:SS].
func (p *dateParser) offset(r *parsedTime) error {
	west := p.s[p.pos] == '-'
	p.pos++
	start := p.pos
	h, ok := p.number(1, 4)
	if !ok || p.pos-start == 3 {
		return p.other()
	}
	var m, s int64
	if p.pos-start == 4 {
		h, m = h/100, h%100
	} else if p.eat(':') {
		if m, ok = p.number(2, 2); !ok {
			return p.other()
		}
		if p.eat(':') {
			if s, ok = p.number(2, 2); !ok {
				return p.other()
			}
		}
	}
	if h > 15 || m > 59 || s > 59 {
		return sqlstate.New("22009", "time zone displacement out of range: \"%s\"", p.text)
	}
	r.hasZone, r.zone = true, int(h*3600+m*60+s)
	if west {
		r.zone = -r.zone
	}
	return nil
}

func dateIn(text string) (int64, error) {
	r, err := parseTime(text, "date")
	if err != nil {
		return 0, err
	}
	switch r.special {
	case "infinity":
		return DateInf, nil
	case "-infinity":
		return DateMinusInf, nil
	case "epoch":
		return -EpochDays, nil
	}
	if r.days < DateMin || r.days >= DateEnd {
		return 0, sqlstate.New(sqlstate.DatetimeOverflow, "date out of range: \"%s\"", text)
	}
	return r.days, nil
}

func timestampOf(r parsedTime, text string) (int64, error) {
	if r.days < -120000000 || r.days > 120000000 {
		return 0, sqlstate.New(sqlstate.DatetimeOverflow, "timestamp out of range: \"%s\"", text)
	}
	v := r.days*MicrosPerDay + r.us
	if v < TimestampMin || v >= TimestampEnd {
		return 0, sqlstate.New(sqlstate.DatetimeOverflow, "timestamp out of range: \"%s\"", text)
	}
	return v, nil
}

func specialTS(s string) (int64, bool) {
	switch s {
	case "infinity":
		return TimestampInf, true
	case "-infinity":
		return TimestampMinusInf, true
	case "epoch":
		return -EpochDays * MicrosPerDay, true
	}
	return 0, false
}

func timestampIn(text string) (int64, error) {
	r, err := parseTime(text, "timestamp")
	if err != nil {
		return 0, err
	}
	if v, ok := specialTS(r.special); ok {
		return v, nil
	}
	return timestampOf(r, text)
}

// TimestamptzIn is the input of timestamptz.
func TimestamptzIn(text string, loc *time.Location) (int64, error) {
	r, err := parseTime(text, "timestamp with time zone")
	if err != nil {
		return 0, err
	}
	if v, ok := specialTS(r.special); ok {
		return v, nil
	}
	v, err := timestampOf(r, text)
	if err != nil {
		return 0, err
	}
	switch {
	case r.location != nil:
		v = ToInstant(v, r.location)
	case r.hasZone:
		v -= int64(r.zone) * 1000000
	default:
		v = ToInstant(v, loc)
	}
	if v < TimestampMin || v >= TimestampEnd {
		return 0, sqlstate.New(sqlstate.DatetimeOverflow, "timestamp out of range: \"%s\"", text)
	}
	return v, nil
}

func timeIn(text string) (int64, error) {
	r, err := parseTime(text, "time")
	if err != nil {
		return 0, err
	}
	if r.special != "" || !r.hasTime {
		return 0, sqlstate.New(sqlstate.InvalidDatetimeFormat, "invalid input syntax for type time: \"%s\"", text)
	}
	return r.us, nil
}

// RoundTimestamp rounds to a precision of 0 to 6 fractional digits, half away from zero.
func RoundTimestamp(v int64, mod int32) int64 {
	if mod < 0 || mod >= 6 || v == TimestampInf || v == TimestampMinusInf {
		return v
	}
	unit := int64(1)
	for i := mod; i < 6; i++ {
		unit *= 10
	}
	if v >= 0 {
		return (v + unit/2) / unit * unit
	}
	return -((-v + unit/2) / unit * unit)
}

// TimestampOutOfRange is the error of a timestamp that PostgreSQL cannot hold.
func TimestampOutOfRange() error {
	return sqlstate.New(sqlstate.DatetimeOverflow, "timestamp out of range")
}
