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

// tempNames are the names that may be in the pg_temp of a session.
type tempNames map[string]tempKind

// tempKind says what a name in pg_temp may be.
type tempKind uint8

const (
	tempRelation tempKind = 1 << iota // its row type is a type as well
	tempType
)

// isTemp reports whether a name may be of a temporary table, view or index of the session.
func (t tempNames) isRelation(name string) bool { return t[name]&tempRelation != 0 }

// namesType reports whether a name may be of a type in pg_temp of the session. PostgreSQL puts underscores before the name of an array type.
func (t tempNames) namesType(name string) bool {
	if t[name] != 0 || name == "" || name[0] != '_' {
		return t[name] != 0
	}
	for own := range t {
		if strings.TrimLeft(own, "_") == strings.TrimLeft(name, "_") {
			return true
		}
	}
	return false
}

// tempTypeOf is a name in the statement that may be of a type in pg_temp of the session, "" if there is none.
func (t tempNames) typeOf(st *planner.Statement) string {
	if len(t) == 0 {
		return ""
	}
	for _, name := range st.Types {
		if name == planner.AnyType {
			for own, kind := range t {
				if kind&tempType != 0 {
					return own
				}
			}
		}
		if t.namesType(name) {
			return name
		}
	}
	return ""
}

// refuseTempType is the error of a statement that names a type in pg_temp, and does not run where that is.
func refuseTempType(name string) error {
	return sqlstate.Refusal("CLV-0813", "the type %s may be one in pg_temp of this session, which is in a session of the default shard: a statement that runs elsewhere cannot name it", name).
		WithHint("write the schema of another type of that name; or use two statements, of which the one that names the type reads whole and reference tables only")
}

// tempTyped refuses a statement that names a type in pg_temp, if it does not run where that is.
func (t tempNames) refuseTyped(st *planner.Statement) error {
	name := t.typeOf(st)
	if name == "" || st.Pins {
		return nil
	}
	switch st.Kind {
	case planner.OneShard, planner.Several, planner.Virtual, planner.Call:
		return refuseTempType(name)
	case planner.DDLKind:
		if !t.only(st) {
			return refuseTempType(name)
		}
	}
	return nil
}

// reachedTemp refuses a statement that names a type in pg_temp, if the conversation at hand is not the kept one.
func (x *unitRun) reachedTemp(st *planner.Statement) error {
	if !x.shards.onPin() {
		return refuseTempType(x.shards.temps.typeOf(st))
	}
	x.tx.temporary = x.tx.temporary || x.tx.state != txNone
	return nil
}

// onPin reports whether what is sent to the default shard now goes to the kept conversation.
func (b *shardConns) onPin() bool {
	if b.tx.schema != nil {
		for _, c := range b.tx.bound {
			if c == b.pin {
				return true
			}
		}
	}
	return b.pipe.Conn != nil && several.TakesPart(b.pipe.Conn, b.pin)
}

// freeTypeName refuses the name of another type for one in pg_temp. Statements that name it could be refused, but there is more that
// looks names up: the bodies of functions, and what shows a name with its schema or without.
func (b *shardConns) freeTypeName(name string) error {
	shard := b.ex.Snapshot().State().DefaultShard
	c, err := b.acquire(shard, b.gucs.settings)
	if err != nil {
		return err
	}
	defer c.Release()
	names := executor.QuoteLiteral(name) + ", " + executor.QuoteLiteral(multirangeOf(name))
	res, err := b.exec(c, "SELECT t.typname FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace WHERE t.typname IN ("+names+`) AND n.nspname NOT LIKE 'pg\_temp\_%' LIMIT 1`)
	if err != nil {
		return b.shardSaid(c, err)
	}
	if len(res.Rows) > 0 {
		return sqlstate.Refusal("CLV-0814", "a type in pg_temp cannot have the name of the type %s, which it would hide", res.Rows[0][0].String).
			WithHint("give it another name")
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
func (b *shardConns) hasTempTypes(names []string) (bool, error) {
	for _, name := range names {
		res, err := b.exec(b.pin, "SELECT FROM pg_catalog.pg_type WHERE typnamespace = pg_catalog.pg_my_temp_schema() AND typname = "+executor.QuoteLiteral(name))
		if err != nil {
			return false, b.shardSaid(b.pin, err)
		}
		if len(res.Rows) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// mayChangeTypes looks at a change of types of the session that has no schema in it: such a type may have been rolled back, and the new name
// may be another's.
func (x *commands) mayChangeTypes(st *planner.Statement) error {
	if len(st.DDL.OfTypes) == 0 {
		return nil
	}
	if has, err := x.shards.hasTempTypes(st.DDL.OfTypes); err != nil || !has {
		if err == nil {
			err = refuseTempType(st.DDL.OfTypes[0])
		}
		return err
	}
	if st.TempType == "" {
		return nil
	}
	if err := x.shards.freeTypeName(st.TempType); err != nil {
		return err
	}
	x.remembersTemp(st.TempType, tempType|x.shards.temps[st.DDL.OfTypes[0]])
	return nil
}
