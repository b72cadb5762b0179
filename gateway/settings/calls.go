package settings

import (
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/sqlstate"
)

// set_config() is a function, so a statement may call it anywhere. Two things are done with it.
//
// A SELECT of nothing but such calls, with literals and parameters, does what SET does: what it sets is known before. It runs on
// the conversation that SET would run on.
//
// Any other statement runs where it belongs. Whether it makes the call, and with what value, only the shard knows. So the shard is
// asked behind it what the settings are that it names.

// Call is a call of set_config() with the values of its arguments.
type Call struct {
	Name     string
	value    string
	null     bool // the value is NULL: the setting is reset
	computed bool // a shard computes the value
	Local    bool
	at       int // of plan.Statement.Sets
}

// Said is the call with the value that a shard says the setting has now.
func (c Call) Said(value string) Call {
	c.value, c.null, c.computed = value, false, false
	return c
}

// OnlySets reports whether a statement is a SELECT of nothing but set_config() with literals and parameters.
func OnlySets(st *plan.Statement) bool {
	return st.Kind == plan.SetKind && st.Set.Op == "set_config"
}

// asSet is the call as a SET.
func (c Call) asSet() *plan.Set {
	s := &plan.Set{Op: "set", Name: c.Name, Local: c.Local}
	if !c.null {
		s.Value = listOf(c.Name, executor.QuoteLiteral(c.value), c.value)
	}
	return s
}

// Calls are the calls of a statement with these arguments, without those that a shard refuses.
func (g *Session) Calls(st *plan.Statement, args *plan.Args) ([]Call, error) {
	if len(st.Sets) == 0 {
		return nil, nil
	}
	var calls []Call
	for i, s := range st.Sets {
		name, null, known := textArg(s.Name, args)
		if null {
			continue
		}
		local, is, ok := boolArg(s.Local, args)
		if !known || !is {
			return nil, sqlstate.Refusal("CLV-1213", "set_config() with parameters of other types than text and boolean is not supported").
				WithHint("Cast them in the client.")
		}
		c := Call{Name: executor.FoldASCII(name), Local: local, at: i}
		c.value, c.null, known = textArg(s.Value, args)
		c.computed = !known
		if err := g.maySet(st, c); err != nil {
			return nil, err
		}
		if ok {
			calls = append(calls, c)
		}
	}
	return calls, nil
}

// maySet refuses what the router has to know before a shard has it, or cannot follow.
func (g *Session) maySet(st *plan.Statement, c Call) error {
	switch {
	case utility.OwnSetting(c.Name):
		return sqlstate.Refusal("CLV-1214", "set_config() of %s is not supported", c.Name).WithHint("Run SET %s = '...'.", c.Name)
	case utility.OfTransaction(c.Name):
		return sqlstate.Refusal("CLV-1215", "set_config() of a transaction's setting, %s, is not supported", c.Name).
			WithHint("Run SET TRANSACTION ISOLATION LEVEL ..., READ ONLY or DEFERRABLE.")
	}
	value := ""
	if !c.null && !c.computed {
		value = c.asSet().Value
	}
	if err := Check(c.Name, value); err != nil || OnlySets(st) && !c.computed {
		return err
	}
	if beforehand[c.Name] && (c.computed || saysNames[c.Name]) || strings.HasPrefix(c.Name, "pg_trgm.") { // whose values are shown with six digits
		return c.refuseWithin("")
	}
	_, starts := g.OnShardsAs(g.Defaults).Get(c.Name)
	if starts && (c.computed || g.Resets(c.asSet())) { // a shard would reset it to its own default
		return c.refuseWithin(", which was given at the session's start,")
	}
	return nil
}

// refuseWithin refuses a call inside of a larger statement, which is supported by itself; of says more of the setting.
func (c Call) refuseWithin(of string) error {
	return sqlstate.Refusal("CLV-1216", "set_config() of %s%s inside a larger statement is not supported", c.Name, of).
		WithHint("Run SELECT set_config('%s', '...', false) by itself, or SET.", c.Name)
}

// saysNames are settings that say what names mean, or who may use them, while the statement goes on.
var saysNames = map[string]bool{"search_path": true, "role": true, "session_authorization": true}

// beforehand are settings whose values the router judges before a shard has them.
var beforehand = map[string]bool{
	"search_path": true, "role": true, "session_authorization": true, "client_encoding": true, "names": true, "standard_conforming_strings": true,
	"transform_null_equals": true, "session_replication_role": true, "restrict_nonsystem_relation_kind": true, "seed": true,
}

// MayCall is asked before calls are made, which may be later than they were bound.
func (g *Session) MayCall(st *plan.Statement, calls []Call) error {
	if len(calls) == 0 || !OnlySets(st) {
		return g.alikeCalls(st, calls)
	}
	_, _, err := g.Called(calls)
	return err
}

