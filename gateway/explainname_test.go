package gateway_test

import (
	"context"
	"testing"
	"time"
)

// TestExplainOptionIsAName: an option of EXPLAIN goes to the shards as a name, whatever is in it.
func TestExplainOptionIsAName(t *testing.T) {
	_, conn, keys := orders(t, config{shards: 2})
	total := fill(t, conn, keys, 2)
	for _, option := range []string{`"analyze) DELETE FROM orders --"`, `"costs""off"`, `"costs off, analyze"`, `nosuch`} {
		for _, format := range []string{"text", "json", "yaml", "xml"} {
			wantCode(t, conn, "42601", `EXPLAIN (`+option+`, FORMAT `+format+`) SELECT note FROM orders`)
		}
	}
	exec(t, conn, `EXPLAIN ("analyze" 1, COSTS 0, "timing" off, FORMAT json) SELECT note FROM orders`)
	if n := one[int](t, conn, `SELECT count(*) FROM orders`); n != total {
		t.Errorf("%d rows of %d are left", n, total)
	}
}

// TestListenAfterUnlisten: the last of UNLISTEN and LISTEN in a transaction is what counts.
func TestListenAfterUnlisten(t *testing.T) {
	cl, conn, _ := orders(t, config{shards: 2})
	other := cl.connect(t)
	for name, sql := range map[string][]string{
		"all, then one":      {"BEGIN", "UNLISTEN *", "LISTEN news", "COMMIT"},
		"one, then the same": {"LISTEN news", "BEGIN", "UNLISTEN news", "LISTEN news", "COMMIT"},
		"listened before":    {"LISTEN news", "BEGIN", "UNLISTEN *", "LISTEN news", "COMMIT"},
		"rolled back":        {"LISTEN news", "BEGIN", "UNLISTEN *", "ROLLBACK"},
		"in one message":     {"UNLISTEN *; LISTEN news"},
	} {
		exec(t, conn, "UNLISTEN *")
		for _, s := range sql {
			if _, err := conn.PgConn().Exec(context.Background(), s).ReadAll(); err != nil {
				t.Fatalf("%s: %s: %v", name, s, err)
			}
		}
		exec(t, other, "NOTIFY news")
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		if n, err := conn.WaitForNotification(ctx); err != nil || n.Channel != "news" {
			t.Errorf("%s: %v, %v", name, n, err)
		}
		stop()
	}
	for _, s := range []string{"BEGIN", "LISTEN a", "UNLISTEN *", "COMMIT"} {
		exec(t, conn, s)
	}
	exec(t, other, "NOTIFY a")
	exec(t, other, "NOTIFY news")
	exec(t, conn, "LISTEN b")
	exec(t, other, "NOTIFY b")
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if n, err := conn.WaitForNotification(ctx); err != nil || n.Channel != "b" {
		t.Errorf("after UNLISTEN *: %v, %v", n, err)
	}
}
