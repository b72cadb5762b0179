package admin

import (
	"context"
	"fmt"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// MoveDefaultRequest makes another shard the default shard.
type MoveDefaultRequest struct {
	Meta
	To string `json:"to"`
}

// wholeRowsMax bounds the rows of a whole table that is carried to another shard: they are in memory, and
// writers wait.
const wholeRowsMax = 1_000_000

// MoveDefault makes another shard the default shard, and carries the whole tables there. Statements go on; those that
// write to whole tables wait meanwhile, cleave.hold_timeout at most. Run again after a failure, it goes on or begins anew.
//
// Errors: 42704 for an unknown shard, 54000 for a table of more than a million rows, 0A000 for tables that cannot be made
// there, XX001 when the copies differ, 55P03 and 40001 when others were in the way, with nothing changed.
func (o *Ops) MoveDefault(ctx context.Context, req MoveDefaultRequest) (*Result, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := cur.Shard(req.To); !ok {
		return nil, noShard(req.To)
	}
	n := 0
	for _, t := range cur.State().Tables {
		if t.Kind == shardmap.Whole {
			n++
		}
	}
	res := &Result{Version: cur.Version(), Plan: []string{
		fmt.Sprintf("%d whole tables take no writes on %s for a while", n, cur.State().DefaultShard),
		"their rows are copied to " + req.To + " and compared",
		req.To + " is the default shard, and takes writes when every router knows it",
	}}
	if cur.State().DefaultShard == req.To {
		res.Plan = []string{req.To + " is the default shard already: its whole tables take writes"}
	}
	opts := o.schemaOptions(req.Meta)
	rows := schema.Carrier{Check: carriable, Copy: carryRows}
	if req.DryRun {
		if cur.State().DefaultShard != req.To {
			if err := schema.Rehearse(ctx, opts, req.To, rows); err != nil {
				return nil, err
			}
		}
		return res, nil
	}
	if err := schema.Rehome(ctx, opts, req.To, rows, o.awaitMembers); err != nil {
		return nil, err
	}
	if cur, err = o.load(ctx); err != nil {
		return nil, err
	}
	res.Version, res.Done = cur.Version(), true
	return res, nil
}

// carriable refuses a table with more rows than are carried.
func carriable(_ context.Context, from engine.Conn, t *shardmap.Table) error {
	count, err := engine.Exec(from, "SELECT count(*) FROM (SELECT 1 FROM "+quotedTable(t)+fmt.Sprintf(" LIMIT %d) AS n", wholeRowsMax+1))
	if err != nil {
		return err
	}
	if count.Rows[0][0].String == fmt.Sprint(wholeRowsMax+1) {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "table %s has more than %d rows, and writers would wait too long", t.QualifiedName(), wholeRowsMax).
			WithHint("shard it first: cleave table distribute %s --shard-key ...", t.Name)
	}
	return nil
}

// carryRows copies a whole table's rows and compares the copies.
func carryRows(ctx context.Context, from, to engine.Conn, t *shardmap.Table) error {
	if _, err := copyTable(ctx, from, to, t, 0); err != nil {
		return err
	}
	want, err := readCopy(from, t, nil)
	if err != nil {
		return err
	}
	have, err := readCopy(to, t, nil)
	if err != nil {
		return err
	}
	if missing, extra := have.differs(want); missing+extra > 0 {
		return sqlstate.New(sqlstate.DataCorrupted, "the copies of table %s differ in %d rows", t.QualifiedName(), max(missing, extra)).
			WithHint("nothing was changed: look for values that the engines print differently")
	}
	return nil
}
