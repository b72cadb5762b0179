package gateway_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/access"
)

// TestLargeObjectsBesidePostgres uses large objects by SQL, in transactions with rows of other shards too, as one PostgreSQL does.
func TestLargeObjectsBesidePostgres(t *testing.T) {
	cl, b := twins(t)
	if err := b.connectWith(t.Context(), nil, false); err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{
		"SELECT lo_create(4711)", "SELECT lo_create(4711)", "SELECT lo_from_bytea(4712, 'abcdef')", "SELECT lo_get(4712), lo_get(4712, 2, 3)", "SELECT lo_put(4712, 3, 'XY')", "SELECT lo_get(4712)",
		"SELECT lo_open(4711, 393216)", "SELECT loread(0, 3)", // without a block the descriptor is gone
		"BEGIN", "SELECT lo_open(4711, 393216)", "SELECT lowrite(0, 'one two three')", "INSERT INTO orders VALUES ($far, 1, 'x')", "SELECT lo_lseek(0, 4, 0), lo_tell(0)", "SELECT count(*) FROM orders",
		"SELECT loread(0, 3)", "SELECT lo_lseek64(0, 0, 2), lo_tell64(0)", "SELECT lo_truncate(0, 7), lo_truncate64(0, 7)", "SELECT lo_close(0)", "COMMIT", "SELECT lo_get(4711)", "SELECT note FROM orders WHERE tenant_id = $far",
		"BEGIN", "INSERT INTO orders VALUES ($far, 2, 'y')", "SELECT lo_unlink(4711)", "ROLLBACK", "SELECT lo_get(4711)", "SELECT count(*) FROM orders",
		"BEGIN", "SELECT lo_open(4711, 262144)", "SAVEPOINT s", "SELECT lowrite(0, 'x')", "ROLLBACK TO s", "SELECT loread(0, 3)", "ROLLBACK", "BEGIN READ ONLY", "SELECT lo_create(4713)", "ROLLBACK",
		"SELECT oid FROM pg_largeobject_metadata ORDER BY oid", "COMMENT ON LARGE OBJECT 4711 IS 'one'", "SELECT obj_description(4711, 'pg_largeobject')", "GRANT SELECT ON LARGE OBJECT 4711, 4712 TO PUBLIC",
		"BEGIN", "SELECT lo_create(4714)", "COMMENT ON LARGE OBJECT 4714 IS 'made with it'", "ALTER LARGE OBJECT 4714 OWNER TO CURRENT_USER", "INSERT INTO orders VALUES ($far, 3, 'z')", "COMMIT", "SELECT obj_description(4714, 'pg_largeobject'), (SELECT lomacl IS NULL FROM pg_largeobject_metadata WHERE oid = 4711)",
		"REVOKE SELECT ON LARGE OBJECT 4711 FROM PUBLIC", "COMMENT ON LARGE OBJECT 4715 IS 'none'", "ALTER LARGE OBJECT 4715 OWNER TO CURRENT_USER", "ALTER LARGE OBJECT 4714 OWNER TO nobody_at_all", "SELECT lo_unlink(4714)",
		"INSERT INTO whole VALUES (4711, 1)", "SELECT lo_get(a::oid) FROM whole WHERE a = 4711", "SELECT lo_unlink(4711), lo_unlink(4712)", "SELECT lo_get(4712)", "SELECT lo_unlink(4712)",
	} {
		m = b.names.Replace(m)
		if got, want := b.run(t.Context(), 0, []string{m}, simple), b.run(t.Context(), 1, []string{m}, simple); got.text != want.text {
			t.Fatalf("%s: router\n  %s (%s)\nPostgreSQL\n  %s (%s)", m, got.text, got.message, want.text, want.message)
		}
	}
	conn := cl.connect(t)
	wantCode(t, conn, "0A000", "SELECT lo_create(0) FROM orders")
	wantCode(t, conn, "0A000", "SELECT lo_import('/etc/passwd')")
	wantCode(t, conn, "0A000", "INSERT INTO orders SELECT tenant_id, id + 1, lo_get(1)::text FROM orders")
	for _, c := range b.conns {
		_ = c.Close(context.Background())
	}
}

