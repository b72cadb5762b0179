package arrival

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// Identity is who a session belongs to.
type Identity struct {
	Role access.Role
	// Login is set where the session's statements run on the shards as its own user.
	Login *executor.Login
	user  string // the name that the session began with
}

// Authentication requests (protocol-message-formats).
const (
	authCleartext    = 3
	authSASL         = 10
	authSASLContinue = 11
	authSASLFinal    = 12
)

// Users finds the user that a client claims to be; see [access.Users.Find].
type Users interface {
	Find(ctx context.Context, name string) (user access.User, known bool, err error)
}

// refusedPassword is the one answer to a wrong password and to an unknown user.
func refusedPassword(user string) error {
	return sqlstate.New(sqlstate.InvalidPassword, "password authentication failed for user %q", user)
}

// Password asks clients for a password by SCRAM-SHA-256, bound to the TLS
// channel where there is one and the client can. Clients that trusted lets in
// are not asked, and may do everything; nil trusts nobody.
func Password(users Users, trusted Authenticate) Authenticate {
	return func(ctx context.Context, s Startup, ask func(uint32, []byte, bool) ([]byte, error)) (Identity, error) {
		if trusted != nil {
			if id, err := trusted(ctx, s, ask); err == nil {
				return id, nil
			}
		}
		user, known, err := users.Find(ctx, s.User)
		if err != nil {
			return Identity{}, usersUnreachable(err)
		}
		offer := []byte(access.Plain + "\x00\x00")
		if s.Channel.Binding != nil {
			offer = []byte(access.Plus + "\x00" + access.Plain + "\x00\x00")
		}
		answer, err := ask(authSASL, offer, true)
		if err != nil {
			return Identity{}, err
		}
		mechanism, rest, ok := wire.CutString(answer)
		if !ok || len(rest) < 4 || int64(binary.BigEndian.Uint32(rest)) != int64(len(rest)-4) {
			return Identity{}, badSASL(access.ErrMessage)
		}
		x, err := access.NewExchange(user.Verifier, mechanism, s.Channel.Binding)
		if err != nil {
			return Identity{}, badSASL(err)
		}
		first, err := x.Begin(rest[4:])
		if err != nil {
			return Identity{}, badSASL(err)
		}
		if answer, err = ask(authSASLContinue, first, true); err != nil {
			return Identity{}, err
		}
		last, err := x.End(bytes.Clone(answer))
		switch {
		case errors.Is(err, access.ErrProof), err == nil && !known:
			return Identity{}, refusedPassword(s.User)
		case err != nil:
			return Identity{}, badSASL(err)
		}
		_, err = ask(authSASLFinal, last, false)
		return Identity{Role: user.Role}, err
	}
}

func badSASL(err error) error {
	code := sqlstate.ProtocolViolation
	if errors.Is(err, access.ErrBinding) {
		code = sqlstate.InvalidAuthorization
	}
	return sqlstate.New(code, "%v", err)
}

func usersUnreachable(err error) error {
	if se := new(sqlstate.Error); errors.As(err, &se) {
		return se
	}
	return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the directory, which has the users, cannot be reached").WithHint("try again in a moment")
}

// Certificate lets in clients whose verified certificate has the user's name as
// common name; the user has to exist, for its role. Clients that trusted lets in
// need none; nil trusts nobody.
func Certificate(users Users, trusted Authenticate) Authenticate {
	return func(ctx context.Context, s Startup, ask func(uint32, []byte, bool) ([]byte, error)) (Identity, error) {
		if trusted != nil {
			if id, err := trusted(ctx, s, ask); err == nil {
				return id, nil
			}
		}
		refused := sqlstate.New(sqlstate.InvalidAuthorization, "certificate authentication failed for user %q", s.User)
		switch {
		case !s.Channel.TLS:
			return Identity{}, encryptionNeeded()
		case s.Channel.Name == "":
			return Identity{}, sqlstate.New(sqlstate.InvalidAuthorization, "connection requires a valid client certificate").
				WithHint("connect with sslcert and sslkey, of an authority that the router trusts")
		case s.Channel.Name != s.User:
			return Identity{}, refused
		}
		user, known, err := users.Find(ctx, s.User)
		if err != nil {
			return Identity{}, usersUnreachable(err)
		}
		if !known {
			return Identity{}, refused
		}
		return Identity{Role: user.Role}, nil
	}
}

// Logins has shards check a user's password; see [executor.Executor.Login].
type Logins interface {
	Login(ctx context.Context, user, password string) (login *executor.Login, admin bool, err error)
}

