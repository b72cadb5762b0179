package admin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Distribute makes a sharded or a reference table of an unsharded one. A table with rows keeps them where they are, on
// the default shard, which has to own all of the keyspace; moves carry them on. Sequences that its columns take values from
// become the cluster's first. Run again after a failure, it goes on where it stopped.
//
// Errors: 42P01 and 42809 for what is no unsharded table, 55000 when it has rows and the keyspace has ranges on other shards, 0A000 for
// what a table on several shards cannot have, 55P03 when the table was not to be locked in time or a router does not
// follow the map, and those of a schema change.
func (o *Ops) Distribute(ctx context.Context, req DistributeRequest) (*Result, error) {
	name, err := parseTable(req.Table)
	if err != nil {
		return nil, err
	}
	if (len(req.ShardKey) > 0) == req.Reference {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "distribute needs the columns of the shard key, or that the table becomes a reference table")
	}
	if req.Reference && (req.Keyspace != "" || req.Related) {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "a reference table has no keyspace and no related tables")
	}
	tables := []schema.Becomes{{TableName: name, ShardKey: req.ShardKey, Reference: req.Reference}}
	plan, version, err := o.planDistribute(ctx, &req, &tables)
	if err != nil {
		return nil, err
	}
	res := &Result{Version: version, Plan: distributePlan(plan)}
	if req.DryRun {
		return res, nil
	}
	if len(plan.Sequences) > 0 {
		if err := o.takeSequences(ctx, &req, tables); err != nil {
			return nil, err
		}
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
	fill := func(ctx context.Context, from, to engine.Conn, t *shardmap.Table, epoch uint64) error {
		_, err := copyTable(ctx, from, to, t, epoch)
		return err
	}
	if _, err := tx.Distribute(ctx, tables, req.Keyspace, fill); err != nil {
		return nil, err
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

// planDistribute makes all checks, and adds the related tables.
func (o *Ops) planDistribute(ctx context.Context, req *DistributeRequest, tables *[]schema.Becomes) (*schema.Distribution, uint64, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, 0, err
	}
	tx, err := schema.Begin(ctx, o.schemaOptions(req.Meta), snap)
	if err != nil {
		return nil, 0, err
	}
	defer tx.Rollback(ctx)
	if req.Related {
		if *tables, err = tx.Related(ctx, (*tables)[0]); err != nil {
			return nil, 0, err
		}
	}
	plan, err := tx.PlanDistribute(ctx, *tables, req.Keyspace)
	return plan, snap.Version(), err
}

func distributePlan(d *schema.Distribution) []string {
	var out []string
	for _, ks := range d.Made {
		out = append(out, "create keyspace "+ks)
	}
	for _, s := range d.Sequences {
		out = append(out, "the values of "+s+" come from a sequence of the cluster, above those given until now")
	}
	for i, b := range d.Tables {
		table := (&shardmap.Table{Schema: b.Schema, Name: b.Name}).QualifiedName()
		if b.Reference {
			out = append(out, table+" is a reference table, with all rows on every shard")
			continue
		}
		out = append(out, fmt.Sprintf("%s is sharded by (%s) in keyspace %s", table, strings.Join(b.ShardKey, ", "), d.Keyspaces[i]))
	}
	it := "it is"
	if len(d.Tables) > 1 {
		it = "they are"
	}
	out = append(out, it+" created on the other shards, and guarded on all")
	if d.Rows {
		out = append(out, "rows stay where they are until they are moved: cleave spread")
	}
	return out
}

// takeSequences makes the sequences of tables the cluster's, and waits until every router knows.
func (o *Ops) takeSequences(ctx context.Context, req *DistributeRequest, tables []schema.Becomes) error {
	snap, err := o.load(ctx)
	if err != nil {
		return err
	}
	tx, err := schema.Begin(ctx, o.schemaOptions(req.Meta), snap)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	var names []planner.TableName
	for _, b := range tables {
		names = append(names, b.TableName)
	}
	n, err := tx.TakeSequences(ctx, names)
	if err != nil {
		return err
	}
	if n > 0 {
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	} else {
		tx.Rollback(ctx)
	}
	if err := o.step("sequences", ""); err != nil {
		return err
	}
	if snap, err = o.load(ctx); err != nil {
		return err
	}
	return o.awaitMembers(ctx, snap.Version())
}

// awaitMax bounds the wait for routers to follow the map.
const awaitMax = time.Minute

// awaitMembers waits until every router goes by this version of the map, or has lost its lease.
func (o *Ops) awaitMembers(ctx context.Context, version uint64) error {
	err := schema.AwaitMembers(ctx, o.opts.Directory, version, awaitMax)
	if sqlstate.CodeOf(err) == sqlstate.LockNotAvailable {
		own := *sqlstate.As(err)
		return own.WithHint("run it again when they have ended: it goes on where it stopped")
	}
	return err
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
