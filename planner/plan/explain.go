package plan

import (
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/ownership"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Explain returns the lines of EXPLAIN (ROUTE): the kind of plan, the shard, the
// keyspace, range and epoch that decide, the shard key expressions and the text
// that the shard gets; or the reason why the statement is refused. s is the
// explained statement, or the EXPLAIN around it. args may be nil: then a
// parameter leaves the shard open. It never fails; the error is for callers
// that treat it like Route.
func (s *Statement) Explain(snap *shardmap.Snapshot, args *Args) ([]string, error) {
	if s.Kind == ExplainRoute {
		if s.Refused != nil {
			return refusalLines(s.Refused), nil
		}
		return s.Inner.Explain(snap, args)
	}
	var out []string
	line := func(name, value string) {
		if value != "" {
			out = append(out, name+": "+value)
		}
	}
	line("plan", s.Kind.String())
	switch s.Kind {
	case OneShard:
		made := s.Fill != nil && s.keysMade()
		open := made || args == nil && s.UsesParams()
		var r Route
		var err error
		if !open {
			r, err = s.Route(snap, args)
		}
		switch {
		case err != nil:
			return append(out[:0], refusalLines(sqlstate.As(err))...), nil
		case made:
			line("shard", "decided by the key that the router makes")
		case open:
			line("shard", "decided by the parameters")
		case r.Several:
			line("shard", "several")
		default:
			line("shard", r.Shard)
		}
		line("keyspace", s.Keyspace)
		if !open {
			line("range", r.Text())
			if r.Epoch != 0 {
				line("epoch", strconv.FormatUint(r.Epoch, 10))
			}
		}
		line("shard key", s.KeyText())
	case Several:
		out = append(out, s.Plan.Lines(snap, args)...)
	case DefaultShard:
		line("shard", snap.State().DefaultShard)
	case AnyShard:
		line("shard", "the transaction's, else any")
	case DDLKind:
		line("operation", s.DDL.Op)
		if s.DDL.AllShards {
			names := make([]string, 0, len(snap.Shards()))
			for _, sh := range snap.Shards() {
				names = append(names, sh.Name)
			}
			line("shards", strings.Join(names, ", "))
		} else {
			line("shard", snap.State().DefaultShard)
		}
	}
	if t := s.Held(snap, args); t != nil {
		line("held", "keys of "+t.Text()+" are being moved from shard "+t.From+" to shard "+t.To+" ("+t.ID+"): the statement waits, at most cleave.hold_timeout")
	}
	var tables []string
	for _, t := range s.Tables {
		tables = append(tables, sqltext.QuoteName(t.Schema, t.Name)+" ("+string(t.Kind)+")")
	}
	line("tables", strings.Join(tables, ", "))
	switch s.Kind {
	case OneShard, DefaultShard, AnyShard, DDLKind:
		line("text", s.Text)
	}
	if s.Kind == DDLKind && s.DDL.Elsewhere != "" {
		line("text on the other shards", s.DDL.Elsewhere)
	}
	return out, nil
}

func refusalLines(e *sqlstate.Error) []string {
	out := []string{"plan: refused", "reason: " + e.Message + " (SQLSTATE " + string(e.Code) + ")"}
	if e.Hint != "" {
		out = append(out, "hint: "+e.Hint)
	}
	return out
}

// UsesParams reports whether parameters stand for shard keys.
func (s *Statement) UsesParams() bool {
	for _, k := range s.Keys {
		for i := range k {
			if k[i].Param != 0 {
				return true
			}
		}
	}
	return false
}

// KeyText prints the shard key alternatives, at most eight of them.
func (s *Statement) KeyText() string {
	if len(s.Keys) == 0 {
		return "none can match"
	}
	var out []string
	for i, k := range s.Keys {
		if i == 8 {
			out = append(out, "... ("+strconv.Itoa(len(s.Keys))+" in all)")
			break
		}
		parts := make([]string, len(k))
		for j := range k {
			parts[j] = k[j].String()
		}
		out = append(out, "("+strings.Join(parts, ", ")+")")
	}
	return strings.Join(out, ", ")
}

// String prints the expression as SQL.
func (e *KeyExpr) String() string {
	switch {
	case e.Array && e.Cast != 0:
		return "any of " + sqltext.Dollar(e.Param) + "::" + e.Cast.String() + "[]"
	case e.Array:
		return "any of " + sqltext.Dollar(e.Param)
	case e.Param != 0 && e.Cast != 0:
		return sqltext.Dollar(e.Param) + "::" + e.Cast.String()
	case e.Param != 0:
		return sqltext.Dollar(e.Param)
	case e.Never:
		return "NULL"
	case e.Type == keyspace.Int2, e.Type == keyspace.Int4, e.Type == keyspace.Int8:
		return strconv.FormatInt(e.Value.Int(), 10)
	}
	return sqltext.QuoteString(e.Value.Text())
}

// keysMade reports whether the router makes a value of the shard key.
func (s *Statement) keysMade() bool {
	for _, k := range s.Keys {
		for i := range k {
			if k[i].Param > s.Params {
				return true
			}
		}
	}
	return false
}

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
		ownershipLines(r.Ownership, line, &r.Target, snap, args)
		for _, ix := range r.Index {
			line("index on "+r.Name, strings.Join(ix, ", "))
		}
	}
	p.writeLines(line)
	for _, o := range p.confined() {
		ownershipLines(o, line, &p.Target, snap, args)
	}
	if p.Op != Gather && p.Op != Insert {
		line("shards", p.Target.text(snap, args))
	}
	line("shard text", p.Text)
	ownershipLines(p.Ownership, line, &p.Target, snap, args)
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
			parts = append(parts, x.name+" "+sqltext.Dollar(x.count.Param))
		default:
			parts = append(parts, x.name+" "+strconv.FormatInt(x.count.Value, 10))
		}
	}
	if c.Hidden > 0 {
		parts = append(parts, "hide "+strconv.Itoa(c.Hidden))
	}
	return strings.Join(parts, ", ")
}

