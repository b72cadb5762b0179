package postgres

import (
	"encoding/binary"
	"strings"
	"testing"
)

func put16(b []byte, n int) []byte    { return binary.BigEndian.AppendUint16(b, uint16(n)) }
func put32(b []byte, n uint32) []byte { return binary.BigEndian.AppendUint32(b, n) }
func put64(b []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(b, n) }

func putTuple(b []byte, cells ...string) []byte {
	b = put16(b, len(cells))
	for _, c := range cells {
		switch c {
		case "~":
			b = append(b, 'n')
		case "=":
			b = append(b, 'u')
		default:
			b = append(put32(append(b, 't'), uint32(len(c))), c...)
		}
	}
	return b
}

// outputSeeds are one message of each kind.
func outputSeeds() map[string][]byte {
	relation := append(put32([]byte{'R'}, 7), "public\x00Row s\x00d"...)
	relation = put16(relation, 2)
	relation = put32(put32(append(relation, "\x01the key\x00"...), 20), 0xffffffff)
	relation = put32(put32(append(relation, "\x00v\x00"...), 25), 0xffffffff)
	return map[string][]byte{
		"begin":    put32(put64(put64([]byte{'B'}, 0x1_0000_0010), 1), 99),
		"commit":   put64(put64(put64([]byte{'C', 0}, 0x10), 0x2_0000_0020), 1),
		"origin":   append(put64([]byte{'O'}, 1), "elsewhere\x00"...),
		"type":     append(put32([]byte{'Y'}, 1), "public\x00mood\x00"...),
		"relation": relation,
		"insert":   putTuple(append(put32([]byte{'I'}, 7), 'N'), "100", "~"),
		"update":   putTuple(append(put32([]byte{'U'}, 7), 'N'), "100", "="),
		"update K": putTuple(append(putTuple(append(put32([]byte{'U'}, 7), 'K'), "99", "~"), 'N'), "100", ""),
		"update O": putTuple(append(putTuple(append(put32([]byte{'U'}, 7), 'O'), "99", "x"), 'N'), "100", "y"),
		"delete":   putTuple(append(put32([]byte{'D'}, 7), 'K'), "100", "~"),
		"truncate": put32(put32(append(put32([]byte{'T'}, 2), 0), 7), 8),
		"message":  append(put64([]byte{'M', 0}, 1), "cleave\x00\x00\x00\x00\x00"...),
	}
}

func TestOutputIsDecoded(t *testing.T) {
	var o output
	seeds := outputSeeds()
	take := func(name string) *output {
		t.Helper()
		if err := o.decode(seeds[name]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return &o
	}
	if at := take("begin").at; at != 0x1_0000_0010 || at.String() != "1/10" {
		t.Errorf("begin at %v", at)
	}
	if at := take("commit").at; at.String() != "2/20" {
		t.Errorf("commit at %v", at)
	}
	take("origin")
	take("type")
	take("message")
	if r := take("relation"); r.relation != 7 || r.table.schema != "public" || r.table.name != "Row s" || len(r.table.columns) != 2 ||
		r.table.columns[0] != (outputColumn{"the key", true, 20, -1}) || r.table.columns[1] != (outputColumn{"v", false, 25, -1}) {
		t.Errorf("relation %+v", r)
	}
	show := func(cells []cell) string {
		var b strings.Builder
		for _, c := range cells {
			b.WriteString(" " + string(c.kind) + c.text)
		}
		return b.String()
	}
	for name, want := range map[string][2]string{
		"insert": {"", " t100 n"}, "update": {"", " t100 u"}, "update K": {" t99 n", " t100 t"}, "update O": {" t99 tx", " t100 ty"}, "delete": {" t100 n", ""},
	} {
		if m := take(name); m.relation != 7 || show(m.old) != want[0] || show(m.new) != want[1] {
			t.Errorf("%s: %d%s%s", name, m.relation, show(m.old), show(m.new))
		}
	}
	if m := take("truncate"); len(m.relations) != 2 || m.relations[0] != 7 || m.relations[1] != 8 {
		t.Errorf("truncate %v", m.relations)
	}
	// Every message that is cut short is refused, and none with something behind it is taken.
	for name, b := range seeds {
		if strings.Contains("origin type message", name) {
			continue
		}
		for n := range b {
			if err := o.decode(b[:n]); err == nil {
				t.Errorf("%s cut to %d bytes is taken", name, n)
			}
		}
		if err := o.decode(append(append([]byte(nil), b...), 0)); err == nil {
			t.Errorf("%s with a byte behind it is taken", name)
		}
	}
}

func FuzzOutput(f *testing.F) {
	for _, b := range outputSeeds() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var o output
		if o.decode(b) != nil {
			return
		}
		size := 0
		for _, c := range append(o.old, o.new...) {
			size += len(c.text)
		}
		if size > len(b) {
			t.Fatalf("%d bytes of values in a message of %d", size, len(b))
		}
	})
}
