package gateway

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// gucs are the client's settings, with what a transaction does to them and what the client was told of them. PostgreSQL calls
// them GUCs (guc.c). Which shard's conversation has them is no matter here.
//
//	outside:      settings ──SET──▶ settings
//	transaction:  begin ─▶ settings (SET, SET LOCAL), keep (SET) ──end(true)──▶ settings = keep
//	                                                             ──end(false)─▶ settings = before
type gucs struct {
	// defaults are the startup parameters' settings, settings those in effect.
	defaults, settings *executor.Settings
	early              bool // see inherit
	bytesMax           int

	// reported is what the client is told by ParameterStatus, before ReadyForQuery: see tell.
	reported    map[string]string
	untold      []parameter
	application atomic.Pointer[string]

	// inTx: a transaction is open. timed: it is a schema change, whose conversations begin without the timeouts of the session's start.
	inTx, timed bool
	// before are the settings at its BEGIN, keep those that its COMMIT leaves (all but SET LOCAL's).
	before, keep *executor.Settings
	// told are the ParameterStatus values at BEGIN, stay those of the settings that COMMIT leaves, where they are others.
	told, stay map[string]string
}

// gucState is what a savepoint goes back to.
type gucState struct {
	settings, keep *executor.Settings
	told, stay     map[string]string
}

// begin is for the beginning of a transaction.
func (g *gucs) begin() {
	g.inTx, g.before, g.keep, g.told, g.stay = true, g.settings, g.settings, maps.Clone(g.reported), nil
}

// end is for its end: the settings become those of COMMIT, or of BEGIN. The client is told of those that no shard has told it of.
func (g *gucs) end(committed bool) {
	before, told, stay := g.before, g.told, g.stay
	if g.settings = before; committed {
		g.settings = g.keep
	}
	g.inTx, g.timed, g.before, g.keep, g.told, g.stay = false, false, nil, nil, nil, nil
	g.retold(told, before, g.settings)
	if committed {
		for _, name := range slices.Sorted(maps.Keys(stay)) { // SET LOCAL's values have ended
			if g.reported[name] != stay[name] {
				g.note(name, stay[name])
			}
		}
	}
}

// save is for a savepoint.
func (g *gucs) save() gucState {
	return gucState{settings: g.settings, keep: g.keep, told: maps.Clone(g.reported), stay: maps.Clone(g.stay)}
}

// rollBack goes back to a savepoint.
func (g *gucs) rollBack(to gucState) {
	g.settings, g.keep, g.stay = to.settings, to.keep, maps.Clone(to.stay)
	g.retold(to.told, g.settings, g.settings)
}

// fail is for an error in a transaction block: what it had set ends with it. to is its last savepoint, nil if there is none.
func (g *gucs) fail(to *gucState) {
	if to == nil {
		g.retold(g.told, g.before, g.before)
		return
	}
	g.retold(to.told, to.settings, to.settings)
}

// adopt makes settings that were accepted those in effect: next, and keep when the transaction commits.
func (g *gucs) adopt(next, keep *executor.Settings) {
	g.settings = next
	if !g.inTx {
		return
	}
	g.keep = keep
	// What the client was told of the settings that are as COMMIT leaves them.
	if g.stay == nil {
		g.stay = map[string]string{}
	}
	for name, value := range g.reported {
		now, set := next.Get(strings.ToLower(name))
		if then, still := keep.Get(strings.ToLower(name)); now == then && set == still {
			g.stay[name] = value
		}
	}
}

// kept are the settings that stay: those that COMMIT leaves, or those in effect where there is no transaction.
func (g *gucs) kept() *executor.Settings {
	if g.inTx {
		return g.keep
	}
	return g.settings
}

