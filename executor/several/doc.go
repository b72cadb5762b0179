// Package several makes several shards one: its Conn is a conversation of
// PostgreSQL protocol messages, as engine.Conn asks for, behind which are the
// pooled conversations of the shards that take part. The session above talks to
// it as to any shard, so portals, formats, cursors, savepoints and errors have
// one way for all. What a statement means for which shard is in plan.Plan.
//
// docs/design/several.md has states, invariants and failure cases; how transactions over
// several shards end is in docs/design/transactions.md.
package several
