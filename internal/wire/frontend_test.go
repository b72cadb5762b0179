package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/sqlstate"
)

// readBind reads a whole Bind.
func readBind(body []byte) (m BindMessage, err error) {
	if err = m.Names(body); err == nil {
		if _, err = m.Counts(); err == nil {
			err = m.Args()
		}
	}
	return m, err
}

// TestMalformed has PostgreSQL's errors of messages that are none; engine/enginetest sends such to PostgreSQL itself.
func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		typ  byte
		body string
		want string
	}{
		{Query, "SELECT 1", "invalid string in message"},
		{Query, "SELECT 1\x00x", "invalid message format"},
		{Sync, "x", "invalid message format"},
		{Parse, "s", "invalid string in message"},
		{Parse, "s\x00SELECT 1", "invalid string in message"},
		{Parse, "s\x00SELECT 1\x00\x00", "insufficient data left in message"},
		{Parse, "s\x00SELECT 1\x00\x00\x01\x00\x00", "insufficient data left in message"},
		{Parse, "s\x00SELECT 1\x00\xff\xff\x00\x00\x00\x00", "insufficient data left in message"},
		{Parse, "s\x00SELECT 1\x00\x00\x00x", "invalid message format"},
		{Describe, "", "no data left in message"},
		{Describe, "S", "invalid string in message"},
		{Describe, "Ss", "invalid string in message"},
		{Describe, "X\x00", "invalid DESCRIBE message subtype 88"},
		{Describe, "X\x00x", "invalid message format"},
		{Close, "P", "invalid string in message"},
		{Close, "\xff\x00", "invalid CLOSE message subtype 255"},
		{Execute, "p\x00\x00\x00\x00", "insufficient data left in message"},
		{Execute, "p\x00\x00\x00\x00\x00\x00", "invalid message format"},
		{Bind, "p", "invalid string in message"},
		{Bind, "p\x00s", "invalid string in message"},
		{Bind, "p\x00s\x00", "insufficient data left in message"},
		{Bind, "p\x00s\x00\x00\x01\x00", "insufficient data left in message"},
		{Bind, "p\x00s\x00\x00\x00\x00\x01", "insufficient data left in message"},
		{Bind, "p\x00s\x00\x00\x00\x00\x01\xff\xff\xff\xfe", "insufficient data left in message"},
		{Bind, "p\x00s\x00\x00\x00\x00\x01\x7f\xff\xff\xff", "insufficient data left in message"},
		{Bind, "p\x00s\x00\x00\x02\x00\x00\x00\x01\x00\x01", "bind message has 2 parameter formats but 1 parameters"},
		{Bind, "p\x00s\x00\x00\x00\x00\x00\xff\xff\x00\x00", "insufficient data left in message"},
		{Bind, "p\x00s\x00\x00\x00\x00\x00\x00\x00\x00", "invalid message format"},
	} {
		_, err := read(c.typ, []byte(c.body))
		if e := sqlstate.As(err); err == nil || e.Code != sqlstate.ProtocolViolation || e.Message != c.want {
			t.Errorf("%c %q: %v, want %s", c.typ, c.body, err, c.want)
		}
	}
}

// read reads a message of the frontend as pgproto3 has it. A message without a reader gives nil.
func read(typ byte, body []byte) (pgproto3.FrontendMessage, error) {
	switch typ {
	case Query:
		sql, err := ReadQuery(body)
		return &pgproto3.Query{String: string(sql)}, err
	case Parse:
		m, err := ReadParse(body)
		return &pgproto3.Parse{Name: string(m.Name), Query: string(m.Text), ParameterOIDs: m.OIDs}, err
	case Describe:
		what, name, err := ReadDescribe(body)
		return &pgproto3.Describe{ObjectType: what, Name: string(name)}, err
	case Close:
		what, name, err := ReadClose(body)
		return &pgproto3.Close{ObjectType: what, Name: string(name)}, err
	case Execute:
		portal, rows, err := ReadExecute(body)
		return &pgproto3.Execute{Portal: string(portal), MaxRows: uint32(rows)}, err
	case Bind:
		m, err := readBind(body)
		return &pgproto3.Bind{DestinationPortal: string(m.Portal), PreparedStatement: string(m.Statement), ParameterFormatCodes: m.Formats, Parameters: m.Values, ResultFormatCodes: m.ResultFormats()}, err
	case Sync:
		return &pgproto3.Sync{}, ReadEmpty(body)
	case Flush:
		return &pgproto3.Flush{}, ReadEmpty(body)
	}
	return nil, nil
}

