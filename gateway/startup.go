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
	"unicode/utf8"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/executor"
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

// startup talks to a new client until its session can begin. A nil session
// without an error has been dealt with (a cancel request, a refusal).
func (s *Server) startup(nc net.Conn) (*session, error) {
	limit, full := s.limits.StartupMax, s.full(nc)
	if full {
		limit = min(limit, turnedAwayTime)
	}
	if err := nc.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	socket, channel := nc, Channel{}
	local := s.plainAllowed(nc.RemoteAddr())
	refuse := func(e *sqlstate.Error) (*session, error) {
		e.Severity = "FATAL"
		s.metrics.Error(string(e.Code))
		// The client may be gone already; it is refused either way.
		_, err := nc.Write(wire.AppendError(nil, e))
		return nil, err
	}
	var body []byte
	var version uint32
	for tries := 0; ; tries++ {
		var err error
		if tries == 0 && s.tls != nil && !inProcess(nc.RemoteAddr()) {
			var first [1]byte
			if _, err := io.ReadFull(nc, first[:]); err != nil {
				return nil, err
			}
			nc = &begun{nc, bytes.NewReader(first[:])}
			if first[0] == tlsHandshake {
				encrypted, ch, err := s.tls.handshake(ctx, nc, true)
				if err != nil {
					return nil, err
				}
				nc, channel = encrypted, ch
			}
		}
		if version, body, err = readStartup(nc); err != nil {
			if errors.Is(err, wire.ErrMalformed) {
				return refuse(sqlstate.New(sqlstate.ProtocolViolation, "invalid length of startup packet"))
			}
			return nil, err
		}
		if version == codeCancel {
			s.cancelRequest(body)
			return nil, nil
		}
		if version != codeSSL && version != codeGSS {
			break
		}
		if tries == 2 || channel.TLS {
			return refuse(sqlstate.New(sqlstate.ProtocolViolation, "too many encryption requests"))
		}
		if plain, ok := nc.(*begun); ok {
			nc = plain.Conn // its first byte has been read by now
		}
		if version == codeSSL && s.tls != nil && !inProcess(nc.RemoteAddr()) {
			if _, err := nc.Write([]byte{'S'}); err != nil {
				return nil, err
			}
			// Nothing was read ahead: what the client sent unencrypted behind its
			// request is taken for the handshake, and fails there.
			encrypted, ch, err := s.tls.handshake(ctx, nc, false)
			if err != nil {
				return nil, err
			}
			nc, channel = encrypted, ch
			continue
		}
		if _, err := nc.Write([]byte{'N'}); err != nil {
			return nil, err
		}
	}
	if plain, ok := nc.(*begun); ok {
		nc = plain.Conn
	}
	s.spoke(socket)
	if full {
		s.metrics.SessionRefused()
		return refuse(noRoom())
	}
	if version>>16 != 3 {
		return refuse(sqlstate.New(sqlstate.FeatureNotSupported, "unsupported frontend protocol %d.%d: server supports 3.0 to 3.0", version>>16, version&0xffff))
	}
	params, err := parseParameters(body)
	if err != nil {
		return refuse(sqlstate.New(sqlstate.ProtocolViolation, "invalid startup packet layout: expected terminator as last byte"))
	}
	start := Startup{User: params["user"], Database: params["database"], Parameters: params, Remote: nc.RemoteAddr(), Channel: channel}
	if start.User == "" {
		return refuse(sqlstate.New(sqlstate.InvalidAuthorization, "no PostgreSQL user name specified in startup packet"))
	}
	if start.Database == "" {
		start.Database = start.User
	}
	var out []byte
	var unknown []string
	for name := range params {
		if strings.HasPrefix(name, "_pq_.") {
			unknown = append(unknown, name)
		}
	}
	if version != version3 || len(unknown) > 0 {
		slices.Sort(unknown)
		var m int
		out, m = wire.Begin(out, wire.NegotiateProtocol)
		out = wire.AppendInt32(out, version3&0xffff)
		out = wire.AppendInt32(out, int32(len(unknown)))
		for _, name := range unknown {
			out = wire.AppendString(out, name)
		}
		out = wire.End(out, m)
	}
	if !channel.TLS && !local {
		return refuse(encryptionNeeded())
	}
	ask := func(code uint32, data []byte, wait bool) ([]byte, error) {
		var m int
		out, m = wire.Begin(out, wire.Authentication)
		out = append(wire.AppendInt32(out, int32(code)), data...)
		if _, err := nc.Write(wire.End(out, m)); err != nil {
			return nil, err
		}
		out = out[:0]
		if !wait {
			return nil, nil
		}
		var head [wire.Header]byte
		if _, err := io.ReadFull(nc, head[:]); err != nil {
			return nil, err
		}
		n := binary.BigEndian.Uint32(head[1:])
		if head[0] != wire.Password || n < 4 || n > startupBytes {
			return nil, sqlstate.New(sqlstate.ProtocolViolation, "expected password response, got message type %d", head[0])
		}
		answer := make([]byte, n-4)
		_, err := io.ReadFull(nc, answer)
		return answer, err
	}
	id := Identity{Role: access.Admin}
	if !inProcess(start.Remote) {
		from := origin(socket)
		done, e := s.try(from)
		if e != nil {
			s.metrics.SessionRefused()
			return refuse(e)
		}
		defer done()
		if id, err = s.authenticate(ctx, start, ask); err != nil {
			var se *sqlstate.Error
			if !errors.As(err, &se) {
				return nil, err // the client is gone, or took too long
			}
			s.log.Info("a client was not let in", telemetry.KeyClient, start.Remote, "user", start.User, telemetry.KeyError, se.Message)
			if se.Code == sqlstate.InvalidPassword {
				s.hesitate(nc, from)
			}
			return refuse(se)
		}
	}
	registered := false
	defer func() {
		if !registered {
			s.ex.Logout(id.Login)
		}
	}()
	if start.Database != Database {
		return refuse(sqlstate.New(sqlstate.InvalidCatalogName, "database \"%s\" does not exist", start.Database[:min(len(start.Database), shardmap.MaxNameBytes)]).
			WithHint("the cluster is one database, called %q: connect with -d %s", Database, Database))
	}
	if v, ok := params["replication"]; ok {
		on, known := planner.ParseBool(v)
		switch {
		case on, v == "database":
			return refuse(sqlstate.Refuse("replication connections are not supported by the router", "connect to a shard directly: `cleave shard list` shows them"))
		case !known:
			return refuse(sqlstate.New(sqlstate.InvalidParameterValue, "invalid value for parameter \"replication\": \"%s\"", v).
				WithHint("Valid values are: \"false\", 0, \"true\", 1, \"database\"."))
		}
	}
	defaults, err := startSettings(params, s.limits.SettingsBytes)
	if err != nil {
		return refuse(sqlstate.As(err))
	}
	if defaults, err = s.began(ctx, defaults.As(id.Login)); err != nil {
		return refuse(sqlstate.As(err))
	}
	profile, err := s.profile(ctx, defaults)
	if err != nil {
		return refuse(sqlstate.As(err))
	}
	sess := newSession(s, nc, start, defaults, profile)
	sess.id, sess.socket = id, socket
	if channel.TLS {
		// The end of the connection comes behind the farewell of TLS, so that a look
		// at the next bytes does not find it.
		if c, ok := socket.(*lane.Conn); ok {
			sess.left = hungUp{c}
		}
	}
	if !s.register(sess) {
		if s.drain.Load() {
			return refuse(sqlstate.New(sqlstate.CannotConnectNow, "the router is shutting down"))
		}
		s.metrics.SessionRefused()
		return refuse(sqlstate.New(sqlstate.TooManyConnections, "sorry, too many clients already").
			WithHint("the router's limit is %d sessions", s.limits.SessionsMax))
	}
	registered = true
	var m int
	out, m = wire.Begin(out, wire.Authentication)
	out = wire.End(wire.AppendInt32(out, 0), m)
	for _, name := range slices.Sorted(maps.Keys(sess.reported)) {
		out = wire.AppendParameterStatus(out, name, sess.reported[name])
	}
	out, m = wire.Begin(out, wire.BackendKeyData)
	out = wire.AppendInt32(out, int32(sess.pid))
	out = wire.End(wire.AppendInt32(out, int32(sess.secret)), m)
	out = wire.AppendReadyForQuery(out, 'I')
	_, err = nc.Write(out)
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		s.unregister(sess)
		return nil, err
	}
	return sess, nil
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

