package executor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// Sink takes what goes to the client.
type Sink interface {
	// Frames takes whole backend frames, in order. The bytes are the caller's.
	Frames(b []byte) error
	// Parameter takes each ParameterStatus. It is not among the Frames.
	Parameter(name, value string)
}

// Pipeline sends messages on one Conn and relays the answers in order. The
// methods that add a message say what becomes of its answer; Run sends and
// relays. A Pipeline is used by one goroutine and may be used again after Run
// with another Conn.
type Pipeline struct {
	Conn *Conn
	out  []byte
	// queue[head:] are the answers still to come.
	queue []expected
	head  int
	local []byte
	// fail is the ErrorResponse of the last Run, as the shard sent it.
	fail []byte
	// skipping: the shard ignores messages until Sync.
	skipping bool
	sentSync bool
	rejected []any
	// parsed are the owners of Parse messages that were answered, until that was handed on.
	parsed []any
	// statements counts what was added to run since the last Run.
	statements int
	// unsent is where the bytes of out begin that Start could not send; 0: it
	// sent all. so is what Poll has seen.
	unsent   int
	so       Outcome
	sent     int64  // when the last Run sent, Unix nanoseconds
	received int    // bytes of answers since the last Run
	tag      []byte // of the last CommandComplete since the last Run
	// Inner: descriptions are not for a client, and keep the shard's OIDs of tables.
	Inner bool
	// held are answers that wait until an OID is asked for, see renumber.go. polling: nothing
	// may be waited for.
	held    []byte
	polling bool
	edits   []edit
}

type answer uint8

const (
	anLocal             answer = iota // an answer of the router's own, when its turn comes
	anParse                           // '1'
	anBind                            // '2'
	anClose                           // '3'
	anDescribeStatement               // 't', then as anDescribePortal
	anDescribePortal                  // 'T' or 'n'
	anExecute                         // rows, ends with 'C', 'I' or 's'
	anQuery                           // anything, ends with 'Z'
	anSync                            // 'Z'
)

type expected struct {
	what     answer
	swallow  bool
	silent   bool      // anDescribe*: the columns are not relayed either
	from, to int       // anLocal: bytes of local
	prepared *Prepared // anParse: what is prepared then; nil for the unnamed
	owner    any       // of a Parse, and of an answer to it: see Rejected
	watch    Watch     // anDescribe*: is told the RowDescription
	columns  *Columns  // anDescribePortal: is set; anExecute: says what is translated. anQuery: both
	quiet    bool      // of the router's own: nothing that comes with it is for the client
	// row: anExecute of the router's own. It is given the body of each row, which is good during the call.
	row    func(body []byte) error
	sweeps bool // it is DISCARD SEQUENCES, see Conn.Count
}

// Watch is told the body of the RowDescription that answers a Describe, nil for
// NoData. It returns an error to report instead of it, or nil.
type Watch interface {
	Described(columns []byte) *sqlstate.Error
}

// ParameterWatch is a Watch of a statement to which the router adds parameters:
// the client is told of the first Parameters only, of all if that is negative.
type ParameterWatch interface {
	Watch
	Parameters() int
}

// TypeWatch is a Watch that is also told the types of the parameters.
type TypeWatch interface {
	Watch
	Typed(oids []uint32)
}

// fewerParameters is a ParameterDescription of the first n parameters.
func fewerParameters(body []byte, n int) []byte {
	oids := make([]uint32, 0, n)
	for i := range n {
		if len(body) < 2+4*i+4 {
			break
		}
		oids = append(oids, binary.BigEndian.Uint32(body[2+4*i:]))
	}
	return wire.AppendParameterDescription(nil, oids)
}

// Outcome is how a Run ended.
type Outcome struct {
	// Err is the error that the shard reported; Pipeline.ErrorFrame has it as it
	// came. It has not been relayed.
	Err *sqlstate.Error
	// Ready says that the shard sent ReadyForQuery, Status with what status.
	Ready  bool
	Status byte
	// CopyIn: the shard waits for CopyData. Copy and Resume go on.
	CopyIn bool
}

