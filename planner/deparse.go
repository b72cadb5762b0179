package planner

import (
	"strings"
	"sync"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Texts of statements over several shards are made from syntax trees: names of
// tables change, conditions move. A deparser that gets something wrong would
// change the answer, so what it wrote is parsed again and has to be the same tree.

// restate returns the text of a statement's tree; ok is false if it cannot be
// written down with certainty.
func restate(n *pg.Node) (text string, ok bool) {
	want := clone(n)
	text, err := pg.Deparse(&pg.ParseResult{Version: parserVersion(), Stmts: []*pg.RawStmt{{Stmt: want}}})
	if err != nil {
		return "", false
	}
	again, err := pg.Parse(text)
	if err != nil || len(again.Stmts) != 1 {
		return "", false
	}
	got := again.Stmts[0].Stmt
	forgetPlaces(want.ProtoReflect())
	forgetPlaces(got.ProtoReflect())
	return text, proto.Equal(want, got)
}

// parserVersion is what the deparser wants to see in a tree.
var parserVersion = sync.OnceValue(func() int32 {
	tree, err := pg.Parse("SELECT 1")
	if err != nil {
		return 0 // then nothing is restated
	}
	return tree.Version
})

// forgetPlaces clears what a tree says about its text's bytes.
func forgetPlaces(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() == protoreflect.Int32Kind && strings.HasSuffix(string(fd.Name()), "location"):
			m.Clear(fd)
		case fd.Kind() != protoreflect.MessageKind:
		case fd.IsList():
			for i := range v.List().Len() {
				forgetPlaces(v.List().Get(i).Message())
			}
		default:
			forgetPlaces(v.Message())
		}
		return true
	})
}
