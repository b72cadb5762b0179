package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// postmaster is what postmaster.pid says (PostgreSQL sources, pidfile.h).
type postmaster struct {
	pid    int
	port   int    // 0: not written yet
	status string // "starting", "stopping", "ready", "standby"; "" not written yet
}

func readPostmaster(dataDir string) (postmaster, error) {
	b, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	if err != nil {
		return postmaster{}, err
	}
	lines := strings.Split(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return postmaster{}, fmt.Errorf("postmaster.pid: %w", err)
	}
	if pid < 0 { // a single-user server
		pid = -pid
	}
	p := postmaster{pid: pid}
	if len(lines) >= 4 {
		p.port, _ = strconv.Atoi(strings.TrimSpace(lines[3]))
	}
	if len(lines) >= 8 {
		p.status = strings.TrimSpace(lines[7])
	}
	return p, nil
}

// adopt takes over a server that an earlier process of ours left running, if it is the very one that would be started now: the same
// program with the same arguments, and it answers and takes the password.
func (s *Server) adopt(ctx context.Context) bool {
	dir := s.opts.DataDir
	p, err := readPostmaster(dir)
	if err != nil || p.status != "ready" || p.port == 0 || s.opts.Port != 0 && p.port != s.opts.Port {
		return false
	}
	if own, _ := os.ReadFile(ownPIDPath(dir)); strings.TrimSpace(string(own)) != strconv.Itoa(p.pid) || !isServerOf(p.pid, dir) {
		return false
	}
	// Where the kernel does not tell the arguments (not on Linux) the server is started anew.
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	want := strings.Join(append([]string{filepath.Join(s.opts.Installation.Bin, "postgres")}, s.arguments(p.port)...), "\x00")
	if err != nil || strings.TrimRight(string(args), "\x00") != want {
		return false
	}
	process, err := os.FindProcess(p.pid)
	if err != nil || process.Signal(syscall.Signal(0)) != nil || !isServerOf(p.pid, dir) {
		return false
	}
	conn, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(p.port), time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	if s.port = p.port; s.refuses(ctx) {
		return false
	}
	s.process, s.done = process, make(chan struct{})
	go s.wait(func() error {
		for runs(p.pid) && isServerOf(p.pid, dir) {
			time.Sleep(poll)
		}
		return nil
	})
	return true
}

// stopOrphan deals with a postmaster.pid in the folder: it stops a server that
// an earlier process of ours left, refuses a server that is somebody else's,
// and removes a file that names no server at all.
func (s *Server) stopOrphan(ctx context.Context) error {
	dir := s.opts.DataDir
	path := filepath.Join(dir, "postmaster.pid")
	p, err := readPostmaster(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		// Empty after a full disk or a loss of power; the server would refuse it.
		// Our lock says that no server of ours runs.
		if st, serr := os.Stat(path); serr == nil && st.Size() == 0 {
			return removeStale(path)
		}
		return sqlstate.Wrap(err, sqlstate.DataCorrupted, "%s cannot be read", path).
			WithHint("see with ps whether a server runs in %s; if none does, remove the file", dir)
	}
	if !runs(p.pid) {
		return nil // the server recognises this itself, and also looks for its orphans' memory
	}
	if !isServerOf(p.pid, dir) {
		// The number was given to another program, as after a restart of the
		// machine. The server would take it for a live one and refuse.
		return removeStale(path)
	}
	if own, _ := os.ReadFile(ownPIDPath(dir)); strings.TrimSpace(string(own)) != strconv.Itoa(p.pid) {
		return sqlstate.New(sqlstate.ObjectInUse, "a PostgreSQL server that Cleave did not start runs in %s (process %d)", dir, p.pid).
			WithHint("stop it: %s stop -D %s", filepath.Join(s.opts.Installation.Bin, "pg_ctl"), dir)
	}
	// SIGINT is a fast shutdown, SIGQUIT leaves the rest to recovery.
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, 20 * time.Second}, {syscall.SIGQUIT, 10 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		if err := syscall.Kill(p.pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return sqlstate.Wrap(err, sqlstate.InsufficientPrivilege, "cannot stop the PostgreSQL server that an earlier cleave left (process %d)", p.pid).
				WithHint("kill -INT %d", p.pid)
		}
		for end := time.Now().Add(step.wait); time.Now().Before(end); {
			if !runs(p.pid) || !isServerOf(p.pid, dir) {
				return nil
			}
			select {
			case <-ctx.Done():
				return sqlstate.Wrap(ctx.Err(), sqlstate.CannotConnectNow, "the PostgreSQL server that an earlier cleave left (process %d) was still stopping", p.pid).WithHint("start again")
			case <-time.After(poll):
			}
		}
	}
	return sqlstate.New(sqlstate.ObjectInUse, "the PostgreSQL server that an earlier cleave left (process %d) does not end", p.pid).
		WithHint("look at it: ps -p %d", p.pid)
}

func removeStale(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fileError(err, "cannot remove the stale %s", path)
	}
	return nil
}

// runs reports whether the process is alive (a zombie is not).
func runs(pid int) bool {
	err := syscall.Kill(pid, 0)
	if err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		// "pid (name) state ...": the name may hold anything, a ')' too.
		if i := strings.LastIndexByte(string(b), ')'); i >= 0 && i+2 < len(b) && b[i+2] == 'Z' {
			return false
		}
	}
	return true
}

// isServerOf reports whether the process is a postgres that runs the folder.
func isServerOf(pid int, dataDir string) bool {
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil {
		// The server works inside its data folder.
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		name := filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
		return cwd == dataDir && slices.Contains([]string{"postgres", "postmaster"}, name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return true // cannot tell: the careful answer
	}
	args := string(out)
	return strings.Contains(args, "postgres") && strings.Contains(args, dataDir)
}
