package semantics

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// functions that a router evaluates; of the schema cleave or PostgreSQL's own.
var (
	RouterFunctions = map[string]bool{"next_id": true, "uuidv7": true, "nextval": true}
	RouterNative    = map[string]bool{"uuidv7": true, "nextval": true, "currval": true, "lastval": true, "setval": true}
)

// SequenceArg returns the sequence of the cluster that an argument of nextval()
// and its kin names, nil if it is none of them.
func (ns *Namespace) SequenceArg(n *pg.Node) *shardmap.Sequence {
	for n.GetTypeCast() != nil {
		n = n.GetTypeCast().Arg
	}
	if q := ns.SerialSequence(n.GetFuncCall()); q != nil {
		return q
	}
	c := n.GetAConst().GetSval()
	if c == nil {
		if ns.ownSerial(n.GetFuncCall()) {
			return nil
		}
		if len(ns.Snapshot.State().Sequences) > 0 || ns.Lonely() {
			fail(sqlstate.Refusal("CLV-0513", "the name of a sequence has to be a literal, or a parameter of type text in SELECT without FROM and in VALUES: the router has to know which one it is").
				WithHint("Write nextval('name')."))
		}
		return nil
	}
	parts, err := splitName(c.Sval)
	if err != nil {
		fail(err)
	}
	if q := ns.SequenceNamed(parts); q != nil {
		return q
	}
	if ns.Lonely() {
		fail(sqlstate.New(sqlstate.UndefinedTable, "relation %q does not exist", c.Sval))
	}
	return nil
}

// SerialSequence is the sequence that pg_get_serial_sequence('table', 'column')
// names, nil if the call is another one or the cluster has none there.
func (ns *Namespace) SerialSequence(f *pg.FuncCall) *shardmap.Sequence {
	if f == nil || len(f.Args) != 2 {
		return nil
	}
	names := sqltree.Strings(f.Funcname)
	table, column := f.Args[0].GetAConst().GetSval(), f.Args[1].GetAConst().GetSval()
	if names[len(names)-1] != "pg_get_serial_sequence" || table == nil || column == nil {
		return nil
	}
	parts, err := splitName(table.Sval)
	if err != nil {
		return nil
	}
	t := ns.Relation(RangeVar(parts)).Table
	if t == nil {
		return nil
	}
	for i := range ns.Snapshot.State().Sequences {
		q := &ns.Snapshot.State().Sequences[i]
		if o := q.Owner; o != nil && o.Schema == t.Schema && o.Table == t.Name && o.Column == column.Sval {
			return q
		}
	}
	return nil
}

// ownSerial reports whether a call is pg_get_serial_sequence('table', 'column') of a table that
// takes no values from sequences of the cluster: the default shard knows which it is.
func (ns *Namespace) ownSerial(f *pg.FuncCall) bool {
	if f == nil || len(f.Args) != 2 || ns.Lonely() {
		return false
	}
	names := sqltree.Strings(f.Funcname)
	return names[len(names)-1] == "pg_get_serial_sequence" && f.Args[0].GetAConst().GetSval() != nil && f.Args[1].GetAConst().GetSval() != nil
}

// Lonely reports whether the default shard has no sequences of its own.
func (ns *Namespace) Lonely() bool {
	sh, ok := ns.Snapshot.Shard(ns.Snapshot.State().DefaultShard)
	return ok && !sh.Can().Sequences
}

// SequenceNamed is the sequence of the cluster that a name means, nil if there is none.
func (ns *Namespace) SequenceNamed(parts []string) *shardmap.Sequence {
	if len(parts) > 1 {
		q, _ := ns.Snapshot.Sequence(parts[len(parts)-2], parts[len(parts)-1])
		return q
	}
	for _, s := range ns.Path {
		if q, ok := ns.Snapshot.Sequence(s, parts[0]); ok {
			return q
		}
		if _, ok := ns.Snapshot.Table(s, parts[0]); ok {
			return nil // it hides sequences of later schemas
		}
	}
	return nil
}

// splitName reads a name as regclass does: parts between dots, folded unless quoted.
func splitName(text string) ([]string, error) {
	bad := sqlstate.New("42602", "invalid name syntax")
	var parts []string
	for s := strings.TrimSpace(text); ; {
		if s == "" {
			return nil, bad
		}
		if s[0] == '"' {
			var b strings.Builder
			i := 1
			for ; i < len(s); i++ {
				if s[i] == '"' {
					if i+1 >= len(s) || s[i+1] != '"' {
						break
					}
					i++
				}
				b.WriteByte(s[i])
			}
			if i >= len(s) || b.Len() == 0 {
				return nil, bad
			}
			parts, s = append(parts, b.String()), strings.TrimSpace(s[i+1:])
		} else {
			end := strings.IndexAny(s, ". \t\n")
			if end < 0 {
				end = len(s)
			}
			if end == 0 {
				return nil, bad
			}
			parts, s = append(parts, strings.ToLower(s[:end])), strings.TrimSpace(s[end:])
		}
		if s == "" {
			return parts, nil
		}
		if s[0] != '.' {
			return nil, bad
		}
		s = strings.TrimSpace(s[1:])
	}
}

