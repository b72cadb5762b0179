package pipe

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Buffer bounds the bytes that one direction holds.
const Buffer = 64 << 10

// keep is how large a buffer may be that an idle direction holds on to.
const keep = 8 << 10

// Conn is one end.
type Conn struct {
	in, out *half
}

var _ net.Conn = (*Conn)(nil)

// New returns the two ends of a connection.
func New() (a, b *Conn) {
	x, y := newHalf(), newHalf()
	return &Conn{in: x, out: y}, &Conn{in: y, out: x}
}

// half is one direction.
type half struct {
	mu       sync.Mutex
	readable sync.Cond // bytes came, or the end, or the deadline
	writable sync.Cond // room came, or the end, or the deadline
	buf      []byte
	start    int // buf[start:] is not read yet

	eof, gone   bool // the writer, the reader has closed
	read, write deadline
}

func newHalf() *half {
	h := &half{}
	h.readable.L, h.writable.L = &h.mu, &h.mu
	return h
}

// deadline is guarded by its half's mu.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set changes the deadline; wake is called when it passes.
func (d *deadline) set(t time.Time, mu *sync.Mutex, wake *sync.Cond) {
	d.at = t
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	switch {
	case t.IsZero():
	case d.passed():
		wake.Broadcast()
	default:
		d.timer = time.AfterFunc(time.Until(t), func() {
			mu.Lock()
			wake.Broadcast()
			mu.Unlock()
		})
	}
}

// Read implements net.Conn: it waits for at least one byte.
func (c *Conn) Read(p []byte) (int, error) {
	h := c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.gone:
			return 0, net.ErrClosed
		case h.read.passed():
			return 0, os.ErrDeadlineExceeded
		case h.start < len(h.buf) && len(p) > 0:
			n := copy(p, h.buf[h.start:])
			full := len(h.buf)-h.start == Buffer
			h.start += n
			if h.start == len(h.buf) {
				h.start, h.buf = 0, h.buf[:0]
				if cap(h.buf) > keep {
					h.buf = nil
				}
			}
			if full {
				h.writable.Signal()
			}
			return n, nil
		case len(p) == 0:
			return 0, nil
		case h.eof:
			return 0, io.EOF
		}
		h.readable.Wait()
	}
}

// Write implements net.Conn: it waits only when [Buffer] bytes are not read yet.
func (c *Conn) Write(p []byte) (n int, err error) {
	h := c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.eof:
			return n, net.ErrClosed
		case h.gone:
			return n, io.ErrClosedPipe
		case h.write.passed():
			return n, os.ErrDeadlineExceeded
		case len(p) == 0:
			return n, nil
		}
		if room := Buffer - (len(h.buf) - h.start); room > 0 {
			part := p[:min(room, len(p))]
			if h.start > 0 && len(h.buf)+len(part) > cap(h.buf) {
				m := copy(h.buf, h.buf[h.start:])
				h.buf, h.start = h.buf[:m], 0
			}
			h.buf = append(h.buf, part...)
			n += len(part)
			p = p[len(part):]
			h.readable.Signal()
			continue
		}
		h.writable.Wait()
	}
}

// Close implements net.Conn: what was written is still read by the other end.
func (c *Conn) Close() error {
	o := c.out
	o.mu.Lock()
	o.eof = true
	o.write.set(time.Time{}, &o.mu, &o.writable)
	o.readable.Broadcast()
	o.writable.Broadcast()
	o.mu.Unlock()
	i := c.in
	i.mu.Lock()
	i.gone = true
	i.buf, i.start = nil, 0
	i.read.set(time.Time{}, &i.mu, &i.readable)
	i.readable.Broadcast()
	i.writable.Broadcast()
	i.mu.Unlock()
	return nil
}

// Left reports whether the other end was closed. Bytes that it wrote before may
// still be unread.
func (c *Conn) Left() bool {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.in.eof
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	h := c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return net.ErrClosed
	}
	h.read.set(t, &h.mu, &h.readable)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	h := c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.eof {
		return net.ErrClosed
	}
	h.write.set(t, &h.mu, &h.writable)
	return nil
}

// Addr is the address of both ends.
type Addr struct{}

// Network implements net.Addr.
func (Addr) Network() string { return "pipe" }

// String implements net.Addr.
func (Addr) String() string { return "in-process" }

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return Addr{} }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return Addr{} }
