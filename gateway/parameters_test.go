package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// TestManyParameters: a statement over several shards has as many parameters as the protocol can number. Errors in them are
// those of PostgreSQL.
func TestManyParameters(t *testing.T) {
	const most = 1<<16 - 1
	cl, conn, _ := orders(t, config{})
	ctx := context.Background()
	values := make([][]byte, most)
	for i := range values {
		values[i] = []byte(strconv.Itoa(i))
	}
	list := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",$%d", i+1)
		}
		return b.String()[1:]
	}
	var rows strings.Builder
	for i := range most / 3 {
		fmt.Fprintf(&rows, ",($%d,$%d,$%d)", 3*i+1, 3*i+2, 3*i+3)
	}
	insert := `INSERT INTO orders (tenant_id, id, note) VALUES ` + rows.String()[1:]
	if res := conn.PgConn().ExecParams(ctx, insert, values, nil, nil, nil).Read(); res.Err != nil || res.CommandTag.RowsAffected() != most/3 {
		t.Fatalf("INSERT of %d parameters: %s, %v", most, res.CommandTag, res.Err)
	}
	res := conn.PgConn().ExecParams(ctx, `SELECT count(*) FROM orders WHERE id = ANY (ARRAY[`+list(most)+`]::bigint[])`, values, nil, nil, nil).Read()
	if res.Err != nil || string(res.Rows[0][0]) != strconv.Itoa(most/3) {
		t.Errorf("%d parameters: %s, %v, want %d rows", most, res.Rows, res.Err, most/3)
	}
	for _, sql := range []string{`SELECT note FROM orders WHERE tenant_id = $1`, `SELECT note FROM orders WHERE id = $1`, `INSERT INTO orders (tenant_id, id) VALUES (5, 1), ($1, 2)`} {
		for _, args := range [][][]byte{nil, values[:2]} {
			res := conn.PgConn().ExecParams(ctx, sql, args, nil, nil, nil).Read()
			if e := new(pgconn.PgError); !errors.As(res.Err, &e) || e.Code != "08P01" || e.Message != fmt.Sprintf(`bind message supplies %d parameters, but prepared statement "" requires 1`, len(args)) {
				t.Errorf("%s with %d values: %v", sql, len(args), res.Err)
			}
		}
	}
	// A portal's last tag counts the rows of the last Execute.
	c := cl.raw(t)
	for _, sql := range []string{`UPDATE orders SET note = 'x' WHERE id < 15 RETURNING 1`, `DELETE FROM orders WHERE id < 15 RETURNING 1`} {
		c.send(parse("", sql), bind("", ""), do("", 2), do("", 2), do("", 0), do("", 0), &pgproto3.Sync{})
		c.want("1", "2", "D 1", "D 1", "s", "D 1", "D 1", "s", "D 1", "C "+sql[:6]+" 1", "C "+sql[:6]+" 0", "Z I")
	}
	// SQL fetches from a portal of the protocol.
	c.send(&pgproto3.Query{String: "BEGIN"})
	c.want("C BEGIN", "Z T")
	c.send(parse("", `SELECT 1 FROM orders`), bind("p1", ""), do("p1", 1), &pgproto3.Sync{})
	c.want("1", "2", "D 1", "s", "Z T")
	c.send(&pgproto3.Query{String: "FETCH 1 FROM p1"})
	c.want("T ?column?", "D 1", "C FETCH 1", "Z T")
}
