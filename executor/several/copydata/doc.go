// Package copydata reads and writes the data of COPY in all of its forms, as PostgreSQL's copyfromparse.c and copyto.c do:
// where records end, what their values are, which of them is the shard key, and which line of the client's a shard means.
package copydata
