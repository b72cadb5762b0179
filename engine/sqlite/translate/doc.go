// Package translate turns a statement of PostgreSQL's syntax tree into one statement of SQLite, typed by PostgreSQL's own
// rules (see internal/pgcatalog).
//
// An operator or function runs only if the tables of emit.go and emit_system.go have an entry for it that gives
// PostgreSQL's value for every input. What PostgreSQL knows and this package does not gets 0A000; what PostgreSQL does
// not know gets PostgreSQL's error.
//
// Each layer knows what the one below does not:
//
//	Translator   SELECT, INSERT, UPDATE, DELETE, expressions, calls
//	converter    types: casts, what an untyped literal or parameter becomes
//	scopes       columns of the tables in FROM, here and around
//	resolver     tables and types by their names (catalog.Namespace)
//	place        positions in the text, for errors
//
// Nothing here knows a connection. A definition is translated by Check, Conversion, DefaultSQL and ViewColumns.
package translate
