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
	"github.com/cleavedb/cleave/internal/waitfor"
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
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// sql runs statements and returns the first column of the last row.
func sql(t *testing.T, url, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
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
	sql(t, s.SuperuserURL("postgres"), "CREATE TABLE t (a int); INSERT INTO t VALUES (1); GRANT SELECT, INSERT ON t TO PUBLIC")
	if got := sql(t, s.URL("postgres"), "SELECT string_agg(rolname || rolsuper || rolreplication || rolcreaterole || rolcreatedb || rolbypassrls, ' ' ORDER BY rolname) FROM pg_roles WHERE rolname LIKE 'cleave%'"); got != "cleavefalsefalsefalsefalsefalse cleave_moverfalsetruefalsefalsetrue" {
		t.Errorf("the roles are %s", got)
	}
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
	sql(t, strings.Replace(url, "cleave@", "postgres@", 1), "CREATE TABLE t AS SELECT 1 AS a; GRANT SELECT ON t TO PUBLIC")
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
	ctx, stop := context.WithTimeout(context.Background(), waitfor.Max)
	defer stop()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	// It may be about to end still, without its memory and its folder.
	ended := func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(b), ") Z") || strings.Contains(string(b), ") X")
	}
	for end := time.Now().Add(waitfor.Max); !ended(); time.Sleep(time.Millisecond) {
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
	refused(t, localpg.Options{DataDir: dir, User: "postgres"}, sqlstate.InvalidParameterValue)
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
	s := start(t, localpg.Options{DataDir: filepath.Join(pgtest.Dir(t), "data"), User: "me @ %", Passwords: passwords("me @ %", "p@ss:w/rd?'")})
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

// passwords gives each of the server's roles the same one.
func passwords(user, password string) map[string]string {
	all := map[string]string{}
	for _, role := range localpg.Roles(user) {
		all[role] = password
	}
	return all
}

// TestAFolderGetsItsPassword starts a folder that trusts everybody with a password, then with another one, as
// after a restore without the file.
func TestAFolderGetsItsPassword(t *testing.T) {
	dir := pgtest.Dir(t)
	opts := localpg.Options{DataDir: filepath.Join(dir, "data"), Settings: map[string]string{"max_prepared_transactions": "5"}}
	s := start(t, opts)
	sql(t, s.SuperuserURL("postgres"), "CREATE ROLE app LOGIN")
	sql(t, s.SuperuserURL("postgres"), "CREATE TABLE t (a int); ALTER TABLE t OWNER TO cleave")
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
		opts.Passwords, opts.Passfile = passwords("cleave", password), filepath.Join(dir, "pass")
		if err := os.WriteFile(opts.Passfile, []byte("*:*:*:*:"+password+"\n"), 0o600); err != nil {
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

// TestAFolderOfAnOlderVersion has a superuser of the name that the shards' role has now, and all is that superuser's.
func TestAFolderOfAnOlderVersion(t *testing.T) {
	opts := localpg.Options{DataDir: filepath.Join(pgtest.Dir(t), "data"), Settings: map[string]string{"max_prepared_transactions": "5"}}
	s := start(t, opts)
	super := s.SuperuserURL("postgres")
	sql(t, super, "CREATE ROLE builder SUPERUSER LOGIN")
	sql(t, super, "DROP OWNED BY cleave_mover; DROP ROLE cleave_mover; DROP ROLE cleave")
	sql(t, super, "CREATE DATABASE app")
	inside := s.SuperuserURL("app")
	sql(t, inside, `CREATE SCHEMA "Odd one"; CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE TYPE pair AS (a int, b int); CREATE TYPE span AS RANGE (subtype = float8);
		CREATE TABLE "Odd one"."T t" (id serial PRIMARY KEY, other int GENERATED ALWAYS AS IDENTITY, m mood, p positive); CREATE TABLE parted (a int) PARTITION BY LIST (a); CREATE TABLE part PARTITION OF parted FOR VALUES IN (1);
		CREATE SEQUENCE alone; CREATE VIEW v AS SELECT 1 AS one; CREATE MATERIALIZED VIEW mv AS SELECT 1 AS one; CREATE STATISTICS st ON id, m FROM "Odd one"."T t";
		CREATE FUNCTION f(a int, b text DEFAULT 'x') RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE PROCEDURE pr() LANGUAGE sql AS 'SELECT 1'; CREATE AGGREGATE total(int) (SFUNC = int4pl, STYPE = int);
		CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq); CREATE OPERATOR CLASS oc FOR TYPE int USING hash AS OPERATOR 1 =; CREATE COLLATION co (locale = 'C');
		CREATE TEXT SEARCH CONFIGURATION tsc (COPY = simple); CREATE EXTENSION pg_trgm; CREATE PUBLICATION pub FOR TABLE part; CREATE TABLE kept (a int); GRANT SELECT ON kept TO PUBLIC`)
	sql(t, inside, "SELECT lo_create(4711)")
	sql(t, inside, "BEGIN; INSERT INTO kept VALUES (1); PREPARE TRANSACTION 'in doubt'")
	sql(t, strings.Replace(super, "postgres@", "builder@", 1), "UPDATE pg_authid SET rolname = 'cleave' WHERE oid = 10; DROP ROLE IF EXISTS nobody")
	stop(t, s)

	s = start(t, opts)
	// Who prepared a transaction ends it, or a superuser: until then the role stays one.
	if got := sql(t, s.URL("app"), "SELECT current_user || rolsuper FROM pg_roles WHERE rolname = current_user"); got != "cleavetrue" {
		t.Fatalf("beside a prepared transaction: %s", got)
	}
	sql(t, s.URL("app"), "COMMIT PREPARED 'in doubt'")
	stop(t, s)
	s = start(t, opts)
	if got := sql(t, s.URL("app"), "SELECT current_user || rolsuper FROM pg_roles WHERE rolname = current_user"); got != "cleavefalse" {
		t.Fatalf("after it: %s", got)
	}
	for catalogue, owner := range map[string]string{
		"pg_class": "relowner", "pg_type": "typowner", "pg_namespace": "nspowner", "pg_extension": "extowner", "pg_publication": "pubowner", "pg_largeobject_metadata": "lomowner", "pg_statistic_ext": "stxowner",
		"pg_proc": "proowner", "pg_operator": "oprowner", "pg_opclass": "opcowner", "pg_opfamily": "opfowner", "pg_collation": "collowner", "pg_ts_config": "cfgowner",
	} {
		left := sql(t, s.URL("app"), "SELECT coalesce(string_agg(pg_describe_object('"+catalogue+"'::regclass, oid, 0), ', '), '') FROM "+catalogue+" AS o WHERE "+owner+" <> 'cleave'::regrole AND oid >= 16384 AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = '"+catalogue+"'::regclass AND d.objid = o.oid AND d.deptype IN ('e', 'i')) AND oid NOT IN (SELECT oid FROM pg_class WHERE relnamespace = 'pg_toast'::regnamespace)")
		if left != "" && catalogue != "pg_type" {
			t.Errorf("%s: %s", catalogue, left)
		}
		if n := sql(t, s.URL("app"), "SELECT count(*) FROM "+catalogue+" WHERE "+owner+" = 'cleave'::regrole"); n == "0" {
			t.Errorf("%s has nothing of the role", catalogue)
		}
	}
	sql(t, s.URL("app"), `INSERT INTO "Odd one"."T t" (m, p) VALUES ('ok', 1); ALTER TABLE "Odd one"."T t" ADD COLUMN more int; DROP TABLE kept; DROP FUNCTION f(int, text); DROP TYPE span; CREATE SCHEMA mine; REFRESH MATERIALIZED VIEW mv`)
	sql(t, s.URL("app"), "DROP EXTENSION pg_trgm")
	if got := sql(t, s.SuperuserURL("app"), "SELECT (SELECT count(*) FROM pg_shdepend WHERE refclassid = 'pg_authid'::regclass AND refobjid = 'cleave'::regrole AND dbid <> 0)::text"); got == "0" {
		t.Error("the role could be dropped, though it owns tables")
	}
}
