package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// Request codes of the first message (protocol-message-formats).
const (
	codeCancel   = 80877102
	codeSSL      = 80877103
	codeGSS      = 80877104
	version3     = 3 << 16
	startupBytes = 10000 // PostgreSQL's MAX_STARTUP_PACKET_LENGTH
)

// Startup is what a client says first.
type Startup struct {
	User, Database string
	// Parameters are all of them, "user" and "database" too.
	Parameters map[string]string
	Remote     net.Addr
	Channel    Channel
}

// Authenticate decides whether a client may begin a session, and as whom; a
// *sqlstate.Error (28000, 28P01) ends it. It may talk to the client
// through ask, which sends an authentication request (code and data, see
// protocol-message-formats) and returns the body of the client's answer; ask
// with wait false only sends.
type Authenticate func(ctx context.Context, s Startup, ask func(code uint32, data []byte, wait bool) ([]byte, error)) (Identity, error)

// inProcess reports whether the client is this process itself, over a pipe.
func inProcess(a net.Addr) bool { return a != nil && a.Network() == "pipe" }

// sameMachine reports whether what a client says goes over no network.
func sameMachine(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return inProcess(a)
}

// TrustLoopback lets in everybody on the same machine, and nobody else. They may
// do everything.
func TrustLoopback(_ context.Context, s Startup, _ func(uint32, []byte, bool) ([]byte, error)) (Identity, error) {
	if sameMachine(s.Remote) {
		return Identity{Role: access.Admin}, nil
	}
	return Identity{}, sqlstate.New(sqlstate.InvalidAuthorization, "only clients on the router's own machine may connect").
		WithHint("connect to 127.0.0.1, for example through an ssh tunnel to the router")
}

// arrival is a client whose session has not begun yet.
//
//	connected ──SSLRequest, GSSENCRequest──> connected ──StartupMessage──> named ──password──> known ──ReadyForQuery──> session
//	  \__ CancelRequest: over           \__ any refusal: told with FATAL, over __/
type arrival struct {
	s       *Server
	socket  net.Conn // as accepted
	nc      net.Conn // the socket, or TLS over it
	channel Channel
	full    bool   // there is no place for it: it learns so when it has said what it wants
	version uint32 // of the protocol
	start   Startup
	out     []byte // what goes with the next answer
	id      Identity
	proved  func() // ends the turn of its proof, after the answer; nil without one
}

// refusal is an error that the client is told before it is let go.
type refusal struct{ why *sqlstate.Error }

func (r refusal) Error() string { return r.why.Error() }

func refused(code sqlstate.Code, format string, args ...any) error {
	return refusal{sqlstate.New(code, format, args...)}
}

// errCancelRequest ends an arrival that only wanted a statement of another session to be cancelled.
var errCancelRequest = errors.New("gateway: a cancel request")

// startup talks to a new client until its session can begin. A nil session
// without an error has been dealt with (a cancel request, a refusal).
func (s *Server) startup(nc net.Conn) (*session, error) {
	a := &arrival{s: s, socket: nc, nc: nc, full: s.full(nc)}
	limit := s.limits.StartupMax
	if a.full {
		limit = min(limit, turnedAwayTime)
	}
	if err := nc.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer func() {
		if a.proved != nil {
			a.proved()
		}
	}()
	sess, err := a.enter(ctx)
	if err == errCancelRequest {
		return nil, nil
	}
	if r, ok := err.(refusal); ok {
		r.why.Severity = "FATAL"
		s.metrics.Error(string(r.why.Code))
		s.metrics.Refusal(string(r.why.ID))
		// The client may be gone already; it is refused either way.
		_, err = a.nc.Write(wire.AppendError(nil, r.why))
	}
	return sess, err
}

