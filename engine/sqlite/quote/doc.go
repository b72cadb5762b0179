// Package quote writes names and constants into SQL, for SQLite and as PostgreSQL prints them.
package quote
