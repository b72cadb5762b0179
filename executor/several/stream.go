package several

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several/explain"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// request is a text to be run on a part, with its parameters as in Bind.
type request struct {
	text string
	oids []uint32 // of all parameters, as description.params
	// formats and values are those of all parameters.
	formats []int16
	values  [][]byte
	results []int16
	// portion: so many rows are read at a time, and between two portions the part
	// is free for other statements; 0 reads all in one go.
	portion int32
	// step names it in EXPLAIN (ROUTE, ANALYZE); "" is "rows".
	step string
	// alone: outside of a block it needs no transaction.
	alone bool
	// named: it is worth preparing it on the shard under a name.
	named bool
	// copies: it is a COPY ... FROM STDIN that the router makes or splits.
	copies bool
	// copied are the columns of a COPY TO in binary.
	copied *executor.Columns
	// proved: it is a part of a read whose snapshots have to fit each other, see sender.proof.
	proved bool
	// bound is the portal that bindAll bound for it, "" if none.
	bound string
	// carried: columns of its rows are held as texts; results are its formats then.
	carried *carried
}

// carry lets columns come as texts to be held, after from others that are the client's.
func (q *request) carry(from int, client []int16, oids []uint32) {
	q.carried = carriedAs(from, oids)
	q.results = q.carried.formats(client)
}

// request is the request of a text of the execution's plan: with its parameters.
func (e *execution) request(text string) request {
	return request{text: text, oids: e.desc.params, formats: e.args.Formats, values: e.args.Values, results: e.results, portion: e.portion, named: e.named, alone: e.st.Stable && !e.lasts}
}

// stream is the answer of a part to a request, as it comes. It implements
// executor.Sink.
type stream struct {
	c *sender
	p *txn.Participant
	// columns is the body of the RowDescription; nil until it came, or if there is none.
	columns []byte
	values  executor.Columns
	carried *carried
	known   bool   // columns are what carried expects
	buf     []byte // DataRow, CopyData, CopyOutResponse and CopyInResponse frames
	pos     int
	tag     string // of the command, once it is complete
	portal  string
	portion int32
	reading bool // answers are outstanding
	suspend bool // the shard has more rows
	bound   bool // it is bound, and waits for the proof of its snapshot
	closes  bool // its portal is closed when it was executed
	copyIn  bool // the shard waits for data
	flushed bool // no Sync was sent yet
	err     error
	rows    int64 // that came
	bytes   int64
	step    string
	began   time.Time
}

// Frames takes what the shard says (executor.Sink).
func (s *stream) Frames(b []byte) error {
	s.bytes += int64(len(b))
	rows, size := s.rows, len(b)
	for len(b) >= wire.Header {
		n := 1 + int(binary.BigEndian.Uint32(b[1:]))
		switch b[0] {
		case wire.DataRow:
			s.rows++
			s.buf = append(s.buf, b[:n]...)
		case wire.CopyData, wire.CopyOutResponse, wire.CopyInResponse, wire.CopyDone:
			s.buf = append(s.buf, b[:n]...)
		case wire.CommandComplete:
			s.tag, _, _ = wire.CutString(b[wire.Header:n])
		case wire.EmptyQueryResponse:
			s.tag = ""
		case wire.PortalSuspended:
			s.suspend = true
		case wire.NoticeResponse:
			s.c.aside.notice(b[:n])
		}
		b = b[n:]
	}
	s.c.Progress().Add(s.rows-rows, int64(size))
	return nil
}

// Parameter passes a changed parameter on (executor.Sink).
func (s *stream) Parameter(name, value string) { s.c.aside.parameter(name, value) }

// Described keeps the columns (executor.Watch).
func (s *stream) Described(columns []byte) *sqlstate.Error {
	s.columns = append(s.columns[:0], columns...)
	return nil
}

