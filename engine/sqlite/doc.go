// Package sqlite is the engine whose shards are SQLite files. It answers
// conversations of the PostgreSQL protocol in process: a statement's syntax tree
// is typed by PostgreSQL's own rules (see internal/pgcatalog) and becomes one
// SQLite statement, whose rows become protocol messages as they are stepped.
//
// A conversation is layers, of which each embeds the next one:
//
//	Conn          messages, scripts, running portals, COPY
//	session       the transaction with its portals and cursors: what begins, commits and rolls back both
//	transaction   settings, the transaction and its deferred keys (deferred.go), the turn to write (writer)
//	definitions   what the file defines, as the transaction sees it
//	database      Cleave's own SQL on the connection, and what interrupts it
//
// Beside them are schemaChange (ddl.go, alter.go, drop.go, index.go, view.go), a statement that changes definitions, and
// mover (mover.go), by which rows leave and enter the file.
//
// These packages know no connection:
//
//	translate    a statement's tree into SQLite's text
//	catalog      definitions, and what names mean (Namespace); systemrows has the rows of pg_catalog
//	value        values in text, binary and SQLite's form; function: what SQLite calls; quote: names and constants
//	syntax       trees: parse, print, walk; fault: to stop with an error
//	copytext     the forms of COPY
//	change       the changes of a transaction, as a prepared one keeps them
//	turnstile    turns of processes at the write lock
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
