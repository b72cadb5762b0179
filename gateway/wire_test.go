package gateway_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/waitfor"
)

// client speaks the protocol message by message.
type client struct {
	t   testing.TB
	nc  net.Conn
	fe  *pgproto3.Frontend
	key *pgproto3.BackendKeyData
}

func (c *cluster) dial(t testing.TB) *client {
	t.Helper()
	nc, err := net.Dial("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(waitfor.Max))
	return &client{t: t, nc: nc, fe: pgproto3.NewFrontend(nc, nc)}
}

func (c *cluster) raw(t testing.TB) *client {
	t.Helper()
	cl := c.dial(t)
	cl.send(&pgproto3.StartupMessage{ProtocolVersion: 196608, Parameters: map[string]string{"user": "app", "database": "cleave"}})
	for {
		m, err := cl.fe.Receive()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *pgproto3.BackendKeyData:
			cl.key = &pgproto3.BackendKeyData{ProcessID: m.ProcessID, SecretKey: m.SecretKey}
		case *pgproto3.ReadyForQuery:
			return cl
		case *pgproto3.ErrorResponse:
			t.Fatalf("startup: %s", m.Message)
		}
	}
}

func (c *client) send(ms ...pgproto3.FrontendMessage) {
	c.t.Helper()
	for _, m := range ms {
		c.fe.Send(m)
	}
	if err := c.fe.Flush(); err != nil {
		c.t.Fatal(err)
	}
}

// next is the next message in one word: "1", "T a,b", "D x", "C SELECT 1", "Z I", "E 0A000", ...
func (c *client) next() string {
	c.t.Helper()
	m, err := c.fe.Receive()
	if err != nil {
		return "gone"
	}
	switch m := m.(type) {
	case *pgproto3.ParseComplete:
		return "1"
	case *pgproto3.BindComplete:
		return "2"
	case *pgproto3.CloseComplete:
		return "3"
	case *pgproto3.NoData:
		return "n"
	case *pgproto3.PortalSuspended:
		return "s"
	case *pgproto3.EmptyQueryResponse:
		return "I"
	case *pgproto3.ParameterDescription:
		return "t " + strings.Trim(fmt.Sprint(m.ParameterOIDs), "[]")
	case *pgproto3.RowDescription:
		var names []string
		for _, f := range m.Fields {
			names = append(names, string(f.Name))
		}
		return "T " + strings.Join(names, ",")
	case *pgproto3.DataRow:
		var v []string
		for _, x := range m.Values {
			v = append(v, string(x))
		}
		return "D " + strings.Join(v, ",")
	case *pgproto3.CommandComplete:
		return "C " + string(m.CommandTag)
	case *pgproto3.ReadyForQuery:
		return "Z " + string(m.TxStatus)
	case *pgproto3.ErrorResponse:
		if m.Severity != "ERROR" {
			return "E " + m.Severity + " " + m.Code
		}
		return "E " + m.Code
	case *pgproto3.NoticeResponse:
		return "N " + m.Code
	case *pgproto3.ParameterStatus:
		return "S " + m.Name
	case *pgproto3.CopyInResponse:
		return "G"
	case *pgproto3.CopyOutResponse:
		return "H"
	case *pgproto3.CopyData:
		return "d " + strings.TrimSpace(string(m.Data))
	case *pgproto3.CopyDone:
		return "c"
	}
	return fmt.Sprintf("%T", m)
}

// want compares the next messages.
func (c *client) want(words ...string) {
	c.t.Helper()
	for i, w := range words {
		if got := c.next(); got != w {
			c.t.Fatalf("message %d is %q, want %q (of %q)", i, got, w, words)
		}
	}
}

func parse(name, sql string, oids ...uint32) *pgproto3.Parse {
	return &pgproto3.Parse{Name: name, Query: sql, ParameterOIDs: oids}
}

