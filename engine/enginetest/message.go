package enginetest

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/wire"
)

// message is a message with any bytes for its body.
func (s script) message(typ byte, body string) script {
	b, m := wire.Begin(s, typ)
	return wire.End(append(b, body...), m)
}

// said is the order of the answers, and the error.
func (r reply) said() string {
	if e := r.err(); e != nil {
		return r.order() + " " + string(e.Code) + " " + e.Message
	}
	return r.order()
}

// runMessages sends what is no message, and messages that name what there is not: PostgreSQL says the same.
func runMessages(t *testing.T, h Harness) {
	c := connect(t, h.Open(t))
	const short, end, text = "EZ 08P01 insufficient data left in message", "EZ 08P01 invalid message format", "EZ 08P01 invalid string in message"
	c.run(script(nil).parse("s", "SELECT 1, 2").parse("one", "SELECT $1::bigint").parse("set", "SET DateStyle = 'ISO'").sync(), 1)
	for _, m := range []struct {
		typ        byte
		body, want string
	}{
		{wire.Parse, "x", text},
		{wire.Parse, "x\x00SELECT 1", text},
		{wire.Parse, "x\x00SELECT 1\x00\x00", short},
		{wire.Parse, "x\x00SELECT 1\x00\x00\x01\x00\x00", short},
		{wire.Parse, "x\x00SELECT 1\x00\xff\xff\x00\x00", short},
		{wire.Parse, "x\x00SELECT 1\x00\x00\x00x", end},
		{wire.Describe, "", "EZ 08P01 no data left in message"},
		{wire.Describe, "Ss", text},
		{wire.Describe, "Ss\x00x", end},
		{wire.Describe, "X\x00", "EZ 08P01 invalid DESCRIBE message subtype 88"},
		{wire.Close, "", "EZ 08P01 no data left in message"},
		{wire.Close, "X\x00", "EZ 08P01 invalid CLOSE message subtype 88"},
		{wire.Execute, "", text},
		{wire.Execute, "\x00\x00\x00", short},
		{wire.Execute, "none\x00\x00\x00\x00\x00\x00", end},
		{wire.Bind, "", text},
		{wire.Bind, "p\x00s", text},
		{wire.Bind, "p\x00none\x00", `EZ 26000 prepared statement "none" does not exist`},
		{wire.Bind, "p\x00s\x00\x00", short},
		{wire.Bind, "p\x00s\x00\x00\x02\x00\x00", short},
		{wire.Bind, "p\x00s\x00\x00\x00\x00\x01", `EZ 08P01 bind message supplies 1 parameters, but prepared statement "s" requires 0`},
		{wire.Bind, "p\x00one\x00\x00\x02\x00\x00\x00\x00\x00\x01", "EZ 08P01 bind message has 2 parameter formats but 1 parameters"},
		{wire.Bind, "p\x00one\x00\x00\x00\x00\x01", short},
		{wire.Bind, "p\x00one\x00\x00\x00\x00\x01\xff\xff\xff\xfe", short},
		{wire.Bind, "p\x00one\x00\x00\x00\x00\x01\x7f\xff\xff\xff1", short},
		{wire.Bind, "p\x00one\x00\x00\x01\x00\x02\x00\x01\x00\x00\x00\x011\x00\x00", "EZ 22023 unsupported format code: 2"},
		{wire.Bind, "p\x00s\x00\x00\x00\x00\x00\xff\xff\x00\x00", short},
		{wire.Bind, "p\x00s\x00\x00\x00\x00\x00\x00\x00\x00", end},
		{wire.Bind, "p\x00s\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00", "EZ 08P01 bind message has 3 result formats but query has 2 columns"},
		{wire.Bind, "p\x00set\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00", "2Z"},
	} {
		if got := c.run(script(nil).message(m.typ, m.body).sync(), 1).said(); got != m.want {
			t.Errorf("%c %q: got %s, want %s", m.typ, m.body, got, m.want)
		}
	}
	same(t, "Query", c.run(script(nil).message(wire.Query, "SELECT 1"), 1).said(), text)
	same(t, "Query", c.run(script(nil).message(wire.Query, "SELECT 1\x00x"), 1).said(), end)

	t.Run("names", func(t *testing.T) {
		same(t, "unnamed", c.run(script(nil).bind("", "").sync(), 1).said(), "EZ 26000 unnamed prepared statement does not exist")
		same(t, "quoted", c.run(script(nil).describe('S', `a"b`).sync(), 1).said(), `EZ 26000 prepared statement "a"b" does not exist`)
		same(t, "portal", c.run(script(nil).describe('P', `a"b`).sync(), 1).said(), `EZ 34000 portal "a"b" does not exist`)
		same(t, "twice", c.run(script(nil).parse("s", "SELECT 1").sync(), 1).said(), `EZ 42P05 prepared statement "s" already exists`)
		same(t, "twice, and wrong", c.run(script(nil).parse("s", "SELEKT 1").sync(), 1).code(), "42601")
		same(t, "two portals", c.run(script(nil).bind("p", "s").bind("p", "s").sync(), 1).said(), `2EZ 42P03 cursor "p" already exists`)
		same(t, "a Parse that fails", c.run(script(nil).parse("", "SELECT 1").sync().parse("", "SELEKT").sync().bind("", "").sync(), 3).said(),
			`1ZEZEZ 42601 syntax error at or near "SELEKT"`)
		c.send(script(nil).parse("", "SELECT 1").sync())
		c.receive(1)
		same(t, "what is no Query", c.run(script(nil).message(wire.Query, "SELECT 1\x00x"), 1).said(), end)
		same(t, "keeps it", c.run(script(nil).bind("", "").sync(), 1).said(), "2Z")
		c.do("SELECT 2")
		same(t, "a Query ends it", c.run(script(nil).bind("", "").sync(), 1).said(), "EZ 26000 unnamed prepared statement does not exist")
	})
	t.Run("snapshot of Bind", func(t *testing.T) {
		s := h.Open(t)
		c, writer := connect(t, s), connect(t, s)
		writer.do("CREATE TABLE seen (n bigint PRIMARY KEY)")
		c.run(script(nil).parse("count", "SELECT count(*) FROM seen").sync(), 1)
		c.do("BEGIN")
		c.run(script(nil).bind("early", "count").sync(), 1)
		writer.do("INSERT INTO seen VALUES (1)")
		same(t, "bound before", strings.Join(c.run(script(nil).execute("early", 0).sync(), 1).rows(), ""), "0")
		same(t, "bound after", strings.Join(c.run(script(nil).bind("late", "count").execute("late", 0).sync(), 1).rows(), ""), "1")
		c.run(script(nil).bind("closed", "count").sync(), 1)
		writer.do("INSERT INTO seen VALUES (2)")
		c.run(script(nil).close('P', "closed").sync(), 1)
		same(t, "after Close", strings.Join(c.query("SELECT count(*) FROM seen").rows(), ""), "2")
		c.run(script(nil).bind("", "count").sync(), 1)
		writer.do("INSERT INTO seen VALUES (3)")
		same(t, "in the place of another", strings.Join(c.run(script(nil).bind("", "count").execute("", 0).sync(), 1).rows(), ""), "3")
		c.do("COMMIT")
	})
	t.Run("savepoints", func(t *testing.T) {
		c.do("BEGIN", "SAVEPOINT a")
		same(t, "bind", c.run(script(nil).bind("of a", "s").sync(), 1).said(), "2Z")
		c.do("SAVEPOINT b")
		same(t, "bind", c.run(script(nil).bind("of b", "s").bind("", "s").sync(), 1).said(), "22Z")
		c.do("RELEASE b", "SAVEPOINT b", "ROLLBACK TO b")
		same(t, "released", c.run(script(nil).describe('P', "of b").sync(), 1).said(), "TZ")
		c.do("ROLLBACK TO a")
		for _, name := range []string{"of a", "of b"} {
			same(t, name, c.run(script(nil).describe('P', name).sync(), 1).said(), `EZ 34000 portal "`+name+`" does not exist`)
			c.do("ROLLBACK TO a")
			same(t, name, c.run(script(nil).bind(name, "s").execute(name, 0).sync(), 1).said(), "2DCZ")
		}
		c.do("COMMIT")
		same(t, "ended", strings.Join(c.run(script(nil).bind("of a", "s").execute("of a", 0).sync(), 1).tags(), ""), "SELECT 1")
	})
}
