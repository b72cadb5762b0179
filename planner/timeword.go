package planner

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/shardmap"
)

// A string that PostgreSQL reads as a time may be a word for the time of the
// transaction: WHERE at < 'now', VALUES ('today'). Each shard has a transaction of its
// own, so that where the string's type is certain it becomes a cast, which is known to
// depend on the time (clockLiteral).

// wordTypes are the types that know such words, by OID.
var wordTypes = map[uint32]string{oidDate: "date", oidTime: "time", oidTimestamp: "timestamp", oidTimestmpz: "timestamptz", oidTimetz: "timetz"}

const (
	oidTime   = 1083
	oidTimetz = 1266
)

// TimeWord reports whether a text is one of the words alone, in any case, with blanks around it.
func TimeWord(s string) bool {
	if len(s) < 3 || len(s) > 64 {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "now", "today", "tomorrow", "yesterday":
		return true
	}
	return false
}

// timed returns a string literal that is read as a type as the cast to that type, if it
// is one of the words; else n.
func timed(n *pg.Node, oid uint32) *pg.Node {
	typ := wordTypes[oid]
	if s := n.GetAConst().GetSval(); typ == "" || s == nil || !TimeWord(s.Sval) {
		return n
	}
	cast := castNode(n, typ, nil)
	if word, _ := clockLiteral(cast.GetTypeCast()); word == "" {
		return n // 'today' is no time of day
	}
	return cast
}

// hasTimeWord reports whether a tree has one of the words as a string of its own.
func hasTimeWord(m proto.Message) bool {
	found := false
	inspect(m, func(m proto.Message) bool {
		if c, ok := m.(*pg.A_Const); ok && c.GetSval() != nil {
			found = found || TimeWord(c.GetSval().Sval)
		}
		return !found
	})
	return found
}

// comparedWords makes casts of the words that an expression compares with times. Only
// the second reading has a tree that it may change.
func (a *analyzer) comparedWords(e *pg.A_Expr, sc *scope) {
	if a.second == nil {
		return
	}
	word := func(n *pg.Node) bool { s := n.GetAConst().GetSval(); return s != nil && TimeWord(s.Sval) }
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_OP, pg.A_Expr_Kind_AEXPR_DISTINCT, pg.A_Expr_Kind_AEXPR_NOT_DISTINCT, pg.A_Expr_Kind_AEXPR_NULLIF:
		switch operator(e) {
		case "=", "<>", "!=", "<", ">", "<=", ">=":
		default:
			return
		}
		if word(e.Rexpr) {
			e.Rexpr = timed(e.Rexpr, a.typeOf(e.Lexpr, sc))
		}
		if word(e.Lexpr) {
			e.Lexpr = timed(e.Lexpr, a.typeOf(e.Rexpr, sc))
		}
	case pg.A_Expr_Kind_AEXPR_IN, pg.A_Expr_Kind_AEXPR_BETWEEN, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN, pg.A_Expr_Kind_AEXPR_BETWEEN_SYM, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM:
		items := e.Rexpr.GetList().GetItems()
		for i, n := range items {
			if word(n) {
				items[i] = timed(n, a.typeOf(e.Lexpr, sc))
			}
		}
	}
}

// commonWords makes casts of the words beside which there are times in what gives one of several
// values: COALESCE(at, 'now').
func (a *analyzer) commonWords(sc *scope, of ...**pg.Node) {
	if a.second == nil {
		return
	}
	var all []*pg.Node
	found := false
	for _, n := range of {
		s := (*n).GetAConst().GetSval()
		found = found || s != nil && TimeWord(s.Sval)
		all = append(all, *n)
	}
	if !found {
		return
	}
	oid := a.commonType(all, sc)
	for _, n := range of {
		*n = timed(*n, oid)
	}
}

// pointers are the places of a list's nodes.
func pointers(list []*pg.Node) []**pg.Node {
	out := make([]**pg.Node, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// storedWords makes casts of the words that are assigned to columns of times.
func (a *analyzer) storedWords(v *pg.RangeVar, list []*pg.Node) {
	t := a.relation(v).table
	if a.second == nil || t == nil {
		return
	}
	multi := false
	for _, n := range list {
		if r := n.GetResTarget(); r != nil && len(r.Indirection) == 0 {
			from := assigned(r.Val)
			to := timed(from, keyColumnOrUnknown(t, r.Name).OID)
			if to == from {
				continue
			}
			if multi = multi || from != r.Val; !multi {
				r.Val = to
			}
		}
	}
	if !multi {
		return
	}
	for _, n := range list {
		r := n.GetResTarget() // SET (a, b) = (x, y) is SET a = x, b = y
		if r.Val = assigned(r.Val); len(r.Indirection) == 0 {
			r.Val = timed(r.Val, keyColumnOrUnknown(t, r.Name).OID)
		}
	}
}

// insertedWords is storedWords for the rows of an INSERT.
func (a *analyzer) insertedWords(t *shardmap.Table, cols []string, sel *pg.SelectStmt) {
	if a.second == nil || t == nil || sel == nil {
		return
	}
	for i, name := range cols {
		oid := keyColumnOrUnknown(t, name).OID
		if wordTypes[oid] == "" {
			continue
		}
		for _, row := range sel.ValuesLists {
			if items := row.GetList().GetItems(); i < len(items) {
				items[i] = timed(items[i], oid)
			}
		}
		if i < len(sel.TargetList) && sel.Op == pg.SetOperation_SETOP_NONE && !anyStar(sel.TargetList[:i]) && len(sel.DistinctClause) == 0 && len(sel.GroupClause) == 0 {
			if r := sel.TargetList[i].GetResTarget(); r != nil {
				r.Val = timed(r.Val, oid)
			}
		}
	}
}

// readWords makes casts of a statement's words for times, as far as they are certain.
func (p *Planner) readWords(n *pg.Node, sql string, snap *shardmap.Snapshot, path []string) {
	if d := n.GetDeclareCursorStmt(); d != nil {
		n = d.Query
	}
	switch n.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
	default:
		return
	}
	a := p.analyzer(sql, snap, path)
	a.second = newReading()
	defer func() {
		if r := recover(); r != nil {
			if _, refused := r.(bailout); !refused {
				panic(r)
			}
		}
	}()
	a.query(n)
}
