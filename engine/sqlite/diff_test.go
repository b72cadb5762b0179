package sqlite_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// peer is one side of the comparison.
type peer interface {
	Send([]byte) error
	Receive() ([]byte, error)
}

// server is a PostgreSQL server as a peer.
type server struct {
	nc net.Conn
	rd *wire.Reader
}

func (s *server) Send(b []byte) error {
	_, err := s.nc.Write(b)
	return err
}

func (s *server) Receive() ([]byte, error) { return s.rd.Batch() }

func connectServer(t *testing.T) peer {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Hijack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Conn.Close() })
	return &server{nc: h.Conn, rd: wire.NewReader(h.Conn, 1<<16, 1<<28)}
}

// outcome is what a conversation gave, in a form that can be compared.
type outcome struct {
	columns string
	params  string
	rows    []string
	tags    []string
	err     *sqlstate.Error
	notices []string
	status  byte
}

func converse(t *testing.T, p peer, frames []byte) outcome {
	t.Helper()
	if err := p.Send(frames); err != nil {
		t.Fatal(err)
	}
	var o outcome
	for {
		b, err := p.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 {
			f, rest, ok, err := wire.Cut(b)
			if err != nil || !ok {
				t.Fatalf("frames: %v", err)
			}
			b = rest
			switch f.Type() {
			case wire.RowDescription:
				o.columns += describeColumns(f.Body())
			case wire.ParameterDescription:
				o.params = hex.EncodeToString(f.Body())
			case wire.DataRow:
				vals, err := wire.SplitRow(f.Body(), nil)
				if err != nil {
					t.Fatal(err)
				}
				var parts []string
				for _, v := range vals {
					if v == nil {
						parts = append(parts, "~")
					} else if bytes.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0xfffd }) {
						parts = append(parts, `\x`+hex.EncodeToString(v))
					} else {
						parts = append(parts, string(v))
					}
				}
				o.rows = append(o.rows, strings.Join(parts, "|"))
			case wire.CommandComplete:
				s, _, _ := wire.CutString(f.Body())
				o.tags = append(o.tags, s)
			case wire.ErrorResponse:
				if o.err == nil {
					o.err = wire.ParseReport(f.Body())
				}
			case wire.NoticeResponse:
				n := wire.ParseReport(f.Body())
				o.notices = append(o.notices, string(n.Code)+" "+n.Message)
			case wire.ReadyForQuery:
				o.status = f.Body()[0]
				return o
			}
		}
	}
}

// describeColumns prints name, type, length and modifier: table and attribute
// numbers differ between two databases.
func describeColumns(b []byte) string {
	n := int(binary.BigEndian.Uint16(b))
	b = b[2:]
	var out strings.Builder
	for range n {
		name, rest, _ := wire.CutString(b)
		table := binary.BigEndian.Uint32(rest)
		attr := binary.BigEndian.Uint16(rest[4:])
		fmt.Fprintf(&out, "%s:%d:%d:%d", name, binary.BigEndian.Uint32(rest[6:]), int16(binary.BigEndian.Uint16(rest[10:])), int32(binary.BigEndian.Uint32(rest[12:])))
		if table != 0 {
			fmt.Fprintf(&out, ":column %d", attr)
		}
		out.WriteByte(' ')
		b = rest[18:]
	}
	return out.String()
}

// statements splits a corpus file: one statement ends with ; at a line's end.
func statements(text string) []string {
	var out []string
	var b strings.Builder
	for _, line := range strings.Split(text, "\n") {
		trim := strings.TrimSpace(line)
		if b.Len() == 0 && (trim == "" || strings.HasPrefix(trim, "--")) {
			continue
		}
		b.WriteString(line + "\n")
		if strings.HasSuffix(trim, ";") {
			out = append(out, strings.TrimSuffix(strings.TrimSpace(b.String()), ";"))
			b.Reset()
		}
	}
	return out
}

func extended(sql string, binaryFormat int16) []byte {
	b := wire.AppendParse(nil, "", sql, nil)
	b = wire.AppendDescribe(b, 'S', "")
	b = wire.AppendBind(b, "", "", nil, nil, []int16{binaryFormat})
	b = wire.AppendExecute(b, "", 0)
	return wire.AppendEmpty(b, wire.Sync)
}

