package enginetest

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// talk is a conversation with the means to write tests about it.
type talk struct {
	engine.Conn
	t testing.TB
}

// msg is a backend message that outlives the read buffer.
type msg struct {
	typ  byte
	body []byte
}

// reply is what came up to ReadyForQuery.
type reply struct {
	msgs   []msg
	status byte
}

// order returns the message types, rows as one D each, without asynchronous ones.
func (r reply) order() string {
	var b strings.Builder
	for _, m := range r.msgs {
		if m.typ != wire.ParameterStatus && m.typ != wire.NoticeResponse && m.typ != wire.NotificationResponse {
			b.WriteByte(m.typ)
		}
	}
	return b.String()
}

func (r reply) all(typ byte) [][]byte {
	var out [][]byte
	for _, m := range r.msgs {
		if m.typ == typ {
			out = append(out, m.body)
		}
	}
	return out
}

func (r reply) err() *sqlstate.Error {
	for _, b := range r.all(wire.ErrorResponse) {
		return wire.ParseReport(b)
	}
	return nil
}

func (r reply) code() sqlstate.Code {
	if e := r.err(); e != nil {
		return e.Code
	}
	return ""
}

func (r reply) tags() []string {
	var out []string
	for _, b := range r.all(wire.CommandComplete) {
		s, _, _ := wire.CutString(b)
		out = append(out, s)
	}
	return out
}

// rows returns all rows, values separated by |, NULL as ~.
func (r reply) rows() []string {
	var out []string
	for _, b := range r.all(wire.DataRow) {
		values, err := wire.SplitRow(b, nil)
		if err != nil {
			return []string{err.Error()}
		}
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = string(v)
			if v == nil {
				texts[i] = "~"
			}
		}
		out = append(out, strings.Join(texts, "|"))
	}
	return out
}

func (c *talk) send(frames []byte) {
	c.t.Helper()
	if err := c.Send(frames); err != nil {
		c.t.Fatalf("send: %v", err)
	}
	// The contract lets the buffer be used again: an engine that kept it fails now.
	for i := range frames {
		frames[i] = 0xaa
	}
}

// receive reads up to and including n ReadyForQuery messages.
func (c *talk) receive(n int) reply {
	c.t.Helper()
	var r reply
	for {
		b, err := c.Receive()
		if err != nil {
			c.t.Fatalf("receive after %q: %v", r.order(), err)
		}
		if len(b) == 0 {
			c.t.Fatal("receive returned no frame")
		}
		for len(b) > 0 {
			f, rest, ok, err := wire.Cut(b)
			if err != nil || !ok {
				c.t.Fatalf("receive returned a part of a frame: %x (%v)", b, err)
			}
			b = rest
			r.msgs = append(r.msgs, msg{f.Type(), append([]byte(nil), f.Body()...)})
			if f.Type() == wire.ReadyForQuery {
				r.status = f.Body()[0]
				if n--; n == 0 {
					if len(b) > 0 {
						c.t.Fatalf("frames after ReadyForQuery: %x", b)
					}
					return r
				}
			}
		}
	}
}

// query runs a simple query.
func (c *talk) query(sql string) reply {
	c.t.Helper()
	c.send(wire.AppendQuery(nil, sql))
	return c.receive(1)
}

// do runs simple queries that must succeed.
func (c *talk) do(sqls ...string) reply {
	c.t.Helper()
	var r reply
	for _, sql := range sqls {
		r = c.query(sql)
		if e := r.err(); e != nil {
			c.t.Fatalf("%s: %v", sql, e)
		}
	}
	return r
}

// refused runs a simple query that must fail with one of the codes.
func (c *talk) refused(sql string, codes ...sqlstate.Code) *sqlstate.Error {
	c.t.Helper()
	e := c.query(sql).err()
	for _, code := range codes {
		if e != nil && e.Code == code {
			return e
		}
	}
	c.t.Fatalf("%s: got %v, want %v", sql, e, codes)
	return nil
}

// same fails unless got and want print alike.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Fatalf("%s: got %.500s, want %.500s", what, g, w)
	}
}

// script is a run of extended-protocol messages.
type script []byte

func (s script) parse(name, sql string, oids ...uint32) script {
	return wire.AppendParse(s, name, sql, oids)
}

func (s script) bind(portal, statement string, values ...string) script {
	b := make([][]byte, len(values))
	for i, v := range values {
		b[i] = []byte(v)
	}
	return wire.AppendBind(s, portal, statement, nil, b, nil)
}

func (s script) bindRaw(portal, statement string, formats []int16, values [][]byte, results []int16) script {
	return wire.AppendBind(s, portal, statement, formats, values, results)
}

func (s script) describe(what byte, name string) script { return wire.AppendDescribe(s, what, name) }

func (s script) execute(portal string, rows int32) script { return wire.AppendExecute(s, portal, rows) }

func (s script) close(what byte, name string) script { return wire.AppendClose(s, what, name) }

func (s script) flush() script { return wire.AppendEmpty(s, wire.Flush) }

func (s script) sync() script { return wire.AppendEmpty(s, wire.Sync) }

// run sends a script that ends with n Syncs and reads the answers.
func (c *talk) run(s script, n int) reply {
	c.t.Helper()
	c.send(s)
	return c.receive(n)
}

// prepared runs one statement with text parameters of the types.
func (c *talk) prepared(sql string, oids []uint32, values ...string) reply {
	c.t.Helper()
	return c.run(script(nil).parse("", sql, oids...).bind("", "", values...).execute("", 0).sync(), 1)
}

// columnOIDs returns the type OIDs of a RowDescription.
func columnOIDs(body []byte) []uint32 {
	n := int(binary.BigEndian.Uint16(body))
	body = body[2:]
	out := make([]uint32, 0, n)
	for range n {
		_, rest, ok := wire.CutString(body)
		if !ok || len(rest) < 18 {
			return out
		}
		out = append(out, binary.BigEndian.Uint32(rest[6:]))
		body = rest[18:]
	}
	return out
}

// parameterOIDs returns the OIDs of a ParameterDescription.
func parameterOIDs(body []byte) []uint32 {
	out := make([]uint32, binary.BigEndian.Uint16(body))
	for i := range out {
		out[i] = binary.BigEndian.Uint32(body[2+4*i:])
	}
	return out
}
