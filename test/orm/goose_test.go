package orm

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
)

// TestGoose migrates up, down and up again; goose keeps its versions in a table
// of its own.
func TestGoose(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c target) {
		ctx := context.Background()
		p := migrate(t, c)
		want := map[string]string{"goose_db_version": "whole", "currencies": "whole", "customers": "sharded", "orders": "sharded", "lines": "sharded"}
		if got := tables(t, c); !maps.Equal(got, want) {
			t.Errorf("tables %v, want %v", got, want)
		}
		if v, err := p.GetDBVersion(ctx); err != nil || v != 2 {
			t.Errorf("version %d, %v", v, err)
		}
		if pending, err := p.HasPending(ctx); err != nil || pending {
			t.Errorf("pending %v, %v", pending, err)
		}
		if _, err := p.Down(ctx); err != nil {
			t.Fatal(err)
		}
		delete(want, "lines")
		if got := tables(t, c); !maps.Equal(got, want) {
			t.Errorf("after one step down: %v", got)
		}
		if _, err := p.DownTo(ctx, 0); err != nil {
			t.Fatal(err)
		}
		if got := tables(t, c); len(got) != 1 {
			t.Errorf("after all steps down: %v", got)
		}
		if _, err := p.Up(ctx); err != nil {
			t.Fatal(err)
		}
		status, err := p.Status(ctx)
		if err != nil || len(status) != 2 || status[0].State != "applied" || status[1].State != "applied" {
			t.Errorf("status %v, %v", status, err)
		}
		if !strings.HasSuffix(t.Name(), "/sqlite") { // a file prepares no definitions
			backfill(t, c)
		}
	})
}

// backfill runs a migration that fills a new column of rows on all shards, and takes the versions of goose along.
func backfill(t *testing.T, c target) {
	ctx := context.Background()
	for i := range 30 {
		if _, err := c.db.Exec("INSERT INTO customers (tenant_id, id, name, email) VALUES ($1, gen_random_uuid(), $2, $3)", i, fmt.Sprint("n", i), fmt.Sprint(10+i, "@example.org")); err != nil {
			t.Fatal(err)
		}
	}
	all := fstest.MapFS{"00003_short.sql": {Data: []byte(`-- +goose Up
ALTER TABLE customers ADD COLUMN short text;
UPDATE customers SET short = left(email, 2);
ALTER TABLE customers ALTER COLUMN short SET NOT NULL;
CREATE TABLE shorts (tenant_id bigint, short text, n bigint, PRIMARY KEY (tenant_id, short)) WITH (cleave.shard_key = 'tenant_id');
INSERT INTO shorts SELECT tenant_id, short, count(*) FROM customers GROUP BY tenant_id, short;
INSERT INTO currencies SELECT 'n' || count(*), 'customers' FROM customers;
-- +goose Down
UPDATE customers SET name = name || short;
DROP TABLE shorts;
ALTER TABLE customers DROP COLUMN short;
`)}}
	for _, name := range []string{"00001_shop.sql", "00002_lines.sql"} {
		data, err := files.ReadFile("migrations/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &fstest.MapFile{Data: data}
	}
	p, err := goose.NewProvider(goose.DialectPostgres, c.db, all)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(ctx); err != nil {
		t.Fatal(err)
	}
	var filled, code string
	if err := c.db.QueryRow("SELECT count(*) || ' ' || count(DISTINCT short) || ' ' || (SELECT sum(n) FROM shorts) || ' ' || (SELECT max(code) FROM currencies) FROM customers").Scan(&filled); err != nil || filled != "30 30 30 n30" {
		t.Errorf("filled %s, %v", filled, err)
	}
	if _, err := p.Down(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.db.QueryRow("SELECT max(name) FROM customers").Scan(&code); err != nil || code != "n919" {
		t.Errorf("undone: %s, %v", code, err)
	}
}
