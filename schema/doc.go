// Package schema carries out schema changes (DDL) on several shards with one
// result: every shard that holds the table and the shard map change together, or
// none does where the engine can promise that, and the exact place where it
// stopped is reported where the engine cannot.
//
// # Types
//
//   - [Tx] is the change: its statements in their order, the locks, the commit.
//   - part is one shard's side: a conversation, what is read of the shard's catalogue, what is refused there.
//   - changes is the private map; after puts it on top of any newer map.
//   - edit is what one statement changes of the map; distribution is what becomes of tables that are sharded or carried.
//   - intent is a statement that no transaction can hold, in the directory while it runs.
//
// # States
//
//	open ──Exec──▶ executed ──PREPARE──▶ prepared ──Directory.Update──▶ decided ──members──▶ followed ──COMMIT PREPARED──▶ committed
//	  │                │                     │                             │
//	  │                │ error               │ error, or the map refuses   │ a shard is down: Recover finishes it
//	  ▼                ▼                     ▼                             ▼
//	rolled back     failed ──▶ rolled back   rolled back                   committed, with a warning
//
// The decision is one compare-and-set of the shard map whose Change.ID is the
// transaction's id. A process that finds a prepared transaction (its gid is
// cleave_ddl_<id>_<shard>) looks the id up in the map's history: there, it is
// committed; not there, it is rolled back, but only after the rollback itself
// was written to the history under the same id, again by compare-and-set. So
// a coordinator that is merely slow cannot commit what was rolled back: its own
// compare-and-set then fails, and it looks the id up before it tries again. No
// clock takes part in this; the age that [Recover] waits for is only politeness.
//
// Between decided and followed every member of the directory acknowledges a map that
// makes a sharded table, or makes one another: a router with an older one would take it
// for a table of the default shard. Recover waits for the same. Other changes wait for
// the members at their end, when their locks are gone.
//
// # Without prepared transactions
//
// SQLite, and PostgreSQL with max_prepared_transactions = 0, cannot prepare. There
// the rule is: the map knows a table as long as any shard may hold it. New
// tables, new names and new definitions are written to the map before the first
// COMMIT, removals after the last one. A crash in between leaves, at worst, a table that
// the map knows and a shard does not have: the shard answers 42P01, which is
// refused, not wrong. The other order could leave a sharded table that the map
// does not know; it would look like an ordinary table of the default shard and a
// query would see only one shard's rows. The default shard commits last: it holds
// the lock that keeps other schema changes out.
//
// Each shard notes the ids of the changes that it has, in the same transaction
// as the change itself. So [Recover] knows exactly which shard lacks which change, and runs
// the missing statements there.
//
// # The ledger
//
// The statements of a change are stored in the map's history. [Replay] runs them
// on a new shard, which thereby gets the same schema; see ledger.go for the form.
//
// # Order of locks
//
// The default shard first, then the others by name; on the default shard an advisory lock
// (PostgreSQL) or the file's write lock (SQLite) is taken before anything else.
// So two schema changes cannot wait for each other in a circle that no shard
// sees. Every wait is bounded by lock_timeout all the same, because ordinary transactions
// hold locks as well.
package schema
