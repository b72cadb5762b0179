// Package sqlite is the engine whose shards are SQLite files. It answers
// conversations of the PostgreSQL protocol in process: a statement's syntax tree
// is typed by PostgreSQL's own rules (see internal/pgcatalog) and becomes one
// SQLite statement, whose rows become protocol messages as they are stepped.
//
// Invariants:
//   - Exact or refused. An operator or function runs only if it has an entry in
//     the tables of emit_*.go that gives PostgreSQL's value for every input;
//     what PostgreSQL knows and this package does not gets 0A000, what
//     PostgreSQL does not know gets PostgreSQL's error.
//   - Stored values have one SQLite storage class per PostgreSQL type (see
//     value.go), so that SQLite's comparison is PostgreSQL's. Columns have no
//     affinity: SQLite converts nothing.
//   - The definitions with PostgreSQL's types are rows of cleave_object in the
//     same file, changed in the same transaction as SQLite's own schema.
//   - No goroutine of its own: Send queues frames, Receive runs them until there
//     is something to return. A timer stops a statement at its deadline.
package sqlite
