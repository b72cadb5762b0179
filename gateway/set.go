package gateway

import (
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// relayedSet reports whether a shard answers the statement itself (SHOW,
// set_config), as opposed to SET and RESET, whose only answer is a tag.
func relayedSet(st *plan.Statement) bool {
	if st.Kind != plan.SetKind || settings.Own(st.Set) {
		return false
	}
	switch st.Set.Op {
	case "show", "show all", "set_config":
		return true
	}
	return false
}

// reachForSet makes pipe.Conn a conversation that has the session's settings:
// the transaction's, the default shard's, or, if that is down, any other.
func (x *prepared) reachForSet() error {
	u := use{readOnly: true, weak: true, blind: true, reroutable: brief}
	if x.tx.conn != nil {
		return x.reach(x.tx.conn.Shard(), u)
	}
	if x.tx.schema != nil && x.tx.shard != "" {
		return x.reach(x.tx.shard, u)
	}
	return x.reach(x.srv.ex.Snapshot().State().DefaultShard, u)
}

// relaySet runs SHOW and set_config of a simple query.
func (x *commands) relaySet(st *plan.Statement) error {
	if settings.OnlySets(st) {
		return x.relayOnlySets(st)
	}
	if err := x.reachForSet(); err != nil {
		return err
	}
	x.pipe.Query(st.Text)
	if _, err := x.converse(executor.None); err != nil {
		return err
	}
	if x.tx.state == txNone {
		x.pipe.release()
	}
	return nil
}

// adopt makes settings that a shard has accepted the session's.
func (x *unitRun) adopt(st *plan.Statement, next, keep *executor.Settings) {
	x.unit.effects = true
	x.gucs.Adopt(next, keep)
	if c := x.pipe.Conn; c != nil && !x.pipe.virtual() {
		c.SetSettings(x.gucs.OnShards())
	}
	if x.tx.state == txNone {
		x.gucs.Settings = keep
	} else if x.tx.deferring() {
		x.tx.log = append(x.tx.log, st.Text)
	}
}

// set runs SET, RESET and DISCARD. A shard judges the value, so that errors,
// notices and what is reported to the client are its own.
func (x *commands) set(st *plan.Statement) error {
	s := st.Set
	if s.Op == "discard" {
		return x.discard(st)
	}
	if settings.Own(s) {
		return x.setOwn(st)
	}
	next, keep, err := x.gucs.After(s)
	if err != nil {
		return err
	}
	if x.tx.state != txNone && len(x.tx.log) >= x.srv.limits.DeferredMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the transaction has run %d statements without touching a shard", len(x.tx.log))
	}
	if err := x.drain(); err != nil {
		return err
	}
	// RESET goes back to the startup parameters, which the shard does not know
	// as such: it gets the difference.
	resets := x.gucs.Resets(s)
	if s.Local && resets && x.tx.state == txNone {
		x.w.warning(sqlstate.NoActiveTransaction, "SET LOCAL can only be used in transaction blocks")
	}
	if s.Op == "reset all" || resets {
		return x.changeTo(st, next, keep)
	}
	if x.tx.state != txNone && x.tx.conn == nil && x.tx.schema == nil {
		return x.trySet(st, next, keep)
	}
	if err := x.reachForSet(); err != nil {
		return err
	}
	x.pipe.Query(st.Text)
	if _, err := x.converse(executor.None); err != nil {
		return err
	}
	x.adopt(st, next, keep)
	if x.tx.state == txNone {
		x.pipe.release()
	}
	return nil
}

// trySet runs a SET in a transaction that is not bound yet: a shard judges it in
// a transaction that is rolled back, and it is remembered.
func (x *commands) trySet(st *plan.Statement, next, keep *executor.Settings) error {
	if x.pipe.outside() { // it is no conversation of the SET's
		if err := x.leave(); err != nil {
			return err
		}
	}
	u := use{readOnly: true, weak: true, reroutable: brief}
	c, err := x.shards.obtain(x.srv.ex.Snapshot().State().DefaultShard, u, x.gucs.Before)
	if err != nil {
		return err
	}
	defer c.Release()
	_ = c.SetDeadline(time.Now().Add(answerMax)) // a Conn that fails here fails below
	defer func() {
		if c.Broken() {
			return
		}
		if _, err := c.Exec("ROLLBACK"); err != nil || c.SetDeadline(time.Time{}) != nil {
			c.Break()
		}
	}()
	if _, err := x.shards.exec(c, strings.Join(append([]string{"BEGIN"}, x.tx.log...), ";")); err != nil {
		return x.shards.shardSaid(c, err)
	}
	p := executor.Pipeline{Conn: c}
	p.Query(st.Text)
	x.shards.setRunning(c)
	o, err := p.Run(executor.None, &x.w)
	x.shards.setRunning(nil)
	if err != nil {
		return x.shards.shardSaid(c, err)
	}
	if o.Err != nil {
		return &shardError{said: o.Err, frame: append([]byte(nil), p.ErrorFrame()...)}
	}
	x.adopt(st, next, keep)
	return nil
}

