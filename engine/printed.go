package engine

import "strings"

// printed are settings under which the texts that a catalogue prints (pg_get_expr, pg_get_viewdef and the like) mean the same in every
// session: constants in them are printed by their types' output functions, as the session's settings say. They are those that pg_dump sets.
var printed = [][2]string{{"DateStyle", "ISO"}, {"IntervalStyle", "postgres"}, {"extra_float_digits", "1"}, {"quote_all_identifiers", "off"}}

// PrintedAlike is an expression in PostgreSQL's SQL that is true where the session's settings print constants as every session reads them.
const PrintedAlike = `(pg_catalog.starts_with(pg_catalog.current_setting('DateStyle'), 'ISO') AND pg_catalog.current_setting('IntervalStyle') = 'postgres'
AND pg_catalog.current_setting('extra_float_digits')::pg_catalog.int4 > 0 AND pg_catalog.current_setting('quote_all_identifiers') = 'off')`

// PrintAlike is a query in PostgreSQL's SQL that sets, until the transaction ends, what [PrintedAlike] asks for, and the settings
// of more. Its row is for PrintAsBefore.
func PrintAlike(more ...[2]string) string {
	var list []string
	for _, s := range append(printed[:len(printed):len(printed)], more...) {
		list = append(list, "pg_catalog.current_setting('"+s[0]+"'), pg_catalog.set_config('"+s[0]+"', '"+s[1]+"', true)")
	}
	return "SELECT " + strings.Join(list, ", ")
}

// PrintAsBefore is a query that takes back what PrintAlike has set, which gave was.
func PrintAsBefore(was *Result, more ...[2]string) string {
	var list []string
	for i, s := range append(printed[:len(printed):len(printed)], more...) {
		list = append(list, "pg_catalog.set_config('"+s[0]+"', '"+strings.ReplaceAll(was.Rows[0][2*i].String, "'", "''")+"', true)")
	}
	return "SELECT " + strings.Join(list, ", ")
}