// send sends a text to a part, whose answer is read from the stream. Several
// parts work at the same time if send is called for all before the first next.
func (c *sender) send(p *txn.Participant, q request) (*stream, error) {
	if err := c.readies(p, &q); err != nil {
		return nil, err
	}
	if !q.alone || !c.alone(p, q) {
		if err := c.within(p); err != nil {
			return nil, err
		}
	}
	s := &stream{c: c, p: p, carried: q.carried, portion: q.portion, step: q.step, began: time.Now()}
	if q.portion > 0 {
		c.portalNo++
		s.portal = "cleave_" + strconv.Itoa(c.portalNo)
	}
	if q.copied != nil {
		s.values = *q.copied
	}
	c.bind(s, q)
	c.proof.sent(s)
	p.Busy, s.reading = s, true
	if q.proved && c.proof.holds(s) {
		if s.reading = !s.closes; s.closes { // it was bound before
			return s, nil
		}
		return s, s.dispatch(executor.Flush)
	}
	s.runs()
	if !q.copies {
		return s, s.dispatch(executor.Sync)
	}
	// A Sync would be part of the data, or, after an error that came before the shard looked for
	// data, end that: nobody could tell which.
	s.flushed = true
	return s, s.dispatch(executor.Flush)
}

// dispatch sends what was added to the part's pipeline.
func (s *stream) dispatch(end byte) error {
	if err := s.p.Pipe.Dispatch(end); err != nil {
		return s.broken(err)
	}
	return nil
}

// readies makes a request one that can be sent to a part. errTorn: it could not be proved there.
func (c *sender) readies(p *txn.Participant, q *request) error {
	if err := context.Cause(c.Ctx); err != nil {
		return err
	}
	if p.Busy != nil {
		return p.Unread()
	}
	if q.bound != "" {
		return nil
	}
	if q.proved && c.proof != nil && !c.proof.Knows(p) {
		return errTorn
	}
	if err := q.fit(); err != nil {
		return err
	}
	return c.number(p, q)
}

// within makes what is added to the part's pipeline run inside of the transaction, which begins with it if it has not.
func (c *sender) within(p *txn.Participant) error {
	batched, err := c.Begin(p)
	switch {
	case err != nil:
		return err
	case !batched:
		return c.Settle(p)
	}
	p.Pipe.Begin(c.Ex.Prepare(p.BeginText(), nil, 0, nil))
	return nil
}

// bind adds the Bind of a request, unless it was bound before.
func (c *sender) bind(s *stream, q request) {
	if q.bound != "" {
		s.portal, s.closes = q.bound, true
		return
	}
	on := c.prepareOn(s.p, q, s)
	bind := func() { s.p.Pipe.Bind(s.portal, on, bindBody(q), false) }
	if q.proved && c.proof != nil {
		c.proof.around(s, c.Lasting(s.p), bind)
		return
	}
	bind()
}

// alone reports whether a text can run on a part without a transaction, which
// saves the round trip of its end: at READ COMMITTED each statement has a snapshot
// of its own in any case.
func (c *sender) alone(p *txn.Participant, q request) bool {
	if c.Block || p.Begun || p.Begin != "" || q.portion > 0 || len(p.Conn.LocalChanges(c.host.Settings())) > 0 {
		return false
	}
	level := c.host.Settings().Text("default_transaction_isolation")
	return level == "" || strings.EqualFold(level, "read committed")
}

// prepareOn adds the Parse of a request to the part's pipeline, if it needs one,
// and returns the statement's name.
func (c *sender) prepareOn(p *txn.Participant, q request, owner any) string {
	if !q.named {
		p.Pipe.Unnamed(owner, q.text, q.oids, p.Conn.Settings(), false)
		return ""
	}
	prep := c.Ex.Prepare(q.text, q.oids, c.host.Snapshot().SchemaVersion(), p.Conn.Settings())
	p.Pipe.Prepare(prep, owner, false)
	return prep.Name()
}

// parametersMax is how many parameters the protocol can count.
const parametersMax = 1<<16 - 1