// call makes a FunctionCall with arguments in binary.
func call(oid uint32, args ...any) *pgproto3.FunctionCall {
	f := &pgproto3.FunctionCall{Function: oid, ArgFormatCodes: []uint16{1}, ResultFormatCode: 1}
	for _, a := range args {
		switch v := a.(type) {
		case int:
			f.Arguments = append(f.Arguments, binary.BigEndian.AppendUint32(nil, uint32(v)))
		case int64:
			f.Arguments = append(f.Arguments, binary.BigEndian.AppendUint64(nil, uint64(v)))
		case []byte:
			f.Arguments = append(f.Arguments, v)
		default:
			f.Arguments = append(f.Arguments, nil)
		}
	}
	return f
}

// TestFunctionCallsBesidePostgres sends the messages that libpq and pgjdbc use for large objects.
func TestFunctionCallsBesidePostgres(t *testing.T) {
	_, b := twins(t)
	if err := b.connectWith(t.Context(), nil, false); err != nil {
		t.Fatal(err)
	}
	text := call(952, nil)
	text.ArgFormatCodes, text.ResultFormatCode, text.Arguments = nil, 0, [][]byte{[]byte("4711"), []byte("393216")}
	short, long := call(715, []byte("abc")), call(715, []byte("abcde"))
	data := bytes.Repeat([]byte{0, 1, '\\', '\'', 255}, 60000)
	for _, m := range []any{
		call(715, 4711), call(715, 4711), call(952, 4711, 0x20000|0x40000), call(954, 0, 10), call(715), call(715, nil), short, long, "SET bytea_output = 'escape'",
		"BEGIN", call(952, 4711, 0x20000|0x40000), call(955, 0, data), b.names.Replace("INSERT INTO orders VALUES ($far, 1, 'x')"), call(956, 0, 5, 0), call(954, 0, 300000), call(958, 0),
		call(3170, 0, int64(7), 0), call(3171, 0), call(3172, 0, int64(9)), call(954, 0, 300000), call(1004, 0, 8), call(953, 0), "COMMIT", "SELECT lo_get(4711)",
		"BEGIN", text, call(953, 9), call(953, 0), "ROLLBACK", call(964, 4711), call(964, 4711),
	} {
		var said [2]string
		for i, c := range b.conns {
			switch v := m.(type) {
			case string:
				said[i] = b.run(t.Context(), i, []string{v}, simple).text
				continue
			case *pgproto3.FunctionCall:
				c.Frontend().Send(v)
			}
			if err := c.Frontend().Flush(); err != nil {
				t.Fatal(err)
			}
			for done := false; !done; {
				msg, err := c.ReceiveMessage(t.Context())
				if err != nil && msg == nil {
					t.Fatal(err)
				}
				switch r := msg.(type) {
				case *pgproto3.FunctionCallResponse:
					said[i] += fmt.Sprintf("V %x %t", r.Result, r.Result == nil)
				case *pgproto3.ErrorResponse:
					said[i] += r.Code + " " + r.Message
				case *pgproto3.ReadyForQuery:
					said[i] += " " + string(r.TxStatus)
					done = true
				}
			}
		}
		if said[0] != said[1] {
			t.Fatalf("%v: router\n  %.300s\nPostgreSQL\n  %.300s", m, said[0], said[1])
		}
	}
	for _, c := range b.conns {
		_ = c.Close(context.Background())
	}
}

