package executor

import "strings"

// ReadDateStyle reads a value of DateStyle: the style in which times are printed (iso, sql, postgres or german) and the order in which
// dates are read (dmy, mdy or ymd), "" for what it does not name. hasDefault: it has the word DEFAULT. A word that PostgreSQL does
// not know is given as the order. German alone brings its own order, which stays when the style changes (check_datestyle in
// src/backend/commands/variable.c).
func ReadDateStyle(value string) (style, order string, hasDefault bool) {
	for _, w := range strings.Split(strings.ToLower(value), ",") {
		switch w = strings.Trim(w, " '\""); {
		case w == "":
		case w == "default":
			hasDefault = true
		case w == "iso", w == "sql", w == "german":
			style = w
		case strings.HasPrefix(w, "postgres"):
			style = "postgres"
		case strings.HasPrefix(w, "euro"):
			order = "dmy"
		case w == "us", strings.HasPrefix(w, "noneuro"):
			order = "mdy"
		default:
			order = w
		}
	}
	if style == "german" && order == "" && !hasDefault {
		order = "dmy"
	}
	return style, order, hasDefault
}

// MergeDateStyle is the value of DateStyle after SET on top of an earlier one: a SET of the style alone leaves the order as it was, and
// the other way round. The word DEFAULT stands for what RESET would set, "" if that is the shards' own value.
func MergeDateStyle(before, set, reset string) string {
	style, order, hasDefault := ReadDateStyle(set)
	if hasDefault {
		before = reset
	} else if style == "" && order == "" {
		return set // a shard refuses it
	}
	oldStyle, oldOrder, _ := ReadDateStyle(before)
	if style == "" {
		style = oldStyle
	}
	if order == "" {
		order = oldOrder
	}
	if style == "" || order == "" {
		return style + order
	}
	return style + ", " + order
}
