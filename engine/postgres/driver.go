package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// Name is what [Driver.Name] returns.
	Name = "postgres"

	defaultConnectTimeout = 5 * time.Second
	defaultMessageMax     = 256 << 20
	// readBuffer holds a usual result in one read; the kernel hands out more
	// than this at once only for large results, which are read in steps.
	readBuffer = 16 << 10
)

// Driver opens PostgreSQL databases as shards: postgres:// URLs and key=value
// strings as libpq reads them, unix sockets included.
type Driver struct {
	// SocketDirs are the folders in which the unix socket of a server is looked
	// for whose URL names an address of this machine. It is used if it leads to the
	// very same server, and if the URL demands no TLS. nil: connections go where
	// the URL says.
	SocketDirs []string
}

// Name returns "postgres".
func (Driver) Name() string { return Name }

// Opens implements engine.Driver.
func (Driver) Opens(url string) bool {
	scheme, _, ok := strings.Cut(url, ":")
	switch {
	case ok && (scheme == "postgres" || scheme == "postgresql"):
		return true
	case ok && !strings.Contains(scheme, "="):
		return false // of another scheme
	}
	return strings.Contains(url, "dbname=") || strings.Contains(url, "host=")
}

// Open checks the URL and returns a handle; it does not connect. Environment
// variables and files that libpq reads (PGPASSWORD, .pgpass, ...) fill what the
// URL leaves out. Fails with F0000 on a malformed URL, never printing it.
func (d Driver) Open(cfg engine.Config) (engine.Shard, error) {
	pc, err := pgconn.ParseConfig(cfg.URL)
	if err != nil {
		return nil, (&sqlstate.Error{
			Code: sqlstate.ConfigFileError, Op: "open shard", Shard: cfg.Name,
			Message: "the URL of the shard cannot be read",
			Detail:  parseCause(err),
		}).WithHint("write it as postgres://user@host:5432/database or as host=/socket/folder dbname=database")
	}
	switch {
	case cfg.ConnectTimeout > 0:
		pc.ConnectTimeout = cfg.ConnectTimeout
	case pc.ConnectTimeout == 0 || pc.ConnectTimeout > time.Minute:
		// pgconn's own default is two minutes: too long to hold a statement.
		pc.ConnectTimeout = defaultConnectTimeout
	}
	if cfg.MessageMax <= 0 {
		cfg.MessageMax = defaultMessageMax
	}
	s := &shard{cfg: cfg, base: pc, socket: socket{dirs: d.SocketDirs}}
	s.doubt()
	return s, nil
}

// parseCause returns why a URL was refused, without any text that could be a
// part of it: the parser's messages quote the URL, which may hold a password.
func parseCause(err error) string {
	var bad *url.Error
	if errors.As(err, &bad) {
		return "it is not a URL"
	}
	text := err.Error()
	for _, known := range []string{
		"invalid port", "sslmode is invalid", "invalid connect_timeout", "unable to read CA file",
		"unable to read sslcert", "unable to find service", "invalid keyword/value", "cannot specify both",
		"unknown target_session_attrs", "failed to configure TLS",
	} {
		if strings.Contains(text, known) {
			return known
		}
	}
	return ""
}

// Parameters of dialTo that no client can have sent: names hold no zero byte.
const (
	paramReplication = "\x00replication" // its value is that of the parameter
	paramMasses      = "\x00masses"      // read in large steps
)

type shard struct {
	cfg      engine.Config
	base     *pgconn.Config
	closed   atomic.Bool
	verified atomic.Bool
	socket   socket
	streams  streams
	purges   purges
	spares   spares
	// prepared is max_prepared_transactions, -1 while it is not known.
	prepared atomic.Int32
	// mover is the role of moves, "" if the server has none; nil while it is not known.
	mover atomic.Pointer[string]
}

// doubt forgets what was proved about the server: another one may answer next.
func (s *shard) doubt() {
	s.verified.Store(false)
	s.prepared.Store(-1)
	s.mover.Store(nil)
	s.socket.proved.Store(nil)
}

func (s *shard) learnPrepared(setting string) {
	if n, err := strconv.ParseInt(setting, 10, 32); err == nil && n >= 0 {
		s.prepared.Store(int32(n))
	}
}

func (s *shard) Name() string   { return s.cfg.Name }
func (s *shard) Engine() string { return Name }

// Close refuses later Connects. Conversations are closed by their users.
func (s *shard) Close() error {
	s.closed.Store(true)
	s.spares.drop(true)
	return nil
}

func (s *shard) Connect(ctx context.Context, params map[string]string) (engine.Conn, error) {
	c, err := s.connect(ctx, params)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *shard) connect(ctx context.Context, params map[string]string) (*conn, error) {
	c, err := s.dial(ctx, params)
	if err != nil {
		return nil, err
	}
	if s.cfg.Cluster != "" && !s.verified.Load() {
		if err := s.verify(ctx, c); err != nil {
			c.Close()
			return nil, err
		}
	}
	c.prepared = s.prepared.Load()
	return c, nil
}

// dial starts a conversation without asking whose database it is.
func (s *shard) dial(ctx context.Context, params map[string]string) (*conn, error) {
	if s.closed.Load() {
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "shard %s was closed", s.cfg.Name).OnShard(s.cfg.Name)
	}
	return s.through(ctx, func(ctx context.Context, pc *pgconn.Config) (*conn, error) { return s.dialTo(ctx, pc, params) })
}

