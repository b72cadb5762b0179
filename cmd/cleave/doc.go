// Command cleave is Cleave: `cleave up` starts a cluster on this machine,
// `cleave router` a router for a cluster that exists, and the other commands
// look at a running cluster and change it over its admin API.
//
// This package is the one place where engine and directory drivers are wired
// to the rooms (see wire.go). Each command has a file of its own; what they
// share is in root.go (flags, errors, exit codes) and output.go (tables, JSON).
//
// # Life of `cleave up`
//
//	settings -> lock on the data folder -> its format file -> local shards
//	(folders, PostgreSQL servers) -> directory, bootstrap -> ports bound ->
//	recover what a crash left -> serve -> SIGTERM: drain -> close in reverse
//
// Everything before "serve" can fail, and then undoes itself in reverse. Only
// one process at a time runs a data folder; the kernel frees the lock when a
// process dies, however it dies.
package main
