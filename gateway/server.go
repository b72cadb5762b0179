package gateway

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/gateway/adminsql"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/gateway/notify"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/gateway/stats"
	"github.com/cleavedb/cleave/planner/clustercatalog"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/telemetry"
	"github.com/cleavedb/cleave/telemetry/trace"
)

// Database is the name of the one database that clients see.
const Database = clustercatalog.Database

// Options are what a Server needs.
type Options struct {
	Executor *executor.Executor
	// Admin carries out Cleave's functions. nil: they are refused.
	Admin admin.API
	// Virtual opens a database that answers SELECTs over tables of a schema.
	// nil: the schema "cleave" is refused.
	Virtual func(schema string, tables []engine.VirtualTable) (engine.Conn, error)
	// Authenticate decides who may begin a session; nil is [arrival.TrustLoopback].
	// It is not asked about clients in this process, over a pipe: they may do everything.
	Authenticate arrival.Authenticate
	// TLS encrypts connections whose client asks for it; nil: none can be.
	TLS *arrival.TLS
	// TLSRequired refuses clients without TLS, but for those over unix sockets and
	// pipes.
	TLSRequired bool
	// Users are those of the table cleave.users; nil: it is empty.
	Users *access.Users
	// Transactions end those over several shards; nil: the server makes its own,
	// and nobody finishes what a crash of it leaves.
	Transactions *txn.Transactions
	// Peer answers another router on a connection that began with moment.Code and a body; nil: none is answered. proved is to
	// be called when it is known to be one.
	Peer arrival.Peer
	// Refused is told that a guard refused what the map here allows: the map is old, or a change of both is at work, or it
	// died. It must not wait. nil: nobody is told.
	Refused func()
	// Several are the bounds of statements over several shards where a session sets none.
	Several limits.Defaults
	Limits  Limits
	// ReadPolicy and ReplicaLag are those of sessions that set none; a ReplicaLag
	// of 0 is DefaultReplicaLag.
	ReadPolicy executor.ReadPolicy
	ReplicaLag time.Duration
	// Slow is how long a statement takes to be logged as slow; 0: none is.
	Slow    time.Duration
	Tracer  *trace.Tracer      // nil: nothing is traced
	Log     *slog.Logger       // nil: nothing is logged
	Metrics *telemetry.Metrics // nil: nothing is counted
}

// Server answers PostgreSQL clients. Methods are safe for concurrent use.
type Server struct {
	ex          *executor.Executor
	admin       admin.API
	openVirtual func(string, []engine.VirtualTable) (engine.Conn, error)
	views       adminsql.Views
	refused     func()
	limits      Limits
	log         *slog.Logger
	metrics     *telemetry.Metrics
	ending      *plan.Statement // stands for COMMIT and ROLLBACK on a shard
	sinks       stats.Sinks
	reads       settings.ReadRule

	entrance *arrival.Entrance // connections before their session
	ids      *idSource
	exchange *notify.Exchange
	pins     atomic.Int64 // sessions with a conversation of their own
	several  *several.Shared
	answers  *moment.Gate

	mu        sync.Mutex
	sessions  map[uint32]*session
	listeners map[net.Listener]struct{}
	nextPID   uint32
	draining  bool
	watching  bool
	stopWatch chan struct{}
	profiles  map[string]map[string]string // what sessions with given settings report

	drain atomic.Bool // draining, for the sessions' loop
	wg    sync.WaitGroup
}

// SetSlow has statements that take at least d logged; 0 turns that off. It may be called at any time.
func (s *Server) SetSlow(d time.Duration) { s.sinks.SetSlow(d) }

// ErrClosed is returned by Serve after Shutdown.
var ErrClosed = errors.New("gateway: the server was shut down")

