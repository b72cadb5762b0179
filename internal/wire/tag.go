package wire

import "bytes"

// Reads reports whether a CommandComplete with this body says something about
// rows that the statement only looked for: it is that of a SELECT, FETCH, MOVE or
// COPY, or of a write that found none.
func Reads(body []byte) bool {
	tag := bytes.TrimRight(body, "\x00")
	word, _, _ := bytes.Cut(tag, []byte{' '})
	switch string(word) {
	case "SELECT", "FETCH", "MOVE", "COPY":
		return true
	case "INSERT", "UPDATE", "DELETE", "MERGE":
		return bytes.HasSuffix(tag, []byte(" 0"))
	}
	return false
}