// changeTo gives the session's conversation other settings and tells the client
// what that changed.
func (x *commands) changeTo(st *plan.Statement, next, keep *executor.Settings) error {
	if x.tx.state != txNone && x.tx.conn == nil && x.tx.schema == nil {
		// Not bound: bind, weakly, so that there is a shard to judge it.
		if err := x.reachForSet(); err != nil {
			return err
		}
	}
	if err := x.reachForSet(); err != nil {
		return err
	}
	c := x.pipe.Conn
	list := c.LastingChanges(x.gucs.OnShardsAs(next), x.gucs.Keep, keep)
	if st.Set != nil && st.Set.Local { // nil for SET SESSION CHARACTERISTICS
		list = c.LocalChanges(x.gucs.OnShardsAs(next))
	}
	changes := strings.Join(list, ";")
	if x.tx.state == txNone {
		_ = c.SetDeadline(time.Now().Add(answerMax)) // a Conn that fails here fails below
		err := c.ApplyReport(next, x.w.Parameter)
		if err == nil {
			err = c.SetDeadline(time.Time{})
		}
		if err != nil {
			c.Break()
			x.pipe.release()
			return x.shards.shardSaid(c, err)
		}
	} else if len(changes) > 0 {
		p := executor.Pipeline{Conn: c}
		p.Query(changes)
		o, err := p.Run(executor.None, &capture{par: x.w.Parameter})
		if err != nil {
			return x.lost(err, nil, executor.None, anchored)
		}
		if o.Err != nil {
			return o.Err
		}
		if x.tx.weak {
			x.tx.log = append(x.tx.log, changes)
		}
	}
	weak := x.tx.weak
	x.tx.weak = false // adopt must not log the statement itself
	x.adopt(st, next, keep)
	x.tx.weak = weak
	if x.tx.state == txNone {
		x.pipe.release()
	}
	x.w.complete(st.Tag)
	return nil
}

// discard runs DISCARD. Plans and temporary tables are never left on a shard's
// connection, and sequences' last values are not kept there either.
func (x *commands) discard(st *plan.Statement) error {
	if st.Set.What == "all" {
		if err := x.notInBlock("DISCARD ALL"); err != nil {
			return err
		}
		if err := x.drain(); err != nil {
			return err
		}
		// The settings come first: a shard is asked for them, which may fail. Then nothing has been discarded.
		if err := x.changeTo(st, x.gucs.Defaults, x.gucs.Defaults); err != nil {
			return err
		}
		x.statements.Clear()
		x.portals.Ended(nil)
		x.forgetSequences()
		x.held.CloseAll()
		x.listener.UnlistenAll()
		x.shards.unpin()
		return nil
	}
	switch {
	case st.Set.What == "sequences":
		x.forgetSequences()
	case st.Set.What == "temp" && x.shards.pin != nil:
		if err := x.drain(); err != nil {
			return err
		}
		if err := x.reach(x.shards.pin.Shard(), use{}); err != nil {
			return err
		}
		x.pipe.Query("DISCARD TEMP")
		_, err := x.converse(executor.None)
		x.shards.dropped = true
		if err == nil {
			if x.tx.state == txNone {
				x.shards.temps = nil
			}
			if x.pipe.outside() {
				x.pipe.release()
			}
		}
		return err
	}
	x.unit.effects = true
	x.w.complete(st.Tag)
	return nil
}

