package sqltree

import (
	"strings"
	"sync"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/prototree"
)

// Texts of statements over several shards are made from syntax trees: names of
// tables change, conditions move. A deparser that gets something wrong would
// change the answer, so what it wrote is parsed again and has to be the same tree.

// Restate returns the text of a statement's tree; ok is false if it cannot be
// written down with certainty.
func Restate(n *pg.Node) (text string, ok bool) {
	if text, ok = restated(n, Clone(n)); ok {
		return text, true
	}
	// The printer leaves out brackets that are needed: once more with all of them.
	return restated(n, bracketed(Clone(n)))
}

// restated prints a tree and looks whether the text means another one.
func restated(n, print *pg.Node) (text string, ok bool) {
	want := Clone(n)
	text, err := pg.Deparse(&pg.ParseResult{Version: parserVersion(), Stmts: []*pg.RawStmt{{Stmt: print}}})
	if err != nil {
		return "", false
	}
	text = strings.ReplaceAll(text, bracket+"(", "(")
	again, err := pg.Parse(text)
	if err != nil || len(again.Stmts) != 1 {
		return "", false
	}
	got := again.Stmts[0].Stmt
	ForgetPlaces(want.ProtoReflect())
	ForgetPlaces(got.ProtoReflect())
	return text, proto.Equal(want, got)
}

// bracket is the name of calls that stand for a pair of brackets until they are printed.
const bracket = "cleave_bracket_"

// bracketed puts brackets around the operands of operators that are operators
// themselves. It changes the tree.
func bracketed(n *pg.Node) *pg.Node {
	wrap := func(n *pg.Node) *pg.Node {
		switch n.GetNode().(type) {
		case *pg.Node_AExpr, *pg.Node_BoolExpr, *pg.Node_NullTest, *pg.Node_BooleanTest, *pg.Node_SubLink:
			return &pg.Node{Node: &pg.Node_FuncCall{FuncCall: &pg.FuncCall{Funcname: []*pg.Node{StringNode(bracket)}, Args: []*pg.Node{n}, Funcformat: pg.CoercionForm_COERCE_EXPLICIT_CALL}}}
		}
		return n
	}
	Descend(n.ProtoReflect(), func(m protoreflect.Message) bool {
		switch v := m.Interface().(type) {
		case *pg.A_Expr:
			v.Lexpr, v.Rexpr = wrap(v.Lexpr), wrap(v.Rexpr)
			switch v.Kind {
			case pg.A_Expr_Kind_AEXPR_BETWEEN, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN, pg.A_Expr_Kind_AEXPR_BETWEEN_SYM, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM:
				for i, item := range v.Rexpr.GetList().GetItems() {
					v.Rexpr.GetList().Items[i] = wrap(item)
				}
			}
		case *pg.NullTest:
			v.Arg = wrap(v.Arg)
		case *pg.BooleanTest:
			v.Arg = wrap(v.Arg)
		case *pg.SubLink:
			v.Testexpr = wrap(v.Testexpr)
		case *pg.BoolExpr:
			if v.Boolop == pg.BoolExprType_NOT_EXPR {
				for i, a := range v.Args {
					v.Args[i] = wrap(a)
				}
			}
		}
		return true
	})
	return n
}

// parserVersion is what the deparser wants to see in a tree.
var parserVersion = sync.OnceValue(func() int32 {
	tree, err := pg.Parse("SELECT 1")
	if err != nil {
		return 0 // then nothing is restated
	}
	return tree.Version
})

// ForgetPlaces clears what a tree says about its text's bytes.
func ForgetPlaces(m protoreflect.Message) {
	prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() == protoreflect.Int32Kind && strings.HasSuffix(string(fd.Name()), "location"):
			m.Clear(fd)
		case fd.Kind() != protoreflect.MessageKind:
		case fd.IsList():
			for i := range v.List().Len() {
				ForgetPlaces(v.List().Get(i).Message())
			}
		default:
			ForgetPlaces(v.Message())
		}
		return true
	})
}

// SameNode compares two expressions but for their places in the text.
func SameNode(x, y *pg.Node) bool {
	x, y = Clone(x), Clone(y)
	ForgetPlaces(x.ProtoReflect())
	ForgetPlaces(y.ProtoReflect())
	return proto.Equal(x, y)
}
