package enginetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

func runConversation(t *testing.T, h Harness) {
	s := h.Open(t)
	c := connect(t, s)
	c.do(`CREATE TABLE item (id bigint PRIMARY KEY, name text, price integer)`,
		`INSERT INTO item (id, name, price) VALUES (1, 'one', 10), (2, 'two', NULL), (3, '', 30), (4, 'four', 40), (5, 'five', 50)`)

	t.Run("parameters", func(t *testing.T) {
		for _, name := range []string{"server_version", "client_encoding", "server_encoding", "DateStyle", "TimeZone", "integer_datetimes", "standard_conforming_strings"} {
			if c.Parameter(name) == "" {
				t.Errorf("parameter %s is not reported", name)
			}
		}
		same(t, "client_encoding", c.Parameter("client_encoding"), "UTF8")
		same(t, "TimeZone", c.Parameter("TimeZone"), "UTC")
		same(t, "parameters", c.Parameters()["client_encoding"], "UTF8")
	})
	t.Run("simple", func(t *testing.T) {
		r := c.do(`SELECT id, name, price FROM item ORDER BY id`)
		same(t, "order", r.order(), "TDDDDDCZ")
		same(t, "rows", r.rows(), []string{"1|one|10", "2|two|~", "3||30", "4|four|40", "5|five|50"})
		same(t, "tags", r.tags(), []string{"SELECT 5"})
		same(t, "types", columnOIDs(r.all(wire.RowDescription)[0]), []uint32{20, 25, 23})
		same(t, "status", string(r.status), "I")
		same(t, "no row", c.do(`SELECT id FROM item WHERE id = 99`).order(), "TCZ")
		same(t, "limit", c.do(`SELECT name FROM item WHERE price >= 30 ORDER BY id DESC LIMIT 2`).rows(), []string{"five", "four"})
	})
	t.Run("several statements in one message", func(t *testing.T) {
		r := c.do(`INSERT INTO item (id, name) VALUES (6, 'six'); SELECT name FROM item WHERE id = 6; DELETE FROM item WHERE id = 6`)
		same(t, "order", r.order(), "CTDCCZ")
		same(t, "tags", r.tags(), []string{"INSERT 0 1", "SELECT 1", "DELETE 1"})
		// They are one transaction, and what follows an error does not run.
		r = c.query(`INSERT INTO item (id, name) VALUES (7, 'seven'); SELECT nothing FROM item; INSERT INTO item (id) VALUES (8)`)
		same(t, "order with an error", r.order(), "CEZ")
		same(t, "code", r.code(), sqlstate.UndefinedColumn)
		same(t, "rolled back", c.do(`SELECT id FROM item WHERE id > 5`).rows(), []string(nil))
	})
	t.Run("empty", func(t *testing.T) {
		same(t, "order", c.query("").order(), "IZ")
		same(t, "spaces", c.query(" ; ").order(), "IZ")
		same(t, "extended", c.run(script(nil).parse("", "").bind("", "").describe('P', "").execute("", 0).sync(), 1).order(), "12nIZ")
	})
	t.Run("errors", func(t *testing.T) {
		c.refused(`SELEKT 1`, sqlstate.SyntaxError)
		c.refused(`SELECT id FROM nothing_here`, sqlstate.UndefinedTable)
		c.refused(`INSERT INTO item (id) VALUES (1)`, sqlstate.UniqueViolation)
		c.refused(`INSERT INTO item (id) VALUES (NULL)`, sqlstate.NotNullViolation)
		same(t, "alive", c.do(`SELECT 1`).rows(), []string{"1"})
	})
	t.Run("returning and tags", func(t *testing.T) {
		r := c.do(`INSERT INTO item (id, name, price) VALUES (10, 'ten', 100), (11, 'eleven', 110) RETURNING id, name`)
		same(t, "rows", r.rows(), []string{"10|ten", "11|eleven"})
		same(t, "tags", r.tags(), []string{"INSERT 0 2"})
		r = c.do(`UPDATE item SET price = price + 1 WHERE id >= 10 RETURNING price`)
		same(t, "rows", r.rows(), []string{"101", "111"})
		same(t, "tags", r.tags(), []string{"UPDATE 2"})
		r = c.do(`DELETE FROM item WHERE id >= 10 RETURNING id`)
		same(t, "rows", r.rows(), []string{"10", "11"})
		same(t, "tags", r.tags(), []string{"DELETE 2"})
	})
	t.Run("extended", func(t *testing.T) {
		r := c.run(script(nil).parse("get", `SELECT name, price FROM item WHERE id = $1`).describe('S', "get").
			bind("", "get", "4").describe('P', "").execute("", 0).sync(), 1)
		same(t, "order", r.order(), "1tT2TDCZ")
		same(t, "parameters", parameterOIDs(r.all(wire.ParameterDescription)[0]), []uint32{20})
		same(t, "rows", r.rows(), []string{"four|40"})
		same(t, "again", c.run(script(nil).bind("", "get", "5").execute("", 0).sync(), 1).rows(), []string{"five|50"})
		same(t, "close", c.run(script(nil).close('S', "get").close('S', "never").sync(), 1).order(), "33Z")
		same(t, "closed", c.run(script(nil).bind("", "get", "5").sync(), 1).code(), sqlstate.InvalidStatementName)
		r = c.run(script(nil).parse("", `INSERT INTO item (id, name, price) VALUES ($1, $2, $3)`).describe('S', "").sync(), 1)
		same(t, "order", r.order(), "1tnZ")
		same(t, "inferred", parameterOIDs(r.all(wire.ParameterDescription)[0]), []uint32{20, 25, 23})
		same(t, "twice", c.run(script(nil).parse("x", "SELECT 1").parse("x", "SELECT 2").sync(), 1).code(), sqlstate.DuplicatePrepared)
	})
	t.Run("NULL and empty parameters", func(t *testing.T) {
		r := c.run(script(nil).parse("", `INSERT INTO item (id, name, price) VALUES ($1, $2, $3) RETURNING name, price`).
			bindRaw("", "", nil, [][]byte{[]byte("20"), {}, nil}, nil).execute("", 0).sync(), 1)
		same(t, "rows", r.rows(), []string{"|~"})
		c.do(`DELETE FROM item WHERE id = 20`)
	})
	t.Run("row limits", func(t *testing.T) {
		get := script(nil).parse("", `SELECT id FROM item ORDER BY id`).bind("p", "")
		r := c.run(get.execute("p", 2).execute("p", 2).execute("p", 2).sync(), 1)
		same(t, "order", r.order(), "12DDsDDsDCZ")
		same(t, "rows", r.rows(), []string{"1", "2", "3", "4", "5"})
		// The portal lives as long as its transaction.
		same(t, "gone", c.run(script(nil).execute("p", 0).sync(), 1).code(), sqlstate.InvalidCursorName)
		c.do(`BEGIN`)
		same(t, "first", c.run(script(nil).parse("", `SELECT id FROM item ORDER BY id`).bind("q", "").execute("q", 3).sync(), 1).rows(), []string{"1", "2", "3"})
		same(t, "between", c.do(`SELECT 7`).rows(), []string{"7"})
		same(t, "rest", c.run(script(nil).execute("q", 0).sync(), 1).rows(), []string{"4", "5"})
		same(t, "close", c.run(script(nil).close('P', "q").sync(), 1).order(), "3Z")
		c.do(`COMMIT`)
	})
	t.Run("flush", func(t *testing.T) {
		c.send(script(nil).parse("", `SELECT 1`).flush())
		b, err := c.Receive()
		if err != nil || b[0] != wire.ParseComplete {
			t.Fatalf("got %x, %v", b, err)
		}
		same(t, "rest", c.run(script(nil).bind("", "").execute("", 0).sync(), 1).rows(), []string{"1"})
	})
	t.Run("pipeline", func(t *testing.T) {
		one := func(s script, sql string, v string) script {
			return s.parse("", sql, 20).bind("", "", v).execute("", 0).sync()
		}
		s := one(nil, `INSERT INTO item (id) VALUES ($1)`, "30")
		s = one(s, `INSERT INTO item (id) VALUES ($1)`, "1") // exists: fails alone
		s = one(s, `INSERT INTO item (id) VALUES ($1)`, "31")
		r := c.run(s, 3)
		same(t, "order", r.order(), "12CZ12EZ12CZ")
		// Without a Sync between them they are one transaction.
		s = script(nil).parse("", `INSERT INTO item (id) VALUES ($1)`, 20).bind("", "", "32").execute("", 0).
			bind("", "", "1").execute("", 0).bind("", "", "33").execute("", 0).sync()
		same(t, "order", c.run(s, 1).order(), "12C2EZ")
		same(t, "rows", c.do(`SELECT id FROM item WHERE id >= 30 ORDER BY id`).rows(), []string{"30", "31"})
		c.do(`DELETE FROM item WHERE id >= 30`)
	})
	if h.Notice != "" {
		t.Run("notice", func(t *testing.T) {
			n := c.do(h.Notice).all(wire.NoticeResponse)
			if len(n) != 1 || wire.ParseReport(n[0]).Message == "" {
				t.Fatalf("notices: %q", n)
			}
		})
	}
	t.Run("formats", func(t *testing.T) { runFormats(t, connect(t, s)) })
	t.Run("big value", func(t *testing.T) {
		const size = 10 << 20
		value := strings.Repeat("żółw 🐢 ", size/12)
		r := c.prepared(`INSERT INTO item (id, name) VALUES ($1, $2)`, []uint32{20, 25}, "40", value)
		same(t, "insert", r.code(), "")
		r = c.do(`SELECT name FROM item WHERE id = 40`)
		if got := r.rows()[0]; got != value {
			t.Fatalf("%d bytes came back, %d were sent", len(got), len(value))
		}
		c.do(`DELETE FROM item WHERE id = 40`)
	})
	t.Run("many rows", func(t *testing.T) {
		c.do(`CREATE TABLE many (id bigint PRIMARY KEY, pad text)`)
		var b strings.Builder
		const n = 5000
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("(")
			b.WriteString(itoa(int64(i)))
			b.WriteString(", 'padding padding padding padding')")
		}
		c.do(`INSERT INTO many (id, pad) VALUES ` + b.String())
		rows := c.do(`SELECT id FROM many ORDER BY id`).rows()
		if len(rows) != n || rows[n-1] != itoa(n-1) {
			t.Fatalf("%d rows", len(rows))
		}
	})
	t.Run("Exec", func(t *testing.T) {
		res, err := engine.Exec(c, `SELECT id, name FROM item WHERE id < 3 ORDER BY id`)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "result", *res, "{[id name] [[{1 false} {one false}] [{2 false} {two false}]] SELECT 2 73}")
		if _, err = engine.Exec(c, `SELECT nothing FROM item`); sqlstate.CodeOf(err) != sqlstate.UndefinedColumn {
			t.Fatalf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err = engine.ExecContext(ctx, c, h.Slow); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
			t.Fatalf("got %v, want 57014", err)
		}
		same(t, "usable", c.do(`SELECT 1`).rows(), []string{"1"})
		if err := c.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
			t.Fatal(err)
		}
	})
}