// startSettings turns the startup parameters into settings: what RESET goes back to.
func startSettings(params map[string]string, bytesMax int) (*executor.Settings, error) {
	var set *executor.Settings
	add := func(name, value string) error {
		name = strings.ToLower(name)
		switch {
		case !utf8.ValidString(value):
			return sqlstate.New(sqlstate.InvalidParameterValue, "the value of the startup parameter %q is not UTF-8", name)
		case !validName(name):
			return unknownSetting(name)
		case name == "transaction_isolation":
			return sqlstate.New(sqlstate.ActiveTransaction, "SET TRANSACTION ISOLATION LEVEL must be called before any query").WithHint("set default_transaction_isolation")
		case name == "transaction_deferrable":
			return sqlstate.New(sqlstate.ActiveTransaction, "SET TRANSACTION [NOT] DEFERRABLE must be called before any query").WithHint("set default_transaction_deferrable")
		case name == "transaction_read_only":
			if _, ok := planner.ParseBool(value); !ok {
				return sqlstate.New(sqlstate.InvalidParameterValue, "parameter \"transaction_read_only\" requires a Boolean value")
			}
			return nil // of a transaction that ends before the first statement
		}
		value = listOf(name, executor.QuoteLiteral(value), value)
		if name == "datestyle" {
			before, _ := set.Get(name)
			value = executor.MergeDateStyle(before, value, "")
		}
		if err := checkSetting(name, value); err != nil {
			return err
		}
		if name == "client_encoding" {
			return nil // UTF8, checked: what every shard connection has
		}
		set = set.With(name, value)
		if set.Size() > bytesMax {
			return sqlstate.New(sqlstate.ProgramLimitExceeded, "the startup parameters are over %d bytes", bytesMax)
		}
		return nil
	}
	options, err := splitOptions(params["options"])
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		if err := add(strings.ReplaceAll(o[0], "-", "_"), o[1]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		switch {
		case name == "user", name == "database", name == "options", name == "replication", strings.HasPrefix(name, "_pq_."):
		default:
			if err := add(name, params[name]); err != nil {
				return nil, err
			}
		}
	}
	return set, nil
}

