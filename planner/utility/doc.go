// Package utility reads statements about the session that touch no table: transactions, settings, PREPARE and EXECUTE,
// cursors, users, and calls of Cleave's own functions. PostgreSQL calls them utility statements.
package utility
