package gateway

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/executor/timeinput"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/datetime"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// What PREPARE and EXECUTE compute: the words for the time in a statement, and the arguments.

// asker is a conversation of which something is asked for the session: that of its transaction, so that now() is its time, or one with
// the default shard. It asks for the types of literals ([timeinput.Server]). done must be called.
type asker struct {
	x    *prepared
	c    *executor.Conn
	done func()
}

// reach takes the conversation.
func (a *asker) reach() (err error) {
	x := a.x
	if x.shards.nowait {
		return errWait
	}
	if x.tx.state == txOpen && x.tx.schema == nil {
		if err := x.drain(); err != nil {
			return err
		}
		shard := x.srv.ex.Any()
		if x.tx.conn != nil {
			shard = x.tx.conn.Shard()
		}
		if err := x.reach(shard, use{readOnly: true}); err != nil { // its time is the transaction's from now on
			return err
		}
		a.c = x.tx.conn
		return nil
	}
	if x.shards.pin != nil && x.tx.state == txNone {
		a.c, err = x.shards.pinned(x.gucs.Settings) // it may have temporary tables
		return err
	}
	if a.c, err = x.shards.acquire(x.srv.ex.Snapshot().State().DefaultShard, x.gucs.Settings); err == nil {
		a.done = a.c.Release
	}
	return err
}

// ask runs a query for the session.
func (x *prepared) ask(sql string) (*engine.Result, error) {
	a := &asker{x: x, done: func() {}}
	if err := a.reach(); err != nil {
		return nil, err
	}
	defer a.done()
	res, err := a.Exec(sql)
	if err != nil {
		return nil, x.shards.shardSaid(a.c, err)
	}
	return res, nil
}

// Exec implements [timeinput.Server].
func (a *asker) Exec(sql string) (*engine.Result, error) { return a.x.shards.exec(a.c, sql) }

// Describe implements [timeinput.Server].
func (a *asker) Describe(text string, oids []uint32) ([]uint32, error) {
	if _, err := a.c.OIDs(oids, true); err != nil {
		return nil, err
	}
	inside := a.c == a.x.tx.conn
	if inside {
		if _, err := a.Exec("SAVEPOINT cleave_inputs"); err != nil {
			return nil, err
		}
	}
	a.x.shards.setRunning(a.c)
	types, err := timeinput.Describe(a.c, text, oids)
	a.x.shards.setRunning(nil)
	if inside && !a.c.Broken() {
		if _, err := a.Exec("ROLLBACK TO SAVEPOINT cleave_inputs; RELEASE SAVEPOINT cleave_inputs"); err != nil {
			return nil, err
		}
	}
	return types, err
}

// types are the types of the literals of a statement that may be special date/time inputs, and the question that was asked.
func (a *asker) types(s *statement) (*plan.InputQuestion, []plan.InputType, error) {
	x := a.x
	snap, private := x.snapshot()
	st, err := x.srv.ex.Plan(&x.shards, []byte(s.text), x.gucs.Settings, snap, private)
	if err != nil || st.Asks == nil {
		return nil, nil, nil // what is wrong with it is told when it is planned
	}
	if x.tx.schema != nil {
		return st.Asks, nil, nil // who asked would wait for the transaction's own locks
	}
	defer func() { a.done() }()
	if len(x.shards.temps) > 0 || x.shards.pin != nil { // names may mean what only the session has
		if err = a.reach(); err != nil {
			return nil, nil, err
		}
		types, err := timeinput.Ask(a, st.Asks, slices.Clone(s.oids[:min(len(s.oids), st.Asks.Params)]))
		if err != nil {
			err = x.shards.shardSaid(a.c, err)
		}
		return st.Asks, types, err
	}
	types, err := x.srv.several.Inputs.Types(st.Asks, s.oids, func(text string, oids []uint32) *executor.Prepared {
		return x.srv.ex.Prepare(text, oids, snap.SchemaVersion(), x.gucs.Settings)
	}, func() (timeinput.Server, error) { return a, a.reach() })
	if err != nil && a.c != nil {
		err = x.shards.shardSaid(a.c, err)
	}
	return st.Asks, types, err
}

