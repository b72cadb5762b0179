package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Declare says what a table becomes when a CREATE TABLE without Cleave's options
// makes it, or takes that back. Tables that exist stay as they are.
//
// Errors: 22023 for a declaration that says nothing or too much, 42P07 if the table
// exists, 42704 for an unknown keyspace, or for a declaration to forget that is not there.
func (o *Ops) Declare(ctx context.Context, req DeclareRequest) (*Result, error) {
	plan, edit, err := Declaring(req)
	if err != nil {
		return nil, err
	}
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	next, err := edit(cur)
	if err != nil {
		return nil, err
	}
	if _, err := shardmap.NewSnapshot(*next); err != nil {
		return nil, err
	}
	res := &Result{Version: cur.Version(), Plan: []string{plan}}
	if req.DryRun {
		return res, nil
	}
	snap, err := o.update(ctx, shardmap.Change{By: req.by(), Why: req.why(plan), Op: "declare"}, edit)
	if err != nil {
		return nil, err
	}
	res.Version, res.Done = snap.Version(), true
	return res, nil
}

// Declaring is what Declare does: a line for people, and the change of the map.
func Declaring(req DeclareRequest) (plan string, edit func(cur *shardmap.Snapshot) (*shardmap.State, error), err error) {
	name, err := parseTable(req.Table)
	if err != nil {
		return "", nil, err
	}
	d := shardmap.Declaration{Schema: name.Schema, Name: name.Name, Kind: shardmap.Sharded, ShardKey: req.ShardKey, Keyspace: req.Keyspace}
	if req.Reference {
		d.Kind = shardmap.Reference
	}
	if !req.Forget && (len(req.ShardKey) > 0) == req.Reference {
		return "", nil, sqlstate.New(sqlstate.InvalidParameterValue, "a table is declared either with a shard key or as a reference table").
			WithHint("cleave.declare('t', shard_key => 'a'), or cleave.declare('t', reference => true)")
	}
	edit = func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		next := cur.State().Clone()
		if req.Forget {
			if !next.DropDeclaration(d.Schema, d.Name) {
				return nil, sqlstate.New(sqlstate.UndefinedObject, "table %s is not declared", d.QualifiedName())
			}
			return &next, nil
		}
		if t, ok := cur.Table(d.Schema, d.Name); ok {
			return nil, sqlstate.New(sqlstate.DuplicateTable, "table %s exists already, and is %s", d.QualifiedName(), t.Kind).
				WithHint("an existing table is sharded with SELECT cleave.distribute('%s', ...)", name.Name)
		}
		if _, ok := cur.Keyspace(d.Keyspace); d.Keyspace != "" && !ok {
			return nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", d.Keyspace).WithHint("see: cleave keyspace list")
		}
		next.PutDeclaration(d)
		return &next, nil
	}
	plan = fmt.Sprintf("table %s becomes sharded by (%s) when it is created", d.QualifiedName(), strings.Join(d.ShardKey, ", "))
	switch {
	case req.Forget:
		plan = "forget what is declared of table " + d.QualifiedName()
	case req.Reference:
		plan = "table " + d.QualifiedName() + " becomes a reference table when it is created"
	}
	return plan, edit, nil
}
