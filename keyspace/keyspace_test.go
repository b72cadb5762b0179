package keyspace_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	. "github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// The positions are stored in maps and in rows' places: they must never change.
// The numbers are what PostgreSQL 15 prints.
func TestHashIsWhatItWas(t *testing.T) {
	for _, c := range []struct {
		seed int64
		key  Key
		want int64
	}{
		{0, Key{Int(Int8, 0)}, 4154612158245552303},
		{0, Key{Int(Int4, 42)}, 8010225493015854792},
		{0, Key{Int(Int8, 42)}, 8010225493015854792},
		{0, Key{Str(Text, "")}, -6939563903564495251},
		{7, Key{Str(Varchar, "it's"), Int(Bool, 1)}, -8683248056889310379},
	} {
		if h := HashKey(c.seed, c.key); h != c.want {
			t.Errorf("%v with seed %d is at %d, was at %d", c.key, c.seed, h, c.want)
		}
	}
	if h := HashKey(5, nil); h != 5 {
		t.Errorf("the empty key is at %d, want the seed", h)
	}
}

func drawValue(t *rapid.T, typ Type) Value {
	switch typ {
	case Int2:
		return Int(typ, int64(rapid.Int16().Draw(t, "int2")))
	case Int4:
		return Int(typ, int64(rapid.Int32().Draw(t, "int4")))
	case Int8:
		return Int(typ, rapid.Int64().Draw(t, "int8"))
	case Bool:
		return Int(typ, rapid.Int64Range(0, 1).Draw(t, "bool"))
	case Date:
		return Int(typ, rapid.OneOf(rapid.Int64Range(dateMin, dateEnd-1), rapid.SampledFrom([]int64{math.MaxInt32, math.MinInt32})).Draw(t, "date"))
	case Timestamp, Timestamptz:
		return Int(typ, rapid.OneOf(rapid.Int64Range(timestampMin, timestampEnd-1), rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64})).Draw(t, "timestamp"))
	case UUID:
		return Str(typ, string(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")))
	case Bytea:
		return Str(typ, string(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 254, 255, 'a'}), 0, 6).Draw(t, "bytea")))
	default:
		return Str(typ, rapid.StringOfN(rapid.RuneFrom([]rune{1, 'a', 'b', '\'', '\\', 'é', 0x10ffff}), 0, 6, -1).Draw(t, "text"))
	}
}

func drawTypes(t *rapid.T) []Type {
	return rapid.SliceOfN(rapid.SampledFrom(Types()), 1, 4).Draw(t, "types")
}

func drawKey(t *rapid.T, types []Type) Key {
	k := make(Key, len(types))
	for i, typ := range types {
		k[i] = drawValue(t, typ)
	}
	return k
}

func TestOrderedEncodingKeepsOrderAndPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := drawTypes(t)
		a, b := drawKey(t, types), drawKey(t, types)
		for i := range rapid.IntRange(0, len(types)).Draw(t, "equal columns") {
			b[i] = a[i]
		}
		ea, eb := AppendOrdered(nil, a), AppendOrdered(nil, b)
		if bytes.Compare(ea, eb) != CompareKeys(a, b) {
			t.Fatalf("%v and %v compare %d, their encodings %d", a, b, CompareKeys(a, b), bytes.Compare(ea, eb))
		}
		p := a[:rapid.IntRange(0, len(a)).Draw(t, "prefix")]
		ep := AppendOrdered(nil, p)
		if starts := p.Equal(b[:len(p)]); bytes.HasPrefix(eb, ep) != starts {
			t.Fatalf("%v starts with %v: %t; the encodings disagree", b, p, starts)
		}
		if !bytes.HasPrefix(ea, ep) || CompareKeys(p, a) > 0 {
			t.Fatalf("%v is a prefix of %v and sorts after it, or its encoding is none", p, a)
		}
	})
}

func TestTextBinaryAndJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := drawTypes(t)
		k := drawKey(t, types)
		back, err := ParseKey(types, k.Texts())
		if err != nil || !slices.Equal(back, k) {
			t.Fatalf("%v comes back as %v, %v", k, back, err)
		}
		b, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		var decoded Key
		if err := json.Unmarshal(b, &decoded); err != nil || !slices.Equal(decoded, k) {
			t.Fatalf("%s is %v, %v", b, decoded, err)
		}
		for _, v := range k {
			if bin, err := ParseBinary(v.Type(), v.AppendBinary(nil)); err != nil || bin != v {
				t.Fatalf("%v comes back from binary as %v, %v", v, bin, err)
			}
		}
	})
}

