// Package syntax reads statements into the trees of PostgreSQL's parser, prints expressions again, and walks trees.
package syntax

import (
	"errors"
	"strings"
	"sync"
	"unicode/utf8"

	pg "github.com/pganalyze/pg_query_go/v6"
	"github.com/pganalyze/pg_query_go/v6/parser"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/internal/prototree"
	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/sqlstate"
)

// maxSize bounds a statement's text.
const maxSize = 8 << 20

// Tree parses text. The parser recurses on the C stack, so the text is
// checked for nesting first.
func Tree(text string) (*pg.ParseResult, error) {
	if err := sqlguard.Check(text, sqlguard.Limits{Bytes: maxSize}); err != nil {
		return nil, err
	}
	tree, err := pg.Parse(text)
	if err != nil {
		return nil, syntaxError(text, err)
	}
	return tree, nil
}

// syntaxError turns the parser's error into PostgreSQL's.
func syntaxError(text string, err error) error {
	e := sqlstate.New(sqlstate.SyntaxError, "%s", err.Error())
	var pe *parser.Error
	if errors.As(err, &pe) && pe.Cursorpos > 0 {
		e.Position = min(pe.Cursorpos, utf8.RuneCountInString(text)+1)
	}
	if strings.Contains(e.Message, "must be no more than") || strings.Contains(e.Message, "out of range") {
		e.Code = sqlstate.SyntaxError
	}
	return e
}

// Expr parses the text of an expression that the catalogue keeps.
func Expr(text string) (*pg.Node, error) {
	tree, err := Tree("SELECT " + text)
	if err != nil {
		return nil, err
	}
	if len(tree.Stmts) != 1 {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "the catalogue holds a bad expression")
	}
	s := tree.Stmts[0].Stmt.GetSelectStmt()
	if s == nil || len(s.TargetList) != 1 {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "the catalogue holds a bad expression")
	}
	return s.TargetList[0].GetResTarget().Val, nil
}

// parserVersion is the version that the parser wants to see in a tree.
var parserVersion = sync.OnceValue(func() int32 {
	tree, err := pg.Parse("SELECT 1")
	if err != nil {
		return 0
	}
	return tree.Version
})

// Deparse prints an expression.
func Deparse(n *pg.Node) string {
	tree := &pg.ParseResult{Version: parserVersion(), Stmts: []*pg.RawStmt{{Stmt: &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: &pg.SelectStmt{
		TargetList:  []*pg.Node{{Node: &pg.Node_ResTarget{ResTarget: &pg.ResTarget{Val: n}}}},
		LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE}}}}}}
	s, err := pg.Deparse(tree)
	if err != nil {
		fault.Refuse("CLV-2024", "this expression")
	}
	return strings.TrimPrefix(s, "SELECT ")
}

// Columns calls fn for every column reference in an expression.
func Columns(m proto.Message, fn func(*pg.ColumnRef)) {
	if r, ok := m.(*pg.ColumnRef); ok {
		fn(r)
	}
	prototree.EachField(m.ProtoReflect(), func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				Columns(v.List().Get(i).Message().Interface(), fn)
			}
		case fd.Message() != nil && !fd.IsMap():
			Columns(v.Message().Interface(), fn)
		}
		return true
	})
}

// Each calls fn for all messages of a syntax tree.
func Each(m protoreflect.Message, fn func(protoreflect.Message)) {
	fn(m)
	prototree.EachField(m, func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Message() == nil {
			return true
		}
		if f.IsList() {
			for i := range v.List().Len() {
				Each(v.List().Get(i).Message(), fn)
			}
			return true
		}
		Each(v.Message(), fn)
		return true
	})
}

// LastName is a type's name without its schema.
func LastName(n *pg.TypeName) string {
	return n.Names[len(n.Names)-1].GetString_().GetSval()
}

// Int is the number that a node is, perhaps with a sign.
func Int(n *pg.Node) (int64, bool) {
	if c := n.GetAConst(); c != nil {
		if iv, ok := c.Val.(*pg.A_Const_Ival); ok {
			return int64(iv.Ival.GetIval()), true
		}
	}
	if e := n.GetAExpr(); e != nil && e.Lexpr == nil && e.Kind == pg.A_Expr_Kind_AEXPR_OP && len(e.Name) == 1 && e.Name[0].GetString_().GetSval() == "-" {
		v, ok := Int(e.Rexpr)
		return -v, ok
	}
	return 0, false
}
