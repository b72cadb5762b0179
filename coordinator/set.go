package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// moveSet is what a move is of, as the map and the source describe it.
type moveSet struct {
	set engine.Set
	// tables are the map's definitions, as one text: another text is another set.
	tables string
	// sum is a checksum of the shards' definitions.
	sum string
}

// Tables returns the tables of a keyspace as a mover has to be asked for them, and
// their definitions in the map as one text.
func Tables(snap *shardmap.Snapshot, ks string) (tables []engine.MoveTable, text string) {
	var defs []shardmap.Table
	for _, t := range snap.State().Tables {
		if t.Kind == shardmap.Sharded && t.Keyspace == ks {
			defs = append(defs, t)
		}
	}
	slices.SortFunc(defs, func(a, b shardmap.Table) int { return strings.Compare(a.QualifiedName(), b.QualifiedName()) })
	for i := range defs {
		tables = append(tables, engine.MoveTable{Schema: defs[i].Schema, Name: defs[i].Name, ShardKey: defs[i].ShardKey})
	}
	b, err := json.Marshal(defs)
	if err != nil {
		panic(err) // plain data
	}
	return tables, string(b)
}

// onTarget is the target's mover, and the tables as the target describes them: the effects after this one need the
// source's description.
func (j *job) onTarget(ctx context.Context, s *workflow.State, e workflow.Effect) (*moveSet, engine.Mover, error) {
	set, err := j.setOf(ctx, s, e.Target)
	if err != nil {
		return nil, nil, err
	}
	j.set = nil
	m, err := j.t.mover(ctx, e.Target)
	return set, m, err
}

// setOf returns the set of a move, described by a shard; once for a list of effects.
func (j *job) setOf(ctx context.Context, s *workflow.State, shard string) (*moveSet, error) {
	if j.set != nil {
		return j.set, nil
	}
	snap, err := j.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return nil, err
	}
	keys := snap.Keys(s.Spec.Keyspace, s.Spec.Part)
	if len(keys.Intervals)+len(keys.Pinned)+len(keys.Listed) == 0 {
		return nil, refuse("keyspace %s has no part %s", s.Spec.Keyspace, s.Spec.Part.Text())
	}
	tables, text := Tables(snap, s.Spec.Keyspace)
	set := &moveSet{tables: text}
	if set.set, set.sum, err = j.t.describe(ctx, shard, tables, keys); err != nil {
		return nil, err
	}
	j.set = set
	return set, nil
}

// same is setOf for steps after the copy: it fails if the tables are others now.
func (j *job) same(ctx context.Context, s *workflow.State, shard string) (*moveSet, error) {
	set, err := j.setOf(ctx, s, shard)
	if err != nil {
		if sqlstate.CodeOf(err) == sqlstate.UndefinedTable {
			return nil, classed(workflow.Changed, err)
		}
		return nil, err
	}
	if s.Tables != "" && set.sum != s.Tables {
		j.set = nil
		return nil, changedError(s)
	}
	return set, nil
}

func changedError(s *workflow.State) error {
	return classed(workflow.Changed, sqlstate.New(sqlstate.ObjectNotInState, "the tables of keyspace %s were changed", s.Spec.Keyspace))
}

func (t *term) describe(ctx context.Context, shard string, tables []engine.MoveTable, keys keyspace.Ownership) (engine.Set, string, error) {
	m, err := t.mover(ctx, shard)
	if err != nil {
		return engine.Set{}, "", err
	}
	full, err := m.Describe(ctx, tables)
	if err != nil {
		return engine.Set{}, "", err
	}
	b, err := json.Marshal(full)
	if err != nil {
		return engine.Set{}, "", err
	}
	sum := sha256.Sum256(b)
	return engine.Set{Tables: full, Keys: keys}, hex.EncodeToString(sum[:8]), nil
}

