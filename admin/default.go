package admin

import (
	"context"
	"fmt"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
)

// MoveDefaultRequest makes another shard the default shard.
type MoveDefaultRequest struct {
	Meta
	To string `json:"to"`
}

// MoveDefault makes another shard the default shard, and carries the unsharded tables there. To a PostgreSQL database rows are copied
// while statements go on; then, and to a file from the beginning, those that write to unsharded tables wait, cleave.hold_timeout
// at most, until what has changed since is there too and both are compared. Run again after a failure, it goes on or begins anew.
//
// Errors: 42704 for an unknown shard, 0A000 for tables that cannot be made
// there, XX001 when the copies differ, 55P03 and 40001 when others were in the way, with nothing changed.
func (o *Ops) MoveDefault(ctx context.Context, req MoveDefaultRequest) (*Result, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	target, ok := cur.Shard(req.To)
	if !ok {
		return nil, noShard(req.To)
	}
	if err := cur.Drained(req.To); err != nil && cur.State().DefaultShard != req.To {
		return nil, err
	}
	n := 0
	for _, t := range cur.State().Tables {
		if t.Kind == shardmap.Whole {
			n++
		}
	}
	res := &Result{Version: cur.Version(), Plan: []string{
		fmt.Sprintf("%d unsharded tables are copied to %s, and take no writes on %s for a while", n, req.To, cur.State().DefaultShard),
		"what has changed meanwhile is copied too, and both are compared",
		req.To + " is the default shard, and takes writes when every router knows it",
	}}
	if cur.State().DefaultShard == req.To {
		res.Plan = []string{req.To + " is the default shard already: its unsharded tables take writes"}
	}
	opts := o.schemaOptions(req.Meta)
	if req.DryRun {
		if cur.State().DefaultShard != req.To {
			if err := schema.Rehearse(ctx, opts, req.To); err != nil {
				return nil, err
			}
		}
		return res, nil
	}
	opts.Connect = func(ctx context.Context, name string) (engine.Conn, func(bool), error) {
		if name != req.To {
			return o.connect(ctx, name)
		}
		sh, err := o.primary(cur.State().Cluster, target)
		if err != nil {
			return nil, nil, err
		}
		return dialCarrier(ctx, sh)
	}
	err = schema.Rehome(ctx, opts, req.To, copyTableRows, o.awaitMembers)
	if err != nil {
		return nil, err
	}
	if cur, err = o.load(ctx); err != nil {
		return nil, err
	}
	res.Version, res.Done = cur.Version(), true
	return res, nil
}
