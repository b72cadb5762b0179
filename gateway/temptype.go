package gateway

import (
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// A name without schema means a type of pg_temp before all others. The session's are in its kept conversation alone: elsewhere the name
// means another type, or none. So a statement that names one runs on that conversation, or is refused.

// tempKind says what a name in pg_temp may be.
type tempKind uint8

const (
	tempRelation tempKind = 1 << iota // its row type is a type as well
	tempType
)

// isTemp reports whether a name may be of a temporary table, view or index of the session.
func (x *session) isTemp(name string) bool { return x.temps[name]&tempRelation != 0 }

// namesType reports whether a name may be of a type in pg_temp of the session. PostgreSQL puts underscores before the name of an array type.
func (x *session) namesType(name string) bool {
	if x.temps[name] != 0 || name == "" || name[0] != '_' {
		return x.temps[name] != 0
	}
	for own := range x.temps {
		if strings.TrimLeft(own, "_") == strings.TrimLeft(name, "_") {
			return true
		}
	}
	return false
}

// tempTypeOf is a name in the statement that may be of a type in pg_temp of the session, "" if there is none.
func (x *session) tempTypeOf(st *planner.Statement) string {
	if len(x.temps) == 0 {
		return ""
	}
	for _, name := range st.Types {
		if name == planner.AnyType {
			for own, kind := range x.temps {
				if kind&tempType != 0 {
					return own
				}
			}
		}
		if x.namesType(name) {
			return name
		}
	}
	return ""
}

// refuseTempType is the error of a statement that names a type in pg_temp, and does not run where that is.
func refuseTempType(name string) error {
	return sqlstate.Refuse("the type "+name+" may be one in pg_temp of this session, which is in a session of the default shard: a statement that runs elsewhere cannot name it",
		"write the schema of another type of that name; or use two statements, of which the one that names the type reads whole and reference tables only")
}

// tempTyped refuses a statement that names a type in pg_temp, if it does not run where that is.
func (x *session) tempTyped(st *planner.Statement) error {
	name := x.tempTypeOf(st)
	if name == "" || st.Pins {
		return nil
	}
	switch st.Kind {
	case planner.OneShard, planner.Several, planner.Virtual, planner.Call:
		return refuseTempType(name)
	case planner.DDLKind:
		if !x.temporary(st) {
			return refuseTempType(name)
		}
	}
	return nil
}

// reachedTemp refuses a statement that names a type in pg_temp, if the conversation at hand is not the kept one.
func (x *session) reachedTemp(st *planner.Statement) error {
	if !x.onPin() {
		return refuseTempType(x.tempTypeOf(st))
	}
	x.tx.temporary = x.tx.temporary || x.tx.state != txNone
	return nil
}

// onPin reports whether what is sent to the default shard now goes to the kept conversation.
func (x *session) onPin() bool {
	if x.tx.schema != nil {
		for _, c := range x.tx.bound {
			if c == x.pin {
				return true
			}
		}
	}
	return x.pipe.Conn != nil && several.TakesPart(x.pipe.Conn, x.pin)
}

// freeTypeName refuses the name of another type for one in pg_temp. Statements that name it could be refused, but there is more that
// looks names up: the bodies of functions, and what shows a name with its schema or without.
func (x *session) freeTypeName(name string) error {
	shard := x.srv.ex.Snapshot().State().DefaultShard
	c, err := x.acquire(shard, x.settings)
	if err != nil {
		return err
	}
	defer c.Release()
	names := executor.QuoteLiteral(name) + ", " + executor.QuoteLiteral(multirangeOf(name))
	res, err := x.exec(c, "SELECT t.typname FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace WHERE t.typname IN ("+names+`) AND n.nspname NOT LIKE 'pg\_temp\_%' LIMIT 1`)
	if err != nil {
		return x.shardSaid(c, err)
	}
	if len(res.Rows) > 0 {
		return sqlstate.Refuse("a type in pg_temp cannot have the name of the type "+res.Rows[0][0].String+", which it would hide", "give it another name")
	}
	return nil
}

// multirangeOf is the name that PostgreSQL gives the multirange type of a range type (makeMultirangeTypeName).
func multirangeOf(name string) string {
	const most, suffix = 63, "_multirange"
	if i := strings.Index(name, "range"); i >= 0 {
		return clipped(name[:i]+"multi"+name[i:], most)
	}
	return clipped(name, most-len(suffix)) + suffix
}

// clipped is a name of at most so many bytes, as pg_mbcliplen cuts it.
func clipped(name string, most int) string {
	if len(name) <= most {
		return name
	}
	for most > 0 && name[most]&0xc0 == 0x80 {
		most--
	}
	return name[:most]
}

// hasTempTypes reports whether the types are in pg_temp now, and not only made there in what was rolled back.
func (x *session) hasTempTypes(names []string) (bool, error) {
	for _, name := range names {
		res, err := x.exec(x.pin, "SELECT FROM pg_catalog.pg_type WHERE typnamespace = pg_catalog.pg_my_temp_schema() AND typname = "+executor.QuoteLiteral(name))
		if err != nil {
			return false, x.shardSaid(x.pin, err)
		}
		if len(res.Rows) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// mayChangeTypes looks at a change of types of the session that has no schema in it: such a type may have been rolled back, and the new name
// may be another's.
func (x *session) mayChangeTypes(st *planner.Statement) error {
	if len(st.DDL.OfTypes) == 0 {
		return nil
	}
	if has, err := x.hasTempTypes(st.DDL.OfTypes); err != nil || !has {
		if err == nil {
			err = refuseTempType(st.DDL.OfTypes[0])
		}
		return err
	}
	if st.TempType == "" {
		return nil
	}
	if err := x.freeTypeName(st.TempType); err != nil {
		return err
	}
	x.remembersTemp(st.TempType, tempType|x.temps[st.DDL.OfTypes[0]])
	return nil
}