func bind(portal, stmt string, values ...string) *pgproto3.Bind {
	b := &pgproto3.Bind{DestinationPortal: portal, PreparedStatement: stmt}
	for _, v := range values {
		b.Parameters = append(b.Parameters, []byte(v))
	}
	return b
}

func do(portal string, rowsMax uint32) *pgproto3.Execute {
	return &pgproto3.Execute{Portal: portal, MaxRows: rowsMax}
}

func describe(what byte, name string) *pgproto3.Describe {
	return &pgproto3.Describe{ObjectType: what, Name: name}
}

var (
	syncMsg  = &pgproto3.Sync{}
	flushMsg = &pgproto3.Flush{}
)

func TestExtendedProtocol(t *testing.T) {
	cl, _, keys := orders(t, config{})
	a, b := fmt.Sprint(keys[0][0]), fmt.Sprint(keys[1][0])
	sel := "SELECT id, note FROM orders WHERE tenant_id = $1 ORDER BY id"
	ins := "INSERT INTO orders VALUES ($1, $2, 'n')"

	t.Run("a driver's round trips", func(t *testing.T) {
		c := cl.raw(t)
		c.send(parse("s", sel), describe('S', "s"), syncMsg)
		c.want("1", "t 20", "T id,note", "Z I")
		c.send(bind("", "s", a), describe('P', ""), do("", 0), syncMsg)
		c.want("2", "T id,note", "C SELECT 0", "Z I")
		c.send(parse("", ins), bind("", "", a, "1"), do("", 0), syncMsg)
		c.want("1", "2", "C INSERT 0 1", "Z I")
		// The unnamed statement lives on.
		c.send(bind("", "", a, "2"), do("", 0), syncMsg)
		c.want("2", "C INSERT 0 1", "Z I")
		c.send(bind("", "s", a), do("", 0), syncMsg)
		c.want("2", "D 1,n", "D 2,n", "C SELECT 2", "Z I")
		c.send(&pgproto3.Close{ObjectType: 'S', Name: "s"}, syncMsg)
		c.want("3", "Z I")
		c.send(bind("", "s", a), do("", 0), syncMsg)
		c.want("E 26000", "Z I")
	})
	t.Run("parse alone", func(t *testing.T) {
		c := cl.raw(t)
		c.send(parse("x", "SELECT nope FROM orders WHERE tenant_id = $1"), syncMsg)
		c.want("E 42703", "Z I")
		c.send(bind("", "x", a), syncMsg)
		c.want("E 26000", "Z I")
		c.send(parse("x", sel), syncMsg)
		c.want("1", "Z I")
		c.send(parse("x", sel), syncMsg)
		c.want("E 42P05", "Z I")
		c.send(parse("y", "SELECT ctid FROM orders"), syncMsg)
		c.want("E 0A000", "Z I")
		c.send(parse("p", sel), flushMsg)
		c.want("1")
		c.send(syncMsg)
		c.want("Z I")
		c.send(parse("p1", sel), parse("p2", ins), parse("p3", "SELEC"), parse("p4", sel), syncMsg)
		c.want("1", "1", "E 42601", "Z I")
		c.send(parse("e", ""), bind("", "e"), describe('P', ""), do("", 0), syncMsg)
		c.want("1", "2", "n", "I", "Z I")
	})
	t.Run("portals and savepoints", func(t *testing.T) {
		c := cl.raw(t)
		run := func(sql, tag string) {
			t.Helper()
			c.send(&pgproto3.Query{String: sql})
			c.want("C "+tag, "Z T")
		}
		c.send(parse("s", sel), parse("w", "SHOW search_path"), syncMsg)
		c.want("1", "1", "Z I")
		run("BEGIN", "BEGIN")
		run("SAVEPOINT x", "SAVEPOINT")
		c.send(bind("p", "s", a), bind("w", "w"), syncMsg)
		c.want("2", "2", "Z T")
		// What was bound behind a savepoint ends with ROLLBACK TO, also what the router answers.
		for _, name := range []string{"p", "w"} {
			run("ROLLBACK TO x", "ROLLBACK")
			c.send(describe('P', name), syncMsg)
			c.want("E 34000", "Z E")
		}
		run("ROLLBACK TO x", "ROLLBACK")
		run("SAVEPOINT y", "SAVEPOINT")
		c.send(bind("p", "s", a), bind("w", "w"), syncMsg)
		c.want("2", "2", "Z T")
		run("RELEASE y", "RELEASE")
		run("SAVEPOINT y", "SAVEPOINT")
		run("ROLLBACK TO y", "ROLLBACK")
		c.send(describe('P', "p"), describe('P', "w"), syncMsg)
		c.want("T id,note", "T search_path", "Z T")
		c.send(&pgproto3.Query{String: "COMMIT"})
		c.want("C COMMIT", "Z I")
		// The next Parse without a name leaves the portal without one.
		c.send(parse("", "SELECT g FROM (VALUES (1), (2)) v(g)"), bind("", ""), do("", 1), parse("", "SELECT 1"), do("", 1), syncMsg)
		c.want("1", "2", "D 1", "s", "1", "D 2", "s", "Z I")
	})
	t.Run("row limits", func(t *testing.T) {
		c := cl.raw(t)
		c.send(parse("", "SELECT g FROM (VALUES (1), (2), (3), (4), (5)) v(g)"), bind("p", ""), do("p", 2), flushMsg)
		c.want("1", "2", "D 1", "D 2", "s")
		c.send(do("p", 2), flushMsg)
		c.want("D 3", "D 4", "s")
		c.send(do("p", 0), syncMsg)
		c.want("D 5", "C SELECT 1", "Z I")
		c.send(do("p", 0), syncMsg)
		c.want("E 34000", "Z I")
	})
	t.Run("pipelines", func(t *testing.T) {
		c := cl.raw(t)
		c.send(parse("i", ins), parse("s", sel), syncMsg)
		c.want("1", "1", "Z I")
		c.send(bind("", "i", a, "11"), do("", 0), bind("", "i", a, "12"), do("", 0), bind("", "s", a), do("", 0), syncMsg)
		c.want("2", "C INSERT 0 1", "2", "C INSERT 0 1", "2", "D 1,n", "D 2,n", "D 11,n", "D 12,n", "C SELECT 4", "Z I")
		// One transaction: an error takes all of it back.
		c.send(bind("", "i", a, "13"), do("", 0), bind("", "i", a, "13"), do("", 0), bind("", "s", a), do("", 0), syncMsg)
		c.want("2", "C INSERT 0 1", "2", "E 23505", "Z I")
		// Also one of the router's own.
		c.send(bind("", "i", a, "14"), do("", 0), parse("", "SELECT ctid FROM orders"), syncMsg)
		c.want("2", "C INSERT 0 1", "E 0A000", "Z I")
		c.send(bind("", "s", a), do("", 0), syncMsg)
		c.want("2", "D 1,n", "D 2,n", "D 11,n", "D 12,n", "C SELECT 4", "Z I")
		// Reads and writes go anywhere.
		c.send(bind("", "s", a), do("", 1), bind("", "s", b), do("", 0), bind("", "i", b, "1"), do("", 0), syncMsg)
		c.want("2", "D 1,n", "s", "2", "C SELECT 0", "2", "C INSERT 0 1", "Z I")
		c.send(bind("", "i", b, "2"), do("", 0), bind("", "i", a, "15"), do("", 0), bind("", "s", a), do("", 0), syncMsg)
		c.want("2", "C INSERT 0 1", "2", "C INSERT 0 1", "2", "D 1,n", "D 2,n", "D 11,n", "D 12,n", "D 15,n", "C SELECT 5", "Z I")
		c.send(&pgproto3.Query{String: "DELETE FROM orders WHERE tenant_id = " + b + " AND id = 2 OR tenant_id = " + a + " AND id = 15"})
		c.want("C DELETE 2", "Z I")
		c.send(bind("", "s", b), do("", 0), syncMsg)
		c.want("2", "D 1,n", "C SELECT 1", "Z I")
	})
	t.Run("transactions", func(t *testing.T) {
		c := cl.raw(t)
		c.send(parse("b", "BEGIN"), parse("c", "COMMIT"), parse("i", ins), syncMsg)
		c.want("1", "1", "1", "Z I")
		c.send(bind("", "b"), describe('P', ""), do("", 0), bind("", "i", a, "21"), do("", 0), syncMsg)
		c.want("2", "n", "C BEGIN", "2", "C INSERT 0 1", "Z T")
		c.send(bind("", "i", a, "22"), do("", 0), bind("", "c"), do("", 0), syncMsg)
		c.want("2", "C INSERT 0 1", "2", "C COMMIT", "Z I")
		c.send(bind("", "b"), do("", 0), bind("", "i", a, "22"), do("", 0), bind("", "c"), do("", 0), syncMsg)
		c.want("2", "C BEGIN", "2", "E 23505", "Z E")
		c.send(bind("", "i", a, "23"), do("", 0), syncMsg)
		c.want("E 25P02", "Z E")
		c.send(bind("", "c"), do("", 0), syncMsg)
		c.want("2", "C ROLLBACK", "Z I")
		// A portal lives as long as the transaction.
		c.send(&pgproto3.Query{String: "BEGIN"})
		c.want("C BEGIN", "Z T")
		c.send(parse("", sel), bind("cur", "", a), do("cur", 1), syncMsg)
		c.want("1", "2", "D 1,n", "s", "Z T")
		c.send(do("cur", 1), syncMsg)
		c.want("D 2,n", "s", "Z T")
		c.send(&pgproto3.Close{ObjectType: 'P', Name: "cur"}, syncMsg)
		c.want("3", "Z T")
		c.send(do("cur", 1), syncMsg)
		c.want("E 34000", "Z E")
		c.send(&pgproto3.Query{String: "ROLLBACK"})
		c.want("C ROLLBACK", "Z I")
		// A write, then BEGIN, before one Sync.
		c.send(bind("", "b"), do("", 0), syncMsg)
		c.want("2", "C BEGIN", "Z T")
		c.send(bind("", "b"), do("", 0), syncMsg)
		c.want("2", "N 25001", "C BEGIN", "Z T")
		c.send(bind("", "c"), do("", 0), bind("", "c"), do("", 0), syncMsg)
		c.want("2", "C COMMIT", "2", "N 25P01", "C COMMIT", "Z I")
	})
	t.Run("SQL prepared statements", func(t *testing.T) {
		c := cl.raw(t)
		q := func(sql string) { c.send(&pgproto3.Query{String: sql}) }
		q("PREPARE p (bigint, bigint) AS SELECT id FROM orders WHERE tenant_id = $1 AND id = $2")
		c.want("C PREPARE", "Z I")
		q("EXECUTE p(" + a + ", 1)")
		c.want("T id", "D 1", "C SELECT 1", "Z I")
		c.send(bind("", "p", a, "2"), do("", 0), syncMsg)
		c.want("2", "D 2", "C SELECT 1", "Z I")
		c.send(parse("", "EXECUTE p("+a+", 2)"), describe('S', ""), bind("", ""), describe('P', ""), do("", 0), syncMsg)
		c.want("1", "t ", "T id", "2", "T id", "D 2", "C SELECT 1", "Z I")
		q("EXECUTE p(1)")
		c.want("E 42601", "Z I")
		q("PREPARE p AS SELECT 1")
		c.want("E 42P05", "Z I")
		q("PREPARE bad AS SELECT nope FROM orders WHERE tenant_id = $1")
		c.want("E 42703", "Z I")
		q("DEALLOCATE p")
		c.want("C DEALLOCATE", "Z I")
		q("EXECUTE p(" + a + ", 1)")
		c.want("E 26000", "Z I")
		q("DEALLOCATE ALL")
		c.want("C DEALLOCATE ALL", "Z I")
	})
	t.Run("settings", func(t *testing.T) {
		c := cl.raw(t)
		c.send(parse("", "SET application_name = 'x'"), bind("", ""), describe('P', ""), do("", 0), syncMsg)
		c.want("1", "2", "n", "C SET", "S application_name", "Z I")
		c.send(parse("", "SHOW application_name"), bind("", ""), describe('P', ""), do("", 0), syncMsg)
		c.want("1", "2", "T application_name", "D x", "C SHOW", "Z I")
		c.send(parse("", "SELECT set_config('work_mem', '8MB', false)"), bind("", ""), do("", 0), parse("", "SHOW work_mem"), bind("", ""), do("", 0), syncMsg)
		c.want("1", "2", "D 8MB", "C SELECT 1", "1", "2", "D 8MB", "C SHOW", "Z I")
	})
	t.Run("errors before Flush", func(t *testing.T) {
		c := cl.raw(t)
		for _, sql := range []string{"SELECT 1/0", "SELEC", "SELECT ctid FROM orders", "SELECT nope FROM orders WHERE tenant_id = " + a} {
			c.send(parse("", sql), bind("", ""), do("", 0), flushMsg)
			w := c.next()
			if w == "1" {
				w = c.next()
			}
			if !strings.HasPrefix(w, "E ") {
				t.Errorf("%s: got %q", sql, w)
			}
			c.send(parse("", "SELECT 1"), flushMsg, syncMsg)
			c.want("Z I")
		}
	})
	t.Run("explain route", func(t *testing.T) {
		c := cl.raw(t)
		c.send(parse("", "EXPLAIN (ROUTE) SELECT * FROM orders WHERE tenant_id = "+a), bind("", ""), describe('P', ""), do("", 1), do("", 0), syncMsg)
		c.want("1", "2", "T QUERY PLAN", "D plan: one shard", "s")
		for {
			w := c.next()
			if w == "C EXPLAIN" {
				break
			}
			if !strings.HasPrefix(w, "D ") {
				t.Fatalf("got %q", w)
			}
		}
		c.want("Z I")
	})
	t.Run("a schema change before Sync", func(t *testing.T) {
		c := cl.raw(t)
		c.send(parse("", "CREATE TABLE pa (a int)"), bind("", ""), do("", 0), parse("", "INSERT INTO pa VALUES (1)"), bind("", ""), do("", 0), syncMsg)
		c.want("1", "2", "C CREATE TABLE", "1", "2", "C INSERT 0 1", "Z I")
		c.send(parse("", "CREATE TABLE pb (a int)"), bind("", ""), do("", 0), parse("", "SELECT 1/0"), bind("", ""), do("", 0), syncMsg)
		c.want("1", "2", "C CREATE TABLE", "1", "E 22012", "Z I")
		c.send(&pgproto3.Query{String: "SELECT * FROM pb"})
		c.want("E 42P01", "Z I")
		c.send(&pgproto3.Query{String: "SELECT * FROM pa"})
		c.want("T a", "D 1", "C SELECT 1", "Z I")
	})
	t.Run("the result's columns changed", func(t *testing.T) {
		c := cl.raw(t)
		c.send(parse("star", "SELECT * FROM orders WHERE tenant_id = $1"), describe('S', "star"), syncMsg)
		c.want("1", "t 20", "T tenant_id,id,note", "Z I")
		c.send(parse("cols", "SELECT id FROM orders WHERE tenant_id = $1 AND id = 1"), describe('S', "cols"), syncMsg)
		c.want("1", "t 20", "T id", "Z I")
		c.send(&pgproto3.Query{String: "ALTER TABLE orders ADD COLUMN more int"})
		c.want("C ALTER TABLE", "Z I")
		c.send(bind("", "cols", a), do("", 0), syncMsg)
		c.want("2", "D 1", "C SELECT 1", "Z I")
		c.send(bind("", "star", a), do("", 0), syncMsg)
		c.want("E 0A000", "Z I")
		c.send(parse("", "SELECT * FROM orders WHERE tenant_id = $1"), bind("", "", b), describe('P', ""), do("", 0), syncMsg)
		c.want("1", "2", "T tenant_id,id,note,more", "D "+b+",1,n,", "C SELECT 1", "Z I")
	})
}

