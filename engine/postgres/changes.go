package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// streams are those that this process reads, by id: what Forget is told goes to the
// server through them, since a slot that is read can be moved on by its reader alone.
type streams struct {
	mu  sync.Mutex
	all map[string]*stream
}

func (s *streams) add(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*stream{}
	}
	s.all[st.id] = st
}

func (s *streams) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[st.id] == st {
		delete(s.all, st.id)
	}
}

func (s *streams) get(id string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}

// idleEvery bounds how often a sink hears how far a stream has come that has
// nothing for it.
const idleEvery = 200 * time.Millisecond

// stream is one run of Changes.
type stream struct {
	v      *mover
	id     string
	set    engine.Set
	owner  *keyspace.Owner
	facts  []*tableFacts
	c      *conn // the stream
	side   *conn // for questions
	to     engine.ChangeSink
	until  lsn
	seen   atomic.Uint64 // how far it has come
	forget atomic.Uint64 // what the server may drop
	poke   chan struct{}

	tables   map[uint32]*streamTable // by the server's number
	message  output
	change   engine.Change
	inside   bool // of a transaction
	given    int  // changes since the last Commit
	reported lsn  // by Commit
	at       time.Time
	key      keyspace.Key
}

// streamTable says how a row's values are found in a tuple.
type streamTable struct {
	index    int // in the set; -1 for none of ours
	width    int // columns of the tuple
	columns  []int
	identity []int
	key      []int
}

// Changes reads the slot until ctx ends.
func (v *mover) Changes(ctx context.Context, id string, set engine.Set, after, until engine.Position, to engine.ChangeSink) error {
	const op = "read changes"
	if err := v.checkID(id); err != nil {
		return err
	}
	from, err := place(after)
	if err != nil {
		return err
	}
	st := &stream{v: v, id: id, set: set, owner: keyspace.NewOwner(set.Keys), to: to, poke: make(chan struct{}, 1), tables: map[uint32]*streamTable{}}
	if st.until, err = place(until); err != nil {
		return err
	}
	if st.side, err = v.housekeeping(ctx, op); err != nil {
		return err
	}
	defer v.done(st.side)
	if err := st.open(ctx, from); err != nil {
		return v.failed(ctx, op, err)
	}
	defer st.c.Close()
	v.s.streams.add(st)
	defer v.s.streams.remove(st)

	stop := context.AfterFunc(ctx, st.c.Sever)
	defer stop()
	done := make(chan struct{})
	var feedback sync.WaitGroup
	feedback.Go(func() { st.keepUp(done) })
	err = st.run(ctx)
	close(done)
	feedback.Wait()
	var own sinkError
	if errors.As(err, &own) {
		return own.error
	}
	return v.failed(ctx, op, err)
}

// sinkError is an error of the sink, which is returned as it is.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

