package gateway_test

import (
	"context"
	"fmt"
	"testing"
)

// TestApplicationNameOnShards: the shards' pg_stat_activity shows the name that the client has given itself, in a transaction over
// several of them too, and SHOW tells the same.
func TestApplicationNameOnShards(t *testing.T) {
	cl, conn, _ := orders(t, config{shards: 2})
	c := cl.connect(t, "&application_name=shop")
	shown := func(when, name string) {
		t.Helper()
		if got := one[string](t, c, "SHOW application_name"); got != name {
			t.Errorf("%s: SHOW tells %q, not %q", when, got, name)
		}
		if got := c.PgConn().ParameterStatus("application_name"); got != name {
			t.Errorf("%s: the client was told %q, not %q", when, got, name)
		}
		exec(t, c, "SELECT count(*) FROM orders")
		for i, url := range cl.shards {
			if got := directly(t, url, fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '%s'", name)); got != "1" {
				t.Errorf("%s: shard %d has %s sessions of %s", when, i, got, name)
			}
		}
	}
	exec(t, c, "BEGIN")
	shown("from the start", "shop")
	exec(t, c, "SET LOCAL application_name = 'till'")
	shown("after SET LOCAL", "till")
	exec(t, c, "SAVEPOINT s")
	exec(t, c, "SET application_name = 'desk'")
	shown("after SET", "desk")
	exec(t, c, "ROLLBACK TO s")
	shown("after ROLLBACK TO", "till")
	exec(t, c, "COMMIT")
	exec(t, c, "BEGIN")
	shown("after COMMIT", "shop")
	exec(t, c, "COMMIT")
	_ = c.Close(context.Background())
	if got := one[string](t, conn, "SHOW application_name"); got != "" {
		t.Errorf("another session has the name %q", got)
	}
}
