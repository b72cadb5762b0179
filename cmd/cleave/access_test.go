package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/waitfor"
)

// selfSigned writes a certificate for loopback that is good until then.
func selfSigned(t *testing.T, cert, key string, until time.Time) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "router"}, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAccessOfAProcess: users, TLS, its renewal and the token of the admin API,
// with the real program; nothing that it prints has a password.
func TestAccessOfAProcess(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	selfSigned(t, path("tls.crt"), path("tls.key"), time.Now().Add(-time.Hour)) // expired
	const token, password = "a-token-that-nobody-guesses", "ne-pass-on-me"
	if err := os.WriteFile(path("token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, "up", "--data", path("data"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--auth", "scram", "--tls", "required", "--tls-cert", path("tls.crt"), "--tls-key", path("tls.key"),
		"--admin-token-file", path("token"), "--slow-statement", "1ns", "--log-level", "debug")
	printed := ""
	if code, _, stderr := r.cleave(password, "user", "add", "bob", "--password-file", "-"); code == exitOK || !strings.Contains(stderr, "28000") {
		t.Errorf("without the token: %d %s", code, stderr)
	}
	admin := func(stdin string, want int, args ...string) string {
		t.Helper()
		code, stdout, stderr := r.cleave(stdin, append(args, "--admin-token-file", path("token"))...)
		if code != want {
			t.Errorf("cleave %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
		}
		printed += stdout + stderr
		return stdout + stderr
	}
	for _, short := range []string{"x", "seven77", "äöüäöüä"} {
		if out := admin(short+"\n", exitFailed, "user", "add", "bob", "--password-file", "-"); !strings.Contains(out, "too short") || strings.Contains(out, short) && short != "x" {
			t.Error(out)
		}
	}
	admin(password+"\n", exitOK, "user", "add", "bob", "--password-file", "-", "--role", "admin")
	admin(password, exitFailed, "user", "add", "bob", "--password-file", "-")
	admin(password, exitFailed, "user", "add", "eve", "--password-file", "-", "--role", "god")
	admin(password, exitFailed, "user", "add", "eve", "--verifier-file", "-")
	if out := admin("", exitOK, "user", "list"); !strings.Contains(out, "bob") || !strings.Contains(out, "admin") {
		t.Error(out)
	}
	connect := func(options string) error {
		ctx, cancel := context.WithTimeout(t.Context(), waitfor.Max)
		defer cancel()
		cfg, err := pgx.ParseConfig("postgres://bob@" + r.Listen + "/cleave?" + options)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Password = password
		c, err := pgx.ConnectConfig(ctx, cfg)
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		_, err = c.Exec(ctx, "SELECT 1")
		return err
	}
	if err := connect("sslmode=require"); err != nil {
		t.Error(err)
	}
	if err := connect("sslmode=disable"); sqlState(err) != "28000" {
		t.Errorf("without TLS: %v", err)
	}
	verify := "sslmode=verify-full&sslrootcert=" + path("tls.crt")
	if err := connect(verify); err == nil {
		t.Error("an expired certificate was taken")
	}
	selfSigned(t, path("tls.crt"), path("tls.key"), time.Now().Add(time.Hour))
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the new certificate", func() bool { return connect(verify) == nil })
	admin("another\n", exitFailed, "user", "password", "bob", "--password-file", "-")
	admin("another one\n", exitOK, "user", "password", "bob", "--password-file", "-")
	if err := connect(verify); sqlState(err) != "28P01" {
		t.Errorf("the old password: %v", err)
	}
	admin("", exitOK, "user", "remove", "bob")
	admin("", exitFailed, "user", "remove", "bob")
	printed += r.stderr.String()
	for _, secret := range []string{password, token, "SCRAM-SHA-256$4096:"} {
		if strings.Contains(printed, secret) {
			t.Errorf("%q was printed", secret)
		}
	}
}

// TestAdminAPIAsksWhereClientsAreAsked: with auth: scram the admin API obeys nobody without a token, and the commands of the
// process's own user find the one that it made.
func TestAdminAPIAsksWhereClientsAreAsked(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	ask := func(r *running, token string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Admin+"/api/v1/users", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	token := func(r *running) (text, path string) {
		t.Helper()
		_, port, _ := net.SplitHostPort(r.Admin)
		path = filepath.Join(data, "admin-"+port+".token")
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", st, err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b)), path
	}
	r := start(t, "up", "--data", data, "--auth", "scram", "--shards", "1")
	if code, _, stderr := r.cleave("a password\n", "user", "add", "bob", "--password-file", "-"); code != exitOK {
		t.Error(stderr)
	}
	first, path := token(r)
	for wrong, want := range map[string]int{"": 401, "x": 401, first: 200} {
		if got := ask(r, wrong); got != want {
			t.Errorf("token %q: %d, want %d", wrong, got, want)
		}
	}
	if code, _, stderr := command(t, "", "user", "list", "--admin", strings.Replace(r.Admin, "127.0.0.1", "127.0.0.2", 1), "--data", data); code == exitOK {
		t.Error(stderr)
	}
	second := start(t, "router", "--directory", "file:"+filepath.Join(data, "directory.db"), "--auth", "scram")
	if out := second.ok("user", "list"); !strings.Contains(out, "bob") {
		t.Error(out)
	}
	if got := ask(second, first); got != 401 {
		t.Errorf("the token of another process: %d", got)
	}
	second.stop()
	trusted := start(t, "router", "--directory", "file:"+filepath.Join(data, "directory.db"), "--auth", "scram", "--trust", "127.0.0.0/8")
	if got := ask(trusted, ""); got != 200 {
		t.Errorf("from a trusted network: %d", got)
	}
	trusted.stop()
	r.stop()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the token is left: %v", err)
	}
	r = start(t, "up", "--data", data, "--auth", "scram")
	if again, _ := token(r); again == first || ask(r, first) != 401 {
		t.Error("a token is used twice")
	}
}

// TestOpenDoorsAreRefused: a router that others can reach says who may connect,
// or does not start.
func TestOpenDoorsAreRefused(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := command(t, "", "up", "--data", filepath.Join(dir, "a"), "--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0")
	if code != exitFailed || !strings.Contains(stderr, "--auth scram") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", "directory.db")); err == nil {
		t.Error("a refused start left a cluster")
	}
	for _, c := range [][]string{{"--tls", "required"}, {"--tls-cert", "x"}, {"--auth", "cert"}, {"--tls-client-ca", "x"}} {
		code, _, stderr := command(t, "", append([]string{"up", "--data", filepath.Join(dir, "b")}, c...)...)
		if code != exitUsage || !strings.Contains(stderr, "configuration") {
			t.Errorf("%v: exit code %d: %s", c, code, stderr)
		}
	}
	// So does an admin API, unless a setting says that nothing is to be protected.
	code, _, stderr = command(t, "", "up", "--data", filepath.Join(dir, "d"), "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0")
	if code != exitFailed || !strings.Contains(stderr, "--admin-tls off") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	// Files have no users.
	code, _, stderr = command(t, "", "up", "--data", filepath.Join(dir, "e"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--auth", "passthrough")
	if code != exitFailed || !strings.Contains(stderr, "no PostgreSQL database") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	code, _, stderr = command(t, "", "up", "--data", filepath.Join(dir, "f"), "--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0", "--auth", "passthrough")
	if code != exitUsage || !strings.Contains(stderr, "tls-cert") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	start(t, "up", "--data", filepath.Join(dir, "c"), "--listen", "0.0.0.0:0", "--auth", "trust", "--admin", "0.0.0.0:0", "--admin-tls", "off").stop()
}

// TestTheAdminAPIOverTLS: with a certificate of its own, renewed while it runs, and
// the token; nothing is told to who is not trusted.
func TestTheAdminAPIOverTLS(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	selfSigned(t, path("admin.crt"), path("admin.key"), time.Now().Add(-time.Hour)) // expired
	if err := os.WriteFile(path("token"), []byte("a-token-that-nobody-guesses"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, "up", "--data", path("data"), "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0", "--admin-tls-cert", path("admin.crt"), "--admin-tls-key", path("admin.key"),
		"--admin-token-file", path("token"))
	if !strings.HasPrefix(r.Admin, "https://127.0.0.1:") {
		t.Fatalf("the admin API is at %s", r.Admin)
	}
	plain := strings.Replace(r.Admin, "https", "http", 1)
	ask := func(rest ...string) string {
		code, stdout, stderr := command(t, "", append([]string{"shard", "list", "--admin-token-file", path("token")}, rest...)...)
		if code == exitOK {
			return "ok " + stdout
		}
		return stderr
	}
	trusting := []string{"--admin", r.Admin, "--admin-ca", path("admin.crt")}
	for _, c := range []struct {
		rest []string
		want string
	}{
		{trusting, "--admin-ca"}, // expired
		{[]string{"--admin", r.Admin}, "is not trusted"},
		{[]string{"--admin", plain}, "speaks TLS only"},
		{[]string{"--admin", strings.TrimPrefix(plain, "http://")}, "speaks TLS only"},
		{[]string{"--admin", "https://" + r.Listen}, "--admin http://"},
	} {
		if got := ask(c.rest...); !strings.Contains(got, c.want) {
			t.Errorf("%v: %s", c.rest, got)
		}
	}
	selfSigned(t, path("admin.crt"), path("admin.key"), time.Now().Add(time.Hour))
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the new certificate", func() bool { return strings.HasPrefix(ask(trusting...), "ok") })
	if got := ask("--admin", strings.TrimPrefix(r.Admin, "https://"), "--admin-tls", "on", "--admin-ca", path("admin.crt")); !strings.HasPrefix(got, "ok") {
		t.Error(got)
	}
	code, _, stderr := command(t, "", append([]string{"shard", "list"}, trusting...)...)
	if code == exitOK || !strings.Contains(stderr, "28000") {
		t.Errorf("without the token: %d %s", code, stderr)
	}
	code, stdout, stderr := command(t, "", "health", "--admin", r.Admin)
	if code != exitOK || !strings.Contains(stdout, "ready") {
		t.Errorf("health: %d %s", code, stderr)
	}
	code, stdout, stderr = command(t, "", append([]string{"sql", "SELECT 42", "--admin-token-file", path("token")}, trusting...)...)
	if code != exitOK || !strings.Contains(stdout, "42") {
		t.Errorf("sql: %d %s", code, stderr)
	}
}
