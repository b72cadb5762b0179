package several

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// keyReader reads the shard key of records. Its methods use a scratch buffer
// that is good until the next record.
type keyReader struct {
	p *planner.CopyPlan
	// want is, for each value of a client's row up to the last that matters, the
	// column of the shard key that it is, -1 if none.
	want []int
	// forceNull and forceNotNull are those of the key's columns.
	forceNull, forceNotNull []bool
	scratch                 []byte
	key                     keyspace.Key
}

func newKeyReader(p *planner.CopyPlan) *keyReader {
	k := &keyReader{p: p, key: make(keyspace.Key, len(p.KeyAt)), forceNull: make([]bool, len(p.KeyAt)), forceNotNull: make([]bool, len(p.KeyAt))}
	for i, at := range p.KeyAt {
		for at >= len(k.want) {
			k.want = append(k.want, -1)
		}
		if at >= 0 {
			k.want[at] = i
		}
		k.forceNull[i] = planner.Forced(p.ForceNull, p.Table.ShardKey[i])
		k.forceNotNull[i] = planner.Forced(p.ForceNotNull, p.Table.ShardKey[i])
	}
	return k
}

// badKey is what an error of the key means for its row.
type badKey uint8

const (
	goodKey  badKey = iota
	noKey           // the shards refuse the row, whichever gets it
	askShard        // a shard has to read the value
)

// take reads one value of the key; value nil is NULL. For askShard the caller
// gets the column.
func (k *keyReader) take(i int, value []byte) (badKey, error) {
	if value != nil && !k.p.Binary && k.p.Plain(i) {
		if !utf8.Valid(value) || bytes.IndexByte(value, 0) >= 0 {
			return noKey, nil
		}
		k.key[i] = k.p.TextKey(i, value)
		return goodKey, nil
	}
	v, err := k.p.Key(i, value)
	if err != nil {
		switch {
		case value == nil:
			return goodKey, err
		case sqlstate.CodeOf(err) == sqlstate.FeatureNotSupported:
			return askShard, nil
		}
		return noKey, nil
	}
	k.key[i] = v
	return goodKey, nil
}

// errAsk says that a shard has to read a value of the key.
type errAsk struct {
	column int
	value  []byte
}

func (e *errAsk) Error() string { return "several: a shard has to read the value" }

// read reads the key of a record. known is false if the record is one that every
// shard refuses. The error may be an *errAsk; then the value is asked for, put
// into key, and read is called with from behind it.
func (k *keyReader) read(rec []byte, resolved map[int]keyspace.Value) (known bool, err error) {
	k.scratch = k.scratch[:0]
	if k.p.Binary {
		return k.binary(rec, resolved)
	}
	for at, field := 0, 0; field < len(k.want); field++ {
		if at < 0 {
			return false, nil // the row has too few values
		}
		var value []byte
		var ok bool
		from := at
		if k.p.CSV {
			value, at, ok = k.csvValue(rec, at, k.want[field])
		} else {
			value, at, ok = k.textValue(rec, at, k.want[field])
		}
		if !ok {
			return false, nil
		}
		i := k.want[field]
		if i < 0 {
			continue
		}
		if k.p.HasDefault {
			end := at - 1
			if at < 0 {
				end = len(rec)
			}
			if string(rec[from:end]) == k.p.Default {
				return false, sqlstate.Refusal("CLV-0406", "the mark of DEFAULT stands for a value of the shard key column %s", k.p.Table.ShardKey[i]).
					WithHint("give the value, or leave the column out if the router makes it")
			}
		}
		if done, known, err := k.value(i, value, resolved); done {
			return known, err
		}
	}
	return true, nil
}

func (k *keyReader) value(i int, value []byte, resolved map[int]keyspace.Value) (done, known bool, err error) {
	if v, ok := resolved[i]; ok {
		k.key[i] = v
		return false, false, nil
	}
	what, err := k.take(i, value)
	switch {
	case err != nil:
		return true, true, err
	case what == noKey:
		return true, false, nil
	case what == askShard:
		return true, true, &errAsk{i, value}
	}
	return false, false, nil
}

