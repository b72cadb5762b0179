package wire

import "github.com/cleavedb/cleave/sqlstate"

// FormatAt is the format code of the value i, by the codes of a Bind message: none is text for all, one is
// for all. See "Bind" in PostgreSQL's chapter "Message Formats".
func FormatAt(formats []int16, i int) int16 {
	switch {
	case len(formats) == 1:
		return formats[0]
	case i < len(formats):
		return formats[i]
	}
	return 0
}

// CheckResults refuses formats of a Bind that do not fit the columns of its query. A statement that returns no rows takes any
// (PortalSetResultFormat of PostgreSQL's pquery.c).
func CheckResults(formats []int16, columns int) error {
	if n := len(formats); n > 1 && n != columns {
		return sqlstate.New(sqlstate.ProtocolViolation, "bind message has %d result formats but query has %d columns", n, columns)
	}
	return nil
}
