package gateway

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// set_config() is a function, so a statement may call it anywhere. Two things are done with it.
//
// A SELECT of nothing but such calls, with literals and parameters, does what SET does: what it sets is known before. It runs on
// the conversation that SET would run on.
//
// Any other statement runs where it belongs. Whether it makes the call, and with what value, only the shard knows. So the shard is
// asked behind it what the settings are that it names.

// setCall is a call of set_config() with the values of its arguments.
type setCall struct {
	name     string
	value    string
	null     bool // the value is NULL: the setting is reset
	computed bool // a shard computes the value
	local    bool
	at       int // of planner.Statement.Sets
}

// onlySets reports whether a statement is a SELECT of nothing but set_config() with literals and parameters.
func onlySets(st *planner.Statement) bool {
	return st.Kind == planner.SetKind && st.Set.Op == "set_config"
}

// asSet is the call as a SET.
func (c setCall) asSet() *planner.Set {
	s := &planner.Set{Op: "set", Name: c.name, Local: c.local}
	if !c.null {
		s.Value = listOf(c.name, executor.QuoteLiteral(c.value), c.value)
	}
	return s
}

// setCalls are the calls of a statement with these arguments, without those that a shard refuses.
func (g *gucs) setCalls(st *planner.Statement, args *planner.Args) ([]setCall, error) {
	if len(st.Sets) == 0 {
		return nil, nil
	}
	var calls []setCall
	for i, s := range st.Sets {
		name, null, known := textArg(s.Name, args)
		if null {
			continue
		}
		local, is, ok := boolArg(s.Local, args)
		if !known || !is {
			return nil, sqlstate.Refusal("CLV-1213", "set_config() with parameters of other types than text and boolean is not supported").
				WithHint("cast them in the client")
		}
		c := setCall{name: executor.FoldASCII(name), local: local, at: i}
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
func (g *gucs) maySet(st *planner.Statement, c setCall) error {
	switch {
	case planner.OwnSetting(c.name):
		return sqlstate.Refusal("CLV-1214", "set_config() of %s is not supported", c.name).WithHint("SET %s = '...'", c.name)
	case planner.OfTransaction(c.name):
		return sqlstate.Refusal("CLV-1215", "set_config() of a transaction's setting, %s, is not supported", c.name).
			WithHint("SET TRANSACTION ISOLATION LEVEL ..., READ ONLY or DEFERRABLE")
	}
	value := ""
	if !c.null && !c.computed {
		value = c.asSet().Value
	}
	if err := checkSetting(c.name, value); err != nil || onlySets(st) && !c.computed {
		return err
	}
	if beforehand[c.name] && (c.computed || saysNames[c.name]) || strings.HasPrefix(c.name, "pg_trgm.") { // whose values are shown with six digits
		return c.refuseWithin("")
	}
	_, starts := g.onShardsAs(g.defaults).Get(c.name)
	if starts && (c.computed || g.resets(c.asSet())) { // a shard would reset it to its own default
		return c.refuseWithin(", which was given at the session's start,")
	}
	return nil
}

// refuseWithin refuses a call inside of a larger statement, which is supported by itself; of says more of the setting.
func (c setCall) refuseWithin(of string) error {
	return sqlstate.Refusal("CLV-1216", "set_config() of %s%s inside a larger statement is not supported", c.name, of).
		WithHint("SELECT set_config('%s', '...', false) by itself, or SET", c.name)
}

// saysNames are settings that say what names mean, or who may use them, while the statement goes on.
var saysNames = map[string]bool{"search_path": true, "role": true, "session_authorization": true}

// beforehand are settings whose values the router judges before a shard has them.
var beforehand = map[string]bool{
	"search_path": true, "role": true, "session_authorization": true, "client_encoding": true, "names": true, "standard_conforming_strings": true,
	"transform_null_equals": true, "session_replication_role": true, "restrict_nonsystem_relation_kind": true, "seed": true,
}

// mayCall is asked before calls are made, which may be later than they were bound.
func (g *gucs) mayCall(st *planner.Statement, calls []setCall) error {
	if len(calls) == 0 || !onlySets(st) {
		return g.alikeCalls(st, calls)
	}
	_, _, err := g.called(calls)
	return err
}

// alikeCalls refuses calls inside a larger statement of which the shard's answer would not tell enough.
func (g *gucs) alikeCalls(st *planner.Statement, calls []setCall) error {
	if len(calls) == 0 {
		return nil
	}
	local := map[string]bool{}
	for _, c := range calls {
		if l, seen := local[c.name]; seen && l != c.local {
			return sqlstate.Refusal("CLV-1217", "set_config() of %s for the transaction and for the session in one larger statement is not supported", c.name).
				WithHint("set it in two statements")
		}
		local[c.name] = c.local
		if c.local || !g.inTx {
			continue
		}
		now, set := g.settings.Get(c.name)
		if keep, stays := g.keep.Get(c.name); now != keep || set != stays {
			return c.refuseWithin(" for the session, behind SET LOCAL,")
		}
	}
	return nil
}

// textTypes are those of parameters whose bytes are a text's.
var textTypes = map[uint32]bool{0: true, 25: true, 705: true, 1043: true}

// textArg is the value of an argument that is a text; known: the router can tell.
func textArg(a planner.SetArg, args *planner.Args) (text string, null, known bool) {
	if a.Param == 0 {
		return a.Text, a.Null, !a.Computed
	}
	value, oid, _, _ := args.Param(a.Param)
	return string(value), value == nil, textTypes[oid]
}

// boolArg is the value of an argument that is true or false, NULL being false; known: the router can tell, ok: a shard takes it.
func boolArg(a planner.SetArg, args *planner.Args) (on, known, ok bool) {
	if a.Param == 0 {
		on, ok = planner.ParseBool(a.Text)
		return on, !a.Computed, ok || a.Null
	}
	value, oid, format, _ := args.Param(a.Param)
	switch {
	case value == nil:
		return false, true, true
	case format == 1 && (oid == 0 || oid == 16):
		return len(value) == 1 && value[0] != 0, true, len(value) == 1
	}
	on, ok = planner.ParseBool(string(value))
	return on, textTypes[oid] || oid == 16, ok
}

// called are the settings after the calls, which are known: those in effect, and those that stay when the transaction commits.
func (g *gucs) called(calls []setCall) (next, keep *executor.Settings, err error) {
	next, keep = g.settings, g.kept()
	for _, c := range calls {
		if next, keep, err = g.change(c.asSet(), next, keep); err != nil {
			return nil, nil, err
		}
	}
	return next, keep, nil
}

// took makes what the calls of a statement have set the session's.
func (x *commands) took(st *planner.Statement, calls []setCall) error {
	if x.tx.state == txNone { // SET LOCAL has ended with the statement
		calls = slices.DeleteFunc(slices.Clone(calls), func(c setCall) bool { return c.local })
	}
	if !onlySets(st) {
		var err error
		if calls, err = x.shards.learnSet(calls); err != nil {
			return err
		}
	}
	next, keep, err := x.gucs.called(calls)
	if err == nil {
		x.adoptCalls(calls, next, keep)
	}
	return err
}

// learnSet asks the statement's shard what the settings of calls are now, and returns the calls with those as their values. Whether a call was
// made does not matter: the setting is what it is, unless SET LOCAL and SET differ, see alikeCalls.
func (b *shardConns) learnSet(calls []setCall) ([]setCall, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	calls = slices.Clone(calls)
	var list []string
	for _, c := range calls {
		list = append(list, "pg_catalog.current_setting("+executor.QuoteLiteral(c.name)+", true)")
	}
	sql := "SELECT " + strings.Join(list, ", ")
	res, err := (*engine.Result)(nil), error(nil)
	if c, ok := b.pipe.Conn.Conn.(*several.Conn); ok {
		res, err = c.AskSetter(sql)
	} else {
		res, err = b.exec(b.pipe.Conn, sql)
	}
	if err != nil {
		return nil, b.shardSaid(b.pipe.Conn, err)
	}
	if len(res.Rows) != 1 || len(res.Rows[0]) != len(calls) {
		b.pipe.Conn.Break()
		return nil, sqlstate.New(sqlstate.InternalError, "a shard did not say what its settings are")
	}
	set := calls[:0]
	for i, v := range res.Rows[0] {
		if !v.Null { // else no call was made, and it was never set
			calls[i].value, calls[i].null, calls[i].computed = v.String, false, false
			set = append(set, calls[i])
		}
	}
	return set, nil
}

// adoptCalls makes settings that a shard has accepted the session's.
func (x *commands) adoptCalls(calls []setCall, next, keep *executor.Settings) {
	x.unit.effects = true
	if x.tx.state == txNone {
		next = keep
	}
	x.gucs.adopt(next, keep)
	if c := x.pipe.Conn; c != nil && !x.pipe.virtual() {
		c.SetSettings(x.gucs.onShards())
	}
	if x.tx.state != txNone && x.tx.deferring() {
		for _, c := range calls {
			of := keep
			if c.local {
				of = next
			}
			x.tx.log = append(x.tx.log, of.Statement(c.name, c.local))
		}
	}
}

// relayOnlySets runs a SELECT of nothing but set_config() of a simple query.
func (x *commands) relayOnlySets(st *planner.Statement) error {
	calls, err := x.gucs.setCalls(st, nil)
	if err != nil {
		return err
	}
	if err := x.gucs.mayCall(st, calls); err != nil {
		return err
	}
	text, err := x.gucs.withStarts(st, calls)
	if err != nil {
		return err
	}
	if err := x.reachForSet(); err != nil {
		return err
	}
	x.pipe.Query(text)
	if _, err := x.converse(executor.None); err != nil {
		return placed(err, text, st.Text)
	}
	if err := x.took(st, calls); err != nil {
		return err
	}
	if x.tx.state == txNone {
		x.pipe.release()
	}
	return nil
}

// relaySets runs a statement of a simple query that calls set_config() inside.
func (x *commands) relaySets(st *planner.Statement, calls []setCall, sql string) error {
	x.pipe.Query(sql)
	if _, err := x.converse(executor.None); err != nil {
		return err
	}
	if err := x.took(st, calls); err != nil {
		return err
	}
	if x.pipe.outside() {
		x.pipe.release()
	}
	return nil
}

// withStarts is the text in which literals that mean the session's start, which a shard does not know, are what it is.
func (g *gucs) withStarts(st *planner.Statement, calls []setCall) (string, error) {
	text, shift := st.Text, 0
	for _, c := range calls {
		arg := st.Sets[c.at].Value
		if arg.Param > 0 || !g.resets(c.asSet()) {
			continue
		}
		if arg.To == 0 {
			return "", refusedStart(c.name)
		}
		value := executor.QuoteLiteral(g.startOf(c))
		text = text[:arg.From+shift] + value + text[arg.To+shift:]
		shift += len(value) - (arg.To - arg.From)
	}
	return text, nil
}

// startParams is the body of a Bind in which parameters that mean the session's start are what it is.
func (x *prepared) startParams(st *planner.Statement, calls []setCall, rest []byte) ([]byte, error) {
	values := append([][]byte(nil), x.args.Values...)
	changed := false
	for _, c := range calls {
		arg := st.Sets[c.at].Value
		if c.computed || !x.gucs.resets(c.asSet()) {
			continue
		}
		uses := 0
		for _, s := range st.Sets {
			for _, other := range []planner.SetArg{s.Name, s.Value} {
				if other.Param == arg.Param {
					uses++
				}
			}
		}
		if arg.Param == 0 || uses != 1 || !onlySets(st) {
			return nil, refusedStart(c.name)
		}
		values[arg.Param-1], changed = []byte(x.gucs.startOf(c)), true
	}
	if !changed {
		return rest, nil
	}
	return x.withValues(rest, values), nil
}

func refusedStart(name string) error {
	return sqlstate.Refusal("CLV-1111", "set_config() of %s with the value of the session's start is not supported in a prepared statement", name).
		WithHint("RESET %s, or SET %s TO DEFAULT", name, name)
}

// startOf is the value that the session's start gives to a call.
func (g *gucs) startOf(c setCall) string {
	next, _, err := g.change(&planner.Set{Op: "set", Name: c.name, Value: c.asSet().Value}, g.settings, g.settings)
	if err != nil {
		return ""
	}
	value, _ := g.onShardsAs(next).Get(c.name)
	if c.name == "datestyle" {
		value = executor.MergeDateStyle(next.Began("datestyle"), value, "") // what only one half is given of would keep the other of now
	}
	return executor.Plain(value)
}

// boundCalls is setCalls for a Bind, whose body it may change.
func (x *prepared) boundCalls(st *planner.Statement, rest []byte) ([]setCall, []byte, error) {
	if len(st.Sets) == 0 {
		return nil, rest, nil
	}
	calls, err := x.gucs.setCalls(st, &x.args)
	if err != nil {
		return nil, rest, err
	}
	if err := x.gucs.mayCall(st, calls); err != nil {
		return nil, rest, err
	}
	rest, err = x.startParams(st, calls, rest)
	return calls, rest, err
}