func TestCopy(t *testing.T) {
	cl, conn, _ := orders(t, config{})
	exec(t, conn, "CREATE TABLE whole (a int, b text)")
	c := cl.raw(t)
	q := func(sql string) { c.send(&pgproto3.Query{String: sql}) }
	q("COPY whole FROM STDIN")
	c.want("G")
	c.send(&pgproto3.CopyData{Data: []byte("1\tx\n2\t")}, &pgproto3.CopyData{Data: []byte("y\n")}, &pgproto3.CopyDone{})
	c.want("C COPY 2", "Z I")
	q("COPY whole TO STDOUT")
	c.want("H", "d 1\tx", "d 2\ty", "c", "C COPY 2", "Z I")
	q("COPY whole FROM STDIN")
	c.want("G")
	c.send(&pgproto3.CopyData{Data: []byte("bad\tx\n")}, &pgproto3.CopyData{Data: []byte("3\ty\n")}, &pgproto3.CopyDone{})
	c.want("E 22P02", "Z I")
	q("COPY whole FROM STDIN")
	c.want("G")
	c.send(&pgproto3.CopyFail{Message: "enough"})
	c.want("E 57014", "Z I")
	// The extended protocol; the Sync sent ahead of the data is ignored.
	c.send(parse("", "COPY whole FROM STDIN"), bind("", ""), do("", 0), syncMsg)
	c.want("1", "2", "G")
	c.send(&pgproto3.CopyData{Data: []byte("4\tz\n")}, &pgproto3.CopyDone{}, syncMsg)
	c.want("C COPY 1", "Z I")
	// No Sync before the data; then not even a wait for the answer.
	c.send(parse("", "COPY whole FROM STDIN"), bind("", ""), do("", 0))
	c.want("1", "2", "G")
	c.send(&pgproto3.CopyData{Data: []byte("5\tz\n")}, &pgproto3.CopyDone{}, syncMsg)
	c.want("C COPY 1", "Z I")
	c.send(parse("", "COPY whole FROM STDIN"), bind("", ""), do("", 0), &pgproto3.CopyData{Data: []byte("6\tz\n")}, &pgproto3.CopyDone{}, syncMsg)
	c.want("1", "2", "G", "C COPY 1", "Z I")
	c.send(&pgproto3.Query{String: "COPY whole FROM STDIN"}, &pgproto3.CopyData{Data: []byte("7\tz\n")}, &pgproto3.CopyData{Data: []byte("8\tz\n")}, &pgproto3.CopyDone{}, &pgproto3.Query{String: "SELECT 1"})
	c.want("G", "C COPY 2", "Z I", "T ?column?", "D 1", "C SELECT 1", "Z I")
	// The same over several shards.
	rows := func(n int) *pgproto3.CopyData {
		var b []byte
		for i := range 100 {
			b = fmt.Appendf(b, "%d\t%d\tx\n", i, n)
		}
		return &pgproto3.CopyData{Data: b}
	}
	c.send(parse("", "COPY orders FROM STDIN"), bind("", ""), do("", 0), syncMsg)
	c.want("1", "2", "G")
	c.send(rows(101), &pgproto3.CopyDone{}, syncMsg)
	c.want("C COPY 100", "Z I")
	c.send(parse("", "COPY orders FROM STDIN"), bind("", ""), do("", 0), rows(102), &pgproto3.CopyDone{}, syncMsg)
	c.want("1", "2", "G", "C COPY 100", "Z I")
	c.send(parse("", "COPY orders FROM STDIN"), bind("", ""), do("", 0), rows(102), &pgproto3.CopyDone{}, syncMsg)
	c.want("1", "2", "G", "E 23505", "Z I")
	c.send(parse("", "COPY orders FROM STDIN"), bind("", ""), do("", 0), syncMsg)
	c.want("1", "2", "G")
	c.send(rows(103), &pgproto3.CopyFail{Message: "no"}, syncMsg)
	c.want("E 57014", "Z I")
	c.send(&pgproto3.Query{String: "COPY orders FROM STDIN"}, rows(104), rows(105), &pgproto3.CopyDone{}, &pgproto3.Query{String: "SELECT 1"})
	c.want("G", "C COPY 200", "Z I", "T ?column?", "D 1", "C SELECT 1", "Z I")
	c.send(&pgproto3.Query{String: "COPY orders FROM STDIN"}, rows(106), parse("", "SELECT 1"))
	c.want("G", "E 57014", "Z I")
	c.send(syncMsg)
	c.want("Z I")
	q("SELECT count(*) FROM orders WHERE id > 100")
	c.want("T count", "D 400", "C SELECT 1", "Z I")
	// A client that did not wait for the answer, which is an error.
	q("COPY orders (id, note) FROM STDIN")
	c.want("E 0A000", "Z I")
	c.send(&pgproto3.CopyData{Data: []byte("1\t2\t3\n")}, &pgproto3.CopyDone{})
	q("SELECT count(*) FROM whole")
	c.want("T count", "D 7", "C SELECT 1", "Z I")
	// A trigger that fails before the first row, at once or after a while: the error
	// comes after the word to send data, and the shard ignores that.
	for _, pause := range []string{"0", "0.1"} {
		exec(t, conn, "CREATE OR REPLACE FUNCTION closed() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep("+pause+"); RAISE EXCEPTION 'closed' USING ERRCODE = '23514'; END$$")
		exec(t, conn, "CREATE TRIGGER closed BEFORE INSERT ON whole FOR EACH STATEMENT EXECUTE FUNCTION closed()")
		for _, begun := range []bool{false, true} {
			status := "Z I"
			if begun {
				q("BEGIN")
				c.want("C BEGIN", "Z T")
				status = "Z E"
			}
			c.send(parse("", "COPY whole FROM STDIN"), bind("", ""), do("", 0), syncMsg)
			c.want("1", "2", "G")
			c.send(&pgproto3.CopyData{Data: []byte("9\tz\n")}, &pgproto3.CopyDone{}, syncMsg)
			c.want("E 23514", status)
			// PostgreSQL answers the first Sync as well, since it met it after the error.
			q("ROLLBACK")
			for w := c.next(); w != "C ROLLBACK"; w = c.next() {
				if w != status && w != "N 25P01" {
					t.Fatalf("%q after the error", w)
				}
			}
			c.want("Z I")
			if begun {
				q("BEGIN")
				c.want("C BEGIN", "Z T")
			}
			c.send(parse("", "COPY whole FROM STDIN"), bind("", ""), do("", 0), &pgproto3.CopyData{Data: []byte("9\tz\n")}, &pgproto3.CopyDone{}, syncMsg)
			c.want("1", "2", "G", "E 23514", status)
			if begun {
				q("ROLLBACK")
				c.want("C ROLLBACK", "Z I")
			}
			q("SELECT count(*) FROM whole")
			c.want("T count", "D 7", "C SELECT 1", "Z I")
		}
		exec(t, conn, "DROP TRIGGER closed ON whole")
	}
}

