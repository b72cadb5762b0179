// Package engine is what one shard can do. Its drivers are the leaf packages
// postgres and sqlite; both pass the suite in enginetest. Every shard speaks the
// PostgreSQL protocol inside: a [Conn] is a conversation of its messages, so the
// rooms above know one kind of shard.
package engine
