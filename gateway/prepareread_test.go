package gateway_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// readings are settings that decide what a literal means, a literal, and a query that shows what it means whatever the settings are.
var readings = []struct{ parse, run, query, want string }{
	{"SET datestyle = 'ISO, DMY'", "SET datestyle = 'SQL, MDY'", "to_char('03/04/2005'::date, 'YYYY-MM-DD')", "2005-04-03"},
	{"SET timezone = 'Asia/Tokyo'", "SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE", "extract(epoch FROM '2005-03-04 09:00'::timestamptz)::bigint", "1109894400"},
	{"SET intervalstyle = 'sql_standard'", "RESET intervalstyle", "extract(epoch FROM '-1 2:00:00'::interval)::bigint", "-93600"},
	{"SET array_nulls = off", "RESET array_nulls", "('{NULL}'::text[])[1] IS NULL", "f"},
}

// TestPreparedStatementsKeepTheirReading: a literal of a prepared statement means what it meant when the statement was parsed, on whichever connection and
// under whatever settings it is run. The session's own settings stay what they are, and the client hears of nothing.
func TestPreparedStatementsKeepTheirReading(t *testing.T) {
	t.Parallel()
	cl, _, keys := orders(t, config{shards: 2, executor: limitsOf(1)})
	ctx := context.Background()
	for _, r := range readings {
		for _, from := range []string{"", fmt.Sprintf(" FROM (SELECT count(*) FROM orders WHERE tenant_id = %d) q", keys[1][0])} {
			c, err := pgconn.Connect(ctx, cl.url(""))
			if err != nil {
				t.Fatal(err)
			}
			ask := func(sql string) string {
				t.Helper()
				all, err := c.Exec(ctx, sql).ReadAll()
				if err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
				if rows := all[len(all)-1].Rows; len(rows) > 0 {
					return string(rows[0][0])
				}
				return ""
			}
			ask(r.parse)
			query := "SELECT " + r.query + from
			if _, err := c.Prepare(ctx, "p", query, nil); err != nil {
				t.Fatal(err)
			}
			ask("PREPARE s AS " + query)
			ask(r.run)
			told := c.ParameterStatus("DateStyle") + c.ParameterStatus("TimeZone") + c.ParameterStatus("IntervalStyle")
			for range 2 {
				got := c.ExecPrepared(ctx, "p", nil, nil, nil).Read()
				if got.Err != nil || string(got.Rows[0][0]) != r.want {
					t.Errorf("%s, then %s: %s by the protocol: %q %v, want %s", r.parse, r.run, query, got.Rows, got.Err, r.want)
				}
				if got := ask("EXECUTE s"); got != r.want {
					t.Errorf("%s, then %s: EXECUTE of %s: %s, want %s", r.parse, r.run, query, got, r.want)
				}
				if got, now := ask("BEGIN; EXECUTE s; COMMIT; SELECT "+r.query), ask("SELECT "+r.query); got != now || now == r.want {
					t.Errorf("%s, then %s: %s without PREPARE is %s and %s, want another than %s", r.parse, r.run, query, got, now, r.want)
				}
			}
			if now := c.ParameterStatus("DateStyle") + c.ParameterStatus("TimeZone") + c.ParameterStatus("IntervalStyle"); now != told {
				t.Errorf("the client was told %s, and then %s", told, now)
			}
			// Over several shards it is refused, unless it is prepared again, or has nothing to read.
			both := fmt.Sprintf("SELECT %s, count(*) FROM orders WHERE tenant_id IN (%d, %d)", r.query, keys[0][0], keys[1][0])
			ask(r.parse)
			ask("PREPARE b AS " + both)
			ask(fmt.Sprintf("PREPARE n AS SELECT count(*) FROM orders WHERE tenant_id IN (%d, %d)", keys[0][0], keys[1][0]))
			ask(r.run)
			if _, err := c.Exec(ctx, "EXECUTE b").ReadAll(); codeOf(err) != "0A000" {
				t.Errorf("%s, then %s: EXECUTE of %s: %v", r.parse, r.run, both, err)
			}
			ask("EXECUTE n")
			ask(r.parse)
			if got := ask("EXECUTE b"); got != r.want {
				t.Errorf("%s: EXECUTE of %s: %s, want %s", r.parse, both, got, r.want)
			}
			_ = c.Close(ctx)
		}
	}
	if left := cl.remains(ctx, t); left != "" {
		t.Error(left)
	}
}
