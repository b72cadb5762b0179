package schema

import (
	"reflect"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/shardmap"
)

// changes is the private map with what the statements have changed of it, and what a rollback to a savepoint takes back.
type changes struct {
	// locked is true while the default shard's lock is held and base is read under it.
	locked     bool
	state      shardmap.State
	statements []Statement
	touched    map[string]bool // schema.name of every table concerned
	keyspaces  map[string]bool // whose ownership went into guards or checks
	made       map[string]bool // keyspaces created here
	marked     map[string]bool // shards that have noted the change's id
	ops        []string
	op         string // of the history's entry, OpChange if empty
	ran        bool   // something ran that the map has to record
	// sequences are those that come, change or go, by schema.name; sequenceOnly:
	// there was a change of nothing else.
	sequences    map[string]bool
	sequenceOnly bool
	seen         bool // views and functions were read again and are others
	declared     bool // what tables are to become was declared, or taken back
}

func (c changes) clone() changes {
	out := c
	out.state = c.state.Clone()
	out.statements = slices.Clone(c.statements)
	out.ops = slices.Clone(c.ops)
	out.touched = cloneSet(c.touched)
	out.keyspaces = cloneSet(c.keyspaces)
	out.made = cloneSet(c.made)
	out.marked = cloneSet(c.marked)
	out.sequences = cloneSet(c.sequences)
	return out
}

func cloneSet(s map[string]bool) map[string]bool {
	out := make(map[string]bool, len(s))
	for k := range s {
		out[k] = true
	}
	return out
}

// after is the state after the change, on top of any current one; without gone, tables that the change drops are in it still.
func (c *changes) after(base, cur *shardmap.Snapshot, gone bool) shardmap.State {
	if gone && cur == base {
		return c.state.Clone()
	}
	next := cur.State().Clone()
	c.overlay(base, &next, gone)
	return next
}

// overlay brings the differences between the base and the edited state into next.
func (c *changes) overlay(base *shardmap.Snapshot, next *shardmap.State, drop bool) {
	for name := range c.made {
		for _, k := range c.state.Keyspaces {
			if k.Name == name {
				next.PutKeyspace(k)
			}
		}
	}
	c.overlaySequences(next)
	c.overlayObjects(next)
	c.overlayDeclarations(base, next)
	is := map[[2]string]bool{}
	for _, table := range c.state.Tables {
		is[[2]string{table.Schema, table.Name}] = true
		was, ok := base.Table(table.Schema, table.Name)
		if !ok || !reflect.DeepEqual(*was, table) {
			next.PutTable(table)
		}
	}
	if !drop {
		return
	}
	for _, table := range base.State().Tables {
		if !is[[2]string{table.Schema, table.Name}] {
			next.DropTable(table.Schema, table.Name)
		}
	}
}

// overlayDeclarations brings the declarations that differ between the base and the edited state into next.
func (c *changes) overlayDeclarations(base *shardmap.Snapshot, next *shardmap.State) {
	if !c.declared {
		return
	}
	is := map[[2]string]bool{}
	for _, d := range c.state.Declarations {
		is[[2]string{d.Schema, d.Name}] = true
		if was := base.Declaration(d.Schema, d.Name); was == nil || !reflect.DeepEqual(*was, d) {
			next.PutDeclaration(d)
		}
	}
	for _, d := range base.State().Declarations {
		if !is[[2]string{d.Schema, d.Name}] {
			next.DropDeclaration(d.Schema, d.Name)
		}
	}
}

// entry is the line of history.
func (c *changes) entry(id, by, why string, expect uint64) (shardmap.Change, error) {
	e := shardmap.Change{Expect: expect, By: by, Why: why, Op: OpChange, ID: id}
	if e.Why == "" {
		e.Why = strings.Join(c.ops, "; ")
		if len(e.Why) > 1000 {
			e.Why = strings.ToValidUTF8(e.Why[:1000], "") + "..."
		}
	}
	for name := range c.touched {
		e.Tables = append(e.Tables, name)
	}
	slices.Sort(e.Tables)
	if len(c.statements) == 0 {
		switch e.Op = OpTruncate; {
		case c.declared:
			e.Op = OpDeclare
		case c.sequenceOnly:
			e.Op = OpSequence
		}
		return e, nil
	}
	if c.op != "" {
		e.Op = c.op
	}
	for _, s := range c.statements {
		e.AllShards = e.AllShards || s.AllShards
	}
	var err error
	e.Statement, err = formatLedger(id, c.statements)
	return e, err
}
