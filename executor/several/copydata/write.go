package copydata

import (
	"bytes"

	"github.com/cleavedb/cleave/planner/plan"
)

// Header is what a binary COPY begins with, Trailer its end.
var (
	Header  = append([]byte("PGCOPY\n\xff\r\n\x00"), 0, 0, 0, 0, 0, 0, 0, 0)
	Trailer = []byte{0xff, 0xff}
)

// AppendText writes a value as COPY's text form does (CopyAttributeOutText).
func AppendText(dst, v []byte, delimiter byte) []byte {
	for _, c := range v {
		switch c {
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\v':
			dst = append(dst, '\\', 'v')
		case '\\', delimiter:
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// AppendField writes a value as csv, in quotes where it needs them
// (CopyAttributeOutCSV).
func AppendField(dst, v []byte, p *plan.CopyFormat, force, single bool) []byte {
	if !force {
		force = string(v) == p.Null || single && string(v) == `\.` ||
			bytes.IndexByte(v, p.Delimiter) >= 0 || bytes.IndexByte(v, p.Quote) >= 0 || bytes.ContainsAny(v, "\r\n")
	}
	return AppendCSV(dst, v, p, force)
}

// AppendCSV writes a value as csv, in quotes or not.
func AppendCSV(dst, v []byte, p *plan.CopyFormat, quoted bool) []byte {
	if !quoted {
		return append(dst, v...)
	}
	dst = append(dst, p.Quote)
	for _, c := range v {
		if c == p.Quote || c == p.Escape {
			dst = append(dst, p.Escape)
		}
		dst = append(dst, c)
	}
	return append(dst, p.Quote)
}
