package keyspace_test

import (
	"bytes"
	"testing"

	. "github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// FuzzParseText: no panic; what is accepted prints to a text that reads back as
// the same value and prints the same again; what is refused has a code.
func FuzzParseText(f *testing.F) {
	for _, t := range []Type{Int8, Varchar, UUID, Timestamptz, Bytea, Bool} { // one of each way to read
		for _, s := range fixedFor(t) {
			f.Add(byte(t), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, b byte, s []byte) {
		typ := Type(b)
		v, err := ParseText(typ, s)
		if err != nil {
			if e := sqlstate.As(err); e.Code == "" || v != (Value{}) {
				t.Fatalf("%s %q: %v, %#v", typ, s, v, e)
			}
			return
		}
		again, err := ParseText(typ, []byte(v.Text()))
		if err != nil || again != v || again.Text() != v.Text() {
			t.Fatalf("%s %q is %q, which reads as %v, %v", typ, s, v.Text(), again, err)
		}
		if bin, err := ParseBinary(typ, v.AppendBinary(nil)); err != nil || bin != v {
			t.Fatalf("%s %q: binary reads as %v, %v", typ, s, bin, err)
		}
	})
}

// FuzzParseBinary: no panic, and what is accepted comes back.
func FuzzParseBinary(f *testing.F) {
	f.Add(byte(Int8), []byte("\x00\x00\x00\x00\x00\x00\x00\x07"))
	f.Add(byte(Timestamp), []byte("\x7f\xff\xff\xff\xff\xff\xff\xff"))
	f.Add(byte(Text), []byte("é"))
	f.Fuzz(func(t *testing.T, b byte, s []byte) {
		v, err := ParseBinary(Type(b), s)
		if err != nil {
			return
		}
		if back := v.AppendBinary(nil); !bytes.Equal(back, s) && Type(b) != Bool {
			t.Fatalf("%v %x comes back as %x", Type(b), s, back)
		}
		if again, err := ParseText(Type(b), []byte(v.Text())); err != nil || again != v {
			t.Fatalf("%v %x prints as %q, which reads as %v, %v", Type(b), s, v.Text(), again, err)
		}
	})
}

// FuzzOrdered: the encodings of two keys of text, bytea and bigint order as the keys.
func FuzzOrdered(f *testing.F) {
	f.Add([]byte("a"), []byte("\x00"), int64(1), []byte("a\x00"), []byte(""), int64(-1))
	f.Add([]byte("\x00\xff"), []byte("\x00\x01"), int64(0), []byte("\x00"), []byte("\xff"), int64(0))
	f.Fuzz(func(t *testing.T, a1, a2 []byte, a3 int64, b1, b2 []byte, b3 int64) {
		a := Key{Str(Text, string(a1)), Str(Bytea, string(a2)), Int(Int8, a3)}
		b := Key{Str(Text, string(b1)), Str(Bytea, string(b2)), Int(Int8, b3)}
		ea, eb := AppendOrdered(nil, a), AppendOrdered(nil, b)
		if bytes.Compare(ea, eb) != CompareKeys(a, b) {
			t.Fatalf("%v and %v: encodings %x and %x", a, b, ea, eb)
		}
		for n := range a {
			if p := AppendOrdered(nil, a[:n]); !bytes.HasPrefix(ea, p) || bytes.HasPrefix(eb, p) != a[:n].Equal(b[:n]) {
				t.Fatalf("the prefix %v of %v against %v", a[:n], a, b)
			}
		}
	})
}

// FuzzParseType: no panic, and every accepted name is one of the types.
func FuzzParseType(f *testing.F) {
	for _, s := range []string{"bigint", "varchar(5)", "timestamp(3) with time zone", "numeric(1,2)", ")(", "((", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		typ, err := ParseType(s)
		if (err == nil) != typ.Valid() {
			t.Fatalf("%q: %v, %v", s, typ, err)
		}
		if err != nil && sqlstate.As(err).Hint == "" {
			t.Fatalf("%q is refused without a hint: %v", s, err)
		}
	})
}
