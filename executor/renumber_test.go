package executor

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cleavedb/cleave/internal/wire"
)

// someOIDs know a type 20000 (an enum) with its array 20001, and a table 20002, which are
// 10000 more there.
func someOIDs() *oids {
	o := &oids{out: map[object]known{}, in: map[object]known{}}
	o.out[object{ofType, 20000}] = known{oid: 30000, kind: 's'}
	o.out[object{ofType, 20001}] = known{oid: 30001, kind: 'a', elem: 20000}
	o.out[object{ofTable, 20002}] = known{oid: 30002}
	return o
}

func words(n ...uint32) (b []byte) {
	for _, w := range n {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

// TestValuesAreTranslated: OIDs inside of values are, and nothing else.
func TestValuesAreTranslated(t *testing.T) {
	array := append(words(1, 0, 20000, 1, 1, 4), "good"...)
	record := append(append(words(3, 23, 4, 20000, 20001, uint32(len(array))), array...), words(20000, 0xffffffff)...)
	row := append(append(append([]byte{0, 3}, words(4, 20000)...), words(uint32(len(record)))...), record...)
	row = append(append(row, words(4)...), words(20000)...)
	o := someOIDs()
	columns := []numbered{{at: 1, oid: oidRecord}, {at: 2, oid: oidRegtype}}
	got := append([]byte(nil), row...)
	if missing, err := o.row(got, columns, false); len(missing) > 0 || err != nil {
		t.Fatal(missing, err)
	}
	array2 := append(words(1, 0, 30000, 1, 1, 4), "good"...)
	record2 := append(append(words(3, 23, 4, 20000, 30001, uint32(len(array2))), array2...), words(30000, 0xffffffff)...)
	want := append(append(append([]byte{0, 3}, words(4, 20000)...), words(uint32(len(record2)))...), record2...)
	want = append(append(want, words(4)...), words(30000)...)
	if string(got) != string(want) {
		t.Errorf("got\n%x want\n%x", got, want)
	}
	// What is malformed or too deep does no harm; what is not known stays as it is.
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := append([]byte(nil), row[:r.IntN(len(row)+1)]...)
		for range r.IntN(4) {
			if len(b) > 0 {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
		}
		before := string(b)
		if missing, err := o.row(b, columns, false); (len(missing) > 0 || err != nil) && string(b) != before {
			t.Fatalf("%x became %x", before, b)
		}
	}
	deep := []byte{}
	for range 2 * nestMax {
		deep = append(words(1, oidRecord, uint32(len(deep))), deep...)
	}
	deep = append(append([]byte{0, 1}, words(uint32(len(deep)))...), deep...)
	if _, err := o.row(deep, []numbered{{at: 0, oid: oidRecord}}, false); err == nil {
		t.Error("a value of any depth is taken")
	}
}

type frames struct{ bytes.Buffer }

func (f *frames) Frames(b []byte) error        { _, err := f.Write(b); return err }
func (f *frames) Parameter(name, value string) {}

// TestHeldAnswersEndWithACopy: where what was held until an OID was asked for ends with the
// shard's word for the client's data, Resume returns to have it sent.
func TestHeldAnswersEndWithACopy(t *testing.T) {
	p, sink := &Pipeline{Conn: &Conn{}, queue: []expected{{what: anQuery}}}, &frames{}
	p.held = append(wire.AppendCommandComplete(nil, "SELECT 0"), wire.CopyInResponse, 0, 0, 0, 7, 0, 0, 0)
	if o, err := p.Resume(sink); err != nil || !o.CopyIn || sink.Len() == 0 {
		t.Errorf("Resume gives %+v, %v, and relays %q", o, err, sink.Bytes())
	}
}

// BenchmarkRenumber: a description of ten columns of one table.
func BenchmarkRenumber(b *testing.B) {
	var fields []wire.Field
	for range 10 {
		fields = append(fields, wire.Field{Name: "a_column", TableOID: 20002, Attr: 1, TypeOID: 20, TypeLen: 8, TypeMod: -1})
	}
	body := wire.AppendRowDescription(nil, fields)[wire.Header:]
	p, o, e := &Pipeline{}, someOIDs(), &expected{what: anDescribePortal}
	for b.Loop() {
		p.edits = p.edits[:0]
		if len(p.fields(o, body, e)) > 0 {
			b.Fatal("something is not known")
		}
	}
}
