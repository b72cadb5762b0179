// Package sim simulates a cluster whose ranges move: the pure steps of package
// workflow and the real shard map, driven by a seed over interleavings of
// statements, changes of the map, crashes, lost leases, deposed coordinators and
// clocks that jump. What stands between them (shards, routers, coordinators) is
// simulated here, as docs/design/moving.md describes it, step by step: what is one
// step here is atomic there.
//
//	seed ──> world: directory, shards, routers, coordinators, an operator
//	          └─ each tick: one of the things that can happen next, at random
//	             └─ each step: the invariants; at the end: every workflow has ended and left nothing
//
// A run is repeated exactly by its seed. [Break] takes one safeguard away, which has
// to be found: a simulation that finds nothing there proves nothing.
package sim
