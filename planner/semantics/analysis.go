package semantics

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
)

// Analysis is what one statement means, found by parts that each see only what they are given.
type Analysis struct {
	Typer
	sourcetext.Text
	Equivalence
	constants
	Parameters
	Touched
	Effects
	restrictions
	Routing
	binder

	reader    Reader
	Statement *plan.Statement
	Bound     *BoundStatement
	OneShard  *OneShard
}

// Reader is what texts and constants are read with.
type Reader struct {
	Parser sqltext.Parser
	Keys   int    // shard keys that one statement may name
	Unread unread // nil: nobody asks for them
}

// unread takes literals that stand for shard keys and that the router cannot read.
type unread interface {
	Note(src *sourcetext.Text, c *pg.A_Const, t keyspace.Type)
}

// inserts puts values that the router makes into an INSERT before it is bound. top: it is not in WITH.
type inserts interface {
	FillInsert(s *pg.InsertStmt, top bool)
}

// Begin makes the parts for a text.
func (a *Analysis) Begin(rd Reader, sql string, snap *shardmap.Snapshot, path []string, checks castMarks, fill inserts) {
	a.reader, a.Statement, a.Bound = rd, &plan.Statement{Text: sql}, &BoundStatement{}
	a.OneShard = &OneShard{st: a.Statement}
	a.Typer, a.Text = Typer{Namespace{Snapshot: snap, Path: path}}, sourcetext.Text{SQL: sql}
	ty, src, eq, con, pa, to, fx, co, rt := &a.Typer, &a.Text, &a.Equivalence, &a.constants, &a.Parameters, &a.Touched, &a.Effects, &a.restrictions, &a.Routing
	*con = constants{typer: ty, src: src, reader: &a.reader, st: a.Statement}
	*pa = Parameters{typer: ty, st: a.Statement, Params: map[int]*paramUse{}}
	*to = Touched{Typer: ty, Reader: &a.reader, Statement: a.Statement, OneShard: a.OneShard}
	*fx = Effects{typer: ty, src: src, touched: to, st: a.Statement, one: a.OneShard}
	*co = restrictions{Typer: ty, constants: con, Equivalence: eq, reader: &a.reader, bound: a.Bound, one: a.OneShard}
	*rt = Routing{Typer: ty, constants: con, Equivalence: eq, Touched: to, reader: &a.reader, st: a.Statement, bound: a.Bound, one: a.OneShard}
	a.binder = binder{
		Typer: ty, Text: src, Equivalence: eq, constants: con, Parameters: pa, Touched: to, Effects: fx, restrictions: co, Routing: rt,
		laterChecks: laterChecks{checks: checks}, fill: fill, st: a.Statement, bound: a.Bound, one: a.OneShard,
	}
}
