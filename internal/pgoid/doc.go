// Package pgoid names the OIDs of PostgreSQL's built-in types, which are the same in every database and version.
package pgoid
