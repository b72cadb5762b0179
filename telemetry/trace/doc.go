// Package trace sends spans of statements to an OpenTelemetry collector, and
// reads and writes the context by which they join the client's own.
//
// A statement's spans are made when it has ended, from times that were taken
// anyway: nothing is done on the way. Whether it is traced is decided by its
// parent (the sampled flag of the traceparent) or, without one, by the ratio.
//
// Invariants: no statement waits for a collector; the queue has a bound, and what
// is over it is dropped and counted; no span holds a literal or a parameter.
//
// The package is a leaf of room telemetry: it imports that room and OpenTelemetry.
package trace
