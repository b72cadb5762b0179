package executor

import (
	"sort"
	"strings"
)

// Setting is one session setting.
type Setting struct {
	Name string // lower case
	// Value is SQL text, ready to follow SET name TO; or see Text.
	Value string
	// Default: SET LOCAL .. TO DEFAULT gave it the value of the session's start, which RESET ALL passes over.
	Default bool
}

// textMark begins a Value that Text made. SQL has no such character outside of quotes.
const textMark = "\x01"

// Text is the Value of a list of names that was given as one text: to set_config(), at the start of a session, or by the
// shard's configuration. PostgreSQL shows it as it was given. SET would take it for one name, and would quote each name of a list.
func Text(list string) string { return textMark + list }

const textSet, textLasting, textLocal = "SELECT pg_catalog.set_config(", ", false)", ", true)"

// forTransaction is a statement of changes that holds for the rest of a transaction.
func forTransaction(sql string) string {
	if call, ok := strings.CutSuffix(sql, textLasting); ok && strings.HasPrefix(sql, textSet) {
		return call + textLocal
	}
	if name, ok := strings.CutPrefix(sql, "RESET "); ok {
		return "SET LOCAL " + name + " TO DEFAULT"
	}
	return "SET LOCAL " + strings.TrimPrefix(sql, "SET ")
}

// Settings is an immutable set of session settings, compared by value. The nil
// *Settings is the empty set: the shard's own defaults.
type Settings struct {
	entries []Setting // sorted by name
	canon   string    // all of it, for comparing
	parse   string    // what changes how a statement's text is understood
	reads   string    // the part of it that changes how literals are read
	path    []string  // search_path, parsed
	pathKey string
	own     int // bytes of those that no shard gets
	origin  origin
}

// own reports whether a setting is the router's own: no shard gets it, and sets
// that differ in it alone are equal.
func own(name string) bool { return strings.HasPrefix(name, "cleave.") }

// neutral settings change neither the meaning of a text nor its result's
// columns, so that prepared statements are shared across them.
var neutral = map[string]bool{
	"application_name": true, "statement_timeout": true, "lock_timeout": true,
	"idle_in_transaction_session_timeout": true, "idle_session_timeout": true, "transaction_timeout": true,
	"client_min_messages": true, "extra_float_digits": true, "bytea_output": true,
	"synchronous_commit": true, "work_mem": true, "log_min_messages": true,
	"log_statement": true, "log_min_duration_statement": true,
}

// reading settings decide what a literal or another piece of a text means. PostgreSQL reads a statement when it is
// parsed, whatever the settings are when it is run.
var reading = map[string]bool{
	"datestyle": true, "intervalstyle": true, "timezone": true, "timezone_abbreviations": true, "lc_monetary": true,
	"array_nulls": true, "xmloption": true, "transform_null_equals": true, "standard_conforming_strings": true, "backslash_quote": true,
}

// times are those of the reading settings that concern dates, times and intervals alone.
var times = map[string]bool{"datestyle": true, "intervalstyle": true, "timezone": true, "timezone_abbreviations": true}

var defaultPath = []string{"$user", "public"}

// With returns the set with name set to value.
func (s *Settings) With(name, value string) *Settings {
	return s.with(Setting{Name: name, Value: value})
}

// WithDefault is With of the value of the session's start, for the rest of a transaction.
func (s *Settings) WithDefault(name, value string) *Settings {
	return s.with(Setting{Name: name, Value: value, Default: true})
}

func (s *Settings) with(set Setting) *Settings {
	entries := make([]Setting, 0, s.Len()+1)
	done := false
	for _, e := range s.list() {
		if e.Name == set.Name {
			e, done = set, true
		}
		entries = append(entries, e)
	}
	if !done {
		entries = append(entries, set)
		sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	}
	return newSettings(entries, s.from())
}

// Without returns the set without name.
func (s *Settings) Without(name string) *Settings {
	if _, ok := s.Get(name); !ok {
		return s
	}
	entries := make([]Setting, 0, s.Len())
	for _, e := range s.list() {
		if e.Name != name {
			entries = append(entries, e)
		}
	}
	return newSettings(entries, s.from())
}

func newSettings(entries []Setting, from origin) *Settings {
	if len(entries) == 0 && from == (origin{}) {
		return nil
	}
	s := &Settings{entries: entries, path: defaultPath, origin: from}
	var canon, parse, reads strings.Builder
	for _, e := range entries {
		if own(e.Name) {
			s.own += len(e.Name) + len(e.Value)
			continue
		}
		canon.WriteString(e.Name + "\x00" + e.Value + "\x00")
		if !neutral[e.Name] {
			parse.WriteString(e.Name + "\x00" + e.Value + "\x00")
		}
		if reading[e.Name] {
			reads.WriteString(e.Name + "\x00" + e.Value + "\x00")
		}
		if e.Name == "search_path" {
			s.path, s.pathKey = SplitPath(e.Value), e.Value
		}
	}
	if from.login != nil {
		s.pathKey += "\x00" + from.login.as.User // "$user" is another one
	}
	s.canon, s.parse, s.reads = canon.String(), parse.String(), reads.String()
	return s
}

func (s *Settings) list() []Setting {
	if s == nil {
		return nil
	}
	return s.entries
}

// Len returns the number of settings.
func (s *Settings) Len() int { return len(s.list()) }

// List returns the settings sorted by name. Do not change it.
func (s *Settings) List() []Setting { return s.list() }

// Size returns the number of bytes of names and values, for bounds.
func (s *Settings) Size() int {
	if s == nil {
		return 0
	}
	return len(s.canon) + s.own
}