// check is workflow.Check.
func (j *job) check(ctx context.Context, s *workflow.State, e workflow.Effect, r *workflow.Result) error {
	snap, err := j.t.c.opts.Directory.Load(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{e.Source, e.Target} {
		if _, ok := snap.Shard(name); !ok {
			return refuse("shard %s does not exist", name)
		}
	}
	if err := receives(snap, e.Target); err != nil {
		return err
	}
	if err := gives(snap, &s.Spec, e.Source); err != nil {
		return err
	}
	if err := Arrives(snap, &s.Spec, s.Back); err != nil {
		return err
	}
	if err := j.current(ctx, s, e); err != nil {
		return err
	}
	if err := j.vacant(ctx, s, e, snap); err != nil {
		return err
	}
	set, err := j.setOf(ctx, s, e.Source)
	if err != nil {
		return err
	}
	for _, name := range []string{e.Source, e.Target} {
		m, err := j.t.mover(ctx, name)
		if err != nil {
			return err
		}
		if err := set.checkOn(ctx, name, m); err != nil {
			return err
		}
		if name == e.Source {
			if r.Rows, r.Bytes, err = m.Sizes(ctx, set.set); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOn fails if a shard cannot give or take the tables.
func (s *moveSet) checkOn(ctx context.Context, shard string, m engine.Mover) error {
	found, err := m.CheckMove(ctx, s.set.Tables)
	if err != nil {
		return err
	}
	return bad(shard, found)
}

// Obstacles says why moves off a shard and to another one would be refused as the tables of the keyspace are: nil if
// they would not.
func Obstacles(ctx context.Context, snap *shardmap.Snapshot, ks string, shard string, m engine.Mover) error {
	tables, _ := Tables(snap, ks)
	tables, err := m.Describe(ctx, tables)
	if err != nil {
		return err
	}
	found, err := m.CheckMove(ctx, tables)
	if err != nil {
		return err
	}
	return bad(shard, found)
}

// bad turns findings that are errors into one error.
func bad(shard string, found []engine.Finding) error {
	var what, fixes []string
	for _, f := range found {
		if f.Level != "error" {
			continue
		}
		text := f.Name + " is " + f.Is
		if f.Want != "" {
			text += ", wanted: " + f.Want
		}
		what = append(what, text)
		if f.Fix != "" {
			fixes = append(fixes, f.Fix)
		}
	}
	if len(what) == 0 {
		return nil
	}
	e := sqlstate.New(sqlstate.ObjectNotInState, "rows cannot be moved: %s", strings.Join(what, "; ")).OnShard(shard)
	if len(fixes) > 0 {
		e.Hint = "run there: " + strings.Join(fixes, "; ")
	}
	return classed(workflow.Refused, e)
}

// compareSchema is workflow.CompareSchema.
func (j *job) compareSchema(ctx context.Context, s *workflow.State, e workflow.Effect, r *workflow.Result) error {
	j.set = nil
	set, err := j.setOf(ctx, s, e.Source)
	if err != nil {
		return err
	}
	r.Tables = set.sum
	m, err := j.t.mover(ctx, e.Target)
	if err != nil {
		return err
	}
	names := make([]engine.MoveTable, len(set.set.Tables))
	for i, t := range set.set.Tables {
		names[i] = engine.MoveTable{Schema: t.Schema, Name: t.Name, ShardKey: t.ShardKey}
	}
	there, err := m.Describe(ctx, names)
	if err != nil {
		if sqlstate.CodeOf(err) == sqlstate.UndefinedTable {
			return classed(workflow.Refused, err)
		}
		return err
	}
	var diffs []string
	for i := range there {
		diffs = append(diffs, tableDiff(&set.set.Tables[i], &there[i], e.Source, e.Target)...)
	}
	if len(diffs) > 0 {
		return classed(workflow.Refused, sqlstate.New(sqlstate.ObjectNotInState, "the tables of keyspace %s differ: %s", s.Spec.Keyspace, strings.Join(diffs, "; ")).
			WithHint("make them the same, then ask for the move again: cleave doctor"))
	}
	return nil
}

// tableDiff tells how a table differs on two shards.
func tableDiff(a, b *engine.MoveTable, source, target string) []string {
	var out []string
	types := func(t *engine.MoveTable) map[string]string {
		m := map[string]string{}
		for i, c := range t.Columns {
			m[c] = t.Types[i]
		}
		return m
	}
	name, have, there := a.Schema+"."+a.Name, types(a), types(b)
	for _, c := range a.Columns {
		switch typ, ok := there[c]; {
		case !ok:
			out = append(out, fmt.Sprintf("%s has no column %s on %s", name, c, target))
		case typ != have[c]:
			out = append(out, fmt.Sprintf("%s.%s is %s on %s and %s on %s", name, c, have[c], source, typ, target))
		}
	}
	for _, c := range b.Columns {
		if _, ok := have[c]; !ok {
			out = append(out, fmt.Sprintf("%s has no column %s on %s", name, c, source))
		}
	}
	if len(out) == 0 && !slices.Equal(a.Columns, b.Columns) {
		// Rows go by the source's order of columns, which the target is told.
		return nil
	}
	return out
}
