package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/virtual"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/plpgsql"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/sqlstate"
)

// A DO block that no shard can run is carried out here, statement by statement, in the open
// transaction or in one of its own; a block with an EXCEPTION clause between a savepoint and its
// release. See docs/design/schema.md.

// blockRun is a DO block that is being carried out.
type blockRun struct {
	x     *commands
	began time.Time
	depth int   // of blocks with EXCEPTION clauses
	was   error // what is handled
}

// block runs a DO block.
func (x *commands) block(st *plan.Statement) error {
	x.unit.effects = true
	if err := x.drain(); err != nil {
		return err
	}
	if x.tx.state == txNone {
		if x.pipe.Conn != nil && x.pipe.wrote {
			return sqlstate.Refusal("CLV-1301", "DO after a write before the same Sync is not supported").WithHint("Sync before it.")
		}
		if err := x.leave(); err != nil {
			return err
		}
		x.tx.begins(txImplicit, "BEGIN")
	} else if x.pipe.outside() {
		if err := x.leave(); err != nil {
			return err
		}
	}
	b := &blockRun{x: x, began: time.Now()}
	if _, err := b.run(st.Block); err != nil {
		return err
	}
	x.w.complete(st.Tag)
	return nil
}

// run carries out a block. returned: a RETURN ends the code.
func (b *blockRun) run(block *plpgsql.Block) (returned bool, err error) {
	if len(block.Handlers) == 0 {
		return b.steps(block.Steps)
	}
	if err := b.savepoint("savepoint"); err != nil {
		return false, err
	}
	b.depth++
	returned, err = b.steps(block.Steps)
	b.depth--
	if err == nil {
		return returned, b.savepoint("release")
	}
	if ends(err) {
		return false, err
	}
	handler := b.handler(block, err)
	b.x.tx.fail()
	if b.savepoint("rollback to") != nil || b.savepoint("release") != nil {
		return false, err
	}
	if handler == nil {
		return false, err
	}
	was := b.was
	b.was = err
	returned, err = b.steps(handler.Steps)
	b.was = was
	return returned, err
}

// ends reports whether an error is for the session and not for a statement.
func ends(err error) bool {
	var gone *clientGone
	return errors.As(err, &gone) || errors.Is(err, errAgain) || errors.Is(err, errEnd) || errors.Is(err, errWait)
}

// handler finds what an EXCEPTION clause does with an error. Errors that one PostgreSQL would not
// have had are handled by nobody.
func (b *blockRun) handler(block *plpgsql.Block, err error) *plpgsql.Handler {
	e := sqlstate.As(err)
	var said *shardError
	ofShard := errors.As(err, &said)
	if ofShard {
		e = said.said
	}
	if len(e.Code) != 5 || b.x.interrupts.ending.Load() != nil || b.x.tx.lost {
		return nil
	}
	for _, own := range []string{"cleave.", "shard key", "keyspace"} {
		if strings.Contains(e.Message, own) {
			return nil // about a table's place on the shards
		}
	}
	switch e.Code[:2] {
	case "08", "0A", "40", "53", "54", "57", "58", "XX", "ZC":
		return nil
	case "55":
		if e.Code == sqlstate.LockNotAvailable {
			return nil // it may be the router's own bound
		}
	case "42":
		other := e.Shard != "" && e.Shard != b.x.srv.ex.Snapshot().State().DefaultShard
		if other || e.Code == sqlstate.InsufficientPrivilege && e.Shard == "" && !ofShard {
			return nil // the shards differ; what a user may do on this router
		}
	}
	for i := range block.Handlers {
		if h := &block.Handlers[i]; h.Catches(e.Code) {
			return h
		}
	}
	return nil
}

// blockSave is the name of the savepoint of a block with an EXCEPTION clause; they stand in each other.
const blockSave = `cleave block`

func (b *blockRun) savepoint(op string) error {
	text := strings.ToUpper(op) + ` SAVEPOINT "` + blockSave + `"`
	if op == "savepoint" {
		text = `SAVEPOINT "` + blockSave + `"`
	}
	return b.x.setSavepoint(&plan.Statement{Kind: plan.TxKind, Text: text, Tx: &plan.Tx{Op: op, Name: blockSave}})
}

