package admin

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Distribute shards an empty table that is whole until now. Errors: 42P01 and
// 42809 for what is no whole table, 55000 when it has rows or was not created through
// Cleave, 0A000 for what a sharded table cannot have, and those of a schema change.
func (o *Ops) Distribute(ctx context.Context, req DistributeRequest) (*Result, error) {
	name, err := parseTable(req.Table)
	if err != nil {
		return nil, err
	}
	if len(req.ShardKey) == 0 {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "distribute needs the columns of the shard key")
	}
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := schema.Begin(ctx, o.schemaOptions(req.Meta), snap)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx)
	res := &Result{Version: snap.Version()}
	table := (&shardmap.Table{Schema: name.Schema, Name: name.Name}).QualifiedName()
	plan := func(ks string, made bool) {
		if made {
			res.Plan = append(res.Plan, "create keyspace "+ks)
		}
		res.Plan = append(res.Plan, fmt.Sprintf("%s is sharded by (%s) in keyspace %s", table, strings.Join(req.ShardKey, ", "), ks),
			fmt.Sprintf("it is created on %d other shards, and guarded on all", len(snap.Shards())-1))
	}
	if req.DryRun {
		ks, made, err := tx.PlanDistribute(ctx, name, req.ShardKey, req.Keyspace)
		if err != nil {
			return nil, err
		}
		plan(ks, made)
		return res, nil
	}
	if err := tx.Distribute(ctx, name, req.ShardKey, req.Keyspace); err != nil {
		return nil, err
	}
	if t, ok := tx.Snapshot().Table(name.Schema, name.Name); ok {
		_, was := snap.Keyspace(t.Keyspace)
		plan(t.Keyspace, !was)
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, err
	}
	for _, n := range tx.Notices() {
		res.Warnings = append(res.Warnings, n.Message+"; "+n.Hint)
	}
	if entry, err := o.opts.Directory.Find(ctx, tx.ID()); err == nil {
		res.Version = entry.Version
	}
	res.Done = true
	return res, nil
}

// parseTable reads name or schema.name as SQL does: unquoted names are folded.
func parseTable(text string) (planner.TableName, error) {
	bad := func() (planner.TableName, error) {
		return planner.TableName{}, sqlstate.New(sqlstate.InvalidParameterValue, "%q is not the name of a table", text).
			WithHint("write name or schema.name, in double quotes where SQL needs them")
	}
	var parts []string
	rest := strings.TrimSpace(text)
	for {
		var part string
		if strings.HasPrefix(rest, `"`) {
			var b strings.Builder
			i, closed := 1, false
			for i < len(rest) {
				if rest[i] == '"' {
					if i+1 < len(rest) && rest[i+1] == '"' {
						i++
					} else {
						closed = true
						break
					}
				}
				b.WriteByte(rest[i])
				i++
			}
			if !closed {
				return bad()
			}
			part, rest = b.String(), rest[i+1:]
		} else {
			end := strings.IndexAny(rest, `."`)
			if end < 0 {
				end = len(rest)
			}
			part, rest = strings.ToLower(rest[:end]), rest[end:]
			if strings.ContainsAny(part, " \t\n'();,") {
				return bad()
			}
		}
		if part == "" || len(part) > shardmap.MaxNameBytes {
			return bad()
		}
		parts = append(parts, part)
		if rest == "" {
			break
		}
		if rest[0] != '.' {
			return bad()
		}
		rest = rest[1:]
	}
	switch len(parts) {
	case 1:
		return planner.TableName{Schema: "public", Name: parts[0]}, nil
	case 2:
		return planner.TableName{Schema: parts[0], Name: parts[1]}, nil
	}
	return bad()
}

// atOnce runs f(0) to f(n-1), at most limit at the same time, and waits.
func atOnce(n, limit int, f func(i int)) {
	slots := make(chan struct{}, limit)
	var wait sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wait.Wait()
}
