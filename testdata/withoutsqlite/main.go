// Command withoutsqlite opens a cluster, and prints what it says: TestWithoutSQLite builds it without SQLite.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave"
)

func main() {
	ctx := context.Background()
	c, err := cleave.Open(ctx, os.Args[1])
	if err != nil {
		fmt.Println("open:", err)
		return
	}
	defer c.Close()
	for _, sql := range os.Args[2:] {
		var out string
		err := c.Pool().QueryRow(ctx, sql).Scan(&out)
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
			fmt.Println(pg.Code, pg.Message, pg.Hint)
			continue
		}
		fmt.Println(out, err)
	}
}