// New makes a Server. It does nothing until Serve or ServeConn.
func New(o Options) *Server {
	if o.Authenticate == nil {
		o.Authenticate = arrival.TrustLoopback
	}
	var seed [4]byte
	_, _ = rand.Read(seed[:]) // never fails (crypto/rand)
	if o.ReplicaLag == 0 {
		o.ReplicaLag = settings.DefaultReplicaLag
	}
	if o.Refused == nil {
		o.Refused = func() {}
	}
	s := &Server{
		ex: o.Executor, admin: o.Admin, openVirtual: o.Virtual, refused: o.Refused,
		limits: o.Limits.withDefaults(), log: telemetry.Log(o.Log), metrics: o.Metrics,
		sessions: map[uint32]*session{}, listeners: map[net.Listener]struct{}{},
		nextPID: binary.BigEndian.Uint32(seed[:]) & 0xffffff, profiles: map[string]map[string]string{},
		stopWatch: make(chan struct{}), reads: settings.ReadRule{Policy: o.ReadPolicy, LagMax: o.ReplicaLag}, ids: newIDSource(o.Executor),
		ending: &plan.Statement{Kind: plan.TxKind, Tag: "COMMIT", Class: uint16(o.Metrics.Class("", telemetry.Control, false))},
	}
	if o.Transactions == nil {
		o.Transactions = txn.NewTransactions(txn.TransactionsOptions{Executor: o.Executor, Log: o.Log, Metrics: o.Metrics})
	}
	s.several = several.NewShared(o.Executor, o.Transactions, o.Several)
	s.answers = o.Transactions.Answers()
	s.views = adminsql.Views{Executor: o.Executor, Admin: o.Admin, Users: o.Users, Transactions: o.Transactions, Sessions: s.sessionInfos}
	s.entrance = arrival.New(arrival.Options{Authenticate: o.Authenticate, TLS: o.TLS, TLSRequired: o.TLSRequired, SessionsMax: s.limits.SessionsMax,
		StartupMax: s.limits.StartupMax, Cancel: s.cancelRequest, Peer: o.Peer, Stop: s.stopWatch, Log: s.log, Metrics: s.metrics})
	s.exchange = notify.NewExchange(s.ex, s.wg.Go)
	s.sinks.Log, s.sinks.Metrics, s.sinks.Router, s.sinks.Tracer = s.log, o.Metrics, o.Metrics.Shard(""), o.Tracer
	s.SetSlow(o.Slow)
	s.metrics.Limits(s.ex.PoolMax(), s.limits.SessionsMax)
	return s
}

// Serve accepts clients until ctx ends, Shutdown is called (ErrClosed) or the
// listener fails. It closes the listener. Sessions go on after it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		_ = l.Close()
		return ErrClosed
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer func() {
		stop()
		_ = l.Close()
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	for pause := time.Duration(0); ; {
		nc, err := l.Accept()
		if err != nil {
			switch {
			case s.drain.Load():
				return ErrClosed
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, net.ErrClosed):
				return err
			}
			// Out of file descriptors, most likely: the sessions go on, and so do we.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("a client could not be accepted", telemetry.KeyError, err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		pause = 0
		nc = s.adopt(nc)
		if !s.admit(nc) {
			_ = nc.Close()
			continue
		}
		go s.serve(nc)
	}
}

// ServeConn runs one session on nc and closes it. It returns when the session
// has ended; ctx's end closes nc.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) {
	nc = s.adopt(nc)
	if !s.admit(nc) {
		_ = nc.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	s.serve(nc)
}

// admit notes a new connection, unless the server shuts down or it is to be closed at once.
func (s *Server) admit(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || !s.entrance.Admit(nc) {
		return false
	}
	s.wg.Add(1)
	if !s.watching {
		s.watching = true
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			s.watch()
		}()
	}
	return true
}

// adopt gives the connection to a loop, if there are loops and it has a socket.
func (s *Server) adopt(nc net.Conn) net.Conn {
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetKeepAlivePeriod(30 * time.Second) // a wish, not a need
	}
	return s.ex.Lanes().Adopt(nc)
}

func (s *Server) serve(nc net.Conn) {
	defer s.wg.Done()
	defer func() {
		_ = nc.Close()
		s.entrance.Leave(nc)
	}()
	sess, err := s.start(nc)
	if err != nil || sess == nil {
		if err != nil {
			s.log.Debug("a client did not start a session", telemetry.KeyClient, nc.RemoteAddr(), telemetry.KeyError, err)
		}
		return
	}
	defer s.unregister(sess)
	defer s.survive(sess.nc, sess)
	sess.run()
	if c, ok := sess.nc.(*tls.Conn); ok {
		_ = c.Close() // with the farewell of TLS, if the client is still there
	}
}

// start is startup that survives a fault.
func (s *Server) start(nc net.Conn) (*session, error) {
	defer s.survive(nc, nil)
	return s.startup(nc)
}

// register gives the session its process number and secret.
func (s *Server) register(sess *session) bool {
	var secret [4]byte
	_, _ = rand.Read(secret[:]) // never fails (crypto/rand)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || len(s.sessions) >= s.limits.SessionsMax {
		return false
	}
	for {
		s.nextPID = s.node()<<pidBits | (s.nextPID+1)&(1<<pidBits-1)
		if _, taken := s.sessions[s.nextPID]; !taken && s.nextPID != 0 {
			break
		}
	}
	sess.pid, sess.secret = s.nextPID, binary.BigEndian.Uint32(secret[:])
	sess.stats.Numbered(sess.pid)
	sess.shards.session = sess.pid
	s.sessions[sess.pid] = sess
	s.entrance.Leave(sess.socket)
	s.metrics.SessionOpened()
	return true
}

