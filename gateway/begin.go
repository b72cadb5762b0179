package gateway

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/gateway/settings"
	"github.com/cleavedb/cleave/internal/lane"
	"github.com/cleavedb/cleave/planner/utility"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// startup talks to a new client until its session has begun. A nil session without an error has been dealt with (a cancel
// request, a refusal).
func (s *Server) startup(nc net.Conn) (sess *session, err error) {
	err = s.entrance.Enter(nc, func(ctx context.Context, c *arrival.Client) error {
		made, err := s.begin(ctx, c)
		if err != nil {
			return err
		}
		if err := c.Greet(made.gucs.Reported, made.pid, made.secret); err != nil {
			s.unregister(made)
			return err
		}
		sess = made
		return nil
	})
	return sess, err
}

// begin makes the session of a client that is known. Its login is the session's afterwards.
func (s *Server) begin(ctx context.Context, c *arrival.Client) (sess *session, err error) {
	defer func() {
		if sess == nil {
			s.ex.Logout(c.Identity.Login)
		}
	}()
	if err := served(c.Startup); err != nil {
		return nil, err
	}
	defaults, err := settings.OfStart(c.Startup.Parameters, s.limits.SettingsBytes)
	if err != nil {
		return nil, arrival.Refused(err)
	}
	if defaults, err = s.began(ctx, defaults.As(c.Identity.Login)); err != nil {
		return nil, arrival.Refused(err)
	}
	profile, err := s.profile(ctx, defaults)
	if err != nil {
		return nil, arrival.Refused(err)
	}
	made := newSession(s, c.Conn, c.Startup, defaults, profile)
	made.id, made.socket = c.Identity, c.Socket
	if socket, ok := c.Socket.(*lane.Conn); ok && c.Startup.Channel.TLS {
		// The end of the connection comes behind the farewell of TLS, so that a look
		// at the next bytes does not find it.
		made.left = hungUp{socket}
	}
	switch {
	case s.register(made):
		return made, nil
	case s.drain.Load():
		return nil, arrival.Refused(sqlstate.New(sqlstate.CannotConnectNow, "the router is shutting down"))
	}
	s.metrics.SessionRefused()
	return nil, arrival.Refused(sqlstate.New(sqlstate.TooManyConnections, "sorry, too many clients already").
		WithHint("the router's limit is %d sessions", s.limits.SessionsMax))
}

// served reports what the client asks for that the router has not: another database, a stream of the WAL.
func served(start arrival.Startup) error {
	if start.Database != Database {
		return arrival.Refused(sqlstate.New(sqlstate.InvalidCatalogName, "database \"%s\" does not exist", start.Database[:min(len(start.Database), shardmap.MaxNameBytes)]).
			WithHint("the cluster is one database, called %q: connect with -d %s", Database, Database))
	}
	v, ok := start.Parameters["replication"]
	if !ok {
		return nil
	}
	on, known := utility.ParseBool(v)
	switch {
	case on, v == "database":
		return arrival.Refused(sqlstate.Refusal("CLV-1221", "replication connections are not supported by the router").
			WithHint("Connect to a shard directly: `cleave shard list` shows them."))
	case !known:
		return arrival.Refused(sqlstate.New(sqlstate.InvalidParameterValue, "invalid value for parameter \"replication\": \"%s\"", v).
			WithHint("Valid values are: \"false\", 0, \"true\", 1, \"database\"."))
	}
	return nil
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

// hungUp is the leaver of a TLS connection whose socket a loop watches.
type hungUp struct{ c *lane.Conn }

// Left reports whether the client has closed its end.
func (h hungUp) Left() bool { return h.c.HungUp() }
