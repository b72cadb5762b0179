package executor

import (
	"encoding/binary"
	"fmt"

	"github.com/cleavedb/cleave/internal/wire"
)

// What a shard sends is relayed frame by frame. Frames for the client are handed on in runs, as long as they come:
//
//	frame ──▶ keep ──▶ it is in the run b[start:pos], which goes to the client as one
//	      ──▶ drop ──▶ the run before it is handed on; the next one begins behind it
//	      ──▶ wait ──▶ the run is handed on; the frame and all behind it are held until an OID is known
//	      ──▶ stop ──▶ an error of the router's own is in its place; the rest is not looked at
//
//	with next: the answer that is expected is complete; those of the router's own that come now are handed out
//
// Which of them depends on the frame and on the first expected answer (Pipeline.queue), which changes by next, by an
// error of the shard (abandon), and from the description of a statement's parameters to that of its columns.
type verdict uint8

const (
	keep verdict = 0
	drop verdict = 1 << iota
	wait
	stop
	next
)

// relaying is a batch of whole frames on its way.
type relaying struct {
	p          *Pipeline
	b          []byte
	sink       Sink
	o          *Outcome
	start, pos int // b[start:pos] is to be handed on
}

// relay takes a batch of whole frames from the shard.
func (p *Pipeline) relay(b []byte, sink Sink, o *Outcome) error {
	r := relaying{p: p, b: b, sink: sink, o: o}
	for r.pos < len(b) {
		if len(b)-r.pos < wire.Header {
			return p.unexpected("a torn frame")
		}
		end := r.pos + 1 + int(binary.BigEndian.Uint32(b[r.pos+1:]))
		if end > len(b) || end < r.pos+wire.Header {
			return p.unexpected("a torn frame")
		}
		v, err := r.frame(b[r.pos], b[r.pos+wire.Header:end])
		switch {
		case err != nil:
			return err
		case v&wait != 0:
			return p.hold(b[r.pos:], r.flush())
		case v&stop != 0:
			return nil
		case v&drop != 0:
			if err := r.flush(); err != nil {
				return err
			}
			r.start = end
		}
		r.pos = end
		if v&next != 0 {
			p.head++
			if p.head < len(p.queue) && p.queue[p.head].what == anLocal {
				if err := r.flush(); err != nil {
					return err
				}
				if err := p.locals(sink); err != nil {
					return err
				}
			}
		}
	}
	return r.flush()
}

// flush hands the run on.
func (r *relaying) flush() error {
	if r.pos > r.start {
		if err := r.sink.Frames(r.b[r.start:r.pos]); err != nil {
			return err
		}
		r.p.parsed = r.p.parsed[:0]
	}
	r.start = r.pos
	return nil
}

// frame is about one frame.
func (r *relaying) frame(typ byte, body []byte) (verdict, error) {
	p := r.p
	switch typ {
	case wire.DataRow:
		return r.row(body)
	case wire.NoticeResponse, wire.ParameterStatus:
		return r.told(typ, body)
	case wire.NotificationResponse:
		return drop, nil
	case wire.ErrorResponse:
		return drop, r.failed(body)
	}
	if p.head >= len(p.queue) {
		return keep, p.unexpected("an answer that nobody asked for")
	}
	e := &p.queue[p.head]
	if typ == wire.RowDescription || typ == wire.ParameterDescription {
		if held, err := p.renumber(typ, body, e); err != nil || held {
			return waitIf(held), err
		}
	}
	v, err := r.answer(e, typ, body)
	if err == nil && v&(wait|stop) == 0 && typ == wire.ReadyForQuery {
		if len(body) != 1 {
			return keep, p.unexpected("a ReadyForQuery without status")
		}
		r.o.Ready, r.o.Status = true, body[0]
		p.Conn.status = body[0]
	}
	return v, err
}

// row is the case of every row of every result.
func (r *relaying) row(body []byte) (verdict, error) {
	p := r.p
	if p.head == len(p.queue) {
		return keep, p.unexpected("a row that nobody asked for")
	}
	switch e := &p.queue[p.head]; {
	case e.what != anExecute && e.what != anQuery:
		return keep, p.unexpected("a row that nobody asked for")
	case e.row != nil:
		return drop, e.row(body)
	case e.columns != nil && len(e.columns.list) > 0:
		held, err := p.recode(body, e.columns)
		return waitIf(held), err
	}
	return keep, nil
}

func waitIf(held bool) verdict {
	if held {
		return wait
	}
	return keep
}

// told is about what comes at any time.
func (r *relaying) told(typ byte, body []byte) (verdict, error) {
	p := r.p
	if p.head < len(p.queue) && p.queue[p.head].quiet {
		return drop, nil
	}
	if typ == wire.NoticeResponse {
		return keep, nil
	}
	if err := r.flush(); err != nil {
		return keep, err
	}
	if name, rest, ok := wire.CutString(body); ok {
		if value, _, ok := wire.CutString(rest); ok {
			r.sink.Parameter(name, value)
		}
	}
	return drop, nil
}

