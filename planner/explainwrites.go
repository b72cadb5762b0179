package planner

import (
	"strconv"
	"strings"
)

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