// setCharacteristics runs SET SESSION CHARACTERISTICS AS TRANSACTION, which is
// SET of three default_transaction_... settings.
func (x *commands) setCharacteristics(st *plan.Statement) error {
	if x.tx.state != txNone && x.tx.failed {
		return inFailed()
	}
	words := strings.Fields(strings.ToLower(strings.NewReplacer(",", " ", ";", " ").Replace(st.Text)))
	var settings [][2]string
	for i := 0; i < len(words); i++ {
		next := func(k int) string {
			if i+k < len(words) {
				return words[i+k]
			}
			return ""
		}
		switch {
		case words[i] == "isolation" && next(1) == "level":
			level := next(2)
			if level == "read" || level == "repeatable" {
				level += " " + next(3)
				i++
			}
			i += 2
			settings = append(settings, [2]string{"default_transaction_isolation", executor.QuoteLiteral(level)})
		case words[i] == "read" && next(1) == "only":
			settings = append(settings, [2]string{"default_transaction_read_only", "on"})
			i++
		case words[i] == "read" && next(1) == "write":
			settings = append(settings, [2]string{"default_transaction_read_only", "off"})
			i++
		case words[i] == "not" && next(1) == "deferrable":
			settings = append(settings, [2]string{"default_transaction_deferrable", "off"})
			i++
		case words[i] == "deferrable":
			settings = append(settings, [2]string{"default_transaction_deferrable", "on"})
		}
	}
	next, keep := x.gucs.Settings, x.gucs.Settings
	if x.tx.state != txNone {
		keep = x.gucs.Keep
	}
	for _, s := range settings {
		next, keep = next.With(s[0], s[1]), keep.With(s[0], s[1])
	}
	return x.changeTo(st, next, keep)
}

// textOf is a value as text, nil for NULL.
func textOf(s string) []byte { return append(make([]byte, 0, len(s)), s...) }

// setOwn runs SET and RESET of the router's own settings.
func (x *commands) setOwn(st *plan.Statement) error {
	next, keep, err := x.gucs.After(st.Set)
	if err != nil {
		return err
	}
	if err := x.drain(); err != nil {
		return err
	}
	x.unit.effects = true
	switch {
	case x.tx.state != txNone:
		x.gucs.Settings, x.gucs.Keep = next, keep
	case st.Set.Local:
		x.w.warning(sqlstate.NoActiveTransaction, "SET LOCAL can only be used in transaction blocks")
	default:
		x.gucs.Settings = keep
	}
	x.w.complete(st.Tag)
	return nil
}

// showOwn answers SHOW of the router's own settings.
func (x *commands) showOwn(st *plan.Statement) *localResult {
	name := strings.ToLower(st.Set.Name)
	hint := x.shards.hint
	x.shards.hint = settings.ReadHint{}
	r := x.shards.rule()
	x.shards.hint = hint
	v := settings.OwnDefault(name)
	if v == "" {
		v = x.srv.several.Defaults().Show(name)
	}
	switch name {
	case settings.ReadPolicy:
		v = settings.PolicyName(r.Policy)
	case settings.MaxReplicaLag:
		v = "-1"
		if r.LagMax >= 0 {
			v = r.LagMax.String()
		}
	case settings.HoldTimeout:
		v = x.shards.holdTimeout().String()
	default:
		if set, ok := x.gucs.Settings.Get(name); ok {
			v = settings.Unquoted(set)
		}
	}
	return &localResult{columns: localColumns(st), values: [][][]byte{{textOf(v)}}, tag: "SHOW"}
}

// took makes what the calls of a statement have set the session's.
func (x *commands) took(st *plan.Statement, calls []settings.Call) error {
	if x.tx.state == txNone { // SET LOCAL has ended with the statement
		calls = slices.DeleteFunc(slices.Clone(calls), func(c settings.Call) bool { return c.Local })
	}
	if !settings.OnlySets(st) {
		var err error
		if calls, err = x.shards.learnSet(calls); err != nil {
			return err
		}
	}
	next, keep, err := x.gucs.Called(calls)
	if err == nil {
		x.adoptCalls(calls, next, keep)
	}
	return err
}

// learnSet asks the statement's shard what the settings of calls are now, and returns the calls with those as their values. Whether a call was
// made does not matter: the setting is what it is, unless SET LOCAL and SET differ, see alikeCalls.
func (b *shardConns) learnSet(calls []settings.Call) ([]settings.Call, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	calls = slices.Clone(calls)
	var list []string
	for _, c := range calls {
		list = append(list, "pg_catalog.current_setting("+executor.QuoteLiteral(c.Name)+", true)")
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
			set = append(set, calls[i].Said(v.String))
		}
	}
	return set, nil
}

