// Package limits is what sessions and the router's configuration allow of statements over several shards: how many
// shards, rows and bytes, how long, and how much a statement may hold in the router.
package limits
