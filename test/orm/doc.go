// Package orm runs libraries that know nothing of Cleave against it, unchanged:
// goose migrations, GORM, and code that sqlc generates. Each test runs on SQLite
// and on PostgreSQL shards through the Go client, and through a router over TCP.
package orm
