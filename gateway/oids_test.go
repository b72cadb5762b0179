package gateway_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// feeling is a composite of the test's, with a user-defined type inside, and an array of that.
type feeling struct {
	M  string
	Ms []string
	N  int32
}

const moodyTable = `CREATE TABLE moody (k bigint, m mood, ms mood[], c feeling, cs feeling[], d short, ds short[], PRIMARY KEY (k)) WITH (cleave.shard_key = 'k')`

var moodyTypes = []string{`CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')`, `CREATE DOMAIN short AS text CHECK (length(value) < 9)`, `CREATE TYPE feeling AS (m mood, ms mood[], n int)`}

// moody makes types that have other OIDs on each shard, and a table of them.
func moody(t *testing.T) (*cluster, *pgx.Conn, []int64) {
	t.Helper()
	cl, conn, keys := orders(t, config{})
	for shard := range keys {
		// Databases of one server count OIDs together, so that no two are the same; this
		// makes them differ on servers of their own as well.
		cl.direct(t, shard, fmt.Sprintf(`DO $$BEGIN FOR i IN 1..%d LOOP EXECUTE format('CREATE TYPE odd%%s AS ENUM ()', i); END LOOP; END$$`, shard))
	}
	for _, sql := range append(moodyTypes, moodyTable) {
		exec(t, conn, sql)
	}
	var one []int64
	for _, ks := range keys {
		one = append(one, ks[0])
	}
	return cl, conn, one
}

// registered is a connection that has looked the types up, as an application does.
func registered(t *testing.T, cl *cluster, options ...string) *pgx.Conn {
	t.Helper()
	conn := cl.connect(t, options...)
	for _, name := range []string{"mood", "mood[]", "feeling", "feeling[]", "short", "short[]"} {
		typ, err := conn.LoadType(context.Background(), name)
		if err != nil {
			t.Fatalf("LoadType(%s): %v", name, err)
		}
		conn.TypeMap().RegisterType(typ)
	}
	return conn
}

// TestOwnTypesInBinary: a driver that has looked user-defined types up in pg_type writes
// and reads them in binary on every shard, in each way in which statements run.
func TestOwnTypesInBinary(t *testing.T) {
	cl, _, keys := moody(t)
	ctx := context.Background()
	feelings := []feeling{{"ok", []string{"sad", "ok"}, 1}, {"happy", nil, 2}}
	for _, mode := range []string{"", "&default_query_exec_mode=cache_describe", "&default_query_exec_mode=describe_exec"} {
		conn := registered(t, cl, mode)
		read := func(what, sql string, args ...any) {
			t.Helper()
			rows, err := conn.Query(ctx, sql, args...)
			if err != nil {
				t.Fatalf("%s%s: %v", what, mode, err)
			}
			n := 0
			for rows.Next() {
				var m, d string
				var ms, ds []string
				var c feeling
				var cs []feeling
				if err := rows.Scan(&m, &ms, &c, &cs, &d, &ds); err != nil {
					t.Fatalf("%s%s: %v", what, mode, err)
				}
				if m != "happy" || !slices.Equal(ms, []string{"sad", "happy"}) || !reflect.DeepEqual(c, feelings[0]) || !reflect.DeepEqual(cs, feelings) || d != "brief" || !slices.Equal(ds, []string{"a", "b"}) {
					t.Errorf("%s%s gives %v %v %v %v %v %v", what, mode, m, ms, c, cs, d, ds)
				}
				n++
			}
			if rows.Err() != nil || n != len(keys) && n != 1 {
				t.Errorf("%s%s: %d rows, %v", what, mode, n, rows.Err())
			}
		}
		const columns = "m, ms, c, cs, d, ds"
		for range 2 { // the second time prepared
			exec(t, conn, `DELETE FROM moody WHERE k >= 0`)
			for _, k := range keys {
				exec(t, conn, `INSERT INTO moody VALUES ($1, $2, $3, $4, $5, $6, $7)`, k, "happy", []string{"sad", "happy"}, feelings[0], feelings, "brief", []string{"a", "b"})
			}
			for _, k := range keys {
				read("one shard", `SELECT `+columns+` FROM moody WHERE k = $1`, k)
				read("what an UPDATE returns", `UPDATE moody SET ms = $2 WHERE k = $1 RETURNING `+columns, k, []string{"sad", "happy"})
			}
			read("a scatter", `SELECT `+columns+` FROM moody ORDER BY k`)
			read("a scatter with parameters", `SELECT `+columns+` FROM moody WHERE ms = $1 AND m = $2 AND c = $3::feeling`, []string{"sad", "happy"}, "happy", feelings[0])
			read("a gather", `SELECT a.m, b.ms, a.c, b.cs, a.d, b.ds FROM moody a JOIN moody b ON a.m = b.m AND a.k = b.k + 0 WHERE $1 = ANY (a.ms)`, "happy")
			read("an aggregate", `SELECT max(m), max(ms), (array_agg(c))[1], max(cs), max(d), max(ds) FROM moody`)
		}
		for _, k := range keys {
			var r struct {
				C  feeling
				Ms []string
				N  int32
			}
			if err := conn.QueryRow(ctx, `SELECT ROW(c, ms, 7) FROM moody WHERE k = $1`, k).Scan(&r); err != nil || !reflect.DeepEqual(r.C, feelings[0]) || !slices.Equal(r.Ms, []string{"sad", "happy"}) {
				t.Errorf("a record%s gives %v, %v", mode, r, err)
			}
		}
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			exec(t, conn, `UPDATE moody SET cs = $2 WHERE k = $1`, k, feelings)
		}
		read("a transaction", `SELECT `+columns+` FROM moody WHERE k = $1`, keys[1])
		read("a transaction's scatter", `SELECT `+columns+` FROM moody`)
		exec(t, conn, `DECLARE c CURSOR FOR SELECT `+columns+` FROM moody`)
		read("a cursor", `FETCH ALL FROM c`)
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		// COPY in binary, of rows for all shards.
		exec(t, conn, `DELETE FROM moody WHERE k >= 0`)
		var rows [][]any
		for _, k := range keys {
			rows = append(rows, []any{k, "happy", []string{"sad", "happy"}, feelings[0], feelings, "brief", []string{"a", "b"}})
		}
		if n, err := conn.CopyFrom(ctx, pgx.Identifier{"moody"}, []string{"k", "m", "ms", "c", "cs", "d", "ds"}, pgx.CopyFromRows(rows)); n != int64(len(keys)) || err != nil {
			t.Fatalf("CopyFrom%s: %d rows, %v", mode, n, err)
		}
		read("rows of a COPY", `SELECT `+columns+` FROM moody`)
	}
}

