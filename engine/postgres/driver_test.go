package postgres_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestOpenRefusesAMalformedURL(t *testing.T) {
	for _, bad := range []string{"postgres://u:sesame@h:port/db", "postgres://u:sesame@h/%zz", "host=h password=sesame sslmode=never", "password='sesame", "://sesame"} {
		_, err := postgres.Driver{}.Open(engine.Config{Name: "s", URL: bad})
		if sqlstate.CodeOf(err) != sqlstate.ConfigFileError || sqlstate.As(err).Hint == "" {
			t.Errorf("%s: got %v", bad, err)
			continue
		}
		if strings.Contains(err.Error(), "sesame") {
			t.Errorf("the password is in %v", err)
		}
	}
}

func TestConnectErrors(t *testing.T) {
	// Reserved and closed again: nobody listens there.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	l.Close()
	// Accepts and says nothing.
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()

	server := pgtest.Server(t)
	admin := connect(t, installed(t, pgtest.Super(pgtest.Database(t))))
	do(t, admin, `CREATE ROLE locked LOGIN CONNECTION LIMIT 0`)
	defer do(t, admin, `DROP ROLE locked`)
	live := fmt.Sprintf("127.0.0.1:%d", server.Port())
	for name, c := range map[string]struct {
		url  string
		code sqlstate.Code
	}{
		"nobody listens": {"postgres://u:sesame@" + dead + "/db", sqlstate.CannotConnectNow},
		"says nothing":   {"postgres://u:sesame@" + mute.Addr().String() + "/db?sslmode=disable", sqlstate.CannotConnectNow},
		"no such socket": {"host=/nowhere user=u password=sesame dbname=db", sqlstate.CannotConnectNow},
		"no such name":   {"postgres://u:sesame@no-such-host.invalid/db", sqlstate.CannotConnectNow},
		"no database":    {server.URL("never_made"), sqlstate.InvalidCatalogName},
		"no role":        {"postgres://nobody_here:sesame@" + live + "/postgres?sslmode=disable", sqlstate.InvalidAuthorization},
		"no connections": {"postgres://locked:sesame@" + live + "/postgres?sslmode=disable", sqlstate.TooManyConnections},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := postgres.Driver{}.Open(engine.Config{Cluster: cluster, Name: "s", URL: c.url, ConnectTimeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, err = s.Connect(t.Context(), nil)
			e := sqlstate.As(err)
			if e.Code != c.code || e.Hint == "" || e.Shard != "s" {
				t.Errorf("got %v", err)
			}
			if strings.Contains(err.Error(), "sesame") {
				t.Errorf("the password is in %v", err)
			}
			if d := time.Since(start); d > 8*time.Second {
				t.Errorf("it took %v", d)
			}
			if _, err := s.Check(t.Context()); err == nil {
				t.Error("Check succeeds")
			}
		})
	}
}

