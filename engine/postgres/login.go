package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

var _ engine.Users = (*shard)(nil)

// Authentication requests of a server (protocol-message-formats).
const (
	authOK        = 0
	authSASL      = 10
	authSASLMore  = 11
	authSASLFinal = 12
)

// paramLogin makes a handshake one of a client's own user. It has no value.
const paramLogin = "\x00login"

// errNoSCRAM ends a handshake before anything was sent that the answering server
// could use.
var errNoSCRAM = errors.New("the server does not ask for the password by SCRAM-SHA-256")

// proving watches the handshake of a client's own user. The server has to check
// the password: with "trust", "peer" or "cert" in its pg_hba.conf anybody could
// say to be anybody. It has to do so by SCRAM, which shows it no password.
type proving struct{ asked, proved, refused bool }

// saw takes a frame of the server's.
func (p *proving) saw(f wire.Frame) error {
	if f.Type() != wire.Authentication {
		return nil
	}
	body := f.Body()
	if len(body) < 4 {
		p.refused = true
		return errNoSCRAM
	}
	switch code := binary.BigEndian.Uint32(body); {
	case code == authSASL || code == authSASLMore:
		p.asked = true
		return nil
	case code == authSASLFinal && p.asked:
		p.proved = true
		return nil
	case code == authOK && p.proved:
		return nil
	}
	p.refused = true
	return errNoSCRAM
}

// actsFor is asked as the client's user: whether the URL's user may take its place.
const actsFor = `SELECT session_user OPERATOR(pg_catalog.=) %[1]s OR CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog.>=) 160000
	THEN pg_catalog.pg_has_role(%[1]s, session_user, 'SET') ELSE pg_catalog.pg_has_role(%[1]s, session_user, 'MEMBER') END, session_user`

// ConnectAs goes where the URL says: a socket of this machine may know its
// clients in another way.
func (s *shard) ConnectAs(ctx context.Context, params map[string]string, login engine.Login) (engine.Conn, error) {
	if s.closed.Load() {
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "shard %s was closed", s.cfg.Name).OnShard(s.cfg.Name)
	}
	as := map[string]string{paramLogin: ""}
	for k, v := range params {
		as[k] = v
	}
	pc := s.base.Copy()
	pc.User, pc.Password = login.User, login.Password
	pc.KerberosSrvName, pc.KerberosSpn = "", ""
	c, err := s.dialTo(ctx, pc, as)
	if err != nil {
		return nil, err
	}
	if s.cfg.Cluster != "" && !s.verified.Load() {
		if err := s.verify(ctx, c); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	c.prepared = s.prepared.Load()
	return c, nil
}

// ActsFor asks as the client's user.
func (s *shard) ActsFor(ctx context.Context, conn engine.Conn) error {
	res, err := engine.ExecContext(ctx, conn, fmt.Sprintf(actsFor, literal(s.base.User)+"::pg_catalog.name"))
	switch {
	case err != nil:
		return s.failed("connect", err)
	case len(res.Rows) != 1 || len(res.Rows[0]) != 2:
		return sqlstate.New(sqlstate.InternalError, "the user's standing is not one row").OnShard(s.cfg.Name)
	case res.Rows[0][0].String == "t":
		return nil
	}
	user := res.Rows[0][1].String
	return sqlstate.New(sqlstate.InvalidAuthorization, "user %q cannot be used through the router: role %q of the shard's URL is no member of it", user, s.base.User).
		OnShard(s.cfg.Name).WithHint("on the shard: GRANT %s TO %s; with it any router can finish the user's transactions", quoteName(user), quoteName(s.base.User))
}

// loginError is the failed handshake of a client's own user. What is wrong with
// a server's configuration is not the client's to read.
func (s *shard) loginError(ctx context.Context, err error, login *pgconn.Config, p *proving) error {
	var pe *pgconn.PgError
	switch {
	case p.refused:
		return sqlstate.New(sqlstate.InvalidAuthorization, "shard %s does not check passwords by SCRAM-SHA-256", s.cfg.Name).OnShard(s.cfg.Name).
			WithHint("say scram-sha-256 for the router's address in pg_hba.conf of the shard, and set the password with password_encryption = 'scram-sha-256'")
	case errors.As(err, &pe) && pe.Code == string(sqlstate.InvalidPassword):
		return sqlstate.New(sqlstate.InvalidPassword, "password authentication failed for user %q", login.User)
	case errors.As(err, &pe) && strings.HasPrefix(pe.Code, "28"):
		return &sqlstate.Error{Code: sqlstate.Code(pe.Code), Shard: s.cfg.Name, Message: pe.Message, Hint: "the shard refuses the user: see pg_hba.conf there"}
	}
	return s.connectError(ctx, err, login.Password)
}
