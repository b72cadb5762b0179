package copydata

import "github.com/cleavedb/cleave/planner/plan"

// Fields reads the values of records in text and csv. What it returns is good until the next Begin.
type Fields struct {
	Format *plan.CopyFormat
	// Want is, for each value of a record up to the last that matters, its place among those that are looked at, -1 if it
	// is not.
	Want []int
	// ForceNull and ForceNotNull are those of the values that are looked at.
	ForceNull, ForceNotNull []bool
	scratch                 []byte
}

// Begin begins another record.
func (k *Fields) Begin() { k.scratch = k.scratch[:0] }

// Value reads the value at at of a record, nil for NULL; next is -1 after the last. It is looked at only if i, its place,
// is not negative. ok is false if the record is malformed.
func (k *Fields) Value(rec []byte, at, i int) (value []byte, next int, ok bool) {
	if k.Format.CSV {
		return k.csvValue(rec, at, i)
	}
	return k.textValue(rec, at, i)
}

// textValue is Value of text.
func (k *Fields) textValue(rec []byte, at, i int) (value []byte, next int, ok bool) {
	end, escapes := at, false
	for end < len(rec) && rec[end] != k.Format.Delimiter {
		if rec[end] == '\\' {
			escapes = true
			end++
		}
		end++
	}
	end = min(end, len(rec))
	raw := rec[at:end]
	next = end + 1
	if end == len(rec) {
		next = -1
	}
	switch {
	case i < 0:
		return nil, next, true
	case string(raw) == k.Format.Null:
		return nil, next, true
	case !escapes:
		if raw == nil {
			raw = []byte{}
		}
		return raw[:len(raw):len(raw)], next, true
	}
	from := len(k.scratch)
	for n := 0; n < len(raw); n++ {
		c := raw[n]
		if c != '\\' {
			k.scratch = append(k.scratch, c)
			continue
		}
		if n++; n == len(raw) {
			break // dropped, as PostgreSQL does
		}
		switch c = raw[n]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'v':
			c = '\v'
		case 'x':
			v, digits := 0, 0
			for digits < 2 && n+1 < len(raw) && unhex(raw[n+1]) >= 0 {
				n++
				v, digits = v<<4|unhex(raw[n]), digits+1
			}
			if digits > 0 {
				c = byte(v)
			}
		case '0', '1', '2', '3', '4', '5', '6', '7':
			v := int(c - '0')
			for digits := 1; digits < 3 && n+1 < len(raw) && raw[n+1] >= '0' && raw[n+1] <= '7'; digits++ {
				n++
				v = v<<3 | int(raw[n]-'0')
			}
			c = byte(v)
		}
		k.scratch = append(k.scratch, c)
	}
	return k.scratch[from:len(k.scratch):len(k.scratch)], next, true
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// csvValue is Value of csv.
func (k *Fields) csvValue(rec []byte, at, i int) (value []byte, next int, ok bool) {
	quote, escape := k.Format.Quote, k.Format.Escape
	from, start, saw, inside := len(k.scratch), at, false, false
	for ; at < len(rec); at++ {
		c := rec[at]
		switch {
		case inside && c == escape && at+1 < len(rec) && (rec[at+1] == escape || rec[at+1] == quote):
			at++
			c = rec[at]
		case inside && c == quote:
			inside = false
			continue
		case !inside && c == k.Format.Delimiter:
			return k.csvDone(rec[start:at], from, i, saw), at + 1, true
		case !inside && c == quote:
			if i >= 0 && !saw {
				k.scratch = append(k.scratch, rec[start:at]...)
			}
			inside, saw = true, true
			continue
		}
		if saw && i >= 0 {
			k.scratch = append(k.scratch, c)
		}
	}
	if inside {
		return nil, -1, false // unterminated
	}
	return k.csvDone(rec[start:], from, i, saw), -1, true
}

func (k *Fields) csvDone(raw []byte, from, i int, saw bool) []byte {
	if i < 0 {
		return nil
	}
	value := raw[:len(raw):len(raw)]
	if saw {
		value = k.scratch[from:len(k.scratch):len(k.scratch)]
	}
	if value == nil {
		value = []byte{}
	}
	isNull := string(value) == k.Format.Null
	switch {
	case !saw && isNull && k.ForceNotNull[i]:
		return value
	case !saw && isNull:
		return nil
	case isNull && k.ForceNull[i]:
		return nil
	}
	return value
}