func (s *Server) unregister(sess *session) {
	s.mu.Lock()
	delete(s.sessions, sess.pid)
	s.mu.Unlock()
	close(sess.gone)
	s.ex.Logout(sess.id.Login)
	s.metrics.SessionClosed()
}

func (s *Server) list() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*session, 0, len(s.sessions))
	for _, x := range s.sessions {
		all = append(all, x)
	}
	return all
}

// Shutdown drains: no new clients, idle sessions end with 57P01 at once,
// sessions in a statement or a transaction may finish it until ctx ends; then
// they are cancelled and closed. It returns when all have ended, with ctx's
// error if some had to be cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	first := !s.draining
	s.draining = true
	s.drain.Store(true)
	for l := range s.listeners {
		_ = l.Close()
	}
	s.entrance.Close()
	s.mu.Unlock()
	for _, x := range s.list() {
		x.interrupts.nudge()
	}
	if first {
		close(s.stopWatch)
	}
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			s.ids.release()
			return nil
		case <-tick.C:
			list := s.list()
			for _, x := range list {
				x.interrupts.nudge()
			}
			if len(list) == 0 {
				s.entrance.EndPeers()
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	s.entrance.EndPeers()
	limit, cancel := context.WithTimeout(context.Background(), s.limits.CancelMax)
	defer cancel()
	var cuts sync.WaitGroup
	for _, x := range s.list() {
		cuts.Go(func() { x.interrupts.cut(limit) })
	}
	cuts.Wait()
	select {
	case <-done:
	case <-limit.Done():
	}
	return ctx.Err()
}

// Limits bound what sessions may hold. The zero value of a field is its default.
type Limits struct {
	// SessionsMax is the number of sessions; default 1000.
	SessionsMax int
	// StartupMax is how long a client may take to start a session; default 10 s.
	StartupMax time.Duration
	// MessageMax bounds one message of a client, bytes; default 64 MiB.
	MessageMax int
	// StatementsMax is the number of prepared statements of a session; default 4096.
	StatementsMax int
	// StatementBytes bounds the texts of a session's prepared statements; default 16 MiB.
	StatementBytes int
	// PortalsMax is the number of portals that are open in a session; default 1024.
	PortalsMax int
	// SettingsBytes bounds a session's settings; default 64 KiB.
	SettingsBytes int
	// DeferredMax is the number of statements (SAVEPOINT, SET) that a
	// transaction remembers before it touches a shard; default 1000.
	DeferredMax int
	// IdleMax ends a session that says nothing outside a transaction; default 8 h.
	IdleMax time.Duration
	// IdleInTransactionMax ends a session that says nothing inside one; default 5 min.
	IdleInTransactionMax time.Duration
	// StatementMax cancels a statement; default 1 h. A session's own
	// statement_timeout is the shard's business.
	StatementMax time.Duration
	// CancelMax is how long a shard may take to obey a cancel before its
	// connection is closed, and how long it may let
	// statement_timeout pass; default 5 s.
	CancelMax time.Duration
	// StallMax ends a session whose client does not take its answers; default 5 min.
	StallMax time.Duration
	// PinnedMax is the number of sessions that keep a connection to the default shard
	// for themselves (temporary tables, advisory locks); default 16.
	PinnedMax int
	// ChannelsMax is the number of channels that a session may listen to; default 1000.
	ChannelsMax int
	// RetriesMax is how often a statement that met a guard is run again; default 3.
	RetriesMax int
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.SessionsMax, 1000)
	dur(&l.StartupMax, 10*time.Second)
	def(&l.MessageMax, 64<<20)
	def(&l.StatementsMax, 4096)
	def(&l.StatementBytes, 16<<20)
	def(&l.PortalsMax, 1024)
	def(&l.SettingsBytes, 64<<10)
	def(&l.DeferredMax, 1000)
	def(&l.PinnedMax, 16)
	def(&l.ChannelsMax, 1000)
	dur(&l.IdleMax, 8*time.Hour)
	dur(&l.IdleInTransactionMax, 5*time.Minute)
	dur(&l.StatementMax, time.Hour)
	dur(&l.CancelMax, 5*time.Second)
	dur(&l.StallMax, 5*time.Minute)
	def(&l.RetriesMax, 3)
	return l
}