// fit leaves out the parameters that the text does not name if there are more than the protocol can count: the router's own
// come on top of the client's. Errors: 54000 when the text names too many.
func (q *request) fit() error {
	if len(q.values) <= parametersMax {
		return nil
	}
	number := make([]int, len(q.values)+1) // the new ones
	var text strings.Builder
	o, last := *q, 0
	o.oids, o.formats, o.values = nil, nil, nil
	for lex := (sqlguard.Lexer{Text: q.text}); ; {
		t := lex.Next()
		if t.Kind == sqlguard.EOF {
			break
		}
		if t.Kind != sqlguard.Param {
			continue
		}
		n, err := strconv.Atoi(q.text[t.Start+1 : t.End])
		if err != nil || n < 1 || n > len(q.values) {
			continue // the shard says so
		}
		if number[n] == 0 {
			number[n] = o.add(q.oids[n-1], wire.FormatAt(q.formats, n-1), q.values[n-1])
		}
		text.WriteString(q.text[last:t.Start])
		text.WriteByte('$')
		text.WriteString(strconv.Itoa(number[n]))
		last = t.End
	}
	if len(o.values) > parametersMax {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the statement needs %d parameters on a shard, with those that the router adds, and the protocol has %d", len(o.values), parametersMax).
			WithHint("use fewer parameters, or pass an array")
	}
	text.WriteString(q.text[last:])
	o.text = text.String()
	*q = o
	return nil
}

// bindBody is the body of a Bind after its names.
func bindBody(q request) []byte {
	size := 6 + 2*len(q.formats) + 2*len(q.results)
	for _, v := range q.values {
		size += 4 + len(v)
	}
	b := make([]byte, 0, size)
	b = wire.AppendInt16(b, int16(len(q.formats)))
	for _, f := range q.formats {
		b = wire.AppendInt16(b, f)
	}
	b = wire.AppendInt16(b, int16(len(q.values)))
	for _, v := range q.values {
		b = wire.AppendValue(b, v)
	}
	b = wire.AppendInt16(b, int16(len(q.results)))
	for _, f := range q.results {
		b = wire.AppendInt16(b, f)
	}
	return b
}

// broken is the error of a stream whose part is lost.
func (s *stream) broken(err error) error {
	s.reading, s.bound, s.p.Busy = false, false, nil
	s.err = s.c.Failure(s.p, err)
	return s.err
}

// fill waits for answers. more is false at the end of what was asked for.
func (s *stream) fill() (more bool, err error) {
	if s.err != nil {
		return false, s.err
	}
	if s.bound {
		return false, sqlstate.New(sqlstate.InternalError, "a statement on shard %s is read before its snapshot is proved", s.p.Shard).OnShard(s.p.Shard)
	}
	if !s.reading || s.copyIn {
		return false, nil
	}
	o, done, err := s.p.Pipe.Step(s)
	if err != nil {
		return false, s.broken(err)
	}
	s.copyIn = o.CopyIn
	if !done {
		return true, nil
	}
	if s.flushed {
		s.flushed = false
		if _, err := s.p.Pipe.Run(executor.Sync, s); err != nil {
			return false, s.broken(err)
		}
	}
	s.reading, s.p.Busy = false, nil
	if o.Err != nil {
		s.err = s.c.Failure(s.p, o.Err)
		return false, s.err
	}
	if !s.suspend {
		s.noted()
	}
	return true, nil
}

// noted records the stream, which is at its end.
func (s *stream) noted() {
	name := s.step
	if name == "" {
		name = "rows"
	}
	s.c.Note(explain.Step{Name: name, Shard: s.p.Shard, Rows: s.rows, Bytes: s.bytes, Took: time.Since(s.began)})
}

// take waits for all of a portion.
func (s *stream) take() error {
	for s.reading && !s.copyIn {
		if _, err := s.fill(); err != nil {
			return err
		}
	}
	return nil
}

