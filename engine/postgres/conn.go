package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// cancelMax bounds a Cancel whose ctx has no deadline.
	cancelMax = 5 * time.Second
	// farewell bounds the Terminate message of Close.
	farewell = 200 * time.Millisecond
)

type conn struct {
	shard  *shard
	pg     *pgconn.PgConn // taken over: used for CancelRequest only
	net    net.Conn
	raw    syscall.RawConn // of the socket under net, nil if it has none
	lane   *lane.Conn      // net, if a loop watches it
	frames *wire.Reader
	ahead  readAhead
	params map[string]string

	mu       sync.Mutex // deadline
	deadline time.Time

	// prepared is what the shard's was when this conversation began: the server cannot
	// change it without ending the conversation, whatever becomes of others.
	prepared int32

	mover     bool // it logged in as the shard's mover
	makeshift bool // see Replaceable
	status    byte // of the transaction, after the last exec
	broken    atomic.Bool
	closeOnce sync.Once
	closed    atomic.Bool
}

var (
	_ engine.Conn       = (*conn)(nil)
	_ engine.Overhearer = (*conn)(nil)
	_ engine.TwoPhase   = (*conn)(nil)
	_ engine.Prober     = (*conn)(nil)
	_ engine.Makeshift  = (*conn)(nil)
	_ engine.Async      = (*conn)(nil)
	_ engine.Severer    = (*conn)(nil)
)

func newConn(s *shard, pg *pgconn.PgConn, h *pgconn.HijackedConn, frames *wire.Reader) *conn {
	c := &conn{shard: s, pg: pg, net: s.cfg.Lanes.Adopt(h.Conn), frames: frames, params: h.ParameterStatuses, prepared: -1}
	// A TLS connection stays where it is: its bytes are not the protocol's.
	if l, ok := c.net.(*lane.Conn); ok {
		c.lane = l
		frames.SetSource(l)
	}
	under := c.net
	if t, ok := under.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		under = t.NetConn()
	}
	if sc, ok := under.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	return c
}

var errClosed = errors.New("the conversation was closed")

func (c *conn) lost(sent bool, err error) error {
	c.broken.Store(true)
	// After a timeout the same server is still there; after an end of file
	// something else may answer at its address.
	if !errors.Is(err, os.ErrDeadlineExceeded) && !c.closed.Load() {
		c.shard.doubt()
	}
	return &engine.LostError{Shard: c.shard.cfg.Name, Sent: sent, Err: err}
}

func (c *conn) Send(frames []byte) error {
	if c.closed.Load() {
		return c.lost(false, errClosed)
	}
	sent := 0
	if c.lane != nil {
		n, err := c.lane.WriteNow(frames)
		if sent = n; err == nil {
			return nil
		}
		if err != lane.ErrAgain {
			return c.lost(n > 0, err)
		}
	}
	c.ahead.begin(c)
	n, err := c.net.Write(frames[sent:])
	c.ahead.end(c)
	if err != nil {
		return c.lost(sent+n > 0, err)
	}
	return nil
}

func (c *conn) Receive() ([]byte, error) {
	if c.closed.Load() {
		return nil, c.lost(true, errClosed)
	}
	c.ahead.enter(c)
	defer c.ahead.leave()
	c.ahead.give(c.frames)
	b, err := c.frames.Batch()
	if err != nil {
		return nil, c.lost(true, err)
	}
	return b, nil
}

// Lane is the socket, if a loop watches it.
func (c *conn) Lane() *lane.Conn { return c.lane }

func (c *conn) SendNow(frames []byte) (int, error) {
	if c.closed.Load() {
		return 0, c.lost(false, errClosed)
	}
	n, err := c.lane.WriteNow(frames)
	if err != nil && err != lane.ErrAgain {
		return n, c.lost(n > 0, err)
	}
	return n, nil
}

func (c *conn) ReceiveNow() ([]byte, error) {
	if c.closed.Load() {
		return nil, c.lost(true, errClosed)
	}
	c.ahead.give(c.frames)
	for {
		b, err := c.frames.Poll(c.lane.ReadNow)
		switch {
		case err == lane.ErrAgain && c.lane.Due():
			return nil, c.lost(true, os.ErrDeadlineExceeded)
		case err == lane.ErrAgain:
			return nil, nil
		case err != nil:
			return nil, c.lost(true, err)
		case b != nil:
			return b, nil
		}
	}
}

