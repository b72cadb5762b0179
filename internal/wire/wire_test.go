package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"testing"
	"testing/iotest"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/sqlstate"
)

func TestReaderCutsWhateverTheChunks(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	var stream []byte
	var want [][]byte
	for range 300 {
		size := r.Intn(200)
		if r.Intn(20) == 0 {
			size = r.Intn(50_000)
		}
		b := make([]byte, size)
		r.Read(b)
		from := len(stream)
		var m int
		stream, m = Begin(stream, byte('A'+r.Intn(26)))
		stream = End(append(stream, b...), m)
		want = append(want, stream[from:])
	}
	for name, src := range map[string]io.Reader{
		"whole": bytes.NewReader(stream), "byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
		"halves": iotest.HalfReader(bytes.NewReader(stream)), "data with error": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		t.Run(name, func(t *testing.T) {
			rd := NewReader(src, 64, 1<<20)
			for i, w := range want {
				f, err := rd.Next()
				if err != nil || !bytes.Equal(f, w) {
					t.Fatalf("frame %d: %v, %d bytes, want %d", i, err, len(f), len(w))
				}
			}
			if _, err := rd.Next(); err != io.EOF {
				t.Fatalf("after the last frame: %v", err)
			}
		})
		_ = src
	}
	rd := NewReader(iotest.HalfReader(bytes.NewReader(stream)), 512, 1<<20)
	var got []byte
	for {
		b, err := rd.Batch()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b...)
	}
	if !bytes.Equal(got, stream) {
		t.Fatal("batches are not the stream")
	}
}

func TestReaderUnread(t *testing.T) {
	rd := NewReader(bytes.NewReader(AppendEmpty(AppendEmpty(nil, Sync), Flush)), 512, 1<<20)
	b, err := rd.Batch()
	if err != nil || len(b) != 10 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	rd.Unread(5)
	if f, err := rd.Next(); err != nil || f.Type() != Flush {
		t.Fatalf("%q, %v", f, err)
	}
	if _, err := rd.Next(); err != io.EOF {
		t.Fatalf("after the last frame: %v", err)
	}
}

func TestReaderBounds(t *testing.T) {
	big, m := Begin(nil, Query)
	big = End(append(big, make([]byte, 1000)...), m)
	if _, err := NewReader(bytes.NewReader(big), 16, 500).Next(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a frame over the bound: %v", err)
	}
	if _, err := NewReader(bytes.NewReader([]byte{'Q', 0, 0, 0, 3, 0}), 16, 500).Next(); !errors.Is(err, ErrMalformed) {
		t.Errorf("length 3: %v", err)
	}
	if _, err := NewReader(bytes.NewReader(big[:600]), 16, 5000).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a torn frame: %v", err)
	}
	// A length alone takes no memory.
	r := NewReader(bytes.NewReader([]byte{'Q', 0x30, 0, 0, 0}), 16, 1<<30)
	_, _ = r.Next() // the end of the stream
	if len(r.buf) > 1<<10 {
		t.Errorf("a length field alone took %d bytes", len(r.buf))
	}
}

