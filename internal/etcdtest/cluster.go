package etcdtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// patience bounds every wait; machines can be busy.
const patience = 60 * time.Second

// Options describe a cluster.
type Options struct {
	Members int // 0 is three
	// TLS, if there is one, makes the members ask clients for a certificate.
	TLS *Certificates
	// Args are added to each member's command line.
	Args []string
}

// Cluster is a running etcd cluster with elections of a quarter of a second.
type Cluster struct {
	tb      testing.TB
	opts    Options
	dir     string
	members []*member
	watch   *watchdog
}

type member struct {
	name         string
	client, peer string // host:port
	cmd          *exec.Cmd
	exited       chan struct{}
}

// watchdog is a process that kills the members and removes the folder when the
// pipe to it closes: also if the test is killed.
type watchdog struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

var prefixes atomic.Uint64

var shared struct {
	sync.Mutex
	cluster *Cluster
}

// Shared returns a three-member cluster that all tests of the binary share;
// each keeps to prefixes of its own. EndShared, in TestMain, ends it.
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		shared.cluster = start(tb, Options{})
	}
	return shared.cluster
}

// EndShared ends the cluster that Shared has started, if it has.
func EndShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster != nil {
		shared.cluster.end()
		shared.cluster = nil
	}
}

// New starts a cluster for one test.
func New(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	c := start(tb, o)
	tb.Cleanup(c.end)
	return c
}

func start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	if o.Members == 0 {
		o.Members = 3
	}
	Binary(tb)
	dir, err := os.MkdirTemp("", "cleave-etcd-")
	if err != nil {
		tb.Fatalf("etcdtest: %v", err)
	}
	c := &Cluster{tb: tb, opts: o, dir: dir}
	if c.watch, err = watch(dir); err != nil {
		os.RemoveAll(dir)
		tb.Fatalf("etcdtest: %v", err)
	}
	// All ports are held until all are known, so that none is given twice.
	var held []net.Listener
	port := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatalf("etcdtest: %v", err)
		}
		held = append(held, l)
		return l.Addr().String()
	}
	for i := range o.Members {
		c.members = append(c.members, &member{name: fmt.Sprintf("m%d", i), client: port(), peer: port()})
	}
	for _, l := range held {
		l.Close()
	}
	for i := range c.members {
		if err := c.launch(i); err != nil {
			c.end()
			tb.Fatalf("etcdtest: %v", err)
		}
	}
	if err := c.await(); err != nil {
		log := c.logs()
		c.end()
		tb.Fatalf("etcdtest: %v\n%s", err, log)
	}
	return c
}

func watch(dir string) (*watchdog, error) {
	cmd := exec.Command("sh", "-c", `while read p; do all="$all $p"; done; [ -z "$all" ] || kill -9 $all 2>/dev/null; sleep 0.1; rm -rf "$1"`, "sh", dir)
	// Ctrl-C in a terminal must not end it before the tests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &watchdog{cmd, in}, cmd.Start()
}