// ErrorFrame is the ErrorResponse of the last Run.
func (p *Pipeline) ErrorFrame() []byte { return p.fail }

// Pending is the number of bytes to be sent.
func (p *Pipeline) Pending() int { return len(p.out) }

// Waiting reports whether there are messages whose answers were not relayed.
func (p *Pipeline) Waiting() bool { return p.head < len(p.queue) }

// Rejected returns, once, the owners of the Parse messages of the client that a
// shard's error has kept from taking effect, or, after a loss, of those whose
// ParseComplete was not handed on.
func (p *Pipeline) Rejected() []any {
	r := p.rejected
	p.rejected = nil
	if p.Conn != nil && p.Conn.broken {
		r = append(r, p.parsed...)
		for i := p.head; i < len(p.queue); i++ {
			if e := &p.queue[i]; e.owner != nil && !e.swallow {
				r = append(r, e.owner)
			}
		}
	}
	clear(p.parsed)
	p.parsed = p.parsed[:0]
	return r
}

// InQuery reports whether the next answers are those of a simple Query.
func (p *Pipeline) InQuery() bool { return p.Waiting() && p.queue[p.head].what == anQuery }

// Sent is when the last Run sent its messages, Unix nanoseconds.
func (p *Pipeline) Sent() int64 { return p.sent }

// Received is how many bytes have answered the last Run, and the tag of the last
// statement that it completed, "" if there was none.
func (p *Pipeline) Received() (bytes int, tag string) {
	tag, _, _ = wire.CutString(p.tag)
	return p.received, tag
}

// Skipping reports whether the shard ignores messages until Sync, after an error.
func (p *Pipeline) Skipping() bool { return p.skipping }

// Reset forgets everything; the Conn has to be given up if answers were outstanding.
func (p *Pipeline) Reset() {
	p.Conn, p.out, p.queue, p.head, p.local = nil, p.out[:0], p.queue[:0], 0, p.local[:0]
	p.skipping, p.sentSync, p.statements = false, false, 0
	p.unsent, p.so = 0, Outcome{}
	p.held = p.held[:0]
	clear(p.rejected)
	p.rejected = p.rejected[:0]
	if cap(p.out) > 1<<20 {
		p.out = nil
	}
	if cap(p.local) > 1<<20 {
		p.local = nil
	}
}

func (p *Pipeline) expect(e expected) { p.queue = append(p.queue, e) }

// Local adds whole frames of the router's own at this place in the order.
func (p *Pipeline) Local(frames []byte) {
	from := len(p.local)
	p.local = append(p.local, frames...)
	p.expect(expected{what: anLocal, from: from, to: len(p.local)})
}

// Prepare makes sure that prep is prepared on the Conn. With relay the client
// gets a ParseComplete for it; if it cannot, owner is among the Rejected. The Conn
// has to have been asked for its OIDs.
func (p *Pipeline) Prepare(prep *Prepared, owner any, relay bool) {
	if p.Conn.prepared.has(prep, p.Conn.turn) {
		if relay {
			p.Local(parseComplete)
			p.queue[len(p.queue)-1].owner = owner
		}
		return
	}
	if old := p.Conn.prepared.add(prep, p.Conn.turn); old != nil {
		p.out = wire.AppendClose(p.out, 'S', old.name)
		p.expect(expected{what: anClose, swallow: true})
	}
	var restore []string
	if prep.reads {
		restore = p.readAs(prep.Settings)
	}
	p.out = wire.AppendParse(p.out, prep.name, prep.Text, p.Conn.translated(prep.OIDs))
	p.expect(expected{what: anParse, swallow: !relay, prepared: prep, owner: owner})
	p.setQuietly(restore)
}

var parseComplete = wire.AppendEmpty(nil, wire.ParseComplete)