// adoptCalls makes settings that a shard has accepted the session's.
func (x *commands) adoptCalls(calls []settings.Call, next, keep *executor.Settings) {
	x.unit.effects = true
	if x.tx.state == txNone {
		next = keep
	}
	x.gucs.Adopt(next, keep)
	if c := x.pipe.Conn; c != nil && !x.pipe.virtual() {
		c.SetSettings(x.gucs.OnShards())
	}
	if x.tx.state != txNone && x.tx.deferring() {
		for _, c := range calls {
			of := keep
			if c.Local {
				of = next
			}
			x.tx.log = append(x.tx.log, of.Statement(c.Name, c.Local))
		}
	}
}

// relayOnlySets runs a SELECT of nothing but set_config() of a simple query.
func (x *commands) relayOnlySets(st *plan.Statement) error {
	calls, err := x.gucs.Calls(st, nil)
	if err != nil {
		return err
	}
	if err := x.gucs.MayCall(st, calls); err != nil {
		return err
	}
	text, err := x.gucs.WithStarts(st, calls)
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
func (x *commands) relaySets(st *plan.Statement, calls []settings.Call, sql string) error {
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

// startParams is the body of a Bind in which parameters that mean the session's start are what it is.
func (x *prepared) startParams(st *plan.Statement, calls []settings.Call, rest []byte) ([]byte, error) {
	values, changed, err := x.gucs.StartValues(st, calls, x.args.Values)
	if err != nil || !changed {
		return rest, err
	}
	return x.withValues(rest, values), nil
}

// boundCalls is Calls for a Bind, whose body it may change.
func (x *prepared) boundCalls(st *plan.Statement, rest []byte) ([]settings.Call, []byte, error) {
	if len(st.Sets) == 0 {
		return nil, rest, nil
	}
	calls, err := x.gucs.Calls(st, &x.args)
	if err != nil {
		return nil, rest, err
	}
	if err := x.gucs.MayCall(st, calls); err != nil {
		return nil, rest, err
	}
	rest, err = x.startParams(st, calls, rest)
	return calls, rest, err
}

// setTransaction runs SET TRANSACTION inside a block.
func (x *commands) setTransaction(st *plan.Statement) error {
	if st.Tx.Session {
		return x.setCharacteristics(st)
	}
	if x.tx.state == txNone {
		if what := "SET TRANSACTION"; !st.Tx.Setting || st.Tx.Local {
			if st.Tx.Local {
				what = "SET LOCAL"
			}
			x.w.warning(sqlstate.NoActiveTransaction, what+" can only be used in transaction blocks")
		}
		x.w.complete(st.Tag)
		return nil
	}
	if x.tx.failed {
		return inFailed()
	}
	if !x.tx.bindable() {
		return x.relayModes(st.Text, false)
	}
	if err := x.tx.remember(st.Text); err != nil {
		return err
	}
	x.w.complete(st.Tag)
	return nil
}

// relayModes runs a SET TRANSACTION on the transaction's shard. Its answer goes to the client, unless it is the router's own.
func (x *commands) relayModes(text string, own bool) error {
	if x.tx.schema != nil {
		return sqlstate.Refusal("CLV-1017", "SET TRANSACTION after a schema change is not supported").
			WithHint("Give the options with BEGIN.")
	}
	if x.tx.lost {
		return inFailed()
	}
	if x.tx.weak || x.tx.apart || onSeveral(x.tx.conn) { // one of several has not begun everywhere, or nowhere yet
		if err := x.tx.late(settings.ReadModes(text)); err != nil {
			return err
		}
	}
	x.pipe.Conn = x.tx.conn
	if x.tx.weak {
		x.tx.weak = false
		x.tx.uses(x.tx.conn.Shard(), x.unit.version)
	}
	x.pipe.sending(anchored)
	var err error
	if own {
		if err = x.drain(); err == nil {
			if _, err = x.shards.exec(x.tx.conn, text); err != nil {
				err = x.shards.shardSaid(x.tx.conn, err)
			}
		}
	} else {
		x.pipe.Query(text)
		_, err = x.converse(executor.None)
	}
	if err == nil && !onSeveral(x.tx.conn) && len(x.tx.open.Modes) < x.srv.limits.DeferredMax {
		x.tx.noteModes(text)
	}
	return err
}
