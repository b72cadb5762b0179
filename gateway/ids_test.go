package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
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

// Every way to run a statement makes its values anew each time.
func TestGeneratedInEveryProtocol(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cl := start(t, config{})
	conn := cl.connect(t)
	exec(t, conn, `CREATE TABLE users (id serial PRIMARY KEY, name text, age int) WITH (cleave.shard_key = 'id')`)
	exec(t, conn, `CREATE SEQUENCE s`)
	seen := map[int64]bool{}
	fresh := func(what string, list ...int64) {
		t.Helper()
		for _, id := range list {
			if seen[id] || id == 0 {
				t.Errorf("%s gave %d again", what, id)
			}
			seen[id] = true
		}
	}
	// Named statements, described first: the client sees its own parameters only.
	sd, err := conn.Prepare(ctx, "ins", "INSERT INTO users (name, age) VALUES ($1, $2) RETURNING id")
	if err != nil {
		t.Fatal(err)
	}
	if len(sd.ParamOIDs) != 2 || sd.ParamOIDs[0] != 25 || sd.ParamOIDs[1] != 23 || len(sd.Fields) != 1 || sd.Fields[0].DataTypeOID != 23 {
		t.Errorf("described as %v, %v", sd.ParamOIDs, sd.Fields)
	}
	for range 20 {
		fresh("named", one[int64](t, conn, "ins", "x", 5))
	}
	// One format code for all of the client's parameters, and none.
	res := conn.PgConn().ExecPrepared(ctx, "ins", [][]byte{[]byte("y"), {0, 0, 0, 7}}, []int16{0, 1}, []int16{1}).Read()
	if res.Err != nil || len(res.Rows) != 1 || len(res.Rows[0][0]) != 4 {
		t.Errorf("mixed formats: %v", res.Err)
	}
	res = conn.PgConn().ExecPrepared(ctx, "ins", [][]byte{[]byte("y"), []byte("7")}, nil, nil).Read()
	if res.Err != nil {
		t.Errorf("text: %v", res.Err)
	}
	if r := conn.PgConn().ExecPrepared(ctx, "ins", [][]byte{[]byte("y")}, nil, nil).Read(); codeOf(r.Err) != "08P01" {
		t.Errorf("one parameter of two: %v", r.Err)
	}
	// A batch; each row may be on another shard, which is a transaction of its own.
	for range 5 {
		b := &pgx.Batch{}
		b.Queue("SELECT nextval('s')")
		b.Queue("INSERT INTO users (name) VALUES ($1) RETURNING id", "b")
		br := conn.SendBatch(ctx, b)
		var n, id int64
		if err := br.QueryRow().Scan(&n); err != nil {
			t.Fatal(err)
		}
		if err := br.QueryRow().Scan(&id); err != nil {
			t.Fatal(err)
		}
		fresh("batch", id)
		if err := br.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// SQL-level prepared statements.
	simple := cl.connect(t, "&default_query_exec_mode=simple_protocol")
	exec(t, simple, "PREPARE p (text) AS INSERT INTO users (name) VALUES ($1) RETURNING id")
	for range 3 {
		fresh("EXECUTE", one[int64](t, simple, "EXECUTE p ('z')"))
	}
	// Several statements in one message.
	multi, err := conn.PgConn().Exec(ctx, "SELECT nextval('s'); SELECT nextval('s'), currval('s'); SELECT lastval()").ReadAll()
	if err != nil || len(multi) != 3 {
		t.Fatal(err)
	}
	if a, b, c, d := string(multi[0].Rows[0][0]), string(multi[1].Rows[0][0]), string(multi[1].Rows[0][1]), string(multi[2].Rows[0][0]); a == b || b != c || c != d {
		t.Errorf("one message: %s, %s, %s, %s", a, b, c, d)
	}
	// database/sql with another driver.
	db := cl.open(t)
	for range 3 {
		var id int64
		if err := db.QueryRow("INSERT INTO users (name, age) VALUES ($1, $2) RETURNING id", "pq", 1).Scan(&id); err != nil {
			t.Fatal(err)
		}
		fresh("lib/pq", id)
	}
	// A transaction goes to the shard of its first key, whatever was counted before.
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var id int64
	if err := tx.QueryRow(ctx, "SELECT nextval('users_id_seq')").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO users (id, name) VALUES ($1, 'tx')", id); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	fresh("transaction", id)
	if got := one[*int64](t, conn, "SELECT setval('s', $1)", nil); got != nil {
		t.Errorf("setval of NULL gave %d", *got)
	}
	if got := one[int64](t, conn, "SELECT setval('s', $1)", 500); got != 500 {
		t.Errorf("setval gave %d", got)
	}
	if got := one[int64](t, conn, "SELECT nextval('s')"); got != 501 {
		t.Errorf("after setval: %d", got)
	}
	if line := one[string](t, simple, "EXPLAIN (ROUTE, ANALYZE) INSERT INTO users (name) VALUES ('e')"); !strings.Contains(line, "one shard") {
		t.Errorf("explain: %s", line)
	}
	for _, c := range []*pgx.Conn{conn, simple} {
		got, err := c.Query(ctx, "SELECT cleave.next_id() AS id FROM generate_series(1, 250)")
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(got, pgx.RowTo[int64])
		if err != nil || len(list) != 250 || !slices.IsSorted(list) {
			t.Errorf("a series of ids: %d, %v", len(list), err)
		}
		fresh("series", list...)
	}
	// Calls in the list of an INSERT ... SELECT.
	exec(t, conn, `CREATE TABLE copies (id integer, of integer, n numeric, words text, short varchar(2), PRIMARY KEY (id)) WITH (cleave.shard_key = 'id')`)
	users := one[int64](t, conn, "SELECT count(*) FROM users")
	for _, c := range []*pgx.Conn{conn, simple} {
		tag, err := c.Exec(ctx, "INSERT INTO copies (words, id, of, n) SELECT nextval('s'), nextval('s'), id, cleave.next_id() FROM users ORDER BY users.id LIMIT 1000")
		if err != nil || tag.RowsAffected() != users {
			t.Errorf("INSERT ... SELECT nextval(): %v, %v", tag, err)
		}
	}
	if n := one[int64](t, conn, "SELECT count(DISTINCT id) + count(DISTINCT words) + count(DISTINCT n) - count(*) + (SELECT count(*) FROM copies a JOIN copies b ON a.id::text = b.words) FROM copies"); n != 4*users {
		t.Errorf("the values are not unique: %d for %d users", n, users)
	}
	exec(t, conn, "INSERT INTO copies SELECT nextval('s'), id FROM users WHERE id = $1", id)
	if n := one[int64](t, conn, "SELECT count(*) FROM copies WHERE of = $1", id); n != 3 {
		t.Errorf("a row of one shard was copied %d times", n)
	}
	wantCode(t, conn, "0A000", "INSERT INTO copies (id, short) SELECT id, nextval('s') FROM users")
	wantCode(t, conn, "42804", "INSERT INTO users (id, age) SELECT nextval('s'), true FROM users")
	wantCode(t, conn, "", "EXPLAIN (ROUTE) INSERT INTO copies (id, of) SELECT nextval('s'), id FROM users")
	wantCode(t, conn, "", "EXPLAIN INSERT INTO copies (id, of) SELECT nextval('s'), id FROM users")
	exec(t, conn, "PREPARE q (int) AS INSERT INTO copies (id, of) SELECT nextval('s'), id FROM users WHERE id < $1 RETURNING id, of")
	exec(t, conn, "EXECUTE q (3)")
	exec(t, conn, "BEGIN READ ONLY")
	wantCode(t, conn, "25006", "SELECT nextval('s')")
	exec(t, conn, "ROLLBACK")
	// Many rows of one statement, more than one block.
	rows := "INSERT INTO m (t) VALUES (1)" + strings.Repeat(", (1)", 2999) + " RETURNING id"
	exec(t, conn, `CREATE TABLE m (t bigint, id bigserial) WITH (cleave.shard_key = 't')`)
	got, err := simple.Query(ctx, rows)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(got, pgx.RowTo[int64])
	if err != nil || len(list) != 3000 || list[2999] != list[0]+2999 {
		t.Errorf("%d rows, %v", len(list), err)
	}
}

func TestGeneratedIsRefused(t *testing.T) {
	t.Parallel()
	cl := start(t, config{})
	conn := cl.connect(t)
	exec(t, conn, `CREATE TABLE a (t bigint, id bigserial, v text) WITH (cleave.shard_key = 't')`)
	exec(t, conn, `INSERT INTO a (t, v) VALUES (1, 'x')`)
	exec(t, conn, `CREATE SEQUENCE s`)
	exec(t, conn, `CREATE TABLE w (id bigint DEFAULT nextval('s'), v text)`)
	for _, c := range [][2]string{
		{"0A000", "UPDATE a SET id = DEFAULT WHERE t = 1"},
		{"0A000", "SELECT nextval('s') FROM a WHERE t = 1"},
		{"0A000", "SELECT nextval('s') FROM generate_series(1, 3) WHERE random() < 2"},
		{"0A000", "CREATE TABLE x (t bigint, id bigint DEFAULT nextval('not_ours')) WITH (cleave.shard_key = 't')"},
		{"0A000", "ALTER TABLE a ADD COLUMN n bigserial"},
		{"0A000", "ALTER TABLE a ADD COLUMN n bigint DEFAULT cleave.next_id()"},
		{"2BP01", "DROP SEQUENCE s"},
		{"2BP01", "DROP SCHEMA public"},
		{"42P07", "CREATE TABLE s (t bigint) WITH (cleave.shard_key = 't')"},
		{"42P07", "CREATE SEQUENCE a"},
	} {
		wantCode(t, conn, c[0], c[1])
	}
	exec(t, conn, "CREATE TABLE e (t bigint, v text) WITH (cleave.shard_key = 't')")
	exec(t, conn, "ALTER TABLE e ADD COLUMN n bigserial")
	if n := one[int64](t, conn, "INSERT INTO e (t) VALUES (1) RETURNING n"); n != 1 {
		t.Errorf("n is %d", n)
	}
}

// Routers that share a directory, with many sessions each, give no value twice;
// one whose row a guard refuses takes a new value and goes on.
func TestGeneratedOnThreeRouters(t *testing.T) {
	testrun.Long(t, "many sessions on three routers; TestGeneratedInEveryProtocol has one")
	t.Parallel()
	ctx := context.Background()
	first := start(t, config{})
	routers := []*cluster{first, start(t, config{dir: first.dir, urls: first.shards}), start(t, config{dir: first.dir, urls: first.shards})}
	exec(t, first.connect(t), `CREATE TABLE ev (id bigint DEFAULT cleave.next_id() PRIMARY KEY, seq bigserial, u uuid DEFAULT gen_random_uuid()) WITH (cleave.shard_key = 'id')`)
	for _, r := range routers[1:] {
		if _, err := r.ex.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	seen := map[int64]string{}
	var wg sync.WaitGroup
	for i, r := range routers {
		for j := range 8 {
			wg.Go(func() {
				conn, err := pgx.Connect(ctx, r.url(map[bool]string{true: "&default_query_exec_mode=simple_protocol"}[j%2 == 0]))
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close(ctx)
				last := int64(0)
				for range 100 {
					var id, seq int64
					if err := conn.QueryRow(ctx, "INSERT INTO ev DEFAULT VALUES RETURNING id, seq").Scan(&id, &seq); err != nil {
						t.Error(err)
						return
					}
					me := fmt.Sprintf("router %d session %d", i, j)
					mu.Lock()
					if was, dup := seen[id]; dup {
						t.Errorf("id %d: %s and %s", id, was, me)
					}
					if was, dup := seen[-seq]; dup {
						t.Errorf("value %d: %s and %s", seq, was, me)
					}
					seen[id], seen[-seq] = me, me
					mu.Unlock()
					if id <= last {
						t.Errorf("%s: %d after %d", me, id, last)
					}
					last = id
				}
			})
		}
	}
	wg.Wait()
	if len(seen) != 2*3*8*100 {
		t.Errorf("%d values", len(seen))
	}
}

// A schema change in a block takes its sequences with it, both ways; a shard that
// comes later has what the defaults need.
func TestSequencesFollowTheSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cl := start(t, config{})
	conn := cl.connect(t)
	names := func() string {
		return one[string](t, conn, "SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM cleave.sequences")
	}
	exec(t, conn, "BEGIN")
	exec(t, conn, "CREATE TABLE a (t bigint, id bigserial) WITH (cleave.shard_key = 't')")
	exec(t, conn, "SAVEPOINT s")
	exec(t, conn, "CREATE SEQUENCE other")
	exec(t, conn, "ROLLBACK TO s")
	if id := one[int64](t, conn, "INSERT INTO a (t) VALUES (1) RETURNING id"); id != 1 {
		t.Errorf("in the block: %d", id)
	}
	exec(t, conn, "COMMIT")
	if got := names(); got != "a_id_seq" {
		t.Errorf("sequences %q", got)
	}
	if id := one[int64](t, conn, "INSERT INTO a (t) VALUES (1) RETURNING id"); id != 2 {
		t.Errorf("after it: %d", id)
	}
	exec(t, conn, "ALTER SEQUENCE a_id_seq RESTART WITH 100")
	if id := one[int64](t, conn, "INSERT INTO a (t) VALUES (1) RETURNING id"); id != 100 {
		t.Errorf("after RESTART: %d", id)
	}
	exec(t, conn, "CREATE SCHEMA app")
	exec(t, conn, "CREATE TABLE app.b (t bigint, id bigint GENERATED ALWAYS AS IDENTITY) WITH (cleave.shard_key = 't')")
	exec(t, conn, "DROP SCHEMA app CASCADE")
	exec(t, conn, "CREATE SEQUENCE kept")
	if got := names(); got != "a_id_seq kept" {
		t.Errorf("sequences %q", got)
	}
	recs, err := cl.dir.Records(ctx, "sequence/", "", 100)
	if err != nil || len(recs) != 1 {
		t.Errorf("%d records of sequences, %v", len(recs), err)
	}
	if _, err := cl.ops.AddShard(ctx, admin.AddShardRequest{Meta: admin.Meta{By: "test"}, Name: "later", URL: pgtest.Database(t)}); err != nil {
		t.Fatal(err)
	}
	// A table that becomes sharded takes the router's defaults with it.
	exec(t, conn, "CREATE TABLE d (t bigint, id bigint DEFAULT nextval('kept'), r bigint DEFAULT cleave.next_id())")
	exec(t, conn, "SELECT cleave.distribute('d', 't')")
	if id := one[int64](t, conn, "INSERT INTO d (t) VALUES (1) RETURNING id"); id != 1 {
		t.Errorf("distributed: %d", id)
	}
	// Doctor sees a default that somebody changed on a shard.
	bad := func() (out []string) {
		found, err := cl.ops.Doctor(ctx, admin.DoctorRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Level == admin.LevelError {
				out = append(out, f.What)
			}
		}
		return out
	}
	if got := bad(); len(got) != 0 {
		t.Errorf("doctor: %q", got)
	}
	cl.direct(t, 1, "ALTER TABLE d ALTER COLUMN id SET DEFAULT 5")
	if got := bad(); len(got) != 1 || !strings.Contains(got[0], `default of column "id" of public.d on shard-1`) {
		t.Errorf("doctor: %q", got)
	}
	exec(t, conn, "DROP TABLE a, d")
	exec(t, conn, "DROP SEQUENCE kept")
	if got := names(); got != "" {
		t.Errorf("sequences %q", got)
	}
}

// TestReadSequence: a sequence of the cluster is read as pg_dump does it: a value that no lower one comes after.
func TestReadSequence(t *testing.T) {
	cl := start(t, config{})
	conn := cl.connect(t)
	exec(t, conn, `CREATE SEQUENCE read_me START 5`)
	read := func() (last int64, called bool) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `SELECT last_value, is_called FROM public.read_me`).Scan(&last, &called); err != nil {
			t.Fatal(err)
		}
		return last, called
	}
	if last, called := read(); last != 5 || called {
		t.Errorf("anew it is %d, %v", last, called)
	}
	given := one[int64](t, conn, `SELECT nextval('read_me')`)
	exec(t, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`)
	if last, called := read(); last < given || !called {
		t.Errorf("after %d it is %d, %v", given, last, called)
	}
	exec(t, conn, `COMMIT`)
	var last, count int64
	var called bool
	if err := conn.QueryRow(t.Context(), `SELECT * FROM read_me`).Scan(&last, &count, &called); err != nil || count != 0 {
		t.Error(err, count)
	}
	if last, called := read(); one[int64](t, conn, `SELECT last_value FROM read_me`) != last || !called {
		t.Error("they differ")
	}
	wantCode(t, conn, "0A000", `SELECT last_value + 1 FROM read_me`)
	wantCode(t, conn, "0A000", `SELECT r.last_value FROM read_me r`)
}

// TestSetvalOfRows: a sequence of the cluster is set behind rows that were inserted with their ids, as clients write it, like
// PostgreSQL sets one.
func TestSetvalOfRows(t *testing.T) {
	t.Parallel()
	cl := start(t, config{})
	conn, simple := cl.connect(t), cl.connect(t, "&default_query_exec_mode=simple_protocol")
	plain, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close(context.Background()) })
	exec(t, conn, "CREATE TABLE bill (id bigserial PRIMARY KEY, n int, m numeric) WITH (cleave.shard_key = 'id')")
	exec(t, plain, "CREATE TABLE bill (id bigserial PRIMARY KEY, n int, m numeric)")
	all := func(c *pgx.Conn, sql string) string {
		t.Helper()
		rows, err := c.Query(context.Background(), sql)
		if err != nil {
			return code(c, sql)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[*int64])
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
			return pg.Code
		}
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		text := rows.FieldDescriptions()[0].Name
		for _, v := range list {
			if text += " NULL"; v != nil {
				text = fmt.Sprint(strings.TrimSuffix(text, "NULL"), *v)
			}
		}
		return text
	}
	for _, sql := range []string{
		"SELECT setval('bill_id_seq', coalesce(max(id), 1), max(id) IS NOT NULL) FROM bill", // Django
		"INSERT INTO bill (n) VALUES (1) RETURNING id",
		"INSERT INTO bill (id, n, m) SELECT 10 * g, g, g FROM generate_series(1, 40) AS g RETURNING NULL::bigint",
		`SELECT setval(pg_get_serial_sequence('"bill"','id'), coalesce(max("id"), 1), max("id") IS NOT null) FROM "bill"`,
		"SELECT nextval('bill_id_seq')",
		"SELECT setval('bill_id_seq', (SELECT max(id) FROM bill))",
		"SELECT currval('bill_id_seq')",
		"SELECT nextval('bill_id_seq')",
		"SELECT setval('bill_id_seq', max(n)) AS of FROM bill WHERE n > 1000", // NULL: nothing is set
		"SELECT nextval('bill_id_seq')",
		"SELECT setval('bill_id_seq', id, n = 7) FROM bill WHERE id IN (70)",
		"SELECT nextval('bill_id_seq')",
		"SELECT setval('bill_id_seq', '17', 'false');",
		"SELECT nextval('bill_id_seq')",
		"SELECT setval('bill_id_seq', nextval('bill_id_seq') + 5)",
		"SELECT setval('bill_id_seq', 3) FROM bill WHERE false",
		"SELECT setval('bill_id_seq', max(id) / count(*)) FROM bill",
		"SELECT setval('bill_id_seq', min(id) - 1) FROM bill WHERE id = 10 OR id = 20", // 9 is allowed
		"SELECT setval('bill_id_seq', -5) FROM bill WHERE id = 10",                     // below the minimum
		"SELECT setval('bill_id_seq', max(m)) FROM bill",                               // numeric is no bigint
		"SELECT setval('bill_id_seq', max(id), max(n)) FROM bill",
		"SELECT setval('bill_id_seq', max(nothing)) FROM bill",
		"SELECT nextval('bill_id_seq')",
		"BEGIN",
		"INSERT INTO bill (id) VALUES (5000) RETURNING id",
		"SELECT setval('bill_id_seq', max(id)) FROM bill", // sees what the transaction wrote
		"ROLLBACK",
		"SELECT nextval('bill_id_seq')", // and does not come back
		"BEGIN READ ONLY",
		"SELECT setval('bill_id_seq', max(id)) FROM bill",
		"ROLLBACK",
		"BEGIN READ ONLY",
		"SELECT setval('bill_id_seq', NULL)", // it is strict
		"SELECT setval('bill_id_seq', 5) FROM bill WHERE false",
		"SELECT setval('bill_id_seq', -5) FROM bill WHERE id = 10",
		"ROLLBACK",
		"SELECT setval('bill_id_seq', v, c) FROM (VALUES (41, true), (43, false)) AS x(v, c)",
		"SELECT currval('bill_id_seq')",
		"SELECT nextval('bill_id_seq')",
		"SELECT setval('bill_id_seq', v) FROM (VALUES (51), (-1), (53)) AS x(v)", // the first is set, the second is an error
		"SELECT nextval('bill_id_seq')",
		"SELECT setval('bill_id_seq', '1259'::oid)",
		"SELECT setval('bill_id_seq', 77) FROM bill WHERE id = 10; SELECT nextval('bill_id_seq')",
		"SELECT nextval('bill_id_seq')",
	} {
		c := conn
		if strings.Contains(sql, ";") {
			c = simple
		}
		if tag := strings.Fields(sql)[0]; tag == "BEGIN" || tag == "ROLLBACK" || strings.Contains(sql, "; ") {
			exec(t, c, sql, pgx.QueryExecModeSimpleProtocol)
			exec(t, plain, sql, pgx.QueryExecModeSimpleProtocol)
			continue
		}
		if got, want := all(c, sql), all(plain, sql); got != want {
			t.Errorf("%s gives %s, PostgreSQL %s", sql, got, want)
		}
	}
	for _, sql := range []string{
		"SELECT setval('bill_id_seq', max(id)), 1 FROM bill",
		"SELECT setval('bill_id_seq', length(set_config('search_path', 'other', false)))", // a setting of the session
		"SELECT setval('bill_id_seq', count(*)) FROM cleave.shards",                       // the router's own
		"DO $$ BEGIN PERFORM length(set_config('search_path', 'other', false)); EXECUTE 'CREATE TABLE x (a int)'; END $$",
	} {
		wantCode(t, conn, "0A000", sql)
	}
}

// TestSequenceOfParameter: a parameter names a sequence, of the cluster or of the default shard.
func TestSequenceOfParameter(t *testing.T) {
	t.Parallel()
	cl := start(t, config{})
	conn := cl.connect(t)
	plain, err := pgx.Connect(context.Background(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close(context.Background()) })
	exec(t, conn, "CREATE SEQUENCE seq_a")
	exec(t, conn, "CREATE TABLE parts (k bigint, n bigserial, PRIMARY KEY (k)) WITH (cleave.shard_key = 'k')")
	exec(t, conn, "CREATE TABLE here (n bigserial)")
	exec(t, plain, "CREATE SEQUENCE seq_a")
	exec(t, plain, "CREATE TABLE parts (k bigint, n bigserial, PRIMARY KEY (k))")
	exec(t, plain, "CREATE TABLE here (n bigserial)")
	for _, test := range []struct {
		sql  string
		args []any
	}{
		{"SELECT currval($1)", []any{"seq_a"}}, // 55000
		{"SELECT nextval($1)", []any{"seq_a"}},
		{"SELECT nextval($1::text)", []any{"public.seq_a"}},
		{"SELECT nextval($1::regclass) * 10 AS tenfold", []any{`"seq_a"`}},
		{"SELECT currval($1)", []any{"seq_a"}},
		{"SELECT nextval($1)", []any{"parts_n_seq"}},
		{"SELECT nextval($1)", []any{"here_n_seq"}}, // the default shard's own
		{"SELECT nextval($1)", []any{"here_n_seq"}},
		{"SELECT nextval($1)", []any{nil}},
		{"SELECT nextval($1)", []any{"nothing"}},          // 42P01
		{"SELECT nextval($1)", []any{"a.b.c.d"}},          // too many parts
		{"SELECT nextval($1)", []any{"here"}},             // 42809
		{"SELECT nextval($1)", []any{"seq_a'; SELECT 1"}}, // a name is no code
		{"INSERT INTO here VALUES (nextval($1)) RETURNING n", []any{"seq_a"}},
		{"INSERT INTO parts VALUES ($2, nextval($1)) RETURNING n", []any{"parts_n_seq", 5}},
		{"BEGIN", nil},
		{"SELECT nextval($1)", []any{"here_n_seq"}},
		{"SELECT currval($1)", []any{"here_n_seq"}},
		{"SELECT nextval($1)", []any{"seq_a"}},
		{"ROLLBACK", nil},
		{"SELECT nextval($1)", []any{"seq_a"}},
		{"BEGIN READ ONLY", nil},
		{"SELECT nextval($1)", []any{"seq_a"}}, // 25006
		{"ROLLBACK", nil},
	} {
		if test.args == nil {
			exec(t, conn, test.sql)
			exec(t, plain, test.sql)
			continue
		}
		if got, want := valueOrCode(t, conn, test.sql, test.args), valueOrCode(t, plain, test.sql, test.args); got != want {
			t.Errorf("%s %v gives %s, PostgreSQL %s", test.sql, test.args, got, want)
		}
	}
	wantCode(t, conn, "0A000", "SELECT nextval($1)", "16384")
}

// valueOrCode is the column's name and the value of a query's only row, or the error's SQLSTATE.
func valueOrCode(t *testing.T, c *pgx.Conn, sql string, args []any) string {
	t.Helper()
	rows, err := c.Query(context.Background(), sql, args...)
	var v *int64
	if err == nil {
		v, err = pgx.CollectOneRow(rows, pgx.RowTo[*int64])
	}
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if v == nil {
		return rows.FieldDescriptions()[0].Name + " NULL"
	}
	return fmt.Sprint(rows.FieldDescriptions()[0].Name, " ", *v)
}
