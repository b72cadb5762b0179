package gateway

import (
	"fmt"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// room refuses statements over the session's bounds, and types that shards do not share.
func (x *session) room(s *statement) error {
	const firstUser = 16384 // FirstNormalObjectId of transam.h
	for i, oid := range s.oids {
		if oid >= firstUser && s.plan.Kind != planner.DefaultShard {
			return sqlstate.Refuse(fmt.Sprintf("parameter $%d is declared with a type that is not PostgreSQL's own, whose number (%d) differs between shards", i+1, oid),
				"leave the parameter's type open and cast it in the statement: $1::name")
		}
	}
	lim := &x.srv.limits
	if len(x.statements) >= lim.StatementsMax || x.statementBytes+len(s.text) > lim.StatementBytes {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "too many prepared statements (%d, %d bytes)", len(x.statements), x.statementBytes).
			WithHint("close those that are not needed; the limits are %d statements and %d bytes per session", lim.StatementsMax, lim.StatementBytes)
	}
	return nil
}

func (x *session) remember(s *statement) {
	x.forget(s.name)
	x.statements[s.name] = s
	x.statementBytes += len(s.text)
}

func (x *session) forget(name string) {
	if s, ok := x.statements[name]; ok {
		x.statementBytes -= len(s.text)
		delete(x.statements, name)
	}
}

// forgetIf forgets s, unless its name is another statement's by now.
func (x *session) forgetIf(s *statement) {
	if x.statements[s.name] == s {
		x.forget(s.name)
	}
}

func (x *session) forgetUnnamed() {
	x.forget("")
	delete(x.portals, "")
}

func (x *session) forgetAll() {
	clear(x.statements)
	x.statementBytes = 0
	clear(x.portals)
}
