package pgtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
)

// Namespace is a network namespace: a machine of its own, as far as the network
// goes. Files are shared with ours.
type Namespace struct {
	Name string
	IP   string // its address in the network of the namespaces
}

// Namespaces makes n network namespaces that reach each other, removed when the
// test ends. It needs root, and installs iproute2 if it is missing.
func Namespaces(tb testing.TB, n int) []Namespace {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatalf("pgtest: network namespaces need root: run the test as root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		installDebian(tb, "iproute2")
	}
	ip := func(args ...string) {
		tb.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			tb.Fatalf("pgtest: ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	unit := os.Getpid() % 100_000
	all := make([]Namespace, n)
	for i := range all {
		all[i] = Namespace{Name: fmt.Sprintf("cleave-%d-%d", unit, i), IP: fmt.Sprintf("10.213.%d.1", i)}
		ip("netns", "add", all[i].Name)
		tb.Cleanup(func() { _ = exec.Command("ip", "netns", "del", all[i].Name).Run() })
		ip("-n", all[i].Name, "link", "set", "lo", "up")
		ip("-n", all[i].Name, "addr", "add", all[i].IP+"/32", "dev", "lo")
	}
	for i := range all {
		for j := range i {
			a, b := fmt.Sprintf("v%d-%d", j, i), fmt.Sprintf("v%d-%d", i, j)
			ip("-n", all[i].Name, "link", "add", b, "type", "veth", "peer", "name", a, "netns", all[j].Name)
			for _, end := range []struct {
				ns, dev, to, from string
			}{{all[i].Name, b, all[j].IP, all[i].IP}, {all[j].Name, a, all[i].IP, all[j].IP}} {
				ip("-n", end.ns, "link", "set", end.dev, "up")
				ip("-n", end.ns, "route", "add", end.to+"/32", "dev", end.dev, "src", end.from)
			}
		}
	}
	return all
}

// Command is a command that runs in the namespace.
func (n Namespace) Command(name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.Name, name}, args...)...)
}

// Server starts a PostgreSQL server in the namespace on the given port, open to all
// namespaces, with its socket in a folder of its own, which is returned. It is
// stopped when the test ends.
func (n Namespace) Server(tb testing.TB, port int) (socketDir string) {
	tb.Helper()
	// Made and set up in our own network, then run in the other.
	s := NewServer(tb, nil)
	Ask(tb, s.SuperuserURL("postgres"), "CREATE ROLE app SUPERUSER LOGIN")
	hba, err := os.OpenFile(filepath.Join(s.DataDir(), "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = hba.WriteString("host all all 10.213.0.0/16 trust\n")
	if cerr := hba.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		tb.Fatal(err)
	}
	stop(tb, s)
	owner := ownerName(tb, s.DataDir())
	args := []string{"-D", s.DataDir(), "-p", fmt.Sprint(port), "-c", "listen_addresses=*", "-c", "unix_socket_directories=" + s.SocketDir()}
	for name, value := range Settings() {
		args = append(args, "-c", name+"="+value)
	}
	cmd := n.Command("setpriv", append([]string{"--reuid", owner, "--regid", owner, "--clear-groups", filepath.Join(s.Installation().Bin, "postgres")}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	var log strings.Builder
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			log.WriteString(in.Text() + "\n")
		}
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-drained
		_ = cmd.Wait() // it was interrupted, as wanted
		if tb.Failed() {
			tb.Logf("server in %s:\n%s", n.Name, log.String())
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if n.Command(program(tb, "psql"), "-XAtc", "SELECT 1", fmt.Sprintf("postgres://app@127.0.0.1:%d/postgres", port)).Run() == nil {
			return s.SocketDir()
		}
		if time.Now().After(end) {
			tb.Fatalf("pgtest: the server in %s does not get ready", n.Name)
		}
	}
}

func ownerName(tb testing.TB, path string) string {
	tb.Helper()
	out, err := exec.Command("stat", "-c", "%U", path).Output()
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func stop(tb testing.TB, s *localpg.Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
}
