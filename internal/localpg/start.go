package localpg

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// socketPathMax is what fits in a socket address on every system that we know
// (macOS: 103 bytes, Linux: 107).
const socketPathMax = 103

// logBytesMax is the size at which the log is set aside (once) at a start.
const logBytesMax = 16 << 20

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// Start runs a server and returns when it answers. The caller must Stop it.
//
// Errors: 55006 when the port is taken, or when another process runs the data
// folder; 42501 when the server's user cannot reach a folder; F0000 for a
// missing or misfit installation, a folder of another version and wrong
// settings; 53100 when the disk is full; 57P03 when it does not get ready in
// time. The message ends with what the server's log said.
func Start(ctx context.Context, opts Options) (*Server, error) {
	s := &Server{opts: opts}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if err := s.takeFolder(ctx); err != nil {
		return nil, err
	}
	started := false
	defer func() {
		if !started {
			_ = s.lock.Close()
		}
	}()
	if err := s.makeSocketDir(); err != nil {
		return nil, err
	}
	open, err := s.trusts()
	if err != nil {
		return nil, err
	}
	if !open && s.adopt(ctx) {
		started = true
		return s, s.makeRoles(ctx)
	}
	if err := s.stopOrphan(ctx); err != nil {
		return nil, err
	}
	if open {
		if err := s.askForPasswords(ctx); err != nil {
			return nil, err
		}
	}
	deadline := time.Now().Add(s.opts.StartTimeout)
	renewed := false
	for attempt := 1; ; attempt++ {
		err := s.launch(ctx, deadline)
		if err == nil && !renewed && s.refuses(ctx) {
			// The folder, or the file with the passwords, comes from a backup, or the folder from an older version.
			s.halt()
			if err := s.setSuperuser(ctx); err != nil {
				return nil, err
			}
			renewed = true
			continue
		}
		if err == nil {
			if err = s.makeRoles(ctx); err != nil {
				s.halt()
				return nil, err
			}
			started = true
			return s, nil
		}
		var again *retryableError
		if !errors.As(err, &again) {
			return nil, err
		}
		// A free port can be taken by somebody else before the server binds it;
		// the children of a killed postmaster need a moment to go.
		if (again.port && (s.opts.Port != 0 || attempt >= 10)) || time.Now().After(deadline) {
			return nil, again.Unwrap()
		}
		select {
		case <-ctx.Done():
			return nil, again.Unwrap()
		case <-time.After(time.Duration(attempt) * poll):
		}
	}
}

// prepare checks the options, fills in the defaults and chooses the user.
func (s *Server) prepare() error {
	o := &s.opts
	if o.DataDir == "" {
		return sqlstate.New(sqlstate.InvalidParameterValue, "no data folder was given for the local PostgreSQL server").WithHint("give one with --data")
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return fileError(err, "cannot name the data folder %q", o.DataDir)
	}
	o.DataDir = dir
	if o.User == "" {
		o.User = DefaultUser
	}
	if strings.ContainsRune(o.User, 0) || len(o.User+MoverSuffix) > 63 || strings.HasPrefix(o.User, "pg_") || o.User == Superuser {
		return sqlstate.New(sqlstate.InvalidParameterValue, "%q cannot be the name of the shards' role", o.User).WithHint("use a plain name such as cleave")
	}
	if o.Port < 0 || o.Port > 65535 {
		return sqlstate.New(sqlstate.InvalidParameterValue, "%d is not a port", o.Port).WithHint("use 1 to 65535, or 0 for a free one")
	}
	for name, value := range o.Settings {
		if !settingName.MatchString(name) || strings.ContainsRune(value, 0) {
			return sqlstate.New(sqlstate.InvalidParameterValue, "%q is not a setting of PostgreSQL", name).WithHint("use names as in postgresql.conf")
		}
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = startTimeoutDefault
	}
	version, err := folderVersion(o.DataDir)
	if err != nil {
		return err
	}
	if o.Installation.Bin == "" {
		if o.Installation, err = Find(version); err != nil {
			if version != 0 {
				as := sqlstate.As(err)
				as.Message = fmt.Sprintf("the data folder %s belongs to PostgreSQL %d, and %s", o.DataDir, version, as.Message)
			}
			return err
		}
	}
	if version != 0 && version != o.Installation.Major {
		return sqlstate.New(sqlstate.ConfigFileError, "the data folder %s belongs to PostgreSQL %d, but %s is to run it", o.DataDir, version, o.Installation).
			WithHint("set %s to the programs of PostgreSQL %d, or convert the folder with pg_upgrade, or choose another folder with --data", BinVariable, version)
	}
	if s.account, err = chooseAccount(o.RunAs, o.DataDir); err != nil {
		return err
	}
	return s.account.reach(filepath.Join(o.Installation.Bin, "postgres"))
}

