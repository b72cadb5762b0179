package planner

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/functions"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// shardTextOf is the text that shards get for a query of several shards, with the patterns by name.
func shardTextOf(t *testing.T, sql string, literals ...plan.InputType) string {
	t.Helper()
	state := testState(t)
	for i := range state.Functions {
		if state.Functions[i].Name == "shout" {
			state.Functions[i].Casts = functions.CastsTexts
		}
	}
	snap, err := shardmap.NewSnapshot(state)
	if err != nil {
		t.Fatal(err)
	}
	st, err := New(Limits{}).With(plan.InputTypes{Of: sql, Types: literals}).Analyze(sql, snap, []string{"public"})
	if err != nil {
		return "refused: " + sqlstate.As(err).Message
	}
	if st.Plan == nil {
		return "one shard"
	}
	text := ""
	for _, line := range st.Plan.Lines(snap, nil) {
		if rest, ok := strings.CutPrefix(line, "shard text: "); ok {
			text = rest
		}
	}
	for name, how := range map[string]datetime.Words{"$alone": datetime.Alone, "$inside": datetime.Inside, "$own": datetime.OfUserType, "$json": datetime.InJSON, "$parts": datetime.InParts} {
		p := wordPatterns[how]
		for _, quoted := range []string{sqltext.QuoteString(p), "E" + sqltext.QuoteString(strings.ReplaceAll(p, `\`, `\\`))} {
			text = strings.ReplaceAll(text, quoted, name)
		}
	}
	return strings.ReplaceAll(text, "pg_catalog.", "")
}

// TestCastLooks: what a shard's text looks at where it casts a text of a row to a time. The first look is cheap, for a letter
// that every word has; only texts with one are looked at for the words.
func TestCastLooks(t *testing.T) {
	t.Parallel()
	const twice = `CASE WHEN textregexeq(note::text COLLATE "C", '[wWyY]') THEN regexp_replace(note::text COLLATE "C", $alone, E'cleave_time_word \\&', 'i') ELSE note END`
	for _, c := range []struct{ sql, want string }{
		{"SELECT note::timestamptz FROM orders", "SELECT " + twice + "::timestamptz FROM orders"},
		{"SELECT CAST(note AS date) FROM orders", "SELECT " + twice + "::date FROM orders"},
		{"SELECT date(note) FROM orders", "SELECT date(" + twice + ") FROM orders"},
		{"SELECT id FROM orders WHERE note::date > '2024-01-01'", "SELECT id FROM orders WHERE " + twice + "::date > '2024-01-01'"},
		// Not looked at: what is no text, and constants without a word.
		{"SELECT at::date FROM events", "SELECT at::date FROM events"},
		{"SELECT note::text FROM orders", "SELECT note::text FROM orders"},
		{"SELECT id, '2024-01-01'::date FROM orders", "SELECT id, '2024-01-01'::date FROM orders"},
		{"SELECT to_date(note, 'YYYY') FROM orders", "SELECT to_date(note, 'YYYY') FROM orders"},
		// The values of an array are looked at one by one.
		{"SELECT ARRAY[note, '2024-01-01']::date[] FROM orders", "SELECT ARRAY[" + twice + ", '2024-01-01']::date[] FROM orders"},
		// Of an array's text the words may have marks of quotation between their letters.
		{"SELECT note::timestamptz[] FROM orders", "SELECT " + strings.Replace(twice, "$alone", "$inside", 1) + "::timestamptz[] FROM orders"},
		// A user-defined type may be one of times: it fails for words, and for nothing else.
		{"SELECT note::mood FROM orders", `SELECT CASE WHEN CASE WHEN texticregexeq(translate(note::text, E'"\\', '') COLLATE "C", $own) THEN concat('cleave_time_word ', translate(note::text, E'"\\', ''))::date IS NULL END THEN NULL ELSE note END::mood FROM orders`},
		// A volatile operand is computed once.
		{"SELECT (note || random())::date FROM orders", `SELECT (SELECT CASE WHEN CASE WHEN texticregexeq(cleave_word.v::text COLLATE "C", $alone) THEN concat('cleave_time_word ', cleave_word.v::text)::date IS NULL END THEN NULL ELSE cleave_word.v END FROM (SELECT note || random() AS v OFFSET 0) cleave_word)::date AS date FROM orders`},
		// A user-defined function that casts its argument.
		{"SELECT shout(note) FROM orders", `SELECT shout(CASE WHEN CASE WHEN texticregexeq(note::text COLLATE "C", $json) THEN concat('cleave_time_word ', note::text)::date IS NULL END THEN NULL ELSE note END) FROM orders`},
		{"SELECT shout(id::text) FROM orders", `SELECT shout(CASE WHEN CASE WHEN texticregexeq(id::text::text COLLATE "C", $json) THEN concat('cleave_time_word ', id::text::text)::date IS NULL END THEN NULL ELSE id::text END) FROM orders`},
		{"SELECT shout('x') FROM orders", "SELECT shout('x') FROM orders"},
		// Words that are written in the statement are the time itself.
		{"SELECT note::date FROM orders WHERE tenant_id = 5", "one shard"},
	} {
		if got := shardTextOf(t, c.sql); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.sql, got, c.want)
		}
	}
}

// TestLiteralTypes: what a text gets in the place of literals of which a shard said the types.
func TestLiteralTypes(t *testing.T) {
	t.Parallel()
	const refused = "refused: the text 'now' has a word for the time, which each shard could read by its own clock"
	for _, c := range []struct {
		sql   string
		types []string
		want  string
	}{
		{"SELECT age('now', at) FROM events", []string{"1114"}, "SELECT age($1::timestamp with time zone::timestamp, at) AS age FROM events"},
		{"SELECT tstzrange('today', NULL) FROM events", []string{"1184"}, "SELECT tstzrange($1::timestamp with time zone::date::timestamp with time zone, NULL) AS tstzrange FROM events"},
		{"SELECT timestamptz('now') FROM events", nil, "SELECT timestamptz($1::timestamp with time zone::timestamp with time zone) AS timestamptz FROM events"},
		{"SELECT id FROM orders WHERE note = 'now'", []string{"25"}, "SELECT id FROM orders WHERE note = 'now'"},
		{"SELECT at = 'now' COLLATE \"C\" FROM events", []string{"1114"}, refused},
		{"SELECT note = 'now' COLLATE \"C\" FROM orders", []string{"25"}, "SELECT note = 'now' COLLATE \"C\" FROM orders"},
		// An array, a row, or what a shard did not say, and what a reader of a type takes.
		{"SELECT id FROM orders WHERE note = 'now'", []string{"1185"}, refused},
		{"SELECT id FROM orders WHERE note = 'now'", []string{"2249"}, refused},
		{"SELECT id FROM orders WHERE note = 'now'", []string{"0"}, refused},
		{"SELECT timestamptz_in('now', 0, -1) FROM orders", []string{"2275"}, refused},
		// PostgreSQL reads it twice, perhaps as two types.
		{"SELECT id FROM orders WHERE 'now' BETWEEN $1 AND $2", []string{"1184"}, refused},
		{"SELECT id FROM orders WHERE 'now' BETWEEN $1 AND $2", []string{"25"}, "SELECT id FROM orders WHERE 'now' BETWEEN $1 AND $2"},
		// A function of the user's may cast it.
		{"SELECT shout('now') FROM orders", []string{"25"}, refused},
		{"SELECT shout(COALESCE(note, 'now')) FROM orders", []string{"25"}, refused},
	} {
		got := shardTextOf(t, c.sql, append([]plan.InputType{}, literalTypes(c.types...)...)...)
		if got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.sql, got, c.want)
		}
	}
}

// TestCastWord: which of a shard's errors are its finds.
func TestCastWord(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`invalid input syntax for type timestamp with time zone: "cleave_time_word now"`: "now",
		`invalid input syntax for type date: "cleave_time_word today 12:00"`:             "today 12:00",
		`malformed range literal: "[cleave_time_word now,cleave_time_word tomorrow)"`:    "[now,tomorrow)",
		`invalid input syntax for type date: "cleave_time_word {"at":"now"}"`:            `{"at":"now"}`,
		`Ungültige Eingabesyntax für Typ date: »cleave_time_word now«`:                   "now«",
		`invalid input syntax for type date: "now or never"`:                             "-",
		`invalid input syntax for type date: "know"`:                                     "-",
		`duplicate key value violates unique constraint "orders_pkey"`:                   "-",
		`date/time value "cleave_time_word yesterday" is no longer supported`:            "yesterday",
	} {
		got, ok := CastWord(message)
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}
