package planner

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// namesNothingInternal refuses a schema change that names the router's schema on a shard, in whatever place of whatever
// statement of the grammar. Literals are no names. Calls are left to function, since dumps of a shard have some in defaults.
func namesNothingInternal(n *pg.Node) {
	inspect(n, func(m proto.Message) bool {
		switch v := m.(type) {
		case *pg.A_Const:
			return false
		case *pg.FuncCall:
			for _, arg := range v.Args {
				namesNothingInternal(arg)
			}
			return false
		}
		m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if fd.Kind() == protoreflect.StringKind && fd.Name() != "comment" && v.String() == InternalSchema {
				fail(internalSchemaError())
			}
			return true
		})
		return true
	})
}