// open begins the stream. It ends the process that reads the slot.
func (st *stream) open(ctx context.Context, from lsn) error {
	v := st.v
	known, err := v.captured(ctx, st.side, st.id)
	if err != nil {
		return err
	}
	if st.facts, err = v.ready(ctx, st.side, st.set); err != nil {
		return err
	}
	if err := unchanged(known.definition, st.set, st.facts); err != nil {
		return err
	}
	slot, floor := known.slot, known.floor
	if from != 0 && from < floor {
		return sqlstate.New(sqlstate.ObjectNotInState, "the changes after %s were forgotten, up to %s", from, floor).WithHint("begin the copy anew")
	}
	from = max(from, floor)
	st.forget.Store(uint64(floor))
	st.seen.Store(uint64(from))
	st.reported = from
	sql := fmt.Sprintf(`START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names '%s')`, quoteName(slot), from, quoteName(slot))
	for {
		if st.c, err = v.dialAs(ctx, forChanges, st.id, true); err != nil {
			return err
		}
		err = engine.Bounded(ctx, st.c, time.Time{}, func() error { return startCopyBoth(st.c, sql) })
		if err == nil {
			return nil
		}
		_ = st.c.Close()
		if sqlstate.CodeOf(err) != sqlstate.ObjectInUse {
			return err
		}
		if _, err := st.side.exec(ctx, `SELECT pg_catalog.pg_terminate_backend(active_pid) FROM pg_catalog.pg_replication_slots WHERE active_pid IS NOT NULL AND slot_name = `+literal(slot)); err != nil {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// startCopyBoth waits for the answer to START_REPLICATION; what comes behind it is
// left to be read.
func startCopyBoth(c *conn, sql string) error {
	if err := engine.Ask(c, sql); err != nil {
		return err
	}
	var failed error
	for {
		b, err := c.Receive()
		if err != nil {
			return err
		}
		for len(b) > 0 {
			f, rest, ok, err := wire.Cut(b)
			if err != nil || !ok {
				return wire.ErrMalformed
			}
			b = rest
			switch f.Type() {
			case wire.CopyBothResponse:
				c.frames.Unread(len(rest))
				return nil
			case wire.ErrorResponse:
				failed = wire.ParseReport(f.Body())
			case wire.ReadyForQuery:
				return cmpError(failed)
			}
		}
	}
}

func cmpError(err error) error {
	if err != nil {
		return err
	}
	return sqlstate.New(sqlstate.InternalError, "the server did not start to send changes")
}

// capture is what is kept of one that has begun.
type capture struct {
	slot       string
	definition string // of the tables, at the moment at which it began
	floor      lsn    // up to here the changes were forgotten
}

// captured finds a capture. Errors: 55000 if there is none, or its changes are not to be had any more.
func (v *mover) captured(ctx context.Context, c *conn, id string) (capture, error) {
	res, err := c.exec(ctx, `SELECT c.slot, c.definition, COALESCE(s.confirmed_flush_lsn::pg_catalog.text, ''), COALESCE(s.wal_status, '')
		FROM cleave_internal.capture AS c LEFT JOIN pg_catalog.pg_replication_slots AS s ON s.slot_name = c.slot WHERE c.began IS NOT NULL AND c.id = `+literal(id))
	if err != nil {
		return capture{}, err
	}
	if len(res.Rows) == 0 {
		return capture{}, sqlstate.New(sqlstate.ObjectNotInState, "there is no capture %s on shard %s", id, v.s.cfg.Name).WithHint("begin the copy anew")
	}
	row := res.Rows[0]
	if confirmed, status := row[2].String, row[3].String; confirmed == "" || status == "lost" {
		return capture{}, (&sqlstate.Error{
			Code: sqlstate.ObjectNotInState, Message: fmt.Sprintf("the changes of capture %s are lost: its replication slot is gone, or the server has dropped log that it needed", id),
		}).WithHint("begin the copy anew; after a failover that is the only way, else raise max_slot_wal_keep_size first")
	}
	floor, err := parseLSN(row[2].String)
	return capture{slot: row[0].String, definition: row[1].String, floor: floor}, err
}

// unchanged compares tables with what they were when a capture of them, and perhaps of others, began.
func unchanged(definition string, set engine.Set, facts []*tableFacts) error {
	for i := range facts {
		if t := &set.Tables[i]; !containsLine(definition, facts[i].definition(t)) {
			return changed(t, "its definition in the catalogue is another one than when the capture began")
		}
	}
	return nil
}

func containsLine(text, line string) bool {
	for len(text) > 0 {
		head := text
		for i := range len(text) {
			if text[i] == '\n' {
				head = text[:i]
				break
			}
		}
		if head == line {
			return true
		}
		text = text[min(len(head)+1, len(text)):]
	}
	return false
}

// keepUp tells the server that we live, and what it may drop. Only what Forget said
// counts as flushed.
func (st *stream) keepUp(done <-chan struct{}) {
	every := 500 * time.Millisecond
	if st.until != 0 {
		every = 50 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		case <-st.poke:
		}
		if st.c.Send(standby(lsn(st.seen.Load()), lsn(st.forget.Load()), st.until != 0)) != nil {
			return // the reader finds out as well
		}
	}
}

// standby is a Standby status update: received, flushed and applied.
func standby(seen, flushed lsn, reply bool) []byte {
	b, m := wire.Begin(nil, wire.CopyDataF)
	b = append(b, 'r')
	b = binary.BigEndian.AppendUint64(b, uint64(seen))
	b = binary.BigEndian.AppendUint64(b, uint64(flushed))
	b = binary.BigEndian.AppendUint64(b, uint64(flushed))
	b = binary.BigEndian.AppendUint64(b, uint64(time.Since(epoch2000).Microseconds()))
	if reply {
		return wire.End(append(b, 1), m)
	}
	return wire.End(append(b, 0), m)
}

var epoch2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// run reads messages until the end.
func (st *stream) run(ctx context.Context) error {
	if st.until != 0 && st.reached(lsn(st.seen.Load())) {
		return st.finish(ctx)
	}
	for {
		b, err := st.c.Receive()
		if err != nil {
			return err
		}
		for len(b) > 0 {
			f, rest, ok, err := wire.Cut(b)
			if err != nil || !ok {
				return wire.ErrMalformed
			}
			b = rest
			switch f.Type() {
			case wire.CopyData:
				end, err := st.take(ctx, f.Body(), len(b) == 0 && st.c.frames.Buffered() == 0)
				if err != nil {
					return err
				}
				if end {
					return st.finish(ctx)
				}
			case wire.ErrorResponse:
				return wire.ParseReport(f.Body())
			case wire.CopyDone, wire.ReadyForQuery:
				return &engine.LostError{Shard: st.v.s.cfg.Name, Sent: true, Err: errors.New("the server ended the stream")}
			}
		}
	}
}

func (st *stream) reached(at lsn) bool { return st.until != 0 && at >= st.until }

// finish looks at the tables once more: a definition that was changed since, with no
// change of a row behind it, is not in the stream.
func (st *stream) finish(ctx context.Context) error {
	if err := st.check(ctx); err != nil {
		return err
	}
	if at := max(lsn(st.seen.Load()), st.until); at > st.reported {
		return st.commit(ctx, at)
	}
	return nil
}

// check compares the catalogue with what it was when the stream began.
func (st *stream) check(ctx context.Context) error {
	for i := range st.set.Tables {
		if err := st.checkTable(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (st *stream) checkTable(ctx context.Context, i int) error {
	t := &st.set.Tables[i]
	now, err := st.v.facts(ctx, st.side, t)
	switch {
	case sqlstate.CodeOf(err) == sqlstate.UndefinedTable:
		return changed(t, "it does not exist any more")
	case err != nil:
		return err
	case now.definition(t) != st.facts[i].definition(t):
		return changed(t, "its definition in the catalogue is another one than when the stream began")
	}
	return nil
}

func (st *stream) commit(ctx context.Context, at lsn) error {
	if err := st.to.Commit(ctx, engine.Position(at.String())); err != nil {
		return sinkError{err}
	}
	st.reported, st.given, st.at = at, 0, time.Now()
	return nil
}

// take handles one message of the stream. last says that nothing is behind it.
func (st *stream) take(ctx context.Context, b []byte, last bool) (end bool, err error) {
	if len(b) == 0 {
		return false, errOutput
	}
	switch b[0] {
	case 'k':
		if len(b) != 1+8+8+1 {
			return false, errOutput
		}
		if b[17] != 0 {
			// A server that shuts down waits until its log was flushed here, which it is
			// when Forget says so: perhaps never. It has ended our other conversation.
			if err := st.side.Probe(); err != nil {
				return false, err
			}
			st.nudge()
		}
		if st.inside {
			return false, nil
		}
		at := lsn(binary.BigEndian.Uint64(b[1:]))
		st.advance(at)
		if st.reached(at) {
			return true, nil
		}
		if last && at > st.reported {
			return false, st.commit(ctx, at)
		}
		return false, nil
	case 'w':
		if len(b) < 1+8+8+8+1 {
			return false, errOutput
		}
		if err := st.message.decode(b[25:]); err != nil {
			return false, err
		}
		return st.dispatch(ctx)
	}
	return false, nil
}

// nudge has the server told at once.
func (st *stream) nudge() {
	select {
	case st.poke <- struct{}{}:
	default:
	}
}

func (st *stream) advance(at lsn) {
	if uint64(at) > st.seen.Load() {
		st.seen.Store(uint64(at))
	}
}

func (st *stream) dispatch(ctx context.Context) (end bool, err error) {
	m := &st.message
	switch m.kind {
	case outBegin:
		if st.reached(m.at) {
			return true, nil // it commits behind the end
		}
		st.inside = true
	case outCommit:
		st.inside = false
		st.advance(m.at)
		// Servers before 15 send all transactions, most with nothing in them.
		if st.given > 0 || time.Since(st.at) > idleEvery {
			if err := st.commit(ctx, m.at); err != nil {
				return false, err
			}
		}
		return st.reached(m.at), nil
	case outRelation:
		return false, st.relation(ctx)
	case outTruncate:
		for _, number := range m.relations {
			if t := st.tables[number]; t != nil && t.index >= 0 {
				st.change = engine.Change{Op: engine.ChangeTruncate, Table: t.index}
				if err := st.give(ctx); err != nil {
					return false, err
				}
			}
		}
	case outInsert, outUpdate, outDelete:
		t := st.tables[m.relation]
		if t == nil {
			return false, errOutput
		}
		if t.index < 0 {
			return false, nil
		}
		if len(m.new) != t.width && m.kind != outDelete || len(m.old) != t.width && m.oldKind != 0 {
			return false, errOutput
		}
		return false, st.row(ctx, t)
	}
	return false, nil
}

// relation learns a table's columns, and that they are what they were.
func (st *stream) relation(ctx context.Context) error {
	m := &st.message
	t := &streamTable{index: -1, width: len(m.table.columns)}
	st.tables[m.relation] = t
	var mt *engine.MoveTable
	for i := range st.set.Tables {
		if st.facts[i].OID == m.relation {
			mt, t.index = &st.set.Tables[i], i
		}
	}
	if mt == nil {
		// A table of the publication that is none of the set's, or was dropped.
		return st.check(ctx)
	}
	if err := st.checkTable(ctx, t.index); err != nil {
		return err
	}
	types := map[string]columnFacts{}
	for _, c := range st.facts[t.index].Columns {
		types[c.Name] = c
	}
	at := map[string]int{}
	values := 0
	for i, c := range m.table.columns {
		known, ok := types[c.name]
		if !ok || known.OID != c.oid {
			return changed(mt, fmt.Sprintf("column %q is in a change, and not in the table", c.name))
		}
		at[c.name] = i
		if known.Generated == "" {
			values++
		}
	}
	find := func(names []string) ([]int, error) {
		out := make([]int, len(names))
		for i, n := range names {
			place, ok := at[n]
			if !ok {
				return nil, changed(mt, fmt.Sprintf("column %q is not in its changes", n))
			}
			out[i] = place
		}
		return out, nil
	}
	var err error
	if t.columns, err = find(mt.Columns); err != nil {
		return err
	}
	if values != len(mt.Columns) {
		return changed(mt, "its changes have other columns than the set says")
	}
	if t.identity, err = find(mt.Identity); err != nil {
		return err
	}
	t.key, err = find(mt.ShardKey)
	return err
}

func (st *stream) give(ctx context.Context) error {
	if err := st.to.Change(ctx, &st.change); err != nil {
		return sinkError{err}
	}
	st.given++
	return nil
}

// row gives a row's change as the set sees it.
func (st *stream) row(ctx context.Context, t *streamTable) error {
	m := &st.message
	if m.oldKind == 'O' {
		// What is not sent of the new row is what the old one had.
		for i := range m.new {
			if m.new[i].kind == cellUnchanged {
				m.new[i] = m.old[i]
			}
		}
	}
	before, after := false, false
	var err error
	switch {
	case m.kind == outInsert:
	case m.oldKind != 0:
		before, err = st.owns(t, m.old, nil)
	default:
		before, err = st.owns(t, m.new, nil) // the key is as it was
	}
	if err == nil && m.kind != outDelete {
		after, err = st.owns(t, m.new, m.old)
	}
	if err != nil || !before && !after {
		return err
	}
	if to, ok := st.to.(engine.Leaver); ok && !before && to.OnlyLeaves(t.index) {
		return nil
	}
	c := &st.change
	c.Table, c.Old, c.New, c.Same = t.index, c.Old[:0], c.New[:0], c.Same[:0]
	switch {
	case !before:
		c.Op = engine.ChangeInsert
	case !after:
		c.Op = engine.ChangeDelete
	default:
		c.Op = engine.ChangeUpdate
	}
	if before {
		old := m.old
		if m.oldKind == 0 {
			old = m.new
		}
		for _, i := range t.identity {
			if old[i].kind == cellUnchanged {
				return st.unknown(t, "an update of a row whose identity is out of line")
			}
			c.Old = append(c.Old, text(old[i]))
		}
	}
	if after {
		for _, i := range t.columns {
			value := m.new[i]
			same := value.kind == cellUnchanged
			if same && c.Op == engine.ChangeInsert {
				return st.unknown(t, "an update that brings a row with large values into what is moved, and does not change these")
			}
			c.New, c.Same = append(c.New, text(value)), append(c.Same, same)
		}
	}
	return st.give(ctx)
}

func text(c cell) engine.Text { return engine.Text{String: c.text, Null: c.kind == cellNull} }

func (st *stream) unknown(t *streamTable, what string) error {
	mt := &st.set.Tables[t.index]
	return (&sqlstate.Error{
		Code: sqlstate.ObjectNotInState, Schema: mt.Schema, Table: mt.Name,
		Message: fmt.Sprintf("%s cannot be followed: the log of table %q does not say all of it", what, mt.Schema+"."+mt.Name),
	}).WithHint("run ALTER TABLE %s.%s REPLICA IDENTITY FULL, and begin the copy anew", quoteName(mt.Schema), quoteName(mt.Name))
}

// owns reports whether a row is in the set. Key columns that were not sent are taken
// from the row before.
func (st *stream) owns(t *streamTable, row, before []cell) (bool, error) {
	st.key = st.key[:0]
	for n, i := range t.key {
		c := row[i]
		if c.kind == cellUnchanged && i < len(before) {
			c = before[i]
		}
		switch c.kind {
		case cellNull:
			return false, nil
		case cellUnchanged:
			return false, st.unknown(t, "an update of a row whose shard key is out of line")
		}
		value, err := keyspace.ParseText(st.set.Keys.Types[n], []byte(c.text))
		if err != nil {
			return false, err
		}
		st.key = append(st.key, value)
	}
	return st.owner.Owns(st.key), nil
}

// Forget moves the slot on.
func (v *mover) Forget(ctx context.Context, id string, upTo engine.Position) error {
	const op = "forget changes"
	if err := v.checkID(id); err != nil {
		return err
	}
	at, err := place(upTo)
	if err != nil || at == 0 {
		return err
	}
	if st := v.s.streams.get(id); st != nil {
		if uint64(at) > st.forget.Load() {
			st.forget.Store(uint64(at))
			st.nudge()
		}
		return nil
	}
	c, err := v.housekeeping(ctx, op)
	if err != nil {
		return err
	}
	defer v.done(c)
	err = v.transact(ctx, c, func() error { return nil })
	for tries := 0; err == nil; tries++ {
		var slot string
		if slot, err = v.slot(ctx, c, id); err != nil {
			break
		}
		_, err = c.exec(ctx, fmt.Sprintf(`SELECT pg_catalog.pg_replication_slot_advance(slot_name, LEAST(%s::pg_catalog.pg_lsn, pg_catalog.pg_current_wal_flush_lsn()))
			FROM pg_catalog.pg_replication_slots WHERE slot_name = %s AND confirmed_flush_lsn < %s::pg_catalog.pg_lsn`, literal(at.String()), literal(slot), literal(at.String())))
		if sqlstate.CodeOf(err) != sqlstate.ObjectInUse || tries > 100 {
			break // else a stream that has just ended
		}
		err = pause(ctx, 10*time.Millisecond)
	}
	return v.failed(ctx, op, err)
}

// count reads a number of a result.
func count(t engine.Text) int64 {
	n, _ := strconv.ParseInt(t.String, 10, 64) // the server wrote it
	return n
}
