package lane

import (
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Group is the loops of a process. All methods work on nil, which adopts nothing.
type Group struct {
	loops []*Loop
	next  atomic.Uint32
}

// Start starts n loops; Close ends them. 0 or less is nil.
func Start(n int) (*Group, error) {
	if n <= 0 {
		return nil, nil
	}
	g := &Group{}
	for range n {
		l, err := newLoop()
		if err != nil {
			g.Close()
			return nil, err
		}
		g.loops = append(g.loops, l)
	}
	return g, nil
}

// Close ends the loops and closes the connections that are left.
func (g *Group) Close() {
	if g == nil {
		return
	}
	for _, l := range g.loops {
		l.close()
	}
}

// Adopt takes a TCP or unix connection from Go's poller to the next loop. nc is
// closed then, and the result is to be used instead of it. Anything else, and
// everything after Close, is returned as it is.
func (g *Group) Adopt(nc net.Conn) net.Conn {
	if g == nil {
		return nc
	}
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nc
	}
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return nc
	}
	fd := -1
	err = raw.Control(func(was uintptr) {
		// A duplicate has a registration of its own with an epoll, and the file's
		// flags are shared: it does not block.
		r, _, e := syscall.Syscall(syscall.SYS_FCNTL, was, syscall.F_DUPFD_CLOEXEC, 0)
		if e == 0 {
			fd = int(r)
		}
	})
	if err != nil || fd < 0 {
		return nc
	}
	l := g.loops[int(g.next.Add(1))%len(g.loops)]
	c := &Conn{fd: fd, local: nc.LocalAddr(), remote: nc.RemoteAddr()}
	c.refs.Store(1)
	if l.add(c) != nil {
		_ = syscall.Close(fd) // nobody knows it yet
		return nc
	}
	_ = nc.Close() // the socket goes on under its other descriptor
	return c
}

const readable = syscall.EPOLLIN | syscall.EPOLLRDHUP | edge

// edge is EPOLLET, which package syscall has as a negative number.
const edge = 1 << 31

// Loop is one goroutine with an epoll.
type Loop struct {
	epfd, wakefd int
	buf          []byte
	now          time.Time
	woke         bool // a goroutine was woken in this turn

	mu      sync.Mutex
	table   []*Conn // by slot
	free    []int32
	gens    []int32 // of the slots: events of a former owner are ignored
	inbox   []*Conn // to be handled
	ended   bool
	posted  atomic.Bool
	done    chan struct{}
	waiting atomic.Bool // in epoll_wait, or about to
}

