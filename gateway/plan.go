package gateway

import (
	"errors"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/leaseuse"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/gateway/notify"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// planning plans the session's texts, by the map and under the settings that are its own now.
type planning struct {
	ex       *executor.Executor
	turn     *leaseuse.Turn
	id       *arrival.Identity
	gucs     *settings.Session
	tx       *transaction
	shards   *shardConns
	listener *notify.Listener
}

// snapshot is the map that the session's next statement is planned with.
// private says that it is the session's own, with its uncommitted changes.
func (p *planning) snapshot() (snap *shardmap.Snapshot, private bool) {
	p.turn.At(nil)
	p.turn.On(nil)
	if p.tx.schema != nil {
		return p.tx.schema.Follow(p.ex.Snapshot()), true
	}
	return p.ex.Snapshot(), false
}

// plan analyses one statement. What only administrators may read is refused to others here, for every way that a
// statement can come; users of the shards are asked by the shards.
func (p *planning) plan(sql []byte) (*plan.Statement, error) {
	st, _, err := p.planned(sql)
	return st, err
}

// planned is plan, and the text that was planned: that of planKeyed.
func (p *planning) planned(sql []byte) (*plan.Statement, []byte, error) {
	st, text, err := p.analyse(sql)
	if err == nil {
		err = p.id.MaySee(st)
	}
	if err != nil {
		return nil, nil, err
	}
	return st, text, nil
}

func (p *planning) analyse(sql []byte) (*plan.Statement, []byte, error) {
	snap, private := p.snapshot()
	if len(p.shards.temps) > 0 && !p.shards.nowait {
		return p.planBeside(sql, snap, private)
	}
	if p.shards.nowait {
		if st := p.ex.Cached(sql, p.gucs.Settings, snap); st != nil && !st.Unread {
			return st, sql, nil
		}
		return nil, nil, errWait
	}
	st, err := p.ex.Plan(p.shards, sql, p.gucs.Settings, snap, private)
	st, text, err := p.planKeyed(st, err, sql, snap, private)
	if err != nil {
		return nil, nil, p.unplanned(err, sql, private)
	}
	return st, text, nil
}

// planBeside is plan for a session with temporary tables.
func (p *planning) planBeside(sql []byte, snap *shardmap.Snapshot, private bool) (*plan.Statement, []byte, error) {
	st, err := p.ex.Plan(p.shards, sql, p.gucs.Settings, snap, private)
	st, text, err := p.planKeyed(st, err, sql, snap, private)
	if err == nil {
		err = p.hidden(st)
	}
	if err != nil {
		return nil, nil, p.unplanned(p.shards.temps.missing(err), sql, private)
	}
	return st, text, nil
}

// planKeyed plans a text again if it has literals for shard keys that only a shard can read. st and err are the first planning's
// result. It returns the text that was planned beside the plan.
func (p *planning) planKeyed(st *plan.Statement, err error, sql []byte, snap *shardmap.Snapshot, private bool) (*plan.Statement, []byte, error) {
	switch {
	case !unreadKey(st, err) || p.tx.state != txNone && p.tx.failed:
		return st, sql, err
	case p.shards.nowait:
		return nil, nil, errWait
	}
	text, e := p.shards.keyText(string(sql), snap)
	switch {
	case e != nil && err == nil && sqlstate.CodeOf(e) != sqlstate.QueryCanceled:
		return st, sql, nil // the shards say what is wrong with the whole statement
	case e != nil:
		return nil, nil, e
	case text == string(sql):
		return st, sql, err
	}
	keyed, e := p.ex.Plan(p.shards, []byte(text), p.gucs.Settings, snap, private)
	if e != nil {
		return nil, nil, moved(e, func(at int) int { return sqltext.Place(text, at, string(sql)) })
	}
	return keyed, []byte(text), nil
}

// hidden refuses a statement that names a table of the map which a temporary table
// of the session hides, or a type in pg_temp where that is not.
func (p *planning) hidden(st *plan.Statement) error {
	if st.Notifies {
		p.listener.Notifies()
	}
	if len(p.shards.temps) == 0 {
		return nil
	}
	if st.Cursor != nil && st.Cursor.Hold && st.Kind != plan.Several && st.Kind != plan.OneShard {
		return sqlstate.Refusal("CLV-0809", "a WITH HOLD cursor over what may be a temporary table is not supported").
			WithHint("Declare it without HOLD and read it inside the transaction.")
	}
	for _, t := range st.Tables {
		if p.shards.temps.isRelation(t.Name) {
			return sqlstate.Refusal("CLV-0810", "table %s has the name of a temporary table of this session", t.QualifiedName()).
				WithHint("Drop the temporary table, or give it another name.")
		}
	}
	return p.shards.temps.refuseTyped(st)
}

// unplanned is the error of a statement that has no plan. In a failed transaction, of which
// PostgreSQL reads no more than a statement's syntax, that is its first one.
func (p *planning) unplanned(err error, sql []byte, private bool) error {
	if p.tx.state != txNone && p.tx.failed && sqlstate.CodeOf(err) != sqlstate.SyntaxError {
		return inFailed()
	}
	if p.tx.state != txNone && sqlstate.CodeOf(err) != sqlstate.SyntaxError {
		p.tx.snapped = true
	}
	return p.shards.validateOnShard(err, sql, private)
}

// mayCallTemp reads the functions in pg_temp again, before a statement calls one. A table that a body names may be a
// sharded one by now, or in another schema's place under another search path.
func (p *planning) mayCallTemp() error {
	p.tx.temporary = p.tx.temporary || p.tx.state != txNone && p.shards.pin != nil
	f := &p.shards.tempFunctions
	snap, private := p.snapshot()
	if f.snap != snap || f.settings != p.gucs.Settings {
		f.snap, f.settings, f.read = snap, p.gucs.Settings, 0
	}
	for ; f.read < len(f.texts); f.read++ {
		if _, err := p.ex.Plan(p.shards, []byte(f.texts[f.read]), p.gucs.Settings, snap, private); err != nil {
			if sqlstate.CodeOf(err) == sqlstate.QueryCanceled {
				return err
			}
			return sqlstate.Refusal("CLV-0811", "a function that this session made in pg_temp cannot be called any more: %s", sqlstate.As(err).Message).
				WithHint("Run DISCARD ALL, and make the functions again.")
		}
	}
	return nil
}

// replan analyses the statement under the current schema and settings, unless
// that has been done.
func (p *planning) replan(s *statement) error {
	snap, private := p.snapshot()
	if s.plan != nil && s.version == snap.SchemaVersion() && s.private == private && s.settings == p.gucs.Settings {
		return nil
	}
	st, text, err := p.planned([]byte(s.text))
	if err != nil {
		return err
	}
	s.reads(string(text))
	if s.plan != nil && (s.version != snap.SchemaVersion() || s.private != private) {
		s.replanned, s.types = true, nil
	} else if s.plan != nil {
		// Another search_path may mean other tables, with other types.
		s.types, s.oidColumns = nil, true
		s.unread = s.unread || !p.ex.SamePath(s.settings, p.gucs.Settings, snap)
	}
	s.plan, s.version, s.private, s.settings = st, snap.SchemaVersion(), private, p.gucs.Settings
	s.prep = nil
	return nil
}

// clear reports whether admit has nothing to do for a statement without parameters.
func (p *planning) clear(st *plan.Statement) bool {
	snap, private := p.snapshot()
	return private || p.tx.tied(snap) && (!snap.Holding() || p.tx.state == txNone && st.Held(snap, &plan.Args{}) == nil)
}

// validatedApart reports whether a statement is parsed and described outside of its
// transaction: in it, the parsing of a write would lock the table until its end, and
// a transaction that then waits for a move would keep the source from being fenced.
func (p *planning) validatedApart(st *plan.Statement) bool {
	snap, private := p.snapshot()
	return snap.Holding() && !private && p.tx.conn != nil && p.shards.pin == nil && !st.ReadOnly
}

// prepare makes sure that pipe.Conn has the statement; relay: the client gets
// the ParseComplete. It returns the statement's name there. Errors: those of
// executor.Conn.OIDs; the statement is forgotten then if it was to be relayed.
func (x *prepared) prepare(s *statement, relay bool) (string, error) {
	if err := x.learnOIDs(s); err != nil {
		if relay && err != errWait {
			x.statements.DropOnly(s.name, s)
		}
		return "", err
	}
	if s.prep != nil && !x.srv.ex.Valid(s.prep) {
		s.prep, s.types, s.replanned = nil, nil, true
	}
	recheck := s.replanned && s.columns != 0 && !relay
	// Other columns are an error before anything is written, and without the loss of a conversation that has to last.
	first := recheck && (!s.plan.ReadOnly || x.shards.pin != nil || x.tx.state == txOpen)
	if first && x.shards.nowait {
		return "", errWait
	}
	if err := x.readable(s); err != nil {
		if relay {
			x.statements.DropOnly(s.name, s)
		}
		return "", err
	}
	x.pipe.dirty = true
	if s.plan.Judged != "" && !onSeveral(x.pipe.Conn) {
		x.pipe.Unnamed(s, s.plan.Judged, s.oids, x.gucs.Settings.ReadingAs(s.parsed), relay) // it is described there, and runs elsewhere
		return "", nil
	}
	if s.name == "" || s.plan.Kind == plan.Virtual {
		x.pipe.Unnamed(s, s.plan.Text, s.oids, x.gucs.Settings.ReadingAs(s.parsed), relay)
		return "", nil
	}
	if s.prep == nil {
		version := s.version
		if s.private {
			version = rand.Uint64() | 1<<63 // a transaction's own: shared with nobody
		}
		s.prep = x.srv.ex.Prepare(s.plan.Text, s.oids, version, x.gucs.Settings.ReadingAs(s.parsed))
	}
	fresh := !x.pipe.HasPrepared(s.prep)
	x.unit.reuses = x.unit.reuses || !fresh || onSeveral(x.pipe.Conn)
	x.pipe.Prepare(s.prep, s, relay)
	switch {
	case first:
		check := &columnCheck{s: s}
		x.pipe.CheckColumns(s.prep.Name(), check)
		if _, err := x.converse(executor.Flush); err != nil {
			return "", err
		}
		if check.failed != nil {
			return "", check.failed
		}
	case recheck && fresh:
		x.pipe.CheckColumns(s.prep.Name(), s)
	}
	return s.prep.Name(), nil
}

// readable refuses a statement that has to be read under the settings of its Parse where that cannot be done.
func (x *prepared) readable(s *statement) error {
	const hint = "Prepare it again, or give the values as parameters."
	switch {
	case x.gucs.Settings.ReadsAs(s.parsed) || !executor.MayRead(s.text):
	case x.gucs.Settings.ReadsAsExceptTimes(s.parsed) && planner.ReadAlike(s.text):
	case onSeveral(x.pipe.Conn):
		return sqlstate.Refusal("CLV-1107", "a statement over several shards that was prepared under another DateStyle, IntervalStyle or TimeZone is not supported: its literals would be read otherwise").
			WithHint("%s", hint)
	case s.unread:
		return sqlstate.Refusal("CLV-1108", "a statement that was prepared under another DateStyle, IntervalStyle or TimeZone and another search_path or role is not supported: its literals might be read otherwise").
			WithHint("%s", hint)
	}
	return nil
}

// The planner refuses calls of functions that the map does not know. Whether there is
// such a function at all, with these arguments, a shard is asked then: a misspelt name
// is PostgreSQL's 42883. So with row locks: FOR UPDATE of groups is PostgreSQL's 0A000.

const (
	judgeBegin = "PREPARE cleave_judge AS "
	judgeEnd   = "\n; DEALLOCATE cleave_judge"
)

// validateOnShard is the error of a statement that was not planned: that of the database if it
// would not take the statement either.
func (b *shardConns) validateOnShard(err error, sql []byte, private bool) error {
	var refusal *sqlstate.Error
	if !errors.As(err, &refusal) || !refusal.Unsure || private || b.nowait {
		return err
	}
	snap := b.ex.Snapshot()
	name := snap.State().DefaultShard
	begin, end := judgeBegin, judgeEnd
	if sh, ok := snap.Shard(name); ok && !sh.Can().Judges {
		begin, end = "EXPLAIN ", ""
	}
	c, connErr := b.acquire(name, b.gucs.Settings)
	if connErr != nil {
		return err
	}
	defer c.Release()
	_, said := b.exec(c, begin+string(sql)+end)
	var e *sqlstate.Error
	if !errors.As(said, &e) {
		return err
	}
	switch e.Code {
	case sqlstate.FeatureNotSupported, sqlstate.UndefinedTable:
		// A sequence of the cluster, which no shard has, is such a relation as well.
		if !strings.HasPrefix(e.Message, "FOR ") && !strings.HasSuffix(e.Message, " clause not found in FROM clause") {
			return err
		}
	case sqlstate.UndefinedFunction, sqlstate.UndefinedColumn, sqlstate.AmbiguousColumn, sqlstate.InvalidSchemaName, sqlstate.DatatypeMismatch, sqlstate.CannotCoerce:
	default:
		return err // of what is put around the statement, perhaps
	}
	own := *e
	own.Shard = ""
	if own.Position > 0 {
		own.Position = max(own.Position-utf8.RuneCountInString(begin), 0)
	}
	return &own
}
