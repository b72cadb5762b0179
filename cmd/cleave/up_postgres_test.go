package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
)

type shardInfo struct{ Name, Engine, URL, Health string }

func (r *running) shards() map[string]shardInfo {
	r.t.Helper()
	var list []shardInfo
	r.into(&list, "shard", "list")
	out := map[string]shardInfo{}
	for _, s := range list {
		out[s.Name] = s
	}
	return out
}

// owner returns the shard of a tenant.
func (r *running) owner(tenant int) string {
	r.t.Helper()
	var o struct{ Shard string }
	r.into(&o, "shard-of", "hash_bigint", strconv.Itoa(tenant))
	return o.Shard
}

// TestUpPostgres walks the life of a cluster on private servers.
func TestUpPostgres(t *testing.T) {
	psql := pgtest.PSQL(t) // installs PostgreSQL where it is missing
	data := filepath.Join(pgtest.Dir(t), "data")
	r := start(t, "up", "--engine", "postgres", "--servers", "2", "--data", data)
	if r.Shards != 4 || r.Engine != "postgres" {
		t.Errorf("banner %+v", r)
	}
	c := r.session()
	execAll(t, c, createOrders)
	insert(t, c, 40)
	check(t, c, 40)

	// Each row is on the shard that the map names, and nowhere else.
	shards := r.shards()
	direct := map[string]*pgx.Conn{}
	for name, s := range shards {
		direct[name] = session(t, s.URL)
		if db := one[string](t, direct[name], "SELECT current_database()"); db != name || s.Engine != "postgres" || s.Health != "up" {
			t.Errorf("%+v is in database %s", s, db)
		}
		if out, err := runProgram(t, "", psql, "-X", "-At", "-c", "SELECT 1", s.URL); err != nil || strings.TrimSpace(out) != "1" {
			t.Errorf("psql %s: %v\n%s", s.URL, err, out)
		}
		// Others on this machine cannot read the file with the password.
		if conn, err := pgx.Connect(t.Context(), strings.Replace(s.URL, "passfile=", "application_name=", 1)); sqlState(err) != "28P01" && !strings.Contains(fmt.Sprint(err), "SASL") {
			if err == nil {
				_ = conn.Close(t.Context())
			}
			t.Errorf("without the password: %v", err)
		}
	}
	// The shards' role has no right beyond its need, and doctor has nothing to say.
	if code, out, _ := r.cleave("", "doctor"); code != 0 || strings.Contains(out, "warning") {
		t.Errorf("doctor: %s", out)
	}
	if got := one[bool](t, direct["shard-0"], "SELECT rolsuper OR rolreplication OR rolcreaterole OR rolcreatedb OR rolbypassrls FROM pg_roles WHERE rolname = session_user"); got {
		t.Error("the shards' role is more than it has to be")
	}
	used := map[string]bool{}
	for tenant := 1; tenant <= 40; tenant++ {
		owner := r.owner(tenant)
		used[owner] = true
		for name, d := range direct {
			want := int64(0)
			if name == owner {
				want = 1
			}
			if n := one[int64](t, d, fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", tenant)); n != want {
				t.Errorf("tenant %d of %s: %d rows on %s", tenant, owner, n, name)
			}
		}
	}
	if len(used) != 4 {
		t.Errorf("40 tenants are on %v only", used)
	}
	// A write past the router to the wrong shard is refused by the shard.
	for name, d := range direct {
		if name != r.owner(1) {
			_, err := d.Exec(t.Context(), "INSERT INTO orders VALUES (1, 99, 'lost')")
			if sqlState(err) != "ZC001" {
				t.Errorf("%s took a row that it does not own: %v", name, err)
			}
		}
	}

	// The servers answer on loopback TCP as well.
	port0 := one[string](t, direct["shard-0"], "SHOW port")
	tcp := session(t, "postgres://cleave@127.0.0.1:"+port0+"/shard-0?sslmode=disable&passfile="+filepath.Join(data, "postgres.pass"))
	// Statements are short, and compiling one takes longer than it does.
	for setting, want := range map[string]string{"jit": "off", "wal_level": "logical", "max_prepared_transactions": "64", "listen_addresses": "127.0.0.1"} {
		if got := one[string](t, tcp, "SHOW "+setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
	port1 := one[string](t, direct["shard-1"], "SHOW port")
	if port0 == port1 {
		t.Errorf("two servers on port %s", port0)
	}

	// A crash of one server: its shards fail alone, and come back.
	pid := postmaster(t, data, 1)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "a statement for the dead server fails", func() bool {
		for tenant := 1; tenant <= 40; tenant++ {
			if o := r.owner(tenant); o == "shard-1" || o == "shard-3" {
				_, err := r.session().Exec(t.Context(), "SELECT note FROM orders WHERE tenant_id = $1", tenant)
				return err != nil
			}
		}
		return false
	})
	for tenant := 1; tenant <= 40; tenant++ {
		if o := r.owner(tenant); o == "shard-0" || o == "shard-2" {
			if n := one[int64](t, c, fmt.Sprintf("SELECT count(*) FROM orders WHERE tenant_id = %d", tenant)); n != 1 {
				t.Errorf("tenant %d: %d rows while another server is down", tenant, n)
			}
		}
	}
	waitfor.True(t, "the server is started again", func() bool { return strings.Contains(r.stderr.String(), "PostgreSQL server is ready again") })
	waitfor.True(t, "its rows are back", func() bool {
		s, err := pgx.Connect(t.Context(), r.url())
		if err != nil {
			return false
		}
		defer s.Close(t.Context())
		for tenant := 1; tenant <= 40; tenant++ {
			var n int
			if err := s.QueryRow(t.Context(), "SELECT count(*) FROM orders WHERE tenant_id = $1", tenant).Scan(&n); err != nil || n != 1 {
				return false
			}
		}
		return true
	})

	// kill -9 of cleave leaves its servers running; the next start takes them over.
	r.kill()
	if postmaster(t, data, 0) == 0 {
		t.Error("the server went with its parent: the test proves nothing")
	}
	r = start(t, "up", "--data", data)
	if r.New || r.Engine != "postgres" || r.Shards != 4 || r.Tables != 1 {
		t.Errorf("banner %+v", r)
	}
	check(t, r.session(), 40)
	if code, _, stderr := command(t, "", "up", "--data", data, "--servers", "1", "--engine", "postgres"); code != exitFailed || !strings.Contains(stderr, "another cleave") {
		t.Errorf("a second up on the folder: exit code %d, %s", code, stderr)
	}
	r.stop()
	for i := range 2 {
		if pid := postmaster(t, data, i); pid != 0 {
			t.Errorf("server %d (process %d) runs on after the stop", i, pid)
		}
	}
	if code, _, stderr := command(t, "", "up", "--data", data, "--servers", "1", "--engine", "postgres", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"); code != exitFailed || !strings.Contains(stderr, "2 PostgreSQL servers") {
		t.Errorf("another number of servers: exit code %d, %s", code, stderr)
	}
}

// postmaster returns the process id of a live server, 0 if there is none.
func postmaster(t *testing.T, data string, server int) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, "pg-"+strconv.Itoa(server), "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}