// Integers of each width hash alike, also where the number fits only one.
func TestIntegersHashAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := int64(rapid.Int16().Draw(t, "n"))
		seed := rapid.Int64().Draw(t, "seed")
		h := Int(Int2, n).Hash(seed)
		if Int(Int4, n).Hash(seed) != h || Int(Int8, n).Hash(seed) != h {
			t.Fatalf("%d hashes differently by type", n)
		}
	})
}

func TestConvert(t *testing.T) {
	for _, c := range []struct {
		v    Value
		to   Type
		want Value
		ok   bool
	}{
		{Int(Int8, 5), Int2, Int(Int2, 5), true},
		{Int(Int8, 40000), Int2, Value{}, false},
		{Int(Int2, -1), Int8, Int(Int8, -1), true},
		{Str(Text, "a"), Varchar, Str(Varchar, "a"), true},
		{Str(Text, "5"), Int8, Value{}, false},
		{Int(Date, 5), Int4, Value{}, false},
		{Int(Timestamp, 5), Timestamptz, Value{}, false},
		{Int(Bool, 1), Bool, Int(Bool, 1), true},
		{Value{}, 0, Value{}, false},
	} {
		if got, ok := c.v.Convert(c.to); got != c.want || ok != c.ok {
			t.Errorf("%v as %v is %v, %t", c.v, c.to, got, ok)
		}
	}
}

func TestBinaryThatIsNoValue(t *testing.T) {
	for _, c := range []struct {
		t    Type
		b    string
		code sqlstate.Code
	}{
		{Int2, "\x00", sqlstate.InvalidBinary},
		{Int4, "\x00\x00\x00\x00\x00", sqlstate.InvalidBinary},
		{Int8, "\x00\x00\x00\x00", sqlstate.InvalidBinary},
		{UUID, "123", sqlstate.InvalidBinary},
		{Bool, "", sqlstate.InvalidBinary},
		{Bool, "\x01\x00", sqlstate.InvalidBinary},
		{Text, "\xff", sqlstate.CharacterNotInRepertoire},
		{Varchar, "a\x00", sqlstate.CharacterNotInRepertoire},
		{Date, "\x7f\xff\xff\xfe", sqlstate.DatetimeOverflow},
		{Timestamp, "\x7f\xff\xff\xff\xff\xff\xff\xfe", sqlstate.DatetimeOverflow},
		{Timestamptz, "\x80\x00\x00\x00\x00\x00\x00\x01", sqlstate.DatetimeOverflow},
		{0, "", sqlstate.InternalError},
		{99, "", sqlstate.InternalError},
	} {
		v, err := ParseBinary(c.t, []byte(c.b))
		if sqlstate.CodeOf(err) != c.code || v != (Value{}) {
			t.Errorf("%v of %q: %v, %v; want %s", c.t, c.b, v, err, c.code)
		}
	}
	if v, err := ParseBinary(Bool, []byte{7}); err != nil || v != Int(Bool, 1) {
		t.Errorf("a boolean of 7 is %v, %v", v, err)
	}
}

func TestTextThatIsNoValue(t *testing.T) {
	for _, typ := range Types() {
		for _, s := range []string{"a\x00", "\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80"} {
			if _, err := ParseText(typ, []byte(s)); sqlstate.CodeOf(err) != sqlstate.CharacterNotInRepertoire {
				t.Errorf("%s of %q: %v", typ, s, err)
			}
		}
	}
	if _, err := ParseText(Text, make([]byte, 65<<20)); sqlstate.CodeOf(err) != sqlstate.ProgramLimitExceeded {
		t.Errorf("65 MiB of text: %v", err)
	}
	if _, err := ParseText(0, nil); sqlstate.CodeOf(err) != sqlstate.InternalError {
		t.Errorf("no type: %v", err)
	}
	if _, err := ParseText(Timestamptz, []byte("2000-01-01 00:00:00")); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported || !strings.Contains(err.Error(), "TimeZone") {
		t.Errorf("a timestamptz without zone: %v", err)
	}
}

func TestParseKeyCounts(t *testing.T) {
	_, err := ParseKey([]Type{Int8, Text}, []string{"1"})
	if sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue || !strings.Contains(err.Error(), "bigint, text") {
		t.Errorf("too few: %v", err)
	}
	if _, err := ParseKey([]Type{Int8}, []string{"x"}); sqlstate.CodeOf(err) != sqlstate.InvalidTextRepresentation {
		t.Errorf("not a number: %v", err)
	}
	if k, err := ParseKey(nil, nil); err != nil || len(k) != 0 {
		t.Errorf("empty: %v, %v", k, err)
	}
}

