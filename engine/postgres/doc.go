// Package postgres is the engine whose shards are PostgreSQL databases, version
// 14 or later. The handshake (authentication, TLS, pgpass and service files) is
// pgconn's; after it the connection is taken over and its bytes are relayed in
// whole frames, undecoded.
//
// # What Cleave keeps on a shard
//
// Schema cleave_internal: the table shard (one row: which cluster and which
// shard this database is) and the guards' functions. Each guarded table has two
// triggers, "~cleave_guard" and "~cleave_guard_truncate". See docs/design/guard.md.
// Besides the records of transactions (transaction) and the notes of schema changes
// (schema_change). The tables belong to the mover where there is one: see Keep.
// While rows are moved: rows in the tables leader, capture and applied, and for each capture a
// publication and a replication slot. See docs/design/moving-postgres.md.
//
// # States of a conversation
//
//	connecting -> open -> closed
//	                \-> broken (an error from Send or Receive) -> closed
//
// The first conversation of a shard proves that the database belongs to the
// configured cluster and bears the configured name. The proof holds until a
// connection is lost or refused: after that, what answers at the address may be
// another database, and the next conversation proves it again.
package postgres
