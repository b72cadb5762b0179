package gateway_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
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
