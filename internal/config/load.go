package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// fileMax bounds a configuration file, bytes.
const fileMax = 1 << 20

// Input is where settings come from.
type Input struct {
	File  string            // path of a YAML file, "" for none
	Env   []string          // as of os.Environ
	Flags map[string]string // the flags that were given, by name
}

// Source says where a value came from.
type Source string

// Default is the source of a value that nobody set.
const Default Source = "default"

// Effective is a valid configuration and where each value came from.
type Effective struct {
	Config
	// Warnings are oddities that do not stop a start, for the log.
	Warnings []string
	input    Input
	sources  map[string]Source
}

// Source returns where the setting's value came from.
func (e *Effective) Source(name string) Source { return e.sources[name] }

// Given reports whether somebody set the setting.
func (e *Effective) Given(name string) bool { return e.sources[name] != Default }

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Setting string `json:"setting,omitempty"` // "" for the file as a whole
	Value   string `json:"value,omitempty"`
	Source  Source `json:"source,omitempty"`
	Message string `json:"message"`
	Allowed string `json:"allowed,omitempty"`
}

// String returns the problem as one line.
func (p Problem) String() string {
	var b strings.Builder
	if p.Source != "" {
		fmt.Fprintf(&b, "%s: ", p.Source)
	}
	if p.Setting != "" {
		b.WriteString(p.Setting)
		if p.Value != "" {
			fmt.Fprintf(&b, " = %q", p.Value)
		}
		b.WriteByte(' ')
	}
	b.WriteString(p.Message)
	if p.Allowed != "" {
		fmt.Fprintf(&b, " (allowed: %s)", p.Allowed)
	}
	return b.String()
}

// Error is every problem of a configuration.
type Error struct {
	Problems []Problem
}

// Error returns all problems, one a line after the first.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// Load reads and validates all settings. The error is an *[Error] with every
// problem found.
func Load(in Input) (*Effective, error) {
	l := loader{e: &Effective{input: in, sources: map[string]Source{}}, bad: map[string]bool{}}
	values := map[string]string{}
	for _, s := range settings {
		values[s.Name], l.e.sources[s.Name] = s.Default, Default
	}
	take := func(name, value string, source Source) {
		values[name], l.e.sources[name] = value, source
	}
	l.file(take)
	l.env(take)
	for _, name := range sortedKeys(in.Flags) {
		if _, ok := Lookup(name); !ok {
			l.add(Problem{Source: Source("flag --" + name), Message: "is no setting" + didYouMean(name)})
			continue
		}
		take(name, in.Flags[name], Source("flag --"+name))
	}
	for _, s := range settings {
		if err := s.parse(&l.e.Config, values[s.Name]); err != nil {
			l.add(Problem{Setting: s.Name, Value: redact(values[s.Name]), Source: l.e.sources[s.Name], Message: err.Error(), Allowed: s.Allowed})
			l.bad[s.Name] = true
		}
	}
	// The rules between settings would only repeat what is wrong with one.
	if len(l.bad) == 0 {
		l.problems = append(l.problems, l.e.check()...)
	}
	if len(l.problems) > 0 {
		return nil, &Error{Problems: l.problems}
	}
	return l.e, nil
}

type loader struct {
	e        *Effective
	problems []Problem
	bad      map[string]bool
}

func (l *loader) add(p Problem) { l.problems = append(l.problems, p) }

func (l *loader) file(take func(name, value string, source Source)) {
	path := l.e.input.File
	if path == "" {
		return
	}
	whole := Source("file " + path)
	data, err := readFile(path)
	if err != nil {
		l.add(Problem{Source: whole, Message: err.Error()})
		return
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // nothing but comments
	case err != nil:
		l.add(Problem{Source: whole, Message: "is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")})
		return
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		l.add(Problem{Source: whole, Message: "holds more than one YAML document"})
		return
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return
	}
	if root.Kind != yaml.MappingNode {
		l.add(Problem{Source: whole, Message: "is not a list of `setting: value` lines"})
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		source := Source(fmt.Sprintf("file %s:%d", path, key.Line))
		if _, ok := Lookup(key.Value); !ok {
			l.add(Problem{Source: source, Message: fmt.Sprintf("%q is no setting%s", key.Value, didYouMean(key.Value))})
			continue
		}
		if first, ok := seen[key.Value]; ok {
			l.add(Problem{Setting: key.Value, Source: source, Message: fmt.Sprintf("is set a second time; the first is in line %d", first)})
			continue
		}
		seen[key.Value] = key.Line
		if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
			s, _ := Lookup(key.Value)
			l.add(Problem{Setting: key.Value, Source: source, Message: "has no single value", Allowed: s.Allowed})
			continue
		}
		take(key.Value, value.Value, source)
	}
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			return nil, fmt.Errorf("cannot be opened: %w", pe.Err)
		}
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if len(data) > fileMax {
		return nil, fmt.Errorf("is larger than %s", showSize(fileMax))
	}
	return data, nil
}