// prepareWords puts the time into the text of a statement that is prepared, in place of the words for it: PostgreSQL reads
// them now, and not when it is executed. Words inside of arrays, ranges and domains too.
func (x *prepared) prepareWords(s *statement) error {
	switch {
	case !planner.MayPrepareWord(s.text):
		return nil
	case x.shards.nowait:
		return errWait
	}
	asked, types, err := (&asker{x: x, done: func() {}}).types(s)
	if err != nil {
		return err
	}
	snap, _ := x.snapshot()
	words := x.srv.ex.PreparedWords(s.text, x.gucs.Settings, snap, asked, types)
	if len(words) == 0 {
		return nil
	}
	sql, _ := question(words, plainDefault(x.srv.ex))
	res, err := x.ask(sql)
	if err != nil {
		return err
	}
	if len(res.Rows) != 1 || len(res.Rows[0]) != len(words) {
		return sqlstate.New(sqlstate.InternalError, "the shard gave no time")
	}
	values := make([]string, len(words))
	for i, v := range res.Rows[0] {
		if v.Null {
			return sqlstate.Refusal("CLV-1102", "the text %s, which is read when the statement is prepared, has a word for the time inside", s.text[words[i].From:words[i].To]).
				WithHint("Write the time itself, or an expression with now().")
		}
		values[i] = v.String
	}
	s.reads(planner.With(s.text, words, values))
	return nil
}

// paramTypes are the types of a statement's parameters, as they were when it was prepared.
func (x *prepared) paramTypes(s *statement) ([]uint32, error) {
	n := max(s.plan.Params, len(s.oids))
	if s.params != nil {
		return s.params, nil
	}
	if len(s.oids) < n || slices.Contains(s.oids, 0) {
		if x.shards.nowait {
			return nil, errWait
		}
		if err := x.drain(); err != nil {
			return nil, err
		}
		if err := x.reachFor(s.plan, s.oids); err != nil {
			return nil, err
		}
		on, err := x.prepare(s, false)
		if err != nil {
			return nil, err
		}
		x.pipe.CheckColumns(on, s)
		if _, err := x.converse(executor.Flush); err != nil {
			return nil, err
		}
		s.params = slices.Clone(s.types)
		return s.params, nil
	}
	return s.oids, nil
}

