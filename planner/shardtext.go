package planner

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/planner/outputname"
	"github.com/cleavedb/cleave/planner/ownership"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/planner/sourcetext"
	"github.com/cleavedb/cleave/planner/sqltree"
	"github.com/cleavedb/cleave/sqlstate"
)

// text prints one statement, whose casts look for words for the time. 0A000 if the printed text would mean another.
func (a *analyzer) text(stmt *pg.Node) (string, error) {
	if err := a.p.parser().GoesOn(); err != nil {
		fail(err)
	}
	a.guarded(stmt)
	if out, ok := sqltree.Restate(stmt); ok && a.p.parser().Check(out) == nil {
		return out, nil
	}
	return "", sqlstate.Refusal("CLV-0272", "the statement has a form that the router cannot rewrite for several shards").
		WithHint("Write it in a simpler way, or add the shard key to the WHERE clause.")
}

// fresh returns a name for a temporary relation of the plan.
func (t *severalTexts) fresh() string {
	t.names++
	return plan.RelationPrefix + strconv.Itoa(t.names)
}

// hiddenPrefix begins the names of columns by which rows of several shards are merged.
const hiddenPrefix = "cleave_key_"

// ownNames refuses names that the router gives in texts that it makes: in these, and to begin with, where something is named.
func ownNames(sql string) error {
	text := strings.ToLower(sql)
	for _, prefix := range []string{plan.RelationPrefix, hiddenPrefix} {
		if strings.Contains(text, prefix) {
			return sqlstate.Refusal("CLV-0273", "names that begin with %s are the router's own", prefix).WithHint("Use another name.")
		}
	}
	return nil
}

// clocked replaces now() and its relatives in a tree by the parameter of
// Plan.Clock. It changes the tree. The names of output columns stay.
func (a *analyzer) clocked(n *pg.Node) *pg.Node {
	var f func(n *pg.Node) *pg.Node
	f = func(n *pg.Node) *pg.Node {
		switch v := n.GetNode().(type) {
		case *pg.Node_ResTarget:
			r := v.ResTarget
			if r.Name == "" && r.Val != nil && sqltree.UsesClock(r.Val) {
				r.Name = outputname.Of(r.Val)
			}
		case *pg.Node_FuncCall:
			switch {
			case sqltree.IsClock(v.FuncCall):
				a.Native(v.FuncCall)
				return a.clockParam()
			case sqltree.IsAge(v.FuncCall):
				a.Native(v.FuncCall)
				// age(x) is age(current_date::timestamp, x); which type x has is the server's to say.
				v.FuncCall.Args = []*pg.Node{sqltree.CastNode(sqltree.CastNode(a.clockParam(), "date", nil), "timestamp", nil), sqltree.Replace(v.FuncCall.Args[0], f)}
				return n
			}
		case *pg.Node_TypeCast:
			if word, typ := sqltree.ClockLiteral(v.TypeCast); word != "" {
				return sqltree.CastNode(a.clockWord(word), typ, v.TypeCast.TypeName.Typmods)
			}
		case *pg.Node_SqlvalueFunction:
			if typ := sqltree.ClockOps[v.SqlvalueFunction.Op]; typ != "" {
				var mod []*pg.Node
				if m := v.SqlvalueFunction.Typmod; m >= 0 {
					mod = []*pg.Node{sqltree.IntNode(int64(m))}
				}
				return sqltree.CastNode(a.clockParam(), typ, mod)
			}
		}
		return n
	}
	return sqltree.Replace(n, f)
}

// clockWord is what such a word means.
func (a *analyzer) clockWord(word string) *pg.Node {
	day := sqltree.CastNode(a.clockParam(), "date", nil)
	switch word {
	case "today":
		return day
	case "tomorrow":
		return sqltree.OpNode("+", day, sqltree.IntNode(1))
	case "yesterday":
		return sqltree.OpNode("-", day, sqltree.IntNode(1))
	}
	return a.clockParam()
}

func (a *analyzer) clockParam() *pg.Node {
	a.texts.clock = true
	n := a.Statement.Params + 1
	if a.fill != nil {
		n += len(a.fill.values)
	}
	return sqltree.CastNode(&pg.Node{Node: &pg.Node_ParamRef{ParamRef: &pg.ParamRef{Number: int32(n)}}}, "timestamptz", nil)
}

// written is the text of a tree, or a refusal.
func (a *analyzer) written(n *pg.Node) string {
	text, err := a.text(n)
	if err != nil {
		fail(err)
	}
	return text
}

// ownershipOf confines a text, which its tree has become, to the rows that a shard owns of some tables.
func ownershipOf(tree *pg.Node, text string, uses ...*semantics.Use) *ownership.Filter {
	tables := make([]ownership.NamedTable, len(uses))
	for i, u := range uses {
		tables[i] = ownership.NamedTable{Ref: u.Ref, Table: u.Relation.Table}
	}
	o, ok := ownership.Sites(tree, text, tables...)
	if !ok {
		sourcetext.LostPlace()
	}
	return o
}

// ownTemplate is the template of a tree, confined by the uses.
func (wp *writePlans) ownTemplate(tree *pg.Node, uses ...*semantics.Use) plan.Template {
	text := wp.written(tree)
	t := plan.NewTemplate(text)
	t.Ownership = ownershipOf(tree, text, uses...)
	return t
}
