package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/planner/builtin"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// PostgreSQL reads x.f and (x).f as f(x) where x has no column f. So a name behind a point is looked at like a call,
// unless it is known to be a column.

// field notes the names behind a point in a body. It reports whether they may stand there.
func (b *body) field(names []string, alone bool) bool {
	if alone && !b.rows {
		return true // of a variable of PL/pgSQL
	}
	for _, name := range names {
		if builtin.Field(name) && (builtin.ReachesFurther(name) && !b.acts || builtin.ActsOnSession(name)) {
			return false
		}
		b.fields[name] = true
	}
	return true
}

// field refuses a name behind a point that may be a call which is not let through.
func (ns *namespace) field(m proto.Message, sc *scope) {
	names, alone := sqltree.FieldOf(m)
	for _, name := range names {
		if !ns.calledByPoint(name) || alone && sc.resolve(sqltree.FieldNames(m.(*pg.ColumnRef))).name != "" {
			continue
		}
		fail(sqlstate.Refusal("CLV-0238", ".%s may be a call of the function %s(), which is not let through in this form", name, name).
			WithHint("call it as %s(...), or give the column another name", name))
	}
}

// calledByPoint reports whether a function of a name goes beyond its arguments, or is not known to do so.
func (ns *namespace) calledByPoint(name string) bool {
	return builtin.Field(name) && builtin.ReachesFurther(name) || ns.snap.Unpromised(name)
}