// writeLines describes the steps of a plan that changes rows.
func (p *Plan) writeLines(line func(name, value string)) {
	read := func(name string, st *Statement) {
		text := st.Kind.String()
		if st.Plan != nil {
			text += " (" + st.Plan.Op.String() + ")"
		}
		line(name, text+": "+st.Text)
	}
	if i := p.Insert; i != nil {
		for n, st := range i.Computed {
			read("computed "+strconv.Itoa(n+1), st)
		}
		switch {
		case i.Source != nil:
			read("source", i.Source)
			for n := range i.Made {
				line("made", i.Made[n].Source)
			}
			line("shard text", i.Write.String())
		default:
			line("rows", strconv.Itoa(len(i.Rows)))
			if len(i.Rows) > 0 {
				text := Expand(i.Head+i.Rows[0].Text+i.Tail, func(k MarkKind, n int) string {
					return "<" + map[MarkKind]string{MarkFill: "made", MarkComputed: "computed"}[k] + " " + strconv.Itoa(n+1) + ">"
				})
				line("shard text", text)
				key := make([]string, len(i.Rows[0].Key))
				for n := range key {
					k := &i.Rows[0].Key[n]
					if key[n] = k.String(); k.Computed > 0 {
						key[n] = "<computed " + strconv.Itoa(k.Computed) + ">"
					}
				}
				line("first key", "("+strings.Join(key, ", ")+")")
			}
		}
	}
	if c := p.Copy; c != nil {
		if c.Source != nil {
			read("source", c.Source)
		} else {
			line("shard text", c.Text)
		}
		for n := range c.Made {
			line("made", c.MadeFor[n].Name+" by "+c.Made[n].Source)
		}
	}
	if m := p.Modify; m != nil {
		for n, st := range m.Reads {
			read("read "+strconv.Itoa(n), st)
		}
		if p := m.Made; p != nil {
			for n, v := range p.Values {
				line("made", p.Columns[len(p.Columns)-len(p.Values)+n].Name+" by "+v.Source)
			}
		}
		if m.Split != nil {
			line("split", "read "+strconv.Itoa(m.Split.Read)+" by ("+strings.Join(m.Split.Columns, ", ")+")")
		}
		line("shard text", m.Write.String())
		for _, l := range m.Locks {
			line("other shards", "the same rows of "+l.Table.QualifiedName()+" "+l.Clause)
		}
		if r := m.Reference; r != nil {
			if len(r.Replay.Pieces) > 0 {
				line("other shards", r.Replay.String())
			}
		}
		if v := m.Move; v != nil {
			line("lock", v.Lock.String())
			line("stay", v.Stay.String())
			line("take", v.Take.String())
			line("put", v.Put.String())
		}
	}
}

// String is the template with relations as they are called in EXPLAIN.
func (t *Template) String() string {
	return t.Join(func(n int) string { return "<relation " + strconv.Itoa(n) + ">" })
}

// ownershipLines tells what shards with strangers run instead.
func ownershipLines(o *ownership.Filter, line func(name, value string), target *Target, snap *shardmap.Snapshot, args *Args) {
	if o == nil {
		return
	}
	names, err := target.Shards(snap, args)
	if err != nil { // parameters that are not known
		all := Target{Keyspace: o.Keyspace}
		if names, err = all.Shards(snap, args); err != nil {
			return
		}
	}
	for _, name := range names {
		if text, err := o.On("", name, []*shardmap.Snapshot{snap}); err != nil {
			line("on "+name, err.Error())
		} else {
			line("on "+name, text)
		}
	}
}