func TestSCRAM(t *testing.T) {
	server := pgtest.NewServer(t, nil)
	s := installed(t, pgtest.Super(pgtest.DatabaseOn(t, server)))
	c := connect(t, s)
	do(t, c, `SET password_encryption = 'scram-sha-256'`, `CREATE ROLE keeper LOGIN SUPERUSER PASSWORD 'open sesame'`)
	hba := do(t, c, `SHOW hba_file`)
	if err := os.WriteFile(hba, []byte("local all keeper scram-sha-256\nhost all keeper 127.0.0.1/32 scram-sha-256\nlocal all all trust\nhost all all 127.0.0.1/32 trust\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	do(t, c, `SELECT pg_reload_conf()`)
	dsn := fmt.Sprintf("host=%s port=%d user=keeper password='open sesame' dbname=%s", server.SocketDir(), server.Port(), do(t, c, `SELECT current_database()`))
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) { // until the reload is done
		wrong, err := open(t, strings.Replace(dsn, "open sesame", "wrong", 1)).Connect(t.Context(), nil)
		if err != nil {
			if sqlstate.CodeOf(err) != sqlstate.InvalidPassword || strings.Contains(err.Error(), "wrong") {
				t.Fatalf("got %v", err)
			}
			break
		}
		wrong.Close()
		if time.Since(start) > 10*time.Second {
			t.Fatal("any password is taken")
		}
	}
	if got := do(t, connect(t, open(t, dsn)), `SELECT current_user`); got != "keeper" {
		t.Errorf("logged in as %s", got)
	}
	// The password of a file.
	file := filepath.Join(t.TempDir(), "pass")
	if err := os.WriteFile(file, []byte("*:*:*:keeper:open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	connect(t, open(t, strings.Replace(dsn, "password='open sesame'", "passfile="+file, 1)))
}

// slowQueryIsCancelled is what both TLS and unix sockets must be able to do.
func slowQueryIsCancelled(t *testing.T, c engine.Conn) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		time.Sleep(200 * time.Millisecond)
		failed <- c.Cancel(context.Background())
	}()
	refused(t, c, sqlstate.QueryCanceled, `SELECT pg_sleep(60)`)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	do(t, c, `SELECT 1`)
}

func TestUnixSocket(t *testing.T) {
	s := pgtest.Database(t)
	installed(t, s)
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	db := strings.TrimPrefix(u.Path, "/")
	c := connect(t, open(t, pgtest.Server(t).SocketURL(db)))
	slowQueryIsCancelled(t, c)
	if err := c.(engine.Prober).Probe(); err != nil {
		t.Fatal(err)
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shard"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, public, 0o644); err != nil {
		t.Fatal(err)
	}

	server := pgtest.NewServer(t, nil)
	plain := pgtest.DatabaseOn(t, server)
	c := connect(t, installed(t, pgtest.Super(plain)))
	// The server writes its own files: they must be its user's.
	for name, body := range map[string][]byte{"server.crt": public, "server.key": private} {
		do(t, c, fmt.Sprintf(`COPY (SELECT line FROM pg_catalog.unnest(string_to_array('%s', E'\n')) AS line) TO PROGRAM 'umask 077; cat > %s/%s'`,
			strings.TrimSpace(string(body)), server.DataDir(), name))
	}
	do(t, c, `ALTER SYSTEM SET ssl = on`, `SELECT pg_reload_conf()`)
	for start := time.Now(); do(t, c, `SHOW ssl`) != "on"; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the server does not take up ssl")
		}
	}
	secure := strings.Replace(plain, "sslmode=disable", "sslmode=verify-full&sslrootcert="+url.QueryEscape(ca), 1)
	var tls engine.Conn
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) { // the postmaster may be later
		if tls, err = open(t, secure).Connect(t.Context(), nil); err == nil {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal(err)
		}
	}
	defer tls.Close()
	if v := do(t, tls, `SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`); v != "t" {
		t.Fatalf("ssl is %s", v)
	}
	slowQueryIsCancelled(t, tls)
	if n := len(do(t, tls, `SELECT repeat('x', 3000000)`)); n != 3000000 {
		t.Errorf("%d bytes", n)
	}
}