// Get returns the SQL text of a setting.
func (s *Settings) Get(name string) (value string, ok bool) {
	for _, e := range s.list() {
		if e.Name == name {
			return e.Value, true
		}
	}
	return "", false
}

// Equal reports whether both sets are the same to a shard.
func (s *Settings) Equal(t *Settings) bool {
	if s == t {
		return true
	}
	return s.canonical() == t.canonical()
}

func (s *Settings) canonical() string {
	if s == nil {
		return ""
	}
	return s.canon
}

// SearchPath returns the schemas in which unqualified names are looked up.
func (s *Settings) SearchPath() []string {
	if s == nil {
		return defaultPath
	}
	return s.path
}

func (s *Settings) searchPathKey() string {
	if s == nil {
		return ""
	}
	return s.pathKey
}

func (s *Settings) parseKey() string {
	if s == nil {
		return ""
	}
	return s.parse
}

func (s *Settings) readKey() string {
	if s == nil {
		return ""
	}
	return s.reads
}

// ReadsAs reports whether texts mean the same under both sets.
func (s *Settings) ReadsAs(t *Settings) bool { return s == t || s.readKey() == t.readKey() }

// ReadsAsExceptTimes reports whether texts without dates, times and intervals mean the same under both sets.
func (s *Settings) ReadsAsExceptTimes(t *Settings) bool {
	for name := range reading {
		a, _ := s.Get(name)
		if b, _ := t.Get(name); a != b && !times[name] {
			return false
		}
	}
	return true
}

// ReadingAs is the set with those settings of t that decide what a text means.
func (s *Settings) ReadingAs(t *Settings) *Settings {
	if s.ReadsAs(t) {
		return s
	}
	var entries []Setting
	for _, e := range s.list() {
		if !reading[e.Name] {
			entries = append(entries, e)
		}
	}
	entries = append(entries, t.readings().list()...)
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	return newSettings(entries, s.from())
}

// readings are those settings of the set that decide what a text means.
func (s *Settings) readings() *Settings {
	var entries []Setting
	for _, e := range s.list() {
		if reading[e.Name] {
			entries = append(entries, e)
		}
	}
	return newSettings(entries, origin{})
}

// Statements returns the SET statements that make the settings on a fresh conversation.
func (s *Settings) Statements() []string { return s.changes(nil) }

// changes returns the statements that turn a conversation with the settings
// from into one with s. A role is left first and taken last: what it may set
// depends on who it is.
func (s *Settings) changes(from *Settings) []string {
	if s.Equal(from) {
		return nil
	}
	var sets []string
	resets, role := s.resets(from), ""
	for _, e := range s.list() {
		if own(e.Name) {
			continue
		}
		if e.Name == "role" {
			role = "SET role TO " + e.Value
			continue
		}
		if was, ok := from.Get(e.Name); !ok || was != e.Value {
			if ok && e.Name == "datestyle" {
				// PostgreSQL completes a value of the style or the order alone by what
				// holds before, which has to be the default and not another session's.
				resets = append(resets, "RESET datestyle")
			}
			sets = append(sets, setStatement(e))
		}
	}
	all := append(resets, sets...)
	if role != "" {
		all = append(all, role)
	}
	return all
}

// resets are the statements that take back settings of a conversation which s has not.
func (s *Settings) resets(from *Settings) (resets []string) {
	for _, e := range from.list() {
		if own(e.Name) {
			continue
		}
		if e.Name == "role" {
			resets = append([]string{"RESET role"}, resets...)
		} else if _, ok := s.Get(e.Name); !ok {
			resets = append(resets, "RESET "+quoteSetting(e.Name))
		}
	}
	return resets
}

func setStatement(e Setting) string {
	if list, ok := strings.CutPrefix(e.Value, textMark); ok {
		return textSet + QuoteLiteral(e.Name) + ", " + QuoteLiteral(list) + textLasting
	}
	if e.Name == "timezone" {
		return "SET TIME ZONE " + e.Value // the only form that takes an INTERVAL
	}
	return "SET " + quoteSetting(e.Name) + " TO " + e.Value
}

// Statement is what makes one setting what it is in the set, for the rest of the transaction or for good.
func (s *Settings) Statement(name string, local bool) string {
	sql := "RESET " + quoteSetting(name)
	if value, ok := s.Get(name); ok {
		sql = setStatement(Setting{Name: name, Value: value})
	}
	if local {
		return forTransaction(sql)
	}
	return sql
}

// Plain is the text of a Value that is one literal or one made by Text; other values as they are.
func Plain(value string) string {
	if list, ok := strings.CutPrefix(value, textMark); ok {
		return list
	}
	if text, ok := Literal(strings.TrimSpace(value)); ok {
		return text
	}
	return value
}

// quoteSetting quotes each part of a setting's name where it has to be: a part of a custom name may be a keyword.
func quoteSetting(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		plain := p != "" && len(parts) == 1
		for j, c := range p {
			if !(c >= 'a' && c <= 'z' || c == '_' || j > 0 && c >= '0' && c <= '9') {
				plain = false
			}
		}
		if !plain {
			parts[i] = `"` + strings.ReplaceAll(p, `"`, `""`) + `"`
		}
	}
	return strings.Join(parts, ".")
}

// QuoteIdentifier is a name in double quotes.
func QuoteIdentifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// QuoteLiteral returns v as an SQL string literal, whatever
// standard_conforming_strings says.
func QuoteLiteral(v string) string {
	q := "'" + strings.ReplaceAll(v, "'", "''") + "'"
	if strings.Contains(q, `\`) {
		q = "E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}