// textValue reads the value at at of a record in text; next is -1 after the last.
// The value is looked at only if it is one of the key (i >= 0).
func (k *keyReader) textValue(rec []byte, at, i int) (value []byte, next int, ok bool) {
	end, escapes := at, false
	for end < len(rec) && rec[end] != k.p.Delimiter {
		if rec[end] == '\\' {
			escapes = true
			end++
		}
		end++
	}
	end = min(end, len(rec))
	raw := rec[at:end]
	next = end + 1
	if end == len(rec) {
		next = -1
	}
	switch {
	case i < 0:
		return nil, next, true
	case string(raw) == k.p.Null:
		return nil, next, true
	case !escapes:
		if raw == nil {
			raw = []byte{}
		}
		return raw[:len(raw):len(raw)], next, true
	}
	from := len(k.scratch)
	for n := 0; n < len(raw); n++ {
		c := raw[n]
		if c != '\\' {
			k.scratch = append(k.scratch, c)
			continue
		}
		if n++; n == len(raw) {
			break // dropped, as PostgreSQL does
		}
		switch c = raw[n]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'v':
			c = '\v'
		case 'x':
			v, digits := 0, 0
			for digits < 2 && n+1 < len(raw) && unhex(raw[n+1]) >= 0 {
				n++
				v, digits = v<<4|unhex(raw[n]), digits+1
			}
			if digits > 0 {
				c = byte(v)
			}
		case '0', '1', '2', '3', '4', '5', '6', '7':
			v := int(c - '0')
			for digits := 1; digits < 3 && n+1 < len(raw) && raw[n+1] >= '0' && raw[n+1] <= '7'; digits++ {
				n++
				v = v<<3 | int(raw[n]-'0')
			}
			c = byte(v)
		}
		k.scratch = append(k.scratch, c)
	}
	return k.scratch[from:len(k.scratch):len(k.scratch)], next, true
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// csvValue is textValue of csv.
func (k *keyReader) csvValue(rec []byte, at, i int) (value []byte, next int, ok bool) {
	quote, escape := k.p.Quote, k.p.Escape
	from, start, saw, inside := len(k.scratch), at, false, false
	for ; at < len(rec); at++ {
		c := rec[at]
		switch {
		case inside && c == escape && at+1 < len(rec) && (rec[at+1] == escape || rec[at+1] == quote):
			at++
			c = rec[at]
		case inside && c == quote:
			inside = false
			continue
		case !inside && c == k.p.Delimiter:
			return k.csvDone(rec[start:at], from, i, saw), at + 1, true
		case !inside && c == quote:
			if i >= 0 && !saw {
				k.scratch = append(k.scratch, rec[start:at]...)
			}
			inside, saw = true, true
			continue
		}
		if saw && i >= 0 {
			k.scratch = append(k.scratch, c)
		}
	}
	if inside {
		return nil, -1, false // unterminated
	}
	return k.csvDone(rec[start:], from, i, saw), -1, true
}

func (k *keyReader) csvDone(raw []byte, from, i int, saw bool) []byte {
	if i < 0 {
		return nil
	}
	value := raw[:len(raw):len(raw)]
	if saw {
		value = k.scratch[from:len(k.scratch):len(k.scratch)]
	}
	if value == nil {
		value = []byte{}
	}
	isNull := string(value) == k.p.Null
	switch {
	case !saw && isNull && k.forceNotNull[i]:
		return value
	case !saw && isNull:
		return nil
	case isNull && k.forceNull[i]:
		return nil
	}
	return value
}

// binary reads the key of a tuple.
func (k *keyReader) binary(rec []byte, resolved map[int]keyspace.Value) (known bool, err error) {
	n := int(int16(binary.BigEndian.Uint16(rec)))
	if n < len(k.want) {
		return false, nil
	}
	at := 2
	for _, i := range k.want {
		size := int(int32(binary.BigEndian.Uint32(rec[at:])))
		at += 4
		var value []byte
		if size >= 0 {
			value = rec[at : at+size : at+size]
			at += size
		}
		if i < 0 {
			continue
		}
		if done, known, err := k.value(i, value, resolved); done {
			return known, err
		}
	}
	return true, nil
}

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
		if a.conn.Broken() || a.c.ctx.Err() != nil {
			return v, false, a.failed(err)
		}
		if _, err := a.conn.Exec("ROLLBACK TO cleave_ask"); err != nil {
			return v, false, a.failed(err)
		}
		return v, false, nil
	}
	if len(res.Rows) == 1 && len(res.Rows[0]) == 1 {
		b, err := hex.DecodeString(res.Rows[0][0].String)
		if err == nil {
			v, err = keyspace.ParseBinary(t, b)
		}
		if err != nil {
			return v, false, err
		}
		if len(a.known) >= askedMax || a.known == nil {
			a.known = map[string]keyspace.Value{}
		}
		a.known[string(value)] = v
		return v, true, nil
	}
	return v, false, sqlstate.New(sqlstate.InternalError, "a shard did not say what %s is", executor.QuoteLiteral(string(value)))
}

// begin takes a conversation, with the session's settings.
func (a *asker) begin() (err error) {
	if a.conn != nil {
		return nil
	}
	if a.conn, err = a.c.borrow(a.c.ctx, a.shard); err != nil {
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
	a.c.giveBack(a.conn)
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
	a.c.giveBack(a.conn)
	a.conn = nil
}