func (b *blockRun) steps(list []plpgsql.Step) (returned bool, err error) {
	for i := range list {
		if limit := settings.StatementTimeout(b.x.gucs.Settings); limit > 0 && time.Since(b.began) > limit {
			return false, sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to statement timeout")
		}
		if returned, err = b.step(&list[i]); err != nil || returned {
			return returned, err
		}
	}
	return false, nil
}

func (b *blockRun) step(s *plpgsql.Step) (returned bool, err error) {
	switch s.Op {
	case plpgsql.StepSQL:
		return false, b.change(s.Text, place{line: s.Line, at: "SQL statement", text: s.Text})
	case plpgsql.StepPerform:
		return false, b.change(s.Text, place{line: s.Line, at: "PERFORM", text: s.Text})
	case plpgsql.StepExecute:
		return false, b.execute(s)
	case plpgsql.StepIf:
		for i := range s.Arms {
			v, err := b.value(s.Arms[i].Condition, place{line: s.Line, at: "IF", text: s.Arms[i].Condition, expression: true}, virtual.Bool)
			if err != nil {
				return false, err
			}
			if string(v) == "t" {
				return b.steps(s.Arms[i].Steps)
			}
		}
		return b.steps(s.Else)
	case plpgsql.StepRaise:
		return false, b.raise(s)
	case plpgsql.StepBlock:
		return b.run(s.Block)
	case plpgsql.StepReturn:
		return true, nil
	}
	return false, sqlstate.New(sqlstate.InternalError, "no way to run a step of kind %d", s.Op)
}

// runsWithin reports whether a shard can run a statement within another one: it has no parameters, and nothing of the session's
// comes of it.
func runsWithin(st *plan.Statement) bool {
	return routed(st) && !st.Copy && !st.Pins && !st.Notifies && st.Params == 0 && len(st.Sets) == 0
}

// rowTags are the commands about rows that code may have.
var rowTags = map[string]bool{"SELECT": true, "INSERT": true, "UPDATE": true, "DELETE": true, "MERGE": true}

// change runs a schema change, or a statement about rows.
func (b *blockRun) change(text string, p place) error {
	x := b.x
	st, err := x.plan([]byte(text))
	if err != nil {
		return p.of(err, text)
	}
	switch {
	case st.Kind == plan.Empty:
		return nil
	case rowTags[st.Tag] && runsWithin(st):
		_, err := x.within(st, false)
		return p.of(err, st.Text)
	case st.Kind != plan.DDLKind || st.Tag == "SELECT" && p.at != "SQL statement" && !strings.HasPrefix(strings.ToLower(text), "create"): // SELECT ... INTO
		return p.of(sqlstate.Refusal("CLV-1302", "%s in DO is not supported here", st.Tag).
			WithHint("Run it as a statement of its own."), text)
	case x.shards.temps.only(st) || st.Pins:
		return p.of(sqlstate.Refusal("CLV-0802", "a temporary table in DO is not supported").
			WithHint("Run the statement by itself."), text)
	case st.Tag == "ANALYZE" && st.DDL.Concurrent:
		return p.of(sqlstate.Refusal("CLV-1303", "ANALYZE of all tables in DO is not supported").WithHint("Name the tables."), text)
	case st.DDL.Concurrent && x.tx.state == txOpen:
		return p.of(sqlstate.New(sqlstate.ActiveTransaction, "%s cannot run inside a transaction block", concurrentTag(st)), text)
	case st.DDL.Concurrent && b.depth > 0:
		return p.of(sqlstate.New(sqlstate.ActiveTransaction, "%s cannot run inside a subtransaction", concurrentTag(st)), text)
	case st.DDL.Concurrent:
		return p.of(sqlstate.New(sqlstate.ActiveTransaction, "%s cannot be executed from a function", concurrentTag(st)), text)
	}
	x.w.where = p.where(true)
	_, err = x.changeSchema(st)
	x.w.where = ""
	return p.of(err, st.Text)
}

