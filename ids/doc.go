// Package ids makes values that are unique over the whole cluster without a
// round trip for each: time-ordered 64-bit numbers ([Generator]), the values of
// sequences in blocks ([Sequences]), and version 7 UUIDs.
//
// Nothing here relies on a lease or a clock for uniqueness. What may be given
// out is first reserved in a record of the directory, by compare-and-set: a span
// of time for a node number, a block of values for a sequence. What was reserved
// by a process that died is never given by another one.
//
//	Generator:  no window --reserve--> window [from, until) --clock at until--> reserve more
//	               ^                        |
//	               +--- the node number is another one, or somebody else wrote the record
//	Sequences:  no block --take--> block of n values --used up, or definition changed--> no block
//
// See docs/design/ids.md.
package ids
