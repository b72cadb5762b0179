package postgres

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/internal/wire"
)

const (
	// aheadAfter is how long a write waits before answers are read beside it.
	aheadAfter = 20 * time.Millisecond
	// aheadMax bounds what is read so, in bytes. A server that has more to say waits, and a statement_timeout or
	// cancel ends that.
	aheadMax = 64 << 20
	// aheadWait bounds a look at a connection that no loop watches.
	aheadWait = time.Millisecond
)

// readAhead takes what the server says while it is written to. A server that answers (or warns) before it has read all
// would else wait for its reader, and its writer for it, for ever.
//
//	quiet ──begin──▶ armed ──aheadAfter──▶ reading ──end, enter──▶ quiet
//	  ▲                └──────────end─────────┘
//
// A conversation may be written to by one goroutine while another is in Receive (a change stream, a COPY, the one that notifications come by).
// That one reads: nothing is read ahead between enter and leave, and enter takes over what is under way. So bytes are
// used by the goroutine in Receive, or by the read that is under way, never by both.
type readAhead struct {
	bytes []byte
	timer *time.Timer

	mu      sync.Mutex
	armed   bool
	entered bool          // a goroutine is in Receive
	reading chan struct{} // is closed when the read has ended; nil: none is under way
}

// begin comes before a write that may wait.
func (a *readAhead) begin(c *conn) {
	a.mu.Lock()
	a.armed = true
	a.mu.Unlock()
	if a.timer == nil {
		a.timer = time.AfterFunc(aheadAfter, func() { a.read(c) })
		return
	}
	a.timer.Reset(aheadAfter)
}

// end comes after the write.
func (a *readAhead) end(c *conn) {
	a.timer.Stop()
	a.mu.Lock()
	a.armed = false
	reading := a.reading // the next caller waits for its end as well
	a.mu.Unlock()
	interrupt(c, reading)
}

// enter comes before a Receive, leave after it.
func (a *readAhead) enter(c *conn) {
	a.mu.Lock()
	a.entered = true
	reading := a.reading // the next caller waits for its end as well
	a.mu.Unlock()
	interrupt(c, reading)
}

func (a *readAhead) leave() {
	a.mu.Lock()
	a.entered = false
	a.mu.Unlock()
}

// interrupt ends a read that is under way, if there is one.
func interrupt(c *conn, reading chan struct{}) {
	if reading == nil {
		return
	}
	c.mu.Lock() // a deadline that is set meanwhile must not let the read go on
	defer c.mu.Unlock()
	select {
	case <-reading: // another one has ended it: a Receive may be under way by now, which the deadline would end
		return
	default:
	}
	_ = c.net.SetReadDeadline(time.Unix(1, 0)) // a connection that fails here fails at the next Receive
	<-reading
	_ = c.net.SetReadDeadline(c.deadline)
}

func (a *readAhead) read(c *conn) {
	a.mu.Lock()
	if !a.armed || a.entered || a.reading != nil {
		a.mu.Unlock()
		return
	}
	done := make(chan struct{})
	a.reading = done
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.reading = nil
		a.mu.Unlock()
		close(done)
	}()
	buf := make([]byte, 64<<10)
	for len(a.bytes) < aheadMax {
		n, err := c.net.Read(buf)
		a.bytes = append(a.bytes, buf[:n]...)
		if err != nil {
			return // the next Receive meets it as well
		}
	}
}

// give hands on what was read.
func (a *readAhead) give(to *wire.Reader) {
	if len(a.bytes) > 0 {
		to.Give(a.bytes)
		a.bytes = nil
	}
}

// Failed implements engine.Overhearer.
func (c *conn) Failed() bool {
	if c.closed.Load() {
		return true
	}
	c.ahead.give(c.frames)
	var buf [4 << 10]byte
	for {
		if c.frames.Has(wire.ErrorResponse) {
			return true
		}
		if c.frames.Buffered() >= aheadMax {
			return false
		}
		n, err := c.readNow(buf[:])
		c.frames.Give(buf[:n])
		switch {
		case n > 0:
		case err == lane.ErrAgain || errors.Is(err, os.ErrDeadlineExceeded):
			return false
		default:
			return true
		}
	}
}

// readNow reads what has arrived, or waits a moment for it where no loop watches the socket.
func (c *conn) readNow(p []byte) (int, error) {
	if c.lane != nil {
		return c.lane.ReadNow(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.net.SetReadDeadline(time.Now().Add(aheadWait)) // a connection that fails here fails at the next Receive
	n, err := c.net.Read(p)
	_ = c.net.SetReadDeadline(c.deadline)
	return n, err
}