// PassThrough asks clients for their password in clear text, over TLS or on this
// machine only, and has the default shard check it. Their statements run on the
// shards as their own users; those of administrators as the shards' URLs say.
// Clients that trusted lets in are not asked, and may do everything; nil trusts nobody.
func PassThrough(logins Logins, trusted Authenticate) Authenticate {
	return func(ctx context.Context, s Startup, ask func(uint32, []byte, bool) ([]byte, error)) (Identity, error) {
		if trusted != nil {
			if id, err := trusted(ctx, s, ask); err == nil {
				return id, nil
			}
		}
		if !s.Channel.TLS && !sameMachine(s.Remote) {
			return Identity{}, sqlstate.New(sqlstate.InvalidAuthorization, "the router takes passwords over encrypted connections only").
				WithHint("connect with sslmode=verify-full: the password is passed to the shards, so the router has to read it")
		}
		answer, err := ask(authCleartext, nil, true)
		if err != nil {
			return Identity{}, err
		}
		password, rest, ok := wire.CutString(answer)
		switch {
		case !ok || len(rest) != 0:
			return Identity{}, sqlstate.New(sqlstate.ProtocolViolation, "invalid password packet size")
		case password == "" || len(password) > access.PasswordBytes || access.CheckName(s.User) != nil:
			return Identity{}, refusedPassword(s.User)
		}
		clear(answer)
		login, admin, err := logins.Login(ctx, s.User, password)
		switch {
		case err != nil:
			if ctx.Err() != nil {
				return Identity{}, sqlstate.New(sqlstate.CannotConnectNow, "the shard did not check the password in time").WithHint("try again in a moment")
			}
			return Identity{}, err
		case admin:
			return Identity{Role: access.Admin}, nil
		}
		return Identity{Role: access.Writer, Login: login}, nil
	}
}

func encryptionNeeded() *sqlstate.Error {
	return sqlstate.New(sqlstate.InvalidAuthorization, "the router takes encrypted connections only").
		WithHint("connect with sslmode=verify-full (or require)")
}

// MayAdminister fails with 42501 unless the session's user may change the cluster.
func (id *Identity) MayAdminister(what string) error {
	if id.Role == access.Admin {
		return nil
	}
	return id.Denied(what, access.Admin)
}

// MayChangeSchema fails with 42501 unless the session's user may change the schema.
func (id *Identity) MayChangeSchema(tag string) error {
	if id.Role == access.Admin || id.Role == access.Ordinary {
		return nil
	}
	return id.Denied(tag, access.Ordinary)
}

// Denied is the error for who has another role than it takes.
func (id *Identity) Denied(what string, needs access.Role) error {
	e := sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied for %s", what)
	if id.Login != nil {
		return e.WithHint(`it takes an administrator: GRANT %s TO "%s" on the default shard`, executor.AdminRole, strings.ReplaceAll(id.user, `"`, `""`))
	}
	return e.WithHint("it takes a user with the role %s: cleave user role %s %s", needs, id.user, needs)
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

// Trust lets in everybody on the same machine, as [TrustLoopback] does, and
// everybody with an address of the networks. Nobody is asked for a password: the
// networks have to be private.
func Trust(networks []netip.Prefix) Authenticate {
	return func(ctx context.Context, s Startup, ask func(uint32, []byte, bool) ([]byte, error)) (Identity, error) {
		if a, ok := s.Remote.(*net.TCPAddr); ok {
			addr := a.AddrPort().Addr().Unmap()
			for _, n := range networks {
				if n.Contains(addr) {
					return Identity{Role: access.Admin}, nil
				}
			}
		}
		id, err := TrustLoopback(ctx, s, ask)
		if err != nil && len(networks) > 0 {
			return Identity{}, sqlstate.New(sqlstate.InvalidAuthorization, "clients from %s may not connect", s.Remote).
				WithHint("the setting trust of the router lists the networks whose clients may")
		}
		return id, err
	}
}

// TrustNetworks lets in everybody with an address of the networks, and nobody
// else, not even clients of the same machine.
func TrustNetworks(networks []netip.Prefix) Authenticate {
	return func(_ context.Context, s Startup, _ func(uint32, []byte, bool) ([]byte, error)) (Identity, error) {
		if a, ok := s.Remote.(*net.TCPAddr); ok {
			addr := a.AddrPort().Addr().Unmap()
			for _, n := range networks {
				if n.Contains(addr) {
					return Identity{Role: access.Admin}, nil
				}
			}
		}
		return Identity{}, sqlstate.New(sqlstate.InvalidAuthorization, "clients from %s are not trusted", s.Remote)
	}
}

// MaySee refuses what takes an administrator to read.
func (id *Identity) MaySee(st *plan.Statement) error {
	if st.Secret == "" || id.Role == access.Admin || id.Login != nil {
		return nil
	}
	return id.Denied(st.Secret, access.Admin)
}
