// Package executor runs one-shard plans: it knows the current shard map, keeps
// the analysed statements, pools the conversations with the shards, and relays
// a shard's answers undecoded.
//
// # Types
//
// An [Executor] is put together of parts that have their own state. leaseuse.Served is the map that is served, and who uses
// which version of it. load.Meter counts where the load is. plans analyses statements and keeps the analyses, intern has
// the statements that sessions prepare alike, origins what sessions began with, logins the users of the shards' own. What
// is left to the Executor itself are the pools, and the servers of shards with replicas.
//
// # What it guarantees
//
//   - The map is read through one atomic pointer (Served.Snapshot); it is
//     replaced, never changed.
//   - A pool never holds more than PoolMax conversations; a statement waits for
//     one at most PoolWait, and at most WaitersMax statements wait. A shard that
//     cannot be reached fails its own statements at once and nobody else's.
//   - A conversation that goes back to its pool is outside any transaction. Else
//     it is closed. What settings were applied to it is remembered, and made
//     those of the next session in one round trip where they differ.
//   - A prepared statement of a shard is shared by sessions only under the same
//     text, parameter types, schema version and settings that change how text is
//     understood (search_path, TimeZone, DateStyle, ...).
//
// # A conversation's life
//
//	dialed ──▶ in use ──Release, status I──▶ idle ──Acquire (probed if it idled)──▶ in use
//	              │                           │
//	              │ broken, in a transaction, │ idle too long, too old,
//	              │ too old, shard removed    │ probe failed, shard removed
//	              ▼                           ▼
//	            closed                      closed
//
// A statement's answers are relayed by a [Pipeline]: the frames to send, and the
// queue of answers expected for them, with what happens to each (relayed,
// swallowed because the router itself asked, or a local answer in between). It
// ends only when every expected answer has come, so a conversation is never
// released with answers outstanding.
package executor