// TestDifferential runs the corpus on a SQLite file and on PostgreSQL 15, in the
// same conversation, and wants the same columns, types, values (text and binary),
// tags and SQLSTATEs, or a refusal.
func TestDifferential(t *testing.T) {
	files, err := filepath.Glob("testdata/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := harness().Open(t).Connect(t.Context(), map[string]string{"TimeZone": "UTC"})
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			theirs := connectServer(t)
			converse(t, theirs, wire.AppendQuery(nil, "SET TimeZone TO 'UTC'"))
			total, refused := 0, 0
			var why []string
			for _, sql := range statements(string(text)) {
				modes := map[string][]byte{"simple": wire.AppendQuery(nil, sql)}
				first := strings.ToLower(strings.Fields(sql)[0])
				if first == "select" || first == "values" || first == "with" {
					modes["text"], modes["binary"] = extended(sql, 0), extended(sql, 1)
				}
				for mode, frames := range modes {
					total++
					a, b := converse(t, ours, frames), converse(t, theirs, frames)
					if a.err != nil && a.err.Code == sqlstate.FeatureNotSupported && (b.err == nil || b.err.Code != a.err.Code) {
						refused++
						why = append(why, mode+": "+strings.Join(strings.Fields(sql), " ")+" -- "+a.err.Message)
						continue
					}
					compare(t, mode, sql, a, b)
				}
			}
			t.Logf("%s: %d runs, %d refused", name, total, refused)
			for _, w := range why {
				t.Logf("refused %s", w)
			}
		})
	}
}

func compare(t *testing.T, mode, sql string, a, b outcome) {
	t.Helper()
	bad := func(what string, x, y any) {
		t.Helper()
		t.Errorf("%s %s\n\t%s\n\tSQLite:     %v\n\tPostgreSQL: %v", mode, what, sql, x, y)
	}
	ca, cb := sqlstate.Code(""), sqlstate.Code("")
	if a.err != nil {
		ca = a.err.Code
	}
	if b.err != nil {
		cb = b.err.Code
	}
	if ca != cb {
		bad("error", a.err, b.err)
		return
	}
	if a.err != nil && b.err != nil {
		if a.err.Message != b.err.Message {
			bad("message", a.err.Message, b.err.Message)
		}
		if a.err.Detail != b.err.Detail && strings.HasPrefix(string(ca), "23") {
			bad("detail", a.err.Detail, b.err.Detail)
		}
		if a.err.Constraint != b.err.Constraint || a.err.Table != b.err.Table || a.err.Column != b.err.Column {
			bad("fields", a.err.Table+" "+a.err.Column+" "+a.err.Constraint, b.err.Table+" "+b.err.Column+" "+b.err.Constraint)
		}
	}
	// PostgreSQL meets some errors of constants before it describes the result.
	if a.columns != b.columns && a.err == nil {
		bad("columns", a.columns, b.columns)
	}
	if a.params != b.params {
		bad("parameters", a.params, b.params)
	}
	if !strings.Contains(strings.ToLower(sql), "order by") {
		sort.Strings(a.rows)
		sort.Strings(b.rows)
	}
	if x, y := strings.Join(a.rows, "\n"), strings.Join(b.rows, "\n"); x != y {
		bad("rows", x, y)
	}
	if x, y := strings.Join(a.tags, ","), strings.Join(b.tags, ","); x != y {
		bad("tags", x, y)
	}
	if x, y := strings.Join(a.notices, ","), strings.Join(b.notices, ","); x != y {
		bad("notices", x, y)
	}
	if a.status != b.status {
		bad("status", string(a.status), string(b.status))
	}
}

