package planner

import "strings"

// Sorted is a scatter's plan in the form of a gather, for rows that only
// PostgreSQL can compare: the rows that the shards give, limited as they are
// there, become a relation of so many columns, from which the statement's order,
// DISTINCT, LIMIT and OFFSET are made.
func (p *Plan) Sorted(columns int) *Plan {
	name := RelationPrefix + "1"
	names := make([]string, columns)
	for i := range names {
		names[i] = "c" + itoa(i+1)
	}
	all := strings.Join(names, ", ")
	out := &Plan{Op: Gather, Clock: p.Clock, Why: "the order of its columns is the database's to know"}
	before, after := "SELECT "+all+" FROM (", ") AS s("+all+")"
	out.Relations = []Relation{{Name: name, Text: before + p.Text + after, Target: p.Target, own: p.own.around(before, after)}}
	order := make([]string, len(p.Combine.Order))
	var unique []string
	for i, k := range p.Combine.Order {
		at := k.Column
		if at < 0 {
			at += columns
		}
		if i < p.Combine.Unique {
			unique = append(unique, names[at])
		}
		order[i] = names[at]
		if k.Desc {
			order[i] += " DESC"
		}
		if k.NullsFirst {
			order[i] += " NULLS FIRST"
		} else {
			order[i] += " NULLS LAST"
		}
	}
	var b strings.Builder
	b.WriteString("SELECT ")
	if len(unique) > 0 {
		b.WriteString("DISTINCT ON (" + strings.Join(unique, ", ") + ") ")
	}
	b.WriteString(strings.Join(names[:columns-p.Combine.Hidden], ", ") + " FROM " + name)
	if len(order) > 0 {
		b.WriteString(" ORDER BY " + strings.Join(order, ", "))
	}
	for _, x := range []struct {
		word  string
		count *Count
	}{{" LIMIT ", p.Combine.Limit}, {" OFFSET ", p.Combine.Offset}} {
		switch {
		case x.count == nil:
		case x.count.Param > 0:
			b.WriteString(x.word + dollar(x.count.Param) + "::bigint")
		default:
			b.WriteString(x.word + itoa(int(x.count.Value)))
		}
	}
	out.Text = b.String()
	return out
}
