package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestFieldsOfReports: errors and notices of statements over several shards have the fields that
// one PostgreSQL gives them, and what is said of a text is said once.
func TestFieldsOfReports(t *testing.T) {
	cl := start(t, config{})
	var said []string
	connect := func(url string) *pgx.Conn {
		c, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		c.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said = append(said, n.Code+" "+n.Message) }
		c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		conn, err := pgx.ConnectConfig(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	plain, router := connect(pgtest.Database(t)), connect(cl.url(""))
	const long = "a_name_that_is_longer_than_the_sixty_three_bytes_which_a_name_of_postgresql_may_have"
	for _, conn := range []*pgx.Conn{plain, router} {
		exec(t, conn, "CREATE DOMAIN pos AS int CONSTRAINT positive CHECK (value > 0)")
		exec(t, conn, `CREATE FUNCTION fails(n bigint) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN 1 / (n - n)::int; END $$`)
	}
	exec(t, plain, "CREATE TABLE dt (k bigint PRIMARY KEY, a pos, b int CONSTRAINT small CHECK (b < 5))")
	exec(t, router, "CREATE TABLE dt (k bigint PRIMARY KEY, a pos, b int CONSTRAINT small CHECK (b < 5)) WITH (cleave.shard_key = 'k')")
	for _, sql := range []string{
		"INSERT INTO dt SELECT i, 1, 1 FROM generate_series(1, 40) i",
		"INSERT INTO dt SELECT i, -1, 1 FROM generate_series(41, 80) i",
		"UPDATE dt SET a = -a", "UPDATE dt SET a = -a WHERE k = 1", "SELECT count(*) FROM dt WHERE (k - 100)::int::pos > 0",
		"SELECT (count(*) - 100)::int::pos FROM dt", "SELECT max(fails(k)) FROM dt", "SELECT fails(k) FROM dt WHERE k = 1",
		"INSERT INTO dt SELECT 3, 1, 1 FROM generate_series(1, 2)",
		"INSERT INTO dt AS " + long + " VALUES (101, 1, 1), (102, 1, 1), (103, 1, 1), (104, 1, 1), (105, 1, 1)",
		"UPDATE dt AS " + long + " SET b = 2", "SELECT count(*) AS " + long + " FROM dt", "SELECT k AS " + long + " FROM dt WHERE k = 1",
	} {
		report := func(conn *pgx.Conn) string {
			said = nil
			_, err := conn.Exec(t.Context(), sql)
			out := fmt.Sprint(said)
			var pe *pgconn.PgError
			if errors.As(err, &pe) {
				out += fmt.Sprintf(" %s %s; schema %q table %q column %q type %q constraint %q query %q at %d", pe.Code, pe.Message, pe.SchemaName, pe.TableName, pe.ColumnName, pe.DataTypeName, pe.ConstraintName,
					pe.InternalQuery, pe.InternalPosition)
			} else if err != nil {
				out += err.Error()
			}
			return out
		}
		if want, got := report(plain), report(router); want != got {
			t.Errorf("%s\n  PostgreSQL: %s\n  router:     %s", sql, want, got)
		}
	}
}