// splitOptions splits the startup parameter "options" into names and values:
// "-c name=value" and "--name=value", a backslash quotes the next character.
func splitOptions(v string) ([][2]string, error) {
	var words []string
	var w strings.Builder
	in := false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c == '\\' && i+1 < len(v):
			i++
			w.WriteByte(v[i])
			in = true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				words = append(words, w.String())
				w.Reset()
				in = false
			}
		default:
			w.WriteByte(c)
			in = true
		}
	}
	if in {
		words = append(words, w.String())
	}
	var out [][2]string
	for i := 0; i < len(words); i++ {
		o, before := words[i], "--"
		switch {
		case o == "-c" && i+1 < len(words):
			i++
			o, before = words[i], "-c "
		case strings.HasPrefix(o, "--"):
			o = o[2:]
		case strings.HasPrefix(o, "-c") && o != "-c":
			o, before = o[2:], "-c "
		default:
			return nil, sqlstate.New(sqlstate.SyntaxError, "invalid command-line argument for server process: %s", o).
				WithHint("give settings as options='-c name=value'")
		}
		name, value, ok := strings.Cut(o, "=")
		if !ok {
			return nil, sqlstate.New(sqlstate.SyntaxError, "%s%s requires a value", before, o).
				WithHint("give settings as options='-c name=value'")
		}
		out = append(out, [2]string{name, value})
	}
	return out, nil
}

// began is the settings of a session that begins now, with the search_path and the isolation level of its user, or of the
// default shard, so that the router looks names up, and knows what a snapshot holds for, as the shards do.
func (s *Server) began(ctx context.Context, set *executor.Settings) (*executor.Settings, error) {
	set, err := s.ex.Begin(ctx, set)
	if err != nil {
		return nil, err
	}
	return inherited(set)
}

// inherited are the settings with those of what their session began with that the router has to know.
func inherited(set *executor.Settings) (*executor.Settings, error) {
	_, given := set.Get("default_transaction_isolation")
	if level := set.OwnIsolation(); level != "" && level != "read committed" && !given {
		set = set.With("default_transaction_isolation", executor.QuoteLiteral(level))
	}
	path := set.OwnPath()
	if _, given = set.Get("search_path"); given || path == "" {
		return set, nil
	}
	if err := checkSetting("search_path", path); err != nil {
		return nil, err
	}
	return set.With("search_path", path), nil
}

// inherit gives a session that began while the default shard could not be reached what it would have begun with, as soon as that is
// known: at the beginning of a unit outside of transactions. The client is told of what changes by that.
func (x *session) inherit() error {
	if !x.early || x.tx.state != txNone || x.pipe.Conn != nil {
		return nil
	}
	ctx, done := x.waiting()
	defer done()
	settings, err := x.srv.ex.Begin(ctx, x.settings)
	if err != nil || settings.BeganAs() == 0 {
		return nil // the statement says what it cannot reach
	}
	defaults, err := x.srv.ex.Begin(ctx, x.defaults)
	if err != nil {
		return err
	}
	if settings, err = inherited(settings); err != nil {
		return err
	}
	if defaults, err = inherited(defaults); err != nil {
		return err
	}
	now, err := x.srv.ex.ParametersOf(ctx, settings)
	if err != nil {
		return err
	}
	x.early, x.settings, x.defaults = false, settings, defaults
	for _, name := range slices.Sorted(maps.Keys(now)) {
		_, set := settings.Get(strings.ToLower(name))
		if !set && name != "session_authorization" && x.reported[name] != now[name] {
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
