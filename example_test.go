package cleave_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave"
	"github.com/cleavedb/cleave/admin"
)

// scratch returns the URL of a folder that the examples may use up.
func scratch() (url string, remove func()) {
	dir, err := os.MkdirTemp("", "cleave-example")
	if err != nil {
		log.Fatal(err)
	}
	return "file:" + filepath.Join(dir, "data") + "?shards=4", func() { _ = os.RemoveAll(dir) }
}

// filled opens a cluster with the orders of two tenants.
func filled(ctx context.Context) (*cleave.Cluster, func()) {
	url, remove := scratch()
	cluster, err := cleave.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	for _, sql := range []string{createOrders, "INSERT INTO orders VALUES (1, 1, 'tea'), (1, 2, 'cups')", "INSERT INTO orders VALUES (2, 1, 'ink')"} {
		if _, err := cluster.DB().ExecContext(ctx, sql); err != nil {
			log.Fatal(err)
		}
	}
	return cluster, func() { _ = cluster.Close(); remove() }
}

func ExampleOpen() {
	ctx := context.Background()
	url, remove := scratch() // "file:./data?shards=4"
	defer remove()
	cluster, err := cleave.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	db := cluster.DB()
	if _, err := db.Exec(`CREATE TABLE orders (tenant_id bigint, id bigint, note text,
		PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id')`); err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO orders VALUES ($1, $2, $3)`, 42, 1, "tea"); err != nil {
		log.Fatal(err)
	}
	var note string
	if err := db.QueryRow(`SELECT note FROM orders WHERE tenant_id = $1`, 42).Scan(&note); err != nil {
		log.Fatal(err)
	}
	fmt.Println(note)
	// Output: tea
}

func ExampleCluster_DB() {
	ctx := context.Background()
	cluster, end := filled(ctx)
	defer end()
	db := cluster.DB()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(`UPDATE orders SET note = 'green tea' WHERE tenant_id = 1 AND id = 1`); err != nil {
		log.Fatal(err)
	}
	// Another tenant, perhaps on another shard: the transaction is on both, or on none.
	_, err = tx.Exec(`INSERT INTO orders VALUES (2, 1, 'blue ink')`)
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		fmt.Println(pg.Code, pg.ConstraintName)
	}
	// Output: 23505 orders_pkey
}

func ExampleCluster_Pool() {
	ctx := context.Background()
	cluster, end := filled(ctx)
	defer end()
	rows, err := cluster.Pool().Query(ctx, `SELECT note FROM orders WHERE tenant_id = $1 ORDER BY id`, 1)
	if err != nil {
		log.Fatal(err)
	}
	notes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(notes)
	// Output: [tea cups]
}

func ExampleCluster_ForKey() {
	ctx := context.Background()
	cluster, end := filled(ctx)
	defer end()
	owner, err := cluster.ForKey(ctx, "hash_bigint", 1)
	if err != nil {
		log.Fatal(err)
	}
	var n int
	if err := owner.Pool().QueryRow(ctx, `SELECT count(*) FROM orders WHERE tenant_id = 1`).Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println(owner.Shard(), n)
	// The shard refuses rows that it does not own from every client.
	_, err = owner.Pool().Exec(ctx, `INSERT INTO orders VALUES (2, 2, 'quill')`)
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		fmt.Println(pg.Code, pg.Message)
	}
	// Output:
	// shard-1 2
	// ZC001 this shard does not own the row's shard key
}

// Work on an owner is repeated when the owner changes meanwhile.
func ExampleOwner() {
	ctx := context.Background()
	cluster, end := filled(ctx)
	defer end()
	rename := func(tenant, id int64, note string) error {
		for {
			owner, err := cluster.ForKey(ctx, "hash_bigint", tenant)
			if err != nil {
				return err
			}
			_, err = owner.Pool().Exec(ctx, `UPDATE orders SET note = $3 WHERE tenant_id = $1 AND id = $2`, tenant, id, note)
			var pg *pgconn.PgError
			if errors.As(err, &pg) && pg.Code == "40001" {
				continue
			}
			return err
		}
	}
	fmt.Println(rename(1, 2, "saucers"))
	// Output: <nil>
}

func ExampleCluster_Admin() {
	ctx := context.Background()
	url, remove := scratch()
	defer remove()
	cluster, err := cleave.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	if _, err := cluster.Admin().CreateKeyspace(ctx, admin.CreateKeyspaceRequest{
		Name: "regions", Strategy: "list", KeyTypes: []string{"text"},
		Values: []admin.ListedValue{{Key: []string{"eu"}, Shard: "shard-0"}, {Key: []string{"us"}, Shard: "shard-1"}},
	}); err != nil {
		log.Fatal(err)
	}
	where, err := cluster.Admin().ShardOf(ctx, admin.ShardOfRequest{Keyspace: "regions", Key: []string{"us"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(where.Shard)
	// Output: shard-1
}
