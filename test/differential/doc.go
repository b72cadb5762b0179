// Package differential runs the same statements on a router over several shards
// and on one PostgreSQL, and compares. docs/differential.md says what is run and
// how. A refusal (0A000) is no failure, but is counted.
package differential
