// Package telemetry is the vocabulary of Cleave's metrics and logs. Every
// metric has a bounded number of label values: shards up to [ShardMax] (further
// ones count as "other"), statement kinds and results from fixed lists, and
// SQLSTATEs up to [CodeMax].
//
// The hot path never looks a label up: a pool asks once for its shard's
// [Shard], whose counters are resolved, and adds to them.
//
// The package imports no other room.
package telemetry
