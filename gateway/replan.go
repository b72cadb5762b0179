package gateway

import (
	"math/rand/v2"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// replan analyses the statement under the current schema and settings, unless
// that has been done.
func (x *session) replan(s *statement) error {
	snap, private := x.snapshot()
	if s.plan != nil && s.version == snap.SchemaVersion() && s.private == private && s.settings == x.settings {
		return nil
	}
	st, text, err := x.planned([]byte(s.text))
	if err != nil {
		return err
	}
	s.reads(string(text))
	if s.plan != nil && (s.version != snap.SchemaVersion() || s.private != private) {
		s.replanned, s.types = true, nil
	} else if s.plan != nil {
		// Another search_path may mean other tables, with other types.
		s.types, s.numbered = nil, true
		s.unread = s.unread || !x.srv.ex.SamePath(s.settings, x.settings, snap)
	}
	s.plan, s.version, s.private, s.settings = st, snap.SchemaVersion(), private, x.settings
	s.prep = nil
	return nil
}

// prepare makes sure that pipe.Conn has the statement; relay: the client gets
// the ParseComplete. It returns the statement's name there. Errors: those of
// executor.Conn.OIDs; the statement is forgotten then if it was to be relayed.
func (x *session) prepare(s *statement, relay bool) (string, error) {
	if err := x.numbers(s); err != nil {
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
	first := recheck && (!s.plan.ReadOnly || x.pin != nil || x.tx.state == txOpen)
	if first && x.nowait {
		return "", errWait
	}
	if err := x.readable(s); err != nil {
		if relay {
			x.statements.DropOnly(s.name, s)
		}
		return "", err
	}
	x.dirty = true
	if s.plan.Judged != "" && !onSeveral(x.pipe.Conn) {
		x.pipe.Unnamed(s, s.plan.Judged, s.oids, x.settings.ReadingAs(s.parsed), relay) // it is described there, and runs elsewhere
		return "", nil
	}
	if s.name == "" || s.plan.Kind == planner.Virtual {
		x.pipe.Unnamed(s, s.plan.Text, s.oids, x.settings.ReadingAs(s.parsed), relay)
		return "", nil
	}
	if s.prep == nil {
		version := s.version
		if s.private {
			version = rand.Uint64() | 1<<63 // a transaction's own: shared with nobody
		}
		s.prep = x.srv.ex.Prepare(s.plan.Text, s.oids, version, x.settings.ReadingAs(s.parsed))
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
func (x *session) readable(s *statement) error {
	const hint = "prepare it again, or give the values as parameters"
	switch {
	case x.settings.ReadsAs(s.parsed) || !executor.MayRead(s.text):
	case x.settings.ReadsAsExceptTimes(s.parsed) && planner.ReadAlike(s.text):
	case onSeveral(x.pipe.Conn):
		return sqlstate.Refuse("a statement over several shards that was prepared under another DateStyle, IntervalStyle or TimeZone is not supported: its literals would be read otherwise", hint)
	case s.unread:
		return sqlstate.Refuse("a statement that was prepared under another DateStyle, IntervalStyle or TimeZone and another search_path or role is not supported: its literals might be read otherwise", hint)
	}
	return nil
}