// alikeCalls refuses calls inside a larger statement of which the shard's answer would not tell enough.
func (g *Session) alikeCalls(st *plan.Statement, calls []Call) error {
	if len(calls) == 0 {
		return nil
	}
	local := map[string]bool{}
	for _, c := range calls {
		if l, seen := local[c.Name]; seen && l != c.Local {
			return sqlstate.Refusal("CLV-1217", "set_config() of %s for the transaction and for the session in one larger statement is not supported", c.Name).
				WithHint("Set it in two statements.")
		}
		local[c.Name] = c.Local
		if c.Local || !g.inTx {
			continue
		}
		now, set := g.Settings.Get(c.Name)
		if keep, stays := g.Keep.Get(c.Name); now != keep || set != stays {
			return c.refuseWithin(" for the session, behind SET LOCAL,")
		}
	}
	return nil
}

// textTypes are those of parameters whose bytes are a text's.
var textTypes = map[uint32]bool{0: true, 25: true, 705: true, 1043: true}

// textArg is the value of an argument that is a text; known: the router can tell.
func textArg(a plan.SetArg, args *plan.Args) (text string, null, known bool) {
	if a.Param == 0 {
		return a.Text, a.Null, !a.Computed
	}
	value, oid, _, _ := args.Param(a.Param)
	return string(value), value == nil, textTypes[oid]
}

// boolArg is the value of an argument that is true or false, NULL being false; known: the router can tell, ok: a shard takes it.
func boolArg(a plan.SetArg, args *plan.Args) (on, known, ok bool) {
	if a.Param == 0 {
		on, ok = utility.ParseBool(a.Text)
		return on, !a.Computed, ok || a.Null
	}
	value, oid, format, _ := args.Param(a.Param)
	switch {
	case value == nil:
		return false, true, true
	case format == 1 && (oid == 0 || oid == 16):
		return len(value) == 1 && value[0] != 0, true, len(value) == 1
	}
	on, ok = utility.ParseBool(string(value))
	return on, textTypes[oid] || oid == 16, ok
}

// Called are the settings after the calls, which are known: those in effect, and those that stay when the transaction commits.
func (g *Session) Called(calls []Call) (next, keep *executor.Settings, err error) {
	next, keep = g.Settings, g.kept()
	for _, c := range calls {
		if next, keep, err = g.change(c.asSet(), next, keep); err != nil {
			return nil, nil, err
		}
	}
	return next, keep, nil
}

// WithStarts is the text in which literals that mean the session's start, which a shard does not know, are what it is.
func (g *Session) WithStarts(st *plan.Statement, calls []Call) (string, error) {
	text, shift := st.Text, 0
	for _, c := range calls {
		arg := st.Sets[c.at].Value
		if arg.Param > 0 || !g.Resets(c.asSet()) {
			continue
		}
		if arg.To == 0 {
			return "", refusedStart(c.Name)
		}
		value := executor.QuoteLiteral(g.startOf(c))
		text = text[:arg.From+shift] + value + text[arg.To+shift:]
		shift += len(value) - (arg.To - arg.From)
	}
	return text, nil
}

// StartValues are the parameters' values in which those that mean the session's start are what it is.
func (g *Session) StartValues(st *plan.Statement, calls []Call, params [][]byte) (values [][]byte, changed bool, err error) {
	values = append([][]byte(nil), params...)
	for _, c := range calls {
		arg := st.Sets[c.at].Value
		if c.computed || !g.Resets(c.asSet()) {
			continue
		}
		uses := 0
		for _, s := range st.Sets {
			for _, other := range []plan.SetArg{s.Name, s.Value} {
				if other.Param == arg.Param {
					uses++
				}
			}
		}
		if arg.Param == 0 || uses != 1 || !OnlySets(st) {
			return nil, false, refusedStart(c.Name)
		}
		values[arg.Param-1], changed = []byte(g.startOf(c)), true
	}
	return values, changed, nil
}

func refusedStart(name string) error {
	return sqlstate.Refusal("CLV-1111", "set_config() of %s with the value of the session's start is not supported in a prepared statement", name).
		WithHint("Run RESET %s, or SET %s TO DEFAULT.", name, name)
}

// startOf is the value that the session's start gives to a call.
func (g *Session) startOf(c Call) string {
	next, _, err := g.change(&plan.Set{Op: "set", Name: c.Name, Value: c.asSet().Value}, g.Settings, g.Settings)
	if err != nil {
		return ""
	}
	value, _ := g.OnShardsAs(next).Get(c.Name)
	if c.Name == "datestyle" {
		value = executor.MergeDateStyle(next.Began("datestyle"), value, "") // what only one half is given of would keep the other of now
	}
	return executor.Plain(value)
}