// TestLargeObjectsAreGivenByAdministrators: of the cluster's own users, who share the shards' role and so own all large objects, an
// administrator says who may do what with them, in every protocol and inside of other statements.
func TestLargeObjectsAreGivenByAdministrators(t *testing.T) {
	a := newAuthority(t)
	cl := start(t, config{shards: 2, tls: a.server(""), auth: passwords})
	addUser(t, cl, "bob", access.Ordinary)
	addUser(t, cl, "ops", access.Admin)
	bob, ops := cl.withTLS(t, "bob"), cl.withTLS(t, "ops")
	exec(t, bob, "SELECT lo_from_bytea(4711, 'abc')")
	for _, sql := range []string{"GRANT SELECT ON LARGE OBJECT 4711 TO PUBLIC", "REVOKE ALL ON LARGE OBJECT 4711 FROM PUBLIC", "ALTER LARGE OBJECT 4711 OWNER TO CURRENT_USER"} {
		for _, mode := range []any{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
			_, err := bob.Exec(t.Context(), sql, mode)
			if got := message(err); !strings.HasPrefix(got, "42501 permission denied for ") {
				t.Errorf("%s of an ordinary user: %s", sql, got)
			}
			if _, err := ops.Exec(t.Context(), sql, mode); err != nil {
				t.Errorf("%s of an administrator: %v", sql, err)
			}
		}
	}
	for _, sql := range []string{
		"DO $$ BEGIN GRANT SELECT ON LARGE OBJECT 4711 TO PUBLIC; END $$", "DO $$ BEGIN EXECUTE 'ALTER LARGE OBJECT 4711 OWNER TO CURRENT_USER'; END $$",
		"CREATE FUNCTION pg_temp.gives() RETURNS void LANGUAGE sql AS 'GRANT SELECT ON LARGE OBJECT 4711 TO PUBLIC'",
	} {
		if got := code(bob, sql); got != "42501" && got != "0A000" {
			t.Errorf("%s of an ordinary user: %q, want 42501 or 0A000", sql, got)
		}
	}
	// In a transaction too, which fails as a whole.
	exec(t, bob, "BEGIN")
	exec(t, bob, "SELECT lo_create(4712)")
	wantCode(t, bob, "42501", "GRANT SELECT ON LARGE OBJECT 4712 TO PUBLIC")
	exec(t, bob, "ROLLBACK")
	if got := one[string](t, bob, "SELECT string_agg(oid::text, ',') FROM pg_largeobject_metadata"); got != "4711" {
		t.Errorf("large objects %s", got)
	}
}

// asks returns the value of a FunctionCall, or its error.
func asks(t testing.TB, conn *pgconn.PgConn, f *pgproto3.FunctionCall) (value []byte, said string) {
	t.Helper()
	conn.Frontend().Send(f)
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		msg, err := conn.ReceiveMessage(t.Context())
		if err != nil && msg == nil {
			t.Fatal(err)
		}
		switch r := msg.(type) {
		case *pgproto3.FunctionCallResponse:
			value = bytes.Clone(r.Result)
		case *pgproto3.ErrorResponse:
			said = r.Code + " " + r.Message
		case *pgproto3.ReadyForQuery:
			return value, said
		}
	}
}

// TestValueOfACallIsBounded: the router holds the value that a FunctionCall gives, and says so where it would be more than 32 MB. What has
// that size is given, a longer one can be read in parts, and SQL has no such bound.
func TestValueOfACallIsBounded(t *testing.T) {
	cl := start(t, config{shards: 2})
	conn := cl.connect(t).PgConn()
	const most = 32 << 20
	sql := func(text string) string {
		t.Helper()
		res := conn.ExecParams(t.Context(), text, nil, nil, nil, nil).Read()
		if res.Err != nil {
			t.Fatalf("%s: %v", text, res.Err)
		}
		if len(res.Rows) == 0 {
			return ""
		}
		return string(res.Rows[0][0])
	}
	sql(fmt.Sprintf("SELECT lo_from_bytea(4711, decode(repeat('ab', %d), 'hex'))", most+10))
	sql("BEGIN")
	if got := sql("SELECT lo_open(4711, 262144)"); got != "0" {
		t.Fatalf("the descriptor %s", got)
	}
	for _, size := range []int{most - 1000, 1010} {
		if value, said := asks(t, conn, call(954, 0, size)); said != "" || len(value) != size || bytes.Count(value, []byte{0xab}) != size {
			t.Errorf("%d bytes: %q, %d bytes", size, said, len(value))
		}
	}
	if got := sql("SELECT lo_lseek(0, 0, 0)"); got != "0" {
		t.Fatalf("the place %s", got)
	}
	if value, said := asks(t, conn, call(954, 0, most+10)); said != "53400 a function call gives more than 32 MB" || value != nil {
		t.Errorf("more than the bound: %q, %d bytes", said, len(value))
	}
	if got := conn.TxStatus(); got != 'E' {
		t.Errorf("after the error the transaction is %q", got)
	}
	sql("ROLLBACK")
	if got := sql("SELECT length(lo_get(4711))"); got != fmt.Sprint(most+10) {
		t.Errorf("length %s", got)
	}
	if got := len(sql("SELECT lo_get(4711)")); got != 2+2*(most+10) {
		t.Errorf("a SELECT gives %d characters", got)
	}
}

