package several

import (
	"bytes"
	"encoding/hex"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// asker has a shard read values that mean what only PostgreSQL knows.
type asker struct {
	c     *runner
	shard string
	conn  *executor.Conn
	known map[string]keyspace.Value
}

// askedMax bounds the values that are remembered.
const askedMax = 1000

// sends are the functions that give a value of a type in its binary form.
var sends = map[keyspace.Type]string{
	keyspace.Int2: "int2send", keyspace.Int4: "int4send", keyspace.Int8: "int8send", keyspace.Date: "date_send",
	keyspace.Timestamp: "timestamp_send", keyspace.Timestamptz: "timestamptz_send", keyspace.UUID: "uuid_send", keyspace.Bool: "boolsend",
	keyspace.Bytea: "byteasend", keyspace.Text: "textsend", keyspace.Varchar: "varcharsend",
}

// ask returns a value as PostgreSQL reads it, with the session's settings. known
// is false if it refuses it.
func (a *asker) ask(t keyspace.Type, value []byte) (v keyspace.Value, known bool, err error) {
	if v, ok := a.known[string(value)]; ok && v.Type() == t {
		return v, true, nil
	}
	if !utf8.Valid(value) || bytes.IndexByte(value, 0) >= 0 {
		return v, false, nil
	}
	if err := a.begin(); err != nil {
		return v, false, err
	}
	res, err := a.conn.Exec("SAVEPOINT cleave_ask; SELECT pg_catalog.encode(pg_catalog." + sends[t] + "(" + executor.QuoteLiteral(string(value)) + "::pg_catalog." + catalogName(t) + "), 'hex')")
	if err != nil {
		if a.conn.Broken() || a.c.Ctx.Err() != nil {
			return v, false, a.failed(err)
		}
		if _, err := a.conn.Exec("ROLLBACK TO cleave_ask"); err != nil {
			return v, false, a.failed(err)
		}
		return v, false, nil
	}
	if len(res.Rows) != 1 || len(res.Rows[0]) != 1 {
		return v, false, sqlstate.New(sqlstate.InternalError, "a shard did not say what %s is", executor.QuoteLiteral(string(value)))
	}
	b, err := hex.DecodeString(res.Rows[0][0].String)
	if err == nil {
		v, err = keyspace.ParseBinary(t, b)
	}
	if err != nil {
		return v, false, err
	}
	a.remember(value, v)
	return v, true, nil
}

func (a *asker) remember(text []byte, v keyspace.Value) {
	if len(a.known) >= askedMax || a.known == nil {
		a.known = map[string]keyspace.Value{}
	}
	a.known[string(text)] = v
}

// begin takes a conversation, with the session's settings.
func (a *asker) begin() (err error) {
	if a.conn != nil {
		return nil
	}
	if a.conn, err = a.c.Borrow(a.c.Ctx, a.shard); err != nil {
		return err
	}
	begin := "BEGIN"
	for _, s := range a.conn.LocalChanges(a.c.host.Settings()) {
		begin += ";" + s
	}
	if _, err := a.conn.Exec(begin); err != nil {
		return a.failed(err)
	}
	return nil
}

// catalogName is the name of a type in pg_catalog.
func catalogName(t keyspace.Type) string {
	switch t {
	case keyspace.Int2:
		return "int2"
	case keyspace.Int4:
		return "int4"
	case keyspace.Int8:
		return "int8"
	case keyspace.Bool:
		return "bool"
	case keyspace.Timestamp:
		return "timestamp"
	case keyspace.Timestamptz:
		return "timestamptz"
	case keyspace.Varchar:
		return `"varchar"`
	}
	return t.String()
}

func (a *asker) failed(err error) error {
	a.conn.Break()
	a.c.GiveBack(a.conn)
	a.conn = nil
	return err
}

// end gives the conversation back.
func (a *asker) end() {
	if a.conn == nil {
		return
	}
	if _, err := a.conn.Exec("ROLLBACK"); err != nil {
		a.conn.Break()
	}
	a.c.GiveBack(a.conn)
	a.conn = nil
}
