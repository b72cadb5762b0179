// Package backup takes backups of a whole cluster at one moment, and makes a new cluster of one.
//
//	Cutter   ── marks a place on each shard, and proves that no transaction is half in ──> Cut
//	Create   ── Cut + directory + a copy of each shard ──> objects of a repository, the manifest last
//	Restore  ── objects ──> a folder with a cluster of its own
//
// docs/design/backup.md has the states, the invariants and the failure cases.
package backup
