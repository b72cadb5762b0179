package gateway

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

const (
	// flushAt is how much is collected for one write.
	flushAt = 64 << 10
	// direct is the size from which frames are written without being copied.
	direct = 16 << 10
)

// writer collects what goes to the client. Nothing is written before flush
// unless there is much of it; what was not written can be taken back.
type writer struct {
	nc      net.Conn
	buf     []byte
	sent    uint64 // bytes written
	err     error
	metrics *telemetry.Metrics
	gate    *moment.Gate // what is written has to pass
	// stalled is when a write began that has not ended, Unix nanoseconds; 0 if none.
	stalled     atomic.Int64
	onParameter func(name, value string)
	// guard is asked before anything of a shard's answer is taken; nil lets all pass.
	guard func(b []byte) error
	// least is the client_min_messages of the session.
	least func() string
	// where is the context of notices, "" if they have none of their own.
	where string
	// hold: a loop's thread runs the session; nothing is written but by flushNow.
	hold bool
}

// Frames takes whole frames of a shard's answer (executor.Sink).
func (w *writer) Frames(b []byte) error {
	if w.guard != nil {
		if err := w.guard(b); err != nil {
			return err
		}
	}
	return w.put(b)
}

// put takes whole frames.
func (w *writer) put(b []byte) error {
	if w.err != nil {
		return w.err
	}
	if len(b) >= direct && !w.hold {
		if err := w.flush(); err != nil {
			return err
		}
		return w.write(b)
	}
	w.buf = append(w.buf, b...)
	if len(w.buf) >= flushAt {
		return w.flush()
	}
	return nil
}

// Parameter is told of a ParameterStatus, a shard's (executor.Sink) or the router's own.
func (w *writer) Parameter(name, value string) { w.onParameter(name, value) }

func (w *writer) flush() error {
	if w.err != nil || len(w.buf) == 0 || w.hold {
		return w.err
	}
	err := w.write(w.buf)
	if cap(w.buf) > 4*flushAt {
		w.buf = nil
	}
	w.buf = w.buf[:0]
	return err
}

func (w *writer) write(b []byte) error {
	w.gate.Pass()
	w.stalled.Store(time.Now().UnixNano())
	n, err := w.nc.Write(b)
	w.stalled.Store(0)
	w.sent += uint64(n)
	w.metrics.Traffic(0, n)
	if err != nil {
		w.err = &clientGone{err}
	}
	return w.err
}

// flushNow writes what can be written without waiting, and reports whether that
// was all.
func (w *writer) flushNow(c *lane.Conn) bool {
	if !w.gate.Open() {
		return len(w.buf) == 0
	}
	n, err := c.WriteNow(w.buf)
	w.sent += uint64(n)
	w.metrics.Traffic(0, n)
	if err != nil && err != lane.ErrAgain {
		w.err = &clientGone{err}
	}
	if n < len(w.buf) {
		w.buf = w.buf[:copy(w.buf, w.buf[n:])]
		return false
	}
	w.buf = w.buf[:0]
	return true
}

// clientGone says that the client's connection is over.
type clientGone struct{ err error }

func (e *clientGone) Error() string { return "the client went away: " + e.err.Error() }
func (e *clientGone) Unwrap() error { return e.err }

func isGone(err error) bool {
	if err == nil {
		return false
	}
	var gone *clientGone
	return errors.As(err, &gone)
}

// mark is a place in what was sent.
type mark struct {
	sent uint64
	have int
}

func (w *writer) mark() mark { return mark{w.sent, len(w.buf)} }

// rewindable reports whether nothing was written since the mark.
func (w *writer) rewindable(m mark) bool { return w.sent == m.sent }

func (w *writer) rewind(m mark) { w.buf = w.buf[:m.have] }

// uncomplete takes a CommandComplete back that is the last frame since the mark, if it was not written yet.
func (w *writer) uncomplete(m mark) {
	at := 0 // what is left after a flush begins with a frame
	if w.rewindable(m) {
		at = m.have
	}
	frames(w.buf[at:], func(typ byte, body []byte) {
		if at += wire.Header + len(body); typ == wire.CommandComplete && at == len(w.buf) {
			w.buf = w.buf[:at-wire.Header-len(body)]
		}
	})
}

func (w *writer) empty(typ byte)            { w.buf = wire.AppendEmpty(w.buf, typ) }
func (w *writer) complete(tag string)       { w.buf = wire.AppendCommandComplete(w.buf, tag) }
func (w *writer) ready(status byte)         { w.buf = wire.AppendReadyForQuery(w.buf, status) }
func (w *writer) failure(e *sqlstate.Error) { w.buf = wire.AppendError(w.buf, e) }

func (w *writer) notice(e *sqlstate.Error) {
	if w.least != nil && noticeLevels[e.Severity] > 0 && noticeLevels[strings.ToUpper(w.least())] > noticeLevels[e.Severity] {
		return
	}
	if w.where != "" {
		c := *e
		c.Where = strings.TrimPrefix(c.Where+"\n"+w.where, "\n")
		e = &c
	}
	w.buf = wire.AppendNotice(w.buf, e)
}

// noticeLevels orders what client_min_messages chooses from; the lower ones let all of the router's notices pass.
var noticeLevels = map[string]int{"NOTICE": 1, "WARNING": 2, "ERROR": 3}

// warning is a notice of severity WARNING.
func (w *writer) warning(code sqlstate.Code, text string) {
	w.notice(&sqlstate.Error{Severity: "WARNING", Code: code, Message: text})
}

// capture is a Sink that keeps the frames instead of sending them on.
type capture struct {
	buf []byte
	max int
	par func(name, value string)
}

// Frames keeps b, up to the bound.
func (c *capture) Frames(b []byte) error {
	if len(c.buf)+len(b) <= c.max {
		c.buf = append(c.buf, b...)
	}
	return nil
}

// Parameter is told of ParameterStatus.
func (c *capture) Parameter(name, value string) {
	if c.par != nil {
		c.par(name, value)
	}
}

// frames calls f for each whole frame of b.
func frames(b []byte, f func(typ byte, body []byte)) {
	for len(b) >= wire.Header {
		n := int(binary.BigEndian.Uint32(b[1:])) + 1
		if n < wire.Header || n > len(b) {
			return
		}
		f(b[0], b[wire.Header:n])
		b = b[n:]
	}
}
