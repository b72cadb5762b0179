package admin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/planner/plan"
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
	if err := req.check(); err != nil {
		return nil, err
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

func (req *DistributeRequest) check() error {
	if (len(req.ShardKey) > 0) == req.Reference {
		return sqlstate.New(sqlstate.InvalidParameterValue, "distribute needs the columns of the shard key, or that the table becomes a reference table")
	}
	if req.Reference && (req.Keyspace != "" || req.Related) {
		return sqlstate.New(sqlstate.InvalidParameterValue, "a reference table has no keyspace and no related tables")
	}
	return nil
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
	var names []plan.TableName
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
func parseTable(text string) (plan.TableName, error) {
	bad := func() (plan.TableName, error) {
		return plan.TableName{}, sqlstate.New(sqlstate.InvalidParameterValue, "%q is not the name of a table", text).
			WithHint("write name or schema.name, in double quotes where SQL needs them")
	}
	var parts []string
	rest := strings.TrimSpace(text)
	for {
		var part string
		if strings.HasPrefix(rest, `"`) {
			var ok bool
			if part, rest, ok = quotedName(rest); !ok {
				return bad()
			}
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
		return plan.TableName{Schema: "public", Name: parts[0]}, nil
	case 2:
		return plan.TableName{Schema: parts[0], Name: parts[1]}, nil
	}
	return bad()
}

// quotedName reads the name between double quotes at the beginning of a text.
func quotedName(text string) (name, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		if text[i] == '"' {
			if !strings.HasPrefix(text[i+1:], `"`) {
				return b.String(), text[i+1:], true
			}
			i++
		}
		b.WriteByte(text[i])
	}
	return "", "", false
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
	cur, err := o.tried(ctx, edit)
	if err != nil {
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
			return nil, sqlstate.New(sqlstate.DuplicateTable, "table %s exists already, and is %s", d.QualifiedName(), t.Kind.Word()).
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