// folderVersion returns the major version of a data folder, 0 for a missing or
// empty one; F0000 for a folder with something else in it.
func folderVersion(dir string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if err == nil {
		v, err := strconv.Atoi(leadingDigits(string(b)))
		if err != nil {
			return 0, sqlstate.New(sqlstate.ConfigFileError, "the data folder %s has the unknown version %q", dir, strings.TrimSpace(string(b))).
				WithHint("choose another folder with --data")
		}
		return v, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return 0, fileError(err, "cannot read the data folder %s", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return 0, nil
		}
		return 0, fileError(err, "cannot read the data folder %s", dir)
	}
	if len(entries) > 0 {
		return 0, sqlstate.New(sqlstate.ConfigFileError, "the folder %s is not empty, and not a data folder of PostgreSQL (it holds %s)", dir, entries[0].Name()).
			WithHint("choose an empty or new folder with --data")
	}
	return 0, nil
}

// takeFolder makes the data folder if need be, locks it, and fills it if it is empty.
func (s *Server) takeFolder(ctx context.Context) error {
	dir := s.opts.DataDir
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fileError(err, "cannot make the folder %s", filepath.Dir(dir))
	}
	if err := s.account.reach(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fileError(err, "cannot make the data folder %s", dir)
	}
	// Resolved once it is there, because the server's own files name the real path.
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fileError(err, "cannot resolve the data folder %s", s.opts.DataDir)
	}
	s.opts.DataDir = dir
	lock, err := lockFolder(dir)
	if err != nil {
		return err
	}
	s.lock = lock
	// Asked again under the lock: another process may just have filled it.
	version, err := folderVersion(dir)
	if err == nil && version == 0 {
		err = s.initialize(ctx)
	}
	if err == nil {
		// Also for an old folder: PostgreSQL runs only as its owner.
		var st os.FileInfo
		if st, err = os.Stat(dir); err != nil {
			err = fileError(err, "cannot look at the data folder %s", dir)
		} else if ownerOf(st) != s.account.uid {
			err = sqlstate.New(sqlstate.InsufficientPrivilege, "the data folder %s belongs to another user than %s, whom PostgreSQL runs as", dir, s.account.name).
				WithHint("chown -R %s %s", s.account.name, dir)
		}
	}
	if err != nil {
		_ = s.lock.Close()
	}
	return err
}

// lockFolder locks the folder itself, so that no file of ours is needed in it.
func lockFolder(dir string) (*os.File, error) {
	for range 10 {
		f, err := os.Open(dir)
		if err != nil {
			return nil, fileError(err, "cannot open the data folder %s", dir)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, sqlstate.Wrap(err, sqlstate.ObjectInUse, "another process runs a PostgreSQL server in %s", dir).
					WithHint("stop that one first, or choose another folder with --data")
			}
			return nil, fileError(err, "cannot lock the data folder %s", dir)
		}
		// Another process may have put a filled folder in its place (see
		// initialize) between our open and our lock.
		mine, err1 := f.Stat()
		now, err2 := os.Stat(dir)
		if err1 == nil && err2 == nil && os.SameFile(mine, now) {
			return f, nil
		}
		f.Close()
	}
	return nil, sqlstate.New(sqlstate.ObjectInUse, "the data folder %s keeps changing", dir).WithHint("run one process on it at a time")
}

