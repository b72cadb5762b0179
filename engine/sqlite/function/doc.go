// Package function is the library of functions, aggregates and collations that SQL on a SQLite shard calls: what
// PostgreSQL has and SQLite has not, or has differently. They are registered with SQLite for each connection.
//
// Invariants:
//   - A function gives PostgreSQL's value, or PostgreSQL's error, or refuses. What it does not know it refuses.
//   - An error stops the statement, and Env keeps it with its SQLSTATE and fields: SQLite carries only its text.
//   - Nothing here knows a conversation. Functions of a conversation are given to Register beside the library.
package function