// enter is the way from the first byte to the session.
//
// Errors: a refusal; errCancelRequest; else what makes the connection useless.
func (a *arrival) enter(ctx context.Context) (*session, error) {
	body, err := a.negotiate(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.named(body); err != nil {
		return nil, err
	}
	if err := a.identify(ctx); err != nil {
		return nil, err
	}
	sess, err := a.register(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.greet(sess); err != nil {
		a.s.unregister(sess)
		return nil, err
	}
	return sess, nil
}

// negotiate agrees on encryption and returns the body of the StartupMessage.
func (a *arrival) negotiate(ctx context.Context) ([]byte, error) {
	secures := a.s.tls != nil && !inProcess(a.socket.RemoteAddr())
	if secures {
		if err := a.direct(ctx); err != nil {
			return nil, err
		}
	}
	for tries := 0; ; tries++ {
		version, body, err := readStartup(a.nc)
		switch {
		case errors.Is(err, wire.ErrMalformed):
			return nil, refused(sqlstate.ProtocolViolation, "invalid length of startup packet")
		case err != nil:
			return nil, err
		case version == codeCancel:
			a.s.cancelRequest(body)
			return nil, errCancelRequest
		}
		encrypts := version == codeSSL || version == codeGSS
		if encrypts && (tries == 2 || a.channel.TLS) {
			return nil, refused(sqlstate.ProtocolViolation, "too many encryption requests")
		}
		if plain, ok := a.nc.(*begun); ok {
			a.nc = plain.Conn // its first byte has been read by now
		}
		if !encrypts {
			a.version = version
			a.s.spoke(a.socket)
			return body, nil
		}
		if version == codeGSS || !secures {
			if _, err := a.nc.Write([]byte{'N'}); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := a.nc.Write([]byte{'S'}); err != nil {
			return nil, err
		}
		// Nothing was read ahead: what the client sent unencrypted behind its
		// request is taken for the handshake, and fails there.
		if err := a.encrypt(ctx, false); err != nil {
			return nil, err
		}
	}
}

// direct begins TLS if the client does, without a request (PostgreSQL 17's sslnegotiation=direct).
func (a *arrival) direct(ctx context.Context) error {
	var first [1]byte
	if _, err := io.ReadFull(a.nc, first[:]); err != nil {
		return err
	}
	a.nc = &begun{a.nc, bytes.NewReader(first[:])}
	if first[0] != tlsHandshake {
		return nil
	}
	return a.encrypt(ctx, true)
}

func (a *arrival) encrypt(ctx context.Context, direct bool) error {
	encrypted, channel, err := a.s.tls.handshake(ctx, a.nc, direct)
	if err != nil {
		return err
	}
	a.nc, a.channel = encrypted, channel
	return nil
}

// named reads who the client says that it is, and whether it may go on without encryption.
func (a *arrival) named(body []byte) error {
	if a.full {
		a.s.metrics.SessionRefused()
		return refusal{noRoom()}
	}
	if a.version>>16 != 3 {
		return refused(sqlstate.FeatureNotSupported, "unsupported frontend protocol %d.%d: server supports 3.0 to 3.0", a.version>>16, a.version&0xffff)
	}
	params, err := parseParameters(body)
	if err != nil {
		return refused(sqlstate.ProtocolViolation, "invalid startup packet layout: expected terminator as last byte")
	}
	a.start = Startup{User: params["user"], Database: params["database"], Parameters: params, Remote: a.nc.RemoteAddr(), Channel: a.channel}
	if a.start.User == "" {
		return refused(sqlstate.InvalidAuthorization, "no PostgreSQL user name specified in startup packet")
	}
	if a.start.Database == "" {
		a.start.Database = a.start.User
	}
	a.out = appendVersion(a.out, a.version, params)
	if !a.channel.TLS && !a.s.plainAllowed(a.socket.RemoteAddr()) {
		return refusal{encryptionNeeded()}
	}
	return nil
}

// appendVersion appends NegotiateProtocolVersion where the client wants a protocol, or options of it, that there are none of.
func appendVersion(out []byte, version uint32, params map[string]string) []byte {
	var unknown []string
	for name := range params {
		if strings.HasPrefix(name, "_pq_.") {
			unknown = append(unknown, name)
		}
	}
	if version == version3 && len(unknown) == 0 {
		return out
	}
	slices.Sort(unknown)
	out, m := wire.Begin(out, wire.NegotiateProtocol)
	out = wire.AppendInt32(out, version3&0xffff)
	out = wire.AppendInt32(out, int32(len(unknown)))
	for _, name := range unknown {
		out = wire.AppendString(out, name)
	}
	return wire.End(out, m)
}

// ask is what [Authenticate] talks to the client through.
func (a *arrival) ask(code uint32, data []byte, wait bool) ([]byte, error) {
	out, m := wire.Begin(a.out, wire.Authentication)
	out = append(wire.AppendInt32(out, int32(code)), data...)
	if _, err := a.nc.Write(wire.End(out, m)); err != nil {
		return nil, err
	}
	a.out = out[:0]
	if !wait {
		return nil, nil
	}
	var head [wire.Header]byte
	if _, err := io.ReadFull(a.nc, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if head[0] != wire.Password || n < 4 || n > startupBytes {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "expected password response, got message type %d", head[0])
	}
	answer := make([]byte, n-4)
	_, err := io.ReadFull(a.nc, answer)
	return answer, err
}

// identify has the client prove who it is. This process itself need not.
func (a *arrival) identify(ctx context.Context) error {
	a.id = Identity{Role: access.Admin}
	if inProcess(a.start.Remote) {
		return nil
	}
	from := origin(a.socket)
	done, e := a.s.try(from)
	if e != nil {
		a.s.metrics.SessionRefused()
		return refusal{e}
	}
	a.proved = done
	id, err := a.s.authenticate(ctx, a.start, a.ask)
	if err == nil {
		a.id = id
		return nil
	}
	var se *sqlstate.Error
	if !errors.As(err, &se) {
		return err // the client is gone, or took too long
	}
	a.s.log.Info("a client was not let in", telemetry.KeyClient, a.start.Remote, "user", a.start.User, telemetry.KeyError, se.Message)
	if se.Code == sqlstate.InvalidPassword {
		a.s.hesitate(a.nc, from)
	}
	return refusal{se}
}

// register makes the session of a client that is known. Its login is the session's afterwards.
func (a *arrival) register(ctx context.Context) (sess *session, err error) {
	s := a.s
	defer func() {
		if sess == nil {
			s.ex.Logout(a.id.Login)
		}
	}()
	if err := a.served(); err != nil {
		return nil, err
	}
	defaults, err := settings.OfStart(a.start.Parameters, s.limits.SettingsBytes)
	if err != nil {
		return nil, refusal{sqlstate.As(err)}
	}
	if defaults, err = s.began(ctx, defaults.As(a.id.Login)); err != nil {
		return nil, refusal{sqlstate.As(err)}
	}
	profile, err := s.profile(ctx, defaults)
	if err != nil {
		return nil, refusal{sqlstate.As(err)}
	}
	made := newSession(s, a.nc, a.start, defaults, profile)
	made.id, made.socket = a.id, a.socket
	made.id.user = a.start.User
	if c, ok := a.socket.(*lane.Conn); ok && a.channel.TLS {
		// The end of the connection comes behind the farewell of TLS, so that a look
		// at the next bytes does not find it.
		made.left = hungUp{c}
	}
	switch {
	case s.register(made):
		return made, nil
	case s.drain.Load():
		return nil, refused(sqlstate.CannotConnectNow, "the router is shutting down")
	}
	s.metrics.SessionRefused()
	return nil, refusal{sqlstate.New(sqlstate.TooManyConnections, "sorry, too many clients already").
		WithHint("the router's limit is %d sessions", s.limits.SessionsMax)}
}

// served reports what the client asks for that the router has not: another database, a stream of the WAL.
func (a *arrival) served() error {
	if a.start.Database != Database {
		return refusal{sqlstate.New(sqlstate.InvalidCatalogName, "database \"%s\" does not exist", a.start.Database[:min(len(a.start.Database), shardmap.MaxNameBytes)]).
			WithHint("the cluster is one database, called %q: connect with -d %s", Database, Database)}
	}
	v, ok := a.start.Parameters["replication"]
	if !ok {
		return nil
	}
	on, known := planner.ParseBool(v)
	switch {
	case on, v == "database":
		return refusal{sqlstate.Refusal("CLV-1221", "replication connections are not supported by the router").
			WithHint("connect to a shard directly: `cleave shard list` shows them")}
	case !known:
		return refusal{sqlstate.New(sqlstate.InvalidParameterValue, "invalid value for parameter \"replication\": \"%s\"", v).
			WithHint("Valid values are: \"false\", 0, \"true\", 1, \"database\".")}
	}
	return nil
}

// greet tells the client that its session begins, and with which settings.
func (a *arrival) greet(sess *session) error {
	out, m := wire.Begin(a.out, wire.Authentication)
	out = wire.End(wire.AppendInt32(out, 0), m)
	for _, name := range slices.Sorted(maps.Keys(sess.gucs.Reported)) {
		out = wire.AppendParameterStatus(out, name, sess.gucs.Reported[name])
	}
	out, m = wire.Begin(out, wire.BackendKeyData)
	out = wire.AppendInt32(out, int32(sess.pid))
	out = wire.End(wire.AppendInt32(out, int32(sess.secret)), m)
	if _, err := a.nc.Write(wire.AppendReadyForQuery(out, 'I')); err != nil {
		return err
	}
	return a.nc.SetDeadline(time.Time{})
}

// readStartup reads one untyped message.
func readStartup(r io.Reader) (code uint32, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:4])
	if n < 8 || n > startupBytes {
		return 0, nil, fmt.Errorf("%w: startup of %d bytes", wire.ErrMalformed, n)
	}
	body = make([]byte, n-8)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	return binary.BigEndian.Uint32(head[4:]), body, nil
}

func parseParameters(b []byte) (map[string]string, error) {
	params := map[string]string{}
	for {
		name, rest, ok := wire.CutString(b)
		if !ok {
			return nil, wire.ErrMalformed
		}
		if name == "" {
			if len(rest) != 0 {
				return nil, wire.ErrMalformed
			}
			return params, nil
		}
		value, rest, ok := wire.CutString(rest)
		if !ok {
			return nil, wire.ErrMalformed
		}
		params[name], b = value, rest
	}
}

// began is the settings of a session that begins now, with the search_path and the isolation level of its user, or of the
// default shard, so that the router looks names up, and knows what a snapshot holds for, as the shards do.
func (s *Server) began(ctx context.Context, set *executor.Settings) (*executor.Settings, error) {
	set, err := s.ex.Begin(ctx, set)
	if err != nil {
		return nil, err
	}
	return settings.Inherited(set)
}

// inherit gives a session that began while the default shard could not be reached what it would have begun with, as soon as that is
// known: at the beginning of a unit outside of transactions. The client is told of what changes by that.
func (x *session) inherit() error {
	if !x.gucs.Early || x.tx.state != txNone || x.pipe.Conn != nil {
		return nil
	}
	ctx, done := x.interrupts.waiting()
	defer done()
	next, err := x.srv.ex.Begin(ctx, x.gucs.Settings)
	if err != nil || next.BeganAs() == 0 {
		return nil // the statement says what it cannot reach
	}
	defaults, err := x.srv.ex.Begin(ctx, x.gucs.Defaults)
	if err != nil {
		return err
	}
	if next, err = settings.Inherited(next); err != nil {
		return err
	}
	if defaults, err = settings.Inherited(defaults); err != nil {
		return err
	}
	now, err := x.srv.ex.ParametersOf(ctx, next)
	if err != nil {
		return err
	}
	x.gucs.Inherit(next, defaults)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		_, set := next.Get(strings.ToLower(name))
		if !set && name != "session_authorization" && x.gucs.Reported[name] != now[name] {
			x.w.Parameter(name, now[name])
		}
	}
	return nil
}

