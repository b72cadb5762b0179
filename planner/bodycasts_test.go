package planner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/planner/functions"
)

// TestBodyCasts: which functions cast their arguments to times, and which make what they cast.
func TestBodyCasts(t *testing.T) {
	t.Parallel()
	oids := map[string]int64{"text": int64(pgoid.Text), "date": int64(pgoid.Date), "timestamptz": int64(pgoid.Timestamptz), "int": int64(pgoid.Int4), "jsonb": 3802, "mood": 70000, "trigger": 2279}
	source := func(name, language, params, result, volatility, body string) functions.Source {
		f := functions.Source{Schema: "public", Name: name, Kind: "f", Volatility: volatility, Language: language, Body: body, Types: []int64{oids[result]}, Trigger: result == "trigger"}
		for _, p := range strings.FieldsFunc(params, func(r rune) bool { return r == ',' }) {
			n, typ, _ := strings.Cut(strings.TrimSpace(p), " ")
			f.Names, f.Types, f.Args = append(f.Names, n), append(f.Types, oids[typ]), f.Args+1
		}
		if language == "plpgsql" {
			f.Body = fmt.Sprintf("CREATE FUNCTION %s(%s) RETURNS %s LANGUAGE plpgsql AS $$ %s $$", name, params, result, body)
		}
		return f
	}
	var all []functions.Source
	want := map[string]string{}
	for i, c := range []struct{ params, result, body, want string }{
		{"t text", "date", "SELECT t::date", "1"},
		{"t text", "date", "SELECT $1::date", "1"},
		{"t text", "date", "SELECT date(btrim(lower(t)))", "1"},
		{"t text", "date", "SELECT CAST(left(t, 10) AS date)", "2"},
		{"t text", "date", "SELECT replace(t, '/', '-')::date", "2"},
		{"t text", "date", "SELECT replace(t, '/', '')::date", "3 clocked"},
		{"t text", "date", "SELECT reverse(t)::date", "3 clocked"},
		{"t text", "date", "SELECT (t || t)::date", "3 clocked"},
		{"t text, u text", "timestamptz", "SELECT (t || ' ' || u)::timestamptz", "1"},
		{"t text, u text", "timestamptz", "SELECT concat_ws(' ', t, u)::timestamptz", "1"},
		{"t text, u text", "timestamptz", "SELECT concat(t, u)::timestamptz", "3 clocked"},
		{"t text", "date", "SELECT COALESCE(NULLIF(t, ''), '2020-01-01')::date", "1"},
		{"t text", "date", "SELECT to_date(reverse(t), 'YYYY')", "0"},
		{"t text", "int", "SELECT length(t)", "0"},
		{"t text", "text", "SELECT reverse(t)", "0"},
		{"t text", "mood", "SELECT t::mood", "1"},
		{"t text", "text", "SELECT (t::date[])::text", "1"},
		{"j jsonb", "timestamptz", "SELECT (j->>'at')::timestamptz", "1"},
		{"j jsonb", "timestamptz", "SELECT at FROM jsonb_to_record(j) AS x(at timestamptz)", "1"},
		{"j jsonb", "int", "SELECT a FROM jsonb_to_record(j) AS x(a int)", "0"},
		{"d date", "timestamptz", "SELECT d::timestamptz", "0"},
		{"d date", "date", "SELECT d::text::date", "0"},
		{"d date", "date", "SELECT to_char(d, 'YYYY-MM-01')::date", "0"},
		{"d date, n int", "date", "SELECT (extract(year FROM d)::text || '-' || n)::date", "0"},
		{"", "date", "SELECT current_setting('a.b')::date", "3 clocked"},
		{"t text", "date", "BEGIN RETURN t; END", "1"},
		{"t text", "text", "BEGIN RETURN t; END", "0"},
		{"t text", "text", "DECLARE d date; BEGIN d := t; RETURN d; END", "1"},
		{"t text", "text", "DECLARE d date := btrim(t); BEGIN RETURN d; END", "1"},
		{"t text", "text", "DECLARE d date; BEGIN SELECT t INTO d; RETURN d; END", "1"},
		{"t text", "date", "DECLARE s text := reverse(t); BEGIN RETURN s::date; END", "3 clocked"},
		{"d date, n int", "date", "BEGIN IF n > 3 THEN RETURN d + n; END IF; RETURN d; END", "0"},
		{"t text, d date", "date", "BEGIN IF t = 'x' THEN RETURN d + 1; END IF; RETURN d; END", "0"},
		{"", "trigger", "BEGIN NEW.at := NEW.note::date; RETURN NEW; END", "0"},
		{"t text", "date", "SELECT f0(t)", "1"},
		{"t text", "date", "SELECT f3(t)", "2"},
		{"t text", "date", "SELECT f6(t)", "3 clocked"},
		{"t text", "date", "SELECT f0(f14(t))", "3 clocked"},
		{"d date", "date", "SELECT f0('2020-01-01') + (d - d)", "0"},
	} {
		language := "sql"
		if strings.HasPrefix(c.body, "BEGIN") || strings.HasPrefix(c.body, "DECLARE") {
			language = "plpgsql"
		}
		f := source(fmt.Sprint("f", i), language, c.params, c.result, "s", c.body)
		all = append(all, f)
		want[f.Name] = c.want
		sworn := source(fmt.Sprint("sworn", i), language, c.params, c.result, "i", c.body)
		all = append(all, sworn)
		want[sworn.Name] = "0"
	}
	left := source("left_out", "sql", "t text", "date", "s", "SELECT t::date")
	left.Defaults = "'today'::text"
	all = append(all, left)
	want["left_out"] = "1 below"
	for _, f := range functions.Pure(all) {
		got := fmt.Sprint(f.Casts)
		if f.Clocked {
			got += " clocked"
		}
		if f.ClockedBelow > 0 {
			got += " below"
		}
		if got != want[f.Name] {
			for _, s := range all {
				if s.Name == f.Name {
					t.Errorf("%s is %s, want %s", s.Body, got, want[f.Name])
				}
			}
		}
		delete(want, f.Name)
	}
	for name := range want {
		t.Errorf("%s is not known", name)
	}
}
