package gateway

import (
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// ownSettings are the router's own settings of a session, with the check of a
// value (SQL text; "" is the default). SET, SET LOCAL, RESET and SHOW work as for
// PostgreSQL's settings, transactions and savepoints included; no shard hears of
// them. planner.CheckSetting knows their names as well.
var ownSettings = map[string]func(value string) error{
	settingTraceparent: checkTraceparent,
}

// settingTraceparent is the caller's span, as W3C Trace Context writes it.
const settingTraceparent = executor.OwnPrefix + "traceparent"

// ownSet reports whether a SET, RESET or SHOW is of a setting of the router's own.
func ownSet(st *planner.Statement) bool {
	_, ok := ownSettings[strings.ToLower(st.Set.Name)]
	return ok
}

// unquoted is a setting's value without its quotes.
func unquoted(value string) string { return strings.Trim(strings.TrimSpace(value), "'") }

func checkTraceparent(value string) error {
	if v := unquoted(value); v != "" {
		if _, ok := trace.ParseParent(v); !ok {
			return sqlstate.New(sqlstate.InvalidParameterValue, "invalid value for parameter %q: %q", settingTraceparent, v).
				WithHint("it is a W3C traceparent, like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		}
	}
	return nil
}

// setOwn runs SET and RESET of the router's own settings.
func (x *session) setOwn(st *planner.Statement, next, keep *executor.Settings) error {
	if st.Set.Op == "set_config" {
		return sqlstate.Refuse("set_config() of the router's own setting "+st.Set.Name+" is not supported", "SET or SET LOCAL")
	}
	if err := x.drain(); err != nil {
		return err
	}
	x.unit.effects = true
	if st.Set.Local && x.tx.state == txNone {
		x.w.warning(sqlstate.NoActiveTransaction, "SET LOCAL can only be used in transaction blocks")
	}
	if x.tx.state != txNone {
		x.settings, x.tx.keep = next, keep
	} else {
		x.settings = keep
	}
	x.w.complete(st.Tag)
	return nil
}

// showOwn answers SHOW of the router's own settings.
func (x *session) showOwn(st *planner.Statement) (*localResult, error) {
	name := strings.ToLower(st.Set.Name)
	value, _ := x.settings.Get(name)
	return &localResult{columns: []string{name}, values: [][][]byte{{textOf(unquoted(value))}}, tag: "SHOW"}, nil
}
