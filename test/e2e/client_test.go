package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

const createTypes = `CREATE TABLE things (
  k uuid NOT NULL, id bigint NOT NULL, i2 smallint, i4 integer, t text, v varchar(20), b boolean, y bytea,
  d date, ts timestamp, tz timestamptz, f double precision, PRIMARY KEY (k, id)) WITH (cleave.shard_key = 'k')`

// TestPgxModes round-trips every type in each of pgx's ways to run a statement.
func TestPgxModes(t *testing.T) {
	eachEngine(t, "postgres", func(t *testing.T, c *cluster) {
		c.exec(t, createTypes)
		for id, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
			pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			cfg, err := pgx.ParseConfig(c.url())
			if err != nil {
				t.Fatal(err)
			}
			cfg.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 8 { // several keys: several shards, one prepared statement
				key := uuid.New()
				when := time.Date(2026, 11, 21, 12, 34, 56, 789000, time.UTC)
				in := []any{key.String(), id, int16(-7), int32(1 << 30), "tëxt 'quoted' \\ back", "var", true, []byte{0, 1, 255}, when.Truncate(24 * time.Hour), when, when, 0.1}
				if _, err := conn.Exec(t.Context(), `INSERT INTO things VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)`, in...); err != nil {
					t.Fatalf("%v: %v", mode, err)
				}
				var k string
				var i2 int16
				var i4 int32
				var text, v string
				var b bool
				var y []byte
				var d, ts, tz time.Time
				var f float64
				err := conn.QueryRow(t.Context(), `SELECT k::text, i2, i4, t, v, b, y, d, ts, tz, f FROM things WHERE k = $1 AND id = $2`, key.String(), id).
					Scan(&k, &i2, &i4, &text, &v, &b, &y, &d, &ts, &tz, &f)
				if err != nil {
					t.Fatalf("%v: %v", mode, err)
				}
				if k != key.String() || i2 != -7 || i4 != 1<<30 || text != in[4] || v != "var" || !b || !slices.Equal(y, []byte{0, 1, 255}) ||
					!d.Equal(when.Truncate(24*time.Hour)) || !ts.Equal(when) || !tz.Equal(when) || f != 0.1 {
					t.Fatalf("%v: got %v %v %v %q %q %v %v %v %v %v %v", mode, k, i2, i4, text, v, b, y, d, ts, tz, f)
				}
				var none *string
				if err := conn.QueryRow(t.Context(), `SELECT t FROM things WHERE k = $1 AND id = -1`, key.String()).Scan(&none); err != pgx.ErrNoRows {
					t.Fatalf("%v: %v", mode, err)
				}
			}
			_ = conn.Close(t.Context())
		}
	})
}

