package prototree_test

import (
	"slices"
	"testing"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/prototree"
)

// TestEachField: all fields that Range has, each once, in the order of their declaration.
func TestEachField(t *testing.T) {
	tree, err := pg.Parse("WITH w AS (SELECT 1) SELECT DISTINCT a, count(*) FROM t, w WHERE b = 'x' GROUP BY a HAVING true ORDER BY 1 LIMIT 3 OFFSET 2 FOR UPDATE")
	if err != nil {
		t.Fatal(err)
	}
	messages := 0
	var walk func(m protoreflect.Message)
	walk = func(m protoreflect.Message) {
		messages++
		var got, all []int
		prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			got = append(got, fd.Index())
			if fd.Kind() == protoreflect.MessageKind && fd.IsList() {
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			} else if fd.Kind() == protoreflect.MessageKind {
				walk(v.Message())
			}
			return true
		})
		m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			all = append(all, fd.Index())
			return true
		})
		slices.Sort(all)
		if !slices.Equal(got, all) {
			t.Errorf("%s: fields %v, want %v", m.Descriptor().Name(), got, all)
		}
	}
	walk(tree.ProtoReflect())
	if messages < 50 {
		t.Errorf("only %d messages", messages)
	}
	seen := 0
	prototree.EachField(tree.Stmts[0].Stmt.GetSelectStmt().ProtoReflect(), func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		seen++
		return seen < 2
	})
	if seen != 2 {
		t.Errorf("it went on for %d fields", seen)
	}
}
