package several

import (
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/postgres"
	"github.com/cleavedb/cleave/executor/several/limits"
	"github.com/cleavedb/cleave/executor/several/tuplestore"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// inBlock is a conversation inside of BEGIN.
func inBlock(shared *Shared, host Host) *txn.Transaction {
	tx := shared.Transaction(host)
	tx.BeginBlock("BEGIN", nil)
	return tx
}

// answers are the types of the messages that frames are answered with; an error is its code and its message.
func answers(t *testing.T, c engine.Conn, frames []byte) string {
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
	c := New(shared, host, inBlock(shared, host))
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

// TestMessagesInAFailedBlock compares what PostgreSQL and a conversation say of names when the transaction has failed: first that
// there is no such statement or portal.
func TestMessagesInAFailedBlock(t *testing.T) {
	handle, err := postgres.Driver{}.Open(engine.Config{Cluster: "6f2c8f6e-7f0e-4c43-9d07-0f6b7a4c1d11", Name: "a", URL: pgtest.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	if err := handle.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	real, err := handle.Connect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	shared, host := shardless(t)
	c := New(shared, host, inBlock(shared, host))
	defer c.Close()
	rows := []wire.Field{{Name: "n", TypeOID: 23, TypeLen: 4, TypeMod: -1}}
	st := &plan.Statement{Kind: plan.AnyShard, Text: "SELECT 1 AS n", Tag: "SELECT", ReadOnly: true, ReturnsRows: true}
	d := &description{columns: wire.AppendRowDescription(nil, rows)[wire.Header:], fields: rows}
	if err := c.prepared.Add("rows", &prepared{name: "rows", text: st.Text, st: st, desc: d}, len(st.Text)); err != nil {
		t.Fatal(err)
	}
	answers(t, real, wire.AppendQuery(nil, "BEGIN"))
	answers(t, real, wire.AppendEmpty(wire.AppendParse(nil, "rows", st.Text, nil), wire.Sync))
	for _, s := range []struct {
		name   string
		frames []byte
	}{
		{"statement and portals", wire.AppendBind(wire.AppendBind(wire.AppendParse(nil, "empty", "", nil), "e", "empty", nil, nil, nil), "p", "rows", nil, nil, nil)},
		{"what fails", wire.AppendParse(nil, "x", "SELECT FROM WHERE", nil)},
		{"bind of no statement", wire.AppendBind(nil, "q", "none", nil, nil, nil)},
		{"bind of other parameters", wire.AppendBind(nil, "q", "rows", nil, [][]byte{nil}, nil)},
		{"bind", wire.AppendBind(nil, "q", "rows", nil, nil, nil)},
		{"bind of a name in use", wire.AppendBind(nil, "p", "rows", nil, nil, nil)},
		{"describe of no statement", wire.AppendDescribe(nil, 'S', "none")},
		{"describe of a statement with rows", wire.AppendDescribe(nil, 'S', "rows")},
		{"describe of a statement without", wire.AppendDescribe(nil, 'S', "empty")},
		{"describe of no portal", wire.AppendDescribe(nil, 'P', "none")},
		{"describe of a portal with rows", wire.AppendDescribe(nil, 'P', "p")},
		{"describe of a portal without", wire.AppendDescribe(nil, 'P', "e")},
		{"execute of no portal", wire.AppendExecute(nil, "none", 0)},
		{"execute", wire.AppendExecute(nil, "p", 0)},
		{"execute of nothing", wire.AppendExecute(nil, "e", 0)},
		{"close of no portal", wire.AppendClose(nil, 'P', "none")},
		{"close", wire.AppendClose(nil, 'P', "p")},
		{"execute of what was closed", wire.AppendExecute(nil, "p", 0)},
	} {
		frames := wire.AppendEmpty(s.frames, wire.Sync)
		want, got := answers(t, real, frames), answers(t, c, frames)
		if s.name == "what fails" {
			want, got = want[:5], got[:5] // the code
		}
		if got != want {
			t.Errorf("%s: %s, PostgreSQL says %s", s.name, got, want)
		}
	}
}

// faulting is a job that faults. It counts how often it was stopped.
type faulting struct{ stopped int }

func (f *faulting) step([]byte, int32) ([]byte, bool, string, error) { panic("a fault") }
func (f *faulting) stop()                                            { f.stopped++ }

// TestFaultReleases: after a fault of the router's own Close gives back what is held.
func TestFaultReleases(t *testing.T) {
	shared, host := shardless(t)
	c := New(shared, host, inBlock(shared, host))
	st := &plan.Statement{Kind: plan.AnyShard, Tag: "SELECT", ReadOnly: true, ReturnsRows: true}
	other, under := &faulting{}, &faulting{}
	rows := tuplestore.New(1)
	rows.Spill(&limits.Allowance{Rows: 1 << 30, Bytes: 1 << 30})
	if _, err := rows.Add(make([]byte, 1<<20)); err != nil || !rows.InFile() {
		t.Fatal("no file", err)
	}
	c.cursors.Put("c", &cursor{job: other, kept: rows}, 0)
	p := &portal{name: "p", e: execution{st: st}, stmt: &prepared{st: st, desc: &description{}}, job: under}
	c.portals.Put("p", p, 0)
	if err := c.Send(wire.AppendExecute(nil, "p", 0)); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no fault")
			}
		}()
		_, _ = c.Receive()
	}()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if other.stopped != 1 || under.stopped != 1 || rows.InFile() {
		t.Errorf("the cursor was stopped %d times, the portal %d times, the file is closed: %v", other.stopped, under.stopped, !rows.InFile())
	}
}
