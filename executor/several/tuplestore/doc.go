// Package tuplestore keeps rows of a cursor that were read, in memory and in a file, so that they can be read again in any
// direction (tuplestore.c of PostgreSQL).
package tuplestore
