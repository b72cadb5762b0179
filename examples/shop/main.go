// Command shop is a shop of many tenants in one program. What belongs to one
// tenant is on one shard, and the program never says on which.
//
//	go run ./examples/shop                       # on SQLite files, made at the first run
//	go run ./examples/shop file:./.cleave-pg     # on PostgreSQL shards, while `cleave up --engine postgres --data ./.cleave-pg` runs
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave"
)

const tables = `CREATE TABLE IF NOT EXISTS products (tenant text, sku text, price numeric(10, 2), stock integer,
	PRIMARY KEY (tenant, sku)) WITH (cleave.shard_key = 'tenant');
CREATE TABLE IF NOT EXISTS sales (tenant text, id integer, sku text, quantity integer, PRIMARY KEY (tenant, id),
	FOREIGN KEY (tenant, sku) REFERENCES products (tenant, sku)) WITH (cleave.shard_key = 'tenant')`

func main() {
	url := append(os.Args, "file:./.cleave-shop?shards=4")[1] // the argument, if there is one
	run(context.Background(), url, os.Stdout)
}

func run(ctx context.Context, url string, out io.Writer) {
	cluster, err := cleave.Open(ctx, url)
	check(err)
	defer cluster.Close()
	_, err = cluster.Pool().Exec(ctx, tables)
	check(err)
	for i, tenant := range []string{"berlin", "lyon", "porto", "turin"} {
		_, err = cluster.Pool().Exec(ctx, `DELETE FROM sales WHERE tenant = $1`, tenant)
		check(err)
		_, err = cluster.Pool().Exec(ctx, `INSERT INTO products VALUES ($1, 'tea', 3.50, $2), ($1, 'cup', 12, $2)
			ON CONFLICT (tenant, sku) DO UPDATE SET stock = excluded.stock`, tenant, 5*(i+1))
		check(err)
		for id, sku := range []string{"tea", "cup", "tea"} {
			if err := order(ctx, cluster, tenant, id, sku, 3*(i+1)); err != nil {
				fmt.Fprintf(out, "%s: order %d: %v\n", tenant, id, err)
			}
		}
		var turnover string
		check(cluster.Pool().QueryRow(ctx, `SELECT sum(s.quantity * p.price)::text
			FROM sales s JOIN products p USING (tenant, sku) WHERE s.tenant = $1`, tenant).Scan(&turnover))
		owner, err := cluster.ForKey(ctx, "hash_text", tenant)
		check(err)
		fmt.Fprintf(out, "%s: turnover %s, on %s\n", tenant, turnover, owner.Shard())
	}
}

// order takes the goods from the shelf and notes the order, or does nothing.
func order(ctx context.Context, cluster *cleave.Cluster, tenant string, id int, sku string, quantity int) error {
	return pgx.BeginFunc(ctx, cluster.Pool(), func(tx pgx.Tx) error {
		taken, err := tx.Exec(ctx, `UPDATE products SET stock = stock - $3 WHERE tenant = $1 AND sku = $2 AND stock >= $3`, tenant, sku, quantity)
		if err == nil && taken.RowsAffected() == 0 {
			err = fmt.Errorf("there is not enough %s left", sku)
		} else if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO sales VALUES ($1, $2, $3, $4)`, tenant, id, sku, quantity)
		}
		return err
	})
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
