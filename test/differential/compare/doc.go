// Package compare runs a statement on a connection and tells two outcomes apart:
// columns, types, values, order, command tags and errors. It takes the first as
// what is right, that of one PostgreSQL.
package compare
