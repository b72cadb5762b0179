// Package settings has the settings of a client's session, which PostgreSQL calls GUCs: what they are now and at COMMIT, what the
// client is told of them, which the router judges or keeps for itself. On which shard's conversation they are in effect is no
// matter here.
package settings

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// Session are the client's settings, with what a transaction does to them and what the client was told of them. See guc.c
// of PostgreSQL.
//
//	outside:      settings ──SET──▶ settings
//	transaction:  begin ─▶ settings (SET, SET LOCAL), keep (SET) ──end(true)──▶ settings = keep
//	                                                             ──end(false)─▶ settings = before
type Session struct {
	// Defaults are the startup parameters' settings, Settings those in effect.
	Defaults, Settings *executor.Settings
	// Early: it began before the default shard was ever reached, see Inherit.
	Early    bool
	bytesMax int

	// Reported is what the client is told by ParameterStatus, before ReadyForQuery: see Tell.
	Reported    map[string]string
	untold      []parameter
	application atomic.Pointer[string]

	// inTx: a transaction is open. Timed: it is a schema change, whose conversations begin without the timeouts of the session's start.
	inTx, Timed bool
	// Before are the settings at its BEGIN, Keep those that its COMMIT leaves (all but SET LOCAL's).
	Before, Keep *executor.Settings
	// told are the ParameterStatus values at BEGIN, stay those of the settings that COMMIT leaves, where they are others.
	told, stay map[string]string
}

// New are those of a session that begins: the client is told of reported.
func New(defaults *executor.Settings, reported map[string]string, user string, bytesMax int) *Session {
	g := &Session{Defaults: defaults, Settings: defaults, Reported: reported, Early: defaults.BeganAs() == 0 && defaults.Login() == nil, bytesMax: bytesMax}
	// The client's own name; on the shards it is the one of the shard's URL.
	g.Reported["session_authorization"] = user
	g.Note("application_name", g.Reported["application_name"])
	g.untold = nil
	return g
}

// Inherit gives a session that began while the default shard could not be reached what it would have begun with: in effect, and as defaults.
func (g *Session) Inherit(settings, defaults *executor.Settings) {
	g.Early, g.Settings, g.Defaults = false, settings, defaults
}

// Saved is what a savepoint goes back to.
type Saved struct {
	Settings, keep *executor.Settings
	told, stay     map[string]string
}

// Begin is for the beginning of a transaction.
func (g *Session) Begin() {
	g.inTx, g.Before, g.Keep, g.told, g.stay = true, g.Settings, g.Settings, maps.Clone(g.Reported), nil
}

// End is for its end: the settings become those of COMMIT, or of BEGIN. The client is told of those that no shard has told it of.
func (g *Session) End(committed bool) {
	before, told, stay := g.Before, g.told, g.stay
	if g.Settings = before; committed {
		g.Settings = g.Keep
	}
	g.inTx, g.Timed, g.Before, g.Keep, g.told, g.stay = false, false, nil, nil, nil, nil
	g.retold(told, before, g.Settings)
	if committed {
		for _, name := range slices.Sorted(maps.Keys(stay)) { // SET LOCAL's values have ended
			if g.Reported[name] != stay[name] {
				g.Note(name, stay[name])
			}
		}
	}
}

// Save is for a savepoint.
func (g *Session) Save() Saved {
	return Saved{Settings: g.Settings, keep: g.Keep, told: maps.Clone(g.Reported), stay: maps.Clone(g.stay)}
}

// RollBack goes back to a savepoint.
func (g *Session) RollBack(to Saved) {
	g.Settings, g.Keep, g.stay = to.Settings, to.keep, maps.Clone(to.stay)
	g.retold(to.told, g.Settings, g.Settings)
}

// Fail is for an error in a transaction block: what it had set ends with it. to is its last savepoint, nil if there is none.
func (g *Session) Fail(to *Saved) {
	if to == nil {
		g.retold(g.told, g.Before, g.Before)
		return
	}
	g.retold(to.told, to.Settings, to.Settings)
}

// Adopt makes settings that were accepted those in effect: next, and keep when the transaction commits.
func (g *Session) Adopt(next, keep *executor.Settings) {
	g.Settings = next
	if !g.inTx {
		return
	}
	g.Keep = keep
	// What the client was told of the settings that are as COMMIT leaves them.
	if g.stay == nil {
		g.stay = map[string]string{}
	}
	for name, value := range g.Reported {
		now, set := next.Get(strings.ToLower(name))
		if then, still := keep.Get(strings.ToLower(name)); now == then && set == still {
			g.stay[name] = value
		}
	}
}

// kept are the settings that stay: those that COMMIT leaves, or those in effect where there is no transaction.
func (g *Session) kept() *executor.Settings {
	if g.inTx {
		return g.Keep
	}
	return g.Settings
}

