// Package heat measures where the load is, in bounded memory: how many statements the
// numbered units of a shard map get ([Meter], [Rates]), and which keys are named most
// often ([Sketch]).
//
// Counting is two atomic additions on the path of a statement, without a lock and without
// allocation, also for one that touches many units. Everything else is done beside it, every few seconds, by one goroutine.
package heat
