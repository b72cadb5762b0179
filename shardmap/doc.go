// Package shardmap is the shard map: which shards exist, which keyspaces, which
// tables, and which shard owns which key range at which epoch. A [Snapshot] is
// immutable; a [Directory] stores the current one and its history, changes it by
// compare-and-set, and tells watchers.
//
//	State ──NewSnapshot──> Snapshot ──Clone, edit──> State ──Directory.Update──> next Snapshot
//	(plain data)           (valid, indexed)                  (Advance: stamps, validates)
//
// Invariants:
//   - A Snapshot is valid: every key has exactly one owner, or in a list
//     keyspace none, and every owner is a shard of the map.
//   - Versions are 1, 2, 3, ... without a gap; each was made from the one
//     before it by one change, which history names.
//   - The epoch of a range, listed value or pin is the version at which its
//     owner or its bounds last changed.
//   - Nothing is stored unless all of this holds.
//
// Files: state.go is the data, validate.go what makes it valid, index.go,
// bounds.go and ladder.go the look-ups, snapshot.go the snapshot and ownership, edit.go the
// editing of a State, advance.go the step from one version to the next, codec.go
// the stored form, diff.go the comparison, feed.go the watching that directories
// share, redact.go the hiding of passwords, lease.go and keep.go the leases of
// members, election.go the leaders, record.go the small values beside the map,
// move.go the mark of a directory that the cluster has left.
package shardmap
