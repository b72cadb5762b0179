package executor

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// Login is a client that the shards themselves know: what it runs there runs as
// its own user. [Settings.As] carries it to where connections are borrowed. It is
// shared by the sessions of one user and password, and never printed.
type Login struct {
	as engine.Login
	// reported is what the default shard reports to the user, start what all
	// connections begin with, so that the same holds on every shard.
	reported, start, values map[string]string
	path                    string
	// revoked: the user has another password by now. Connections made with this one
	// are closed when they are released, and no new ones will come.
	revoked atomic.Bool

	// Under logins.mu.
	sessions int
	idle     time.Time // when the last session ended
}

const (
	// loginLifetime bounds the age of a user's connection: a user that was dropped,
	// or a password that was changed, is good for no longer.
	loginLifetime = 5 * time.Minute
	// loginKeep is how long a password is remembered behind the last session.
	loginKeep = time.Minute
	// loginsMax bounds those that no session has.
	loginsMax = 1000
	// loginsAtOnce bounds the passwords that shards check at the same time.
	loginsAtOnce = 8
	// AdminRole is the role on the default shard whose members are administrators.
	AdminRole = "cleave_admin"
)

// User is the user's name.
func (l *Login) User() string { return l.as.User }

// Parameters are what the default shard reports to the user. Do not change them.
func (l *Login) Parameters() map[string]string { return l.reported }

// Format prints the user alone, whatever the verb.
func (l *Login) Format(s fmt.State, verb rune) {
	if l == nil {
		_, _ = s.Write([]byte("no user"))
		return
	}
	l.as.Format(s, verb)
}

// standingOf asks who the user is, as the user.
const standingOf = `SELECT rolsuper OR EXISTS (SELECT FROM pg_catalog.pg_roles a WHERE a.rolname OPERATOR(pg_catalog.=) '` + AdminRole + `' AND pg_catalog.pg_has_role(r.oid, a.oid, 'MEMBER')),
	pg_catalog.current_setting('search_path') FROM pg_catalog.pg_roles r WHERE rolname OPERATOR(pg_catalog.=) session_user`

