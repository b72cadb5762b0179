package postgres

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// reached connects once and returns how, "unix" or "tcp".
func reached(t *testing.T, url string, dirs ...string) string {
	t.Helper()
	sh, err := Driver{SocketDirs: dirs}.Open(engine.Config{Name: "s", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	var how string
	for i := range 2 { // proved, and then used
		c, err := sh.Connect(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		n := c.(*conn).network()
		if i == 1 && n != how {
			t.Errorf("first by %s, then by %s", how, n)
		}
		how = n
		if _, err := engine.Exec(c, "SELECT 1"); err != nil {
			t.Error(err)
		}
		if st, err := c.(engine.Replicated).Standing(context.Background()); err != nil || st.Local != (n == "unix") || st.Role != engine.Primary || st.Timeline != 1 || st.At == 0 {
			t.Errorf("%+v, %v", st, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	return how
}

func TestALocalServerIsReachedOverItsSocket(t *testing.T) {
	t.Parallel()
	a, b := pgtest.NewServer(t, nil), pgtest.NewServer(t, nil)
	url := a.URL("postgres")
	if how := reached(t, url); how != "tcp" {
		t.Errorf("without folders: %s", how)
	}
	if how := reached(t, url, pgtest.Dir(t), a.SocketDir()); how != "unix" {
		t.Errorf("with its folder: %s", how)
	}
	localhost := strings.Replace(url, "127.0.0.1", "localhost", 1)
	if how := reached(t, localhost, a.SocketDir()); how != "unix" {
		t.Errorf("localhost: %s", how)
	}
	// The socket of another server under the same name: two network namespaces
	// that share a folder look like that.
	mixed := pgtest.Dir(t)
	forward(t, filepath.Join(mixed, fmt.Sprintf(".s.PGSQL.%d", a.Port())), b)
	if how := reached(t, url, mixed); how != "tcp" {
		t.Errorf("another server's socket is used: %s", how)
	}
	if how := reached(t, url, mixed, a.SocketDir()); how != "unix" {
		t.Errorf("the right one is not found behind a wrong one: %s", how)
	}
	// One that anybody could have put there.
	open := pgtest.Dir(t)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(open, fmt.Sprintf(".s.PGSQL.%d", a.Port()))
	forward(t, path, a)
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if how := reached(t, url, open); how != "tcp" {
			t.Errorf("a stranger's socket is used: %s", how)
		}
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if how := reached(t, url, open); how != "unix" {
		t.Errorf("our own socket in an open folder: %s", how)
	}
}

// forward listens on a unix socket and passes everything to a server's socket.
func forward(t *testing.T, path string, to *localpg.Server) (end func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	end = func() { _ = l.Close(); <-done }
	t.Cleanup(end)
	go func() {
		defer close(done)
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", filepath.Join(to.SocketDir(), fmt.Sprintf(".s.PGSQL.%d", to.Port())))
			if err != nil {
				_ = in.Close()
				continue
			}
			both := make(chan struct{})
			go func() { copyAll(out, in); close(both) }()
			copyAll(in, out)
			<-both
		}
	}()
	return end
}

func copyAll(to, from net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

// While there is no connection nothing tells that another server took the socket.
func TestASocketThatLeadsElsewhereNowIsLeft(t *testing.T) {
	t.Parallel()
	a, b := pgtest.NewServer(t, nil), pgtest.NewServer(t, nil)
	dir := pgtest.Dir(t)
	path := filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", a.Port()))
	end := forward(t, path, a)
	sh, err := Driver{SocketDirs: []string{dir}}.Open(engine.Config{Name: "s", URL: a.URL("postgres")})
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	connect := func(want string) {
		t.Helper()
		c, err := sh.Connect(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if n := c.(*conn).network(); n != want {
			t.Errorf("by %s, want %s", n, want)
		}
		res, err := engine.Exec(c, "SHOW port")
		if err != nil || res.Rows[0][0].String != fmt.Sprint(a.Port()) {
			t.Errorf("another server is used: %v, %v", res, err)
		}
	}
	connect("unix")
	connect("unix")
	end()
	end = forward(t, path, b)
	connect("tcp")
	connect("tcp")
	end()
	forward(t, path, a)
	sh.(*shard).socket.again.Store(0)
	connect("unix")
}

func TestASocketIsFoundAgainAfterARestart(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, nil)
	sh, err := Driver{SocketDirs: []string{s.SocketDir()}}.Open(engine.Config{Name: "s", URL: s.URL("postgres")})
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	for range 2 {
		c, err := sh.Connect(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := c.(*conn).network(); n != "unix" {
			t.Errorf("by %s", n)
		}
		s.Kill()
		if _, err := engine.Exec(c, "SELECT 1"); err == nil {
			t.Error("it answers")
		}
		_ = c.Close()
		s = pgtest.Restart(t, s, nil)
	}
}

func TestWhatAURLDemandsIsNotWeakened(t *testing.T) {
	for url, want := range map[string]bool{
		"postgres://u@127.0.0.1/d":                                    true,
		"postgres://u:p@127.0.0.1/d?sslmode=disable":                  true,
		"postgres://u@127.0.0.1/d?sslmode=prefer":                     true,
		"postgres://u@127.0.0.1/d?sslmode=allow":                      true,
		"postgres://u@127.0.0.1/d?sslmode=require":                    false,
		"postgres://u@127.0.0.1/d?sslmode=verify-ca":                  false,
		"postgres://u@127.0.0.1/d?sslmode=verify-full":                false,
		"postgres://u@127.0.0.1,127.0.0.2/d":                          false,
		"postgres://u@/d?host=/var/run/postgresql":                    false,
		"postgres://u@127.0.0.1/d?krbsrvname=postgres":                false,
		"postgres://u@127.0.0.1/d?sslcertmode=require&sslmode=prefer": false,
	} {
		pc, err := pgconn.ParseConfig(url)
		if err != nil {
			t.Fatal(url, err)
		}
		if got := socketAllowed(pc); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
}

func TestTheEndOfAPageIsTheEndOfARecord(t *testing.T) {
	for at, want := range map[engine.LSN]engine.LSN{0x2000 + 24: 0x2000, 0x1000000 + 40: 0x1000000, 0x2000 + 48: 0x2000 + 48, 0x1ff8: 0x1ff8, 0x4000: 0x4000} {
		if got := endOfRecord(at, 8192); got != want {
			t.Errorf("%x gives %x, want %x", at, got, want)
		}
	}
	if endOfRecord(0x2018, 16384) != 0x2018 {
		t.Error("pages of 16 KiB end elsewhere")
	}
}

// A comparison that is cut short proves nothing: the conversation over TCP is one to be replaced, soon.
func TestASlowSocketIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, nil)
	dir := pgtest.Dir(t)
	path := filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", s.Port()))
	silent, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	sh, err := Driver{SocketDirs: []string{dir}}.Open(engine.Config{Name: "s", URL: s.URL("postgres")})
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	connect := func() *conn {
		t.Helper()
		c, err := sh.Connect(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.(*conn)
	}
	began := time.Now()
	first := connect()
	if n := first.network(); n != "tcp" || time.Since(began) > 3*socketMax {
		t.Fatalf("by %s, after %v", n, time.Since(began))
	}
	if first.Replaceable() {
		t.Error("at once")
	}
	_ = silent.Close()
	forward(t, path, s)
	for deadline := time.Now().Add(waitfor.Max); !first.Replaceable(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the socket is not tried again")
		}
	}
	if n := connect().network(); n != "unix" {
		t.Errorf("by %s", n)
	}
	if !first.Replaceable() {
		t.Error("the first conversation is kept")
	}
}

// A conversation that is on its way over TCP while another one finds the socket does not stay there: its pool would
// keep it.
func TestASocketThatIsFoundMeanwhileIsTaken(t *testing.T) {
	t.Parallel()
	srv := pgtest.NewServer(t, nil)
	opened, err := Driver{SocketDirs: []string{srv.SocketDir()}}.Open(engine.Config{Name: "s", URL: srv.URL("postgres")})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	s := opened.(*shard)
	var other *conn
	c, err := s.through(t.Context(), func(ctx context.Context, pc *pgconn.Config) (*conn, error) {
		c, err := s.dialTo(ctx, pc, nil)
		if err == nil && other == nil {
			other, err = s.connect(ctx, nil)
		}
		return c, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer other.Close()
	if c.network() != "unix" || other.network() != "unix" {
		t.Errorf("the first by %s, the other by %s", c.network(), other.network())
	}
}
