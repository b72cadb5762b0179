package clustercatalog

import (
	"testing"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// TestAsksVirtual: which statements the catalogue shows the schema cleave to.
func TestAsksVirtual(t *testing.T) {
	for sql, want := range map[string]bool{
		`SELECT 1 FROM pg_namespace AS n WHERE n.nspname = 'cleave'`:                                                        true,
		`SELECT 1 FROM pg_namespace AS n WHERE 'cleave' = nspname`:                                                          true,
		`SELECT 1 FROM pg_namespace WHERE nspname OPERATOR(pg_catalog.~) '^(cleave)$' COLLATE pg_catalog.default`:           true,
		`SELECT 1 FROM pg_namespace WHERE nspname LIKE 'cleave'`:                                                            true,
		`SELECT 1 FROM pg_namespace WHERE nspname IN ('public', 'cleave')`:                                                  true,
		`SELECT 1 FROM pg_namespace WHERE lower(nspname) = ANY ('{public,cleave}')`:                                         true,
		`SELECT 1 FROM pg_namespace WHERE nspname = $1`:                                                                     true,
		`SELECT 1 FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cleave')`:               true,
		`SELECT 1 FROM pg_attribute WHERE attrelid = '9001'`:                                                                true,
		`SELECT 1 FROM pg_attribute WHERE attrelid IN (16400, 9001)`:                                                        true,
		`SELECT 1 FROM pg_attribute WHERE attrelid = 'cleave.shards'::regclass`:                                             true,
		`SELECT 1 FROM pg_proc WHERE oid = CAST('cleave.move' AS regproc)`:                                                  true,
		`SELECT 1 FROM pg_class WHERE relnamespace = 'cleave'::regnamespace`:                                                true,
		`SELECT 1 FROM information_schema.tables WHERE table_schema = 'cleave'`:                                             true,
		`SELECT 1 FROM pg_namespace`:                                                                                        false,
		`SELECT 1 FROM pg_namespace WHERE nspname <> 'cleave'`:                                                              false,
		`SELECT 1 FROM pg_namespace WHERE nspname !~ '^cleave$'`:                                                            false,
		`SELECT 1 FROM pg_namespace WHERE nspname NOT IN ('cleave', 'information_schema')`:                                  false,
		`SELECT 1 FROM pg_namespace WHERE nspname NOT LIKE $1 AND nspname <> ALL ($2)`:                                      false,
		`SELECT 1 FROM pg_namespace WHERE nspname = 'cleave_internal'`:                                                      false,
		`SELECT 1 FROM pg_namespace WHERE nspname LIKE '%'`:                                                                 false,
		`SELECT 1 FROM information_schema.tables WHERE table_catalog = 'cleave' AND table_schema NOT IN ('pg_catalog')`:     false,
		`SELECT 1 FROM pg_database WHERE datname = 'cleave'`:                                                                false,
		`SELECT 1 FROM pg_attribute WHERE attrelid = '16400'`:                                                               false,
		`SELECT 1 FROM pg_class WHERE relname = 'shards'`:                                                                   false,
		`SELECT 1 FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'public') LIMIT 9001`:    false,
		`SELECT 'cleave', 9001 FROM pg_class WHERE relpages = 9001`:                                                         false,
		`SELECT 1 FROM pg_attribute WHERE attrelid = 'orders'::regclass`:                                                    false,
		`SELECT 1 FROM pg_attribute AS a JOIN pg_class AS c ON a.attrelid = c.oid AND c.relname = $1 WHERE a.attnum = 9001`: false,
	} {
		tree, err := pg.Parse(sql)
		if err != nil {
			t.Fatal(err)
		}
		if got := asksVirtual(tree.Stmts[0].Stmt); got != want {
			t.Errorf("%s: %v", sql, got)
		}
	}
}
