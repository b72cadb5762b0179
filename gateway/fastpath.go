package gateway

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// fastFunction is a function that a FunctionCall message may name. All of them are STRICT.
type fastFunction struct {
	name      string
	arguments []string
	result    string
}

// fastFunctions are PostgreSQL's functions of large objects by their OIDs, which are the same on every server. Drivers call no others so.
var fastFunctions = map[uint32]fastFunction{
	715: {"lo_create", []string{"oid"}, "oid"}, 952: {"lo_open", []string{"oid", "int4"}, "int4"}, 953: {"lo_close", []string{"int4"}, "int4"},
	954: {"loread", []string{"int4", "int4"}, "bytea"}, 955: {"lowrite", []string{"int4", "bytea"}, "int4"}, 956: {"lo_lseek", []string{"int4", "int4", "int4"}, "int4"},
	957: {"lo_creat", []string{"int4"}, "oid"}, 958: {"lo_tell", []string{"int4"}, "int4"}, 964: {"lo_unlink", []string{"oid"}, "int4"},
	1004: {"lo_truncate", []string{"int4", "int4"}, "int4"}, 3170: {"lo_lseek64", []string{"int4", "int8", "int4"}, "int8"},
	3171: {"lo_tell64", []string{"int4"}, "int8"}, 3172: {"lo_truncate64", []string{"int4", "int8"}, "int4"},
}

// answerOfCall bounds the answer to a FunctionCall, of which the router has two digits for each byte.
const answerOfCall = 64 << 20

// functionCall answers a FunctionCall message: as a SELECT of the function, whose value it turns into the answer. So it goes where
// that goes, in every kind of transaction.
func (x *session) functionCall(f wire.Frame) error {
	err := x.drain()
	if err == nil && x.pipe.outside() {
		err = x.leave()
	}
	if err == nil {
		err = x.fastpath(f.Body())
	}
	return x.queried(err)
}

func (x *session) fastpath(body []byte) error {
	call, err := readCall(body)
	if err != nil {
		return err
	}
	st, err := x.plan([]byte(call.text))
	if err != nil {
		return err
	}
	if err := x.allowed(st); err != nil {
		return err
	}
	x.stats.Runs(st)
	if x.tx.state == txNone {
		x.tx.begins(txImplicit, "BEGIN")
	}
	text, err := x.reachWithin(st)
	if err != nil {
		return err
	}
	out, lost, err := x.answerTo(text, answerOfCall)
	switch {
	case err != nil:
		return err
	case lost:
		return sqlstate.New(sqlstate.ConfigurationLimit, "a function call gives more than %d MB", answerOfCall>>21).WithHint("read the object in parts")
	}
	value, err := call.value(out)
	if err != nil {
		return err
	}
	return x.w.put(wire.AppendFunctionResult(nil, value))
}

// fastCall is a FunctionCall message that was read.
type fastCall struct {
	text   string // the SELECT
	result string // the type of the function's value
	binary bool   // in which the client wants it
}

// readCall reads the body of a FunctionCall message.
func readCall(b []byte) (*fastCall, error) {
	malformed := sqlstate.New(sqlstate.ProtocolViolation, "invalid function call message")
	bad := false
	number := func(size int) int {
		if bad = bad || len(b) < size; bad {
			return 0
		}
		n := int(int16(binary.BigEndian.Uint16(b)))
		if size == 4 {
			n = int(int32(binary.BigEndian.Uint32(b)))
		}
		b = b[size:]
		return n
	}
	oid := uint32(number(4)) //nolint:gosec // the same bits
	f, known := fastFunctions[oid]
	if !bad && !known {
		return nil, sqlstate.Refusal("CLV-1208", "the function call message is taken for functions of large objects only").
			WithHint("Call the function with SELECT.")
	}
	formats := make([]int, max(0, number(2)))
	for i := range formats {
		formats[i] = number(2)
	}
	count := number(2)
	switch {
	case bad || count < 0:
		return nil, malformed
	case count != len(f.arguments):
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "function call message contains %d arguments but function requires %d", count, len(f.arguments))
	case len(formats) > 1 && len(formats) != count:
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "function call message contains %d argument formats but %d arguments", len(formats), count)
	}
	values := make([]string, count)
	for i, typ := range f.arguments {
		format := 0
		if len(formats) > 0 {
			format = formats[min(i, len(formats)-1)]
		}
		var raw []byte
		if n := number(4); n >= 0 {
			if bad || n > len(b) {
				return nil, malformed
			}
			raw, b = b[:n:n], b[n:]
			if raw == nil {
				raw = []byte{}
			}
		}
		var err error
		if values[i], err = fastArgument(raw, typ, format, i+1); err != nil {
			return nil, err
		}
	}
	format := number(2)
	if bad || len(b) > 0 || format < 0 || format > 1 {
		return nil, malformed
	}
	c := &fastCall{text: "pg_catalog." + f.name + "(" + strings.Join(values, ", ") + ")", result: f.result, binary: format == 1}
	if c.binary && c.result == "bytea" {
		c.text = "pg_catalog.encode(" + c.text + ", 'hex')" // whatever bytea_output says
	}
	c.text = "SELECT " + c.text
	return c, nil
}

// fastArgument writes an argument as SQL.
func fastArgument(raw []byte, typ string, format, at int) (string, error) {
	text := ""
	size := map[string]int{"oid": 4, "int4": 4, "int8": 8}[typ]
	switch {
	case raw == nil:
		return "NULL::pg_catalog." + typ, nil
	case format == 0 && (!utf8.Valid(raw) || strings.IndexByte(string(raw), 0) >= 0):
		return "", sqlstate.New(sqlstate.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\"")
	case format == 0:
		text = string(raw)
	case format != 1:
		return "", sqlstate.New(sqlstate.InvalidParameterValue, "unsupported format code: %d", format)
	case size == 0:
		text = `\x` + hex.EncodeToString(raw)
	case len(raw) < size:
		return "", sqlstate.New(sqlstate.ProtocolViolation, "insufficient data left in message")
	case len(raw) > size:
		return "", sqlstate.New(sqlstate.InvalidBinary, "incorrect binary data format in function argument %d", at)
	case typ == "oid":
		text = strconv.FormatUint(uint64(binary.BigEndian.Uint32(raw)), 10)
	case size == 4:
		text = strconv.Itoa(int(int32(binary.BigEndian.Uint32(raw)))) //nolint:gosec // the same bits
	default:
		text = strconv.FormatInt(int64(binary.BigEndian.Uint64(raw)), 10) //nolint:gosec // the same bits
	}
	return executor.QuoteLiteral(text) + "::pg_catalog." + typ, nil
}

// value returns the function's value, in the format that the client wants, from the answer to the SELECT; nil is NULL.
func (c *fastCall) value(answer []byte) (value []byte, err error) {
	frames(answer, func(typ byte, body []byte) {
		if typ == wire.DataRow {
			if row, e := wire.SplitRow(body, nil); e == nil && len(row) == 1 && row[0] != nil {
				value = append([]byte{}, row[0]...)
			}
		}
	})
	if !c.binary || value == nil {
		return value, nil
	}
	if c.result == "bytea" {
		out := make([]byte, len(value)/2)
		_, err := hex.Decode(out, value)
		return out, err
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if c.result == "int8" {
		return binary.BigEndian.AppendUint64(nil, uint64(n)), err //nolint:gosec // the same bits
	}
	return binary.BigEndian.AppendUint32(nil, uint32(n)), err //nolint:gosec // the same bits
}
