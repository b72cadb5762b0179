package settings

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/sqlstate"
)

// OfStart turns the startup parameters into settings: what RESET goes back to.
func OfStart(params map[string]string, bytesMax int) (*executor.Settings, error) {
	var set *executor.Settings
	add := func(name, value string) error {
		name = strings.ToLower(name)
		switch {
		case !utf8.ValidString(value):
			return sqlstate.New(sqlstate.InvalidParameterValue, "the value of the startup parameter %q is not UTF-8", name)
		case !validName(name):
			return Unknown(name)
		case name == "transaction_isolation":
			return sqlstate.New(sqlstate.ActiveTransaction, "SET TRANSACTION ISOLATION LEVEL must be called before any query").WithHint("set default_transaction_isolation")
		case name == "transaction_deferrable":
			return sqlstate.New(sqlstate.ActiveTransaction, "SET TRANSACTION [NOT] DEFERRABLE must be called before any query").WithHint("set default_transaction_deferrable")
		case name == "transaction_read_only":
			if _, ok := utility.ParseBool(value); !ok {
				return sqlstate.New(sqlstate.InvalidParameterValue, "parameter \"transaction_read_only\" requires a Boolean value")
			}
			return nil // of a transaction that ends before the first statement
		}
		value = listOf(name, executor.QuoteLiteral(value), value)
		if name == "datestyle" {
			before, _ := set.Get(name)
			value = executor.MergeDateStyle(before, value, "")
		}
		if err := Check(name, value); err != nil {
			return err
		}
		if name == "client_encoding" {
			return nil // UTF8, checked: what every shard connection has
		}
		set = set.With(name, value)
		if set.Size() > bytesMax {
			return sqlstate.New(sqlstate.ProgramLimitExceeded, "the startup parameters are over %d bytes", bytesMax)
		}
		return nil
	}
	options, err := splitOptions(params["options"])
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		if err := add(strings.ReplaceAll(o[0], "-", "_"), o[1]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		switch {
		case name == "user", name == "database", name == "options", name == "replication", strings.HasPrefix(name, "_pq_."):
		default:
			if err := add(name, params[name]); err != nil {
				return nil, err
			}
		}
	}
	return set, nil
}

// splitOptions splits the startup parameter "options" into names and values:
// "-c name=value" and "--name=value", a backslash quotes the next character.
func splitOptions(v string) ([][2]string, error) {
	var words []string
	var w strings.Builder
	in := false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c == '\\' && i+1 < len(v):
			i++
			w.WriteByte(v[i])
			in = true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				words = append(words, w.String())
				w.Reset()
				in = false
			}
		default:
			w.WriteByte(c)
			in = true
		}
	}
	if in {
		words = append(words, w.String())
	}
	var out [][2]string
	for i := 0; i < len(words); i++ {
		o, before := words[i], "--"
		switch {
		case o == "-c" && i+1 < len(words):
			i++
			o, before = words[i], "-c "
		case strings.HasPrefix(o, "--"):
			o = o[2:]
		case strings.HasPrefix(o, "-c") && o != "-c":
			o, before = o[2:], "-c "
		default:
			return nil, sqlstate.New(sqlstate.SyntaxError, "invalid command-line argument for server process: %s", o).
				WithHint("give settings as options='-c name=value'")
		}
		name, value, ok := strings.Cut(o, "=")
		if !ok {
			return nil, sqlstate.New(sqlstate.SyntaxError, "%s%s requires a value", before, o).
				WithHint("give settings as options='-c name=value'")
		}
		out = append(out, [2]string{name, value})
	}
	return out, nil
}

// Inherited are the settings with those of what their session began with that the router has to know.
func Inherited(set *executor.Settings) (*executor.Settings, error) {
	_, given := set.Get("default_transaction_isolation")
	if level := set.OwnIsolation(); level != "" && level != "read committed" && !given {
		set = set.With("default_transaction_isolation", executor.QuoteLiteral(level))
	}
	path := set.OwnPath()
	if _, given = set.Get("search_path"); given || path == "" {
		return set, nil
	}
	if err := Check("search_path", path); err != nil {
		return nil, err
	}
	return set.With("search_path", path), nil
}