// TestDatabaseSQL uses database/sql through lib/pq and through pgx, with many
// goroutines: prepared statements, transactions, NULLs.
func TestDatabaseSQL(t *testing.T) {
	eachEngine(t, "sqlite", func(t *testing.T, c *cluster) {
		c.exec(t, createOrders)
		for n, driver := range []string{"postgres", "pgx"} {
			db, err := sql.Open(driver, c.url())
			if err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(8)
			insert, err := db.Prepare(`INSERT INTO orders (id, note, tenant_id) VALUES ($1, $2, $3)`)
			if err != nil {
				t.Fatalf("%s: %v", driver, err)
			}
			read, err := db.Prepare(`SELECT note FROM orders WHERE tenant_id = $1 AND id = $2`)
			if err != nil {
				t.Fatalf("%s: %v", driver, err)
			}
			var wg sync.WaitGroup
			for w := range 8 {
				wg.Go(func() {
					for i := range 25 {
						tenant := int64(n*1000 + w*25 + i)
						if _, err := insert.Exec(1, nil, tenant); err != nil {
							t.Errorf("%s: %v", driver, err)
							return
						}
						tx, err := db.Begin()
						if err != nil {
							t.Errorf("%s: %v", driver, err)
							return
						}
						if _, err := tx.Exec(`UPDATE orders SET note = $1 WHERE tenant_id = $2`, fmt.Sprint("n", tenant), tenant); err != nil {
							t.Errorf("%s: %v", driver, err)
						}
						if err := tx.Commit(); err != nil {
							t.Errorf("%s: %v", driver, err)
						}
						var note sql.NullString
						if err := read.QueryRow(tenant, 1).Scan(&note); err != nil || note.String != fmt.Sprint("n", tenant) {
							t.Errorf("%s: %v %v", driver, note, err)
						}
					}
				})
			}
			wg.Wait()
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestBatch pipelines statements on one shard, with an error in the middle: as
// in PostgreSQL the whole pipeline is one implicit transaction.
func TestBatch(t *testing.T) {
	eachEngine(t, "sqlite", func(t *testing.T, c *cluster) {
		c.exec(t, createOrders)
		conn := c.connect(t)
		b := &pgx.Batch{}
		for id := range 50 {
			b.Queue(`INSERT INTO orders VALUES ($1, $2, 'x')`, 5, id)
		}
		b.Queue(`SELECT count(*) FROM orders WHERE tenant_id = 5`)
		results := conn.SendBatch(t.Context(), b)
		for range 50 {
			if _, err := results.Exec(); err != nil {
				t.Fatal(err)
			}
		}
		var n int
		if err := results.QueryRow().Scan(&n); err != nil || n != 50 {
			t.Fatalf("%d, %v", n, err)
		}
		if err := results.Close(); err != nil {
			t.Fatal(err)
		}
		b = &pgx.Batch{}
		b.Queue(`INSERT INTO orders VALUES (5, 100, 'x')`)
		b.Queue(`INSERT INTO orders VALUES (5, 1, 'twice')`)
		b.Queue(`INSERT INTO orders VALUES (5, 101, 'x')`)
		if err := conn.SendBatch(t.Context(), b).Close(); code(err) != "23505" {
			t.Fatalf("got %v, want a unique violation", err)
		}
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM orders WHERE tenant_id = 5`).Scan(&n); err != nil || n != 50 {
			t.Fatalf("%d rows after a failed batch, want 50; %v", n, err)
		}
	})
}

// TestCancel stops a running statement from outside; the connection lives on.
func TestCancel(t *testing.T) {
	eachEngine(t, "postgres", func(t *testing.T, c *cluster) {
		c.exec(t, createOrders)
		slow := `SELECT pg_sleep(60)`
		if c.engine == "sqlite" {
			slow = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) SELECT count(*) FROM n`
		}
		conn, err := pgx.Connect(t.Context(), c.url())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := conn.Exec(context.Background(), slow)
			done <- err
		}()
		time.Sleep(300 * time.Millisecond)
		if err := conn.PgConn().CancelRequest(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; code(err) != "57014" {
			t.Fatalf("got %v after %v", err, time.Since(began))
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Fatalf("the cancel took %v", took)
		}
		var one int
		if err := conn.QueryRow(t.Context(), `SELECT 1`).Scan(&one); err != nil {
			t.Fatal(err)
		}
		// statement_timeout does the same.
		if _, err := conn.Exec(t.Context(), `SET statement_timeout = '200ms'`); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), slow); code(err) != "57014" {
			t.Fatalf("statement_timeout: %v", err)
		}
	})
}

// TestSettingsFollowTheSession: what SET says holds on whichever shard a
// statement runs, and in no other session.
func TestSettingsFollowTheSession(t *testing.T) {
	testrun.Short(t)
	c := start(t, "postgres")
	c.exec(t, createOrders)
	one, other := c.connect(t), c.connect(t)
	if _, err := one.Exec(t.Context(), `SET TimeZone = 'Asia/Tokyo'`); err != nil {
		t.Fatal(err)
	}
	show := func(conn *pgx.Conn, tenant int) string {
		t.Helper()
		var zone string
		sql := fmt.Sprintf(`SELECT current_setting('TimeZone') FROM (SELECT count(*) FROM orders WHERE tenant_id = %d) o`, tenant)
		if err := conn.QueryRow(t.Context(), sql).Scan(&zone); err != nil {
			t.Fatal(err)
		}
		return zone
	}
	for tenant := range 40 {
		if z := show(one, tenant); z != "Asia/Tokyo" {
			t.Fatalf("tenant %d: the session's zone is %s", tenant, z)
		}
		if z := show(other, tenant); z == "Asia/Tokyo" {
			t.Fatalf("tenant %d: another session's zone is %s", tenant, z)
		}
	}
}

// TestManySessions: far more clients than shard connections.
func TestManySessions(t *testing.T) {
	eachEngine(t, "postgres", func(t *testing.T, c *cluster) {
		c.exec(t, createOrders)
		pool, err := pgxpool.New(t.Context(), c.url()+"&pool_max_conns=150")
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		var wg sync.WaitGroup
		for tenant := range 150 {
			wg.Go(func() {
				for id := range 4 {
					if _, err := pool.Exec(t.Context(), `INSERT INTO orders VALUES ($1, $2, 'x')`, tenant, id); err != nil {
						t.Error(err)
						return
					}
				}
				var n int
				if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM orders WHERE tenant_id = $1`, tenant).Scan(&n); err != nil || n != 4 {
					t.Errorf("tenant %d: %d rows, %v", tenant, n, err)
				}
			})
		}
		wg.Wait()
		pool.Close()
		// Sessions and what they held are gone.
		deadline := time.Now().Add(waitfor.Max)
		for c.metric(t, "go_goroutines") > 200 {
			if time.Now().After(deadline) {
				t.Fatalf("%v goroutines are left", c.metric(t, "go_goroutines"))
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

var processed = regexp.MustCompile(`number of transactions actually processed: (\d+)`)

// TestPgbench runs pgbench's own tables and its select-only script, in all
// three protocol modes.
func TestPgbench(t *testing.T) {
	eachEngine(t, "sqlite", func(t *testing.T, c *cluster) {
		c.exec(t,
			`CREATE TABLE pgbench_branches (bid int NOT NULL PRIMARY KEY, bbalance int, filler text)`,
			`CREATE TABLE pgbench_tellers (tid int NOT NULL PRIMARY KEY, bid int, tbalance int, filler text) WITH (cleave.shard_key = 'tid')`,
			`CREATE TABLE pgbench_accounts (aid int NOT NULL PRIMARY KEY, bid int, abalance int, filler text) WITH (cleave.shard_key = 'aid')`,
			`CREATE TABLE pgbench_history (tid int, bid int, aid int NOT NULL, delta int, mtime timestamp, filler text) WITH (cleave.shard_key = 'aid')`,
			`INSERT INTO pgbench_branches VALUES (1, 0, '')`,
		)
		conn := c.connect(t)
		const accounts = 500
		for aid := 1; aid <= accounts; aid++ {
			if _, err := conn.Exec(t.Context(), `INSERT INTO pgbench_accounts VALUES ($1, 1, $1, '')`, aid); err != nil {
				t.Fatal(err)
			}
		}
		script := pgtest.Dir(t) + "/select.sql"
		writeFile(t, script, "\\set aid random(1, "+strconv.Itoa(accounts)+")\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n")
		for _, mode := range []string{"simple", "extended", "prepared"} {
			for _, args := range [][]string{{"-f", script}, {"-S", "-D", "scale=1"}} {
				cmd := exec.Command(pgtest.PGBench(t), append([]string{"-n", "-M", mode, "-c", "8", "-j", "2", "-t", "100"}, append(args, c.url())...)...)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("pgbench %s %v: %v\n%s", mode, args, err, out)
				}
				m := processed.FindStringSubmatch(string(out))
				if m == nil || m[1] != "800" || strings.Contains(string(out), "ERROR") {
					t.Fatalf("pgbench %s %v:\n%s", mode, args, out)
				}
			}
		}
	})
}
