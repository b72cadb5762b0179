// Package value has PostgreSQL's values as SQLite holds them: the storage class of each type, its text and binary input
// and output, and the arithmetic of numeric, interval, date and time that SQLite does not have.
//
// A value has one storage class for its type, so that SQLite's comparison is PostgreSQL's. Nothing here knows a
// connection: what depends on a session, as the time zone, is an argument.
package value
