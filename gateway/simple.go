package gateway

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// query answers a simple Query, which may hold several statements. An error
// ends the session; a failed statement is answered.
func (x *session) query(f wire.Frame) error {
	sql, malformed := wire.ReadQuery(f.Body())
	// Messages without a Sync before it: they are answered first.
	err := x.drain()
	if err == nil && x.pipe.outside() {
		err = x.leave()
	}
	if err == nil {
		err = malformed
	}
	if err == nil {
		x.forgetUnnamed()
		x.message = sql
		err = x.simple(f, x.message)
		x.message = nil
	}
	return x.queried(err)
}

// queried is query after the answers.
func (x *session) queried(err error) error {
	if err != nil {
		err = x.fail(err)
	}
	if end := x.endMessage(err == nil); err == nil {
		err = end
	}
	if err != nil {
		return err
	}
	return x.endUnit()
}

// endMessage ends what the message began besides an open transaction.
func (x *session) endMessage(ok bool) error {
	if x.tx.state == txImplicit {
		if err := x.endImplicit(ok && !x.tx.failed); err != nil {
			return x.fail(err)
		}
	}
	if x.pipe.outside() {
		if x.pipe.Skipping() || x.pipe.dirty {
			x.pipe.Conn.Break()
		}
		x.pipe.release()
	}
	return nil
}

// simple runs the statements of a message.
func (x *session) simple(f wire.Frame, sql []byte) error {
	if !utf8.Valid(sql) {
		return sqlstate.New(sqlstate.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\"")
	}
	sql, x.stats.Unit, _ = trace.CutEnd(sql)
	var err error
	if x.shards.hint, err = settings.HintOf(sql); err != nil {
		return err
	}
	// A semicolon before the end: there may be several.
	if i := bytes.IndexByte(sql, ';'); i < 0 || len(bytes.TrimSpace(sql[i+1:])) == 0 {
		whole := sql
		if i >= 0 {
			sql = sql[:i]
		}
		snap, private := x.snapshot()
		if rest, p, ok := trace.CutBegin(sql); ok {
			sql, x.stats.Unit = rest, p
		}
		st, r, found, err := x.srv.ex.PlanText(&x.shards, &x.shaper, sql, x.gucs.Settings, snap, private)
		if st, _, err = x.planKeyed(st, err, sql, snap, private); err != nil && len(whole) > len(sql) && sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
			if _, e := x.plan(whole); e != nil {
				err = e // its position is in the whole text, where a semicolon may be too early
			}
		}
		if err != nil {
			return x.unplanned(x.shards.temps.missing(err), sql, private)
		}
		if err = x.id.MaySee(st); err == nil {
			err = x.hidden(st)
		}
		if err != nil {
			return err
		}
		if found && (x.tx.state == txNone || !x.tx.failed && x.tx.tied(snap) && !snap.Holding()) && len(x.shards.temps) == 0 && r.Held == nil {
			// The same statement with other literals: it goes as it came.
			x.stats.Runs(st)
			x.countText(snap, st, &r, sql)
			if err := x.reach(r.Shard, useOf(st)); err != nil {
				return err
			}
			return x.relayQuery(st, f, "")
		}
		if found {
			// st has other literals: what is not sent as it came needs its own plan.
			if st, err = x.plan(sql); err != nil {
				return err
			}
		}
		return x.statement(st, f, sql)
	}
	text := string(sql)
	parts, err := x.srv.ex.Split(text)
	if err != nil {
		return err
	}
	switch len(parts) {
	case 0:
		x.w.empty(wire.EmptyQueryResponse)
		return nil
	case 1:
		st, err := x.plan([]byte(parts[0]))
		if err != nil {
			return shifted(err, text, parts[0], 0)
		}
		return shifted(x.statement(st, nil, []byte(parts[0])), text, parts[0], 0)
	}
	if done, err := x.together(f, parts); done || err != nil {
		return err
	}
	if x.tx.state == txNone {
		x.tx.begins(txImplicit, "BEGIN")
	}
	at, last := 0, x.w.mark()
	defer func() { x.before = "" }()
	for _, part := range parts {
		if i := strings.Index(text[at:], part); i >= 0 {
			x.before = text[:at+i]
		}
		st, err := x.plan([]byte(part))
		if last = x.w.mark(); err == nil {
			err = x.statement(st, nil, []byte(part))
		}
		if err != nil {
			return shifted(err, text, part, at)
		}
		if x.tx.state == txNone {
			// A COMMIT in the middle: what follows is a new implicit transaction.
			x.tx.begins(txImplicit, "BEGIN")
		}
		if i := strings.Index(text[at:], part); i >= 0 {
			at += i + len(part)
		}
	}
	return x.endTogether(last)
}

