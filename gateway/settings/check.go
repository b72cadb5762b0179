package settings

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/sqlstate"
)

// Check refuses settings under which the router would read a statement
// otherwise than the shard, or that belong to the router.
func Check(name, value string) error {
	if utility.OwnSetting(name) {
		if value == "" {
			return nil
		}
		return checkOwn(name, value)
	}
	if strings.HasPrefix(name, "cleave.") {
		return Unknown(name).
			WithHint("settings that begin with \"cleave.\" are the router's own; a shard key is declared with CREATE TABLE ... WITH (cleave.shard_key = '...')")
	}
	if value == "" {
		return nil // the default, which the shards' own configuration decides
	}
	if err := utility.CheckSetting(name, value); err != nil {
		return err
	}
	switch name {
	case "client_encoding", "names":
		encoding := encodingName(value)
		switch {
		case encoding == "utf8", encoding == "unicode", encoding == "auto", encoding == "default":
		case !encodings[encoding]:
			return sqlstate.New(sqlstate.InvalidParameterValue, "invalid value for parameter \"client_encoding\": \"%s\"", strings.Trim(value, "'"))
		default:
			return sqlstate.Refusal("CLV-1218", "client_encoding must be UTF8").
				WithHint("Run SET client_encoding TO 'UTF8', at the start client_encoding=UTF8 (PGCLIENTENCODING), and convert in the client.")
		}
	case "search_path":
		if executor.DiffersByVersion(value) {
			return sqlstate.Refusal("CLV-1219", "a vertical tab in search_path is not supported: versions of PostgreSQL read it otherwise").
				WithHint("Put spaces between the names.")
		}
		if slices.Contains(executor.SplitPath(value), semantics.InternalSchema) {
			return sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied for schema %s", semantics.InternalSchema).
				WithHint("the router keeps its own objects there")
		}
	case "session_authorization":
		return sqlstate.Refusal("CLV-1220", "SET SESSION AUTHORIZATION is not supported").
			WithHint("SET ROLE works, or connect as the other user.")
	}
	return nil
}

// Unknown is the error about a setting that nobody has.
func Unknown(name string) *sqlstate.Error {
	return sqlstate.New(sqlstate.UndefinedObject, "unrecognized configuration parameter \"%s\"", name)
}

// encodings are the names of PostgreSQL's other encodings, as encodingName writes them.
var encodings = func() map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(`abc alt big5 euccn eucjis2004 eucjp euckr euctw gb18030 gbk johab koi8 koi8r koi8u mskanji muleinternal
		shiftjis shiftjis2004 sjis sqlascii tcvn tcvn5712 uhc vscii win`) {
		set[name] = true
	}
	for n := 1; n <= 16; n++ {
		set["iso8859"+strconv.Itoa(n)], set["latin"+strconv.Itoa(n)] = n != 11 && n != 12, n <= 10
	}
	for _, page := range strings.Fields("866 874 932 936 949 950 1250 1251 1252 1253 1254 1255 1256 1257 1258") {
		set["win"+page], set["windows"+page] = true, true
	}
	return set
}()

// encodingName is the name of an encoding by its letters and digits alone, which is how PostgreSQL compares them.
func encodingName(value string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return -1
	}, strings.ToLower(value))
}

// listOf is the value of a list of names that is given as one text, or the literal where the setting is none.
func listOf(name, literal, text string) string {
	if name == "search_path" || name == "temp_tablespaces" {
		return executor.Text(text)
	}
	return literal
}

func validName(name string) bool {
	if name == "" || len(name) > 200 {
		return false
	}
	for _, c := range name {
		if !(c == '_' || c == '.' || c == '$' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80) {
			return false
		}
	}
	return true
}

// IsOn reads the SQL text of a setting that is on or off.
func IsOn(value string) bool {
	on, _ := utility.ParseBool(strings.Trim(value, "'"))
	return on
}

// StatementTimeout reads the setting of that name as the shard would; 0 is none.
func StatementTimeout(s *executor.Settings) time.Duration {
	return duration(s.Value("statement_timeout"))
}

// LockTimeout reads the setting of that name; 0 is none.
func LockTimeout(s *executor.Settings) time.Duration {
	return duration(s.Value("lock_timeout"))
}

// duration reads a time as PostgreSQL does, milliseconds without a unit;
// 0 for none, for what cannot be read and for more than 24 days.
func duration(v string) time.Duration {
	v = strings.ToLower(strings.TrimSpace(strings.Trim(strings.TrimSpace(v), "'")))
	digits := strings.TrimRight(v, "abcdefghijklmnopqrstuvwxyz ")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n <= 0 {
		return 0
	}
	units := map[string]time.Duration{"us": time.Microsecond, "": time.Millisecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	unit, ok := units[strings.TrimSpace(v[len(digits):])]
	if !ok || n*float64(unit) > float64(24*24*time.Hour) {
		return 0 // longer than the router lets anything run
	}
	return time.Duration(n * float64(unit))
}

// Unquoted is the value of a setting's SQL text.
func Unquoted(v string) string {
	v = strings.TrimSpace(v)
	if len(v) >= 2 && v[0] == '\'' && v[len(v)-1] == '\'' {
		return strings.ReplaceAll(v[1:len(v)-1], "''", "'")
	}
	return v
}