// TestAgainstPgproto3 reads what this package writes with another implementation.
func TestAgainstPgproto3(t *testing.T) {
	var b []byte
	b = AppendRowDescription(b, []Field{{Name: "a", TypeOID: 20, TypeLen: 8, TypeMod: -1, Format: 1}})
	b = AppendDataRow(b, [][]byte{[]byte("x"), nil})
	b = AppendParameterDescription(b, []uint32{20, 25})
	b = AppendCommandComplete(b, "SELECT 1")
	b = AppendParameterStatus(b, "TimeZone", "UTC")
	in := &sqlstate.Error{Code: "0A000", Message: "no", Detail: "d", Hint: "h", Position: 7, Shard: "s1", Keyspace: "k", Range: "[0, 1)", Epoch: 3, Table: "t", File: "f.c", Line: "9", Routine: "r"}
	b = AppendError(b, in)
	b = AppendReadyForQuery(b, 'T')
	f := pgproto3.NewFrontend(bytes.NewReader(b), io.Discard)
	next := func() pgproto3.BackendMessage {
		m, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := next().(*pgproto3.RowDescription); string(m.Fields[0].Name) != "a" || m.Fields[0].DataTypeOID != 20 || m.Fields[0].Format != 1 {
		t.Errorf("%+v", m)
	}
	if m := next().(*pgproto3.DataRow); string(m.Values[0]) != "x" || m.Values[1] != nil {
		t.Errorf("%+v", m)
	}
	if m := next().(*pgproto3.ParameterDescription); len(m.ParameterOIDs) != 2 || m.ParameterOIDs[1] != 25 {
		t.Errorf("%+v", m)
	}
	if m := next().(*pgproto3.CommandComplete); string(m.CommandTag) != "SELECT 1" {
		t.Errorf("%+v", m)
	}
	if m := next().(*pgproto3.ParameterStatus); m.Name != "TimeZone" || m.Value != "UTC" {
		t.Errorf("%+v", m)
	}
	if m := next().(*pgproto3.ErrorResponse); m.Code != "0A000" || m.Position != 7 || m.Hint != "h" || m.TableName != "t" || m.Where != "shard s1, keyspace k, range [0, 1), epoch 3" || m.Severity != "ERROR" {
		t.Errorf("%+v", m)
	}
	if m := next().(*pgproto3.ReadyForQuery); m.TxStatus != 'T' {
		t.Errorf("%+v", m)
	}
	out := ParseReport(AppendError(nil, in)[Header:])
	if out.Code != in.Code || out.Message != in.Message || out.Detail != in.Detail || out.Hint != in.Hint || out.Position != 7 || out.Severity != "ERROR" || out.File != "f.c" || out.Line != "9" || out.Routine != "r" {
		t.Errorf("read back: %+v", out)
	}

	refused := sqlstate.Refusal("CLV-0801", "no").WithHint("Do this.")
	if _, err := f.Receive(); err == nil {
		t.Error("something is left")
	}
	b = AppendError(nil, refused)
	f = pgproto3.NewFrontend(bytes.NewReader(b), io.Discard)
	if m := next().(*pgproto3.ErrorResponse); m.Message != "no" || m.Hint != "Do this. (CLV-0801)" || m.Routine != "CLV-0801" {
		t.Errorf("%+v", m)
	}
	if got := AppendError(nil, ParseReport(b[Header:])); !bytes.Equal(got, b) {
		t.Errorf("on its way on the refusal becomes %q", got)
	}

	var fe []byte
	fe = AppendParse(fe, "s", "SELECT $1", []uint32{20})
	fe = AppendBind(fe, "p", "s", []int16{1}, [][]byte{{1}, nil}, []int16{1})
	fe = AppendDescribe(fe, 'P', "p")
	fe = AppendExecute(fe, "p", 5)
	fe = AppendClose(fe, 'S', "s")
	fe = AppendCopyFail(fe, "why")
	fe = AppendQuery(fe, "SELECT 1")
	fe = AppendEmpty(fe, Sync)
	be := pgproto3.NewBackend(bytes.NewReader(fe), io.Discard)
	for i, check := range []func(m pgproto3.FrontendMessage) bool{
		func(m pgproto3.FrontendMessage) bool {
			x, ok := m.(*pgproto3.Parse)
			return ok && x.Query == "SELECT $1" && x.ParameterOIDs[0] == 20
		},
		func(m pgproto3.FrontendMessage) bool {
			x, ok := m.(*pgproto3.Bind)
			return ok && x.DestinationPortal == "p" && x.PreparedStatement == "s" && len(x.Parameters) == 2 && x.Parameters[1] == nil && x.ResultFormatCodes[0] == 1
		},
		func(m pgproto3.FrontendMessage) bool {
			x, ok := m.(*pgproto3.Describe)
			return ok && x.ObjectType == 'P' && x.Name == "p"
		},
		func(m pgproto3.FrontendMessage) bool { x, ok := m.(*pgproto3.Execute); return ok && x.MaxRows == 5 },
		func(m pgproto3.FrontendMessage) bool { x, ok := m.(*pgproto3.Close); return ok && x.Name == "s" },
		func(m pgproto3.FrontendMessage) bool {
			x, ok := m.(*pgproto3.CopyFail)
			return ok && x.Message == "why"
		},
		func(m pgproto3.FrontendMessage) bool {
			x, ok := m.(*pgproto3.Query)
			return ok && x.String == "SELECT 1"
		},
		func(m pgproto3.FrontendMessage) bool { _, ok := m.(*pgproto3.Sync); return ok },
	} {
		m, err := be.Receive()
		if err != nil || !check(m) {
			t.Fatalf("frontend message %d: %+v, %v", i, m, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{'Q', 0, 0, 0, 5, 0}, 3)
	f.Add(AppendBind(nil, "", "s", nil, [][]byte{nil}, nil), 7)
	f.Add([]byte{'E', 0xff, 0xff, 0xff, 0xff}, 1)
	f.Fuzz(func(t *testing.T, b []byte, chunk int) {
		rd := NewReader(bytes.NewReader(b), max(chunk&0xff, 1), 1<<16)
		total := 0
		for {
			fr, err := rd.Next()
			if err != nil {
				break
			}
			if len(fr) < Header || !bytes.Equal(fr, b[total:total+len(fr)]) {
				t.Fatalf("frame at %d is not the stream's", total)
			}
			total += len(fr)
			ParseReport(fr.Body())
			if _, err := SplitRow(fr.Body(), nil); err != nil && !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
		}
		if len(rd.buf) > 1<<17 {
			t.Fatalf("buffer of %d bytes", len(rd.buf))
		}
	})
}