func TestStartup(t *testing.T) {
	cl := start(t, config{shards: 1})
	try := func(m *pgproto3.StartupMessage) *client {
		c := cl.dial(t)
		c.send(m)
		return c
	}
	start := func(kv ...string) *pgproto3.StartupMessage {
		m := &pgproto3.StartupMessage{ProtocolVersion: 196608, Parameters: map[string]string{}}
		for i := 0; i < len(kv); i += 2 {
			m.Parameters[kv[i]] = kv[i+1]
		}
		return m
	}
	try(start("user", "a", "database", "postgres")).want("E FATAL 3D000", "gone")
	try(start("database", "cleave")).want("E FATAL 28000", "gone")
	try(start("user", "a", "database", "cleave", "replication", "true")).want("E FATAL 0A000", "gone")
	try(start("user", "a", "database", "cleave", "client_encoding", "LATIN1")).want("E FATAL 0A000", "gone")
	try(start("user", "a", "database", "cleave", "TimeZone", "No/Where")).want("E FATAL 22023", "gone")
	try(start("user", "a", "database", "cleave", "options", "-c cleave.guard_epoch=1")).want("E FATAL 42704", "gone")
	try(start("user", "cleave")).want("*pgproto3.AuthenticationOk")
	newer := start("user", "a", "database", "cleave", "_pq_.x", "1")
	newer.ProtocolVersion = 196610
	// pgproto3 does not know NegotiateProtocolVersion: look at the bytes.
	c := cl.dial(t)
	c.send(newer)
	var head [9]byte
	if _, err := io.ReadFull(c.nc, head[:]); err != nil || head[0] != 'v' {
		t.Errorf("answer to protocol 3.2: %q, %v", head, err)
	}
	old := start("user", "a", "database", "cleave")
	old.ProtocolVersion = 131072
	try(old).want("E FATAL 0A000", "gone")

	c = cl.dial(t)
	for _, code := range []uint32{80877103, 80877104} {
		_, _ = c.nc.Write(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, code))
		var b [1]byte
		if _, err := io.ReadFull(c.nc, b[:]); err != nil || b[0] != 'N' {
			t.Fatalf("answer to encryption request: %q, %v", b, err)
		}
	}
	c.send(start("user", "a", "database", "cleave"))
	c.want("*pgproto3.AuthenticationOk")

	for name, b := range map[string][]byte{
		"length 0": {0, 0, 0, 0, 0, 3, 0, 0}, "huge": {0x7f, 0, 0, 0, 0, 3, 0, 0}, "http": []byte("GET / HTTP/1.1\r\n\r\n"),
		"no terminator": append([]byte{0, 0, 0, 13, 0, 3, 0, 0}, "user\x00"...),
	} {
		c := cl.dial(t)
		_, _ = c.nc.Write(b)
		if got := c.next(); got != "E FATAL 08P01" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestMalformedMessages(t *testing.T) {
	cl := start(t, config{shards: 1})
	for name, b := range map[string]string{
		"unknown type": "\x7f\x00\x00\x00\x04",
		"length 3":     "Q\x00\x00\x00\x03",
		"too large":    "Q\x7f\xff\xff\xff",
	} {
		c := cl.raw(t)
		_, _ = c.nc.Write([]byte(b))
		if got := c.next(); got != "E FATAL 08P01" {
			t.Errorf("%s: %q", name, got)
		}
		c.want("gone")
	}
	// Malformed, but framed: the session goes on after Sync.
	for name, b := range map[string]string{
		"bind":     "B\x00\x00\x00\x08\x00\x00\x00\x05",
		"parse":    "P\x00\x00\x00\x05x",
		"describe": "D\x00\x00\x00\x06Q\x00",
		"execute":  "E\x00\x00\x00\x05\x00",
		"close":    "C\x00\x00\x00\x04",
	} {
		c := cl.raw(t)
		_, _ = c.nc.Write([]byte(b + "S\x00\x00\x00\x04"))
		first := c.next()
		if first != "E 08P01" && first != "E 26000" {
			t.Errorf("%s: %q", name, first)
		}
		c.want("Z I")
	}
	c := cl.raw(t)
	for _, b := range []string{"Q\x00\x00\x00\x06ab", "Q\x00\x00\x00\x08a\x00b\x00"} {
		_, _ = c.nc.Write([]byte(b))
		c.want("E 08P01", "Z I")
	}
	c.send(&pgproto3.Query{String: "SELECT '\xff'"})
	c.want("E 22021", "Z I")
	c.send(&pgproto3.FunctionCall{Function: 1})
	c.want("E 0A000", "Z I")
}
