// Package sqlstate is the registry of the errors that Cleave returns: for each
// one its SQLSTATE, what a client may do about it, and the hint that names the
// next command to run.
//
// Codes are PostgreSQL's own (errcodes.txt of the PostgreSQL sources, Appendix
// A of its manual) wherever one fits, so that drivers classify them without
// knowing Cleave. The one private code, [NotOwner], is raised by a shard's
// guard and is seen only by those who write to a shard directly: a router that
// meets it refreshes its map and runs the statement again.
//
// The package imports no other room.
package sqlstate