// FuzzFrontend reads messages beside pgproto3: what both take is the same message. PostgreSQL takes less than pgproto3: bytes behind the
// message's end, another number of formats than of parameters, and a Describe of neither a statement nor a portal are errors. A negative
// number of rows is all of them.
func FuzzFrontend(f *testing.F) {
	f.Add(Query, []byte("SELECT 1\x00"))
	f.Add(Parse, AppendParse(nil, "s", "SELECT $1", []uint32{20, 0})[Header:])
	f.Add(Parse, []byte("s\x00SELECT 1\x00\xff\xff\x00"))
	f.Add(Bind, AppendBind(nil, "p", "s", []int16{1, 0}, [][]byte{{1}, nil}, []int16{1})[Header:])
	f.Add(Bind, AppendBind(nil, "", "", []int16{1}, [][]byte{{}, {2, 3}}, nil)[Header:])
	f.Add(Bind, []byte("\x00\x00\x00\x00\xff\xff\x7f\xff\xff\xff"))
	f.Add(Describe, []byte("Ss\x00"))
	f.Add(Close, []byte("P\x00"))
	f.Add(Execute, []byte("p\x00\xff\xff\xff\xff"))
	f.Add(Sync, []byte{})
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		got, err := read(typ, body)
		if got == nil {
			return
		}
		other := map[byte]pgproto3.FrontendMessage{Query: &pgproto3.Query{}, Parse: &pgproto3.Parse{}, Describe: &pgproto3.Describe{}, Close: &pgproto3.Close{},
			Execute: &pgproto3.Execute{}, Bind: &pgproto3.Bind{}, Sync: &pgproto3.Sync{}, Flush: &pgproto3.Flush{}}[typ]
		theirs := other.Decode(body)
		if err != nil {
			var e *sqlstate.Error
			if !errors.As(err, &e) || e.Code != sqlstate.ProtocolViolation {
				t.Fatalf("%c %x: %v", typ, body, err)
			}
			if theirs == nil && !stricter(typ, body) {
				t.Fatalf("%c %x: %v, pgproto3 takes it", typ, body, err)
			}
			return
		}
		if theirs != nil {
			t.Fatalf("%c %x: pgproto3: %v", typ, body, theirs)
		}
		again, err := got.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if x, ok := other.(*pgproto3.Execute); ok && int32(x.MaxRows) < 0 {
			x.MaxRows = 0
		} else if !bytes.Equal(again[Header:], body) {
			t.Fatalf("%c %x was read as %x", typ, body, again[Header:])
		}
		if want, err := other.Encode(nil); err != nil || !bytes.Equal(again, want) {
			t.Fatalf("%c %x: %x, pgproto3 has %x, %v", typ, body, again, want, err)
		}
	})
}

// stricter reports whether PostgreSQL refuses a message that pgproto3 takes.
func stricter(typ byte, body []byte) bool {
	switch typ {
	case Sync, Flush:
		return len(body) > 0
	case Describe, Close:
		return body[0] != 'S' && body[0] != 'P'
	case Execute:
		return len(body) > bytes.IndexByte(body, 0)+5
	case Parse, Bind:
		// pgproto3 writes what it has read without what is behind it.
		var m pgproto3.FrontendMessage = &pgproto3.Parse{}
		if typ == Bind {
			m = &pgproto3.Bind{}
		}
		if m.Decode(body) != nil {
			return false
		}
		whole, err := m.Encode(nil)
		if b, ok := m.(*pgproto3.Bind); ok && len(b.ParameterFormatCodes) > 1 && len(b.ParameterFormatCodes) != len(b.Parameters) {
			return true
		}
		return err == nil && len(whole)-Header < len(body)
	}
	return false
}

// TestBindAgain reads two Binds with one BindMessage: the second has nothing of the first, and values share the message's bytes.
func TestBindAgain(t *testing.T) {
	var m BindMessage
	for _, values := range [][][]byte{{[]byte("one"), nil, {}}, {[]byte("two")}} {
		body := AppendBind(nil, "p", "s", nil, values, []int16{0, 1})[Header:]
		if err := m.Names(body); err != nil {
			t.Fatal(err)
		}
		if n, err := m.Counts(); err != nil || n != len(values) {
			t.Fatal(n, err)
		}
		if err := m.Args(); err != nil || len(m.Values) != len(values) || m.Values[0] == nil {
			t.Fatal(m.Values, err)
		}
		if len(values) == 3 && (m.Values[1] != nil || m.Values[2] == nil) {
			t.Fatal("NULL and an empty value are two things")
		}
		if binary.BigEndian.Uint16(m.Tail) != 2 || len(m.ResultFormats()) != 2 {
			t.Fatalf("%x", m.Tail)
		}
		m.Values[0][0] = 'x'
		if !bytes.Contains(body, []byte("x")) {
			t.Fatal("a value was copied")
		}
	}
	body := AppendBind(nil, "p", "s", []int16{1}, [][]byte{{1}, {2}}, nil)[Header:]
	if n := testing.AllocsPerRun(100, func() {
		_ = m.Names(body)
		_, _ = m.Counts()
		_ = m.Args()
	}); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}
