package postgres

import (
	"context"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/sqlstate"
)

// Roles on a shard. All users' statements run as the URL's role, which owns the tables and needs no right beyond that. Moves read the log and
// write past triggers and guards: where the server has a role of that name with the suffix _mover that can log in and is a member
// of the URL's role, they log in as that, their mover. Guards then fire always (ENABLE ALWAYS), and let the mover alone pass: no statement of
// the URL's role switches them off, whatever it may set. A login cannot be taken over by SQL, unlike a setting, a row or a role.
// See docs/design/guard.md.

// MoverSuffix follows the name of the URL's role in that of its mover.
const MoverSuffix = "_mover"

// paramMover makes a handshake the mover's; its value is the role.
const paramMover = "\x00mover"

// roleOID is the oid of a role as SQL.
func roleOID(name string) string {
	return "(SELECT oid FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) " + literal(name) + ")"
}

// moverSQL is the mover's name, NULL if there is none.
func (s *shard) moverSQL() string {
	return "(SELECT r.rolname::pg_catalog.text FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) " + literal(s.base.User+MoverSuffix) +
		" AND r.rolcanlogin AND pg_catalog.pg_has_role(r.oid, " + roleOID(s.base.User) + ", 'USAGE'))"
}

// firesSQL is what pg_trigger.tgenabled of a guard should be: always, where a mover can pass it, else for ordinary writes only.
func (s *shard) firesSQL() string {
	return "CASE WHEN " + s.moverSQL() + " IS NULL THEN 'O' ELSE 'A' END"
}

// barsSQL is whether the guard with trigger g refuses what moves write: it fires always, and lets another login pass, or there is no mover.
func (s *shard) barsSQL() string {
	return "(g.tgenabled::pg_catalog.text OPERATOR(pg_catalog.=) 'A' AND (" + s.moverSQL() + " IS NULL OR (SELECT pg_catalog.strpos(p.prosrc, " +
		literal(literal(s.base.User+MoverSuffix)) + ") OPERATOR(pg_catalog.=) 0 FROM pg_catalog.pg_proc AS p WHERE p.oid OPERATOR(pg_catalog.=) g.tgfoid)))"
}

// looseSQL is whether the guard with trigger g is not as the shard could have it: it does not fire always though there is a mover, or it
// bars that.
func (s *shard) looseSQL() string {
	return "(g.tgenabled::pg_catalog.text OPERATOR(pg_catalog.<>) " + s.firesSQL() + " OR " + s.barsSQL() + ")"
}

// askMover asks who the mover is.
func (s *shard) askMover(ctx context.Context, c *conn) (string, error) {
	res, err := c.exec(ctx, "SELECT "+s.moverSQL())
	if err != nil {
		return "", err
	}
	name := res.Rows[0][0].String
	s.mover.Store(&name)
	return name, nil
}

// moverParams adds to a handshake's parameters that it is the mover's, if there is one.
func (s *shard) moverParams(ctx context.Context, params map[string]string) error {
	name := s.mover.Load()
	if name == nil {
		c, err := s.connect(ctx, plainParams)
		if err != nil {
			return err
		}
		defer c.Close()
		asked, err := s.askMover(ctx, c)
		if err != nil {
			return s.failed("connect", err)
		}
		name = &asked
	}
	if *name != "" {
		params[paramMover] = *name
	}
	return nil
}

// asMover makes a configuration the mover's: with the passfile's password for it, else the URL's.
func (s *shard) asMover(pc *pgconn.Config, name string) {
	pc.User = name
	if own, err := pgconn.ParseConfig(withUser(s.cfg.URL, name)); err == nil && own.Password != "" {
		pc.Password = own.Password
	}
}

// withUser is a connection string for another user, without the password.
func withUser(text, user string) string {
	if u, err := url.Parse(text); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		u.User = url.User(user)
		q := u.Query()
		q.Del("user")
		q.Del("password")
		u.RawQuery = q.Encode()
		return u.String()
	}
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	return text + " user='" + quote.Replace(user) + "' password=''"
}

var (
	_ engine.Carrier   = (*shard)(nil)
	_ engine.Triggered = (*conn)(nil)
)

// ConnectCarrier logs in as the mover, and acts as the URL's role until PastTriggers: what it makes belongs to that.
func (s *shard) ConnectCarrier(ctx context.Context, params map[string]string) (engine.Conn, error) {
	all := map[string]string{}
	for k, v := range params {
		all[k] = v
	}
	if err := s.moverParams(ctx, all); err != nil {
		return nil, err
	}
	if all[paramMover] != "" {
		all["role"] = s.base.User
	}
	c, err := s.connect(ctx, all)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// PastTriggers implements engine.Triggered. Only the mover itself may set it, not the role that it acts as.
func (c *conn) PastTriggers(ctx context.Context) error {
	sql := "SET LOCAL session_replication_role = replica"
	if c.mover {
		sql = "SET LOCAL ROLE NONE; " + sql + "; SET LOCAL ROLE " + quoteName(c.shard.base.User)
	}
	_, err := c.exec(ctx, sql)
	if sqlstate.CodeOf(err) == sqlstate.InsufficientPrivilege {
		return notAllowed(err)
	}
	return err
}

// notAllowed tells what a role needs that may not write past triggers.
func notAllowed(err error) error {
	return sqlstate.As(err).WithHint("give the shards' role a mover: cleave doctor has the statements; docs/security.md, Roles on the shards")
}
