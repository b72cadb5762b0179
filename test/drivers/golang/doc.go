// Package golang has tests for what Go programs use over a PostgreSQL connection: GORM, Bun, xorm, go-pg, squirrel, sqlx,
// golang-migrate and goose. It is a module of its own, so that the project does not depend on them.
package golang