// failed is about an error of the shard.
func (r *relaying) failed(body []byte) error {
	p := r.p
	if err := r.flush(); err != nil {
		return err
	}
	if r.o.Err == nil {
		r.o.Err = wire.ParseReport(body)
		p.fail = append(p.fail[:0], r.b[r.pos:r.pos+wire.Header+len(body)]...)
	}
	if p.head < len(p.queue) && p.queue[p.head].sweeps && p.queue[p.head].what == anQuery {
		// The client's Query comes behind it, and would run although the client is told an error.
		return p.because(p.unexpected("an error of "+discardSequences), r.o.Err)
	}
	p.abandon()
	r.o.CopyIn = false // a trigger that fires before the first row has failed
	return nil
}

// answer is about a frame of the answer that is expected.
func (r *relaying) answer(e *expected, typ byte, body []byte) (verdict, error) {
	p := r.p
	swallowed := keep
	if e.swallow {
		swallowed = drop
	}
	switch {
	case e.what == anQuery:
		return r.query(e, typ, body, swallowed)
	case e.what == anExecute:
		return r.execute(e, typ, body, swallowed)
	case e.what == anSync && typ == wire.ReadyForQuery:
		p.skipping = false
		return drop | next, nil
	case e.what == anParse && typ == wire.ParseComplete:
		if !e.swallow && e.owner != nil {
			p.parsed = append(p.parsed, e.owner)
		}
		return swallowed | next, nil
	case e.what == anBind && typ == wire.BindComplete, e.what == anClose && typ == wire.CloseComplete:
		return swallowed | next, nil
	case e.what == anDescribeStatement && typ == wire.ParameterDescription:
		return r.parameters(e, body, swallowed)
	case e.what == anDescribePortal && (typ == wire.RowDescription || typ == wire.NoData):
		return r.columns(e, typ, body, swallowed)
	}
	return keep, p.unexpected(fmt.Sprintf("message %q", typ))
}

// query is about the answer to a Query, which is anything up to ReadyForQuery.
func (r *relaying) query(e *expected, typ byte, body []byte, swallowed verdict) (verdict, error) {
	p := r.p
	switch typ {
	case wire.ReadyForQuery:
		return drop | next, nil
	case wire.CommandComplete:
		p.tag = append(p.tag[:0], body...)
		if e.sweeps {
			p.Conn.swept()
		}
	case wire.CopyInResponse:
		r.o.CopyIn = true
	case wire.CopyData:
		if held, err := p.recopy(body, e.columns); err != nil || held {
			return waitIf(held), err
		}
	case wire.CopyBothResponse:
		return keep, p.unexpected("CopyBothResponse")
	}
	return swallowed, nil
}

// execute is about the answer to an Execute.
func (r *relaying) execute(e *expected, typ byte, body []byte, swallowed verdict) (verdict, error) {
	p := r.p
	switch typ {
	case wire.CommandComplete:
		if !e.quiet {
			p.tag = append(p.tag[:0], body...)
		}
		if e.sweeps {
			p.Conn.swept()
		}
		return swallowed | next, nil
	case wire.EmptyQueryResponse, wire.PortalSuspended:
		return swallowed | next, nil
	case wire.CopyInResponse:
		r.o.CopyIn = true
	case wire.CopyOutResponse, wire.CopyDone:
	case wire.CopyData:
		if held, err := p.recopy(body, e.columns); err != nil || held {
			return waitIf(held), err
		}
	default:
		return keep, p.unexpected(fmt.Sprintf("message %q during Execute", typ))
	}
	return swallowed, nil
}

// parameters is about the description of a statement's parameters, behind which that of its columns comes.
func (r *relaying) parameters(e *expected, body []byte, swallowed verdict) (verdict, error) {
	e.what, e.swallow = anDescribePortal, e.silent
	if w, ok := e.watch.(TypeWatch); ok {
		w.Typed(typesOf(body))
	}
	w, ok := e.watch.(ParameterWatch)
	if !ok || swallowed == drop || w.Parameters() < 0 {
		return swallowed, nil
	}
	if err := r.flush(); err != nil {
		return keep, err
	}
	return drop, r.sink.Frames(fewerParameters(body, w.Parameters()))
}

// columns is about the description of columns, or that there are none.
func (r *relaying) columns(e *expected, typ byte, body []byte, swallowed verdict) (verdict, error) {
	p := r.p
	if typ == wire.RowDescription && !e.silent {
		swallowed = keep
	}
	if e.watch == nil {
		return swallowed | next, nil
	}
	if typ == wire.NoData {
		body = nil
	}
	if err := e.watch.Described(body); err != nil {
		if r.o.Err == nil {
			r.o.Err, p.fail = err, wire.AppendError(p.fail[:0], err)
		}
		if err := r.flush(); err != nil {
			return keep, err
		}
		p.abandonLocally()
		return stop, nil
	}
	return swallowed | next, nil
}
