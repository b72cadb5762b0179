// Package placement proposes which shard owns what. Pure: the same arguments
// give the same answer, always, everywhere; no I/O, no clock, no randomness
// beyond a seed that the caller gives. The map decides: nothing here is asked
// when a statement is routed.
//
// There are two questions and an answer to each:
//
//   - Where would this position go? A [Locator], made by [New] with one of five
//     algorithms, maps hash positions to shards. [Compare] counts what moves
//     between two of them. Simulations and hashing without a map use it.
//   - Who should own these ranges, values and pins? [Propose] takes what is
//     owned now, the shards and the constraints, and gives an owner to each
//     [Unit], with what moves. The caller changes the map.
//
// # Invariants
//
//  1. Shards are known by name. Except for jump and modulo, which number their
//     buckets in the order given, the order of shards does not matter, and
//     removing one from the middle moves only what it had.
//  2. A Locator's answers never change from version to version of Cleave: golden
//     vectors hold each algorithm, and floating point is used only where every machine
//     computes the same bits.
//  3. A shard of weight 0 is drained: it gets nothing and keeps nothing.
//  4. A constraint is never broken. Where all cannot be kept, the error names
//     those that contradict each other, and the shards that would help.
package placement
