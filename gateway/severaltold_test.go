package gateway_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestSeveralIsEnteredOnce: a write of the extended protocol that takes a block from one shard to several does so once, whether its Parse waited or
// not; and a SET after it is told of.
func TestSeveralIsEnteredOnce(t *testing.T) {
	t.Parallel()
	cl, _, keys := orders(t, config{shards: 2})
	ctx := context.Background()
	c, err := pgconn.Connect(ctx, cl.url(""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	for i, begin := range []string{"BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"} {
		ask := func(sql string) {
			t.Helper()
			if _, err := c.Exec(ctx, sql).ReadAll(); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
		ask(begin)
		ask(fmt.Sprintf("SELECT * FROM orders WHERE tenant_id = %d", keys[0][0]))
		if err := c.ExecParams(ctx, fmt.Sprintf("INSERT INTO orders VALUES (%d, %d, 'x')", keys[1][0], i), nil, nil, nil, nil).Read().Err; err != nil {
			t.Fatal(err)
		}
		ask(fmt.Sprintf("SET application_name = 'app %d'", i))
		if got, want := c.ParameterStatus("application_name"), fmt.Sprintf("app %d", i); got != want {
			t.Errorf("%s: the client was told application_name %q, want %q", begin, got, want)
		}
		ask("SET LOCAL datestyle = 'Postgres'")
		if got := c.ParameterStatus("DateStyle"); got != "Postgres, MDY" {
			t.Errorf("%s: the client was told DateStyle %q", begin, got)
		}
		ask("COMMIT")
	}
}
