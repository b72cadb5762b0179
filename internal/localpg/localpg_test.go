package localpg_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/sqlstate"
)

// childVariable makes the test binary start a server and wait to be killed.
const childVariable = "LOCALPG_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		s, err := localpg.Start(context.Background(), localpg.Options{DataDir: dir, Installation: installation()})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("pid", s.PID(), s.URL("postgres"))
		select {}
	}
	pgtest.Main(m)
}

func installation() localpg.Installation {
	i, err := localpg.Find(0)
	if err != nil {
		panic(err)
	}
	return i
}

func start(t *testing.T, opts localpg.Options) *localpg.Server {
	t.Helper()
	s, err := localpg.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *localpg.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// sql runs statements and returns the first column of the last row.
func sql(t *testing.T, url, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	results, err := conn.Exec(ctx, text).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	last := results[len(results)-1]
	if len(last.Rows) == 0 {
		return ""
	}
	return string(last.Rows[len(last.Rows)-1][0])
}

// refused checks that Start fails with a code, a hint, and words in its text.
func refused(t *testing.T, opts localpg.Options, code sqlstate.Code, words ...string) {
	t.Helper()
	s, err := localpg.Start(t.Context(), opts)
	if err == nil {
		stop(t, s)
		t.Fatalf("started; want %s", code)
	}
	e := sqlstate.As(err)
	if e.Code != code || e.Hint == "" {
		t.Fatalf("%s with hint %q: %v; want %s", e.Code, e.Hint, err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("%v does not say %q", err, w)
		}
	}
}

func TestRowsOutliveStopAndKill(t *testing.T) {
	dir := filepath.Join(pgtest.Dir(t), "a", "data")
	opts := localpg.Options{DataDir: dir, Durable: true, Settings: map[string]string{"max_prepared_transactions": "3", "application_name": "it's a \"name\""}}
	s := start(t, opts)
	if err := s.CreateDatabase(t.Context(), `odd "name" %`); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateDatabase(t.Context(), `odd "name" %`); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	if err := s.CreateDatabase(t.Context(), ""); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
		t.Fatalf("no name: %v", err)
	}
	for _, url := range []string{s.URL(`odd "name" %`), s.SocketURL(`odd "name" %`)} {
		if db := sql(t, url, "SELECT current_database()"); db != `odd "name" %` {
			t.Fatalf("%s is the database %q", url, db)
		}
	}
	sql(t, s.URL("postgres"), "CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
	for setting, want := range map[string]string{"max_prepared_transactions": "3", "fsync": "on", "server_encoding": "UTF8", "lc_collate": "C", "listen_addresses": "127.0.0.1", "application_name": `it's a "name"`} {
		if setting == "lc_collate" {
			if got := sql(t, s.URL("postgres"), "SELECT datcollate FROM pg_database WHERE datname = current_database()"); got != want {
				t.Errorf("datcollate is %s", got)
			}
			continue
		}
		if got := sql(t, s.URL("postgres"), "SELECT reset_val FROM pg_settings WHERE name = '"+setting+"'"); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
	// The folder is taken as long as the server runs.
	refused(t, localpg.Options{DataDir: dir}, sqlstate.ObjectInUse, "another process", dir)
	stop(t, s)
	stop(t, s)

	opts.Durable = false // a killed server has lost nothing without fsync either
	s = start(t, opts)
	sql(t, s.URL("postgres"), "INSERT INTO t VALUES (2)")
	s.Kill()
	select {
	case <-s.Done():
	default:
		t.Fatal("killed, but not done")
	}
	if err := s.CreateDatabase(t.Context(), "x"); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Fatalf("a killed server: %v", err)
	}
	s.Kill()
	s = start(t, opts)
	if n := sql(t, s.URL("postgres"), "SELECT count(*) FROM t"); n != "2" {
		t.Fatalf("%s rows, want 2", n)
	}
}

// killedChild starts a server in another process, which is then killed with
// SIGKILL, and returns the server's process id.
func killedChild(t *testing.T, dir string) (pid int, url string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := fmt.Sscanf(line, "pid %d %s", &pid, &url); err != nil {
		t.Fatalf("the child said %q", line)
	}
	t.Cleanup(func() {
		// Only if the test failed to: the folder still names it as the server.
		b, _ := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
		if strings.HasPrefix(string(b), strconv.Itoa(pid)+"\n") {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
	})
	return pid, url
}

func TestServerThatOutlivedItsProcess(t *testing.T) {
	dir := filepath.Join(pgtest.Dir(t), "data")
	pid, url := killedChild(t, dir)
	sql(t, url, "CREATE TABLE t AS SELECT 1 AS a")
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the server ended with its process: %v", err)
	}
	own := filepath.Join(dir, "cleave.pid")
	mark, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	// The server can read it whatever our umask is, for a base backup.
	if folder, file := statUID(t, dir), statUID(t, own); folder != file {
		t.Errorf("%s is of user %d, the folder of user %d", own, file, folder)
	}

	// Not known to be ours: it is left alone.
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	refused(t, localpg.Options{DataDir: dir}, sqlstate.ObjectInUse, "did not start", "pg_ctl")
	if got := sql(t, url, "SELECT a FROM t"); got != "1" {
		t.Fatalf("the other's server answers %q", got)
	}

	// Ours, and as it would be started now: it goes on.
	if err := os.WriteFile(own, mark, 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, localpg.Options{DataDir: dir})
	if s.PID() != pid || s.URL("postgres") != url {
		t.Fatalf("it is process %d at %s, not %d at %s", s.PID(), s.URL("postgres"), pid, url)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	// It may be about to end still, without its memory and its folder.
	ended := func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(b), ") Z") || strings.Contains(string(b), ") X")
	}
	for end := time.Now().Add(10 * time.Second); !ended(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it was stopped and runs")
		}
	}

	// With other settings it is stopped, and started anew.
	pid, _ = killedChild(t, dir)
	s = start(t, localpg.Options{DataDir: dir, Settings: map[string]string{"work_mem": "5MB"}})
	if s.PID() == pid {
		t.Fatal("it is the same process")
	}
	if got := sql(t, s.URL("postgres"), "SELECT a FROM t"); got != "1" {
		t.Fatalf("the row is %q", got)
	}
	if got := sql(t, s.URL("postgres"), "SHOW work_mem"); got != "5MB" {
		t.Fatalf("work_mem is %s", got)
	}
}

