// Package simulate says what a shard key would do before a row is moved: how even
// the shards would be by each strategy, what would move when shards are added
// or removed, and what is wrong with the key. Pure: keys go in one by one, a
// report comes out; reading them is for others.
//
// # What is exact and what is estimated
//
//	exact      rows, rows on each shard, rows moved, rows without a key, skew
//	           (every key is placed as the router would place it: its position is
//	           keyspace.HashKey, its owner placement.Locator's)
//	exact up   distinct keys, up to 16,384 of them; above that HyperLogLog with a
//	to a size  standard error of 0.4 %
//	estimated  moved keys (not rows): HyperLogLog, 0.8 %
//	bounded    heaviest keys: at least Rows-Error and at most Rows (space-saving)
//	sampled    the bounds of the range strategy: quantiles of 32,768 rows
//
// # Two passes
//
// Bounds of ranges come from the data, so the range strategy needs two passes:
// a [Profile] reads all keys and samples them, then [Profile.Ranges] gives the
// strategy, whose [Tally] counts exactly in the second pass. The other
// strategies are counted in the first.
//
// # Memory
//
// Bounded whatever is read: a Profile holds less than 16 MiB, a Tally 64 counters
// for each shard and 64 KiB for each change.
package simulate