// ready makes sure that there is a frame in buf, unless the answer is at its end.
func (s *stream) ready() (bool, error) {
	for s.pos >= len(s.buf) {
		s.buf, s.pos = s.buf[:0], 0
		if cap(s.buf) > 1<<20 {
			s.buf = nil
		}
		if !s.reading && s.suspend && s.err == nil {
			s.suspend = false
			if s.p.Busy != nil {
				return false, s.p.Unread()
			}
			if err := context.Cause(s.c.Ctx); err != nil {
				return false, err
			}
			s.p.Pipe.Execute(s.portal, s.portion, &s.values)
			s.p.Busy, s.reading = s, true
			if err := s.p.Pipe.Dispatch(executor.Sync); err != nil {
				return false, s.broken(err)
			}
		}
		more, err := s.fill()
		if err == nil && s.portion > 0 {
			// The part has to be free before anything of the portion is given.
			err = s.take()
		}
		if err != nil {
			return false, err
		}
		if !more && s.pos >= len(s.buf) && !s.suspend {
			return false, nil
		}
	}
	return true, nil
}

// Next returns the body of the next DataRow (or CopyData), nil at the end; then
// tag is set. It is valid until the next call. Other frames are passed over.
func (s *stream) Next() ([]byte, error) {
	for {
		ok, err := s.ready()
		if !ok || err != nil {
			return nil, err
		}
		f := s.buf[s.pos:]
		n := 1 + int(binary.BigEndian.Uint32(f[1:]))
		s.pos += n
		if f[0] == wire.DataRow {
			if err := s.expects(); err != nil {
				return nil, err
			}
			return s.carried.row(f[wire.Header:n])
		}
		if f[0] == wire.CopyData {
			return f[wire.Header:n], nil
		}
	}
}

// chunk returns whole frames that are at hand, at most rows DataRows (0: any
// number); nil at the end. They are valid until the next call.
func (s *stream) chunk(rows int32) ([]byte, error) {
	ok, err := s.ready()
	if !ok || err != nil {
		return nil, err
	}
	from, to := s.pos, s.pos
	for n := int32(0); to < len(s.buf) && (rows <= 0 || n < rows); n++ {
		to += 1 + int(binary.BigEndian.Uint32(s.buf[to+1:]))
	}
	s.pos = to
	if err := s.expects(); err != nil {
		return nil, err
	}
	return s.carried.frames(s.buf[from:to])
}

// expects is carried.expects, once.
func (s *stream) expects() error {
	if s.known || s.columns == nil {
		return nil
	}
	s.known = true
	return s.carried.expects(s.columns)
}

// head waits until the columns are known, or the answer has ended.
func (s *stream) head() error {
	for s.columns == nil && s.reading {
		if more, err := s.fill(); err != nil || !more {
			return err
		}
	}
	return s.err
}

// Drain reads what is left, without looking at it.
func (s *stream) Drain() {
	_ = s.unbind() // it is in err
	for s.reading {
		s.buf, s.pos = s.buf[:0], 0
		if s.copyIn {
			if s.endCopy(wire.AppendCopyFail(nil, "the statement has ended")) != nil {
				break
			}
		}
		if _, err := s.fill(); err != nil {
			break
		}
	}
	s.buf, s.pos = s.buf[:0], 0
}

// stop ends the answer early. Much that is unread is cancelled only outside of a
// transaction that goes on, where an error would end it.
func (s *stream) stop() {
	_ = s.unbind() // it is in err
	if s.reading {
		s.Drain()
	}
	if s.portal != "" && s.suspend && s.err == nil && !s.p.Conn.Broken() && s.p.Busy == nil {
		s.suspend = false
		s.p.Pipe.Close(s.portal, false)
		if _, err := s.p.Pipe.Run(executor.Sync, s); err != nil {
			_ = s.c.Failure(s.p, err) // it marks the transaction
		}
	}
}

// Abandon forgets what is left: the conversation is broken.
func (s *stream) Abandon() { s.reading, s.bound, s.p.Busy = false, false, nil }

// oidUnknown is what stands for a type that the default shard does not have.
const oidUnknown = 705