func TestLostConnections(t *testing.T) {
	url := pgtest.Database(t)
	s := installed(t, url)
	killer := connect(t, installed(t, url))
	idle, busy := connect(t, s), connect(t, s)
	pid := do(t, idle, `SELECT pg_backend_pid()`)
	if err := idle.(engine.Prober).Probe(); err != nil {
		t.Fatal(err)
	}
	do(t, killer, `SELECT pg_terminate_backend(`+pid+`, 5000)`)
	probe := idle.(engine.Prober).Probe()
	if lost := engine.Lost(probe); lost == nil || lost.Sent {
		t.Fatalf("a dead conversation probes as %v", probe)
	}

	pid = do(t, busy, `SELECT pg_backend_pid()`)
	ended := make(chan error, 1)
	go func() {
		_, err := engine.Exec(busy, `SELECT pg_sleep(60)`)
		ended <- err
	}()
	time.Sleep(100 * time.Millisecond)
	do(t, killer, `SELECT pg_terminate_backend(`+pid+`, 5000)`)
	err := <-ended
	lost := engine.Lost(err)
	if lost == nil || !lost.Sent || !strings.Contains(err.Error(), "57P01") {
		t.Fatalf("got %v", err)
	}
	var e *sqlstate.Error
	if errors.As(err, &e) {
		t.Error("a broken conversation looks like a statement's error")
	}
	if c := lost.State(true).Code; c != sqlstate.TransactionUnknown {
		t.Errorf("in flight: %s", c)
	}
	if c := lost.State(false).Code; c != sqlstate.CannotConnectNow {
		t.Errorf("not in flight: %s", c)
	}

	// Who answers next is asked again: the database was exchanged meanwhile.
	pgtest.Ask(t, pgtest.Super(url), `UPDATE cleave_internal.shard SET name = 'shard-7'`)
	if _, err = s.Connect(t.Context(), nil); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Fatalf("got %v", err)
	}
	pgtest.Ask(t, pgtest.Super(url), `UPDATE cleave_internal.shard SET name = 'shard-0', format = 99`)
	if _, err = s.Connect(t.Context(), nil); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState || !strings.Contains(err.Error(), "format 99") {
		t.Fatalf("got %v", err)
	}
}

func TestServerRestart(t *testing.T) {
	server := pgtest.NewServer(t, nil)
	s := installed(t, pgtest.DatabaseOn(t, server))
	c := connect(t, s)
	server.Kill()
	_, err := engine.Exec(c, `SELECT 1`)
	if engine.Lost(err) == nil {
		t.Fatalf("got %v", err)
	}
	if _, err = s.Connect(t.Context(), nil); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || sqlstate.As(err).Retry != sqlstate.RetrySafe {
		t.Fatalf("got %v", err)
	}
}

func TestMessageLimit(t *testing.T) {
	url := pgtest.Database(t)
	installed(t, url)
	s, err := postgres.Driver{}.Open(engine.Config{Cluster: cluster, Name: "shard-0", URL: url, MessageMax: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, s)
	if n := len(do(t, c, `SELECT repeat('x', 1000000)`)); n != 1000000 {
		t.Errorf("%d bytes", n)
	}
	if _, err := engine.Exec(c, `SELECT repeat('x', 2000000)`); !errors.Is(err, wire.ErrTooLarge) || engine.Lost(err) == nil {
		t.Errorf("got %v", err)
	}
}

// TestNothingIsLostAtTakeOver: a server may speak right after the handshake.
func TestNothingIsLostAtTakeOver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			nc, err := l.Accept()
			if err != nil {
				return err
			}
			defer nc.Close()
			buf := make([]byte, 1024)
			if _, err := nc.Read(buf); err != nil {
				return err
			}
			out := []byte{'R', 0, 0, 0, 8, 0, 0, 0, 0}
			out = wire.AppendParameterStatus(out, "server_version", "15.0")
			out = append(out, 'K', 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 2)
			out = wire.AppendReadyForQuery(out, 'I')
			out = wire.AppendParameterStatus(out, "application_name", "late")
			out = append(out, 'N', 0, 0) // and a part of a notice
			if _, err := nc.Write(out); err != nil {
				return err
			}
			time.Sleep(100 * time.Millisecond)
			_, err = nc.Write([]byte{0, 5, 0})
			_, _ = nc.Read(buf)
			return err
		}()
	}()
	s, err := postgres.Driver{}.Open(engine.Config{Name: "s", URL: "postgres://u@" + l.Addr().String() + "/db?sslmode=disable"})
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, s)
	if err := c.(engine.Prober).Probe(); err == nil {
		t.Error("Probe does not see what is buffered")
	}
	var got []byte
	for len(got) < 31 {
		b, err := c.Receive()
		if err != nil {
			t.Fatalf("after %x: %v", got, err)
		}
		got = append(got, b...)
	}
	want := append(wire.AppendParameterStatus(nil, "application_name", "late"), 'N', 0, 0, 0, 5, 0)
	if string(got) != string(want) {
		t.Errorf("got %x, want %x", got, want)
	}
	c.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestCanPrepareIsKept: a conversation that breaks says nothing of another one, which cannot always
