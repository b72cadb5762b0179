// Package prototree walks messages in an order that is the same in every build.
//
// The order of protoreflect's Range is another one from build to build, on purpose (google.golang.org/protobuf,
// internal/detrand). Which of a statement's faults is told first, and how plans number their parts, must not be.
package prototree

import "google.golang.org/protobuf/reflect/protoreflect"

// EachField calls f for the fields of m that are set, in the order in which they are declared, until f returns false.
func EachField(m protoreflect.Message, f func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool) {
	fields := m.Descriptor().Fields()
	if n := fields.Len(); n > 0 {
		// A message that is one choice of many (a node of a syntax tree has some 270) is not searched.
		if of := fields.Get(0).ContainingOneof(); of != nil && of.Fields().Len() == n {
			if fd := m.WhichOneof(of); fd != nil {
				f(fd, m.Get(fd))
			}
			return
		}
	}
	for i := range fields.Len() {
		if fd := fields.Get(i); m.Has(fd) && !f(fd, m.Get(fd)) {
			return
		}
	}
}
