package gateway

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// checkSetting refuses settings under which the router would read a statement
// otherwise than the shard, or that belong to the router.
func checkSetting(name, value string) error {
	if planner.OwnSetting(name) {
		if value == "" {
			return nil
		}
		return checkOwn(name, value)
	}
	if strings.HasPrefix(name, "cleave.") {
		return unknownSetting(name).
			WithHint("settings that begin with \"cleave.\" are the router's own; a shard key is declared with CREATE TABLE ... WITH (cleave.shard_key = '...')")
	}
	if value == "" {
		return nil // the default, which the shards' own configuration decides
	}
	if err := planner.CheckSetting(name, value); err != nil {
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
				WithHint("SET client_encoding TO 'UTF8', at the start client_encoding=UTF8 (PGCLIENTENCODING), and convert in the client")
		}
	case "search_path":
		if executor.DiffersByVersion(value) {
			return sqlstate.Refusal("CLV-1219", "a vertical tab in search_path is not supported: versions of PostgreSQL read it otherwise").
				WithHint("put spaces between the names")
		}
		if slices.Contains(executor.SplitPath(value), planner.InternalSchema) {
			return sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied for schema %s", planner.InternalSchema).
				WithHint("the router keeps its own objects there")
		}
	case "session_authorization":
		return sqlstate.Refusal("CLV-1220", "SET SESSION AUTHORIZATION is not supported").
			WithHint("SET ROLE works, or connect as the other user")
	}
	return nil
}

func unknownSetting(name string) *sqlstate.Error {
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

// relayedSet reports whether a shard answers the statement itself (SHOW,
// set_config), as opposed to SET and RESET, whose only answer is a tag.
func relayedSet(st *planner.Statement) bool {
	if st.Kind != planner.SetKind || own(st.Set) {
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
	u := use{readOnly: true, weak: true, blind: true, roam: brief}
	if x.tx.conn != nil {
		return x.reach(x.tx.conn.Shard(), u)
	}
	if x.tx.schema != nil && x.tx.shard != "" {
		return x.reach(x.tx.shard, u)
	}
	return x.reach(x.srv.ex.Snapshot().State().DefaultShard, u)
}

// relaySet runs SHOW and set_config of a simple query.
func (x *commands) relaySet(st *planner.Statement) error {
	if onlySets(st) {
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

// isOn reads the SQL text of a setting that is on or off.
func isOn(value string) bool {
	on, _ := planner.ParseBool(strings.Trim(value, "'"))
	return on
}

// adopt makes settings that a shard has accepted the session's.
func (x *unitRun) adopt(st *planner.Statement, next, keep *executor.Settings) {
	x.unit.effects = true
	x.gucs.adopt(next, keep)
	if c := x.pipe.Conn; c != nil && !x.pipe.virtual() {
		c.SetSettings(x.gucs.onShards())
	}
	if x.tx.state == txNone {
		x.gucs.settings = keep
	} else if x.tx.deferring() {
		x.tx.log = append(x.tx.log, st.Text)
	}
}

// set runs SET, RESET and DISCARD. A shard judges the value, so that errors,
// notices and what is reported to the client are its own.
func (x *commands) set(st *planner.Statement) error {
	s := st.Set
	if s.Op == "discard" {
		return x.discard(st)
	}
	if own(s) {
		return x.setOwn(st)
	}
	next, keep, err := x.gucs.after(s)
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
	resets := x.gucs.resets(s)
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
func (x *commands) trySet(st *planner.Statement, next, keep *executor.Settings) error {
	if x.pipe.outside() { // it is no conversation of the SET's
		if err := x.leave(); err != nil {
			return err
		}
	}
	u := use{readOnly: true, weak: true, roam: brief}
	c, err := x.shards.obtain(x.srv.ex.Snapshot().State().DefaultShard, u, x.gucs.before)
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

// statementTimeout reads the setting of that name as the shard would; 0 is none.
func statementTimeout(s *executor.Settings) time.Duration {
	return settingDuration(s.Value("statement_timeout"))
}

// lockTimeout reads the setting of that name; 0 is none.
func lockTimeout(s *executor.Settings) time.Duration {
	return settingDuration(s.Value("lock_timeout"))
}

// settingDuration reads a time as PostgreSQL does, milliseconds without a unit;
// 0 for none, for what cannot be read and for more than 24 days.
func settingDuration(v string) time.Duration {
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

// changeTo gives the session's conversation other settings and tells the client
// what that changed.
func (x *commands) changeTo(st *planner.Statement, next, keep *executor.Settings) error {
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
	list := c.LastingChanges(x.gucs.onShardsAs(next), x.gucs.keep, keep)
	if st.Set != nil && st.Set.Local { // nil for SET SESSION CHARACTERISTICS
		list = c.LocalChanges(x.gucs.onShardsAs(next))
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
func (x *commands) discard(st *planner.Statement) error {
	if st.Set.What == "all" {
		if err := x.notInBlock("DISCARD ALL"); err != nil {
			return err
		}
		if err := x.drain(); err != nil {
			return err
		}
		x.statements.Clear()
		x.portals.Ended(nil)
		x.forgetSequences()
		x.held.CloseAll()
		x.listener.UnlistenAll()
		x.shards.unpin()
		return x.changeTo(st, x.gucs.defaults, x.gucs.defaults)
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
func (x *commands) setCharacteristics(st *planner.Statement) error {
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
	next, keep := x.gucs.settings, x.gucs.settings
	if x.tx.state != txNone {
		keep = x.gucs.keep
	}
	for _, s := range settings {
		next, keep = next.With(s[0], s[1]), keep.With(s[0], s[1])
	}
	return x.changeTo(st, next, keep)
}

// textOf is a value as text, nil for NULL.
func textOf(s string) []byte { return append(make([]byte, 0, len(s)), s...) }
