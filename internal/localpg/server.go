package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/sqlstate"
)

// DefaultUser is the role that the URLs name unless Options say another.
const DefaultUser = "cleave"

// Options say which server to run and how. DataDir is required.
type Options struct {
	// Installation to use; the zero value takes the one that fits the data
	// folder's version, or the first of [All] for a new folder.
	Installation Installation
	// DataDir is PostgreSQL's data folder; made and filled if it is missing or empty.
	DataDir string
	// Port on 127.0.0.1; 0 takes a free one.
	Port int
	// SocketDir is the folder of the Unix socket: DataDir when empty, or, if that
	// path is too long for a socket, a folder under the system's temporary one.
	SocketDir string
	// Settings are passed as `-c name=value` and win over postgresql.conf.
	Settings map[string]string
	// Durable keeps committed rows through a loss of power. Without it the
	// server does not wait for the disk: committed rows still survive a crash of
	// the server, but not one of the machine. For tests.
	Durable bool
	// User is the role that the URLs name, which owns the databases of CreateDatabase; DefaultUser when
	// empty. It and its mover are made at each start if they are not there: see Roles.
	User string
	// Passwords are those of the Roles, by name. When empty the server trusts every local user of
	// this machine, who can then act as superuser: right for tests. When set, connections need them
	// (scram-sha-256). A folder that was made without, or with others, gets them at the start.
	Passwords map[string]string
	// Passfile is the path of a file with the passwords, in libpq's format, which the URLs name
	// instead of the password itself. Empty: they hold the password.
	Passfile string
	// RunAs names the operating system user when we are root; see the package
	// documentation for the default.
	RunAs string
	// StartTimeout bounds the wait for "ready", crash recovery included; 0 is 60 seconds.
	StartTimeout time.Duration
}

// Server is a running PostgreSQL server: a child process, or one that an earlier process of ours left
// running. Methods are safe for concurrent use.
type Server struct {
	opts      Options
	account   account
	port      int
	socketDir string
	process   *os.Process
	lock      *os.File

	done    chan struct{} // closed when the process has ended
	exitErr error         // valid after done

	release sync.Once
}

const (
	startTimeoutDefault = 60 * time.Second
	poll                = 20 * time.Millisecond
)

// Installation returns what the server runs from.
func (s *Server) Installation() Installation { return s.opts.Installation }

// DataDir returns the absolute data folder.
func (s *Server) DataDir() string { return s.opts.DataDir }

// Port returns the TCP port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// SocketDir returns the folder of the Unix socket.
func (s *Server) SocketDir() string { return s.socketDir }

// User returns the name of the role that the URLs name. It is no superuser.
func (s *Server) User() string { return s.opts.User }

// PID returns the process id of the postmaster.
func (s *Server) PID() int { return s.process.Pid }

// LogPath returns the file that the server's log goes to.
func (s *Server) LogPath() string { return logPath(s.opts.DataDir) }

// Done is closed when the server has ended, asked or not.
func (s *Server) Done() <-chan struct{} { return s.done }

// URL returns the postgres:// URL of a database over TCP. It holds the password
// if there is one, or the name of its file.
func (s *Server) URL(db string) string { return s.urlAs(s.opts.User, db) }

// SuperuserURL is URL with the role that initdb made.
func (s *Server) SuperuserURL(db string) string { return s.urlAs(Superuser, db) }

func (s *Server) urlAs(role, db string) string {
	u := url.URL{Scheme: "postgres", User: s.userinfo(role), Host: "127.0.0.1:" + strconv.Itoa(s.port), Path: "/" + db}
	u.RawQuery = s.parameters(url.Values{"sslmode": {"disable"}})
	return u.String()
}

// SocketURL returns the URL of a database over the Unix socket, in the form
// that libpq, pgx and lib/pq understand.
func (s *Server) SocketURL(db string) string {
	q := url.Values{"host": {s.socketDir}, "port": {strconv.Itoa(s.port)}, "sslmode": {"disable"}}
	return "postgres://" + s.userinfo(s.opts.User).String() + "@/" + url.PathEscape(db) + "?" + s.parameters(q)
}

func (s *Server) parameters(q url.Values) string {
	if s.opts.Passfile != "" {
		q.Set("passfile", s.opts.Passfile)
	}
	return q.Encode()
}

func (s *Server) userinfo(role string) *url.Userinfo {
	if password := s.opts.Passwords[role]; password != "" && s.opts.Passfile == "" {
		return url.UserPassword(role, password)
	}
	return url.User(role)
}

