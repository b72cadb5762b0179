// Package pgbackend keeps what a backend of PostgreSQL's protocol keeps for its client between two messages: prepared statements
// by name, portals by name, and the savepoints that portals end with. Gateway sessions, conversations over several shards and
// SQLite's conversations keep theirs in it; what a statement and a portal are is up to them. The messages themselves are read by
// internal/wire. docs/design/backend.md has the rules.
package pgbackend
