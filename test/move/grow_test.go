package move

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/sqlstate"
)

// notes are clients that write to tables that are not sharded.
type notes struct {
	c       *target
	stop    context.CancelFunc
	done    sync.WaitGroup
	retried atomic.Int64
	counted atomic.Int64
	longest atomic.Int64 // that a client was without an acknowledged write, nanoseconds

	mu     sync.Mutex
	acked  map[int64]bool
	failed []error
}

func (c *target) notes(clients int) *notes {
	c.t.Helper()
	c.exec(`CREATE TABLE author (id int PRIMARY KEY, name text NOT NULL, written bigint NOT NULL DEFAULT 0)`,
		`CREATE TABLE note (id bigserial PRIMARY KEY, author int NOT NULL REFERENCES author (id), body text, at timestamptz, size numeric(10, 2))`,
		`CREATE INDEX note_author ON note (author)`,
		`CREATE VIEW written AS SELECT author, count(*) AS n FROM note GROUP BY author`,
		`CREATE TABLE kind (code text PRIMARY KEY, name text) WITH (cleave.reference)`,
		`INSERT INTO kind VALUES ('a', 'A'), ('b', 'B')`)
	for i := range clients {
		c.exec(fmt.Sprintf(`INSERT INTO author (id, name) VALUES (%d, 'author %d')`, i, i))
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &notes{c: c, stop: stop, acked: map[int64]bool{}}
	for i := range clients {
		n.done.Go(func() { n.client(ctx, i) })
	}
	return n
}

func (n *notes) client(ctx context.Context, author int) {
	one := context.WithoutCancel(ctx)
	conn, err := pgx.Connect(ctx, n.c.url)
	fail := func(err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.failed = append(n.failed, err)
	}
	if err != nil {
		fail(err)
		return
	}
	defer func() { _ = conn.Close(one) }()
	last := time.Now()
	for i, mine := 0, int64(0); ctx.Err() == nil; i++ {
		err := func() error {
			tx, err := conn.Begin(one)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(one) }()
			var id, written int64
			if err := tx.QueryRow(one, `UPDATE author SET written = written + 1 WHERE id = $1 RETURNING written`, author).Scan(&written); err != nil {
				return err
			}
			if written < mine+1 {
				return fmt.Errorf("%d written, %d were acknowledged", written, mine)
			}
			if err := tx.QueryRow(one, `INSERT INTO note (author, body, at, size) VALUES ($1, $2, now(), 1.5) RETURNING id`, author, fmt.Sprintf("it's \\ note %d", i)).Scan(&id); err != nil {
				return err
			}
			if err := tx.Commit(one); err != nil {
				return err
			}
			mine = written
			n.counted.Add(1)
			n.longest.Store(max(n.longest.Load(), int64(time.Since(last))))
			last = time.Now()
			n.mu.Lock()
			defer n.mu.Unlock()
			n.acked[id] = true
			return nil
		}()
		if err == nil {
			var seen int64
			if err = conn.QueryRow(one, `SELECT written FROM author WHERE id = $1`, author).Scan(&seen); err == nil && seen < mine {
				err = fmt.Errorf("%d written are seen, %d were acknowledged", seen, mine)
			}
		}
		switch {
		case err == nil:
		case mayRetry(err):
			n.retried.Add(1)
		default:
			fail(err)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (n *notes) end() {
	t := n.c.t
	t.Helper()
	n.stop()
	n.done.Wait()
	t.Logf("%d notes, %d refused and to be run again; none was written for %s at most", len(n.acked), n.retried.Load(), time.Duration(n.longest.Load()).Round(time.Millisecond))
	for _, err := range n.failed {
		t.Errorf("a statement failed: %v", err)
	}
	conn := n.c.connect()
	var id int64
	found := map[int64]bool{}
	rows, _ := conn.Query(context.Background(), `SELECT id FROM note`)
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { found[id] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	for id := range n.acked {
		if !found[id] {
			t.Errorf("note %d is lost", id)
		}
	}
	if len(found) != len(n.acked) {
		t.Errorf("%d notes, %d were acknowledged", len(found), len(n.acked))
	}
	if w := n.c.number(`SELECT sum(written)::bigint FROM author`); w != n.counted.Load() {
		t.Errorf("%d written, %d were acknowledged", w, n.counted.Load())
	}
	if w := n.c.number(`SELECT sum(n)::bigint FROM written`); w != int64(len(found)) {
		t.Errorf("the view has %d", w)
	}
}

// more waits until some more notes were acknowledged.
func (n *notes) more(count int64) {
	n.c.t.Helper()
	for want, end := n.counted.Load()+count, time.Now().Add(patience); n.counted.Load() < want; time.Sleep(5 * time.Millisecond) {
		n.mu.Lock()
		failed := len(n.failed) > 0
		n.mu.Unlock()
		if failed {
			return // end tells
		}
		if time.Now().After(end) {
			n.c.t.Fatalf("%d notes, not %d", n.counted.Load(), want)
		}
	}
}

// homeward takes the tables that are not sharded back to a file, and from there to the server again. What a file cannot have is refused
// before anything is changed.
func (c *target) homeward(file, server string) {
	c.t.Helper()
	ctx := context.Background()
	ops := c.rooms.Ops
	version := func() uint64 {
		snap, err := c.dir.Load(ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		return snap.Version()
	}
	for _, no := range []struct{ make, drop string }{
		{`ALTER TABLE note ADD during int4range`, `ALTER TABLE note DROP during`},
		{`CREATE TABLE twice (id int PRIMARY KEY, n int GENERATED ALWAYS AS (id * 2) STORED)`, `DROP TABLE twice`},
		{`CREATE VIEW long AS SELECT author, count(*) FROM note WHERE body ~ '\mnote\M' GROUP BY GROUPING SETS ((author), ())`, `DROP VIEW long`},
	} {
		c.exec(no.make)
		was := version()
		for _, dry := range []bool{true, false} {
			_, err := ops.MoveDefault(ctx, admin.MoveDefaultRequest{Meta: admin.Meta{DryRun: dry}, To: file})
			if code := sqlstate.CodeOf(err); code != sqlstate.FeatureNotSupported || version() != was {
				c.t.Errorf("after %s the default shard goes to a file (dry run: %v): %v, version %d, then %d", no.make, dry, err, was, version())
			}
		}
		c.exec(no.drop)
	}
	hears := c.connect()
	if _, err := hears.Exec(ctx, `LISTEN news`); err != nil {
		c.t.Fatal(err)
	}
	rows := func(shard string) (all string) {
		for _, sql := range []string{
			`SELECT string_agg(concat_ws('|', id, yes, s, d, n, said, v, c, encode(raw, 'hex'), day, t, at, tz AT TIME ZONE 'UTC', u, j, jb), ';' ORDER BY id) FROM wide`,
			`SELECT count(*) FROM pg_catalog.pg_class WHERE relname IN ('note_author', 'written')`,
		} {
			all += c.onShard(shard, sql) + "\n"
		}
		return all
	}
	was := rows(server)
	for _, to := range []string{file, server} {
		for end := time.Now().Add(patience); ; {
			_, err := ops.MoveDefault(ctx, admin.MoveDefaultRequest{To: to})
			if err == nil {
				break
			}
			if code := sqlstate.CodeOf(err); code != sqlstate.SerializationFailure && code != sqlstate.LockNotAvailable || time.Now().After(end) {
				c.t.Fatal(err)
			}
		}
		if now := rows(to); now != was {
			c.t.Errorf("on %s there is\n%s\nnot\n%s", to, now, was)
		}
		// It is the table that it was: defaults, checks, keys, numbers.
		id := c.number(`INSERT INTO wide (s) VALUES (7) RETURNING id`)
		if n := c.number(`SELECT count(*) FROM wide WHERE id >= ` + fmt.Sprint(id)); id < 3 || n != 1 {
			c.t.Errorf("on %s the next id is %d, of %d rows", to, id, n)
		}
		if n := c.number(`SELECT count(*) FROM wide WHERE yes AND said = E'it''s \\' AND tz IS NOT NULL AND u IS NOT NULL AND id = ` + fmt.Sprint(id)); n != 1 {
			c.t.Errorf("on %s there are no defaults", to)
		}
		conn := c.connect()
		for sql, code := range map[string]string{`INSERT INTO wide (s) VALUES (0)`: "23514", `INSERT INTO wide (v) VALUES ('x')`: "23505", `INSERT INTO note (author) VALUES (77)`: "23503"} {
			_, err := conn.Exec(ctx, sql)
			if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != code {
				c.t.Errorf("on %s %s gives %v", to, sql, err)
			}
		}
		c.exec(`DELETE FROM wide WHERE s = 7`, `ALTER TABLE wide ADD later int DEFAULT 3`, `ALTER TABLE wide DROP later`)
	}
	limit, stop := context.WithTimeout(ctx, patience)
	defer stop()
	_, err := hears.WaitForNotification(limit)
	if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != "57P01" {
		c.t.Errorf("who listened when the default shard went away was told: %v", err)
	}
}

// TestGrow: a cluster of SQLite files goes to PostgreSQL databases while clients write to sharded and other tables; the
// other tables go back to a file, and to the server again, before the ways back are given up.
// wholeRows is how many rows a table has that is not sharded and is carried to a server: for figures.
var wholeRows = flag.Int("whole-rows", 3000, "rows of a table that is not sharded")

// TestGrow: a cluster of SQLite files goes to PostgreSQL databases while clients write to sharded and other tables.
func TestGrow(t *testing.T) {
	testrun.Long(t, "a whole cluster changes its engine and back; TestMoveBetweenEngines has the rows")
	c := start(t, "sqlite", "sqlite")
	ctx := context.Background()
	ops := c.rooms.Ops
	c.bank(500)
	res, err := ops.Split(ctx, admin.SplitRequest{Keyspace: "bank", At: []string{"0"}})
	if err != nil {
		t.Fatal(err)
	}
	c.await(res.Workflow.ID, "done")
	c.exec(`CREATE TABLE old (id int PRIMARY KEY, body text, at timestamptz DEFAULT now())`, fmt.Sprintf(`INSERT INTO old (id, body) SELECT g, 'row ' || g FROM generate_series(1, %d) AS g`, *wholeRows))
	n := c.notes(2)
	l := c.work(2)
	c.exec(`CREATE TABLE wide (id serial PRIMARY KEY, yes boolean DEFAULT true, s smallint CHECK (s > 0), d double precision, n numeric(20, 5), said text DEFAULT 'it''s \', v varchar(20) UNIQUE, c char(5), raw bytea,
			day date, t time, at timestamp, tz timestamptz DEFAULT now(), u uuid DEFAULT gen_random_uuid(), j json, jb jsonb)`,
		`INSERT INTO wide (s, d, n, v, c, raw, day, t, at, tz, j, jb) VALUES (1, 0.1, 12.34000, 'x', 'ab', '\x00ff', '2024-02-29', '23:59:59.5', '2024-02-29 01:02:03.000004', '2024-02-29 01:02:03.000004+00', '{"a": 1}', '{"b":  [1.50]}')`,
		`INSERT INTO wide (yes) VALUES (NULL)`)
	req := admin.GrowRequest{To: []admin.BootstrapShard{{Name: "a", URL: pgtest.Database(t), Weight: 1}, {Name: "b", URL: pgtest.Database(t), Weight: 1}}}
	server, err := pgx.Connect(ctx, req.To[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close(ctx)
	if _, err := server.Exec(ctx, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Kolkata''', current_database()); END $$`); err != nil {
		t.Fatal(err)
	}
	req.DryRun = true
	say := func(format string, args ...any) { t.Logf(format, args...) }
	if err := admin.Grow(ctx, ops, req, say); err != nil {
		t.Fatal(err)
	}
	req.DryRun = false
	if err := admin.Grow(ctx, ops, req, say); err != nil {
		t.Fatal(err)
	}
	n.more(20)
	c.homeward("s0", "a")
	n.more(20)
	req.Complete = true
	if err := admin.Grow(ctx, ops, req, say); err != nil {
		t.Fatal(err)
	}
	n.more(20)
	n.end()
	l.end()
	if l.failed.Load() > 0 {
		t.Errorf("%d transactions failed, first: %v", l.failed.Load(), l.first)
	}
	snap, err := c.dir.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if st := snap.State(); st.DefaultShard != "a" || len(st.Shards) != 2 {
		t.Errorf("default shard %s of %d shards", st.DefaultShard, len(st.Shards))
	}
	for _, shard := range []string{"a", "b"} {
		if n := c.onShard(shard, `SELECT count(*) FROM kind`); n != "2" {
			t.Errorf("%s has %s kinds", shard, n)
		}
	}
	if n := c.number(`SELECT count(*) FROM old`); n != int64(*wholeRows) {
		t.Errorf("%d rows of the table that nobody wrote to", n)
	}
	// And it goes on as a cluster of servers.
	c.exec(`INSERT INTO note (author, body) VALUES (0, 'after')`, `ALTER TABLE note ADD more int DEFAULT 7`, `CREATE TABLE later (id serial PRIMARY KEY)`,
		`INSERT INTO later DEFAULT VALUES`, `UPDATE kind SET name = 'AA' WHERE code = 'a'`, `DROP TABLE later`)
	c.clean()
}
