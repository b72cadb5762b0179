// Package arrival is the way of a client from the first byte to a session: how many may be on it, encryption, who it is.
package arrival

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/telemetry"
)

// Request codes of the first message (protocol-message-formats).
const (
	codeCancel   = 80877102
	codeSSL      = 80877103
	codeGSS      = 80877104
	codePeer     = moment.Code
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

// arrival is a client whose session has not begun yet.
//
//	connected ──SSLRequest, GSSENCRequest──> connected ──StartupMessage──> named ──password──> known ──ReadyForQuery──> session
//	  \__ CancelRequest: over           \__ any refusal: told with FATAL, over __/
type arrival struct {
	e       *Entrance
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

// errCancelRequest ends an arrival that only wanted a statement of another session to be cancelled, or was another router.
var errCancelRequest = errors.New("gateway: a cancel request")

// Options are what an Entrance needs.
type Options struct {
	Authenticate Authenticate
	TLS          *TLS // nil: none is spoken
	// TLSRequired refuses clients without TLS, but for those over unix sockets and pipes.
	TLSRequired bool
	// SessionsMax is how many sessions there may be, StartupMax how long a client may take to begin one.
	SessionsMax int
	StartupMax  time.Duration
	// Cancel obeys the body of a CancelRequest.
	Cancel func(body []byte)
	// Peer answers another router until that ends. body is what it said first; proved is to be called when it is known to be one.
	// nil: none is answered.
	Peer Peer
	// Stop is closed when nobody is to wait any more.
	Stop    <-chan struct{}
	Log     *slog.Logger
	Metrics *telemetry.Metrics // nil: nothing is counted
}

// Entrance is where clients come in. Methods are safe for concurrent use.
type Entrance struct {
	o     Options
	door  *door
	peers peers
}

// New makes an Entrance.
func New(o Options) *Entrance { return &Entrance{o: o, door: newDoor()} }

// Client is one that has said who it is, and has proved it.
type Client struct {
	Conn     net.Conn // Socket, or TLS over it
	Socket   net.Conn // as accepted
	Startup  Startup
	Identity Identity

	out []byte // what goes with the next answer
}

// Refused makes of an error the client's last word: it is told before it is let go.
func Refused(err error) error { return refusal{sqlstate.As(err)} }

// Enter talks to a new client until its session can begin, and has begin make that: it calls [Client.Greet]. What begin returns
// [Refused] the client is told. A cancel request is no error.
func (e *Entrance) Enter(nc net.Conn, begin func(ctx context.Context, c *Client) error) error {
	a := &arrival{e: e, socket: nc, nc: nc, full: e.door.full(nc)}
	limit := e.o.StartupMax
	if a.full {
		limit = min(limit, turnedAwayTime)
	}
	if err := nc.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer func() {
		if a.proved != nil {
			a.proved()
		}
	}()
	err := a.enter(ctx, begin)
	if err == errCancelRequest {
		return nil
	}
	if r, ok := err.(refusal); ok {
		r.why.Severity = "FATAL"
		e.o.Metrics.Error(string(r.why.Code))
		e.o.Metrics.Refusal(string(r.why.ID))
		// The client may be gone already; it is refused either way.
		_, err = a.nc.Write(wire.AppendError(nil, r.why))
	}
	return err
}

// enter is the way from the first byte to the session.
//
// Errors: a refusal; errCancelRequest; else what makes the connection useless.
func (a *arrival) enter(ctx context.Context, begin func(context.Context, *Client) error) error {
	body, err := a.negotiate(ctx)
	if err != nil {
		return err
	}
	if err := a.named(body); err != nil {
		return err
	}
	if err := a.identify(ctx); err != nil {
		return err
	}
	return begin(ctx, &Client{Conn: a.nc, Socket: a.socket, Startup: a.start, Identity: a.id, out: a.out})
}

// negotiate agrees on encryption and returns the body of the StartupMessage.
func (a *arrival) negotiate(ctx context.Context) ([]byte, error) {
	secures := a.e.o.TLS != nil && !inProcess(a.socket.RemoteAddr())
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
			a.e.o.Cancel(body)
			return nil, errCancelRequest
		case version == codePeer && a.e.o.Peer != nil:
			a.e.answerPeer(a.socket, a.nc, body)
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
			a.e.door.spoke(a.socket)
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
	encrypted, channel, err := a.e.o.TLS.handshake(ctx, a.nc, direct)
	if err != nil {
		return err
	}
	a.nc, a.channel = encrypted, channel
	return nil
}

// named reads who the client says that it is, and whether it may go on without encryption.
func (a *arrival) named(body []byte) error {
	if a.full {
		a.e.o.Metrics.SessionRefused()
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
	if !a.channel.TLS && !a.plainAllowed() {
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
	a.id = Identity{Role: access.Admin, user: a.start.User}
	if inProcess(a.start.Remote) {
		return nil
	}
	from := origin(a.socket)
	done, e := a.e.try(from)
	if e != nil {
		a.e.o.Metrics.SessionRefused()
		return refusal{e}
	}
	a.proved = done
	id, err := a.e.o.Authenticate(ctx, a.start, a.ask)
	if err == nil {
		a.id = id
		a.id.user = a.start.User
		return nil
	}
	var se *sqlstate.Error
	if !errors.As(err, &se) {
		return err // the client is gone, or took too long
	}
	a.e.o.Log.Info("a client was not let in", telemetry.KeyClient, a.start.Remote, "user", a.start.User, telemetry.KeyError, se.Message)
	if se.Code == sqlstate.InvalidPassword {
		a.e.hesitate(a.nc, from)
	}
	return refusal{se}
}

// plainAllowed reports whether the client may go without TLS.
func (a *arrival) plainAllowed() bool {
	if !a.e.o.TLSRequired {
		return true
	}
	from := a.socket.RemoteAddr()
	if _, unix := from.(*net.UnixAddr); unix {
		return true
	}
	return inProcess(from)
}

// Greet tells the client that its session begins, with which settings, and how to ask for its cancel.
func (c *Client) Greet(reported map[string]string, pid, secret uint32) error {
	out, m := wire.Begin(c.out, wire.Authentication)
	out = wire.End(wire.AppendInt32(out, 0), m)
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		out = wire.AppendParameterStatus(out, name, reported[name])
	}
	out, m = wire.Begin(out, wire.BackendKeyData)
	out = wire.AppendInt32(out, int32(pid))
	out = wire.End(wire.AppendInt32(out, int32(secret)), m)
	if _, err := c.Conn.Write(wire.AppendReadyForQuery(out, 'I')); err != nil {
		return err
	}
	return c.Conn.SetDeadline(time.Time{})
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
