package lane

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Conn is a connection that a loop watches. As a net.Conn it serves one reading
// and one writing goroutine; Close and the deadlines may come from any.
type Conn struct {
	fd            int
	slot, gen     int32
	local, remote net.Addr
	loop          atomic.Pointer[Loop]
	// refs counts the system calls under way and, until Close, one more: the last
	// one closes the descriptor, so that its number is not another's meanwhile.
	refs   atomic.Int32
	closed atomic.Bool
	// hup: the other side has ended its direction or the connection. No event
	// follows that one, which may have told of bytes as well.
	hup atomic.Bool

	mu      sync.Mutex
	handler Handler
	r, w    half
}

// half is one direction. Guarded by Conn.mu.
type half struct {
	ready   bool // something happened since the last attempt
	by      time.Time
	timer   *time.Timer
	waiting bool
	wake    chan struct{}
}

func (h *half) expired() bool { return !h.by.IsZero() && !time.Now().Before(h.by) }

// rouse ends the wait of a goroutine, if there is one.
func (h *half) rouse() bool {
	if !h.waiting {
		return false
	}
	h.waiting = false
	h.wake <- struct{}{}
	return true
}

var _ net.Conn = (*Conn)(nil)

func (c *Conn) begin() bool {
	if c.closed.Load() {
		return false
	}
	for {
		n := c.refs.Load()
		if n == 0 {
			return false
		}
		if c.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *Conn) end() {
	if c.refs.Add(-1) == 0 {
		_ = syscall.Close(c.fd) // it is gone, whatever it says
	}
}

// happened takes an event of the epoll, or none: what was posted. What comes
// from a loop that c was moved away from since is no news: the new one looked.
func (c *Conn) happened(l *Loop, events uint32) {
	c.mu.Lock()
	if c.loop.Load() != l {
		c.mu.Unlock()
		return
	}
	if events&(syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		c.hup.Store(true)
	}
	if events&^uint32(syscall.EPOLLOUT) != 0 {
		c.r.ready = true
	}
	if events&(syscall.EPOLLOUT|syscall.EPOLLERR|syscall.EPOLLHUP) != 0 {
		c.w.ready = true
		if c.w.rouse() {
			l.woke = true
		}
	}
	h := c.handler
	switch {
	case h != nil:
		c.r.ready = false
	case c.r.ready && c.r.rouse():
		l.woke = true
	}
	c.mu.Unlock()
	if h != nil {
		h.Ready(c)
	}
}

// Loop is the loop that watches c.
func (c *Conn) Loop() *Loop { return c.loop.Load() }

// Move gives c to another loop. Nobody may be using or watching it.
func (c *Conn) Move(to *Loop) error {
	if !c.begin() {
		return c.fault("move", net.ErrClosed)
	}
	defer c.end()
	// Under the lock, so that the old loop either has done with an event or sees
	// that it is none of its business: else it would call the next handler.
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loop.Load().remove(c)
	return to.add(c) // what there is to read comes as an event
}

// Watch makes h the handler. It is called at once if something may have happened
// already. No goroutine may wait for c while it is watched.
func (c *Conn) Watch(h Handler) {
	c.mu.Lock()
	c.handler = h
	due := c.r.ready || c.r.expired() || c.closed.Load() || c.hup.Load()
	c.mu.Unlock()
	if due {
		c.loop.Load().post(c)
	}
}

// Take is Watch by a handler that runs in c's loop. now says that something may
// have happened already; then the handler is not called for it.
func (c *Conn) Take(h Handler) (now bool) {
	c.mu.Lock()
	c.handler = h
	now = c.r.ready || c.r.expired() || c.closed.Load()
	c.r.ready = false
	c.mu.Unlock()
	return now
}

// Leave ends the watch. Only the loop's own handlers call it, so that none runs
// afterwards.
func (c *Conn) Leave() {
	c.mu.Lock()
	c.handler = nil
	c.mu.Unlock()
}

// Again notes that there may be more to read of which no event will tell: the
// handler did not look, or stopped before the end.
func (c *Conn) Again() {
	c.mu.Lock()
	c.r.ready = true
	c.mu.Unlock()
}

// HungUp reports whether the other side sends nothing any more; there may still
// be something to read.
func (c *Conn) HungUp() bool { return c.hup.Load() }

// Poke makes the loop call the handler, if there is one.
func (c *Conn) Poke() {
	c.mu.Lock()
	watched := c.handler != nil
	c.mu.Unlock()
	if watched {
		c.loop.Load().post(c)
	}
}

// Due reports whether the read deadline has passed or c was closed.
func (c *Conn) Due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed.Load() || c.r.expired()
}

// Quiet reports whether nothing has happened on c since it was last read.
func (c *Conn) Quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.r.ready && !c.closed.Load()
}

// ReadNow reads what has arrived: io.EOF at the end, [ErrAgain] if there is
// nothing. Fewer bytes than p holds means that there are no more for now.
func (c *Conn) ReadNow(p []byte) (int, error) {
	if !c.begin() {
		return 0, c.fault("read", net.ErrClosed)
	}
	n, err := c.recv(p)
	c.end()
	return n, err
}

func (c *Conn) recv(p []byte) (int, error) {
	for {
		// It does not wait (the file is non-blocking), so that the scheduler need not know.
		n, _, e := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), syscall.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			if n == 0 && len(p) > 0 {
				return 0, io.EOF
			}
			return int(n), nil
		case syscall.EAGAIN:
			return 0, ErrAgain
		case syscall.EINTR:
		default:
			return 0, c.fault("read", os.NewSyscallError("recvfrom", e))
		}
	}
}

