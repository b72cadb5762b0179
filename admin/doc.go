// Package admin holds the operations on a cluster, each once: the SQL functions
// of the schema "cleave", the HTTP API and the CLI call the same methods with the
// same names. An operation is validated whole before anything changes, carries who
// and why into the map's history, and with DryRun only says what it would do.
//
// [Ops] is made of parts, each of which knows the backend (the directory, and the shards, which are opened once) and its own job:
// users, sessions, views, workflows, verification, replicas, and the copies of unsharded tables. Shards, keyspaces, tables and
// the doctor need several of them, and are Ops' own.
package admin