func (c *Cluster) launch(i int) error {
	m := c.members[i]
	scheme := "http://"
	var peers []string
	for _, o := range c.members {
		peers = append(peers, o.name+"=http://"+o.peer)
	}
	args := []string{
		"--name", m.name, "--data-dir", filepath.Join(c.dir, m.name),
		"--listen-peer-urls", "http://" + m.peer, "--initial-advertise-peer-urls", "http://" + m.peer,
		"--initial-cluster", strings.Join(peers, ","), "--initial-cluster-state", "new", "--initial-cluster-token", c.dir,
		"--heartbeat-interval", "50", "--election-timeout", "250", "--log-level", "warn", "--unsafe-no-fsync",
	}
	if t := c.opts.TLS; t != nil {
		scheme = "https://"
		args = append(args, "--cert-file", t.ServerCert, "--key-file", t.ServerKey, "--trusted-ca-file", t.CA, "--client-cert-auth")
	}
	args = append(args, "--listen-client-urls", scheme+m.client, "--advertise-client-urls", scheme+m.client)
	args = append(args, c.opts.Args...)
	log, err := os.OpenFile(filepath.Join(c.dir, m.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(Binary(c.tb), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c.watch.in, cmd.Process.Pid); err != nil {
		return err
	}
	m.cmd, m.exited = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait() // says how it was killed
		close(done)
	}(m.exited)
	return nil
}

// end kills all members and removes their folder.
func (c *Cluster) end() {
	for _, m := range c.members {
		if m.cmd != nil {
			_ = m.cmd.Process.Signal(syscall.SIGCONT)
			_ = m.cmd.Process.Kill()
			<-m.exited
		}
	}
	_ = c.watch.in.Close()
	_ = c.watch.cmd.Wait()
}

func (c *Cluster) logs() string {
	var b strings.Builder
	for _, m := range c.members {
		text, _ := os.ReadFile(filepath.Join(c.dir, m.name+".log"))
		fmt.Fprintf(&b, "--- %s\n%s", m.name, text[max(0, len(text)-4000):])
	}
	return b.String()
}

// Endpoints returns host:port of each member.
func (c *Cluster) Endpoints() []string {
	var out []string
	for _, m := range c.members {
		out = append(out, m.client)
	}
	return out
}

// URL returns a directory's URL with a prefix that no other test has.
func (c *Cluster) URL() string {
	return fmt.Sprintf("etcd://%s/test/%d", strings.Join(c.Endpoints(), ","), prefixes.Add(1))
}

// Client returns a client of its own for the test, of all members or of some.
func (c *Cluster) Client(tb testing.TB, members ...int) *clientv3.Client {
	tb.Helper()
	cl, err := c.client(members...)
	if err != nil {
		tb.Fatalf("etcdtest: %v", err)
	}
	tb.Cleanup(func() { _ = cl.Close() }) // says that it was cancelled
	return cl
}

func (c *Cluster) client(members ...int) (*clientv3.Client, error) {
	cfg := clientv3.Config{Logger: zap.NewNop(), DialTimeout: 5 * time.Second}
	if c.opts.TLS != nil {
		var err error
		if cfg.TLS, err = c.opts.TLS.config(); err != nil {
			return nil, err
		}
	}
	for i, e := range c.Endpoints() {
		use := len(members) == 0
		for _, m := range members {
			use = use || m == i
		}
		if use && c.opts.TLS != nil {
			cfg.Endpoints = append(cfg.Endpoints, "https://"+e)
		} else if use {
			cfg.Endpoints = append(cfg.Endpoints, "http://"+e)
		}
	}
	return clientv3.New(cfg)
}

// await waits until the cluster answers.
func (c *Cluster) await() error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	for end := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err = cl.Get(ctx, "x")
		cancel()
		if err == nil || strings.Contains(err.Error(), "user name is empty") {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the cluster does not answer in %v: %w", patience, err)
		}
	}
}

// Leader returns the number of the leader.
func (c *Cluster) Leader(tb testing.TB) int {
	tb.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for i, m := range c.members {
			cl, err := c.client(i)
			if err != nil {
				tb.Fatalf("etcdtest: %v", err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			scheme := "http://"
			if c.opts.TLS != nil {
				scheme = "https://"
			}
			res, err := cl.Status(ctx, scheme+m.client)
			cancel()
			cl.Close()
			if err == nil && res.Leader == res.Header.MemberId {
				return i
			}
		}
	}
	tb.Fatalf("etcdtest: in %v there is no leader\n%s", patience, c.logs())
	return -1
}

// Kill ends a member with SIGKILL.
func (c *Cluster) Kill(tb testing.TB, i int) {
	tb.Helper()
	if err := c.members[i].cmd.Process.Kill(); err != nil {
		tb.Fatalf("etcdtest: %v", err)
	}
	<-c.members[i].exited
}

// Start starts a member that was killed.
func (c *Cluster) Start(tb testing.TB, i int) {
	tb.Helper()
	if err := c.launch(i); err != nil {
		tb.Fatalf("etcdtest: %v", err)
	}
}

// Pause stops a member with SIGSTOP.
func (c *Cluster) Pause(tb testing.TB, i int) { c.signal(tb, i, syscall.SIGSTOP) }

// Resume lets a member that was stopped go on.
func (c *Cluster) Resume(tb testing.TB, i int) { c.signal(tb, i, syscall.SIGCONT) }

func (c *Cluster) signal(tb testing.TB, i int, s os.Signal) {
	tb.Helper()
	if err := c.members[i].cmd.Process.Signal(s); err != nil {
		tb.Fatalf("etcdtest: %v", err)
	}
}
