// Package ownership confines a text to the rows that a shard owns.
//
// While a part of a keyspace moves, a shard has rows that it does not own:
// strangers, which are counted where they are owned. What a shard runs over
// several keys leaves them out. It is enough to do so for one table of a text,
// the anchor of its proof, or the table that is changed: rows of the other sharded
// tables matter for rows with the same key only. Which shards have strangers is
// known when the text is run, so the texts of plans are without the condition, and
// a text with it is made when it is first needed.
package ownership