// execute runs the statements of a text that EXECUTE computes.
func (b *blockRun) execute(s *plpgsql.Step) error {
	p := place{line: s.Line, at: "EXECUTE", text: s.Text, expression: true}
	text, err := b.value(s.Text, p, 0)
	if err != nil {
		return err
	}
	if text == nil {
		e := sqlstate.New(sqlstate.NullNotAllowed, "query string argument of EXECUTE is null")
		e.Where = p.step()
		return e
	}
	p.text, p.expression = string(text), false
	parts, err := b.x.srv.ex.Split(p.text)
	if err != nil {
		return p.of(err, p.text)
	}
	for _, part := range parts {
		if err := b.change(part, p); err != nil {
			return err
		}
	}
	return nil
}

// value computes an expression of the code, which only reads. oid is the type that it must have, if not 0. nil is NULL.
func (b *blockRun) value(expression string, p place, oid uint32) ([]byte, error) {
	x := b.x
	text := "SELECT " + expression
	st, err := x.plan([]byte(text))
	if err != nil {
		return nil, p.of(err, text)
	}
	if !runsWithin(st) || !st.ReadOnly || st.Fill != nil {
		return nil, p.of(sqlstate.Refusal("CLV-1304", "an expression of DO that does more than read is not supported").
			WithHint("Run the statements one by one."), text)
	}
	out, err := x.within(st, true)
	if err != nil {
		return nil, p.of(err, st.Text)
	}
	rows, types, err := textsOf(out)
	if err != nil {
		return nil, p.of(err, text)
	}
	if len(types) != 1 || len(rows) > 1 {
		return nil, p.of(sqlstate.Refusal("CLV-1305", "an expression of DO that gives several values is not supported").
			WithHint("Write EXISTS (SELECT ...)."), text)
	}
	if len(rows) == 0 || rows[0][0] == nil {
		return nil, nil
	}
	if oid != 0 && types[0] != oid {
		return nil, p.of(sqlstate.Refusal("CLV-1306", "a condition of DO that is no boolean is not supported").
			WithHint("Write it as a comparison."), text)
	}
	return rows[0][0], nil
}

// answerOfBlock bounds what the router keeps of a shard's answer to a step.
const answerOfBlock = 4 << 20

// guarded is a capture of an answer that is taken under the router's lease only.
type guarded struct {
	readRows
	guard func(b []byte) error
}

// Frames implements the sink of a conversation.
func (g *guarded) Frames(b []byte) error {
	if err := g.guard(b); err != nil {
		return err
	}
	return g.readRows.Frames(b)
}

// within runs a statement about rows in the open transaction, and returns the answer's frames. whole: all of them.
func (x *prepared) within(st *plan.Statement, whole bool) ([]byte, error) {
	text, err := x.reachWithin(st)
	if err != nil {
		return nil, err
	}
	return x.inquire(text, whole)
}

// reachWithin makes the conversation in which a statement without parameters runs that at hand, and returns the text to send.
func (x *prepared) reachWithin(st *plan.Statement) (string, error) {
	x.args = plan.Args{}
	text := st.Text
	if st.Fill != nil {
		var err error
		if text, err = x.fillText(st); err != nil {
			return "", err
		}
	}
	if err := x.admit(st, &x.args); err != nil {
		return "", err
	}
	shard, err := x.chooseRun(st, &x.args)
	if err != nil {
		return "", err
	}
	u := useOf(st)
	u.replica = false
	if err := x.reach(shard, u); err != nil {
		return "", err
	}
	return text, nil
}

// inquire runs a text in the conversation at hand and returns the answer's frames; notices go to the client.
func (x *prepared) inquire(text string, whole bool) ([]byte, error) {
	out, lost, err := x.answerTo(text, answerOfBlock)
	if err == nil && lost && whole {
		return nil, sqlstate.New(sqlstate.ConfigurationLimit, "an answer that the router has to hold has more than %d MB", answerOfBlock>>20).WithHint("read less: an aggregate, EXISTS (SELECT ...), LIMIT")
	}
	return out, err
}

