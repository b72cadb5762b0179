// Package sim simulates a cluster whose ranges move. The coordinators are the real ones, of package coordinator, with the real steps
// of package workflow and the real shard map. What they work on is simulated: shards, which keep what [engine.Mover] promises, the
// directory, routers, psql and an operator. docs/design/moving.md describes both.
//
//	seed ──> world: directory, shards, routers, processes with a coordinator, an operator
//	          └─ each tick: one of the things that can happen next, at random
//	             └─ each step: the invariants; at the end: every workflow has ended and left nothing
//
// A coordinator's goroutines run in a bubble of [synctest], whose clock the simulation moves. Each call that changes a shard, the
// map or a workflow's record waits at a [gate] until its turn comes; it may fail, or lose its answer. Between two gates
// the coordinators only compute and read, which takes no time.
//
// A run is repeated exactly by its seed. [Break] takes one safeguard away, which has
// to be found: a simulation that finds nothing there proves nothing.
package sim
