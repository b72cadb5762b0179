package planner

import (
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/shardmap"
)

// String returns the name of what a plan does, as EXPLAIN (ROUTE) prints it.
func (o PlanOp) String() string {
	names := [...]string{"", "scatter", "gather", "modify", "insert", "copy in", "copy out"}
	if int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}

// Lines describes the plan for EXPLAIN (ROUTE): what it does, on which shards, with
// which texts, also those of shards that have to leave rows out (see On). args may be nil: then words describe a target that parameters
// decide. It never fails.
func (p *Plan) Lines(snap *shardmap.Snapshot, args *Args) []string {
	var out []string
	line := func(name, value string) {
		if value != "" {
			out = append(out, name+": "+value)
		}
	}
	line("operation", p.Op.String())
	for i := range p.Relations {
		r := &p.Relations[i]
		line("relation "+r.Name, r.Target.text(snap, args)+": "+r.Text)
		r.own.lines(line, &r.Target, snap, args)
		for _, ix := range r.Index {
			line("index on "+r.Name, strings.Join(ix, ", "))
		}
	}
	p.writeLines(line)
	for _, o := range p.confined() {
		o.lines(line, &p.Target, snap, args)
	}
	if p.Op != Gather && p.Op != Insert {
		line("shards", p.Target.text(snap, args))
	}
	line("shard text", p.Text)
	p.own.lines(line, &p.Target, snap, args)
	line("combine", p.Combine.String())
	line("why", p.Why)
	return out
}

// text is the target for people.
func (t *Target) text(snap *shardmap.Snapshot, args *Args) string {
	if t.Where == AnyOne {
		return "any shard"
	}
	if args == nil {
		for _, k := range t.Keys {
			for i := range k {
				if k[i].Param != 0 {
					return "decided by the parameters"
				}
			}
		}
		for _, s := range t.Spans {
			if s.Low != nil && s.Low.Param != 0 || s.High != nil && s.High.Param != 0 {
				return "decided by the parameters"
			}
		}
	}
	names, err := t.Shards(snap, args)
	if err != nil {
		return err.Error()
	}
	return strings.Join(names, ", ")
}

// String describes the combination for people; "" for one after the other.
func (c *Combine) String() string {
	var parts []string
	if len(c.Order) > 0 {
		keys := make([]string, len(c.Order))
		for i, k := range c.Order {
			keys[i] = strconv.Itoa(k.Column)
			if k.Column >= 0 {
				keys[i] = strconv.Itoa(k.Column + 1)
			}
			if k.Desc {
				keys[i] += " desc"
			}
			if k.NullsFirst != k.Desc {
				keys[i] += " nulls first"
				if k.Desc {
					keys[i] = strings.Replace(keys[i], "nulls first", "nulls last", 1)
				}
			}
		}
		parts = append(parts, "merge by column "+strings.Join(keys, ", "))
	}
	if c.Unique > 0 {
		parts = append(parts, "unique by "+strconv.Itoa(c.Unique))
	}
	for _, x := range []struct {
		name  string
		count *Count
	}{{"limit", c.Limit}, {"offset", c.Offset}} {
		switch {
		case x.count == nil:
		case x.count.Param != 0:
			parts = append(parts, x.name+" "+dollar(x.count.Param))
		default:
			parts = append(parts, x.name+" "+strconv.FormatInt(x.count.Value, 10))
		}
	}
	if c.Hidden > 0 {
		parts = append(parts, "hide "+strconv.Itoa(c.Hidden))
	}
	return strings.Join(parts, ", ")
}
