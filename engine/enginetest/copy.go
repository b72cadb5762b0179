package enginetest

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// copied sends a COPY with its data as a simple query, in pieces of a size.
func (c *talk) copied(sql, data string, size int) reply {
	c.t.Helper()
	c.send(wire.AppendQuery(nil, sql))
	for len(data) > 0 {
		n := min(size, len(data))
		c.send(copyData(data[:n]))
		data = data[n:]
	}
	c.send(wire.AppendEmpty(nil, wire.CopyDoneF))
	return c.receive(1)
}

func copyData(data string) []byte {
	out, m := wire.Begin(nil, wire.CopyDataF)
	return wire.End(append(out, data...), m)
}

// copy is the data that a COPY gives.
func (r reply) copy() string {
	var b strings.Builder
	for _, body := range r.all(wire.CopyData) {
		b.Write(body)
	}
	return b.String()
}

func runCopy(t *testing.T, h Harness) {
	s := h.Open(t)
	c := connect(t, s)
	c.do(`CREATE TABLE item (id bigint PRIMARY KEY, name varchar(5), price numeric(10,2) DEFAULT 7.5, at timestamptz, data bytea, ok boolean, f double precision, CHECK (price < 1000))`)
	all := func() string { return c.do(`COPY item TO STDOUT`).copy() }
	reset := func() { c.do(`DELETE FROM item`) }

	t.Run("text", func(t *testing.T) {
		for _, size := range []int{1, 3, 1 << 20} {
			reset()
			data := "1\ta\t1.5\t2020-01-01 00:00:00+00\t\\\\x00ff\tt\t0.1\n" +
				"2\ta\\tb\\n\t\\N\t\\N\t\\N\tf\t-1e10\n" +
				"3\t\\x41\\102\\c\t3\t\\N\t\\N\t\\N\t\\N\n" +
				"4\t\\\n\t3\t\\N\t\\N\t\\N\tinfinity\n\\.\n"
			r := c.copied(`COPY item FROM STDIN`, data, size)
			same(t, "error", r.err(), (*sqlstate.Error)(nil))
			same(t, "tag", r.tags(), []string{"COPY 4"})
			same(t, "data", all(), "1\ta\t1.50\t2020-01-01 00:00:00+00\t\\\\x00ff\tt\t0.1\n2\ta\\tb\\n\t\\N\t\\N\t\\N\tf\t-10000000000\n"+
				"3\tABc\t3.00\t\\N\t\\N\t\\N\t\\N\n4\t\\n\t3.00\t\\N\t\\N\t\\N\tInfinity\n")
		}
	})
	t.Run("csv", func(t *testing.T) {
		for _, size := range []int{1, 2, 1 << 20} {
			reset()
			data := "id,name,price\r\n1,\"a,\"\"b\",2\r\n2,\"\",\r\n3,,\r\n4,\"x\r\ny\",1\r\n5,x\"y\"z,0\r\n"
			r := c.copied(`COPY item (id, name, price) FROM STDIN (FORMAT csv, HEADER)`, data, size)
			same(t, "error", r.err(), (*sqlstate.Error)(nil))
			same(t, "tag", r.tags(), []string{"COPY 5"})
			r = c.do(`COPY item (name, id) TO STDOUT WITH (FORMAT csv, HEADER true, FORCE_QUOTE (id))`)
			same(t, "data", r.copy(), "name,id\n\"a,\"\"b\",\"1\"\n\"\",\"2\"\n,\"3\"\n\"x\r\ny\",\"4\"\nxyz,\"5\"\n")
			same(t, "tag", r.tags(), []string{"COPY 5"})
		}
		reset()
		r := c.copied(`COPY item (id, name) FROM STDIN (FORMAT csv, DELIMITER ';', QUOTE '''', ESCAPE '!', NULL 'nil', FORCE_NULL (name))`, "1;'a!'b'\n2;'nil'\n3;nil\n\\.\n", 100)
		same(t, "error", r.err(), (*sqlstate.Error)(nil))
		same(t, "defaults", c.do(`SELECT id, name, price FROM item ORDER BY id`).rows(), []string{"1|a'b|7.50", "2|~|7.50", "3|~|7.50"})
		reset()
		r = c.copied(`COPY item (id, name) FROM STDIN (FORMAT csv, HEADER match)`, "id,nam\n1,a\n", 100)
		same(t, "header", r.err().Message, `column name mismatch in header line field 2: got "nam", expected "name"`)
	})
	t.Run("binary", func(t *testing.T) {
		reset()
		c.do(`INSERT INTO item VALUES (1, 'one', 1.25, '2020-01-01 00:00:00+00', '\x0102', true, 0.5), (2, NULL, NULL, NULL, NULL, NULL, NULL)`)
		want := all()
		r := c.do(`COPY item TO STDOUT (FORMAT binary)`)
		same(t, "tag", r.tags(), []string{"COPY 2"})
		data := r.copy()
		for _, size := range []int{1, 7, 1 << 20} {
			reset()
			r = c.copied(`COPY item FROM STDIN WITH BINARY`, data, size)
			same(t, "error", r.err(), (*sqlstate.Error)(nil))
			same(t, "tag", r.tags(), []string{"COPY 2"})
			same(t, "data", all(), want)
		}
		reset()
		same(t, "cut", c.copied(`COPY item FROM STDIN (FORMAT binary)`, data[:len(data)-4], 100).code(), sqlstate.BadFileFormat)
		same(t, "no signature", c.copied(`COPY item FROM STDIN (FORMAT binary)`, "1\ta\n", 100).code(), sqlstate.BadFileFormat)
	})
	t.Run("query", func(t *testing.T) {
		reset()
		c.do(`INSERT INTO item (id, name) VALUES (1, 'a'), (2, 'b')`)
		same(t, "data", c.do(`COPY (SELECT id * 2, name FROM item ORDER BY id DESC) TO STDOUT`).copy(), "4\tb\n2\ta\n")
		same(t, "returning", c.do(`COPY (DELETE FROM item WHERE id = 1 RETURNING id, name) TO STDOUT`).copy(), "1\ta\n")
		same(t, "none", c.do(`COPY (SELECT id FROM item WHERE false) TO STDOUT`).tags(), []string{"COPY 0"})
	})
	t.Run("extended", func(t *testing.T) {
		reset()
		b := script(nil).parse("", `COPY item (id, name) FROM STDIN`).bind("", "").describe('P', "").execute("", 0).sync()
		b = append(b, copyData("1\ta\n2\tb\n")...)
		b = wire.AppendEmpty(b, wire.CopyDoneF)
		b = wire.AppendEmpty(b, wire.Sync)
		r := c.run(b, 1)
		same(t, "error", r.err(), (*sqlstate.Error)(nil))
		same(t, "tag", r.tags(), []string{"COPY 2"})
		r = c.run(script(nil).parse("", `COPY item (id, name) TO STDOUT`).bind("", "").describe('P', "").execute("", 0).sync(), 1)
		same(t, "data", r.copy(), "1\ta\n2\tb\n")
		// After an error all is skipped up to Sync.
		b = script(nil).parse("", `COPY item (id, name) FROM STDIN`).bind("", "").execute("", 0).sync()
		b = append(b, copyData("3\tc\n2\tb\n")...)
		b = wire.AppendEmpty(b, wire.CopyDoneF)
		b = wire.AppendEmpty(b, wire.Sync)
		r = c.run(b, 1)
		same(t, "error", r.code(), sqlstate.UniqueViolation)
		same(t, "nothing", c.do(`SELECT count(*) FROM item`).rows(), []string{"2"})
	})
	t.Run("in a block", func(t *testing.T) {
		reset()
		c.do(`BEGIN`, `SAVEPOINT a`)
		same(t, "status", string(c.copied(`COPY item (id) FROM STDIN`, "1\n1\n", 100).status), "E")
		c.do(`ROLLBACK TO a`)
		same(t, "tag", c.copied(`COPY item (id) FROM STDIN`, "1\n2\n", 100).tags(), []string{"COPY 2"})
		c.do(`COMMIT`)
		same(t, "rows", c.do(`SELECT id FROM item ORDER BY id`).rows(), []string{"1", "2"})
		// Several statements in one message.
		r := c.copied(`DELETE FROM item; COPY item (id) FROM STDIN; SELECT count(*) FROM item`, "5\n6\n7\n", 100)
		same(t, "tags", r.tags(), []string{"DELETE 2", "COPY 3", "SELECT 1"})
		same(t, "count", r.rows(), []string{"3"})
	})
	t.Run("errors", func(t *testing.T) {
		reset()
		for _, e := range []struct {
			sql, data string
			code      sqlstate.Code
			message   string
			where     string
		}{
			{`COPY item (id, name) FROM STDIN`, "1\ta\n2\n", sqlstate.BadFileFormat, `missing data for column "name"`, `COPY item, line 2: "2"`},
			{`COPY item (id, name) FROM STDIN`, "1\ta\tb\n", sqlstate.BadFileFormat, `extra data after last expected column`, `COPY item, line 1: "1` + "\ta\tb\""},
			{`COPY item (id, name) FROM STDIN`, "1\ta\nx\tb\n", sqlstate.InvalidTextRepresentation, `invalid input syntax for type bigint: "x"`, `COPY item, line 2, column id: "x"`},
			{`COPY item (id, name) FROM STDIN`, "1\ta\n1\tb\n", sqlstate.UniqueViolation, `duplicate key value violates unique constraint "item_pkey"`, `COPY item, line 2`},
			{`COPY item (id, price) FROM STDIN`, "1\t1000\n", sqlstate.CheckViolation, `new row for relation "item" violates check constraint "item_price_check"`, "COPY item, line 1: \"1\t1000\""},
			{`COPY item (id, name) FROM STDIN (FORMAT csv)`, "1,\"a\n2,b\n", sqlstate.BadFileFormat, `unterminated CSV quoted field`, "COPY item, line 1: \"1,\"a\n2,b\n\""},
			{`COPY item (id, name) FROM STDIN`, "1\ta\r\n2\tb\n", sqlstate.BadFileFormat, `literal newline found in data`, `COPY item, line 2`},
			{`COPY item (id, name) FROM STDIN`, "1\ta\n2\tb\r\n", sqlstate.BadFileFormat, `literal carriage return found in data`, `COPY item, line 2`},
			{`COPY item (id, name) FROM STDIN`, "1\t\\xff\n", "22021", `invalid byte sequence for encoding "UTF8": 0xff`, ""},
			{`COPY item (id) FROM STDIN`, "\\N\n", sqlstate.NotNullViolation, `null value in column "id" of relation "item" violates not-null constraint`, `COPY item, line 1: "\N"`},
			{`COPY item (id, nothing) FROM STDIN`, "", sqlstate.UndefinedColumn, `column "nothing" of relation "item" does not exist`, ""},
			{`COPY item (id, id) FROM STDIN`, "", sqlstate.DuplicateColumn, `column "id" specified more than once`, ""},
			{`COPY nothing FROM STDIN`, "", sqlstate.UndefinedTable, `relation "nothing" does not exist`, ""},
			{`COPY item FROM STDIN (DELIMITER 'ab')`, "", sqlstate.FeatureNotSupported, `COPY delimiter must be a single one-byte character`, ""},
			{`COPY item FROM STDIN (QUOTE '!')`, "", sqlstate.FeatureNotSupported, `COPY quote available only in CSV mode`, ""},
			{`COPY item FROM STDIN (FORMAT xml)`, "", sqlstate.InvalidParameterValue, `COPY format "xml" not recognized`, ""},
		} {
			r := c.copied(e.sql, e.data, 100)
			err := r.err()
			if err == nil {
				t.Errorf("%s, %q: no error", e.sql, e.data)
				continue
			}
			got := fmt.Sprintf("%s %s", err.Code, err.Message)
			same(t, e.sql, got, fmt.Sprintf("%s %s", e.code, e.message))
			if e.where != "" && !strings.HasPrefix(err.Where, e.where) {
				t.Errorf("%s, %q: where %q, want %q", e.sql, e.data, err.Where, e.where)
			}
			same(t, "status", string(r.status), "I")
		}
		same(t, "nothing", c.do(`SELECT count(*) FROM item`).rows(), []string{"0"})
		c.send(wire.AppendQuery(nil, `COPY item (id) FROM STDIN`))
		c.send(copyData("1\n2\n"))
		c.send(wire.AppendCopyFail(nil, "enough"))
		e := c.receive(1).err()
		same(t, "fail", e.Message, "COPY from stdin failed: enough")
		same(t, "fail", e.Code, sqlstate.QueryCanceled)
	})
	t.Run("much", func(t *testing.T) {
		reset()
		var b strings.Builder
		for i := range 20000 {
			fmt.Fprintf(&b, "%d\tn%d\n", i, i%1000)
		}
		r := c.copied(`COPY item (id, name) FROM STDIN`, b.String(), 1000)
		same(t, "tag", r.tags(), []string{"COPY 20000"})
		got := c.do(`COPY item (id, name) TO STDOUT`).copy()
		if got != b.String() {
			t.Fatalf("%d bytes are %d", b.Len(), len(got))
		}
		bin := c.do(`COPY item (id, name) TO STDOUT BINARY`).copy()
		if int(binary.BigEndian.Uint16([]byte(bin[19:]))) != 2 {
			t.Fatal("the binary form has another width")
		}
	})
}
