// Package gateway is the PostgreSQL endpoint: sessions that speak the frontend/
// backend protocol, version 3.0, and the virtual schema "cleave".
//
// One goroutine serves one session. It reads a batch of the client's frames,
// plans, borrows a shard's conversation, sends with one write, relays the
// answers undecoded and flushes with one write. One more goroutine watches all
// sessions: timeouts, clients that left, shards that do not obey a cancel.
//
// # A session
//
//	startup ──▶ idle ──frames──▶ busy ──ReadyForQuery──▶ idle, or idle in a transaction
//	   │          │                │
//	   ▼          ▼                ▼
//	 refused    57P05, 57P01     client gone: the statement is cancelled, the
//	            (drain)          conversation closed
//
// A session is made of layers, each of which knows those below it and none above:
// session (the client's messages), commands (what the router carries out itself),
// prepared (statements with parameters), unitRun (reach a shard, relay, end
// transactions). Below are parts with their own state, each drawn at its type:
// transaction, link, shardConns, interrupts, planning, and settings.Session.
//
// Below this package are those that need nothing of a session: arrival (from the
// first byte to a client that is known), settings (what a client has set),
// adminsql (functions and rows of the schema "cleave"), notify (channels), stats
// (what a statement cost).
//
// # A transaction
//
//	none ──BEGIN──▶ open, unbound ──first statement──▶ bound to a shard ──COMMIT──▶ none
//	  │                 │   ▲                              │   │
//	  │                 │   └── weakly bound: only what ◀──┘   │ a schema change joins
//	  │                 │       shows nothing of the shard     ▼
//	  │                 └───────────── first is DDL ──▶ schema change ──COMMIT──▶ none
//	  └──several statements in a message──▶ implicit: the same, ends with the message
//
// Any of them can be failed: statements are refused with 25P02 until ROLLBACK or
// ROLLBACK TO. A bound one whose conversation breaks is lost: failed, and only
// ROLLBACK is left.
//
// # Invariants
//
//   - Answers come in the order of the messages, each exactly once.
//   - A unit (a Query, or the messages up to Sync) is run again only if nothing
//     of it was committed, nothing of its answer was written to the client, and
//     nothing in it changed the session.
//   - A conversation is given back only outside a transaction and with all its
//     answers read; a cancel under way is waited for first.
//   - What the session set (SET, startup parameters) is in effect on whatever
//     conversation runs its statements.
//
// docs/design/gateway.md says more, and docs/life-of-a-query.md walks through it.
package gateway
