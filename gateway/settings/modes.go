package settings

import (
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner/utility"
)

// Modes are the characteristics of a transaction that its statements have named, "" where they have not
// (manual, SET TRANSACTION).
type Modes struct {
	Isolation  string // "read committed", ...
	Access     string // "read only" or "read write"
	Deferrable string // "deferrable" or "not deferrable"
}

// ReadModes reads what BEGIN, SET TRANSACTION or SET transaction_... says.
func ReadModes(text string) (m Modes) {
	words := strings.Fields(strings.NewReplacer(",", " ", ";", " ", "=", " = ", "'", " ").Replace(strings.ToLower(text)))
	at := func(i int) string {
		if i >= 0 && i < len(words) {
			return words[i]
		}
		return ""
	}
	for i, w := range words {
		switch {
		case w == "serializable":
			m.Isolation = w
		case w == "repeatable" && at(i+1) == "read", w == "read" && (at(i+1) == "committed" || at(i+1) == "uncommitted"):
			m.Isolation = w + " " + at(i+1)
		case w == "read" && (at(i+1) == "only" || at(i+1) == "write"):
			m.Access = w + " " + at(i+1)
		case w == "deferrable":
			m.Deferrable = w
			if at(i-1) == "not" {
				m.Deferrable = "not deferrable"
			}
		case w == "transaction_read_only":
			if on, ok := utility.ParseBool(at(i + 2)); ok {
				m.Access = map[bool]string{true: "read only", false: "read write"}[on]
			}
		case w == "transaction_deferrable":
			if on, ok := utility.ParseBool(at(i + 2)); ok {
				m.Deferrable = map[bool]string{true: "deferrable", false: "not deferrable"}[on]
			}
		}
	}
	return m
}

// Over is m where it says something, else o.
func (m Modes) Over(o Modes) Modes {
	if m.Isolation == "" {
		m.Isolation = o.Isolation
	}
	if m.Access == "" {
		m.Access = o.Access
	}
	if m.Deferrable == "" {
		m.Deferrable = o.Deferrable
	}
	return m
}

// DefaultModes are those that the settings give to a transaction which does not say; "" where they are the server's.
func DefaultModes(s *executor.Settings) (m Modes) {
	if v, ok := s.Get("default_transaction_isolation"); ok {
		m.Isolation = ReadModes(v).Isolation
	}
	if v, ok := s.Get("default_transaction_read_only"); ok {
		m.Access = ReadModes("transaction_read_only = " + v).Access
	}
	if v := s.Value("default_transaction_deferrable"); v != "" {
		m.Deferrable = ReadModes("transaction_deferrable = " + v).Deferrable
	}
	return m
}

// List is the modes as BEGIN and SET TRANSACTION take them.
func (m Modes) List() string {
	var l []string
	if m.Isolation != "" {
		l = append(l, "ISOLATION LEVEL "+strings.ToUpper(m.Isolation))
	}
	for _, w := range []string{m.Access, m.Deferrable} {
		if w != "" {
			l = append(l, strings.ToUpper(w))
		}
	}
	return strings.Join(l, ", ")
}

// HasModes reports whether a BEGIN has options.
func HasModes(text string) bool {
	t := strings.ToUpper(text)
	return strings.Contains(t, "ISOLATION") || strings.Contains(t, "READ") || strings.Contains(t, "DEFERRABLE")
}
