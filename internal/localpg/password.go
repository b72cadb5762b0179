package localpg

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/sqlstate"
)

// trusting are the lines of pg_hba.conf with which initdb lets in everybody on this machine. What somebody
// wrote for users of their own stays.
var trusting = regexp.MustCompile(`(?m)^((?:local|host)[ \t]+(?:all|replication)[ \t]+all[ \t]+(?:127\.0\.0\.1/32[ \t]+|::1/128[ \t]+)?)trust[ \t]*$`)

func (s *Server) hbaPath() string { return filepath.Join(s.opts.DataDir, "pg_hba.conf") }

func (s *Server) passwords() bool { return len(s.opts.Passwords) > 0 }

// trusts reports whether the folder's server would let in everybody although there are passwords.
func (s *Server) trusts() (bool, error) {
	if !s.passwords() {
		return false, nil
	}
	b, err := os.ReadFile(s.hbaPath())
	if err != nil {
		return false, fileError(err, "cannot read %s", s.hbaPath())
	}
	return trusting.Match(b), nil
}

// askForPasswords makes the server of a folder that trusts everybody ask for the password. The superuser gets it first,
// so that a crash in between locks nobody out.
func (s *Server) askForPasswords(ctx context.Context) error {
	if err := s.setSuperuser(ctx); err != nil {
		return err
	}
	path := s.hbaPath()
	b, err := os.ReadFile(path)
	if err != nil {
		return fileError(err, "cannot read %s", path)
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, trusting.ReplaceAll(b, []byte("${1}scram-sha-256")), 0o600); err != nil {
		return fileError(err, "cannot write %s", fresh)
	}
	if err := s.account.own(fresh); err != nil {
		return fileError(err, "cannot give %s to %s", fresh, s.account.name)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fileError(err, "cannot replace %s", path)
	}
	return nil
}

// renameSQL gives the role that initdb made its name: folders of older versions have the shards' role there. ALTER ROLE
// cannot rename the session's own user, which this one always is without a server.
const renameSQL = "UPDATE pg_catalog.pg_authid SET rolname = 'postgres' WHERE oid = 10 AND NOT EXISTS (SELECT FROM pg_catalog.pg_authid WHERE rolname = 'postgres')\n"

// setSuperuser gives the superuser its name and password, without a server: nobody is let in meanwhile. The folder's server must not run.
func (s *Server) setSuperuser(ctx context.Context) error {
	script := renameSQL
	if s.passwords() {
		script += "SET password_encryption = 'scram-sha-256'\nALTER ROLE " + Superuser + " PASSWORD " + quote(s.opts.Passwords[Superuser], `'`) + "\n"
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.StartTimeout)
	defer cancel()
	// With the server's settings: a folder with prepared transactions starts with no fewer of them.
	args := append([]string{"--single"}, s.arguments(max(s.opts.Port, 1))...)
	cmd := exec.CommandContext(ctx, filepath.Join(s.opts.Installation.Bin, "postgres"), append(args, "postgres")...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = environment(), "/", s.account.attributes()
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	text := string(out)
	for _, password := range s.opts.Passwords {
		text = strings.ReplaceAll(text, password, "xxxxx")
	}
	if err != nil || strings.Contains(text, "ERROR:") {
		return sqlstate.Wrap(err, sqlstate.ConfigFileError, "the superuser of PostgreSQL in %s could not get its name and password", s.opts.DataDir).
			WithDetail("%s", lastLines(text, 5)).WithHint("start again")
	}
	return nil
}

// refuses reports whether the running server does not take the superuser, by its name or by its password.
func (s *Server) refuses(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conf, err := pgconn.ParseConfig(s.SuperuserURL("postgres"))
	if err != nil {
		return false
	}
	conf.Password = s.opts.Passwords[Superuser] // whatever the file says
	conn, err := pgconn.ConnectConfig(ctx, conf)
	if err == nil {
		_ = conn.Close(ctx)
	}
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.Code == string(sqlstate.InvalidPassword) || pe.Code == string(sqlstate.InvalidAuthorization))
}

// quote writes a text in quotes of a kind.
func quote(text, by string) string { return by + strings.ReplaceAll(text, by, by+by) + by }
