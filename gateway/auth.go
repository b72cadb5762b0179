package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// Identity is who a session belongs to.
type Identity struct {
	Role access.Role
}

// Authentication requests (protocol-message-formats).
const (
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

func encryptionNeeded() *sqlstate.Error {
	return sqlstate.New(sqlstate.InvalidAuthorization, "the router takes encrypted connections only").
		WithHint("connect with sslmode=verify-full (or require)")
}

// mayAdminister fails with 42501 unless the session's user may change the cluster.
func (x *session) mayAdminister(what string) error {
	if x.id.Role == access.Admin {
		return nil
	}
	return sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied for %s", what).
		WithHint("it takes a user with the role %s: cleave user role %s %s", access.Admin, x.start.User, access.Admin)
}
