package gateway_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/internal/waitfor"
)

// one PostgreSQL beside the router: both get the same messages and must answer alike, message by message.

// plain connects to a PostgreSQL database as raw connects to the router.
func plain(t testing.TB, url string) *client {
	t.Helper()
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	nc, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(waitfor.Max))
	cl := &client{t: t, nc: nc, fe: pgproto3.NewFrontend(nc, nc)}
	cl.send(&pgproto3.StartupMessage{ProtocolVersion: 196608, Parameters: map[string]string{"user": cfg.User, "database": cfg.Database}})
	for {
		m, err := cl.fe.Receive()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *pgproto3.ReadyForQuery:
			return cl
		case *pgproto3.ErrorResponse:
			t.Fatalf("startup: %s", m.Message)
		}
	}
}

// pair is a router and one PostgreSQL with the same rows in orders.
type pair struct {
	cl    *cluster
	plain string // URL
	keys  [][]int64
}

func withPlain(t *testing.T) pair {
	t.Helper()
	cl, conn, keys := orders(t, config{})
	p := pair{cl: cl, plain: pgtest.Database(t), keys: keys}
	ctx := context.Background()
	pg, err := pgconn.Connect(ctx, p.plain)
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close(ctx)
	rows := "INSERT INTO orders VALUES "
	for i := range 9 {
		rows += fmt.Sprintf("(%d, %d, 'n%d'),", keys[i%3][i/3], i+1, i+1)
	}
	rows = strings.TrimSuffix(rows, ",")
	exec(t, conn, rows)
	for _, sql := range []string{strings.Replace(ordersTable, " WITH (cleave.shard_key = 'tenant_id')", "", 1), rows} {
		if _, err := pg.Exec(ctx, sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// batch is what is sent at once; the answers up to its ReadyForQuerys are compared.
type batch []pgproto3.FrontendMessage

func query(sql string) *pgproto3.Query { return &pgproto3.Query{String: sql} }

func closeMsg(what byte, name string) *pgproto3.Close {
	return &pgproto3.Close{ObjectType: what, Name: name}
}

// alike sends batches to both.
func (p pair) alike(t *testing.T, batches ...batch) {
	t.Helper()
	a, b := p.cl.raw(t), plain(t, p.plain)
	for i, ms := range batches {
		readies := 0
		for _, m := range ms {
			switch m.(type) {
			case *pgproto3.Query, *pgproto3.Sync:
				readies++
			}
		}
		var got, want []string
		for c, out := range map[*client]*[]string{a: &got, b: &want} {
			c.send(ms...)
			for n := 0; n < readies; {
				w := c.next()
				if *out = append(*out, w); strings.HasPrefix(w, "Z ") {
					n++
				}
				if w == "gone" {
					break
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("batch %d:\n  router:     %q\n  PostgreSQL: %q", i, got, want)
		}
	}
}

// TestCursorIsAPortal: messages name cursors of DECLARE, and FETCH, MOVE and CLOSE name portals of Bind, on one
// shard, on the default shard, over several, WITH HOLD, BINARY and after an error.
func TestCursorIsAPortal(t *testing.T) {
	p := withPlain(t)
	one := fmt.Sprintf("SELECT id, note FROM orders WHERE tenant_id = %d ORDER BY id", p.keys[1][0])
	all := "SELECT id, note FROM orders ORDER BY id"
	for name, sql := range map[string]string{"one shard": one, "several": all, "no table": "SELECT g AS id, 'x' AS note FROM generate_series(1, 9) g"} {
		t.Run(name, func(t *testing.T) {
			messages := []batch{
				{describe('P', "c"), do("c", 2), syncMsg},
				{do("c", 2), do("c", 2), describe('P', "c"), do("c", 0), do("c", 0), syncMsg},
				{query("FETCH 1 FROM c"), query("MOVE 2 FROM c")},
			}
			for _, declare := range []string{"DECLARE c CURSOR FOR ", "DECLARE c SCROLL CURSOR FOR ", "DECLARE c NO SCROLL CURSOR WITH HOLD FOR ", "DECLARE c BINARY CURSOR FOR "} {
				p.alike(t, append([]batch{{query("BEGIN"), query(declare + sql)}}, append(messages,
					batch{closeMsg('P', "c"), closeMsg('P', "c"), closeMsg('P', "none"), describe('P', "c"), syncMsg}, batch{query("ROLLBACK")})...)...)
				p.alike(t, append([]batch{{query("BEGIN"), parse("", declare+sql), bind("", ""), do("", 0), syncMsg}}, append(messages,
					batch{query("COMMIT")}, batch{describe('P', "c"), syncMsg}, batch{do("c", 0), syncMsg})...)...)
			}
			p.alike(t, batch{query("DECLARE h SCROLL CURSOR WITH HOLD FOR " + sql)}, batch{describe('P', "h"), do("h", 1), syncMsg}, batch{query("FETCH 1 FROM h")},
				batch{query("BEGIN")}, batch{do("h", 1), syncMsg}, batch{query("COMMIT")},
				batch{closeMsg('P', "h"), syncMsg}, batch{describe('P', "h"), syncMsg}, batch{query("FETCH 1 FROM h")})
			p.alike(t, batch{query("BEGIN"), query("DECLARE c CURSOR FOR " + sql)}, batch{describe('P', "none"), syncMsg}, batch{describe('P', "c"), syncMsg}, batch{query("ROLLBACK")})
			// A portal of Bind.
			for _, rows := range []uint32{1, 2} {
				p.alike(t, batch{query("BEGIN")}, batch{parse("", sql), bind("b", ""), do("b", rows), syncMsg},
					batch{query("MOVE FORWARD 1 FROM b")}, batch{do("b", 1), syncMsg}, batch{query("FETCH 1 FROM b")},
					batch{parse("", "FETCH 2 FROM b"), bind("", ""), describe('P', ""), do("", 0), syncMsg},
					batch{query("MOVE ALL FROM b")}, batch{do("b", 0), syncMsg}, batch{query("FETCH BACKWARD 1 FROM b")}, batch{query("ROLLBACK")})
			}
			p.alike(t, batch{query("BEGIN")}, batch{parse("", sql), bind("b", ""), syncMsg}, batch{query("MOVE 2 FROM b")}, batch{do("b", 1), syncMsg},
				batch{query("CLOSE b")}, batch{do("b", 1), syncMsg}, batch{query("ROLLBACK")})
		})
	}
	p.alike(t, batch{describe('P', "c"), syncMsg}, batch{do("c", 0), syncMsg}, batch{query("BEGIN")}, batch{describe('P', "c"), syncMsg}, batch{query("ROLLBACK")})
}

// TestBinaryCopyMessages: COPY TO in binary has its header in one message with the first row, or with the trailer where there is
// none, whichever shards have rows.
func TestBinaryCopyMessages(t *testing.T) {
	p := withPlain(t)
	for _, what := range []string{
		"orders", "(SELECT id, note FROM orders ORDER BY id)", "(SELECT id FROM orders WHERE id > 100 ORDER BY id)",
		fmt.Sprintf("(SELECT id, note FROM orders WHERE tenant_id = %d ORDER BY id)", p.keys[2][0]),
	} {
		if what != "orders" { // else the order of the rows differs
			p.alike(t, batch{query("COPY " + what + " TO STDOUT (FORMAT binary)")})
		}
	}
	for shard := range p.keys {
		// Rows on one shard alone, then on none.
		p.both(t, "DELETE FROM orders")
		p.alike(t, batch{query("COPY orders TO STDOUT (FORMAT binary)")})
		p.both(t, fmt.Sprintf("INSERT INTO orders VALUES (%d, 1, 'a')", p.keys[shard][0]))
		p.alike(t, batch{query("COPY orders TO STDOUT (FORMAT binary)")}, batch{query("COPY orders TO STDOUT")}, batch{query("COPY orders TO STDOUT (FORMAT csv, HEADER)")})
	}
}

// both runs a statement on both.
func (p pair) both(t *testing.T, sql string) {
	t.Helper()
	p.alike(t, batch{query(sql)})
}

// through sends a batch and returns the answers up to one that begins so.
func (c *client) through(prefix string, ms ...pgproto3.FrontendMessage) (got []string) {
	c.t.Helper()
	c.send(ms...)
	for {
		w := c.next()
		if got = append(got, w); w == "gone" || strings.HasPrefix(w, prefix) {
			return got
		}
	}
}

// TestCopyFailsAtOnce: a COPY that the shard refuses is told while the client still sends, and what it goes on sending is ignored.
func TestCopyFailsAtOnce(t *testing.T) {
	p := withPlain(t)
	p.both(t, "CREATE TABLE plain (id bigint PRIMARY KEY CHECK (id < 1000), tenant_id bigint, note text)")
	data := func(s string) pgproto3.FrontendMessage { return &pgproto3.CopyData{Data: []byte(s)} }
	for _, table := range []string{"orders (tenant_id, id)", "plain (tenant_id, id)"} {
		for name, bad := range map[string]string{"a row": "1\tx\n", "a key": "x\t1\n", "too many values": "1\t2\t3\n"} {
			var answers [2][]string
			for i, c := range []*client{p.cl.raw(t), plain(t, p.plain)} {
				got := c.through("G", query("COPY "+table+" FROM STDIN"))
				got = append(got, c.through("Z", data("7\t900\n8\t901\n"+bad))...)
				got = append(got, c.through("Z", data("9\t902\n"), &pgproto3.CopyDone{}, query("SELECT 1"))...)
				// The same in the extended protocol.
				got = append(got, c.through("G", parse("", "COPY "+table+" FROM STDIN"), bind("", ""), do("", 0), flushMsg)...)
				got = append(got, c.through("E", data("7\t900\n"+bad))...)
				got = append(got, c.through("Z", data("9\t902\n"), &pgproto3.CopyDone{}, syncMsg)...)
				got = append(got, c.through("Z", query("SELECT count(*) FROM "+strings.Fields(table)[0]))...)
				// Data that fails nowhere.
				got = append(got, c.through("G", query("COPY "+table+" FROM STDIN"))...)
				got = append(got, c.through("E", data("7\t900\n"), &pgproto3.CopyFail{Message: "no"})...)
				got = append(got, c.through("Z")...)
				answers[i] = got
			}
			if fmt.Sprint(answers[0]) != fmt.Sprint(answers[1]) {
				t.Errorf("%s, %s:\n  router:     %q\n  PostgreSQL: %q", table, name, answers[0], answers[1])
			}
		}
	}
}

// TestMuchBothWays: a client writes much while much comes back.
func TestMuchBothWays(t *testing.T) {
	testrun.Long(t, "as much as no buffer on the way holds; the other tests of messages have little")
	cl, conn, _ := orders(t, config{})
	ctx := context.Background()
	pg := conn.PgConn()
	if _, err := pg.Exec(ctx, "SET client_min_messages = debug5").ReadAll(); err != nil {
		t.Fatal(err)
	}
	const n = 65535
	var sql strings.Builder
	values := make([][]byte, n)
	for i := range n {
		sep := ", "
		if i == 0 {
			sep = "VALUES "
		}
		fmt.Fprintf(&sql, "%s($%d::text)", sep, i+1)
		values[i] = []byte(fmt.Sprint(i))
	}
	limit, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if res := pg.ExecParams(limit, sql.String(), values, nil, nil, nil).Read(); res.Err != nil || len(res.Rows) != n {
		t.Fatalf("%d rows of %d: %v", len(res.Rows), n, res.Err)
	}
	// Each row of a COPY makes the shard say 8 kB.
	noisy := cl.connect(t)
	exec(t, noisy, "CREATE TABLE noisy (id bigint)")
	exec(t, noisy, "CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '%', repeat('x', 8000); RETURN NEW; END $$")
	exec(t, noisy, "CREATE TRIGGER say BEFORE INSERT ON noisy FOR EACH ROW EXECUTE FUNCTION say()")
	const rows = 3000
	tag, err := noisy.PgConn().CopyFrom(limit, strings.NewReader(strings.Repeat("12345678\n", rows)), "COPY noisy FROM STDIN")
	if err != nil || tag.RowsAffected() != rows {
		t.Fatalf("COPY: %v, %v", tag, err)
	}
}

// TestNotifiedBefore: what was notified, and acknowledged, before a statement was sent comes with its answer, also before UNLISTEN.
func TestNotifiedBefore(t *testing.T) {
	cl, conn, keys := orders(t, config{})
	for round := range 20 {
		for _, sql := range []string{"SELECT 1", fmt.Sprintf("SELECT 2 FROM orders WHERE tenant_id = %d", keys[1][0]), "SELECT count(*) FROM orders", "UNLISTEN *"} {
			c := cl.raw(t)
			c.through("Z", query("LISTEN news"))
			exec(t, conn, "NOTIFY news, 'x'")
			got := c.through("Z", query(sql))
			if told := strings.Contains(fmt.Sprint(got), "NotificationResponse"); !told {
				t.Fatalf("round %d: %s: %q", round, sql, got)
			}
			_ = c.nc.Close()
		}
		// In a transaction they come at its end.
		c := cl.raw(t)
		c.through("Z", query("LISTEN news"))
		c.through("Z", query("BEGIN"))
		exec(t, conn, "NOTIFY news, 'x'")
		if got := c.through("Z", query("SELECT 1")); strings.Contains(fmt.Sprint(got), "NotificationResponse") {
			t.Fatalf("in a transaction: %q", got)
		}
		if got := c.through("Z", query("COMMIT")); !strings.Contains(fmt.Sprint(got), "NotificationResponse") {
			t.Fatalf("round %d: COMMIT: %q", round, got)
		}
		_ = c.nc.Close()
	}
}