// initialize runs initdb in a folder beside and puts it in place with one
// rename, so that an interrupted initdb never looks like a data folder.
func (s *Server) initialize(ctx context.Context) error {
	dir := s.opts.DataDir
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fileError(err, "cannot remove %s, which an interrupted start left", fresh)
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return fileError(err, "cannot make the folder %s", fresh)
	}
	defer os.RemoveAll(fresh) // gone after the rename
	if err := s.account.own(fresh); err != nil {
		return fileError(err, "cannot give the folder %s to %s", fresh, s.account.name)
	}
	args := []string{"-D", fresh, "-U", Superuser, "--encoding=UTF8", "--lc-collate=C", "--lc-messages=C",
		"--lc-monetary=C", "--lc-numeric=C", "--lc-time=C", "--text-search-config=simple"}
	if !s.opts.Durable {
		args = append(args, "--no-sync")
	}
	if !s.passwords() {
		args = append(args, "--auth=trust")
	} else {
		pw, err := s.passwordFile()
		if err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(pw))
		args = append(args, "--auth=scram-sha-256", "--pwfile="+pw)
	}
	// Letters beyond ASCII have upper and lower case with C.UTF-8, which not
	// every system has; order is by bytes either way.
	out, err := s.initdb(ctx, append(args, "--lc-ctype=C.UTF-8"))
	if err != nil && strings.Contains(out, "invalid locale name") {
		out, err = s.initdb(ctx, append(args, "--lc-ctype=C"))
	}
	if err != nil {
		e := sqlstate.Wrap(err, sqlstate.ConfigFileError, "initdb could not make the data folder %s", dir).
			WithDetail("%s", lastLines(out, 5)).WithHint("run it by hand to see more: %s -D %s", filepath.Join(s.opts.Installation.Bin, "initdb"), fresh)
		if strings.Contains(out, "No space left on device") {
			e.Code, e.Hint = sqlstate.DiskFull, fmt.Sprintf("make room on the disk of %s (df -h %s)", dir, filepath.Dir(dir))
		}
		return e
	}
	lock, err := os.Open(fresh)
	if err != nil {
		return fileError(err, "cannot open the folder %s", fresh)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return fileError(err, "cannot lock the folder %s", fresh)
	}
	// rename(2) replaces an empty folder; os.Rename would refuse.
	if err := syscall.Rename(fresh, dir); err != nil {
		lock.Close()
		return fileError(err, "cannot put the new data folder in place of %s", dir)
	}
	_ = s.lock.Close()
	s.lock = lock
	return nil
}

func (s *Server) initdb(ctx context.Context, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.opts.Installation.Bin, "initdb"), args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = environment(), "/", s.account.attributes()
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// passwordFile writes the password where only the server's user reads it.
func (s *Server) passwordFile() (string, error) {
	dir, err := os.MkdirTemp("", "cleave-initdb-")
	if err != nil {
		return "", fileError(err, "cannot make a temporary folder")
	}
	path := filepath.Join(dir, "password")
	if err = os.WriteFile(path, []byte(s.opts.Passwords[Superuser]+"\n"), 0o600); err == nil {
		if err = s.account.own(path); err == nil {
			err = s.account.own(dir)
		}
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", fileError(err, "cannot write the password file for initdb")
	}
	return path, nil
}

// makeSocketDir decides where the socket is and sees to it that the server can write there.
func (s *Server) makeSocketDir() error {
	const name = "/.s.PGSQL.65535"
	dir := s.opts.SocketDir
	switch {
	case dir == "" && len(s.opts.DataDir)+len(name) <= socketPathMax:
		s.socketDir = s.opts.DataDir
		return nil
	case dir == "":
		sum := sha256.Sum256([]byte(s.opts.DataDir))
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("cleave-pg-%x", sum[:8]))
	default:
		var err error
		if dir, err = filepath.Abs(dir); err != nil {
			return fileError(err, "cannot name the socket folder %q", s.opts.SocketDir)
		}
	}
	if len(dir)+len(name) > socketPathMax {
		return sqlstate.New(sqlstate.ConfigFileError, "the socket folder %s is too long: a Unix socket's path has at most %d bytes", dir, socketPathMax).
			WithHint("choose a shorter one, such as /tmp/cleave")
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fileError(err, "cannot make the folder %s", filepath.Dir(dir))
	}
	if err := s.account.reach(dir); err != nil {
		return err
	}
	if err := s.ownFolder(dir); err != nil {
		return err
	}
	st, err := os.Lstat(dir)
	switch {
	case err != nil:
		return fileError(err, "cannot look at the socket folder %s", dir)
	case s.opts.SocketDir == "" && (!st.IsDir() || ownerOf(st) != s.account.uid):
		// The name can be foreseen and /tmp is everybody's: do not trust what
		// somebody else put there.
		return sqlstate.New(sqlstate.InsufficientPrivilege, "the socket folder %s belongs to another user", dir).WithHint("remove it, or choose a shorter data folder")
	}
	if st, err = os.Stat(dir); err != nil {
		return fileError(err, "cannot look at the socket folder %s", dir)
	}
	if !st.IsDir() || !s.account.mayWrite(st) {
		return sqlstate.New(sqlstate.InsufficientPrivilege, "the user %s, whom PostgreSQL runs as, cannot write to the socket folder %s", s.account.name, dir).
			WithHint("chown %s %s", s.account.name, dir)
	}
	s.socketDir = dir
	return nil
}

// ownFolder makes the socket folder, if it is not there, and gives it to the server's user.
func (s *Server) ownFolder(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fileError(err, "cannot make the socket folder %s", dir)
	}
	if err := s.account.own(dir); err != nil {
		return fileError(err, "cannot give the socket folder %s to %s", dir, s.account.name)
	}
	return nil
}