// computedArgs has a shard compute the arguments of an EXECUTE, and cast them to the types of the parameters as PostgreSQL
// does. The values are in text form, nil for NULL.
func (x *prepared) computedArgs(st *plan.Statement, s *statement, types []uint32) ([][]byte, error) {
	if x.shards.nowait {
		return nil, errWait
	}
	if plainDefault(x.srv.ex) {
		return nil, sqlstate.Refusal("CLV-1103", "an argument of EXECUTE is not a plain literal of the parameter's type").
			WithHint("Give numbers, strings, true, false or NULL; compute expressions first.")
	}
	snap, _ := x.snapshot()
	list := strings.Join(st.Prepared.Args, ", ")
	clock, err := x.srv.ex.ArgsUseClock(list, x.gucs.Settings, snap)
	if err != nil {
		return nil, err
	}
	written := list
	switch {
	case clock && x.tx.state != txOpen && x.srv.ex.UsesClock(s.plan):
		return nil, sqlstate.Refusal("CLV-1104", "the time in an argument of EXECUTE would not be that of its statement, which depends on the time as well").
			WithHint("Run it between BEGIN and COMMIT, or pass the time itself.")
	case clock && x.tx.state == txOpen:
		res, err := x.ask("SELECT pg_catalog.to_json(pg_catalog.now()) #>> '{}'")
		if err != nil {
			return nil, err
		}
		if list, err = x.srv.ex.ArgsAt(list, res.Rows[0][0].String, x.gucs.Settings, snap); err != nil {
			return nil, err
		}
	}
	c, err := x.shards.acquire(x.srv.ex.Snapshot().State().DefaultShard, x.gucs.Settings)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if len(s.paramNames) != len(types) {
		names := make([]string, len(types))
		for i, oid := range types {
			names[i] = "pg_catalog.format_type(" + strconv.FormatUint(uint64(oid), 10) + ", NULL)"
		}
		res, err := x.shards.exec(c, "SELECT "+strings.Join(names, ", "))
		if err != nil {
			return nil, x.shards.shardSaid(c, err)
		}
		s.paramNames = nil
		for _, v := range res.Rows[0] {
			s.paramNames = append(s.paramNames, v.String)
		}
	}
	const name = "cleave_arguments"
	places := make([]string, len(types))
	for i := range places {
		places[i] = several.Printed(types[i], "$"+strconv.Itoa(i+1))
	}
	n, setting, want, err := several.Lossy(x.gucs.Settings, types, func(sql string) (*engine.Result, error) { return x.shards.exec(c, sql) })
	switch {
	case err != nil:
		return nil, x.shards.shardSaid(c, err)
	case n >= 0:
		return nil, sqlstate.Refusal("CLV-1105", "argument %d of EXECUTE is computed by a shard, and the setting %s might change it on the way", n+1, setting).
			WithHint("Run SET %s = %s.", setting, want)
	}
	before := "PREPARE " + name + " (" + strings.Join(s.paramNames, ", ") + ") AS SELECT " + strings.Join(places, ", ") + "; EXECUTE " + name + " ("
	res, err := x.shards.exec(c, before+list+")")
	if _, end := x.shards.exec(c, "DEALLOCATE "+name); end != nil && err == nil {
		return nil, x.shards.shardSaid(c, end)
	}
	if err != nil {
		err = x.shards.shardSaid(c, err)
		if list == written {
			at := utf8.RuneCountInString(before) + 1
			err = moved(err, func(pos int) int {
				for i, arg := range st.Prepared.Args {
					end := at + utf8.RuneCountInString(arg) + len(", ")
					if pos < end {
						return st.Prepared.At[i] + pos - at
					}
					at = end
				}
				return 0
			})
		}
		return nil, err
	}
	if len(res.Rows) != 1 || len(res.Rows[0]) != len(types) {
		return nil, sqlstate.New(sqlstate.InternalError, "the shard gave no arguments")
	}
	values := make([][]byte, len(types))
	for i, v := range res.Rows[0] {
		if v.Null {
			continue
		}
		if values[i], err = several.PrintedText(types[i], v.String); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// moved changes the position of an error.
func moved(err error, to func(int) int) error {
	var sh *shardError
	var se *sqlstate.Error
	switch {
	case errors.As(err, &sh) && sh.said.Position > 0:
		return &shardError{said: sh.said, frame: replaced(sh.frame, 'P', func(was string) string {
			n, _ := strconv.Atoi(was) // the shard's own
			if n = to(n); n == 0 {
				return ""
			}
			return strconv.Itoa(n)
		})}
	case errors.As(err, &se) && se.Position > 0 && sh == nil:
		e := *se
		e.Position = to(se.Position)
		return &e
	}
	return err
}

// keyTextsAtOnce bounds the columns of one question: PostgreSQL takes 1,664 (MaxTupleAttributeNumber in access/htup_details.h).
const keyTextsAtOnce = 1000

// unreadKey reports whether a text has a literal for a shard key that the planner could not read.
func unreadKey(st *plan.Statement, err error) bool {
	if err == nil {
		return st.Unread
	}
	var e *sqlstate.Error
	return errors.As(err, &e) && e.Unread
}

// keyText returns a text in which the literals that [planner.Planner.KeyTexts] finds have the form that means the same everywhere. The
// default shard reads them under the session's settings.
//
// Errors: the shard's, with the literal's place.
func (b *shardConns) keyText(text string, snap *shardmap.Snapshot) (string, error) {
	words, err := b.ex.KeyTexts(b, text, b.gucs.Settings, snap)
	if err != nil || len(words) == 0 {
		return text, err
	}
	values, err := b.keyValues(text, words, snap)
	if err != nil {
		return "", err
	}
	return planner.With(text, words, values), nil
}

// keyValues has the default shard compute the values of words in a text. Errors: the shard's, with the word's place.
func (b *shardConns) keyValues(text string, words []planner.PreparedWord, snap *shardmap.Snapshot) ([]string, error) {
	c, err := b.acquire(snap.State().DefaultShard, b.gucs.Settings)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	values := make([]string, 0, len(words))
	for from := 0; from < len(words); from += keyTextsAtOnce {
		some := words[from:min(from+keyTextsAtOnce, len(words))]
		sql, places := question(some, plainDefault(b.ex))
		res, err := b.exec(c, sql)
		if err != nil {
			return nil, moved(b.shardSaid(c, err), func(at int) int { return placeOf(text, some, places, at) })
		}
		if len(res.Rows) != 1 || len(res.Rows[0]) != len(some) {
			return nil, sqlstate.New(sqlstate.InternalError, "the shard gave no values of literals")
		}
		for _, v := range res.Rows[0] {
			values = append(values, v.String)
		}
	}
	return values, nil
}

// keyParams is keyText for the parameters of a Bind, which readArgs has read from rest, the body after its names. It changes x.args,
// and returns the body with the values.
func (x *prepared) keyParams(st *plan.Statement, rest []byte) ([]byte, error) {
	list := st.KeyParams(&x.args, datetime.HasSpecial)
	switch {
	case len(list) == 0 || x.tx.state != txNone && x.tx.failed:
		return rest, nil
	case x.shards.nowait:
		return nil, errWait
	}
	var words []planner.PreparedWord
	for _, p := range list {
		for _, expr := range p.Exprs {
			words = append(words, planner.PreparedWord{From: nowhere, Expr: expr})
		}
	}
	snap, _ := x.snapshot()
	values, err := x.shards.keyValues("", words, snap)
	if err != nil {
		return nil, err
	}
	read := slices.Clone(x.args.Values)
	for _, p := range list {
		read[p.Param-1] = p.With(values[:len(p.Exprs)])
		values = values[len(p.Exprs):]
	}
	rest = x.withValues(rest, read)
	x.args.Values = read
	return rest, nil
}

// question is a query for the values of words in ISO form. places are the characters, from 1, where the words begin in it.
func question(words []planner.PreparedWord, sqlite bool) (sql string, places []int) {
	before, after := "pg_catalog.to_json(", ") #>> '{}'"
	if sqlite {
		before, after = "(", ")::text"
	}
	var b strings.Builder
	b.WriteString("SELECT ")
	at := len("SELECT ") + 1
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
			at += 2
		}
		b.WriteString(before)
		places = append(places, at+len(before))
		b.WriteString(w.Expr)
		b.WriteString(after)
		at += len(before) + utf8.RuneCountInString(w.Expr) + len(after)
	}
	return b.String(), places
}