// Begin adds a BEGIN before what follows, of which the client sees nothing. If it
// fails, the shard ignores everything up to Sync.
func (p *Pipeline) Begin(prep *Prepared) {
	p.Prepare(prep, nil, false)
	p.bind("", prep.name, []byte{0, 0, 0, 0, 0, 0}, false)
	p.out = wire.AppendExecute(p.out, "", 0)
	p.expect(expected{what: anExecute, swallow: true})
}

// HasPrepared reports whether the Conn has prep.
func (p *Pipeline) HasPrepared(prep *Prepared) bool {
	return p.Conn.prepared.has(prep, p.Conn.turn)
}

// Unnamed makes sure that the unnamed statement of the Conn is owner's, parsed under the settings s. The Conn
// has to have been asked for its oids.
func (p *Pipeline) Unnamed(owner any, text string, oids []uint32, s *Settings, relay bool) {
	if p.Conn.unnamed == owner {
		if relay {
			p.Local(parseComplete)
			p.queue[len(p.queue)-1].owner = owner
		}
		return
	}
	p.Conn.unnamed = owner
	var restore []string
	if !s.ReadsAs(p.Conn.settings) && MayRead(text) {
		restore = p.readAs(s)
	}
	p.out = wire.AppendParse(p.out, "", text, p.Conn.translated(oids))
	p.expect(expected{what: anParse, swallow: !relay, owner: owner})
	p.setQuietly(restore)
}

// Bind adds a Bind of the shard's statement; rest is the body after the
// statement's name, as the client sent it.
func (p *Pipeline) Bind(portal, statement string, rest []byte, relay bool) {
	p.sweepBind()
	p.bind(portal, statement, rest, relay)
}

func (p *Pipeline) bind(portal, statement string, rest []byte, relay bool) {
	p.out = append(p.out, wire.Bind)
	p.out = binary.BigEndian.AppendUint32(p.out, uint32(4+len(portal)+1+len(statement)+1+len(rest)))
	p.out = wire.AppendString(wire.AppendString(p.out, portal), statement)
	p.out = append(p.out, rest...)
	p.expect(expected{what: anBind, swallow: !relay})
}

// BindBytes is Bind with the portal's name as bytes, relayed.
func (p *Pipeline) BindBytes(portal []byte, statement string, rest []byte) {
	p.sweepBind()
	p.out = append(p.out, wire.Bind)
	p.out = binary.BigEndian.AppendUint32(p.out, uint32(4+len(portal)+1+len(statement)+1+len(rest)))
	p.out = append(append(p.out, portal...), 0)
	p.out = wire.AppendString(p.out, statement)
	p.out = append(p.out, rest...)
	p.expect(expected{what: anBind})
}

// ExecuteFrame is Execute with the client's own frame.
func (p *Pipeline) ExecuteFrame(frame []byte, columns *Columns) {
	p.out = append(p.out, frame...)
	p.statements++
	p.expect(expected{what: anExecute, columns: columns})
}

// CheckColumns lets w compare the columns of the shard's statement; nothing of
// it is relayed.
func (p *Pipeline) CheckColumns(statement string, w Watch) {
	p.out = wire.AppendDescribe(p.out, 'S', statement)
	p.expect(expected{what: anDescribeStatement, swallow: true, silent: true, watch: w})
}

// DescribeStatement adds a Describe of the shard's statement. Without parameters
// the ParameterDescription is not relayed.
func (p *Pipeline) DescribeStatement(statement string, parameters bool, w Watch) {
	p.out = wire.AppendDescribe(p.out, 'S', statement)
	p.expect(expected{what: anDescribeStatement, swallow: !parameters, watch: w})
}

// DescribePortal adds a Describe of a portal. noData says whether NoData is relayed too.
// columns, unless nil, is told which of the portal's values have OIDs inside, for Execute.
func (p *Pipeline) DescribePortal(portal string, noData bool, w Watch, columns *Columns) {
	p.out = wire.AppendDescribe(p.out, 'P', portal)
	p.expect(expected{what: anDescribePortal, swallow: !noData, watch: w, columns: columns})
}

