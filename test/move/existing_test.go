package move

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
)

// manual returns the SQL of docs/existing-database.md whose first line is "-- " and a title, one statement each.
func manual(t *testing.T, title string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/existing-database.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, block := range strings.Split(string(page), "```sql\n-- "+title+"\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for sql := range strings.SplitSeq(strings.TrimSpace(block), ";\n") {
			out = append(out, strings.TrimSuffix(sql, ";"))
		}
	}
	if len(out) == 0 {
		t.Fatalf("the page has nothing for %q", title)
	}
	return out
}

// more is what else a table may have.
var more = []string{
	`CREATE TYPE state AS ENUM ('new', 'paid')`,
	`CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.changed := coalesce(NEW.changed, 0) + 1; RETURN NEW; END $$`,
	`ALTER TABLE purchase ADD double bigint GENERATED ALWAYS AS (amount * 2) STORED, ADD state state NOT NULL DEFAULT 'new', ADD changed int`,
	`CREATE TRIGGER stamped BEFORE UPDATE ON purchase FOR EACH ROW EXECUTE FUNCTION stamp()`,
	`COMMENT ON TABLE purchase IS 'what was bought'`,
	`INSERT INTO country SELECT 'c' || n, 'Country ' || n FROM generate_series(0, 9) AS n`,
	`INSERT INTO customer (name, country) SELECT 'customer ' || n, 'c' || n % 10 FROM generate_series(1, 500) AS n`,
	`INSERT INTO purchase (customer_id, amount) SELECT n % 500 + 1, n % 9 + 1 FROM generate_series(1, 5000) AS n`,
	`UPDATE customer SET spent = (SELECT sum(amount) FROM purchase WHERE customer_id = customer.id)`,
}

// shop is clients that buy, over the router, and remember what they were told.
type shop struct {
	c       *target
	stop    context.CancelFunc
	done    sync.WaitGroup
	did     atomic.Int64
	retried atomic.Int64

	mu        sync.Mutex
	customers map[int64]bool
	purchases map[[2]int64]int64 // amount by customer and id
	unknown   int
	failed    []error
}

// mayRetry reports whether a client may run what failed again: nothing was done.
func mayRetry(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"40001", "40P01", "57P03", "55P03"}, pg.Code)
}

func (c *target) shop(clients int) *shop {
	ctx, stop := context.WithCancel(context.Background())
	s := &shop{c: c, stop: stop, customers: map[int64]bool{}, purchases: map[[2]int64]int64{}}
	for i := range clients {
		s.done.Go(func() { s.client(ctx, i) })
	}
	return s
}

func (s *shop) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err)
}

