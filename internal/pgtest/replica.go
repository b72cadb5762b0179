package pgtest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/localpg"
)

// NewReplica starts a server that streams from a running one, copied with
// pg_basebackup; name is its application_name, for synchronous_standby_names.
// It ends as [NewServer]'s does.
func NewReplica(tb testing.TB, primary *localpg.Server, name string, settings map[string]string) *localpg.Server {
	tb.Helper()
	backup := program(tb, "pg_basebackup")
	dir, err := makeDir()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	data := filepath.Join(dir, "data")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, backup, "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync",
		"-h", "127.0.0.1", "-p", fmt.Sprint(primary.Port()), "-U", localpg.Superuser)
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		tb.Fatalf("pgtest: pg_basebackup: %v\n%s", err, out)
	}
	own(tb, data, primary.DataDir())
	all := Settings()
	all["primary_conninfo"] = fmt.Sprintf("host=127.0.0.1 port=%d user=%s application_name=%s", primary.Port(), localpg.Superuser, name)
	// What is not written by the test must not hold up what is.
	all["wal_retrieve_retry_interval"] = "100ms"
	maps.Copy(all, settings)
	r := &running{dir: dir}
	if r.watch, err = watch(dir); err != nil {
		os.RemoveAll(dir)
		tb.Fatalf("pgtest: %v", err)
	}
	r.server, err = localpg.Start(ctx, localpg.Options{Installation: primary.Installation(), DataDir: data, SocketDir: filepath.Join(dir, "s"), Settings: all})
	if err != nil {
		r.watch.end()
		os.RemoveAll(dir)
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if err := r.end(); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return r.server
}

// own gives a folder and all in it to the owner of another.
func own(tb testing.TB, dir, like string) {
	tb.Helper()
	st, err := os.Stat(like)
	if err != nil {
		tb.Fatal(err)
	}
	owner := st.Sys().(*syscall.Stat_t)
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
}

// Restart starts a server again that was killed or stopped, in its folder and on
// its port, with settings on top of [Settings].
func Restart(tb testing.TB, dead *localpg.Server, settings map[string]string) *localpg.Server {
	tb.Helper()
	all := Settings()
	maps.Copy(all, settings)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := dead.Stop(ctx); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	s, err := localpg.Start(ctx, localpg.Options{Installation: dead.Installation(), DataDir: dead.DataDir(), SocketDir: dead.SocketDir(), Port: dead.Port(), Settings: all})
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return s
}

// Ask runs one statement on a server and returns its first value, "" if there is none.
func Ask(tb testing.TB, url, sql string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	defer conn.Close(ctx)
	res, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	for _, r := range res {
		for _, row := range r.Rows {
			return string(row[0])
		}
	}
	return ""
}

// Await waits until the statement's first value is want.
func Await(tb testing.TB, url, sql, want string) {
	tb.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		got := Ask(tb, url, sql)
		if got == want {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%s is %q for long, want %q", sql, got, want)
		}
	}
}