// TestOIDsAreTheDefaultShards: what shards say about the same rows is the same, byte
// by byte: the types and tables of columns, and values.
func TestOIDsAreTheDefaultShards(t *testing.T) {
	cl, conn, keys := moody(t)
	ctx := context.Background()
	exec(t, conn, `CREATE TABLE kinds (m mood PRIMARY KEY, ms mood[]) WITH (cleave.reference = true)`)
	exec(t, conn, `INSERT INTO kinds VALUES ('ok', '{sad}')`)
	for _, sql := range []string{`CREATE SCHEMA own`, `CREATE FUNCTION own.twice(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2 * $1'`, `CREATE COLLATION own.plain (locale = 'C')`,
		`CREATE TEXT SEARCH CONFIGURATION own.words (COPY = simple)`} {
		exec(t, conn, sql)
	}
	exec(t, conn, `ALTER TABLE moody ADD COLUMN gone int`)
	exec(t, conn, `ALTER TABLE moody DROP COLUMN gone`)
	exec(t, conn, `ALTER TABLE moody ADD COLUMN late text DEFAULT 'x'`)
	fill := func() {
		for _, k := range keys {
			exec(t, conn, fmt.Sprintf(`INSERT INTO moody VALUES (%d, 'ok', '{sad,ok}', '(ok,"{sad,happy}",1)', ARRAY[('sad', NULL, 2)::feeling], 'd', '{e,f}')`, k))
		}
	}
	fill()
	raw := conn.PgConn()
	number := func(name string) uint32 {
		return one[uint32](t, conn, `SELECT oid FROM pg_type WHERE typname = $1 AND typnamespace = 'public'::regnamespace`, name)
	}
	says := func(r *pgconn.Result) string {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		var b bytes.Buffer
		for _, f := range r.FieldDescriptions {
			fmt.Fprintf(&b, "%s %d.%d %d %d\n", f.Name, f.TableOID, f.TableAttributeNumber, f.DataTypeOID, f.Format)
		}
		for _, row := range r.Rows {
			for _, v := range row {
				b.WriteString(hex.EncodeToString(v) + " ")
			}
			b.WriteByte('\n')
		}
		return b.String()
	}
	texts := []string{
		`SELECT m, ms, c, cs, d, ds, ROW(m, ms, cs), ARRAY[ROW(m, c)], 'mood'::regtype, 'moody'::regclass, late, t.late || 'y' AS made FROM moody t WHERE k = %d`,
		`SELECT 'own'::regnamespace, 'own.twice'::regproc, 'own.twice(int)'::regprocedure, 'own.plain'::regcollation, 'own.words'::regconfig, ARRAY['own'::regnamespace, 'public'],
			'pg_catalog.simple'::regdictionary, '+(int,int)'::regoperator, ROW('own.twice'::regproc, current_user::regrole), tableoid::regclass, tableoid = 'moody'::regclass FROM moody WHERE k = %d`,
		`SELECT x.*, kinds.* FROM moody t, LATERAL (SELECT m, ms, late) x, kinds WHERE t.k = %d`,
		`DELETE FROM moody WHERE k = %d AND false RETURNING *`,
	}
	check := func() {
		t.Helper()
		for _, text := range texts {
			var want [3]string
			for i, k := range keys {
				sql := fmt.Sprintf(text, k)
				simple, err := raw.Exec(ctx, sql).ReadAll()
				if err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
				got := [3]string{says(simple[0]), says(raw.ExecParams(ctx, sql, nil, nil, nil, []int16{1}).Read())}
				if _, err := raw.Prepare(ctx, "p", sql, nil); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
				got[2] = says(raw.ExecPrepared(ctx, "p", nil, nil, []int16{1}).Read())
				if err := raw.Deallocate(ctx, "p"); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					want = got
				}
				if got != want {
					t.Errorf("%s: shard %d says\n%v\nshard 0\n%v", text, i, got, want)
				}
			}
		}
		for _, k := range keys {
			if r := raw.ExecParams(ctx, fmt.Sprintf(`SELECT t FROM moody t WHERE k = %d`, k), nil, nil, nil, nil).Read(); r.Err != nil || r.FieldDescriptions[0].DataTypeOID != number("moody") {
				t.Errorf("a row says %+v, %v", r.FieldDescriptions, r.Err)
			}
		}
		// Parameters in binary whose types nobody has told; the second time they are known.
		mood := number("mood")
		for text, value := range map[string][]byte{
			`SELECT $1::regclass::text = 'moody' FROM moody WHERE k = %d`:                                   uint32Bytes(one[uint32](t, conn, `SELECT 'moody'::regclass::oid`)),
			`SELECT CAST($1 AS regtype)::text = 'mood' FROM moody WHERE k = %d`:                             uint32Bytes(mood),
			`SELECT $1::regprocedure::text = 'own.twice(integer)' FROM moody WHERE k = %d`:                  uint32Bytes(one[uint32](t, conn, `SELECT 'own.twice'::regproc::oid`)),
			`SELECT $1 = ms AND $1 @> ms FROM moody WHERE k = %d`:                                           slices.Concat(words(1, 0, mood, 2, 1, 3), []byte("sad"), words(2), []byte("ok")),
			`UPDATE moody SET ms = $1 WHERE k = %d RETURNING ms = '{sad,ok}'`:                               slices.Concat(words(1, 0, mood, 2, 1, 3), []byte("sad"), words(2), []byte("ok")),
			`SELECT $1::regnamespace = 'own'::regnamespace AND late = 'x' FROM moody WHERE k = %d`:          uint32Bytes(one[uint32](t, conn, `SELECT 'own'::regnamespace::oid`)),
			`SELECT d = 'd' AND $1 <> ALL (ds) FROM moody WHERE k = %d /* long, and not a value of OIDs */`: []byte("only a text"),
		} {
			for _, k := range keys {
				sql := fmt.Sprintf(text, k)
				b := &pgconn.Batch{}
				b.ExecPrepared("p", [][]byte{value}, []int16{1}, nil)
				b.ExecPrepared("p", [][]byte{value}, []int16{1}, nil)
				b.ExecParams(sql, [][]byte{value}, nil, []int16{1}, nil)
				if err := raw.Exec(ctx, "PREPARE p AS "+sql).Close(); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
				results, err := raw.ExecBatch(ctx, b).ReadAll()
				if err != nil {
					t.Errorf("%s: %v", sql, err)
				}
				for i, r := range results {
					if len(r.Rows) != 1 || string(r.Rows[0][0]) != "t" {
						t.Errorf("%s gives %q, time %d", sql, r.Rows, i)
					}
				}
				exec(t, conn, `DEALLOCATE p`)
			}
		}
		r := raw.ExecParams(ctx, fmt.Sprintf(`SELECT $1::regclass FROM moody WHERE k = %d`, keys[1]), [][]byte{uint32Bytes(4_000_000_000)}, nil, []int16{1}, nil).Read()
		if codeOf(r.Err) != "42704" {
			t.Errorf("a number that is no table's: %v", r.Err)
		}
		for range 6 { // any shard answers
			r := raw.ExecParams(ctx, `SELECT m, ms FROM kinds`, nil, nil, nil, []int16{1}).Read()
			if f := r.FieldDescriptions; r.Err != nil || f[0].DataTypeOID != number("mood") || f[1].DataTypeOID != number("_mood") || len(r.Rows) != 1 ||
				!bytes.Equal(r.Rows[0][1][8:12], uint32Bytes(number("mood"))) {
				t.Fatalf("the reference table: %+v, %v", r.FieldDescriptions, r.Err)
			}
		}
		if r := raw.ExecParams(ctx, `SELECT k, m, late FROM moody ORDER BY k`, nil, nil, nil, nil).Read(); r.Err != nil || r.FieldDescriptions[2].TableOID != one[uint32](t, conn, `SELECT 'moody'::regclass::oid`) {
			t.Errorf("a scatter says %+v, %v", r.FieldDescriptions, r.Err)
		}
	}
	check()
	// COPY in binary, of the table and of queries.
	copied := func(sql string) []byte {
		t.Helper()
		var b bytes.Buffer
		if _, err := raw.CopyTo(ctx, &b, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return b.Bytes()
	}
	first := copied(fmt.Sprintf(`COPY (SELECT m, ms, c, cs, ds FROM moody WHERE k = %d) TO STDOUT (FORMAT binary)`, keys[0]))
	for _, k := range keys {
		if got := copied(fmt.Sprintf(`COPY (SELECT m, ms, c, cs, ds FROM moody WHERE k = %d) TO STDOUT (FORMAT binary)`, k)); !bytes.Equal(got, first) {
			t.Errorf("COPY of shard's %d row gives\n%x\nfirst\n%x", k, got, first)
		}
	}
	row := first[19 : len(first)-2]
	for _, sql := range []string{`COPY moody (m, ms, c, cs, ds) TO STDOUT (FORMAT binary)`, `COPY (SELECT m, ms, c, cs, ds FROM moody) TO STDOUT (FORMAT binary)`} {
		if got := copied(sql); !bytes.Equal(got[19:len(got)-2], bytes.Repeat(row, len(keys))) {
			t.Errorf("%s gives\n%x\nwant %d times\n%x", sql, got, len(keys), row)
		}
	}
	// A portal of a transaction that goes over to several shards, and types declared in Parse.
	for _, k := range keys {
		r := raw.ExecParams(ctx, `SELECT k FROM moody WHERE k = $1 AND m = $2 AND ms = $3`, [][]byte{[]byte(fmt.Sprint(k)), []byte("ok"), []byte("{sad,ok}")}, []uint32{20, number("mood"), number("_mood")}, nil, nil).Read()
		if r.Err != nil || len(r.Rows) != 1 {
			t.Errorf("declared types: %v, %d rows", r.Err, len(r.Rows))
		}
		wantCode(t, conn, "", `PREPARE q (bigint, mood, mood[]) AS SELECT k FROM moody WHERE k = $1 AND m = $2 AND ms = $3`)
		wantCode(t, conn, "", fmt.Sprintf(`EXECUTE q (%d, 'ok', '{sad,ok}')`, k))
		exec(t, conn, `DEALLOCATE q`)
		if r := raw.ExecParams(ctx, `SELECT k FROM moody WHERE k = $1 AND $2 IS NOT NULL`, [][]byte{[]byte(fmt.Sprint(k)), nil}, []uint32{20, 4_000_000_000}, nil, nil).Read(); codeOf(r.Err) == "" {
			t.Error("a type that does not exist was taken")
		}
	}
	// What is remembered goes with the types.
	exec(t, conn, `DROP TABLE moody, kinds`)
	exec(t, conn, `DROP TYPE feeling, mood, short`)
	for _, sql := range append(moodyTypes, moodyTable, `ALTER TABLE moody ADD COLUMN late text DEFAULT 'x'`,
		`CREATE TABLE kinds (m mood PRIMARY KEY, ms mood[]) WITH (cleave.reference = true)`, `INSERT INTO kinds VALUES ('ok', '{sad}')`) {
		exec(t, conn, sql)
	}
	fill()
	check()
	_ = cl
}

func words(n ...uint32) (b []byte) {
	for _, w := range n {
		b = append(b, uint32Bytes(w)...)
	}
	return b
}

func uint32Bytes(n uint32) []byte { return []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }
