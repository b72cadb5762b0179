package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// ConstraintRequest adds a rule about where keys may be, or removes the one of its Name.
type ConstraintRequest struct {
	Meta
	Name string `json:"name"`
	// Kind is residency (only on shards with these labels), isolation (on shards that have
	// nothing else) or anti-affinity (no two of the keys on one shard).
	Kind     string `json:"kind,omitempty"`
	Keyspace string `json:"keyspace,omitempty"` // "": all, for a residency
	// Keys are the keys that are meant, Range the positions (see MoveRequest); without either
	// it is the keyspace.
	Keys   [][]string        `json:"keys,omitempty"`
	Range  string            `json:"range,omitempty"`
	Labels map[string]string `json:"labels,omitempty"` // residency: of the shards
}

// ConstraintInfo is a rule about where keys may be.
type ConstraintInfo struct {
	Name     string            `json:"name"`
	Kind     string            `json:"kind"`
	Keyspace string            `json:"keyspace,omitempty"`
	Keys     [][]string        `json:"keys,omitempty"`
	Range    string            `json:"range,omitempty"` // printable
	Labels   map[string]string `json:"labels,omitempty"`
	Text     string            `json:"text"` // in words
	// Broken says how it is not kept: it was so already when it was added.
	Broken []string `json:"broken"`
}

// Constraints lists the rules, with how they are not kept.
func (o *Ops) Constraints(ctx context.Context) ([]ConstraintInfo, error) {
	snap, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	return ConstraintInfos(snap), nil
}

// ConstraintInfos are the constraints of a map.
func ConstraintInfos(snap *shardmap.Snapshot) []ConstraintInfo {
	broken := map[string][]string{}
	for _, v := range snap.Violations() {
		broken[v.Constraint] = append(broken[v.Constraint], v.What)
	}
	var out []ConstraintInfo
	for i := range snap.State().Constraints {
		c := &snap.State().Constraints[i]
		info := ConstraintInfo{Name: c.Name, Kind: string(c.Kind), Keyspace: c.Keyspace, Keys: c.Keys, Labels: c.Shards, Text: c.Text(), Broken: broken[c.Name]}
		if c.Low != nil || c.High != nil {
			info.Range = shardmap.Part{Low: c.Low, High: c.High}.Text()
		}
		if info.Broken == nil {
			info.Broken = []string{}
		}
		out = append(out, info)
	}
	return out
}

// AddConstraint adds a rule. What breaks it already stays where it is, and is in the result's
// warnings: a plan moves it. From then on no change of the map may break it. Errors: 42710 if
// there is one of that name, 42704 for an unknown keyspace, 22023 for a rule that says
// nothing, 55000 if no shard could keep it.
func (o *Ops) AddConstraint(ctx context.Context, req ConstraintRequest) (*Result, error) {
	c := shardmap.Constraint{Name: req.Name, Kind: placement.Kind(req.Kind), Keyspace: req.Keyspace, Keys: req.Keys, Shards: req.Labels}
	if req.Range != "" {
		p, err := ParseRange(req.Range)
		if err != nil {
			return nil, err
		}
		c.Low, c.High = p.Low, p.High
	}
	edit := func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		if _, ok := cur.Constraint(req.Name); ok {
			return nil, sqlstate.New(sqlstate.DuplicateObject, "constraint %q already exists", req.Name).WithHint("see: cleave constraint list")
		}
		if _, ok := cur.Keyspace(req.Keyspace); !ok && req.Keyspace != "" {
			return nil, noKeyspace(req.Keyspace)
		}
		next := cur.State().Clone()
		next.PutConstraint(c)
		return &next, possible(cur, &c)
	}
	return o.constraint(ctx, req.Meta, "constraint_add", func(c *shardmap.Constraint) string { return "from now on " + c.Text() }, req.Name, edit)
}

// possible refuses a rule that no shard could keep.
func possible(cur *shardmap.Snapshot, c *shardmap.Constraint) error {
	shards := cur.Shards()
	if c.Kind == placement.AntiAffinity && len(c.Keys) > len(shards) {
		return sqlstate.New(sqlstate.ObjectNotInState, "constraint %s needs %d shards, and there are %d", c.Name, len(c.Keys), len(shards)).
			WithHint("add shards first: cleave shard add NAME URL")
	}
	if c.Kind != placement.Residency || len(c.Shards) == 0 {
		return nil
	}
	for i := range shards {
		has := true
		for k, v := range c.Shards {
			has = has && shards[i].Labels[k] == v
		}
		if has {
			return nil
		}
	}
	return sqlstate.New(sqlstate.ObjectNotInState, "constraint %s: no shard has these labels", c.Name).
		WithHint("add one that has them first: cleave shard add NAME URL --label KEY=VALUE")
}

// RemoveConstraint removes a rule. 42704 if there is none of that name.
func (o *Ops) RemoveConstraint(ctx context.Context, req ConstraintRequest) (*Result, error) {
	edit := func(cur *shardmap.Snapshot) (*shardmap.State, error) {
		next := cur.State().Clone()
		if !next.DropConstraint(req.Name) {
			return nil, sqlstate.New(sqlstate.UndefinedObject, "there is no constraint %q", req.Name).WithHint("see: cleave constraint list")
		}
		return &next, nil
	}
	return o.constraint(ctx, req.Meta, "constraint_remove", func(*shardmap.Constraint) string { return "remove constraint " + req.Name }, req.Name, edit)
}

// constraint changes the constraints of the map.
func (o *Ops) constraint(ctx context.Context, m Meta, op string, say func(*shardmap.Constraint) string, name string, edit func(*shardmap.Snapshot) (*shardmap.State, error)) (*Result, error) {
	cur, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	next, err := edit(cur)
	if err != nil {
		return nil, err
	}
	after, err := shardmap.NewSnapshot(*next)
	if err != nil {
		return nil, err
	}
	c, _ := after.Constraint(name)
	res := &Result{Version: cur.Version(), Plan: []string{say(c)}}
	for _, v := range after.Violations() {
		if v.Constraint == name {
			res.Warnings = append(res.Warnings, v.What)
		}
	}
	if n := len(res.Warnings); n > 0 {
		if n > 10 {
			res.Warnings = append(res.Warnings[:10], fmt.Sprintf("and %d more", n-10))
		}
		res.Warnings = append(res.Warnings, "what breaks it already is moved by a plan: cleave plan")
	}
	if m.DryRun {
		return res, nil
	}
	snap, err := o.update(ctx, shardmap.Change{By: m.by(), Why: m.why(strings.Join(res.Plan, "; ")), Op: op}, edit)
	if err != nil {
		return nil, err
	}
	res.Version, res.Done = snap.Version(), true
	return res, nil
}

// examineConstraints says which constraints are not kept.
func examineConstraints(snap *shardmap.Snapshot) []Finding {
	var out []Finding
	for _, c := range ConstraintInfos(snap) {
		if len(c.Broken) == 0 {
			out = append(out, Finding{Level: LevelOK, What: "constraint " + c.Name + " is kept: " + c.Text})
			continue
		}
		what := c.Broken
		if len(what) > 3 {
			what = append(what[:3:3], fmt.Sprintf("%d more", len(c.Broken)-3))
		}
		out = append(out, Finding{Level: LevelError, What: "constraint " + c.Name + " is broken: " + strings.Join(what, "; "), Next: "cleave plan"})
	}
	return out
}