// endTogether ends the implicit transaction of a message's statements, the last of which answered behind the mark. That
// one is complete when the transaction has ended: an error stands in its CommandComplete's place (exec_simple_query).
func (x *session) endTogether(last mark) error {
	if x.tx.state != txImplicit || x.tx.failed {
		return nil
	}
	err := x.endImplicit(true)
	if err != nil {
		x.w.uncomplete(last)
	}
	return err
}

// together sends a message whole, if all its statements go to one shard and none
// is the router's business: then the shard does with it exactly what PostgreSQL does.
func (x *session) together(f wire.Frame, parts []string) (done bool, err error) {
	if x.tx.failed || x.tx.schema != nil || x.tx.outlived() != nil {
		return false, nil
	}
	shard := ""
	var last *plan.Statement
	all := &plan.Statement{}
	u := use{on: all, readOnly: true, weak: true, reroutable: free, replica: true}
	for _, part := range parts {
		st, err := x.plan([]byte(part))
		if err != nil {
			// A statement before it may make it valid (CREATE TABLE): one by one.
			return false, nil
		}
		if !routed(st) || len(st.Sets) > 0 || st.Params > 0 || st.Text != part || st.CopyRows != "" || x.onHeld(st) {
			return false, nil
		}
		su := useOf(st)
		if su.pin {
			return false, nil
		}
		u.reroutable, u.replica = min(u.reroutable, su.reroutable), u.replica && su.replica
		u.readOnly, u.weak = u.readOnly && su.readOnly, u.weak && su.weak
		last = st
		if st.Counts() {
			all.Kind, all.Sequenced = plan.DefaultShard, true
		}
		all.Tables, all.Strange = append(all.Tables, st.Tables...), all.Strange || st.Strange
		all.Types = append(all.Types, st.Types...)
		all.Traces, all.TempCall = all.Traces || st.Traces, all.TempCall || st.TempCall
		if st.Kind == plan.AnyShard && x.shards.temps.typeOf(st) == "" {
			continue
		}
		if !x.clear(st) {
			return false, nil // it may have to wait, and what was before it would wait too
		}
		s, err := x.chooseRun(st, &plan.Args{})
		if err != nil || shard != "" && s != shard || s == several.Name {
			return false, nil
		}
		shard = s
	}
	if shard == "" {
		if shard, err = x.choose(&anyShard, nil); err != nil {
			return false, err
		}
	}
	if err := x.reach(shard, u); err != nil {
		return true, err
	}
	x.stats.Runs(last)
	x.stats.Ran, x.tx.snapped = len(parts), x.tx.state != txNone
	x.pipe.QueryFrame(f)
	_, err = x.converse(executor.None)
	return true, err
}

// shifted moves the position of an error in a part of a message to the whole message.
func shifted(err error, text, part string, at int) error {
	if p, ok := err.(*preparedError); ok {
		return p.error
	}
	i := strings.Index(text[at:], part)
	if err == nil || at+i <= 0 {
		return err
	}
	by := utf8.RuneCountInString(text[:at+i])
	var sh *shardError
	if errors.As(err, &sh) {
		if sh.said.Position == 0 {
			return err
		}
		return &shardError{said: sh.said, frame: replaced(sh.frame, 'P', func(was string) string {
			n, err := strconv.Atoi(was)
			if err != nil {
				return was
			}
			return strconv.Itoa(n + by)
		})}
	}
	var se *sqlstate.Error
	if errors.As(err, &se) && se.Position > 0 {
		e := *se
		e.Position += by
		return &e
	}
	return err
}

