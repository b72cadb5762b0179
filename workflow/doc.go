// Package workflow has the steps of everything that changes where rows are: moves,
// splits, merges, drains and spreads. It is pure: no clock, no I/O, no randomness.
//
// A [State] is what is stored. [Step] takes a state and an [Event] and gives the next
// state, which is stored before anything else happens, with the [Effect]s to carry
// out then, in their order. [Effects] gives them again for a state that was read from
// the store, after a crash: every effect can be repeated from the beginning of its
// list. What became of them comes back as one event: Done, or Failed with a [Class].
//
//	        Step(state, event)                run in order
//	stored ────────────────────> state' ────────────────────> event ──> Step ...
//	                             stored
//
// An event carries the [State.Seq] of the state whose effects it is about. One about
// another state comes late and changes nothing. What an operator asks for is an event
// too (Asked), which any process may apply to the stored record by compare-and-set.
//
// # The steps of a move
//
//	planned > preparing > copying > catching up > verifying > closing > opening > opened > cleaning > done
//	                                                 ^           | too late
//	                                                 └ waiting < reopening
//
// Until opening a move can be cancelled: cancelling > cancelled. From opened it can be
// rolled back: verifying, closing and opening with the roles of the shards exchanged
// ([State.Back]), then cleaning > rolled back. docs/design/moving.md has the
// invariants; docs/design/workflow.md has the table of steps, effects and failures.
package workflow