func (s *shop) client(ctx context.Context, client int) {
	r := rand.New(rand.NewPCG(uint64(client), 11))
	conn, err := pgx.Connect(ctx, s.c.url)
	if err != nil {
		s.fail(err)
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	one := context.WithoutCancel(ctx)
	for n := 0; ctx.Err() == nil; n++ {
		err := s.once(one, conn, r, n)
		switch {
		case err == nil:
			s.did.Add(1)
		case mayRetry(err):
			s.retried.Add(1)
		default:
			s.fail(fmt.Errorf("step %d: %w", n%8, err))
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func wantCode(err error, code string) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == code || mayRetry(err)) {
		return nil
	}
	return fmt.Errorf("%s was expected: %w", code, err)
}

// once is one thing that a client does.
func (s *shop) once(ctx context.Context, conn *pgx.Conn, r *rand.Rand, n int) error {
	known := 1 + r.Int64N(500)
	switch n % 8 {
	case 0:
		var id int64
		if err := conn.QueryRow(ctx, `INSERT INTO customer (name, country) VALUES ($1, $2) RETURNING id`, "new", fmt.Sprintf("c%d", r.IntN(10))).Scan(&id); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.customers[id] || id <= 500 {
			return fmt.Errorf("customer %d is there twice", id)
		}
		s.customers[id] = true
		return nil
	case 1: // a row that is there already
		_, err := conn.Exec(ctx, `INSERT INTO customer (id, name) VALUES ($1, 'twice')`, known)
		return wantCode(err, "23505")
	case 2: // a customer that is not there
		_, err := conn.Exec(ctx, `INSERT INTO purchase (customer_id, amount) VALUES ($1, 1)`, -known)
		return wantCode(err, "23503")
	case 3:
		var sum int64
		return conn.QueryRow(ctx, `SELECT coalesce(sum(double), 0)::bigint FROM purchase WHERE customer_id = $1`, known).Scan(&sum)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	amount := 1 + r.Int64N(9)
	var id int64
	if err := tx.QueryRow(ctx, `INSERT INTO purchase (customer_id, amount, state) VALUES ($1, $2, 'paid') RETURNING id`, known, amount).Scan(&id); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE customer SET spent = spent + $2 WHERE id = $1`, known, amount); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unknown++
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]int64{known, id}
	if _, twice := s.purchases[key]; twice {
		return fmt.Errorf("purchase %v is there twice", key)
	}
	s.purchases[key] = amount
	return nil
}

// end stops the clients and compares the stored rows with what they were told.
func (s *shop) end() {
	t := s.c.t
	t.Helper()
	s.stop()
	s.done.Wait()
	t.Logf("%d done, %d refused and to be run again", s.did.Load(), s.retried.Load())
	for _, err := range s.failed {
		t.Errorf("a statement failed: %v", err)
	}
	conn := s.c.connect()
	ids := map[int64]bool{}
	var id int64
	rows, _ := conn.Query(context.Background(), `SELECT id FROM customer`)
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		if ids[id] {
			t.Errorf("customer %d is there twice", id)
		}
		ids[id] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for id := range s.customers {
		if !ids[id] {
			t.Errorf("customer %d is lost", id)
		}
	}
	if len(ids) != 500+len(s.customers) {
		t.Errorf("%d customers, not %d", len(ids), 500+len(s.customers))
	}
	found, sum := map[[2]int64]int64{}, int64(0)
	var key [2]int64
	var amount int64
	serial := map[int64]bool{}
	rows, _ = conn.Query(context.Background(), `SELECT customer_id, id, amount FROM purchase`)
	if _, err := pgx.ForEachRow(rows, []any{&key[0], &key[1], &amount}, func() error {
		if serial[key[1]] {
			t.Errorf("id %d is there twice", key[1])
		}
		found[key], serial[key[1]] = amount, true
		sum += amount
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for key, amount := range s.purchases {
		if found[key] != amount {
			t.Errorf("purchase %v of %d is %d", key, amount, found[key])
		}
	}
	if n := len(found) - 5000 - len(s.purchases); n < 0 || n > s.unknown {
		t.Errorf("%d purchases, %d were acknowledged", len(found), 5000+len(s.purchases))
	}
	if spent := s.c.number(`SELECT sum(spent)::bigint FROM customer`); spent != sum {
		t.Errorf("%d was spent on purchases of %d", spent, sum)
	}
}

// TestExistingDatabase: docs/existing-database.md, with clients at work from step 3 on. The tables become sharded with their
// rows, and half of them move to another shard.
func TestExistingDatabase(t *testing.T) {
	testrun.Long(t, "a page of the documentation, step by step with clients at work; TestMoveBetweenEngines has the moves")
	old := pgtest.Database(t)
	ctx := context.Background()
	plain, err := pgx.Connect(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close(ctx)
	for _, sql := range slices.Concat(manual(t, "the database, as it is"), manual(t, "the database, before"), more) {
		if _, err := plain.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	c := startNamed(t, "test", admin.BootstrapShard{Name: "old", URL: old}, admin.BootstrapShard{Name: "new", URL: pgtest.Database(t)})
	s := c.shop(3)
	time.Sleep(300 * time.Millisecond)
	ops := c.rooms.Ops
	if _, err := ops.Distribute(ctx, admin.DistributeRequest{Table: "customer", ShardKey: []string{"id"}, Related: true}); err == nil {
		t.Error("a foreign key to an unsharded table was let through")
	}
	steps := manual(t, "the router")
	for _, sql := range steps[:3] {
		began := time.Now()
		c.exec(sql)
		t.Logf("%s: %s", time.Since(began).Round(time.Millisecond), sql)
	}
	time.Sleep(300 * time.Millisecond)
	c.exec(steps[3])
	list, err := ops.Moves(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if w.Kind == "spread" {
			c.await(w.ID, "done")
		}
	}
	s.end()
	for _, shard := range []string{"old", "new"} {
		for _, table := range []string{"customer", "purchase"} {
			all := c.number(`SELECT count(*) FROM ` + table)
			if n := c.onShard(shard, `SELECT count(*) FROM `+table+` WHERE true`); n == "0" || shard == "new" && n == fmt.Sprint(all) {
				t.Errorf("%s has %s of %d rows of %s", shard, n, all, table)
			}
		}
		if n := c.onShard(shard, `SELECT count(*) FROM country`); n != "10" {
			t.Errorf("%s has %s countries", shard, n)
		}
		if n := c.onShard(shard, `SELECT count(*) || ' ' || obj_description('purchase'::regclass) FROM pg_trigger WHERE tgname = 'stamped'`); n != "1 what was bought" {
			t.Errorf("trigger and comment on %s: %q", shard, n)
		}
	}
	if list, err = ops.Moves(ctx, ""); err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if w.Step == "opened" {
			if _, err := ops.Complete(ctx, admin.WorkflowRequest{ID: w.ID}); err != nil {
				t.Fatal(err)
			}
			c.await(w.ID, "done")
		}
	}
	c.clean()
}
