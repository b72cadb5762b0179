// Package serverdependent finds what in an expression is another on each shard: facts about the server, the database or
// the session, and OIDs of objects.
//
// A default, and what fills rows that are there, is evaluated by each shard for itself. It must not
// say anything of the server, the database or the session, nor have the OID of an object: both
// differ between shards.
package serverdependent
