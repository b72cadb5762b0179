package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/gateway/arrival"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// people is a PostgreSQL server that knows its users by SCRAM, and one database of
// role keeper, which is no superuser, for each shard.
func people(t *testing.T, shards int) (s *localpg.Server, urls []string) {
	t.Helper()
	s = pgtest.NewServer(t, nil)
	path := filepath.Join(s.DataDir(), "pg_hba.conf")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	hba := fmt.Sprintf("local all %[1]s trust\nhost all %[1]s 127.0.0.1/32 trust\nhost all anybody 127.0.0.1/32 trust\nhost all plain 127.0.0.1/32 password\nhost all all 127.0.0.1/32 scram-sha-256\n", s.User()+","+localpg.Superuser)
	if err := os.WriteFile(path, []byte(hba), 0o600); err != nil {
		t.Fatal(err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, s, "CREATE ROLE keeper LOGIN PASSWORD 'keeper-pw'")
	for _, name := range []string{"bob", "eve", "dba", "stranger", "anybody", "plain"} {
		ask(t, s, "CREATE ROLE "+name+" LOGIN PASSWORD '"+name+"-secret'")
	}
	ask(t, s, "CREATE ROLE root SUPERUSER LOGIN PASSWORD 'root-secret'")
	ask(t, s, "CREATE ROLE cleave_admin")
	ask(t, s, "GRANT cleave_admin TO dba")
	ask(t, s, "GRANT bob, eve, anybody, plain TO keeper")
	ask(t, s, "SELECT pg_reload_conf()")
	for range shards {
		urls = append(urls, fmt.Sprintf("postgres://keeper:keeper-pw@127.0.0.1:%d/%s?sslmode=disable", s.Port(), ownedDatabase(t, s, "keeper")))
	}
	waitfor.True(t, "the server asks for passwords", func() bool {
		c, err := pgconn.Connect(context.Background(), strings.Replace(urls[0], "keeper-pw", "wrong", 1))
		if err == nil {
			_ = c.Close(context.Background())
		}
		return err != nil
	})
	return s, urls
}

// ask runs a statement as the server's superuser.
func ask(t *testing.T, s *localpg.Server, sql string) {
	t.Helper()
	pgtest.Ask(t, s.SuperuserURL("postgres"), sql)
}

// as connects as a user of the server's.
func (c *cluster) as(t *testing.T, user, password string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://%s:%s@%s/cleave?sslmode=disable", user, password, c.addr))
	if err != nil {
		t.Fatalf("%s: %v", user, err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func message(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code + " " + pe.Message
	}
	return fmt.Sprint(err)
}

// TestPassThrough: users whom the shards know, with what they may do there.
func TestPassThrough(t *testing.T) {
	server, urls := people(t, 4)
	t.Run("pool", func(t *testing.T) { usersShareAPool(t, urls[3]) })
	urls = urls[:3]
	a := newAuthority(t)
	var logged lockedBuffer
	cl := start(t, config{urls: urls, shards: 3, tls: a.server(""), passThrough: true, slow: time.Nanosecond,
		log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	ctx := context.Background()

	// Administrators make the schema, and say who may do what.
	dba := cl.as(t, "dba", "dba-secret")
	exec(t, dba, ordersTable)
	exec(t, dba, "CREATE TABLE secrets (tenant_id bigint, id bigint, open text, closed text, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')")
	exec(t, dba, "GRANT SELECT, INSERT, UPDATE ON orders TO bob")
	exec(t, dba, "GRANT SELECT (tenant_id, id, open) ON secrets TO eve")
	exec(t, dba, "CREATE TABLE kinds (id int PRIMARY KEY, name text) WITH (cleave.reference = true)")
	exec(t, dba, "CREATE TABLE items (tenant_id bigint, id bigserial, at timestamptz DEFAULT now(), kind int REFERENCES kinds, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')")
	exec(t, dba, "GRANT ALL ON kinds, items TO bob")
	exec(t, dba, "CREATE VIEW shown AS SELECT tenant_id, id, note FROM orders")
	if got := one[string](t, dba, "SELECT current_user"); got != "keeper" {
		t.Errorf("an administrator's statements run as %s", got)
	}
	keys := cl.keys(t)
	for _, k := range keys {
		exec(t, dba, "INSERT INTO secrets VALUES ($1, 1, 'open', 'closed')", k[0])
	}
	root := cl.as(t, "root", "root-secret")
	exec(t, root, "SELECT cleave.create_keyspace('other', 'hash', 'bigint')")

	t.Run("signals", func(t *testing.T) { usersSignal(t, server, cl) })

	// Who gets in.
	for _, c := range []struct{ user, password, want string }{
		{"bob", "bob-secret", ""},
		{"bob", "eve-secret", "28P01"},
		{"bob", "", "28P01"},
		{"nobody", "nobody-secret", "28P01"},
		{"anybody", "anybody-secret", "28000"}, // pg_hba.conf does not ask for the password
		{"plain", "plain-secret", "28000"},     // nor shall the server read it
		{"stranger", "stranger-secret", "28000"},
	} {
		for _, mode := range []string{"sslmode=disable", "sslmode=verify-full&sslrootcert=" + a.path("ca.crt")} {
			if got := cl.try(t, c.user, c.password, mode); got != c.want {
				t.Errorf("%s with %s, %s: %q, want %q", c.user, c.password, mode, got, c.want)
			}
		}
	}
	host, port, _ := net.SplitHostPort(cl.addr)
	info := fmt.Sprintf("host=%s port=%s dbname=cleave sslmode=require user=", host, port)
	out, err := psql(t, info+"bob", []string{"PGPASSWORD=bob-secret"}, "SELECT current_user, session_user")
	if err != nil || out != "bob|bob" {
		t.Errorf("psql: %v: %s", err, out)
	}
	wrong, _ := psql(t, info+"bob", []string{"PGPASSWORD=x"}, "SELECT 1")
	unknown, _ := psql(t, info+"nob", []string{"PGPASSWORD=x"}, "SELECT 1")
	if !strings.Contains(wrong, "password authentication failed") || strings.ReplaceAll(unknown, "nob", "bob") != wrong {
		t.Errorf("told apart:\n%s\n%s", wrong, unknown)
	}

	// What they may do, on one shard and on several.
	bob, eve := cl.as(t, "bob", "bob-secret"), cl.as(t, "eve", "eve-secret")
	for _, k := range keys {
		exec(t, bob, "INSERT INTO orders VALUES ($1, 1, current_user)", k[0])
		if got := one[string](t, bob, "SELECT note || session_user FROM orders WHERE tenant_id = $1", k[0]); got != "bobbob" {
			t.Errorf("on a shard bob is %s", got)
		}
	}
	if got := one[string](t, bob, "SELECT string_agg(DISTINCT note || current_user, ',') FROM orders"); got != "bobbob" {
		t.Errorf("on the shards bob is %s", got)
	}
	if got := one[int](t, bob, "SELECT count(*) FROM orders a JOIN orders b ON a.id = b.id"); got != 9 {
		t.Errorf("a gather of bob's has %d rows", got)
	}
	for _, c := range []struct {
		conn      *pgx.Conn
		sql, want string
	}{
		{bob, fmt.Sprintf("DELETE FROM orders WHERE tenant_id = %d", keys[0][0]), "42501 permission denied for table orders"},
		{bob, "DELETE FROM orders", "42501 permission denied for table orders"},
		{bob, "SELECT * FROM secrets", "42501 permission denied for table secrets"},
		{bob, "SELECT count(*) FROM orders o JOIN secrets s ON s.id = o.id", "42501 permission denied for table secrets"},
		{bob, "SELECT * FROM shown", "0A000 a view over sharded or reference tables"},
		{bob, fmt.Sprintf("SELECT note FROM shown WHERE tenant_id = %d", keys[0][0]), "0A000 a view over sharded or reference tables"},
		{bob, "CREATE TABLE mine (i int)", "42501 permission denied for CREATE TABLE"},
		{bob, "DROP TABLE orders", "42501 permission denied for DROP TABLE"},
		{bob, "CREATE TABLE copied AS SELECT * FROM orders", ""},
		{bob, "GRANT ALL ON orders TO bob", ""},
		{bob, "SELECT cleave.create_keyspace('k', 'hash', 'bigint')", "42501 permission denied for function cleave.create_keyspace"},
		{bob, "SET ROLE keeper", "42501 "},
		{eve, "SELECT closed FROM secrets", "42501 permission denied for table secrets"},
		{eve, fmt.Sprintf("SELECT closed FROM secrets WHERE tenant_id = %d", keys[1][0]), "42501 permission denied for table secrets"},
		{eve, "SELECT a.open FROM secrets a JOIN secrets b ON a.closed = b.closed", "42501 permission denied for table secrets"},
		{eve, "INSERT INTO orders VALUES (1, 2, 'x')", "42501 permission denied for table orders"},
		{eve, "COPY secrets TO STDOUT", "42501 permission denied for table secrets"},
	} {
		if c.want == "" {
			c.want = "42501 permission denied"
		}
		if _, err := c.conn.Exec(ctx, c.sql); !strings.HasPrefix(message(err), c.want) {
			t.Errorf("%s: %s, want %s", c.sql, message(err), c.want)
		}
	}
	if got := one[int](t, eve, "SELECT count(*) FROM secrets a JOIN secrets b ON a.open = b.open"); got != 9 {
		t.Errorf("eve sees %d rows", got)
	}
	exec(t, bob, "CREATE TEMP TABLE t (i int)")
	exec(t, bob, "INSERT INTO t VALUES (1)")
	if got := one[string](t, bob, "SELECT tableowner FROM pg_tables WHERE tablename = 't'"); got != "bob" {
		t.Errorf("bob's temporary table is %s's", got)
	}

	// Writes of all kinds.
	exec(t, bob, "INSERT INTO kinds VALUES (1, 'one'), (2, 'two')")
	exec(t, bob, "UPDATE kinds SET name = 'zwei' WHERE id = 2")
	wantCode(t, eve, "42501", "UPDATE kinds SET name = 'x'")
	for _, k := range keys {
		exec(t, bob, "INSERT INTO items (tenant_id, kind) VALUES ($1, 1)", k[0])
	}
	exec(t, bob, fmt.Sprintf("INSERT INTO items (tenant_id, kind) VALUES (%d, 2), (%d, 2), (%d, 2)", keys[0][1], keys[1][1], keys[2][1]))
	exec(t, bob, "INSERT INTO items (tenant_id, id, kind) SELECT tenant_id, id + 1000000000000000, kind FROM items")
	if _, err := bob.CopyFrom(ctx, pgx.Identifier{"items"}, []string{"tenant_id", "kind"}, pgx.CopyFromRows([][]any{{keys[0][2], 1}, {keys[1][2], 2}})); err != nil {
		t.Error(err)
	}
	exec(t, bob, "UPDATE items SET tenant_id = $1 WHERE tenant_id = $2", keys[2][5], keys[0][0])
	if got := one[string](t, bob, "SELECT count(*) || ' ' || count(DISTINCT i.id) || ' ' || string_agg(DISTINCT k.name, ',') FROM items i JOIN kinds k ON k.id = i.kind"); got != "14 14 one,zwei" {
		t.Errorf("bob's items: %s", got)
	}
	wantCode(t, bob, "42501", "SELECT * FROM cleave_internal.transaction")
	for _, sql := range []string{"SET search_path = public, cleave_internal", "SET LOCAL search_path = \"cleave_internal\"", "SELECT set_config('search_path', 'public, cleave_internal', false)"} {
		wantCode(t, bob, "42501", sql)
	}
	exec(t, bob, "SELECT set_config('search_path', 'elsewhere, public', false)")
	if got := one[int](t, bob, "SELECT count(*) FROM kinds"); got != 2 {
		t.Errorf("with a search_path of two schemas: %d rows", got)
	}
	exec(t, bob, "RESET search_path")
	if got := cl.try(t, "bob", "bob-secret", "sslmode=disable&search_path=public,cleave_internal"); got != "42501" {
		t.Errorf("search_path of a startup packet: %q", got)
	}
	exec(t, bob, "SELECT pg_advisory_lock(1)")
	exec(t, bob, "DISCARD ALL")
	if got := one[string](t, bob, "SELECT current_user"); got != "bob" {
		t.Errorf("after DISCARD ALL bob is %s", got)
	}
	exec(t, bob, "SET cleave.read_consistency = 'atomic'")
	if got := one[int](t, bob, "SELECT count(*) FROM orders"); got != 3 {
		t.Errorf("an atomic read has %d rows", got)
	}
	exec(t, bob, "RESET ALL")

	// A transaction over several shards, all or nothing.
	exec(t, bob, "BEGIN")
	for _, k := range keys {
		exec(t, bob, "INSERT INTO orders VALUES ($1, 2, 'several')", k[0])
	}
	exec(t, bob, "COMMIT")
	exec(t, bob, "BEGIN")
	exec(t, bob, "INSERT INTO orders VALUES ($1, 3, 'never')", keys[0][0])
	wantCode(t, bob, "42501", "DELETE FROM orders WHERE tenant_id = $1", keys[1][0])
	if got := exec(t, bob, "COMMIT").String(); got != "ROLLBACK" {
		t.Errorf("COMMIT after an error: %s", got)
	}
	if got := one[string](t, bob, "SELECT string_agg(note || ' ' || id, ', ' ORDER BY id, tenant_id) FROM orders WHERE id > 1"); got != "several 2, several 2, several 2" {
		t.Errorf("after the transactions: %s", got)
	}

	// What a router left prepared for bob, another finishes as him.
	cluster := cl.ex.Snapshot().State().Cluster
	short, _, _ := strings.Cut(cluster, "-")
	id := strings.Repeat("ab", 16)
	direct, err := pgx.Connect(ctx, strings.Replace(urls[1], "keeper:keeper-pw", "bob:bob-secret", 1))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, direct, fmt.Sprintf("BEGIN; INSERT INTO orders VALUES (%d, 4, 'left'); INSERT INTO cleave_internal.transaction (id, shards) VALUES ('%s', '{shard-0,shard-1}'); PREPARE TRANSACTION 'cleave_%s_%s_1_shard-0'",
		keys[1][0], id, short, id))
	_ = direct.Close(ctx)
	found, unreached, err := txn.Recovery{Directory: cl.dir, Connect: cl.ex.Connect}.Settle(ctx)
	if err != nil || len(unreached) != 0 || len(found) != 1 || found[0].State != "rolled back" || found[0].Err != nil {
		t.Errorf("what bob left: %+v, %v, %v", found, unreached, err)
	}

	// What PostgreSQL has for a role holds.
	ask(t, server, "ALTER ROLE eve SET timezone = 'Asia/Tokyo'")
	ask(t, server, "ALTER ROLE eve SET search_path = elsewhere, public")
	eve = cl.as(t, "eve", "eve-secret")
	for _, c := range []struct{ sql, want string }{{"SHOW timezone", "Asia/Tokyo"}, {"SHOW search_path", `elsewhere, public`}} {
		if got := one[string](t, eve, c.sql); got != c.want {
			t.Errorf("%s: %s, want %s", c.sql, got, c.want)
		}
	}
	for _, k := range keys {
		if got := one[string](t, eve, "SELECT current_setting('timezone') FROM secrets WHERE tenant_id = $1", k[0]); got != "Asia/Tokyo" {
			t.Errorf("on a shard eve's time zone is %s", got)
		}
	}

	// Another password.
	old := cl.as(t, "bob", "bob-secret")
	exec(t, old, "SELECT count(*) FROM orders")
	ask(t, server, "ALTER ROLE bob PASSWORD 'second-secret'")
	if got := cl.try(t, "bob", "bob-secret", "sslmode=disable"); got != "28P01" {
		t.Errorf("the old password: %q", got)
	}
	if got := cl.try(t, "bob", "second-secret", "sslmode=disable"); got != "" {
		t.Errorf("the new password: %q", got)
	}
	waitfor.True(t, "the old password is refused", func() bool { return code(old, "SELECT count(*) FROM orders") == "28P01" })
	bob = cl.as(t, "bob", "second-secret")
	exec(t, bob, "SELECT count(*) FROM orders")

	for _, secret := range []string{"bob-secret", "second-secret", "eve-secret", "dba-secret", "root-secret", "keeper-pw"} {
		if strings.Contains(logged.String(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}
}

// usersShareAPool: connections of all users together are bounded, and nobody
// runs on another's.
func usersShareAPool(t *testing.T, url string) {
	limits := executor.Limits{PoolMax: 2, PoolWait: time.Minute, Lanes: 1}
	cl := start(t, config{urls: []string{url}, shards: 1, passThrough: true, executor: limits})
	var all sync.WaitGroup
	for i, user := range []string{"bob", "eve", "dba", "bob", "eve", "dba"} {
		conn := cl.as(t, user, user+"-secret")
		want := user
		if user == "dba" {
			want = "keeper"
		}
		all.Go(func() {
			for n := range 40 {
				var got string
				var open int
				err := conn.QueryRow(context.Background(), "SELECT session_user, (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend')").Scan(&got, &open)
				if err != nil || got != want {
					t.Errorf("session %d of %s: %q, %v", i, user, got, err)
					return
				}
				// Those that are being closed are still seen for a moment.
				if open > 2*limits.PoolMax+6 {
					t.Errorf("%d connections", open)
				}
				if n%10 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	all.Wait()
}

// TestPasswordsNeedAChannel: over a network nobody is asked for a password in
// clear text without TLS.
func TestPasswordsNeedAChannel(t *testing.T) {
	auth := arrival.PassThrough(nil, nil)
	asked := errors.New("asked")
	ask := func(uint32, []byte, bool) ([]byte, error) { return nil, asked }
	far, near := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	for _, c := range []struct {
		start arrival.Startup
		asks  bool
	}{
		{arrival.Startup{User: "bob", Remote: far}, false},
		{arrival.Startup{User: "bob", Remote: far, Channel: arrival.Channel{TLS: true}}, true},
		{arrival.Startup{User: "bob", Remote: near}, true},
		{arrival.Startup{User: "bob", Remote: &net.UnixAddr{Name: "/tmp/s", Net: "unix"}}, true},
	} {
		_, err := auth(context.Background(), c.start, ask)
		if errors.Is(err, asked) != c.asks {
			t.Errorf("%v, TLS %v: %v", c.start.Remote, c.start.Channel.TLS, err)
		}
		if !c.asks && !strings.Contains(fmt.Sprint(err), "encrypted") {
			t.Errorf("the refusal says: %v", err)
		}
	}
}

// usersSignal: who may end whose sessions is as in PostgreSQL: one's own, those of roles one is a member of, all but an
// administrator's as a member of pg_signal_backend.
func usersSignal(t *testing.T, server *localpg.Server, cl *cluster) {
	bob := cl.as(t, "bob", "bob-secret")
	end := func(user, want string) {
		t.Helper()
		victim := cl.as(t, user, user+"-secret")
		var done bool
		err := bob.QueryRow(context.Background(), "SELECT pg_terminate_backend($1, 10000)", int32(victim.PgConn().PID())).Scan(&done)
		if want == "" && (err != nil || !done) || want != "" && !strings.HasPrefix(message(err), want) {
			t.Errorf("bob ends %s: %v %v", user, done, err)
		}
		if want == "" {
			ended(t, victim)
		}
	}
	end("bob", "")
	end("eve", "42501 must be a member of the role")
	ask(t, server, "GRANT eve TO bob")
	end("eve", "")
	ask(t, server, "REVOKE eve FROM bob")
	end("eve", "42501")
	ask(t, server, "GRANT pg_signal_backend TO bob")
	end("eve", "")
	end("dba", "42501 must be a superuser")
	ask(t, server, "REVOKE pg_signal_backend FROM bob")
}
