package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestGeneratedColumns(t *testing.T) {
	t.Parallel()
	cl := start(t, config{})
	conn := cl.connect(t)
	simple := cl.connect(t, "&default_query_exec_mode=simple_protocol")
	exec(t, conn, `CREATE TABLE orders (tenant_id bigint, id bigserial, ref bigint DEFAULT cleave.next_id(), u uuid DEFAULT uuidv7(), note text, PRIMARY KEY (tenant_id, id))
		WITH (cleave.shard_key = 'tenant_id')`)
	exec(t, conn, `CREATE TABLE users (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text) WITH (cleave.shard_key = 'id')`)
	exec(t, conn, `CREATE TABLE files (id uuid DEFAULT uuidv7() PRIMARY KEY, path text) WITH (cleave.shard_key = 'id')`)
	exec(t, conn, `CREATE TABLE events (id bigint DEFAULT cleave.next_id() PRIMARY KEY, what text) WITH (cleave.shard_key = 'id')`)
	seen := map[int64]bool{}
	fresh := func(id int64) {
		t.Helper()
		if seen[id] {
			t.Errorf("id %d came twice", id)
		}
		seen[id] = true
	}
	for i := range 60 {
		c := conn
		if i%3 == 2 {
			c = simple
		}
		fresh(one[int64](t, c, "INSERT INTO orders (tenant_id, note) VALUES ($1, $2) RETURNING id", int64(i), "x"))
	}
	last := int64(0)
	for i := range 30 {
		c := conn
		if i%2 == 1 {
			c = simple
		}
		id := one[int64](t, c, "INSERT INTO events (what) VALUES ('x') RETURNING id")
		if id <= last {
			t.Errorf("id %d after %d", id, last)
		}
		last = id
		if got := one[string](t, c, "SELECT what FROM events WHERE id = $1", id); got != "x" {
			t.Errorf("event %d: %q", id, got)
		}
		name := fmt.Sprint("n", i)
		uid := one[int64](t, c, "INSERT INTO users (name) VALUES ($1) RETURNING id", name)
		if got := one[string](t, c, "SELECT name FROM users WHERE id = $1", uid); got != name {
			t.Errorf("user %d: %q", uid, got)
		}
		file := one[string](t, c, "INSERT INTO files (path) VALUES ($1) RETURNING id::text", name)
		if got := one[string](t, c, "SELECT path FROM files WHERE id = $1::uuid", file); got != name || file[14] != '7' {
			t.Errorf("file %s: %q", file, got)
		}
	}
	if n := one[int64](t, conn, "SELECT cleave.next_id()"); n <= last {
		t.Errorf("next_id %d", n)
	}
	wantCode(t, conn, "428C9", "INSERT INTO users (id, name) VALUES (1, 'x')")
	if id := one[int64](t, conn, "INSERT INTO users (id, name) OVERRIDING SYSTEM VALUE VALUES (100000, 'x') RETURNING id"); id != 100000 {
		t.Errorf("overriding gave %d", id)
	}
	// Two rows of one statement, of one tenant.
	rows, err := conn.Query(context.Background(), "INSERT INTO orders (tenant_id) VALUES (7), (7), (7) RETURNING id")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(got) != 3 || got[1] != got[0]+1 || got[2] != got[1]+1 {
		t.Errorf("ids %v, %v", got, err)
	}
	// A session of the shard gets an error, and no value.
	wantDirect(t, cl, "INSERT INTO events (what) VALUES ('x')", "55000")
	wantDirect(t, cl, "INSERT INTO orders (tenant_id) VALUES (7)", "55000")
	if d := cl.direct(t, 0, "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'users'::regclass"); d != "cleave_internal.nextval('public.users_id_seq'::text, 'always'::text)" {
		t.Errorf("default on the shard: %s", d)
	}
	if d := cl.direct(t, 1, "SELECT cleave_internal.uuidv7()::text"); len(d) != 36 || d[14] != '7' || !strings.Contains("89ab", d[19:20]) {
		t.Errorf("uuidv7 on a shard: %s", d)
	}
}

func wantDirect(t *testing.T, cl *cluster, sql, code string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), cl.shards[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	wantCode(t, conn, code, sql)
}