// WriteNow writes what can be written without waiting; with fewer bytes than p
// has comes [ErrAgain].
func (c *Conn) WriteNow(p []byte) (int, error) {
	if !c.begin() {
		return 0, c.fault("write", net.ErrClosed)
	}
	n, err := c.send(p)
	c.end()
	return n, err
}

func (c *Conn) send(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		n, _, e := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(&p[sent])), uintptr(len(p)-sent), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
		switch e {
		case 0:
			sent += int(n)
		case syscall.EAGAIN:
			return sent, ErrAgain
		case syscall.EINTR:
		default:
			return sent, c.fault("write", os.NewSyscallError("sendto", e))
		}
	}
	return sent, nil
}

func (c *Conn) fault(op string, err error) error {
	e := &net.OpError{Op: op, Source: c.local, Addr: c.remote, Err: err}
	if c.local != nil {
		e.Net = c.local.Network()
	}
	return e
}

// wait blocks until the direction may go on.
func (c *Conn) wait(h *half, op string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed.Load():
			return c.fault(op, net.ErrClosed)
		case h.expired():
			return c.fault(op, os.ErrDeadlineExceeded)
		case h.ready:
			return nil
		}
		if h.wake == nil {
			h.wake = make(chan struct{}, 1)
		}
		h.waiting = true
		c.mu.Unlock()
		<-h.wake
		c.mu.Lock()
	}
}

// attempt begins an attempt to read or write: what happens after it is news.
func (c *Conn) attempt(h *half, op string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.ready = false
	if h.expired() {
		return c.fault(op, os.ErrDeadlineExceeded)
	}
	return nil
}

// Read waits for bytes (net.Conn).
func (c *Conn) Read(p []byte) (int, error) {
	for {
		if err := c.attempt(&c.r, "read"); err != nil {
			return 0, err
		}
		n, err := c.ReadNow(p)
		if err != ErrAgain {
			if n == len(p) || err == io.EOF {
				// There may be more, of which no event will tell.
				c.mu.Lock()
				c.r.ready = true
				c.mu.Unlock()
			}
			return n, err
		}
		if err := c.wait(&c.r, "read"); err != nil {
			return 0, err
		}
	}
}

// Write waits until all is written (net.Conn).
func (c *Conn) Write(p []byte) (int, error) {
	sent, asked := 0, false
	defer func() {
		if asked && c.begin() {
			_ = c.loop.Load().interest(c, false) // it costs wake-ups, no more
			c.end()
		}
	}()
	for {
		if err := c.attempt(&c.w, "write"); err != nil {
			return sent, err
		}
		n, err := c.WriteNow(p[sent:])
		sent += n
		if err != ErrAgain {
			return sent, err
		}
		if !asked {
			if !c.begin() {
				return sent, c.fault("write", net.ErrClosed)
			}
			err := c.loop.Load().interest(c, true)
			c.end()
			if err != nil {
				return sent, err
			}
			asked = true
			continue // there may be room by now
		}
		if err := c.wait(&c.w, "write"); err != nil {
			return sent, err
		}
	}
}

// Close closes the connection; who waits for it gets net.ErrClosed.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed.Swap(true) {
		c.mu.Unlock()
		return c.fault("close", net.ErrClosed)
	}
	for _, h := range []*half{&c.r, &c.w} {
		if h.timer != nil {
			h.timer.Stop()
		}
		h.rouse()
	}
	watched := c.handler != nil
	c.mu.Unlock()
	l := c.loop.Load()
	l.remove(c)
	c.end()
	if watched {
		l.post(c)
	}
	return nil
}

// LocalAddr is this end's address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the other end's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline bounds reading and writing (net.Conn).
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.setDeadline(&c.r, t); err != nil {
		return err
	}
	return c.setDeadline(&c.w, t)
}

// SetReadDeadline bounds reading. One that passes calls the handler, if there is one.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.r, t) }

// SetWriteDeadline bounds writing.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.w, t) }

func (c *Conn) setDeadline(h *half, t time.Time) error {
	c.mu.Lock()
	if c.closed.Load() {
		c.mu.Unlock()
		return c.fault("set", net.ErrClosed)
	}
	h.by = t
	if h.timer != nil {
		h.timer.Stop()
	}
	post := false
	if !t.IsZero() {
		if left := time.Until(t); left > 0 {
			if h.timer == nil {
				h.timer = time.AfterFunc(left, func() { c.passed(h) })
			} else {
				h.timer.Reset(left)
			}
		} else {
			h.rouse()
			post = c.handler != nil && h == &c.r
		}
	}
	c.mu.Unlock()
	if post {
		c.loop.Load().post(c)
	}
	return nil
}

// passed is the timer of a deadline.
func (c *Conn) passed(h *half) {
	c.mu.Lock()
	post := false
	if h.expired() {
		h.rouse()
		post = c.handler != nil && h == &c.r
	}
	c.mu.Unlock()
	if post {
		c.loop.Load().post(c)
	}
}

// SyscallConn gives access to the descriptor (syscall.Conn). Read and Write of
// the result call their function once.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c}, nil }

type rawConn struct{ c *Conn }

// Control calls f with the descriptor.
func (r rawConn) Control(f func(fd uintptr)) error {
	if !r.c.begin() {
		return r.c.fault("control", net.ErrClosed)
	}
	defer r.c.end()
	f(uintptr(r.c.fd))
	return nil
}

// Read calls f with the descriptor once.
func (r rawConn) Read(f func(fd uintptr) bool) error {
	return r.Control(func(fd uintptr) { f(fd) })
}

// Write calls f with the descriptor once.
func (r rawConn) Write(f func(fd uintptr) bool) error {
	return r.Control(func(fd uintptr) { f(fd) })
}
