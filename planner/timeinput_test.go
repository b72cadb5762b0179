package planner

import "testing"

// TestTimeInputs: which literals of a statement a shard is asked about, and how.
func TestTimeInputs(t *testing.T) {
	t.Parallel()
	p := New(Limits{})
	for _, c := range []struct{ sql, ask string }{
		{"SELECT * FROM t WHERE a < 'now' AND b = $1 AND c = 'today'", "SELECT * FROM t WHERE a < $2 AND b = $1 AND c = $3"},
		{"SELECT date 'today', E'{n\\\\ow}'::date[]", "SELECT $1::date, $2::date[]"},
		{"SELECT timestamptz('now'), upper('now')", "SELECT $1::timestamp with time zone, upper($2)"},
		{"EXPLAIN SELECT 'now'", "SELECT $1"},
		{"COPY (SELECT 'now') TO STDOUT", "SELECT $1"},
		{"MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET a = 'now'", "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET a = $1"},
		// PostgreSQL compares expressions of GROUP BY as wholes.
		{"SELECT a > 'now', count(*) FROM t WHERE a > 'now' GROUP BY a > 'now'", "SELECT a > $1, count(*) FROM t WHERE a > $2 GROUP BY a > $1"},
		// None, or none that PostgreSQL reads.
		{"SELECT * FROM t WHERE a = 'nowhere' OR b = 'unknown' OR c = 'todays'", ""},
		{"SELECT now(), today FROM t", ""},
		{"SET x = 'now'", ""},
	} {
		got := p.TimeInputs(c.sql)
		switch {
		case got == nil && c.ask == "":
		case got == nil:
			t.Errorf("%s: nothing to ask", c.sql)
		case got.Ask != c.ask:
			t.Errorf("%s\n got %s\nwant %s", c.sql, got.Ask, c.ask)
		}
	}
	const sql = "SELECT U&'n!006fw' UESCAPE '!', a FROM t WHERE b = 'it''s now' AND a = $q$now$q$"
	in := p.TimeInputs(sql)
	list, at := in.Inputs([]string{"date", "", "date"})
	if len(in.Literals) != 3 || len(list) != 2 || list[0].Text != "now" {
		t.Fatalf("%+v, %+v", in, list)
	}
	if got, want := in.With(sql, at, []string{"2024-01-02", "2024-01-03"}), "SELECT '2024-01-02', a FROM t WHERE b = 'it''s now' AND a = '2024-01-03'"; got != want {
		t.Errorf("got %s", got)
	}
}

// TestMayBeTimeInput: what may stand around a word.
func TestMayBeTimeInput(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"now", " NOW ", "today 12:00", "today12:00", "now utc", "{now}", `{n\ow}`, `["n""ow",)`, "_now", "it is now or never"} {
		if !MayBeTimeInput(s) {
			t.Errorf("%q may be none", s)
		}
	}
	for _, s := range []string{"", "no", "nowhere", "unknown", "todays", "n ow", "2024-01-01"} {
		if MayBeTimeInput(s) {
			t.Errorf("%q may be one", s)
		}
	}
}