// answerTo is inquire with a bound of its own; lost: there was more.
func (x *prepared) answerTo(text string, most int) (answer []byte, lost bool, err error) {
	out := guarded{readRows: readRows{capture: capture{max: most, par: x.w.onParameter}}, guard: x.pipe.guardAnswer}
	x.pipe.Query(text)
	f := flight{end: executor.None, reroutable: x.pipe.sent()}
	x.shards.setRunning(x.pipe.Conn)
	o, err := x.pipe.Run(executor.None, &out)
	if _, err := x.conversed(f, o, err); err != nil {
		return nil, false, err
	}
	frames(out.buf, func(typ byte, body []byte) {
		if typ == wire.NoticeResponse {
			x.w.buf = append(wire.AppendInt32(append(x.w.buf, typ), int32(len(body)+4)), body...)
		}
	})
	return out.buf, out.lost, nil
}

// raise has the default shard say it, on the same line of a code, so that settings, words and
// context are its own.
func (b *blockRun) raise(s *plpgsql.Step) error {
	if len(s.Raise.Words) == 0 {
		if b.was == nil {
			e := sqlstate.New("0Z002", "RAISE without parameters cannot be used outside an exception handler")
			e.Where = place{line: s.Line, at: "RAISE"}.step()
			return e
		}
		return b.was
	}
	var state, message string
	if b.was != nil {
		e := sqlstate.As(b.was)
		var said *shardError
		if errors.As(b.was, &said) {
			e = said.said
		}
		state, message = string(e.Code), e.Message
	}
	code := "BEGIN" + strings.Repeat("\n", max(s.Line-1, 0)) + " " + s.Raise.Text(state, message) + "; END"
	snap, _ := b.x.snapshot()
	if err := b.x.reach(snap.State().DefaultShard, use{readOnly: true, weak: true}); err != nil {
		return err
	}
	_, err := b.x.inquire("DO "+executor.QuoteLiteral(code), false)
	return err
}

// place is where in the code something is done.
type place struct {
	line       int
	at         string // what stands there
	text       string // the statement, or the expression
	expression bool
}

// step is the context without the statement.
func (p place) step() string {
	return fmt.Sprintf("PL/pgSQL function inline_code_block line %d at %s", p.line, p.at)
}

// where is the context of an error or notice of the place, with the statement or without it.
func (p place) where(statement bool) string {
	kind := "statement"
	if p.expression {
		kind = "expression"
	}
	if statement {
		return "SQL " + kind + ` "` + p.text + "\"\n" + p.step()
	}
	return p.step()
}

// of gives an error the context that PostgreSQL gives it. sent is the text in which it has its place.
func (p place) of(err error, sent string) error {
	if err == nil || ends(err) {
		return err
	}
	var sh *shardError
	said := sqlstate.As(err)
	var frame []byte
	if errors.As(err, &sh) {
		said, frame = sh.said, sh.frame
	}
	e := *said
	at := e.Position
	begin := ""
	if p.expression {
		begin = "SELECT "
	}
	if at > 0 && sent != begin+p.text {
		at = sqltext.Place(sent, at, begin+p.text)
	}
	at -= len(begin)
	e.Position = 0
	where := p.where(said.Position == 0)
	if e.Where != "" {
		where = e.Where + "\n" + where
	}
	e.Where = where
	if at > 0 {
		e.Internal, e.InternalPosition = p.text, at
	}
	if sh == nil {
		return &e
	}
	frame = replaced(replaced(frame, 'P', nothing), 'W', nothing)
	add := wire.AppendString([]byte{'W'}, where)
	if at > 0 {
		add = wire.AppendString(append(add, 'p'), strconv.Itoa(at))
		add = wire.AppendString(append(add, 'q'), p.text)
	}
	frame = append(append(frame[:len(frame)-1:len(frame)-1], add...), 0)
	binary.BigEndian.PutUint32(frame[1:], uint32(len(frame)-1))
	return &shardError{said: &e, frame: frame}
}

func nothing(string) string { return "" }
