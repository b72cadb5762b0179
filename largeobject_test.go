package cleave_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestNoLargeObjectsOnSQLite: a SQLite shard has no large objects, and what is about them is refused, not done in part.
func TestNoLargeObjectsOnSQLite(t *testing.T) {
	c, _ := fresh(t, "2")
	db := c.DB()
	run(t, db, createOrders)
	for _, sql := range []string{
		"SELECT lo_create(4711)", "SELECT lo_from_bytea(4711, 'abc')", "SELECT lo_get(4711)", "SELECT lo_unlink(4711)", "COMMENT ON LARGE OBJECT 4711 IS 'one'",
		"GRANT SELECT ON LARGE OBJECT 4711 TO PUBLIC", "REVOKE SELECT ON LARGE OBJECT 4711 FROM PUBLIC", "ALTER LARGE OBJECT 4711 OWNER TO CURRENT_USER",
	} {
		_, err := db.ExecContext(context.Background(), sql)
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "0A000" || !strings.Contains(e.Message, "on a SQLite shard") || e.Hint == "" {
			t.Errorf("%s: %v, want a refusal", sql, err)
		}
	}
}
