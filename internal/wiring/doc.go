// Package wiring puts the rooms together: what cmd/cleave and the Go client
// (the root package) both need to turn a directory into something that answers
// statements. With them it is the only package that knows the engines' and the
// directory's drivers.
//
//   - [OpenDirectory] opens the directory that a URL names.
//   - [DataFolder] is the folder of `cleave up`: its layout, its lock.
//   - [Bootstrap] makes the first map of local shards, or tells it where they are now.
//   - [New] wires planner, executor, admin and gateway over a directory.
//
// It decides nothing: the caller says what is opened, in which order, and closes it.
package wiring