// routed reports whether a shard runs the statement.
func routed(st *plan.Statement) bool {
	switch st.Kind {
	case plan.OneShard, plan.DefaultShard, plan.AnyShard, plan.Several:
		return true
	}
	return false
}

// timed are the words by which a statement may show when or in which
// transaction it ran; such a statement ties the transaction to its shard.
var timed = []string{"now", "current_date", "current_time", "timestamp", "localtime", "xact", "txid", "snapshot", "xid", "lock", "transaction"}

// useOf says what a routed statement does to the conversation.
func useOf(st *plan.Statement) use {
	u := use{on: st, pin: st.Pins, temp: st.Temp, readOnly: st.ReadOnly, replica: st.ReplicaSafe && st.Fill == nil, several: len(st.Keys) > 1 || st.Kind == plan.Several}
	if st.Kind == plan.AnyShard {
		u.reroutable = free
	}
	if u.readOnly && len(st.Tables) == 0 && st.Kind != plan.OneShard && !st.Sequenced {
		u.weak = true
		text := strings.ToLower(st.Text)
		for _, w := range timed {
			if strings.Contains(text, w) {
				u.weak = false
			}
		}
	}
	return u
}

// relayQuery sends a statement to pipe.Conn, as the client's frame or as a text,
// and relays its answer.
func (x *session) relayQuery(st *plan.Statement, f wire.Frame, text string) error {
	copied, err := x.copied(st)
	if err != nil {
		return err
	}
	if f != nil {
		x.pipe.QueryFrame(f)
	} else {
		x.pipe.Query(text)
	}
	if copied != nil {
		x.pipe.Copied(copied)
	}
	_, err = x.converse(executor.None)
	if err == nil && x.pipe.outside() {
		x.pipe.release()
	}
	return err
}

// statement runs one statement of a simple query. f is the client's frame if it
// holds this statement alone, with the text, else nil.
func (x *session) statement(st *plan.Statement, f wire.Frame, text []byte) error {
	if st.Kind == plan.Empty {
		x.w.empty(wire.EmptyQueryResponse)
		return nil
	}
	if err := x.allowed(st); err != nil {
		return err
	}
	if st.Params > 0 {
		return sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $%d", st.Params)
	}
	x.stats.Runs(st)
	switch {
	case routed(st):
		x.args = plan.Args{}
		sql := st.Text
		if st.Fill != nil {
			var err error
			if sql, err = x.fillText(st); err != nil {
				return err
			}
		}
		if err := x.admit(st, &x.args); err != nil {
			return err
		}
		shard, err := x.chooseRun(st, &x.args)
		if err != nil {
			return err
		}
		calls, err := x.gucs.Calls(st, nil)
		if err == nil {
			err = x.gucs.MayCall(st, calls)
		}
		if err != nil {
			return err
		}
		if err := x.reach(shard, useOf(st)); err != nil {
			return err
		}
		if f != nil && sql != string(text) {
			f = nil
		}
		if len(st.Sets) > 0 {
			return placed(x.relaySets(st, calls, sql), sql, string(text))
		}
		return placed(x.relayQuery(st, f, sql), sql, string(text))
	case st.Kind == plan.Virtual:
		if err := x.reachVirtual(st); err != nil {
			return err
		}
		x.pipe.Query(st.Text)
		_, err := x.converse(executor.None)
		if err == nil {
			x.pipe.release()
		}
		return err
	case st.Kind == plan.ExecuteKind:
		return x.executeSQL(st)
	case relayedSet(st):
		return x.relaySet(st)
	}
	return x.answerLocal(st, nil)
}

