package gateway_test

import (
	"fmt"
	"testing"
)

// TestDomainsKeepTheirValues: values of domains that a changed shard key carries to another shard are what they were under every
// setting, or the statement is refused.
func TestDomainsKeepTheirValues(t *testing.T) {
	_, conn, _ := orders(t, config{shards: 2})
	exec(t, conn, `CREATE DOMAIN fl AS float8`)
	exec(t, conn, `CREATE DOMAIN mo AS timestamptz`)
	exec(t, conn, `CREATE TABLE dd (k bigint, id int, f fl, z mo, PRIMARY KEY (k, id)) WITH (cleave.shard_key = 'k')`)
	for k := range 8 {
		exec(t, conn, fmt.Sprintf(`INSERT INTO dd VALUES (%d, 1, 1 / 7.0::float8, '2024-07-05 12:00:00+00')`, k))
	}
	const right = `SELECT count(*) FROM dd WHERE f = 1 / 7.0::float8 AND z = '2024-07-05 12:00:00+00'`
	for _, set := range []string{`SET extra_float_digits = -3`, `SET DateStyle = 'Postgres, DMY'; SET TimeZone = 'Asia/Shanghai'`, `SET DateStyle = 'German'`, ``} {
		if set != "" {
			if _, err := conn.PgConn().Exec(t.Context(), set).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
		if got := code(conn, `UPDATE dd SET k = k + 100`); got != "" && (got != "0A000" || set == "") {
			t.Errorf("%s: %s", set, got)
		}
		exec(t, conn, `RESET ALL`)
		if n := one[int](t, conn, right); n != 8 {
			t.Errorf("after %q %d values of 8 are right", set, n)
		}
	}
}
