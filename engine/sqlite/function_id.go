package sqlite

import (
	"github.com/google/uuid"
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/sqlstate"
)

func init() {
	defVolatile("cleave_uuidv7", 0, func(v *env, a []arg) (value.Datum, error) {
		u, err := uuid.NewV7()
		if err != nil {
			return failV(err)
		}
		return blobV(string(u[:]))
	})
	defVolatile("cleave_router_value", 1, func(v *env, a []arg) (value.Datum, error) {
		what := "cleave.next_id()"
		if name := a[0].Text(); name != "" {
			what = "the sequence " + name
		}
		return failV(sqlstate.New(sqlstate.ObjectNotInState, "%s is the router's: its values are not given on a shard", what).
			WithHint("insert through the router, or give the value"))
	})
}

// routerFunction translates the functions of the schema cleave_internal that stand in
// defaults: what routers evaluate fails here, so that nobody gets a value twice.
// uuidv7() needs no router.
func (t *translator) routerFunction(f *pg.FuncCall, name string) (e expr, ok bool) {
	if f.AggStar || f.AggDistinct || f.Over != nil || f.AggFilter != nil || len(f.AggOrder) > 0 {
		return e, false
	}
	e = expr{typ: pgoid.Int8, mod: -1, name: name}
	switch {
	case name == "uuidv7" && len(f.Args) == 0:
		e.typ, e.sql = pgoid.UUID, "cleave_uuidv7()"
	case name == "next_id" && len(f.Args) == 0:
		e.sql = "cleave_router_value('')"
	case name == "nextval" && (len(f.Args) == 1 || len(f.Args) == 2) && constText(f.Args[0]) != nil:
		e.sql = "cleave_router_value(" + quote.Text(constText(f.Args[0]).Sval) + ")"
	default:
		return e, false
	}
	t.volatile++
	return e, true
}

// constText is a text constant, also with the cast to text by which PostgreSQL prints it; nil for all else.
func constText(n *pg.Node) *pg.String {
	if c := n.GetTypeCast(); c != nil && builtinName(c.TypeName) == "text" {
		n = c.Arg
	}
	return n.GetAConst().GetSval()
}
