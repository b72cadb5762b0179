package cleave_test

import (
	"context"
	"strings"
	"testing"
)

// TestCopyFreeze: COPY WITH (FREEZE) goes into an unsharded table that the transaction has truncated, as in PostgreSQL: `pgbench -i` does so.
func TestCopyFreeze(t *testing.T) {
	c, _ := fresh(t, "2")
	ctx := context.Background()
	conn, err := c.Pool().Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	do := func(sql string) {
		t.Helper()
		if _, err := pg.Exec(ctx, sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	do("CREATE TABLE f (id bigint)")
	for before, code := range map[string]string{"BEGIN": "55000", "BEGIN; TRUNCATE f": "", "BEGIN; SAVEPOINT s; TRUNCATE f; RELEASE s": "0A000", "BEGIN; TRUNCATE f; SAVEPOINT s": "0A000"} {
		do(before)
		tag, err := pg.CopyFrom(ctx, strings.NewReader("1\n2\n"), "COPY f FROM STDIN (FREEZE)")
		if codeOf(err) != code || code == "" && tag.RowsAffected() != 2 {
			t.Errorf("after %s: %v, %v, want %q", before, tag, err, code)
		}
		do("ROLLBACK")
	}
}