// CreateDatabase makes a database of the Server's User if it is not there yet. Returns 57P03 when the
// server does not answer.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	if name == "" || len(name) > 63 || strings.ContainsRune(name, 0) {
		return sqlstate.New(sqlstate.InvalidParameterValue, "%q cannot be the name of a database", name).
			WithHint("use 1 to 63 bytes")
	}
	return s.exec(ctx, "postgres", "CREATE DATABASE "+quote(name, `"`)+" OWNER "+quote(s.opts.User, `"`), "42P04")
}

// exec runs SQL in a database as superuser; an error with the code `fine` counts as success.
func (s *Server) exec(ctx context.Context, database, sql, fine string) error {
	conn, err := pgconn.Connect(ctx, s.SuperuserURL(database))
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the local PostgreSQL server on port %d does not answer", s.port).
			WithHint("read %s", s.LogPath())
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql).ReadAll()
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pgErr):
		if pgErr.Code == fine {
			return nil
		}
		return sqlstate.Wrap(err, sqlstate.Code(pgErr.Code), "the local PostgreSQL server refused: %s", pgErr.Message)
	default:
		return sqlstate.Wrap(err, sqlstate.ConnectionFailure, "the connection to the local PostgreSQL server on port %d broke", s.port).
			WithHint("read %s", s.LogPath())
	}
}

// Stop ends the server with a fast shutdown: open transactions are rolled back,
// everything is written. If ctx ends first the server is told to quit at once
// (it recovers at the next start, committed rows are kept) and an error is
// returned. Stopping a stopped server does nothing.
func (s *Server) Stop(ctx context.Context) error {
	defer s.letGo()
	if s.ended() {
		return nil
	}
	_ = s.process.Signal(syscall.SIGINT) // it may have ended just now
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	s.Quit()
	return sqlstate.Wrap(ctx.Err(), sqlstate.SystemError, "the local PostgreSQL server in %s did not shut down in time and was made to quit", s.opts.DataDir).
		WithHint("nothing committed is lost; the next start recovers. Its log: %s", s.LogPath())
}

// quitMax is the time for an immediate shutdown, after which the server is killed.
const quitMax = 5 * time.Second

// Quit ends the server with an immediate shutdown: nothing is written any more, it recovers at the next
// start, and what is committed is kept.
func (s *Server) Quit() {
	if !s.quit() {
		s.Kill()
	}
	s.letGo()
}

// quit is Quit without what follows; it reports whether the server has ended.
func (s *Server) quit() bool {
	_ = s.process.Signal(syscall.SIGQUIT) // it may have ended just now
	select {
	case <-s.done:
		return true
	case <-time.After(quitMax):
		return false
	}
}

// halt ends a server that has no clients yet, and keeps its folder.
func (s *Server) halt() {
	_ = s.process.Signal(syscall.SIGINT)
	select {
	case <-s.done:
	case <-time.After(quitMax):
		if !s.quit() {
			_ = s.process.Kill()
			<-s.done
		}
	}
}

// Kill ends the server as a crash would: SIGKILL to the postmaster and to its
// children. Returns when the process is gone. For tests.
func (s *Server) Kill() {
	defer s.letGo()
	if s.ended() {
		return
	}
	// The children must go as well, as in a crash of the machine: a busy one
	// would notice the postmaster's end late, and the next start waits for it.
	// The postmaster is stopped first, so that it cannot start others meanwhile.
	_ = s.process.Signal(syscall.SIGSTOP)
	awaitState(s.PID(), "TZX") // until it stands, the list of its children is not whole
	children := childrenOf(s.PID())
	_ = s.process.Kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.done
	// A backend that was not scheduled since still holds its client's socket open.
	for _, pid := range children {
		awaitState(pid, "ZX")
	}
}

// awaitState waits until a process is in one of the given states (proc(5), the
// third field of stat), or is gone, or for as long as a kill may take at most.
func awaitState(pid int, states string) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return
		}
		// The second field, the program's name in brackets, may hold anything.
		_, rest, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')')+1:]), " ")
		if rest == "" || strings.Contains(states, rest[:1]) {
			return
		}
	}
}

func (s *Server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// letGo frees the lock on the folder; only after the process has ended.
func (s *Server) letGo() {
	if !s.ended() {
		return
	}
	s.release.Do(func() {
		_ = os.Remove(ownPIDPath(s.opts.DataDir)) // a stale one does no harm
		_ = s.lock.Close()
	})
}

// wait is the server's one goroutine; it ends with the process.
func (s *Server) wait(ended func() error) {
	s.exitErr = ended()
	close(s.done)
}

// childrenOf lists the child processes where the kernel tells them (Linux).
func childrenOf(pid int) []int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if n, err := strconv.Atoi(f); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

func logPath(dataDir string) string    { return filepath.Join(dataDir, "cleave-postgres.log") }
func ownPIDPath(dataDir string) string { return filepath.Join(dataDir, "cleave.pid") }