// Login has the default shard check a client's password. admin: the user is a
// superuser there or a member of AdminRole; such a user works as the shards' own
// URLs say, and login is nil. Otherwise Logout has to follow.
//
// Errors: those of [engine.Users], 0A000 if the default shard has no users.
func (e *Executor) Login(ctx context.Context, user, password string) (login *Login, admin bool, err error) {
	select {
	case e.checking <- struct{}{}:
		defer func() { <-e.checking }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	shard := e.Snapshot().State().DefaultShard
	handle, err := e.Shard(shard)
	if err != nil {
		return nil, false, err
	}
	users, ok := handle.(engine.Users)
	if !ok {
		return nil, false, noUsers(shard)
	}
	l := &Login{as: engine.Login{User: user, Password: password}, start: maps.Clone(plainStart)}
	ctx, stop := context.WithTimeout(ctx, e.limits.ConnectTimeout)
	defer stop()
	conn, err := users.ConnectAs(ctx, plainStart, l.as)
	if err != nil {
		return nil, false, err
	}
	defer conn.Close()
	res, err := engine.ExecContext(ctx, conn, standingOf)
	if err != nil {
		return nil, false, err
	}
	if len(res.Rows) != 1 {
		return nil, false, sqlstate.New(sqlstate.InvalidPassword, "password authentication failed for user %q", user)
	}
	if res.Rows[0][0].String == "t" {
		return nil, true, nil
	}
	if err := users.ActsFor(ctx, conn); err != nil {
		return nil, false, err
	}
	l.path = startPath(res.Rows[0][1].String)
	if l.values, err = alike(ctx, conn, true); err != nil {
		return nil, false, err
	}
	readable(l.values)
	l.reported = maps.Clone(conn.Parameters())
	for _, name := range pinned {
		if v := conn.Parameter(name); v != "" {
			l.start[name] = v
		}
	}
	return e.admitLogin(l), false, nil
}

// noUsers refuses a shard that cannot tell users apart.
func noUsers(shard string) error {
	e := sqlstate.Refusal("CLV-1417", "shard %s has no users of its own", shard).
		WithHint("Users are passed through to PostgreSQL shards only: set auth to scram, or move what is on the shard to PostgreSQL.")
	e.Shard = shard
	return e
}

// admitLogin notes a login that a shard has checked, for one more session.
func (ls *logins) admitLogin(l *Login) *Login {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	was := ls.known[l.as.User]
	if was != nil {
		same := subtle.ConstantTimeCompare([]byte(was.as.Password), []byte(l.as.Password)) == 1
		if same && maps.Equal(was.reported, l.reported) && maps.Equal(was.values, l.values) && was.path == l.path {
			was.sessions++
			return was
		}
		was.revoked.Store(!same)
	}
	if ls.known == nil {
		ls.known = map[string]*Login{}
	}
	l.sessions = 1
	ls.known[l.as.User] = l
	return l
}

// Logout ends a session's use of a login. nil is none.
func (ls *logins) Logout(l *Login) {
	if l == nil {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.sessions--; l.sessions == 0 {
		l.idle = time.Now()
		if len(ls.known) > loginsMax {
			ls.drop(l)
		}
	}
}

// tendLogins forgets the passwords that no session has needed for a while.
func (ls *logins) tendLogins(now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.known {
		if l.sessions == 0 && now.Sub(l.idle) > loginKeep {
			ls.drop(l)
		}
	}
}

// drop forgets a login that no session has. Its connections are of no use to anybody.
func (k *logins) drop(l *Login) {
	l.revoked.Store(true)
	if k.known[l.as.User] == l {
		delete(k.known, l.as.User)
	}
}

// ofUser reports whether a failed connection says something of the user, and
// nothing of the shard.
func ofUser(err error) bool {
	code := sqlstate.CodeOf(err)
	return strings.HasPrefix(string(code), "28") || code == sqlstate.InsufficientPrivilege || code == sqlstate.FeatureNotSupported || code == sqlstate.TooManyConnections
}

// As returns the set for sessions of a login, nil for none: connections are then
// borrowed as its user.
func (s *Settings) As(l *Login) *Settings { return newSettings(s.list(), origin{login: l}) }

// Login is whose connections are to be borrowed, nil for the shards' URLs'.
func (s *Settings) Login() *Login {
	return s.from().login
}

// Login is whose connection it is, nil for the one of the shard's URL.
func (c *Conn) Login() *Login { return c.login }

// DialFor opens a conversation outside of the shard's pool, for a session with the
// settings. They are not applied. nil is the shard's URL's own user.
func (e *Executor) DialFor(ctx context.Context, shard string, s *Settings) (*Conn, error) {
	if _, err := e.Shard(shard); err != nil {
		return nil, err
	}
	p := (*e.pools.Load())[shard]
	if p == nil || p.shard == nil {
		return nil, unknownShard(shard)
	}
	from := e.now(s.from())
	raw, err := p.connect(ctx, from)
	if err != nil {
		return nil, err
	}
	c := NewConn(shard, raw)
	c.login, c.baseline, c.numbers = from.login, from.base, e.numbersOf(shard)
	return c, nil
}

// connectAs opens a conversation that begins with start, as the login's user if there is one.
func connectAs(ctx context.Context, shard engine.Shard, start map[string]string, l *Login) (engine.Conn, error) {
	if l == nil {
		return shard.Connect(ctx, start)
	}
	users, ok := shard.(engine.Users)
	if !ok {
		return nil, noUsers(shard.Name())
	}
	conn, err := users.ConnectAs(ctx, start, l.as)
	if err != nil {
		return nil, err
	}
	if err := users.ActsFor(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

var errForeign = errors.New("executor: a conversation of another user")

// Belongs fails if a conversation is not the one of the settings' login, or began with a baseline that their session does not know
// of: nothing of a client's is to run on it.
func (c *Conn) Belongs(s *Settings) error {
	switch from := s.from(); {
	case c.login != from.login:
		return sqlstate.Wrap(errForeign, sqlstate.InternalError, "a connection of another user was borrowed")
	case c.baseline != nil && from == (origin{}):
		e := sqlstate.New(sqlstate.CannotConnectNow, "the default shard's settings, which are the session's, were not known before").
			WithHint("run it again")
		e.Retry = sqlstate.RetryTransaction
		return e
	}
	return nil
}
