package planner

import (
	"fmt"
	"strings"
	"testing"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/sqltext"
)

// FuzzFill checks that what a router puts into a statement leaves it a statement:
// both texts parse, have the same shape, and name every parameter once.
func FuzzFill(f *testing.F) {
	for _, s := range []string{
		`INSERT INTO bills (tenant) VALUES (5)`, `INSERT INTO bills VALUES (5), (6)`, `insert into public.bills as "b" (tenant, note) values ($1, ')') returning b.id`,
		`INSERT INTO users DEFAULT VALUES RETURNING *`, `INSERT INTO users (name) /* ( */ VALUES -- )
			('x'), (('y')), (ARRAY['a','b'][1])`, `INSERT INTO users (id, name) OVERRIDING USER VALUE VALUES ((1 + 2), 'a,b')`,
		`SELECT nextval('free_seq'), (nextval('free_seq'))::text || 'x' t, $1`, `SELECT cleave.next_id() FROM generate_series(1, 3);`,
		`WITH b AS (INSERT INTO bills VALUES (5, DEFAULT) RETURNING id) INSERT INTO orders (tenant_id, id) VALUES (5, cleave.next_id()) ON CONFLICT DO NOTHING;`,
		`EXPLAIN INSERT INTO files (path) VALUES (e'\'')`, `SELECT setval('free_seq', $1, false), nextval(pg_get_serial_sequence('bills', 'id'))`,
		`INSERT INTO docs (id, body) VALUES (gen_random_uuid(), $$a,b$$), (uuidv7(), U&'x')`, `INSERT INTO "bills"("tenant","note")VALUES(5,DEFAULT)`,
	} {
		f.Add(s)
	}
	snap := testSnapshot(f)
	p := New(Limits{})
	f.Fuzz(func(t *testing.T, sql string) {
		st, err := p.Analyze(sql, snap, []string{"public"})
		if err != nil || st.Fill == nil {
			return
		}
		var values [][]byte
		for i := range st.Fill.Values {
			values = append(values, fmt.Appendf(nil, "%d", i))
		}
		literal := st.Fill.Literals(values)
		for _, text := range []string{st.Text, literal} {
			if strings.ContainsRune(text, 0) {
				t.Fatalf("a mark is left in %q", text)
			}
			if _, err := pg.Parse(text); err != nil {
				t.Fatalf("%q became %q: %v", sql, text, err)
			}
		}
		for i := range st.Fill.Values {
			mark := sqltext.Dollar(st.Params+1+i) + "::"
			if n := strings.Count(st.Text, mark); n != 1 {
				t.Fatalf("%q became %q: %s is there %d times", sql, st.Text, mark, n)
			}
		}
		if st.Reusable {
			t.Fatalf("%q is reusable", sql)
		}
	})
}