// refresh puts what files say now into a configuration: the password of a passfile and, where the connection goes
// where the URL says, the certificates. A file that cannot be read now leaves what was read before.
func (s *shard) refresh(pc *pgconn.Config, asURL bool) {
	now, err := pgconn.ParseConfig(s.cfg.URL)
	if err != nil {
		return
	}
	if now.Password != "" {
		pc.Password = now.Password
	}
	if asURL {
		pc.TLSConfig, pc.Fallbacks = now.TLSConfig, now.Fallbacks
	}
}

// dialTo is dial to one place.
func (s *shard) dialTo(ctx context.Context, at *pgconn.Config, params map[string]string) (*conn, error) {
	pc := at.Copy()
	if _, own := params[paramLogin]; !own {
		s.refresh(pc, at == s.base)
	}
	if mover := params[paramMover]; mover != "" {
		s.asMover(pc, mover)
	}
	buffer := readBuffer
	var login *proving
	for k, v := range params {
		switch k {
		case "user", "database", "replication", paramMover:
		case paramLogin:
			login = &proving{}
		case paramReplication:
			pc.RuntimeParams["replication"] = v
		case paramMasses:
			buffer = moveBuffer
		default:
			pc.RuntimeParams[k] = v
		}
	}
	// The handshake reads through our own frame reader, which gives it one
	// frame at a time, so that what follows the last one stays with us.
	var frames *wire.Reader
	pc.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		frames = wire.NewReader(r, buffer, s.cfg.MessageMax)
		if login != nil {
			*login = proving{} // another server of the URL, perhaps
		}
		return pgproto3.NewFrontend(&oneFrame{r: frames, login: login}, w)
	}
	ctx, cancel := context.WithTimeout(ctx, pc.ConnectTimeout)
	defer cancel()
	pg, err := pgconn.ConnectConfig(ctx, pc)
	if err != nil {
		if login != nil {
			return nil, s.loginError(ctx, err, pc, login)
		}
		s.doubt()
		return nil, s.connectError(ctx, err, pc.Password)
	}
	h, err := pg.Hijack()
	if err != nil {
		_ = pg.Close(ctx)
		return nil, s.connectError(ctx, err, pc.Password)
	}
	c := newConn(s, pg, h, frames)
	c.mover = params[paramMover] != ""
	return c, nil
}

// connectError classifies a failed handshake: what the server said keeps its
// code, anything else is "not available".
func (s *shard) connectError(ctx context.Context, err error, password string) error {
	e := &sqlstate.Error{Op: "connect", Shard: s.cfg.Name, Retry: sqlstate.RetrySafe, Err: scrub(err, password)}
	var pe *pgconn.PgError
	switch {
	case errors.As(err, &pe):
		e.Code, e.Message, e.Detail = sqlstate.Code(pe.Code), pe.Message, pe.Detail
		e.Err = nil
		switch {
		case strings.HasPrefix(pe.Code, "28"):
			e.Retry = sqlstate.RetryNever
			e.Hint = fmt.Sprintf("the shard refuses the credentials of its URL or passfile; check pg_hba.conf there, or give the new password: cleave shard set %s --url -", s.cfg.Name)
		case pe.Code == string(sqlstate.InvalidCatalogName):
			e.Retry = sqlstate.RetryNever
			e.Hint = "create the database, or correct the shard's URL"
		case pe.Code == string(sqlstate.TooManyConnections):
			e.Hint = "raise max_connections on the shard, or lower the router's pool size"
		case pe.Code == string(sqlstate.AdminShutdown), strings.HasPrefix(pe.Code, "57P"):
			e.Code = sqlstate.CannotConnectNow
		}
	default:
		e.Code = sqlstate.CannotConnectNow
		e.Message = fmt.Sprintf("shard %s cannot be reached at %s", s.cfg.Name, s.place())
		e.Hint = "start the server, or correct the shard's URL; `cleave doctor` says which shards answer"
		if ctx.Err() != nil {
			e.Err = fmt.Errorf("%w (%w)", e.Err, ctx.Err())
		}
	}
	return e
}

// place names where the shard is, without credentials.
func (s *shard) place() string {
	network, address := pgconn.NetworkAddress(s.base.Host, s.base.Port)
	if network == "unix" {
		return "socket " + address
	}
	return net.JoinHostPort(s.base.Host, fmt.Sprint(s.base.Port)) + ", database " + s.base.Database
}

// scrub keeps a password out of an error's text.
func scrub(err error, password string) error {
	if password == "" || !strings.Contains(err.Error(), password) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), password, "xxxxx"))
}

// oneFrame reads at most up to the end of the current frame.
type oneFrame struct {
	r     *wire.Reader
	rest  []byte
	login *proving // nil: the server may ask for what it likes
}

func (o *oneFrame) Read(p []byte) (int, error) {
	if len(o.rest) == 0 {
		f, err := o.r.Next()
		if err != nil {
			return 0, err
		}
		if o.login != nil {
			if err := o.login.saw(f); err != nil {
				return 0, err
			}
		}
		o.rest = f
	}
	n := copy(p, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}