// retold tells the client of settings that are as they were when it was told of them, where no shard has said so. now are the
// settings, then were those at that time.
func (g *gucs) retold(told map[string]string, then, now *executor.Settings) {
	var changed []string
	for name, was := range told {
		if g.reported[name] != was {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		a, set := then.Get(strings.ToLower(name))
		if b, still := now.Get(strings.ToLower(name)); a == b && set == still {
			g.note(name, told[name])
		}
	}
}

// onShards are the session's settings as the conversation of its next statement is to have them.
func (g *gucs) onShards() *executor.Settings { return g.onShardsAs(g.settings) }

// onShardsAs is onShards if s were the session's settings: those of a schema change begin without the timeouts of its start.
func (g *gucs) onShardsAs(s *executor.Settings) *executor.Settings {
	if !g.timed {
		return s
	}
	return s.Timed()
}

// oneSnapshot reports whether the settings ask for more than READ COMMITTED.
func (g *gucs) oneSnapshot() bool {
	v, _ := g.settings.Get("default_transaction_isolation")
	v = strings.ToLower(v)
	return strings.Contains(v, "repeatable") || strings.Contains(v, "serializable")
}

// parameter is one that has changed since the client was told of it, with the value that the client knows.
type parameter struct{ name, knows string }

func (g *gucs) note(name, value string) {
	if !slices.ContainsFunc(g.untold, func(p parameter) bool { return p.name == name }) {
		g.untold = append(g.untold, parameter{name, g.reported[name]})
	}
	g.reported[name] = value
	if name == "application_name" {
		g.application.Store(&value)
	}
}

// tell tells the client of the parameters that have changed since the last ReadyForQuery, as PostgreSQL does from version 14 on
// (ReportChangedGUCOptions in src/backend/utils/misc/guc.c). Up to version 15 it does so in the order of their names.
func (g *gucs) tell(buf []byte) []byte {
	if len(g.untold) == 0 {
		return buf
	}
	if major, _, _ := strings.Cut(g.reported["server_version"], "."); major < "16" {
		slices.SortStableFunc(g.untold, func(a, b parameter) int { return strings.Compare(strings.ToLower(a.name), strings.ToLower(b.name)) })
	}
	for _, p := range g.untold {
		if value := g.reported[p.name]; value != p.knows {
			buf = wire.AppendParameterStatus(buf, p.name, value)
		}
	}
	g.untold = g.untold[:0]
	return buf
}

// untell forgets what has changed since the last ReadyForQuery, which is undone.
func (g *gucs) untell() {
	for _, p := range g.untold {
		g.reported[p.name] = p.knows
	}
	g.untold = g.untold[:0]
}

// after returns the settings as they are after the statement: those in effect,
// and those that stay when the transaction commits.
func (g *gucs) after(s *planner.Set) (next, keep *executor.Settings, err error) {
	return g.change(s, g.settings, g.kept())
}

// change is after, where the settings were next and keep before.
func (g *gucs) change(s *planner.Set, next, keep *executor.Settings) (*executor.Settings, *executor.Settings, error) {
	switch s.Op {
	case "set", "reset":
		name, value := strings.ToLower(s.Name), s.Value
		if s.Op == "reset" {
			value = ""
		}
		if value == "" {
			if err := checkSetting(name, ""); err != nil {
				return nil, nil, err
			}
			value, _ = g.defaults.Get(name)
		} else if err := checkSetting(name, value); err != nil {
			return nil, nil, err
		}
		if name == "client_encoding" || name == "names" {
			return next, keep, nil // UTF8 already
		}
		if planner.OfTransaction(name) {
			return next, keep, nil // a shard says what is wrong with it
		}
		if name == "session_authorization" {
			name, value = "role", "" // whose reset ends the role too
		}
		if name == "datestyle" && s.Value != "" { // what is reset forgets what was before
			// Completed by what holds now, which may be a SET LOCAL.
			before, _ := next.Get(name)
			reset, _ := g.defaults.Get(name)
			value = executor.MergeDateStyle(before, value, reset)
		}
		change := func(set *executor.Settings) *executor.Settings {
			switch {
			case value == "":
				return set.Without(name)
			case s.Local && s.Value == "":
				return set.WithDefault(name, value)
			}
			return set.With(name, value)
		}
		if s.Local && !g.inTx {
			return next, keep, nil // the shard warns that it does nothing
		}
		next = change(next)
		if !s.Local {
			keep = change(keep)
		}
	case "reset all":
		next, keep = withRoleOf(g.defaults, next), withRoleOf(g.passedOver(keep), keep)
	}
	if next.Size() > g.bytesMax {
		return nil, nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "the session's settings are over %d bytes", g.bytesMax)
	}
	return next, keep, nil
}

// passedOver are the defaults with those of keep that RESET ALL leaves to a COMMIT: it passes over what has its default value because of
// SET LOCAL .. TO DEFAULT (PostgreSQL, ResetAllOptions).
func (g *gucs) passedOver(keep *executor.Settings) *executor.Settings {
	left, now := g.defaults, map[string]executor.Setting{}
	for _, e := range g.settings.List() {
		now[e.Name] = e
	}
	for _, e := range keep.List() {
		// What the router does not know the start of is absent when it has that value.
		has, set := now[e.Name]
		if _, starts := g.defaults.Get(e.Name); !set && !starts || has.Default {
			left = left.With(e.Name, e.Value)
		}
	}
	return left
}

// withRoleOf is the settings with the role of others: RESET ALL leaves it (GUC_NO_RESET_ALL).
func withRoleOf(s, of *executor.Settings) *executor.Settings {
	if role, ok := of.Get("role"); ok {
		return s.With("role", role)
	}
	return s.Without("role")
}

// resets reports whether a SET has a value that it takes from the session's start, which the shard does not know.
func (g *gucs) resets(s *planner.Set) bool {
	name := strings.ToLower(s.Name)
	if _, defaulted := g.onShardsAs(g.defaults).Get(name); !defaulted {
		return false
	}
	if s.Value == "" {
		return true
	}
	if name != "datestyle" {
		return false
	}
	_, _, hasDefault := executor.ReadDateStyle(s.Value)
	return hasDefault
}

// traceparentSetting is the client's span, as W3C Trace Context writes it; one of the router's own settings.
const traceparentSetting = "cleave.traceparent"

// parent is the client's span as the setting has it.
func (g *gucs) parent() trace.Parent {
	v, ok := g.settings.Get(traceparentSetting)
	if !ok {
		return trace.Parent{}
	}
	p, _ := trace.ParseParent(unquoted(v)) // it was checked
	return p
}

// applicationName is the client's name for itself, "" if it gave none.
func (g *gucs) applicationName() string {
	if p := g.application.Load(); p != nil {
		return *p
	}
	return ""
}
