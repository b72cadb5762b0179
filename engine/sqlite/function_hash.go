package sqlite

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/internal/pgcatalog"
	"github.com/cleavedb/cleave/internal/pgoid"
)

// recordHash is hash_record_extended(ROW(x), seed) of a date or a bytea, which is
// how PostgreSQL is asked for the hash of those (keyspace.HashExpr). Other rows
// are not known here.
func (t *translator) recordHash(f *pg.FuncCall) (expr, bool) {
	if len(f.Args) != 2 || f.Over != nil || len(f.Args[0].GetRowExpr().GetArgs()) != 1 {
		return expr{}, false
	}
	x := t.expr(f.Args[0].GetRowExpr().Args[0])
	if x.typ != pgoid.Date && x.typ != pgoid.Bytea {
		return expr{}, false
	}
	seed := t.coerce(t.expr(f.Args[1]), pgoid.Int8, -1, pgcatalog.Implicit)
	return expr{sql: call("cleave_hash_extended", x.sql, seed.sql, int64(x.typ)), typ: pgoid.Int8, mod: -1, name: "hash_record_extended"}, true
}
