// Package admin holds the operations on a cluster, each once: the SQL functions
// of the schema "cleave", the HTTP API and the CLI call the same methods with the
// same names. An operation is validated whole before anything changes, carries who
// and why into the map's history, and with DryRun only says what it would do.
package admin
