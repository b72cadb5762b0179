package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/engine/sqlite"
)

// onShard asks one shard directly, past the router.
func onShard(t testing.TB, s shardInfo, sql string) (*engine.Result, error) {
	t.Helper()
	var d engine.Driver = postgres.Driver{}
	if s.Engine == "sqlite" {
		d = sqlite.Driver{}
	}
	shard, err := d.Open(engine.Config{Name: s.Name, URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer shard.Close()
	conn, err := shard.Connect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return engine.Exec(conn, sql)
}

// TestRowsLandOnTheirShards is the first session: rows go to the owner
// of their key, each is there once, and comes back through the router.
func TestRowsLandOnTheirShards(t *testing.T) {
	eachEngine(t, "sqlite", func(t *testing.T, c *cluster) {
		c.exec(t, createOrders)
		conn := c.connect(t)
		const tenants = 200
		for tenant := range tenants {
			tag, err := conn.Exec(t.Context(), `INSERT INTO orders VALUES ($1, 1, $2), ($1, 2, NULL)`, tenant, fmt.Sprintf("note %d", tenant))
			if err != nil {
				t.Fatal(err)
			}
			if tag.String() != "INSERT 0 2" {
				t.Fatalf("tag %q", tag)
			}
		}
		place := map[string]string{} // tenant -> shard
		used := map[string]int{}
		for _, s := range c.shards(t) {
			res, err := onShard(t, s, `SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id`)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range res.Rows {
				if other, ok := place[row[0].String]; ok {
					t.Fatalf("tenant %s is on %s and on %s", row[0].String, other, s.Name)
				}
				if row[1].String != "2" {
					t.Fatalf("tenant %s has %s rows on %s", row[0].String, row[1].String, s.Name)
				}
				place[row[0].String] = s.Name
				used[s.Name]++
			}
		}
		if len(place) != tenants {
			t.Fatalf("%d tenants on the shards, want %d", len(place), tenants)
		}
		if len(used) != 4 {
			t.Fatalf("only these shards hold rows: %v", used)
		}
		for tenant := range tenants {
			var shard, note string
			if err := conn.QueryRow(t.Context(), `SELECT cleave.shard_of('hash_bigint', $1)`, fmt.Sprint(tenant)).Scan(&shard); err != nil {
				t.Fatal(err)
			}
			if want := place[fmt.Sprint(tenant)]; shard != want {
				t.Fatalf("shard_of says %s, the row is on %s", shard, want)
			}
			if err := conn.QueryRow(t.Context(), `SELECT note FROM orders WHERE tenant_id = $1 AND id = 1`, tenant).Scan(&note); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("note %d", tenant); note != want {
				t.Fatalf("note %q, want %q", note, want)
			}
		}
	})
}

// TestTheShardRefuses writes past the router: a wrong row, a key change and a
// TRUNCATE are refused with the private SQLSTATE.
func TestTheShardRefuses(t *testing.T) {
	eachEngine(t, "postgres", func(t *testing.T, c *cluster) {
		c.exec(t, createOrders, `INSERT INTO orders VALUES (42, 1, 'mine')`)
		conn := c.connect(t)
		var owner string
		if err := conn.QueryRow(t.Context(), `SELECT cleave.shard_of('hash_bigint', 42)`).Scan(&owner); err != nil {
			t.Fatal(err)
		}
		var foreign string // a key of another shard
		for key := 0; foreign == ""; key++ {
			var s string
			if err := conn.QueryRow(t.Context(), `SELECT cleave.shard_of('hash_bigint', $1)`, fmt.Sprint(key)).Scan(&s); err != nil {
				t.Fatal(err)
			}
			if s != owner {
				foreign = fmt.Sprint(key)
			}
		}
		for _, s := range c.shards(t) {
			statements := []string{`TRUNCATE orders`}
			if s.Name == owner {
				statements = append(statements, `INSERT INTO orders VALUES (`+foreign+`, 1, 'stray')`, `UPDATE orders SET tenant_id = `+foreign)
			} else {
				statements = append(statements, `INSERT INTO orders VALUES (42, 2, 'stray')`)
			}
			for _, sql := range statements {
				_, err := onShard(t, s, sql)
				if code(err) != "ZC001" {
					t.Errorf("%s: %s gave %v, want SQLSTATE ZC001", s.Name, sql, err)
				}
				if s.Engine == "postgres" {
					out := psql(t, s.URL, "\\set VERBOSITY verbose\n"+sql+";\n")
					if !strings.Contains(out, "ZC001") {
						t.Errorf("psql on %s: %s gave %s", s.Name, sql, out)
					}
				}
			}
		}
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM orders WHERE tenant_id = 42`).Scan(&n); err != nil || n != 1 {
			t.Fatalf("%d rows, %v", n, err)
		}
		// The router's own TRUNCATE reaches every shard.
		c.exec(t, `TRUNCATE orders`)
		for _, s := range c.shards(t) {
			res, err := onShard(t, s, `SELECT count(*) FROM orders`)
			if err != nil || res.Rows[0][0].String != "0" {
				t.Fatalf("%s: %v %v", s.Name, res, err)
			}
		}
	})
}

func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	var s interface{ SQLState() string }
	if errors.As(err, &s) {
		return s.SQLState()
	}
	return codeOf(err)
}

// TestStrategies places rows by range, by list and by pin.
func TestStrategies(t *testing.T) {
	eachEngine(t, "postgres", func(t *testing.T, c *cluster) {
		c.exec(t,
			`SELECT cleave.create_keyspace('days', 'range', 'date', bounds => ARRAY['2026-01-01', '2026-04-01', '2026-07-01'])`,
			`SELECT cleave.create_keyspace('regions', 'list', 'text', listed => ARRAY['eu=shard-1', 'us=shard-2'])`,
			`SELECT cleave.create_keyspace('wide', 'hash', 'bigint, text', ranges => 32)`,
			`CREATE TABLE events (day date NOT NULL, id bigint NOT NULL, PRIMARY KEY (day, id)) WITH (cleave.shard_key = 'day', cleave.keyspace = 'days')`,
			`CREATE TABLE users (region text NOT NULL, id bigint NOT NULL, PRIMARY KEY (region, id)) WITH (cleave.shard_key = 'region', cleave.keyspace = 'regions')`,
			`CREATE TABLE parts (a bigint, b text, PRIMARY KEY (a, b)) WITH (cleave.shard_key = 'a, b', cleave.keyspace = 'wide')`,
			`INSERT INTO events VALUES ('2025-12-31', 1)`,
			`INSERT INTO events VALUES ('2026-01-01', 1), ('2026-03-31', 2)`,
			`INSERT INTO events VALUES ('2026-07-01', 1)`,
			`INSERT INTO users VALUES ('eu', 1)`,
			`INSERT INTO users VALUES ('us', 1)`,
			`INSERT INTO parts VALUES (1, 'x')`,
			`SELECT cleave.pin('wide', ARRAY['7', 'seven'], 'shard-3')`,
			`INSERT INTO parts VALUES (7, 'seven')`,
		)
		rows := func(shard, table string) string {
			for _, s := range c.shards(t) {
				if s.Name == shard {
					res, err := onShard(t, s, `SELECT count(*) FROM `+table)
					if err != nil {
						t.Fatal(err)
					}
					return res.Rows[0][0].String
				}
			}
			t.Fatalf("no shard %s", shard)
			return ""
		}
		for _, w := range []struct{ shard, table, rows string }{
			{"shard-0", "events", "1"}, {"shard-1", "events", "2"}, {"shard-2", "events", "0"}, {"shard-3", "events", "1"},
			{"shard-0", "users", "0"}, {"shard-1", "users", "1"}, {"shard-2", "users", "1"},
			{"shard-3", "parts WHERE a = 7 AND b = 'seven'", "1"},
		} {
			if got := rows(w.shard, w.table); got != w.rows {
				t.Errorf("%s has %s rows of %s, want %s", w.shard, got, w.table, w.rows)
			}
		}
		conn := c.connect(t)
		for sql, want := range map[string]string{
			`INSERT INTO users VALUES ('mars', 1)`:                                          "23514",
			`INSERT INTO users VALUES (NULL, 1)`:                                            "23502",
			`SELECT ctid FROM users`:                                                        "0A000",
			`CREATE TABLE bad (a bigint PRIMARY KEY, b bigint) WITH (cleave.shard_key='b')`: "0A000",
			`CREATE TABLE bad (a float8, b bigint) WITH (cleave.shard_key='a')`:             "0A000",
			`SELECT * FROM nothing`:                                                         "42P01",
			`SELECT cleave.pin('wide', ARRAY['7', 'seven'], 'shard-9')`:                     "",
			`SELECT cleave.create_keyspace('none', 'hash', 'bigint', ranges => 0)`:          "22023",
		} {
			_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
			if err == nil || want != "" && code(err) != want {
				t.Errorf("%s gave %v, want SQLSTATE %s", sql, err, want)
			}
		}
		// A refusal leaves no trace.
		for _, s := range c.shards(t) {
			if _, err := onShard(t, s, `SELECT * FROM bad`); code(err) != "42P01" {
				t.Errorf("%s: table bad: %v", s.Name, err)
			}
		}
	})
}

// TestTransactions binds a transaction to the shard it touches first.
func TestTransactions(t *testing.T) {
	eachEngine(t, "sqlite", func(t *testing.T, c *cluster) {
		c.exec(t, createOrders)
		conn := c.connect(t)
		ctx := t.Context()
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		must := func(sql string, args ...any) {
			t.Helper()
			if _, err := tx.Exec(ctx, sql, args...); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
		must(`INSERT INTO orders VALUES (1, 1, 'a')`)
		must(`SAVEPOINT s`)
		must(`INSERT INTO orders VALUES (1, 2, 'b')`)
		must(`ROLLBACK TO s`)
		must(`UPDATE orders SET note = 'c' WHERE tenant_id = 1`)
		// Nobody else sees it before the commit.
		var n int
		if err := c.connect(t).QueryRow(ctx, `SELECT count(*) FROM orders WHERE tenant_id = 1`).Scan(&n); err != nil || n != 0 {
			t.Fatalf("%d rows seen before the commit, %v", n, err)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		var note string
		if err := conn.QueryRow(ctx, `SELECT note FROM orders WHERE tenant_id = 1`).Scan(&note); err != nil || note != "c" {
			t.Fatalf("%q, %v", note, err)
		}
		// A second shard in the transaction: SQLite refuses it; nothing stays of what is rolled back.
		var first, other string
		if err := conn.QueryRow(ctx, `SELECT cleave.shard_of('hash_bigint', 1)`).Scan(&first); err != nil {
			t.Fatal(err)
		}
		key := 2
		for ; other == "" || other == first; key++ {
			if err := conn.QueryRow(ctx, `SELECT cleave.shard_of('hash_bigint', $1)`, fmt.Sprint(key)).Scan(&other); err != nil {
				t.Fatal(err)
			}
		}
		key--
		tx, err = conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		must(`INSERT INTO orders VALUES (1, 9, 'gone')`)
		if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1, 9, 'gone')`, key); err != nil && code(err) != "0A000" {
			t.Fatalf("second shard: %v", err)
		}
		_ = tx.Rollback(context.WithoutCancel(ctx))
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM orders WHERE tenant_id = 1 AND id = 9`).Scan(&n); err != nil || n != 0 {
			t.Fatalf("%d rows stayed, %v", n, err)
		}
	})
}