// launch starts the process once and waits until it is ready.
func (s *Server) launch(ctx context.Context, deadline time.Time) error {
	port := s.opts.Port
	if port == 0 {
		var err error
		if port, err = freePort(); err != nil {
			return err
		}
	}
	logFile, offset, err := s.openLog()
	if err != nil {
		return err
	}
	defer logFile.Close() // the child has its own
	cmd := exec.Command(filepath.Join(s.opts.Installation.Bin, "postgres"), s.arguments(port)...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env, cmd.Dir, cmd.SysProcAttr = environment(), "/", s.account.attributes()
	if err := cmd.Start(); err != nil {
		return sqlstate.Wrap(err, sqlstate.ConfigFileError, "cannot run %s", cmd.Path).WithHint("set %s to another installation", BinVariable)
	}
	s.process, s.port, s.done = cmd.Process, port, make(chan struct{})
	go s.wait(cmd.Wait)
	err = os.WriteFile(ownPIDPath(s.opts.DataDir), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o644)
	if err == nil {
		// pg_basebackup reads the whole folder as the server does.
		err = s.account.own(ownPIDPath(s.opts.DataDir))
	}
	if err != nil {
		err = fileError(err, "cannot write %s", ownPIDPath(s.opts.DataDir))
	} else {
		err = s.waitReady(ctx, deadline, offset)
	}
	if err != nil && !s.ended() && !s.quit() {
		_ = cmd.Process.Kill()
		<-s.done
	}
	return err
}

func (s *Server) arguments(port int) []string {
	args := []string{"-D", s.opts.DataDir}
	set := map[string]string{
		"lc_messages": "C", // failure texts are recognised
	}
	if !s.opts.Durable {
		// synchronous_commit stays on: what is committed reaches the kernel, so
		// that a killed server has lost nothing.
		set["fsync"], set["full_page_writes"] = "off", "off"
	}
	for name, value := range s.opts.Settings {
		set[name] = value
	}
	set["port"] = strconv.Itoa(port)
	set["listen_addresses"] = "127.0.0.1"
	set["unix_socket_directories"] = `"` + strings.ReplaceAll(s.socketDir, `"`, `""`) + `"`
	// The log file is ours; a collector would take it elsewhere.
	set["logging_collector"], set["log_destination"] = "off", "stderr"
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		args = append(args, "-c", name+"="+set[name])
	}
	return args
}

// environment is ours without PostgreSQL's variables, which would change what
// the programs do.
func environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "PG") && !strings.HasPrefix(name, "LC_") && name != "LANG" && name != "LANGUAGE" {
			env = append(env, kv)
		}
	}
	return append(env, "LC_ALL=C")
}

// openLog opens the log for appending and returns its length.
func (s *Server) openLog() (*os.File, int64, error) {
	path := s.LogPath()
	if st, err := os.Stat(path); err == nil && st.Size() > logBytesMax {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, 0, fileError(err, "cannot set the log %s aside", path)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fileError(err, "cannot open the log %s", path)
	}
	if err := s.account.own(path); err != nil {
		f.Close()
		return nil, 0, fileError(err, "cannot give the log %s to %s", path, s.account.name)
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		f.Close()
		return nil, 0, fileError(err, "cannot read the log %s", path)
	}
	return f, end, nil
}

// waitReady waits for the line "ready" in postmaster.pid, which the server
// writes when it accepts connections, and for its port to answer.
func (s *Server) waitReady(ctx context.Context, deadline time.Time, logFrom int64) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		p, err := readPostmaster(s.opts.DataDir)
		if err == nil && p.pid == s.PID() && p.status == "ready" {
			conn, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(s.port), time.Second)
			if err == nil {
				conn.Close()
				return nil
			}
		}
		select {
		case <-s.done:
			return s.startFailure(logFrom)
		case <-ctx.Done():
			return sqlstate.Wrap(ctx.Err(), sqlstate.CannotConnectNow, "the start of PostgreSQL in %s was broken off", s.opts.DataDir).
				WithHint("start again")
		case <-tick.C:
		}
		if time.Now().After(deadline) {
			return sqlstate.New(sqlstate.CannotConnectNow, "PostgreSQL in %s was not ready after %s", s.opts.DataDir, s.opts.StartTimeout).
				WithDetail("%s", lastLines(logTail(s.LogPath(), logFrom), 5)).
				WithHint("it may be recovering from a crash; read %s and start again", s.LogPath())
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, sqlstate.Wrap(err, sqlstate.SystemError, "no free port on 127.0.0.1").WithHint("close some connections, or give a port")
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
