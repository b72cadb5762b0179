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

// trusts reports whether the folder's server would let in everybody although there is a password.
func (s *Server) trusts() (bool, error) {
	if s.opts.Password == "" {
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
	if err := s.setPassword(ctx); err != nil {
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

// setPassword gives the superuser its password, without a server: nobody is let in meanwhile. The folder's server must not run.
func (s *Server) setPassword(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StartTimeout)
	defer cancel()
	// With the server's settings: a folder with prepared transactions starts with no fewer of them.
	args := append([]string{"--single"}, s.arguments(max(s.opts.Port, 1))...)
	cmd := exec.CommandContext(ctx, filepath.Join(s.opts.Installation.Bin, "postgres"), append(args, "postgres")...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = environment(), "/", s.account.attributes()
	cmd.WaitDelay = 5 * time.Second
	quote := func(text, by string) string { return by + strings.ReplaceAll(text, by, by+by) + by }
	cmd.Stdin = strings.NewReader("SET password_encryption = 'scram-sha-256'\nALTER ROLE " + quote(s.opts.User, `"`) + " PASSWORD " + quote(s.opts.Password, `'`) + "\n")
	out, err := cmd.CombinedOutput()
	if text := strings.ReplaceAll(string(out), s.opts.Password, "xxxxx"); err != nil || strings.Contains(text, "ERROR:") {
		return sqlstate.Wrap(err, sqlstate.ConfigFileError, "the superuser of PostgreSQL in %s could not get its password", s.opts.DataDir).
			WithDetail("%s", lastLines(text, 5)).WithHint("start again")
	}
	return nil
}

// refuses reports whether the running server does not take the password.
func (s *Server) refuses(ctx context.Context) bool {
	if s.opts.Password == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conf, err := pgconn.ParseConfig(s.URL("postgres"))
	if err != nil {
		return false
	}
	conf.Password = s.opts.Password // whatever the file says
	conn, err := pgconn.ConnectConfig(ctx, conf)
	if err == nil {
		_ = conn.Close(ctx)
	}
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == string(sqlstate.InvalidPassword)
}