// number gets a request ready for a part, whose OIDs of types may be others than those
// that clients know; see executor/oids.go.
func (c *sender) number(p *txn.Participant, q *request) error {
	if err := numbered(p.Conn, q); err != nil {
		return c.Failure(p, err)
	}
	return nil
}

func numbered(conn *executor.Conn, q *request) error {
	if _, err := conn.OIDs(q.oids, true); err != nil {
		return unnumbered(conn, err)
	}
	values, err := conn.Values(q.oids, q.formats, q.values, true)
	if err != nil {
		return unnumbered(conn, err)
	}
	q.values = values
	return nil
}

func unnumbered(conn *executor.Conn, err error) error {
	if se := new(sqlstate.Error); errors.As(err, &se) {
		return se
	}
	return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the OIDs of types could not be asked for").OnShard(conn.Shard()).
		WithHint("nothing was done: run it again; `cleave doctor` says which shards answer")
}

// copyRows is a query of the columns that a COPY of a table carries, "" if none of them
// could have OIDs inside that differ between shards.
func copyRows(p *plan.CopyPlan, made bool) string {
	if !p.Binary || p.Table == nil {
		return ""
	}
	var names []string
	if made {
		for _, col := range p.MadeFor {
			names = append(names, quote(col.Name))
		}
	}
	numbered := false
	for i := range p.Table.Columns {
		numbered = numbered || executor.MayNumber(p.Table.Columns[i].OID)
		if len(p.Columns) == 0 && !p.Table.Columns[i].Computed {
			names = append(names, quote(p.Table.Columns[i].Name))
		}
	}
	if !numbered {
		return ""
	}
	for _, n := range p.Columns {
		names = append(names, quote(n))
	}
	return "SELECT " + strings.Join(names, ", ") + " FROM ONLY " + quote(p.Table.Schema) + "." + quote(p.Table.Name)
}

// columnsOf finds out which of a query's columns have OIDs inside on a part; nil if
// none has to be translated there.
func (c *sender) columnsOf(p *txn.Participant, text string) (*executor.Columns, error) {
	if text == "" || !p.Conn.Foreign() {
		return nil, nil
	}
	if batched, err := c.Begin(p); err != nil {
		return nil, err
	} else if batched {
		p.Pipe.Begin(c.Ex.Prepare(p.BeginText(), nil, 0, nil))
	} else if err := c.Settle(p); err != nil {
		return nil, err
	}
	values := &executor.Columns{}
	p.Pipe.Unnamed(values, text, nil, p.Conn.Settings(), false)
	p.Pipe.Bind("", "", bindBody(request{results: []int16{1}}), false)
	p.Pipe.LearnColumns("", nil, values)
	o, err := p.Pipe.Run(executor.Sync, &describing{c: c, p: p})
	if err == nil && o.Err != nil {
		err = o.Err
	}
	if err != nil {
		return nil, c.Failure(p, err)
	}
	return values, nil
}

// typesOfRows are the types of a query's columns, as clients number them; nil without a text.
func (c *runner) typesOfRows(p *txn.Participant, text string) ([]uint32, error) {
	if text == "" {
		return nil, nil
	}
	d, err := c.describeOn(p, text, nil)
	if err != nil {
		return nil, err
	}
	types := make([]uint32, len(d.fields))
	for i := range d.fields {
		types[i] = d.fields[i].TypeOID
	}
	return types, nil
}

// renumber translates a row of a COPY in binary for its part, or from it.
func renumber(p *txn.Participant, row []byte, columns *executor.Columns, types []uint32) error {
	err := p.Conn.Row(row, columns, types)
	if err != nil {
		return sqlstate.As(unnumbered(p.Conn, err))
	}
	return nil
}

// all reads an answer to its end, and returns the bodies of its rows, which are taken from what is left of the memory.
func (s *stream) all(left *limits.Allowance) (rows [][]byte, err error) {
	for {
		body, err := s.Next()
		if err != nil || body == nil {
			return rows, err
		}
		if err := left.Take(len(body)); err != nil {
			return nil, err
		}
		rows = append(rows, slices.Clone(body))
	}
}