// LearnColumns is DescribePortal of which nothing is relayed.
func (p *Pipeline) LearnColumns(portal string, w Watch, columns *Columns) {
	p.out = wire.AppendDescribe(p.out, 'P', portal)
	p.expect(expected{what: anDescribePortal, swallow: true, silent: true, watch: w, columns: columns})
}

// Execute adds an Execute; rowsMax 0 is all. columns are the portal's, nil if none of
// its values is in binary.
func (p *Pipeline) Execute(portal string, rowsMax int32, columns *Columns) {
	p.out = wire.AppendExecute(p.out, portal, rowsMax)
	p.statements++
	p.expect(expected{what: anExecute, columns: columns})
}

// ExecuteAside adds an Execute of the router's own beside what is run for the client, who sees nothing of it. row is given
// the body of each row, which is good during the call.
func (p *Pipeline) ExecuteAside(portal string, row func(body []byte) error) {
	p.out = wire.AppendExecute(p.out, portal, 0)
	p.expect(expected{what: anExecute, swallow: true, quiet: true, row: row})
}

// Close adds a Close of a portal.
func (p *Pipeline) Close(portal string, relay bool) {
	p.out = wire.AppendClose(p.out, 'P', portal)
	p.expect(expected{what: anClose, swallow: !relay})
}

var semicolon = []byte{';'}

// Statements is how many statements the next Run may make the shard run, at
// most, and at least 1.
func (p *Pipeline) Statements() int { return max(1, p.statements) }

// Query adds a simple Query; its ReadyForQuery is not relayed.
func (p *Pipeline) Query(sql string) {
	p.sweepQuery()
	p.Conn.unnamed = nil
	p.out = wire.AppendQuery(p.out, sql)
	p.statements += 1 + strings.Count(sql, ";")
	p.expect(expected{what: anQuery})
}

// Copied says which columns of the COPY TO that was added last have OIDs inside.
func (p *Pipeline) Copied(columns *Columns) { p.queue[len(p.queue)-1].columns = columns }

// QueryFrame is Query with the client's own frame.
func (p *Pipeline) QueryFrame(frame []byte) {
	p.sweepQuery()
	p.Conn.unnamed = nil
	p.out = append(p.out, frame...)
	p.statements += 1 + bytes.Count(frame, semicolon)
	p.expect(expected{what: anQuery})
}

// Sync and Flush tell Run how to end what it sends.
const (
	None  byte = 0 // a Query ends by itself
	Flush      = wire.Flush
	Sync       = wire.Sync
)

// Run sends what was added, ended by a Sync or a Flush message, and relays the
// answers until all have come. A sink's error (the client is gone) and a shard's
// loss are returned as they are; the Conn is broken after either.
func (p *Pipeline) Run(end byte, sink Sink) (Outcome, error) {
	if p.Conn == nil {
		return Outcome{}, p.locals(sink)
	}
	p.finish(end)
	if len(p.out) > 0 {
		p.sent, p.received, p.tag = time.Now().UnixNano(), 0, p.tag[:0]
		p.Conn.asked.Store(p.sent)
		err := p.Conn.Send(p.out)
		p.out, p.statements = p.out[:0], 0
		if err != nil {
			p.Conn.broken = true
			return Outcome{}, err
		}
	}
	return p.Resume(sink)
}

// finish ends what is to be sent.
func (p *Pipeline) finish(end byte) {
	p.fail = p.fail[:0]
	switch end {
	case Sync:
		p.out = wire.AppendEmpty(p.out, wire.Sync)
		p.expect(expected{what: anSync})
		p.sentSync = true
	case Flush:
		if len(p.out) > 0 {
			p.out = wire.AppendEmpty(p.out, wire.Flush)
		}
	}
}

// Copy sends the client's CopyData, CopyDone or CopyFail.
func (p *Pipeline) Copy(frames []byte) error {
	if err := p.Conn.Send(frames); err != nil {
		p.Conn.broken = true
		return err
	}
	return nil
}