// nowhere is the place of a word that is in no text: a parameter's.
const nowhere = -1

// placeOf is the character in a text of the word that stands at character at of a question; 0 if it has none.
func placeOf(text string, words []planner.PreparedWord, places []int, at int) int {
	for i := len(words) - 1; i >= 0; i-- {
		if places[i] <= at && words[i].From != nowhere {
			return utf8.RuneCountInString(text[:words[i].From]) + 1
		}
	}
	return 0
}

// Clients number types as the default shard does. What the messages of a Pipeline do not
// show (a parameter's type, a portal's columns) the session says; see executor/oids.go.

// learnOIDs makes sure that pipe.Conn knows the OIDs of a statement's declared types.
func (x *prepared) learnOIDs(s *statement) error {
	if len(s.oids) == 0 {
		return nil
	}
	_, err := x.pipe.Conn.OIDs(s.oids, !x.shards.nowait)
	return x.pipe.oidsError(err)
}

// oidColumns reports whether values of a RowDescription's columns may have OIDs
// inside that differ between shards.
func oidColumns(body []byte) bool {
	for len(body) > 2 {
		_, rest, ok := cut(body[2:])
		if !ok || len(rest) < 18 {
			return false
		}
		if executor.MayNumber(binary.BigEndian.Uint32(rest[6:])) {
			return true
		}
		body = rest[16:]
	}
	return false
}