func be16(v int16) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
func be32(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
func be64(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// runFormats sends each type in binary and in text, and reads it in both.
func runFormats(t *testing.T, c *talk) {
	epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	moment := time.Date(2024, 2, 29, 13, 14, 15, 123456000, time.UTC)
	micros := be64(moment.Sub(epoch).Microseconds())
	days := be32(int32(moment.Sub(epoch).Hours() / 24))
	for i, v := range []struct {
		typ    string
		oid    uint32
		text   string
		binary []byte
	}{
		{"smallint", 21, "-32768", be16(-32768)},
		{"integer", 23, "2147483647", be32(math.MaxInt32)},
		{"bigint", 20, "-9223372036854775808", be64(math.MinInt64)},
		{"text", 25, "it's \\ $1 żółw 🐢\n\t\"", []byte("it's \\ $1 żółw 🐢\n\t\"")},
		{"varchar", 1043, "", []byte{}},
		{"boolean", 16, "t", []byte{1}},
		{"boolean", 16, "f", []byte{0}},
		{"uuid", 2950, "0b0c1d2e-3f40-5162-7384-95a6b7c8d9ea", unhex("0b0c1d2e3f405162738495a6b7c8d9ea")},
		{"date", 1082, "2024-02-29", days},
		{"timestamp", 1114, "2024-02-29 13:14:15.123456", micros},
		{"timestamptz", 1184, "2024-02-29 13:14:15.123456+00", micros},
		{"bytea", 17, `\x00ff10275c`, unhex("00ff10275c")},
		{"double precision", 701, "-1.5", be64(int64(math.Float64bits(-1.5)))},
	} {
		table := "format" + itoa(int64(i))
		c.do(`CREATE TABLE ` + table + ` (id bigint PRIMARY KEY, v ` + v.typ + `)`)
		insert := script(nil).parse("", `INSERT INTO `+table+` (id, v) VALUES ($1, $2)`, 20, v.oid).
			bindRaw("", "", []int16{1, 1}, [][]byte{be64(1), v.binary}, nil).execute("", 0).
			bindRaw("", "", []int16{0, 0}, [][]byte{[]byte("2"), []byte(v.text)}, nil).execute("", 0).
			bindRaw("", "", []int16{1}, [][]byte{be64(3), nil}, nil).execute("", 0).sync()
		same(t, v.typ+" insert", c.run(insert, 1).order(), "12C2C2CZ")
		get := `SELECT v FROM ` + table + ` ORDER BY id`
		same(t, v.typ+" in text", c.do(get).rows(), []string{v.text, v.text, "~"})
		r := c.run(script(nil).parse("", get).bindRaw("", "", nil, nil, []int16{1}).describe('P', "").execute("", 0).sync(), 1)
		same(t, v.typ+" oid", columnOIDs(r.all(wire.RowDescription)[0]), []uint32{v.oid})
		for n, row := range r.all(wire.DataRow) {
			values, err := wire.SplitRow(row, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n < 2 && (values[0] == nil || !bytes.Equal(values[0], v.binary)) || n == 2 && values[0] != nil {
				t.Fatalf("%s row %d in binary: %x, want %x", v.typ, n, values[0], v.binary)
			}
		}
		found := c.run(script(nil).parse("", `SELECT id FROM `+table+` WHERE v = $1 ORDER BY id`, v.oid).
			bindRaw("", "", []int16{1}, [][]byte{v.binary}, nil).execute("", 0).sync(), 1)
		same(t, v.typ+" found", found.rows(), []string{"1", "2"})
	}
}
