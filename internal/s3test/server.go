package s3test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// BinVariable names the environment variable with the path of the server.
const BinVariable = "CLEAVE_S3_BIN"

// Bucket is the bucket that a server has.
const Bucket = "backups"

const accessKey, secretKey = "test-access", "test-secret-key"

// Server is a running S3 server.
type Server struct {
	tb   testing.TB
	dir  string
	addr string
	cmd  *exec.Cmd
	in   io.Closer // the server ends with it: also if the test is killed
	done chan struct{}
}

var built struct {
	sync.Mutex
	path string
}

func binary(tb testing.TB) string {
	tb.Helper()
	built.Lock()
	defer built.Unlock()
	if built.path != "" {
		return built.path
	}
	if built.path = os.Getenv(BinVariable); built.path == "" {
		_, file, _, _ := runtime.Caller(0)
		path, err := pgtest.Build(tb, "s3", filepath.Join(filepath.Dir(file), "testdata", "server"), "main.go")
		if err != nil {
			tb.Fatalf("s3test: the S3 server cannot be built: %v\nname one with %s", err, BinVariable)
		}
		built.path = path
	}
	return built.path
}

// New starts a server with an empty bucket, and sets the environment variables with its keys.
func New(tb testing.TB) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "cleave-s3-")
	if err != nil {
		tb.Fatalf("s3test: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return NewIn(tb, dir)
}

// NewIn is New in a folder that exists.
func NewIn(tb testing.TB, dir string) *Server {
	tb.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_SESSION_TOKEN": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "AWS_CA_BUNDLE": "",
	} {
		tb.Setenv(name, value)
	}
	s := &Server{tb: tb, dir: dir}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("s3test: %v", err)
	}
	s.addr = l.Addr().String()
	_ = l.Close() // the server takes the port
	s.Start()
	tb.Cleanup(s.Kill)
	client, err := minio.New(s.addr, &minio.Options{Creds: credentials.NewStaticV4(accessKey, secretKey, ""), Region: "test-1"})
	if err != nil {
		tb.Fatalf("s3test: %v", err)
	}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := client.MakeBucket(waitfor.Context(tb), Bucket, minio.MakeBucketOptions{}); err != nil {
		tb.Fatalf("s3test: %v\n%s", err, s.log())
	}
	return s
}

// Start starts the server, at the same address as before, and waits until it answers.
func (s *Server) Start() {
	s.tb.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.tb.Fatalf("s3test: %v", err)
	}
	defer log.Close()
	cmd := exec.Command(binary(s.tb), s.addr, s.dir, accessKey, secretKey)
	cmd.Stdout, cmd.Stderr = log, log
	if s.in, err = cmd.StdinPipe(); err != nil {
		s.tb.Fatalf("s3test: %v", err)
	}
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("s3test: %v", err)
	}
	s.cmd, s.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait() // says how it was killed
		close(done)
	}(s.done)
	waitfor.True(s.tb, "the S3 server listens", func() bool {
		select {
		case <-s.done:
			s.tb.Fatalf("s3test: the server has ended:\n%s", s.log())
		default:
		}
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(text[max(0, len(text)-4000):])
}

// Kill kills the server.
func (s *Server) Kill() {
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Kill()
	<-s.done
	_ = s.in.Close()
}

// Stop stops the server with SIGSTOP: it accepts connections and does not answer.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue ends Stop.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(what os.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(what); err != nil {
		s.tb.Fatalf("s3test: %v", err)
	}
}

// URL returns that of a repository with a prefix of its own.
func (s *Server) URL() string { return s.URLAt(s.addr, strings.ToLower(rand.Text())) }

// Addr returns the address of the server.
func (s *Server) Addr() string { return s.addr }

// URLAt returns that of a repository behind another address.
func (s *Server) URLAt(addr, prefix string) string {
	q := url.Values{"endpoint": {"http://" + addr}, "region": {"test-1"}, "path-style": {"true"}}
	return fmt.Sprintf("s3://%s/%s?%s", Bucket, prefix, q.Encode())
}

// Folder returns the folder with the values of the bucket, in which tests do damage.
func (s *Server) Folder() string { return filepath.Join(s.dir, "data", Bucket) }

// Way is a proxy before a server.
type Way struct {
	// Before may answer instead of the server.
	Before func(w http.ResponseWriter, r *http.Request) (answered bool)
	// After may lose the answer of the server, or the rest of it: less than 0 passes all of it on.
	After func(r *http.Request, status int) (keep int64)
	Addr  string
}

// Proxy serves as the way until the test ends. Requests reach the server as they were signed.
func (s *Server) Proxy(tb testing.TB, way *Way) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("s3test: %v", err)
	}
	way.Addr = l.Addr().String()
	transport := &http.Transport{DisableCompression: true}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if way.Before != nil && way.Before(w, r) {
			return
		}
		out := r.Clone(r.Context())
		out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", s.addr
		answer, err := transport.RoundTrip(out)
		if err != nil {
			panic(http.ErrAbortHandler) // closes the connection
		}
		defer answer.Body.Close()
		keep := int64(-1)
		if way.After != nil {
			keep = way.After(r, answer.StatusCode)
		}
		if keep == 0 {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.StatusCode)
		body := io.Reader(answer.Body)
		if keep > 0 {
			body = io.LimitReader(body, keep)
		}
		if n, err := io.Copy(w, body); err != nil || n == keep {
			panic(http.ErrAbortHandler)
		}
	})}
	go func() { _ = server.Serve(l) }() // ends with Shutdown or Close
	tb.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Shutdown(ctx) // waits for nobody
		_ = server.Close()
		transport.CloseIdleConnections()
	})
}
