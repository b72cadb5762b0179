package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestChangedResultNamesItsRoutine: pgjdbc, ActiveRecord and postgres.js prepare a statement anew when its columns are
// others, which they know by the error's routine alone.
func TestChangedResultNamesItsRoutine(t *testing.T) {
	_, conn, keys := orders(t, config{})
	exec(t, conn, "CREATE TABLE whole (id int)")
	ctx, pc := context.Background(), conn.PgConn()
	for name, sql := range map[string]string{"several": "SELECT * FROM orders", "one": "SELECT * FROM orders WHERE tenant_id = $1", "whole": "SELECT * FROM whole"} {
		if _, err := pc.Prepare(ctx, name, sql, nil); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, conn, "ALTER TABLE orders ADD COLUMN more int")
	exec(t, conn, "ALTER TABLE whole ADD COLUMN more int")
	var e *pgconn.PgError
	for name, args := range map[string][][]byte{"several": nil, "one": {[]byte(fmt.Sprint(keys[0][0]))}, "whole": nil} {
		err := pc.ExecPrepared(ctx, name, args, nil, nil).Read().Err
		if !errors.As(err, &e) || e.Code != "0A000" || e.Routine != "RevalidateCachedQuery" {
			t.Errorf("%s: %v, routine %+v", name, err, e)
		}
	}
	exec(t, conn, "INSERT INTO orders VALUES (1, 1, 'x')")
	_, err := pc.Exec(ctx, "SELECT sum(1 / (tenant_id - tenant_id)) FROM orders").ReadAll()
	if !errors.As(err, &e) || e.Code != "22012" || e.File == "" || e.Line == 0 || e.Routine == "" {
		t.Errorf("the error of a statement over several shards lacks its place: %+v", e)
	}
}