func TestKeyString(t *testing.T) {
	if s := (Key{Int(Int8, -7), Str(Text, "it's"), Int(Bool, 1)}).String(); s != "(-7, 'it''s', 't')" {
		t.Error(s)
	}
}

func TestTypesThatAreRefused(t *testing.T) {
	for name, why := range map[string]string{
		"numeric(10,2)": "several forms", "double precision": "-0", "float4": "-0", "real": "-0", "char(3)": "trailing spaces", "character": "trailing spaces",
		`"char"`: "not proven", "citext": "equality", "serial": "repeat", "jsonb": "", "bigint[]": "not known", "mytype": "not known", "": "not known", "oid": "not proven",
		"public.int8": "not known", "varchar(1)(2)": "not known", "time": "not proven", "interval": "several forms",
	} {
		_, err := ParseType(name)
		if sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported || !strings.Contains(err.Error(), why) || sqlstate.As(err).Hint == "" {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"varchar(0)", "bigint(3)", "timestamp(7)", "varchar(10485761)", "text(5)"} {
		if _, err := ParseType(name); sqlstate.CodeOf(err) != sqlstate.InvalidParameterValue {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestTypeNames(t *testing.T) {
	for _, typ := range Types() {
		for _, name := range []string{typ.String(), typ.ShortName(), strings.ToUpper(typ.String()), "pg_catalog." + typ.ShortName()} {
			if p, err := ParseType(name); err != nil || p != typ {
				t.Errorf("%q is %v, %v", name, p, err)
			}
		}
		if p, ok := TypeByOID(typ.OID()); !ok || p != typ {
			t.Errorf("%d is %v", typ.OID(), p)
		}
		b, err := json.Marshal([]Type{typ})
		var back []Type
		if err == nil {
			err = json.Unmarshal(b, &back)
		}
		if err != nil || !slices.Equal(back, []Type{typ}) {
			t.Errorf("%s: %v, %v", b, back, err)
		}
	}
	if _, ok := TypeByOID(0); ok {
		t.Error("oid 0 is a type")
	}
	if _, ok := TypeByOID(701); ok {
		t.Error("double precision is a type")
	}
	if b, err := json.Marshal(Type(0)); err == nil {
		t.Errorf("no type is stored as %s", b)
	}
	var typ Type
	if err := json.Unmarshal([]byte(`"money"`), &typ); err == nil {
		t.Error("money is a type")
	}
}

func TestEvenRanges(t *testing.T) {
	if EvenRanges(1) != nil || EvenRanges(0) != nil || EvenRanges(-1) != nil {
		t.Error("one range has no inner bound")
	}
	if got := EvenRanges(4); !slices.Equal(got, []int64{math.MinInt64 / 2, 0, math.MaxInt64/2 + 1}) {
		t.Error(got)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 3000).Draw(t, "n")
		b := EvenRanges(n)
		if len(b) != n-1 {
			t.Fatalf("%d bounds for %d ranges", len(b), n)
		}
		// floor((i+1) * 2^64 / n) - 2^63, by big arithmetic.
		for i, got := range b {
			want := new(big.Int).Lsh(big.NewInt(int64(i+1)), 64)
			want.Div(want, big.NewInt(int64(n))).Sub(want, new(big.Int).Lsh(big.NewInt(1), 63))
			if want.Cmp(big.NewInt(got)) != 0 {
				t.Fatalf("bound %d of %d is %d, want %s", i, n, got, want)
			}
		}
	})
}

func TestLiteral(t *testing.T) {
	for want, v := range map[string]Value{
		"'-5'::bigint":                                       Int(Int8, -5),
		"'it''s'::pg_catalog.text":                           Str(Text, "it's"),
		`E'a\\b'''::character varying`:                       Str(Varchar, `a\b'`),
		"true":                                               Int(Bool, 1),
		`E'\\x00ff'::pg_catalog.bytea`:                       Str(Bytea, "\x00\xff"),
		"'infinity'::pg_catalog.date":                        Int(Date, math.MaxInt32),
		"'0044-03-15 BC'::pg_catalog.date":                   Int(Date, -746117),
		"'2000-01-01 00:00:00+00'::timestamp with time zone": Int(Timestamptz, 0),
	} {
		if got := v.Literal(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestMistakesPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"Int of text":      func() { Int(Text, 1) },
		"Str of int":       func() { Str(Int8, "1") },
		"short uuid":       func() { Str(UUID, "1") },
		"Int of none":      func() { Int(0, 1) },
		"HashExpr of none": func() { HashExpr(0, "c", "0") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			f()
		}()
	}
}