// bindOIDs translates the parameters of a Bind for pipe.Conn, and finds out
// whether the rows of the portal will have to be. rest is the body after its names, which
// x.args were read from.
func (x *prepared) bindOIDs(p *portal, rest []byte) ([]byte, error) {
	p.values, p.described = nil, false
	if !slices.Contains(x.args.Formats, 1) && !binaryFormats(x.bound.Tail) || !x.pipe.Conn.Foreign() {
		return rest, nil
	}
	s := p.stmt
	if err := x.typed(s); err != nil {
		return nil, err
	}
	if binaryFormats(x.bound.Tail) && (s.columns == 0 || s.oidColumns || s.replanned || s.plan.Cursor != nil) {
		p.values = &executor.Columns{}
	}
	types := s.types
	if types == nil {
		types = s.oids
	}
	values, err := x.pipe.Conn.Values(types, x.args.Formats, x.args.Values, !x.shards.nowait)
	if err != nil {
		return nil, x.pipe.oidsError(err)
	}
	if len(values) == 0 || &values[0] == &x.args.Values[0] {
		return rest, nil
	}
	return x.withValues(rest, values), nil
}

// typed makes sure that the types of a statement's parameters are known if one of x.args, in
// binary, could have OIDs inside: the shard is asked.
func (x *prepared) typed(s *statement) error {
	if s.types != nil || !x.mayHoldOIDs(s) {
		return nil
	}
	if x.shards.nowait {
		return errWait
	}
	relay := x.pending == s
	on, err := x.prepare(s, relay)
	if err != nil {
		return err
	}
	x.pending = nil
	x.pipe.CheckColumns(on, s)
	_, err = x.converse(executor.Flush)
	return err
}

// mayHoldOIDs reports whether a value of x.args, in binary and of a type that nobody has told, could
// have OIDs of user-defined types inside.
func (x *prepared) mayHoldOIDs(s *statement) bool {
	for i, v := range x.args.Values {
		if (i < len(s.oids) && s.oids[i] != 0) || wire.FormatAt(x.args.Formats, i) != 1 || !oidSized(v) {
			continue
		}
		return s.plan.Numbers || slices.ContainsFunc(s.plan.Tables, func(t *shardmap.Table) bool {
			return slices.ContainsFunc(t.Columns, func(c shardmap.Column) bool { return executor.MayNumber(c.OID) })
		})
	}
	return false
}

// oidSized reports whether a value could be the OID of a user-defined type, or have one inside: a
// range takes 9 bytes at least, what else there is takes more.
func oidSized(v []byte) bool {
	return len(v) == 4 && binary.BigEndian.Uint32(v) >= executor.FirstUserOID || len(v) >= 9
}

// binaryFormats reports whether one of the result formats of a Bind is binary.
func binaryFormats(b []byte) bool {
	for at := 2; at+2 <= len(b); at += 2 {
		if b[at+1] == 1 {
			return true
		}
	}
	return false
}

// copied finds out which columns of a COPY (query) TO STDOUT in binary have OIDs inside
// that pipe.Conn's shard has of its own; nil if there is nothing to translate.
func (x *prepared) copied(st *plan.Statement) (*executor.Columns, error) {
	if st.CopyRows == "" || !x.pipe.Conn.Foreign() {
		return nil, nil
	}
	if err := x.drain(); err != nil {
		return nil, err
	}
	values := &executor.Columns{}
	const portal = "cleave_copied" // the unnamed one may be the client's
	x.pipe.dirty = true
	x.pipe.Unnamed(values, st.CopyRows, nil, x.pipe.Conn.Settings(), false)
	x.pipe.Bind(portal, "", []byte{0, 0, 0, 0, 0, 1, 0, 1}, false)
	x.pipe.LearnColumns(portal, nil, values)
	x.pipe.Close(portal, false)
	_, err := x.converse(executor.Flush)
	if err != nil && x.pipe.Conn != nil && x.pipe.Skipping() {
		// A Query after it would be ignored as well.
		if o, failed := x.pipe.Run(executor.Sync, &x.w); failed != nil || o.Err != nil {
			x.pipe.Conn.Break()
		}
	}
	return values, err
}
