package wire

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
