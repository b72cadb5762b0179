package gateway_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/gateway"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/sqlstate"
)

// authority makes certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.crt", "CERTIFICATE", der)
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes NAME.crt and NAME.key for a common name.
func (a *authority) issue(name, common string, until time.Duration) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: common}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(until),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".crt", "CERTIFICATE", der)
	if der, err = x509.MarshalECPrivateKey(key); err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".key", "EC PRIVATE KEY", der)
}

func (a *authority) server(clientCA string) *arrival.TLS {
	a.t.Helper()
	a.issue("server", "router", time.Hour)
	files := arrival.TLSFiles{Certificate: a.path("server.crt"), Key: a.path("server.key")}
	if clientCA != "" {
		files.ClientCA = a.path(clientCA)
	}
	s, err := arrival.LoadTLS(files)
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// addUser adds a user with its name as password, doubled.
func addUser(t *testing.T, cl *cluster, name string, role access.Role) {
	t.Helper()
	v, err := access.NewVerifier(name + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := access.NewUsers(cl.dir).Add(context.Background(), access.User{Name: name, Role: role, Verifier: v}); err != nil {
		t.Fatal(err)
	}
}

func passwords(u *access.Users) arrival.Authenticate { return arrival.Password(u, nil) }

// try connects with pgx and returns the SQLSTATE, "" for success.
func (c *cluster) try(t *testing.T, user, password, options string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
	defer cancel()
	cfg, err := pgx.ParseConfig("postgres://" + user + "@" + c.addr + "/cleave?" + options)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Password = password
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		var pe *pgconn.PgError
		if errors.As(err, &pe) {
			return pe.Code
		}
		return err.Error()
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT 1"); err != nil {
		t.Error(err)
	}
	return ""
}

// psql runs one statement and returns what it prints, errors too.
func psql(t *testing.T, conninfo string, env []string, sql string) (string, error) {
	t.Helper()
	cmd := osexec.Command(pgtest.PSQL(t), "-X", "-A", "-t", "-v", "VERBOSITY=verbose", "-d", conninfo, "-c", sql)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "PGCONNECT_TIMEOUT=60", "HOME=" + t.TempDir(), "LC_ALL=C"}, env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestPasswordsAndTLS(t *testing.T) {
	a := newAuthority(t)
	var logged lockedBuffer
	cl := start(t, config{shards: 1, tls: a.server(""), auth: passwords, slow: time.Nanosecond, log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	addUser(t, cl, "bob", access.Ordinary)
	addUser(t, cl, "ops", access.Admin)
	addUser(t, cl, "web", access.Writer)

	verify := "sslmode=verify-full&sslrootcert=" + a.path("ca.crt")
	for _, c := range []struct{ name, user, password, options, want string }{
		{"plain", "bob", "bobbob", "sslmode=disable", ""},
		{"TLS", "bob", "bobbob", "sslmode=require", ""},
		{"verified", "bob", "bobbob", verify, ""},
		{"wrong password", "bob", "bobbo", verify, "28P01"},
		{"unknown user", "eve", "bobbob", verify, "28P01"},
		{"no password", "bob", "", "sslmode=disable", "28P01"},
	} {
		if got := cl.try(t, c.user, c.password, c.options); got != c.want {
			t.Errorf("%s: %s, want %q", c.name, got, c.want)
		}
	}

	host, port, _ := net.SplitHostPort(cl.addr)
	info := func(user, rest string) string {
		return fmt.Sprintf("host=%s port=%s dbname=cleave user=%s %s", host, port, user, rest)
	}
	pw := []string{"PGPASSWORD=bobbob"}
	for _, c := range []struct{ rest, want string }{
		{"sslmode=disable", ""},
		{"sslmode=require", ""},
		{"sslmode=verify-full sslrootcert=" + a.path("ca.crt"), ""},
		{"sslmode=verify-full channel_binding=require sslrootcert=" + a.path("ca.crt"), ""},
		{"sslmode=require channel_binding=require", ""},
		{"sslmode=require channel_binding=disable", ""},
		{"sslmode=disable channel_binding=require", "channel binding"},
		{"sslmode=require ssl_max_protocol_version=TLSv1.2", ""},
		{"sslmode=verify-full sslrootcert=" + a.path("server.crt"), "certificate verify failed"},
	} {
		out, err := psql(t, info("bob", c.rest), pw, "SELECT 42")
		if c.want == "" && (err != nil || out != "42") || c.want != "" && (err == nil || !strings.Contains(out, c.want)) {
			t.Errorf("psql %s: %v: %s", c.rest, err, out)
		}
	}
	// An unknown user and a wrong password look alike.
	wrong, _ := psql(t, info("bob", "sslmode=require"), []string{"PGPASSWORD=x"}, "SELECT 1")
	unknown, _ := psql(t, info("eve", "sslmode=require"), []string{"PGPASSWORD=x"}, "SELECT 1")
	if !strings.Contains(wrong, "password authentication failed") || strings.ReplaceAll(unknown, "eve", "bob") != wrong {
		t.Errorf("told apart:\n%s\n%s", wrong, unknown)
	}

	// Roles.
	ks := "SELECT cleave.create_keyspace('k', 'hash', 'bigint')"
	if out, err := psql(t, info("bob", "sslmode=require"), pw, ks); err == nil || !strings.Contains(out, "42501") {
		t.Errorf("an ordinary user made a keyspace: %s", out)
	}
	if out, err := psql(t, info("ops", "sslmode=require"), []string{"PGPASSWORD=opsops"}, ks); err != nil {
		t.Errorf("an administrator may not make a keyspace: %s", out)
	}
	web := []string{"PGPASSWORD=webweb"}
	for _, c := range []struct {
		who  string
		env  []string
		sql  string
		want string
	}{
		{"bob", pw, "CREATE TABLE things (id int PRIMARY KEY, n int)", ""},
		{"web", web, "INSERT INTO things VALUES (1, 1); UPDATE things SET n = 2; CREATE TEMP TABLE t AS SELECT * FROM things", ""},
		{"web", web, "DELETE FROM things WHERE n = 2", ""},
		{"web", web, "CREATE TABLE more (id int)", "42501"},
		{"web", web, "CREATE TABLE more AS SELECT 1", "42501"},
		{"web", web, "ALTER TABLE things ADD c int", "42501"},
		{"web", web, "TRUNCATE things", "42501"},
		{"web", web, "DROP TABLE things", "42501"},
		{"web", web, "GRANT ALL ON things TO PUBLIC", "42501"},
		{"web", web, "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "42501"},
		{"web", web, ks, "42501"},
		{"bob", pw, "DROP TABLE things", ""},
	} {
		out, err := psql(t, info(c.who, "sslmode=require"), c.env, c.sql)
		if (err == nil) != (c.want == "") || !strings.Contains(out, c.want) {
			t.Errorf("%s, %s: %v: %s", c.who, c.sql, err, out)
		}
	}
	if out, err := psql(t, info("bob", "sslmode=require"), pw, "SELECT * FROM cleave.users"); err == nil || !strings.Contains(out, "42501") {
		t.Errorf("an ordinary user reads cleave.users: %s", out)
	}
	out, err := psql(t, info("ops", "sslmode=require"), []string{"PGPASSWORD=opsops"}, "SELECT * FROM cleave.users ORDER BY 1")
	if err != nil || out != "bob|user\nops|admin\nweb|writer" {
		t.Errorf("cleave.users: %v: %s", err, out)
	}
	for _, secret := range []string{"bobbob", "opsops", "SCRAM-SHA-256$"} {
		if strings.Contains(logged.String(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}
}

// lockedBuffer is written to while it is read.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestRequiredTLSAndCertificates(t *testing.T) {
	a := newAuthority(t)
	a.issue("bob", "bob", time.Hour)
	a.issue("eve", "eve", time.Hour)
	a.issue("expired", "bob", -time.Hour)
	stranger := newAuthority(t)
	stranger.issue("bob", "bob", time.Hour)
	cl := start(t, config{shards: 1, tls: a.server("ca.crt"), tlsOnly: true,
		auth: func(u *access.Users) arrival.Authenticate { return arrival.Certificate(u, nil) }})
	addUser(t, cl, "bob", access.Admin)
	with := func(from *authority, name string) string {
		return "sslmode=require&sslcert=" + from.path(name+".crt") + "&sslkey=" + from.path(name+".key")
	}
	if got := cl.try(t, "bob", "", "sslmode=disable"); got != "28000" {
		t.Errorf("plaintext: %s", got)
	}
	if got := cl.try(t, "bob", "", with(a, "bob")); got != "" {
		t.Errorf("the right certificate: %s", got)
	}
	if got := cl.try(t, "bob", "", "sslmode=require"); got != "28000" {
		t.Errorf("no certificate: %s", got)
	}
	if got := cl.try(t, "bob", "", with(a, "eve")); got != "28000" {
		t.Errorf("another's certificate: %s", got)
	}
	if got := cl.try(t, "eve", "", with(a, "eve")); got != "28000" {
		t.Errorf("a certificate without a user: %s", got)
	}
	if got := cl.try(t, "bob", "", with(a, "expired")); !strings.Contains(got, "expired") {
		t.Errorf("an expired certificate: %s", got)
	}
	if got := cl.try(t, "bob", "", with(stranger, "bob")); got == "" || strings.HasPrefix(got, "28") {
		t.Errorf("a stranger's certificate: %s", got)
	}
}

func TestNetworksAreTrusted(t *testing.T) {
	cl := start(t, config{shards: 1, auth: func(u *access.Users) arrival.Authenticate {
		return arrival.Password(u, arrival.TrustNetworks([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}))
	}})
	if got := cl.try(t, "anybody", "", "sslmode=disable"); got != "" {
		t.Errorf("a client of a trusted network: %s", got)
	}
}

func TestCertificateIsRenewed(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", "router", -time.Hour) // expired
	files := arrival.TLSFiles{Certificate: a.path("server.crt"), Key: a.path("server.key")}
	s, err := arrival.LoadTLS(files)
	if err != nil {
		t.Fatal(err)
	}
	cl := start(t, config{shards: 1, tls: s, auth: passwords})
	addUser(t, cl, "bob", access.Ordinary)
	verify := "sslmode=verify-full&sslrootcert=" + a.path("ca.crt")
	if got := cl.try(t, "bob", "bobbob", verify); !strings.Contains(got, "expired") {
		t.Errorf("an expired certificate: %s", got)
	}
	// A session that runs keeps its connection over all that follows.
	conn := cl.connectAs(t, "bob", "bobbob", "sslmode=require")
	a.issue("server", "router", time.Hour)
	if err := os.WriteFile(a.path("server.key"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.Reload() == nil {
		t.Error("nonsense was taken for a key")
	}
	if got := cl.try(t, "bob", "bobbob", "sslmode=require"); got != "" {
		t.Errorf("after a failed reload: %s", got)
	}
	a.issue("server", "router", time.Hour)
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := cl.try(t, "bob", "bobbob", verify); got != "" {
		t.Errorf("after the renewal: %s", got)
	}
	if got := one[int](t, conn, "SELECT 7"); got != 7 {
		t.Error(got)
	}
	host, port, _ := net.SplitHostPort(cl.addr)
	if out, err := psql(t, fmt.Sprintf("host=%s port=%s dbname=cleave user=bob sslmode=require channel_binding=require", host, port), []string{"PGPASSWORD=bobbob"}, "SELECT 1"); err != nil {
		t.Error(out)
	}
	for _, bad := range []arrival.TLSFiles{{Certificate: a.path("none.crt"), Key: files.Key}, {Certificate: files.Certificate, Key: files.Certificate},
		{Certificate: files.Certificate, Key: files.Key, ClientCA: files.Key}} {
		if _, err := arrival.LoadTLS(bad); sqlstate.CodeOf(err) != sqlstate.ConfigFileError {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func (c *cluster) connectAs(t *testing.T, user, password, options string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig("postgres://" + user + "@" + c.addr + "/cleave?" + options)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Password = password
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestLifeOverTLS: what the lane and the watch do with plain sockets works
// without them: many statements, large results, cancels, clients that leave.
func TestLifeOverTLS(t *testing.T) {
	a := newAuthority(t)
	cl := start(t, config{shards: 2, tls: a.server(""), auth: passwords})
	addUser(t, cl, "bob", access.Admin)
	conn := cl.connectAs(t, "bob", "bobbob", "sslmode=require")
	exec(t, conn, ordersTable)
	for k := range 50 {
		exec(t, conn, "INSERT INTO orders VALUES ($1, 1, 'x')", k)
	}
	if n := one[int](t, conn, "SELECT sum(length(repeat('x', 1000) || i)) FROM generate_series(1, 10) i"); n == 0 {
		t.Error(n)
	}
	rows, err := conn.Query(context.Background(), "SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for rows.Next() {
		n++
	}
	if rows.Err() != nil || n != 5000 {
		t.Error(n, rows.Err())
	}
	// A cancel, encrypted as the session.
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT pg_sleep(600) /* cancelled */")
		done <- err
	}()
	active := func(shard int) string {
		return cl.direct(t, shard, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%/* cancelled */%' AND query NOT LIKE '%activity%' AND state = 'active'")
	}
	waitfor.True(t, "a shard runs the statement", func() bool { return active(0) == "1" || active(1) == "1" })
	if err := conn.PgConn().CancelRequest(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := codeOf(<-done); got != "57014" {
		t.Error(got)
	}
}

// TestClientLeavesTLS: a client that closes its connection, with the farewell of
// TLS, has its statement cancelled.
func TestClientLeavesTLS(t *testing.T) {
	a := newAuthority(t)
	cl := start(t, config{shards: 1, tls: a.server("")})
	nc, err := tls.Dial("tcp", cl.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"postgresql"}})
	if err != nil {
		t.Fatal(err)
	}
	front := pgproto3.NewFrontend(nc, nc)
	front.Send(&pgproto3.StartupMessage{ProtocolVersion: 196608, Parameters: map[string]string{"user": "x", "database": "cleave"}})
	front.Send(&pgproto3.Query{String: "SELECT pg_sleep(600) /* left */"})
	if err := front.Flush(); err != nil {
		t.Fatal(err)
	}
	running := "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%/* left */%' AND query NOT LIKE '%activity%' AND state = 'active'"
	waitfor.True(t, "the shard runs the statement", func() bool { return cl.direct(t, 0, running) == "1" })
	if err := nc.Close(); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the shard has ended the statement", func() bool { return cl.direct(t, 0, running) == "0" })
}

// TestDirectTLS: TLS at once, without asking.
func TestDirectTLS(t *testing.T) {
	a := newAuthority(t)
	cl := start(t, config{shards: 1, tls: a.server(""), tlsOnly: true})
	for _, protos := range [][]string{{"postgresql"}, nil} {
		nc, err := tls.Dial("tcp", cl.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: protos})
		if err != nil {
			t.Fatal(err)
		}
		front := pgproto3.NewFrontend(nc, nc)
		front.Send(&pgproto3.StartupMessage{ProtocolVersion: 196608, Parameters: map[string]string{"user": "x", "database": "cleave"}})
		err = front.Flush()
		if err == nil {
			_, err = front.Receive()
		}
		if (err == nil) != (protos != nil) {
			t.Errorf("ALPN %v: %v", protos, err)
		}
		_ = nc.Close()
	}
	// What is sent unencrypted behind the request is not taken for encrypted.
	nc, err := net.Dial("tcp", cl.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitfor.Max))
	request := []byte{0, 0, 0, 8, 4, 210, 22, 47}
	if _, err := nc.Write(append(request, "\x00\x00\x00\x08\x00\x03\x00\x00"...)); err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(nc)
	if len(got) == 0 || got[0] != 'S' || bytes.ContainsRune(got[1:], 'R') {
		t.Errorf("answered %q", got)
	}
}

// TestIdleAttacker: connections that say nothing, at any step, end by themselves
// and do not keep others out.
func TestIdleAttacker(t *testing.T) {
	a := newAuthority(t)
	cl := start(t, config{shards: 1, tls: a.server(""), auth: passwords, limits: gateway.Limits{StartupMax: 2 * time.Second}})
	addUser(t, cl, "bob", access.Ordinary)
	sent := [][]byte{nil, {0}, {0, 0, 0, 8, 4, 210, 22, 47}, {0x16, 3, 1}, append([]byte{0, 0, 0, 20, 0, 3, 0, 0}, "user\x00bob\x00\x00\x00"...)}
	sent[4][3] = byte(len(sent[4]) - 1)
	sent[4] = sent[4][:len(sent[4])-1]
	var conns []net.Conn
	for _, b := range sent {
		nc, err := net.Dial("tcp", cl.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, nc)
	}
	if got := cl.try(t, "bob", "bobbob", "sslmode=require"); got != "" {
		t.Errorf("kept out: %s", got)
	}
	for i, nc := range conns {
		_ = nc.SetReadDeadline(time.Now().Add(waitfor.Max))
		if _, err := io.ReadAll(nc); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d is still open", i)
		}
	}
}

// TestSASLMessages: answers that are no SASL end with an error, not with a fault.
func TestSASLMessages(t *testing.T) {
	cl := start(t, config{shards: 1, auth: passwords})
	addUser(t, cl, "bob", access.Ordinary)
	for _, answer := range []string{"", "\x00", "SCRAM-SHA-256\x00", "SCRAM-SHA-256\x00\xff\xff\xff\xff", "SCRAM-SHA-256\x00\x00\x00\x00\x03n,,",
		"SCRAM-SHA-256\x00\x00\x00\x00\x09n,,n=,r=x", "SCRAM-SHA-256-PLUS\x00\x00\x00\x00\x09n,,n=,r=x", "MD5\x00\x00\x00\x00\x00", "bobbob\x00"} {
		nc, err := net.Dial("tcp", cl.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(waitfor.Max))
		front := pgproto3.NewFrontend(nc, nc)
		front.Send(&pgproto3.StartupMessage{ProtocolVersion: 196608, Parameters: map[string]string{"user": "bob", "database": "cleave"}})
		if err := front.Flush(); err != nil {
			t.Fatal(err)
		}
		m, err := front.Receive()
		if sasl, ok := m.(*pgproto3.AuthenticationSASL); err != nil || !ok || len(sasl.AuthMechanisms) != 1 {
			t.Fatalf("%T %v", m, err)
		}
		frame := append([]byte{'p', 0, 0, 0, byte(4 + len(answer))}, answer...)
		if _, err := nc.Write(frame); err != nil {
			t.Fatal(err)
		}
		m, err = front.Receive()
		if _, ok := m.(*pgproto3.AuthenticationSASLContinue); ok && strings.HasSuffix(answer, "r=x") && strings.HasPrefix(answer, "SCRAM-SHA-256\x00") {
			if _, err := nc.Write([]byte("p\x00\x00\x00\x08c=,r")); err != nil {
				t.Fatal(err)
			}
			m, err = front.Receive()
		}
		if e, ok := m.(*pgproto3.ErrorResponse); err != nil || !ok || e.Code != "08P01" {
			t.Errorf("%q: %T %v", answer, m, err)
		}
		_ = nc.Close()
	}
}
