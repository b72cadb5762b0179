// Package explain makes the answer of an EXPLAIN of a statement over several shards from what the shards explain, as
// text or as a tree of plans. It also keeps how far a statement has come and what its steps were.
package explain
