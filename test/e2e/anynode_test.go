package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// TestARouterBesideEachServer: two machines (network namespaces), each with a
// PostgreSQL server and a router. Each router serves every key: its own server's
// over the unix socket, the other's over the network.
func TestARouterBesideEachServer(t *testing.T) {
	testrun.Long(t, "two machines are made, with servers and routers; TestRoutersOnEtcd has routers")
	nodes := pgtest.Namespaces(t, 2)
	const serverPort = 5432 // on both, as everywhere
	dirs := make([]string, len(nodes))
	for i, n := range nodes {
		dirs[i] = n.Server(t, serverPort)
	}
	directory := "file:" + filepath.Join(pgtest.Dir(t), "directory.db")
	run := func(n pgtest.Namespace, name string, args ...string) string {
		t.Helper()
		out, err := n.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	made := []string{"init", "--directory", directory}
	for i, n := range nodes {
		made = append(made, fmt.Sprintf("node%d=postgres://app@%s:%d/postgres?sslmode=disable", i, n.IP, serverPort))
	}
	run(nodes[0], binary, made...)
	if out, err := nodes[0].Command(binary, made...).CombinedOutput(); err == nil || !strings.Contains(string(out), "already") {
		t.Errorf("a second init: %v\n%s", err, out)
	}
	for _, n := range nodes {
		// Both folders for both routers: files are shared here, ports are not. The
		// socket of the other node's server bears the same name.
		router(t, n, directory, dirs[0]+","+dirs[1])
	}
	sql := func(n pgtest.Namespace, sql string) string {
		t.Helper()
		return run(n, pgtest.PSQL(t), "-XAtqv", "ON_ERROR_STOP=1", "-c", sql, "postgres://app@127.0.0.1:6432/cleave")
	}
	sql(nodes[0], "CREATE TABLE orders (tenant_id bigint, id bigint, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')")
	for i := range 20 {
		n := nodes[i%2]
		sql(n, fmt.Sprintf("INSERT INTO orders VALUES (%d, 1)", i))
	}
	local, remote := map[int]int{}, map[int]int{}
	for i := range 20 {
		for j, n := range nodes {
			if got := sql(n, fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", i)); got != "1" {
				t.Errorf("key %d by node %d: %s rows", i, j, got)
			}
			where := sql(n, fmt.Sprintf("SELECT cleave.shard_of('hash_bigint', %d)", i))
			if where == fmt.Sprintf("node%d", j) {
				local[j]++
			} else {
				remote[j]++
			}
		}
	}
	// How the routers reach each server: its own one by a socket, the other one over the network.
	for j, n := range nodes {
		want := nodes[1-j].IP + "\nsocket"
		waitfor.True(t, fmt.Sprintf("server %d is reached over a socket and by the other node", j), func() bool {
			return run(n, pgtest.PSQL(t), "-XAtqc", "SELECT DISTINCT COALESCE(host(client_addr), 'socket') FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY 1",
				fmt.Sprintf("postgres://app@/postgres?host=%s&port=%d", dirs[j], serverPort)) == want
		})
	}
	for j := range nodes {
		if local[j] == 0 || remote[j] == 0 {
			t.Errorf("node %d has %d local keys and %d remote ones", j, local[j], remote[j])
		}
	}
}

// router runs a router in a namespace until the test ends.
func router(t *testing.T, n pgtest.Namespace, directory, socketDirs string) {
	t.Helper()
	cmd := n.Command(binary, "router", "--directory", directory, "--listen", "127.0.0.1:6432", "--local-socket-dirs", socketDirs)
	log := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("router: %v", err)
		}
		if t.Failed() {
			t.Logf("router in %s:\n%s", n.Name, tail(log.String(), 40))
		}
	})
	for end := time.Now().Add(waitfor.Max); ; time.Sleep(50 * time.Millisecond) {
		out, err := n.Command(pgtest.PSQL(t), "-XAtqc", "SELECT 1", "postgres://app@127.0.0.1:6432/cleave").CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the router in %s is not ready: %v %s\n%s", n.Name, err, out, log.String())
		}
	}
}