// answerLocal answers a statement of the router's own in a simple Query.
func (x *session) answerLocal(st *plan.Statement, args *plan.Args) error {
	l, err := x.local(st, args)
	if err != nil {
		return err
	}
	l.describe(&x.w)
	return l.rows(&x.w)
}

// allowed refuses what a failed transaction does not take.
func (x *prepared) allowed(st *plan.Statement) error {
	if x.tx.state == txNone {
		x.unit.snapped = x.unit.snapped || snaps(st)
		return nil
	}
	if !x.tx.failed {
		if st.Kind == plan.TxKind {
			return nil
		}
		if e := x.tx.outlived(); e != nil {
			return e
		}
		if snaps(st) {
			x.tx.snapped, x.tx.apart = true, x.tx.apart || !routed(st)
		}
		return nil
	}
	if st.Kind == plan.TxKind && (st.Tx.Op == "commit" || st.Tx.Op == "rollback" || st.Tx.Op == "rollback to") {
		return nil
	}
	return inFailed()
}

// localResult is what the router itself answers.
type localResult struct {
	columns []string // nil: no rows
	values  [][][]byte
	tag     string // "" : the answer is complete already
}

func (l *localResult) describe(w *writer) {
	if l.columns == nil {
		return
	}
	w.buf = wire.AppendRowDescription(w.buf, textFields(l.columns))
}

func textFields(names []string) []wire.Field {
	fields := make([]wire.Field, len(names))
	for i, n := range names {
		fields[i] = wire.Field{Name: n, TypeOID: 25, TypeLen: -1, TypeMod: -1}
	}
	return fields
}

func (l *localResult) rows(w *writer) error {
	for _, row := range l.values {
		w.buf = wire.AppendDataRow(w.buf, row)
		if len(w.buf) >= flushAt {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	if l.tag != "" {
		w.complete(l.tag)
	}
	return w.err
}

// localRows sends at most max rows of the router's own answer; 0 is all.
func (w *writer) localRows(l *localResult, max int) error {
	if max <= 0 || max >= len(l.values) {
		err := l.rows(w)
		l.values = nil
		return err
	}
	some := localResult{values: l.values[:max]}
	l.values = l.values[max:]
	if err := some.rows(w); err != nil {
		return err
	}
	w.empty(wire.PortalSuspended)
	return nil
}

// local runs a statement that the router itself answers. Notices and the tags
// of transaction control go out at once; rows are returned.
func (x *session) local(st *plan.Statement, args *plan.Args) (*localResult, error) {
	began := time.Now()
	x.stats.Last, x.stats.Ran = st, 1
	l, err := x.runLocal(st, args)
	if err == nil && x.stats.Last == st { // else a shard had the last word
		x.stats.Answered(st, began)
	}
	return l, err
}

func (x *session) runLocal(st *plan.Statement, args *plan.Args) (*localResult, error) {
	switch st.Kind {
	case plan.TxKind:
		return &localResult{}, x.control(st)
	case plan.SetKind:
		if settings.Own(st.Set) && st.Set.Op == "show" {
			return x.showOwn(st), nil
		}
		return &localResult{}, x.set(st)
	case plan.DDLKind:
		return &localResult{}, x.ddl(st)
	case plan.BlockKind:
		return &localResult{}, x.block(st)
	case plan.ListenKind:
		return &localResult{tag: st.Tag}, x.listen(st.Listen)
	case plan.RoleKind:
		return &localResult{tag: st.Tag}, x.changeRole(st)
	case plan.PrepareKind:
		return &localResult{tag: st.Tag}, x.prepareSQL(st)
	case plan.DeallocateKind:
		return &localResult{tag: st.Tag}, x.deallocateSQL(st)
	case plan.Call:
		return x.call(st, args)
	case plan.ExplainRoute:
		return x.explain(st, args)
	}
	return nil, sqlstate.New(sqlstate.InternalError, "no way to run a statement of kind %d", st.Kind)
}