// ask: here its transaction has failed.
func TestCanPrepareIsKept(t *testing.T) {
	sh := installed(t, pgtest.Database(t))
	c, broken := connect(t, sh), connect(t, sh)
	for conn, sql := range map[engine.Conn]string{c: "BEGIN; SELECT 1 / 0", broken: "SELECT pg_terminate_backend(pg_backend_pid())"} {
		if _, err := engine.Exec(conn, sql); err == nil {
			t.Fatalf("%s succeeded", sql)
		}
	}
	if !c.(engine.TwoPhase).CanPrepare() {
		t.Error("CanPrepare is false where it can")
	}
}

func TestCheckFindings(t *testing.T) {
	server := pgtest.NewServer(t, map[string]string{
		"max_prepared_transactions": "0", "wal_level": "replica", "max_connections": "15", "timezone": "Europe/Prague",
		"max_wal_senders": "0", "max_replication_slots": "0",
	})
	admin := installed(t, pgtest.Super(pgtest.DatabaseOn(t, server)))
	c := connect(t, admin)
	if c.(engine.TwoPhase).CanPrepare() {
		t.Error("CanPrepare with max_prepared_transactions = 0")
	}
	do(t, c, `CREATE DATABASE latin ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`,
		`ALTER DATABASE latin SET default_transaction_read_only = on`, `ALTER DATABASE latin SET standard_conforming_strings = off`,
		`CREATE ROLE poor LOGIN`)
	rep, err := open(t, fmt.Sprintf("postgres://poor@127.0.0.1:%d/latin?sslmode=disable", server.Port())).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range rep.Findings {
		got[f.Name] = f.Level
		if f.Level != "ok" && (f.Want == "" || f.Fix == "") {
			t.Errorf("no fix in %+v", f)
		}
	}
	for name, level := range map[string]string{
		"version": "ok", "primary": "ok", "default_transaction_read_only": "error", "server_encoding": "error", "standard_conforming_strings": "error",
		"privilege CREATE on the database": "error", "language plpgsql": "ok", "max_connections": "warning", "max_prepared_transactions": "warning",
		"wal_level": "warning", "timezone": "warning", "cluster": "ok",
	} {
		if got[name] != level {
			t.Errorf("%s is %q, want %q", name, got[name], level)
		}
	}
	if err := open(t, fmt.Sprintf("postgres://poor@127.0.0.1:%d/latin?sslmode=disable", server.Port())).Install(t.Context()); err == nil {
		t.Error("installed without a privilege")
	}
	if !connect(t, installed(t, pgtest.Database(t))).(engine.TwoPhase).CanPrepare() {
		t.Error("CanPrepare is false where it can")
	}
}

// A table reads the same with quote_all_identifiers, which stays as the session has it.
func TestDescribeQuoted(t *testing.T) {
	s := installed(t, pgtest.Super(pgtest.Database(t)))
	c := connect(t, s)
	do(t, c, `CREATE TABLE t (id serial PRIMARY KEY, "select" text DEFAULT 'x'::text)`)
	want, err := c.DescribeTable(t.Context(), "public", "t")
	if err != nil {
		t.Fatal(err)
	}
	if d := want.Columns[0].Default; d != "nextval('t_id_seq'::regclass)" {
		t.Fatalf("default: %s", d)
	}
	do(t, c, `SET quote_all_identifiers = on`)
	for _, before := range []string{`SELECT 1`, `BEGIN`} {
		do(t, c, before)
		got, err := c.DescribeTable(t.Context(), "public", "t")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("after %s: %+v, want %+v", before, got, want)
		}
		res, err := engine.Exec(c, `SHOW quote_all_identifiers`)
		if err != nil || res.Rows[0][0].String != "on" {
			t.Errorf("after %s: %+v, %v", before, res, err)
		}
	}
}

