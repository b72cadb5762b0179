package gateway_test

import "testing"

// TestResetAllKeepsTheRole as PostgreSQL does; RESET SESSION AUTHORIZATION does not.
func TestResetAllKeepsTheRole(t *testing.T) {
	_, conn, _ := orders(t, config{executor: limitsOf(1)})
	was := one[string](t, conn, `SELECT current_user`)
	for range 3 {
		exec(t, conn, `SET ROLE pg_monitor`)
		exec(t, conn, `RESET ALL`)
		if got := one[string](t, conn, `SELECT current_user`); got != "pg_monitor" {
			t.Errorf("after RESET ALL the role is %s", got)
		}
		exec(t, conn, `RESET SESSION AUTHORIZATION`)
		if got := one[string](t, conn, `SELECT current_user`); got != was {
			t.Errorf("after RESET SESSION AUTHORIZATION the role is %s", got)
		}
	}
}