// parameter cases: a statement, its parameters in text form, and the types that
// the client declares (0 is open).
var parameterCases = []struct {
	sql  string
	args []string
	oids []uint32
}{
	{sql: "SELECT $1", args: []string{"x"}},
	{sql: "SELECT $1 + 1", args: []string{"5"}},
	{sql: "SELECT $1::int8, $2::text, $3::numeric, $4::timestamptz", args: []string{"5", "t", "1.50", "2020-01-01 00:00+00"}},
	{sql: "SELECT $1 || 'x'", args: []string{"a"}},
	{sql: "SELECT $1 = $2", args: []string{"a", "b"}},
	{sql: "SELECT $1 + $2", args: []string{"1", "2"}},
	{sql: "SELECT $1 + $2", args: []string{"1", "2"}, oids: []uint32{23, 20}},
	{sql: "SELECT * FROM p WHERE id = $1", args: []string{"1"}},
	{sql: "SELECT * FROM p WHERE id = $1", args: []string{"1"}, oids: []uint32{23}},
	{sql: "SELECT * FROM p WHERE id = $1", args: []string{"1"}, oids: []uint32{25}},
	{sql: "SELECT * FROM p WHERE name = $1 AND price > $2 ORDER BY id", args: []string{"b", "1"}},
	{sql: "SELECT id FROM p WHERE id IN ($1, $2) ORDER BY id", args: []string{"1", "2"}},
	{sql: "SELECT id FROM p WHERE id = ANY ($1) ORDER BY id", args: []string{"{1,3}"}},
	{sql: "SELECT id FROM p WHERE name = ANY ($1) ORDER BY id", args: []string{"{a,\"b\",NULL}"}},
	{sql: "SELECT id FROM p WHERE id <> ALL ($1) ORDER BY id", args: []string{"{1}"}},
	{sql: "SELECT id FROM p ORDER BY id LIMIT $1 OFFSET $2", args: []string{"1", "1"}},
	{sql: "SELECT CASE WHEN $1 THEN 'a' ELSE $2 END", args: []string{"t", "z"}},
	{sql: "SELECT coalesce($1, 5)", args: []string{"7"}},
	{sql: "SELECT id FROM p WHERE made >= $1", args: []string{"2020-01-01"}},
	{sql: "SELECT id FROM p WHERE u = $1", args: []string{"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}},
	{sql: "SELECT id FROM p WHERE name LIKE $1", args: []string{"%a%"}},
	{sql: "SELECT sum(price) FROM p WHERE price BETWEEN $1 AND $2", args: []string{"0", "100"}},
	{sql: "INSERT INTO p (id, name, price, made, u, raw) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id, price", args: []string{"7", "g", "1.005", "2020-01-01 10:00", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "\\x01"}},
	{sql: "UPDATE p SET price = price + $1, name = $2 WHERE id = $3 RETURNING *", args: []string{"2", "h", "7"}},
	{sql: "INSERT INTO p (id, name) SELECT $1, $2", args: []string{"8", "i"}},
	{sql: "SELECT $1 UNION SELECT 2", args: []string{"1"}},
	{sql: "SELECT $2::int", args: []string{"1", "2"}},
	{sql: "SELECT $1::int, $1::text", args: []string{"1"}},
	{sql: "SELECT $1 IS NULL", args: []string{"1"}},
	{sql: "SELECT abs($1)", args: []string{"-2"}},
	{sql: "SELECT lower($1), length($2)", args: []string{"A", "abc"}},
	{sql: "SELECT $1::int", args: []string{"abc"}},
	{sql: "SELECT $1::date + 1", args: []string{"2020-01-01"}},
	{sql: "SELECT now() - $1 < now()", args: []string{"1 day"}},
	{sql: "SELECT x FROM generate_series(1, $1) x ORDER BY x", args: []string{"3"}},
	{sql: "SELECT greatest($1, 2), nullif($2, 3)", args: []string{"1", "3"}},
	{sql: "SELECT ($1, $2) = (1, 'a')", args: []string{"1", "a"}},
	{sql: "DELETE FROM p WHERE id = $1", args: []string{"8"}},
	{sql: "VALUES ($1, 1), (2, $2)", args: []string{"5", "6"}},
}

// TestParameters compares the inferred parameter types and the results of
// statements with parameters.
func TestParameters(t *testing.T) {
	ours, err := harness().Open(t).Connect(t.Context(), map[string]string{"TimeZone": "UTC"})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs := connectServer(t)
	both := func(mode, label string, frames []byte) {
		t.Helper()
		a, b := converse(t, ours, frames), converse(t, theirs, frames)
		if a.err != nil && a.err.Code == sqlstate.FeatureNotSupported && (b.err == nil || b.err.Code != a.err.Code) {
			t.Errorf("refused %s: %v", label, a.err)
			return
		}
		compare(t, mode, label, a, b)
	}
	both("simple", "set up", wire.AppendQuery(nil, `SET TimeZone TO 'UTC'; CREATE TABLE p (id bigint PRIMARY KEY, name varchar(10), price numeric(8,2), made timestamp, u uuid, raw bytea);
		INSERT INTO p VALUES (1, 'a', 1.5, '2020-02-02', NULL, NULL), (2, 'b', 2.5, NULL, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\\x00'), (3, NULL, NULL, NULL, NULL, NULL)`))
	for _, k := range parameterCases {
		for format := int16(0); format < 2; format++ {
			args := make([][]byte, len(k.args))
			for i, a := range k.args {
				args[i] = []byte(a)
			}
			b := wire.AppendQuery(nil, "BEGIN")
			both("begin", k.sql, b)
			b = wire.AppendParse(nil, "", k.sql, k.oids)
			b = wire.AppendDescribe(b, 'S', "")
			b = wire.AppendBind(b, "", "", nil, args, []int16{format})
			b = wire.AppendDescribe(b, 'P', "")
			b = wire.AppendExecute(b, "", 0)
			both(fmt.Sprintf("format %d", format), fmt.Sprintf("%s %v", k.sql, k.oids), wire.AppendEmpty(b, wire.Sync))
			both("rollback", k.sql, wire.AppendQuery(nil, "ROLLBACK"))
		}
	}
}