// GeneratedColumns returns the columns of a table whose values a router makes.
func GeneratedColumns(t *shardmap.Table) []*shardmap.Column {
	if t == nil {
		return nil
	}
	var out []*shardmap.Column
	for i := range t.Columns {
		if t.Columns[i].Generated != "" {
			out = append(out, &t.Columns[i])
		}
	}
	return out
}

// Unseen are the columns whose values have to be in rows that the router does not read: not
// those of an unsharded table whose sequence is being handed over, which the default shard still fills.
func (ns *Namespace) Unseen(t *shardmap.Table) []*shardmap.Column {
	out := GeneratedColumns(t)
	if t == nil || t.Kind != shardmap.Whole || ns.Lonely() {
		return out
	}
	return slices.DeleteFunc(out, func(c *shardmap.Column) bool { return shardmap.SequenceOf(c.Generated) != "" })
}

// AlwaysInsert is PostgreSQL's error for a value given to a column GENERATED ALWAYS.
func AlwaysInsert(column string) error {
	return sqlstate.New(sqlstate.GeneratedAlways, "cannot insert a non-DEFAULT value into column \"%s\"", column).
		WithDetail("Column \"%s\" is an identity column defined as GENERATED ALWAYS.", column).
		WithHint("Use OVERRIDING SYSTEM VALUE to override.")
}

// assignGenerated judges SET of columns whose values a router makes.
func (ns *Namespace) assignGenerated(rel *pg.RangeVar, list []*pg.Node) {
	t := ns.Relation(rel).Table
	for _, c := range GeneratedColumns(t) {
		for _, n := range list {
			r := n.GetResTarget()
			if r.GetName() != c.Name {
				continue
			}
			if AssignedExpr(r.GetVal()).GetSetToDefault() != nil {
				fail(sqlstate.Refusal("CLV-0243", "column %s gets its values from the router, and SET ... = DEFAULT would need one for each row", sqltext.QuoteIdent(c.Name)).
					WithHint("Give the value."))
			}
			if c.Identity == shardmap.IdentityAlways {
				fail(sqlstate.New(sqlstate.GeneratedAlways, "column \"%s\" can only be updated to DEFAULT", c.Name).
					WithDetail("Column \"%s\" is an identity column defined as GENERATED ALWAYS.", c.Name))
			}
		}
	}
}

// AssignedExpr is the value that SET (a, b) = (x, y) gives to one of the columns;
// other values are themselves.
func AssignedExpr(v *pg.Node) *pg.Node {
	m := v.GetMultiAssignRef()
	if row := m.GetSource().GetRowExpr(); row != nil && m.Colno >= 1 && int(m.Colno) <= len(row.Args) {
		return row.Args[m.Colno-1]
	}
	return v
}

// mergeGenerated judges the INSERT of a MERGE, whose rows the router does not see.
func (ns *Namespace) mergeGenerated(rel *pg.RangeVar, c *pg.MergeWhenClause) {
	t := ns.Relation(rel).Table
	for _, g := range ns.Unseen(t) {
		at := -1
		for i, n := range c.TargetList {
			if n.GetResTarget().GetName() == g.Name {
				at = i
			}
		}
		if len(c.TargetList) == 0 {
			at = slices.IndexFunc(t.Columns, func(o shardmap.Column) bool { return o.Name == g.Name })
		}
		if at < 0 || at >= len(c.Values) || c.Values[at].GetSetToDefault() != nil {
			fail(sqlstate.Refusal("CLV-0244", "the router makes the values of column %s, and does not see the rows that MERGE inserts", sqltext.QuoteIdent(g.Name)).
				WithHint("Let the source have the values, taken before (SELECT nextval(...) FROM generate_series(1, 10)), or use INSERT ... VALUES ... ON CONFLICT."))
		}
		if g.Identity != "" && c.Override == pg.OverridingKind_OVERRIDING_USER_VALUE {
			fail(sqlstate.Refusal("CLV-0245", "OVERRIDING USER VALUE ignores the values given for column %s, and the router does not see the rows that MERGE inserts", sqltext.QuoteIdent(g.Name)).
				WithHint("Use INSERT ... ON CONFLICT."))
		}
		if g.Identity == shardmap.IdentityAlways && c.Override != pg.OverridingKind_OVERRIDING_SYSTEM_VALUE {
			fail(AlwaysInsert(g.Name))
		}
	}
}