func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.net.SetDeadline(t); err != nil {
		return c.lost(true, err)
	}
	c.deadline = t
	return nil
}

func (c *conn) Cancel(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, cancelMax)
		defer stop()
	}
	if err := c.pg.CancelRequest(ctx); err != nil {
		return (&sqlstate.Error{
			Code: sqlstate.CannotConnectNow, Op: "cancel", Shard: c.shard.cfg.Name, Err: scrub(err, c.shard.base.Password),
			Message: "the cancel request did not reach the shard",
		}).WithHint("the statement may still run there; closing the session ends it when it next writes")
	}
	return nil
}

func (c *conn) Parameter(name string) string { return c.params[name] }

func (c *conn) Parameters() map[string]string { return c.params }

// Probe looks at the socket with MSG_PEEK. A TLS connection that got a session
// ticket or an alert has bytes as well: it is reported, and a pool loses one
// connection too many rather than one too few.
func (c *conn) Probe() error {
	if c.closed.Load() || c.broken.Load() {
		return c.lost(false, errClosed)
	}
	if c.frames.Buffered() > 0 || len(c.ahead.bytes) > 0 {
		return c.lost(false, errSpoke)
	}
	if c.raw == nil {
		return nil
	}
	var probe error
	err := c.raw.Read(func(fd uintptr) bool {
		probe = peek(fd)
		return true
	})
	if err == nil {
		err = probe
	}
	// A deadline that passed while the conversation was idle says nothing about it.
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return c.lost(false, err)
}

// Sever shuts the socket down both ways, so that a goroutine that waits on it wakes up;
// closing it under a waiting poll would not.
func (c *conn) Sever() {
	if c.raw != nil {
		_ = c.raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) }) // else it is closed already
		return
	}
	_ = c.net.SetDeadline(time.Unix(1, 0)) // likewise
}

var errSpoke = errors.New("the shard spoke on an idle conversation")

func peek(fd uintptr) error {
	var one [1]byte
	for {
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN || err == syscall.EWOULDBLOCK:
			return nil
		case err != nil:
			return os.NewSyscallError("recvfrom", err)
		case n == 0:
			return io.EOF
		default:
			return errSpoke
		}
	}
}

// PID is the number of the server's process for this conversation.
func (c *conn) PID() uint32 { return c.pg.PID() }

// CanPrepare reports whether max_prepared_transactions is above zero. The answer
// comes with the proof of whose database it is; only a shard opened without a
// cluster costs a round trip, which must not be in a failed transaction (the
// answer is false there).
func (c *conn) CanPrepare() bool {
	if c.prepared < 0 {
		c.prepared = c.shard.prepared.Load()
	}
	if c.prepared >= 0 {
		return c.prepared > 0
	}
	res, err := engine.Exec(c, "SELECT pg_catalog.current_setting('max_prepared_transactions')")
	if err != nil || len(res.Rows) != 1 {
		return false
	}
	c.shard.learnPrepared(res.Rows[0][0].String)
	return c.shard.prepared.Load() > 0
}

// Close says goodbye if it can do so at once, and closes the socket: a Receive
// that waits returns with an error.
func (c *conn) Close() error {
	var err error
	c.closeOnce.Do(func() {
		c.closed.Store(true)
		if !c.broken.Load() {
			bye := wire.AppendEmpty(nil, wire.TerminateFE)
			if c.lane != nil {
				_, _ = c.lane.WriteNow(bye)
			} else {
				_ = c.net.SetWriteDeadline(time.Now().Add(farewell))
				_, _ = c.net.Write(bye)
			}
		}
		err = c.net.Close()
	})
	return err
}

// exec runs one message of this package's own under ctx, keeping the deadline
// that the user of the conversation has set.
func (c *conn) exec(ctx context.Context, sql string) (*engine.Result, error) {
	c.mu.Lock()
	restore := c.deadline
	c.mu.Unlock()
	var res *engine.Result
	err := engine.Bounded(ctx, c, restore, func() (err error) {
		res, err = engine.Exec(c, sql)
		if res != nil {
			c.status = res.Status
		}
		return err
	})
	return res, err
}
