package sqltext

import (
	"strconv"
	"strings"
)

// QuoteIdent quotes an identifier where it needs it.
func QuoteIdent(s string) string {
	plain := s != ""
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c == '_' || i > 0 && (c >= '0' && c <= '9' || c == '$')) {
			plain = false
		}
	}
	if plain && !reserved[s] {
		return s
	}
	return QuoteAlways(s)
}

// QuoteAlways quotes an identifier.
func QuoteAlways(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// QuoteString makes a literal.
func QuoteString(s string) string {
	q := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		q = "E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}

// QuoteName is a table name for messages and statements.
func QuoteName(schema, name string) string {
	if schema == "" || schema == "public" {
		return QuoteIdent(name)
	}
	return QuoteIdent(schema) + "." + QuoteIdent(name)
}

// reserved are words that cannot be a column name unquoted (manual, appendix C).
var reserved = func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(`all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
		current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc distinct do else end
		except false fetch for foreign from grant group having in initially intersect into lateral leading limit localtime localtimestamp not
		null offset on only or order placing primary references returning select session_user some symmetric system_user table then to trailing
		true union unique user using variadic when where window with`) {
		m[w] = true
	}
	return m
}()

// Dollar is the placeholder of parameter n, from 1.
func Dollar(n int) string { return "$" + strconv.Itoa(n) }