// otherEnv are CLEAVE_ variables that are not settings of this package.
var otherEnv = []string{"CLEAVE_CONFIG", "CLEAVE_PG_BIN"}

func (l *loader) env(take func(name, value string, source Source)) {
	byEnv := map[string]string{}
	for _, s := range settings {
		byEnv[s.Env()] = s.Name
	}
	known := append(slices.Clone(otherEnv), sortedKeys(byEnv)...)
	for _, line := range l.e.input.Env {
		key, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(key, EnvPrefix) || slices.Contains(otherEnv, key) {
			continue
		}
		if name, ok := byEnv[key]; ok {
			take(name, value, Source("environment "+key))
			continue
		}
		// A slip of the keyboard is refused. What resembles no setting is only
		// warned of: orchestrators put variables such as CLEAVE_SERVICE_HOST
		// into every container beside a service of that name.
		if near := Nearest(key, known); near != "" && distance(key, near) <= 2 {
			l.add(Problem{Source: Source("environment " + key), Message: "is no setting; did you mean " + near + "?"})
			continue
		}
		l.e.Warnings = append(l.e.Warnings, fmt.Sprintf("environment variable %s is no setting and is ignored", key))
	}
}

// Change is what a reload found different.
type Change struct {
	Setting  string `json:"setting"`
	Old, New string
	Source   Source `json:"source"`
	// Restart is true when the new value takes effect after a restart only;
	// the old one stays in force.
	Restart bool `json:"restart"`
}

// Reload reads the file again (environment and flags are those of the start).
// The result has the new values of the settings that can change while running
// and the old values of the others. On an error the old configuration stays in
// force as a whole.
func (e *Effective) Reload() (*Effective, []Change, error) {
	next, err := Load(e.input)
	if err != nil {
		return nil, nil, err
	}
	var changes []Change
	for _, s := range settings {
		was, is := s.show(&e.Config), s.show(&next.Config)
		if was == is {
			continue
		}
		changes = append(changes, Change{Setting: s.Name, Old: redact(was), New: redact(is), Source: next.sources[s.Name], Restart: !s.Reload})
		if !s.Reload {
			if err := s.parse(&next.Config, was); err != nil {
				return nil, nil, fmt.Errorf("configuration: keep %s: %w", s.Name, err)
			}
			next.sources[s.Name] = e.sources[s.Name]
		}
	}
	if problems := next.check(); len(problems) > 0 {
		return nil, nil, &Error{Problems: problems}
	}
	return next, changes, nil
}

// Value is one setting's effective value, for printing.
type Value struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Source  Source `json:"source"`
	Default string `json:"default"`
	Reload  bool   `json:"reload"`
	Help    string `json:"help"`
}

// Values returns all effective values, passwords hidden.
func (e *Effective) Values() []Value {
	out := make([]Value, len(settings))
	for i, s := range settings {
		out[i] = Value{Name: s.Name, Value: s.Show(&e.Config), Source: e.sources[s.Name], Default: s.Default, Reload: s.Reload, Help: s.Help}
	}
	return out
}

func didYouMean(name string) string {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.Name
	}
	if near := Nearest(name, names); near != "" {
		return "; did you mean " + near + "?"
	}
	return "; `cleave config` lists all settings"
}

// Nearest returns the name that differs least from s (letter case and _ for -
// do not count), "" if all are far off.
func Nearest(s string, names []string) string {
	best, bestAt := "", len(s)/2+1
	for _, n := range names {
		if d := distance(fold(s), fold(n)); d < bestAt {
			best, bestAt = n, d
		}
	}
	return best
}

func fold(s string) string {
	return strings.ReplaceAll(strings.ToLower(s), "_", "-")
}

// distance is the number of single-byte insertions, deletions, replacements and
// swaps of neighbours that make b of a.
func distance(a, b string) int {
	// Names are short; a pasted essay need not be compared in full.
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, prev, cur := rows[(i+2)%3], rows[i%3], rows[(i+1)%3]
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
