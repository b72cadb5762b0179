package keyspace_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	. "github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestPostgres compares this package with real servers, every major version.
func TestPostgres(t *testing.T) {
	for _, install := range pgtest.VersionsOfRun(t) {
		t.Run(strconv.Itoa(install.Major), func(t *testing.T) {
			s := pgtest.NewServerOf(t, install, nil)
			db := open(t, pgtest.DatabaseOn(t, s))
			db.run(`CREATE FUNCTION probe(typ text, send text, input text) RETURNS text LANGUAGE plpgsql AS $$
				DECLARE r text;
				BEGIN
					EXECUTE format('SELECT encode(%s(%L::%s), ''hex'')', send, input, typ) INTO r;
					RETURN r;
				EXCEPTION WHEN OTHERS THEN
					RETURN 'error ' || SQLSTATE;
				END $$`)
			t.Run("values", func(t *testing.T) { testValues(t, db) })
			t.Run("keys", func(t *testing.T) { testKeys(t, db) })
			t.Run("texts", func(t *testing.T) { testTexts(t, db) })
			t.Run("settings", func(t *testing.T) { testSettings(t, db) })
			t.Run("literals", func(t *testing.T) { testLiterals(t, db) })
			t.Run("modifiers", func(t *testing.T) { testModifiers(t, db) })
			t.Run("catalogue", func(t *testing.T) { testCatalogue(t, db) })
			t.Run("conditions", func(t *testing.T) { testConditions(t, db) })
		})
	}
}

type database struct {
	t    testing.TB
	conn *pgconn.PgConn
}

func open(t testing.TB, url string) *database {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return &database{t, conn}
}

