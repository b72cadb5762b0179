package settings

import (
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// ownSetting is one of the router's own settings: no shard gets it.
type ownSetting struct {
	want string // what it takes, for the hint
	ok   func(v string) bool
	// otherwise is what SHOW answers where the session has not set it; "" is the
	// router's own default.
	otherwise string
}

// ownSettings are all of them, by name; utility.OwnSetting knows the names.
var ownSettings = map[string]ownSetting{
	ReadPolicy:    {want: "primary, replica or nearest", ok: func(v string) bool { _, ok := ParseReadPolicy(v); return ok }},
	MaxReplicaLag: {want: "a time such as '500ms' or '10s', or -1 for no bound", ok: func(v string) bool { _, ok := ParseReplicaLag(v); return ok }},
	Traceparent: {want: "a W3C traceparent, like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		ok: func(v string) bool { _, ok := trace.ParseParent(v); return ok || v == "" }},
	limits.ScatterSetting:     {want: "on or off", ok: func(v string) bool { _, ok := utility.ParseBool(v); return ok }},
	limits.ShardsMaxSetting:   {want: "a number of shards, 0 for no bound", ok: isNumber},
	limits.RowsMaxSetting:     {want: "a number of rows, 0 for no bound", ok: isNumber},
	limits.BytesMaxSetting:    {want: "a size such as '64MB', 0 for no bound", ok: isSize},
	limits.TimeoutSetting:     {want: "a time such as '500ms' or '10s', 0 for no bound", ok: func(v string) bool { _, ok := limits.Duration(v); return ok }},
	limits.GatherRowsSetting:  {want: "a number of rows, 0 for the default", ok: isNumber},
	limits.GatherBytesSetting: {want: "a size such as '1GB', 0 for the default", ok: isSize},
	HoldTimeout:               {want: "a time such as '500ms' or '10s', 0 for not at all", ok: func(v string) bool { _, ok := limits.Duration(v); return ok }},
	"cleave.read_consistency": {want: "'shard' or 'atomic'", otherwise: "atomic", ok: oneOf("shard", "atomic")},
	"cleave.transaction_mode": {want: "'multi' or 'single'", otherwise: "multi", ok: oneOf("multi", "single")},
	limits.DeadlockSetting:    {want: "a time such as '200ms' or '1s', at least 10ms", ok: func(v string) bool { d, ok := limits.Duration(v); return ok && d >= limits.DeadlockTimeoutMin }},
}

func isNumber(v string) bool {
	_, ok := limits.Number(v, false)
	return ok
}

func isSize(v string) bool {
	_, ok := limits.Number(v, true)
	return ok
}

func oneOf(values ...string) func(string) bool {
	return func(v string) bool {
		for _, w := range values {
			if strings.EqualFold(v, w) {
				return true
			}
		}
		return false
	}
}

// checkOwn judges the value of one of the router's own settings.
func checkOwn(name, value string) error {
	v, s := Unquoted(value), ownSettings[name]
	if s.ok == nil || !s.ok(v) {
		return sqlstate.New(sqlstate.InvalidParameterValue, "invalid value for parameter %q: %s", name, executor.QuoteLiteral(v)).WithHint("%s takes %s", name, s.want)
	}
	return nil
}

// OwnDefault is what SHOW answers where the session has not set it; "" is the router's own default.
func OwnDefault(name string) string { return ownSettings[name].otherwise }

// Own reports whether the statement is about one of the router's own settings.
func Own(s *plan.Set) bool {
	if s == nil {
		return false
	}
	switch s.Op {
	case "set", "reset", "show":
		return utility.OwnSetting(strings.ToLower(s.Name))
	}
	return false
}

// HoldTimeout bounds how long a statement waits.
const HoldTimeout = "cleave.hold_timeout"