func TestLeftoverPIDFiles(t *testing.T) {
	dir := filepath.Join(pgtest.Dir(t), "data")
	s := start(t, localpg.Options{DataDir: dir})
	stop(t, s)
	for name, content := range map[string]string{
		"of a program that is no server": strconv.Itoa(os.Getpid()) + "\n" + dir + "\n",
		"of no process":                  "4194304\n" + dir + "\n",
		"empty":                          "",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "postmaster.pid")
			st, err := os.Stat(dir)
			if err == nil {
				err = os.WriteFile(path, []byte(content), 0o600)
			}
			if err == nil {
				sys := st.Sys().(*syscall.Stat_t)
				err = os.Chown(path, int(sys.Uid), int(sys.Gid))
			}
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, localpg.Options{DataDir: dir})
			if got := sql(t, s.URL("postgres"), "SELECT 1"); got != "1" {
				t.Fatal(got)
			}
		})
	}
	if err := os.WriteFile(filepath.Join(dir, "postmaster.pid"), []byte("what\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, localpg.Options{DataDir: dir}, sqlstate.DataCorrupted, "postmaster.pid")
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	dir := filepath.Join(pgtest.Dir(t), "data")
	refused(t, localpg.Options{DataDir: dir, Port: port}, sqlstate.ObjectInUse, fmt.Sprintf("port %d", port))
	l.Close()
	s := start(t, localpg.Options{DataDir: dir, Port: port}) // and nothing is left in the way
	if s.Port() != port {
		t.Fatalf("the port is %d", s.Port())
	}
}

func TestFoldersThatDoNotFit(t *testing.T) {
	base := pgtest.Dir(t)
	i := installation()

	other := filepath.Join(base, "other")
	write(t, filepath.Join(other, "PG_VERSION"), "9.6\n", 0o644)
	refused(t, localpg.Options{DataDir: other, Installation: i}, sqlstate.ConfigFileError, "belongs to PostgreSQL 9", "pg_upgrade")
	refused(t, localpg.Options{DataDir: other}, sqlstate.ConfigFileError, "belongs to PostgreSQL 9", "not found")

	full := filepath.Join(base, "full")
	write(t, filepath.Join(full, "thesis.tex"), "", 0o644)
	refused(t, localpg.Options{DataDir: full}, sqlstate.ConfigFileError, "not empty", "thesis.tex")
	if _, err := os.Stat(filepath.Join(full, "thesis.tex")); err != nil {
		t.Fatal(err)
	}

	odd := filepath.Join(base, "odd")
	write(t, filepath.Join(odd, "PG_VERSION"), "new\n", 0o644)
	refused(t, localpg.Options{DataDir: odd}, sqlstate.ConfigFileError, "unknown version")

	file := filepath.Join(base, "file")
	write(t, file, "", 0o644)
	refused(t, localpg.Options{DataDir: file}, sqlstate.IOError)
	refused(t, localpg.Options{}, sqlstate.InvalidParameterValue, "no data folder")
	refused(t, localpg.Options{DataDir: filepath.Join(base, "s"), SocketDir: "/tmp/" + strings.Repeat("s", 100)}, sqlstate.ConfigFileError, "too long")
	if os.Geteuid() == 0 {
		closed := filepath.Join(base, "closed")
		if err := os.Mkdir(closed, 0o700); err != nil {
			t.Fatal(err)
		}
		refused(t, localpg.Options{DataDir: filepath.Join(closed, "data")}, sqlstate.InsufficientPrivilege, closed, "chmod o+x")
		roots := filepath.Join(base, "roots")
		if err := os.Mkdir(roots, 0o755); err != nil {
			t.Fatal(err)
		}
		refused(t, localpg.Options{DataDir: filepath.Join(base, "s"), SocketDir: roots}, sqlstate.InsufficientPrivilege, roots, "chown")
		refused(t, localpg.Options{DataDir: filepath.Join(base, "s"), RunAs: "nobody-of-that-name"}, sqlstate.ConfigFileError, "nobody-of-that-name")
	}
}

func TestWrongOptions(t *testing.T) {
	dir := filepath.Join(pgtest.Dir(t), "data")
	refused(t, localpg.Options{DataDir: dir, Port: -1}, sqlstate.InvalidParameterValue)
	refused(t, localpg.Options{DataDir: dir, Port: 65536}, sqlstate.InvalidParameterValue)
	refused(t, localpg.Options{DataDir: dir, User: "it's me"}, sqlstate.InvalidParameterValue)
	refused(t, localpg.Options{DataDir: dir, User: "pg_x"}, sqlstate.InvalidParameterValue)
	refused(t, localpg.Options{DataDir: dir, Settings: map[string]string{"a=b -c x": "1"}}, sqlstate.InvalidParameterValue)
	refused(t, localpg.Options{DataDir: dir, Settings: map[string]string{"no_such_setting": "1"}}, sqlstate.ConfigFileError, "no_such_setting")
	refused(t, localpg.Options{DataDir: dir, Settings: map[string]string{"max_connections": "many"}}, sqlstate.ConfigFileError, "max_connections")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := localpg.Start(ctx, localpg.Options{DataDir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatalf("with an ended context: %v", err)
	}
	start(t, localpg.Options{DataDir: dir}) // none of it has harmed the folder
}

func TestAnInterruptedInitdbIsForgotten(t *testing.T) {
	dir := filepath.Join(pgtest.Dir(t), "data")
	write(t, filepath.Join(dir+".new", "PG_VERSION"), "15\n", 0o600)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := start(t, localpg.Options{DataDir: dir})
	if got := sql(t, s.URL("postgres"), "SELECT 1"); got != "1" {
		t.Fatal(got)
	}
	if _, err := os.Stat(dir + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("data.new: %v", err)
	}
}

func TestPassword(t *testing.T) {
	s := start(t, localpg.Options{DataDir: filepath.Join(pgtest.Dir(t), "data"), User: "me @ %", Password: "p@ss:w/rd?'"})
	for _, url := range []string{s.URL("postgres"), s.SocketURL("postgres")} {
		if got := sql(t, url, "SELECT current_user"); got != "me @ %" {
			t.Fatalf("%q", got)
		}
	}
	for _, url := range []string{
		strings.Replace(s.URL("postgres"), "rd%3F", "x", 1),
		strings.Replace(s.SocketURL("postgres"), "rd%3F", "x", 1),
	} {
		_, err := pgconn.Connect(t.Context(), url)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "28P01" {
			t.Fatalf("%s: %v", url, err)
		}
	}
}

// TestAFolderGetsItsPassword starts a folder that trusts everybody with a password, then with another one, as
// after a restore without the file.
func TestAFolderGetsItsPassword(t *testing.T) {
	dir := pgtest.Dir(t)
	opts := localpg.Options{DataDir: filepath.Join(dir, "data"), Settings: map[string]string{"max_prepared_transactions": "5"}}
	s := start(t, opts)
	sql(t, s.URL("postgres"), "CREATE ROLE app LOGIN")
	sql(t, s.URL("postgres"), "CREATE TABLE t (a int)")
	conn, err := pgconn.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'x'").ReadAll(); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	hba := filepath.Join(s.DataDir(), "pg_hba.conf")
	lines, err := os.ReadFile(hba)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hba, append([]byte("host all app 127.0.0.1/32 trust\n"), lines...), 0o600); err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	for _, password := range []string{"the first one", "the second one"} {
		opts.Password, opts.Passfile = password, filepath.Join(dir, "pass")
		if err := os.WriteFile(opts.Passfile, []byte("*:*:*:cleave:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s = start(t, opts)
		for _, url := range []string{s.URL("postgres"), s.SocketURL("postgres")} {
			if strings.Contains(url, "one") || sql(t, url, "SELECT count(*) FROM pg_prepared_xacts") != "1" {
				t.Errorf("%s", url)
			}
			var refused *pgconn.PgError
			if _, err := pgconn.Connect(t.Context(), strings.Replace(url, "passfile=", "application_name=", 1)); !errors.As(err, &refused) || refused.Code != "28P01" && refused.Code != "28000" {
				t.Errorf("without the password: %v", err)
			}
		}
		if got := sql(t, strings.Replace(s.URL("postgres"), "cleave@", "app@", 1), "SELECT current_user"); got != "app" {
			t.Errorf("a line that somebody wrote is gone: %q", got)
		}
		stop(t, s)
	}
}

func TestLongFolderGetsAShortSocket(t *testing.T) {
	dir := filepath.Join(pgtest.Dir(t), strings.Repeat("long", 25), "data")
	s := start(t, localpg.Options{DataDir: dir})
	t.Cleanup(func() { os.RemoveAll(s.SocketDir()) })
	if got := sql(t, s.SocketURL("postgres"), "SELECT 1"); got != "1" || strings.HasPrefix(s.SocketDir(), dir) {
		t.Fatalf("%q by %s", got, s.SocketDir())
	}
	stop(t, s)
	if s = start(t, localpg.Options{DataDir: dir}); sql(t, s.SocketURL("postgres"), "SELECT 1") != "1" {
		t.Fatal("not the second time")
	}
}

func TestStopOfAServerThatDoesNotAnswer(t *testing.T) {
	s := start(t, localpg.Options{DataDir: filepath.Join(pgtest.Dir(t), "data")})
	if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	select {
	case <-s.Done():
	default:
		t.Fatal("it still runs")
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// fake makes an installation whose programs print and fail.
func fake(t *testing.T, postgres, initdb string) localpg.Installation {
	t.Helper()
	bin := filepath.Join(pgtest.Dir(t), "bin")
	write(t, filepath.Join(bin, "postgres"), "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'postgres (PostgreSQL) 15.99'; exit; }\n"+postgres, 0o755)
	write(t, filepath.Join(bin, "initdb"), "#!/bin/sh\n"+initdb, 0o755)
	i, err := localpg.At(bin)
	if err != nil {
		t.Fatal(err)
	}
	if i.Major != 15 || i.Version != "15.99" || i.String() != "PostgreSQL 15.99 in "+bin {
		t.Fatalf("%+v", i)
	}
	return i
}

const fakeInitdb = "mkdir -p \"$2\" && echo 15 >\"$2/PG_VERSION\"\n"

func TestWhatTheLogSays(t *testing.T) {
	for text, want := range map[string]struct {
		code  sqlstate.Code
		words string
	}{
		`FATAL:  could not write lock file "postmaster.pid": No space left on device`: {sqlstate.DiskFull, "disk is full"},
		"FATAL:  database files are incompatible with server":                         {sqlstate.ConfigFileError, "another kind"},
		"PANIC:  could not locate a valid checkpoint record":                          {sqlstate.DataCorrupted, "damaged"},
		"FATAL:  could not create shared memory segment: Cannot allocate memory":      {sqlstate.InsufficientResources, "memory"},
		`FATAL:  lock file "postmaster.pid" already exists`:                           {sqlstate.ObjectInUse, "another PostgreSQL server"},
		"FATAL:  something new": {sqlstate.CannotConnectNow, "something new"},
		`FATAL:  could not create any TCP/IP sockets; could not bind: Address already in use`: {sqlstate.ObjectInUse, "in use"},
	} {
		i := fake(t, "echo '"+text+"' >&2; exit 1", fakeInitdb)
		refused(t, localpg.Options{DataDir: filepath.Join(pgtest.Dir(t), "data"), Installation: i}, want.code, want.words)
	}
	i := fake(t, "exit 1", "echo 'initdb: error: could not write: No space left on device'; exit 1")
	dir := filepath.Join(pgtest.Dir(t), "data")
	refused(t, localpg.Options{DataDir: dir, Installation: i}, sqlstate.DiskFull, "initdb", "make room")
	refused(t, localpg.Options{DataDir: dir, Installation: fake(t, "exit 1", "echo 'locale is odd'; exit 1")}, sqlstate.ConfigFileError, "locale is odd")
	refused(t, localpg.Options{DataDir: dir, Installation: fake(t, "exec sleep 60", fakeInitdb), StartTimeout: 200 * time.Millisecond}, sqlstate.CannotConnectNow, "not ready after")
}

func TestFind(t *testing.T) {
	i := fake(t, "exit 1", "exit 1")
	t.Setenv(localpg.BinVariable, i.Bin)
	if got, err := localpg.Find(0); err != nil || got != i {
		t.Errorf("%v, %v", got, err)
	}
	if all := localpg.All(); len(all) < 2 || all[0] != i {
		t.Errorf("%v", all)
	}
	if _, ok := i.Program("initdb"); !ok {
		t.Error("initdb is there")
	}
	if _, ok := i.Program("psql"); ok {
		t.Error("psql is not there")
	}
	_, err := localpg.Find(8)
	if e := sqlstate.As(err); e.Code != sqlstate.ConfigFileError || !strings.Contains(e.Hint, "apt-get") || !strings.Contains(err.Error(), "15.99") {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"/nowhere", t.TempDir()} {
		t.Setenv(localpg.BinVariable, bad)
		if _, err := localpg.Find(0); sqlstate.CodeOf(err) != sqlstate.ConfigFileError || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	broken := filepath.Join(t.TempDir(), "bin")
	write(t, filepath.Join(broken, "postgres"), "#!/bin/sh\necho what", 0o755)
	write(t, filepath.Join(broken, "initdb"), "#!/bin/sh\n", 0o755)
	if _, err := localpg.At(broken); sqlstate.CodeOf(err) != sqlstate.ConfigFileError || !strings.Contains(err.Error(), "does not work") {
		t.Errorf("%v", err)
	}
}

func statUID(t *testing.T, path string) uint32 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Uid
}