func TestDescribeEverything(t *testing.T) {
	s := installed(t, pgtest.Super(pgtest.Database(t)))
	c := connect(t, s)
	do(t, c, `CREATE SCHEMA "Other Schema"`, `CREATE TYPE "Other Schema".mood AS ENUM ('a')`, `CREATE DOMAIN pos AS integer CHECK (VALUE > 0)`,
		`CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
		`CREATE EXTENSION IF NOT EXISTS plpgsql`,
		`CREATE TABLE t (
			id bigint GENERATED ALWAYS AS IDENTITY, m "Other Schema".mood, ms "Other Schema".mood[], p pos, ps pos[],
			ci text COLLATE ci, n numeric(10, 2), g text GENERATED ALWAYS AS ('x' || 'y') STORED, s serial, r int4range, "a.b" "char",
			EXCLUDE USING gist (r WITH &&), PRIMARY KEY (id) INCLUDE (n))`,
		`CREATE UNIQUE INDEX expr ON t ((s + 1), n)`, `CREATE UNIQUE INDEX partial ON t (n) WHERE n > 5`, `CREATE TABLE kid () INHERITS (t)`,
		`CREATE TABLE parts (k int) PARTITION BY LIST (k)`, `CREATE TABLE part1 PARTITION OF parts FOR VALUES IN (1)`)
	for _, path := range []string{`public`, `"Other Schema", public`, `pg_temp`} {
		do(t, c, `SET search_path = `+path)
		tab, err := c.DescribeTable(t.Context(), "public", "t")
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, col := range tab.Columns {
			types = append(types, col.Type)
		}
		want := `bigint,"Other Schema".mood,"Other Schema".mood[],public.pos,public.pos[],text,numeric(10,2),text,integer,int4range,"char"`
		if got := strings.Join(types, ","); got != want {
			t.Errorf("under %s: %s", path, got)
		}
		if !tab.Columns[0].Identity || tab.Columns[5].Deterministic || !tab.Columns[7].Generated || tab.Columns[7].Default != "" ||
			!strings.Contains(tab.Columns[8].Default, "nextval") || !tab.Inherits || tab.Partitioned {
			t.Errorf("%+v", tab)
		}
		got := fmt.Sprint(tab.Unique)
		if want := `[{t_pkey [id] true} {expr [ n] false} {partial [n] false} {t_r_excl [r] false}]`; got != want {
			t.Errorf("unique: %s", got)
		}
	}
	do(t, c, `RESET search_path`)
	for name, want := range map[string][2]bool{"kid": {false, true}, "parts": {true, false}, "part1": {false, true}} {
		tab, err := c.DescribeTable(t.Context(), "public", name)
		if err != nil || tab.Partitioned != want[0] || name != "parts" && tab.Inherits != want[1] {
			t.Errorf("%s: %+v, %v", name, tab, err)
		}
	}
	// Rows that row level security hides count as rows.
	do(t, c, `CREATE ROLE `+"hidden_owner", `GRANT ALL ON SCHEMA public TO hidden_owner`, `SET ROLE hidden_owner`,
		`CREATE TABLE secret (k int)`, `INSERT INTO secret VALUES (1)`, `ALTER TABLE secret ENABLE ROW LEVEL SECURITY`, `ALTER TABLE secret FORCE ROW LEVEL SECURITY`)
	tab, err := c.DescribeTable(t.Context(), "public", "secret")
	if err != nil || !tab.HasRows {
		t.Errorf("%+v, %v", tab, err)
	}
	do(t, c, `RESET ROLE`, `DROP OWNED BY hidden_owner`, `DROP ROLE hidden_owner`)
}