// profilesMax bounds the remembered profiles.
const profilesMax = 256

// profile returns what a session with the settings reports at its start. The
// first one asks a shard, which also proves the settings valid.
func (s *Server) profile(ctx context.Context, set *executor.Settings) (map[string]string, error) {
	login := set.Login()
	base, err := s.ex.ParametersOf(ctx, set)
	if err != nil {
		return nil, err
	}
	if set.Len() == 0 {
		return maps.Clone(base), nil
	}
	key := strconv.FormatUint(set.BeganAs(), 10) + ":" + strings.Join(set.Statements(), ";")
	if login == nil {
		s.mu.Lock()
		known, ok := s.profiles[key]
		s.mu.Unlock()
		if ok {
			return maps.Clone(known), nil
		}
	}
	c, err := s.ex.AcquireAny(ctx, s.ex.Snapshot().State().DefaultShard, set.Bare())
	if err != nil {
		return nil, err
	}
	defer c.Release()
	_ = c.SetDeadline(time.Now().Add(answerMax)) // a Conn that fails here fails below
	defer func() {
		if !c.Broken() && c.SetDeadline(time.Time{}) != nil {
			c.Break()
		}
	}()
	learned := maps.Clone(base)
	if err := c.ApplyReport(set, func(name, value string) { learned[name] = value }); err != nil {
		var se *sqlstate.Error
		if errors.As(err, &se) {
			if se.Shard = ""; strings.HasSuffix(se.Message, "cannot be set after connection start") {
				se.Hint = "the router's connections to the shards began before: set it in the shards' own configuration"
			}
			return nil, se
		}
		s.ex.Shun(c.Shard())
		return nil, c.Lost(err, false)
	}
	if login != nil {
		return learned, nil // others may set other things, or be refused
	}
	s.mu.Lock()
	if len(s.profiles) >= profilesMax {
		clear(s.profiles)
	}
	s.profiles[key] = learned
	s.mu.Unlock()
	return maps.Clone(learned), nil
}
