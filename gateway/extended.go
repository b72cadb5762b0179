package gateway

import (
	"errors"
	"time"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// statement is a prepared statement of the session. Shards know it under names
// of the executor's, on as many connections as it was used on.
type statement struct {
	name string
	text string
	oids []uint32
	// made is when it was prepared; source is the message with the PREPARE, "" if it came as Parse.
	made   time.Time
	source string
	// written is the client's text where text has other literals, "" else.
	written string
	// parent is the client's span, which stood at the end of the text.
	parent trace.Parent
	plan   *plan.Statement
	// version is the schema version of plan, settings those it was made under.
	version  uint64
	settings *executor.Settings
	// parsed are the settings of its Parse, by which its text is read.
	parsed *executor.Settings
	// unread: the search path is not surely what it was. PostgreSQL reads the whole text anew when schemas that are there and may be
	// used are others (RevalidateCachedQuery in src/backend/utils/cache/plancache.c), which the router does not know.
	unread  bool
	private bool // made from a transaction's own snapshot
	prep    *executor.Prepared
	// columns is a digest of the result's columns as the client was told them; types are
	// those of all parameters, once a shard has said, and oidColumns says that values of the
	// columns may have OIDs inside.
	columns    uint64
	types      []uint32
	oidColumns bool
	// params are the types of the parameters when it was prepared, paramNames their names; nil until they are needed.
	params     []uint32
	paramNames []string
	// replanned: the schema changed since the client was told the columns.
	replanned bool
	hint      settings.ReadHint
}

// reads gives the statement a text in which literals are those that they meant when it was prepared.
func (s *statement) reads(text string) {
	if text != s.text && s.written == "" {
		s.written = s.text
	}
	s.text = text
}

// client is the client's text.
func (s *statement) client() string {
	if s.written != "" {
		return s.written
	}
	return s.text
}

// portal is a statement with its parameters bound.
type portal struct {
	st   *plan.Statement
	stmt *statement
	conn *executor.Conn // nil: the router answers it
	// values are its columns whose values have to be translated; nil: there are none.
	// described: they are known, or will be before its rows come.
	values    *executor.Columns
	described bool
	args      plan.Args // of the router's own statements
	// result is what is left of the router's own answer.
	result *localResult
	calls  []settings.Call // of set_config()
	// version is the map's that it was routed by; ran: it has begun.
	version uint64
	ran     bool
}

// extended ends the handling of an extended-protocol message: after an error,
// messages are skipped until Sync.
func (x *session) extended(err error) error {
	if err == nil {
		if x.pipe.Pending() < 256<<10 {
			return nil
		}
		// Much is pending: let the shard have it, and take its answers.
		if err = x.drain(); err == nil {
			return nil
		}
	}
	var sh *shardError
	if !errors.As(err, &sh) && !errors.Is(err, errAgain) {
		// The answers to what came before go first; an error among them hides this one.
		if earlier := x.drain(); earlier != nil {
			err = earlier
		}
	}
	if x.pending != nil {
		x.statements.DropOnly(x.pending.name, x.pending)
		x.pending = nil
	}
	if err := x.fail(err); err != nil {
		return err
	}
	x.skip = true
	if x.urgent {
		x.urgent = false
		if err := x.w.flush(); err != nil {
			return err
		}
	}
	if x.tx.state == txNone && x.pipe.Conn != nil && x.pipe.wrote && !x.pipe.Skipping() {
		// The messages so far are one transaction, which this error ends. The
		// shard does not know of it: it rolls back when the connection closes.
		if !x.shards.keepsUnit() {
			x.pipe.Conn.Break()
		}
		x.pipe.release()
	}
	return nil
}

// answer gives the client a frame of the router's own, in its turn.
func (x *unitRun) answer(typ byte) {
	if x.pipe.Waiting() {
		x.pipe.Local([]byte{typ, 0, 0, 0, 4})
		return
	}
	x.w.empty(typ)
}

func (x *session) parse(f wire.Frame) error {
	m, err := wire.ReadParse(f.Body())
	if err != nil {
		return err
	}
	if err := x.resolve(); err != nil {
		return err
	}
	text := m.Text
	if !utf8.Valid(text) {
		return sqlstate.New(sqlstate.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\"")
	}
	was, _ := x.statements.Find(m.Name)
	if !x.shards.nowait { // the lane's frame is run again if it fails
		x.statements.Replace(string(m.Name))
	}
	text, parent, cut := trace.CutEnd(text)
	if !cut {
		_, parent, _ = trace.CutBegin(text) // it stays: an error's position counts from it
	}
	s := &statement{name: string(m.Name), text: string(text), oids: m.OIDs, parent: parent, made: x.stats.Began, parsed: x.gucs.Settings}
	if s.hint, err = settings.HintOf(text); err != nil {
		return err
	}
	if s.name != "" {
		if err := x.prepareWords(s); err != nil {
			return err
		}
	}
	if err := x.replan(s); err != nil {
		return err
	}
	if err := x.allowed(s.plan); err != nil {
		return err
	}
	if x.statements.Taken(s.name) != nil {
		return x.duplicate(s)
	}
	if err := x.statements.Add(s.name, s, len(s.text)); err != nil {
		return err
	}
	x.unit.replaced = append(x.unit.replaced, replacedStatement{s.name, was})
	if shardBorne(s.plan) {
		x.pending = s
		return nil
	}
	x.answer(wire.ParseComplete)
	return nil
}

// resolve sends a parsed statement that nothing was bound to yet to a shard, so
// that the shard's errors come where PostgreSQL gives them.
func (x *prepared) resolve() error {
	s := x.pending
	if s == nil {
		return nil
	}
	if x.shards.nowait {
		return errWait
	}
	x.pending = nil
	if err := x.reachFor(s.plan, s.oids); err != nil {
		x.statements.Drop(s.name)
		return err
	}
	_, err := x.prepare(s, true)
	return err
}

// reachFor makes pipe.Conn a conversation with a shard that can parse and
// describe the statement: any that holds its tables.
func (x *prepared) reachFor(st *plan.Statement, oids []uint32) error {
	u := use{on: st, readOnly: true, weak: true}
	switch {
	case st.Kind == plan.Virtual:
		return x.reachVirtual(st)
	case relayedSet(st):
		return x.reachForSet()
	case st.Cursor != nil && st.Cursor.Op != "declare" && x.onHeld(st):
		return x.reach(several.Name, use{readOnly: true, weak: true})
	case onSeveral(x.tx.conn):
	case st.Kind == plan.Several:
		st = validatorOf(st)
	case st.Cursor != nil && st.Cursor.Hold && st.Kind != plan.OneShard:
		st = &defaultShard
	case st.Kind == plan.OneShard && len(st.Keys) > 0 && st.Params == 0 && st.Fill == nil:
		// The key is in the text.
	case st.Kind == plan.OneShard:
		st = &anyShard
	}
	if st.Kind == plan.AnyShard {
		u.reroutable = brief
	}
	shard, err := x.choose(st, &plan.Args{OIDs: oids})
	if err == nil && shard == several.Name && !x.pipe.inSeveral() {
		u.reroutable = brief // its keys are on several shards: each of them can describe it
		switch {
		case x.tx.conn != nil:
			shard = x.tx.conn.Shard()
		default:
			shard = x.srv.ex.Any()
		}
	}
	if err != nil {
		return err
	}
	apart := x.validatedApart(st)
	if apart && shard == several.Name {
		shard = x.srv.ex.Any()
		if validatorOf(st) == &defaultShard {
			snap, _ := x.snapshot()
			shard = snap.State().DefaultShard
		}
	}
	if !apart && (x.tx.state == txNone || x.tx.conn != nil || x.tx.schema != nil || x.tx.lost) {
		return x.reach(shard, u)
	}
	// The transaction has changed nothing yet: the statement is judged outside
	// it, and the transaction stays free to go anywhere.
	if shard == several.Name { // the keys in its text are on several shards
		if shard, err = x.choose(validatorOf(st), &plan.Args{}); err != nil {
			return err
		}
	}
	if c := x.pipe.Conn; c != nil && c.Shard() == shard {
		x.pipe.sending(u.reroutable)
		return nil
	}
	if err := x.leave(); err != nil {
		return err
	}
	c, err := x.shards.obtain(shard, u, x.gucs.Settings)
	if err != nil {
		return err
	}
	x.pipe.Conn = c
	x.pipe.sending(u.reroutable)
	return nil
}

var (
	anyShard     = plan.Statement{Kind: plan.AnyShard}
	defaultShard = plan.Statement{Kind: plan.DefaultShard}
)

// lookup finds a statement for Bind and Describe.
func (x *prepared) lookup(name []byte) (*statement, error) {
	s, err := x.statements.Get(name)
	if err != nil {
		return nil, err
	}
	if x.pending != nil && x.pending != s {
		if err := x.resolve(); err != nil {
			return nil, err
		}
	}
	if err := x.replan(s); err != nil {
		return nil, err
	}
	return s, x.allowed(s.plan)
}

func (x *session) bind(f wire.Frame) error {
	m := &x.bound
	if err := m.Names(f.Body()); err != nil {
		return err
	}
	name, rest := m.Portal, m.After
	s, err := x.lookup(m.Statement)
	if err != nil {
		return err
	}
	if x.shards.nowait && !quick(s.plan) {
		return errWait
	}
	if err := x.readArgs(s.oids, rest); err != nil {
		return err
	}
	if got, want := len(x.args.Values), max(s.plan.Params, len(s.oids)); got < want {
		return pgbackend.Unsupplied(got, s.name, want)
	}
	if x.held.Len() > 0 && x.held.Has(string(name)) {
		return pgbackend.Exists(string(name))
	}
	if err := x.portals.Free(name); err != nil {
		return err
	}
	x.unit.executes = nil
	if x.unit.binds++; s.plan.Kind == plan.ExecuteKind {
		if x.unit.binds == 1 {
			x.unit.executes = s.plan
		}
		if s, rest, err = x.executeArgs(s.plan, m.Tail); err != nil {
			return err
		}
		if err := x.readArgs(s.oids, rest); err != nil {
			return err
		}
	}
	st := s.plan
	if !shardBorne(st) {
		p := &portal{st: st, stmt: s}
		if st.Params != len(x.args.Values) {
			return pgbackend.Unsupplied(len(x.args.Values), s.name, st.Params)
		}
		if _, err := x.keyParams(st, rest); err != nil { // EXPLAIN (ROUTE)
			return err
		}
		p.args.OIDs = s.oids
		p.args.Formats = append([]int16(nil), x.args.Formats...)
		for _, v := range x.args.Values {
			if v != nil {
				v = append(make([]byte, 0, len(v)), v...)
			}
			p.args.Values = append(p.args.Values, v)
		}
		x.portals.Put(string(name), p, len(x.tx.saved))
		x.answer(wire.BindComplete)
		return nil
	}
	if rest, err = x.keyParams(st, rest); err != nil {
		return err
	}
	if st.Fill != nil {
		if rest, err = x.fillArgs(s, rest); err != nil {
			return err
		}
	}
	p := &x.unnamed
	if len(name) > 0 {
		p = &portal{}
	}
	*p = portal{st: st, stmt: s, version: x.unit.version}
	x.portals.Put(string(name), p, len(x.tx.saved))
	switch {
	case st.Kind == plan.Virtual:
		err = x.reachVirtual(st)
	case relayedSet(st):
		if settings.OnlySets(st) {
			err = x.implicitly(1)
		}
		if err == nil {
			p.calls, rest, err = x.boundCalls(st, rest)
		}
		if err == nil {
			err = x.reachForSet()
		}
	default:
		var shard string
		if len(st.Sets) > 0 {
			if err = x.inTransaction(); err == nil {
				p.calls, rest, err = x.boundCalls(st, rest)
			}
		}
		if err != nil {
			break
		}
		if err = x.admit(st, &x.args); err == nil {
			p.version = x.unit.version // it may have waited
			shard, err = x.chooseRun(st, &x.args)
			if err != nil && x.unit.executes != nil {
				err = x.computedError(x.unit.executes, s, err)
			}
		}
		if err == nil {
			u := useOf(st)
			u.batched = true
			x.shards.hint = s.hint
			err = x.reach(shard, u)
		}
	}
	if err == nil {
		rest, err = x.bindOIDs(p, rest)
	}
	if err == nil {
		err = x.learnOIDs(s)
	}
	if err != nil {
		x.portals.Drop(string(name))
		return err
	}
	relay := x.pending == s
	x.pending = nil
	p.conn = x.pipe.Conn
	on, err := x.prepare(s, relay)
	if err != nil {
		if relay && err == errWait {
			x.pending = s // the goroutine does all of it again
		}
		x.portals.Drop(string(name))
		return err
	}
	x.pipe.BindBytes(name, on, rest)
	return nil
}

// readArgs reads the parameters of a Bind's body after its two names into x.bound and x.args; they share the body's bytes.
func (x *prepared) readArgs(oids []uint32, rest []byte) error {
	m := &x.bound
	m.ReadAfter(rest)
	if _, err := m.Counts(); err != nil {
		return err
	}
	if err := m.Args(); err != nil {
		return err
	}
	x.args = plan.Args{OIDs: oids, Formats: m.Formats, Values: m.Values}
	return nil
}

// withValues is a Bind's body after its names, from which x.args were read, with other values.
func (x *prepared) withValues(rest []byte, values [][]byte) []byte {
	out := append(make([]byte, 0, len(rest)+32*len(values)), rest[:2+2*len(x.args.Formats)+2]...)
	for _, v := range values {
		out = wire.AppendValue(out, v)
	}
	return append(out, x.bound.Tail...)
}

func (x *session) describe(f wire.Frame) error {
	what, name, err := wire.ReadDescribe(f.Body())
	switch {
	case err != nil:
		return err
	case what == 'S':
		s, err := x.lookup(name)
		if err != nil {
			return err
		}
		if err := x.resolve(); err != nil {
			return err
		}
		parameters := true
		if s.plan.Kind == plan.ExecuteKind {
			if s, _, err = x.executeArgs(s.plan, nil); err != nil {
				return err
			}
			x.local2(wire.AppendParameterDescription(nil, nil))
			parameters = false
		}
		if !shardBorne(s.plan) {
			oids := make([]uint32, s.plan.Params)
			for i := range oids {
				oids[i] = 25
				if i < len(s.oids) && s.oids[i] != 0 {
					oids[i] = s.oids[i]
				}
			}
			if parameters {
				x.local2(wire.AppendParameterDescription(nil, oids))
			}
			x.describeLocal(s.plan)
			return nil
		}
		if err := x.reachFor(s.plan, s.oids); err != nil {
			return err
		}
		on, err := x.prepare(s, false)
		if err != nil {
			return err
		}
		x.pipe.DescribeStatement(on, parameters, s)
		return nil
	}
	if err := x.resolve(); err != nil {
		return err
	}
	p, err := x.portal(name)
	if err != nil {
		return err
	}
	if p.conn == nil {
		x.describeLocal(p.st)
		return nil
	}
	x.pipe.dirty = true
	x.runs(p.st)
	x.pipe.sending(useOf(p.st).reroutable)
	x.pipe.DescribePortal(string(name), true, p.stmt, p.values)
	p.described = true
	return nil
}

// local2 gives the client whole frames of the router's own, in their turn.
func (x *session) local2(frames []byte) {
	if x.pipe.Waiting() {
		x.pipe.Local(frames)
		return
	}
	x.w.buf = append(x.w.buf, frames...)
}

func (x *session) describeLocal(st *plan.Statement) {
	if columns := localColumns(st); columns != nil {
		x.local2(wire.AppendRowDescription(nil, textFields(columns)))
		return
	}
	x.local2(wire.AppendEmpty(nil, wire.NoData))
}

func (x *session) execute(f wire.Frame) error {
	name, rows, err := wire.ReadExecute(f.Body())
	if err != nil {
		return err
	}
	if err := x.resolve(); err != nil {
		return err
	}
	p, err := x.portal(name)
	if err != nil {
		return err
	}
	if err := x.allowed(p.st); err != nil {
		return err
	}
	x.stats.Parent = p.stmt.parent
	if p.conn != nil {
		if !p.ran && p.version != x.unit.version {
			return sqlstate.New(sqlstate.SerializationFailure, "the shard map changed (version %d to %d) since the portal %q was bound: its key may be on another shard now", p.version, x.unit.version, name).
				WithHint("nothing of it was done: run the transaction again")
		}
		if err := x.gucs.MayCall(p.st, p.calls); err != nil {
			return err
		}
		p.ran, x.unit.executed = true, true
		x.pipe.dirty = true
		x.stats.Runs(p.st)
		x.runs(p.st)
		x.pipe.sending(useOf(p.st).reroutable)
		if p.values != nil && !p.described && !p.st.Copy {
			x.pipe.LearnColumns(string(name), p.stmt, p.values)
			p.described = true
		}
		if p.st.CopyRows != "" {
			if p.values, err = x.copied(p.st); err != nil {
				return err
			}
		}
		x.pipe.ExecuteFrame(f, p.values)
		if p.st.Copy && !p.st.ReadOnly {
			// The client may send its data, or wait for the word to do so, before it sends Sync.
			return x.drain()
		}
		if len(p.calls) == 0 {
			return nil
		}
		if err := x.changed(); err != nil {
			return err
		}
		return x.took(p.st, p.calls)
	}
	if p.result == nil {
		if err := x.drain(); err != nil {
			return err
		}
		if undoable(p.st) || p.st.Kind == plan.PrepareKind { // a shard judges it, which must not commit what was before it
			if err := x.implicitly(0); err != nil {
				return err
			}
		}
		if p.result, err = x.local(p.st, &p.args); err != nil {
			p.result = nil
			return err
		}
		x.unit.executed = (p.st.Kind != plan.TxKind || p.st.Tx.Op == "set" || p.st.Tx.Op == "constraints") && (p.st.DDL == nil || !p.st.DDL.Concurrent)
	}
	return x.w.localRows(p.result, int(rows))
}

func (x *session) close(f wire.Frame) error {
	what, target, err := wire.ReadClose(f.Body())
	if err != nil {
		return err
	}
	if err := x.resolve(); err != nil {
		return err
	}
	switch name := string(target); what {
	case 'S':
		x.statements.Drop(name)
	default:
		p, ok := x.portals.Take(name)
		if ok && p.conn != nil && p.conn == x.pipe.Conn {
			x.pipe.dirty = true
			x.pipe.Close(name, true)
			return nil
		}
		if !ok && name != "" {
			return x.closeCursorPortal(name)
		}
	}
	x.answer(wire.CloseComplete)
	return nil
}

func (x *session) flushMessage() error {
	if err := x.drain(); err != nil {
		return err
	}
	return x.w.flush()
}

// sync ends the messages since the last one, which were one transaction if none
// was open.
func (x *session) sync() error {
	err := error(nil)
	skipped := x.skip
	if !skipped {
		err = x.resolve()
	}
	if x.pipe.Conn != nil && (x.pipe.dirty || x.pipe.Waiting() || x.pipe.Skipping()) && err == nil {
		_, err = x.converse(executor.Sync)
	} else if e := x.locals(); err == nil {
		err = e
	}
	return x.synced(skipped, err)
}

// synced is sync after the answers.
func (x *session) synced(skipped bool, err error) error {
	if x.pipe.syncIgnored {
		// A COPY swallowed this Sync; the client sends another.
		x.pipe.syncIgnored = false
		if err := x.extended(err); err != nil {
			return err
		}
		return x.w.flush()
	}
	x.skip, x.pending = false, nil
	ok := err == nil && !skipped
	var sh *shardError
	if err != nil && !(skipped && errors.As(err, &sh)) { // after one error nothing is told until Sync
		if err = x.fail(err); err != nil {
			return err
		}
	}
	if x.tx.state == txImplicit {
		if e := x.endImplicit(ok && !x.tx.failed); e != nil {
			if err = x.fail(e); err != nil {
				return err
			}
		}
	}
	if x.tx.state == txNone {
		x.portals.Ended(nil)
		if x.pipe.Conn != nil {
			if x.pipe.Skipping() {
				x.pipe.Conn.Break()
			}
			x.pipe.release()
		}
	} else if x.pipe.outside() {
		if x.pipe.Skipping() {
			x.pipe.Conn.Break()
		}
		x.pipe.release()
	}
	return x.endUnit()
}

// locals hands out answers of the router's own that wait for their turn.
func (x *unitRun) locals() error {
	if x.pipe.Conn != nil {
		return nil
	}
	_, err := x.pipe.Run(executor.None, &x.w)
	return err
}