func newLoop() (*Loop, error) {
	epfd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	r, _, e := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if e != 0 {
		_ = syscall.Close(epfd) // it was not used
		return nil, os.NewSyscallError("eventfd2", e)
	}
	l := &Loop{epfd: epfd, wakefd: int(r), buf: make([]byte, BufferSize), done: make(chan struct{})}
	ev := syscall.EpollEvent{Events: syscall.EPOLLIN | edge, Fd: -1}
	if err := syscall.EpollCtl(epfd, syscall.EPOLL_CTL_ADD, l.wakefd, &ev); err != nil {
		_ = syscall.Close(epfd)     // it was not used
		_ = syscall.Close(l.wakefd) // likewise
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	go l.run()
	return l, nil
}

// Buffer is lent to a handler for the time of its call.
func (l *Loop) Buffer() []byte { return l.buf }

// Now is when the loop's present turn began. Only for handlers.
func (l *Loop) Now() time.Time { return l.now }

// yieldEvery is shorter than the 10 ms after which Go's monitor thread preempts
// a goroutine with a signal, and goes on to look every 20 us: system calls alone
// do not count as giving the processor up.
const yieldEvery = 5 * time.Millisecond

// Woke is called by a handler that woke a goroutine: the loop lets it run.
func (l *Loop) Woke() { l.woke = true }

func (l *Loop) run() {
	defer close(l.done)
	events := make([]syscall.EpollEvent, 128)
	type hit struct {
		c      *Conn
		events uint32
	}
	hits := make([]hit, 0, len(events))
	yielded := time.Now()
	for {
		l.waiting.Store(true)
		timeout := -1
		if l.posted.Load() {
			timeout = 0
		}
		n, err := syscall.EpollWait(l.epfd, events, timeout)
		l.waiting.Store(false)
		if err != nil && err != syscall.EINTR {
			panic(os.NewSyscallError("epoll_wait", err)) // impossible: the arguments are this loop's own
		}
		l.now = time.Now()
		l.mu.Lock()
		if l.ended {
			l.mu.Unlock()
			return
		}
		hits = hits[:0]
		for i := range max(n, 0) {
			ev := &events[i]
			if ev.Fd < 0 {
				continue
			}
			if c := l.table[ev.Fd]; c != nil && l.gens[ev.Fd] == ev.Pad {
				hits = append(hits, hit{c, ev.Events})
			}
		}
		posted := l.inbox
		if len(posted) > 0 || l.posted.Load() {
			l.inbox = nil
			l.posted.Store(false)
		}
		l.mu.Unlock()
		for i := range hits {
			hits[i].c.happened(l, hits[i].events)
			hits[i].c = nil
		}
		for _, c := range posted {
			c.happened(l, 0)
		}
		if l.woke || l.now.Sub(yielded) > yieldEvery {
			// Goroutines that were woken are on this thread's queue: they run before
			// it sleeps. The other case is for Go's monitor, see yieldEvery.
			l.woke, yielded = false, l.now
			runtime.Gosched()
		}
	}
}

// post makes the loop call c's handler.
func (l *Loop) post(c *Conn) {
	l.mu.Lock()
	l.inbox = append(l.inbox, c)
	l.posted.Store(true)
	l.mu.Unlock()
	l.wake()
}

func (l *Loop) wake() {
	if l.waiting.Load() {
		l.signal()
	}
}

// signal makes epoll_wait return. Each write to the eventfd is an event, so that
// nobody needs to read it.
func (l *Loop) signal() {
	one := uint64(1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(l.wakefd), uintptr(unsafe.Pointer(&one)), 8) // after 2^64 of them it fails
}

func (l *Loop) add(c *Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return net.ErrClosed
	}
	if n := len(l.free); n > 0 {
		c.slot = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		c.slot = int32(len(l.table))
		l.table = append(l.table, nil)
		l.gens = append(l.gens, 0)
	}
	l.gens[c.slot]++
	c.gen = l.gens[c.slot]
	ev := syscall.EpollEvent{Events: readable, Fd: c.slot, Pad: c.gen}
	if err := syscall.EpollCtl(l.epfd, syscall.EPOLL_CTL_ADD, c.fd, &ev); err != nil {
		l.free = append(l.free, c.slot)
		return os.NewSyscallError("epoll_ctl", err)
	}
	l.table[c.slot] = c
	c.loop.Store(l)
	return nil
}

func (l *Loop) remove(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(c.slot) < len(l.table) && l.table[c.slot] == c {
		l.table[c.slot] = nil
		l.free = append(l.free, c.slot)
		_ = syscall.EpollCtl(l.epfd, syscall.EPOLL_CTL_DEL, c.fd, &syscall.EpollEvent{}) // it goes with the descriptor anyway
	}
}

// interest tells the epoll whether room for writing matters.
func (l *Loop) interest(c *Conn, write bool) error {
	ev := syscall.EpollEvent{Events: readable, Fd: c.slot, Pad: c.gen}
	if write {
		ev.Events |= syscall.EPOLLOUT
	}
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(l.epfd, syscall.EPOLL_CTL_MOD, c.fd, &ev))
}

func (l *Loop) close() {
	l.mu.Lock()
	l.ended = true
	left := make([]*Conn, 0, len(l.table))
	for _, c := range l.table {
		if c != nil {
			left = append(left, c)
		}
	}
	l.posted.Store(true)
	l.mu.Unlock()
	l.signal()
	<-l.done
	for _, c := range left {
		_ = c.Close() // what is wrong with it does not matter any more
	}
	_ = syscall.Close(l.epfd)   // nobody uses it
	_ = syscall.Close(l.wakefd) // likewise
}
