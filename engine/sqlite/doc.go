// Package sqlite is the engine whose shards are SQLite files. It answers
// conversations of the PostgreSQL protocol in process: a statement's syntax tree
// is typed by PostgreSQL's own rules (see internal/pgcatalog) and becomes one
// SQLite statement, whose rows become protocol messages as they are stepped.
//
// Invariants:
//   - Exact or refused: see package translate, which makes the SQLite statement.
//   - Stored values have one SQLite storage class per PostgreSQL type (see
//     package value), so that SQLite's comparison is PostgreSQL's. Columns have no
//     affinity: SQLite converts nothing.
//   - The definitions with PostgreSQL's types are rows of cleave_object in the
//     same file, changed in the same transaction as SQLite's own schema.
//   - No goroutine of its own: Send queues frames, Receive runs them until there
//     is something to return. A timer stops a statement at its deadline.
package sqlite