func (d *database) run(sql string) {
	d.t.Helper()
	if _, err := d.conn.Exec(context.Background(), sql).ReadAll(); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

// rows runs a query whose parameters are text arrays.
func (d *database) rows(t *testing.T, sql string, arrays ...[]string) [][]string {
	t.Helper()
	params := make([][]byte, len(arrays))
	for i, a := range arrays {
		params[i] = []byte(arrayText(a))
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Max)
	defer cancel()
	res := d.conn.ExecParams(ctx, sql, params, nil, nil, nil).Read()
	if res.Err != nil {
		t.Fatalf("%s: %v", sql, res.Err)
	}
	out := make([][]string, len(res.Rows))
	for i, r := range res.Rows {
		for _, c := range r {
			if c == nil {
				t.Fatalf("%s: row %d holds NULL", sql, i)
			}
			out[i] = append(out[i], string(c))
		}
	}
	return out
}

func arrayText(a []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range a {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		b.WriteString(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

var sendFunction = map[Type]string{
	Int2: "int2send", Int4: "int4send", Int8: "int8send", Text: "textsend", Varchar: "varcharsend",
	UUID: "uuid_send", Date: "date_send", Timestamp: "timestamp_send", Timestamptz: "timestamptz_send",
	Bytea: "byteasend", Bool: "boolsend",
}

var seeds = []int64{0, 1, -1, 42, 1 << 40, -9223372036854775808, 9223372036854775807}

const perType = 2000

// testValues: hash with several seeds, printing, binary format and order.
func testValues(t *testing.T, db *database) {
	for _, typ := range Types() {
		t.Run(typ.ShortName(), func(t *testing.T) {
			r := seeded(t)
			vs := edgeValues(typ)
			for len(vs) < perType {
				vs = append(vs, randomValue(r, typ))
			}
			texts := make([]string, len(vs))
			for i, v := range vs {
				texts[i] = v.Text()
			}
			cols := []string{"v", fmt.Sprintf("encode(%s(v), 'hex')", sendFunction[typ]), "hash_record_extended(ROW(v), 7)"}
			for _, seed := range append([]int64{7}, seeds...) {
				cols = append(cols, HashExpr(typ, "v", fmt.Sprintf("'%d'::bigint", seed)))
			}
			got := db.rows(t, fmt.Sprintf("SELECT %s FROM (SELECT x::%s AS v, n FROM unnest($1::text[]) WITH ORDINALITY AS u(x, n)) s ORDER BY n",
				strings.Join(cols, ", "), typ), texts)
			for i, v := range vs {
				row := got[i]
				if row[0] != texts[i] {
					t.Fatalf("%s printed as %q, PostgreSQL prints %q", typ, texts[i], row[0])
				}
				back, err := ParseText(typ, []byte(row[0]))
				if err != nil || back != v {
					t.Fatalf("%s %q read back as %v, %v", typ, row[0], back, err)
				}
				bin, _ := hex.DecodeString(row[1])
				if mine := v.AppendBinary(nil); !bytes.Equal(mine, bin) {
					t.Fatalf("%s %q in binary is %x, PostgreSQL sends %x", typ, texts[i], mine, bin)
				}
				if back, err = ParseBinary(typ, bin); err != nil || back != v {
					t.Fatalf("%s %x in binary read as %v, %v", typ, bin, back, err)
				}
				if row[2] != row[3] {
					t.Fatalf("%s %q: the expression gives %s, the operator class %s", typ, texts[i], row[3], row[2])
				}
				for j, seed := range append([]int64{7}, seeds...) {
					if h := strconv.FormatInt(v.Hash(seed), 10); h != row[3+j] {
						t.Fatalf("%s %q with seed %d hashes to %s, PostgreSQL says %s", typ, texts[i], seed, h, row[3+j])
					}
				}
			}
			collate := ""
			if typ.IsText() {
				collate = ` COLLATE "C"`
			}
			order := db.rows(t, fmt.Sprintf("SELECT n FROM (SELECT x::%s AS v, n FROM unnest($1::text[]) WITH ORDINALITY AS u(x, n)) s ORDER BY v%s, n", typ, collate), texts)
			checkOrder(t, order, func(i int) Key { return vs[i : i+1] })
		})
	}
}

// checkOrder compares the server's order of rows (numbers from 1) with that of
// the encodings and of CompareKeys.
func checkOrder(t *testing.T, rows [][]string, key func(i int) Key) {
	t.Helper()
	var before Key
	var beforeEnc []byte
	for i, row := range rows {
		n, err := strconv.Atoi(row[0])
		if err != nil {
			t.Fatal(err)
		}
		k := key(n - 1)
		enc := AppendOrdered(nil, k)
		if i > 0 {
			byEnc, byKey := bytes.Compare(beforeEnc, enc), CompareKeys(before, k)
			if byEnc > 0 || byKey != byEnc {
				t.Fatalf("PostgreSQL sorts %v before %v; encodings compare %d, keys %d", before, k, byEnc, byKey)
			}
		}
		before, beforeEnc = k, enc
	}
}

// testKeys: chained hashes and the order of several columns.
func testKeys(t *testing.T, db *database) {
	r := seeded(t)
	for range 25 {
		types := make([]Type, 2+r.IntN(3))
		for i := range types {
			types[i] = Types()[r.IntN(len(Types()))]
		}
		const n = 300
		keys := make([]Key, n)
		arrays := make([][]string, len(types))
		for i := range keys {
			for c, typ := range types {
				var v Value
				if r.IntN(3) == 0 { // few values, so that later columns decide the order
					e := edgeValues(typ)
					v = e[r.IntN(min(4, len(e)))]
				} else {
					v = randomValue(r, typ)
				}
				keys[i] = append(keys[i], v)
				arrays[c] = append(arrays[c], v.Text())
			}
		}
		var unnest, casts, names, order []string
		for c, typ := range types {
			unnest = append(unnest, fmt.Sprintf("$%d::text[]", c+1))
			casts = append(casts, fmt.Sprintf("x%d::%s AS v%d", c, typ, c))
			names = append(names, fmt.Sprintf("v%d", c))
			o := fmt.Sprintf("v%d", c)
			if typ.IsText() {
				o += ` COLLATE "C"`
			}
			order = append(order, o)
		}
		xs := make([]string, len(types))
		for c := range xs {
			xs[c] = fmt.Sprintf("x%d", c)
		}
		seed := seeds[r.IntN(len(seeds))]
		sql := fmt.Sprintf("SELECT n, %s FROM (SELECT %s, n FROM ROWS FROM (unnest(%s)) WITH ORDINALITY AS u(%s, n)) s ORDER BY %s, n",
			KeyHashExpr(types, names, seed), strings.Join(casts, ", "), strings.Join(unnest, ", "), strings.Join(xs, ", "), strings.Join(order, ", "))
		rows := db.rows(t, sql, arrays...)
		checkOrder(t, rows, func(i int) Key { return keys[i] })
		for _, row := range rows {
			i, _ := strconv.Atoi(row[0])
			if h := strconv.FormatInt(HashKey(seed, keys[i-1]), 10); h != row[1] {
				t.Fatalf("%v of %v with seed %d hashes to %s, PostgreSQL says %s", keys[i-1], types, seed, h, row[1])
			}
		}
	}
}

// testTexts: whatever is accepted is accepted by the server with the same
// value; whatever is refused with a code other than 0A000, the server refuses
// with that code.
func testTexts(t *testing.T, db *database) {
	for _, typ := range Types() {
		t.Run(typ.ShortName(), func(t *testing.T) {
			texts := probeTexts(seeded(t), typ, 1500)
			checkTexts(t, db, typ, texts)
		})
	}
}

func checkTexts(t *testing.T, db *database, typ Type, texts []string) {
	t.Helper()
	got := db.rows(t, fmt.Sprintf("SELECT probe('%s', '%s', x) FROM unnest($1::text[]) WITH ORDINALITY AS u(x, n) ORDER BY n", typ, sendFunction[typ]), texts)
	accepted, refused := 0, 0
	for i, text := range texts {
		theirs := got[i][0]
		v, err := ParseText(typ, []byte(text))
		code := sqlstate.CodeOf(err)
		switch {
		case err == nil:
			accepted++
			if mine := hex.EncodeToString(v.AppendBinary(nil)); mine != theirs {
				t.Errorf("%s %q is read as %s (%s), PostgreSQL has %s", typ, text, mine, v.Text(), theirs)
			}
		case code == sqlstate.FeatureNotSupported:
			refused++
			if sqlstate.As(err).Hint == "" {
				t.Errorf("%s %q is refused without a hint: %v", typ, text, err)
			}
		case theirs != "error "+string(code):
			// Where a number is both too long and followed by a letter, versions differ.
			if !(typ.IsInteger() && strings.HasPrefix(theirs, "error 22")) {
				t.Errorf("%s %q is refused: %v; PostgreSQL has %s", typ, text, err, theirs)
			}
		}
	}
	if accepted == 0 {
		t.Errorf("%s: none of %d texts was accepted", typ, len(texts))
	}
	if typ.IsText() && refused > 0 {
		t.Errorf("%s: %d texts were refused with 0A000", typ, refused)
	}
}

// testSettings: what is accepted means the same whatever a session has set.
func testSettings(t *testing.T, db *database) {
	defer db.run("RESET ALL")
	for _, set := range []string{
		"SET DateStyle = 'SQL, DMY'", "SET DateStyle = 'German, MDY'", "SET DateStyle = 'Postgres, YMD'",
		"SET TimeZone = 'America/New_York'", "SET TimeZone = 'Asia/Kolkata'", "SET TimeZone = '-13'",
		"SET timezone_abbreviations = 'India'", "SET timezone_abbreviations = 'Australia'",
		"SET IntervalStyle = 'sql_standard'", "SET bytea_output = 'escape'",
		"SET extra_float_digits = -15", "SET lc_time = 'C'",
	} {
		db.run("RESET ALL")
		db.run(set)
		for _, typ := range []Type{Date, Timestamp, Timestamptz, Bytea, Bool, Int8} {
			checkTexts(t, db, typ, probeTexts(seeded(t), typ, 200))
		}
		if t.Failed() {
			t.Fatalf("after %s", set)
		}
	}
}

// testLiterals: a literal reads back as the value, whatever the quoting rules.
func testLiterals(t *testing.T, db *database) {
	defer db.run("RESET ALL")
	r := seeded(t)
	for _, set := range []string{"SET standard_conforming_strings = on", "SET standard_conforming_strings = off; SET escape_string_warning = off; SET backslash_quote = off",
		"SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Tokyo'"} {
		db.run("RESET ALL")
		db.run(set)
		for _, typ := range Types() {
			vs := edgeValues(typ)
			for range 100 {
				vs = append(vs, randomValue(r, typ))
			}
			var parts []string
			for _, v := range vs {
				parts = append(parts, fmt.Sprintf("(%s(%s), pg_typeof(%s)::text)", sendFunction[typ], v.Literal(), v.Literal()))
			}
			rows := db.rows(t, "SELECT encode(a, 'hex'), b FROM (VALUES "+strings.Join(parts, ", ")+") AS q(a, b)")
			for i, v := range vs {
				if mine := hex.EncodeToString(v.AppendBinary(nil)); mine != rows[i][0] || rows[i][1] != typ.String() {
					t.Fatalf("the literal %s is read as %s %s, not %s (%s)", v.Literal(), rows[i][1], rows[i][0], mine, set)
				}
			}
		}
	}
	for _, s := range []string{"a\x00b", "\xff", "a\\\x00'"} {
		lit := Str(Text, s).Literal()
		_, err := db.conn.Exec(context.Background(), "SELECT "+lit).ReadAll()
		pgErr, ok := err.(*pgconn.PgError)
		if !ok || pgErr.Code != "22021" {
			t.Errorf("the literal %s of %q gives %v, want 22021", lit, s, err)
		}
	}
}

// testModifiers: what a column with a modifier stores.
func testModifiers(t *testing.T, db *database) {
	r := seeded(t)
	for _, name := range []string{"varchar(1)", "character varying(5)", "timestamp(0)", "timestamp(3) without time zone", "timestamp(6)", "timestamp(5) with time zone", "timestamptz(1)"} {
		typ, mod, err := ParseColumnType(name)
		if err != nil || mod == NoModifier {
			t.Fatalf("%s: %v, %d", name, err, mod)
		}
		vs := edgeValues(typ)
		for range 500 {
			vs = append(vs, randomValue(r, typ))
		}
		if typ == Varchar {
			for _, s := range []string{"abcde   ", "é€😀xy ", "     ", "      ", "é "} {
				vs = append(vs, Str(typ, s))
			}
		}
		var stored []Value
		var texts []string
		tooLong := 0
		for _, v := range vs {
			c, err := mod.Coerce(v)
			if err != nil {
				if tooLong++; tooLong <= 20 {
					_, serr := db.conn.Exec(context.Background(), "CREATE TEMP TABLE too_long (v "+name+"); INSERT INTO too_long VALUES ("+v.Literal()+")").ReadAll()
					pgErr, ok := serr.(*pgconn.PgError)
					if !ok || pgErr.Code != string(sqlstate.CodeOf(err)) {
						t.Fatalf("%v into %s: %v, PostgreSQL says %v", v, name, err, serr)
					}
				}
				continue
			}
			stored, texts = append(stored, c), append(texts, v.Text())
		}
		db.run("DROP TABLE IF EXISTS stored; CREATE TABLE stored (n bigint, v " + name + ")")
		db.rows(t, fmt.Sprintf("INSERT INTO stored SELECT n, x::%s FROM unnest($1::text[]) WITH ORDINALITY AS u(x, n)", typ), texts)
		rows := db.rows(t, fmt.Sprintf("SELECT encode(%s(v), 'hex') FROM stored ORDER BY n", sendFunction[typ]))
		for i, c := range stored {
			// Rounding can leave the range at its very end; PostgreSQL 14 to 18 keep such a value.
			if mine := hex.EncodeToString(c.AppendBinary(nil)); mine != rows[i][0] {
				t.Fatalf("%s in %s becomes %s, PostgreSQL stores %s", texts[i], name, mine, rows[i][0])
			}
		}
	}
}

// testCatalogue: names and object identifiers, and every spelling of a name.
func testCatalogue(t *testing.T, db *database) {
	expr, want := Probe()
	if rows := db.rows(t, "SELECT "+expr); rows[0][0] != strconv.FormatInt(want, 10) {
		t.Errorf("the probe gives %s, want %d", rows[0][0], want)
	}
	for _, typ := range Types() {
		rows := db.rows(t, fmt.Sprintf("SELECT oid, format_type(oid, NULL), typname, typdefault IS NULL FROM pg_type WHERE oid = '%s'::regtype", typ))
		if rows[0][0] != strconv.Itoa(int(typ.OID())) || rows[0][1] != typ.String() || rows[0][2] != typ.ShortName() {
			t.Errorf("%s: PostgreSQL has %v", typ, rows[0])
		}
	}
	for _, name := range []string{"int", "INT4", " int8", "pg_catalog.int2", "char varying", "national  character varying", "nchar varying(7)", "timestamp (3) with time zone", "Timestamptz(0)", "bool", "varchar ( 5 )"} {
		typ, _, err := ParseColumnType(name)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if rows := db.rows(t, "SELECT format_type('"+name+"'::regtype, NULL)"); rows[0][0] != typ.String() {
			t.Errorf("%q is %s, PostgreSQL says %s", name, typ, rows[0][0])
		}
	}
}

// seeded returns the test's own generator. Its seed is the test's name, so a
// failure comes again.
func seeded(t *testing.T) *rand.Rand {
	var seed [32]byte
	copy(seed[:], slices.Concat([]byte(t.Name()), seed[:]))
	return rand.New(rand.NewChaCha8(seed))
}