// Resume goes on relaying after a CopyIn, or where Start and Poll have come to.
func (p *Pipeline) Resume(sink Sink) (Outcome, error) {
	o := p.so
	p.so = Outcome{}
	if o.CopyIn {
		p.Conn.asked.Store(0) // it waits for the client
		return o, nil
	}
	if p.unsent > 0 {
		err := p.Conn.Send(p.out[p.unsent:])
		p.out, p.unsent = p.out[:0], 0
		if err != nil {
			p.Conn.broken = true
			return o, sentSome(err)
		}
	}
	if err := p.locals(sink); err != nil {
		p.Conn.broken = true
		return o, err
	}
	if len(p.held) > 0 {
		b := p.held
		p.held = nil
		if err := p.relay(b, sink, &o); err != nil {
			p.Conn.broken = true
			return o, err
		}
		if o.CopyIn {
			p.Conn.asked.Store(0)
			return o, nil
		}
	}
	for p.head < len(p.queue) {
		b, err := p.Conn.Receive()
		if err != nil {
			p.Conn.broken = true
			return o, p.because(err, o.Err)
		}
		p.received += len(b)
		if err := p.relay(b, sink, &o); err != nil {
			p.Conn.broken = true
			return o, err
		}
		p.Conn.heard = true
		if o.CopyIn {
			p.Conn.asked.Store(0) // it waits for the client
			return o, nil
		}
	}
	p.answered()
	return o, nil
}

// answered notes that all answers have come.
func (p *Pipeline) answered() {
	p.Conn.asked.Store(0)
	p.queue, p.head, p.local = p.queue[:0], 0, p.local[:0]
	p.sentSync = false
}

// because keeps the shard's last words with the loss.
func (p *Pipeline) because(err error, said *sqlstate.Error) error {
	if said == nil {
		return err
	}
	return fmt.Errorf("%w; it said: %s (SQLSTATE %s)", err, said.Message, said.Code)
}

// locals hands out the router's own answers whose turn has come.
func (p *Pipeline) locals(sink Sink) error {
	for p.head < len(p.queue) && p.queue[p.head].what == anLocal {
		e := p.queue[p.head]
		p.head++
		if err := sink.Frames(p.local[e.from:e.to]); err != nil {
			if e.owner != nil {
				p.parsed = append(p.parsed, e.owner)
			}
			return err
		}
	}
	if p.head == len(p.queue) && p.Conn == nil {
		p.queue, p.head, p.local = p.queue[:0], 0, p.local[:0]
	}
	return nil
}

// abandon drops the answers that an error of the shard makes impossible: those
// up to the Sync that ends the skipping. A Query's ReadyForQuery still comes.
func (p *Pipeline) abandon() {
	for p.head < len(p.queue) {
		e := &p.queue[p.head]
		switch e.what {
		case anSync, anQuery:
			return
		case anParse:
			if !e.swallow {
				p.rejected = append(p.rejected, e.owner)
			}
			if e.prepared != nil {
				p.Conn.prepared.remove(e.prepared)
			} else {
				p.Conn.unnamed = nil
			}
		}
		if e.sweeps {
			p.Conn.unswept()
		}
		p.head++
	}
	p.skipping = true
}

// abandonLocally is for an error of the router's own in the middle: the shard
// does not know of it and goes on; its answers are swallowed. A Conn on which
// that cannot be done is broken.
func (p *Pipeline) abandonLocally() {
	p.Conn.broken = true
	p.head = len(p.queue)
}

// IgnoredSync is called after a COPY in the extended protocol: a shard ignores
// the Sync that was sent ahead of the CopyData. It reports whether there was one;
// no answer to it is expected any more.
func (p *Pipeline) IgnoredSync() (ignored bool) {
	if !p.sentSync {
		return false
	}
	p.sentSync = false
	for i := p.head; i < len(p.queue); i++ {
		if p.queue[i].what == anSync {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			return true
		}
	}
	return false
}

// unexpected is a breach of the protocol by the shard.
func (p *Pipeline) unexpected(what string) error {
	p.Conn.broken = true
	return fmt.Errorf("shard %s broke the protocol: %s", p.Conn.shard, what)
}