// retold tells the client of settings that are as they were when it was told of them, where no shard has said so. now are the
// settings, then were those at that time.
func (g *Session) retold(told map[string]string, then, now *executor.Settings) {
	var changed []string
	for name, was := range told {
		if g.Reported[name] != was {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		a, set := then.Get(strings.ToLower(name))
		if b, still := now.Get(strings.ToLower(name)); a == b && set == still {
			g.Note(name, told[name])
		}
	}
}

// OnShards are the session's settings as the conversation of its next statement is to have them.
func (g *Session) OnShards() *executor.Settings { return g.OnShardsAs(g.Settings) }

// OnShardsAs is OnShards if s were the session's settings: those of a schema change begin without the timeouts of its start.
func (g *Session) OnShardsAs(s *executor.Settings) *executor.Settings {
	if !g.Timed {
		return s
	}
	return s.Timed()
}

// OneSnapshot reports whether the settings ask for more than READ COMMITTED.
func (g *Session) OneSnapshot() bool {
	v, _ := g.Settings.Get("default_transaction_isolation")
	v = strings.ToLower(v)
	return strings.Contains(v, "repeatable") || strings.Contains(v, "serializable")
}

// parameter is one that has changed since the client was told of it, with the value that the client knows.
type parameter struct{ name, knows string }

// Note takes up what a shard, or the router, says that a parameter is now.
func (g *Session) Note(name, value string) {
	if !slices.ContainsFunc(g.untold, func(p parameter) bool { return p.name == name }) {
		g.untold = append(g.untold, parameter{name, g.Reported[name]})
	}
	g.Reported[name] = value
	if name == "application_name" {
		g.application.Store(&value)
	}
}

// Tell tells the client of the parameters that have changed since the last ReadyForQuery, as PostgreSQL does from version 14 on
// (ReportChangedGUCOptions in src/backend/utils/misc/guc.c). Up to version 15 it does so in the order of their names.
func (g *Session) Tell(buf []byte) []byte {
	if len(g.untold) == 0 {
		return buf
	}
	if major, _, _ := strings.Cut(g.Reported["server_version"], "."); major < "16" {
		slices.SortStableFunc(g.untold, func(a, b parameter) int { return strings.Compare(strings.ToLower(a.name), strings.ToLower(b.name)) })
	}
	for _, p := range g.untold {
		if value := g.Reported[p.name]; value != p.knows {
			buf = wire.AppendParameterStatus(buf, p.name, value)
		}
	}
	g.untold = g.untold[:0]
	return buf
}

// Untell forgets what has changed since the last ReadyForQuery, which is undone.
func (g *Session) Untell() {
	for _, p := range g.untold {
		g.Reported[p.name] = p.knows
	}
	g.untold = g.untold[:0]
}

// After returns the settings as they are after the statement: those in effect,
// and those that stay when the transaction commits.
func (g *Session) After(s *plan.Set) (next, keep *executor.Settings, err error) {
	return g.change(s, g.Settings, g.kept())
}

// change is after, where the settings were next and keep before.
func (g *Session) change(s *plan.Set, next, keep *executor.Settings) (*executor.Settings, *executor.Settings, error) {
	switch s.Op {
	case "set", "reset":
		name, value := strings.ToLower(s.Name), s.Value
		if s.Op == "reset" {
			value = ""
		}
		if value == "" {
			if err := Check(name, ""); err != nil {
				return nil, nil, err
			}
			value, _ = g.Defaults.Get(name)
		} else if err := Check(name, value); err != nil {
			return nil, nil, err
		}
		if name == "client_encoding" || name == "names" {
			return next, keep, nil // UTF8 already
		}
		if utility.OfTransaction(name) {
			return next, keep, nil // a shard says what is wrong with it
		}
		if name == "session_authorization" {
			name, value = "role", "" // whose reset ends the role too
		}
		if name == "datestyle" && s.Value != "" { // what is reset forgets what was before
			// Completed by what holds now, which may be a SET LOCAL.
			before, _ := next.Get(name)
			reset, _ := g.Defaults.Get(name)
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
		next, keep = withRoleOf(g.Defaults, next), withRoleOf(g.passedOver(keep), keep)
	}
	if next.Size() > g.bytesMax {
		return nil, nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "the session's settings are over %d bytes", g.bytesMax)
	}
	return next, keep, nil
}

// passedOver are the defaults with those of keep that RESET ALL leaves to a COMMIT: it passes over what has its default value because of
// SET LOCAL .. TO DEFAULT (PostgreSQL, ResetAllOptions).
func (g *Session) passedOver(keep *executor.Settings) *executor.Settings {
	left, now := g.Defaults, map[string]executor.Setting{}
	for _, e := range g.Settings.List() {
		now[e.Name] = e
	}
	for _, e := range keep.List() {
		// What the router does not know the start of is absent when it has that value.
		has, set := now[e.Name]
		if _, starts := g.Defaults.Get(e.Name); !set && !starts || has.Default {
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

// Resets reports whether a SET has a value that it takes from the session's start, which the shard does not know.
func (g *Session) Resets(s *plan.Set) bool {
	name := strings.ToLower(s.Name)
	if _, defaulted := g.OnShardsAs(g.Defaults).Get(name); !defaulted {
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

// Traceparent is the client's span, as W3C Trace Context writes it; one of the router's own settings.
const Traceparent = "cleave.traceparent"

// Parent is the client's span as the setting has it.
func (g *Session) Parent() trace.Parent {
	v, ok := g.Settings.Get(Traceparent)
	if !ok {
		return trace.Parent{}
	}
	p, _ := trace.ParseParent(Unquoted(v)) // it was checked
	return p
}

// ApplicationName is the client's name for itself, "" if it gave none.
func (g *Session) ApplicationName() string {
	if p := g.application.Load(); p != nil {
		return *p
	}
	return ""
}
