package sqltree

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/prototree"
)

// Clone copies a tree or a part of one.
func Clone[T proto.Message](m T) T { return proto.Clone(m).(T) }

// Inspect calls f for m and all below it, parents first; f says whether to go below.
func Inspect(m proto.Message, f func(m proto.Message) bool) {
	if m == nil || !m.ProtoReflect().IsValid() {
		return
	}
	inspectMessage(m.ProtoReflect(), f)
}

// Below calls f for each message that is a field of m, or in a list that is.
func Below(m protoreflect.Message, f func(protoreflect.Message)) {
	prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		if !fd.IsList() {
			f(v.Message())
			return true
		}
		for i := range v.List().Len() {
			f(v.List().Get(i).Message())
		}
		return true
	})
}

func inspectMessage(m protoreflect.Message, f func(m proto.Message) bool) {
	if !f(m.Interface()) {
		return
	}
	Below(m, func(v protoreflect.Message) { inspectMessage(v, f) })
}

// InspectAll is inspect of a list.
func InspectAll(list []*pg.Node, f func(m proto.Message) bool) {
	for _, n := range list {
		Inspect(n, f)
	}
}

// Replace calls f for every node below n, parents first, and puts in its place
// what f returns if that is another node; then it does not go below. It changes n.
func Replace(n *pg.Node, f func(n *pg.Node) *pg.Node) *pg.Node {
	if n == nil {
		return nil
	}
	if r := f(n); r != n {
		return r
	}
	replaceMessage(n.ProtoReflect(), f)
	return n
}

func replaceMessage(m protoreflect.Message, f func(n *pg.Node) *pg.Node) {
	prototree.EachField(m, func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		one := func(v protoreflect.Value, set func(protoreflect.Value)) {
			if n, ok := v.Message().Interface().(*pg.Node); ok {
				if r := f(n); r != n {
					set(protoreflect.ValueOfMessage(r.ProtoReflect()))
					return
				}
			}
			replaceMessage(v.Message(), f)
		}
		if fd.IsList() {
			l := v.List()
			for i := range l.Len() {
				one(l.Get(i), func(v protoreflect.Value) { l.Set(i, v) })
			}
			return true
		}
		one(v, func(v protoreflect.Value) { m.Set(fd, v) })
		return true
	})
}

// EachCall calls f for the function calls of one query level: those of its
// clauses, not of its FROM list's subqueries or of subqueries in expressions.
func EachCall(s *pg.SelectStmt, f func(*pg.FuncCall)) {
	for _, list := range [][]*pg.Node{s.DistinctClause, s.TargetList, s.GroupClause, {s.HavingClause}, s.WindowClause, s.SortClause, {s.WhereClause}} {
		InspectAll(list, func(m proto.Message) bool {
			switch v := m.(type) {
			case *pg.SelectStmt:
				return false
			case *pg.FuncCall:
				f(v)
			}
			return true
		})
	}
}

// CallsNamed reports whether there is a call of a function of that name.
func CallsNamed(m proto.Message, name string) bool {
	found := false
	Inspect(m, func(m proto.Message) bool {
		f, is := m.(*pg.FuncCall)
		found = found || is && CallName(f) == name
		return !found
	})
	return found
}

// Descend goes through a tree, parents first; f says whether to go below.
func Descend(m protoreflect.Message, f func(protoreflect.Message) bool) {
	if !m.IsValid() || !f(m) {
		return
	}
	// The order of fields is that of their numbers, so that plans come out the same.
	fds := m.Descriptor().Fields()
	if _, ok := m.Interface().(*pg.Node); ok { // one of some 270 fields
		if fd := m.WhichOneof(fds.Get(0).ContainingOneof()); fd != nil {
			Descend(m.Get(fd).Message(), f)
		}
		return
	}
	for i := range fds.Len() {
		fd := fds.Get(i)
		if fd.Kind() != protoreflect.MessageKind || !m.Has(fd) {
			continue
		}
		if fd.IsList() {
			for l, i := m.Get(fd).List(), 0; i < l.Len(); i++ {
				Descend(l.Get(i).Message(), f)
			}
		} else {
			Descend(m.Get(fd).Message(), f)
		}
	}
}

// EachRangeVar calls f for the table names of a tree, in the order of its fields.
func EachRangeVar(m protoreflect.Message, f func(*pg.RangeVar)) {
	Descend(m, func(m protoreflect.Message) bool {
		if v, ok := m.Interface().(*pg.RangeVar); ok {
			f(v)
		}
		return true
	})
}

// EachMessage calls f for m and every message below it, in the order of the fields.
func EachMessage(m protoreflect.Message, f func(protoreflect.Message)) {
	f(m)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Kind() != protoreflect.MessageKind || !m.Has(fd) {
			continue
		}
		v := m.Get(fd)
		if fd.IsList() {
			for j := range v.List().Len() {
				EachMessage(v.List().Get(j).Message(), f)
			}
		} else {
			EachMessage(v.Message(), f)
		}
	}
}

// HasRows reports whether a statement has something in FROM, whose whole rows a name can stand for.
func HasRows(n *pg.Node) bool {
	found := false
	Inspect(n, func(m proto.Message) bool {
		switch m.(type) {
		case *pg.RangeVar, *pg.RangeSubselect, *pg.RangeFunction, *pg.RangeTableFunc, *pg.RangeTableSample, *pg.JsonTable:
			found = true
		}
		return !found
	})
	return found
}

// EachFrom calls f for the tables of an element of FROM, not for those of
// subqueries. hidden: an alias of a join hides the table's name.
func EachFrom(n *pg.Node, hidden bool, f func(n *pg.Node, hidden bool)) {
	switch v := n.GetNode().(type) {
	case *pg.Node_RangeVar:
		f(n, hidden)
	case *pg.Node_JoinExpr:
		hidden = hidden || v.JoinExpr.Alias != nil
		EachFrom(v.JoinExpr.Larg, hidden, f)
		EachFrom(v.JoinExpr.Rarg, hidden, f)
	case *pg.Node_RangeTableSample:
		if v.RangeTableSample.Relation.GetRangeVar() != nil && !hidden {
			f(v.RangeTableSample.Relation, false)
		}
	}
}
