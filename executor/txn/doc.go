// Package txn has transactions in which several shards take part. Transaction is what is open: its participants, what
// begins on those to come, and its one end. All of them commit, or none:
//
//	open ──PREPARE on all but one──> prepared ──INSERT decision; COMMIT on that one──> decided ──COMMIT PREPARED──> done
//	  \___________ anything fails ______/___________ it fails __________/
//	                      └──> rolled back: nobody can decide it any more
//
// Transactions is the process's coordinator: Commit is the protocol, Run is the recovery of what died routers left,
// Snapshots are atomic reads, WatchLocks finds deadlocks over several shards. The package knows conversations with shards,
// and nothing of the statements that run on them.
//
// docs/design/transactions.md has states, invariants and failure cases.
package txn