// TestLargeObjectsOfTheShardsUsers: users of the shards work with large objects as themselves, by SQL and by FunctionCalls, in transactions
// over several shards too. An object is its maker's, who says what others may do, as in PostgreSQL.
func TestLargeObjectsOfTheShardsUsers(t *testing.T) {
	_, urls := people(t, 3)
	cl := start(t, config{urls: urls, shards: 3, passThrough: true})
	dba := cl.as(t, "dba", "dba-secret")
	exec(t, dba, ordersTable)
	exec(t, dba, "GRANT SELECT, INSERT ON orders TO bob")
	keys := cl.keys(t)
	bob, eve := cl.as(t, "bob", "bob-secret"), cl.as(t, "eve", "eve-secret")
	refused := func(conn *pgx.Conn, want, sql string) {
		t.Helper()
		for _, mode := range []any{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
			if _, err := conn.Exec(t.Context(), sql, mode); message(err) != want {
				t.Errorf("%s: %s, want %s", sql, message(err), want)
			}
		}
	}
	exec(t, bob, "SELECT lo_from_bytea(4711, 'abc')")
	exec(t, bob, "BEGIN")
	for _, k := range keys {
		exec(t, bob, "INSERT INTO orders VALUES ($1, 1, 'n')", k[0])
	}
	exec(t, bob, "SELECT lo_create(4712)")
	exec(t, bob, "SELECT lowrite(lo_open(4712, 131072), 'xyz')")
	exec(t, bob, "COMMIT")
	const owners = "SELECT string_agg(oid || ' ' || pg_get_userbyid(lomowner), ', ' ORDER BY oid) FROM pg_largeobject_metadata"
	if got := one[string](t, eve, owners); got != "4711 bob, 4712 bob" {
		t.Errorf("large objects: %s", got)
	}
	refused(eve, "42501 permission denied for large object 4711", "SELECT lo_get(4711)")
	refused(eve, "42501 permission denied for large object 4711", "SELECT lo_open(4711, 262144)")
	refused(eve, "42501 permission denied for large object 4711", "SELECT lo_put(4711, 0, 'x')")
	for _, sql := range []string{"SELECT lo_unlink(4711)", "COMMENT ON LARGE OBJECT 4711 IS 'hers'", "ALTER LARGE OBJECT 4711 OWNER TO eve"} {
		refused(eve, "42501 must be owner of large object 4711", sql)
	}
	wantCode(t, eve, "42501", "GRANT SELECT ON LARGE OBJECT 4711 TO PUBLIC")
	if _, got := asks(t, eve.PgConn(), call(964, 4711)); got != "42501 must be owner of large object 4711" {
		t.Errorf("a FunctionCall of another user: %q", got)
	}
	exec(t, bob, "GRANT SELECT ON LARGE OBJECT 4711, 4712 TO eve")
	exec(t, bob, "COMMENT ON LARGE OBJECT 4711 IS 'his'")
	if got := one[string](t, eve, "SELECT encode(lo_get(4711) || lo_get(4712), 'escape') || obj_description(4711, 'pg_largeobject')"); got != "abcxyzhis" {
		t.Errorf("eve reads %q", got)
	}
	refused(eve, "42501 permission denied for large object 4711", "SELECT lo_put(4711, 0, 'x')")
	exec(t, bob, "REVOKE SELECT ON LARGE OBJECT 4711 FROM eve")
	refused(eve, "42501 permission denied for large object 4711", "SELECT lo_get(4711)")
	if _, got := asks(t, bob.PgConn(), call(964, 4711)); got != "" {
		t.Errorf("a FunctionCall of the owner: %q", got)
	}
	exec(t, bob, "SELECT lo_unlink(4712)")
	if got := one[int](t, bob, "SELECT count(*) FROM pg_largeobject_metadata"); got != 0 {
		t.Errorf("%d large objects are left", got)
	}
}
