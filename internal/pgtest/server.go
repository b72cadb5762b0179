package pgtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/localpg"
)

// Settings are those of every test server; [NewServer] adds to them.
func Settings() map[string]string {
	return map[string]string{
		"max_connections":           "200",
		"max_prepared_transactions": "64",
		"wal_level":                 "logical",
		"max_replication_slots":     "20",
		"max_wal_senders":           "20",
		"shared_buffers":            "32MB",
		"timezone":                  "UTC",
		"log_min_messages":          "warning",
	}
}

var shared struct {
	sync.Mutex
	running *running
	err     error
}

// running is a server with its folder and the process that cleans up after us.
type running struct {
	server *localpg.Server
	dir    string
	watch  *watchdog
}

// Main runs the tests, stops the shared server, checks that no goroutine is
// left and exits: the body of TestMain.
func Main(m *testing.M) {
	code := m.Run()
	shared.Lock()
	r := shared.running
	shared.running = nil
	shared.Unlock()
	if r != nil {
		if err := r.end(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// IgnoreShared makes goleak overlook the goroutine of the shared server, for
// checks inside a single test. [Main] does not need it.
func IgnoreShared() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/cleavedb/cleave/internal/localpg.(*Server).wait")
}

// Server returns the server that all tests of the binary share, started at the
// first call. Tests must not stop it, and keep to databases of their own.
func Server(tb testing.TB) *localpg.Server {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.running == nil && shared.err == nil {
		install, err := localpg.Find(0)
		if err != nil {
			installDebian(tb, "postgresql")
			install, err = localpg.Find(0)
		}
		if err == nil {
			shared.running, err = start(install, nil)
		}
		shared.err = err
	}
	if shared.err != nil {
		tb.Fatalf("pgtest: no PostgreSQL server: %v", shared.err)
	}
	return shared.running.server
}

// NewServer starts a server for one test, with settings on top of [Settings],
// and stops it and removes its folder when the test ends. The test may stop,
// kill and start servers in its folder.
func NewServer(tb testing.TB, settings map[string]string) *localpg.Server {
	tb.Helper()
	install, err := localpg.Find(0)
	if err != nil {
		installDebian(tb, "postgresql")
		if install, err = localpg.Find(0); err != nil {
			tb.Fatalf("pgtest: %v", err)
		}
	}
	return NewServerOf(tb, install, settings)
}

// NewServerOf is [NewServer] with an installation.
func NewServerOf(tb testing.TB, install localpg.Installation, settings map[string]string) *localpg.Server {
	tb.Helper()
	r, err := start(install, settings)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if err := r.end(); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return r.server
}

func start(install localpg.Installation, settings map[string]string) (*running, error) {
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	all := Settings()
	maps.Copy(all, settings)
	r := &running{dir: dir}
	if r.watch, err = watch(dir); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r.server, err = localpg.Start(ctx, localpg.Options{Installation: install, DataDir: filepath.Join(dir, "data"), SocketDir: filepath.Join(dir, "s"), Settings: all})
	if err == nil {
		// Tests make databases of their own, and use the one that is there.
		_, err = pgExec(ctx, r.server.SuperuserURL("postgres"), "ALTER ROLE "+localpg.DefaultUser+" CREATEDB; ALTER DATABASE postgres OWNER TO "+localpg.DefaultUser)
	}
	if err != nil {
		if r.server != nil {
			r.server.Quit()
		}
		r.watch.end()
		os.RemoveAll(dir)
		return nil, err
	}
	return r, nil
}

func (r *running) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := r.server.Stop(ctx)
	r.watch.end()
	if rerr := os.RemoveAll(r.dir); err == nil {
		err = rerr
	}
	return err
}

// Dir returns a fresh folder that the server's user can reach (that of
// testing.T is closed to others), removed when the test ends. Its path is short
// enough for sockets.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir, err := makeDir()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return dir
}

func makeDir() (string, error) {
	base := os.TempDir()
	// TMPDIR may be private, or too long for a socket.
	if localpg.Reachable(filepath.Join(base, "x")) != nil || len(base) > 60 {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "cleave-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

var databases atomic.Int64

// Database makes a fresh database on the shared server, dropped when the test
// ends, and returns its URL.
func Database(tb testing.TB) string {
	tb.Helper()
	return DatabaseOn(tb, Server(tb))
}

// DatabaseOn is [Database] on a server of one's own.
func DatabaseOn(tb testing.TB, s *localpg.Server) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.CreateDatabase(ctx, name); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		select {
		case <-s.Done(): // the test stopped it; its folder goes too
			return
		default:
		}
		if err := drop(s, name); err != nil {
			tb.Errorf("pgtest: drop the database %s: %v", name, err)
		}
	})
	return s.URL(name)
}

func drop(s *localpg.Server, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgconn.Connect(ctx, s.SuperuserURL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	// A prepared transaction would keep the database from being dropped.
	inside, err := pgconn.Connect(ctx, s.SuperuserURL(name))
	if err != nil {
		return err
	}
	res := inside.ExecParams(ctx, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()", nil, nil, nil, nil).Read()
	for _, row := range res.Rows {
		gid, err := inside.EscapeString(string(row[0]))
		if err == nil {
			_, err = inside.Exec(ctx, "ROLLBACK PREPARED '"+gid+"'").ReadAll()
		}
		if err != nil {
			inside.Close(ctx)
			return err
		}
	}
	inside.Close(ctx)
	if res.Err != nil {
		return res.Err
	}
	_, err = conn.Exec(ctx, `DROP DATABASE IF EXISTS "`+name+`" WITH (FORCE)`).ReadAll()
	return err
}

// watchdog is a shell that outlives us: when its standard input ends, it stops
// the server whose folder it was told and removes the folder.
type watchdog struct {
	cmd  *exec.Cmd
	hold *os.File // our end; the kernel closes it when we end, whatever the way
}

const watchScript = `
while read -r _; do :; done
pid=$(sed -n 1p "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
	kill -INT "$pid" 2>/dev/null
	n=0
	while kill -0 "$pid" 2>/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
	kill -QUIT "$pid" 2>/dev/null && sleep 1
fi
rm -rf -- "$1"
`

func watch(dir string) (*watchdog, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", watchScript, "sh", dir)
	cmd.Stdin = r
	cmd.Dir = "/"
	// Its own group: an interrupt at the terminal must not end it before us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return &watchdog{cmd, w}, nil
}

// end stops watching: the server is stopped already.
func (w *watchdog) end() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait() // "signal: killed", as wanted
	_ = w.hold.Close()
}

func pgExec(ctx context.Context, url, sql string) ([]*pgconn.Result, error) {
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	return conn.Exec(ctx, sql).ReadAll()
}

// PastGuards is the URL of a test server with the mover's role. What it writes with session_replication_role = replica passes guards and triggers.
func PastGuards(url string) string {
	return strings.Replace(url, "//"+localpg.DefaultUser+"@", "//"+localpg.DefaultUser+localpg.MoverSuffix+"@", 1)
}

// Super is the URL of a test server with the role that initdb made, who may do everything.
func Super(url string) string {
	return strings.Replace(url, "//"+localpg.DefaultUser+"@", "//"+localpg.Superuser+"@", 1)
}
