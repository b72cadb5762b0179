package gateway_test

import "testing"

// TestResetAllKeepsTheRole as PostgreSQL does; RESET SESSION AUTHORIZATION does not.
func TestResetAllKeepsTheRole(t *testing.T) {
	cl, conn, _ := orders(t, config{executor: limitsOf(1)})
	cl.monitors(t)
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

// TestARoleOfATransactionEnds with it, whatever other settings the transaction resets; nobody else gets a connection that has it.
func TestARoleOfATransactionEnds(t *testing.T) {
	t.Parallel()
	cl, conn, _ := orders(t, config{executor: limitsOf(1)})
	cl.monitors(t)
	was := one[string](t, conn, `SELECT current_user`)
	for _, change := range []string{
		`SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE, ISOLATION LEVEL READ COMMITTED`, `RESET work_mem`, `RESET ALL`, `SET work_mem = '1MB'`,
	} {
		for _, sql := range []string{`BEGIN; SET LOCAL ROLE pg_monitor; ` + change + `; COMMIT`, `BEGIN; SET LOCAL ROLE pg_monitor; SELECT count(*) FROM orders; ` + change + `; COMMIT`, `SET LOCAL ROLE pg_monitor; ` + change} {
			exec(t, conn, `GRANT SELECT ON orders TO pg_monitor`)
			if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
			if got := one[string](t, conn, `SELECT current_user`); got != was {
				t.Errorf("after %s the role is %s", sql, got)
			}
			if got := one[string](t, cl.connect(t), `SELECT current_user`); got != was {
				t.Errorf("after %s another session's role is %s", sql, got)
			}
		}
	}
}
