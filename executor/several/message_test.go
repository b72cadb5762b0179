package several

import (
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wire"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// answers are the types of the messages that frames are answered with; an error is its code and its message.
func answers(t *testing.T, c *Conn, frames []byte) string {
	t.Helper()
	if err := c.Send(frames); err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var all []string
	for {
		out, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for len(out) > 0 {
			f, rest, _, _ := wire.Cut(out)
			switch out = rest; f.Type() {
			case wire.ErrorResponse:
				e := wire.ParseReport(f.Body())
				all = append(all, string(e.Code)+" "+e.Message)
			case wire.ReadyForQuery:
				return strings.Join(all, "; ")
			default:
				all = append(all, string(f.Type()))
			}
		}
	}
}

// TestMessages has answers that PostgreSQL gives to messages that name statements and portals. The empty statement needs no shard.
func TestMessages(t *testing.T) {
	shared, host := shardless(t)
	c := New(shared, host, Options{Block: true, Begin: "BEGIN"})
	defer c.Close()
	save := func(sql string) {
		t.Helper()
		if got := answers(t, c, wire.AppendQuery(nil, sql)); got != "C" {
			t.Fatalf("%s: %s", sql, got)
		}
	}
	again := func() {
		t.Helper()
		save("ROLLBACK TO a")
	}
	message := func(typ byte, body string) []byte {
		b, m := wire.Begin(nil, typ)
		return wire.End(append(b, body...), m)
	}
	save("SAVEPOINT a")
	for _, s := range []struct {
		frames []byte
		want   string
	}{
		{wire.AppendParse(nil, `odd"name`, "", nil), "1"},
		{wire.AppendParse(nil, `odd"name`, "", nil), `42P05 prepared statement "odd"name" already exists`},
		{wire.AppendBind(nil, "p", "none", nil, nil, nil), `26000 prepared statement "none" does not exist`},
		{wire.AppendBind(nil, "p", "", nil, nil, nil), "26000 unnamed prepared statement does not exist"},
		{wire.AppendBind(nil, "p", `odd"name`, nil, [][]byte{nil}, nil), `08P01 bind message supplies 1 parameters, but prepared statement "odd"name" requires 0`},
		{message(wire.Bind, "p\x00none\x00"), `26000 prepared statement "none" does not exist`},
		{message(wire.Bind, "p\x00odd\"name\x00"), "08P01 insufficient data left in message"},
		{message(wire.Bind, "p"), "08P01 invalid string in message"},
		{message(wire.Parse, "s\x00\x00\x00\x00x"), "08P01 invalid message format"},
		{message(wire.Describe, "X\x00"), "08P01 invalid DESCRIBE message subtype 88"},
		{message(wire.Close, "X\x00"), "08P01 invalid CLOSE message subtype 88"},
		// A statement without columns takes any formats.
		{wire.AppendExecute(wire.AppendBind(nil, "p", `odd"name`, nil, nil, []int16{0, 1}), "p", -1), "2; I"},
		// ROLLBACK TO has closed it.
		{wire.AppendBind(nil, "p", `odd"name`, nil, nil, nil), "2"},
		{wire.AppendClose(wire.AppendDescribe(wire.AppendParse(nil, "", "", nil), 'S', ""), 'S', ""), "1; t; n; 3"},
		{wire.AppendBind(wire.AppendClose(nil, 'S', ""), "", "", nil, nil, nil), "3; 26000 unnamed prepared statement does not exist"},
	} {
		if got := answers(t, c, wire.AppendEmpty(s.frames, wire.Sync)); got != s.want {
			t.Errorf("%q: %s, want %s", s.frames, got, s.want)
		}
		again()
	}
	if got := answers(t, c, wire.AppendEmpty(wire.AppendBind(wire.AppendBind(nil, "p", `odd"name`, nil, nil, nil), "p", `odd"name`, nil, nil, nil), wire.Sync)); got != `2; 42P03 cursor "p" already exists` {
		t.Error(got)
	}
	again()
	// RELEASE gives the portal to the outer savepoint, and a Query ends the statement without a name.
	save("SAVEPOINT b")
	if got := answers(t, c, wire.AppendEmpty(wire.AppendBind(wire.AppendParse(nil, "", "", nil), "q", "", nil, nil, nil), wire.Sync)); got != "1; 2" {
		t.Error(got)
	}
	save("RELEASE b")
	if got := answers(t, c, wire.AppendEmpty(wire.AppendDescribe(nil, 'P', "q"), wire.Sync)); got != "n" {
		t.Error(got)
	}
	if got := answers(t, c, wire.AppendEmpty(wire.AppendDescribe(nil, 'S', ""), wire.Sync)); got != "26000 unnamed prepared statement does not exist" {
		t.Error(got)
	}
	again()
	if got := answers(t, c, wire.AppendEmpty(wire.AppendDescribe(nil, 'P', "q"), wire.Sync)); got != `34000 portal "q" does not exist` {
		t.Error(got)
	}
}
